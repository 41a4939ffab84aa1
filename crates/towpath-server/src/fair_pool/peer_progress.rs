//! Tracks whether the peer of a connection, or of one response on it, makes progress with the resources it holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use towpath_store::sys::clock::{self, Instant};

/// Maximum time that a peer may be slow before its leases can be revoked, longer than a retransmission timeout on a
/// path around the world.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum time that a peer may make no progress. The kernel accepts more data once a third of its buffer is free,
/// about 27 KiB: at 2.7 KiB/s that takes 10 s. So 500 peers keep their leases on a path of 11 Mbit/s. It is also
/// longer than five retransmissions of one segment.
const IDLE_GRACE: Duration = Duration::from_secs(10);

/// Minimum rate at which a peer keeps its leases, in bytes per millisecond: 32 kB/s. A byte now and then does not
/// suffice.
const MIN_BYTES_PER_MS: u64 = 32;

/// Tracks the progress of a peer. For memory there is one for each HTTP response and for each direction of an xroot
/// connection; for files and connections, one for each connection and for each open xroot file.
#[derive(Debug)]
pub struct PeerProgress {
    began: Instant,
    /// Number of pieces that wait for the peer.
    waits: AtomicUsize,
    /// Time up to which the peer has moved enough, in milliseconds since `began`.
    credit_ms: AtomicU64,
    /// Time of the peer's last progress, in milliseconds since `began`.
    last_ms: AtomicU64,
    end: CancellationToken,
}

/// The kind of insufficient progress for which leases are revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slowness {
    /// Less than [`MIN_BYTES_PER_MS`] for [`GRACE`].
    Slow,
    /// Nothing for [`IDLE_GRACE`].
    Idle,
}

impl PeerProgress {
    /// Creates a tracker whose leases are revoked by cancelling `end`.
    pub fn new(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self::of(0, end))
    }

    /// Like [`Self::new`], for a peer that always has work to do: requests to send, or responses to receive.
    pub fn watching(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self::of(1, end))
    }

    fn of(waits: usize, end: CancellationToken) -> Self {
        let (credit_ms, last_ms) = Default::default();
        Self { began: clock::now(), waits: AtomicUsize::new(waits), credit_ms, last_ms, end }
    }

    /// Records that the peer made enough progress until `now`.
    pub fn touch(&self, now: Instant) {
        self.credit_ms.fetch_max(self.ms(now), Relaxed);
        self.last_ms.fetch_max(self.ms(now), Relaxed);
    }

    /// Records that something waits for the peer, until the guard is dropped.
    pub(crate) fn await_peer(self: &Arc<Self>) -> PeerWaitGuard {
        if self.waits.fetch_add(1, Relaxed) == 0 {
            let now = self.ms(clock::now());
            self.credit_ms.store(now, Relaxed);
            self.last_ms.store(now, Relaxed);
        }
        PeerWaitGuard(Arc::clone(self))
    }

    /// Records that the peer has received or sent `bytes`.
    pub(crate) fn record_progress(&self, bytes: usize) {
        if bytes > 0 && self.waits.load(Relaxed) > 0 {
            let now = self.ms(clock::now());
            let credit = bytes as u64 / MIN_BYTES_PER_MS;
            let _ = self.credit_ms.fetch_update(Relaxed, Relaxed, |before| Some((before + credit).min(now)));
            self.last_ms.fetch_max(now, Relaxed);
        }
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends the connection if its peer is no faster than `slowness`. Returns whether it does.
    pub(super) fn disconnect_if(&self, slowness: Slowness, now: Instant) -> bool {
        let (since, grace) = match slowness {
            Slowness::Slow => (&self.credit_ms, GRACE),
            Slowness::Idle => (&self.last_ms, IDLE_GRACE),
        };
        let unmoved_ms = self.ms(now).saturating_sub(since.load(Relaxed));
        let is_late = self.waits.load(Relaxed) > 0 && Duration::from_millis(unmoved_ms) >= grace;
        if is_late {
            self.end.cancel();
        }
        is_late || self.end.is_cancelled()
    }
}

/// Guard for something that waits for the peer.
#[derive(Debug)]
pub struct PeerWaitGuard(Arc<PeerProgress>);

impl PeerWaitGuard {
    /// See [`PeerProgress::record_progress`].
    pub(crate) fn record_progress(&self, bytes: usize) {
        self.0.record_progress(bytes);
    }
}

impl Drop for PeerWaitGuard {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Relaxed);
    }
}
