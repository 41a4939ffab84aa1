//! The index file of an entry: which bytes of the data file are present. Bytes ↔ types, no I/O.
//!
//! `docs/reference/cache-format.md` describes the format byte by byte. A record states that bytes are present, with
//! their CRC32C, or that they are no longer. Each record proves itself: its last field is a CRC32C of the record, the
//! cache and the entry, so that a torn record, or one of another file, is ignored. Records are applied in order. A
//! record can outlive its data after a loss of power; then the data do not match its CRC32C.

use towpath_proto::xrootd::page::crc32c;
use towpath_store::VersionTag;

use crate::{
    extents::{Interval, UNIT_BYTES},
    target::Target,
    version::Version,
};

/// First bytes of an index file.
const MAGIC: [u8; 8] = *b"tpcache\n";
/// Version of the format.
const FORMAT: u32 = 1;
/// Length of the fixed fields of a header in bytes.
const FIXED_BYTES: usize = 96;
/// Maximum length of a header in bytes.
pub(crate) const MAX_HEADER_BYTES: usize = 16 << 10;
/// Length of a record in bytes.
pub(crate) const RECORD_BYTES: usize = 24;
/// Identifies a cache directory; random.
pub(crate) type CacheId = [u8; 16];

/// Name of an entry: SHA-256 of its [`Version`].
pub(crate) type EntryName = [u8; 32];

/// A change of the present bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// An interval is present.
    Present(Interval),
    /// All intervals that overlap the range are absent.
    Absent {
        /// First byte.
        start: u64,
        /// End, exclusive; less than 4 GiB after the start.
        end: u64,
    },
}

/// Encodes and decodes the index of one entry of one cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexCodec {
    cache: CacheId,
    name: EntryName,
}

impl IndexCodec {
    /// Creates the codec of an entry.
    pub(crate) fn new(cache: CacheId, name: EntryName) -> Self {
        Self { cache, name }
    }

    /// Returns the header of an index, which records start after.
    pub(crate) fn header(&self, version: &Version) -> Vec<u8> {
        let tag = version.tag.as_ref().map_or("", |tag| tag.as_str()).as_bytes();
        let target = version.target.key_bytes();
        let texts = [version.origin.as_bytes(), &*target, tag];
        let length = FIXED_BYTES + texts.iter().map(|text| text.len()).sum::<usize>() + 4;
        let mut header = Vec::with_capacity(length);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT.to_le_bytes());
        header.extend_from_slice(&(length as u32).to_le_bytes());
        header.extend_from_slice(&self.cache);
        header.extend_from_slice(&self.name);
        header.extend_from_slice(&version.size.to_le_bytes());
        header.extend_from_slice(&version.mtime_ns.unwrap_or(i64::MIN).to_le_bytes());
        texts.iter().for_each(|text| header.extend_from_slice(&(text.len() as u32).to_le_bytes()));
        header.extend_from_slice(&[0; 4]);
        texts.iter().for_each(|text| header.extend_from_slice(text));
        let checksum = crc32c(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Returns the length of the header of `index`, if it is intact and that of this entry.
    pub(crate) fn check_header(&self, index: &[u8]) -> Option<usize> {
        let (cache, version, length) = decode_header(index)?;
        (cache == self.cache && version.name() == self.name).then_some(length)
    }

    /// Appends the encoded record to `bytes`.
    pub(crate) fn encode(&self, record: &Record, bytes: &mut Vec<u8>) {
        let (start, end, kind, checksum) = match record {
            Record::Present(interval) => (interval.start, interval.end, 1_u32, interval.crc32c),
            Record::Absent { start, end } => (*start, *end, 2, 0),
        };
        let at = bytes.len();
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.extend_from_slice(&((end - start) as u32).to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let seal = self.seal(bytes.get(at..).unwrap_or_default());
        bytes.extend_from_slice(&seal.to_le_bytes());
    }

    /// Decodes a record of a file of `size` bytes; `None` if it is not intact.
    pub(crate) fn decode(&self, bytes: &[u8], size: u64) -> Option<Record> {
        let (body, seal) = bytes.split_at_checked(RECORD_BYTES - 4)?;
        if u32::from_le_bytes(seal.try_into().ok()?) != self.seal(body) {
            return None;
        }
        let start = u64::from_le_bytes(body.get(..8)?.try_into().ok()?);
        let word = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let (length, kind, crc32c) = (word(8)?, word(12)?, word(16)?);
        let end = start.checked_add(u64::from(length)).filter(|end| *end <= size && length > 0)?;
        match kind {
            1 if start / UNIT_BYTES == (end - 1) / UNIT_BYTES => Some(Record::Present(Interval { start, end, crc32c })),
            2 => Some(Record::Absent { start, end }),
            _ => None,
        }
    }

    /// Returns the CRC32C that proves that a record belongs to this entry.
    fn seal(&self, body: &[u8]) -> u32 {
        let mut sealed = [0; RECORD_BYTES - 4 + 16 + 32];
        let parts = [body, &self.cache, &self.name];
        let bytes = parts.into_iter().flatten();
        sealed.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
        crc32c(&sealed)
    }
}

/// Decodes the header of an index: the cache, the version, and the length of the header in bytes. `None` if it is not
/// intact.
pub(crate) fn decode_header(index: &[u8]) -> Option<(CacheId, Version, usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(index.get(at..at + 8)?.try_into().ok()?));
    let length = word(12)? as usize;
    if !index.starts_with(&MAGIC) || word(8)? != FORMAT || !(FIXED_BYTES + 4..=MAX_HEADER_BYTES).contains(&length) {
        return None;
    }
    let header = index.get(..length)?;
    let (body, checksum) = header.split_at(length - 4);
    if checksum != crc32c(body).to_le_bytes() {
        return None;
    }
    let mut rest = body.get(FIXED_BYTES..)?;
    let mut text = |at: usize| rest.split_off(..word(at)? as usize);
    let (origin, target, tag) = (text(80)?, text(84)?, text(88)?);
    let mtime = long(72)?.cast_signed();
    let version = Version {
        origin: std::str::from_utf8(origin).ok()?.into(),
        target: Target::parse(target)?,
        size: long(64)?,
        mtime_ns: (mtime != i64::MIN).then_some(mtime),
        tag: VersionTag::new(std::str::from_utf8(tag).ok()?),
    };
    Some((header.get(16..32)?.try_into().ok()?, version, length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version() -> Version {
        Version {
            origin: "root://host:1094/".into(),
            target: Target::parse(b"/data/\xff f.root\0?type=1").unwrap(),
            size: 1 << 40,
            mtime_ns: Some(-1),
            tag: VersionTag::new("tag"),
        }
    }

    fn codec() -> IndexCodec {
        IndexCodec::new([7; 16], version().name())
    }

    #[test]
    fn a_header_is_of_one_version_of_one_cache() {
        let header = codec().header(&version());
        assert_eq!(header.len(), FIXED_BYTES + 17 + 14 + 8 + 3 + 4);
        assert_eq!(codec().check_header(&header), Some(header.len()));
        assert_eq!(decode_header(&header), Some(([7; 16], version(), header.len())));
        assert_eq!(IndexCodec::new([8; 16], version().name()).check_header(&header), None);
        let unknown = Version { mtime_ns: None, tag: None, ..version() };
        assert_eq!(codec().check_header(&codec().header(&unknown)), None, "the name is of another version");
        assert_eq!(decode_header(&codec().header(&unknown)), Some(([7; 16], unknown, header.len() - 3)));
        for length in 0..header.len() {
            assert_eq!(decode_header(&header[..length]), None);
            let mut damaged = header.clone();
            damaged[length] ^= 1;
            assert_eq!(decode_header(&damaged), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn records_survive_a_round_trip_and_nothing_else_is_one(
            start in 0..1_u64 << 40, length in 1..UNIT_BYTES, crc32c: u32, absent: bool, flip in 0..RECORD_BYTES * 8,
        ) {
            let end = (start + length).min((start / UNIT_BYTES + 1) * UNIT_BYTES).min(1 << 40);
            let record =
                if absent { Record::Absent { start, end } } else { Record::Present(Interval { start, end, crc32c }) };
            let mut bytes = Vec::new();
            codec().encode(&record, &mut bytes);
            prop_assert_eq!(bytes.len(), RECORD_BYTES);
            prop_assert_eq!(codec().decode(&bytes, 1 << 40), Some(record));
            prop_assert_eq!(codec().decode(&bytes, end - 1), None);
            prop_assert_eq!(IndexCodec::new([8; 16], version().name()).decode(&bytes, 1 << 40), None);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(codec().decode(&bytes, 1 << 40), None);
        }
    }
}
