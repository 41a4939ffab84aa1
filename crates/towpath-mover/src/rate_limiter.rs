//! The rate limit of a copy (`--limit`).

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::sleep_until;
use towpath_store::sys::clock::{self, Instant};

/// Limits the rate in bytes per second. The granularity is a piece, so the limit holds over some seconds and not for
/// single packets. The first bytes of files of unknown size are counted only after their request, so that the first
/// burst may be as large as the window.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// `None` for no limit.
    bytes_per_s: Option<u64>,
    /// When the bytes admitted so far are due at the limited rate.
    free_at: Mutex<Instant>,
    /// Number of waiting transfers.
    waiting: AtomicUsize,
}

/// Counts a waiting transfer until it is dropped.
#[derive(Debug)]
struct WaiterGuard<'a>(&'a AtomicUsize);

impl RateLimiter {
    /// Creates a limit in bytes per second, or no limit.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Self {
        Self { bytes_per_s, free_at: Mutex::new(clock::now()), waiting: AtomicUsize::new(0) }
    }

    /// Waits until `bytes` may be sent, in FIFO order; returns immediately without a limit.
    pub(crate) async fn pass(&self, bytes: u64) {
        let Some(bytes_per_s) = self.bytes_per_s.filter(|_| bytes > 0) else { return };
        let time = Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64);
        let now = clock::now();
        let turn = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = free_at.max(now);
            *free_at = turn + time;
            turn
        };
        if turn > now {
            let _waiting = WaiterGuard::begin(&self.waiting);
            sleep_until(turn).await;
        }
    }

    /// Returns whether a transfer waits for the limit. On a network slower than the limit none waits, even if the last
    /// bytes were sent early.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}

impl<'a> WaiterGuard<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_take_their_time() {
        let (start, limit) = (clock::now(), RateLimiter::new(Some(1000)));
        for _ in 0..10 {
            limit.pass(500).await;
        }
        // The last transfer starts when the time of the previous ones is over.
        assert_eq!(clock::now() - start, Duration::from_millis(4500));
        tokio::time::advance(Duration::from_secs(60)).await;
        let later = clock::now();
        limit.pass(500).await;
        assert_eq!(
            clock::now(),
            later,
            "time that nobody used is not made up for by a burst, but nobody waits for it either"
        );
        assert!(limit.pass(0).now_or_never().is_some(), "nothing takes no time");
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_in_the_way_of_those_who_wait() {
        let limit = RateLimiter::new(Some(1000));
        limit.pass(500).await;
        assert!(!limit.is_in_the_way());
        let mut waits = [Box::pin(limit.pass(500)), Box::pin(limit.pass(500))];
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
        assert!(limit.is_in_the_way());
        let [first, second] = waits;
        first.await;
        assert!(limit.is_in_the_way(), "the other one waits");
        drop(second);
        assert!(!limit.is_in_the_way(), "who gives up waits no longer");
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_in_the_way_of_a_slower_network() {
        let limit = RateLimiter::new(Some(1000));
        for _ in 0..10 {
            limit.pass(500).await;
            // The network takes 0.6 s for bytes that the limit permits in 0.5 s.
            for _ in 0..6 {
                assert!(!limit.is_in_the_way());
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_waits() {
        let (start, limit) = (clock::now(), RateLimiter::new(None));
        limit.pass(u64::MAX).await;
        assert_eq!(clock::now(), start);
        assert!(!limit.is_in_the_way());
    }
}
