//! Answers with several ranges: `multipart/byteranges` (RFC 9110 §14.6, RFC 2046 §5.1).
//!
//! A server chooses a [`Boundary`] and writes [`Boundary::part_header`], the bytes of the range, the next header, ...,
//! [`Boundary::closing`]; [`Boundary::body_bytes`] is the length of all that, so the answer needs no chunks.
//!
//! A client pushes received bytes into a [`PartReader`] and takes [`Item`]s out; data are slices of the pushed buffers.
//! The length of each part comes from its `Content-Range`, so data are never searched for the boundary, and a boundary
//! within the data is harmless.
//!
//! The reader does not compare the parts with the requested ranges: servers may merge and reorder them.

use std::ops::Range;

use bytes::{Buf, Bytes};

use super::range::ContentRange;

/// The longest boundary (RFC 2046 §5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// The longest line of a part's header.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// How many bytes of lines may come between two parts: blank lines, a preamble, header fields.
const MAX_BETWEEN_BYTES: usize = 64 * 1024;

/// What separates the parts of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary(String);

impl Boundary {
    /// A boundary from random bytes, which must differ from answer to answer: 32 hexadecimal digits.
    pub fn from_random(random: u128) -> Self {
        Self(format!("{random:032x}"))
    }

    /// Reads the boundary out of a `Content-Type` field; `None` if that is no `multipart/byteranges` with one.
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

    /// The value of the answer's `Content-Type` field.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.0)
    }

    /// What stands before the bytes of a part.
    pub fn part_header(&self, content_type: &str, part: &ContentRange) -> String {
        format!("\r\n--{}\r\nContent-Type: {content_type}\r\nContent-Range: {part}\r\n\r\n", self.0)
    }

    /// What stands after the last part.
    pub fn closing(&self) -> String {
        format!("\r\n--{}--\r\n", self.0)
    }

    /// The length of the whole body; `None` if it does not fit 64 bits, or a range is not inside `size`.
    pub fn body_bytes(&self, content_type: &str, ranges: &[Range<u64>], size: u64) -> Option<u64> {
        let mut total = self.closing().len() as u64;
        for range in ranges {
            let header = self.part_header(content_type, &ContentRange::part(range, Some(size))?);
            total = total.checked_add(header.len() as u64)?.checked_add(range.end - range.start)?;
        }
        Some(total)
    }
}

/// What a [`PartReader`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A part begins: its offsets in the file, and the size of the file if the server says it.
    Part {
        /// The offsets; never empty.
        offsets: Range<u64>,
        /// The size of the whole file.
        size: Option<u64>,
    },
    /// The next bytes of the part, never empty.
    Data(Bytes),
    /// The closing boundary; nothing follows.
    End,
}

/// Why an answer with several ranges cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMultipart {
    /// A part does not say which bytes it holds.
    #[error("a part of the answer has no valid Content-Range")]
    ContentRange,
    /// What follows a part is not the boundary.
    #[error("a part of the answer does not have the length that it says")]
    Length,
    /// Lines too long, or too many of them.
    #[error("the headers of a part of the answer are too long")]
    TooLong,
    /// The answer ended before its closing boundary.
    #[error("the answer with several ranges is incomplete")]
    Incomplete,
}

/// Takes apart an answer with several ranges, as it arrives.
#[derive(Debug)]
pub struct PartReader {
    /// `--boundary`.
    delimiter: Vec<u8>,
    state: State,
    input: Bytes,
    /// The part of a line that has arrived so far, if it did not come in one piece.
    line: Vec<u8>,
    /// How many bytes of lines came since the last part.
    between_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary: anything may stand there.
    Preamble,
    /// In the header of a part.
    Header { range: Option<ContentRange> },
    /// In the data of a part.
    Data { remaining_bytes: u64 },
    /// Between the data of a part and the boundary: an end of line.
    AfterData,
    /// After the closing boundary.
    Closed,
}

impl PartReader {
    /// A reader of an answer with that boundary.
    pub fn new(boundary: &Boundary) -> Self {
        Self {
            delimiter: format!("--{}", boundary.0).into_bytes(),
            state: State::Preamble,
            input: Bytes::new(),
            line: Vec::new(),
            between_bytes: 0,
        }
    }

    /// Gives the next bytes of the answer.
    ///
    /// Call it after [`PartReader::next_item`] returned `None`: bytes left from earlier input are copied otherwise.
    pub fn push(&mut self, input: Bytes) {
        self.input = if self.input.is_empty() { input } else { [&self.input[..], &input].concat().into() };
    }

    /// The next item, or `None` if more bytes are needed. After an error the reader must not be used.
    pub fn next_item(&mut self) -> Result<Option<Item>, InvalidMultipart> {
        loop {
            match self.state {
                State::Closed => {
                    // What follows the closing boundary is an epilogue, to be ignored (RFC 2046 §5.1.1).
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

    /// To be called at the end of the answer: an error if something is missing.
    pub fn finish(&self) -> Result<(), InvalidMultipart> {
        if self.state == State::Closed { Ok(()) } else { Err(InvalidMultipart::Incomplete) }
    }

    /// The next line without its end, or `None` if it has not arrived completely.
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

/// The value of a header line, if it is a `Content-Range`.
fn content_range(line: &[u8]) -> Option<ContentRange> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.eq_ignore_ascii_case("Content-Range").then(|| ContentRange::parse(value))?
}

#[cfg(test)]
mod tests;
