//! The limit of concurrent requests to a site.
//!
//! Each request in flight has a connection to itself. For small files the number of round trips in flight limits the
//! rate: with 32 in flight, 10,000 files take half a minute over 100 ms. But a server has a limited number of workers,
//! which other clients need too. So the limit starts at [`INITIAL_PERMITS`]. While all permits are in use, each
//! response adds one, up to [`MAX_PERMITS`], so that the limit doubles per round trip. Each request that is deferred
//! (429, 503) or gets no response removes one, down to [`MIN_PERMITS`]; after the first of these the limit grows by one
//! per as many responses as there are permits. A client that yields to other traffic (`--nice`) stays at the minimum.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits of a site at the start.
const INITIAL_PERMITS: usize = 32;

/// Maximum permits of a site. In their default configurations servers accept 512 connections and more (nginx), or queue
/// those beyond 150 to 400 (Apache).
const MAX_PERMITS: usize = 320;

/// Minimum permits of a site, however many requests it defers.
const MIN_PERMITS: usize = 8;

/// Limits the number of requests in flight to one site. A permit is released when it is dropped.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    free: Arc<Semaphore>,
    /// The limit: permits that exist, in use or free.
    limit: AtomicUsize,
    /// Permits to be removed once they are released.
    surplus: AtomicUsize,
    /// Responses since the limit last grew, of a site that has deferred a request.
    responses: AtomicUsize,
    has_deferred: AtomicBool,
    /// Whether the client yields to other traffic.
    is_nice: Arc<AtomicBool>,
}

impl ConcurrencyLimit {
    /// Creates the limit of a site. `is_nice` may change at any time.
    pub(super) fn new(is_nice: Arc<AtomicBool>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(INITIAL_PERMITS)),
            limit: AtomicUsize::new(INITIAL_PERMITS),
            surplus: AtomicUsize::default(),
            responses: AtomicUsize::default(),
            has_deferred: AtomicBool::default(),
            is_nice,
        }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
            match decrement(&self.surplus, 0) || decrement(&self.limit, self.max()) {
                true => permit.forget(),
                false => return Some(permit),
            }
        }
    }

    /// Returns the maximum of the limit now.
    fn max(&self) -> usize {
        if self.is_nice.load(Relaxed) { MIN_PERMITS } else { MAX_PERMITS }
    }

    /// Records a response: the limit may grow.
    pub(super) fn increase(&self) {
        if self.has_deferred.load(Relaxed) {
            if self.responses.fetch_add(1, Relaxed) < self.limit.load(Relaxed) {
                return;
            }
            self.responses.store(0, Relaxed);
        }
        let grown = |limit: usize| (limit < self.max()).then_some(limit + 1);
        if self.free.available_permits() == 0 && self.limit.fetch_update(Relaxed, Relaxed, grown).is_ok() {
            self.free.add_permits(1);
        }
    }

    /// Records a deferred or failed request: the limit shrinks.
    pub(super) fn decrease(&self) {
        self.has_deferred.store(true, Relaxed);
        if decrement(&self.limit, MIN_PERMITS) {
            self.surplus.fetch_add(1, Relaxed);
        }
    }
}

/// Decrements `number` if it is above `min`. Returns whether it was.
fn decrement(number: &AtomicUsize, min: usize) -> bool {
    number.fetch_update(Relaxed, Relaxed, |number| (number > min).then(|| number - 1)).is_ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn limit() -> ConcurrencyLimit {
        ConcurrencyLimit::new(Arc::default())
    }

    /// Acquires all permits that are free.
    fn all(limit: &ConcurrencyLimit) -> Vec<OwnedSemaphorePermit> {
        std::iter::from_fn(|| limit.acquire().now_or_never().flatten()).collect()
    }

    #[test]
    fn responses_double_the_limit_per_round_trip_up_to_the_maximum() {
        let limit = limit();
        let mut permits = Vec::new();
        for expected in
            [INITIAL_PERMITS, 2 * INITIAL_PERMITS, 4 * INITIAL_PERMITS, 8 * INITIAL_PERMITS, MAX_PERMITS, MAX_PERMITS]
        {
            permits.extend(all(&limit));
            assert_eq!(permits.len(), expected);
            for _ in 0..expected {
                limit.increase();
                // Another request waits.
                permits.extend(limit.acquire().now_or_never().flatten());
            }
        }
    }

    #[test]
    fn a_nice_client_stays_at_the_minimum() {
        let is_nice = Arc::<AtomicBool>::default();
        let limit = ConcurrencyLimit::new(Arc::clone(&is_nice));
        let permits = all(&limit);
        is_nice.store(true, Relaxed);
        assert_eq!(all(&limit).len(), 0);
        drop(permits);
        for _ in 0..3 {
            let permits = all(&limit);
            assert_eq!(permits.len(), MIN_PERMITS);
            (0..100).for_each(|_| limit.increase());
        }
        (0..100).for_each(|_| limit.decrease());
        assert_eq!(all(&limit).len(), MIN_PERMITS);
    }

    #[test]
    fn the_limit_does_not_grow_while_permits_are_free() {
        let limit = limit();
        let _one = limit.acquire().now_or_never();
        (0..100).for_each(|_| limit.increase());
        assert_eq!(all(&limit).len(), INITIAL_PERMITS - 1);
    }

    #[test]
    fn the_limit_settles_where_a_server_defers_few_requests() {
        const CAPACITY: usize = 64;
        let limit = limit();
        let (mut sent, mut deferred) = (0, 0);
        for round in 0..200 {
            let permits = all(&limit);
            for number in 0..permits.len() {
                match number < CAPACITY {
                    true => limit.increase(),
                    false => limit.decrease(),
                }
            }
            let is_late = round >= 100;
            sent += if is_late { permits.len() } else { 0 };
            deferred += if is_late { permits.len().saturating_sub(CAPACITY) } else { 0 };
        }
        assert!(sent > 100 * CAPACITY * 9 / 10 && deferred * 20 < sent, "{deferred} of {sent} are deferred");
    }

    #[test]
    fn each_deferred_request_shrinks_the_limit_down_to_the_minimum() {
        let limit = limit();
        let permits = all(&limit);
        (0..10).for_each(|_| limit.decrease());
        drop(permits);
        assert_eq!(all(&limit).len(), INITIAL_PERMITS - 10);
        (0..100).for_each(|_| limit.decrease());
        assert_eq!(all(&limit).len(), MIN_PERMITS);
    }
}
