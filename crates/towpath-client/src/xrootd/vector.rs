//! Vector reads: many ranges in few requests, with a result for each range.
//!
//! A server rejects a whole `readv` for one invalid element. The elements beyond the end of the file are then
//! identified by the size, and the others are read individually; without `readv`, all are read individually.

use std::collections::HashMap;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::xrootd::{FileHandle, PathId, VectorElement, request::Readv, response::ReadvParser};
use towpath_store::{ByteRange, Error, Fault, ReadHandle as _, Result, VectorReads};

use super::{
    connection::{Failure, OutgoingRequest},
    metadata,
    read::{Attempt, ReadStream, RemoteFile, reopen, submit_stat},
    sink::Sink,
};

/// Maximum number of elements of one request: the reference server's limit.
pub(super) const MAX_ELEMENTS: usize = 1024;

/// Maximum number of bytes of one element: the reference server's limit, 2 MiB less an element header.
pub(super) const MAX_ELEMENT_BYTES: usize = (2 << 20) - VectorElement::LEN;

/// Maximum number of bytes of one request: large enough to fill a round trip together with the others, small enough
/// that the first results arrive early.
const MAX_VECTOR_BYTES: usize = 4 << 20;

/// Maximum number of concurrent requests of one vector; the window limits them too.
const CONCURRENT: usize = 32;

type IndexedRange = (usize, ByteRange);

/// Returns the results of `ranges` as they arrive.
pub(super) fn read(file: &RemoteFile, ranges: Vec<ByteRange>) -> VectorReads<'_> {
    let is_single = ranges.len() == 1;
    let groups = groups(ranges);
    let results =
        stream::iter(groups).map(move |group| read_group(file, group, is_single)).buffer_unordered(CONCURRENT);
    results.flat_map(stream::iter).boxed()
}

/// Groups ranges by request; a range that is too long for a common request forms its own group.
fn groups(ranges: Vec<ByteRange>) -> Vec<Vec<IndexedRange>> {
    let mut groups: Vec<Vec<IndexedRange>> = Vec::new();
    let mut bytes = usize::MAX;
    for (index, range) in ranges.into_iter().enumerate() {
        let length = range.length;
        let fits = groups.last().is_some_and(|group| group.len() < MAX_ELEMENTS)
            && bytes.saturating_add(length) <= MAX_VECTOR_BYTES
            && range.length <= MAX_ELEMENT_BYTES;
        match groups.last_mut() {
            Some(group) if fits => {
                group.push((index, range));
                bytes += length;
            }
            _ => {
                groups.push(vec![(index, range)]);
                bytes = if range.length > MAX_ELEMENT_BYTES { usize::MAX } else { length };
            }
        }
    }
    groups
}

async fn read_group(file: &RemoteFile, group: Vec<IndexedRange>, is_single: bool) -> Vec<(usize, Result<Bytes>)> {
    // Others leave as vectors even if one element is left, which saves the round trip of a comparison of versions.
    if let [(index, range)] = group[..]
        && (is_single || range.length > MAX_ELEMENT_BYTES)
    {
        return vec![(index, read_alone(file, range).await)];
    }
    match read_together(file, &group).await {
        Some(results) => results,
        None => {
            let alone = group.into_iter().map(|(index, range)| async move { (index, read_alone(file, range).await) });
            stream::iter(alone).buffer_unordered(CONCURRENT).collect().await
        }
    }
}

/// Reads one range individually; returns all of it, or an error.
async fn read_alone(file: &RemoteFile, range: ByteRange) -> Result<Bytes> {
    let data = file.read(range.offset, range.length).await?;
    if data.len() == range.length { Ok(data) } else { Err(beyond_end(file)) }
}

fn beyond_end(file: &RemoteFile) -> Error {
    Error::new(Fault::InvalidArgument, "the range passes the end of the file").at(&file.path)
}

/// Reads a group in one request. Returns `None` if that is not possible.
async fn read_together(file: &RemoteFile, group: &[IndexedRange]) -> Option<Vec<(usize, Result<Bytes>)>> {
    let everyone_fails = |error: Error| {
        let error = error.at(&file.path);
        Some(group.iter().map(|(index, _)| (*index, Err(error.clone()))).collect())
    };
    let mut retry_state = file.origin.retry_state(true);
    let number = file.busy_stream();
    let bytes = group.iter().map(|(_, range)| range.length + VectorElement::LEN).sum();
    loop {
        let stream = match file.read_stream(number, &mut retry_state) {
            Ok(stream) => stream,
            Err(error) => return everyone_fails(error),
        };
        // Counted before the open, so that concurrent requests do not all choose this stream too.
        let load = stream.file.session.loaded(bytes);
        let attempt = file.attempt(&stream, Vec::new(), |handle, _, _| request(file, &stream, handle, group));
        let (attempt, looked) = futures::future::join(attempt, file.look(&stream)).await;
        drop(load);
        let failure = match looked.and(attempt.outcome) {
            Ok(()) => {
                if let Err(error) = file.confirm(&stream, attempt.after.as_ref()).await {
                    return everyone_fails(error);
                }
                let results = sort(group, Bytes::from(attempt.buffer))?;
                return Some(results.into_iter().map(|(index, data)| (index, Ok(data))).collect());
            }
            Err(Failure::Refused(_)) if stream.file.opened().await.is_ok() => return None,
            Err(failure) => failure,
        };
        file.abandon(&stream);
        if let Err(error) = file.origin.handle_failure(&mut retry_state, &stream.site, reopen(failure)).await {
            return everyone_fails(error);
        }
    }
}

async fn request(file: &RemoteFile, stream: &ReadStream, handle: FileHandle, group: &[IndexedRange]) -> Attempt {
    let session = &stream.file.session;
    let element = |range: &ByteRange| VectorElement { handle, length: range.length as u32, offset: range.offset };
    let elements: Vec<VectorElement> = group.iter().map(|(_, range)| element(range)).collect();
    let limit = group.iter().map(|(_, range)| range.length + VectorElement::LEN).sum();
    let permit = match stream.site.room(limit).await {
        Ok(permit) => permit,
        Err(error) => return Attempt::failed(Vec::new(), 0, Failure::Fatal(error)),
    };
    let sink = Sink::Plain { buffer: Vec::with_capacity(limit), limit };
    let readv = Readv { path_id: PathId::MAIN, elements };
    let outgoing = OutgoingRequest { sink, permit: Some(permit), ..OutgoingRequest::new(readv, 0) };
    let pending = session.submit(outgoing);
    let stat = file.confirms_vectors(stream).then(|| submit_stat(stream, handle));
    let mut attempt = Attempt::from(pending.finished().await);
    if let Some(stat) = stat {
        // Without a response the version is compared separately.
        attempt.after = stat.await.ok().map(|found| metadata::of_stat(&found));
    }
    attempt
}

/// Returns the data of each range, which share the memory of the response; `None` unless every range has a response.
fn sort(group: &[IndexedRange], answer: Bytes) -> Option<Vec<(usize, Bytes)>> {
    let mut wanted: HashMap<(u64, usize), Vec<usize>> = HashMap::new();
    for (index, range) in group.iter().rev() {
        wanted.entry((range.offset, range.length)).or_default().push(*index);
    }
    let mut parser = ReadvParser::default();
    parser.push(answer);
    let mut sorted = Vec::with_capacity(group.len());
    while let Some(piece) = parser.pop().ok()? {
        let index = wanted.get_mut(&(piece.element.offset, piece.element.length as usize))?.pop()?;
        if piece.data.len() != piece.element.length as usize {
            return None;
        }
        sorted.push((index, piece.data));
    }
    (sorted.len() == group.len()).then_some(sorted)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::*;

    fn range(offset: u64, length: usize) -> ByteRange {
        ByteRange { offset, length }
    }

    #[test]
    fn groups_keep_to_the_limits() {
        let small = vec![range(0, 100); MAX_ELEMENTS + 1];
        assert_eq!(groups(small).iter().map(Vec::len).collect::<Vec<_>>(), [MAX_ELEMENTS, 1]);
        let long = vec![range(0, 10), range(0, MAX_ELEMENT_BYTES + 1), range(0, 10), range(1, 10)];
        assert_eq!(groups(long).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2]);
        let large = vec![range(0, MAX_ELEMENT_BYTES); 5];
        assert_eq!(groups(large).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert!(groups(Vec::new()).is_empty());
    }

    #[test]
    fn answers_are_matched_whatever_their_order() {
        let group = [(7, range(0, 2)), (8, range(10, 1)), (9, range(0, 2))];
        let mut answer = BytesMut::new();
        for (offset, data) in [(10, &b"c"[..]), (0, b"ab"), (0, b"ab")] {
            let element = VectorElement { handle: FileHandle::default(), length: data.len() as u32, offset };
            element.encode(&mut answer);
            answer.put_slice(data);
        }
        let answer = answer.freeze();
        let sorted = sort(&group, answer.clone()).unwrap();
        let indices: Vec<usize> = sorted.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [8, 7, 9]);
        assert_eq!(sort(&group[..2], answer.clone()), None, "an element that nobody asked for");
        assert_eq!(sort(&group, answer.slice(..answer.len() - 1)), None, "cut short");
    }
}
