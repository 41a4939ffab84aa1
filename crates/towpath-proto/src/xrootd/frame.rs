//! Cutting the stream of a connection into requests or responses, however the network cut it into segments.
//!
//! Received bytes are appended to the framer's own buffer ([`RequestFramer::buffer`], made for `read_buf`); requests
//! and responses share that memory. File data are not collected: the framer says how many bytes of them are next
//! ([`RequestFramer::bulk_remaining`]); the caller takes those that are buffered already
//! ([`RequestFramer::take_bulk`]), receives the others straight into the buffer they are meant for, and reports them
//! ([`RequestFramer::bulk_received`]). Only then does the next request come out.
//!
//! ```text
//! server:  handshake(), then: next() -> request -> bulk_remaining() bytes of data -> next() -> ...
//! client:  next() -> head of a response -> body(), or remaining() bytes of data -> next() -> ...
//! ```

use bytes::{Buf, Bytes, BytesMut};

use super::handshake::{HANDSHAKE, Sniff, sniff};
use super::request::{Checkpoint, Limits, Request, RequestHeader};
use super::response::{ResponseHeader, StatusBody};
use super::{DecodeError, RequestCode, Status};

/// Minimum growth of a buffer for a long message in bytes: it doubles as bytes arrive, independently of the length that
/// the peer announces.
const GROWTH_BYTES: usize = 64 << 10;

/// Buffered bytes, and how many of the next ones belong to no header.
#[derive(Debug, Default)]
struct Inlet {
    buffer: BytesMut,
    bulk_remaining: u64,
    /// The length of a message that has begun and is not all there.
    awaited_bytes: usize,
}

impl Inlet {
    /// The first `N` bytes, not consumed.
    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.buffer.first_chunk()
    }

    /// At most `limit` bytes of data that are buffered.
    fn take_bulk(&mut self, limit: usize) -> Bytes {
        let remaining = usize::try_from(self.bulk_remaining).unwrap_or(usize::MAX);
        let bulk = self.buffer.split_to(self.buffer.len().min(remaining).min(limit)).freeze();
        self.bulk_received(bulk.len() as u64);
        bulk
    }

    fn bulk_received(&mut self, length: u64) {
        self.bulk_remaining = self.bulk_remaining.saturating_sub(length);
    }

    /// After `skip` bytes of header, `length` bytes of body; consumes both once they are there.
    fn take_message(&mut self, skip: usize, length: usize) -> Option<Bytes> {
        let end = skip.saturating_add(length);
        if self.buffer.len() < end {
            let missing = end.saturating_sub(self.buffer.len());
            self.buffer.reserve(missing.min(self.buffer.len().max(GROWTH_BYTES)));
            self.awaited_bytes = end;
            return None;
        }
        self.awaited_bytes = 0;
        if length == 0 {
            // Most requests: leave the buffer unshared, so that its memory is used again.
            self.buffer.advance(skip);
            return Some(Bytes::new());
        }
        let mut message = self.buffer.split_to(end);
        Some(message.split_off(skip).freeze())
    }
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingRequest {
    /// Its header; the answer needs the stream id.
    pub header: RequestHeader,
    /// The request, or why it is refused: answer with [`DecodeError::code`], pass over its data, and go on.
    pub request: Result<Request, DecodeError>,
}

/// The server's side: bytes in, requests out.
#[derive(Debug)]
pub struct RequestFramer {
    inlet: Inlet,
    limits: Limits,
    handshaken: bool,
}

impl RequestFramer {
    /// A framer at the start of a connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { inlet: Inlet::default(), limits, handshaken: false }
    }

    /// From the next request on, lists may be of `bytes`: for a client that is known now.
    pub fn allow_lists(&mut self, bytes: u32) {
        self.limits.list_bytes = bytes;
    }

    /// Where received bytes are to be appended. Nothing may be taken out of it here.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.inlet.buffer
    }

    /// Consumes the handshake: `true` once it is complete, `false` while bytes are missing.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if the client does not speak this protocol.
    pub fn handshake(&mut self) -> Result<bool, DecodeError> {
        if self.handshaken {
            return Ok(true);
        }
        match sniff(&self.inlet.buffer) {
            Sniff::NeedMore => Ok(false),
            Sniff::Other => Err(DecodeError::Invalid { what: "handshake" }),
            Sniff::Handshake => {
                self.inlet.buffer.advance(HANDSHAKE.len());
                self.handshaken = true;
                Ok(true)
            }
        }
    }

    /// The next request, or `None` if bytes are missing: those of the handshake, of the request, or of the data of the
    /// previous request.
    ///
    /// # Errors
    /// The stream cannot be followed any further: a length is negative, or the amount of data that follows beyond
    /// `dlen` is not known or beyond the limits. Answer, if at all, and close the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first `None`")]
    pub fn next(&mut self) -> Result<Option<IncomingRequest>, DecodeError> {
        if !self.handshake()? || self.inlet.bulk_remaining > 0 {
            return Ok(None);
        }
        let Some(head) = self.inlet.head::<{ RequestHeader::LEN }>() else {
            return Ok(None);
        };
        let header = RequestHeader::decode(head)?;
        let length = match header.argument_len(&self.limits) {
            Ok(length) => length,
            // The argument is skipped; its length is known.
            Err(error) if !matches!(header.code, RequestCode::writev | RequestCode::chkpoint) => {
                self.inlet.buffer.advance(RequestHeader::LEN);
                self.inlet.bulk_remaining = header.own_bulk_len();
                return Ok(Some(IncomingRequest { header, request: Err(error) }));
            }
            Err(error) => return Err(error),
        };
        let Some(payload) = self.inlet.take_message(RequestHeader::LEN, length) else {
            return Ok(None);
        };
        let request = Request::decode(&header, payload);
        self.inlet.bulk_remaining = self.data_after(&header, &request)?;
        Ok(Some(IncomingRequest { header, request }))
    }

    /// How many bytes of data follow; known from the header alone but for the requests whose data lie beyond `dlen`.
    fn data_after(&self, header: &RequestHeader, request: &Result<Request, DecodeError>) -> Result<u64, DecodeError> {
        const UNKNOWN: DecodeError = DecodeError::Invalid { what: "amount of data after the request" };
        let bytes = match (header.code, request) {
            (RequestCode::write | RequestCode::pgwrite, _) => header.own_bulk_len(),
            (RequestCode::chkpoint, Ok(Request::Chkpoint(request))) => match &request.operation {
                // The length requires reading the vector first; clients do not send this to a server that rejects
                // `ckpBegin`.
                Checkpoint::Execute(nested) if nested.code == RequestCode::writev => return Err(UNKNOWN),
                _ => Request::Chkpoint(request.clone()).bulk_len(),
            },
            (RequestCode::writev, Ok(request)) => request.bulk_len(),
            (RequestCode::writev | RequestCode::chkpoint, Err(error)) => return Err(error.clone()),
            _ => 0,
        };
        let limit = self.limits.bulk_bytes;
        if bytes > limit { Err(DecodeError::TooLong { what: "data", bytes, limit }) } else { Ok(bytes) }
    }

    /// How long the request is that has begun and is not all there, without its data: what the buffer will hold. 0 if
    /// it is not known yet.
    #[must_use]
    pub fn awaited_bytes(&self) -> usize {
        self.inlet.awaited_bytes
    }

    /// Bytes of the last request's data that have been neither taken nor reported.
    #[must_use]
    pub fn bulk_remaining(&self) -> u64 {
        self.inlet.bulk_remaining
    }

    /// At most `limit` bytes of the last request's data, of those that are in the buffer; empty if none is.
    pub fn take_bulk(&mut self, limit: usize) -> Bytes {
        self.inlet.take_bulk(limit)
    }

    /// Reports that the caller received the next `length` bytes of data past the framer, whose buffer was empty.
    pub fn bulk_received(&mut self, length: u64) {
        self.inlet.bulk_received(length);
    }
}

/// The first part of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its header; the stream id identifies the request.
    pub header: ResponseHeader,
    /// For [`Status::status`] the body, verified: what remains are the data after it. Otherwise `None`: what remains is
    /// the body itself.
    pub status: Option<StatusBody>,
}

/// The client's side: bytes in, responses out.
///
/// After each [`ResponseHead`] the caller looks up the request by stream id and either waits for the whole
/// [`body`](Self::body) or takes file data as they arrive.
#[derive(Debug)]
pub struct ResponseFramer {
    inlet: Inlet,
    body_limit: usize,
}

impl ResponseFramer {
    /// Longest body of a [`Status::status`] response before its data, in bytes; pgread and pgwrite have 24.
    const STATUS_LIMIT: u32 = 4096;

    /// A framer at the start of a connection, which collects bodies of at most `body_limit` bytes. The answer to the
    /// handshake is a response like any other.
    #[must_use]
    pub fn new(body_limit: usize) -> Self {
        Self { inlet: Inlet::default(), body_limit }
    }

    /// Where received bytes are to be appended. Nothing may be taken out of it here.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.inlet.buffer
    }

    /// The head of the next response, or `None` if bytes are missing: those of the head, or of the previous response.
    ///
    /// # Errors
    /// The stream cannot be followed any further; close the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first `None`")]
    pub fn next(&mut self) -> Result<Option<ResponseHead>, DecodeError> {
        if self.inlet.bulk_remaining > 0 {
            return Ok(None);
        }
        let Some(head) = self.inlet.head::<{ ResponseHeader::LEN }>() else {
            return Ok(None);
        };
        let header = ResponseHeader::decode(head)?;
        if header.status != Status::status {
            self.inlet.buffer.advance(ResponseHeader::LEN);
            self.inlet.bulk_remaining = u64::from(header.dlen);
            return Ok(Some(ResponseHead { header, status: None }));
        }
        if header.dlen > Self::STATUS_LIMIT {
            let (bytes, limit) = (u64::from(header.dlen), u64::from(Self::STATUS_LIMIT));
            return Err(DecodeError::TooLong { what: "status response", bytes, limit });
        }
        let Some(body) = self.inlet.take_message(ResponseHeader::LEN, header.dlen as usize) else {
            return Ok(None);
        };
        let status = StatusBody::decode(header.stream_id, body)?;
        self.inlet.bulk_remaining = u64::from(status.data_len);
        Ok(Some(ResponseHead { header, status: Some(status) }))
    }

    /// Bytes of the last response that have been neither taken nor reported.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.inlet.bulk_remaining
    }

    /// All that remains of the last response, once it is there.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] if more remains than this framer collects; [`take`](Self::take) it in parts.
    pub fn body(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let remaining = self.inlet.bulk_remaining;
        let length = usize::try_from(remaining).unwrap_or(usize::MAX);
        if length > self.body_limit {
            return Err(DecodeError::TooLong { what: "response", bytes: remaining, limit: self.body_limit as u64 });
        }
        let body = self.inlet.take_message(0, length);
        if body.is_some() {
            self.inlet.bulk_remaining = 0;
        }
        Ok(body)
    }

    /// At most `limit` bytes of the last response, of those that are in the buffer; empty if none is.
    pub fn take(&mut self, limit: usize) -> Bytes {
        self.inlet.take_bulk(limit)
    }

    /// Reports that the caller received the next `length` bytes past the framer, whose buffer was empty.
    pub fn received(&mut self, length: u64) {
        self.inlet.bulk_received(length);
    }
}
