//! One request as its method's function sees it: the target, the caller, and the service.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use http::{HeaderMap, HeaderName, Uri, Version, header, uri::Authority};
use towpath_proto::http::{
    challenge::BearerError,
    condition::{Conditions, Decision},
};
use towpath_store::{Caller, Error, Fault, Metadata, Result, Store, StorePath};

use super::{
    connection_state::{Claim, ConnectionState},
    refusal::Refusal,
    request_tracker::RequestTracker,
    respond::{self, field},
    target::{self, Target},
    verb::Verb,
};
use crate::{
    Service,
    access::{Activity, Identity},
    fair_pool::{Class, FILE_LEASE_TIMEOUT, Lease, LeaseHolder},
};

/// A request without its body.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) service: Arc<Service>,
    pub(super) connection: Arc<ConnectionState>,
    pub(super) identity: Identity,
    /// The holder whose shares of memory, files, locks and uploads it uses.
    pub(super) holder: Arc<LeaseHolder>,
    pub(super) verb: Verb,
    pub(super) version: Version,
    pub(super) target: Target,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// Accounts for the request.
    pub(super) tracker: Mutex<RequestTracker>,
    /// Whether the identity lacked a required right.
    pub(super) lacks_right: AtomicBool,
}

/// Rejects a file beyond the share of its holder.
pub(super) fn too_many_files() -> Refusal {
    Refusal::overloaded("your share of open files is exhausted: try again later")
}

impl Exchange {
    /// Returns the store.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.service.store
    }

    /// Returns the caller.
    pub(super) fn caller(&self) -> &Caller {
        &self.identity.caller
    }

    /// Returns the path of the target.
    pub(super) fn path(&self) -> &StorePath {
        &self.target.path
    }

    /// Returns the query of the target without the token of the caller; `None` if nothing is left.
    pub(super) fn query(&self) -> Option<String> {
        target::without_token(self.uri.query()?)
    }

    /// Returns what selects the content together with the path ([`towpath_store::OpenOptions::query`]); `None` for a
    /// directory, or if the files of the store have no queries.
    pub(super) fn content_query(&self) -> Option<String> {
        let query = self.query().map(|query| format!("?{query}"));
        let content = match (&self.target.long_name, query) {
            (Some(name), query) => Some(format!("{name}{}", query.unwrap_or_default())),
            (None, query) => query,
        };
        content.filter(|_| !self.target.slash && self.store().capabilities().queries)
    }

    /// Checks that the caller has the right to `activity` on the target.
    pub(super) fn may(&self, activity: Activity) -> Result<()> {
        self.may_at(activity, self.path())
    }

    /// Checks that the caller has the right to `activity` on `path`.
    pub(super) fn may_at(&self, activity: Activity, path: &StorePath) -> Result<()> {
        let checked = self.identity.check(activity, path);
        self.lacks_right.fetch_or(checked.is_err(), Relaxed);
        checked
    }

    /// Checks the right to stat `path`, see [`Identity::check_stat_before`].
    pub(super) fn may_stat_before(&self, activity: Activity, path: &StorePath) -> Result<()> {
        let checked = self.identity.check_stat_before(activity, path);
        self.lacks_right.fetch_or(checked.is_err(), Relaxed);
        checked
    }

    /// Checks that the store can create a file at the target, or replace the existing one.
    pub(super) fn check_create(&self, existing: Option<&Metadata>) -> Result<()> {
        let can = self.store().capabilities();
        can.check_create(self.path())?;
        if existing.is_some() { can.check_replace(self.path()) } else { Ok(()) }
    }

    /// Adds a `BearerError` to the refusal if the request's token is the cause. A refusal by file permissions is not.
    pub(super) fn explain(&self, refusal: Refusal) -> Refusal {
        match refusal.fault() {
            _ if !self.identity.has_token() => refusal,
            Fault::AuthenticationFailed => refusal.of_token(BearerError::INVALID_TOKEN),
            Fault::PermissionDenied if self.lacks_right.load(Relaxed) => {
                refusal.of_token(BearerError::INSUFFICIENT_SCOPE)
            }
            _ => refusal,
        }
    }

    /// Returns a header field, with all its lines joined.
    pub(super) fn field(&self, name: impl Into<HeaderName>) -> Option<String> {
        field(&self.headers, name)
    }

    /// Returns a non-standard header field, by lowercase name.
    pub(super) fn custom_field(&self, name: &'static str) -> Option<String> {
        field(&self.headers, HeaderName::from_static(name))
    }

    /// Returns the metadata of the target, or `None` if it does not exist.
    pub(super) async fn metadata(&self) -> Result<Option<Metadata>> {
        self.metadata_of(self.path()).await
    }

    /// Returns the metadata of a path, or `None` if it does not exist.
    pub(super) async fn metadata_of(&self, path: &StorePath) -> Result<Option<Metadata>> {
        match self.store().stat(self.caller(), path).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Rejects a target with a trailing slash that is not a directory.
    pub(super) fn refuse_slash_of_file(&self, found: Option<&Metadata>) -> Result<()> {
        match self.target.slash && !self.path().is_root() && !found.is_some_and(Metadata::is_directory) {
            true => Err(Error::new(Fault::NotFound, "there is no directory of this name").at(self.path())),
            false => Ok(()),
        }
    }

    /// Returns the conditions of the request.
    pub(super) fn conditions(&self) -> Result<Conditions, Refusal> {
        let [matches, none_match] = [self.field(header::IF_MATCH), self.field(header::IF_NONE_MATCH)];
        let [since, not_since] = [self.field(header::IF_MODIFIED_SINCE), self.field(header::IF_UNMODIFIED_SINCE)];
        Conditions::new(matches.as_deref(), none_match.as_deref(), since.as_deref(), not_since.as_deref())
            .map_err(|error| Refusal::bad_request(error.to_string()))
    }

    /// Rejects a modifying request whose conditions do not hold for the existing resource.
    pub(super) fn check_conditions(&self, existing: Option<&Metadata>) -> Result<(), Refusal> {
        let conditions = self.conditions()?;
        if conditions.is_empty() {
            return Ok(());
        }
        let validators = existing.map(respond::validators).unwrap_or_default();
        match conditions.evaluate(false, &validators) {
            Decision::Proceed => Ok(()),
            Decision::NotModified | Decision::PreconditionFailed => {
                Err(match (existing, self.field(header::IF_NONE_MATCH)) {
                    (Some(_), Some(tags)) if tags.trim() == "*" => {
                        Refusal::precondition_failed().of(Fault::AlreadyExists)
                    }
                    _ => Refusal::precondition_failed(),
                })
            }
        }
    }

    /// Returns the host and port that the client sent, without user information, which is not part of a location.
    pub(super) fn authority(&self) -> Option<Authority> {
        let sent = self.headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        self.uri.authority().cloned().or(sent.filter(|sent| !sent.as_str().contains('@')))
    }

    /// Returns the name of the site for pages: the configured one, or else the host that the client sent.
    pub(super) fn site_name(&self) -> String {
        match self.authority() {
            Some(authority) if self.service.site.is_empty() => authority.host().to_owned(),
            _ => self.service.site_name().to_owned(),
        }
    }

    /// Returns a claim on memory for the body of this request or its response.
    pub(super) fn claim(&self) -> Claim {
        Claim::new(&self.connection, &self.holder)
    }

    /// Takes a lease for an open file from the holder's share, for the duration of the response.
    ///
    /// # Errors
    /// 503 if the holder's share of open files is exhausted.
    pub(super) async fn open_file(&self) -> Result<Lease, Refusal> {
        let (files, activity) = (&self.service.files, &self.connection.activity);
        files.take_soon(&self.holder, Class::Small, activity, FILE_LEASE_TIMEOUT).await.ok_or_else(too_many_files)
    }

    /// Records the fault behind a response of an additional route.
    pub(super) fn set_fault(&self, fault: Fault) {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner).set_fault(fault);
    }

    /// Counts received bytes of an upload.
    pub(super) fn received(&self, bytes: u64) {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner).received(bytes);
    }
}
