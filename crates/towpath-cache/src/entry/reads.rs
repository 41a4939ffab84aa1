//! Reads of an entry, and the comparison of its units with their checksums.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use towpath_proto::xrootd::page::crc32c;
use towpath_store::{
    Error, Fault, ReadBuffer, Result, near_ranges,
    sys::{
        clock::{self, Instant},
        volume::VolumeFile,
    },
};

use super::{Entry, State, disk_error, now_s};
use crate::{
    extents::{Interval, UNIT_BYTES, UnitCheck},
    index::Record,
};

/// Maximum length of one read to verify units, in bytes.
const VERIFY_BYTES: u64 = 1 << 20;
/// Maximum number of bytes that are verified on a network thread for one request. Reading and comparing a cached unit
/// of 16 KiB takes about 3 µs, and waking a thread of the disk pool longer than that.
const VERIFY_NOW_BYTES: u64 = 4 << 20;
/// Maximum gap between two units that are read together to be verified, in bytes.
const VERIFY_GAP_BYTES: u64 = 16 << 10;

/// Damaged intervals found by a verification.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Number of bytes that did not match their checksum.
    pub(crate) bytes: u64,
}

impl Entry {
    /// Compares the units of `ranges` with their checksums, unless that was done recently. Damaged intervals become
    /// absent. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the cache's disk.
    pub(crate) async fn verify(self: &Arc<Self>, ranges: &[Range<u64>]) -> Result<Damage> {
        let clipped = ranges.iter().map(|range| self.clipped(range));
        let checks = unverified(&self.state(), clipped, clock::now());
        if checks.is_empty() {
            return Ok(Damage::default());
        }
        let entry = Arc::clone(self);
        self.disk.pool.run(move || entry.verify_now(&checks)).await
    }

    fn verify_now(&self, checks: &[UnitCheck]) -> Result<Damage> {
        let data = self.data()?;
        let mut damage = Damage::default();
        let mut buffer = Vec::new();
        let mut rest = checks;
        while let Some(first) = rest.first() {
            let start = first.range().start;
            let mut end = start;
            let near = rest.iter().take_while(|next| {
                let range = next.range();
                let is_near =
                    range.start <= end.max(first.range().end) + VERIFY_GAP_BYTES && range.end - start <= VERIFY_BYTES;
                end = if is_near { range.end } else { end };
                is_near
            });
            let (run, behind) = rest.split_at(near.count().max(1));
            rest = behind;
            let end = run.last().map_or(start, |last| last.range().end);
            buffer.clear();
            let read = data.read_at(start, (end - start) as usize, &mut buffer);
            if let Err(error) = &read {
                self.disk.record_unreadable(&disk_error("reading from the cache", error));
            }
            for check in run {
                damage.bytes += self.settle(
                    check,
                    match read {
                        Ok(_) => damaged_in(check, start, &buffer),
                        Err(_) => unreadable_in(check, &**data),
                    },
                );
            }
        }
        Ok(damage)
    }

    /// Records the outcome of a comparison: the unit is verified, or its `damaged` intervals become absent. Returns the
    /// number of damaged bytes.
    fn settle(&self, check: &UnitCheck, damaged: Vec<Interval>) -> u64 {
        let mut state = self.state();
        if damaged.is_empty() {
            state.extents.set_verified(check, clock::now());
            return 0;
        }
        // Another reader may have repaired an interval meanwhile: then it has changed.
        let mut removed = Vec::new();
        let before = state.extents.space_bytes();
        for interval in damaged {
            if state.extents.intervals(&(interval.start..interval.end)) == [interval] {
                removed.extend(state.extents.remove(&(interval.start..interval.end)));
            }
        }
        // The blocks stay allocated, but the same bytes are fetched again.
        self.inventory.change_bytes(&self.slot, before, state.extents.space_bytes());
        let records = removed.iter().map(|interval| Record::Absent { start: interval.start, end: interval.end });
        let (records, at) = self.reserve_records(&mut state, records);
        drop(state);
        self.write_records(at, &records);
        removed.iter().map(Interval::length).sum()
    }

    /// Returns whether all bytes of `ranges`, which lie within the file, are present and verified. Units that are not
    /// are compared if their data are in the page cache, up to [`VERIFY_NOW_BYTES`]; damage is left to [`Self::verify`].
    pub(crate) fn are_verified_now(&self, ranges: &[Range<u64>]) -> bool {
        let now = clock::now();
        let Some(checks) = checks_now(&self.state(), ranges.iter().cloned(), now) else { return false };
        if checks.is_empty() {
            return true;
        }
        let verified = self.data.get().and_then(|data| self.verify_cached(&**data, &checks, now));
        verified.is_some() && self.are_verified(ranges)
    }

    /// Compares units up to the first one that is damaged or not in the page cache; `None` if there is one.
    fn verify_cached(&self, data: &dyn VolumeFile, checks: &[UnitCheck], now: Instant) -> Option<()> {
        let (intact, rest) = checks.split_at(count_intact_now(data, checks));
        let mut state = self.state();
        intact.iter().for_each(|check| state.extents.set_verified(check, now));
        rest.is_empty().then_some(())
    }

    /// Fills `buffers`, if their bytes are present and in the page cache. Units that are not verified are compared
    /// first, up to [`VERIFY_NOW_BYTES`]; damage is left to [`Self::verify`], which may wait for the disk.
    ///
    /// Takes no lease, which would cost as much as the system call. `None` too if bytes were removed meanwhile.
    pub(crate) fn read_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<()> {
        let data = &**self.data.get()?;
        let now = clock::now();
        let (checks, removals) = {
            let state = self.state();
            let checks = checks_now(&state, buffers.iter().map(range_of), now)?;
            (checks, state.extents.removals())
        };
        self.fill_now(data, buffers, &checks, now)?;
        (self.state().extents.removals() == removals).then_some(())
    }

    /// Verifies units of `buffers` that are not, and fills the buffers; `None` if that would block, or if a unit is
    /// damaged or has changed.
    fn fill_now(
        &self,
        data: &dyn VolumeFile,
        buffers: &mut [ReadBuffer<'_>],
        checks: &[UnitCheck],
        now: Instant,
    ) -> Option<()> {
        if !checks.is_empty() {
            self.verify_cached(data, checks, now)?;
            let state = self.state();
            // A unit that has changed meanwhile was not compared.
            if !buffers.iter().all(|buffer| state.extents.is_verified(&range_of(buffer), now)) {
                return None;
            }
        }
        let used_s = now_s();
        buffers.iter().for_each(|buffer| self.slot.touch(&range_of(buffer), used_s));
        near_ranges::fill(buffers, |offset, buffer| data.read_now_at(offset, buffer).map(Ok))?.ok()
    }

    /// Reads leased bytes from the disk, appended to `buffer`. Returns the buffer, unchanged if the disk failed, and the
    /// outcome.
    ///
    /// # Errors
    /// `Cancelled` if the process ends.
    pub(crate) async fn read(&self, range: &Range<u64>, mut buffer: Vec<u8>) -> Result<(Vec<u8>, Result<()>)> {
        let data = Arc::clone(self.data()?);
        let (start, length) = (range.start, (range.end - range.start) as usize);
        let job = move || {
            let before = buffer.len();
            let outcome = match data.read_at(start, length, &mut buffer) {
                Ok(got) if got == length => Ok(()),
                Ok(_) => Err(Error::new(Fault::Io, "a file of the cache is shorter than its index says")),
                Err(error) => Err(disk_error("reading from the cache", &error)),
            };
            if outcome.is_err() {
                buffer.truncate(before);
            }
            Ok((buffer, outcome))
        };
        self.disk.pool.run(job).await
    }

    /// Reads leased ranges from the disk, one after the other into one buffer; `None` if the disk failed.
    ///
    /// # Errors
    /// `Cancelled` if the process ends.
    pub(crate) async fn read_all(&self, ranges: &Arc<[Range<u64>]>) -> Result<Option<Bytes>> {
        let (data, ranges) = (Arc::clone(self.data()?), Arc::clone(ranges));
        // Allocated here, because the allocator keeps freed memory for each thread, and the pool has many.
        let mut all = vec![0; ranges.iter().map(|range| (range.end - range.start) as usize).sum()];
        let job = move || {
            let mut rest = all.as_mut_slice();
            let parts = ranges.iter().map(|range| {
                let (buffer, behind) = std::mem::take(&mut rest).split_at_mut((range.end - range.start) as usize);
                rest = behind;
                ReadBuffer { offset: range.start, buffer }
            });
            let filled = near_ranges::fill(&mut parts.collect::<Vec<_>>(), |offset, buffer| {
                read_exact(&*data, offset, buffer).map(Ok)
            });
            Ok(matches!(filled, Some(Ok(()))).then(|| Bytes::from(all)))
        };
        self.disk.pool.run(job).await
    }
}

/// Fills `buffer` with the data from `offset`. May wait for the disk. `None` if it failed.
fn read_exact(data: &dyn VolumeFile, offset: u64, buffer: &mut [u8]) -> Option<()> {
    if data.read_now_at(offset, buffer).is_some() {
        return Some(());
    }
    let mut bytes = Vec::new();
    data.read_at(offset, buffer.len(), &mut bytes).ok()?;
    (bytes.len() == buffer.len()).then(|| buffer.copy_from_slice(&bytes))
}

/// Returns the units of `ranges` that are not verified, each once, in order.
fn unverified(state: &State, ranges: impl Iterator<Item = Range<u64>>, now: Instant) -> Vec<UnitCheck> {
    let mut checks: Vec<UnitCheck> = ranges.flat_map(|range| state.extents.unverified(&range, now)).collect();
    checks.sort_unstable_by_key(|check| check.range().start);
    checks.dedup();
    checks
}

/// Returns the units to be compared on a network thread before `ranges` are read; `None` if bytes are absent, or if these
/// are too many.
fn checks_now(state: &State, ranges: impl Iterator<Item = Range<u64>> + Clone, now: Instant) -> Option<Vec<UnitCheck>> {
    if ranges.clone().all(|range| state.extents.is_verified(&range, now)) {
        return Some(Vec::new());
    }
    let bytes: u64 = ranges.clone().map(|range| range.end - range.start).sum();
    if bytes > VERIFY_NOW_BYTES || !ranges.clone().all(|range| state.extents.covers(&range)) {
        return None;
    }
    let checks = unverified(state, ranges, now);
    (checks.iter().map(UnitCheck::length).sum::<u64>() <= VERIFY_NOW_BYTES).then_some(checks)
}

/// Returns how many of the first units are intact and have their data in the page cache.
fn count_intact_now(data: &dyn VolumeFile, checks: &[UnitCheck]) -> usize {
    let mut unit = vec![0; UNIT_BYTES as usize];
    let mut is_intact_now = |check: &UnitCheck| {
        let range = check.range();
        let Some(buffer) = unit.get_mut(..check.length() as usize) else { return false };
        data.read_now_at(range.start, buffer).is_some()
            && check.intervals.iter().all(|interval| is_intact(interval, range.start, buffer))
    };
    checks.iter().take_while(|check| is_intact_now(check)).count()
}

/// Whether an interval matches its checksum in `buffer`, the data from `start`.
fn is_intact(interval: &Interval, start: u64, buffer: &[u8]) -> bool {
    let bytes = buffer.get((interval.start - start) as usize..(interval.end - start) as usize);
    bytes.is_some_and(|bytes| crc32c(bytes) == interval.crc32c)
}

fn range_of(buffer: &ReadBuffer<'_>) -> Range<u64> {
    buffer.offset..buffer.offset.saturating_add(buffer.buffer.len() as u64)
}

/// Returns the intervals of a unit that do not match `buffer`, the data from `start`.
fn damaged_in(check: &UnitCheck, start: u64, buffer: &[u8]) -> Vec<Interval> {
    check.intervals.iter().filter(|interval| !is_intact(interval, start, buffer)).copied().collect()
}

/// Reads the intervals of a unit one by one, because reading them together has failed. Returns those that cannot be
/// read, or do not match.
fn unreadable_in(check: &UnitCheck, data: &dyn VolumeFile) -> Vec<Interval> {
    let is_readable = |interval: &Interval| {
        let mut bytes = Vec::new();
        let read = data.read_at(interval.start, interval.length() as usize, &mut bytes);
        read.is_ok() && is_intact(interval, interval.start, &bytes)
    };
    check.intervals.iter().filter(|interval| !is_readable(interval)).copied().collect()
}
