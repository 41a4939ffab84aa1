//! Which parts of a file an access read, in a form that is small enough for a log. No I/O, no clock.
//!
//! A file is divided into segments, as for eviction ([`crate::inventory`]). Each is divided into 64 blocks (256 KiB, if
//! the segment has 16 MiB). Each segment has the number of bytes read and a bit for each block with such bytes.

use std::{collections::BTreeMap, ops::Range};

use crate::inventory::{SEGMENT_BYTES, segment_bytes};

/// Number of blocks of a segment.
const BLOCKS: u64 = u64::BITS as u64;

/// What an access read of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentUse {
    /// Number of the segment in the file.
    pub index: u32,
    /// Number of bytes read, counting repetitions.
    pub bytes: u64,
    /// The blocks that were read; the lowest bit is the first block.
    pub blocks: u64,
}

/// What an open file has read, at most 4,096 segments of 40 bytes.
#[derive(Debug)]
pub(crate) struct Segments {
    segment_bytes: u64,
    used: BTreeMap<u32, SegmentUse>,
}

impl Default for Segments {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, used: BTreeMap::new() }
    }
}

impl Segments {
    /// Creates a list for a file of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self { segment_bytes: segment_bytes(size), used: BTreeMap::new() }
    }

    /// Adds a read of `range`, which lies within the file.
    pub(crate) fn add(&mut self, range: &Range<u64>) {
        let mut start = range.start;
        while start < range.end {
            let number = start / self.segment_bytes;
            let base = number * self.segment_bytes;
            let end = range.end.min(base + self.segment_bytes);
            let Ok(index) = u32::try_from(number) else { return };
            let used = self.used.entry(index).or_insert(SegmentUse { index, ..SegmentUse::default() });
            used.bytes = used.bytes.saturating_add(end - start);
            used.blocks |= blocks(self.segment_bytes, &(start - base..end - base));
            start = end;
        }
    }

    /// Returns the segments that were read, in order.
    pub(crate) fn list(&self) -> Vec<SegmentUse> {
        self.used.values().copied().collect()
    }
}

/// Returns the length of a block in bytes.
pub(crate) fn block_bytes(segment_bytes: u64) -> u64 {
    segment_bytes.div_ceil(BLOCKS).max(1)
}

/// Returns the blocks of a non-empty range relative to its segment.
fn blocks(segment_bytes: u64, range: &Range<u64>) -> u64 {
    let length = block_bytes(segment_bytes);
    let (first, last) = (range.start / length, (range.end - 1) / length);
    let count = (last - first + 1).min(BLOCKS);
    (u64::MAX >> (BLOCKS - count)) << first.min(BLOCKS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_marks_the_blocks_that_it_touches() {
        let mut segments = Segments::new(100 << 20);
        let block = 256 << 10;
        segments.add(&(0..1));
        segments.add(&(block - 1..block + 1));
        segments.add(&(SEGMENT_BYTES - 1..3 * SEGMENT_BYTES));
        let used = |index, bytes, blocks| SegmentUse { index, bytes, blocks };
        let expected = [used(0, 4, 0b11 | 1 << 63), used(1, SEGMENT_BYTES, u64::MAX), used(2, SEGMENT_BYTES, u64::MAX)];
        assert_eq!(segments.list(), expected);
    }

    #[test]
    fn the_number_of_segments_is_bounded() {
        let size = 1 << 48;
        let mut segments = Segments::new(size);
        segments.add(&(0..size));
        assert!(segments.list().len() <= 4096);
        assert!(segments.list().iter().all(|segment| segment.blocks == u64::MAX));
    }
}
