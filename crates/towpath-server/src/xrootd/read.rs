//! Reads of open files: `read` here, `pgread` in [`pages`], `readv` in [`vector`].
//!
//! Small reads whose data are in memory are answered by the connection's reader ([`immediate`]), all others by a task.
//! On a connection without TLS, a range of a local file is sent from the page cache (`sendfile`). All such pieces are
//! `oksofar`, and the final, empty `ok` is sent only after checking that the file is still the opened version. Other
//! reads go through a buffer, one piece at a time.

mod immediate;
pub(super) mod pages;
pub(super) mod vector;

use std::sync::Arc;

use towpath_proto::xrootd::{ResponseHeader, Status, page, request::Read};
use towpath_store::{ByteRange, Error, Fault, LocalPart, Preparation, ReadHandle};

use super::{
    active_request::{ActiveRequest, FinalFrame, ServeResult, seal},
    files::OpenFile,
};

/// Size of one buffer, in bytes, and thus the memory of one request. It stays in the processor's second-level cache
/// between the copy out of the page cache and the copy into the socket.
const PIECE_BYTES: usize = 256 << 10;
/// Minimum size of a piece that is not the last one, in bytes: files without a size, such as those in `/proc`, are
/// sent in such pieces.
const MIN_PIECE_BYTES: usize = 64 << 10;
/// Maximum size of one `sendfile` frame, in bytes; it bounds how long other responses on the connection wait.
const FILE_PIECE_BYTES: u64 = 2 << 20;
/// Minimum length for `sendfile`, in bytes: below it a copy is cheaper than the disk pool.
const FILE_MIN_BYTES: u32 = 64 << 10;

/// The ranges of a request, announced to their store if that helps it.
pub(super) struct Announced(Option<Arc<dyn Preparation>>);

impl Announced {
    /// Announces `ranges` of `file`.
    pub(super) fn new(file: &OpenFile, ranges: &[ByteRange]) -> Self {
        Self(file.reader().and_then(|handle| handle.prepare(ranges)))
    }

    /// Waits until `length` bytes at `offset` are near. Memory for the response is reserved afterwards: a slow origin
    /// must not keep it from the readers of others.
    pub(super) async fn ready(&self, offset: u64, length: usize) -> towpath_store::Result<()> {
        match &self.0 {
            Some(preparation) => preparation.ready(ByteRange { offset, length }).await,
            None => Ok(()),
        }
    }

    /// Whether [`Self::ready`] may wait.
    pub(super) fn may_wait(&self) -> bool {
        self.0.is_some()
    }
}

/// Handles `read`.
pub(super) async fn read(active_request: &ActiveRequest, file: &OpenFile, request: &Read) -> ServeResult {
    active_request.set_path(&file.path);
    let length = request.length as usize;
    let announced = Announced::new(file, &[ByteRange { offset: request.offset, length }]);
    if let Some(handle) = file.reader()
        && active_request.response_writer.is_plain()
        && request.length > FILE_MIN_BYTES
    {
        let first = u64::from(request.length).min(FILE_PIECE_BYTES);
        announced.ready(request.offset, first as usize).await?;
        if let Some(part) = handle.local_part(request.offset, first) {
            return send_file(active_request, &**handle, file, request, &announced, part).await;
        }
    }
    let mut cursor = Cursor { offset: request.offset, left: length };
    send_pieces(active_request, file, &mut cursor, &announced).await?;
    Ok(FinalFrame::sent(cursor.offset - request.offset))
}

/// The part of a request that is not yet answered.
struct Cursor {
    offset: u64,
    left: usize,
}

/// Returns the size of the pieces in which `file` is read from `offset`: whole pages, at most [`PIECE_BYTES`]. Memory
/// is reserved for the content of the file, not for the requested length, so that a short response can come from the
/// reserve. The first piece is longer than the rest of a short file, so it is the last one.
async fn piece_bytes(file: &OpenFile, offset: u64) -> towpath_store::Result<usize> {
    let rest = file.metadata().await?.size.saturating_sub(offset);
    let piece = usize::try_from(rest).unwrap_or(PIECE_BYTES).clamp(MIN_PIECE_BYTES - 1, PIECE_BYTES - 1) + 1;
    Ok(piece.next_multiple_of(page::PAGE_BYTES))
}

/// Sends the rest of a request from a buffer, to its end or that of the file.
async fn send_pieces(
    active_request: &ActiveRequest,
    file: &OpenFile,
    cursor: &mut Cursor,
    announced: &Announced,
) -> ServeResult<()> {
    let piece = piece_bytes(file, cursor.offset).await?;
    let mut memory = None;
    let mut frame = Vec::new();
    loop {
        let length = cursor.left.min(piece);
        if announced.may_wait() {
            (memory, frame) = (None, Vec::new());
            announced.ready(cursor.offset, length).await?;
        }
        if memory.is_none() {
            memory = Some(active_request.session.memory_to_answer(length).await);
            frame.reserve_exact(length + ResponseHeader::LEN);
        }
        frame.clear();
        frame.extend_from_slice(&[0; ResponseHeader::LEN]);
        frame = file.read_into(cursor.offset, length, frame).await?;
        let got = frame.len().saturating_sub(ResponseHeader::LEN);
        cursor.left -= got.min(cursor.left);
        let last = got < length || cursor.left == 0;
        seal(&mut frame, 0, active_request.stream_id, if last { Status::ok } else { Status::oksofar });
        active_request.send(&frame).await?;
        active_request.session.record_sent(&file.identity, got as u64);
        cursor.offset += got as u64;
        if last {
            return Ok(());
        }
    }
}

/// Sends a request by `sendfile`, beginning with `first`; the rest from a buffer as soon as a part is not in a local
/// file.
async fn send_file(
    active_request: &ActiveRequest,
    handle: &dyn ReadHandle,
    file: &OpenFile,
    request: &Read,
    announced: &Announced,
    first: LocalPart,
) -> ServeResult {
    handle.check_version()?;
    let size = handle.metadata().await?.size;
    let end = size.min(request.offset.saturating_add(u64::from(request.length)));
    let mut offset = request.offset;
    let mut first = Some(first);
    while offset < end {
        let length = (end - offset).min(FILE_PIECE_BYTES);
        let local = match first.take() {
            Some(first) => Some(first),
            None => {
                announced.ready(offset, length as usize).await?;
                handle.local_part(offset, length)
            }
        };
        let Some(local) = local else {
            let mut cursor = Cursor { offset, left: (end - offset) as usize };
            send_pieces(active_request, file, &mut cursor, announced).await?;
            return Ok(FinalFrame::sent(cursor.offset - request.offset));
        };
        send_part(active_request, handle, &local, file, offset, length).await?;
        offset += length;
    }
    let done = active_request.done()?;
    Ok(done.with_moved(end.saturating_sub(request.offset)))
}

/// Sends one frame of a request by `sendfile`.
async fn send_part(
    active_request: &ActiveRequest,
    handle: &dyn ReadHandle,
    local: &LocalPart,
    file: &OpenFile,
    offset: u64,
    length: u64,
) -> ServeResult<()> {
    let header = ResponseHeader { stream_id: active_request.stream_id, status: Status::oksofar, dlen: length as u32 };
    let of_file = active_request.response_writer.send_file(&header.to_bytes(), &local.file, offset, length).await?;
    handle.check_version()?;
    // A handle that follows the file has no version to compare.
    of_file.map_err(|error| Error::new(Fault::Io, format!("reading: {error}")).at(&file.path))?;
    local.record_sent(offset, length);
    active_request.session.record_sent(&file.identity, length);
    Ok(())
}
