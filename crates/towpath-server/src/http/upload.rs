//! Receives upload bodies: from the connection into a write handle, overlapping network and disk.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use towpath_proto::checksum::{Agreement, Algorithms, Digests, Hasher};
use towpath_store::{Fault, Result, WriteHandle};

use super::{
    connection_state::{ChunkMemoryPermit, Claim},
    exchange::Exchange,
    refusal::Refusal,
};
use crate::config::Limits;

/// Maximum number of bytes waiting for the store while more are received.
const MAX_WAITING_BYTES: usize = 1 << 20;

/// Pieces shorter than this are joined with their successors before writing, in bytes: a store call costs as much as
/// copying them.
const SHORT_BYTES: usize = 128 << 10;

/// Maximum number of bytes read from an unwanted body, so that its sender can read the response before the connection
/// ends.
const MAX_DISCARDED_BYTES: u64 = 16 << 20;

/// Maximum size of a request body that is not an upload (XML, JSON), in bytes.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Returns the next bytes of a body; `None` at its end.
pub(super) async fn next(body: &mut Incoming, limits: &Limits) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = timeout(limits.stall.0, body.frame())
            .await
            .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout: no data of the body received"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))
                    .of(Fault::Truncated));
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                // Trailers are ignored.
                _ => {}
            },
        }
    }
}

/// Whether a body is announced as empty. Do not wait for its end: curl 7.88 sends none over HTTP/2 when it only
/// probes for a challenge.
pub(super) fn is_declared_empty(body: &Incoming) -> bool {
    body.size_hint().exact() == Some(0)
}

/// Reads a short body completely.
pub(super) async fn text(exchange: &Exchange, mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut text = Vec::new();
    if is_declared_empty(&body) {
        return Ok(text);
    }
    let limits = &exchange.service.limits;
    let claim = exchange.claim();
    let receiving = async {
        // Reserves memory for the received bytes, doubling each time; the client holds it until it has sent the rest.
        let mut reserved: Vec<ChunkMemoryPermit> = Vec::new();
        let mut reserved_bytes = 0;
        while let Some(bytes) = next(&mut body, limits).await? {
            if text.len() + bytes.len() > MAX_TEXT_BYTES {
                let message = format!("the body is longer than {MAX_TEXT_BYTES} bytes");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            if let Some(reserved) = reserved.last() {
                reserved.record_progress(bytes.len());
            }
            let missing = (text.len() + bytes.len()).saturating_sub(reserved_bytes);
            if missing > 0 {
                let more = missing.max(reserved_bytes);
                reserved.push(claim.await_client(claim.reserve(more).await));
                reserved_bytes += more;
            }
            text.extend_from_slice(&bytes);
        }
        Ok(())
    };
    let too_slow = || Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout while receiving the body");
    timeout(limits.stall.0, receiving).await.map_err(|_| too_slow())??;
    Ok(text)
}

/// Reads a part of an unwanted body, unless its client waits for `100 Continue`, which reading would send.
pub(super) async fn discard(headers: &HeaderMap, mut body: Incoming, limits: &Limits) {
    if headers.contains_key(header::EXPECT) || is_declared_empty(&body) {
        return;
    }
    let mut discarded = 0;
    while discarded < MAX_DISCARDED_BYTES {
        match next(&mut body, limits).await {
            Ok(Some(bytes)) => discarded += bytes.len() as u64,
            _ => return,
        }
    }
}

/// The promised properties of a body.
#[derive(Debug, Default)]
pub(super) struct BodyExpectation {
    /// The exact length.
    pub(super) length: Option<u64>,
    /// The digests.
    pub(super) digests: Digests,
}

/// Receives a body into a write handle.
pub(super) struct BodyReceiver<'a> {
    exchange: &'a Exchange,
    claim: Claim,
    handle: &'a dyn WriteHandle,
    start: u64,
    received: u64,
    waiting: VecDeque<(Bytes, ChunkMemoryPermit)>,
    waiting_bytes: usize,
    written: u64,
    hasher: Hasher,
}

/// A body being read: returns the body and its next bytes with their reserved memory.
type ReceiveFuture<'a> = BoxFuture<'a, (Incoming, Result<Option<(Bytes, ChunkMemoryPermit)>, Refusal>)>;

/// Bytes being written: their number and the outcome.
type WriteFuture<'a> = BoxFuture<'a, (u64, Result<()>)>;

/// Waits for the operation in flight; returns `None` immediately if there is none.
async fn await_optional<T>(future: Option<&mut BoxFuture<'_, T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}

impl<'a> BodyReceiver<'a> {
    /// Creates an intake that writes from offset `start`.
    pub(super) fn new(
        exchange: &'a Exchange,
        handle: &'a dyn WriteHandle,
        start: u64,
        expectation: &BodyExpectation,
    ) -> Self {
        Self {
            exchange,
            claim: exchange.claim(),
            handle,
            start,
            received: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            written: 0,
            hasher: Hasher::new(expectation.digests.algorithms()),
        }
    }

    /// Returns the number of contiguous bytes written from the start.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Receives the whole body, verifies it, and returns its length.
    pub(super) async fn take(&mut self, body: Incoming, expectation: &BodyExpectation) -> Result<u64, Refusal> {
        let mut body = Some(body);
        let mut receiving: Option<ReceiveFuture<'a>> = None;
        let mut writing: Option<WriteFuture<'a>> = None;
        let mut broken = None;
        loop {
            if receiving.is_none() && self.waiting_bytes < MAX_WAITING_BYTES {
                receiving = body.take().map(|body| self.receive(body));
            }
            if writing.is_none() && !self.waiting.is_empty() {
                writing = Some(self.write_next());
            }
            if receiving.is_none() && writing.is_none() {
                break;
            }
            // Both futures are polled: a receiver waiting for memory must not block the writer that releases it.
            tokio::select! {
                Some((rest, bytes)) = await_optional(receiving.as_mut()) => {
                    receiving = None;
                    match bytes {
                        Ok(Some((bytes, reserved))) => {
                            self.received(bytes, reserved, expectation)?;
                            body = Some(rest);
                        }
                        Ok(None) => {}
                        // Earlier bytes are still written: a multipart upload resumes after them.
                        Err(refusal) => broken = Some(refusal),
                    }
                }
                Some((length, outcome)) = await_optional(writing.as_mut()) => {
                    writing = None;
                    outcome?;
                    self.written += length;
                }
            }
        }
        if let Some(refusal) = broken {
            return Err(refusal);
        }
        self.check(expectation)?;
        Ok(self.received)
    }

    fn receive(&self, mut body: Incoming) -> ReceiveFuture<'a> {
        let (exchange, claim) = (self.exchange, self.claim.clone());
        Box::pin(async move {
            let bytes = match next(&mut body, &exchange.service.limits).await {
                Ok(Some(bytes)) => {
                    let reserved = claim.reserve(bytes.len()).await;
                    Ok(Some((bytes, reserved)))
                }
                Ok(None) => Ok(None),
                Err(refusal) => Err(refusal),
            };
            (body, bytes)
        })
    }

    fn received(
        &mut self,
        bytes: Bytes,
        reserved: ChunkMemoryPermit,
        expectation: &BodyExpectation,
    ) -> Result<(), Refusal> {
        self.received += bytes.len() as u64;
        self.exchange.received(bytes.len() as u64);
        if expectation.length.is_some_and(|length| self.received > length) {
            return Err(Refusal::bad_request("the body is longer than its Content-Range"));
        }
        self.hasher.update(&bytes);
        self.waiting_bytes += bytes.len();
        self.waiting.push_back((bytes, reserved));
        Ok(())
    }

    /// Starts writing the queued bytes, or the first long piece of them.
    fn write_next(&mut self) -> WriteFuture<'a> {
        let mut pieces = Vec::new();
        let mut length = 0;
        while let Some((bytes, _)) = self.waiting.front()
            && (pieces.is_empty() || length + bytes.len() <= MAX_WAITING_BYTES)
            && length < SHORT_BYTES
        {
            length += bytes.len();
            pieces.extend(self.waiting.pop_front());
        }
        self.waiting_bytes -= length;
        let offset = self.start + self.written;
        let handle = self.handle;
        Box::pin(async move {
            let (data, _reserved) = join(pieces, length);
            (length as u64, handle.write(offset, data).await)
        })
    }

    fn check(&mut self, expectation: &BodyExpectation) -> Result<(), Refusal> {
        if expectation.length.is_some_and(|length| self.received < length) {
            return Err(Refusal::bad_request("the body is shorter than its Content-Range").of(Fault::Truncated));
        }
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(Algorithms::NONE));
        if let Agreement::Different(algorithm) = hasher.finish().compare(&expectation.digests) {
            let text = format!("the {algorithm} of the body does not match its header: it was damaged in transit");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text).of(Fault::ChecksumMismatch));
        }
        Ok(())
    }
}

/// Joins the pieces, with their reserved memory.
fn join(pieces: Vec<(Bytes, ChunkMemoryPermit)>, length: usize) -> (Bytes, Vec<ChunkMemoryPermit>) {
    let (mut bytes, reserved): (Vec<Bytes>, Vec<ChunkMemoryPermit>) = pieces.into_iter().unzip();
    if bytes.len() == 1 {
        return (bytes.remove(0), reserved);
    }
    let mut joined = BytesMut::with_capacity(length);
    bytes.iter().for_each(|piece| joined.extend_from_slice(piece));
    (joined.freeze(), reserved)
}
