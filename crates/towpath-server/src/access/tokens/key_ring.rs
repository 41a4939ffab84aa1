//! The keys of one issuer, kept fresh.
//!
//! | cached keys | the token's key | action |
//! | --- | --- | --- |
//! | younger than [`REFRESH_AGE`] | included | use them |
//! | up to twice as old | included | use them, and refresh them in the background |
//! | older | included | refresh and wait once; if that fails, as in the row above |
//! | any | not included | refresh, at most once per [`FETCH_INTERVAL`], and wait |
//! | none, or older than [`EXPIRY_AGE`] | | fetch, at most once per [`EMPTY_FETCH_INTERVAL`], and wait |
//!
//! At most one fetch per issuer is in flight, in a separate task: cancelling one request does not stop it for the
//! others.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use towpath_store::{
    Blame, Error, Fault, Result,
    sys::clock::{self, Instant},
};

use super::{
    super::DenialReason,
    jwt::Jwt,
    keys::{KeySet, KeySource, KeysError},
    token_error::{TokenError, clip},
};

/// Age at which keys are refreshed: the minimum that WLCG profile §4.3.1 allows, because a revoked key stays usable
/// for up to twice as long.
const REFRESH_AGE: Duration = Duration::from_secs(3600);
/// Age at which keys that could not be refreshed expire: recommended by WLCG profile §4.3.1, so that an issuer can be
/// down for a while.
const EXPIRY_AGE: Duration = Duration::from_secs(2 * 24 * 3600);
/// Minimum time between two fetches while keys are cached: any token with an unknown key can trigger a fetch.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two fetches while no keys are cached: no token can be verified, so it is worth retrying
/// sooner.
const EMPTY_FETCH_INTERVAL: Duration = Duration::from_secs(10);

type SharedFetch = Shared<BoxFuture<'static, ()>>;

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct KeyRing {
    source: Box<dyn KeySource>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cached: Option<CachedKeys>,
    /// When the last fetch began.
    last_fetch: Option<Instant>,
    /// The error of the last fetch, if it failed.
    failure: Option<String>,
    /// The fetch in flight.
    fetch: Option<SharedFetch>,
}

#[derive(Debug, Clone)]
struct CachedKeys {
    keys: Arc<KeySet>,
    since: Instant,
}

/// The next step in verifying a token.
enum KeyLookup {
    Use(Arc<KeySet>),
    Wait(SharedFetch),
    Refuse(Error),
}

impl KeyRing {
    /// Creates a ring without keys.
    pub(super) fn new(source: Box<dyn KeySource>) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// Creates a ring with keys that were just loaded.
    pub(super) fn with_keys(source: Box<dyn KeySource>, keys: KeySet) -> Self {
        let cached = Some(CachedKeys { keys: Arc::new(keys), since: clock::now() });
        Self { source, state: Mutex::new(State { cached, ..State::default() }) }
    }

    /// Copies the keys of `previous` if this ring has none.
    pub(super) fn adopt(&self, previous: &Self) {
        let keys = previous.state().cached.clone();
        let mut state = self.state();
        state.cached = state.cached.take().or(keys);
    }

    /// Starts a fetch in the background, unless one is in flight or there are keys.
    pub(super) fn fetch(self: &Arc<Self>) {
        let mut state = self.state();
        if state.cached.is_none() {
            self.join_fetch(&mut state, clock::now(), Duration::ZERO);
        }
    }

    /// Whether the last fetch succeeded; `true` before the first one has ended.
    pub(super) fn is_reachable(&self) -> bool {
        self.state().failure.is_none()
    }

    /// Loads the keys from their source. Returns their number, or the reason why they are not available.
    pub(super) async fn check(&self) -> std::result::Result<usize, String> {
        self.source.load().await.map(|keys| keys.len()).map_err(|error| error.to_string())
    }

    /// Verifies the signature of `jwt`, which names `issuer`.
    ///
    /// # Errors
    /// `AuthenticationFailed` if it was not made with a key of the issuer, `Unavailable` if the issuer's keys are
    /// unavailable.
    pub(super) async fn verify(self: &Arc<Self>, jwt: &Jwt<'_>, issuer: &str) -> Result<()> {
        let keys = match self.step(jwt, issuer, true) {
            KeyLookup::Use(keys) => keys,
            KeyLookup::Refuse(error) => return Err(error),
            KeyLookup::Wait(fetch) => {
                fetch.await;
                match self.step(jwt, issuer, false) {
                    KeyLookup::Use(keys) => keys,
                    KeyLookup::Refuse(error) => return Err(error),
                    KeyLookup::Wait(_) => return Err(unavailable(issuer, "they are being fetched")),
                }
            }
        };
        if keys.verifies(jwt) { Ok(()) } else { Err(TokenError::Forged(issuer.into()).into()) }
    }

    /// Returns the next step for `jwt`; starts or joins a fetch only if `may_fetch`.
    fn step(self: &Arc<Self>, jwt: &Jwt<'_>, issuer: &str, may_fetch: bool) -> KeyLookup {
        let now = clock::now();
        let mut state = self.state();
        let age = |cached: &CachedKeys| now.duration_since(cached.since);
        let cached = state.cached.as_ref().filter(|cached| age(cached) < EXPIRY_AGE);
        let interval = if cached.is_some() { FETCH_INTERVAL } else { EMPTY_FETCH_INTERVAL };
        let good =
            cached.filter(|cached| cached.keys.has_key_of(jwt)).map(|cached| (Arc::clone(&cached.keys), age(cached)));
        let has_keys = cached.is_some();
        if let Some((keys, age)) = good {
            let fetch = if age >= REFRESH_AGE { self.join_fetch(&mut state, now, interval) } else { None };
            // After a long idle time the keys may have been revoked, so wait for fresh ones, but not for an issuer
            // whose last fetch failed.
            let wait = may_fetch && age >= 2 * REFRESH_AGE && state.failure.is_none();
            return fetch.filter(|_| wait).map_or(KeyLookup::Use(keys), KeyLookup::Wait);
        }
        if may_fetch && let Some(fetch) = self.join_fetch(&mut state, now, interval) {
            return KeyLookup::Wait(fetch);
        }
        KeyLookup::Refuse(match &state.failure {
            None if has_keys => {
                TokenError::UnknownKey { id: jwt.key_id.as_deref().map(clip), issuer: issuer.into() }.into()
            }
            None => unavailable(issuer, "they are being fetched"),
            Some(failure) => unavailable(issuer, failure),
        })
    }

    /// Returns the fetch in flight, or a new one if the last began more than `interval` ago.
    fn join_fetch(self: &Arc<Self>, state: &mut State, now: Instant, interval: Duration) -> Option<SharedFetch> {
        if let Some(fetch) = &state.fetch {
            return Some(fetch.clone());
        }
        if state.last_fetch.is_some_and(|last_fetch| now.duration_since(last_fetch) < interval) {
            return None;
        }
        state.last_fetch = Some(now);
        let ring = Arc::clone(self);
        // The task cannot finish before it is stored in the state, because that needs the lock held here.
        let task = tokio::spawn(async move {
            let outcome = ring.source.load().await;
            ring.finish_fetch(outcome);
        });
        let fetch = task.map(drop).boxed().shared();
        state.fetch = Some(fetch.clone());
        Some(fetch)
    }

    fn finish_fetch(&self, outcome: std::result::Result<KeySet, KeysError>) {
        let mut state = self.state();
        state.fetch = None;
        match outcome {
            Ok(keys) => {
                state.cached = Some(CachedKeys { keys: Arc::new(keys), since: clock::now() });
                state.failure = None;
            }
            Err(error) => {
                let consequence =
                    if state.cached.is_some() { "using the known keys" } else { "its tokens are refused" };
                tracing::warn!("cannot fetch the keys of {}, so {consequence}: {error}", self.source.name());
                state.failure = Some(error.to_string());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(issuer: &str, why: &str) -> Error {
    Error::new(Fault::Unavailable, format!("the keys of {issuer} are not available now: {why}"))
        .blamed_on(Blame::Network)
        .with_reason(DenialReason::IssuerUnreachable.name())
}

#[cfg(test)]
mod tests;
