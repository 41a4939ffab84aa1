//! Read-ahead of one handle: detects sequential reads, and says what to fetch next. No I/O, no clock.

use std::ops::Range;

use crate::extents::CHUNK_BYTES;

/// Number of consecutive reads after which a reader counts as sequential.
const MIN_STREAK: u32 = 3;
/// Maximum number of bytes ahead of the reader: the bandwidth-delay product of 1 Gbit/s and 250 ms.
const MAX_WINDOW_BYTES: u64 = 32 << 20;
/// Minimum number of bytes read in sequence before anything is fetched ahead. Clients that read a few columns of a table
/// read runs of up to some hundred KiB in sequence; bytes fetched behind them are wasted.
const MIN_SEQUENCE_BYTES: u64 = 512 << 10;
/// Minimum number of bytes ahead of a sequential reader.
const MIN_WINDOW_BYTES: u64 = CHUNK_BYTES;

/// The recent reads of a handle.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// End of the last read.
    end: u64,
    /// Number of reads that each began at the end of the one before.
    streak: u32,
    /// Number of bytes in the streak.
    bytes: u64,
    /// End of the last range that [`Self::next`] returned.
    requested: u64,
}

impl ReadAhead {
    /// Records a read of `range` of a file of `size` bytes. Returns the range to fetch in addition, if the reader is
    /// sequential: as many bytes as it has read in sequence, at most [`MAX_WINDOW_BYTES`], in portions of at least half
    /// of that, so that requests are large.
    pub(crate) fn next(&mut self, range: &Range<u64>, size: u64) -> Option<Range<u64>> {
        let repeats = range.start < self.end && range.start + self.bytes >= self.end;
        if repeats && range.end <= self.end {
            return None;
        }
        if !repeats && range.start != self.end {
            *self = Self { end: range.start, ..Self::default() };
        }
        self.streak = self.streak.saturating_add(1);
        self.bytes = self.bytes.saturating_add(range.end - self.end);
        self.end = range.end;
        let window = self.bytes.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES);
        let start = self.requested.max(range.end);
        // Flights end at multiples of this too.
        let target = range.end.saturating_add(window).next_multiple_of(CHUNK_BYTES).min(size);
        let is_due = target > start && (target - start >= window / 2 || target == size);
        if self.streak < MIN_STREAK || self.bytes < MIN_SEQUENCE_BYTES || !is_due {
            return None;
        }
        self.requested = target;
        Some(start..target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `count` ranges of `length` bytes from `start`; returns the ranges fetched in addition.
    fn read(ahead: &mut ReadAhead, start: u64, length: u64, count: u64) -> Vec<Range<u64>> {
        let reads = (0..count).map(|index| start + index * length..start + (index + 1) * length);
        reads.filter_map(|range| ahead.next(&range, 1 << 30)).collect()
    }

    #[test]
    fn sequential_readers_get_a_growing_window_without_overlap() {
        let mut ahead = ReadAhead::default();
        let fetched = read(&mut ahead, 0, 256 << 10, 2000);
        assert_eq!(fetched[0], 3 * (256 << 10)..2 << 20);
        assert!(fetched.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(fetched.iter().all(|range| range.end - range.start >= MIN_WINDOW_BYTES / 2));
        assert!(fetched.last().unwrap().end <= 2000 * (256 << 10) + MAX_WINDOW_BYTES + CHUNK_BYTES);
        assert!(fetched.len() < 60, "{}", fetched.len());
    }

    #[test]
    fn scattered_reads_fetch_nothing_more() {
        let mut ahead = ReadAhead::default();
        for start in [0, 100, 5_000_000, 200, 1_000_000, 2_000_000, 3_000_000, 100] {
            assert_eq!(ahead.next(&(start..start + 100), 1 << 30), None);
        }
    }

    #[test]
    fn repeated_reads_do_not_end_a_sequence_but_gaps_do() {
        let mut ahead = ReadAhead::default();
        for range in [0..1000, 1000..2000, 1500..1501, 0..2000] {
            assert_eq!(ahead.next(&range, 1 << 30), None);
        }
        assert_eq!(ahead.next(&(2000..600_000), 1 << 30), Some(600_000..2 << 20));
        for start in (600_100..700_000).step_by(2100) {
            assert_eq!(ahead.next(&(start..start + 2000), 1 << 30), None);
        }
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let mut ahead = ReadAhead::default();
        let size = 750_000;
        let reads = (0..3).map(|index| index * 200_000..(index + 1) * 200_000);
        let fetched: Vec<_> = reads.filter_map(|range| ahead.next(&range, size)).collect();
        assert_eq!(fetched.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>(), [(600_000, 750_000)]);
        assert_eq!(ahead.next(&(600_000..size), size), None);
    }
}
