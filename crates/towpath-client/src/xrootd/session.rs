//! A session: one connection that is logged in or about to be, and the files open in it.
//!
//! An [`OpenFile`] is one open of one file in one session. It exists as soon as its open request is sent; reads may be
//! sent immediately with the predicted handle ([`slots`]). The file is closed when the last user drops it.

mod slots;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore, oneshot, watch},
};
use towpath_proto::{
    tcp::{MAX_TCP_INFO_BYTES, TCP_INFO_WORD},
    xrootd::{
        FileHandle, Request, ServerFlags,
        request::{Close, CloseAction, Open, Query},
        response::{Body, OpenReply},
    },
};
use towpath_store::{Blame, Error, Fault, Kind, sys::clock};

use super::{
    connection::{Connection, Dial, Failure, OutgoingRequest, PendingResponse},
    server::root_url,
    session_setup::SessionInfo,
    software::ServerSoftware,
    spread::{Meter, SessionLoad},
};
use slots::Slots;

/// Maximum length of the response to an open, in bytes: handle, stat text, and possible additions of a server.
const OPEN_ANSWER_BYTES: usize = 64 << 10;

/// Maximum length of the response to the query for the software of the server, in bytes.
const SOFTWARE_ANSWER_BYTES: usize = 4096;

/// Number of pieces of spread uploads queued in one session: one being written to the kernel, and one that follows
/// without a pause. Further pieces wait for whichever session has capacity, so that fast sessions get more.
const WAITING_PIECES: usize = 2;

/// One connection and the files open in it.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    /// Permits for pieces queued for sending.
    queue_permits: Arc<Semaphore>,
    slots: Mutex<Slots>,
    /// Bytes of file data in flight; used to choose a session for bulk transfers.
    load: Arc<AtomicUsize>,
    meter: Mutex<Meter>,
    /// Whether the server does not report its kernel statistics of the connection.
    is_silent: AtomicBool,
    /// `host:port`, for messages.
    pub(super) host: Arc<str>,
    is_encrypted: bool,
    /// The software of the server. A name can lead to several servers, and a server can be replaced.
    software: OnceCell<ServerSoftware>,
    /// Runtime of the connection; files may be dropped, and therefore closed, outside of it.
    runtime: Handle,
}

impl Session {
    /// Starts a session; returns immediately.
    pub(super) fn start(dial: Dial, runtime: Handle) -> Self {
        let host = dial.plan.host.as_str().into();
        let is_encrypted = dial.tls.is_some();
        let load = Arc::clone(&dial.underway);
        let connection = Connection::start(dial, &runtime);
        Self {
            connection,
            queue_permits: Arc::new(Semaphore::new(WAITING_PIECES)),
            slots: Mutex::default(),
            load,
            meter: Mutex::new(Meter::new(clock::now())),
            is_silent: AtomicBool::new(false),
            host,
            is_encrypted,
            software: OnceCell::new(),
            runtime,
        }
    }

    /// Returns the URL up to the path, for messages.
    pub(super) fn root(&self) -> String {
        root_url(self.is_encrypted, &self.host)
    }

    /// Sends a request after those submitted before.
    pub(super) fn submit(&self, outgoing: OutgoingRequest) -> PendingResponse {
        self.connection.submit(outgoing)
    }

    /// Returns the server's capabilities once the session was ready; also after it is lost.
    pub(super) fn established(&self) -> Option<&SessionInfo> {
        self.connection.established()
    }

    /// Returns whether the server is a proxy of others; `None` before it has reported it.
    pub(super) fn is_at_proxy(&self) -> Option<bool> {
        let flags = self.established()?.flags;
        Some(flags.contains(ServerFlags::attrProxy) || flags.contains(ServerFlags::attrCache))
    }

    /// Returns the software of the server, if it is known.
    pub(super) fn software(&self) -> Option<&ServerSoftware> {
        self.software.get()
    }

    /// Returns the software of the server, with a query if it is unknown; `None` if that fails.
    pub(super) async fn learn_software(&self) -> Option<&ServerSoftware> {
        let answered = self.software.get_or_try_init(|| async {
            let words = Query::Config(Bytes::from_static(ServerSoftware::WORDS));
            let finished = self.submit(OutgoingRequest::new(words, SOFTWARE_ANSWER_BYTES)).finished().await;
            match finished.outcome {
                Ok(_) => Ok(ServerSoftware::of_answer(&finished.buffer)),
                // A towpath server supports the query.
                Err(Failure::Refused(reply)) if reply.fault().kind() != Kind::Unavailable => {
                    Ok(ServerSoftware::FOREIGN)
                }
                Err(_) => Err(()),
            }
        });
        answered.await.ok()
    }

    /// Returns whether the server has carried out a `readv` before it carries out the next request. XRootD reads vectors
    /// in the thread of the connection, and other ranges perhaps elsewhere; a proxy passes both on.
    pub(super) fn reads_vectors_in_order(&self) -> bool {
        self.software().is_some_and(|software| software.is_xrootd) && self.is_at_proxy() == Some(false)
    }

    /// Waits until the session is ready or lost.
    pub(super) async fn settled(&self) {
        self.connection.settled().await;
    }

    /// Returns the reason of the loss; `None` if the session is not lost.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.connection.lost()
    }

    /// Returns whether submitted requests can succeed.
    pub(super) fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Requests the server's kernel statistics of the connection, for observers ([`crate::Client::connections`]).
    /// Servers other than towpath do not support the query; it is not repeated for them.
    pub(super) async fn ask_far_end(&self) {
        let may_say = self.established().is_some() && !self.is_silent.load(Ordering::Relaxed);
        let Some(tap) = self.connection.tap().filter(|_| may_say) else { return };
        let query = Query::Config(Bytes::from_static(TCP_INFO_WORD));
        let finished = self.submit(OutgoingRequest::new(query, MAX_TCP_INFO_BYTES)).finished().await;
        let is_silent = match finished.outcome {
            Ok(_) => !tap.record_peer_statistics(&finished.buffer),
            Err(failure) => matches!(failure, Failure::Refused(_)),
        };
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Returns the runtime of the connection.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns whether a listing whose reader is too slow holds the connection.
    pub(super) fn is_occupied(&self) -> bool {
        self.connection.is_occupied()
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session's load in bytes and its rate.
    pub(super) fn session_load(&self) -> SessionLoad {
        self.meter().session_load(self.load.load(Ordering::Relaxed))
    }

    /// Returns whether the data in flight are at least `bytes`, and take longer than some round trips as far as is known.
    pub(super) fn queue_exceeds(&self, bytes: usize, round_trips: u32) -> bool {
        let load = self.load.load(Ordering::Relaxed);
        if load < bytes {
            return false;
        }
        let round_trip = self.connection.tap().and_then(|tap| tap.look()).map(|connection| connection.info.min_rtt);
        match (self.meter().duration(load), round_trip.filter(|round_trip| !round_trip.is_zero())) {
            (Some(queue), Some(round_trip)) => queue > round_trip * round_trips,
            _ => true,
        }
    }

    /// Counts `bytes` as in flight until the result is dropped.
    pub(super) fn loaded(self: &Arc<Self>, bytes: usize) -> InFlightBytes {
        if self.load.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.meter().begins(clock::now());
        }
        InFlightBytes { session: Arc::clone(self), bytes }
    }

    /// Waits until a piece of a spread upload can be sent soon. Returns `None` if that is impossible.
    pub(super) async fn queue_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue_permits).acquire_owned().await.ok()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an open request. With `guess`, the handle is predicted where that is safe.
    pub(super) fn open(self: &Arc<Self>, open: Open, guess: bool) -> Arc<OpenFile> {
        self.start_open(open, guess, None)
    }

    /// Sends a further open of a file that is being written. By default, the file is closed with `parting`.
    pub(super) fn open_again(self: &Arc<Self>, open: Open, parting: Option<CloseAction>) -> Arc<OpenFile> {
        self.start_open(open, false, parting)
    }

    fn start_open(self: &Arc<Self>, open: Open, guess: bool, parting: Option<CloseAction>) -> Arc<OpenFile> {
        let mut outgoing = OutgoingRequest::new(Request::from(open), OPEN_ANSWER_BYTES);
        // The file may have to be recalled from tape.
        outgoing.patient = true;
        let (pending, guessed) = {
            // The prediction holds only if the opens are sent in the predicted order.
            let mut slots = self.slots();
            let guessed = slots.opening();
            (self.submit(outgoing), guessed)
        };
        let answer = watch::Sender::new(None);
        let answered = answer.subscribe();
        let file = Arc::new(OpenFile {
            session: Arc::clone(self),
            guess: guessed.filter(|_| guess),
            answered,
            closed: AtomicBool::new(false),
            parting: parting.clone(),
        });
        self.runtime.spawn(settle(Arc::clone(self), Arc::downgrade(&file), pending, guessed, (answer, parting)));
        file
    }

    /// Sends a close request.
    fn close(self: &Arc<Self>, handle: FileHandle, ending: Option<CloseAction>) -> PendingClose {
        let outgoing = OutgoingRequest {
            // The server may have to write out data, or compute checksums, before it can confirm the close.
            patient: true,
            ..OutgoingRequest::new(Request::from(Close { handle, ending }), OPEN_ANSWER_BYTES)
        };
        let pending = {
            let mut slots = self.slots();
            slots.closing();
            self.submit(outgoing)
        };
        let session = Arc::clone(self);
        let (settled, outcome) = oneshot::channel();
        self.runtime.spawn(async move {
            let finished = pending.finished().await;
            session.slots().closed(handle);
            // The result of most closes is not awaited.
            let _ = settled.send(finished.outcome.map(|_| finished.buffer.into()));
        });
        PendingClose(outcome)
    }

    /// Returns the error for a response that cannot be decoded.
    pub(super) fn garbled(&self, why: &impl std::fmt::Display) -> Error {
        Error::new(Fault::Protocol, format!("{}: {why}", self.host)).blamed_on(Blame::Storage)
    }
}

/// Waits for the response to an open, and closes the file if it is no longer needed.
async fn settle(
    session: Arc<Session>,
    file: Weak<OpenFile>,
    pending: PendingResponse,
    guess: Option<FileHandle>,
    (answer, parting): (watch::Sender<Option<Result<OpenReply, Failure>>>, Option<CloseAction>),
) {
    let finished = pending.finished().await;
    let reply = finished.outcome.and_then(|_| {
        OpenReply::decode(Bytes::from(finished.buffer)).map_err(|error| Failure::Fatal(session.garbled(&error)))
    });
    let handle = reply.as_ref().ok().map(|reply| reply.handle);
    // A resumable upload must not become visible, complete or not.
    let resumable = reply.as_ref().ok().and_then(|reply| reply.present.as_ref()).map(|_| CloseAction::Keep);
    let ending = parting.or(resumable);
    session.slots().opened(guess, handle);
    match (file.upgrade(), handle) {
        // The file's own drop closes it.
        (Some(_file), _) => {
            answer.send_replace(Some(reply));
        }
        (None, Some(handle)) => drop(session.close(handle, ending)),
        (None, None) => {}
    }
}

/// Bytes counted as in flight in a session.
#[derive(Debug)]
pub(super) struct InFlightBytes {
    session: Arc<Session>,
    bytes: usize,
}

impl Drop for InFlightBytes {
    fn drop(&mut self) {
        self.session.load.fetch_sub(self.bytes, Ordering::Relaxed);
        self.session.meter().carries(self.bytes, clock::now());
    }
}

/// A close in flight. Dropping it does not cancel the close.
#[derive(Debug)]
pub(super) struct PendingClose(oneshot::Receiver<Result<Bytes, Failure>>);

impl PendingClose {
    /// Waits for the response and returns its body, which is empty unless the close had a promise.
    pub(super) async fn done(self) -> Result<Bytes, Failure> {
        self.0
            .await
            .unwrap_or_else(|_| Err(Failure::Lost(Error::new(Fault::Internal, "the task that closes a file ended"))))
    }
}

/// A file open, or being opened, in one session.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) session: Arc<Session>,
    guess: Option<FileHandle>,
    answered: watch::Receiver<Option<Result<OpenReply, Failure>>>,
    closed: AtomicBool,
    /// How the file is closed by default.
    parting: Option<CloseAction>,
}

/// The handle for a request that is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandleState {
    Known(FileHandle),
    /// Predicted; to be compared with the response to the open.
    Guessed(FileHandle),
    /// The response to the open has to be awaited.
    Unknown,
}

impl OpenFile {
    /// Returns the handle for a request that is sent now.
    pub(super) fn handle_state(&self) -> HandleState {
        match (&*self.answered.borrow(), self.guess) {
            (Some(Ok(reply)), _) => HandleState::Known(reply.handle),
            (None, Some(guess)) => HandleState::Guessed(guess),
            _ => HandleState::Unknown,
        }
    }

    /// Waits for the response to the open and returns it.
    pub(super) async fn opened(&self) -> Result<OpenReply, Failure> {
        let mut answered = self.answered.clone();
        match answered.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reply)) => reply.clone(),
            _ => Err(Failure::Lost(Error::new(Fault::Internal, "the task that opens a file ended"))),
        }
    }

    /// Returns whether the file is an upload that is known to persist if it is not committed.
    pub(super) fn is_resumable(&self) -> bool {
        matches!(&*self.answered.borrow(), Some(Ok(reply)) if reply.present.is_some())
    }

    /// Returns how the file is closed by default.
    pub(super) fn parting(&self) -> Option<CloseAction> {
        self.parting.clone().or_else(|| self.is_resumable().then_some(CloseAction::Keep))
    }

    /// Returns the handle if the file is known to be open and no close has been sent.
    pub(super) fn open_handle(&self) -> Option<FileHandle> {
        match self.handle_state() {
            HandleState::Known(handle) if !self.closed.load(Ordering::Acquire) => Some(handle),
            _ => None,
        }
    }

    /// Sends the close if the file is open and not yet closed. Returns immediately.
    pub(super) fn start_close(&self, ending: Option<CloseAction>) -> Option<PendingClose> {
        let handle = self.open_handle()?;
        if self.closed.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(self.session.close(handle, ending))
    }

    /// Closes the file and waits for the response; returns immediately if it is closed already.
    pub(super) async fn close(&self, ending: Option<CloseAction>) -> Result<Bytes, Failure> {
        self.opened().await?;
        match self.start_close(ending) {
            Some(closing) => closing.done().await,
            None => Ok(Bytes::new()),
        }
    }

    /// Returns whether requests on the file can succeed, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        self.session.is_alive() && !matches!(&*self.answered.borrow(), Some(Err(_)))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.start_close(self.parting());
    }
}
