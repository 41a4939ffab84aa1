//! `write`, `writev`, `pgwrite`: incoming data.
//!
//! The connection's reader receives the data in pieces, each directly into the buffer passed to the store, and sends
//! them to the request's task, which writes one piece while the next is received. Memory for a piece is reserved
//! before it is received; pieces grow with the data that the client has sent. After an error the remaining data are
//! received and discarded, so that the next request can be parsed. With a path id the data arrive on a connection
//! bound to the session ([`super::bound`]), whose own reader receives them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, Request, RequestHeader, WritevOptions,
    page::{self, Page},
    request::{PgWrite, Write, Writev},
    response::PgWriteStatus,
};
use towpath_store::{Fault, WriteHandle};

use super::{
    active_request::{ActiveRequest, ErrorResponse, Failure, FinalFrame, ServeResult},
    connection::{CloseReason, Connection, DataSource, ending, memory_to_receive},
    files::{Slot, WritableFile},
    request_queue::{LockMode, QueuePosition},
    session::RequestMemoryPermit,
};
use crate::metrics::Issuer;

/// Maximum size of one piece, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Number of pieces of one request that wait for the store while more are received. The first ones are small; with
/// this many the reader of a new connection can receive a request of 1 MiB and continue with the next, even if the
/// store blocks.
const MAX_PIECES_AHEAD: usize = 4;
/// Maximum number of damaged pages of a file before the client must resend them (256, as the reference server).
const MAX_BAD_PAGES_OF_FILE: usize = 256;

/// A request whose data follow.
struct WriteRequest {
    extents: Vec<Extent>,
    /// The request, if the data are pages with checksums.
    pages: Option<PgWrite>,
    /// Whether to sync the files at the end.
    sync: bool,
}

impl WriteRequest {
    /// Returns the number of data bytes on the wire.
    fn wire_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.wire_bytes).sum()
    }
}

/// A range of an open file, and the number of bytes for it on the wire.
struct Extent {
    slot: Arc<Slot>,
    offset: u64,
    wire_bytes: u64,
}

/// Received data.
#[derive(Debug)]
struct WriteChunk {
    /// Index of the extent in the request.
    extent: usize,
    offset: u64,
    data: Vec<u8>,
    memory: RequestMemoryPermit,
}

/// Starts the task that writes the data of a request, and receives them: here, or on the bound connection of its path
/// id. The response is then sent on that connection too, as by the reference server; a refusal before the data is
/// sent on this one.
pub(super) async fn receive(
    connection: &mut Connection,
    header: &RequestHeader,
    request: Request,
) -> Result<(), CloseReason> {
    let path = match connection.session.path(header.data_path()) {
        Ok(path) => path,
        Err(refusal) => {
            connection.reject(header, &refusal);
            return Ok(());
        }
    };
    let write_request = match parse(connection, request) {
        Ok(write_request) => write_request,
        Err(refusal) => {
            connection.reject(header, &refusal);
            return discard_bound_data(connection, header).await;
        }
    };
    let extents = write_request.extents.iter().map(|extent| (extent.offset, extent.wire_bytes)).collect();
    let permit = connection.acquire_request_permit().await?;
    connection.flush().await?;
    let response_writer = path.as_ref().map_or(&connection.response_writer, |bound| &bound.response_writer);
    let active_request = ActiveRequest::new(&connection.session, response_writer, header.code, header.stream_id);
    let mut turns = Vec::new();
    for extent in &write_request.extents {
        turns.push(extent.slot.queue.enqueue(LockMode::Shared).await);
    }
    let (sender, pieces) = mpsc::channel(MAX_PIECES_AHEAD);
    let file = write_request.extents.first().and_then(|extent| extent.slot.file().ok());
    let issuer = file.map_or(Issuer::ANONYMOUS, |file| Issuer::of(&file.identity.caller));
    let is_paged = write_request.pages.is_some();
    let expected_data = ExpectedData { extents, is_paged, sink: Sink::Task(sender), issuer };
    connection.tasks.spawn(async move {
        let served = serve(&active_request, &write_request, turns, pieces).await;
        active_request.finish(served).await;
        drop(permit);
    });
    match path {
        None => expected_data.receive(connection).await,
        Some(bound) => {
            bound.expect(expected_data);
            Ok(())
        }
    }
}

/// Discards the data of a refused request that arrive on a bound connection. (Those on the request's own connection
/// are skipped by its reader.)
pub(super) async fn discard_bound_data(connection: &mut Connection, header: &RequestHeader) -> Result<(), CloseReason> {
    if let Ok(Some(bound)) = connection.session.path(header.data_path()) {
        let sink = Sink::Discard { _permit: connection.acquire_request_permit().await? };
        let issuer = Issuer::of(&connection.session.known_identity().caller);
        bound.expect(ExpectedData { extents: vec![(0, u64::from(header.dlen))], is_paged: false, sink, issuer });
    }
    Ok(())
}

/// The data of one request, still to be received.
#[derive(Debug)]
pub(super) struct ExpectedData {
    /// Offset in the file, and number of bytes on the wire, of each extent.
    extents: Vec<(u64, u64)>,
    is_paged: bool,
    sink: Sink,
    /// The issuer of the caller's credentials.
    issuer: Issuer,
}

/// The destination of received data.
#[derive(Debug)]
enum Sink {
    /// The task that writes them.
    Task(mpsc::Sender<WriteChunk>),
    /// Discarded, because the request was refused. It counts as in flight until they have arrived.
    Discard { _permit: OwnedSemaphorePermit },
}

impl ExpectedData {
    /// Receives all data from `source` in pieces.
    ///
    /// # Errors
    /// How the connection with the data ends.
    pub(super) async fn receive<S: DataSource>(self, source: &mut S) -> Result<(), CloseReason> {
        for (extent, (offset, wire_bytes)) in self.extents.iter().copied().enumerate() {
            self.receive_extent(source, extent, offset, wire_bytes).await?;
        }
        Ok(())
    }

    async fn receive_extent<S: DataSource>(
        &self,
        source: &mut S,
        extent: usize,
        mut offset: u64,
        mut left: u64,
    ) -> Result<(), CloseReason> {
        while left > 0 {
            let most = PIECE_BYTES.min(source.session().receive_bytes());
            let length = piece_length(offset, left, self.is_paged, most);
            // Memory for the whole piece at once: uploads that each held a part and waited for the rest would
            // deadlock.
            let memory = memory_to_receive(source.session(), length).await?;
            let mut data = Vec::with_capacity(length);
            source.receive_data(length, &mut data).await?;
            source.session().received(length);
            source.session().record_received(&self.issuer, length as u64);
            left -= length as u64;
            let decoded_len = || page::decoded_len(offset, length as u64).unwrap_or(0);
            let file_bytes = if self.is_paged { decoded_len() } else { length as u64 };
            let piece = WriteChunk { extent, offset, data, memory };
            offset += file_bytes;
            let Sink::Task(sender) = &self.sink else { continue };
            tokio::select! {
                // Also to a failed task: it discards the data, and responds when all have arrived.
                _ = sender.send(piece) => {}
                () = source.session().ended.cancelled() => return Err(ending(source.session())),
            }
        }
        Ok(())
    }
}

/// Returns how many of `left` wire bytes for `offset` to receive at once: about `most`, and only whole pages for
/// paged data.
fn piece_length(offset: u64, left: u64, paged: bool, most: usize) -> usize {
    match usize::try_from(left) {
        Ok(left) if left <= most => left,
        _ if paged => page::whole_pages(offset, most),
        _ => most,
    }
}

/// Determines the destination of the request's data.
fn parse(connection: &Connection, request: Request) -> Result<WriteRequest, ErrorResponse> {
    let find = |handle: FileHandle| {
        let slot = connection.session.files.find(handle);
        slot.inspect(|slot| slot.touch(connection.since))
    };
    match request {
        Request::Write(Write { handle, offset, length, .. }) => {
            let extents = vec![Extent { slot: find(handle)?, offset, wire_bytes: u64::from(length) }];
            Ok(WriteRequest { extents, pages: None, sync: false })
        }
        Request::PgWrite(request) => {
            page::decoded_len(request.offset, u64::from(request.length))?;
            let (slot, wire_bytes) = (find(request.handle)?, u64::from(request.length));
            let extents = vec![Extent { slot, offset: request.offset, wire_bytes }];
            Ok(WriteRequest { extents, pages: Some(request), sync: false })
        }
        Request::Writev(Writev { options, elements }) => {
            if elements.len() > super::read::vector::MAX_ELEMENTS {
                let message = format!("more than {} elements in one vector", super::read::vector::MAX_ELEMENTS);
                return Err(ErrorResponse::new(Fault::NameTooLong, message));
            }
            let extents = elements.into_iter().map(|element| {
                let (slot, wire_bytes) = (find(element.handle)?, u64::from(element.length));
                Ok(Extent { slot, offset: element.offset, wire_bytes })
            });
            let sync = options.contains(WritevOptions::doSync);
            Ok(WriteRequest { extents: extents.collect::<Result<_, ErrorResponse>>()?, pages: None, sync })
        }
        _ => Err(ErrorResponse::new(Fault::Internal, "the request has no data")),
    }
}

/// Writes the pieces as they arrive, and responds.
async fn serve(
    active_request: &ActiveRequest,
    write_request: &WriteRequest,
    turns: Vec<QueuePosition>,
    pieces: mpsc::Receiver<WriteChunk>,
) -> ServeResult {
    let mut turns_taken = Vec::with_capacity(turns.len());
    for turn in turns {
        turns_taken.push(turn.wait().await);
    }
    let written = write_all(write_request, pieces).await;
    // Incomplete data are known to be missing by their sender: if other connections carry the upload too, they can be
    // sent again.
    if matches!(written, Err(Failure::Refused(_))) {
        write_request.extents.iter().filter_map(|extent| writing(extent).ok()).for_each(|writing| writing.spoil());
    }
    let bad_pages = written?;
    if write_request.sync {
        for extent in &write_request.extents {
            writing(extent)?.handle.sync().await?;
        }
    }
    let answer = match &write_request.pages {
        None => active_request.done()?,
        Some(request) => report_pages(active_request, write_request, request, bad_pages)?,
    };
    Ok(answer.with_moved(write_request.wire_bytes()))
}

/// Writes the pieces as they arrive. Returns the damaged pages.
async fn write_all(write_request: &WriteRequest, mut pieces: mpsc::Receiver<WriteChunk>) -> Result<Vec<Page>, Failure> {
    let mut bad_pages = Vec::new();
    let mut outcome = Ok(());
    let mut wire_bytes = 0;
    while let Some(piece) = pieces.recv().await {
        wire_bytes += piece.data.len() as u64;
        if outcome.is_ok() {
            outcome = write_piece(write_request, piece, &mut bad_pages).await;
        }
    }
    outcome?;
    if wire_bytes < write_request.wire_bytes() {
        // The reader stopped and the connection ends: the data are incomplete.
        return Err(Failure::Gone);
    }
    Ok(bad_pages)
}

fn writing(extent: &Extent) -> Result<&WritableFile, ErrorResponse> {
    Ok(extent.slot.file()?.writing()?)
}

async fn write_piece(
    write_request: &WriteRequest,
    piece: WriteChunk,
    bad_pages: &mut Vec<Page>,
) -> Result<(), Failure> {
    let Some(extent) = write_request.extents.get(piece.extent) else { return Ok(()) };
    let handle = &writing(extent)?.handle;
    let WriteChunk { offset, data, memory, .. } = piece;
    let written = match write_request.pages {
        None => handle.write(offset, Bytes::from(data)).await,
        Some(_) => {
            let bad = page::verify(offset, &data)?;
            if bad_pages.len() + bad.len() > PgWriteStatus::MAX_BAD_PAGES {
                return Err(too_many_damaged().into());
            }
            let written = write_good_pages(&**handle, offset, data, &bad).await;
            bad_pages.extend(bad);
            written
        }
    };
    drop(memory);
    Ok(written?)
}

/// Writes the data of `encoded`, which starts at `offset`, except for the pages in `bad`.
async fn write_good_pages(
    handle: &dyn WriteHandle,
    offset: u64,
    encoded: Vec<u8>,
    bad: &[Page],
) -> towpath_store::Result<()> {
    let data = Bytes::from(strip_checksums(offset, encoded));
    let (mut rest, mut at) = (data, offset);
    for page in bad {
        let good = rest.split_to(usize::try_from(page.offset - at).unwrap_or(usize::MAX).min(rest.len()));
        if !good.is_empty() {
            handle.write(at, good).await?;
        }
        drop(rest.split_to(page.length.min(rest.len())));
        at = page.offset + page.length as u64;
    }
    if rest.is_empty() { Ok(()) } else { handle.write(at, rest).await }
}

/// Removes the checksums from `encoded`, in place.
fn strip_checksums(offset: u64, mut encoded: Vec<u8>) -> Vec<u8> {
    let lengths: Vec<usize> = page::slots(offset, &encoded).map(|(_, data)| data.len()).collect();
    let (mut from, mut to) = (0, 0);
    for length in lengths {
        from += page::CRC_BYTES;
        encoded.copy_within(from..from + length, to);
        from += length;
        to += length;
    }
    encoded.truncate(to);
    encoded
}

/// Handles the end of `pgwrite`: reports the damaged pages, and tracks them until they are sent again.
fn report_pages(
    active_request: &ActiveRequest,
    write_request: &WriteRequest,
    request: &PgWrite,
    bad: Vec<Page>,
) -> ServeResult {
    let Some(extent) = write_request.extents.first() else { return active_request.done() };
    let writing = writing(extent)?;
    let mut known = writing.bad_pages();
    // Resent pages: one that is marked as such, or the whole range after the connection with the damaged ones was
    // lost.
    let end = request.offset + page::decoded_len(request.offset, u64::from(request.length)).unwrap_or(0);
    known.retain(|page| !(request.offset..end).contains(&page.offset) || bad.contains(page));
    if !add_bad_pages(&mut known, &bad) {
        writing.spoil();
        return Err(too_many_damaged().into());
    }
    let mut frame = BytesMut::new();
    PgWriteStatus { offset: request.offset, bad_pages: bad }.encode(active_request.stream_id, &mut frame);
    Ok(FinalFrame::frame(frame))
}

/// Adds pages to the damaged ones; returns `false` without adding any if they would be too many.
fn add_bad_pages(known: &mut Vec<Page>, bad: &[Page]) -> bool {
    let new: Vec<Page> = bad.iter().filter(|page| !known.contains(page)).copied().collect();
    let fits = known.len() + new.len() <= MAX_BAD_PAGES_OF_FILE;
    if fits {
        known.extend(new);
    }
    fits
}

fn too_many_damaged() -> ErrorResponse {
    let message = "too many damaged pages: the network path to this server corrupts data";
    ErrorResponse::with_code(ErrorCode::TooManyErrs, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn data_that_break_off_are_not_written() {
        let extents = vec![Extent { slot: Arc::default(), offset: 0, wire_bytes: 10 }];
        let write_request = WriteRequest { extents, pages: None, sync: false };
        let (sender, pieces) = mpsc::channel(MAX_PIECES_AHEAD);
        drop(sender);
        assert!(matches!(write_all(&write_request, pieces).await, Err(Failure::Gone)));
    }

    #[test]
    fn damaged_pages_are_bounded() {
        let mut known = Vec::new();
        let pages = |from: usize| -> Vec<Page> {
            (from..from + PgWriteStatus::MAX_BAD_PAGES)
                .map(|n| Page { offset: n as u64 * 4096, length: 4096 })
                .collect()
        };
        assert!(add_bad_pages(&mut known, &pages(0)) && add_bad_pages(&mut known, &pages(0)), "the same ones again");
        assert!(add_bad_pages(&mut known, &pages(128)));
        for from in 256..300 {
            assert!(!add_bad_pages(&mut known, &pages(from)));
        }
        assert_eq!(known.len(), MAX_BAD_PAGES_OF_FILE);
    }

    #[test]
    fn checksums_are_taken_out_in_place() {
        for (offset, length) in [(0, 1), (0, 4096), (4090, 10), (100, 9000), (8192, 8192)] {
            let data: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut encoded = BytesMut::new();
            page::encode(offset, &data, &mut encoded);
            assert_eq!(strip_checksums(offset, encoded.to_vec()), data, "{length} at {offset}");
        }
    }
}
