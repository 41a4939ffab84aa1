//! Requests: the 24-byte header, and one type for each request with the protocol's field names.
//!
//! A server reads a header, checks [`RequestHeader::argument_len`], reads that many bytes, and calls
//! [`Request::decode`]. Bulk data (of `write`, `pgwrite`, `writev`) are never part of a [`Request`]: they are the next
//! [`Request::bulk_len`] bytes of the stream, or of the connection that [`RequestHeader::data_path`] returns, so that
//! they can be received directly into their target buffer. A client calls [`Request::encode`] and then sends the bulk
//! data from any buffer.
//!
//! Encoding a decoded request yields the same bytes, except for those that have no meaning in the protocol: reserved
//! bytes become zero, trailing NULs and a bare `?` are dropped, `mv` always includes the length of its first path, a
//! handle next to a path is dropped, a path id of 0 is omitted from `read` and `pgread`, and `fattr` includes an empty
//! path.

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
pub use file::{Close, CloseAction, FileExpectation, Open, SharedHandle, Sync, Truncate};
pub use namespace::{Chmod, Dirlist, Locate, Mkdir, Mv, Prepare, Rm, Rmdir, Stat, Statx};
pub use query::{Query, config_words};
pub use session::{Auth, Bind, Endsess, Login, Ping, Protocol, Set, Sigver};

use super::wire::{Parameters, non_negative_i32};
use super::{DecodeError, PathId, RequestCode, StreamId};

/// Maximum payload sizes that a server accepts, in bytes, by kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Paths, vectors, credentials, queries: read completely before the request is decoded.
    pub argument_bytes: u32,
    /// Potentially long lists: attributes to set, files to prepare, paths to stat. Also read completely.
    pub list_bytes: u32,
    /// Data of one write, pgwrite or writev. The server need not buffer all of it.
    pub bulk_bytes: u64,
}

impl Default for Limits {
    /// 256 KiB of arguments (16 times the longest vector), 2 MiB of lists (16 attributes of 64 KiB, with room to
    /// spare), 1 GiB of data (clients send pieces of 8 MiB by default).
    fn default() -> Self {
        Self { argument_bytes: 256 << 10, list_bytes: 2 << 20, bulk_bytes: 1 << 30 }
    }
}

/// Kind of the payload that `dlen` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadClass {
    /// A small argument, read completely; bounded by [`Limits::argument_bytes`].
    Argument,
    /// A long list, read completely; bounded by [`Limits::list_bytes`].
    List,
    /// File data; bounded by [`Limits::bulk_bytes`].
    Bulk,
}

/// The fixed part of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client and returned in the response.
    pub stream_id: StreamId,
    /// Code of the request.
    pub code: RequestCode,
    /// Bytes 4-19; their meaning depends on the request.
    pub parameters: Parameters,
    /// Length of the payload after the header in bytes, at most `i32::MAX`. `writev` and `chkpoint` send more data
    /// after it.
    pub dlen: u32,
}

impl RequestHeader {
    /// Length of a header on the wire in bytes.
    pub const LEN: usize = 24;

    /// Decodes a header.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if `dlen` is negative: the start of the next request is unknown, so the connection is
    /// unusable.
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

    /// Returns the kind of the payload.
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

    /// Returns the number of bytes to read and buffer before [`Request::decode`]: `dlen`, but 0 for file data.
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

/// Encoding of one kind of request, for the table of requests.
trait Layout: Sized {
    const CODE: RequestCode;

    /// Decodes the fields. `payload` is the `dlen` bytes after the header, or empty if these are file data.
    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError>;

    /// Sets the parameters and appends the payload, without file data.
    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut);

    /// Returns the number of bytes of file data that `dlen` counts.
    fn data_len(&self) -> u32 {
        0
    }

    /// Returns the number of bytes of file data beyond `dlen`.
    fn trailing_len(&self) -> u64 {
        0
    }
}

/// Defines the table of requests: the enum, and the four functions that dispatch on the kind.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A decoded request.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $name($name),)+
        }

        impl Request {
            /// Decodes a request whose header announced `payload`.
            ///
            /// `payload` has the length of [`RequestHeader::argument_len`]: the `dlen` bytes after the header, empty
            /// for `write` and `pgwrite`. The request shares the payload's memory.
            ///
            /// # Errors
            /// [`DecodeError::code`] is the code of the response to send. The stream remains in step with the next
            /// request.
            pub fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
                match header.code {
                    $(<$name as Layout>::CODE => Layout::decode(header, payload).map(Self::$name),)+
                    unknown => Err(DecodeError::UnknownRequest(unknown)),
                }
            }

            /// Returns the request's code.
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

            /// Returns the number of bytes of file data that `dlen` counts, and the number beyond it.
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
    /// Whole-file transfer; decoded only to be rejected.
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
    /// Liveness check.
    Ping,
    /// Checkpoint; decoded only to be rejected.
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
    /// File types of many paths.
    Statx,
    /// End an earlier session.
    Endsess,
    /// Join a session.
    Bind,
    /// Read many ranges.
    Readv,
    /// Write one range with checksums.
    PgWrite,
    /// Locations of a path.
    Locate,
    /// Set a file's length.
    Truncate,
    /// Signature of the next request.
    Sigver,
    /// Read one range with checksums.
    PgRead,
    /// Write many ranges.
    Writev,
    /// Server-side copy of ranges; decoded only to be rejected.
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

    /// Returns the number of bytes of file data that follow the encoded request: on its stream, or on the bound
    /// connection that a path id selects.
    #[must_use]
    pub fn bulk_len(&self) -> u64 {
        let (counted, beyond) = self.data_lens();
        u64::from(counted).saturating_add(beyond)
    }
}
