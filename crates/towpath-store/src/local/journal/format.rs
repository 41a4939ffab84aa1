//! The binary format of journals, little-endian; `docs/reference/journal.md` has the table.

use std::{cmp::Reverse, collections::BTreeMap};

use towpath_proto::checksum::{Algorithm, Extent, Hasher};

use crate::ResumeKey;

/// Magic number of this format version.
const MAGIC: [u8; 8] = *b"TPJRNL01";

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const RECORD_BYTES: usize = 24;

/// The header: identifies the upload of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::local) struct Header {
    pub(in crate::local) key: ResumeKey,
    /// Announced size of the file.
    pub(in crate::local) size: u64,
    /// Length of a block. A record does not cross blocks.
    pub(super) block_bytes: u32,
}

/// A written range of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::local) struct Record {
    pub(in crate::local) offset: u64,
    pub(in crate::local) length: u32,
    pub(in crate::local) crc32c: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields = [&MAGIC[..], &self.key.bytes(), &self.size.to_le_bytes(), &self.block_bytes.to_le_bytes()];
        seal(&mut bytes, &fields);
        bytes
    }

    /// Decodes a header; `None` if it is damaged or of another format.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = unseal(bytes)?;
        if take(&mut rest)? != MAGIC {
            return None;
        }
        let key = ResumeKey::new(take(&mut rest)?);
        let (size, block_bytes) = (u64::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
        (block_bytes > 0).then_some(Self { key, size, block_bytes })
    }
}

impl Record {
    /// Creates the record of a written extent; `None` if it has no CRC32C or is too long.
    pub(super) fn of(extent: &Extent) -> Option<Self> {
        let crc32c = extent.digests().get(Algorithm::Crc32c)?.to_integer();
        let (length, crc32c) = (u32::try_from(extent.bytes()).ok()?, u32::try_from(crc32c).ok()?);
        Some(Self { offset: extent.offset(), length, crc32c })
    }

    /// Returns the end offset.
    pub(in crate::local) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }

    pub(super) fn encode(&self, sequence: u32) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let numbers = [self.length, self.crc32c, sequence].map(u32::to_le_bytes);
        let [length, crc32c, sequence] = &numbers;
        seal(&mut bytes, &[&self.offset.to_le_bytes(), length, crc32c, sequence]);
        bytes
    }

    /// Decodes a record; `None` unless it is intact, has the number `sequence`, and is within one block of the file.
    fn decode(bytes: &[u8], sequence: u32, header: &Header) -> Option<Self> {
        let mut rest = unseal(bytes)?;
        let offset = u64::from_le_bytes(take(&mut rest)?);
        let mut number = || take(&mut rest).map(u32::from_le_bytes);
        let (record, found) = (Self { offset, length: number()?, crc32c: number()? }, number()?);
        let block = u64::from(header.block_bytes);
        let is_in_block = record.length > 0 && record.offset % block + u64::from(record.length) <= block;
        (found == sequence && is_in_block && record.end() <= header.size).then_some(record)
    }
}

/// Returns the records of a journal of the upload with this key and size, by offset, longer ones first; a later record
/// of the same range replaces an earlier one. Empty for another upload or another format. Reading stops at the first
/// record that is torn or out of sequence.
pub(in crate::local) fn read(journal: &[u8], key: ResumeKey, size: u64) -> Vec<Record> {
    let Some((head, rest)) = journal.split_at_checked(HEADER_BYTES) else { return Vec::new() };
    let Some(header) = Header::decode(head).filter(|header| header.key == key && header.size == size) else {
        return Vec::new();
    };
    let records =
        rest.chunks(RECORD_BYTES).zip(0..).map_while(|(bytes, sequence)| Record::decode(bytes, sequence, &header));
    let latest: BTreeMap<_, _> = records.map(|record| ((record.offset, Reverse(record.length)), record)).collect();
    latest.into_values().collect()
}

/// Reads `journal` as one of the upload that its header names.
///
/// # Panics
/// If a record is not within the file.
#[cfg(fuzzing)]
pub(in crate::local) fn fuzz(journal: &[u8]) {
    let Some(header) = journal.get(..HEADER_BYTES).and_then(Header::decode) else { return };
    let records = read(journal, header.key, header.size);
    assert!(records.iter().all(|record| record.length > 0 && record.end() <= header.size), "a record is out of bounds");
}

/// Concatenates `fields`, followed by their CRC32C.
fn seal(bytes: &mut [u8], fields: &[&[u8]]) {
    let content = fields.concat();
    let Some((body, crc)) = bytes.split_last_chunk_mut::<4>() else { return };
    body.iter_mut().zip(content).for_each(|(place, byte)| *place = byte);
    *crc = crc32c(body).to_le_bytes();
}

/// Returns the bytes before the final CRC32C, if it matches.
fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk()?;
    // A fuzzer cannot guess checksums.
    (cfg!(fuzzing) || crc32c(body).to_le_bytes() == *crc).then_some(body)
}

fn crc32c(bytes: &[u8]) -> u32 {
    // A CRC32C has 32 bits.
    Hasher::digest_of(Algorithm::Crc32c, bytes).to_integer() as u32
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::Algorithms;

    use super::*;

    const KEY: ResumeKey = ResumeKey::new(*b"0123456789abcdef");
    const HEADER: Header = Header { key: KEY, size: 3 << 20, block_bytes: 1 << 20 };

    fn record(offset: u64, length: u32) -> Record {
        Record { offset, length, crc32c: 0x1122_3344 }
    }

    fn journal(records: &[Record]) -> Vec<u8> {
        let encoded = records.iter().zip(0..).map(|(record, sequence)| record.encode(sequence));
        [HEADER.encode().to_vec(), encoded.collect::<Vec<_>>().concat()].concat()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The example in docs/reference/journal.md.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let extent = Extent::of(Algorithms::DEFAULT, 1 << 20, b"123456789").unwrap();
        let record = Record::of(&extent).unwrap();
        assert_eq!(record, Record { offset: 1 << 20, length: 9, crc32c: 0xe306_9283 });
        let document = include_str!("../../../../../docs/reference/journal.md");
        for bytes in [&HEADER.encode()[..], &record.encode(0)] {
            assert!(document.contains(&hex(bytes)), "{} is not in docs/reference/journal.md", hex(bytes));
        }
        assert_eq!(read(&journal(&[record]), KEY, 3 << 20), [record]);
    }

    #[test]
    fn only_the_journal_of_the_upload_counts() {
        let one = journal(&[record(0, 1)]);
        assert_eq!(read(&one, KEY, 3 << 20), [record(0, 1)]);
        assert_eq!(read(&one, KEY, 2 << 20), []);
        assert_eq!(read(&one, ResumeKey::new([0; 16]), 3 << 20), []);
        assert_eq!(read(&[], KEY, 3 << 20), []);
        for position in 0..HEADER_BYTES {
            let mut damaged = one.clone();
            damaged[position] ^= 1;
            assert_eq!(read(&damaged, KEY, 3 << 20), [], "byte {position} is damaged");
        }
        let mut later = HEADER.encode();
        later[7] = b'2';
        let crc = crc32c(&later[..60]).to_le_bytes();
        later[60..].copy_from_slice(&crc);
        assert_eq!(read(&[&later, &one[64..]].concat(), KEY, 3 << 20), [], "another version");
    }

    #[test]
    fn a_journal_ends_where_it_is_torn() {
        let records = [record(0, 1 << 20), record(2 << 20, 5), record(1 << 20, 7)];
        let whole = journal(&records);
        let sorted = |count: usize| {
            let mut sorted = records[..count].to_vec();
            sorted.sort_by_key(|record| record.offset);
            sorted
        };
        for length in 0..=whole.len() {
            let count = length.saturating_sub(HEADER_BYTES) / RECORD_BYTES;
            assert_eq!(read(&whole[..length], KEY, 3 << 20), sorted(count), "cut after {length} bytes");
        }
        for position in HEADER_BYTES..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x80;
            let count = (position - HEADER_BYTES) / RECORD_BYTES;
            assert_eq!(read(&damaged, KEY, 3 << 20), sorted(count), "byte {position} is damaged");
        }
        let swapped = [&whole[..64], &whole[88..112], &whole[64..88]].concat();
        assert_eq!(read(&swapped, KEY, 3 << 20), [], "out of sequence");
    }

    #[test]
    fn a_record_lies_in_one_block_of_the_file() {
        for (offset, length) in [(0, 0), (1, 1 << 20), (3 << 20, 1), (u64::MAX, 1), ((3 << 20) - 1, 2), (0, u32::MAX)] {
            assert_eq!(read(&journal(&[record(offset, length)]), KEY, 3 << 20), [], "{length} bytes at {offset}");
        }
    }

    #[test]
    fn of_one_range_the_last_record_counts_and_the_longer_range_comes_first() {
        let last = Record { crc32c: 7, ..record(0, 10) };
        let read = read(&journal(&[record(0, 10), record(0, 20), last]), KEY, 3 << 20);
        assert_eq!(read, [record(0, 20), last]);
    }
}
