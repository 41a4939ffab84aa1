//! Decides whether a known version serves a request without the origin, or replaces an error of the origin (RFC 9111 §4,
//! RFC 5861 §4), and keeps the versions and missing paths for that.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures::future::BoxFuture;
use towpath_store::{
    Blame, CacheDirectives, Error, Fault, Freshness, Metadata, Result, Reuse, is_settled,
    sys::clock::{self, Instant},
};

use crate::{
    breaker::is_unreachable,
    missing::target_key,
    names::KnownVersion,
    origin::{Credential, Origin},
    results::is_of_content,
    rules::{Recheck, Rule},
    store::CacheStore,
    target::Target,
    version::Version,
};

/// Maximum time for an origin to respond if a stale version can take the place of its response. The client would repeat
/// a failed request for longer, while a reader waits for bytes that are at hand.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The known version of a path, and the conditions of its use, before a request to the origin.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) rule: Rule,
    /// At each origin that has reported one.
    known: Vec<Arc<KnownVersion>>,
    directives: CacheDirectives,
    /// Whether a stale version may take the place of an error.
    accepts_stale: bool,
    /// The time of the lookup, before the request.
    requested_s: i64,
    requested: Instant,
}

impl Lookup {
    /// Returns the version to use without a request to the origin.
    pub(crate) fn usable(&self) -> Option<&KnownVersion> {
        self.known.iter().find(|known| self.is_usable(known)).map(|known| &**known)
    }

    fn is_usable(&self, known: &KnownVersion) -> bool {
        let CacheDirectives { no_cache, max_age_s, .. } = self.directives;
        let is_due = self.rule.recheck.is_due(known.asked_s, &known.freshness, self.requested_s);
        // RFC 8246 §2.1: an immutable version needs no check while it is fresh.
        let is_immutable = known.freshness.control().immutable && known.freshness.is_fresh(self.requested_s);
        let age_s = known.freshness.age_s(self.requested_s);
        let is_young = is_immutable || max_age_s.is_none_or(|max_age_s| max_age_s > 0 && age_s <= u64::from(max_age_s));
        !no_cache && !is_due && is_young
    }

    /// Returns the version to use if the origin fails; `None` also if the client does not accept one of its age.
    fn stale(&self) -> Option<&Arc<KnownVersion>> {
        let permitted = self.known.iter().filter(|known| self.accepts_stale && self.may_be_stale(known));
        permitted.max_by_key(|known| known.asked_s)
    }

    fn may_be_stale(&self, known: &KnownVersion) -> bool {
        let CacheDirectives { no_cache, max_age_s, .. } = self.directives;
        let is_too_old =
            max_age_s.is_some_and(|max_age_s| known.freshness.age_s(self.requested_s) > u64::from(max_age_s));
        if no_cache || is_too_old || known.asked_s > self.requested_s {
            return false;
        }
        let Some(permitted) = permitted_staleness(&self.rule, &known.freshness) else { return false };
        let freshness = &known.freshness;
        let (since_s, lifetime_s) = match self.rule.recheck {
            Recheck::After(time) => (known.asked_s, time.as_secs()),
            _ => (freshness.generated_s, freshness.control().lifetime_s().unwrap_or(0).into()),
        };
        let age_s = u64::try_from(self.requested_s.saturating_sub(since_s)).unwrap_or(0);
        age_s.saturating_sub(lifetime_s) <= permitted.as_secs()
    }

    /// Returns metadata and freshness of the known version of an origin; `None` also if a comparison of its time could miss
    /// a change of the content within the same second (RFC 9110 §8.8.2.2).
    pub(crate) fn held(&self, origin: &str) -> Option<Metadata> {
        let known = self.known.iter().find(|known| *known.version.origin == *origin)?;
        let freshness = Some(Arc::new(known.freshness.clone()));
        let held = Metadata { freshness, ..known.version.metadata() };
        let is_certain = |mtime_ns| is_settled(mtime_ns, known.asked_s.saturating_mul(1_000_000_000));
        let is_by_time = is_of_content(held.version.as_ref());
        (!is_by_time || held.mtime_ns.is_some_and(is_certain)).then_some(held)
    }

    /// Returns the version to use in place of `error`, a failure of the origin.
    pub(crate) fn stale_instead_of(&self, error: &Error) -> Option<&Arc<KnownVersion>> {
        self.stale().filter(|_| is_failure(error))
    }

    /// Forbids stale versions: the client requires a certain one.
    pub(crate) fn without_stale(self) -> Self {
        Self { accepts_stale: false, ..self }
    }

    /// Returns the directives of the client.
    pub(crate) fn directives(&self) -> CacheDirectives {
        self.directives
    }

    /// Dates the statement of the origin back to the request: the response may have been generated at any time since.
    pub(crate) fn date_back(&self, mut metadata: Metadata) -> Metadata {
        if let Some(freshness) = &mut metadata.freshness {
            let delay_s = clock::unix_s().saturating_sub(self.requested_s).max(0);
            let freshness = Arc::make_mut(freshness);
            freshness.generated_s = freshness.generated_s.saturating_sub(delay_s);
        }
        metadata
    }

    /// Returns whether the content of the file may be stored. The origin decides, unless the operator has.
    pub(crate) fn may_store(&self, metadata: &Metadata) -> bool {
        let is_permitted = metadata.freshness.as_ref().is_none_or(|freshness| freshness.control().may_store());
        is_permitted || self.rule.recheck.is_explicit()
    }

    /// Returns whether the version that the origin reported is worth remembering: a later open may use it.
    fn is_useful(&self, freshness: &Freshness) -> bool {
        let is_fresh = self.rule.recheck == Recheck::Origin && freshness.is_fresh(self.requested_s);
        self.rule.recheck.is_explicit() || is_fresh || permitted_staleness(&self.rule, freshness).is_some()
    }

    /// Returns the time for which a missing file is remembered, given the error of the origin; `None` if not at all.
    fn missing_time(&self, error: &Error) -> Option<Duration> {
        let stated = || {
            let freshness = error.freshness().filter(|freshness| freshness.control().may_store())?;
            u64::try_from(freshness.remaining_s(self.requested_s)?).ok().map(Duration::from_secs)
        };
        match (self.rule.missing, self.rule.recheck) {
            (Some(time), _) => Some(time),
            (None, Recheck::Always) => None,
            (None, _) => stated(),
        }
        .filter(|time| !time.is_zero())
    }
}

/// Returns for how long after its lifetime a version may replace an error; `None` if not at all.
fn permitted_staleness(rule: &Rule, freshness: &Freshness) -> Option<Duration> {
    let control = freshness.control();
    let stated = || control.stale_if_error_s.map(|time_s| Duration::from_secs(time_s.into()));
    let permitted = rule.stale_if_error.or_else(stated).filter(|time| !time.is_zero());
    permitted.filter(|_| !control.forbids_stale())
}

/// Returns whether an error means that the origin failed (RFC 5861 §4), and not that it refused the request.
fn is_failure(error: &Error) -> bool {
    is_unreachable(error) || matches!(error.code(), Some(500 | 502 | 503 | 504))
}

impl KnownVersion {
    /// Returns the metadata of the file, as far as they are known.
    pub(crate) fn metadata(&self, reuse: Reuse) -> Metadata {
        let freshness = self.freshness.clone().reused(reuse);
        Metadata { freshness: Some(Arc::new(freshness)), ..self.version.metadata() }
    }
}

impl CacheStore {
    /// Looks up the known version of a target.
    ///
    /// # Errors
    /// `NotFound` if it was missing recently; `TimedOut` if a request to the origin is needed, and the directives
    /// forbid it.
    pub(crate) async fn look_up(&self, target: &Target, directives: CacheDirectives) -> Result<Lookup> {
        let (requested_s, requested) = (clock::unix_s(), clock::now());
        let rule = self.rules.of(target);
        let may_use_missing = !directives.no_cache && directives.max_age_s.is_none();
        if may_use_missing && self.missing.contains(target) {
            self.origins.primary().counters.missing.fetch_add(1, Relaxed);
            let message = "it does not exist at the origin, which was asked recently";
            return Err(Error::new(Fault::NotFound, message).at(target));
        }
        let known = match self.asks_for_each_caller() {
            true => Vec::new(),
            false => self.known_versions(target).await,
        };
        let lookup = Lookup { rule, known, directives, accepts_stale: true, requested_s, requested };
        if directives.only_if_cached && lookup.usable().is_none() {
            return Err(not_cached().at(target));
        }
        Ok(lookup)
    }

    /// Whether each open contacts the origin, because only the origin knows the rights of the caller. No version is used
    /// without the origin then: a response to one caller may not be valid for another.
    pub(crate) fn asks_for_each_caller(&self) -> bool {
        self.origins.primary().credential == Credential::Caller
    }

    /// Calls `request` at the first origin that can be reached. Returns the response, or the stale version that takes its
    /// place if the origins fail or do not respond within [`STALE_AFTER`].
    ///
    /// # Errors
    /// Errors of the origins.
    pub(crate) async fn call_or_stale<'a, T>(
        &'a self,
        lookup: &Lookup,
        request: impl Fn(&'a Arc<Origin>) -> BoxFuture<'a, Result<T>>,
    ) -> Result<Result<(&'a Arc<Origin>, T), Arc<KnownVersion>>> {
        let Some(stale) = lookup.stale() else { return self.origins.call(request).await.map(Ok) };
        match self.origins.call_replaceable(STALE_AFTER, request).await {
            Err(error) if is_failure(&error) => {
                tracing::debug!(path = %stale.version.target, %error, "using a stale version");
                self.origins.primary().counters.stale.fetch_add(1, Relaxed);
                Ok(Err(Arc::clone(stale)))
            }
            outcome => outcome.map(Ok),
        }
    }

    /// Remembers the version that the origin reported, if a later open may use it; otherwise forgets an older one.
    pub(crate) async fn remember(&self, lookup: &Lookup, target: &Target, version: Option<&Version>, found: &Metadata) {
        // The name leads to an entry that another origin may have filled.
        let has_several = self.origins.all().len() > 1;
        if self.asks_for_each_caller() && !has_several {
            return;
        }
        if self.missing.contains(target) {
            self.missing.remove(&[target_key(target)]);
        }
        let freshness = found.freshness.as_deref().cloned();
        let freshness = freshness.unwrap_or_else(|| Freshness::new("", lookup.requested_s));
        // The result of a query is requested on condition that it is another version.
        let is_useful = lookup.is_useful(&freshness) || target.query().is_some();
        if has_several && !is_useful && lookup.known.iter().any(|known| Some(&known.version) == version) {
            return;
        }
        let version = version.filter(|_| has_several || is_useful);
        let Some(version) = version.filter(|_| self.writes.is_current(target, lookup.requested)) else {
            if !lookup.known.is_empty() {
                self.forget_names(target).await;
            }
            return;
        };
        let known = KnownVersion { version: version.clone(), asked_s: lookup.requested_s, freshness };
        self.write_name(known, target, lookup.requested).await;
    }

    /// Stores a known version of a target in the cache, requested at `requested`; only in memory if the disk fails. If the
    /// path was written meanwhile, it is forgotten again, also if the caller leaves.
    async fn write_name(&self, known: KnownVersion, target: &Target, requested: Instant) {
        let (cache, writes, target) = (self.cache.clone(), Arc::clone(&self.writes), target.clone());
        let store = move || {
            let (origin, origin_target) = (Arc::clone(&known.version.origin), known.version.target.clone());
            let stored = match cache.disk().accepts_data() {
                true => cache.names().write(cache.disk(), known),
                false => {
                    cache.names().insert(known);
                    Ok(())
                }
            };
            if !writes.is_current(&target, requested) {
                cache.names().forget(cache.disk(), &origin, &origin_target);
            }
            stored
        };
        if let Err(error) = self.cache.disk().pool.run(store).await {
            self.cache.disk().record_failure(&error);
        }
    }

    /// Remembers an error that says that the file does not exist, as long as rule or origin permit.
    pub(crate) async fn remember_missing(&self, lookup: &Lookup, target: &Target, error: &Error) {
        if error.fault() != Fault::NotFound || self.asks_for_each_caller() {
            return;
        }
        if !lookup.known.is_empty() {
            self.forget_names(target).await;
        }
        if let Some(time) = lookup.missing_time(error)
            && self.writes.is_current(target, lookup.requested)
        {
            self.missing.insert(target, time.saturating_sub(clock::now() - lookup.requested));
            // A write that began meanwhile may have removed it before it was inserted.
            if !self.writes.is_current(target, lookup.requested) {
                self.missing.remove(&[target_key(target)]);
            }
        }
    }

    /// Forgets the known versions of a target in the cache.
    pub(crate) async fn forget_names(&self, target: &Target) {
        let (cache, origins, target) = (self.cache.clone(), Arc::clone(&self.origins), target.clone());
        let forget = move || {
            for origin in origins.all() {
                cache.names().forget(cache.disk(), &origin.name, &origin.target(&target)?);
            }
            Ok(())
        };
        if let Err(error) = self.cache.disk().pool.run(forget).await {
            self.cache.disk().record_failure(&error);
        }
    }
}

/// Returns the error for a request that forbids contacting the origin (RFC 9111 §5.2.1.7: status 504).
pub(crate) fn not_cached() -> Error {
    let message = "the cache does not have it, and the request forbids contacting the origin";
    Error::new(Fault::TimedOut, message).blamed_on(Blame::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_000_000;

    fn lookup(rule: Rule, statement: &str, age_s: i64) -> Lookup {
        let version = Version {
            origin: "http://host".into(),
            target: Target::parse(b"/f").unwrap(),
            size: 5,
            mtime_ns: Some(7),
            tag: None,
        };
        let asked_s = NOW_S - age_s;
        let known = vec![Arc::new(KnownVersion { version, asked_s, freshness: Freshness::new(statement, asked_s) })];
        Lookup {
            rule,
            known,
            directives: CacheDirectives::default(),
            accepts_stale: true,
            requested_s: NOW_S,
            requested: clock::now(),
        }
    }

    #[test]
    fn a_known_version_is_used_as_long_as_rule_origin_and_client_permit() {
        let hour = Recheck::After(Duration::from_secs(3600));
        let client = |max_age_s, no_cache| CacheDirectives { max_age_s, no_cache, ..CacheDirectives::default() };
        let any = client(None, false);
        for (recheck, statement, age_s, directives, expected) in [
            (Recheck::Origin, "max-age=60", 59, any, true),
            (Recheck::Origin, "max-age=60", 60, any, false),
            (Recheck::Origin, "max-age=60", -1, any, false),
            (Recheck::Origin, "", 0, any, false),
            (Recheck::Origin, "no-cache", 0, any, false),
            (Recheck::Always, "max-age=60", 0, any, false),
            (hour, "no-cache", 3599, any, true),
            (hour, "max-age=9999", 3600, any, false),
            (Recheck::Never, "no-store", 9999, any, true),
            (Recheck::Origin, "max-age=60", 30, client(None, true), false),
            (Recheck::Origin, "max-age=60", 30, client(Some(30), false), true),
            (Recheck::Origin, "max-age=60", 30, client(Some(29), false), false),
            (Recheck::Origin, "max-age=60", 0, client(Some(0), false), false),
            (Recheck::Origin, "max-age=60, immutable", 30, client(Some(0), false), true),
            (Recheck::Origin, "max-age=60, immutable", 30, client(None, true), false),
            (Recheck::Never, "max-age=60, immutable", 61, client(Some(0), false), false),
        ] {
            let lookup = Lookup { directives, ..lookup(recheck.into(), statement, age_s) };
            assert_eq!(lookup.usable().is_some(), expected, "{recheck} {statement} {age_s} {directives:?}");
        }
    }

    #[test]
    fn a_stale_version_replaces_an_error_as_long_as_rule_or_origin_permit() {
        let rule = |recheck, stale_s: u64| Rule {
            recheck,
            stale_if_error: Some(Duration::from_secs(stale_s)),
            ..Rule::default()
        };
        let hour = Recheck::After(Duration::from_secs(3600));
        for (rule, statement, age_s, expected) in [
            (Rule::default(), "max-age=60", 61, false),
            (Rule::default(), "max-age=60, stale-if-error=100", 160, true),
            (Rule::default(), "max-age=60, stale-if-error=100", 161, false),
            (Rule::default(), "stale-if-error=100", 100, true),
            (Rule::default(), "max-age=60, stale-if-error=100", -5, false),
            (Rule::default(), "max-age=60, stale-if-error=100, must-revalidate", 61, false),
            (Rule::default(), "s-maxage=60, stale-if-error=100", 61, false),
            (Rule::default(), "no-cache, stale-if-error=100", 61, false),
            (Rule::from(Recheck::Always), "stale-if-error=100", 100, true),
            (rule(Recheck::Origin, 1000), "", 1000, true),
            (rule(Recheck::Origin, 1000), "", 1001, false),
            (rule(Recheck::Origin, 1000), "max-age=60, stale-if-error=100", 1060, true),
            (rule(Recheck::Origin, 0), "max-age=60, stale-if-error=100", 61, false),
            (rule(Recheck::Origin, 1000), "max-age=60, must-revalidate", 61, false),
            (rule(hour, 1000), "", 4600, true),
            (rule(hour, 1000), "", 4601, false),
            (rule(hour, 1000), "max-age=60, proxy-revalidate", 3601, false),
        ] {
            let found = lookup(rule, statement, age_s).stale().is_some();
            assert_eq!(found, expected, "{rule:?} {statement} {age_s}");
        }
        for (max_age_s, no_cache, expected) in
            [(Some(70), false, true), (Some(60), false, false), (Some(0), false, false), (None, true, false)]
        {
            let directives = CacheDirectives { max_age_s, no_cache, ..CacheDirectives::default() };
            let lookup = Lookup { directives, ..lookup(Rule::default(), "max-age=60, stale-if-error=100", 61) };
            assert_eq!(lookup.stale().is_some(), expected, "{directives:?}");
        }
    }

    #[test]
    fn only_failures_of_the_origin_are_replaced() {
        let error = |fault| Error::new(fault, "x");
        assert!(is_failure(&error(Fault::Unavailable)) && is_failure(&error(Fault::TimedOut)));
        assert!(is_failure(&error(Fault::Internal).with_code(500)));
        for (fault, code) in [(Fault::NotFound, 404), (Fault::PermissionDenied, 403), (Fault::Unsupported, 501)] {
            assert!(!is_failure(&error(fault).with_code(code)), "{code}");
        }
    }

    #[test]
    fn a_missing_file_is_remembered_as_long_as_rule_or_origin_say() {
        let stated = |text: &str| {
            let freshness = (!text.is_empty()).then(|| Freshness::new(text, NOW_S - 1));
            Error::new(Fault::NotFound, "x").with_freshness(freshness)
        };
        let ten = Rule { missing: Some(Duration::from_secs(10)), ..Recheck::Always.into() };
        for (rule, statement, expected_s) in [
            (Rule::default(), "max-age=60", Some(59)),
            (Rule::default(), "max-age=1", None),
            (Rule::default(), "max-age=60, no-store", None),
            (Rule::default(), "", None),
            (Recheck::Always.into(), "max-age=60", None),
            (Recheck::Never.into(), "max-age=60", Some(59)),
            (ten, "", Some(10)),
            (ten, "max-age=60", Some(10)),
            (Rule { missing: Some(Duration::ZERO), ..Rule::default() }, "max-age=60", None),
        ] {
            let time = lookup(rule, "", 0).missing_time(&stated(statement));
            assert_eq!(time, expected_s.map(Duration::from_secs), "{rule:?} {statement}");
        }
    }
}
