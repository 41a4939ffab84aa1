//! Whether a client keeps up: what its connection waits for, and since when.
//!
//! One [`Pulse`] a connection. The wire tells it when bytes come in and when the socket is full; answers tell it when they begin, when
//! a piece of them moves, and when they end. What becomes of memory that a client does not move while others need it, is for [`crate::shares`] to say.
//! [`Pulse::late`] compares all that with the limits; the connection asks it now and then
//! and ends when the client is late. It costs no timer for each request, and holds for HTTP/1.1 and HTTP/2 alike.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use towpath_store::sys::clock::{self, Instant};

use crate::config::Limits;

/// A moment that has not come.
const NEVER: u64 = u64::MAX;

/// What a client is late with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// A request header, begun and not finished.
    Header,
    /// Its next request.
    Silent,
    /// Taking the answer.
    Taking,
}

impl Late {
    /// What it is late with, in words.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Late::Header => "its request header did not arrive in time",
            Late::Silent => "it was silent for too long",
            Late::Taking => "it took no byte of an answer for too long",
        }
    }
}

/// The state of one connection. Moments are milliseconds since it began.
#[derive(Debug)]
pub(super) struct Pulse {
    began: Instant,
    /// Requests being answered.
    answering: AtomicUsize,
    /// Pieces of answers that were given to the connection and not yet sent.
    owed: AtomicUsize,
    /// When a piece was last given or moved.
    moved: AtomicU64,
    /// Since when the socket has been full.
    full: AtomicU64,
    /// Since when a request header has been coming in.
    header: AtomicU64,
    /// How much of it has come.
    header_bytes: AtomicU64,
    /// Since when no request has been answered.
    idle: AtomicU64,
    /// Whether the connection carries many requests at once (HTTP/2), so that bytes between requests mean nothing.
    multiplexed: AtomicBool,
}

impl Pulse {
    /// The pulse of a connection that begins now.
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

    /// Records `bytes` received; gives how many bytes of an incomplete request header had been received before them.
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

    /// The socket took bytes.
    pub(super) fn sent(&self) {
        self.full.store(NEVER, Relaxed);
    }

    /// The socket takes no more for now.
    pub(super) fn filled(&self) {
        if self.full.load(Relaxed) == NEVER {
            self.full.store(self.now(), Relaxed);
        }
    }

    /// A piece of an answer moved towards the client.
    pub(super) fn moved(&self) {
        self.moved.store(self.now(), Relaxed);
    }

    /// A request has arrived; it is being answered until the guard goes.
    pub(super) fn begin(self: &Arc<Self>, multiplexed: bool) -> Answering {
        self.header.store(NEVER, Relaxed);
        self.multiplexed.store(multiplexed, Relaxed);
        self.answering.fetch_add(1, Relaxed);
        Answering(Arc::clone(self))
    }

    /// A piece of an answer is given to the connection; it is owed until the guard goes.
    pub(super) fn owe(self: &Arc<Self>) -> Owed {
        self.moved();
        self.owed.fetch_add(1, Relaxed);
        Owed(Arc::clone(self))
    }

    /// How long until it is worth asking again.
    ///
    /// # Errors
    /// What the client is late with.
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

/// A request is being answered.
#[derive(Debug)]
pub(super) struct Answering(Arc<Pulse>);

impl Drop for Answering {
    fn drop(&mut self) {
        if self.0.answering.fetch_sub(1, Relaxed) == 1 {
            self.0.idle.store(self.0.now(), Relaxed);
        }
    }
}

/// A piece of an answer is on its way.
#[derive(Debug)]
pub(super) struct Owed(Arc<Pulse>);

impl Owed {
    /// A part of it was sent.
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

    /// Handshake 20 s, stall 60 s, idle 1 h.
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
