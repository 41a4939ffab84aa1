//! Digests that need bytes in order (MD5, SHA-256), computed while pieces arrive nearly in order.
//!
//! Concurrent writers overtake each other, so early pieces are buffered until their predecessors arrive, up to a limit.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_proto::checksum::{Algorithms, Digests, Hasher};

/// Maximum memory for early pieces of all uploads of a store together: enough for a few clients that send 8 MiB pieces
/// on several connections. The digest of an upload beyond this limit is computed by reading the file.
const EARLY_BYTES: usize = 64 << 20;

/// Memory overhead of a buffered piece in bytes, for its map entry.
const PIECE_BYTES: usize = 128;

/// Memory limit for pieces that arrive early. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct ReorderMemory(Arc<Semaphore>);

impl Default for ReorderMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EARLY_BYTES)))
    }
}

impl ReorderMemory {
    /// Copies `data`, which may be a slice of a larger buffer; `None` if the memory limit is reached.
    fn keep(&self, data: &[u8]) -> Option<BufferedChunk> {
        let taken_bytes = u32::try_from(data.len().checked_add(PIECE_BYTES)?).ok()?;
        let room = Arc::clone(&self.0).try_acquire_many_owned(taken_bytes).ok()?;
        Some(BufferedChunk { data: data.to_vec(), _room: room })
    }
}

/// A buffered early piece.
#[derive(Debug)]
struct BufferedChunk {
    data: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// Digests of a file that grows from its start.
#[derive(Debug)]
pub(super) struct SequentialHasher {
    hasher: Hasher,
    early: BTreeMap<u64, BufferedChunk>,
    room: ReorderMemory,
}

/// Pieces were missing or overlapped, or the memory limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReorderError;

impl SequentialHasher {
    pub(super) fn new(algorithms: Algorithms, room: &ReorderMemory) -> Self {
        Self { hasher: Hasher::new(algorithms), early: BTreeMap::new(), room: room.clone() }
    }

    /// Adds the piece at `offset`.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) -> Result<(), ReorderError> {
        if data.is_empty() {
            return Ok(());
        }
        if offset < self.hasher.bytes() {
            return Err(ReorderError);
        }
        if offset > self.hasher.bytes() {
            let early = self.room.keep(data).ok_or(ReorderError)?;
            return self.early.insert(offset, early).map_or(Ok(()), |_| Err(ReorderError));
        }
        self.hasher.update(data);
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.hasher.bytes()) {
            if *first.key() < self.hasher.bytes() {
                return Err(ReorderError);
            }
            self.hasher.update(&first.remove().data);
        }
        Ok(())
    }

    /// Returns the end of the data that has arrived, including early pieces.
    pub(super) fn end(&self) -> u64 {
        let early = self.early.iter().map(|(offset, early)| offset.saturating_add(early.data.len() as u64));
        early.fold(self.hasher.bytes(), u64::max)
    }

    /// Returns the digests of the file if exactly `size` bytes have arrived.
    pub(super) fn finish(self, size: u64) -> Option<Digests> {
        (self.early.is_empty() && self.hasher.bytes() == size).then(|| self.hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::Algorithm;

    use super::*;

    const MD5: Algorithms = Algorithms::of(&[Algorithm::Md5]);

    fn of_pieces(pieces: &[(u64, &'static [u8])]) -> Result<Option<Digests>, ReorderError> {
        let mut sequential_hasher = SequentialHasher::new(MD5, &ReorderMemory::default());
        pieces.iter().try_for_each(|(offset, data)| sequential_hasher.add(*offset, data))?;
        Ok(sequential_hasher.finish(6))
    }

    #[test]
    fn early_pieces_wait_for_their_turn() {
        let whole = Some(Hasher::digest(MD5, b"abcdef"));
        assert_eq!(of_pieces(&[(0, b"ab"), (2, b"cd"), (4, b"ef")]), Ok(whole.clone()));
        assert_eq!(of_pieces(&[(4, b"ef"), (2, b"cd"), (0, b"ab"), (3, b"")]), Ok(whole));
        assert_eq!(of_pieces(&[(0, b"ab"), (4, b"ef")]), Ok(None));
    }

    #[test]
    fn pieces_that_overlap_are_found_out() {
        for pieces in [
            [(0, b"ab".as_slice()), (1, b"bc")],
            [(4, b"ef"), (4, b"ef")],
            [(0, b"ab"), (0, b"ab")],
            [(1, b"bc"), (0, b"ab")],
        ] {
            assert_eq!(of_pieces(&pieces), Err(ReorderError), "{pieces:?}");
        }
    }

    #[test]
    fn what_waits_is_bounded_for_all_uploads_together() {
        let room = ReorderMemory::default();
        let piece = vec![0; EARLY_BYTES / 4 - PIECE_BYTES];
        let early = |upload: &mut SequentialHasher, number: u64| upload.add(number * piece.len() as u64, &piece);
        let (mut one, mut other) = (SequentialHasher::new(MD5, &room), SequentialHasher::new(MD5, &room));
        for number in 1..4 {
            assert_eq!(early(&mut one, number), Ok(()));
        }
        assert_eq!(early(&mut other, 1), Ok(()));
        assert_eq!(early(&mut other, 2), Err(ReorderError));
        assert_eq!(early(&mut one, 0), Ok(()), "what comes in its turn needs no room, and makes some");
        assert_eq!(early(&mut other, 2), Ok(()));
        drop(one);
        drop(other);
        assert_eq!(room.0.available_permits(), EARLY_BYTES);
    }
}
