//! Framing: splits the byte stream of a connection into requests or responses, independently of network segmentation.
//!
//! Received bytes are appended to the framer's own buffer ([`RequestFramer::buffer`], intended for `read_buf`);
//! requests and responses share that memory. File data are not collected: the framer returns the number of data bytes
//! that follow ([`RequestFramer::bulk_remaining`]). The caller takes those that are already buffered
//! ([`RequestFramer::take_bulk`]), receives the others directly into their target buffer, and reports them
//! ([`RequestFramer::bulk_received`]). Only then does the framer return the next request.
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

/// Buffered bytes, and the number of following bytes that do not belong to a header.
#[derive(Debug, Default)]
struct ReceiveBuffer {
    buffer: BytesMut,
    bulk_remaining: u64,
    /// Length of an incomplete message.
    awaited_bytes: usize,
}

impl ReceiveBuffer {
    /// Returns the first `N` bytes without consuming them.
    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.buffer.first_chunk()
    }

    /// Takes at most `limit` buffered bytes of data.
    fn take_bulk(&mut self, limit: usize) -> Bytes {
        let remaining = usize::try_from(self.bulk_remaining).unwrap_or(usize::MAX);
        let bulk = self.buffer.split_to(self.buffer.len().min(remaining).min(limit)).freeze();
        self.bulk_received(bulk.len() as u64);
        bulk
    }

    fn bulk_received(&mut self, length: u64) {
        self.bulk_remaining = self.bulk_remaining.saturating_sub(length);
    }

    /// Consumes `skip` bytes of header and `length` bytes of body, and returns the body, once both are complete.
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
            // Common case: keep the buffer unshared, so that its memory is reused.
            self.buffer.advance(skip);
            return Some(Bytes::new());
        }
        let mut message = self.buffer.split_to(end);
        Some(message.split_off(skip).freeze())
    }
}

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingRequest {
    /// Its header; the response needs the stream id.
    pub header: RequestHeader,
    /// The request, or the decoding error: respond with [`DecodeError::code`], skip its data, and continue.
    pub request: Result<Request, DecodeError>,
}

/// Server side: splits received bytes into requests.
#[derive(Debug)]
pub struct RequestFramer {
    input: ReceiveBuffer,
    limits: Limits,
    handshaken: bool,
}

impl RequestFramer {
    /// Creates a framer for the start of a connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { input: ReceiveBuffer::default(), limits, handshaken: false }
    }

    /// Sets the limit for lists to `bytes` from the next request on, for a client that is now authenticated.
    pub fn allow_lists(&mut self, bytes: u32) {
        self.limits.list_bytes = bytes;
    }

    /// Returns the buffer to append received bytes to. Do not remove bytes from it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.input.buffer
    }

    /// Consumes the handshake: `true` once it is complete, `false` while bytes are missing.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if the client does not speak this protocol.
    pub fn handshake(&mut self) -> Result<bool, DecodeError> {
        if self.handshaken {
            return Ok(true);
        }
        match sniff(&self.input.buffer) {
            Sniff::NeedMore => Ok(false),
            Sniff::Other => Err(DecodeError::Invalid { what: "handshake" }),
            Sniff::Handshake => {
                self.input.buffer.advance(HANDSHAKE.len());
                self.handshaken = true;
                Ok(true)
            }
        }
    }

    /// Returns the next request, or `None` if bytes are missing: those of the handshake, of the request, or of the data
    /// of the previous request.
    ///
    /// # Errors
    /// The stream cannot be parsed any further: a length is negative, or the amount of data beyond `dlen` is unknown or
    /// exceeds the limits. The caller may respond and must close the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first `None`")]
    pub fn next(&mut self) -> Result<Option<IncomingRequest>, DecodeError> {
        if !self.handshake()? || self.input.bulk_remaining > 0 {
            return Ok(None);
        }
        let Some(head) = self.input.head::<{ RequestHeader::LEN }>() else {
            return Ok(None);
        };
        let header = RequestHeader::decode(head)?;
        let length = match header.argument_len(&self.limits) {
            Ok(length) => length,
            // The argument is skipped; its length is known.
            Err(error) if !matches!(header.code, RequestCode::writev | RequestCode::chkpoint) => {
                self.input.buffer.advance(RequestHeader::LEN);
                self.input.bulk_remaining = header.own_bulk_len();
                return Ok(Some(IncomingRequest { header, request: Err(error) }));
            }
            Err(error) => return Err(error),
        };
        let Some(payload) = self.input.take_message(RequestHeader::LEN, length) else {
            return Ok(None);
        };
        let request = Request::decode(&header, payload);
        self.input.bulk_remaining = self.data_after(&header, &request)?;
        Ok(Some(IncomingRequest { header, request }))
    }

    /// Returns the number of data bytes that follow. The header alone determines it, except for requests with data
    /// beyond `dlen`.
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

    /// Returns the length of the incomplete request, without its data: the number of bytes that the buffer will hold. 0
    /// if it is not known yet.
    #[must_use]
    pub fn awaited_bytes(&self) -> usize {
        self.input.awaited_bytes
    }

    /// Returns the number of bytes of the last request's data that were neither taken nor reported.
    #[must_use]
    pub fn bulk_remaining(&self) -> u64 {
        self.input.bulk_remaining
    }

    /// Takes at most `limit` buffered bytes of the last request's data; empty if none are buffered.
    pub fn take_bulk(&mut self, limit: usize) -> Bytes {
        self.input.take_bulk(limit)
    }

    /// Records that the caller received the next `length` bytes of data directly, while the framer's buffer was empty.
    pub fn bulk_received(&mut self, length: u64) {
        self.input.bulk_received(length);
    }
}

/// The beginning of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its header; the stream id identifies the request.
    pub header: ResponseHeader,
    /// The verified body of a [`Status::status`] response; the remaining bytes are the data after it. Otherwise `None`:
    /// the remaining bytes are the body itself.
    pub status: Option<StatusBody>,
}

/// Client side: splits received bytes into responses.
///
/// After each [`ResponseHead`] the caller looks up the request by stream id and either waits for the whole
/// [`body`](Self::body) or takes file data as they arrive.
#[derive(Debug)]
pub struct ResponseFramer {
    input: ReceiveBuffer,
    body_limit: usize,
}

impl ResponseFramer {
    /// Maximum length of the body of a [`Status::status`] response before its data, in bytes; pgread and pgwrite have
    /// 24.
    const STATUS_LIMIT: u32 = 4096;

    /// Creates a framer for the start of a connection, which collects bodies of at most `body_limit` bytes. The
    /// response to the handshake is framed like any other.
    #[must_use]
    pub fn new(body_limit: usize) -> Self {
        Self { input: ReceiveBuffer::default(), body_limit }
    }

    /// Returns the buffer to append received bytes to. Do not remove bytes from it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.input.buffer
    }

    /// Returns the head of the next response, or `None` if bytes are missing: those of the head, or of the previous
    /// response.
    ///
    /// # Errors
    /// The stream cannot be parsed any further; the caller must close the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first `None`")]
    pub fn next(&mut self) -> Result<Option<ResponseHead>, DecodeError> {
        if self.input.bulk_remaining > 0 {
            return Ok(None);
        }
        let Some(head) = self.input.head::<{ ResponseHeader::LEN }>() else {
            return Ok(None);
        };
        let header = ResponseHeader::decode(head)?;
        if header.status != Status::status {
            self.input.buffer.advance(ResponseHeader::LEN);
            self.input.bulk_remaining = u64::from(header.dlen);
            return Ok(Some(ResponseHead { header, status: None }));
        }
        if header.dlen > Self::STATUS_LIMIT {
            let (bytes, limit) = (u64::from(header.dlen), u64::from(Self::STATUS_LIMIT));
            return Err(DecodeError::TooLong { what: "status response", bytes, limit });
        }
        let Some(body) = self.input.take_message(ResponseHeader::LEN, header.dlen as usize) else {
            return Ok(None);
        };
        let status = StatusBody::decode(header.stream_id, body)?;
        self.input.bulk_remaining = u64::from(status.data_len);
        Ok(Some(ResponseHead { header, status: Some(status) }))
    }

    /// Returns the number of bytes of the last response that were neither taken nor reported.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.input.bulk_remaining
    }

    /// Returns the rest of the last response once it is complete.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] if the rest is longer than this framer collects; [`take`](Self::take) it in parts.
    pub fn body(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let remaining = self.input.bulk_remaining;
        let length = usize::try_from(remaining).unwrap_or(usize::MAX);
        if length > self.body_limit {
            return Err(DecodeError::TooLong { what: "response", bytes: remaining, limit: self.body_limit as u64 });
        }
        let body = self.input.take_message(0, length);
        if body.is_some() {
            self.input.bulk_remaining = 0;
        }
        Ok(body)
    }

    /// Takes at most `limit` buffered bytes of the last response; empty if none are buffered.
    pub fn take(&mut self, limit: usize) -> Bytes {
        self.input.take_bulk(limit)
    }

    /// Records that the caller received the next `length` bytes directly, while the framer's buffer was empty.
    pub fn received(&mut self, length: u64) {
        self.input.bulk_received(length);
    }
}
