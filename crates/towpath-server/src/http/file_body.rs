//! Ranges of a file as a response body: sent by `sendfile` if the file is local and cached and the connection is
//! plain; otherwise read one piece ahead, so that disk and network work in parallel.

use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, Stream, future::BoxFuture};
use towpath_store::{ByteRange, Error, Fault, Preparation, ReadHandle, Result};

use super::{
    body::Chunk,
    connection_io::FileSpan,
    connection_state::{ChunkMemoryPermit, Claim},
};
use crate::fair_pool::Lease;

/// Size of one read, in bytes. A response holds twice this in memory; both fit into a processor's second-level cache
/// until they are sent.
pub(super) const READ_BYTES: u64 = 256 << 10;

/// Size of one span, in bytes. The file's version is compared before the last byte of each.
const SPAN_BYTES: u64 = 4 << 20;

/// Minimum size of a span, in bytes. Shorter ones are copied, so that header and data leave in one segment.
const MIN_SPAN_BYTES: u64 = 64 << 10;

/// Size of one `read_now`, in bytes; the store declines longer ones.
const READ_NOW_BYTES: usize = 64 << 10;

/// Number of pieces read ahead while another one is sent.
const MAX_PIECES_AHEAD: usize = 2;

/// A part of a response body, in order.
#[derive(Debug)]
pub(super) enum Segment {
    /// Text between ranges.
    Text(String),
    /// A range of the file.
    Part(Range<u64>),
}

/// A response body of file ranges.
pub(super) struct FileBody {
    handle: Arc<dyn ReadHandle>,
    /// The lease of the open file.
    lease: Arc<Lease>,
    claim: Claim,
    segments: VecDeque<Segment>,
    preparation: Option<Arc<dyn Preparation>>,
    can_send_files: bool,
    pieces: VecDeque<ChunkRead>,
}

enum ChunkRead {
    Reading(BoxFuture<'static, Result<Chunk>>),
    Done(Result<Chunk>),
}

impl FileBody {
    /// Creates a body of segments of the file opened as `handle`.
    pub(super) fn new(
        handle: Arc<dyn ReadHandle>,
        lease: Arc<Lease>,
        claim: Claim,
        version: http::Version,
        segments: Vec<Segment>,
    ) -> Self {
        let can_send_files = claim.connection().can_send_files(version);
        let preparation = prepare(&*handle, &segments);
        Self { handle, lease, claim, segments: segments.into(), preparation, can_send_files, pieces: VecDeque::new() }
    }

    /// Waits until the first piece is near, so that a failure of an origin can still become the status.
    pub(super) fn first_ready(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let first = self.segments.iter().find_map(|segment| match segment {
            Segment::Part(range) => Some(range.start..range.end.min(range.start + READ_BYTES)),
            Segment::Text(_) => None,
        });
        let preparation = self.preparation.clone();
        async move {
            match (preparation, first) {
                (Some(preparation), Some(range)) => preparation.ready(byte_range(&range)).await,
                _ => Ok(()),
            }
        }
    }

    /// Starts the next piece; `None` at the end.
    fn next_piece(&mut self) -> Option<ChunkRead> {
        match self.segments.front_mut()? {
            Segment::Text(text) => {
                let text = std::mem::take(text);
                self.segments.pop_front();
                Some(ChunkRead::Done(Ok(Chunk::Bytes(Bytes::from(text), None))))
            }
            Segment::Part(rest) => {
                let whole = rest.clone();
                let may_wait = self.preparation.is_some();
                if !may_wait && let Some(span) = self.span(&whole) {
                    self.skip(span.length);
                    return Some(ChunkRead::Done(Ok(Chunk::File(span))));
                }
                let end = whole.end.min(whole.start + READ_BYTES);
                self.skip(end - whole.start);
                Some(ChunkRead::Reading(self.read(whole.start..end)))
            }
        }
    }

    /// Returns the next span of `range` if files can be sent and its ends are in the page cache. Data that must be read
    /// from disk are sent from their read buffer.
    fn span(&self, range: &Range<u64>) -> Option<FileSpan> {
        self.can_send_files.then(|| span(&self.handle, &self.lease, range)).flatten()
    }

    /// Returns the next piece, once it is near.
    fn read(&self, range: Range<u64>) -> BoxFuture<'static, Result<Chunk>> {
        let (handle, lease, claim) = (Arc::clone(&self.handle), Arc::clone(&self.lease), self.claim.clone());
        let (preparation, can_send_files) = (self.preparation.clone(), self.can_send_files);
        let length = (range.end - range.start) as usize;
        async move {
            if let Some(preparation) = preparation {
                // Before memory is reserved: a slow origin must not keep it from the readers of others.
                preparation.ready(ByteRange { offset: range.start, length }).await?;
                if can_send_files && let Some(span) = span(&handle, &lease, &range) {
                    return Ok(Chunk::File(span));
                }
            }
            let reserved = claim.reserve(length).await;
            let bytes = read_piece(&*handle, range.start, length).await?;
            Ok(Chunk::Bytes(bytes, Some(claim.await_client(reserved))))
        }
        .boxed()
    }

    /// Removes `length` bytes from the range at the front.
    fn skip(&mut self, length: u64) {
        if let Some(Segment::Part(rest)) = self.segments.front_mut() {
            rest.start += length;
            if rest.is_empty() {
                self.segments.pop_front();
            }
        }
    }
}

/// Announces the ranges of a response to the store.
fn prepare(handle: &dyn ReadHandle, segments: &[Segment]) -> Option<Arc<dyn Preparation>> {
    let ranges = segments.iter().filter_map(|segment| match segment {
        Segment::Part(range) => Some(byte_range(range)),
        Segment::Text(_) => None,
    });
    handle.prepare(&ranges.collect::<Vec<_>>())
}

fn byte_range(range: &Range<u64>) -> ByteRange {
    ByteRange { offset: range.start, length: usize::try_from(range.end - range.start).unwrap_or(usize::MAX) }
}

/// Returns the next span of `range` if its ends are in the page cache.
fn span(handle: &Arc<dyn ReadHandle>, lease: &Arc<Lease>, range: &Range<u64>) -> Option<FileSpan> {
    let length = SPAN_BYTES.min(range.end - range.start);
    if length < MIN_SPAN_BYTES {
        return None;
    }
    let part = handle.local_part(range.start, length)?;
    let in_memory = |offset| matches!(handle.read_now(offset, 1, &mut Vec::with_capacity(1)), Some(Ok(1)));
    (in_memory(range.start + length - 1) && in_memory(range.start)).then(|| FileSpan {
        handle: Arc::clone(handle),
        _lease: Some(Arc::clone(lease)),
        part,
        offset: range.start,
        length,
    })
}

/// Waits until all segments of a response are near.
pub(super) async fn ready(handle: &dyn ReadHandle, segments: &[Segment]) -> Result<()> {
    let Some(preparation) = prepare(handle, segments) else { return Ok(()) };
    for segment in segments {
        if let Segment::Part(range) = segment {
            preparation.ready(byte_range(range)).await?;
        }
    }
    Ok(())
}

/// Reads all segments, `length` bytes in total, into the reserved memory, so that the file can be closed before the
/// client receives any.
pub(super) async fn read_all(
    handle: &dyn ReadHandle,
    claim: &Claim,
    reserved: ChunkMemoryPermit,
    segments: Vec<Segment>,
    length: usize,
) -> Result<Chunk> {
    let mut all = Vec::with_capacity(length);
    for segment in segments {
        match segment {
            Segment::Text(text) => all.extend_from_slice(text.as_bytes()),
            Segment::Part(range) => {
                all.extend_from_slice(&read_piece(handle, range.start, (range.end - range.start) as usize).await?);
            }
        }
    }
    Ok(Chunk::Bytes(all.into(), Some(claim.await_client(reserved))))
}

async fn read_piece(handle: &dyn ReadHandle, offset: u64, length: usize) -> Result<Bytes> {
    // The part itself is not sent, so it is dropped before the reads that are.
    let is_local = handle.local_part(offset, length as u64).is_some();
    let bytes = match is_local {
        true => read_local(handle, offset, length).await?,
        false => handle.read(offset, length).await?,
    };
    if bytes.len() < length {
        return Err(Error::new(Fault::Truncated, "the file is shorter than its size"));
    }
    Ok(bytes)
}

/// Copies cached data on this thread, which costs less than waking another one; the disk pool reads the rest.
async fn read_local(handle: &dyn ReadHandle, offset: u64, length: usize) -> Result<Bytes> {
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let (at, rest) = (offset + buffer.len() as u64, length - buffer.len());
        match handle.read_now(at, rest.min(READ_NOW_BYTES), &mut buffer) {
            Some(Ok(0)) => break,
            Some(got) => got.map(drop)?,
            None => {
                buffer = handle.read_into(at, rest, buffer).await?;
                break;
            }
        }
    }
    Ok(buffer.into())
}

impl ChunkRead {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let ChunkRead::Reading(read) = self
            && let Poll::Ready(outcome) = read.poll_unpin(cx)
        {
            *self = ChunkRead::Done(outcome);
        }
    }
}

impl Stream for FileBody {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.pieces.len() < MAX_PIECES_AHEAD
            // Data at hand needs no readahead.
            && !matches!(self.pieces.back(), Some(ChunkRead::Done(_)))
            && let Some(piece) = self.next_piece()
        {
            self.pieces.push_back(piece);
        }
        self.pieces.iter_mut().for_each(|piece| piece.poll(cx));
        match self.pieces.pop_front() {
            None => Poll::Ready(None),
            Some(ChunkRead::Done(outcome)) => Poll::Ready(Some(outcome)),
            Some(reading) => {
                self.pieces.push_front(reading);
                Poll::Pending
            }
        }
    }
}
