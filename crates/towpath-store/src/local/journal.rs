//! The journal of a resumable upload: the written blocks of its staging file, each with its CRC32C.
//!
//! A [`Journal`] collects the pieces of each block and appends a record when the block is complete; incomplete blocks
//! follow when the upload is synced or aborted. Nothing is synced in between, and the order on disk does not matter,
//! because a journal is never trusted: resuming reads back the data it names ([`super::partial_upload`]).
//! `docs/reference/journal.md` describes the format ([`format`]) and the cost of a crash.

mod format;

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use towpath_proto::checksum::{Algorithm, Algorithms, Extent, ExtentDigests};

#[cfg(fuzzing)]
pub(super) use self::format::fuzz;
use self::format::{HEADER_BYTES, RECORD_BYTES};
pub(super) use self::format::{Header, Record};
use super::{errno::ErrnoContext as _, inode, inode::Inode};
use crate::{Result, ResumeKey, positional};

/// Maximum number of blocks of a file; it determines the block length and keeps journals small.
const BLOCKS: u64 = 65_536;
/// Minimum block length in bytes: a record per MiB has negligible cost, and a crash loses at most this much per writer.
const MIN_BLOCK_BYTES: u64 = 1 << 20;
const MAX_BLOCK_BYTES: u64 = 1 << 31;

/// Maximum number of records: each block can be rewritten three times. Later records are dropped. 6 MiB on disk, and
/// in memory when read.
const RECORDS: u32 = 4 * BLOCKS as u32;

/// Maximum number of incomplete blocks, and of parts of each: 1 MiB of memory in the worst case. The oldest are
/// dropped beyond that.
const PARTIAL_BLOCKS: usize = 256;
const PARTS_OF_BLOCK: usize = 64;

const CRC32C: Algorithms = Algorithms::of(&[Algorithm::Crc32c]);

impl Header {
    /// Creates the header for an upload of `size` bytes.
    pub(super) fn new(key: ResumeKey, size: u64) -> Self {
        let block_bytes = size.div_ceil(BLOCKS).next_power_of_two().clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        Self { key, size, block_bytes: block_bytes as u32 }
    }

    /// Returns the start and end of the block that contains `offset`.
    fn block(&self, offset: u64) -> (u64, u64) {
        let bytes = u64::from(self.block_bytes);
        let start = offset - offset % bytes;
        (start, start.saturating_add(bytes))
    }

    /// Encodes a journal of `extents`, each of which lies within one block.
    pub(super) fn journal(&self, extents: &[Extent]) -> (Vec<u8>, u32) {
        let mut journal = self.encode().to_vec();
        let records = encode(extents, 0);
        journal.extend_from_slice(&records);
        (journal, (records.len() / RECORD_BYTES) as u32)
    }
}

/// Encodes records of `extents`, numbered from `sequence`, up to [`RECORDS`] in total.
fn encode(extents: &[Extent], sequence: u32) -> Vec<u8> {
    let records = extents.iter().filter_map(Record::of).zip(sequence..RECORDS);
    records.flat_map(|(record, sequence)| record.encode(sequence)).collect()
}

/// Returns the records of the journal in `file`, if it belongs to the upload with this header's key and size.
pub(super) fn records(file: &File, header: &Header) -> Result<Vec<Record>> {
    let limit = HEADER_BYTES + RECORDS as usize * RECORD_BYTES;
    let size = inode::size_of(Inode::of(file)?.status());
    let length = usize::try_from(size).unwrap_or(limit).min(limit);
    let mut journal = Vec::new();
    positional::append(file, 0, length, &mut journal).context("reading the journal")?;
    Ok(format::read(&journal, header.key, header.size))
}

/// An open journal. Dropping it writes records of the incomplete blocks.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    header: Header,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Incomplete blocks by offset.
    partial: BTreeMap<u64, ExtentDigests>,
    /// Number of records in the file.
    records: u32,
}

impl Journal {
    /// Continues the journal in `file`, which has `records` records.
    pub(super) fn new(file: File, header: Header, records: u32) -> Self {
        Self { file, header, state: Mutex::new(State { partial: BTreeMap::new(), records }) }
    }

    /// Splits `data` at `offset` where blocks end.
    pub(super) fn parts(&self, mut offset: u64, data: &Bytes) -> impl Iterator<Item = (u64, Bytes)> + use<> {
        let (header, mut rest) = (self.header, data.clone());
        std::iter::from_fn(move || {
            let (start, (_, end)) = (offset, header.block(offset));
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(rest.len());
            offset += length as u64;
            (length > 0).then(|| (start, rest.split_to(length)))
        })
    }

    /// Records a written part; anything beyond the announced end is ignored.
    pub(super) fn wrote(&self, part: &Extent) -> Result<()> {
        if part.end() > self.header.size {
            return Ok(());
        }
        let (start, end) = self.header.block(part.offset());
        let mut state = self.state();
        let whole = state.gather(part, start, end.min(self.header.size));
        whole.map_or(Ok(()), |whole| self.append(&mut state, &[whole]))
    }

    /// Writes records of the incomplete blocks.
    pub(super) fn flush(&self) -> Result<()> {
        let mut state = self.state();
        let partial = std::mem::take(&mut state.partial);
        let parts: Vec<Extent> = partial.values().flat_map(ExtentDigests::extents).copied().collect();
        self.append(&mut state, &parts)
    }

    /// Drops the incomplete blocks, whose data may have been overwritten or truncated.
    pub(super) fn forget_partial(&self) {
        self.state().partial.clear();
    }

    /// Returns the journal file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// After a failure the next record overwrites the failed one.
    fn append(&self, state: &mut State, extents: &[Extent]) -> Result<()> {
        let records = encode(extents, state.records);
        let offset = HEADER_BYTES + state.records as usize * RECORD_BYTES;
        positional::write_all(&self.file, offset as u64, &records).context("writing the journal")?;
        state.records += (records.len() / RECORD_BYTES) as u32;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "cannot write the journal of an upload: a part will be sent again on resume");
        }
    }
}

impl State {
    /// Adds `part` to its block, which spans `start..end`; returns the whole block once it is complete.
    fn gather(&mut self, part: &Extent, start: u64, end: u64) -> Option<Extent> {
        if self.partial.len() >= PARTIAL_BLOCKS && !self.partial.contains_key(&start) {
            self.partial.pop_first();
        }
        let new = || ExtentDigests::with_limit(CRC32C, PARTS_OF_BLOCK);
        let block = self.partial.entry(start).or_insert_with(new);
        block.insert(*part);
        if block.extents().next().is_none() {
            // The block was written twice or in too many parts: only the newest part is certain.
            *block = new();
            block.insert(*part);
        }
        let whole = block.extents().next().copied().filter(|first| first.offset() == start && first.end() == end)?;
        self.partial.remove(&start);
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn extent(offset: u64, length: usize) -> Extent {
        Extent::of(CRC32C, offset, &vec![7; length]).unwrap()
    }

    fn journal(size: u64) -> Journal {
        let header = Header::new(ResumeKey::new([1; 16]), size);
        let file = tempfile::tempfile().unwrap();
        let (bytes, records) = header.journal(&[]);
        positional::write_all(&file, 0, &bytes).unwrap();
        Journal::new(file, header, records)
    }

    /// Returns the ranges recorded in the journal.
    fn named(journal: &Journal) -> Vec<(u64, u32)> {
        let records = records(&journal.file, &journal.header).unwrap();
        records.iter().map(|record| (record.offset, record.length)).collect()
    }

    #[test]
    fn blocks_are_so_long_that_they_are_few() {
        for (size, block) in
            [(0, MIB), (64 << 30, MIB), ((64 << 30) + 1, 2 * MIB), (1 << 40, 16 * MIB), (u64::MAX, 1 << 31)]
        {
            assert_eq!(u64::from(Header::new(ResumeKey::new([0; 16]), size).block_bytes), block, "{size}");
        }
    }

    #[test]
    fn a_journal_has_four_records_per_block_at_most_and_all_are_read() {
        let header = Header::new(ResumeKey::new([1; 16]), BLOCKS * MIB);
        let extents: Vec<_> = (0..270_000).map(|offset| extent(offset, 1)).collect();
        let (bytes, count) = header.journal(&extents);
        let file = tempfile::tempfile().unwrap();
        positional::write_all(&file, 0, &bytes).unwrap();
        let read = records(&file, &header).unwrap();
        assert_eq!((count, read.len(), read.last().unwrap().offset), (262_144, 262_144, 262_143));
    }

    #[test]
    fn a_block_is_noted_when_it_is_whole() {
        let journal = journal(2 * MIB + 5);
        journal.wrote(&extent(10, MIB as usize - 10)).unwrap();
        assert_eq!(named(&journal), []);
        journal.wrote(&extent(0, 10)).unwrap();
        assert_eq!(named(&journal), [(0, MIB as u32)]);
        journal.wrote(&extent(2 * MIB, 5)).unwrap();
        assert_eq!(named(&journal), [(0, MIB as u32), (2 * MIB, 5)], "the last one is shorter");
        journal.wrote(&extent(2 * MIB, 6)).unwrap();
        journal.wrote(&extent(MIB, 3)).unwrap();
        journal.wrote(&extent(MIB + 9, 3)).unwrap();
        journal.flush().unwrap();
        assert_eq!(named(&journal), [(0, MIB as u32), (MIB, 3), (MIB + 9, 3), (2 * MIB, 5)]);
    }

    #[test]
    fn of_what_is_written_twice_the_newest_is_noted() {
        let journal = journal(4 * MIB);
        journal.wrote(&extent(0, 100)).unwrap();
        journal.wrote(&extent(50, 100)).unwrap();
        journal.flush().unwrap();
        assert_eq!(named(&journal), [(50, 100)]);
        journal.wrote(&extent(MIB, 100)).unwrap();
        journal.forget_partial();
        journal.flush().unwrap();
        assert_eq!(named(&journal), [(50, 100)]);
    }

    #[test]
    fn memory_is_bounded() {
        let journal = journal(1 << 40);
        let block = u64::from(journal.header.block_bytes);
        for number in 0..2 * PARTIAL_BLOCKS as u64 {
            (0..2 * PARTS_OF_BLOCK as u64)
                .for_each(|part| journal.wrote(&extent(number * block + 2 * part, 1)).unwrap());
        }
        let state = journal.state();
        assert_eq!(state.partial.len(), PARTIAL_BLOCKS);
        assert!(state.partial.values().all(|block| block.extents().count() <= PARTS_OF_BLOCK));
    }

    #[test]
    fn a_piece_is_cut_where_blocks_end() {
        let journal = journal(4 * MIB);
        let piece = Bytes::from(vec![0; 2 * MIB as usize]);
        let cut = |offset| journal.parts(offset, &piece).map(|(at, part)| (at, part.len() as u64)).collect::<Vec<_>>();
        assert_eq!(cut(0), [(0, MIB), (MIB, MIB)]);
        assert_eq!(cut(MIB - 1), [(MIB - 1, 1), (MIB, MIB), (2 * MIB, MIB - 1)]);
        assert_eq!(cut(u64::MAX - 2 * MIB).iter().map(|(_, length)| length).sum::<u64>(), 2 * MIB);
    }

    #[test]
    fn a_journal_does_not_grow_without_end() {
        let extents = vec![extent(0, 1); RECORDS as usize + 5];
        assert_eq!(encode(&extents, 0).len(), RECORDS as usize * RECORD_BYTES);
        assert_eq!(encode(&extents[..10], RECORDS - 3).len(), 3 * RECORD_BYTES);
    }
}
