//! The delay before each retry.
//!
//! [`Backoff`] computes delays that double after each failure in a row. It neither sleeps nor reads a clock.
//!
//! Not included: the decision whether an operation may be retried at all, which depends on the protocol.

use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
