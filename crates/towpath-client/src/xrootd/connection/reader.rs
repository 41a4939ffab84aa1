//! The receiving half of a connection: splits the stream into responses and passes each to the sink of its request.
//!
//! Many short responses are received at once into the framer's buffer. The data of a long response are received
//! directly into the sink; while long responses arrive, reads into the framer's buffer are shorter, so that it gets
//! little of their data.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{io::AsyncRead, sync::oneshot};
use towpath_proto::xrootd::{
    DecodeError, Response, ResponseFramer, ResponseHead, ResponseHeader, Status, StreamId,
    response::{Attn, StatusKind},
};
use towpath_store::{Blame, Error, Fault, sys::clock};

use super::{
    Control, Failure, InFlightRequest, ResponseStatus, XrootdConnectionState, broken, dial::setup_failed,
    monitored_input::MonitoredInput,
};
use crate::{
    words::readable,
    xrootd::{
        session_setup::{Progress, SessionSetup, reserved},
        sink::{InvalidResponse, Sink},
    },
};

/// Maximum length of a response body that is not data, in bytes: errors, redirects, and asynchronous responses.
const BODY_LIMIT: usize = 16 << 20;

/// Minimum length in bytes of data that are received directly into their sink.
const DIRECT_BYTES: u64 = 16 << 10;

/// Length of one read into the framer's buffer, in bytes.
const SMALL_READ: usize = 64 << 10;
/// Read length while long responses arrive: enough for the header of the next response, with little of its data to
/// copy.
const READ_AMID_BULK: usize = 512;

/// The reason why the connection cannot be used any more.
enum ReadFailure {
    Failure(Failure),
    Broken(DecodeError),
    Bad(InvalidResponse),
}

impl From<DecodeError> for ReadFailure {
    fn from(error: DecodeError) -> Self {
        Self::Broken(error)
    }
}

impl From<InvalidResponse> for ReadFailure {
    fn from(error: InvalidResponse) -> Self {
        Self::Bad(error)
    }
}

/// The receiving half of a connection.
pub(super) struct Reader<I> {
    host: String,
    input: MonitoredInput<I>,
    framer: ResponseFramer,
    shared: Arc<XrootdConnectionState>,
    control: Control,
    setup: SessionSetup,
    gate: Option<oneshot::Sender<()>>,
    amid_bulk: bool,
}

impl<I: AsyncRead + Unpin> Reader<I> {
    pub(super) fn new(
        host: String,
        input: I,
        shared: Arc<XrootdConnectionState>,
        control: Control,
        setup: SessionSetup,
        gate: Option<oneshot::Sender<()>>,
    ) -> Self {
        let framer = ResponseFramer::new(BODY_LIMIT);
        let input = MonitoredInput::new(input, Arc::clone(&shared), control.clone());
        Self { host, input, framer, shared, control, setup, gate, amid_bulk: false }
    }

    /// Serves the connection until it ends. Returns the reason.
    pub(super) async fn run(mut self) -> Failure {
        loop {
            let step = match self.framer.next() {
                Ok(Some(head)) => {
                    self.input.begin_answer();
                    let step = self.response(head).await;
                    self.input.end_answer();
                    step
                }
                Ok(None) => self.fill().await,
                Err(error) => Err(ReadFailure::Broken(error)),
            };
            let error = match step {
                Ok(()) => continue,
                Err(ReadFailure::Failure(failure)) => return failure,
                Err(ReadFailure::Broken(error)) => broken(&self.host, &error),
                Err(ReadFailure::Bad(error)) => broken(&self.host, &error),
            };
            return self.shared.loss(error);
        }
    }

    async fn response(&mut self, head: ResponseHead) -> Result<(), ReadFailure> {
        let ResponseHeader { stream_id, status, .. } = head.header;
        if status == Status::attn {
            let body = self.body().await?;
            let Response::Attn(attn) = Response::decode(&head.header, body)? else { return Ok(()) };
            return self.unsolicited(attn).await;
        }
        if stream_id.number() < reserved::FIRST_FREE {
            let body = self.body().await?;
            return self.own(stream_id, Response::decode(&head.header, body)?);
        }
        let Some(mut waiting) = self.shared.take(stream_id) else {
            return Err(DecodeError::Invalid { what: "stream id of a response" }.into());
        };
        self.input.answered();
        let since = waiting.since;
        match status {
            Status::ok | Status::oksofar | Status::status => {
                if waiting.reply.is_closed() {
                    waiting.sink = Sink::Nowhere;
                }
                let poured = self.pour(&mut waiting.sink, &head).await;
                self.input.record_time(since);
                let last = match &head.status {
                    None => status == Status::ok,
                    Some(body) => body.kind == StatusKind::Final,
                };
                match poured {
                    Ok(_) if last => {
                        self.input.record_progress();
                        self.shared.end(waiting, Ok(head.status.map_or(ResponseStatus::Ok, ResponseStatus::Status)));
                    }
                    Ok(bytes) => self.part_came(stream_id, waiting, bytes),
                    Err(end) => {
                        self.shared.put_back(stream_id, waiting);
                        return Err(end);
                    }
                }
                Ok(())
            }
            _ => {
                let body = self.body().await;
                self.input.record_time(since);
                match body.and_then(|body| Ok(Response::decode(&head.header, body)?)) {
                    Ok(response) => self.verdict(stream_id, waiting, response),
                    Err(end) => {
                        self.shared.put_back(stream_id, waiting);
                        Err(end)
                    }
                }
            }
        }
    }

    /// Continues to wait for the rest of a response after a part of `bytes`, unless the response makes too little
    /// progress.
    fn part_came(&mut self, stream_id: StreamId, mut waiting: InFlightRequest, bytes: usize) {
        let now = clock::now();
        if waiting.parts.came(bytes, now) {
            waiting.deadline = now + self.shared.patience;
            self.input.record_progress();
        }
        if waiting.given_up || !waiting.parts.trickle(now, self.shared.stall()) {
            return self.shared.put_back(stream_id, waiting);
        }
        let message = format!("{} sends many response parts with almost no data", self.host);
        let error = Error::new(Fault::TimedOut, message).blamed_on(Blame::Storage);
        // Further parts may arrive, and must not be mistaken for the response to another request.
        self.shared.put_back(stream_id, InFlightRequest::given_up(now));
        self.shared.end(waiting, Err(Failure::Fatal(error)));
    }

    /// Processes a response without data.
    fn verdict(
        &self,
        stream_id: StreamId,
        mut waiting: InFlightRequest,
        response: Response,
    ) -> Result<(), ReadFailure> {
        let failure = match response {
            // Before the login, a server rejects a request without processing it. The failure is reported when a retry
            // can succeed.
            _ if !self.setup.is_done() => {
                waiting.refused_early = true;
                self.shared.put_back(stream_id, waiting);
                return Ok(());
            }
            Response::Error(error) => Failure::Refused(error),
            Response::Redirect(to) => Failure::Redirect { to, encrypted: self.setup.is_encrypted() },
            Response::Wait(wait) => Failure::Wait { seconds: wait.seconds },
            Response::WaitResp(wait) => {
                let promised = Duration::from_secs(u64::from(wait.seconds));
                let promised = promised.max(self.shared.stall()).min(self.shared.patience);
                // Promises may be renewed, but not indefinitely.
                waiting.deadline = (clock::now() + promised).min(waiting.last_deadline);
                waiting.patient = true;
                self.shared.put_back(stream_id, waiting);
                return Ok(());
            }
            _ => {
                self.shared.put_back(stream_id, waiting);
                return Err(DecodeError::Invalid { what: "response status" }.into());
            }
        };
        self.shared.end(waiting, Err(failure));
        Ok(())
    }

    /// Processes the response to one of the connection's own requests.
    fn own(&mut self, stream_id: StreamId, response: Response) -> Result<(), ReadFailure> {
        if self.setup.is_done() {
            return Ok(());
        }
        let progress = self.setup.answer(stream_id, response);
        let progress = progress.map_err(|failure| ReadFailure::Failure(setup_failed(failure)))?;
        // The writer outlives the reader.
        let _ = self.control.send(self.setup.take_output());
        match progress {
            Progress::Ready(established) => {
                tracing::debug!(host = self.host, version = established.version, "session ready");
                // Set once: a setup becomes ready once.
                let _ = self.shared.established.set(established);
                self.shared.end_early();
                self.shared.settled.notify_waiters();
                if let Some(gate) = self.gate.take() {
                    let _ = gate.send(());
                }
                Ok(())
            }
            Progress::More => Ok(()),
            Progress::StartTls => Err(DecodeError::Invalid { what: "time of starting TLS" }.into()),
        }
    }

    async fn unsolicited(&mut self, attn: Attn) -> Result<(), ReadFailure> {
        match attn {
            Attn::AsynResp { header, body } => self.late_answer(&header, body).await,
            Attn::AsyncMs(message) => {
                tracing::info!(host = self.host, message = readable(&message), "the server says");
                Ok(())
            }
            Attn::Other { .. } => Ok(()),
        }
    }

    /// Processes the response promised by a `waitresp`.
    async fn late_answer(&mut self, header: &ResponseHeader, body: Bytes) -> Result<(), ReadFailure> {
        let Some(mut waiting) = self.shared.take(header.stream_id) else { return Ok(()) };
        self.input.record_time(waiting.since);
        let poured = match Response::decode(header, body) {
            Ok(Response::Ok(body)) => pour_late(&mut waiting.sink, header, body).await,
            Ok(response) => return self.verdict(header.stream_id, waiting, response),
            Err(error) => Err(error.into()),
        };
        match poured {
            Ok(()) => self.shared.end(waiting, Ok(ResponseStatus::Ok)),
            // The request then fails with the other requests in flight, with an error that states who is to blame.
            Err(_) => self.shared.put_back(header.stream_id, waiting),
        }
        poured
    }

    /// Receives the data of a response into its sink. Returns their length in bytes.
    async fn pour(&mut self, sink: &mut Sink, head: &ResponseHead) -> Result<usize, ReadFailure> {
        let length = self.framer.remaining();
        sink.begin(head, length)?;
        self.amid_bulk = length >= DIRECT_BYTES;
        loop {
            let buffered = self.framer.take(usize::MAX);
            if !buffered.is_empty() {
                let shared = Arc::clone(&self.shared);
                sink.push(buffered, || shared.occupy()).await?;
            }
            let left = self.framer.remaining();
            if left == 0 {
                sink.end()?;
                return Ok(usize::try_from(length).unwrap_or(usize::MAX));
            }
            match sink.room() {
                Some((buffer, room)) if left >= DIRECT_BYTES && room > 0 => {
                    let limit = room.min(usize::try_from(left).unwrap_or(usize::MAX));
                    let received = self.input.receive(buffer, limit).await.map_err(|why| self.end(&why))?;
                    sink.received(received)?;
                    self.framer.received(received as u64);
                }
                _ => self.fill().await?,
            }
        }
    }

    /// Receives the whole body of the current response.
    async fn body(&mut self) -> Result<Bytes, ReadFailure> {
        loop {
            if let Some(body) = self.framer.body()? {
                return Ok(body);
            }
            self.fill().await?;
        }
    }

    /// Receives more bytes into the framer's buffer.
    async fn fill(&mut self) -> Result<(), ReadFailure> {
        let size = if self.amid_bulk { READ_AMID_BULK } else { SMALL_READ };
        self.framer.buffer().reserve(size);
        self.input.receive(self.framer.buffer(), size).await.map_err(|why| self.end(&why))?;
        Ok(())
    }

    fn end(&self, why: &str) -> ReadFailure {
        let message = format!("the connection to {} was lost: {why}", self.host);
        ReadFailure::Failure(self.shared.loss(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)))
    }
}

/// Passes the data of a promised response to its sink.
async fn pour_late(sink: &mut Sink, header: &ResponseHeader, body: Bytes) -> Result<(), ReadFailure> {
    sink.begin(&ResponseHead { header: *header, status: None }, body.len() as u64)?;
    sink.push(body, || false).await?;
    Ok(sink.end()?)
}
