//! Envelopes and frames of RNTuple.

use std::ops::Range;

use crate::{
    compression::decompress,
    cursor::Cursor,
    error::{Result, damaged, unsupported},
};

/// Length of the type and length before the content of an envelope in bytes.
const PREFIX_BYTES: usize = 8;
/// Length of the checksum behind it in bytes.
const CHECKSUM_BYTES: usize = 8;
/// Type of a locator with a size of 64 bits.
const LARGE_LOCATOR: u32 = 1;

/// What an envelope contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvelopeKind {
    Header = 1,
    Footer = 2,
    PageList = 3,
}

/// Where an envelope is, and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    kind: EnvelopeKind,
    offset: u64,
    stored_bytes: u64,
    /// Uncompressed length in bytes.
    pub(crate) length: u64,
}

impl Envelope {
    pub(crate) fn new(kind: EnvelopeKind, offset: u64, stored_bytes: u64, length: u64) -> Self {
        Self { kind, offset, stored_bytes, length }
    }

    /// Returns the range of its stored bytes.
    pub(crate) fn range(&self) -> Result<Range<u64>> {
        let end = self.offset.checked_add(self.stored_bytes);
        end.map(|end| self.offset..end).ok_or_else(|| damaged("an envelope of an RNTuple ends after the file"))
    }

    /// Decompresses the stored bytes, and verifies type, length and checksum. Returns all of the envelope.
    pub(crate) fn open(&self, stored: &[u8], limit: u64) -> Result<Vec<u8>> {
        let content = decompress(stored, self.length, limit)?;
        let prefix = Cursor::new(&content).u64_le()?;
        if prefix & 0xffff != self.kind as u64 || prefix >> 16 != content.len() as u64 {
            return Err(damaged(format!("at {} is no {:?} of an RNTuple", self.offset, self.kind)));
        }
        let end = content.len().saturating_sub(CHECKSUM_BYTES);
        if !is_intact(content.get(..end).unwrap_or_default(), checksum(&content)?) {
            return Err(damaged(format!("the {:?} of an RNTuple has another checksum", self.kind)));
        }
        Ok(content)
    }
}

/// Returns whether bytes have the checksum `expected`. Under a fuzzer all have it, so that it reaches what follows.
pub(crate) fn is_intact(bytes: &[u8], expected: u64) -> bool {
    cfg!(fuzzing) || twox_hash::XxHash3_64::oneshot(bytes) == expected
}

/// Returns the checksum at the end of an envelope.
pub(crate) fn checksum(envelope: &[u8]) -> Result<u64> {
    let start = envelope.len().saturating_sub(CHECKSUM_BYTES);
    Cursor::new(envelope.get(start..).unwrap_or_default()).u64_le()
}

/// Returns the content of an envelope.
pub(crate) fn payload(envelope: &[u8]) -> Result<Cursor<'_>> {
    let end = envelope.len().saturating_sub(CHECKSUM_BYTES);
    let content = envelope.get(PREFIX_BYTES..end).ok_or_else(|| damaged("an envelope of an RNTuple is too short"))?;
    Ok(Cursor::new(content))
}

/// Reads a string.
pub(crate) fn string(cursor: &mut Cursor<'_>) -> Result<String> {
    let length = cursor.u32_le()? as usize;
    Ok(String::from_utf8_lossy(cursor.take(length)?).into_owned())
}

/// A record or a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Number of items of a list.
    pub(crate) items: u32,
    end: usize,
}

impl Frame {
    /// Reads the start of a record.
    pub(crate) fn record(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.at();
        let size = cursor.i64_le()?;
        let length = u64::try_from(size).map_err(|_| damaged("a list instead of a record in an RNTuple"))?;
        Self::new(cursor, start, length, 0)
    }

    /// Reads the start of a list.
    pub(crate) fn list(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.at();
        let size = cursor.i64_le()?;
        if size >= 0 {
            return Err(damaged("a record instead of a list in an RNTuple"));
        }
        let items = cursor.u32_le()?;
        Self::new(cursor, start, size.unsigned_abs(), items)
    }

    fn new(cursor: &Cursor<'_>, start: usize, length: u64, items: u32) -> Result<Self> {
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        let end = end.filter(|end| *end >= cursor.at() && end - cursor.at() <= cursor.remaining());
        Ok(Self { items, end: end.ok_or_else(|| damaged("a frame of an RNTuple has a wrong length"))? })
    }

    /// Returns the number of bytes that are left of it.
    pub(crate) fn length(&self, cursor: &Cursor<'_>) -> usize {
        self.end.saturating_sub(cursor.at())
    }

    /// Moves behind it.
    pub(crate) fn end(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        cursor.skip_to(self.end)
    }
}

/// Where an envelope is, and its uncompressed length.
#[derive(Debug)]
pub(crate) struct Link {
    length: u64,
    range: Range<u64>,
}

impl Link {
    pub(crate) fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let length = cursor.u64_le()?;
        Ok(Self { length, range: Self::locator(cursor)? })
    }

    /// Returns the envelope of a link.
    pub(crate) fn envelope(&self, kind: EnvelopeKind) -> Envelope {
        Envelope::new(kind, self.range.start, self.range.end - self.range.start, self.length)
    }

    /// Reads a locator: a range of the file.
    pub(crate) fn locator(cursor: &mut Cursor<'_>) -> Result<Range<u64>> {
        let start = cursor.at();
        let size = cursor.i32_le()?;
        let (offset, length, end) = match u64::try_from(size) {
            Ok(length) => (cursor.u64_le()?, length, None),
            Err(_) => {
                // The negative of its type and its own length.
                let word = size.unsigned_abs();
                let kind = word >> 24;
                if kind != LARGE_LOCATOR {
                    return Err(unsupported(format!("a locator of type {kind} in an RNTuple")));
                }
                let length = cursor.u64_le()?;
                (cursor.u64_le()?, length, Some(start.saturating_add((word & 0xffff) as usize)))
            }
        };
        if let Some(end) = end {
            cursor.skip_to(end)?;
        }
        let end = offset.checked_add(length).ok_or_else(|| damaged("a page of an RNTuple ends after the file"))?;
        Ok(offset..end)
    }
}
