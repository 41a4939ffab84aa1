//! `readv`: many ranges of one or several files.
//!
//! The ranges are read in groups, each sent as one frame. While they are in memory the groups are small: one buffer
//! that fits into the processor's cache is reused. From the first range that is not, groups are large: the store gets
//! many ranges at once and can order its reads, and a vectored send inserts the headers between the data. The limits
//! and their errors are those of the reference server, except that it rejects a vector at both limits although it
//! advertises them.

use std::{collections::HashMap, io::IoSlice, sync::Arc};

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, ResponseHeader, Status, VectorElement,
    request::{Readv, vector_bytes},
};
use towpath_store::{ByteRange, Error, Fault, ReadBuffer, ReadHandle};

use super::{
    super::{
        active_request::{ActiveRequest, ErrorResponse, Failure, FinalFrame, ServeResult, seal},
        files::{FileAccess, Slot},
    },
    Announced,
};

/// Maximum number of elements in a request (`readv_iov_max`).
pub(in crate::xrootd) const MAX_ELEMENTS: usize = 1024;
/// Maximum length of an element, in bytes (`readv_ior_max`): 2 MiB less its header.
pub(in crate::xrootd) const MAX_ELEMENT_BYTES: u32 = 2_097_136;
/// Maximum data in one frame, and in memory for one request, in bytes.
const GROUP_BYTES: usize = 2 << 20;
/// Maximum gap between two ranges that a store may read and buffer, in bytes, because that is cheaper than two reads.
const STORE_GAP_BYTES: usize = 4096;
/// Like [`GROUP_BYTES`], while all data are in memory: a part of a typical second-level cache, and the amount that a
/// store reads at once.
const CACHED_GROUP_BYTES: usize = 256 << 10;

/// Rejects a vector beyond the limits. A vector at both limits, 2 GiB with its headers, is accepted and sent in
/// groups.
pub(in crate::xrootd) fn check(request: &Readv) -> Result<(), ErrorResponse> {
    if request.elements.len() > MAX_ELEMENTS {
        let message = format!("the read vector is too long: at most {MAX_ELEMENTS} elements are accepted");
        return Err(ErrorResponse::with_code(ErrorCode::ArgTooLong, message));
    }
    if request.elements.iter().any(|element| element.length > MAX_ELEMENT_BYTES) {
        let message = format!("an element of the read vector is too long: at most {MAX_ELEMENT_BYTES} bytes are read");
        return Err(ErrorResponse::with_code(ErrorCode::NoMemory, message));
    }
    Ok(())
}

/// Returns the length of the response body.
pub(in crate::xrootd) fn answer_bytes(elements: &[VectorElement]) -> u64 {
    vector_bytes(elements).saturating_add((elements.len() * VectorElement::LEN) as u64)
}

/// Returns the refusal for an element beyond the end of its file. Clients know this code; the fault is the client's.
fn past_the_end() -> ErrorResponse {
    let message = "an element of the read vector passes the end of its file";
    ErrorResponse { code: ErrorCode::FSError, ..ErrorResponse::new(Fault::InvalidArgument, message) }
}

/// Handles `readv`; `slots` are the files of the elements.
pub(in crate::xrootd) async fn readv(
    active_request: &ActiveRequest,
    slots: &HashMap<FileHandle, Arc<Slot>>,
    request: &Readv,
) -> ServeResult {
    for (handle, slot) in slots {
        let file = slot.file()?;
        active_request.set_path(&file.path);
        let size = file.metadata().await?.size;
        let mut elements = request.elements.iter().filter(|element| element.handle == *handle);
        if elements.any(|element| range_of(element).end() > size) {
            return Err(past_the_end().into());
        }
    }
    let mut rest = send_cached(active_request, slots, &request.elements).await?;
    let announced = announce(slots, rest)?;
    while !rest.is_empty() {
        let (group, behind) = rest.split_at(group_length(rest, GROUP_BYTES));
        rest = behind;
        for element in group {
            if let Some(announced) = announced.get(&element.handle) {
                announced.ready(element.offset, element.length as usize).await?;
            }
        }
        send_group(active_request, slots, group, status_before(rest)).await?;
    }
    Ok(FinalFrame::sent(vector_bytes(&request.elements)))
}

/// Announces `elements`, by file.
fn announce(
    slots: &HashMap<FileHandle, Arc<Slot>>,
    elements: &[VectorElement],
) -> ServeResult<HashMap<FileHandle, Announced>> {
    let mut announced = HashMap::new();
    if elements.is_empty() {
        return Ok(announced);
    }
    for (handle, slot) in slots {
        let ranges: Vec<_> = elements.iter().filter(|element| element.handle == *handle).map(range_of).collect();
        announced.insert(*handle, Announced::new(slot.file()?, &ranges));
    }
    Ok(announced)
}

fn range_of(element: &VectorElement) -> ByteRange {
    ByteRange { offset: element.offset, length: element.length as usize }
}

/// Returns the status of a frame that is followed by `rest`.
fn status_before(rest: &[VectorElement]) -> Status {
    if rest.is_empty() { Status::ok } else { Status::oksofar }
}

/// Returns how many elements fit into one frame of `limit_bytes`; at least one.
fn group_length(elements: &[VectorElement], limit_bytes: usize) -> usize {
    let mut bytes = 0;
    let fitting = elements.iter().take_while(|element| {
        bytes += element.length as usize + VectorElement::LEN;
        bytes <= limit_bytes
    });
    fitting.count().max(1)
}

/// Sends groups while they can be read without waiting. Returns the remaining elements.
async fn send_cached<'a>(
    active_request: &ActiveRequest,
    slots: &HashMap<FileHandle, Arc<Slot>>,
    elements: &'a [VectorElement],
) -> ServeResult<&'a [VectorElement]> {
    let frame_bytes = CACHED_GROUP_BYTES.min(answer_bytes(elements) as usize) + ResponseHeader::LEN;
    let _memory = active_request.session.memory_to_answer(frame_bytes).await;
    let mut frame = vec![0; frame_bytes];
    let mut rest = elements;
    while !rest.is_empty() {
        let (group, behind) = rest.split_at(group_length(rest, CACHED_GROUP_BYTES));
        let Some(frame) = frame.get_mut(..answer_bytes(group) as usize + ResponseHeader::LEN) else { break };
        match read_cached(slots, group, frame) {
            None => break,
            Some(outcome) => outcome?,
        }
        rest = behind;
        seal(frame, 0, active_request.stream_id, status_before(rest));
        active_request.send(frame).await?;
        record_sent(active_request, slots, group);
        // Each group has occupied this thread for some hundred microseconds.
        tokio::task::yield_now().await;
    }
    Ok(rest)
}

/// Reads `group` into `frame` after the response header; `None` if that would block.
fn read_cached(
    slots: &HashMap<FileHandle, Arc<Slot>>,
    group: &[VectorElement],
    frame: &mut [u8],
) -> Option<Result<(), ErrorResponse>> {
    let mut body = frame.get_mut(ResponseHeader::LEN..)?;
    for elements in of_one_file(group) {
        let slot = slots.get(&elements.first()?.handle)?;
        let handle = slot.file().ok()?.reader()?;
        let part = body.split_off_mut(..answer_bytes(elements) as usize)?;
        if let Err(refusal) = read_now(&**handle, elements, part)? {
            return Some(Err(refusal));
        }
    }
    Some(Ok(()))
}

/// Splits the elements, in order, into runs of the same file.
pub(in crate::xrootd) fn of_one_file(elements: &[VectorElement]) -> impl Iterator<Item = &[VectorElement]> {
    elements.chunk_by(|one, next| one.handle == next.handle)
}

/// Reads `elements` of one file, each after its header, into `body`, which has their total length; `None` if that
/// would block.
pub(in crate::xrootd) fn read_now(
    handle: &dyn ReadHandle,
    elements: &[VectorElement],
    mut body: &mut [u8],
) -> Option<Result<(), ErrorResponse>> {
    let mut targets = Vec::with_capacity(elements.len());
    for element in elements {
        body.split_off_mut(..VectorElement::LEN)?.copy_from_slice(&element.to_bytes());
        let buffer = body.split_off_mut(..element.length as usize)?;
        targets.push(ReadBuffer { offset: element.offset, buffer });
    }
    Some(handle.read_vector_now(&mut targets)?.map_err(|error| match error.fault() {
        Fault::InvalidArgument => past_the_end(),
        _ => error.into(),
    }))
}

async fn send_group(
    active_request: &ActiveRequest,
    slots: &HashMap<FileHandle, Arc<Slot>>,
    group: &[VectorElement],
    status: Status,
) -> ServeResult<()> {
    let bytes = answer_bytes(group);
    let memory = active_request.session.memory_to_answer(bytes as usize + group.len() * STORE_GAP_BYTES).await;
    let mut data = vec![Bytes::new(); group.len()];
    for (handle, slot) in slots {
        let indexed = group.iter().enumerate().filter(|(_, element)| element.handle == *handle && element.length > 0);
        let indices: Vec<usize> = indexed.map(|(index, _)| index).collect();
        read_elements(slot, group, &indices, &mut data).await?;
    }
    let header = ResponseHeader { stream_id: active_request.stream_id, status, dlen: bytes as u32 }.to_bytes();
    let heads: Vec<_> = group.iter().map(VectorElement::to_bytes).collect();
    let mut slices = Vec::with_capacity(2 * group.len() + 1);
    slices.push(IoSlice::new(&header));
    for (head, data) in heads.iter().zip(&data) {
        slices.push(IoSlice::new(head));
        slices.push(IoSlice::new(data));
    }
    active_request.send_vectored(&mut slices).await?;
    drop(memory);
    record_sent(active_request, slots, group);
    Ok(())
}

/// Counts the bytes of a sent group for the caller that opened each file.
fn record_sent(active_request: &ActiveRequest, slots: &HashMap<FileHandle, Arc<Slot>>, group: &[VectorElement]) {
    for elements in of_one_file(group) {
        let slot = elements.first().and_then(|element| slots.get(&element.handle));
        if let Some(Ok(file)) = slot.map(|slot| slot.file()) {
            active_request.session.record_sent(&file.identity, vector_bytes(elements));
        }
    }
}

/// Reads the elements of `group` at `indices`, all of one file, into the same indices of `data`.
async fn read_elements(slot: &Slot, group: &[VectorElement], indices: &[usize], data: &mut [Bytes]) -> ServeResult<()> {
    let elements = || indices.iter().filter_map(|&index| group.get(index));
    let file = slot.file()?;
    match &file.access {
        FileAccess::Read(handle) => {
            let ranges = elements().map(range_of).collect();
            read_ranges(&**handle, ranges, indices, data).await
        }
        FileAccess::Write(_) | FileAccess::Pull(_) => {
            for (element, &index) in elements().zip(indices) {
                let read = file.read_into(element.offset, element.length as usize, Vec::new()).await?;
                put(data, index, read.into(), element.length as usize)?;
            }
            Ok(())
        }
    }
}

async fn read_ranges(
    handle: &dyn ReadHandle,
    ranges: Vec<ByteRange>,
    indices: &[usize],
    data: &mut [Bytes],
) -> ServeResult<()> {
    let lengths: Vec<usize> = ranges.iter().map(|range| range.length).collect();
    let mut reads = handle.read_vector(ranges);
    let mut missing = indices.len();
    while let Some((position, read)) = reads.next().await {
        let (Some(&index), Some(&length)) = (indices.get(position), lengths.get(position)) else { continue };
        put(data, index, read?, length)?;
        missing = missing.saturating_sub(1);
    }
    if missing > 0 {
        return Err(Error::new(Fault::Internal, "the store left ranges of a vector unread").into());
    }
    Ok(())
}

fn put(data: &mut [Bytes], index: usize, read: Bytes, length: usize) -> Result<(), Failure> {
    if read.len() != length {
        return Err(past_the_end().into());
    }
    if let Some(target) = data.get_mut(index) {
        *target = read;
    }
    Ok(())
}
