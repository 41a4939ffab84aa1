//! Records which source delivered which bytes, with a checksum of each piece, to identify a source of wrong bytes
//! afterwards.

use std::collections::BTreeMap;

use towpath_proto::checksum::{Algorithm, Digest, Hasher};

/// Maximum number of recorded pieces, which take about 5 MB: 128 GiB of a file. Data beyond are copied too, but a
/// source whose wrong bytes are all there is not identified.
const MAX_PIECES: usize = 1 << 16;

/// The pieces received from each source.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence(BTreeMap<u64, DeliveredPiece>);

/// A piece delivered by a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveredPiece {
    /// The source.
    pub(super) source: usize,
    /// Offset of its first byte in the file.
    pub(super) offset: u64,
    /// Its length.
    pub(super) bytes: u64,
    /// Its CRC-32C.
    pub(super) crc32c: Digest,
}

impl DeliveredPiece {
    /// Creates the record of the piece `data` at `offset`.
    fn of(source: usize, offset: u64, data: &[u8]) -> Self {
        Self { source, offset, bytes: data.len() as u64, crc32c: Hasher::digest_of(Algorithm::Crc32c, data) }
    }

    /// Returns whether `data` is the same piece.
    pub(super) fn is_like(&self, data: &[u8]) -> bool {
        self.bytes == data.len() as u64 && self.crc32c == Hasher::digest_of(Algorithm::Crc32c, data)
    }
}

impl Evidence {
    /// Records a piece delivered by `source`.
    pub(super) fn note(&mut self, source: usize, offset: u64, data: &[u8]) {
        if self.0.len() < MAX_PIECES {
            self.0.insert(offset, DeliveredPiece::of(source, offset, data));
        }
    }

    /// Returns the last piece of the file that another source than `index` delivered.
    pub(super) fn of_others_than(&self, index: usize) -> Option<DeliveredPiece> {
        self.0.values().rev().find(|given| given.source != index).copied()
    }

    /// Returns the pieces that differ from the piece at the same offset in `right`.
    pub(super) fn unlike<'a>(&'a self, right: &'a Self) -> impl Iterator<Item = &'a DeliveredPiece> {
        self.0.values().filter(|given| {
            right.0.get(&given.offset).is_some_and(|right| right.bytes == given.bytes && right.crc32c != given.crc32c)
        })
    }
}
