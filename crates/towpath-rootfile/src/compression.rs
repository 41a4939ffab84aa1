//! Compressed metadata: a sequence of chunks, each with a header of nine bytes (algorithm, version, and two lengths of
//! three bytes, little-endian).

use std::io::Read as _;

use crate::{
    cursor::Cursor,
    error::{Result, check_limit, damaged, unsupported},
};

/// Maximum length of an uncompressed chunk in bytes, which its header can say.
const MAX_CHUNK_BYTES: u64 = 1 << 24;

/// Length of the checksum before the data of an LZ4 chunk in bytes: XXH64 of the compressed data.
const LZ4_CHECKSUM_BYTES: usize = 8;

/// Decompresses metadata of `length` bytes, at most `limit`. They are not compressed if `stored` has that length.
///
/// # Errors
/// `Damaged` if they have another length or checksum; `Unsupported` for the algorithm `CS` of ROOT before version 4.
pub(crate) fn decompress(stored: &[u8], length: u64, limit: u64) -> Result<Vec<u8>> {
    check_limit("bytes of metadata", length, limit)?;
    if stored.len() as u64 == length {
        return Ok(stored.to_vec());
    }
    // A chunk has at most 16 MiB, and memory is taken as chunks are found.
    let mut cursor = Cursor::new(stored);
    let mut content = Vec::new();
    while (content.len() as u64) < length {
        let algorithm = cursor.take(2)?;
        cursor.skip(1)?;
        let compressed = length24(cursor.take(3)?);
        let uncompressed = length24(cursor.take(3)?);
        let chunk = decompress_chunk(algorithm, cursor.take(compressed)?, uncompressed)?;
        if chunk.len() != uncompressed {
            return Err(damaged("a compressed part has another length than its header says"));
        }
        content.extend_from_slice(&chunk);
    }
    if content.len() as u64 > length {
        return Err(damaged("its metadata are longer than their key says"));
    }
    Ok(content)
}

fn length24(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

fn decompress_chunk(algorithm: &[u8], data: &[u8], length: usize) -> Result<Vec<u8>> {
    match algorithm {
        b"ZL" => read_bounded(flate2::read::ZlibDecoder::new(data), length, "zlib"),
        b"ZS" => {
            check_zstd_window(data)?;
            let decoder = ruzstd::decoding::StreamingDecoder::new(data).map_err(|error| failed("zstd", &error))?;
            read_bounded(decoder, length, "zstd")
        }
        b"L4" => decompress_lz4(data, length),
        b"XZ" => {
            check_xz_length(data, length)?;
            let mut content = Vec::with_capacity(length);
            lzma_rs::xz_decompress(&mut &*data, &mut content).map_err(|error| failed("xz", &error))?;
            Ok(content)
        }
        b"CS" => Err(unsupported("metadata compressed by ROOT before version 4 (CS)")),
        other => Err(damaged(format!("unknown compression {}", String::from_utf8_lossy(other)))),
    }
}

fn decompress_lz4(data: &[u8], length: usize) -> Result<Vec<u8>> {
    let (checksum, block) =
        data.split_at_checked(LZ4_CHECKSUM_BYTES).ok_or_else(|| damaged("a part of LZ4 is too short"))?;
    let expected = u64::from_be_bytes(checksum.try_into().unwrap_or_default());
    if !cfg!(fuzzing) && twox_hash::XxHash64::oneshot(0, block) != expected {
        return Err(damaged("a part of LZ4 has another checksum than its header says"));
    }
    lz4_flex::block::decompress(block, length).map_err(|error| failed("LZ4", &error))
}

/// Reads at most one byte more than `length`.
fn read_bounded(reader: impl std::io::Read, length: usize, algorithm: &str) -> Result<Vec<u8>> {
    let mut content = Vec::with_capacity(length);
    let read = reader.take(length as u64 + 1).read_to_end(&mut content);
    read.map_err(|error| failed(algorithm, &error))?;
    Ok(content)
}

fn failed(algorithm: &str, error: &dyn std::fmt::Display) -> crate::Error {
    damaged(format!("a part does not decompress with {algorithm}: {error}"))
}

/// Fails if a frame of Zstandard (RFC 8878, section 3.1.1.1) has a larger window than a chunk can have: the decoder keeps
/// that many bytes.
fn check_zstd_window(frame: &[u8]) -> Result<()> {
    let mut cursor = Cursor::new(frame);
    cursor.skip(4)?;
    let descriptor = cursor.u8()?;
    let is_single_segment = descriptor & 0x20 != 0;
    let window = if is_single_segment {
        cursor.skip([0, 1, 2, 4][usize::from(descriptor & 3)])?;
        match descriptor >> 6 {
            0 => u64::from(cursor.u8()?),
            1 => u64::from(cursor.u16_le()?) + 256,
            2 => u64::from(cursor.u32_le()?),
            _ => cursor.u64_le()?,
        }
    } else {
        let window = cursor.u8()?;
        let base = 1_u64 << (10 + (window >> 3));
        base + base / 8 * u64::from(window & 7)
    };
    check_limit("bytes of a window of Zstandard", window, MAX_CHUNK_BYTES)
}

/// Fails unless a stream of xz (format 1.2.1, sections 2 and 3) is one block of `length` bytes, by the lengths of its
/// parts: the decoder keeps all of a block.
fn check_xz_length(stream: &[u8], length: usize) -> Result<()> {
    let mut cursor = Cursor::new(stream);
    // The magic bytes and the first flag.
    cursor.skip(7)?;
    let check = cursor.u8()? & 0xf;
    let _checksum = cursor.u32()?;
    let header_words = usize::from(cursor.u8()?);
    cursor.skip(4 * (header_words + 1) - 1)?;
    let mut total = 0;
    loop {
        let (uncompressed, stored) = match cursor.u8()? {
            0 => break,
            1 | 2 => {
                let bytes = usize::from(cursor.u16()?) + 1;
                (bytes, bytes)
            }
            control if control >= 0x80 => {
                let uncompressed = (usize::from(control & 0x1f) << 16 | usize::from(cursor.u16()?)) + 1;
                let stored = usize::from(cursor.u16()?) + 1;
                (uncompressed, stored + usize::from(control >= 0xc0))
            }
            _ => return Err(damaged("a part of LZMA has an unknown control byte")),
        };
        total += uncompressed;
        cursor.skip(stored)?;
    }
    cursor.skip(cursor.at().next_multiple_of(4) - cursor.at())?;
    cursor.skip([0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64][usize::from(check)])?;
    if cursor.u8()? != 0 {
        return Err(unsupported("metadata compressed by LZMA in several blocks"));
    }
    if total != length {
        return Err(damaged("a part of LZMA has another length than its header says"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// Returns a chunk with the header for `data` and an uncompressed length.
    fn chunk(algorithm: &[u8; 3], data: &[u8], length: usize) -> Vec<u8> {
        let length24 = |length: usize| (length as u32).to_le_bytes()[..3].to_vec();
        [algorithm.to_vec(), length24(data.len()), length24(length), data.to_vec()].concat()
    }

    fn xz(content: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        lzma_rs::xz_compress(&mut &*content, &mut stream).unwrap();
        stream
    }

    #[test]
    fn chunks_follow_each_other() {
        let content: Vec<u8> = (0..100_000_u32).map(|index| (index % 251) as u8).collect();
        let (first, second) = content.split_at(60_000);
        let stored = [chunk(b"XZ\0", &xz(first), first.len()), chunk(b"XZ\0", &xz(second), second.len())].concat();
        assert_eq!(decompress(&stored, 100_000, 100_000).unwrap(), content);
        assert!(matches!(decompress(&stored, 100_000, 99_999), Err(Error::TooLarge { .. })));
        assert!(matches!(decompress(&stored, 99_999, 100_000), Err(Error::Damaged(_))));
        assert!(matches!(decompress(&stored[..stored.len() - 1], 100_000, 100_000), Err(Error::Damaged(_))));
    }

    #[test]
    fn content_that_is_longer_than_its_header_says_is_not_decompressed() {
        let long = chunk(b"XZ\0", &xz(&[0; 1_000_000]), 1000);
        assert!(matches!(decompress(&long, 1000, 1 << 20), Err(Error::Damaged(_))));
        // A window of 3.75 TiB.
        let wide = chunk(b"ZS\x01", b"\x28\xb5\x2f\xfd\x00\xff", 1000);
        assert!(matches!(decompress(&wide, 1000, 1 << 20), Err(Error::TooLarge { .. })));
        // A single segment of 4 GiB.
        let long = chunk(b"ZS\x01", b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\xff", 1000);
        assert!(matches!(decompress(&long, 1000, 1 << 20), Err(Error::TooLarge { .. })));
    }
}
