//! The keys of one issuer, kept fresh.
//!
//! | cached keys | the token's key | action |
//! | --- | --- | --- |
//! | younger than [`REFRESH`] | included | use them |
//! | up to twice as old | included | use them, and refresh them in the background |
//! | older | included | refresh and wait once; if that fails, as in the row above |
//! | any | not included | refresh, at most once per [`PAUSE`], and wait |
//! | none, or older than [`EXPIRY`] | | fetch, at most once per [`EMPTY_PAUSE`], and wait |
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
    jwt::Jwt,
    keys::{KeySet, KeySource, KeysError},
    refusal::{Refusal, clip},
};

/// Age at which keys are refreshed: the minimum that WLCG profile §4.3.1 allows, because a revoked key stays usable
/// for up to twice as long.
const REFRESH: Duration = Duration::from_secs(3600);
/// Age at which keys that could not be refreshed expire: recommended by WLCG profile §4.3.1, so that an issuer can be
/// down for a while.
const EXPIRY: Duration = Duration::from_secs(2 * 24 * 3600);
/// Minimum time between two fetches while keys are cached: any token with an unknown key can trigger a fetch.
const PAUSE: Duration = Duration::from_secs(60);
/// Minimum time between two fetches while no keys are cached: no token can be verified, so it is worth retrying
/// sooner.
const EMPTY_PAUSE: Duration = Duration::from_secs(10);

type Flight = Shared<BoxFuture<'static, ()>>;

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Ring {
    source: Box<dyn KeySource>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    /// When the last fetch began.
    asked: Option<Instant>,
    /// The error of the last fetch, if it failed.
    failure: Option<String>,
    /// The fetch in flight.
    flight: Option<Flight>,
}

#[derive(Debug)]
struct Held {
    keys: Arc<KeySet>,
    since: Instant,
}

/// The next step in verifying a token.
enum Step {
    Use(Arc<KeySet>),
    Wait(Flight),
    Refuse(Error),
}

impl Ring {
    /// Creates a ring without keys.
    pub(super) fn new(source: Box<dyn KeySource>) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// Creates a ring with keys that were just loaded.
    pub(super) fn with_keys(source: Box<dyn KeySource>, keys: KeySet) -> Self {
        let held = Some(Held { keys: Arc::new(keys), since: clock::now() });
        Self { source, state: Mutex::new(State { held, ..State::default() }) }
    }

    /// Verifies the signature of `jwt`, which names `issuer`.
    ///
    /// # Errors
    /// `AuthenticationFailed` if it was not made with a key of the issuer, `Unavailable` if the issuer's keys are
    /// unavailable.
    pub(super) async fn verify(self: &Arc<Self>, jwt: &Jwt<'_>, issuer: &str) -> Result<()> {
        let keys = match self.step(jwt, issuer, true) {
            Step::Use(keys) => keys,
            Step::Refuse(error) => return Err(error),
            Step::Wait(flight) => {
                flight.await;
                match self.step(jwt, issuer, false) {
                    Step::Use(keys) => keys,
                    Step::Refuse(error) => return Err(error),
                    Step::Wait(_) => return Err(unavailable(issuer, "they are being fetched")),
                }
            }
        };
        if keys.verifies(jwt) { Ok(()) } else { Err(Refusal::Forged(issuer.into()).into()) }
    }

    /// Returns the next step for `jwt`; starts or joins a fetch only if `may_fetch`.
    fn step(self: &Arc<Self>, jwt: &Jwt<'_>, issuer: &str, may_fetch: bool) -> Step {
        let now = clock::now();
        let mut state = self.state();
        let age = |held: &Held| now.duration_since(held.since);
        let held = state.held.as_ref().filter(|held| age(held) < EXPIRY);
        let pause = if held.is_some() { PAUSE } else { EMPTY_PAUSE };
        let good = held.filter(|held| held.keys.has_key_of(jwt)).map(|held| (Arc::clone(&held.keys), age(held)));
        let knows_some = held.is_some();
        if let Some((keys, age)) = good {
            let flight = if age >= REFRESH { self.fetch(&mut state, now, pause) } else { None };
            // After a long idle time the keys may have been revoked, so wait for fresh ones, but not for an issuer
            // whose last fetch failed.
            let wait = may_fetch && age >= 2 * REFRESH && state.failure.is_none();
            return flight.filter(|_| wait).map_or(Step::Use(keys), Step::Wait);
        }
        if may_fetch && let Some(flight) = self.fetch(&mut state, now, pause) {
            return Step::Wait(flight);
        }
        Step::Refuse(match &state.failure {
            None if knows_some => {
                Refusal::UnknownKey { id: jwt.key_id.as_deref().map(clip), issuer: issuer.into() }.into()
            }
            None => unavailable(issuer, "they are being fetched"),
            Some(failure) => unavailable(issuer, failure),
        })
    }

    /// Returns the fetch in flight, or a new one if the last began more than `pause` ago.
    fn fetch(self: &Arc<Self>, state: &mut State, now: Instant, pause: Duration) -> Option<Flight> {
        if let Some(flight) = &state.flight {
            return Some(flight.clone());
        }
        if state.asked.is_some_and(|asked| now.duration_since(asked) < pause) {
            return None;
        }
        state.asked = Some(now);
        let ring = Arc::clone(self);
        // The task cannot finish before its flight is stored, because that needs the lock held here.
        let task = tokio::spawn(async move {
            let outcome = ring.source.load().await;
            ring.land(outcome);
        });
        let flight = task.map(drop).boxed().shared();
        state.flight = Some(flight.clone());
        Some(flight)
    }

    fn land(&self, outcome: std::result::Result<KeySet, KeysError>) {
        let mut state = self.state();
        state.flight = None;
        match outcome {
            Ok(keys) => {
                state.held = Some(Held { keys: Arc::new(keys), since: clock::now() });
                state.failure = None;
            }
            Err(error) => {
                tracing::warn!(source = ?self.source, %error, "failed to fetch the keys of a token issuer");
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
}

#[cfg(test)]
mod tests;
