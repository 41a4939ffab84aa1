//! The memory that answers in the making may take: a bound for all connections, shared in the order of asking.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is handed out in units of this many bytes, because a semaphore counts to 2^29 or so.
const UNIT_BYTES: usize = 4096;

/// A bound on memory. Requests for it are served first come, first served.
#[derive(Debug, Clone)]
pub struct Buffers {
    free: Arc<Semaphore>,
    units: u32,
}

/// The right to use some memory, until dropped.
#[derive(Debug)]
pub struct Room {
    permit: OwnedSemaphorePermit,
}

impl Buffers {
    /// A bound of `bytes`, at least one unit of 4 KiB.
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES as u64).unwrap_or(u32::MAX >> 3).clamp(1, u32::MAX >> 3);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Room for `bytes`, once there is. A request for more than the whole gets the whole.
    pub async fn room(&self, bytes: usize) -> Room {
        let wanted = self.units_for(bytes);
        let permit = Arc::clone(&self.free).acquire_many_owned(wanted).await;
        Room { permit: permit.expect("the semaphore is never closed") }
    }

    /// Room for `bytes` if there is some at once.
    pub fn room_now(&self, bytes: usize) -> Option<Room> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(self.units_for(bytes)).ok()?;
        Some(Room { permit })
    }

    /// Makes a room of this memory one for `bytes`: what is too much is given back; what is missing is added if all of it is free at once, else nothing is.
    pub(crate) fn fit(&self, room: Room, bytes: usize) -> Room {
        let Room { mut permit } = room;
        let (has, wanted) = (permit.num_permits(), self.units_for(bytes));
        drop(permit.split(has.saturating_sub(wanted as usize)));
        let missing = wanted.saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        if let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(missing) {
            permit.merge(more);
        }
        Room { permit }
    }

    /// Whether less than a quarter is free.
    pub fn is_short(&self) -> bool {
        self.free.available_permits() < self.units as usize / 4
    }

    fn units_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_when_dropped() {
        let buffers = Buffers::new(8192);
        let first = buffers.room_now(5000).expect("two units are free");
        assert!(buffers.room_now(1).is_none());
        drop(first);
        assert!(buffers.room_now(1 << 40).is_some(), "one who wants more than all gets all");
    }

    #[test]
    fn room_is_made_to_fit() {
        let free = |buffers: &Buffers| buffers.free.available_permits();
        let buffers = Buffers::new(8 * 4096);
        let room = buffers.room_now(4 * 4096).expect("eight units are free");
        let room = buffers.fit(room, 4096);
        assert_eq!(free(&buffers), 7);
        let room = buffers.fit(room, 6 * 4096);
        assert_eq!(free(&buffers), 2);
        let other = buffers.room_now(4096).expect("two units are free");
        let room = buffers.fit(room, 1 << 40);
        assert_eq!(free(&buffers), 1, "nothing was added, because not all was free");
        drop(other);
        let room = buffers.fit(room, 1 << 40);
        assert_eq!(free(&buffers), 0);
        drop(room);
        assert_eq!(free(&buffers), 8);
    }
}
