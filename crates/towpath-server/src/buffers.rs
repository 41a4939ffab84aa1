//! Memory limits: [`MemoryPool`] for all connections, in fair shares, and [`Buffers`] for one connection.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fair_pool::{Class, FairPool, Lease, LeaseHolder, PeerProgress};

/// Allocation unit of a connection's memory, in bytes; needed because a semaphore counts only to about 2^29.
const UNIT_BYTES: usize = 4096;

/// Initial memory of a connection whose peer has not yet received or sent data: two blocks of a file.
const FIRST_BYTES: u64 = 512 << 10;

/// Maximum size of a lease that the reserve can serve, in bytes: a short file, or a listing of about a hundred
/// entries.
const SMALL_BYTES: usize = 128 << 10;

/// The memory for requests and responses of all connections.
#[derive(Debug, Clone)]
pub struct MemoryPool(FairPool);

impl MemoryPool {
    /// Creates a pool of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self(FairPool::new(bytes, UNIT_BYTES as u64, 1))
    }

    /// Waits until the share of `holder` permits `bytes` more, and takes them.
    pub async fn take(&self, holder: &Arc<LeaseHolder>, bytes: usize, progress: &Arc<PeerProgress>) -> Lease {
        let class = if bytes <= SMALL_BYTES { Class::Small } else { Class::Large };
        self.0.take(holder, bytes as u64, class, progress).await
    }

    /// Returns the pool.
    pub fn pool(&self) -> &FairPool {
        &self.0
    }
}

/// A memory limit of one connection, which grows as its peer receives or sends data. Requests are served in FIFO
/// order.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    free: Arc<Semaphore>,
    /// The current and the maximum limit, in units.
    bound: Arc<AtomicU32>,
    max_units: u32,
}

/// A permit for some memory, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    units: OwnedSemaphorePermit,
    of: Buffers,
}

impl Buffers {
    /// Creates a limit of `bytes`, at least one unit of 4 KiB.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::with_initial(bytes, bytes)
    }

    /// Creates a limit that starts at [`FIRST_BYTES`] and grows up to `bytes` as permits are released.
    pub(crate) fn growing_to(bytes: u64) -> Self {
        Self::with_initial(FIRST_BYTES, bytes)
    }

    fn with_initial(first_bytes: u64, bytes: u64) -> Self {
        let units =
            |bytes: u64| u32::try_from(bytes / UNIT_BYTES as u64).unwrap_or(u32::MAX >> 3).clamp(1, u32::MAX >> 3);
        let (max_units, bound) = (units(bytes), units(first_bytes.min(bytes)));
        Self { free: Arc::new(Semaphore::new(bound as usize)), bound: Arc::new(AtomicU32::new(bound)), max_units }
    }

    /// Waits for a permit for `bytes`. A request larger than the limit takes all of it.
    pub(crate) async fn acquire(&self, bytes: usize) -> MemoryPermit {
        let wanted = self.units_for(bytes);
        let permit = Arc::clone(&self.free).acquire_many_owned(wanted).await;
        MemoryPermit { units: permit.expect("the semaphore is never closed"), of: self.clone() }
    }

    /// Returns a permit for `bytes` if it is available immediately.
    pub(crate) fn try_acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(self.units_for(bytes)).ok()?;
        Some(MemoryPermit { units: permit, of: self.clone() })
    }

    /// Resizes a permit to `bytes`: the excess is released; missing memory is added only if all of it is available
    /// immediately.
    pub(crate) fn resize(&self, mut permit: MemoryPermit, bytes: usize) -> MemoryPermit {
        let (has, wanted) = (permit.units.num_permits(), self.units_for(bytes));
        drop(permit.units.split(has.saturating_sub(wanted as usize)));
        let missing = wanted.saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        if let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(missing) {
            permit.units.merge(more);
        }
        permit
    }

    /// Grows the limit because the peer has sent or received `bytes`.
    pub(crate) fn record_progress(&self, bytes: usize) {
        self.grow(bytes / UNIT_BYTES);
    }

    /// Returns the current limit, in bytes.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.bound.load(Relaxed) as usize * UNIT_BYTES
    }

    fn units_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.bound.load(Relaxed))
    }

    fn grow(&self, units: usize) {
        if self.bound.load(Relaxed) >= self.max_units {
            return;
        }
        let grown = |bound: u32| bound.saturating_add(u32::try_from(units).unwrap_or(u32::MAX)).min(self.max_units);
        if let Ok(before) = self.bound.fetch_update(Relaxed, Relaxed, |bound| Some(grown(bound))) {
            self.free.add_permits((grown(before) - before) as usize);
        }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.of.grow(self.units.num_permits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_when_a_permit_is_dropped() {
        let buffers = Buffers::new(8192);
        let first = buffers.try_acquire(5000).expect("two units are free");
        assert!(buffers.try_acquire(1).is_none());
        drop(first);
        assert!(buffers.try_acquire(1 << 40).is_some(), "a request for more than all gets all");
    }

    #[test]
    fn a_connection_gets_more_memory_as_its_peer_takes_some() {
        let buffers = Buffers::growing_to(2 << 20);
        let all = buffers.try_acquire(1 << 40).expect("nothing is taken");
        assert_eq!(all.units.num_permits() * UNIT_BYTES, 512 << 10);
        drop(all);
        assert_eq!(buffers.bound_bytes(), 1 << 20);
        for _ in 0..4 {
            drop(buffers.try_acquire(1 << 40));
        }
        assert_eq!(buffers.bound_bytes(), 2 << 20);
        assert_eq!(buffers.free.available_permits() * UNIT_BYTES, 2 << 20);
    }

    #[test]
    fn permits_are_resized() {
        let free = |buffers: &Buffers| buffers.free.available_permits();
        let buffers = Buffers::new(8 * 4096);
        let permit = buffers.try_acquire(4 * 4096).expect("eight units are free");
        let permit = buffers.resize(permit, 4096);
        assert_eq!(free(&buffers), 7);
        let permit = buffers.resize(permit, 6 * 4096);
        assert_eq!(free(&buffers), 2);
        let other = buffers.try_acquire(4096).expect("two units are free");
        let permit = buffers.resize(permit, 1 << 40);
        assert_eq!(free(&buffers), 1, "nothing was added, because not all was free");
        drop(other);
        let permit = buffers.resize(permit, 1 << 40);
        assert_eq!(free(&buffers), 0);
        drop(permit);
        assert_eq!(free(&buffers), 8);
    }
}
