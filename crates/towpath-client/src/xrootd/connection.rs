//! One connection: requests of many callers go out in the order they are submitted, answers find their caller by the
//! stream id.
//!
//! ```text
//! submit() ──► table (stream id → sink, reply)        writer: queue ──► socket
//!          └─► queue                                  reader: socket ──► sink ──► reply
//! ```
//!
//! [`Connection::start`] returns at once; requests that are submitted while the connection comes up leave with its
//! first flight where that is permitted ([`super::flight`]). A connection lives until it is dropped (then the queue,
//! with the closes in it, is still sent) or lost; after a loss every request underway ends with a [`Failure`], and no
//! more are taken.
//!
//! Nothing is repeated here: whether a request may be sent again is for [`super::retry_state`] to say.

mod dial;
mod line;
mod reader;
mod writer;

use std::{
    collections::HashMap,
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
    flight::{Established, reserved},
    sink::Sink,
};
use crate::{Waits, dial::Tap, options::MIN_PROGRESS_BYTES};

pub(super) use dial::Dial;
pub(super) use writer::Payload;

/// Why a request got no result.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The server refused it.
    Refused(ErrorReply),
    /// It must be sent to another server. `encrypted` is whether the redirect came over an encrypted connection.
    Redirect { to: Redirect, encrypted: bool },
    /// It must be sent later.
    Wait { seconds: u32 },
    /// The server wanted credentials first. It was not done.
    TooEarly,
    /// The connection was lost before the session was ready. Nothing was sent by then that must not be done twice.
    EarlyLoss(Error),
    /// A listing that its reader does not keep up with holds the connection. It was not done.
    Occupied,
    /// The connection could not be made. It was not done.
    NotSent(Error),
    /// The connection was lost; the request may or may not have been carried out.
    Lost(Error),
    /// It was not done, and trying again is of no use.
    Fatal(Error),
}

impl Failure {
    /// Whether the connection was lost, or never made.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::EarlyLoss(_) | Self::NotSent(_))
    }
}

/// The end of a request.
#[derive(Debug)]
pub(super) struct Finished {
    /// The data of the answer, behind what the buffer held when it was submitted; also after a failure.
    pub buffer: Vec<u8>,
    /// Pages in it that failed their checksum.
    pub bad_pages: Vec<Page>,
    /// What the extended answer of pgwrite says.
    pub outcome: Result<Answer, Failure>,
}

/// What a successful answer says beside its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Ok,
    /// The last `status` response; its data are in the buffer.
    Status(towpath_proto::xrootd::response::StatusBody),
}

/// A request to be sent.
#[derive(Debug)]
pub(super) struct Exchange {
    pub request: Request,
    pub payload: Payload,
    pub sink: Sink,
    /// Its share of the bytes underway, given back when it is answered.
    pub permit: Option<OwnedSemaphorePermit>,
    /// Permit of a payload that waits to be sent, returned when the kernel has taken the payload.
    pub queue_permit: Option<OwnedSemaphorePermit>,
    /// It may take long by its nature.
    pub patient: bool,
}

impl Exchange {
    /// A request whose answer has at most `limit` bytes.
    pub(super) fn new(request: impl Into<Request>, limit: usize) -> Self {
        let sink = Sink::answer(limit);
        Self { request: request.into(), payload: Payload::None, sink, permit: None, queue_permit: None, patient: false }
    }
}

/// A request underway. Dropping it leaves the request to itself: its answer is thrown away.
#[derive(Debug)]
pub(super) struct Pending(oneshot::Receiver<Finished>);

impl Pending {
    /// Waits for the end of the request.
    pub(super) async fn finished(self) -> Finished {
        self.0.await.unwrap_or_else(|_| Finished {
            buffer: Vec::new(),
            bad_pages: Vec::new(),
            outcome: Err(Failure::Lost(Error::new(Fault::Internal, "the connection's task ended"))),
        })
    }
}

/// A request underway, as the reader knows it.
#[derive(Debug)]
struct Waiting {
    sink: Sink,
    reply: oneshot::Sender<Finished>,
    _permit: Option<OwnedSemaphorePermit>,
    patient: bool,
    /// It is a listing, which may take the connection for itself.
    streams: bool,
    /// When it was sent.
    since: Instant,
    /// When it is given up: unless data came for it meanwhile, or the server promised an answer for another time
    /// (`waitresp`).
    deadline: Instant,
    /// The response received so far.
    parts: Parts,
    /// The server requires credentials first; the request is sent again afterwards.
    refused_early: bool,
    /// Nobody waits for it any more.
    given_up: bool,
}

impl Waiting {
    /// What stands in the table for a request that was given up: its answer may still come, and must not be taken for
    /// another's.
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
            parts: Parts::default(),
            refused_early: false,
            given_up: true,
        }
    }

    fn finish(self, outcome: Result<Answer, Failure>) {
        let (buffer, bad_pages) = self.sink.into_parts();
        // Nobody may be waiting any more.
        let _ = self.reply.send(Finished { buffer, bad_pages, outcome });
    }
}

/// Parts of an answer that had next to nothing in them, since one had.
#[derive(Debug, Default)]
struct Parts {
    since: Option<Instant>,
    number: u32,
    bytes: usize,
}

impl Parts {
    /// An honest server may send a few short parts, and pause between them.
    const FEW: u32 = 16;

    /// Records a part of `bytes`; whether the answer moves with it.
    fn came(&mut self, bytes: usize, now: Instant) -> bool {
        self.since.get_or_insert(now);
        (self.number, self.bytes) = (self.number.saturating_add(1), self.bytes + bytes);
        let moves = self.bytes >= MIN_PROGRESS_BYTES;
        if moves {
            *self = Self::default();
        }
        moves
    }

    /// Whether so little comes that the answer might as well not come.
    fn trickle(&self, now: Instant, stall: Duration) -> bool {
        self.number > Self::FEW && self.since.is_some_and(|since| now - since >= stall * 2)
    }
}

/// What reader, writer and callers share.
#[derive(Debug)]
struct Shared {
    /// `host:port`, for messages.
    host: String,
    waits: Waits,
    table: Mutex<Table>,
    /// What the server said of itself, once the session is ready.
    established: OnceLock<Established>,
    /// The connection's own, once there is one.
    tap: OnceLock<Weak<Tap>>,
    /// Told when the session is ready, and when it is lost.
    settled: Notify,
    stall: Duration,
    patience: Duration,
}

#[derive(Debug)]
struct Table {
    waiting: HashMap<u16, Waiting>,
    next: u16,
    /// Why no more requests are taken.
    lost: Option<Failure>,
    patient: usize,
    /// A listing has taken the connection for itself.
    occupied: bool,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock; if something did, the table would still be whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every request underway.
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

    /// Ends the requests that came before the login, now that they can be sent again with success.
    fn end_early(&self) {
        let early: Vec<Waiting> = {
            let mut table = self.table();
            let early = table.waiting.extract_if(|_, waiting| waiting.refused_early);
            let early: Vec<Waiting> = early.map(|(_, waiting)| waiting).collect();
            table.patient -= early.iter().filter(|waiting| waiting.patient).count();
            early
        };
        for waiting in early {
            waiting.finish(Err(Failure::TooEarly));
        }
        self.settled.notify_waiters();
    }

    /// Whether an answer is expected, and whether it may take long: never that to the login, whatever waits behind it.
    fn expects(&self) -> (bool, bool) {
        let (table, established) = (self.table(), self.established.get().is_some());
        (!table.waiting.is_empty() || !established, table.patient > 0 && established)
    }

    /// A listing, which is not in the table just now, wants the connection for itself: no more requests are taken.
    /// Whether it was alone already.
    fn occupy(&self) -> bool {
        let mut table = self.table();
        table.occupied = true;
        table.waiting.is_empty()
    }

    /// Ends a request that is not in the table. A listing releases the connection, even if it is still being read.
    fn end(&self, waiting: Waiting, outcome: Result<Answer, Failure>) {
        if waiting.streams {
            self.table().occupied = false;
        }
        waiting.finish(outcome);
    }

    /// What a loss means for the requests underway.
    fn loss(&self, error: Error) -> Failure {
        if self.established.get().is_some() { Failure::Lost(error) } else { Failure::EarlyLoss(error) }
    }

    fn take(&self, stream_id: StreamId) -> Option<Waiting> {
        let mut table = self.table();
        let waiting = table.waiting.remove(&stream_id.number())?;
        table.patient -= usize::from(waiting.patient);
        Some(waiting)
    }

    fn put_back(&self, stream_id: StreamId, waiting: Waiting) {
        let mut table = self.table();
        table.patient += usize::from(waiting.patient);
        table.waiting.insert(stream_id.number(), waiting);
    }

    /// Ends the requests whose answers did not come in time, whatever else came.
    fn expire(&self, now: Instant) {
        let mut expired = Vec::new();
        {
            let mut table = self.table();
            let late = |waiting: &&mut Waiting| waiting.deadline < now && !waiting.given_up;
            for waiting in table.waiting.values_mut().filter(late) {
                expired.push(std::mem::replace(waiting, Waiting::given_up(now)));
            }
            table.patient -= expired.iter().filter(|waiting| waiting.patient).count();
        }
        for waiting in expired {
            let message =
                format!("{} did not answer a request within {} s", self.host, (now - waiting.since).as_secs());
            let error = Error::new(Fault::TimedOut, message);
            waiting.finish(Err(Failure::Fatal(error.blamed_on(Blame::Storage))));
        }
    }
}

impl Table {
    /// Most requests underway on one connection; more fail with `Overloaded`.
    const LIMIT: usize = 32 << 10;

    /// Why a request cannot be taken now, though the connection is alive.
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

/// A connection, or one that is coming up.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<writer::Outgoing>,
}

impl Connection {
    /// Starts to connect; returns at once.
    pub(super) fn start(dial: Dial, runtime: &Handle) -> Self {
        let (queue, outgoing) = mpsc::unbounded_channel();
        let table =
            Table { waiting: HashMap::new(), next: reserved::FIRST_FREE, lost: None, patient: 0, occupied: false };
        let shared = Arc::new(Shared {
            host: dial.plan.host.clone(),
            waits: dial.waits.clone(),
            table: Mutex::new(table),
            established: OnceLock::new(),
            tap: OnceLock::new(),
            settled: Notify::new(),
            stall: dial.stall,
            patience: dial.patience,
        });
        runtime.spawn(dial::run(dial, Arc::clone(&shared), outgoing));
        Self { shared, queue }
    }

    /// Sends a request behind those submitted before.
    pub(super) fn submit(&self, exchange: Exchange) -> Pending {
        let (reply, pending) = oneshot::channel();
        let Exchange { request, payload, sink, permit, queue_permit, patient } = exchange;
        let since = clock::now();
        let deadline = since + self.shared.patience;
        let streams = matches!(sink, Sink::Stream(_));
        let waiting = Waiting {
            sink,
            reply,
            _permit: permit,
            patient,
            streams,
            since,
            deadline,
            parts: Parts::default(),
            refused_early: false,
            given_up: false,
        };
        let stream_id = {
            let mut table = self.shared.table();
            let refusal = table.lost.clone().or_else(|| table.refusal());
            if let Some(failure) = refusal {
                drop(table);
                waiting.finish(Err(not_sent(failure)));
                return Pending(pending);
            }
            let id = table.free_id();
            table.patient += usize::from(patient);
            table.waiting.insert(id, waiting);
            StreamId::from_number(id)
        };
        let mut head = BytesMut::new();
        request.encode(stream_id, &mut head);
        // The writer is gone only when the connection is lost, and then the request has been ended already, or is now.
        if self.queue.send(writer::Outgoing { head: head.freeze(), payload, queue_permit }).is_err()
            && let Some(waiting) = self.shared.take(stream_id)
        {
            waiting.finish(Err(Failure::NotSent(closed())));
        }
        Pending(pending)
    }

    /// Whether requests can be submitted with a chance of success.
    pub(super) fn is_alive(&self) -> bool {
        self.shared.table().lost.is_none()
    }

    /// Whether a listing has taken the connection for itself.
    pub(super) fn is_occupied(&self) -> bool {
        self.shared.table().occupied
    }

    /// Waits until the session is ready, or lost.
    pub(super) async fn settled(&self) {
        let notified = self.shared.settled.notified();
        tokio::pin!(notified);
        // Enabled first, so that nothing is missed between the look and the wait.
        notified.as_mut().enable();
        if self.shared.established.get().is_none() && self.is_alive() {
            notified.await;
        }
    }

    /// Why no more requests are taken; none while they are.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.shared.table().lost.clone()
    }

    /// What the server said of itself, once the session was ready; also after it is lost.
    pub(super) fn established(&self) -> Option<&Established> {
        self.shared.established.get()
    }

    /// What watches the connection; none before it is there, and after it is lost.
    pub(super) fn tap(&self) -> Option<Arc<Tap>> {
        self.shared.tap.get()?.upgrade()
    }
}

/// The failure of a request that came after the loss.
fn not_sent(failure: Failure) -> Failure {
    match failure {
        Failure::Lost(error) => Failure::NotSent(error),
        other => other,
    }
}

fn overloaded() -> Failure {
    Failure::Fatal(
        Error::new(Fault::Overloaded, "too many requests are underway on one connection").blamed_on(Blame::Towpath),
    )
}

fn closed() -> Error {
    Error::new(Fault::Unavailable, "the connection is closed").blamed_on(Blame::Network)
}

/// What a peer did against the protocol.
fn broken(host: &str, why: &impl std::fmt::Display) -> Error {
    Error::new(Fault::Protocol, format!("{host} does not keep to the protocol: {why}")).blamed_on(Blame::Storage)
}

/// Bytes for the writer that are not a caller's request.
type Control = mpsc::UnboundedSender<Bytes>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_the_connection_back_also_if_nobody_reads_it() {
        let table = Table { waiting: HashMap::new(), next: 0, lost: None, patient: 0, occupied: false };
        let shared = Shared {
            host: String::new(),
            waits: Waits::default(),
            table: Mutex::new(table),
            established: OnceLock::new(),
            tap: OnceLock::new(),
            settled: Notify::new(),
            stall: Duration::ZERO,
            patience: Duration::ZERO,
        };
        assert!(shared.occupy());
        let unread = Waiting { streams: true, ..Waiting::given_up(clock::now()) };
        shared.end(unread, Err(Failure::Wait { seconds: 1 }));
        assert!(!shared.table().occupied);
    }
}
