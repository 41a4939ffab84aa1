//! Whether the peer of a connection, or of one answer on it, moves what it holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use towpath_store::sys::clock::{self, Instant};

/// How long a peer may move too little before its leases can be revoked. Longer than a retransmission timeout on a path around the world.
const GRACE: Duration = Duration::from_secs(1);

/// How long a peer may move nothing at all. The kernel takes more to send when a third of its buffer is free, about 27 KiB: at 2.7 KiB/s that is after 10 s. So 500 peers
/// keep their leases on a path of 11 Mbit/s. Also longer than five retransmissions of one segment.
const IDLE_GRACE: Duration = Duration::from_secs(10);

/// What a peer must move to keep its leases, in bytes per millisecond: 32 KiB/s. A byte now and then buys no time.
const MIN_BYTES_PER_MS: u64 = 32;

/// What a peer does with what is leased for it. For memory there is one for each answer of HTTP, and for each direction of an xroot connection; for files and
/// connections one for each connection, and for each open file of xroot.
#[derive(Debug)]
pub struct Standing {
    began: Instant,
    /// Pieces that wait for the peer.
    waits: AtomicUsize,
    /// Until when, in milliseconds since `began`, the peer has moved enough.
    moved_ms: AtomicU64,
    /// When, in milliseconds since `began`, the peer moved anything for the last time.
    last_ms: AtomicU64,
    end: CancellationToken,
}

/// How little a peer moves whose leases are revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Less than [`MIN_BYTES_PER_MS`] for [`GRACE`].
    Slow,
    /// Nothing for [`IDLE_GRACE`].
    Idle,
}

impl Standing {
    /// Makes a standing whose leases are revoked by cancelling `end`.
    pub fn new(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self::of(0, end))
    }

    /// As [`Self::new`], of a peer that has something to do all the time: requests to send, or answers to take.
    pub fn watching(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self::of(1, end))
    }

    fn of(waits: usize, end: CancellationToken) -> Self {
        let (moved_ms, last_ms) = Default::default();
        Self { began: clock::now(), waits: AtomicUsize::new(waits), moved_ms, last_ms, end }
    }

    /// Records that the peer did enough until `now`.
    pub fn touch(&self, now: Instant) {
        self.moved_ms.fetch_max(self.ms(now), Relaxed);
        self.last_ms.fetch_max(self.ms(now), Relaxed);
    }

    /// Records that something waits for the peer, until the guard goes.
    pub fn await_peer(self: &Arc<Self>) -> AwaitsPeer {
        if self.waits.fetch_add(1, Relaxed) == 0 {
            let now = self.ms(clock::now());
            self.moved_ms.store(now, Relaxed);
            self.last_ms.store(now, Relaxed);
        }
        AwaitsPeer(Arc::clone(self))
    }

    /// Records that the peer has taken, or sent, `bytes`.
    pub fn moved(&self, bytes: usize) {
        if bytes > 0 && self.waits.load(Relaxed) > 0 {
            let now = self.ms(clock::now());
            let bought = bytes as u64 / MIN_BYTES_PER_MS;
            let _ = self.moved_ms.fetch_update(Relaxed, Relaxed, |moved| Some((moved + bought).min(now)));
            self.last_ms.fetch_max(now, Relaxed);
        }
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends the connection if its peer moves as little as `pace`; whether it ends.
    pub(super) fn revoke_for(&self, pace: Pace, now: Instant) -> bool {
        let (since, grace) = match pace {
            Pace::Slow => (&self.moved_ms, GRACE),
            Pace::Idle => (&self.last_ms, IDLE_GRACE),
        };
        let unmoved_ms = self.ms(now).saturating_sub(since.load(Relaxed));
        let is_late = self.waits.load(Relaxed) > 0 && Duration::from_millis(unmoved_ms) >= grace;
        if is_late {
            self.end.cancel();
        }
        is_late || self.end.is_cancelled()
    }
}

/// Something waits for the peer.
#[derive(Debug)]
pub struct AwaitsPeer(Arc<Standing>);

impl AwaitsPeer {
    /// As [`Standing::moved`].
    pub fn moved(&self, bytes: usize) {
        self.0.moved(bytes);
    }
}

impl Drop for AwaitsPeer {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Relaxed);
    }
}
