//! Taking the body of an upload: from the connection into a write handle, receiving and writing at the same time.

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
    exchange::Exchange,
    link::{Claim, Reserved},
    refusal::Refusal,
};
use crate::config::Limits;

/// What may wait for the store while the next bytes come in.
const WAITING_BYTES: usize = 1 << 20;

/// Pieces shorter than this are written together with their successors: a call of the store costs as much as copying them.
const SHORT_BYTES: usize = 128 << 10;

/// What is read of a body that nobody wants, so that its sender gets to read the answer before the connection ends.
const DISCARDED_BYTES: u64 = 16 << 20;

/// The longest body of a request that is no upload (XML, JSON).
const TEXT_BYTES: usize = 256 << 10;

/// The next bytes of a body; none at its end.
pub(super) async fn next(body: &mut Incoming, limits: &Limits) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = timeout(limits.stall.0, body.frame())
            .await
            .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "no byte of the body came for too long"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(
                    Refusal::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}")).of(Fault::Truncated)
                );
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                // Trailers mean nothing here.
                _ => {}
            },
        }
    }
}

/// Whether a body is told to be empty. Nobody waits for its end: curl 7.88 sends none over HTTP/2 where it only asks for a challenge.
fn is_told_empty(body: &Incoming) -> bool {
    body.size_hint().exact() == Some(0)
}

/// Reads a short body whole.
pub(super) async fn text(exchange: &Exchange, mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut text = Vec::new();
    if is_told_empty(&body) {
        return Ok(text);
    }
    let limits = &exchange.service.limits;
    let claim = exchange.claim();
    let receiving = async {
        // For what has come, and twice as much again each time; the client keeps it until it has sent the rest.
        let mut reserved: Vec<Reserved> = Vec::new();
        let mut reserved_bytes = 0;
        while let Some(bytes) = next(&mut body, limits).await? {
            if text.len() + bytes.len() > TEXT_BYTES {
                let message = format!("the body is longer than {TEXT_BYTES} bytes");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            if let Some(reserved) = reserved.last() {
                reserved.moved(bytes.len());
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
    let too_slow = || Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    timeout(limits.stall.0, receiving).await.map_err(|_| too_slow())??;
    Ok(text)
}

/// Reads a little of a body that nobody wants; not of one that waits for `100 Continue`, and would be invited by that.
pub(super) async fn discard(headers: &HeaderMap, mut body: Incoming, limits: &Limits) {
    if headers.contains_key(header::EXPECT) || is_told_empty(&body) {
        return;
    }
    let mut discarded = 0;
    while discarded < DISCARDED_BYTES {
        match next(&mut body, limits).await {
            Ok(Some(bytes)) => discarded += bytes.len() as u64,
            _ => return,
        }
    }
}

/// What a body must be.
#[derive(Debug, Default)]
pub(super) struct Promise {
    /// Its exact length.
    pub(super) length: Option<u64>,
    /// Its digests.
    pub(super) digests: Digests,
}

/// Takes a body into a write handle.
pub(super) struct Intake<'a> {
    exchange: &'a Exchange,
    claim: Claim,
    handle: &'a dyn WriteHandle,
    start: u64,
    received: u64,
    waiting: VecDeque<(Bytes, Reserved)>,
    waiting_bytes: usize,
    written: u64,
    hasher: Hasher,
}

/// A body being read: the body back, and its next bytes with the memory reserved for them.
type Receiving<'a> = BoxFuture<'a, (Incoming, Result<Option<(Bytes, Reserved)>, Refusal>)>;

/// Bytes being written: their number, and whether that succeeded.
type Writing<'a> = BoxFuture<'a, (u64, Result<()>)>;

/// The outcome of what is under way; none at once if nothing is.
async fn under_way<T>(future: Option<&mut BoxFuture<'_, T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}

impl<'a> Intake<'a> {
    /// An intake that writes from `start` on.
    pub(super) fn new(exchange: &'a Exchange, handle: &'a dyn WriteHandle, start: u64, promise: &Promise) -> Self {
        Self {
            exchange,
            claim: exchange.claim(),
            handle,
            start,
            received: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            written: 0,
            hasher: Hasher::new(promise.digests.algorithms()),
        }
    }

    /// How many bytes are in the handle, from the start on without gap.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Takes the body to its end, which must be as promised; its length.
    pub(super) async fn take(&mut self, body: Incoming, promise: &Promise) -> Result<u64, Refusal> {
        let mut body = Some(body);
        let mut receiving: Option<Receiving<'a>> = None;
        let mut writing: Option<Writing<'a>> = None;
        let mut broken = None;
        loop {
            if receiving.is_none() && self.waiting_bytes < WAITING_BYTES {
                receiving = body.take().map(|body| self.receive(body));
            }
            if writing.is_none() && !self.waiting.is_empty() {
                writing = Some(self.write_next());
            }
            if receiving.is_none() && writing.is_none() {
                break;
            }
            // Both are polled to their end: one that waits for memory must not keep the other from giving its back.
            tokio::select! {
                Some((rest, bytes)) = under_way(receiving.as_mut()) => {
                    receiving = None;
                    match bytes {
                        Ok(Some((bytes, reserved))) => {
                            self.received(bytes, reserved, promise)?;
                            body = Some(rest);
                        }
                        Ok(None) => {}
                        // What came before is still written: an upload in pieces goes on from there.
                        Err(refusal) => broken = Some(refusal),
                    }
                }
                Some((length, outcome)) = under_way(writing.as_mut()) => {
                    writing = None;
                    outcome?;
                    self.written += length;
                }
            }
        }
        if let Some(refusal) = broken {
            return Err(refusal);
        }
        self.check(promise)?;
        Ok(self.received)
    }

    fn receive(&self, mut body: Incoming) -> Receiving<'a> {
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

    fn received(&mut self, bytes: Bytes, reserved: Reserved, promise: &Promise) -> Result<(), Refusal> {
        self.received += bytes.len() as u64;
        self.exchange.received(bytes.len() as u64);
        if promise.length.is_some_and(|length| self.received > length) {
            return Err(Refusal::bad_request("the body is longer than its Content-Range"));
        }
        self.hasher.update(&bytes);
        self.waiting_bytes += bytes.len();
        self.waiting.push_back((bytes, reserved));
        Ok(())
    }

    /// Starts to write what waits, or the first long piece of it.
    fn write_next(&mut self) -> Writing<'a> {
        let mut pieces = Vec::new();
        let mut length = 0;
        while let Some((bytes, _)) = self.waiting.front()
            && (pieces.is_empty() || length + bytes.len() <= WAITING_BYTES)
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

    fn check(&mut self, promise: &Promise) -> Result<(), Refusal> {
        if promise.length.is_some_and(|length| self.received < length) {
            return Err(Refusal::bad_request("the body is shorter than its Content-Range").of(Fault::Truncated));
        }
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(Algorithms::NONE));
        if let Agreement::Different(algorithm) = hasher.finish().compare(&promise.digests) {
            let text = format!("the {algorithm} of the body is not what its header says: it was damaged on the way");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text).of(Fault::ChecksumMismatch));
        }
        Ok(())
    }
}

/// The pieces in one, with the memory reserved for them.
fn join(pieces: Vec<(Bytes, Reserved)>, length: usize) -> (Bytes, Vec<Reserved>) {
    let (mut bytes, reserved): (Vec<Bytes>, Vec<Reserved>) = pieces.into_iter().unzip();
    if bytes.len() == 1 {
        return (bytes.remove(0), reserved);
    }
    let mut joined = BytesMut::with_capacity(length);
    bytes.iter().for_each(|piece| joined.extend_from_slice(piece));
    (joined.freeze(), reserved)
}
