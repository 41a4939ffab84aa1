//! A connection that multiplexes the requests of many callers. Requests are sent in the order in which they are
//! submitted; responses are matched to their callers by stream id.
//!
//! ```text
//! submit() ──► table (stream id → sink, reply)        writer: queue ──► socket
//!          └─► queue                                  reader: socket ──► sink ──► reply
//! ```
//!
//! [`Connection::start`] returns immediately. Requests submitted while the connection is being established are sent in
//! its first flight where that is permitted ([`super::session_setup`]). A connection lives until it is dropped or lost.
//! After a drop, the queue, including its closes, is still sent. After a loss, every request in flight ends with a
//! [`Failure`], and further requests are rejected.
//!
//! This module retries nothing: [`super::retry_state`] decides whether a request may be sent again.

mod dial;
mod monitored_input;
mod reader;
mod response_clock;
mod writer;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot},
};
use towpath_proto::xrootd::{
    Request, StreamId,
    page::Page,
    response::{ErrorReply, Redirect},
};
use towpath_store::{
    Blame, Error, Fault,
    sys::clock::{self, Instant},
};

use super::{
    session_setup::{SessionInfo, reserved},
    sink::Sink,
};
use crate::{WaitReporter, dial::ConnectionMonitor, options::MIN_PROGRESS_BYTES, words::readable};

pub(super) use dial::Dial;
pub(super) use writer::Payload;

/// Maximum total time of repeated promises of a response (`waitresp`), in units of [`crate::ClientOptions::patience`]:
/// 16 × 30 minutes are eight hours.
const MAX_PROMISED_PATIENCES: u32 = 16;

/// The reason why a request failed.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The server rejected the request.
    Refused(ErrorReply),
    /// The request must be sent to another server. `encrypted` is whether the redirect came over an encrypted
    /// connection.
    Redirect { to: Redirect, encrypted: bool },
    /// The request must be sent later.
    Wait { seconds: u32 },
    /// The server requires credentials first. The request was not processed.
    TooEarly,
    /// The connection was lost before the session was ready. No request that must not be repeated had been sent by
    /// then.
    EarlyLoss(Error),
    /// A listing whose reader is too slow holds the connection. The request was not processed.
    Occupied,
    /// The connection could not be established. The request was not processed.
    NotSent(Error),
    /// The connection was lost; the request may or may not have been processed.
    Lost(Error),
    /// The request failed, and a retry is useless.
    Fatal(Error),
}

impl Failure {
    /// Returns whether the connection was lost, or never established.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::EarlyLoss(_) | Self::NotSent(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(ErrorReply { code, message, .. }) => {
                write!(f, "the server responded with error {}: {}", code.0, readable(message))
            }
            Self::Redirect { to: Redirect::Host { host, port, .. }, .. } => write!(f, "redirect to {host}:{port}"),
            Self::Redirect { to: Redirect::Url { .. }, .. } => f.write_str("redirect to a URL"),
            Self::Wait { seconds } => write!(f, "the server requested a wait of {seconds} s"),
            Self::TooEarly => f.write_str("the server requires credentials first"),
            Self::Occupied => f.write_str("the connection is occupied by a listing"),
            Self::EarlyLoss(error) => write!(f, "connection lost before the session was ready: {error}"),
            Self::NotSent(error) => write!(f, "not sent: {error}"),
            Self::Lost(error) => write!(f, "connection lost: {error}"),
            Self::Fatal(error) => write!(f, "{error}"),
        }
    }
}

/// The completion of a request.
#[derive(Debug)]
pub(super) struct RequestCompletion {
    /// The data of the response, appended to the previous contents of the submitted buffer; also after a failure.
    pub buffer: Vec<u8>,
    /// Pages in the buffer that failed their checksum.
    pub bad_pages: Vec<Page>,
    /// The result of the request; for pgwrite with its extended response.
    pub outcome: Result<ResponseStatus, Failure>,
}

/// The part of a successful response that is not data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResponseStatus {
    Ok,
    /// The last `status` response; its data are in the buffer.
    Status(towpath_proto::xrootd::response::StatusBody),
}

/// A request to be sent.
#[derive(Debug)]
pub(super) struct OutgoingRequest {
    pub request: Request,
    pub payload: Payload,
    pub sink: Sink,
    /// The request's share of the bytes in flight, released with the response.
    pub permit: Option<OwnedSemaphorePermit>,
    /// Permit of a payload queued for sending, released when the kernel has accepted the payload.
    pub queue_permit: Option<OwnedSemaphorePermit>,
    /// Whether the request may take long by its nature.
    pub patient: bool,
}

impl OutgoingRequest {
    /// Creates a request whose response has at most `limit` bytes.
    pub(super) fn new(request: impl Into<Request>, limit: usize) -> Self {
        let sink = Sink::answer(limit);
        Self { request: request.into(), payload: Payload::None, sink, permit: None, queue_permit: None, patient: false }
    }
}

/// A request in flight. Dropping it does not cancel the request; its response is discarded.
#[derive(Debug)]
pub(super) struct PendingResponse(oneshot::Receiver<RequestCompletion>);

impl PendingResponse {
    /// Waits for the completion of the request.
    pub(super) async fn finished(self) -> RequestCompletion {
        self.0.await.unwrap_or_else(|_| RequestCompletion {
            buffer: Vec::new(),
            bad_pages: Vec::new(),
            outcome: Err(Failure::Lost(Error::new(Fault::Internal, "the connection's task ended"))),
        })
    }
}

/// A request in flight, as seen by the reader.
#[derive(Debug)]
struct InFlightRequest {
    sink: Sink,
    reply: oneshot::Sender<RequestCompletion>,
    _permit: Option<OwnedSemaphorePermit>,
    patient: bool,
    /// Whether the request is a listing, which may occupy the connection exclusively.
    streams: bool,
    /// Time of submission.
    since: Instant,
    /// Time at which the request fails, unless data arrived for it meanwhile or the server promised a response for a
    /// later time (`waitresp`).
    deadline: Instant,
    /// Latest deadline that promises of a response can set.
    last_deadline: Instant,
    /// The response received so far.
    parts: SmallParts,
    /// Whether the server required credentials first; the request is sent again afterwards.
    refused_early: bool,
    /// Whether the request has been abandoned.
    given_up: bool,
}

impl InFlightRequest {
    /// Returns the table entry for an abandoned request: its response may still arrive, and must not be mistaken for
    /// that of another request.
    fn given_up(deadline: Instant) -> Self {
        let (reply, _) = oneshot::channel();
        Self {
            sink: Sink::Nowhere,
            reply,
            _permit: None,
            patient: false,
            streams: false,
            since: deadline,
            deadline,
            last_deadline: deadline,
            parts: SmallParts::default(),
            refused_early: false,
            given_up: true,
        }
    }

    fn finish(self, outcome: Result<ResponseStatus, Failure>) {
        let (buffer, bad_pages) = self.sink.into_parts();
        // The receiver may have been dropped.
        let _ = self.reply.send(RequestCompletion { buffer, bad_pages, outcome });
    }
}

/// The nearly empty parts of a response since its last sufficient part.
#[derive(Debug, Default)]
struct SmallParts {
    since: Option<Instant>,
    number: u32,
    bytes: usize,
}

impl SmallParts {
    /// Number of nearly empty parts tolerated: a correct server may send a few short parts, with pauses between them.
    const FEW: u32 = 16;

    /// Records a part of `bytes`. Returns whether the response makes sufficient progress with it.
    fn came(&mut self, bytes: usize, now: Instant) -> bool {
        self.since.get_or_insert(now);
        (self.number, self.bytes) = (self.number.saturating_add(1), self.bytes + bytes);
        let moves = self.bytes >= MIN_PROGRESS_BYTES;
        if moves {
            *self = Self::default();
        }
        moves
    }

    /// Returns whether the response makes too little progress to be worth waiting for.
    fn trickle(&self, now: Instant, stall: Duration) -> bool {
        self.number > Self::FEW && self.since.is_some_and(|since| now - since >= stall * 2)
    }
}

/// State shared by the reader, the writer and the callers.
#[derive(Debug)]
struct XrootdConnectionState {
    /// `host:port`, for messages.
    host: String,
    waits: WaitReporter,
    table: Mutex<Table>,
    /// The server's capabilities, once the session is ready.
    established: OnceLock<SessionInfo>,
    /// The tap of the connection, once it is established.
    tap: OnceLock<Weak<ConnectionMonitor>>,
    /// Notified when the session is ready, and when it is lost.
    settled: Notify,
    stall: Duration,
    /// Like `stall`, until the session is ready.
    login_stall: Duration,
    patience: Duration,
    /// See [`crate::ClientOptions::max_wait`].
    max_wait: Option<Duration>,
}

#[derive(Debug)]
struct Table {
    waiting: HashMap<u16, InFlightRequest>,
    next: u16,
    /// The reason why further requests are rejected, if they are.
    lost: Option<Failure>,
    patient: usize,
    /// Whether a listing occupies the connection exclusively.
    occupied: bool,
}

impl XrootdConnectionState {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it holds the lock; even then the table would be consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns half of the time without data after which the connection counts as lost.
    fn stall(&self) -> Duration {
        if self.established.get().is_some() { self.stall } else { self.login_stall }
    }

    /// Ends every request in flight.
    fn lose(&self, why: &Failure) {
        let waiting = {
            let mut table = self.table();
            table.lost.get_or_insert_with(|| why.clone());
            table.patient = 0;
            std::mem::take(&mut table.waiting)
        };
        self.settled.notify_waiters();
        for waiting in waiting.into_values() {
            let undone = waiting.refused_early && matches!(why, Failure::Lost(_) | Failure::EarlyLoss(_));
            waiting.finish(Err(if undone { Failure::TooEarly } else { why.clone() }));
        }
    }

    /// Ends the requests sent before the login, now that a retry can succeed.
    fn end_early(&self) {
        let early: Vec<InFlightRequest> = {
            let mut table = self.table();
            let early = table.waiting.extract_if(|_, waiting| waiting.refused_early);
            let early: Vec<InFlightRequest> = early.map(|(_, waiting)| waiting).collect();
            table.patient -= early.iter().filter(|waiting| waiting.patient).count();
            early
        };
        for waiting in early {
            waiting.finish(Err(Failure::TooEarly));
        }
        self.settled.notify_waiters();
    }

    /// Returns whether a response is expected, and whether it may take long; the response to the login may not,
    /// regardless of the requests queued behind it.
    fn expects(&self) -> (bool, bool) {
        let (table, established) = (self.table(), self.established.get().is_some());
        (!table.waiting.is_empty() || !established, table.patient > 0 && established)
    }

    /// Reserves the connection for a listing, which is not in the table at this moment; further requests are rejected.
    /// Returns whether no other request is in flight.
    fn occupy(&self) -> bool {
        let mut table = self.table();
        table.occupied = true;
        table.waiting.is_empty()
    }

    /// Ends a request that is not in the table. A listing releases the connection, even if it is still being read.
    fn end(&self, waiting: InFlightRequest, outcome: Result<ResponseStatus, Failure>) {
        if waiting.streams {
            self.table().occupied = false;
        }
        waiting.finish(outcome);
    }

    /// Returns the failure of the requests in flight when the connection is lost.
    fn loss(&self, error: Error) -> Failure {
        if self.established.get().is_some() { Failure::Lost(error) } else { Failure::EarlyLoss(error) }
    }

    fn take(&self, stream_id: StreamId) -> Option<InFlightRequest> {
        let mut table = self.table();
        let waiting = table.waiting.remove(&stream_id.number())?;
        table.patient -= usize::from(waiting.patient);
        Some(waiting)
    }

    fn put_back(&self, stream_id: StreamId, waiting: InFlightRequest) {
        let mut table = self.table();
        table.patient += usize::from(waiting.patient);
        table.waiting.insert(stream_id.number(), waiting);
    }

    /// Ends the requests whose deadline has passed, even if other data arrived.
    fn expire(&self, now: Instant) {
        let mut expired = Vec::new();
        {
            let mut table = self.table();
            let late = |waiting: &&mut InFlightRequest| waiting.deadline < now && !waiting.given_up;
            for waiting in table.waiting.values_mut().filter(late) {
                expired.push(std::mem::replace(waiting, InFlightRequest::given_up(now)));
            }
            table.patient -= expired.iter().filter(|waiting| waiting.patient).count();
        }
        for waiting in expired {
            let message =
                format!("{} did not respond to a request within {} s", self.host, (now - waiting.since).as_secs());
            let error = Error::new(Fault::TimedOut, message);
            waiting.finish(Err(Failure::Fatal(error.blamed_on(Blame::Storage))));
        }
    }
}

impl Table {
    /// Maximum number of requests in flight on one connection; further ones fail with `Overloaded`.
    const LIMIT: usize = 32 << 10;

    /// Returns the reason why a live connection cannot accept a request now.
    fn refusal(&self) -> Option<Failure> {
        let full = self.waiting.len() >= Self::LIMIT;
        if self.occupied { Some(Failure::Occupied) } else { full.then(overloaded) }
    }

    fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next;
            self.next = self.next.checked_add(1).unwrap_or(reserved::FIRST_FREE);
            if !self.waiting.contains_key(&id) {
                return id;
            }
        }
    }
}

/// A connection, established or being established.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<XrootdConnectionState>,
    queue: mpsc::UnboundedSender<writer::QueuedRequest>,
}

impl Connection {
    /// Starts to connect; returns immediately.
    pub(super) fn start(dial: Dial, runtime: &Handle) -> Self {
        let (queue, outgoing) = mpsc::unbounded_channel();
        let table =
            Table { waiting: HashMap::new(), next: reserved::FIRST_FREE, lost: None, patient: 0, occupied: false };
        let shared = Arc::new(XrootdConnectionState {
            host: dial.plan.host.clone(),
            waits: dial.waits.clone(),
            table: Mutex::new(table),
            established: OnceLock::new(),
            tap: OnceLock::new(),
            settled: Notify::new(),
            stall: dial.stall,
            login_stall: dial.login_stall,
            patience: dial.patience,
            max_wait: dial.max_wait,
        });
        runtime.spawn(dial::run(dial, Arc::clone(&shared), outgoing));
        Self { shared, queue }
    }

    /// Sends a request after those submitted before.
    pub(super) fn submit(&self, outgoing: OutgoingRequest) -> PendingResponse {
        let (reply, pending) = oneshot::channel();
        let OutgoingRequest { request, payload, sink, permit, queue_permit, patient } = outgoing;
        let since = clock::now();
        let deadline = since + self.shared.patience;
        let longest_promise = self.shared.patience * MAX_PROMISED_PATIENCES;
        let last_deadline = since + self.shared.max_wait.filter(|_| !patient).unwrap_or(longest_promise);
        let streams = matches!(sink, Sink::Stream(_));
        let waiting = InFlightRequest {
            sink,
            reply,
            _permit: permit,
            patient,
            streams,
            since,
            deadline,
            last_deadline,
            parts: SmallParts::default(),
            refused_early: false,
            given_up: false,
        };
        let stream_id = {
            let mut table = self.shared.table();
            let refusal = table.lost.clone().or_else(|| table.refusal());
            if let Some(failure) = refusal {
                drop(table);
                waiting.finish(Err(not_sent(failure)));
                return PendingResponse(pending);
            }
            let id = table.free_id();
            table.patient += usize::from(patient);
            table.waiting.insert(id, waiting);
            StreamId::from_number(id)
        };
        let mut head = BytesMut::new();
        request.encode(stream_id, &mut head);
        // The writer ends only when the connection is lost; the request then has been ended already, or is ended here.
        if self.queue.send(writer::QueuedRequest { head: head.freeze(), payload, queue_permit }).is_err()
            && let Some(waiting) = self.shared.take(stream_id)
        {
            waiting.finish(Err(Failure::NotSent(closed())));
        }
        PendingResponse(pending)
    }

    /// Returns whether submitted requests can succeed.
    pub(super) fn is_alive(&self) -> bool {
        self.shared.table().lost.is_none()
    }

    /// Returns whether a listing occupies the connection exclusively.
    pub(super) fn is_occupied(&self) -> bool {
        self.shared.table().occupied
    }

    /// Waits until the session is ready or lost.
    pub(super) async fn settled(&self) {
        let notified = self.shared.settled.notified();
        tokio::pin!(notified);
        // Enabled before the check, so that no notification between check and wait is missed.
        notified.as_mut().enable();
        if self.shared.established.get().is_none() && self.is_alive() {
            notified.await;
        }
    }

    /// Returns the reason why requests are rejected; `None` while they are accepted.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.shared.table().lost.clone()
    }

    /// Returns the server's capabilities once the session was ready; also after it is lost.
    pub(super) fn established(&self) -> Option<&SessionInfo> {
        self.shared.established.get()
    }

    /// Returns the tap of the connection; `None` before the connection is established and after it is lost.
    pub(super) fn tap(&self) -> Option<Arc<ConnectionMonitor>> {
        self.shared.tap.get()?.upgrade()
    }
}

/// Returns the failure of a request submitted after the loss.
fn not_sent(failure: Failure) -> Failure {
    match failure {
        Failure::Lost(error) => Failure::NotSent(error),
        other => other,
    }
}

fn overloaded() -> Failure {
    Failure::Fatal(
        Error::new(Fault::Overloaded, "too many requests in flight on one connection").blamed_on(Blame::Towpath),
    )
}

fn closed() -> Error {
    Error::new(Fault::Unavailable, "the connection is closed").blamed_on(Blame::Network)
}

/// Returns the error for a protocol violation by the peer.
fn broken(host: &str, why: &impl std::fmt::Display) -> Error {
    Error::new(Fault::Protocol, format!("{host} violated the protocol: {why}")).blamed_on(Blame::Storage)
}

/// Channel to the writer for bytes that are not a caller's request.
type Control = mpsc::UnboundedSender<Bytes>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_the_connection_back_also_if_nobody_reads_it() {
        let table = Table { waiting: HashMap::new(), next: 0, lost: None, patient: 0, occupied: false };
        let shared = XrootdConnectionState {
            host: String::new(),
            waits: WaitReporter::default(),
            table: Mutex::new(table),
            established: OnceLock::new(),
            tap: OnceLock::new(),
            settled: Notify::new(),
            stall: Duration::ZERO,
            login_stall: Duration::ZERO,
            patience: Duration::ZERO,
            max_wait: None,
        };
        assert!(shared.occupy());
        let unread = InFlightRequest { streams: true, ..InFlightRequest::given_up(clock::now()) };
        shared.end(unread, Err(Failure::Wait { seconds: 1 }));
        assert!(!shared.table().occupied);
    }
}
