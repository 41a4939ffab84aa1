//! Response bodies: the source of their bytes ([`Content`]), and how they reach the connection ([`ResponseBody`],
//! [`DataFrame`]).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures::{FutureExt as _, StreamExt as _, future, stream::BoxStream};
use hyper::body::{Body, Frame, SizeHint};
use towpath_store::{Error, Fault, Result};

use super::{
    connection_io::{FileSpan, PLACEHOLDER, SpanQueue},
    connection_state::{ChunkMemoryPermit, ConnectionState},
    request_tracker::RequestTracker,
    watchdog::QueuedFrame,
};

/// Bytes of a response, as produced by their source.
#[derive(Debug)]
pub(super) enum Chunk {
    /// In memory; the reservation is released when they are sent.
    Bytes(Bytes, Option<ChunkMemoryPermit>),
    /// The last bytes of a response whose status was sent before its outcome was known, and the fault if it failed.
    Outcome(Bytes, Option<Fault>),
    /// In a file, to be sent by `sendfile`. Only for connections that [`ConnectionState::can_send_files`].
    File(FileSpan),
}

impl Chunk {
    fn length(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes, _) | Chunk::Outcome(bytes, _) => bytes.len() as u64,
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

    /// Creates a complete body, whose memory is released when it is sent.
    pub(super) fn reserved(bytes: Bytes, reserved: ChunkMemoryPermit) -> Self {
        let length = bytes.len() as u64;
        let chunk = future::ready(Ok(Chunk::Bytes(bytes, Some(reserved))));
        if length == 0 { Content::Empty } else { Content::Stream(chunk.into_stream().boxed(), Some(length)) }
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

/// A body being sent: splits content into pieces for the connection. The last piece carries the request's tracker,
/// which closes when it has been written. (If the length is unknown, it closes when the connection has accepted
/// everything.)
#[derive(Debug)]
pub(super) struct ResponseBody {
    content: Content,
    left: Option<u64>,
    connection: Arc<ConnectionState>,
    tracker: Option<RequestTracker>,
}

impl ResponseBody {
    /// Creates the body of the response of `tracker`.
    pub(super) fn new(content: Content, connection: Arc<ConnectionState>, tracker: RequestTracker) -> Self {
        let left = content.length();
        let mut reply = Self { content, left, connection, tracker: Some(tracker) };
        if left == Some(0) {
            reply.finish();
        }
        reply
    }

    fn finish(&mut self) {
        self.content = Content::Empty;
        if let Some(tracker) = self.tracker.take() {
            tracker.finish();
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

impl Body for ResponseBody {
    type Data = DataFrame;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<DataFrame>>>> {
        let reply = self.as_mut().get_mut();
        match ready!(reply.poll_chunk(cx)) {
            Some(Ok(chunk)) => {
                let length = chunk.length();
                if let Some(tracker) = &mut reply.tracker {
                    tracker.sent(length);
                    if let Chunk::Outcome(_, Some(fault)) = &chunk {
                        tracker.set_fault(*fault);
                    }
                }
                let mut piece = DataFrame::new(chunk, &reply.connection);
                reply.left = reply.left.map(|left| left.saturating_sub(length));
                if reply.left == Some(0) {
                    reply.content = Content::Empty;
                    piece.tracker = reply.tracker.take();
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "response aborted: reading its content failed");
                if let Some(tracker) = reply.tracker.take() {
                    tracker.fail(error.fault());
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
pub(super) struct DataFrame {
    data: Data,
    /// The tracker of the request, in the last frame of its response.
    tracker: Option<RequestTracker>,
    queued: QueuedFrame,
    reserved: Option<ChunkMemoryPermit>,
}

#[derive(Debug)]
enum Data {
    Bytes(Bytes),
    /// A span in the connection's queue, represented by its remaining length.
    Span(usize, Arc<SpanQueue>),
}

impl DataFrame {
    fn new(chunk: Chunk, connection: &ConnectionState) -> Self {
        let queued = connection.watchdog.queue_frame();
        let (data, reserved) = match chunk {
            Chunk::Bytes(bytes, reserved) => (Data::Bytes(bytes), reserved),
            Chunk::Outcome(bytes, _) => (Data::Bytes(bytes), None),
            Chunk::File(span) => {
                let length = usize::try_from(span.length).unwrap_or(usize::MAX);
                connection.span_queue.push(span);
                (Data::Span(length, Arc::clone(&connection.span_queue)), None)
            }
        };
        Self { data, tracker: None, queued, reserved }
    }
}

impl Buf for DataFrame {
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
            && let Some(tracker) = self.tracker.take()
        {
            tracker.finish();
        }
        self.queued.record_progress();
        if let Some(reserved) = &self.reserved {
            reserved.record_progress(count);
        }
    }
}

impl Drop for DataFrame {
    fn drop(&mut self) {
        if let Data::Span(1.., span_queue) = &self.data {
            span_queue.record_dropped();
        }
    }
}
