//! Vector reads: many ranges of one file at once.
//!
//! Neighboring ranges are joined to spans; a few requests with several ranges each read the spans. If a server does not
//! return all of them, each missing span is requested separately. Later reads from this server then request spans
//! separately from the start.
//!
//! Many bytes without a gap are a run: one request, whose ranges are returned as they arrive.

use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, channel::mpsc, stream};
use http::{StatusCode, header};
use towpath_proto::http::{
    multipart::{Boundary, Item, PartReader},
    range::{RangeRequest, RangeSpec},
};
use towpath_store::{ByteRange, Error, Fault, Result, VectorReads};

use super::{
    describe,
    read::{RemoteFile, changed},
    response::HttpResponse,
    retry_state::Failure,
};

/// Maximum useful number of ranges in one vector read.
pub(super) const MAX_RANGES: usize = 1024;

/// Maximum length in bytes of a range that is worth joining with others.
pub(super) const MAX_RANGE_BYTES: usize = 2 << 20;

/// Maximum gap in bytes between ranges that are read together: the header of a part alone takes 100 bytes and a system
/// call.
const GAP_BYTES: u64 = 1024;

/// Maximum length in bytes of a joined span.
const SPAN_BYTES: u64 = 2 << 20;

/// Maximum number of spans in one request: at 28 bytes each, their list must fit in the 8 KiB line that servers accept
/// (nginx, Apache).
const REQUEST_SPANS: usize = 256;

/// Maximum number of bytes in one request; they are held in memory until its response is complete.
const REQUEST_BYTES: u64 = 8 << 20;

/// Maximum number of requests in flight for one vector read.
const REQUESTS: usize = 8;

/// A part of the file that one range of a request reads, for one or more ranges of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    /// Indexes of the ranges, and the ranges.
    members: Vec<(usize, ByteRange)>,
}

/// Reads `ranges` of `file`.
pub(super) fn read(file: &RemoteFile, ranges: Vec<ByteRange>) -> VectorReads<'_> {
    stream::once(start(file, ranges)).flatten().boxed()
}

async fn start(file: &RemoteFile, ranges: Vec<ByteRange>) -> VectorReads<'_> {
    let size = match file.pin().await {
        Ok(pinned) => pinned.metadata.size,
        Err(error) => {
            let all = (0..ranges.len()).map(move |index| (index, Err(error.clone())));
            return stream::iter(all).boxed();
        }
    };
    let (inside, outside): (Vec<_>, Vec<_>) =
        ranges.into_iter().enumerate().partition(|(_, range)| range.length > 0 && range.end() <= size);
    let at_once = outside.into_iter().map(move |(index, range)| (index, outcome_without_reading(&range, size)));
    if is_run(&inside) {
        return stream::iter(at_once).chain(read_run(file, inside)).boxed();
    }
    let requests = stream::iter(requests(spans(inside)));
    let read = requests.map(|spans| read_request(file, spans)).buffer_unordered(REQUESTS).flat_map(stream::iter);
    stream::iter(at_once).chain(read).boxed()
}

/// Returns the result for a range that is empty, or extends beyond the end of the file.
fn outcome_without_reading(range: &ByteRange, size: u64) -> Result<Bytes> {
    if range.end() <= size {
        return Ok(Bytes::new());
    }
    let message =
        format!("the range of {} bytes at {} passes the end of the file at {size}", range.length, range.offset);
    Err(Error::new(Fault::InvalidArgument, message))
}

/// Returns whether ranges are adjoining, in order, and too long for a span.
fn is_run(ranges: &[(usize, ByteRange)]) -> bool {
    let is_adjoining = ranges.windows(2).all(|pair| match pair {
        [(_, one), (_, next)] => one.end() == next.offset,
        _ => false,
    });
    let bytes: u64 = ranges.iter().map(|(_, range)| range.length as u64).sum();
    is_adjoining && ranges.len() > 1 && bytes > SPAN_BYTES
}

/// Reads the ranges of a run.
fn read_run(file: &RemoteFile, run: Vec<(usize, ByteRange)>) -> VectorReads<'_> {
    let (mut sender, parts) = mpsc::channel(1);
    let offset = run.first().map_or(0, |(_, range)| range.offset);
    let ends = run.iter().map(|(_, range)| range.end()).collect();
    let reading = async move {
        if let Err(error) = file.fetch_parts(offset, ends, sender.clone()).await {
            let _ = sender.send(Err(error)).await;
        }
    };
    let mut rest = run.into_iter().map(|(index, _)| index);
    let results =
        stream::select(parts, stream::once(reading).filter_map(async |()| None)).map(move |part| match part {
            Ok(part) => rest.next().map(|index| (index, Ok(part))).into_iter().collect(),
            Err(error) => rest.by_ref().map(|index| (index, Err(error.clone()))).collect::<Vec<_>>(),
        });
    results.flat_map(stream::iter).boxed()
}

/// Joins ranges that are close to each other.
fn spans(mut ranges: Vec<(usize, ByteRange)>) -> Vec<Span> {
    ranges.sort_unstable_by_key(|(_, range)| (range.offset, range.length));
    let mut spans: Vec<Span> = Vec::new();
    for (index, range) in ranges {
        if let Some(last) = spans.last_mut()
            && joins(last, &range)
        {
            last.end = last.end.max(range.end());
            last.members.push((index, range));
            continue;
        }
        spans.push(Span { start: range.offset, end: range.end(), members: vec![(index, range)] });
    }
    spans
}

fn joins(span: &Span, range: &ByteRange) -> bool {
    let overlaps = range.offset < span.end;
    let near = range.offset <= span.end.saturating_add(GAP_BYTES) && range.end() - span.start <= SPAN_BYTES;
    overlaps || near
}

/// Distributes spans over requests.
fn requests(spans: Vec<Span>) -> Vec<Vec<Span>> {
    let mut requests: Vec<Vec<Span>> = Vec::new();
    let mut bytes = 0;
    for span in spans {
        let length = span.end - span.start;
        match requests.last_mut() {
            Some(last) if last.len() < REQUEST_SPANS && bytes + length <= REQUEST_BYTES => {
                bytes += length;
                last.push(span);
            }
            _ => {
                bytes = length;
                requests.push(vec![span]);
            }
        }
    }
    requests
}

async fn read_request(file: &RemoteFile, spans: Vec<Span>) -> Vec<(usize, Result<Bytes>)> {
    let mut filling = SpanBuffers::new(spans);
    if filling.spans.len() > 1
        && file.site.features.many_ranges.possible()
        && let Err(error) = read_together(file, &mut filling).await
    {
        return filling.spans.iter().flat_map(|span| failed(span, &error)).collect();
    }
    let whole = filling.spans.iter().zip(filling.buffers).map(|(span, buffer)| async move {
        if buffer.len() as u64 == span.end - span.start {
            return outcomes(span, &buffer.into());
        }
        let length = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
        match file.fetch(span.start, length, Vec::new()).await {
            Ok(bytes) => outcomes(span, &bytes.into()),
            Err(error) => failed(span, &error),
        }
    });
    stream::iter(whole.collect::<Vec<_>>()).buffer_unordered(REQUESTS).concat().await
}

fn outcomes(span: &Span, bytes: &Bytes) -> Vec<(usize, Result<Bytes>)> {
    let slice = |range: &ByteRange| {
        let start = usize::try_from(range.offset - span.start).ok()?;
        let end = start.checked_add(range.length)?;
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    };
    span.members.iter().map(|(index, range)| (*index, slice(range).ok_or_else(changed))).collect()
}

fn failed(span: &Span, error: &Error) -> Vec<(usize, Result<Bytes>)> {
    span.members.iter().map(|(index, _)| (*index, Err(error.clone()))).collect()
}

/// The received data of the spans of one request.
struct SpanBuffers {
    spans: Arc<[Span]>,
    buffers: Vec<Vec<u8>>,
}

impl SpanBuffers {
    fn new(spans: Vec<Span>) -> Self {
        Self { buffers: vec![Vec::new(); spans.len()], spans: spans.into() }
    }

    /// Stores bytes from `offset` of the file. Bytes outside of all spans, and those after a gap, are discarded.
    fn put(&mut self, mut offset: u64, mut data: &[u8]) {
        let mut index = self.spans.partition_point(|span| span.end <= offset);
        while let (Some(span), Some(buffer)) = (self.spans.get(index), self.buffers.get_mut(index)) {
            let filled = span.start + buffer.len() as u64;
            let skipped = usize::try_from(filled.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
            data = data.split_at(skipped).1;
            offset += skipped as u64;
            if data.is_empty() {
                return;
            }
            let taken = usize::try_from(span.end.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
            if offset == filled {
                buffer.reserve_exact(usize::try_from(span.end - filled).unwrap_or(usize::MAX));
                buffer.extend_from_slice(data.split_at(taken).0);
            }
            data = data.split_at(taken).1;
            offset += taken as u64;
            index += 1;
        }
    }
}

/// Requests all spans in one request. Missing ones have to be requested separately afterwards.
///
/// # Errors
/// Errors that each separate request would cause too.
async fn read_together(file: &RemoteFile, filling: &mut SpanBuffers) -> Result<()> {
    let specs = filling.spans.iter().map(|span| RangeSpec::Between(span.start, span.end - 1)).collect();
    let Some(ranges) = RangeRequest::new(specs) else { return Ok(()) };
    let mut retry_state = file.retry_state();
    let request = file.request(Some(&ranges));
    let mut answer = file.site.send_request(&file.caller, &mut retry_state, &request).await?;
    if file.is_gone(&answer, &mut retry_state) {
        drop(answer);
        answer = file.site.send_request(&file.caller, &mut retry_state, &request).await?;
    }
    let parts = match answer.status {
        StatusCode::PARTIAL_CONTENT => answer.field(header::CONTENT_TYPE).and_then(Boundary::of_content_type),
        StatusCode::PRECONDITION_FAILED if !file.may_be_another_tag() => return Err(changed()),
        StatusCode::PRECONDITION_FAILED => return Ok(()),
        // The separate requests show the error.
        StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::BAD_REQUEST => None,
        _ => return Err(file.refused(answer).await),
    };
    answer.release_permit();
    let size = file.pin().await?.metadata.size;
    file.site.features.many_ranges.learn(parts.is_some());
    let Some(boundary) = parts else { return Ok(()) };
    // A server that ignores the condition may send another version.
    let (metadata, version) = describe::of_headers(&answer.headers, size);
    file.settle(metadata, version)?;
    file.answered_by(&answer.target);
    match receive(answer, PartReader::new(&boundary), size, filling).await {
        Ok(()) => Ok(()),
        Err(VectorFailure::Changed) => Err(changed()),
        Err(VectorFailure::Garbled(why)) => {
            tracing::debug!(%why, "invalid multi-range response");
            file.site.features.many_ranges.learn(false);
            Ok(())
        }
        Err(VectorFailure::Lost(failure)) => {
            tracing::debug!("a multi-range response was interrupted: {failure}");
            Ok(())
        }
    }
}

/// The reason why a response with several ranges cannot be used further.
enum VectorFailure {
    Changed,
    Garbled(String),
    Lost(Failure),
}

async fn receive(
    mut answer: HttpResponse,
    mut parts: PartReader,
    size: u64,
    filling: &mut SpanBuffers,
) -> Result<(), VectorFailure> {
    let garbled = |error: &dyn std::fmt::Display| VectorFailure::Garbled(error.to_string());
    let mut at = 0;
    let mut budget = filling.spans.iter().map(|span| span.end - span.start).sum::<u64>().saturating_mul(2);
    while let Some(data) = answer.next().await.map_err(VectorFailure::Lost)? {
        parts.push(data);
        while let Some(item) = parts.next_item().map_err(|error| garbled(&error))? {
            match item {
                Item::Part { offsets, size: reported } => {
                    if reported.is_some_and(|reported| reported != size) {
                        return Err(VectorFailure::Changed);
                    }
                    at = offsets.start;
                }
                Item::Data(data) => {
                    // A server may join parts, but must not send the whole file.
                    budget = budget.checked_sub(data.len() as u64).ok_or_else(|| garbled(&"it is too long"))?;
                    filling.put(at, &data);
                    at += data.len() as u64;
                }
                Item::End => {}
            }
        }
    }
    parts.finish().map_err(|error| garbled(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: usize) -> ByteRange {
        ByteRange { offset, length }
    }

    fn joined(ranges: &[ByteRange]) -> Vec<(u64, u64)> {
        spans(ranges.iter().copied().enumerate().collect()).iter().map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn near_ranges_are_joined() {
        assert_eq!(joined(&[range(5000, 10), range(0, 100), range(150, 10)]), [(0, 160), (5000, 5010)]);
        assert_eq!(joined(&[range(0, 10), range(10 + GAP_BYTES, 1)]), [(0, 11 + GAP_BYTES)]);
        assert_eq!(joined(&[range(0, 10), range(11 + GAP_BYTES, 1)]).len(), 2);
        let long = SPAN_BYTES as usize;
        assert_eq!(joined(&[range(0, long), range(long as u64, 10)]).len(), 2, "spans do not grow without bound");
        assert_eq!(joined(&[range(0, long), range(10, long)]).len(), 1, "but nothing is asked for twice");
    }

    #[test]
    fn requests_are_bounded() {
        let many = spans((0..1000).map(|n| (n, range(n as u64 * 10_000, 1))).collect());
        assert_eq!(requests(many).iter().map(Vec::len).collect::<Vec<_>>(), [256, 256, 256, 232]);
        let large = spans((0..10).map(|n| (n, range(n as u64 * (2 << 20), 2 << 20))).collect());
        assert_eq!(requests(large).iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    }

    #[test]
    fn parts_may_be_joined_and_reordered() {
        let content: Vec<u8> = (0..=255).collect();
        let spans = spans(vec![(0, range(10, 5)), (1, range(2000, 5)), (2, range(4000, 1))]);
        let mut filling = SpanBuffers::new(spans);
        let at = |offset: u64, length: usize| {
            content.iter().copied().cycle().skip(offset as usize).take(length).collect::<Vec<_>>()
        };
        filling.put(1990, &at(1990, 2100));
        filling.put(0, &at(0, 12));
        filling.put(12, &at(12, 100));
        assert_eq!(filling.buffers, [at(10, 5), at(2000, 5), at(4000, 1)]);
        // Data after a gap are not taken for data before it.
        let mut filling = SpanBuffers::new(self::spans(vec![(0, range(10, 5))]));
        filling.put(12, &at(12, 3));
        assert!(filling.buffers[0].is_empty());
    }
}
