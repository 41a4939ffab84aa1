//! Detects stalled clients: what a connection waits for, and since when.
//!
//! Each connection has one [`Pulse`]. The wire reports received bytes and a full socket; responses report their
//! start, the progress of each piece, and their end. (Revoking memory that a client holds while others wait is the
//! job of [`crate::shares`].) The connection calls [`Pulse::late`] periodically, which compares the state with the
//! limits, and ends when a timeout has expired. This needs no timer per request, and works for HTTP/1.1 and HTTP/2
//! alike.

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
pub(super) enum Late {
    /// A request header is incomplete.
    Header,
    /// The connection is idle.
    Silent,
    /// A response makes no progress.
    Taking,
}

impl Late {
    /// Describes the timeout for log messages.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Late::Header => "its request header did not arrive in time",
            Late::Silent => "it was idle for too long",
            Late::Taking => "it stalled while receiving a response",
        }
    }
}

/// The state of one connection. Times are in milliseconds since its start.
#[derive(Debug)]
pub(super) struct Pulse {
    began: Instant,
    /// Number of requests being processed.
    answering: AtomicUsize,
    /// Number of response pieces passed to the connection and not yet sent.
    owed: AtomicUsize,
    /// Time when a piece was last queued or made progress.
    moved: AtomicU64,
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

impl Pulse {
    /// Starts watching a new connection.
    pub(super) fn new() -> Self {
        Self {
            began: clock::now(),
            answering: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
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
    pub(super) fn received(&self, bytes: usize) -> u64 {
        if self.answering.load(Relaxed) > 0 || self.multiplexed.load(Relaxed) {
            return 0;
        }
        if self.header.load(Relaxed) == NEVER {
            self.header.store(self.now(), Relaxed);
            self.header_bytes.store(0, Relaxed);
        }
        self.header_bytes.fetch_add(bytes as u64, Relaxed)
    }

    /// Records that the socket accepted bytes.
    pub(super) fn sent(&self) {
        self.full.store(NEVER, Relaxed);
    }

    /// Records that the socket is full.
    pub(super) fn filled(&self) {
        if self.full.load(Relaxed) == NEVER {
            self.full.store(self.now(), Relaxed);
        }
    }

    /// Records progress of a response piece.
    pub(super) fn moved(&self) {
        self.moved.store(self.now(), Relaxed);
    }

    /// Records a new request, which is processed until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, multiplexed: bool) -> Answering {
        self.header.store(NEVER, Relaxed);
        self.multiplexed.store(multiplexed, Relaxed);
        self.answering.fetch_add(1, Relaxed);
        Answering(Arc::clone(self))
    }

    /// Records a response piece queued for the connection until the guard is dropped.
    pub(super) fn owe(self: &Arc<Self>) -> Owed {
        self.moved();
        self.owed.fetch_add(1, Relaxed);
        Owed(Arc::clone(self))
    }

    /// Returns the time until the next check.
    ///
    /// # Errors
    /// The timeout that the client exceeded.
    pub(super) fn late(&self, limits: &Limits) -> Result<Duration, Late> {
        let now = self.now();
        let idle = if self.answering.load(Relaxed) == 0 { self.idle.load(Relaxed) } else { NEVER };
        let owed = if self.owed.load(Relaxed) > 0 { self.moved.load(Relaxed) } else { NEVER };
        let waits = [
            (self.header.load(Relaxed), limits.handshake.0, Late::Header),
            (idle, limits.idle.0, Late::Silent),
            (owed.min(self.full.load(Relaxed)), limits.stall.0, Late::Taking),
        ];
        let mut again = limits.handshake.0.min(limits.idle.0).min(limits.stall.0);
        for (since, limit, late) in waits.into_iter().filter(|(since, ..)| *since != NEVER) {
            let waited = Duration::from_millis(now.saturating_sub(since));
            again = again.min(limit.checked_sub(waited).filter(|rest| !rest.is_zero()).ok_or(late)?);
        }
        Ok(again)
    }
}

/// Guard for a request being processed.
#[derive(Debug)]
pub(super) struct Answering(Arc<Pulse>);

impl Drop for Answering {
    fn drop(&mut self) {
        if self.0.answering.fetch_sub(1, Relaxed) == 1 {
            self.0.idle.store(self.0.now(), Relaxed);
        }
    }
}

/// Guard for a queued response piece.
#[derive(Debug)]
pub(super) struct Owed(Arc<Pulse>);

impl Owed {
    /// Records that a part of it was sent.
    pub(super) fn moved(&self) {
        self.0.moved();
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.owed.fetch_sub(1, Relaxed);
        self.0.moved();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks after `seconds` with the default limits: handshake 20 s, stall 60 s, idle 1 h.
    fn late_after(seconds: u64, pulse: &Pulse) -> Result<Duration, Late> {
        let pulse = Pulse { began: pulse.began - Duration::from_secs(seconds), ..copy(pulse) };
        pulse.late(&Limits::default())
    }

    fn copy(pulse: &Pulse) -> Pulse {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        Pulse {
            began: pulse.began,
            answering: AtomicUsize::new(pulse.answering.load(Relaxed)),
            owed: AtomicUsize::new(pulse.owed.load(Relaxed)),
            moved: word(&pulse.moved),
            full: word(&pulse.full),
            header: word(&pulse.header),
            header_bytes: word(&pulse.header_bytes),
            idle: word(&pulse.idle),
            multiplexed: AtomicBool::new(pulse.multiplexed.load(Relaxed)),
        }
    }

    #[test]
    fn a_silent_client_has_the_idle_time() {
        let pulse = Arc::new(Pulse::new());
        assert!(late_after(3500, &pulse).is_ok());
        assert_eq!(late_after(3700, &pulse), Err(Late::Silent));
        let _answering = pulse.begin(false);
        assert!(late_after(3700, &pulse).is_ok(), "a long request is no silence");
    }

    #[test]
    fn a_header_must_come_in_time() {
        let pulse = Arc::new(Pulse::new());
        pulse.received(1);
        assert_eq!(late_after(21, &pulse), Err(Late::Header));
        drop(pulse.begin(true));
        pulse.received(1);
        assert!(late_after(21, &pulse).is_ok(), "frames between requests of HTTP/2 begin no header");
    }

    #[test]
    fn an_answer_must_be_taken() {
        let pulse = Arc::new(Pulse::new());
        let _answering = pulse.begin(false);
        let owed = pulse.owe();
        assert_eq!(late_after(61, &pulse), Err(Late::Taking));
        drop(owed);
        assert!(late_after(61, &pulse).is_ok());
        pulse.filled();
        assert_eq!(late_after(61, &pulse), Err(Late::Taking));
        pulse.sent();
        assert!(late_after(61, &pulse).is_ok());
    }
}
