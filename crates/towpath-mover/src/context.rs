//! The state that all copies of one mover share: options, limits, and statistics.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{
    Job, Options,
    flow_control::{self, FlowControl},
    progress::{Observer, Progress},
    rate_limiter::RateLimiter,
    stage::Stages,
    window::{Permit, Priority, Window},
};

/// Bytes of the window that a file takes in addition to its content, for its requests and responses.
pub(crate) const FILE_BYTES: u64 = 4 << 10;

/// Bytes to request together with the metadata of a file: all of a small file.
pub(crate) const FIRST_BYTES: u64 = 256 << 10;

/// Bytes to request of a file that was listed as empty: one page, so that many empty files do not fill the window.
const EMPTY_BYTES: u64 = 4 << 10;

/// Maximum number of third-party copies in flight. Sites run 9 (XRootD) to 32 (towpath) at a time.
const MAX_THIRD_PARTY_COPIES: usize = 16;

/// Returns the number of bytes of `job` to request together with its metadata. A file that was listed as empty is read
/// too: only the end of its content proves that it is empty.
pub(crate) fn first_bytes(job: &Job) -> u64 {
    match job.size {
        Some(0) => EMPTY_BYTES,
        size => size.unwrap_or(FIRST_BYTES).min(FIRST_BYTES),
    }
}

/// The state that all copies of one mover share.
#[derive(Debug)]
pub(crate) struct CopyContext {
    pub(crate) options: Options,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stages: Stages,
    pub(crate) limit: RateLimiter,
    pub(crate) window: Window,
    pub(crate) flow_control: FlowControl,
    /// Permits for third-party copies.
    pub(crate) third_party_permits: Semaphore,
}

impl CopyContext {
    /// Creates a context with nothing in flight.
    pub(crate) fn new(options: Options, observer: Arc<dyn Observer>) -> Self {
        Self {
            progress: Progress::new(observer),
            stages: Stages::new(),
            limit: RateLimiter::new(options.limit_bytes_per_s),
            window: Window::new(flow_control::MIN_BYTES.min(options.window_bytes)),
            flow_control: FlowControl::new(options.client.clone(), options.window_bytes, options.nice),
            third_party_permits: Semaphore::new(MAX_THIRD_PARTY_COPIES),
            options,
        }
    }

    /// Returns the current size of the window in bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window.limit()
    }

    /// Waits for a permit for `bytes` in flight.
    pub(crate) async fn acquire(&self, bytes: u64, priority: Priority) -> Permit {
        let permit = self.window.acquire(bytes, priority).await;
        self.flow_control.adapt(&self.window, self.progress.ahead());
        permit
    }

    /// Waits for a permit for the first bytes of a file.
    pub(crate) async fn first_permit(&self, job: &Job) -> Permit {
        self.acquire(FILE_BYTES + first_bytes(job), Priority::File).await
    }
}
