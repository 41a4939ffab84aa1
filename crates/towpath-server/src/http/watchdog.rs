//! Detects slow clients that stall: what a connection waits for, and since when.
//!
//! Each connection has one [`ConnectionWatchdog`]. The [`ConnectionIo`](super::connection_io::ConnectionIo) reports
//! received bytes and a full socket; responses report their start, the progress of each piece, and their end. (Revoking
//! memory that a client holds while others wait is the job of [`crate::fair_pool`].) The connection calls
//! [`ConnectionWatchdog::check`] periodically, which compares the state with the limits, and ends when a timeout has
//! expired. This needs no timer per request, and works for HTTP/1.1 and HTTP/2 alike.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use towpath_store::sys::clock::{self, Instant};

use crate::config::Limits;

/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// The timeout that a client exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutKind {
    /// A request header is incomplete.
    Header,
    /// The connection is idle.
    Idle,
    /// A response makes no progress.
    Stalled,
}

impl TimeoutKind {
    /// Describes the timeout for [`crate::Service::record_disconnect`].
    pub(super) fn describe(self) -> &'static str {
        match self {
            TimeoutKind::Header => "did not send its whole request header in time",
            TimeoutKind::Idle => "was idle for too long",
            TimeoutKind::Stalled => "stalled while receiving a response",
        }
    }
}

/// The state of one connection. Times are in milliseconds since its start.
#[derive(Debug)]
pub(super) struct ConnectionWatchdog {
    began: Instant,
    /// Number of requests being processed.
    requests: AtomicUsize,
    /// Number of response pieces passed to the connection and not yet sent.
    queued_frames: AtomicUsize,
    /// Time when a piece was last queued or made progress.
    last_progress: AtomicU64,
    /// Time since the socket has been full.
    full: AtomicU64,
    /// Time since a request header has been incomplete.
    header: AtomicU64,
    /// Bytes of it received so far.
    header_bytes: AtomicU64,
    /// Time since no request has been processed.
    idle: AtomicU64,
    /// Whether the connection is multiplexed (HTTP/2), so that bytes between requests are not a request header.
    multiplexed: AtomicBool,
}

impl ConnectionWatchdog {
    /// Starts watching a new connection.
    pub(super) fn new() -> Self {
        Self {
            began: clock::now(),
            requests: AtomicUsize::new(0),
            queued_frames: AtomicUsize::new(0),
            last_progress: AtomicU64::new(0),
            full: AtomicU64::new(NEVER),
            header: AtomicU64::new(NEVER),
            header_bytes: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from((clock::now() - self.began).as_millis()).unwrap_or(NEVER - 1)
    }

    /// Records `bytes` received. Returns how many bytes of an incomplete request header were received before.
    pub(super) fn record_received(&self, bytes: usize) -> u64 {
        if self.requests.load(Relaxed) > 0 || self.multiplexed.load(Relaxed) {
            return 0;
        }
        if self.header.load(Relaxed) == NEVER {
            self.header.store(self.now(), Relaxed);
            self.header_bytes.store(0, Relaxed);
        }
        self.header_bytes.fetch_add(bytes as u64, Relaxed)
    }

    /// Records that the socket accepted bytes.
    pub(super) fn record_sent(&self) {
        self.full.store(NEVER, Relaxed);
    }

    /// Records that the socket is full.
    pub(super) fn record_blocked(&self) {
        if self.full.load(Relaxed) == NEVER {
            self.full.store(self.now(), Relaxed);
        }
    }

    /// Records progress of a response piece.
    pub(super) fn record_progress(&self) {
        self.last_progress.store(self.now(), Relaxed);
    }

    /// Records a new request, which is processed until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, multiplexed: bool) -> RequestGuard {
        self.header.store(NEVER, Relaxed);
        self.multiplexed.store(multiplexed, Relaxed);
        self.requests.fetch_add(1, Relaxed);
        RequestGuard(Arc::clone(self))
    }

    /// Records a response piece queued for the connection until the guard is dropped.
    pub(super) fn queue_frame(self: &Arc<Self>) -> QueuedFrame {
        self.record_progress();
        self.queued_frames.fetch_add(1, Relaxed);
        QueuedFrame(Arc::clone(self))
    }

    /// Returns the time until the next check.
    ///
    /// # Errors
    /// The timeout that the client exceeded.
    pub(super) fn check(&self, limits: &Limits) -> Result<Duration, TimeoutKind> {
        let now = self.now();
        let idle = if self.requests.load(Relaxed) == 0 { self.idle.load(Relaxed) } else { NEVER };
        let queued_frames = if self.queued_frames.load(Relaxed) > 0 { self.last_progress.load(Relaxed) } else { NEVER };
        let waits = [
            (self.header.load(Relaxed), limits.handshake.0, TimeoutKind::Header),
            (idle, limits.idle.0, TimeoutKind::Idle),
            (queued_frames.min(self.full.load(Relaxed)), limits.stall.0, TimeoutKind::Stalled),
        ];
        let mut next_check = limits.handshake.0.min(limits.idle.0).min(limits.stall.0);
        for (since, limit, kind) in waits.into_iter().filter(|(since, ..)| *since != NEVER) {
            let waited = Duration::from_millis(now.saturating_sub(since));
            next_check = next_check.min(limit.checked_sub(waited).filter(|rest| !rest.is_zero()).ok_or(kind)?);
        }
        Ok(next_check)
    }
}

/// Guard for a request being processed.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<ConnectionWatchdog>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.0.requests.fetch_sub(1, Relaxed) == 1 {
            self.0.idle.store(self.0.now(), Relaxed);
        }
    }
}

/// Guard for a queued response piece.
#[derive(Debug)]
pub(super) struct QueuedFrame(Arc<ConnectionWatchdog>);

impl QueuedFrame {
    /// Records that a part of it was sent.
    pub(super) fn record_progress(&self) {
        self.0.record_progress();
    }
}

impl Drop for QueuedFrame {
    fn drop(&mut self) {
        self.0.queued_frames.fetch_sub(1, Relaxed);
        self.0.record_progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks after `seconds` with the default limits: handshake 20 s, stall 60 s, idle 1 h.
    fn check_after(seconds: u64, watchdog: &ConnectionWatchdog) -> Result<Duration, TimeoutKind> {
        let watchdog = ConnectionWatchdog { began: watchdog.began - Duration::from_secs(seconds), ..copy(watchdog) };
        watchdog.check(&Limits::default())
    }

    fn copy(watchdog: &ConnectionWatchdog) -> ConnectionWatchdog {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        ConnectionWatchdog {
            began: watchdog.began,
            requests: AtomicUsize::new(watchdog.requests.load(Relaxed)),
            queued_frames: AtomicUsize::new(watchdog.queued_frames.load(Relaxed)),
            last_progress: word(&watchdog.last_progress),
            full: word(&watchdog.full),
            header: word(&watchdog.header),
            header_bytes: word(&watchdog.header_bytes),
            idle: word(&watchdog.idle),
            multiplexed: AtomicBool::new(watchdog.multiplexed.load(Relaxed)),
        }
    }

    #[test]
    fn an_idle_client_has_the_idle_timeout() {
        let watchdog = Arc::new(ConnectionWatchdog::new());
        assert!(check_after(3500, &watchdog).is_ok());
        assert_eq!(check_after(3700, &watchdog), Err(TimeoutKind::Idle));
        let _guard = watchdog.begin_request(false);
        assert!(check_after(3700, &watchdog).is_ok(), "a long request is no silence");
    }

    #[test]
    fn a_header_must_arrive_in_time() {
        let watchdog = Arc::new(ConnectionWatchdog::new());
        watchdog.record_received(1);
        assert_eq!(check_after(21, &watchdog), Err(TimeoutKind::Header));
        drop(watchdog.begin_request(true));
        watchdog.record_received(1);
        assert!(check_after(21, &watchdog).is_ok(), "frames between requests of HTTP/2 begin no header");
    }

    #[test]
    fn a_response_must_make_progress() {
        let watchdog = Arc::new(ConnectionWatchdog::new());
        let _guard = watchdog.begin_request(false);
        let piece = watchdog.queue_frame();
        assert_eq!(check_after(61, &watchdog), Err(TimeoutKind::Stalled));
        drop(piece);
        assert!(check_after(61, &watchdog).is_ok());
        watchdog.record_blocked();
        assert_eq!(check_after(61, &watchdog), Err(TimeoutKind::Stalled));
        watchdog.record_sent();
        assert!(check_after(61, &watchdog).is_ok());
    }
}
