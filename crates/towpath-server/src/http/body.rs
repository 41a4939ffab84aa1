//! Response bodies: the source of their bytes ([`Content`]), and how they reach the connection ([`Reply`],
//! [`Piece`]).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures::{StreamExt as _, stream::BoxStream};
use hyper::body::{Body, Frame, SizeHint};
use towpath_store::{Error, Fault, Result};

use super::{
    account::Account,
    link::{Link, Reserved},
    watchdog::QueuedPiece,
    wire::{FileSpan, PLACEHOLDER, SpanQueue},
};

/// Bytes of a response, as produced by their source.
#[derive(Debug)]
pub(super) enum Chunk {
    /// In memory; the reservation is released when they are sent.
    Bytes(Bytes, Option<Reserved>),
    /// The last bytes of a response whose status was sent before its outcome was known, and the fault if it failed.
    Verdict(Bytes, Option<Fault>),
    /// In a file, to be sent by `sendfile`. Only for connections that [`Link::can_send_files`].
    File(FileSpan),
}

impl Chunk {
    fn length(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes, _) | Chunk::Verdict(bytes, _) => bytes.len() as u64,
            Chunk::File(span) => span.length,
        }
    }
}

/// The body of a response.
pub(super) enum Content {
    /// No body.
    Empty,
    /// The complete body.
    Whole(Bytes),
    /// Produced as the client reads it. The length, if known, must be exact.
    Stream(BoxStream<'static, Result<Chunk>>, Option<u64>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({:?} bytes)", self.length())
    }
}

impl Content {
    /// Creates a text body.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Content::Whole(Bytes::from(text.into()))
    }

    /// Returns the length in bytes, if known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Content::Empty => Some(0),
            Content::Whole(bytes) => Some(bytes.len() as u64),
            Content::Stream(_, length) => *length,
        }
    }
}

/// A body being sent: splits content into pieces for the connection. The last piece carries the request's account,
/// which closes when it has been written. (If the length is unknown, it closes when the connection has accepted
/// everything.)
#[derive(Debug)]
pub(super) struct Reply {
    content: Content,
    left: Option<u64>,
    link: Arc<Link>,
    account: Option<Account>,
}

impl Reply {
    /// Creates the body of the response of `account`.
    pub(super) fn new(content: Content, link: Arc<Link>, account: Account) -> Self {
        let left = content.length();
        let mut reply = Self { content, left, link, account: Some(account) };
        if left == Some(0) {
            reply.finish();
        }
        reply
    }

    fn finish(&mut self) {
        self.content = Content::Empty;
        if let Some(account) = self.account.take() {
            account.finish();
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk>>> {
        match &mut self.content {
            Content::Empty => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Chunk::Bytes(std::mem::take(bytes), None)))),
            Content::Stream(stream, _) => stream.poll_next_unpin(cx),
        }
    }
}

impl Body for Reply {
    type Data = Piece;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>>>> {
        let reply = self.as_mut().get_mut();
        match ready!(reply.poll_chunk(cx)) {
            Some(Ok(chunk)) => {
                let length = chunk.length();
                if let Some(account) = &mut reply.account {
                    account.sent(length);
                    if let Chunk::Verdict(_, Some(fault)) = &chunk {
                        account.set_fault(*fault);
                    }
                }
                let mut piece = Piece::new(chunk, &reply.link);
                reply.left = reply.left.map(|left| left.saturating_sub(length));
                if reply.left == Some(0) {
                    reply.content = Content::Empty;
                    piece.account = reply.account.take();
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "response aborted: reading its content failed");
                if let Some(account) = reply.account.take() {
                    account.fail(error.fault());
                }
                reply.content = Content::Empty;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                reply.finish();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Bytes for hyper to write.
#[derive(Debug)]
pub(super) struct Piece {
    data: Data,
    /// The account of the response, in its last piece.
    account: Option<Account>,
    queued: QueuedPiece,
    reserved: Option<Reserved>,
}

#[derive(Debug)]
enum Data {
    Bytes(Bytes),
    /// A span in the connection's queue, represented by its remaining length.
    Span(usize, Arc<SpanQueue>),
}

impl Piece {
    fn new(chunk: Chunk, link: &Link) -> Self {
        let queued = link.watchdog.queue_piece();
        let (data, reserved) = match chunk {
            Chunk::Bytes(bytes, reserved) => (Data::Bytes(bytes), reserved),
            Chunk::Verdict(bytes, _) => (Data::Bytes(bytes), None),
            Chunk::File(span) => {
                let length = usize::try_from(span.length).unwrap_or(usize::MAX);
                link.span_queue.push(span);
                (Data::Span(length, Arc::clone(&link.span_queue)), None)
            }
        };
        Self { data, account: None, queued, reserved }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match &self.data {
            Data::Bytes(bytes) => bytes.len(),
            Data::Span(left, _) => *left,
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.data {
            Data::Bytes(bytes) => bytes,
            Data::Span(left, _) => PLACEHOLDER.get(..*left).unwrap_or(&PLACEHOLDER),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.data {
            Data::Bytes(bytes) => bytes.advance(count),
            Data::Span(left, span_queue) => {
                *left = left.saturating_sub(count);
                span_queue.record_consumed(count as u64);
            }
        }
        if self.remaining() == 0
            && let Some(account) = self.account.take()
        {
            account.finish();
        }
        self.queued.record_progress();
        if let Some(reserved) = &self.reserved {
            reserved.record_progress(count);
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Data::Span(1.., span_queue) = &self.data {
            span_queue.record_dropped();
        }
    }
}
