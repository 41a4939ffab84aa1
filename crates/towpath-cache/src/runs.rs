//! Long requests for adjoining bytes, at origins where each request has a connection to itself.
//!
//! A connection needs seconds to reach the rate of a long path, and several that begin at the same time overflow the queue
//! of its bottleneck. So a reader of a whole file has one request at a time for all that it announced, up to
//! [`RUN_BYTES`]. It ends early, at the next part, when its reader has left, or when other requests wait and it has
//! received [`SHARED_BYTES`]: the rest then waits for another turn.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::entry::OpenFlight;

/// Maximum number of bytes of adjoining ranges in one request.
pub(crate) const RUN_BYTES: u64 = 1 << 30;
/// Received bytes after which a request gives way to others.
const SHARED_BYTES: u64 = 16 << 20;
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
    /// Returns what to do after `received` bytes of a request for `reader` that lacks `rest`.
    pub(crate) fn progress<'a>(
        &self,
        received: u64,
        reader: &Reader,
        mut rest: impl Iterator<Item = &'a OpenFlight>,
    ) -> Progress {
        if reader.has_left() && !rest.any(OpenFlight::is_awaited) {
            return Progress::Stop;
        }
        match received >= SHARED_BYTES && self.waiting.load(Relaxed) > 0 {
            true => Progress::GiveWay,
            false => Progress::Continue,
        }
    }
}

/// Exists as long as a reader has its file open.
#[derive(Debug, Default)]
pub(crate) struct Presence(Arc<()>);

impl Presence {
    /// Returns the reader.
    pub(crate) fn reader(&self) -> Reader {
        Reader(Arc::downgrade(&self.0))
    }
}

/// The reader for whom bytes are requested.
#[derive(Debug, Clone)]
pub(crate) struct Reader(Weak<()>);

impl Reader {
    fn has_left(&self) -> bool {
        self.0.strong_count() == 0
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_run_ends_when_its_reader_leaves_and_gives_way_to_others() {
        let (runs, presence) = (Runs::default(), Presence::default());
        let reader = presence.reader();
        let mut permits = Vec::new();
        for _ in 0..MAX_RUNS {
            permits.push(runs.permit().await);
        }
        let progress = |received| permits[0].progress(received, &reader, std::iter::empty());
        assert_eq!(progress(SHARED_BYTES), Progress::Continue);
        {
            let mut other = std::pin::pin!(runs.permit());
            assert!(other.as_mut().now_or_never().is_none());
            assert_eq!(progress(SHARED_BYTES - 1), Progress::Continue);
            assert_eq!(progress(SHARED_BYTES), Progress::GiveWay);
        }
        assert_eq!(progress(SHARED_BYTES), Progress::Continue, "the other one has left");
        drop(presence);
        assert_eq!(progress(0), Progress::Stop);
    }
}
