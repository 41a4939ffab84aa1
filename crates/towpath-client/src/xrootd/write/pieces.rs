//! Sends data as pages with checksums, and retransmits pages that are corrupted or lost.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use towpath_proto::xrootd::{
    FileHandle, PageFlags,
    page::{self, Page},
    request::{CloseAction, PgWrite, Write},
    response::PgWriteStatus,
};
use towpath_store::{Blame, ByteRange, Error, Fault, Result};

use super::{Upload, not_open, streams::UploadStream, target::WriteTarget};
use crate::xrootd::{
    connection::{Failure, OutgoingRequest, Payload, RequestCompletion, ResponseStatus},
    session::OpenFile,
};

/// Maximum number of retransmissions of a damaged page.
const PAGE_RETRIES: usize = 3;

impl Upload {
    /// Writes at most [`super::MAX_REQUEST_BYTES`], over another connection if the chosen one is lost.
    pub(super) async fn piece(&self, offset: u64, data: Bytes) -> Result<()> {
        let _room = self.site.room(data.len()).await?;
        let mut stream = self.stream_for(offset, data.len()).await;
        loop {
            let failure = match self.send(&mut stream, offset, &data).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let other = failure.is_loss().then(|| self.streams.alive(Some(&stream.file))).flatten();
            let Some(other) = other else { return Err(self.error(&stream.file, failure)) };
            tracing::debug!(path = %self.target.path, offset, "resending a block over another connection: {failure}");
            stream = self.stream_of(other, data.len());
        }
    }

    /// Sends a piece once.
    async fn send(&self, stream: &mut UploadStream, offset: u64, data: &Bytes) -> Result<(), Failure> {
        let queue_permit = stream.queue_permit.take();
        let UploadStream { file, handle, .. } = &*stream;
        if !self.site.wants_pages(&file.session) {
            return self.send_request(file, queue_permit, || plain(*handle, offset, data)).await.map(drop);
        }
        let range = ByteRange { offset, length: data.len() };
        for page in self.pages(stream, queue_permit, range, data, PageFlags::NONE).await? {
            self.resend(stream, page, range, data).await?;
        }
        Ok(())
    }

    /// Sends a range as pages. Returns the pages that arrived damaged.
    async fn pages(
        &self,
        stream: &UploadStream,
        queue_permit: Option<OwnedSemaphorePermit>,
        range: ByteRange,
        data: &Bytes,
        flags: PageFlags,
    ) -> Result<Vec<Page>, Failure> {
        let UploadStream { file, handle, .. } = stream;
        let checksums = checksums(range.offset, data);
        let outgoing = || paged(*handle, range.offset, data, Arc::clone(&checksums), flags);
        let finished = self.send_request(file, queue_permit, outgoing).await?;
        damaged(file, finished)
    }

    /// Sends the held-back data, and the close right after it: a towpath server processes them in that order.
    pub(super) async fn close_behind(
        &self,
        target: &WriteTarget,
        (offset, data): (u64, Bytes),
        ending: CloseAction,
    ) -> Result<Bytes, Failure> {
        let room = self.site.room(data.len()).await.map_err(Failure::Fatal)?;
        let stream = self.stream_of(Arc::clone(&target.file), data.len());
        let UploadStream { file, handle, .. } = &stream;
        let write = match self.site.wants_pages(&file.session) {
            true => paged(*handle, offset, &data, checksums(offset, &data), PageFlags::NONE),
            false => plain(*handle, offset, &data),
        };
        let writing = file.session.submit(write);
        let written = async {
            let finished = writing.finished().await;
            drop(room);
            finished
        };
        let (written, closed) = futures::future::join(written, target.close(Some(ending))).await;
        match damaged(file, written)?.first() {
            None => closed,
            Some(page) => {
                let message = format!("{}: the page at {} arrived damaged", file.session.host, page.offset);
                Err(Failure::Fatal(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Network)))
            }
        }
    }

    /// Sends one page of `data` again until it arrives undamaged.
    async fn resend(&self, stream: &UploadStream, page: Page, range: ByteRange, data: &Bytes) -> Result<(), Failure> {
        let file = &stream.file;
        let start = page.offset.checked_sub(range.offset).and_then(|start| usize::try_from(start).ok());
        let end = start.map(|start| start.saturating_add(page.length)).filter(|end| *end <= data.len());
        let (Some(start), Some(end)) = (start, end) else {
            return Err(Failure::Fatal(file.session.garbled(&"it requested a page again that was not sent")));
        };
        let range = ByteRange { offset: page.offset, length: page.length };
        let host = &file.session.host;
        for _ in 0..PAGE_RETRIES {
            tracing::warn!(host = &**host, path = %self.target.path, offset = page.offset, "damaged page");
            if self.pages(stream, None, range, &data.slice(start..end), PageFlags::retry).await?.is_empty() {
                return Ok(());
            }
        }
        let message = format!("{host}: the page at {} arrived damaged {} times", page.offset, PAGE_RETRIES + 1);
        Err(Failure::Fatal(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Network)))
    }

    /// Sends a request about the open file; repeats it while the server asks to wait.
    pub(super) async fn send_request(
        &self,
        file: &OpenFile,
        mut queue_permit: Option<OwnedSemaphorePermit>,
        outgoing: impl Fn() -> OutgoingRequest,
    ) -> Result<RequestCompletion, Failure> {
        let mut retry_state = self.target.store.origin.retry_state(false);
        loop {
            if self.finished.load(Ordering::Acquire) {
                return Err(Failure::Fatal(not_open()));
            }
            let mut finished = file
                .session
                .submit(OutgoingRequest { queue_permit: queue_permit.take(), ..outgoing() })
                .finished()
                .await;
            match std::mem::replace(&mut finished.outcome, Ok(ResponseStatus::Ok)) {
                Ok(answer) => return Ok(RequestCompletion { outcome: Ok(answer), ..finished }),
                Err(failure @ Failure::Wait { .. }) => {
                    let waited = self.target.store.origin.handle_failure(&mut retry_state, &self.site, failure).await;
                    waited.map_err(Failure::Fatal)?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Creates a write without checksums.
fn plain(handle: FileHandle, offset: u64, data: &Bytes) -> OutgoingRequest {
    let request = Write { handle, offset, length: data.len() as u32, ..Write::default() };
    OutgoingRequest { payload: Payload::Plain(data.clone()), ..OutgoingRequest::new(request, 0) }
}

/// Creates a write of pages with checksums.
fn paged(
    handle: FileHandle,
    offset: u64,
    data: &Bytes,
    checksums: Arc<[[u8; page::CRC_BYTES]]>,
    flags: PageFlags,
) -> OutgoingRequest {
    let length = page::encoded_len(offset, data.len() as u64) as u32;
    let request = PgWrite { handle, offset, flags, length, ..PgWrite::default() };
    let limit = 4 + 4 + 8 * PgWriteStatus::MAX_BAD_PAGES;
    OutgoingRequest { payload: Payload::pages(offset, data.clone(), checksums), ..OutgoingRequest::new(request, limit) }
}

/// Returns the pages that arrived damaged, according to the response to a write.
fn damaged(file: &OpenFile, finished: RequestCompletion) -> Result<Vec<Page>, Failure> {
    let ResponseStatus::Status(status) = finished.outcome? else { return Ok(Vec::new()) };
    let status = PgWriteStatus::from_body(&status, Bytes::from(finished.buffer));
    Ok(status.map_err(|error| Failure::Fatal(file.session.garbled(&error)))?.bad_pages)
}

/// Returns the checksum of each page of `data` at `offset`.
fn checksums(offset: u64, data: &Bytes) -> Arc<[[u8; page::CRC_BYTES]]> {
    page_slices(offset, data).map(|page| page::crc32c(&page).to_be_bytes()).collect()
}

/// Splits `data` at `offset` into pages.
fn page_slices(offset: u64, data: &Bytes) -> impl Iterator<Item = Bytes> {
    let data = data.clone();
    page::pages(offset, data.len() as u64).map(move |page| {
        let start = (page.offset - offset) as usize;
        data.slice(start..start + page.length)
    })
}
