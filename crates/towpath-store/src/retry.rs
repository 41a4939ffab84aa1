//! Retries: the delay before each one, and how many and how long.
//!
//! [`Backoff`] computes delays that double after each failure in a row. [`RetryBudget`] limits the retries of one
//! operation by number and time, and states both in the error when the budget is spent. Neither sleeps nor reads a
//! clock.
//!
//! Not included: the decision whether an operation may be retried at all, which depends on the protocol.

use std::time::Duration;

use crate::{Error, sys::clock::Instant};

/// Exponential backoff: the delay doubles after each failure, up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff that starts with a delay of `first` and grows to `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Returns the number of failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a failure and returns the delay before the retry.
    pub fn fail(&mut self) -> Duration {
        let doublings = self.failures.min(31);
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }

    /// Counts a failure and returns a delay between one half and all of the delay of [`Self::fail`], so that clients
    /// that failed together do not retry together. `random` is a uniformly distributed number.
    pub fn fail_jittered(&mut self, random: u64) -> Duration {
        let delay = self.fail();
        delay / 2 + delay.mul_f64((random % 1024) as f64 / 2048.0)
    }

    /// Records a success: the next failure is followed by the first delay.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Limits the retries of one operation by number and by time.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    backoff: Backoff,
    max_retries: u32,
    max_time: Duration,
    started: Instant,
}

impl RetryBudget {
    /// Permits `max_retries` retries without progress, the last of them at most `max_time` after `now`.
    pub fn new(backoff: Backoff, max_retries: u32, max_time: Duration, now: Instant) -> Self {
        Self { backoff, max_retries, max_time, started: now }
    }

    /// Returns the number of failures since the start or the last progress.
    pub fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Counts a failed attempt and returns the delay before the retry, with jitter (see [`Backoff::fail_jittered`]).
    ///
    /// # Errors
    /// `error`, with the number of attempts and their duration, if the budget is spent.
    pub fn retry(&mut self, error: Error, now: Instant, random: u64) -> Result<Duration, Error> {
        let (delay, elapsed) = (self.backoff.fail_jittered(random), now - self.started);
        if self.failures() > self.max_retries || elapsed > self.max_time {
            return Err(self.spent(error, now));
        }
        Ok(delay)
    }

    /// Returns `error` with the number of attempts and their duration, if there was more than one.
    pub fn spent(&self, error: Error, now: Instant) -> Error {
        match self.failures() {
            0 | 1 => error,
            attempts => {
                let seconds = (now - self.started).as_secs();
                let message = format!("{} ({attempts} attempts in {seconds} s)", error.message());
                error.with_message(message)
            }
        }
    }

    /// Records progress: counters of attempts and time restart.
    pub fn progress(&mut self, now: Instant) {
        self.backoff.reset();
        self.started = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, sys::clock};

    const FIRST: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(10);

    #[test]
    fn delays_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(FIRST, MAX);
        let delays: Vec<_> = (0..40).map(|_| backoff.fail().as_secs()).collect();
        assert_eq!(delays[..6], [1, 2, 4, 8, 10, 10]);
        assert_eq!((delays[39], backoff.failures()), (10, 40));
        backoff.reset();
        assert_eq!(backoff.fail(), FIRST);
    }

    #[test]
    fn jitter_keeps_at_least_half_of_the_delay() {
        for random in [0, 1, 512, 1023, u64::MAX] {
            let delay = Backoff::new(FIRST, MAX).fail_jittered(random);
            assert!((FIRST / 2..FIRST).contains(&delay), "{random}: {delay:?}");
        }
    }

    fn error() -> Error {
        Error::new(Fault::Unavailable, "connection reset")
    }

    #[test]
    fn a_budget_ends_by_number_of_retries() {
        let now = clock::now();
        let mut budget = RetryBudget::new(Backoff::new(FIRST, MAX), 2, MAX, now);
        assert!(budget.retry(error(), now, 0).is_ok() && budget.retry(error(), now, 0).is_ok());
        let spent = budget.retry(error(), now + FIRST * 3, 0).unwrap_err();
        assert_eq!((spent.fault(), spent.message()), (Fault::Unavailable, "connection reset (3 attempts in 3 s)"));
        budget.progress(now);
        assert!(budget.retry(error(), now, 0).is_ok());
    }

    #[test]
    fn a_budget_ends_by_time() {
        let now = clock::now();
        let mut budget = RetryBudget::new(Backoff::new(FIRST, MAX), 100, MAX, now);
        assert!(budget.retry(error(), now + MAX, 0).is_ok());
        assert!(budget.retry(error(), now + MAX + FIRST, 0).is_err());
        budget.progress(now + MAX);
        assert!(budget.retry(error(), now + MAX * 2, 0).is_ok());
    }

    #[test]
    fn a_first_failure_is_reported_as_it_is() {
        let now = clock::now();
        let mut budget = RetryBudget::new(Backoff::new(FIRST, MAX), 0, MAX, now);
        assert_eq!(budget.retry(error(), now, 0).unwrap_err().message(), "connection reset");
    }
}
