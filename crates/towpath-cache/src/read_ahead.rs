//! Read-ahead of one handle: detects sequential reads, and reads at equal distances ([`strides`]), and says what to fetch
//! next. No I/O, no clock.
//!
//! A client may have several requests in flight, which arrive in any order, and may read several parts of a file in turn.
//! So the read bytes are kept as runs: ranges without a gap, which grow, and are joined when the bytes between them are read.

mod strides;

use std::{collections::VecDeque, ops::Range};

use self::strides::Strides;
use crate::extents::CHUNK_BYTES;

/// Minimum number of reads that make a run sequential.
const MIN_READS: u32 = 3;
/// Maximum number of bytes ahead of the reader: twice the bandwidth-delay product of 1 Gbit/s and 250 ms, because data of
/// weak versions are available one round trip after they arrived.
const MAX_WINDOW_BYTES: u64 = 64 << 20;
/// Minimum number of bytes read in sequence before anything is fetched ahead. Clients that read a few columns of a table
/// read runs of up to some hundred KiB in sequence; bytes fetched behind them are wasted.
const MIN_SEQUENCE_BYTES: u64 = 512 << 10;
/// Minimum number of bytes ahead of a sequential reader.
const MIN_WINDOW_BYTES: u64 = CHUNK_BYTES;
/// Bytes are fetched ahead in portions of at least this part of the window.
const PORTIONS: u64 = 4;
/// Maximum number of runs.
const MAX_RUNS: usize = 8;

/// Bytes that were read without a gap.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    /// Number of reads that extended it.
    reads: u32,
    /// End of the last range that was to be fetched ahead.
    requested: u64,
}

/// The recent reads of a handle.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    sequences: Sequences,
    strides: Strides,
}

impl ReadAhead {
    /// Records a read of `range` of a file of `size` bytes. Returns the ranges to fetch in addition. `is_missed` says that
    /// bytes of it were absent, before the read or before read-ahead: reads of other bytes do not count as equally spaced.
    pub(crate) fn next(&mut self, range: &Range<u64>, size: u64, is_missed: bool) -> Vec<Range<u64>> {
        let mut ahead = if is_missed { self.strides.next(range, size) } else { Vec::new() };
        ahead.extend(self.sequences.next(range, size));
        ahead
    }
}

/// The runs, the one that was extended last at the end.
#[derive(Debug, Default)]
struct Sequences(VecDeque<Run>);

impl Sequences {
    /// Records a read of `range` of a file of `size` bytes. Returns the range to fetch in addition, if the reader is
    /// sequential: as many bytes as it has read in sequence, at most [`MAX_WINDOW_BYTES`], in portions of at least a
    /// quarter of that, so that requests are large.
    fn next(&mut self, range: &Range<u64>, size: u64) -> Option<Range<u64>> {
        if self.0.iter().any(|run| run.start <= range.start && range.end <= run.end) {
            return None;
        }
        let mut run = Run { start: range.start, end: range.end, reads: 1, requested: 0 };
        self.0.retain(|other| {
            let touches = other.start <= run.end && run.start <= other.end;
            if touches {
                run = Run {
                    start: run.start.min(other.start),
                    end: run.end.max(other.end),
                    reads: run.reads.saturating_add(other.reads),
                    requested: run.requested.max(other.requested),
                };
            }
            !touches
        });
        let ahead = run.next(size);
        run.requested = ahead.as_ref().map_or(run.requested, |ahead| ahead.end);
        if self.0.len() == MAX_RUNS {
            self.0.pop_front();
        }
        self.0.push_back(run);
        ahead
    }
}

impl Run {
    /// Returns the range to fetch ahead.
    fn next(&self, size: u64) -> Option<Range<u64>> {
        let bytes = self.end - self.start;
        let window = bytes.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES);
        let start = self.requested.max(self.end);
        // Flights end at multiples of this too.
        let target = self.end.saturating_add(window).next_multiple_of(CHUNK_BYTES).min(size);
        let is_due = target > start && (target - start >= window / PORTIONS || target == size);
        (self.reads >= MIN_READS && bytes >= MIN_SEQUENCE_BYTES && is_due).then_some(start..target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `count` ranges of `length` bytes from `start`; returns the ranges fetched in addition.
    fn read(ahead: &mut Sequences, start: u64, length: u64, count: u64) -> Vec<Range<u64>> {
        let reads = (0..count).map(|index| start + index * length..start + (index + 1) * length);
        reads.filter_map(|range| ahead.next(&range, 1 << 30)).collect()
    }

    #[test]
    fn sequential_readers_get_a_growing_window_without_overlap() {
        let mut ahead = Sequences::default();
        let fetched = read(&mut ahead, 0, 256 << 10, 2000);
        assert_eq!(fetched[0], 3 * (256 << 10)..2 << 20);
        assert!(fetched.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(fetched.iter().all(|range| range.end - range.start >= MIN_WINDOW_BYTES / PORTIONS));
        assert!(fetched.last().unwrap().end <= 2000 * (256 << 10) + MAX_WINDOW_BYTES + CHUNK_BYTES);
        assert!(fetched.len() < 80, "{}", fetched.len());
    }

    #[test]
    fn scattered_reads_fetch_nothing_more() {
        let mut ahead = Sequences::default();
        for start in [0, 100, 5_000_000, 200, 1_000_000, 2_000_000, 3_000_000, 100] {
            assert_eq!(ahead.next(&(start..start + 100), 1 << 30), None);
        }
    }

    #[test]
    fn repeated_reads_do_not_end_a_sequence_but_gaps_do() {
        let mut ahead = Sequences::default();
        for range in [0..1000, 1000..2000, 1500..1501, 0..2000] {
            assert_eq!(ahead.next(&range, 1 << 30), None);
        }
        assert_eq!(ahead.next(&(2000..600_000), 1 << 30), Some(600_000..2 << 20));
        for start in (600_100..700_000).step_by(2100) {
            assert_eq!(ahead.next(&(start..start + 2000), 1 << 30), None);
        }
    }

    #[test]
    fn reads_in_flight_at_the_same_time_may_come_in_any_order() {
        let chunk = |index: u64| index << 23..(index + 1) << 23;
        for order in [[0, 1, 2, 3], [3, 0, 1, 2], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let mut ahead = Sequences::default();
            let mut fetched: Vec<_> = order.iter().filter_map(|index| ahead.next(&chunk(*index), 1 << 30)).collect();
            // The server reads each in pieces.
            for start in (0..4_u64 << 23).step_by(256 << 10) {
                assert_eq!(ahead.next(&(start..start + (256 << 10)), 1 << 30), None);
            }
            fetched.extend([5, 4].iter().filter_map(|index| ahead.next(&chunk(*index), 1 << 30)));
            assert_eq!(fetched.last().unwrap().end, 12 << 23, "{order:?}");
        }
    }

    #[test]
    fn two_readers_of_one_handle_are_both_sequential() {
        let mut ahead = Sequences::default();
        let fetched: Vec<_> = (0..8)
            .flat_map(|index| [index << 18, (index << 18) + (1 << 29)])
            .filter_map(|start| ahead.next(&(start..start + (1 << 18)), 1 << 30))
            .collect();
        assert!(fetched.iter().any(|range| range.start < 1 << 28) && fetched.iter().any(|range| range.start > 1 << 29));
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let mut ahead = Sequences::default();
        let size = 750_000;
        let reads = (0..3).map(|index| index * 200_000..(index + 1) * 200_000);
        let fetched: Vec<_> = reads.filter_map(|range| ahead.next(&range, size)).collect();
        assert_eq!(fetched.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>(), [(600_000, 750_000)]);
        assert_eq!(ahead.next(&(600_000..size), size), None);
    }
}
