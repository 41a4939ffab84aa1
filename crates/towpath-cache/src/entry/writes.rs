//! Writes to an entry: bytes that arrive, and space that is freed.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use towpath_proto::xrootd::page::crc32c;
use towpath_store::{Result, sys::clock};

use super::{Entry, OpenFlight, State, disk_error};
use crate::{
    extents::{BLOCK_BYTES, Interval, UNIT_BYTES, split_at},
    flights::Outcome,
    index::Record,
    version::file_name,
};

/// Maximum length of the range of a record in bytes: its field has 32 bits.
const MAX_RECORD_BYTES: u64 = 1 << 31;

/// A flight whose bytes are on the disk, but not visible yet.
#[derive(Debug)]
pub(crate) struct WrittenFlight {
    open: OpenFlight,
    intervals: Vec<Interval>,
}

impl WrittenFlight {
    /// Ends the flight.
    pub(crate) fn end(self, outcome: Outcome) {
        self.open.end(outcome);
    }
}

impl Entry {
    /// Writes the bytes of flights to the disk. They are not visible yet. A flight whose bytes cannot be written ends.
    pub(crate) async fn write(self: &Arc<Self>, arrived: Vec<(OpenFlight, Bytes)>) -> Vec<WrittenFlight> {
        let entry = Arc::clone(self);
        let job = move || Ok(arrived.into_iter().filter_map(|(open, data)| entry.write_now(open, &data)).collect());
        // If the pool is shutting down, the flights were dropped with the job.
        self.disk.pool.run(job).await.unwrap_or_default()
    }

    pub(super) fn write_now(&self, open: OpenFlight, data: &[u8]) -> Option<WrittenFlight> {
        let start = open.flight.range.start;
        let written = self
            .data()
            .and_then(|file| file.write_at(start, data).map_err(|error| disk_error("writing to the cache", &error)));
        match written {
            Ok(()) => {
                let intervals = split_at(&open.flight.range, UNIT_BYTES).filter_map(|part| {
                    let bytes = data.get((part.start - start) as usize..(part.end - start) as usize)?;
                    Some(Interval { start: part.start, end: part.end, crc32c: crc32c(bytes) })
                });
                let intervals = intervals.collect();
                Some(WrittenFlight { open, intervals })
            }
            Err(error) => {
                self.disk.record_failure(&error);
                open.end(Outcome::NotStored);
                None
            }
        }
    }

    /// Makes written bytes visible, and ends their flights.
    pub(crate) async fn publish(self: &Arc<Self>, written: Vec<WrittenFlight>) {
        if written.is_empty() {
            return;
        }
        let (records, at) = self.show(written);
        self.disk.record_success();
        let entry = Arc::clone(self);
        let job = move || {
            entry.write_records(at, &records);
            Ok(())
        };
        // Without the records the bytes are absent after a restart.
        let _ = self.disk.pool.run(job).await;
    }

    /// Makes written bytes visible, and ends their flights. Returns their records, and the position of the records in
    /// the index.
    pub(super) fn show(&self, written: Vec<WrittenFlight>) -> (Vec<u8>, u64) {
        let now = clock::now();
        let intervals: Vec<Interval> = written.iter().flat_map(|written| &written.intervals).copied().collect();
        let records = {
            let mut state = self.state();
            let before = state.extents.space_bytes();
            intervals.iter().for_each(|interval| state.extents.insert(*interval, Some(now)));
            self.inventory.change_bytes(&self.slot, before, state.extents.space_bytes());
            self.reserve_records(&mut state, intervals.iter().copied().map(Record::Present))
        };
        written.into_iter().for_each(|written| written.end(Outcome::Stored));
        records
    }

    /// Frees the space of `range`, whole chunks, unless a part of it is leased or in flight. Returns the freed space in
    /// bytes, or `None` if a part is in use. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the cache's disk.
    pub(crate) async fn free(self: &Arc<Self>, range: &Range<u64>) -> Result<Option<u64>> {
        // The hole reaches beyond the end of the file: a partial page would be zeroed in place, and a socket that
        // `sendfile` has filled may still refer to it. Whole pages are detached.
        let hole = range.clone();
        let range = self.clipped(range);
        let (removed, records, at, barrier) = {
            let mut state = self.state();
            if range.is_empty() || state.extents.is_leased(&range) || state.flights.overlapping(&range).next().is_some()
            {
                return Ok(None);
            }
            let before = state.extents.space_bytes();
            if state.extents.remove(&range).is_empty() {
                return Ok(Some(0));
            }
            let removed = before.saturating_sub(state.extents.space_bytes());
            // Until the hole is punched nothing may be written there.
            let flight = state.flights.start(range.clone());
            let parts = (range.start..range.end).step_by(MAX_RECORD_BYTES as usize);
            let absent = parts.map(|start| Record::Absent { start, end: range.end.min(start + MAX_RECORD_BYTES) });
            let (records, at) = self.reserve_records(&mut state, absent);
            (removed, records, at, OpenFlight { entry: Arc::clone(self), flight })
        };
        let entry = Arc::clone(self);
        let job = move || {
            entry.write_records(at, &records);
            let punched = entry.data()?.punch_hole(hole.start, hole.end - hole.start);
            barrier.end(Outcome::Freed);
            punched.map_err(|error| disk_error("freeing space of the cache", &error))
        };
        self.disk.pool.run(job).await?;
        self.inventory.subtract_bytes(&self.slot, removed);
        Ok(Some(removed))
    }

    /// Encodes records and returns them with their position in the index.
    pub(super) fn reserve_records(&self, state: &mut State, records: impl Iterator<Item = Record>) -> (Vec<u8>, u64) {
        let mut bytes = Vec::new();
        records.for_each(|record| self.codec.encode(&record, &mut bytes));
        let at = state.index_end;
        state.index_end += bytes.len() as u64;
        let space = |length: u64| length.next_multiple_of(BLOCK_BYTES);
        self.inventory.change_bytes(&self.slot, space(at), space(state.index_end));
        (bytes, at)
    }

    /// Writes records. Without them the bytes are absent after a restart, so a failure is only reported.
    pub(super) fn write_records(&self, at: u64, records: &[u8]) {
        let index = self.disk.volume.open(&file_name(&self.slot.name, "index"));
        if let Err(error) = index.and_then(|index| index.write_at(at, records)) {
            self.disk.record_failure(&disk_error("writing to an index of the cache", &error));
        }
    }
}
