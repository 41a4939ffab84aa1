//! A rate that a copy keeps below: `--limit`.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep_until;
use towpath_store::sys::clock::{self, Instant};

/// Lets bytes through at no more than a rate. What goes at once is a piece: the rate holds over some seconds, not from one packet to the next.
#[derive(Debug)]
pub(crate) struct Limit {
    /// None lets everything through.
    bytes_per_s: Option<u64>,
    /// When those that were let through will have had their time.
    free_at: Mutex<Instant>,
}

impl Limit {
    /// At most so many bytes per second, or as many as there are.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Self {
        Self { bytes_per_s, free_at: Mutex::new(clock::now()) }
    }

    /// Waits until `bytes` may go, in the order in which they came.
    pub(crate) async fn pass(&self, bytes: u64) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let time = Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64);
        let turn = {
            let mut free_at = self.free_at();
            let turn = free_at.max(clock::now());
            *free_at = turn + time;
            turn
        };
        sleep_until(turn).await;
    }

    /// Whether somebody would have to wait now.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.bytes_per_s.is_some() && *self.free_at() > clock::now()
    }

    fn free_at(&self) -> MutexGuard<'_, Instant> {
        self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_take_their_time() {
        let (start, limit) = (clock::now(), Limit::new(Some(1000)));
        for _ in 0..10 {
            limit.pass(500).await;
        }
        // The last one goes when those before have had their time.
        assert_eq!(clock::now() - start, Duration::from_millis(4500));
        assert!(limit.is_in_the_way());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!limit.is_in_the_way());
        let later = clock::now();
        limit.pass(500).await;
        assert_eq!(
            clock::now(),
            later,
            "time that nobody used is not made up for by a burst, but nobody waits for it either"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_waits() {
        let (start, limit) = (clock::now(), Limit::new(None));
        limit.pass(u64::MAX).await;
        assert_eq!(clock::now(), start);
        assert!(!limit.is_in_the_way());
    }
}
