//! Pages with checksums: the payload of `pgwrite` and the data of `pgread`.
//!
//! Data are transmitted as pages of the *file*: a page ends at each multiple of [`PAGE_BYTES`], so the first and the
//! last page of a range may be short. Each page is preceded by its CRC32C, big-endian:
//!
//! ```text
//! pgread(4090, 10):   crc  6 bytes  crc  4 bytes          18 bytes
//! ```
//!
//! Sending: [`encode`] copies data into a buffer while computing the checksums. To avoid the copy, allocate a buffer of
//! [`encoded_len`] bytes, read the file into the data parts of [`slots_mut`] (`preadv`) and then [`seal`] it.
//! Receiving: [`decode`] verifies and removes the checksums in one pass; [`slots`] returns the pages in place, for
//! `pwritev`. A receiver that does not buffer the whole response processes [`whole_pages`] at a time: each run of whole
//! pages can be handled separately.

use bytes::{BufMut, BytesMut};

use super::DecodeError;

/// Length of a whole page in bytes (`kXR_pgPageSZ`).
pub const PAGE_BYTES: usize = 4096;

/// Length of a checksum in bytes.
pub const CRC_BYTES: usize = 4;

/// Length of a whole page with its checksum in bytes (`kXR_pgUnitSZ`).
pub const UNIT_BYTES: usize = PAGE_BYTES + CRC_BYTES;

/// A range of a file that lies within one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Page {
    /// Start in the file, in bytes.
    pub offset: u64,
    /// Length in bytes, 1 to [`PAGE_BYTES`].
    pub length: usize,
}

/// Returns the CRC32C (Castagnoli) of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the number of bytes from `offset` to the end of its page, 1 to [`PAGE_BYTES`].
fn to_page_end(offset: u64) -> usize {
    PAGE_BYTES - (offset % PAGE_BYTES as u64) as usize
}

/// Returns the pages of the range of `length` bytes at `offset`, in order.
pub fn pages(offset: u64, length: u64) -> impl Iterator<Item = Page> {
    let mut next = offset;
    let end = offset.saturating_add(length);
    std::iter::from_fn(move || {
        let left = end.checked_sub(next).filter(|&left| left > 0)?;
        let page = Page { offset: next, length: to_page_end(next).min(usize::try_from(left).unwrap_or(usize::MAX)) };
        next = next.saturating_add(page.length as u64);
        Some(page)
    })
}

/// Returns the number of pages that the range of `length` bytes at `offset` touches.
#[must_use]
pub fn page_count(offset: u64, length: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    if length == 0 { 0 } else { (offset % page).saturating_add(length).div_ceil(page) }
}

/// Returns the encoded length of the range of `length` bytes at `offset`, in bytes.
#[must_use]
pub fn encoded_len(offset: u64, length: u64) -> u64 {
    length.saturating_add(page_count(offset, length).saturating_mul(CRC_BYTES as u64))
}

/// Returns the number of data bytes in `encoded` bytes on the wire that start at `offset`.
///
/// # Errors
/// [`DecodeError::Invalid`] if the last page has a checksum, or a part of one, but no data.
pub fn decoded_len(offset: u64, encoded: u64) -> Result<u64, DecodeError> {
    let first = (to_page_end(offset) + CRC_BYTES) as u64;
    let unit = UNIT_BYTES as u64;
    let crc = CRC_BYTES as u64;
    let (whole, last) = match encoded.checked_sub(first) {
        None => (0, encoded),
        Some(rest) => (1 + rest / unit, rest % unit),
    };
    let crcs = whole * crc + if last > 0 { crc } else { 0 };
    match last {
        1..=4 => Err(DecodeError::Invalid { what: "length of the last page" }),
        _ => Ok(encoded.saturating_sub(crcs)),
    }
}

/// Returns how many of the `available` bytes on the wire, which start at `offset`, form complete pages: these can be
/// decoded now, whatever follows.
#[must_use]
pub fn whole_pages(offset: u64, available: usize) -> usize {
    match available.checked_sub(to_page_end(offset) + CRC_BYTES) {
        None => 0,
        Some(rest) => available - rest % UNIT_BYTES,
    }
}

/// Appends `data`, at `offset` in the file, as pages with checksums.
pub fn encode(offset: u64, data: &[u8], out: &mut impl BufMut) {
    let (first, rest) = data.split_at(data.len().min(to_page_end(offset)));
    for page in std::iter::once(first).chain(rest.chunks(PAGE_BYTES)).filter(|page| !page.is_empty()) {
        out.put_u32(crc32c(page));
        out.put_slice(page);
    }
}

/// Returns the checksum and data of each page in `encoded`, which starts at `offset`.
///
/// A tail too short for a checksum and a byte of data is omitted; [`decoded_len`] rejects it.
pub fn slots(offset: u64, encoded: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let (first, rest) = encoded.split_at(encoded.len().min(to_page_end(offset) + CRC_BYTES));
    std::iter::once(first).chain(rest.chunks(UNIT_BYTES)).filter_map(|unit| {
        let (crc, data) = unit.split_first_chunk::<CRC_BYTES>()?;
        (!data.is_empty()).then_some((u32::from_be_bytes(*crc), data))
    })
}

/// Returns the same as [`slots`], but mutable.
pub fn slots_mut(offset: u64, encoded: &mut [u8]) -> impl Iterator<Item = (&mut [u8; CRC_BYTES], &mut [u8])> {
    let (first, rest) = encoded.split_at_mut(encoded.len().min(to_page_end(offset) + CRC_BYTES));
    std::iter::once(first).chain(rest.chunks_mut(UNIT_BYTES)).filter_map(|unit| {
        let (crc, data) = unit.split_first_chunk_mut::<CRC_BYTES>()?;
        (!data.is_empty()).then_some((crc, data))
    })
}

/// Writes the checksum of each page of `encoded`, whose data are in place, before its data.
pub fn seal(offset: u64, encoded: &mut [u8]) {
    for (crc, data) in slots_mut(offset, encoded) {
        *crc = crc32c(data).to_be_bytes();
    }
}

/// Appends the data of `encoded`, which starts at `offset`, without the checksums, and returns the pages with a wrong
/// checksum. The data of bad pages are appended too, so that every byte keeps its position.
///
/// # Errors
/// [`DecodeError::Invalid`] as in [`decoded_len`]; then nothing is appended.
pub fn decode(offset: u64, encoded: &[u8], out: &mut BytesMut) -> Result<Vec<Page>, DecodeError> {
    let length = decoded_len(offset, encoded.len() as u64)?;
    out.reserve(usize::try_from(length).unwrap_or(encoded.len()));
    let mut bad = Vec::new();
    let mut at = offset;
    for (announced, data) in slots(offset, encoded) {
        if crc32c(data) != announced {
            bad.push(Page { offset: at, length: data.len() });
        }
        out.put_slice(data);
        at = at.saturating_add(data.len() as u64);
    }
    Ok(bad)
}

/// Returns the pages of `encoded`, which starts at `offset`, with a wrong checksum; copies nothing.
///
/// # Errors
/// [`DecodeError::Invalid`] as in [`decoded_len`].
pub fn verify(offset: u64, encoded: &[u8]) -> Result<Vec<Page>, DecodeError> {
    decoded_len(offset, encoded.len() as u64)?;
    let mut at = offset;
    let mut bad = Vec::new();
    for (announced, data) in slots(offset, encoded) {
        if crc32c(data) != announced {
            bad.push(Page { offset: at, length: data.len() });
        }
        at = at.saturating_add(data.len() as u64);
    }
    Ok(bad)
}
