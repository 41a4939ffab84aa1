//! Announced reads of a cached file. The bytes are requested in the announced order, up to a window ahead of the reader.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use towpath_store::{ByteRange, Preparation, Result};

use super::{OpenedFile, VECTOR_GROUP_BYTES};
use crate::{entry::RangeState, extents::CHUNK_BYTES, runs::RUN_BYTES};

/// How many announced bytes are requested ahead of the reader: twice the bandwidth-delay product of 1 Gbit/s and 250 ms,
/// because data of weak versions are available one round trip after they arrived.
const WINDOW_BYTES: u64 = 64 << 20;
/// Number of announced bytes that are verified together: with one job of the disk pool.
const VERIFIED_TOGETHER_BYTES: u64 = 4 << 20;
/// Announced bytes are requested in portions of at least this length.
const PORTION_BYTES: u64 = 1 << 20;

/// Announced reads.
#[derive(Debug)]
pub(super) struct AnnouncedReads {
    file: Arc<OpenedFile>,
    /// Not empty each, in the announced order.
    ranges: Vec<Range<u64>>,
    /// For each range, the number of announced bytes before it.
    positions: Vec<u64>,
    /// How far ahead of the reader bytes are requested.
    window_bytes: u64,
    /// Minimum number of bytes that are requested together, except at the end.
    portion_bytes: u64,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Number of announced bytes that were requested.
    requested: u64,
    /// Index of the range that was read last.
    current: usize,
}

impl AnnouncedReads {
    /// Announces reads of `ranges`, not empty each.
    pub(super) fn new(file: Arc<OpenedFile>, ranges: Vec<Range<u64>>) -> Self {
        let positions = positions(&ranges);
        let (window_bytes, portion_bytes) = match file.source.has_separate_connections() {
            true => (RUN_BYTES, RUN_BYTES),
            false => (WINDOW_BYTES, PORTION_BYTES),
        };
        Self { file, ranges, positions, window_bytes, portion_bytes, progress: Mutex::default() }
    }

    /// Returns the announced ranges.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn total_bytes(&self) -> u64 {
        let last = self.positions.last().zip(self.ranges.last());
        last.map_or(0, |(position, range)| position + (range.end - range.start))
    }

    /// Requests the announced bytes up to a window ahead of the announced byte `position`, unless there is no permit for
    /// so many ranges. They count as requested in any case: a reader that finds them absent waits for the permit.
    pub(super) fn request(&self, position: u64) {
        if let Some(ranges) = self.take_due(position).map(|due| self.part(due))
            && let Ok(permit) = self.file.source.origin().ranges_permit_now(self.file.count_absent(&ranges))
        {
            self.file.request_with(&ranges, CHUNK_BYTES, permit);
        }
    }

    /// Requests bytes as [`Self::request`], for the first time or again. Waits for the permit.
    async fn request_absent(&self, position: u64) {
        self.progress().requested = position;
        if let Some(due) = self.take_due(position) {
            // The ranges are not kept in memory while this waits.
            let absent = self.file.count_absent(&self.part(due.clone()));
            let permit = self.file.source.origin().ranges_permit(absent).await;
            self.file.request_with(&self.part(due), CHUNK_BYTES, permit);
        }
    }

    /// Returns the part of the announced bytes to request, which then counts as requested; `None` if enough were
    /// requested.
    fn take_due(&self, position: u64) -> Option<Range<u64>> {
        let total = self.total_bytes();
        let target = position.saturating_add(self.window_bytes).min(total);
        let mut progress = self.progress();
        let start = progress.requested;
        if target < start + self.portion_bytes && target < total || target <= start {
            return None;
        }
        progress.requested = target;
        drop(progress);
        Some(start..target)
    }

    /// Returns the ranges of a part of the announced bytes.
    fn part(&self, part: Range<u64>) -> Vec<Range<u64>> {
        let first = self.positions.partition_point(|position| *position <= part.start).saturating_sub(1);
        let ranges = self.ranges.iter().zip(&self.positions).skip(first);
        let ranges = ranges.take_while(|(_, position)| **position < part.end).map(|(range, position)| {
            let start = part.start.saturating_sub(*position).min(range.end - range.start);
            let end = (part.end - position).min(range.end - range.start);
            range.start + start..range.start + end
        });
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Returns the announced ranges from `position` on that are to be verified together.
    fn next(&self, position: Option<u64>) -> Vec<Range<u64>> {
        let part = |position: u64| self.part(position..position.saturating_add(VERIFIED_TOGETHER_BYTES));
        position.map(part).unwrap_or_default()
    }

    /// Returns the position of the byte at `offset` of the file in the announced order, if it was announced. Its range is
    /// the current one then.
    fn advance(&self, offset: u64) -> Option<u64> {
        let mut progress = self.progress();
        let index = find(&self.ranges, progress.current, offset)?;
        progress.current = index;
        let (position, range) = (self.positions.get(index)?, self.ranges.get(index)?);
        Some(position + (offset - range.start))
    }
}

/// Returns the number of bytes before each range.
fn positions(ranges: &[Range<u64>]) -> Vec<u64> {
    let mut next = 0;
    let positions = ranges.iter().map(|range| {
        let before = next;
        next += range.end - range.start;
        before
    });
    positions.collect()
}

/// Returns the index of a range that contains `offset`. The search begins at the index `current`, because ranges are
/// read in the announced order.
fn find(ranges: &[Range<u64>], current: usize, offset: u64) -> Option<usize> {
    let mut indices = (current..ranges.len()).chain(0..current);
    indices.find(|&index| ranges.get(index).is_some_and(|range| range.contains(&offset)))
}

#[async_trait]
impl Preparation for AnnouncedReads {
    async fn ready(&self, part: ByteRange) -> Result<()> {
        let range = self.file.range(part.offset, part.length);
        if range.is_empty() {
            return Ok(());
        }
        let position = self.advance(range.start);
        let state = self.file.entry.range_state(&range);
        match (position, &state) {
            // It was not requested yet, or its request has failed or was given up: then also what follows.
            (Some(position), RangeState::Absent) => self.request_absent(position).await,
            (Some(position), _) => self.request(position),
            (None, _) => {}
        }
        match state {
            RangeState::Verified => Ok(()),
            // A reader that forbids requests needs the bytes to be present. They are verified when they are read.
            RangeState::Present if self.file.source.is_absent() && part.length > VECTOR_GROUP_BYTES => Ok(()),
            // Without a place on the disk, the read itself waits for the origin.
            _ => self.file.locate(&range, || self.next(position)).await.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_announced_byte_is_found_from_any_range(
            ranges in proptest::collection::vec((0..300_u64, 1..40_u64), 1..30),
            current in 0..30_usize,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let order: Vec<u64> = ranges.iter().cloned().flatten().collect();
            let positions = positions(&ranges);
            let current = current.min(ranges.len() - 1);
            for offset in 0..350 {
                match find(&ranges, current, offset) {
                    Some(index) => {
                        let position = positions[index] + (offset - ranges[index].start);
                        prop_assert_eq!(order[position as usize], offset);
                        prop_assert!(!ranges[current].contains(&offset) || index == current);
                    }
                    None => prop_assert!(!order.contains(&offset)),
                }
            }
        }
    }
}
