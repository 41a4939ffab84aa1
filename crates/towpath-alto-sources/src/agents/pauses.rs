//! Polling intervals and restart backoff of agents. No clock.

use std::time::Duration;

use towpath_store::Backoff;

/// Minimum polling interval, whatever the settings.
const SHORTEST: Duration = Duration::from_millis(100);

/// Maximum factor for the interval of a failing agent.
const MAX_FACTOR: u32 = 10;

/// Backoff before the first restart of a program; it doubles each time up to `LONGEST`.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// A program that ran this long is considered working.
const STEADY: Duration = Duration::from_secs(60);

/// Returns the interval before the next poll after `failures` consecutive failures.
pub(super) fn until_next_poll(refresh: Duration, failures: u32) -> Duration {
    let factor = MAX_FACTOR.min(1 << failures.min(MAX_FACTOR));
    refresh.saturating_mul(factor).max(SHORTEST)
}

/// Restart backoff of one program or delegate.
#[derive(Debug)]
pub(super) struct RestartBackoff(Backoff);

impl Default for RestartBackoff {
    fn default() -> Self {
        Self(Backoff::new(FIRST, LONGEST))
    }
}

impl RestartBackoff {
    /// Resets the backoff after success.
    pub(super) fn note_work(&mut self) {
        self.0.reset();
    }

    /// Resets the backoff if the program ran long enough.
    pub(super) fn note_run(&mut self, ran: Duration) {
        if ran >= STEADY {
            self.note_work();
        }
    }

    /// Returns the current backoff and increases the next one.
    pub(super) fn pause(&mut self) -> Duration {
        self.0.fail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_is_asked_less_often_and_not_seldom() {
        let refresh = Duration::from_secs(5);
        let pauses = [0, 1, 2, 3, 4, 1000].map(|failures| until_next_poll(refresh, failures).as_secs());
        assert_eq!(pauses, [5, 10, 20, 40, 50, 50]);
        assert_eq!(until_next_poll(Duration::ZERO, 0), SHORTEST);
        assert_eq!(until_next_poll(Duration::MAX, 1), Duration::MAX);
    }

    #[test]
    fn a_program_that_worked_starts_again_soon() {
        let mut restarts = RestartBackoff::default();
        let mut pause = |ran| {
            restarts.note_run(Duration::from_secs(ran));
            restarts.pause().as_secs()
        };
        let pauses: Vec<u64> = (0..10).map(|_| pause(0)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!([pause(59), pause(60), pause(0)], [300, 1, 2]);
    }
}
