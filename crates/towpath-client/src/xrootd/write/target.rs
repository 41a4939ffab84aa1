//! The file of an unfinished upload at the server, and its removal.
//!
//! Most servers show an upload under its name from the beginning; it is closed and then removed. On a server that hides
//! it until its close (towpath) the name belongs to another file, which must not be removed: the close requests an
//! abort, and states whether written data are kept. A server of unknown kind may support only the standard protocol,
//! which has no close without a commit. But a file with corrupted pages cannot be closed successfully, so one byte is
//! sent with a deliberately wrong checksum. (This is not sufficient for a towpath server: a write of the same page in
//! flight would repair it.)

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use towpath_proto::xrootd::{
    FileHandle,
    page::{self, CRC_BYTES},
    request::{CloseAction, PgWrite, Rm},
    response::PgWriteStatus,
};
use towpath_store::{Caller, Result, StorePath};

use crate::xrootd::{
    connection::{Failure, OutgoingRequest, Payload, PendingResponse},
    server::Server,
    session::{OpenFile, PendingClose},
    site::Site,
    store::XrootdStore,
};

/// The file being written, with everything required to remove it.
#[derive(Debug, Clone)]
pub(super) struct WriteTarget {
    pub(super) store: XrootdStore,
    pub(super) caller: Caller,
    pub(super) path: StorePath,
    pub(super) site: Arc<Site>,
    pub(super) file: Arc<OpenFile>,
    /// Whether the file is new; a new file is removed unless it is committed.
    pub(super) is_new: bool,
    /// The server that has the file, with the opaque information for requests to it.
    pub(super) server: Server,
    /// Whether the file is visible under its name.
    pub(super) shown: Arc<AtomicBool>,
}

/// The requests sent to remove an upload.
pub(super) struct UploadRemoval {
    closing: Option<PendingClose>,
    removing: Option<PendingResponse>,
}

impl WriteTarget {
    /// Determines whether the file, once it is open, is visible under its name.
    pub(super) async fn query_visibility(&self, site: &Site) {
        let hidden = self.is_new && site.may_be_ours().await;
        self.shown.store(!hidden, Ordering::Release);
    }

    /// Runs a task to its end, independently of the caller.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.store.origin.sites.background.spawn_on(task, self.file.session.runtime());
    }

    /// Like [`Self::clear`], but logs errors.
    pub(super) async fn clear_abandoned(&self, underway: UploadRemoval) {
        if let Err(error) = self.clear(underway).await {
            tracing::warn!(path = %self.path, %error, "an abandoned upload could not be removed");
        }
    }

    /// Closes the file with success, which makes it visible under its name.
    ///
    /// Returns the body of the response, which is empty unless the server supports the promise.
    pub(super) async fn close(&self, ending: Option<CloseAction>) -> Result<Bytes, Failure> {
        let answer = self.file.close(ending).await?;
        self.shown.store(true, Ordering::Release);
        Ok(answer)
    }

    /// Sends the requests that remove the file, in one flight; resumable data stay. Returns immediately.
    pub(super) fn start_clear(&self) -> UploadRemoval {
        if let Some(parting) = self.file.parting() {
            return UploadRemoval { closing: self.file.start_close(Some(parting)), removing: None };
        }
        let shown = self.shown.load(Ordering::Acquire);
        let is_hidden = self.is_new && !shown;
        // The number of a closed handle may belong to another file by now.
        if let Some(handle) = self.file.open_handle().filter(|_| is_hidden) {
            drop(self.file.session.submit(spoiling(handle)));
        }
        let closing = self.file.start_close(is_hidden.then_some(CloseAction::Abandon));
        // The path has been sent before, so it can be encoded.
        let path =
            self.site.path_now(self.server.path_of(&self.path), &self.server.cgi).ok().filter(|_| self.is_new && shown);
        let removing = path.map(|path| self.file.session.submit(OutgoingRequest::new(Rm { path }, 64 << 10)));
        UploadRemoval { closing, removing }
    }

    /// Like [`Self::start_clear`], but resumable data are removed too.
    pub(super) fn start_abandon(&self) -> UploadRemoval {
        if self.file.parting().is_some() {
            return UploadRemoval { closing: self.file.start_close(Some(CloseAction::Abandon)), removing: None };
        }
        self.start_clear()
    }

    /// Waits until the file is removed; retries if the server could not remove it while it was open.
    pub(super) async fn clear(&self, underway: UploadRemoval) -> Result<()> {
        if let Some(closing) = underway.closing {
            // The file is removed whether the close succeeds or not.
            let _ = closing.done().await;
        }
        let Some(removing) = underway.removing else { return Ok(()) };
        if removing.finished().await.outcome.is_ok() {
            return Ok(());
        }
        self.store.origin.clear_away(&self.caller, &self.path).await
    }
}

/// Creates a write of one page with a deliberately wrong checksum.
fn spoiling(handle: FileHandle) -> OutgoingRequest {
    let byte = Bytes::from_static(b"x");
    let wrong: [u8; CRC_BYTES] = (!page::crc32c(&byte)).to_be_bytes();
    let length = page::encoded_len(0, 1) as u32;
    let request = PgWrite { handle, length, ..PgWrite::default() };
    let limit = 8 + 8 * PgWriteStatus::MAX_BAD_PAGES;
    OutgoingRequest { payload: Payload::pages(0, byte, Arc::new([wrong])), ..OutgoingRequest::new(request, limit) }
}
