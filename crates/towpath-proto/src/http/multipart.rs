//! Responses with several ranges: `multipart/byteranges` (RFC 9110 §14.6, RFC 2046 §5.1).
//!
//! A server chooses a [`Boundary`] and writes [`Boundary::part_header`], the bytes of the range, the next header, ...,
//! [`Boundary::closing`]; [`Boundary::body_bytes`] is the total length, so the response needs no chunked encoding.
//!
//! A client pushes received bytes into a [`PartReader`] and takes [`Item`]s from it; data are slices of the pushed
//! buffers. The length of each part comes from its `Content-Range`, so data are never searched for the boundary, and a
//! boundary within the data is harmless.
//!
//! The reader does not compare the parts with the requested ranges: servers may merge and reorder them.

use std::ops::Range;

use bytes::{Buf, Bytes};

use super::range::ContentRange;

/// Maximum length of a boundary in bytes (RFC 2046 §5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// Maximum length of a line of a part's header in bytes.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Maximum number of bytes between two parts: blank lines, a preamble, header fields.
const MAX_BETWEEN_BYTES: usize = 64 * 1024;

/// Separator of the parts of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary(String);

impl Boundary {
    /// Creates a boundary of 32 hexadecimal digits from random bytes, which must differ between responses.
    pub fn from_random(random: u128) -> Self {
        Self(format!("{random:032x}"))
    }

    /// Parses the boundary in a `Content-Type` field; `None` if the type is not `multipart/byteranges` with a boundary.
    pub fn of_content_type(value: &str) -> Option<Self> {
        let mut parameters = value.split(';').map(str::trim);
        if !parameters.next()?.eq_ignore_ascii_case("multipart/byteranges") {
            return None;
        }
        let boundary = parameters.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim_end().eq_ignore_ascii_case("boundary").then(|| value.trim_start())
        })?;
        let boundary = boundary.strip_prefix('"').map_or(Some(boundary), |quoted| quoted.strip_suffix('"'))?;
        let valid = boundary.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        (valid && (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())).then(|| Self(boundary.to_owned()))
    }

    /// Returns the value of the response's `Content-Type` field.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.0)
    }

    /// Returns the text before the bytes of a part.
    pub fn part_header(&self, content_type: &str, part: &ContentRange) -> String {
        format!("\r\n--{}\r\nContent-Type: {content_type}\r\nContent-Range: {part}\r\n\r\n", self.0)
    }

    /// Returns the text after the last part.
    pub fn closing(&self) -> String {
        format!("\r\n--{}--\r\n", self.0)
    }

    /// Returns the length of the whole body; `None` if it does not fit into 64 bits, or a range is not inside `size`.
    pub fn body_bytes(&self, content_type: &str, ranges: &[Range<u64>], size: u64) -> Option<u64> {
        let mut total = self.closing().len() as u64;
        for range in ranges {
            let header = self.part_header(content_type, &ContentRange::part(range, Some(size))?);
            total = total.checked_add(header.len() as u64)?.checked_add(range.end - range.start)?;
        }
        Some(total)
    }
}

/// An event of a [`PartReader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Start of a part.
    Part {
        /// Offsets of the part in the file; never empty.
        offsets: Range<u64>,
        /// Size of the whole file, if the server sends it.
        size: Option<u64>,
    },
    /// The next bytes of the part, never empty.
    Data(Bytes),
    /// The closing boundary; nothing follows.
    End,
}

/// Error for an invalid response with several ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMultipart {
    /// A part has no valid `Content-Range`.
    #[error("a part of the response has no valid Content-Range")]
    ContentRange,
    /// A part is not followed by the boundary.
    #[error("a part of the response does not have its declared length")]
    Length,
    /// A header line is too long, or there are too many of them.
    #[error("the headers of a part of the response are too long")]
    TooLong,
    /// The response ended before its closing boundary.
    #[error("the response with several ranges is incomplete")]
    Incomplete,
}

/// Incremental parser of a response with several ranges.
#[derive(Debug)]
pub struct PartReader {
    /// `--boundary`.
    delimiter: Vec<u8>,
    state: State,
    input: Bytes,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// Bytes of lines since the last part.
    between_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary: any lines are allowed.
    Preamble,
    /// In the header of a part.
    Header { range: Option<ContentRange> },
    /// In the data of a part.
    Data { remaining_bytes: u64 },
    /// Before the end of line between the data of a part and the boundary.
    AfterData,
    /// After the closing boundary.
    Closed,
}

impl PartReader {
    /// Creates a parser for a response with that boundary.
    pub fn new(boundary: &Boundary) -> Self {
        Self {
            delimiter: format!("--{}", boundary.0).into_bytes(),
            state: State::Preamble,
            input: Bytes::new(),
            line: Vec::new(),
            between_bytes: 0,
        }
    }

    /// Adds the next bytes of the response.
    ///
    /// Call it after [`PartReader::next_item`] returned `None`: otherwise the remaining earlier bytes are copied.
    pub fn push(&mut self, input: Bytes) {
        self.input = if self.input.is_empty() { input } else { [&self.input[..], &input].concat().into() };
    }

    /// Returns the next item, or `None` if more bytes are needed. After an error the reader must not be used.
    pub fn next_item(&mut self) -> Result<Option<Item>, InvalidMultipart> {
        loop {
            match self.state {
                State::Closed => {
                    // The text after the closing boundary is an epilogue, which is ignored (RFC 2046 §5.1.1).
                    self.input.clear();
                    return Ok(None);
                }
                State::Data { remaining_bytes: 0 } => self.state = State::AfterData,
                State::Data { remaining_bytes } if self.input.has_remaining() => {
                    let taken = usize::try_from(remaining_bytes).unwrap_or(usize::MAX).min(self.input.len());
                    self.state = State::Data { remaining_bytes: remaining_bytes - taken as u64 };
                    return Ok(Some(Item::Data(self.input.split_to(taken))));
                }
                State::Data { .. } => return Ok(None),
                State::Preamble | State::Header { .. } | State::AfterData => {
                    let Some(line) = self.take_line()? else { return Ok(None) };
                    if let Some(item) = self.read_line(&line)? {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    /// Checks that the response is complete; call it at the end of the body.
    ///
    /// # Errors
    /// If something is missing.
    pub fn finish(&self) -> Result<(), InvalidMultipart> {
        if self.state == State::Closed { Ok(()) } else { Err(InvalidMultipart::Incomplete) }
    }

    /// Takes the next line without its terminator; `None` if it is incomplete.
    fn take_line(&mut self) -> Result<Option<Vec<u8>>, InvalidMultipart> {
        let end = self.input.iter().position(|byte| *byte == b'\n');
        let taken = self.input.split_to(end.map_or(self.input.len(), |end| end + 1));
        self.between_bytes += taken.len();
        if self.line.len() + taken.len() > MAX_LINE_BYTES || self.between_bytes > MAX_BETWEEN_BYTES {
            return Err(InvalidMultipart::TooLong);
        }
        self.line.extend_from_slice(&taken);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.truncate(line.trim_ascii_end().len());
        Ok(Some(line))
    }

    fn read_line(&mut self, line: &[u8]) -> Result<Option<Item>, InvalidMultipart> {
        let delimiter = line.strip_prefix(self.delimiter.as_slice());
        match (self.state, delimiter) {
            (State::Header { range }, None) if line.is_empty() => {
                let range = range.ok_or(InvalidMultipart::ContentRange)?;
                let offsets = range.offsets().ok_or(InvalidMultipart::ContentRange)?;
                self.state = State::Data { remaining_bytes: offsets.end - offsets.start };
                self.between_bytes = 0;
                Ok(Some(Item::Part { offsets, size: range.size() }))
            }
            (State::Header { range }, None) => {
                self.state = State::Header { range: content_range(line).or(range) };
                Ok(None)
            }
            (State::Header { .. }, Some(_)) => Err(InvalidMultipart::ContentRange),
            (_, Some(b"")) => {
                self.state = State::Header { range: None };
                Ok(None)
            }
            (_, Some(b"--")) => {
                self.state = State::Closed;
                Ok(Some(Item::End))
            }
            (State::AfterData, _) if !line.is_empty() => Err(InvalidMultipart::Length),
            _ => Ok(None),
        }
    }
}

/// Parses a header line; `None` if it is not a `Content-Range`.
fn content_range(line: &[u8]) -> Option<ContentRange> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.eq_ignore_ascii_case("Content-Range").then(|| ContentRange::parse(value))?
}

#[cfg(test)]
mod tests;
