//! Which bytes of one file version are on the disk, with their checksums. No I/O, no clock.
//!
//! A file is divided into *units* of 16 KiB. A unit has a list of present intervals, which begin and end at any byte and
//! do not touch: adjoining ones are joined by combining their checksums. Reading a part of an interval from the disk
//! requires reading the whole interval, which is at most a unit, to verify it.
//!
//! Units form *chunks* of 64. A chunk has one bit per unit that was verified, or written by this process, recently: such
//! a unit may be read without a comparison ([`VERIFIED_FOR`]). It also counts the leases on its bytes: eviction skips a
//! leased chunk.

use std::{ops::Range, time::Duration};

use hashbrown::HashMap;
use towpath_proto::checksum::combine_crc32c;
use towpath_store::sys::clock::Instant;

/// Size of a unit in bytes: the most that is read to verify one byte. At 16 KiB a comparison takes about as long as
/// the system call that reads the data.
pub(crate) const UNIT_BYTES: u64 = 16 << 10;

/// Size of a chunk in bytes.
pub(crate) const CHUNK_BYTES: u64 = UNIT_BYTES * u64::BITS as u64;

/// Size of a block of the disk in bytes, as of ext4, XFS and btrfs. A block takes its whole space, however few of its
/// bytes are present.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// How long a unit counts as verified. Meanwhile its pages may leave the memory and be read from the disk again without
/// a comparison, so this bounds how long damage on the disk can stay undetected. A comparison takes 3 µs, so 100 GB in
/// use cost 0.03 of a processor.
pub(crate) const VERIFIED_FOR: Duration = Duration::from_secs(600);

/// A present interval: bytes of a file, and their CRC32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    /// First byte.
    pub(crate) start: u64,
    /// End, exclusive; in the same unit.
    pub(crate) end: u64,
    /// CRC32C of the bytes.
    pub(crate) crc32c: u32,
}

impl Interval {
    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// An interval relative to its chunk; half the memory of an [`Interval`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackedInterval {
    start: u32,
    end: u32,
    crc32c: u32,
}

/// The intervals of a chunk.
#[derive(Debug, Default)]
struct Chunk {
    /// Sorted by start, without contact within a unit.
    intervals: Vec<PackedInterval>,
    /// Their total length.
    present_bytes: u32,
    /// One bit per unit: all its intervals are verified.
    verified: u64,
    /// When the first of the bits was set.
    verified_since: Option<Instant>,
    /// Number of leases.
    leases: u32,
}

impl Chunk {
    /// Returns the indices of the intervals that overlap a range relative to the chunk.
    fn overlapping(&self, start: u32, end: u32) -> Range<usize> {
        let first = self.intervals.partition_point(|interval| interval.end <= start);
        let last = self.intervals.partition_point(|interval| interval.start < end);
        first..last.max(first)
    }

    /// Returns the intervals of a unit.
    fn of_unit(&self, unit: u32) -> &[PackedInterval] {
        let (start, end) = unit_bounds(unit);
        self.intervals.get(self.overlapping(start, end)).unwrap_or_default()
    }

    /// Returns whether all bytes of a non-empty range relative to the chunk are present.
    fn covers(&self, start: u32, end: u32) -> bool {
        if u64::from(self.present_bytes) == CHUNK_BYTES {
            return true;
        }
        let mut next = start;
        for interval in self.intervals.get(self.overlapping(start, end)).unwrap_or_default() {
            if interval.start > next {
                return false;
            }
            next = interval.end;
        }
        next >= end
    }

    /// Returns the number of blocks with bytes of intervals that overlap a range relative to the chunk.
    fn blocks(&self, start: u32, end: u32) -> u64 {
        let (mut blocks, mut next) = (0, 0);
        for interval in self.intervals.get(self.overlapping(start, end)).unwrap_or_default() {
            let first = (interval.start / BLOCK_BYTES as u32).max(next);
            next = interval.end.div_ceil(BLOCK_BYTES as u32);
            blocks += u64::from(next.saturating_sub(first));
        }
        blocks
    }

    /// Clears the bits if they are too old.
    fn expire(&mut self, now: Instant) {
        if self.verified_since.is_some_and(|since| now.duration_since(since) > VERIFIED_FOR) {
            (self.verified, self.verified_since) = (0, None);
        }
    }

    fn set_verified(&mut self, unit: u32, now: Instant) {
        self.expire(now);
        self.verified |= 1 << unit;
        self.verified_since.get_or_insert(now);
    }
}

/// The present intervals of a unit, to be verified together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitCheck {
    /// Its intervals, in order; at least one.
    pub(crate) intervals: Vec<Interval>,
}

impl UnitCheck {
    /// Returns the range from the first to the last present byte.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.intervals.first().map_or(0, |interval| interval.start);
        start..self.intervals.last().map_or(start, |interval| interval.end)
    }

    /// Returns the length of that range.
    pub(crate) fn length(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }
}

/// The present bytes of a file version.
#[derive(Debug, Default)]
pub(crate) struct ExtentMap {
    chunks: HashMap<u64, Chunk>,
    /// Number of intervals.
    intervals: usize,
    present_bytes: u64,
    /// Number of blocks with present bytes.
    blocks: u64,
    removals: u64,
}

impl ExtentMap {
    /// Returns the number of present bytes.
    pub(crate) fn present_bytes(&self) -> u64 {
        self.present_bytes
    }

    /// Returns the space of the present bytes on the disk: whole blocks.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// Returns the approximate memory of the map in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.capacity() * size_of::<(u64, Chunk)>();
        (chunks + self.intervals * size_of::<PackedInterval>()) as u64
    }

    /// Returns how often present bytes were removed or replaced. If the number is the same before and after a read, the
    /// bytes that were present before it are those that were read.
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// Adds an interval. Present intervals that overlap it are dropped, because it is newer. `verified` says that its
    /// bytes were in memory with this checksum.
    pub(crate) fn insert(&mut self, interval: Interval, verified: Option<Instant>) {
        debug_assert!(interval.start < interval.end && interval.start / UNIT_BYTES == (interval.end - 1) / UNIT_BYTES);
        let (number, unit) = position(interval.start);
        let base = number * CHUNK_BYTES;
        let chunk = self.chunks.entry(number).or_default();
        let mut new = PackedInterval {
            start: (interval.start - base) as u32,
            end: (interval.end - base) as u32,
            crc32c: interval.crc32c,
        };
        let (unit_start, unit_end) = unit_bounds(unit);
        let (blocks_before, intervals_before) = (chunk.blocks(unit_start, unit_end), chunk.intervals.len());
        let overlapping = chunk.overlapping(new.start, new.end);
        let dropped: u32 = chunk.intervals.drain(overlapping.clone()).map(|old| old.end - old.start).sum();
        chunk.present_bytes = chunk.present_bytes - dropped + (new.end - new.start);
        self.present_bytes = self.present_bytes - u64::from(dropped) + interval.length();
        self.removals += u64::from(dropped > 0);
        let mut at = overlapping.start;
        let stays_verified =
            chunk.of_unit(unit).is_empty() || verified.is_some_and(|now| is_verified(chunk, unit, now));
        if let Some(&before) = at.checked_sub(1).and_then(|index| chunk.intervals.get(index))
            && before.end == new.start
            && new.start > unit_start
        {
            new = joined(before, new);
            at -= 1;
            chunk.intervals.remove(at);
        }
        if let Some(&after) = chunk.intervals.get(at)
            && after.start == new.end
            && new.end < unit_end
        {
            new = joined(new, after);
            chunk.intervals.remove(at);
        }
        chunk.intervals.insert(at, new);
        self.intervals = self.intervals - intervals_before + chunk.intervals.len();
        self.blocks = self.blocks - blocks_before + chunk.blocks(unit_start, unit_end);
        match verified {
            Some(now) if stays_verified => chunk.set_verified(unit, now),
            _ => chunk.verified &= !(1 << unit),
        }
    }

    /// Removes all intervals that overlap `range`, as a whole. Returns them.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> Vec<Interval> {
        let mut removed = Vec::new();
        for (number, start, end) in chunks_of(range) {
            let Some(chunk) = self.chunks.get_mut(&number) else { continue };
            // Blocks of the units at both ends may be shared with intervals that stay.
            let (first, last) = (start / UNIT_BYTES as u32, end.div_ceil(UNIT_BYTES as u32));
            let units = (first * UNIT_BYTES as u32, last * UNIT_BYTES as u32);
            let blocks_before = chunk.blocks(units.0, units.1);
            let overlapping = chunk.overlapping(start, end);
            for packed in chunk.intervals.drain(overlapping) {
                chunk.present_bytes -= packed.end - packed.start;
                removed.push(unpacked(number, packed));
            }
            self.blocks = self.blocks - blocks_before + chunk.blocks(units.0, units.1);
            if chunk.intervals.is_empty() && chunk.leases == 0 {
                self.chunks.remove(&number);
            }
        }
        self.intervals -= removed.len();
        self.present_bytes -= removed.iter().map(Interval::length).sum::<u64>();
        self.removals += u64::from(!removed.is_empty());
        removed
    }

    /// Returns the absent parts of `range`, in order.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut next = range.start;
        self.visit(range, |interval| {
            if interval.start > next {
                missing.push(next..interval.start);
            }
            next = interval.end;
        });
        if next < range.end {
            missing.push(next..range.end);
        }
        missing
    }

    /// Returns whether all bytes of `range` are present.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        chunks_of(range)
            .all(|(number, start, end)| self.chunks.get(&number).is_some_and(|chunk| chunk.covers(start, end)))
    }

    /// Returns whether all bytes of `range` are present and verified.
    pub(crate) fn is_verified(&self, range: &Range<u64>, now: Instant) -> bool {
        chunks_of(range).all(|(number, start, end)| {
            self.chunks.get(&number).is_some_and(|chunk| {
                chunk.covers(start, end) && units_of(start, end).all(|unit| is_verified(chunk, unit, now))
            })
        })
    }

    /// Returns the units of `range` that have intervals and are not verified.
    pub(crate) fn unverified(&self, range: &Range<u64>, now: Instant) -> Vec<UnitCheck> {
        let units = chunks_of(range).flat_map(|(number, start, end)| {
            let chunk = self.chunks.get(&number);
            units_of(start, end).filter_map(move |unit| {
                let chunk = chunk.filter(|chunk| !is_verified(chunk, unit, now))?;
                let intervals = chunk.of_unit(unit).iter().map(|packed| unpacked(number, *packed));
                Some(UnitCheck { intervals: intervals.collect() })
            })
        });
        units.filter(|unit| !unit.intervals.is_empty()).collect()
    }

    /// Records that a unit was verified, unless its intervals have changed since [`Self::unverified`].
    pub(crate) fn set_verified(&mut self, check: &UnitCheck, now: Instant) {
        let (number, unit) = position(check.range().start);
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        if chunk.of_unit(unit).iter().map(|packed| unpacked(number, *packed)).eq(check.intervals.iter().copied()) {
            chunk.set_verified(unit, now);
        }
    }

    /// Forgets which units are verified.
    pub(crate) fn distrust(&mut self) {
        self.chunks.values_mut().for_each(|chunk| (chunk.verified, chunk.verified_since) = (0, None));
    }

    /// Returns the present intervals that overlap `range`, in order.
    pub(crate) fn intervals(&self, range: &Range<u64>) -> Vec<Interval> {
        let mut intervals = Vec::new();
        self.visit(range, |interval| intervals.push(interval));
        intervals
    }

    /// Takes a lease on the chunks of `range`.
    pub(crate) fn lease(&mut self, range: &Range<u64>) {
        chunks_of(range).for_each(|(number, ..)| self.chunks.entry(number).or_default().leases += 1);
    }

    /// Returns a lease on the chunks of `range`.
    pub(crate) fn release(&mut self, range: &Range<u64>) {
        for (number, ..) in chunks_of(range) {
            if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk.leases = chunk.leases.saturating_sub(1);
                if chunk.leases == 0 && chunk.intervals.is_empty() {
                    self.chunks.remove(&number);
                }
            }
        }
    }

    /// Returns whether a byte of `range` is leased.
    pub(crate) fn is_leased(&self, range: &Range<u64>) -> bool {
        chunks_of(range).any(|(number, ..)| self.chunks.get(&number).is_some_and(|chunk| chunk.leases > 0))
    }

    /// Calls `visit` with the intervals that overlap `range`, in order.
    fn visit(&self, range: &Range<u64>, mut visit: impl FnMut(Interval)) {
        for (number, start, end) in chunks_of(range) {
            let Some(chunk) = self.chunks.get(&number) else { continue };
            let overlapping = chunk.intervals.get(chunk.overlapping(start, end)).unwrap_or_default();
            overlapping.iter().for_each(|packed| visit(unpacked(number, *packed)));
        }
    }
}

fn is_verified(chunk: &Chunk, unit: u32, now: Instant) -> bool {
    chunk.verified & (1 << unit) != 0
        && chunk.verified_since.is_some_and(|since| now.duration_since(since) <= VERIFIED_FOR)
}

fn joined(first: PackedInterval, second: PackedInterval) -> PackedInterval {
    let crc32c = combine_crc32c(first.crc32c, second.crc32c, u64::from(second.end - second.start));
    PackedInterval { start: first.start, end: second.end, crc32c }
}

fn unpacked(chunk: u64, packed: PackedInterval) -> Interval {
    let base = chunk * CHUNK_BYTES;
    Interval { start: base + u64::from(packed.start), end: base + u64::from(packed.end), crc32c: packed.crc32c }
}

/// Returns the chunk of an offset, and the unit in the chunk.
fn position(offset: u64) -> (u64, u32) {
    (offset / CHUNK_BYTES, (offset % CHUNK_BYTES / UNIT_BYTES) as u32)
}

/// Returns the chunks of a range, with the part of the range in each, relative to the chunk.
fn chunks_of(range: &Range<u64>) -> impl Iterator<Item = (u64, u32, u32)> + use<> {
    let (start, end) = (range.start, range.end.max(range.start));
    (start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).filter_map(move |number| {
        let base = number * CHUNK_BYTES;
        let part = (start.max(base) - base) as u32..(end.min(base + CHUNK_BYTES) - base) as u32;
        (!part.is_empty()).then_some((number, part.start, part.end))
    })
}

/// Returns start and end of a unit relative to its chunk.
fn unit_bounds(unit: u32) -> (u32, u32) {
    (unit * UNIT_BYTES as u32, (unit + 1) * UNIT_BYTES as u32)
}

/// Returns the units of a non-empty range relative to a chunk.
fn units_of(start: u32, end: u32) -> impl Iterator<Item = u32> {
    start / UNIT_BYTES as u32..end.div_ceil(UNIT_BYTES as u32)
}

/// Splits a range at the multiples of `length`.
pub(crate) fn split_at(range: &Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut next, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let start = (next < end).then_some(next)?;
        next = end.min((start / length + 1) * length);
        Some(start..next)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_proto::xrootd::page::crc32c;
    use towpath_store::sys::clock;

    use super::*;

    const SIZE: usize = CHUNK_BYTES as usize + 200_000;

    fn content() -> Vec<u8> {
        (0..SIZE as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn insert(map: &mut ExtentMap, content: &[u8], range: &Range<u64>, verified: Option<Instant>) {
        for part in split_at(range, UNIT_BYTES) {
            let crc32c = crc32c(&content[part.start as usize..part.end as usize]);
            map.insert(Interval { start: part.start, end: part.end, crc32c }, verified);
        }
    }

    #[test]
    fn a_unit_is_verified_only_with_all_its_intervals() {
        let (content, now, mut map) = (content(), clock::now(), ExtentMap::default());
        insert(&mut map, &content, &(0..10), None);
        insert(&mut map, &content, &(20..30), Some(now));
        assert!(!map.is_verified(&(20..30), now), "0..10 was not compared");
        let [unit] = &map.unverified(&(25..26), now)[..] else { panic!() };
        assert_eq!((unit.range(), unit.intervals.len()), (0..30, 2));
        map.set_verified(unit, now);
        assert!(map.is_verified(&(20..30), now) && map.is_verified(&(0..10), now) && !map.is_verified(&(9..11), now));
        insert(&mut map, &content, &(10..20), Some(now));
        assert!(map.is_verified(&(0..30), now));
        assert!(!map.is_verified(&(0..30), now + VERIFIED_FOR * 2), "a comparison does not count for ever");
        assert_eq!(map.intervals(&(0..30)).len(), 1);
    }

    #[test]
    fn a_new_piece_does_not_renew_an_old_comparison() {
        let (content, now, mut map) = (content(), clock::now(), ExtentMap::default());
        insert(&mut map, &content, &(0..10), Some(now));
        let later = now + VERIFIED_FOR * 2;
        insert(&mut map, &content, &(10..20), Some(later));
        assert!(!map.is_verified(&(0..10), later));
    }

    #[test]
    fn a_unit_that_changed_during_the_comparison_is_compared_again() {
        let (content, now, mut map) = (content(), clock::now(), ExtentMap::default());
        insert(&mut map, &content, &(0..10), None);
        let [unit] = &map.unverified(&(0..10), now)[..] else { panic!() };
        insert(&mut map, &content, &(20..30), None);
        map.set_verified(unit, now);
        assert!(!map.is_verified(&(0..10), now));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]
        #[test]
        fn the_map_knows_what_is_present_and_its_checksums(
            is_full in any::<bool>(),
            steps in proptest::collection::vec((any::<bool>(), 0..SIZE as u64, 1..100_000_u64), 1..60),
        ) {
            let content = content();
            let mut model = vec![false; SIZE];
            let mut map = ExtentMap::default();
            if is_full {
                insert(&mut map, &content, &(0..SIZE as u64), None);
                model.fill(true);
            }
            for (inserts, start, length) in steps {
                let range = start..(start + length).min(SIZE as u64);
                if inserts {
                    // As the cache does: only absent bytes are fetched.
                    for part in map.missing(&range) {
                        insert(&mut map, &content, &part, None);
                        model[part.start as usize..part.end as usize].fill(true);
                    }
                } else {
                    for interval in map.remove(&range) {
                        model[interval.start as usize..interval.end as usize].fill(false);
                    }
                }
                let absent: u64 = map.missing(&range).iter().map(|part| part.end - part.start).sum();
                let expected = model[range.start as usize..range.end as usize].iter().filter(|here| !**here).count();
                prop_assert_eq!(absent, expected as u64);
                prop_assert_eq!(map.covers(&range), expected == 0);
            }
            let intervals = map.intervals(&(0..SIZE as u64));
            prop_assert_eq!(intervals.iter().map(Interval::length).sum::<u64>(), map.present_bytes());
            prop_assert_eq!(map.present_bytes(), model.iter().filter(|here| **here).count() as u64);
            let blocks = model.chunks(BLOCK_BYTES as usize).filter(|block| block.contains(&true)).count();
            prop_assert_eq!(map.space_bytes(), blocks as u64 * BLOCK_BYTES);
            for pair in intervals.windows(2) {
                let touch = pair[0].end == pair[1].start && pair[0].end % UNIT_BYTES != 0;
                prop_assert!(pair[0].end <= pair[1].start && !touch);
            }
            for interval in intervals {
                let bytes = &content[interval.start as usize..interval.end as usize];
                prop_assert_eq!(interval.crc32c, crc32c(bytes));
            }
        }
    }
}
