//! Digests that need the bytes in order (MD5, SHA-256), computed while the pieces come nearly in order.
//!
//! Writers run side by side, so pieces overtake each other; one that is early waits here until its turn, up to a bound.

use std::collections::BTreeMap;

use bytes::Bytes;
use towpath_proto::checksum::{Algorithms, Digests, Hasher};

/// How much early data may wait. It is memory that the network has filled already; beyond this the pieces are not in order
/// in any useful sense, and the digest will be computed by reading the file.
const EARLY_BYTES: usize = 32 << 20;

/// The digests of a file that grows from the start.
#[derive(Debug)]
pub(super) struct InOrder {
    hasher: Hasher,
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
}

/// The pieces were not in order, or written twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfOrder;

impl InOrder {
    pub(super) fn new(algorithms: Algorithms) -> Self {
        Self { hasher: Hasher::new(algorithms), early: BTreeMap::new(), early_bytes: 0 }
    }

    /// Takes the piece at `offset`.
    pub(super) fn add(&mut self, offset: u64, data: &Bytes) -> Result<(), OutOfOrder> {
        if data.is_empty() {
            return Ok(());
        }
        self.early_bytes += data.len();
        if offset < self.hasher.bytes() || self.early_bytes > EARLY_BYTES.max(data.len()) {
            return Err(OutOfOrder);
        }
        if self.early.insert(offset, data.clone()).is_some() {
            return Err(OutOfOrder);
        }
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.hasher.bytes()) {
            if *first.key() < self.hasher.bytes() {
                return Err(OutOfOrder);
            }
            let data = first.remove();
            self.early_bytes -= data.len();
            self.hasher.update(&data);
        }
        Ok(())
    }

    /// The digests of `size` bytes, if exactly they have come.
    pub(super) fn finish(self, size: u64) -> Option<Digests> {
        (self.early.is_empty() && self.hasher.bytes() == size).then(|| self.hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::Algorithm;

    use super::*;

    const MD5: Algorithms = Algorithms::of(&[Algorithm::Md5]);

    fn of_pieces(pieces: &[(u64, &'static [u8])]) -> Result<Option<Digests>, OutOfOrder> {
        let mut in_order = InOrder::new(MD5);
        pieces.iter().try_for_each(|(offset, data)| in_order.add(*offset, &Bytes::from_static(data)))?;
        Ok(in_order.finish(6))
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
            assert_eq!(of_pieces(&pieces), Err(OutOfOrder), "{pieces:?}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut in_order = InOrder::new(MD5);
        let piece = Bytes::from(vec![0; EARLY_BYTES / 4]);
        let outcomes: Vec<_> = (1..6).map(|n| in_order.add(n * piece.len() as u64, &piece)).collect();
        assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), Ok(()), Err(OutOfOrder)]);
    }
}
