//! The keys of one issuer, kept fresh.
//!
//! | the keys held | the token's key | what happens |
//! | --- | --- | --- |
//! | younger than [`REFRESH`] | among them | they are used |
//! | up to twice as old | among them | they are used, and fetched anew meanwhile |
//! | older | among them | they are fetched anew and waited for, once; if that fails, as in the row above |
//! | any | not among them | they are fetched anew, at most once in [`PAUSE`], and waited for |
//! | none, or older than [`EXPIRY`] | | they are fetched, at most once in [`EMPTY_PAUSE`], and waited for |
//!
//! At most one fetch is under way for an issuer, in a task of its own: a request that is dropped does not stop it for the others.

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

/// Keys are fetched anew when they are older: the shortest time that WLCG profile §4.3.1 allows, because a withdrawn key lives on
/// for up to twice as long.
const REFRESH: Duration = Duration::from_secs(3600);
/// Keys that could not be fetched anew are used until they are older: what WLCG profile §4.3.1 recommends, so that an issuer may
/// be down for a while.
const EXPIRY: Duration = Duration::from_secs(2 * 24 * 3600);
/// While keys are held, the time between two fetches: strangers can ask for a fetch with any token that names an unknown key.
const PAUSE: Duration = Duration::from_secs(60);
/// While none are held, the time between two fetches: nobody can be served, so it is worth trying sooner.
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
    /// Why the last fetch failed, if it did.
    failure: Option<String>,
    /// The fetch under way.
    flight: Option<Flight>,
}

#[derive(Debug)]
struct Held {
    keys: Arc<KeySet>,
    since: Instant,
}

/// What to do for a token.
enum Step {
    Use(Arc<KeySet>),
    Wait(Flight),
    Refuse(Error),
}

impl Ring {
    /// A ring without keys yet.
    pub(super) fn new(source: Box<dyn KeySource>) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// A ring with keys that were just loaded.
    pub(super) fn with_keys(source: Box<dyn KeySource>, keys: KeySet) -> Self {
        let held = Some(Held { keys: Arc::new(keys), since: clock::now() });
        Self { source, state: Mutex::new(State { held, ..State::default() }) }
    }

    /// Verifies the signature of `jwt`, which claims to be of `issuer`.
    ///
    /// # Errors
    /// `AuthenticationFailed` if it was not made with a key of the issuer, `Unavailable` if the issuer's keys cannot be had.
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

    /// What to do for `jwt` now; a fetch is begun or joined only if it `may_fetch`.
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
            // After a quiet time the keys may be long withdrawn; but an issuer that is down is not waited for again and again.
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

    /// The fetch under way, or a new one if the last began more than `pause` ago.
    fn fetch(self: &Arc<Self>, state: &mut State, now: Instant, pause: Duration) -> Option<Flight> {
        if let Some(flight) = &state.flight {
            return Some(flight.clone());
        }
        if state.asked.is_some_and(|asked| now.duration_since(asked) < pause) {
            return None;
        }
        state.asked = Some(now);
        let ring = Arc::clone(self);
        // It cannot land before its flight is noted: that needs the lock that is held here.
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
                tracing::warn!(source = ?self.source, %error, "the keys of an issuer of tokens cannot be had");
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
