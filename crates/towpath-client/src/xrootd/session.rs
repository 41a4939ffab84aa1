//! A session: one connection that is logged in (or about to be), and the files open in it.
//!
//! An [`OpenFile`] is one open of one file in one session. It exists from the moment its open is sent; reads may leave
//! at once with the handle that the open will probably get ([`slots`]). When the last user drops it, it is closed.

mod slots;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch},
};
use towpath_proto::{
    tcp::{MAX_TCP_INFO_BYTES, TCP_INFO_WORD},
    xrootd::{
        FileHandle, Request,
        request::{Close, Ending, Open, Query},
        response::{Body, OpenReply},
    },
};
use towpath_store::{Blame, Error, Fault, sys::clock};

use super::{
    connection::{Connection, Dial, Exchange, Failure, Pending},
    flight::Established,
    server::root_url,
    spread::{Meter, Outlook},
};
use slots::Slots;

/// Longest answer to an open, in bytes: handle, stat text, and whatever else a server may add.
const OPEN_ANSWER_BYTES: usize = 64 << 10;

/// Pieces of spread uploads that wait in one session to be sent: one on its way into the kernel, and one that follows
/// without a pause. What waits longer waits for whichever session has room, so that fast ones get more.
const WAITING_PIECES: usize = 2;

/// One connection and the files open in it.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    /// Permits for pieces that wait to be sent.
    queue_permits: Arc<Semaphore>,
    slots: Mutex<Slots>,
    /// Bytes of file data in flight, for the choice of a session by bulk transfers.
    load: Arc<AtomicUsize>,
    meter: Mutex<Meter>,
    /// It does not say what its kernel knows of the connection.
    is_silent: AtomicBool,
    /// `host:port`, for messages.
    pub(super) host: Arc<str>,
    is_encrypted: bool,
    /// Where the connection lives; files may be dropped, and so closed, outside of it.
    runtime: Handle,
}

impl Session {
    /// Starts a session; returns at once.
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
            runtime,
        }
    }

    /// The URL up to the path, for messages.
    pub(super) fn root(&self) -> String {
        root_url(self.is_encrypted, &self.host)
    }

    /// Sends a request behind those submitted before.
    pub(super) fn submit(&self, exchange: Exchange) -> Pending {
        self.connection.submit(exchange)
    }

    /// What the server said of itself, once the session was ready; also after it is lost.
    pub(super) fn established(&self) -> Option<&Established> {
        self.connection.established()
    }

    /// Waits until the session is ready, or lost.
    pub(super) async fn settled(&self) {
        self.connection.settled().await;
    }

    /// Why the session is lost; none if it is not.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.connection.lost()
    }

    /// Whether requests can be submitted with a chance of success.
    pub(super) fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Requests the server's kernel statistics of the connection, for observers ([`crate::Client::connections`]).
    /// Servers other than towpath do not support it and are not asked again.
    pub(super) async fn ask_far_end(&self) {
        let may_say = self.established().is_some() && !self.is_silent.load(Ordering::Relaxed);
        let Some(tap) = self.connection.tap().filter(|_| may_say) else { return };
        let query = Query::Config(Bytes::from_static(TCP_INFO_WORD));
        let finished = self.submit(Exchange::new(query, MAX_TCP_INFO_BYTES)).finished().await;
        let is_silent = match finished.outcome {
            Ok(_) => !tap.record_peer_statistics(&finished.buffer),
            Err(failure) => matches!(failure, Failure::Refused(_)),
        };
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Where the connection lives.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether a listing that its reader does not keep up with holds the connection.
    pub(super) fn is_occupied(&self) -> bool {
        self.connection.is_occupied()
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its load in bytes and its rate.
    pub(super) fn outlook(&self) -> Outlook {
        self.meter().outlook(self.load.load(Ordering::Relaxed))
    }

    /// Counts `bytes` as underway until the result is dropped.
    pub(super) fn loaded(self: &Arc<Self>, bytes: usize) -> Load {
        if self.load.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.meter().begins(clock::now());
        }
        Load { session: Arc::clone(self), bytes }
    }

    /// Waits until a piece of a spread upload can be sent soon. None if that will never be.
    pub(super) async fn queue_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue_permits).acquire_owned().await.ok()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an open. With `guess`, a handle is guessed where that is safe.
    pub(super) fn open(self: &Arc<Self>, open: Open, guess: bool) -> Arc<OpenFile> {
        self.start_open(open, guess, None)
    }

    /// Sends one more open of a file that is being written. With `parting` it is closed, unless it is closed otherwise.
    pub(super) fn open_again(self: &Arc<Self>, open: Open, parting: Option<Ending>) -> Arc<OpenFile> {
        self.start_open(open, false, parting)
    }

    fn start_open(self: &Arc<Self>, open: Open, guess: bool, parting: Option<Ending>) -> Arc<OpenFile> {
        let mut exchange = Exchange::new(Request::from(open), OPEN_ANSWER_BYTES);
        // A file may have to come from tape.
        exchange.patient = true;
        let (pending, guessed) = {
            // The prediction holds only if the opens leave in the predicted order.
            let mut slots = self.slots();
            let guessed = slots.opening();
            (self.submit(exchange), guessed)
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

    /// Sends a close.
    fn close(self: &Arc<Self>, handle: FileHandle, ending: Option<Ending>) -> Closing {
        let exchange = Exchange {
            // A server may have much to write out, or checksums to compute, before it can say that all is well.
            patient: true,
            ..Exchange::new(Request::from(Close { handle, ending }), OPEN_ANSWER_BYTES)
        };
        let pending = {
            let mut slots = self.slots();
            slots.closing();
            self.submit(exchange)
        };
        let session = Arc::clone(self);
        let (settled, outcome) = oneshot::channel();
        self.runtime.spawn(async move {
            let finished = pending.finished().await;
            session.slots().closed(handle);
            // Most closes are not waited for.
            let _ = settled.send(finished.outcome.map(|_| finished.buffer.into()));
        });
        Closing(outcome)
    }

    /// The error for an answer that cannot be understood.
    pub(super) fn garbled(&self, why: &impl std::fmt::Display) -> Error {
        Error::new(Fault::Protocol, format!("{}: {why}", self.host)).blamed_on(Blame::Storage)
    }
}

/// Waits for the response to an open, and closes the file if it is no longer needed.
async fn settle(
    session: Arc<Session>,
    file: Weak<OpenFile>,
    pending: Pending,
    guess: Option<FileHandle>,
    (answer, parting): (watch::Sender<Option<Result<OpenReply, Failure>>>, Option<Ending>),
) {
    let finished = pending.finished().await;
    let reply = finished.outcome.and_then(|_| {
        OpenReply::decode(Bytes::from(finished.buffer)).map_err(|error| Failure::Fatal(session.garbled(&error)))
    });
    let handle = reply.as_ref().ok().map(|reply| reply.handle);
    // An upload that can be taken up again must not become visible, whole or not.
    let resumable = reply.as_ref().ok().and_then(|reply| reply.present.as_ref()).map(|_| Ending::Keep);
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

/// Bytes that count as underway in a session.
#[derive(Debug)]
pub(super) struct Load {
    session: Arc<Session>,
    bytes: usize,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.session.load.fetch_sub(self.bytes, Ordering::Relaxed);
        self.session.meter().carries(self.bytes, clock::now());
    }
}

/// A close underway. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct Closing(oneshot::Receiver<Result<Bytes, Failure>>);

impl Closing {
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
    /// How it is closed if nothing else is said.
    parting: Option<Ending>,
}

/// By which handle to name a file in a request that leaves now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Known(FileHandle),
    /// Probably this one; to be compared with the answer to the open.
    Guessed(FileHandle),
    /// The answer to the open has to be awaited.
    Unknown,
}

impl OpenFile {
    /// How to name the file now.
    pub(super) fn naming(&self) -> Naming {
        match (&*self.answered.borrow(), self.guess) {
            (Some(Ok(reply)), _) => Naming::Known(reply.handle),
            (None, Some(guess)) => Naming::Guessed(guess),
            _ => Naming::Unknown,
        }
    }

    /// The answer to the open, once it is there.
    pub(super) async fn opened(&self) -> Result<OpenReply, Failure> {
        let mut answered = self.answered.clone();
        match answered.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reply)) => reply.clone(),
            _ => Err(Failure::Lost(Error::new(Fault::Internal, "the task that opens a file ended"))),
        }
    }

    /// Whether the file is an upload that is known to stay when it is not committed.
    pub(super) fn is_resumable(&self) -> bool {
        matches!(&*self.answered.borrow(), Some(Ok(reply)) if reply.present.is_some())
    }

    /// How it is closed if nothing else is said.
    pub(super) fn parting(&self) -> Option<Ending> {
        self.parting.clone().or_else(|| self.is_resumable().then_some(Ending::Keep))
    }

    /// The handle, if the file is known to be open and no close has been sent.
    pub(super) fn open_handle(&self) -> Option<FileHandle> {
        match self.naming() {
            Naming::Known(handle) if !self.closed.load(Ordering::Acquire) => Some(handle),
            _ => None,
        }
    }

    /// Sends the close, if the file is open and has not been closed. Returns at once.
    pub(super) fn start_close(&self, ending: Option<Ending>) -> Option<Closing> {
        let handle = self.open_handle()?;
        if self.closed.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(self.session.close(handle, ending))
    }

    /// Closes the file and waits for the answer; if it is closed already, there is nothing to wait for.
    pub(super) async fn close(&self, ending: Option<Ending>) -> Result<Bytes, Failure> {
        self.opened().await?;
        match self.start_close(ending) {
            Some(closing) => closing.done().await,
            None => Ok(Bytes::new()),
        }
    }

    /// Whether requests on the file can succeed, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        self.session.is_alive() && !matches!(&*self.answered.borrow(), Some(Err(_)))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.start_close(self.parting());
    }
}
