//! Members of a ZIP archive and the location of their content ([APPNOTE
//! 6.3.10](https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT)), with the 64-bit fields of large archives.
//!
//! A reader fetches the last [`TAIL_BYTES`] of the archive and calls [`find`], fetches the directory and calls
//! [`member`], and fetches the header before the content and calls [`content_offset`]. This module neither reads nor
//! decompresses.

use std::ops::Range;

/// Number of bytes at the end of an archive needed to find its directory: the end record with the longest comment, and
/// the locator of a 64-bit one.
pub const TAIL_BYTES: u64 = (END_BYTES + u16::MAX as usize + LOCATOR_BYTES) as u64;

/// Maximum size of a directory in bytes: some hundred thousand members.
pub const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Length of the fixed part of the header before the content of a member, in bytes.
pub const HEADER_BYTES: usize = 30;

/// Length of the parsed part of the 64-bit end record, in bytes.
pub const END64_BYTES: usize = 56;

const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
const ENTRY_BYTES: usize = 46;

const END: u32 = 0x0605_4b50;
const LOCATOR: u32 = 0x0706_4b50;
const END64: u32 = 0x0606_4b50;
const ENTRY: u32 = 0x0201_4b50;
const HEADER: u32 = 0x0403_4b50;

/// The extra field with 64-bit sizes and offsets (§4.5.3).
const EXTRA64: u16 = 1;

/// Error for bytes that are not a supported ZIP archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a readable ZIP archive: {0}")]
pub struct InvalidZip(pub &'static str);

/// Location of the directory, or of the record that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryLocation {
    /// Range of the directory.
    Directory(Range<u64>),
    /// Offset of a 64-bit end record of [`END64_BYTES`], for [`directory64`].
    Record64(u64),
}

/// How the content of a member is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Uncompressed.
    Stored,
    /// Compressed with DEFLATE (RFC 1951).
    Deflated,
}

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Compression method.
    pub method: Method,
    /// Length in the archive in bytes.
    pub stored_bytes: u64,
    /// Length of its content in bytes.
    pub bytes: u64,
    /// CRC-32 of its content.
    pub crc32: u32,
    /// Offset of the header before the content.
    pub header_offset: u64,
}

/// Finds the directory of an archive of `archive_bytes` that ends with `tail`.
///
/// # Errors
/// If `tail` has no end record, or that of an archive split into several files.
pub fn find(tail: &[u8], archive_bytes: u64) -> Result<DirectoryLocation, InvalidZip> {
    let is_end = |at: &usize| {
        let comment = u16_at(tail, at + 20).map(usize::from);
        u32_at(tail, *at) == Some(END) && comment.is_some_and(|bytes| at + END_BYTES + bytes == tail.len())
    };
    let at = (0..tail.len().saturating_sub(END_BYTES - 1)).rev().find(is_end);
    let at = at.ok_or(InvalidZip("it has no end record"))?;
    let [disk, entries] = [at + 4, at + 10].map(|at| u16_at(tail, at).unwrap_or(0));
    let [bytes, offset] = [at + 12, at + 16].map(|at| u32_at(tail, at).unwrap_or(0));
    let is_64 = entries == u16::MAX || bytes == u32::MAX || offset == u32::MAX;
    if is_64 && let Some(locator) = at.checked_sub(LOCATOR_BYTES).filter(|at| u32_at(tail, *at) == Some(LOCATOR)) {
        let offset = u64_at(tail, locator + 8).unwrap_or(u64::MAX);
        return within(offset, END64_BYTES as u64, archive_bytes).map(|range| DirectoryLocation::Record64(range.start));
    }
    if disk != 0 {
        return Err(InvalidZip("it is split into several files"));
    }
    within(offset.into(), bytes.into(), archive_bytes).map(DirectoryLocation::Directory)
}

/// Returns the location of the directory from the 64-bit end record of an archive of `archive_bytes`.
///
/// # Errors
/// If `record` is not such a record, or the directory would be outside the archive.
pub fn directory64(record: &[u8], archive_bytes: u64) -> Result<Range<u64>, InvalidZip> {
    if u32_at(record, 0) != Some(END64) {
        return Err(InvalidZip("its 64-bit end record is missing"));
    }
    let [bytes, offset] = [40, 48].map(|at| u64_at(record, at).unwrap_or(u64::MAX));
    within(offset, bytes, archive_bytes)
}

/// Returns the member `name` of an archive with that directory, the last one if there are several; `None` if there is
/// no such member.
///
/// # Errors
/// If the directory is truncated, or the member is encrypted or uses an unsupported compression method.
pub fn member(directory: &[u8], name: &[u8]) -> Result<Option<Member>, InvalidZip> {
    const TORN: InvalidZip = InvalidZip("its directory is damaged");
    let mut found = None;
    let mut rest = directory;
    while u32_at(rest, 0) == Some(ENTRY) {
        let lengths = [28, 30, 32].map(|at| u16_at(rest, at).map_or(usize::MAX, usize::from));
        let [name_bytes, extra_bytes, comment_bytes] = lengths;
        let names = ENTRY_BYTES.saturating_add(name_bytes);
        let extras = names.saturating_add(extra_bytes);
        let end = extras.saturating_add(comment_bytes);
        let (entry_name, extra) = (rest.get(ENTRY_BYTES..names).ok_or(TORN)?, rest.get(names..extras).ok_or(TORN)?);
        if entry_name == name {
            found = Some((rest, extra));
        }
        rest = rest.get(end..).ok_or(TORN)?;
    }
    if !rest.is_empty() && found.is_none() {
        return Err(TORN);
    }
    found.map(|(entry, extra)| describe(entry, extra)).transpose()
}

/// Parses the member of a directory entry.
fn describe(entry: &[u8], extra: &[u8]) -> Result<Member, InvalidZip> {
    let [flags, method] = [8, 10].map(|at| u16_at(entry, at).unwrap_or(u16::MAX));
    let [crc32, stored, bytes, offset] = [16, 20, 24, 42].map(|at| u32_at(entry, at).unwrap_or(u32::MAX));
    if flags & 1 != 0 {
        return Err(InvalidZip("the member is encrypted"));
    }
    let method = match method {
        0 => Method::Stored,
        8 => Method::Deflated,
        _ => return Err(InvalidZip("the compression method of the member is not supported")),
    };
    let mut long = long_values(extra);
    let mut value = |short: u32| match short {
        u32::MAX => long.next().ok_or(InvalidZip("a 64-bit size is missing")),
        short => Ok(short.into()),
    };
    // The values are in this order (§4.5.3).
    let (bytes, stored_bytes, header_offset) = (value(bytes)?, value(stored)?, value(offset)?);
    if method == Method::Stored && bytes != stored_bytes {
        return Err(InvalidZip("an uncompressed member has two different sizes"));
    }
    Ok(Member { method, stored_bytes, bytes, crc32, header_offset })
}

/// Returns the 64-bit values in the extra fields of an entry.
fn long_values(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let field = std::iter::from_fn(move || {
        let (id, bytes) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let content = rest.get(4..4 + bytes)?;
        rest = rest.get(4 + bytes..)?;
        Some((id, content))
    });
    let content = field.filter(|(id, _)| *id == EXTRA64).map(|(_, content)| content).next().unwrap_or_default();
    (0..content.len() / 8).filter_map(move |index| u64_at(content, index * 8)).collect::<Vec<_>>().into_iter()
}

/// Returns the offset of a member's content relative to its header, whose first [`HEADER_BYTES`] are `header`.
///
/// # Errors
/// If `header` is not such a header.
pub fn content_offset(header: &[u8]) -> Result<u64, InvalidZip> {
    match (u32_at(header, 0), u16_at(header, 26), u16_at(header, 28)) {
        (Some(HEADER), Some(name_bytes), Some(extra_bytes)) => {
            Ok(HEADER_BYTES as u64 + u64::from(name_bytes) + u64::from(extra_bytes))
        }
        _ => Err(InvalidZip("the header of the member is missing")),
    }
}

fn within(offset: u64, bytes: u64, archive_bytes: u64) -> Result<Range<u64>, InvalidZip> {
    let end = offset.checked_add(bytes).filter(|end| *end <= archive_bytes);
    Ok(offset..end.ok_or(InvalidZip("its directory would extend past its end"))?)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `m.txt` with `member`, stored, and `n` with a thousand `x`, deflated: created by Python's `zipfile`.
    const ARCHIVE: &[u8] = include_bytes!("zip/two-members.zip");

    fn directory(archive: &[u8]) -> &[u8] {
        let DirectoryLocation::Directory(range) = find(archive, archive.len() as u64).unwrap() else {
            panic!("it is small")
        };
        &archive[range.start as usize..range.end as usize]
    }

    #[test]
    fn members_are_found() {
        let stored = member(directory(ARCHIVE), b"m.txt").unwrap().unwrap();
        assert_eq!((stored.method, stored.bytes, stored.stored_bytes), (Method::Stored, 6, 6));
        let start = stored.header_offset + content_offset(&ARCHIVE[stored.header_offset as usize..]).unwrap();
        assert_eq!(&ARCHIVE[start as usize..][..6], b"member");
        let deflated = member(directory(ARCHIVE), b"n").unwrap().unwrap();
        assert_eq!((deflated.method, deflated.bytes), (Method::Deflated, 1000));
        assert!(deflated.stored_bytes < 100);
        assert_eq!(member(directory(ARCHIVE), b"no-such-member").unwrap(), None);
    }

    #[test]
    fn a_comment_may_follow_and_a_tail_may_begin_anywhere() {
        let mut commented = ARCHIVE.to_vec();
        let at = commented.len() - 2;
        commented[at] = 7;
        commented.extend_from_slice(b"comment");
        let bytes = commented.len() as u64;
        assert_eq!(find(&commented[commented.len() - 29..], bytes), find(&commented, bytes));
    }

    #[test]
    fn large_archives_have_64_bit_records() {
        let mut tail = [&LOCATOR.to_le_bytes()[..], &[0; 4], &5_000_000_000u64.to_le_bytes(), &[1, 0, 0, 0]].concat();
        tail.extend_from_slice(&END.to_le_bytes());
        tail.extend_from_slice(&[0; 4]);
        tail.extend_from_slice(&[0xff; 12]);
        tail.extend_from_slice(&[0; 2]);
        assert_eq!(find(&tail, 6_000_000_000), Ok(DirectoryLocation::Record64(5_000_000_000)));
        assert!(find(&tail, 5_000_000_000).is_err());
        let mut record = END64.to_le_bytes().to_vec();
        record.resize(40, 0);
        record.extend_from_slice(&100u64.to_le_bytes());
        record.extend_from_slice(&4_500_000_000u64.to_le_bytes());
        assert_eq!(directory64(&record, 6_000_000_000), Ok(4_500_000_000..4_500_000_100));
        let mut entry = directory(ARCHIVE).to_vec();
        let length = ENTRY_BYTES + 5;
        entry.truncate(length);
        entry[20..28].fill(0xff);
        entry[30] = 20;
        let sizes = [
            &1u16.to_le_bytes()[..],
            &16u16.to_le_bytes(),
            &7_000_000_000u64.to_le_bytes(),
            &7_000_000_000u64.to_le_bytes(),
        ];
        entry.extend_from_slice(&sizes.concat());
        assert_eq!(member(&entry, b"m.txt").unwrap().unwrap().bytes, 7_000_000_000);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert!(find(b"no archive at all, but long enough for one", 42).is_err());
        let mut encrypted = directory(ARCHIVE).to_vec();
        encrypted[8] = 1;
        assert!(member(&encrypted, b"m.txt").is_err());
        let mut other = directory(ARCHIVE).to_vec();
        other[10] = 12;
        assert!(member(&other, b"m.txt").is_err());
        let torn = &directory(ARCHIVE)[..60];
        assert!(member(torn, b"n").is_err());
        assert!(content_offset(b"short").is_err());
    }

    proptest! {
        #[test]
        fn damage_never_panics(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut damaged = ARCHIVE.to_vec();
            damaged[at.index(ARCHIVE.len())] = byte;
            damaged.truncate(cut.index(ARCHIVE.len()) + 1);
            let _ = find(&damaged, damaged.len() as u64);
            let _ = directory64(&damaged, damaged.len() as u64);
            let _ = member(&damaged, b"m.txt");
            let _ = content_offset(&damaged);
        }
    }
}
