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

/// How long a peer may move nothing before its leases can be revoked. Longer than a retransmission timeout on a path around the world.
pub(super) const GRACE: Duration = Duration::from_secs(1);

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
    end: CancellationToken,
}

impl Standing {
    /// Makes a standing whose leases are revoked by cancelling `end`.
    pub fn new(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self { began: clock::now(), waits: AtomicUsize::new(0), moved_ms: AtomicU64::new(0), end })
    }

    /// As [`Self::new`], of a peer that has something to do all the time: requests to send, or answers to take.
    pub fn watching(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self { began: clock::now(), waits: AtomicUsize::new(1), moved_ms: AtomicU64::new(0), end })
    }

    /// Records that the peer did enough until `now`.
    pub fn touch(&self, now: Instant) {
        self.moved_ms.fetch_max(self.ms(now), Relaxed);
    }

    /// Records that something waits for the peer, until the guard goes.
    pub fn await_peer(self: &Arc<Self>) -> AwaitsPeer {
        if self.waits.fetch_add(1, Relaxed) == 0 {
            self.moved_ms.store(self.ms(clock::now()), Relaxed);
        }
        AwaitsPeer(Arc::clone(self))
    }

    /// Records that the peer has taken, or sent, `bytes`.
    pub fn moved(&self, bytes: usize) {
        if self.waits.load(Relaxed) > 0 {
            let now = self.ms(clock::now());
            let bought = bytes as u64 / MIN_BYTES_PER_MS;
            let _ = self.moved_ms.fetch_update(Relaxed, Relaxed, |moved| Some((moved + bought).min(now)));
        }
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends the connection if its peer has not moved for longer than [`GRACE`]; whether it ends.
    pub(super) fn revoke_if_late(&self, now: Instant) -> bool {
        let unmoved_ms = self.ms(now).saturating_sub(self.moved_ms.load(Relaxed));
        let is_late = self.waits.load(Relaxed) > 0 && Duration::from_millis(unmoved_ms) >= GRACE;
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
