//! One file version in the cache: its data file, its index, and what of it is present or in flight.
//!
//! | step | order | after a crash in between |
//! | --- | --- | --- |
//! | bytes arrive | data are written, then their records | the bytes are absent: fetched again |
//! | bytes are read | leased (short reads check afterwards that nothing was removed), verified unless that was done recently, read | – |
//! | damage is found | removed from memory, then a record is written | the record of the damage matches no data |
//!
//! Bytes that the disk cannot read are damage, and an index that it cannot read counts as none.
//!
//! Nothing waits for the disk (`fsync`): a record that outlives its data is found by its checksum.
//!
//! The state is here; [`reads`] and [`writes`] use it.

mod reads;
mod writes;

use std::{
    ops::Range,
    sync::{Arc, OnceLock, PoisonError},
};

use tokio::sync::OnceCell;
use towpath_store::{
    Error, Fault, Result, os_message,
    sys::{
        clock,
        volume::{Volume, VolumeFile},
    },
};

pub(crate) use self::{reads::Damage, writes::WrittenFlight};
use crate::{
    columns::index::FileIndex,
    disk::CacheDisk,
    extents::{ExtentMap, Interval, split_at},
    flights::{Flight, Flights, Outcome},
    index::{EntryName, IndexCodec, MAX_HEADER_BYTES, RECORD_BYTES, Record},
    inventory::{Inventory, Slot},
    sync::{Mutex, MutexGuard},
    version::{Version, file_name},
};

/// Maximum gap between two requested ranges that is fetched too, in bytes: about what another range costs in the
/// header of a vector or a part of a multipart response.
const MERGED_GAP_BYTES: u64 = 256;
/// The gaps fetched for one request are at most its bytes divided by this.
const MERGED_SHARE: u64 = 20;
/// Length of one read of an index in bytes, a whole number of records.
const REPLAY_BYTES: usize = RECORD_BYTES << 15;
/// Number of bytes of superseded records, beyond half of an index, that do not cause a compact one to be written.
const MAX_SUPERSEDED_BYTES: u64 = 1 << 20;

/// A file version in the cache.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) version: Version,
    codec: IndexCodec,
    disk: Arc<CacheDisk>,
    inventory: Arc<Inventory>,
    pub(crate) slot: Arc<Slot>,
    /// The data file. The index is opened for each write, so that an open file takes one descriptor.
    data: OnceLock<Arc<dyn VolumeFile>>,
    opened: OnceCell<()>,
    readers: Presence,
    /// Where the columns of its trees lie, if it is a ROOT file.
    pub(crate) column_index: FileIndex,
    /// Held while the files are opened: an open that was abandoned may still run.
    loading: std::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    extents: ExtentMap,
    flights: Flights,
    /// Where the next record is written.
    index_end: u64,
}

/// Where the bytes of a range are.
#[derive(Debug)]
pub(crate) enum RangeState {
    /// On the disk, and verified.
    Verified,
    /// On the disk.
    Present,
    /// On the disk or in these flights.
    InFlight(Vec<Arc<Flight>>),
    /// A part is neither on the disk nor in flight.
    Absent,
}

/// Keeps bytes of an entry in place.
#[derive(Debug)]
pub(crate) struct ExtentLease {
    entry: Arc<Entry>,
    range: Range<u64>,
}

impl Drop for ExtentLease {
    fn drop(&mut self) {
        self.entry.state().extents.release(&self.range);
    }
}

/// Keeps the bytes of several ranges in place.
#[derive(Debug)]
pub(crate) struct VectorLease {
    entry: Arc<Entry>,
    ranges: Arc<[Range<u64>]>,
}

impl Drop for VectorLease {
    fn drop(&mut self) {
        let mut state = self.entry.state();
        self.ranges.iter().for_each(|range| state.extents.release(range));
    }
}

/// A flight of an entry that ends in any case: an abandoned one fails.
#[derive(Debug)]
pub(crate) struct OpenFlight {
    entry: Arc<Entry>,
    pub(crate) flight: Arc<Flight>,
}

impl OpenFlight {
    /// Returns whether a reader waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        // This one, and that of the entry.
        Arc::strong_count(&self.flight) > 2
    }

    /// Ends the flight without data.
    pub(crate) fn end(self, outcome: Outcome) {
        self.entry.end_flight(&self.flight, outcome);
    }
}

impl Drop for OpenFlight {
    fn drop(&mut self) {
        let cancelled = Error::new(Fault::Cancelled, "the request to the origin was cancelled");
        self.entry.end_flight(&self.flight, Outcome::Failed(cancelled));
    }
}

/// Exists as long as a reader has an entry open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence(Arc<()>);

impl Entry {
    /// Creates an entry, whose files are not open yet.
    pub(crate) fn new(version: Version, name: EntryName, disk: &Arc<CacheDisk>, inventory: &Arc<Inventory>) -> Self {
        let codec = IndexCodec::new(disk.id, name);
        let slot = inventory.slot_of(&version, &name, now_s());
        let (disk, inventory) = (Arc::clone(disk), Arc::clone(inventory));
        Self {
            version,
            codec,
            disk,
            inventory,
            slot,
            data: OnceLock::new(),
            opened: OnceCell::new(),
            readers: Presence::default(),
            column_index: FileIndex::default(),
            loading: std::sync::Mutex::default(),
            state: Mutex::new(State::default()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> Result<&Arc<dyn VolumeFile>> {
        self.data.get().ok_or_else(|| Error::new(Fault::Internal, "the entry of the cache is not open"))
    }

    /// Registers a reader.
    pub(crate) fn enter(&self) -> Presence {
        self.readers.clone()
    }

    /// Returns whether there are readers.
    pub(crate) fn has_readers(&self) -> bool {
        Arc::strong_count(&self.readers.0) > 1
    }

    /// Opens the files and reads the index, unless that was done.
    ///
    /// `is_use` records on the disk that it was used, which orders evictions after a restart.
    ///
    /// # Errors
    /// Errors of the cache's disk.
    pub(crate) async fn open(self: &Arc<Self>, is_use: bool) -> Result<()> {
        let open = || async {
            let entry = Arc::clone(self);
            let job = move || {
                let loaded = entry.load().and_then(|()| if is_use { entry.touch_index() } else { Ok(()) });
                loaded.map_err(|error| disk_error("opening a file of the cache", &error))
            };
            self.disk.pool.run(job).await
        };
        self.opened.get_or_try_init(open).await.map(drop)
    }

    /// Records a use of an open entry on the disk, where it counts after a restart.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) async fn touch(self: &Arc<Self>) -> Result<()> {
        let entry = Arc::clone(self);
        let job =
            move || entry.touch_index().map_err(|error| disk_error("recording a use of a file of the cache", &error));
        self.disk.pool.run(job).await
    }

    fn touch_index(&self) -> std::io::Result<()> {
        self.disk.volume.touch(&file_name(&self.slot.name, "index"))
    }

    /// Opens the files; an index that is not one of this entry is started again.
    fn load(&self) -> std::io::Result<()> {
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if self.data.get().is_some() {
            return Ok(());
        }
        let [data_name, index_name] = ["data", "index"].map(|extension| file_name(&self.slot.name, extension));
        let volume: &dyn Volume = &*self.disk.volume;
        let data = volume.open_or_create(&data_name)?;
        let index = volume.open_or_create(&index_name)?;
        let mut state = State::default();
        let is_intact = self.replay(&*index, &mut state).unwrap_or_else(|error| {
            self.disk.record_unreadable(&disk_error("reading an index of the cache", &error));
            false
        });
        if !is_intact {
            state = State::default();
            index.set_size(0)?;
            data.set_size(0)?;
            let header = self.codec.header(&self.version);
            index.write_at(0, &header)?;
            state.index_end = header.len() as u64;
        }
        let bytes = volume.usage(&data_name)?.allocated_bytes + volume.usage(&index_name)?.allocated_bytes;
        self.inventory.set_bytes(&self.slot, bytes);
        *self.state() = state;
        // Only this call sets it.
        let _ = self.data.set(data);
        Ok(())
    }

    /// Applies the records of an index to `state`, and writes a compact index if most records are superseded. Returns
    /// false, and leaves `state` as it is, if the index does not begin with the header of this entry.
    fn replay(&self, index: &dyn VolumeFile, state: &mut State) -> std::io::Result<bool> {
        let index_bytes = index.size()?;
        let mut bytes = Vec::new();
        index.read_at(0, bounded(MAX_HEADER_BYTES, index_bytes), &mut bytes)?;
        let Some(header) = self.codec.check_header(&bytes) else { return Ok(false) };
        let mut at = header as u64;
        while at < index_bytes {
            bytes.clear();
            if index.read_at(at, bounded(REPLAY_BYTES, index_bytes - at), &mut bytes)? == 0 {
                break;
            }
            let records = bytes.chunks(RECORD_BYTES).filter_map(|record| self.codec.decode(record, self.version.size));
            records.for_each(|record| match record {
                Record::Present(interval) => state.extents.insert(interval, None),
                Record::Absent { start, end } => drop(state.extents.remove(&(start..end))),
            });
            at += bytes.len() as u64;
        }
        state.index_end = header as u64 + (at - header as u64).next_multiple_of(RECORD_BYTES as u64);
        let live = state.extents.intervals(&(0..self.version.size));
        if state.index_end - header as u64 > 2 * (live.len() * RECORD_BYTES) as u64 + MAX_SUPERSEDED_BYTES {
            // A disk that is full keeps the long one.
            if self.disk.accepts_data()
                && let Ok(index_end) = self.compact(&live)
            {
                state.index_end = index_end;
            }
        }
        Ok(true)
    }

    /// Replaces the index by one with only `live` intervals. Returns its length.
    fn compact(&self, live: &[Interval]) -> std::io::Result<u64> {
        let mut bytes = self.codec.header(&self.version);
        live.iter().for_each(|interval| self.codec.encode(&Record::Present(*interval), &mut bytes));
        self.disk.replace(&file_name(&self.slot.name, "index"), &bytes, true)?;
        Ok(bytes.len() as u64)
    }

    /// Returns `range` clipped to the file.
    fn clipped(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.version.size);
        range.start.min(end)..end
    }

    /// Starts flights of the bytes of `ranges` that are neither present nor in flight, and of small gaps between them, in
    /// parts of at most `part_bytes`. The caller must fetch them.
    pub(crate) fn start_flights(self: &Arc<Self>, ranges: &[Range<u64>], part_bytes: u64) -> Vec<OpenFlight> {
        let wanted = merged(ranges.iter().map(|range| self.clipped(range)).collect());
        let mut state = self.state();
        let mut started = Vec::new();
        for range in wanted {
            for missing in state.extents.missing(&range) {
                for gap in state.flights.gaps(&missing) {
                    for part in split_at(&gap, part_bytes) {
                        let flight = state.flights.start(part);
                        started.push(OpenFlight { entry: Arc::clone(self), flight });
                    }
                }
            }
        }
        started
    }

    /// Returns the approximate memory of the list of present bytes, and of the index of columns, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.state().extents.memory_bytes() + self.column_index.memory_bytes()
    }

    /// Returns the flights that overlap `range`.
    pub(crate) fn flights(&self, range: &Range<u64>) -> Vec<Arc<Flight>> {
        self.state().flights.overlapping(&self.clipped(range)).map(Arc::clone).collect()
    }

    /// Returns whether all bytes of `range` within the file are present.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.state().extents.covers(&self.clipped(range))
    }

    /// Returns where the bytes of `range` are.
    pub(crate) fn range_state(&self, range: &Range<u64>) -> RangeState {
        let (range, state) = (self.clipped(range), self.state());
        if state.extents.is_verified(&range, clock::now()) {
            return RangeState::Verified;
        }
        let missing = state.extents.missing(&range);
        if missing.is_empty() {
            return RangeState::Present;
        }
        match state.flights.has_gap(&missing) {
            true => RangeState::Absent,
            false => RangeState::InFlight(state.flights.overlapping(&range).map(Arc::clone).collect()),
        }
    }

    /// Returns the number of `ranges` with bytes that are neither present nor in flight.
    pub(crate) fn count_absent(&self, ranges: &[Range<u64>]) -> usize {
        let state = self.state();
        let is_absent = |range: &&Range<u64>| state.flights.has_gap(&state.extents.missing(&self.clipped(range)));
        ranges.iter().filter(is_absent).count()
    }

    /// Returns the number of absent bytes in `range`.
    pub(crate) fn missing_bytes(&self, range: &Range<u64>) -> u64 {
        self.state().extents.missing(&self.clipped(range)).iter().map(|part| part.end - part.start).sum()
    }

    /// Returns whether all bytes of `ranges` within the file are present and verified.
    pub(crate) fn are_verified(&self, ranges: &[Range<u64>]) -> bool {
        self.are_verified_in(&self.state(), ranges)
    }

    fn are_verified_in(&self, state: &State, ranges: &[Range<u64>]) -> bool {
        let now = clock::now();
        ranges.iter().all(|range| state.extents.is_verified(&self.clipped(range), now))
    }

    /// Keeps the bytes of `range` in place until the lease is dropped, if all of them are present and verified.
    pub(crate) fn lease_verified(self: &Arc<Self>, range: &Range<u64>) -> Option<ExtentLease> {
        self.lease_in_state(std::slice::from_ref(range))?;
        Some(ExtentLease { entry: Arc::clone(self), range: range.clone() })
    }

    /// Keeps the bytes of `ranges` in place until the lease is dropped, if all of them are present and verified.
    pub(crate) fn lease_all_verified(self: &Arc<Self>, ranges: &Arc<[Range<u64>]>) -> Option<VectorLease> {
        self.lease_in_state(ranges)?;
        Some(VectorLease { entry: Arc::clone(self), ranges: Arc::clone(ranges) })
    }

    fn lease_in_state(&self, ranges: &[Range<u64>]) -> Option<()> {
        {
            let mut state = self.state();
            if !self.are_verified_in(&state, ranges) {
                return None;
            }
            ranges.iter().for_each(|range| state.extents.lease(range));
        }
        let used_s = now_s();
        ranges.iter().for_each(|range| self.slot.touch(range, used_s));
        Some(())
    }

    /// Returns the number of present bytes.
    pub(crate) fn present_bytes(&self) -> u64 {
        self.state().extents.present_bytes()
    }

    /// Returns the first present interval.
    pub(crate) fn first_present(&self) -> Option<Range<u64>> {
        let intervals = self.state().extents.intervals(&(0..self.version.size));
        intervals.first().map(|interval| interval.start..interval.end)
    }

    /// Makes the next read of each byte compare it, however recently that was done.
    pub(crate) fn distrust(&self) {
        self.state().extents.distrust();
    }

    /// Keeps the bytes of `range` in place until the lease is dropped.
    pub(crate) fn lease(self: &Arc<Self>, range: &Range<u64>) -> ExtentLease {
        self.slot.touch(range, now_s());
        self.state().extents.lease(range);
        ExtentLease { entry: Arc::clone(self), range: range.clone() }
    }

    fn end_flight(&self, flight: &Arc<Flight>, outcome: Outcome) {
        self.state().flights.remove(flight);
        flight.end(outcome);
    }

    /// Returns the data file of this machine, if it is one.
    pub(crate) fn system_file(&self) -> Option<Arc<std::fs::File>> {
        self.data.get()?.system_file()
    }

    /// Returns the disk.
    pub(crate) fn disk(&self) -> &CacheDisk {
        &self.disk
    }
}

/// Returns the date in seconds since the Unix epoch.
pub(crate) fn now_s() -> u32 {
    u32::try_from(clock::unix_s()).unwrap_or(u32::MAX)
}

/// Creates the error of a failed call on the cache's disk.
pub(crate) fn disk_error(doing: &str, error: &std::io::Error) -> Error {
    let fault = error.raw_os_error().map_or(Fault::Io, Fault::from_errno);
    Error::new(fault, format!("{doing}: {}", os_message(error)))
}

/// Returns the length of a read of at most `most` bytes where `rest` are left.
fn bounded(most: usize, rest: u64) -> usize {
    usize::try_from(rest).map_or(most, |rest| rest.min(most))
}

/// Sorts ranges, and joins those that overlap or have a small gap.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut allowance = ranges.iter().map(|range| range.end - range.start).sum::<u64>() / MERGED_SHARE;
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(last) if range.start - last.end <= MERGED_GAP_BYTES.min(allowance) => {
                allowance -= range.start - last.end;
                last.end = range.end;
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_fetched_only_if_they_are_small_and_few() {
        let ranges = |list: &[(u64, u64)]| list.iter().map(|(start, end)| *start..*end).collect::<Vec<_>>();
        assert_eq!(merged(ranges(&[(5000, 6000), (0, 5000), (5500, 5600), (9, 9)])), ranges(&[(0, 6000)]));
        let (near, far) = (MERGED_GAP_BYTES, MERGED_GAP_BYTES + 1);
        let gapped = |gap| ranges(&[(0, 10_000), (10_000 + gap, 20_000)]);
        assert_eq!(merged(gapped(near)), ranges(&[(0, 20_000)]));
        assert_eq!(merged(gapped(far)), gapped(far));
        let small = ranges(&[(0, 1000), (1100, 2000)]);
        assert_eq!(merged(small.clone()), small, "100 bytes are more than a twentieth of 1,900");
    }
}
