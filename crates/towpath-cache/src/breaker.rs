//! A circuit breaker: after several failures in a row an origin counts as unreachable, and requests to it fail at once
//! until a trial succeeds. Readers of present data then do not wait for it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_store::{
    Error, Fault, Result,
    sys::clock::{self, Instant},
};

/// Number of failures in a row after which the origin counts as unreachable.
const MAX_FAILURES: u32 = 3;
/// Time between two trials of an unreachable origin.
const TRIAL_INTERVAL: Duration = Duration::from_secs(5);

/// The breaker of an origin.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// The last failure, and when the next request is a trial, while the origin counts as unreachable.
    open: Option<(Error, Instant)>,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the origin counts as reachable.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().open.is_none()
    }

    /// Admits a request, or returns the last failure of an unreachable origin.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn admit(&self) -> Result<()> {
        let mut state = self.state();
        let Some((error, trial)) = &mut state.open else { return Ok(()) };
        let now = clock::now();
        if now >= *trial {
            *trial = now + TRIAL_INTERVAL;
            return Ok(());
        }
        let message = format!(
            "the origin is unreachable, and is tried again every {} s: {}",
            TRIAL_INTERVAL.as_secs(),
            error.message()
        );
        Err(error.clone().with_message(message))
    }

    /// Records the outcome of a request. Only failures of the origin or its network count.
    pub(crate) fn record<T>(&self, outcome: &Result<T>) {
        let mut state = self.state();
        match outcome {
            Err(error) if is_unreachable(error) => {
                state.failures = state.failures.saturating_add(1);
                if state.failures >= MAX_FAILURES {
                    state.open = Some((error.clone(), clock::now() + TRIAL_INTERVAL));
                }
            }
            _ => *state = State::default(),
        }
    }
}

/// Returns whether an error is a failure of a storage or its network, so that another one may succeed.
pub(crate) fn is_unreachable(error: &Error) -> bool {
    matches!(error.fault(), Fault::Unavailable | Fault::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_origin_is_tried_now_and_then() {
        let breaker = Breaker::default();
        let failed: Result<()> = Err(Error::new(Fault::Unavailable, "connection refused"));
        let missing: Result<()> = Err(Error::new(Fault::NotFound, "no such file"));
        for _ in 0..2 {
            for _ in 1..MAX_FAILURES {
                breaker.admit().unwrap();
                breaker.record(&failed);
            }
            breaker.record(&missing);
        }
        (0..MAX_FAILURES).for_each(|_| breaker.record(&failed));
        let refused = breaker.admit().unwrap_err();
        assert_eq!(refused.fault(), Fault::Unavailable);
        assert!(refused.message().contains("connection refused"));
        tokio::time::advance(TRIAL_INTERVAL).await;
        breaker.admit().unwrap();
        assert!(breaker.admit().is_err(), "one request is the trial");
        breaker.record(&Ok(()));
        breaker.admit().unwrap();
    }
}
