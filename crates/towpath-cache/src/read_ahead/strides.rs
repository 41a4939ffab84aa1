//! Detects reads at equal distances, as of one column of a table with rows of equal length. No I/O, no clock.

use std::ops::Range;

/// Minimum number of equal distances, one less than the reads, before anything is fetched ahead.
const MIN_DISTANCES: u64 = 4;
/// Maximum number of ranges that are fetched ahead. They leave in one request.
const MAX_RANGES: u64 = 64;
/// Maximum number of bytes that are fetched ahead.
const MAX_BYTES: u64 = 8 << 20;

/// The last reads of a handle, if they are at equal distances.
#[derive(Debug, Default)]
pub(super) struct Strides {
    last: Range<u64>,
    /// Distance of the starts of the last two reads, if the later one began after the end of the earlier one; else 0.
    distance: u64,
    /// Number of reads in sequence that began at this distance from the one before, with the same length.
    distances: u64,
    /// Number of ranges fetched ahead that were not read.
    ahead: u64,
}

impl Strides {
    /// Records a read of `range` of a file of `size` bytes. Returns the ranges to fetch in addition: as many as were read
    /// in sequence. More are fetched when half of them were read.
    pub(super) fn next(&mut self, range: &Range<u64>, size: u64) -> Vec<Range<u64>> {
        // A part of the last read, or the same one: clients announce what they read.
        if self.last.start <= range.start && range.end <= self.last.end {
            return Vec::new();
        }
        let length = range.end.saturating_sub(range.start);
        let distance = if range.start > self.last.end { range.start - self.last.start } else { 0 };
        let is_next = distance > 0 && distance == self.distance && length == self.last.end - self.last.start;
        let (distances, ahead) = if is_next { (self.distances + 1, self.ahead.saturating_sub(1)) } else { (1, 0) };
        *self = Self { last: range.clone(), distance, distances, ahead };
        if distances < MIN_DISTANCES || length == 0 {
            return Vec::new();
        }
        let wanted = distances.min(MAX_RANGES).min(MAX_BYTES / length);
        if ahead > wanted / 2 {
            return Vec::new();
        }
        let starts = (ahead + 1..=wanted).map_while(|number| range.start.checked_add(number.checked_mul(distance)?));
        let ranges =
            starts.take_while(|start| *start < size).map(|start| start..start.saturating_add(length).min(size));
        let ranges: Vec<_> = ranges.collect();
        self.ahead += ranges.len() as u64;
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 1000;

    /// Reads `count` ranges at a distance; returns all ranges fetched in addition.
    fn read(strides: &mut Strides, start: u64, distance: u64, count: u64, size: u64) -> Vec<Range<u64>> {
        let starts = (0..count).map(|index| start + index * distance);
        starts.flat_map(|start| strides.next(&(start..start + LENGTH), size)).collect()
    }

    #[test]
    fn each_range_is_fetched_once_and_in_time() {
        let mut strides = Strides::default();
        let fetched = read(&mut strides, 7, 10_000, 1000, u64::MAX);
        let starts: Vec<u64> = fetched.iter().map(|range| range.start).collect();
        let expected: Vec<u64> = (MIN_DISTANCES + 1..).map(|index| 7 + index * 10_000).take(starts.len()).collect();
        assert_eq!(starts, expected);
        assert!(fetched.iter().all(|range| range.end - range.start == LENGTH));
        let beyond = starts.len() as u64 + MIN_DISTANCES + 1 - 1000;
        assert!((MAX_RANGES / 2..=MAX_RANGES).contains(&beyond), "{beyond}");
    }

    #[test]
    fn what_is_fetched_is_bounded_by_what_was_read() {
        let mut strides = Strides::default();
        for reads in 1..100 {
            let start = 7 + reads * 10_000;
            let fetched = strides.next(&(start..start + LENGTH), u64::MAX);
            assert!(strides.ahead <= reads && (reads > MIN_DISTANCES || fetched.is_empty()));
        }
        let mut strides = Strides::default();
        for index in 0..100 {
            let start = index * (2 << 20);
            strides.next(&(start..start + (1 << 20)), u64::MAX);
            assert!(strides.ahead <= MAX_BYTES >> 20);
        }
        assert!(strides.ahead > 0);
    }

    #[test]
    fn a_read_that_comes_twice_or_in_parts_counts_once() {
        let mut strides = Strides::default();
        let fetched = (0..20_u64).map(|index| index * 10_000..index * 10_000 + 1000).flat_map(|range| {
            let mut fetched = strides.next(&range, u64::MAX);
            fetched.extend(strides.next(&range, u64::MAX));
            fetched.extend(strides.next(&(range.start + 10..range.end), u64::MAX));
            fetched
        });
        let fetched: Vec<_> = fetched.collect();
        assert_eq!(fetched, read(&mut Strides::default(), 0, 10_000, 20, u64::MAX));
        assert!(!fetched.is_empty());
    }

    #[test]
    fn other_reads_end_a_sequence() {
        let mut strides = Strides::default();
        read(&mut strides, 0, 10_000, 50, u64::MAX);
        for range in [5..6_u64, 3_000_000..3_001_000, 3_010_000..3_011_000, 3_020_000..3_020_999, 3_020_999..3_021_999]
        {
            assert!(strides.next(&range, u64::MAX).is_empty());
        }
        assert!(read(&mut Strides::default(), 0, LENGTH, 50, u64::MAX).is_empty(), "adjoining reads are no strides");
        let backwards = (0..50_u64).rev().flat_map(|index| strides.next(&(index * 5000..index * 5000 + 10), u64::MAX));
        assert_eq!(backwards.count(), 0);
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let fetched = read(&mut Strides::default(), 0, 10_000, 10, 120_500);
        assert_eq!(fetched.last(), Some(&(120_000..120_500)));
        assert_eq!(read(&mut Strides::default(), u64::MAX - 60_000, 10_000, 6, u64::MAX).len(), 1);
    }
}
