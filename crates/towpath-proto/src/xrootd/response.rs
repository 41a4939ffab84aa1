//! Responses: the 8-byte header, the statuses, and one type for each body.
//!
//! A server writes a typed body with [`ok`] (or [`oksofar`] for a piece of it), an error with [`error`], the other
//! statuses with [`Response::encode`]; for file data it sends [`ResponseHeader::to_bytes`] and then the data from
//! wherever they lie. A client gets a [`ResponseHeader`], reads the body and calls [`Response::decode`]; the content of
//! [`Response::Ok`] is decoded with the [`Body`] type that belongs to the request:
//!
//! | request | body |
//! | --- | --- |
//! | handshake, `protocol`, `login`, `bind` | `HandshakeReply`, [`ProtocolReply`], [`LoginReply`], `PathId` |
//! | `open` | [`OpenReply`] |
//! | `stat`, `stat` with `vfs`, `statx` | [`StatInfo`], [`VfsInfo`], [`StatxReply`] |
//! | `dirlist` | [`DirlistParser`] ([`DirlistWriter`] in the server), because it comes in pieces |
//! | `locate` | [`Locations`] |
//! | `query`, `prepare` | [`Text`] |
//! | `read` | the data |
//! | `readv` | [`ReadvParser`], because it comes in pieces |
//! | `pgread`, `pgwrite` | [`PgReadStatus`], [`PgWriteStatus`] |
//! | `fattr` | [`FattrResults`], [`FattrList`] |
//! | everything else | nothing: `()` |

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
pub use locate::{Location, Locations};
pub use metadata::{NodeInfo, OpenReply, StatExtended, StatInfo, StatxReply, VfsInfo};
pub use session::{LoginReply, ProtocolReply, SecurityLevel, SecurityRequirements};
pub use status::{PgReadStatus, PgWriteStatus, StatusBody, StatusKind};
pub use vector::{ReadvParser, ReadvPiece};

use super::wire::{non_negative_i32, until_nul};
use super::{DecodeError, ErrorCode, PathId, Status, StreamId};
use crate::fault::Fault;

/// The fixed part of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's.
    pub stream_id: StreamId,
    /// What kind of answer this is.
    pub status: Status,
    /// Body bytes after the header, at most `i32::MAX`. A [`Status::status`] response may send data beyond them.
    pub dlen: u32,
}

impl ResponseHeader {
    /// Bytes of a header on the wire.
    pub const LEN: usize = 8;

    /// Reads a header.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if `dlen` is negative; the connection is of no use any more.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, DecodeError> {
        let [s0, s1, c0, c1, d0, d1, d2, d3] = *bytes;
        Ok(Self {
            stream_id: StreamId([s0, s1]),
            status: Status(u16::from_be_bytes([c0, c1])),
            dlen: non_negative_i32(u32::from_be_bytes([d0, d1, d2, d3]), "dlen")?,
        })
    }

    /// The header as it goes over the wire: what precedes file data in the answer to `read`.
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
    /// If the bytes of the peer violate the protocol.
    fn decode(body: Bytes) -> Result<Self, DecodeError>;
}

/// Appends the final answer of `stream_id`.
pub fn ok(stream_id: StreamId, body: &impl Body, out: &mut BytesMut) {
    frame(stream_id, Status::ok, out, |out| body.encode(out));
}

/// Appends a piece of the answer of `stream_id`; more must follow, the last with [`ok`].
pub fn oksofar(stream_id: StreamId, body: &impl Body, out: &mut BytesMut) {
    frame(stream_id, Status::oksofar, out, |out| body.encode(out));
}

/// Appends the refusal of the request of `stream_id`. The message is for people; a NUL inside ends it.
pub fn error(stream_id: StreamId, code: ErrorCode, message: &str, out: &mut BytesMut) {
    frame(stream_id, Status::error, out, |out| ErrorReply::write(code, message, None, out));
}

/// As [`error`], and names the `fault` behind `code` to clients that know it ([`ErrorReply::named`]).
pub fn fault(stream_id: StreamId, (code, fault): (ErrorCode, Fault), message: &str, out: &mut BytesMut) {
    frame(stream_id, Status::error, out, |out| ErrorReply::write(code, message, Some(fault), out));
}

/// Appends a response whose body `write` appends.
fn frame(stream_id: StreamId, status: Status, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_bytes(0, ResponseHeader::LEN);
    let body = out.len();
    write(out);
    let dlen = u32::try_from(out.len().saturating_sub(body)).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let header = ResponseHeader { stream_id, status, dlen }.to_bytes();
    out.iter_mut().skip(start).zip(header).for_each(|(place, byte)| *place = byte);
}

/// A whole response, but for the inside of [`Response::Ok`] and for the data of [`Response::Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The final answer.
    Ok(Bytes),
    /// A piece of the answer.
    OkSoFar(Bytes),
    /// Unsolicited.
    Attn(Attn),
    /// The next token of the security protocol.
    AuthMore(Bytes),
    /// The request failed.
    Error(ErrorReply),
    /// Repeat the request somewhere else.
    Redirect(Redirect),
    /// Repeat the request later.
    Wait(Wait),
    /// The answer will come unsolicited.
    WaitResp(WaitResp),
    /// Extended answer; [`StatusBody::data_len`] bytes of data follow.
    Status(StatusBody),
}

impl Response {
    /// Reads a response; `body` is the `dlen` bytes after the header, whose memory it shares.
    ///
    /// # Errors
    /// If the response violates the protocol; a client drops the connection, as no later response on it can be trusted.
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

    /// The status in the header.
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

    /// Appends the response. `stream_id` is that of the request; [`Response::Attn`] goes out on [`StreamId::ZERO`].
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

    /// Whatever the server adds is ignored.
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

/// Text that ends with a NUL: the answers to `query` and `prepare`.
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
