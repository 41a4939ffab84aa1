//! The response to `dirlist`, which arrives in pieces: its writer and its parser.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use super::{StatInfo, ok, oksofar};
use crate::xrootd::{DecodeError, DirlistOptions, StreamId, request::Dirlist};

/// Pseudo-entry at the start of a listing with stat lines, which shows the client that the server supports `dstat`.
const WITH_STAT: &[u8] = b".\n0 0 0 0\n";

/// The same pseudo-entry of a server that identifies entries and percent-encodes their names at the client's request.
/// Towpath's own addition.
const WITH_NODES: &[u8] = b".\n0 0 0 0 tpN1\n";

/// Stat line of an entry with unknown metadata.
const NO_STAT: &[u8] = b"0 0 0 0";

/// Placeholder for an unknown checksum.
const NO_CHECKSUM: &str = "none";

/// Checksum of a file: ` [ alg:hex ]` after its stat text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChecksum {
    /// Name of the algorithm, such as `adler32`.
    pub algorithm: String,
    /// Value in hexadecimal, such as `5c0ebe1f`.
    pub value: String,
}

impl EntryChecksum {
    /// Appends the checksum, or a placeholder for `algorithm` if it is unknown.
    pub(super) fn write(algorithm: &str, checksum: Option<&Self>, out: &mut BytesMut) {
        let (algorithm, value) = checksum.map_or((algorithm, NO_CHECKSUM), |sum| (&*sum.algorithm, &*sum.value));
        for part in [" [ ", algorithm, ":", value, " ]"] {
            out.put_slice(part.as_bytes());
        }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirlistEntry {
    /// Its name: not empty, without `/`, NUL and line feed.
    pub name: Bytes,
    /// Its metadata, if requested.
    pub stat: Option<StatInfo>,
    /// Its checksum, if requested and known.
    pub checksum: Option<EntryChecksum>,
}

/// Writes a listing as responses: `oksofar` whenever a piece is full, `ok` at the end.
///
/// Pass every entry to [`entry`](Self::entry), then call [`finish`](Self::finish). Buffers one piece.
#[derive(Debug)]
pub struct DirlistWriter {
    stream_id: StreamId,
    options: DirlistOptions,
    /// Checksum algorithm requested by the client.
    algorithm: &'static str,
    /// Complete entries, each terminated by a line feed.
    piece: BytesMut,
    encodes_names: bool,
}

/// Bytes of names that a listing with encoded names escapes as `%` and two hexadecimal digits.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

impl DirlistWriter {
    /// Size at which a piece is sent, in bytes. Clients accept any size; this one is small enough to show the first
    /// entries early.
    const PIECE_BYTES: usize = 32 << 10;

    /// Starts the response to the `dirlist` `request` with this stream id. Entries with an unknown checksum are listed
    /// with `algorithm`, such as `adler32`.
    #[must_use]
    pub fn new(stream_id: StreamId, request: &Dirlist, algorithm: &'static str) -> Self {
        let (options, encodes_names) = (request.options, request.wants_node && request.options.with_stat());
        let mut piece = BytesMut::new();
        match encodes_names {
            true => piece.put_slice(WITH_NODES),
            false if options.with_stat() => piece.put_slice(WITH_STAT),
            false => {}
        }
        Self { stream_id, options, algorithm, piece, encodes_names }
    }

    /// Adds an entry; appends a response to `out` if a piece became full. Metadata and checksum are written only if
    /// requested.
    ///
    /// Returns `false` and omits the entry if its name cannot be expressed in a listing (empty, or with a line feed or
    /// NUL).
    pub fn entry(&mut self, entry: &DirlistEntry, out: &mut BytesMut) -> bool {
        let is_unsayable = |&byte: &u8| byte == 0 || (byte == b'\n' && !self.encodes_names);
        if entry.name.is_empty() || entry.name.iter().any(is_unsayable) {
            return false;
        }
        if self.piece.len() >= Self::PIECE_BYTES {
            oksofar(self.stream_id, &self.piece.split().freeze(), out);
        }
        match self.encodes_names {
            true => percent_encode(&entry.name, ESCAPED).for_each(|part| self.piece.put_slice(part.as_bytes())),
            false => self.piece.put_slice(&entry.name),
        }
        self.piece.put_u8(b'\n');
        if self.options.with_stat() {
            self.put_stat_line(entry);
        }
        true
    }

    fn put_stat_line(&mut self, entry: &DirlistEntry) {
        match &entry.stat {
            Some(stat) => stat.write(&mut self.piece),
            None => self.piece.put_slice(NO_STAT),
        }
        if self.options.contains(DirlistOptions::dcksm) {
            EntryChecksum::write(self.algorithm, entry.checksum.as_ref(), &mut self.piece);
        }
        self.piece.put_u8(b'\n');
    }

    /// Appends the last response. An empty directory without stat lines is an empty `ok`.
    pub fn finish(mut self, out: &mut BytesMut) {
        if let Some(last) = self.piece.last_mut() {
            *last = 0;
        }
        ok(self.stream_id, &self.piece.freeze(), out);
    }
}

/// Parses a listing from the bodies of its responses.
///
/// Call [`push`](Self::push) for each body, [`finish`](Self::finish) after the last, and [`pop`](Self::pop) for the
/// entries. Pieces may be split at any byte.
#[derive(Debug)]
pub struct DirlistParser {
    /// Layout of the entries; undecided until the first bytes show whether the server supports `dstat`.
    layout: Layout,
    buffer: BytesMut,
    finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Requested with `dstat`; the first bytes decide.
    Undecided,
    Names,
    NamesAndStats,
    /// Like the layout with stat lines, but with percent-encoded names.
    Nodes,
}

impl DirlistParser {
    /// Maximum length of a line in bytes: a line with a name of 255 bytes is far shorter.
    const MAX_LINE_BYTES: usize = 64 << 10;

    /// Creates a parser for the response to a request with these options.
    #[must_use]
    pub fn new(options: DirlistOptions) -> Self {
        let layout = if options.with_stat() { Layout::Undecided } else { Layout::Names };
        Self { layout, buffer: BytesMut::new(), finished: false }
    }

    /// Adds a piece of the response.
    pub fn push(&mut self, body: &[u8]) {
        self.buffer.put_slice(body);
    }

    /// Marks the end of the response after the last piece.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the next entry except `.` and `..`; `None` at the end (after [`finish`](Self::finish)), or if more
    /// pieces are needed.
    ///
    /// # Errors
    /// [`DecodeError`] if a line is too long, a name or a stat line is invalid, or a stat line is missing.
    pub fn pop(&mut self) -> Result<Option<DirlistEntry>, DecodeError> {
        if self.layout == Layout::Undecided && !self.decide() {
            return Ok(None);
        }
        loop {
            let Some(name_end) = self.line_end(0)? else { return Ok(None) };
            let stat_end = match self.layout {
                Layout::NamesAndStats | Layout::Nodes if name_end > 0 => {
                    match self.line_end(name_end.saturating_add(1))? {
                        Some(stat_end) => Some(stat_end),
                        None if self.finished => return Err(DecodeError::Missing { what: "stat line" }),
                        None => return Ok(None),
                    }
                }
                _ => None,
            };
            let mut line = self.take_line(stat_end.unwrap_or(name_end));
            let name = line.split_to(name_end.min(line.len()));
            if matches!(&*name, b"" | b"." | b"..") {
                continue;
            }
            let name = if self.layout == Layout::Nodes { Bytes::from_iter(percent_decode(&name)) } else { name };
            let mut entry = DirlistEntry { name: check_name(name)?, stat: None, checksum: None };
            if stat_end.is_some() {
                let (stat, checksum) = parse_stat_line(line.get(1..).unwrap_or_default())?;
                (entry.stat, entry.checksum) = (Some(stat), checksum);
            }
            return Ok(Some(entry));
        }
    }

    /// Detects whether the server sends stat lines; returns `false` if too few bytes have arrived.
    fn decide(&mut self) -> bool {
        for (start, layout) in [(WITH_STAT, Layout::NamesAndStats), (WITH_NODES, Layout::Nodes)] {
            let matches = self.buffer.iter().zip(start).all(|(&got, &wanted)| got == wanted || is_end(got, wanted));
            if matches && self.buffer.len() >= start.len() {
                self.layout = layout;
                drop(self.buffer.split_to(start.len()));
                return true;
            }
            if matches && !self.finished {
                return false;
            }
        }
        self.layout = Layout::Names;
        true
    }

    /// Returns the end of the line that starts at `start`; the last line of a complete response needs no line feed.
    fn line_end(&self, start: usize) -> Result<Option<usize>, DecodeError> {
        let line = self.buffer.get(start..).unwrap_or_default();
        let end = memchr::memchr2(b'\n', 0, line);
        let end = end.or_else(|| (self.finished && !line.is_empty()).then_some(line.len()));
        if end.unwrap_or(line.len()) > Self::MAX_LINE_BYTES {
            let limit = Self::MAX_LINE_BYTES as u64;
            return Err(DecodeError::TooLong { what: "directory entry", bytes: line.len() as u64, limit });
        }
        Ok(end.map(|end| start.saturating_add(end)))
    }

    /// Takes `length` bytes from the front, and drops the end of the line after them.
    fn take_line(&mut self, length: usize) -> Bytes {
        let line = self.buffer.split_to(length.min(self.buffer.len())).freeze();
        self.buffer.advance(self.buffer.len().min(1));
        line
    }
}

/// Returns whether a byte ends a line: the last line feed of a listing is sent as NUL.
fn is_end(got: u8, wanted: u8) -> bool {
    got == 0 && wanted == b'\n'
}

/// Checks a name from a server, which becomes a file name in a client: it must be a single component.
fn check_name(name: Bytes) -> Result<Bytes, DecodeError> {
    if name.contains(&b'/') || name.contains(&0) || matches!(&*name, b"" | b"." | b"..") {
        return Err(DecodeError::Invalid { what: "name of a directory entry" });
    }
    Ok(name)
}

/// Parses `stat text [ alg:hex ]`.
pub(super) fn parse_stat_line(line: &[u8]) -> Result<(StatInfo, Option<EntryChecksum>), DecodeError> {
    let Some(bracket) = line.iter().position(|&byte| byte == b'[') else {
        return Ok((StatInfo::parse(line)?, None));
    };
    let (stat, sum) = line.split_at(bracket);
    let sum = String::from_utf8_lossy(sum);
    let sum = sum.trim_matches(|c: char| matches!(c, '[' | ']' | '\0') || c.is_whitespace()).split_once(':');
    let sum = sum.filter(|(_, value)| *value != NO_CHECKSUM);
    let checksum = sum.map(|(algorithm, value)| EntryChecksum { algorithm: algorithm.into(), value: value.into() });
    Ok((StatInfo::parse(stat)?, checksum))
}
