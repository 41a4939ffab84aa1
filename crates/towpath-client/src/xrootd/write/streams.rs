//! The streams of one upload: its first connection, and the connections in whose sessions the file is opened again.
//!
//! A towpath server returns further handles of an upload to a client that names one (`towpath.share`). All handles are
//! equal: if a connection is lost, the data in flight on it are sent over another one. An XRootD server accepts a
//! second `open` of the same name with `force`; there the upload is visible under its name, so the client can check
//! that both opens are of one file. (`bind` is the protocol's own way, but XRootD's servers handle writes on bound
//! connections incorrectly, as the comments of its client say, and a lost connection ends the whole session.) If a
//! further open is refused, the upload continues over its first connection.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::OwnedSemaphorePermit;
use towpath_proto::xrootd::{
    FileHandle, OpenOptions as OpenFlags,
    request::{CloseAction, Open, SharedHandle},
    response::OpenReply,
};

use super::{Upload, target::WriteTarget};
use crate::{
    dial::MAX_CONNECTIONS,
    xrootd::{
        connection::Failure,
        origin::with_pair,
        session::{InFlightBytes, OpenFile, PendingClose, Session},
        software::ReopenMethod,
    },
};

/// Offset in bytes up to which data are sent over the first connection: further opens do not pay off for small files.
const SPREAD_FROM: u64 = 8 << 20;

/// Maximum number of further opens of one upload: each connection may be lost a few times.
const MAX_OPENS: usize = 4 * MAX_CONNECTIONS;

/// The streams of one upload.
///
/// A piece is assigned to a stream only when the stream can send it, so that no piece queues behind a slow connection.
#[derive(Debug)]
pub(super) struct UploadStreams {
    /// The open files; the first one began the upload.
    opens: Mutex<Vec<Arc<OpenFile>>>,
    /// Remaining number of further opens.
    left: AtomicUsize,
    /// Held while a piece is assigned, so that pieces are assigned in order.
    turn: tokio::sync::Mutex<()>,
}

/// The stream that a piece is assigned to.
#[derive(Debug)]
pub(super) struct UploadStream {
    pub(super) file: Arc<OpenFile>,
    pub(super) handle: FileHandle,
    /// Permit for one of the pieces that are queued to be sent.
    pub(super) queue_permit: Option<OwnedSemaphorePermit>,
    _load: InFlightBytes,
}

impl UploadStreams {
    /// Creates the streams of an upload that is open in one session.
    pub(super) fn new(first: Arc<OpenFile>) -> Self {
        Self { opens: Mutex::new(vec![first]), left: AtomicUsize::new(MAX_OPENS), turn: tokio::sync::Mutex::default() }
    }

    fn opens(&self) -> MutexGuard<'_, Vec<Arc<OpenFile>>> {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open other than `lost` in a live session, preferably the one that began the upload.
    pub(super) fn alive(&self, lost: Option<&Arc<OpenFile>>) -> Option<Arc<OpenFile>> {
        let opens = self.opens();
        let mut usable = opens.iter().filter(|file| file.session.is_alive() && file.open_handle().is_some());
        usable.find(|file| lost.is_none_or(|lost| !Arc::ptr_eq(file, lost))).cloned()
    }

    /// Returns the open in `session`; `open` starts it if there is none.
    fn open_in(
        &self,
        session: &Arc<Session>,
        open: impl FnOnce(&Arc<OpenFile>) -> Option<Arc<OpenFile>>,
    ) -> Option<Arc<OpenFile>> {
        let mut opens = self.opens();
        if let Some(file) = opens.iter().find(|file| Arc::ptr_eq(&file.session, session)) {
            return Some(Arc::clone(file));
        }
        let known = opens.iter().find(|file| file.session.is_alive() && file.open_handle().is_some())?;
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).ok()?;
        let file = open(known)?;
        opens.retain(|file| file.session.is_alive());
        opens.push(Arc::clone(&file));
        Some(file)
    }

    /// Stops further opens of the upload.
    fn stay(&self) {
        self.left.store(0, Ordering::Release);
    }

    /// Sends the closes of all open files but `file`. Returns those that were sent.
    fn start_close(&self, file: &Arc<OpenFile>) -> Vec<PendingClose> {
        let opens = self.opens();
        let others = opens.iter().filter(|other| !Arc::ptr_eq(other, file));
        others.filter_map(|other| other.start_close(other.parting())).collect()
    }
}

impl Upload {
    /// Returns the stream for a piece of `bytes` at `offset`.
    pub(super) async fn stream_for(&self, offset: u64, bytes: usize) -> UploadStream {
        if offset >= SPREAD_FROM
            && let Some(stream) = self.another(bytes).await
        {
            return stream;
        }
        let file = self.streams.alive(None).unwrap_or_else(|| Arc::clone(&self.target.file));
        self.stream_of(file, bytes)
    }

    /// Returns the stream of an open that was answered.
    pub(super) fn stream_of(&self, file: Arc<OpenFile>, bytes: usize) -> UploadStream {
        let load = file.session.loaded(bytes);
        // The session reports the error of a closed or lost stream.
        let handle = file.open_handle().unwrap_or(self.handle);
        UploadStream { file, handle, queue_permit: None, _load: load }
    }

    /// Returns the stream of the first session that can send a piece; none if the upload cannot be opened there.
    async fn another(&self, bytes: usize) -> Option<UploadStream> {
        let (session, queue_permit) = {
            let _turn = self.streams.turn.lock().await;
            if self.streams.left.load(Ordering::Acquire) == 0 {
                return None;
            }
            let sessions = self.site.sessions().ok()?;
            let queue_permits = sessions.iter().map(|session| Box::pin(session.queue_permit()));
            let (queue_permit, number, _) = futures::future::select_all(queue_permits).await;
            (Arc::clone(sessions.get(number)?), queue_permit)
        };
        let load = session.loaded(bytes);
        let file = self.streams.open_in(&session, |known| self.open_again(&session, known))?;
        match file.opened().await {
            Ok(reply) if self.is_same(&file, &reply).await => {
                Some(UploadStream { handle: reply.handle, file, queue_permit, _load: load })
            }
            Ok(_) | Err(Failure::Refused(_) | Failure::Redirect { .. } | Failure::Fatal(_)) => {
                tracing::debug!(host = &*session.host, path = %self.target.path, "the upload stays on its connection");
                self.streams.stay();
                None
            }
            Err(_) => None,
        }
    }

    /// Sends a further open of the file that `known` has open.
    fn open_again(&self, session: &Arc<Session>, known: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let WriteTarget { path, server, .. } = &self.target;
        let (options, cgi, parting) = match self.site.reopen_method(&known.session)? {
            ReopenMethod::ByHandle => {
                let session_id = known.session.established()?.session_id;
                let pair = SharedHandle { session_id, handle: known.open_handle()? }.pair();
                (OpenFlags::open_updt, with_pair(&server.cgi, &pair), Some(CloseAction::Keep))
            }
            // Opaque information added by a redirector is valid for one open only.
            ReopenMethod::ByName if server.cgi == self.target.store.origin.server.cgi => {
                (OpenFlags::open_updt | OpenFlags::force | OpenFlags::retstat, server.cgi.clone(), None)
            }
            ReopenMethod::ByName => return None,
        };
        let open = Open { options, path: self.site.path_now(server.path_of(path), &cgi).ok()?, ..Open::default() };
        Some(session.open_again(open, parting))
    }

    /// Returns whether a further open found the file of the first one. An open that names the handle cannot find
    /// another file.
    async fn is_same(&self, file: &Arc<OpenFile>, reply: &OpenReply) -> bool {
        if file.parting().is_some() || Arc::ptr_eq(file, &self.target.file) {
            return true;
        }
        let first = self.id.get_or_try_init(|| async { self.stat(&self.target.file).await.map(|stat| stat.id) }).await;
        matches!((first, &reply.stat), (Ok(first), Some(stat)) if *first == stat.id && stat.id != 0)
    }

    /// Returns the open file to close or abort in the end: the first one, or another one if that is lost.
    pub(super) fn remaining(&self) -> WriteTarget {
        let file = self.streams.alive(None).unwrap_or_else(|| Arc::clone(&self.target.file));
        WriteTarget { file, ..self.target.clone() }
    }

    /// Closes all further opens, so that the close of `target` is the last one. A towpath server needs none of this: it
    /// commits with the first close.
    ///
    /// # Errors
    /// Fails if the storage reports a write error, which it may do only now. A lost connection is no error: its writes
    /// were confirmed.
    pub(super) async fn gather(&self, target: &WriteTarget) -> Result<(), Failure> {
        if self.site.is_known_to_be_ours() {
            return Ok(());
        }
        let mut refused = Ok(());
        for closing in self.streams.start_close(&target.file) {
            if let Err(failure @ Failure::Refused(_)) = closing.done().await {
                refused = Err(failure);
            }
        }
        refused
    }
}
