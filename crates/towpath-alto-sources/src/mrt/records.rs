//! Splits a file into records by their headers (RFC 6396 §2), decompressing it if needed. Record bodies are not
//! interpreted.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use bgpkit_parser::{ParserError, RawMrtRecord, chunk_mrt_record};
use flate2::read::MultiGzDecoder;

use super::MrtError;
use crate::bgp_update::BgpDecodeError;

/// Maximum length of a record body. `bgpkit-parser` has the same limit and checks it before it allocates.
const MAX_RECORD_BYTES: u32 = 16 << 20;

/// Maximum decompressed size of a file. Tables of collectors have a few GiB.
const MAX_UNPACKED_BYTES: u64 = 64 << 30;

/// Size of the read buffer; table records have hundreds of bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Length of the common record header.
const HEADER_BYTES: usize = 12;

/// Record types that a file can begin with: BGP, OSPFv2, `TABLE_DUMP`, `TABLE_DUMP_V2`, BGP4MP, `BGP4MP_ET`, and IS-IS
/// and OSPFv3 with and without `_ET`. Only BGP is included from the types deprecated by RFC 6396 (appendix B), because
/// zeros would match others.
const TYPES: [u16; 10] = [5, 11, 12, 13, 16, 17, 32, 33, 48, 49];

/// A file read record by record.
pub(super) struct Records<'a> {
    source: BufReader<Box<dyn Read + 'a>>,
}

/// Result of reading the next record.
pub(super) enum NextRecord {
    /// A record.
    Record(RawMrtRecord),
    /// A record with a damaged header but an intact length.
    Damaged(BgpDecodeError),
    /// A record with a damaged length, so that the start of the next one is unknown.
    Unbounded(BgpDecodeError),
    /// A partial record at the end of the file.
    Truncated,
    /// The end of the file.
    End,
}

impl<'a> Records<'a> {
    /// Opens `source`, which must begin with a record.
    pub(super) fn open(source: impl Read + 'a) -> Result<Self, MrtError> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        let (head, source) = peek(source)?;
        // The timestamp that a record begins with can equal the magic number of a compressed file.
        if head.starts_with(&GZIP) && !is_header(&head) {
            let unpacked = LimitedReader { source: MultiGzDecoder::new(source), left_bytes: MAX_UNPACKED_BYTES };
            let (head, unpacked) = peek(unpacked)?;
            return Self::new(&head, Box::new(unpacked));
        }
        Self::new(&head, Box::new(source))
    }

    fn new(head: &[u8], source: Box<dyn Read + 'a>) -> Result<Self, MrtError> {
        if is_header(head) {
            return Ok(Self { source: BufReader::with_capacity(BUFFER_BYTES, source) });
        }
        Err(match head {
            [] => MrtError::NotMrt("it is empty"),
            [b'B', b'Z', b'h', ..] => MrtError::Bzip2,
            _ => MrtError::NotMrt("it does not start with a record header"),
        })
    }

    /// Returns the next record, or why there is none.
    pub(super) fn next(&mut self) -> Result<NextRecord, MrtError> {
        match self.is_at_end() {
            Ok(false) => {}
            Ok(true) => return Ok(NextRecord::End),
            // The decompressor reports a truncated file this way, even if it is cut at a record boundary.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(NextRecord::Truncated),
            Err(error) => return Err(error.into()),
        }
        let error = match chunk_mrt_record(&mut self.source) {
            Ok(record) => return Ok(NextRecord::Record(record)),
            Err(failure) => failure.error,
        };
        match error {
            ParserError::IoError(error) | ParserError::EofError(error) => match error.kind() {
                ErrorKind::UnexpectedEof => Ok(NextRecord::Truncated),
                _ => Err(error.into()),
            },
            ParserError::EofExpected => Ok(NextRecord::End),
            ParserError::OversizedRecord { length } => Ok(NextRecord::Unbounded(
                format!("its length of {length} bytes exceeds the limit of {MAX_RECORD_BYTES}").into(),
            )),
            error => Ok(NextRecord::Damaged(error.to_string().trim_start_matches("Error: ").to_owned().into())),
        }
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        loop {
            match self.source.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads as many bytes from `source` as a header has; returns them and the source with them restored.
fn peek<R: Read>(mut source: R) -> io::Result<(Vec<u8>, impl Read)> {
    let mut head = Vec::with_capacity(HEADER_BYTES);
    source.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(source)))
}

/// Returns whether `head` can begin a record.
fn is_header(head: &[u8]) -> bool {
    let Some([_, _, _, _, a, b, _, _, length @ ..]) = head.first_chunk::<HEADER_BYTES>() else { return false };
    TYPES.contains(&u16::from_be_bytes([*a, *b])) && u32::from_be_bytes(*length) <= MAX_RECORD_BYTES
}

/// A reader that fails when its limit is exceeded.
struct LimitedReader<R> {
    source: R,
    left_bytes: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        let left = self.left_bytes.checked_sub(count as u64);
        self.left_bytes = left.ok_or_else(|| io::Error::other("it unpacks to more than 64 GiB"))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unpacks_to_too_much_fails() {
        let mut source = LimitedReader { source: io::repeat(0), left_bytes: 10 };
        let mut bytes = [0; 4];
        assert_eq!([source.read(&mut bytes).unwrap(), source.read(&mut bytes).unwrap()], [4, 4]);
        assert_eq!(source.read(&mut bytes).unwrap_err().to_string(), "it unpacks to more than 64 GiB");
    }

    #[test]
    fn a_header_is_told_from_other_things() {
        let header =
            |kind: u16, length: u32| [&[0_u8; 4][..], &kind.to_be_bytes(), &[0_u8; 2], &length.to_be_bytes()].concat();
        assert!(is_header(&header(13, 0)) && is_header(&header(17, MAX_RECORD_BYTES)));
        assert!(!is_header(&header(0, 0)) && !is_header(&header(13, MAX_RECORD_BYTES + 1)));
        assert!(!is_header(&header(13, 0)[..HEADER_BYTES - 1]));
    }
}
