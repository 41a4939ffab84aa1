//! Requests: the 24-byte header, and one type for each request with its fields as the protocol names them.
//!
//! A server reads a header, checks [`RequestHeader::argument_len`], reads that many bytes, and calls
//! [`Request::decode`]. Bulk data (of `write`, `pgwrite`, `writev`) are never part of a [`Request`]: they are the next
//! [`Request::bulk_len`] bytes of the stream, or of the connection that [`RequestHeader::data_path`] names, so that
//! they can be received straight into the buffer they are meant for. A client calls [`Request::encode`] and then sends
//! the bulk data, from wherever they lie.
//!
//! Encoding a decoded request gives the same bytes, but for what the protocol declares meaningless: reserved bytes
//! become zero, trailing NULs and a bare `?` are dropped, `mv` always states the length of its first path, a handle
//! beside a path is dropped, a path id of 0 is left out of `read` and `pgread`, and `fattr` states an empty path.

mod attributes;
mod bulk;
mod extensions;
mod file;
mod namespace;
mod query;
mod session;

use bytes::{BufMut, Bytes, BytesMut};

pub use attributes::{Fattr, FattrOperation};
pub use bulk::{PgRead, PgWrite, Read, ReadElement, Readv, VectorElement, Write, Writev, vector_bytes};
pub use extensions::{Checkpoint, Chkpoint, CloneElement, CloneRanges, Gpfile};
pub use file::{Close, Ending, Open, Promise, Shared, Sync, Truncate};
pub use namespace::{Chmod, Dirlist, Locate, Mkdir, Mv, Prepare, Rm, Rmdir, Stat, Statx};
pub use query::{Query, config_words};
pub use session::{Auth, Bind, Endsess, Login, Ping, Protocol, Set, Sigver};

use super::wire::{Parameters, non_negative_i32};
use super::{DecodeError, PathId, RequestCode, StreamId};

/// How many payload bytes a server accepts, by kind of request; all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Paths, vectors, credentials, queries: read whole before the request is understood.
    pub argument_bytes: u32,
    /// Lists that may be long: attributes to set, files to prepare, paths to stat. Also read whole.
    pub list_bytes: u32,
    /// Data of one write, pgwrite or writev. The server need not hold them all at once.
    pub bulk_bytes: u64,
}

impl Default for Limits {
    /// 256 KiB of arguments (16 times the longest vector), 2 MiB of lists (16 attributes of 64 KiB, with room), 1 GiB
    /// of data (clients send pieces of 8 MiB by default).
    fn default() -> Self {
        Self { argument_bytes: 256 << 10, list_bytes: 2 << 20, bulk_bytes: 1 << 30 }
    }
}

/// What the bytes that `dlen` counts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadClass {
    /// A small argument, read whole; bounded by [`Limits::argument_bytes`].
    Argument,
    /// A long list, read whole; bounded by [`Limits::list_bytes`].
    List,
    /// File data; bounded by [`Limits::bulk_bytes`].
    Bulk,
}

/// The fixed part of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client; the response carries it.
    pub stream_id: StreamId,
    /// Which request.
    pub code: RequestCode,
    /// Bytes 4-19; their meaning depends on the request.
    pub parameters: Parameters,
    /// Payload bytes after the header, at most `i32::MAX`. `writev` and `chkpoint` send more beyond them.
    pub dlen: u32,
}

impl RequestHeader {
    /// Bytes of a header on the wire.
    pub const LEN: usize = 24;

    /// Reads a header.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if `dlen` is negative: the start of the next request is unknown, so the connection
    /// is of no use any more.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, DecodeError> {
        let [s0, s1, c0, c1, parameters @ .., d0, d1, d2, d3] = *bytes;
        Ok(Self {
            stream_id: StreamId([s0, s1]),
            code: RequestCode(u16::from_be_bytes([c0, c1])),
            parameters: Parameters(parameters),
            dlen: non_negative_i32(u32::from_be_bytes([d0, d1, d2, d3]), "dlen")?,
        })
    }

    /// Appends the header's 24 bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.reserve(Self::LEN);
        out.put_slice(&self.stream_id.0);
        out.put_u16(self.code.0);
        out.put_slice(&self.parameters.0);
        out.put_u32(self.dlen);
    }

    /// What the payload is.
    #[must_use]
    pub const fn payload_class(&self) -> PayloadClass {
        match self.code {
            RequestCode::write | RequestCode::pgwrite => PayloadClass::Bulk,
            RequestCode::fattr | RequestCode::prepare | RequestCode::statx => PayloadClass::List,
            _ => PayloadClass::Argument,
        }
    }

    /// Returns the connection of the session on which the data of a `write` or `pgwrite` arrive; [`PathId::MAIN`] for
    /// other requests. It is known even if the rest of the request is malformed.
    #[must_use]
    pub fn data_path(&self) -> PathId {
        match self.code {
            RequestCode::write | RequestCode::pgwrite => PathId(self.parameters.u8(16)),
            _ => PathId::MAIN,
        }
    }

    /// Returns how many of the `dlen` bytes follow the header on the same connection: none if they arrive on another
    /// one.
    pub(super) fn own_bulk_len(&self) -> u64 {
        if self.data_path() == PathId::MAIN { u64::from(self.dlen) } else { 0 }
    }

    /// How many bytes to read, and to hold, before [`Request::decode`]: `dlen`, but 0 for file data.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] if `dlen` exceeds the limit of its class.
    pub fn argument_len(&self, limits: &Limits) -> Result<usize, DecodeError> {
        let (what, limit, argument) = match self.payload_class() {
            PayloadClass::Argument => ("argument", u64::from(limits.argument_bytes), self.dlen),
            PayloadClass::List => ("list", u64::from(limits.list_bytes), self.dlen),
            PayloadClass::Bulk => ("data", limits.bulk_bytes, 0),
        };
        if u64::from(self.dlen) > limit {
            return Err(DecodeError::TooLong { what, bytes: u64::from(self.dlen), limit });
        }
        Ok(argument as usize)
    }
}

/// One kind of request: what the table of requests needs to know about it.
trait Layout: Sized {
    const CODE: RequestCode;

    /// Reads the fields; `payload` holds the `dlen` bytes after the header, or nothing if they are file data.
    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError>;

    /// Fills in the parameters and appends the payload, without file data.
    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut);

    /// Bytes of file data that `dlen` counts.
    fn data_len(&self) -> u32 {
        0
    }

    /// Bytes of file data beyond `dlen`.
    fn trailing_len(&self) -> u64 {
        0
    }
}

/// The table of requests: the enum, and the four functions that choose by kind.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A request, decoded.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $name($name),)+
        }

        impl Request {
            /// Reads a request whose header announced `payload`.
            ///
            /// `payload` has the length of [`RequestHeader::argument_len`]: the `dlen` bytes after the header, empty
            /// for `write` and `pgwrite`. The request shares the payload's memory.
            ///
            /// # Errors
            /// [`DecodeError::code`] is the code of the response to send. The stream stays in step with the next
            /// request.
            pub fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
                match header.code {
                    $(<$name as Layout>::CODE => Layout::decode(header, payload).map(Self::$name),)+
                    unknown => Err(DecodeError::UnknownRequest(unknown)),
                }
            }

            /// The request's code.
            #[must_use]
            pub const fn code(&self) -> RequestCode {
                match self {
                    $(Self::$name(_) => <$name as Layout>::CODE,)+
                }
            }

            fn fill(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
                match self {
                    $(Self::$name(request) => request.encode(parameters, payload),)+
                }
            }

            /// Bytes of file data: counted by `dlen`, and beyond it.
            fn data_lens(&self) -> (u32, u64) {
                match self {
                    $(Self::$name(request) => (request.data_len(), request.trailing_len()),)+
                }
            }
        }

        $(impl From<$name> for Request {
            fn from(request: $name) -> Self {
                Self::$name(request)
            }
        })+
    };
}

requests! {
    /// Security credentials.
    Auth,
    /// Server information of many kinds.
    Query,
    /// Change an access mode.
    Chmod,
    /// Close a file.
    Close,
    /// List a directory.
    Dirlist,
    /// Whole-file transfer; recognised only.
    Gpfile,
    /// Protocol version and capabilities.
    Protocol,
    /// Start a session.
    Login,
    /// Make a directory.
    Mkdir,
    /// Rename.
    Mv,
    /// Open a file.
    Open,
    /// Is the server alive?
    Ping,
    /// Checkpoint; recognised only.
    Chkpoint,
    /// Read one range.
    Read,
    /// Remove a file.
    Rm,
    /// Remove an empty directory.
    Rmdir,
    /// Force data to stable storage.
    Sync,
    /// Metadata.
    Stat,
    /// Set a property of the session.
    Set,
    /// Write one range.
    Write,
    /// Extended attributes.
    Fattr,
    /// Stage files.
    Prepare,
    /// Kinds of many paths.
    Statx,
    /// End an earlier session.
    Endsess,
    /// Join a session.
    Bind,
    /// Read many ranges.
    Readv,
    /// Write one range with checksums.
    PgWrite,
    /// Where is a path?
    Locate,
    /// Set a file's length.
    Truncate,
    /// Signature of the next request.
    Sigver,
    /// Read one range with checksums.
    PgRead,
    /// Write many ranges.
    Writev,
    /// Copy ranges inside the server; recognised only.
    CloneRanges,
}

impl Request {
    /// Appends the request without its file data; [`bulk_len`](Self::bulk_len) bytes of data must follow.
    ///
    /// An argument longer than `i32::MAX` bytes cannot be expressed; its announced length saturates.
    pub fn encode(&self, stream_id: StreamId, out: &mut BytesMut) {
        let start = out.len();
        let header = RequestHeader { stream_id, code: self.code(), parameters: Parameters::default(), dlen: 0 };
        header.encode(out);
        let mut parameters = Parameters::default();
        self.fill(&mut parameters, out);

        let argument_len = out.len().saturating_sub(start).saturating_sub(RequestHeader::LEN);
        let dlen = (argument_len as u64).saturating_add(u64::from(self.data_lens().0)).min(i32::MAX as u64);
        let mut fixed = out.iter_mut().skip(start.saturating_add(4));
        let bytes = parameters.0.into_iter().chain((dlen as u32).to_be_bytes());
        fixed.by_ref().zip(bytes).for_each(|(place, byte)| *place = byte);
    }

    /// Bytes of file data that follow the encoded request: on its stream, or on the bound connection that a path id
    /// names.
    #[must_use]
    pub fn bulk_len(&self) -> u64 {
        let (counted, beyond) = self.data_lens();
        u64::from(counted).saturating_add(beyond)
    }
}
