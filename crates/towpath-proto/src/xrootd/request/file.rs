//! Requests about open files, without file data.

use std::fmt::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::checksum::{Digest, Digests};
use crate::xrootd::wire::Parameters;
use crate::xrootd::{
    DecodeError, FileHandle, Mode, OpenOptions, OpenOptions2, PathAndCgi, RequestCode, SessionId, Target,
};

/// `open`: open a file, possibly creating it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Open {
    /// Access mode of a new file.
    pub mode: Mode,
    /// Options.
    pub options: OpenOptions,
    /// Further options.
    pub options2: OpenOptions2,
    /// The open file that [`OpenOptions2::dup`] and [`OpenOptions2::samefs`] refer to.
    pub template: FileHandle,
    /// Requests a known checksum of the file ([`OpenReply::checksum`](crate::xrootd::response::OpenReply::checksum)).
    /// Encoded in the reserved bytes, which every server ignores; some servers (go-hep's) treat opaque information as
    /// part of the file name. Towpath's own addition.
    pub wants_checksum: bool,
    /// Path of the file.
    pub path: PathAndCgi,
}

/// Prefix of the reserved bytes of an `open` that requests a checksum.
const WANTS_CHECKSUM: [u8; 4] = *b"tpC1";

impl Layout for Open {
    const CODE: RequestCode = RequestCode::open;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            mode: Mode(p.u16(4)),
            options: OpenOptions(p.u16(6)),
            options2: OpenOptions2(p.u16(8)),
            template: p.handle(16),
            wants_checksum: p.u32(10) == u32::from_be_bytes(WANTS_CHECKSUM),
            path: PathAndCgi::decode(payload)?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.mode.0.to_be_bytes()).put(6, self.options.0.to_be_bytes());
        parameters.put(8, self.options2.0.to_be_bytes()).put(16, self.template.0);
        if self.wants_checksum {
            parameters.put(10, WANTS_CHECKSUM);
        }
        self.path.encode(payload);
    }
}

/// A file that is open for writing in any session: an `open` with this value in its opaque part returns another handle
/// of it, so that one file can be written over several connections. Towpath's own addition, for servers that advertise
/// [`Self::KEY`] in `query config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedHandle {
    /// Session in which the file is open.
    pub session_id: SessionId,
    /// Its handle in that session.
    pub handle: FileHandle,
}

impl SharedHandle {
    /// Key in the opaque part of the `open`.
    pub const KEY: &str = "towpath.share";

    /// Returns the pair for the opaque part: the key, and 40 hexadecimal digits, beginning with those of the session
    /// id. It must be kept as secret as the session id.
    pub fn pair(&self) -> String {
        let mut pair = format!("{}=", Self::KEY);
        for byte in self.session_id.0.iter().chain(&self.handle.0) {
            let written = write!(pair, "{byte:02x}");
            debug_assert!(written.is_ok(), "a string grows as needed");
        }
        pair
    }

    /// Decodes the value of the key; `None` if it is not 40 hexadecimal digits.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let digits = value.iter().map(|byte| char::from(*byte).to_digit(16)).collect::<Option<Vec<_>>>()?;
        let bytes: Vec<u8> =
            digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |all, one| all << 4 | *one as u8)).collect();
        let (session_id, handle) = bytes.split_first_chunk()?;
        let handle = handle.try_into().ok().filter(|_| digits.len() % 2 == 0)?;
        Some(Self { session_id: SessionId(*session_id), handle: FileHandle(handle) })
    }
}

/// `close`: close a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Close {
    /// The file.
    pub handle: FileHandle,
    /// Commit or abort of a new file. Towpath's own addition; other servers ignore it.
    pub ending: Option<CloseAction>,
}

/// Commit or abort of a new file on `close`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseAction {
    /// The server verifies the file against the promise before it becomes visible, and responds with its
    /// [`StatInfo`](crate::xrootd::response::StatInfo).
    Commit(FileExpectation),
    /// The file does not become visible; a resumable upload keeps its written data. On the wire `keep`.
    Keep,
    /// The file does not become visible, and its data are removed. On the wire `abandon`.
    Abandon,
}

impl CloseAction {
    const KEEP: &[u8] = b"keep";
    const ABANDON: &[u8] = b"abandon";

    fn decode(text: &[u8]) -> Option<Self> {
        match text {
            Self::KEEP => Some(Self::Keep),
            Self::ABANDON => Some(Self::Abandon),
            text => FileExpectation::decode(text).map(Self::Commit),
        }
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Commit(promise) => promise.encode(out),
            Self::Keep => out.put_slice(Self::KEEP),
            Self::Abandon => out.put_slice(Self::ABANDON),
        }
    }
}

/// Expected size, time and digests of a file in its `close`, such as
/// `size=10000&mtime=1700000000000000000&crc32c=e3069283`, with this crate's names of algorithms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileExpectation {
    /// Size in bytes.
    pub size: u64,
    /// Modification time to set, in nanoseconds since the Unix epoch.
    pub mtime_ns: Option<i64>,
    /// Any number of digests.
    pub digests: Digests,
}

impl FileExpectation {
    fn decode(text: &[u8]) -> Option<Self> {
        let mut pairs = std::str::from_utf8(text).ok()?.split('&').map(|pair| pair.split_once('='));
        let (_, size) = pairs.next()?.filter(|(key, _)| *key == "size")?;
        let mut promise = Self { size: size.parse().ok()?, ..Self::default() };
        for pair in pairs {
            match pair? {
                ("mtime", time) => promise.mtime_ns = Some(time.parse().ok()?),
                (algorithm, value) => promise.digests.insert(Digest::from_hex(algorithm.parse().ok()?, value).ok()?),
            }
        }
        Some(promise)
    }

    fn encode(&self, out: &mut BytesMut) {
        let mut text = format!("size={}", self.size);
        if let Some(mtime_ns) = self.mtime_ns {
            let written = write!(text, "&mtime={mtime_ns}");
            debug_assert!(written.is_ok(), "a string grows as needed");
        }
        for digest in self.digests.iter() {
            let written = write!(text, "&{}={digest}", digest.algorithm());
            debug_assert!(written.is_ok(), "a string grows as needed");
        }
        out.put_slice(text.as_bytes());
    }
}

impl Layout for Close {
    const CODE: RequestCode = RequestCode::close;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let ending = match payload.is_empty() {
            true => None,
            false => Some(CloseAction::decode(&payload).ok_or(DecodeError::Invalid { what: "end of a close" })?),
        };
        Ok(Self { handle: header.parameters.handle(4), ending })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.handle.0);
        if let Some(ending) = &self.ending {
            ending.encode(payload);
        }
    }
}

/// `sync`: flush written data to stable storage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sync {
    /// The file.
    pub handle: FileHandle,
}

impl Layout for Sync {
    const CODE: RequestCode = RequestCode::sync;

    fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { handle: header.parameters.handle(4) })
    }

    fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
        parameters.put(4, self.handle.0);
    }
}

/// `truncate`: set the length of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// The file.
    pub target: Target,
    /// New length in bytes.
    pub size: u64,
}

impl Layout for Truncate {
    const CODE: RequestCode = RequestCode::truncate;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self { target: Target::decode(p.handle(4), payload)?, size: p.offset(8, "size")? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.target.handle().0).put(8, self.size.to_be_bytes());
        self.target.encode(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_is_read_as_it_is_written() {
        let shared =
            SharedHandle { session_id: SessionId(*b"0123456789abcdeX"), handle: FileHandle([0, 1, 0xa, 0xff]) };
        let pair = shared.pair();
        assert_eq!(pair, "towpath.share=3031323334353637383961626364655800010aff");
        let value = pair.split_once('=').unwrap().1.as_bytes();
        assert_eq!(SharedHandle::decode(value), Some(shared));
        let wrong = [
            &value[1..],
            &value[2..],
            &[value, b"0"].concat(),
            &[value, b"00"].concat(),
            &[b"g", &value[1..]].concat(),
        ];
        assert!(wrong.iter().all(|wrong| SharedHandle::decode(wrong).is_none()));
    }
}
