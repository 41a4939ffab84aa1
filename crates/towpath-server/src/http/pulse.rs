//! Whether a client keeps up: what its connection waits for, and since when.
//!
//! One [`Pulse`] a connection. The wire tells it when bytes come in and when the socket is full; answers tell it when they begin, when
//! a piece of them moves, and when they end. What an answer has in memory for the client is its [`Debt`]: that must move whatever else does.
//! [`Pulse::late`] compares all that with the limits; the connection asks it now and then
//! and ends when the client is late. It costs no timer for each request, and holds for HTTP/1.1 and HTTP/2 alike.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
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
    /// Taking what an answer has in memory.
    Keeping,
}

impl Late {
    /// What it is late with, in words.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Late::Header => "its request header did not arrive in time",
            Late::Silent => "it was silent for too long",
            Late::Taking => "it took no byte of an answer for too long",
            Late::Keeping => "it left a piece of an answer in memory for too long",
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
    /// Those of the answers that may have something in memory.
    debts: Mutex<Vec<Weak<Debt>>>,
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
            debts: Mutex::default(),
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

    /// The debt of a new answer, which has nothing in memory yet.
    pub(super) fn debt(self: &Arc<Self>) -> Arc<Debt> {
        let debt = Arc::new(Debt { pulse: Arc::clone(self), pieces: AtomicUsize::new(0), moved: AtomicU64::new(0) });
        let mut debts = self.debts();
        debts.retain(|debt| debt.strong_count() > 0);
        debts.push(Arc::downgrade(&debt));
        debt
    }

    fn debts(&self) -> MutexGuard<'_, Vec<Weak<Debt>>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nothing has moved of what some answer has in memory.
    fn kept(&self) -> u64 {
        let debts = self.debts();
        let since = debts.iter().filter_map(Weak::upgrade).filter_map(|debt| debt.since());
        since.min().unwrap_or(NEVER)
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
            (self.kept(), limits.stall.0, Late::Keeping),
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

/// What one answer has in memory for the client. A piece of it must be taken whole in the time that a client may take over one byte otherwise, and
/// that another answer moves is no excuse: all connections lack the memory.
#[derive(Debug)]
pub(super) struct Debt {
    pulse: Arc<Pulse>,
    pieces: AtomicUsize,
    /// When a piece was last made, or taken whole.
    moved: AtomicU64,
}

impl Debt {
    /// A piece is in memory; it is the client's to take until the guard goes.
    pub(super) fn keep(self: &Arc<Self>) -> Kept {
        self.moved.store(self.pulse.now(), Relaxed);
        self.pieces.fetch_add(1, Relaxed);
        Kept(Arc::clone(self))
    }

    /// Since when nothing has moved, if there is something.
    fn since(&self) -> Option<u64> {
        (self.pieces.load(Relaxed) > 0).then(|| self.moved.load(Relaxed))
    }
}

/// A piece of an answer is in memory for the client.
#[derive(Debug)]
pub(super) struct Kept(Arc<Debt>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.moved.store(self.0.pulse.now(), Relaxed);
        self.0.pieces.fetch_sub(1, Relaxed);
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
            debts: Mutex::new(pulse.debts().clone()),
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

    #[tokio::test(start_paused = true)]
    async fn what_an_answer_has_in_memory_must_move_whatever_else_does() {
        let (pulse, limits) = (Arc::new(Pulse::new()), Limits::default());
        let _answering = pulse.begin(true);
        let (slow, lively) = (pulse.debt(), pulse.debt());
        let [first, second] = [slow.keep(), slow.keep()];
        let rest_moves = async || {
            tokio::time::advance(Duration::from_secs(40)).await;
            drop((pulse.owe(), lively.keep()));
        };
        rest_moves().await;
        drop(first);
        rest_moves().await;
        assert!(pulse.late(&limits).is_ok(), "a piece was taken 40 s ago");
        rest_moves().await;
        assert_eq!(pulse.late(&limits), Err(Late::Keeping));
        drop(second);
        assert!(pulse.late(&limits).is_ok(), "nothing is left of it");
    }
}
