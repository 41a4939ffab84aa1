//! Long requests for adjoining bytes, at origins where each request has a connection to itself.
//!
//! A connection needs seconds to reach the rate of a long path, and several that begin at the same time overflow the queue
//! of its bottleneck. So a reader of a whole file has one request at a time for all that it announced, up to
//! [`RUN_BYTES`], or [`SHARED_BYTES`] if other requests wait. It ends early, at the next part, when no reader of the file
//! is left, or when others wait and it has received [`SHARED_BYTES`]: the rest then waits for another turn. What another
//! reader waits for far behind gets a request of its own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::entry::OpenFlight;

/// Maximum number of bytes of adjoining ranges in one request.
pub(crate) const RUN_BYTES: u64 = 1 << 30;
/// Received bytes after which a request gives way to others.
pub(crate) const SHARED_BYTES: u64 = 16 << 20;
/// Minimum distance in bytes of an awaited part that gets a request of its own. Clients with several requests in flight
/// wait for nearer parts.
const FAR_BYTES: u64 = 64 << 20;
/// Maximum number of such requests to an origin at the same time. Their number should not change: TCP takes seconds to use
/// the share of a connection that ended.
const MAX_RUNS: usize = 4;

/// The requests for runs to an origin.
#[derive(Debug)]
pub(crate) struct Runs {
    permits: Arc<Semaphore>,
    /// Number of requests that wait for a permit.
    waiting: Arc<AtomicUsize>,
}

impl Default for Runs {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_RUNS)), waiting: Arc::default() }
    }
}

/// The right to send a request for a run.
#[derive(Debug)]
pub(crate) struct RunPermit {
    waiting: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

/// Counts a request that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What to do with a request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Continue,
    /// Others wait: the rest gets another turn.
    GiveWay,
    /// No reader is left.
    Stop,
    /// A reader waits for the flight with this index in the rest.
    Split(usize),
}

impl Runs {
    /// Waits for a permit. Permits are given in order.
    pub(crate) async fn permit(&self) -> RunPermit {
        self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(&self.waiting);
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        drop(waiting);
        RunPermit { waiting: Arc::clone(&self.waiting), _permit: permit }
    }
}

impl RunPermit {
    /// Returns whether others wait for a permit.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Returns what to do after `received` bytes of a request that lacks `rest`, in order, of an entry that has readers or
    /// not.
    pub(crate) fn progress<'a>(
        &self,
        received: u64,
        has_readers: bool,
        rest: impl Iterator<Item = &'a OpenFlight>,
    ) -> Progress {
        if !has_readers {
            return Progress::Stop;
        }
        if received >= SHARED_BYTES && self.is_contended() {
            return Progress::GiveWay;
        }
        let mut distance = 0;
        for (index, open) in rest.enumerate() {
            if distance >= FAR_BYTES && open.is_awaited() {
                return Progress::Split(index);
            }
            distance += open.flight.length() as u64;
        }
        Progress::Continue
    }
}

/// Returns how many of `flights` a request has if others wait: those of [`SHARED_BYTES`], at least one.
pub(crate) fn shared_part(flights: &[OpenFlight]) -> usize {
    let mut bytes = 0;
    let fits = |open: &&OpenFlight| {
        bytes += open.flight.length() as u64;
        bytes <= SHARED_BYTES
    };
    flights.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_run_ends_without_readers_and_gives_way_to_others() {
        let runs = Runs::default();
        let mut permits = Vec::new();
        for _ in 0..MAX_RUNS {
            permits.push(runs.permit().await);
        }
        let progress = |received| permits[0].progress(received, true, std::iter::empty());
        assert_eq!(progress(SHARED_BYTES), Progress::Continue);
        {
            let mut other = std::pin::pin!(runs.permit());
            assert!(other.as_mut().now_or_never().is_none());
            assert_eq!(progress(SHARED_BYTES - 1), Progress::Continue);
            assert_eq!(progress(SHARED_BYTES), Progress::GiveWay);
        }
        assert_eq!(progress(SHARED_BYTES), Progress::Continue, "the other one has left");
        assert_eq!(permits[0].progress(0, false, std::iter::empty()), Progress::Stop);
    }
}
