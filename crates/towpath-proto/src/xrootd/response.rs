//! Responses: the 8-byte header, the statuses, and one type for each body.
//!
//! A server writes a typed body with [`ok`] (or [`oksofar`] for a piece of it), an error with [`error`], and other
//! statuses with [`Response::encode`]; for file data it sends [`ResponseHeader::to_bytes`] and then the data from any
//! buffer. A client receives a [`ResponseHeader`], reads the body and calls [`Response::decode`]; it decodes the
//! content of [`Response::Ok`] with the [`Body`] type that belongs to the request:
//!
//! | request | body |
//! | --- | --- |
//! | handshake, `protocol`, `login`, `bind` | `HandshakeReply`, [`ProtocolReply`], [`LoginReply`], `PathId` |
//! | `open` | [`OpenReply`] |
//! | `stat`, `stat` with `vfs`, `statx` | [`StatInfo`], [`VfsInfo`], [`StatxReply`] |
//! | `dirlist` | [`DirlistParser`] ([`DirlistWriter`] in the server), because it arrives in pieces |
//! | `locate` | [`Locations`] |
//! | `query`, `prepare` | [`Text`] |
//! | `read` | the data |
//! | `readv` | [`ReadvParser`], because it arrives in pieces |
//! | `pgread`, `pgwrite` | [`PgReadStatus`], [`PgWriteStatus`] |
//! | `fattr` | [`FattrResults`], [`FattrList`] |
//! | all others | empty: `()` |

mod attributes;
mod control;
mod dirlist;
mod locate;
mod metadata;
mod session;
mod status;
mod vector;

use bytes::{BufMut, Bytes, BytesMut};

pub use attributes::{FattrEntry, FattrList, FattrResult, FattrResults};
pub use control::{Attn, ErrorReply, Redirect, Wait, WaitResp};
pub use dirlist::{DirlistEntry, DirlistParser, DirlistWriter, EntryChecksum};
pub use locate::{LocationInfo, Locations};
pub use metadata::{NodeInfo, OpenReply, StatExtended, StatInfo, StatxReply, VfsInfo};
pub use session::{LoginReply, ProtocolReply, SecurityLevel, SecurityRequirements};
pub use status::{PgReadStatus, PgWriteStatus, StatusBody, StatusKind};
pub use vector::{ReadvChunk, ReadvParser};

use super::wire::{non_negative_i32, until_nul};
use super::{DecodeError, ErrorCode, PathId, Status, StreamId};
use crate::fault::Fault;

/// The fixed part of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The stream id of the request.
    pub stream_id: StreamId,
    /// Status of the response.
    pub status: Status,
    /// Length of the body after the header in bytes, at most `i32::MAX`. A [`Status::status`] response may send more
    /// data after it.
    pub dlen: u32,
}

impl ResponseHeader {
    /// Length of a header on the wire in bytes.
    pub const LEN: usize = 8;

    /// Decodes a header.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if `dlen` is negative; the connection is then unusable.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, DecodeError> {
        let [s0, s1, c0, c1, d0, d1, d2, d3] = *bytes;
        Ok(Self {
            stream_id: StreamId([s0, s1]),
            status: Status(u16::from_be_bytes([c0, c1])),
            dlen: non_negative_i32(u32::from_be_bytes([d0, d1, d2, d3]), "dlen")?,
        })
    }

    /// Returns the encoded header, which precedes the file data in the response to `read`.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [s0, s1] = self.stream_id.0;
        let [c0, c1] = self.status.0.to_be_bytes();
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        [s0, s1, c0, c1, d0, d1, d2, d3]
    }
}

/// A typed body of an [`Status::ok`] response.
pub trait Body: Sized {
    /// Appends the body.
    fn encode(&self, out: &mut BytesMut);

    /// Decodes the body; the value may share its memory.
    ///
    /// # Errors
    /// If the body violates the protocol.
    fn decode(body: Bytes) -> Result<Self, DecodeError>;
}

/// Appends the final response for `stream_id`.
pub fn ok(stream_id: StreamId, body: &impl Body, out: &mut BytesMut) {
    frame(stream_id, Status::ok, out, |out| body.encode(out));
}

/// Appends a piece of the response for `stream_id`; more must follow, the last with [`ok`].
pub fn oksofar(stream_id: StreamId, body: &impl Body, out: &mut BytesMut) {
    frame(stream_id, Status::oksofar, out, |out| body.encode(out));
}

/// Appends an error response for `stream_id`. The message is for people; it ends at the first NUL.
pub fn error(stream_id: StreamId, code: ErrorCode, message: &str, out: &mut BytesMut) {
    frame(stream_id, Status::error, out, |out| ErrorReply::write(code, message, None, out));
}

/// Like [`error`], but also includes the `fault` behind `code` for clients that support it ([`ErrorReply::named`]).
pub fn fault(stream_id: StreamId, (code, fault): (ErrorCode, Fault), message: &str, out: &mut BytesMut) {
    frame(stream_id, Status::error, out, |out| ErrorReply::write(code, message, Some(fault), out));
}

/// Appends a response with a body appended by `write`.
fn frame(stream_id: StreamId, status: Status, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_bytes(0, ResponseHeader::LEN);
    let body = out.len();
    write(out);
    let dlen = u32::try_from(out.len().saturating_sub(body)).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let header = ResponseHeader { stream_id, status, dlen }.to_bytes();
    out.iter_mut().skip(start).zip(header).for_each(|(place, byte)| *place = byte);
}

/// A whole response, except for the decoded content of [`Response::Ok`] and the data of [`Response::Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The final response.
    Ok(Bytes),
    /// A piece of the response.
    OkSoFar(Bytes),
    /// Unsolicited.
    Attn(Attn),
    /// The next token of the security protocol.
    AuthMore(Bytes),
    /// The request failed.
    Error(ErrorReply),
    /// Repeat the request elsewhere.
    Redirect(Redirect),
    /// Repeat the request later.
    Wait(Wait),
    /// The response will arrive unsolicited.
    WaitResp(WaitResp),
    /// Extended response; [`StatusBody::data_len`] bytes of data follow.
    Status(StatusBody),
}

impl Response {
    /// Decodes a response; `body` is the `dlen` bytes after the header. The result shares its memory.
    ///
    /// # Errors
    /// If the response violates the protocol; the client must drop the connection, because later responses on it cannot
    /// be trusted.
    pub fn decode(header: &ResponseHeader, body: Bytes) -> Result<Self, DecodeError> {
        Ok(match header.status {
            Status::ok => Self::Ok(body),
            Status::oksofar => Self::OkSoFar(body),
            Status::attn => Self::Attn(Attn::decode(body)?),
            Status::authmore => Self::AuthMore(body),
            Status::error => Self::Error(ErrorReply::decode(body)?),
            Status::redirect => Self::Redirect(Redirect::decode(body)?),
            Status::wait => Self::Wait(Wait::decode(body)?),
            Status::waitresp => Self::WaitResp(WaitResp::decode(body)?),
            Status::status => Self::Status(StatusBody::decode(header.stream_id, body)?),
            _ => return Err(DecodeError::Invalid { what: "response status" }),
        })
    }

    /// Returns the status for the header.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::ok,
            Self::OkSoFar(_) => Status::oksofar,
            Self::Attn(_) => Status::attn,
            Self::AuthMore(_) => Status::authmore,
            Self::Error(_) => Status::error,
            Self::Redirect(_) => Status::redirect,
            Self::Wait(_) => Status::wait,
            Self::WaitResp(_) => Status::waitresp,
            Self::Status(_) => Status::status,
        }
    }

    /// Appends the response. `stream_id` is that of the request; [`Response::Attn`] is sent on [`StreamId::ZERO`].
    pub fn encode(&self, stream_id: StreamId, out: &mut BytesMut) {
        let stream_id = if matches!(self, Self::Attn(_)) { StreamId::ZERO } else { stream_id };
        frame(stream_id, self.status(), out, |out| match self {
            Self::Ok(body) | Self::OkSoFar(body) | Self::AuthMore(body) => out.put_slice(body),
            Self::Attn(attn) => attn.encode(out),
            Self::Error(error) => error.encode(out),
            Self::Redirect(redirect) => redirect.encode(out),
            Self::Wait(wait) => wait.encode(out),
            Self::WaitResp(waitresp) => waitresp.encode(out),
            Self::Status(status) => status.encode(stream_id, out),
        });
    }
}

impl Body for () {
    fn encode(&self, _out: &mut BytesMut) {}

    /// Any content from the server is ignored.
    fn decode(_body: Bytes) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Body for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(self);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Ok(body)
    }
}

/// The response to `bind`: the number of this connection in later requests.
impl Body for PathId {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.0);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        match body.first() {
            Some(&id) => Ok(Self(id)),
            None => Err(DecodeError::Truncated { what: "path id", needed: 1, available: 0 }),
        }
    }
}

/// Text terminated by a NUL: the response to `query` and `prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text(pub Bytes);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Body for Text {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.0);
        out.put_u8(0);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Ok(Self(until_nul(body)))
    }
}
