//! The reader of a connection: parses requests, answers those that need no waiting, and starts tasks for the others.
//!
//! Immediate responses are collected in one buffer, which is sent when no complete request is left in the input: a
//! client with sixteen reads in flight costs one receive and one send. Other requests become tasks, whose number is
//! limited: at the limit the reader stops, and TCP applies backpressure. Data of writes are received here, see
//! [`super::write`].

use std::{io, os::fd::RawFd, pin::Pin, sync::Arc, time::Duration};

use bytes::{BufMut as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf, ReadHalf},
    net::tcp::OwnedReadHalf,
    sync::OwnedSemaphorePermit,
    task::JoinSet,
    time::{Sleep, sleep, sleep_until, timeout},
};
use towpath_proto::xrootd::{IncomingRequest, Request, RequestFramer, RequestHeader, StreamId, response};
use towpath_store::sys::clock;

use super::{
    active_request::{ActiveRequest, ErrorResponse, Outcome, verb},
    job::{Job, path_id},
    response_writer::ResponseWriter,
    session::{RequestMemoryPermit, Session},
    write,
};
use crate::{
    Socket,
    fair_pool::{PeerProgress, PeerWaitGuard},
};

/// Maximum size of one receive, in bytes: two vectors of 1,024 elements.
const MAX_RECEIVE_BYTES: usize = 32 << 10;
/// Receive buffer of an idle connection, in bytes: enough for most requests.
const IDLE_BUFFER_BYTES: usize = 256;
/// Responses are sent once this many bytes are collected, even if more requests are pending.
const COLLECT_BYTES: usize = 128 << 10;
/// Idle time after which a connection releases its buffers.
const IDLE_DELAY: Duration = Duration::from_secs(1);

/// The receiving half of a socket.
#[derive(Debug)]
pub(super) enum SocketReader {
    /// Without TLS.
    Plain(OwnedReadHalf),
    /// In TLS.
    Tls(ReadHalf<Socket>),
}

/// A connection that receives file data: the one that logged in, or one bound to its session.
pub(super) trait DataSource {
    /// Returns the session of the data.
    fn session(&self) -> &Arc<Session>;

    /// Appends the next `length` bytes of data to `buffer`.
    ///
    /// # Errors
    /// How the connection ends if they do not arrive in time.
    async fn receive_data(&mut self, length: usize, buffer: &mut Vec<u8>) -> Result<(), CloseReason>;
}

impl SocketReader {
    /// Receives exactly `missing` bytes, appended to `buffer`.
    ///
    /// # Errors
    /// The connection or the session ended, or no byte arrived for longer than `limits.stall`.
    pub(super) async fn fill(
        &mut self,
        (session, activity): (&Session, &PeerProgress),
        missing: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), CloseReason> {
        let end = buffer.len() + missing;
        let _awaits = (missing > 0).then(|| session.receiving.await_peer());
        while buffer.len() < end {
            let left = end - buffer.len();
            let mut rest = (&mut *buffer).limit(left);
            let received = tokio::select! {
                biased;
                received = timeout(session.service.limits.stall.0, self.read_buf(&mut rest)) => received,
                () = session.ended.cancelled() => return Err(ending(session)),
            };
            match received {
                Ok(Ok(0)) | Ok(Err(_)) => return Err(CloseReason::Broken),
                Ok(Ok(received)) => {
                    session.receiving.record_progress(received);
                    activity.record_progress(received);
                }
                Err(_) => return Err(CloseReason::Disconnected("stalled while sending data")),
            }
        }
        Ok(())
    }
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Gracefully: requests in flight are finished first.
    Finished,
    /// Immediately.
    Broken,
    /// The client stalled or violated the protocol; the text follows "it" in a message.
    Disconnected(&'static str),
}

/// An incomplete request that is longer than one receive.
#[derive(Debug)]
pub(super) struct LongRequest {
    /// Memory for twice the received bytes.
    memory: Vec<RequestMemoryPermit>,
    bytes: usize,
    /// Deadline for the whole request.
    deadline: clock::Instant,
    _awaits: PeerWaitGuard,
}

/// A connection with a session.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Arc<Session>,
    pub(super) receiving: SocketReader,
    /// File descriptor of the socket shared with the response writer, for kernel statistics.
    pub(super) socket: RawFd,
    pub(super) framer: RequestFramer,
    pub(super) response_writer: Arc<ResponseWriter>,
    pub(super) tasks: JoinSet<()>,
    /// Unsent responses.
    pub(super) out: Vec<u8>,
    /// The long request being received.
    pub(super) long_request: Option<LongRequest>,
    /// Buffer for file data while an immediate response is assembled.
    pub(super) scratch: Vec<u8>,
    /// Arrival time of the bytes being processed.
    pub(super) since: clock::Instant,
    /// Tracks the client's progress in sending and receiving.
    pub(super) activity: Arc<PeerProgress>,
}

impl Connection {
    /// Serves requests until the connection ends.
    pub(super) async fn run(mut self) {
        let end = match self.serve().await {
            CloseReason::Broken if self.response_writer.has_stalled() => {
                CloseReason::Disconnected("stalled while receiving a response")
            }
            end => end,
        };
        if end == CloseReason::Finished {
            // They would read a file to its end for a client that is probably gone.
            self.session.cancel_all_checksums();
            // Long enough for a client that still reads; a disconnected one is noticed at the first response.
            let (stall, revoked) = (self.session.service.limits.stall.0, self.session.revoked.clone());
            let finishing = async { while self.tasks.join_next().await.is_some() {} };
            let _ = timeout(stall, revoked.run_until_cancelled(finishing)).await;
            self.response_writer.shut_down().await;
        }
        self.reap();
        if let CloseReason::Disconnected(why) = end {
            self.session.service.record_disconnect(self.session.peer, why);
        }
        self.tasks.shutdown().await;
    }

    async fn serve(&mut self) -> CloseReason {
        let revoked = self.session.revoked.clone();
        match revoked.run_until_cancelled(self.requests()).await {
            Some(Ok(end) | Err(end)) => end,
            None => CloseReason::Disconnected("stalled while other clients needed its memory"),
        }
    }

    async fn requests(&mut self) -> Result<CloseReason, CloseReason> {
        let session = Arc::clone(&self.session);
        let mut ended = std::pin::pin!(session.ended.cancelled());
        let mut idle_timer = IdleTimer::new(session.service.limits.idle.0, session.service.limits.stall.0);
        if !self.response_writer.joins_answers() {
            // Sends the last login response.
            self.flush().await?;
        }
        loop {
            while let Some(incoming) = self.next_request().await? {
                self.handle(incoming).await?;
                self.long_request = None;
                self.discard_data().await?;
                if self.out.len() >= COLLECT_BYTES || !self.response_writer.joins_answers() {
                    self.flush().await?;
                }
            }
            self.flush().await?;
            self.make_room().await?;
            let deadline = self.long_request.as_ref().map(|request| request.deadline);
            tokio::select! {
                biased;
                () = &mut ended => return Ok(ending(&self.session)),
                received = self.receiving.read_buf(self.framer.buffer()) => {
                    let received = received.map_err(|_| CloseReason::Broken)?;
                    if received == 0 {
                        return Ok(CloseReason::Finished);
                    }
                    self.session.receiving.record_progress(received);
                    idle_timer.record_activity();
                    self.since = clock::now();
                    self.activity.touch(self.since);
                }
                () = sleep_until(deadline.unwrap_or(self.since)), if deadline.is_some() => {
                    return Ok(CloseReason::Disconnected("did not send its whole request in time"));
                }
                () = &mut idle_timer.timer => {
                    let in_request = !self.framer.buffer().is_empty();
                    self.reap();
                    self.release_buffers();
                    if idle_timer.is_too_long(in_request) && (in_request || self.tasks.is_empty()) {
                        return Ok(CloseReason::Disconnected("was idle for too long"));
                    }
                }
            }
        }
    }

    /// Makes room in the receive buffer. For a long request, reserves memory for twice the received bytes: it follows
    /// the received bytes, not the announced length.
    async fn make_room(&mut self) -> Result<(), CloseReason> {
        if self.framer.awaited_bytes() > MAX_RECEIVE_BYTES && self.long_request.is_none() {
            self.long_request = Some(LongRequest {
                memory: Vec::new(),
                bytes: 0,
                deadline: clock::now() + self.session.service.limits.stall.0,
                _awaits: self.session.receiving.await_peer(),
            });
        }
        let received = self.framer.buffer().len();
        if let Some(bytes) = self.long_request.as_ref().map(|request| request.bytes)
            && bytes <= received
        {
            let more = received.max(MAX_RECEIVE_BYTES);
            let memory = self.session.ended.run_until_cancelled(self.session.memory_for_argument(more)).await;
            let memory = memory.ok_or_else(|| ending(&self.session))?;
            if let Some(request) = &mut self.long_request {
                request.memory.push(memory);
                request.bytes += more;
            }
        }
        let buffer = self.framer.buffer();
        if buffer.capacity() - buffer.len() < IDLE_BUFFER_BYTES {
            buffer.reserve(MAX_RECEIVE_BYTES);
        }
        Ok(())
    }

    /// Returns the next complete request in the buffer.
    async fn next_request(&mut self) -> Result<Option<IncomingRequest>, CloseReason> {
        match self.framer.next() {
            Ok(incoming) => Ok(incoming),
            Err(error) => {
                // The start of the next request is unknown.
                tracing::debug!(peer = %self.session.peer, %error, "invalid request: cannot find the next one");
                self.refuse(StreamId::ZERO, &error.into());
                self.flush().await?;
                self.response_writer.shut_down().await;
                Err(CloseReason::Disconnected("violated the protocol"))
            }
        }
    }

    /// Releases the buffers of an idle connection.
    fn release_buffers(&mut self) {
        self.out = Vec::new();
        self.scratch = Vec::new();
        if self.framer.buffer().is_empty() {
            *self.framer.buffer() = BytesMut::with_capacity(IDLE_BUFFER_BYTES);
        }
    }

    /// Answers a request, or starts a task for it.
    async fn handle(&mut self, incoming: IncomingRequest) -> Result<(), CloseReason> {
        let IncomingRequest { header, request } = incoming;
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.reject(&header, &error.into());
                return write::discard_bound_data(self, &header).await;
            }
        };
        if self.try_answer(&header, &request) {
            return Ok(());
        }
        match request {
            Request::Write(_) | Request::PgWrite(_) | Request::Writev(_) => {
                write::receive(self, &header, request).await
            }
            request => self.start(&header, request).await,
        }
    }

    async fn start(&mut self, header: &RequestHeader, request: Request) -> Result<(), CloseReason> {
        let permit = self.acquire_request_permit().await?;
        let response_writer = match self.session.path(path_id(&request)) {
            Ok(path) => path.map_or_else(|| Arc::clone(&self.response_writer), |bound| bound.response_writer),
            Err(refusal) => {
                self.reject(header, &refusal);
                return Ok(());
            }
        };
        let memory = self.long_request.take().map(|request| request.memory);
        match Job::new(&self.session, request).await {
            Ok(job) => {
                let active_request = ActiveRequest::new(&self.session, &response_writer, header.code, header.stream_id);
                self.tasks.spawn(async move {
                    let served = job.run(&active_request).await;
                    active_request.finish(served).await;
                    drop((permit, memory));
                });
            }
            Err(refusal) => self.reject(header, &refusal),
        }
        Ok(())
    }

    /// Waits for a permit for one more request in flight.
    pub(super) async fn acquire_request_permit(&mut self) -> Result<OwnedSemaphorePermit, CloseReason> {
        self.reap();
        if let Ok(permit) = Arc::clone(&self.session.request_permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.flush().await?;
        let request_permits = Arc::clone(&self.session.request_permits);
        tokio::select! {
            permit = request_permits.acquire_owned() => permit.map_err(|_| CloseReason::Broken),
            () = self.session.ended.cancelled() => Err(ending(&self.session)),
        }
    }

    /// Removes finished tasks.
    pub(super) fn reap(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            if let Err(error) = done {
                tracing::error!(peer = %self.session.peer, %error, "the task of a request failed");
            }
        }
    }

    /// Answers a request that failed before it was started.
    pub(super) fn reject(&mut self, header: &RequestHeader, refusal: &ErrorResponse) {
        self.refuse(header.stream_id, refusal);
        self.session.record(&Outcome {
            verb: verb(header.code),
            path: None,
            identity: None,
            fault: Some(refusal.fault),
            denial: refusal.denial(),
            moved_bytes: 0,
            since: self.since,
        });
    }

    pub(super) fn refuse(&mut self, stream_id: StreamId, refusal: &ErrorResponse) {
        let mut frame = BytesMut::new();
        response::fault(stream_id, (refusal.code, refusal.fault), &refusal.message, &mut frame);
        self.out.put_slice(&frame);
    }

    /// Sends the collected responses.
    pub(super) async fn flush(&mut self) -> Result<(), CloseReason> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self.response_writer.send(&self.out).await;
        self.out.clear();
        sent.map_err(|_| CloseReason::Broken)
    }

    /// Receives and discards unwanted data, up to the next request.
    async fn discard_data(&mut self) -> Result<(), CloseReason> {
        if self.framer.bulk_remaining() == 0 {
            return Ok(());
        }
        self.flush().await?;
        let mut sink = Vec::with_capacity(MAX_RECEIVE_BYTES);
        while self.framer.bulk_remaining() > 0 {
            let length = usize::try_from(self.framer.bulk_remaining()).unwrap_or(usize::MAX).min(MAX_RECEIVE_BYTES);
            sink.clear();
            self.receive_data(length, &mut sink).await?;
        }
        Ok(())
    }
}

impl DataSource for Connection {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    async fn receive_data(&mut self, length: usize, buffer: &mut Vec<u8>) -> Result<(), CloseReason> {
        let buffered = self.framer.take_bulk(length);
        buffer.put_slice(&buffered);
        let missing = length.saturating_sub(buffered.len());
        self.receiving.fill((&self.session, &self.activity), missing, buffer).await?;
        self.framer.bulk_received(missing as u64);
        Ok(())
    }
}

/// Returns how a connection ends whose session has ended: gracefully if the server stops.
pub(super) fn ending(session: &Session) -> CloseReason {
    if session.service.stopping.is_cancelled() { CloseReason::Finished } else { CloseReason::Broken }
}

/// Waits for memory to receive `bytes`, or until the session ends.
pub(super) async fn memory_to_receive(session: &Session, bytes: usize) -> Result<RequestMemoryPermit, CloseReason> {
    let memory = session.ended.run_until_cancelled(session.memory_to_receive(bytes)).await;
    memory.ok_or_else(|| ending(session))
}

impl Drop for Connection {
    /// The session ends with its connection.
    fn drop(&mut self) {
        self.session.end();
    }
}

/// Measures how long a connection has been idle.
struct IdleTimer {
    timer: Pin<Box<Sleep>>,
    idle: Duration,
    stall: Duration,
    heard: bool,
    /// Idle since before the timer was set.
    is_idle: bool,
}

impl IdleTimer {
    fn new(idle: Duration, stall: Duration) -> Self {
        Self { timer: Box::pin(sleep(IDLE_DELAY)), idle, stall, heard: true, is_idle: false }
    }

    /// Records received bytes. Cheap unless the connection was idle for long.
    fn record_activity(&mut self) {
        self.heard = true;
        if self.is_idle {
            self.is_idle = false;
            self.wait(IDLE_DELAY);
        }
    }

    /// Called when the timer fires. Returns whether the client was silent for too long, within a request or between
    /// two; otherwise sets the timer again.
    fn is_too_long(&mut self, in_request: bool) -> bool {
        if std::mem::take(&mut self.heard) {
            self.wait(IDLE_DELAY);
            return false;
        }
        let too_long = self.is_idle;
        self.is_idle = true;
        self.wait(if in_request { self.stall } else { self.idle });
        too_long
    }

    fn wait(&mut self, duration: Duration) {
        self.timer.as_mut().reset(clock::now() + duration);
    }
}

impl AsyncRead for SocketReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(cx, buffer),
            Self::Tls(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}
