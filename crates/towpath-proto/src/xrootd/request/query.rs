//! The `query` request, by kind.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, text};
use crate::xrootd::{DecodeError, FileHandle, PathAndCgi, QueryCode, RequestCode};

/// `query`: information about the server, a path or an open file. The response is text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Statistics, selected by letters.
    Stats(Bytes),
    /// State of the prepare request with this id.
    Prepare(Bytes),
    /// Checksum of a file; `cks.type=` in the opaque information chooses the algorithm.
    Checksum(PathAndCgi),
    /// Cancel computing the checksum of a file.
    ChecksumCancel(PathAndCgi),
    /// Attributes of a path.
    Xattr(PathAndCgi),
    /// Space of the file system that contains a path.
    Space(PathAndCgi),
    /// Values of configuration words, one response line each; see [`config_words`].
    Config(Bytes),
    /// Visa of an open file.
    Visa(FileHandle),
    /// Information about an open file.
    FileInfo {
        /// The file.
        handle: FileHandle,
        /// The requested information.
        argument: Bytes,
    },
    /// Information about a file system.
    FsInfo(Bytes),
    /// Free form.
    Opaque(Bytes),
    /// Free form about a path.
    OpaqueFile(PathAndCgi),
    /// Free form about an open file.
    OpaqueHandle {
        /// The file.
        handle: FileHandle,
        /// The request.
        argument: Bytes,
    },
    /// An unknown kind.
    Other {
        /// Its number.
        kind: QueryCode,
        /// The file, if the query is about one.
        handle: FileHandle,
        /// Its argument.
        argument: Bytes,
    },
}

impl Query {
    /// Returns the number of the kind.
    #[must_use]
    pub const fn kind(&self) -> QueryCode {
        match self {
            Self::Stats(_) => QueryCode::QStats,
            Self::Prepare(_) => QueryCode::QPrep,
            Self::Checksum(_) => QueryCode::Qcksum,
            Self::ChecksumCancel(_) => QueryCode::Qckscan,
            Self::Xattr(_) => QueryCode::Qxattr,
            Self::Space(_) => QueryCode::Qspace,
            Self::Config(_) => QueryCode::Qconfig,
            Self::Visa(_) => QueryCode::Qvisa,
            Self::FileInfo { .. } => QueryCode::QFinfo,
            Self::FsInfo(_) => QueryCode::QFSinfo,
            Self::Opaque(_) => QueryCode::Qopaque,
            Self::OpaqueFile(_) => QueryCode::Qopaquf,
            Self::OpaqueHandle { .. } => QueryCode::Qopaqug,
            Self::Other { kind, .. } => *kind,
        }
    }
}

/// Returns the words of a [`Query::Config`], in order.
pub fn config_words(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

impl Layout for Query {
    const CODE: RequestCode = RequestCode::query;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let handle = header.parameters.handle(8);
        let words = |payload| text(payload, "query argument");
        Ok(match QueryCode(header.parameters.u16(4)) {
            QueryCode::QStats => Self::Stats(words(payload)?),
            QueryCode::QPrep => Self::Prepare(words(payload)?),
            QueryCode::Qcksum => Self::Checksum(PathAndCgi::decode(payload)?),
            QueryCode::Qckscan => Self::ChecksumCancel(PathAndCgi::decode(payload)?),
            QueryCode::Qxattr => Self::Xattr(PathAndCgi::decode(payload)?),
            QueryCode::Qspace => Self::Space(PathAndCgi::decode(payload)?),
            QueryCode::Qconfig => Self::Config(words(payload)?),
            QueryCode::Qvisa => Self::Visa(handle),
            QueryCode::QFinfo => Self::FileInfo { handle, argument: payload },
            QueryCode::QFSinfo => Self::FsInfo(words(payload)?),
            QueryCode::Qopaque => Self::Opaque(payload),
            QueryCode::Qopaquf => Self::OpaqueFile(PathAndCgi::decode(payload)?),
            QueryCode::Qopaqug => Self::OpaqueHandle { handle, argument: payload },
            kind => Self::Other { kind, handle, argument: payload },
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.kind().0.to_be_bytes());
        match self {
            Self::Stats(text) | Self::Prepare(text) | Self::Config(text) | Self::FsInfo(text) | Self::Opaque(text) => {
                payload.put_slice(text);
            }
            Self::Checksum(path)
            | Self::ChecksumCancel(path)
            | Self::Xattr(path)
            | Self::Space(path)
            | Self::OpaqueFile(path) => path.encode(payload),
            Self::Visa(handle) => {
                parameters.put(8, handle.0);
            }
            Self::FileInfo { handle, argument }
            | Self::OpaqueHandle { handle, argument }
            | Self::Other { handle, argument, .. } => {
                parameters.put(8, handle.0);
                payload.put_slice(argument);
            }
        }
    }
}
