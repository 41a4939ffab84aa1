//! Limits the rate of log lines that clients can cause.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use towpath_store::sys::clock::{self, Instant};

/// Maximum number of lines logged per [`WINDOW`]. Scanners cause thousands per second.
const MAX_LOGGED: u64 = 20;
/// The window of [`MAX_LOGGED`].
const WINDOW: Duration = Duration::from_secs(60);

/// Permits at most [`MAX_LOGGED`] log lines per [`WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    /// Events in this window.
    count: u64,
}

impl LogLimit {
    /// Counts an event. Returns the number of unlogged events since the last logged one if this one may be logged.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(clock::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unlogged = 0;
        if window.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            unlogged = window.count.saturating_sub(MAX_LOGGED);
            *window = Window { since: Some(now), count: 0 };
        }
        window.count += 1;
        (window.count <= MAX_LOGGED).then_some(unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_maximum_are_counted_and_reported_in_the_next_window() {
        let log = LogLimit::default();
        let start = clock::now();
        let logged = (0..MAX_LOGGED + 7).filter(|_| log.admit_at(start) == Some(0)).count();
        assert_eq!(logged as u64, MAX_LOGGED);
        assert_eq!(log.admit_at(start + WINDOW / 2), None);
        assert_eq!(log.admit_at(start + WINDOW), Some(8));
        assert_eq!(log.admit_at(start + WINDOW), Some(0));
    }
}
