//! One request and its response: the caller, the destination of the response, counters and log.

use std::{
    io::{self, IoSlice},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::BytesMut;
use towpath_proto::xrootd::{
    DecodeError, ErrorCode, PathAndCgi, RequestCode, ResponseHeader, Status, StreamId,
    response::{self, Attn, Body, Response, WaitResp},
};
use towpath_store::{Blame, Error, Fault, PathError, StorePath, sys::clock};

use super::{response_writer::ResponseWriter, session::Session};
use crate::{
    access::{Activity, Denial, Identity, bearer},
    log_server_fault,
};

/// Time after which a client is notified that its response will come later.
const NOTICE_DELAY: Duration = Duration::from_secs(5);

/// How long the client may then wait before it gives up, in seconds.
const NOTICE_TIMEOUT_S: u32 = 1800;

/// Interval at which the notification is repeated while there is no response.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1700);

/// Whether a path has a trailing slash.
pub(super) fn is_written_as_directory(path: &PathAndCgi) -> bool {
    path.path.ends_with(b"/")
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client receives an error response.
    Refused(ErrorResponse),
    /// The connection is gone.
    Gone,
}

/// The error response to a failed request.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    /// The protocol's error code.
    pub(super) code: ErrorCode,
    /// The fault for counters and logs.
    pub(super) fault: Fault,
    /// Name of the cause of a denial, for metrics and logs.
    pub(super) reason: Option<&'static str>,
    /// The message for people.
    pub(super) message: String,
}

impl ErrorResponse {
    /// Creates a refusal with the code for `fault`.
    pub(super) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { code: ErrorCode(fault.xrootd_code()), fault, reason: None, message: message.into() }
    }

    /// Creates a refusal with a code of the protocol.
    pub(super) fn with_code(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, fault: Fault::from_xrootd(code.0), reason: None, message: message.into() }
    }
}

impl ErrorResponse {
    /// Returns the denial to log if the caller lacks a right.
    pub(super) fn denial(&self) -> Option<Denial> {
        Denial::of(self.fault, self.reason, &self.message)
    }
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        let message = match error.blame() {
            Blame::Caller => error.to_string(),
            blame => format!("{error} ({blame} is at fault)"),
        };
        Self { reason: error.reason(), ..Self::new(error.fault(), message) }
    }
}

impl From<DecodeError> for ErrorResponse {
    fn from(error: DecodeError) -> Self {
        Self::with_code(error.code(), error.to_string())
    }
}

impl From<PathError> for ErrorResponse {
    fn from(error: PathError) -> Self {
        let fault = if error == PathError::TooLong { Fault::NameTooLong } else { Fault::InvalidArgument };
        Self::new(fault, error.to_string())
    }
}

impl<R: Into<ErrorResponse>> From<R> for Failure {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

impl From<io::Error> for Failure {
    /// Only sockets return `io::Error` here.
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// The outcome of serving a request.
pub(super) type ServeResult<T = FinalFrame> = Result<T, Failure>;

/// The last frame of a response, unsent; empty if everything was sent.
#[derive(Debug, Default)]
pub(super) struct FinalFrame {
    frame: BytesMut,
    /// Bytes of file data moved by the whole response.
    moved_bytes: u64,
}

impl FinalFrame {
    /// Creates a completely sent response with `moved_bytes` of file data.
    pub(super) fn sent(moved_bytes: u64) -> Self {
        Self { frame: BytesMut::new(), moved_bytes }
    }

    /// Wraps an encoded frame.
    pub(super) fn frame(frame: BytesMut) -> Self {
        Self { frame, moved_bytes: 0 }
    }

    /// Sets the number of bytes of file data moved.
    pub(super) fn with_moved(self, moved_bytes: u64) -> Self {
        Self { moved_bytes, ..self }
    }
}

/// A request being served.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) session: Arc<Session>,
    pub(super) stream_id: StreamId,
    pub(super) response_writer: Arc<ResponseWriter>,
    verb: &'static str,
    since: clock::Instant,
    path: OnceLock<StorePath>,
    /// The identity of a token in the request's opaque part.
    identity: OnceLock<Arc<Identity>>,
    /// Set once the client was notified that the response will come later.
    announced: OnceLock<()>,
    answered: bool,
}

impl ActiveRequest {
    /// Starts serving a request.
    pub(super) fn new(
        session: &Arc<Session>,
        response_writer: &Arc<ResponseWriter>,
        code: RequestCode,
        stream_id: StreamId,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            stream_id,
            response_writer: Arc::clone(response_writer),
            verb: verb(code),
            since: clock::now(),
            path: OnceLock::new(),
            identity: OnceLock::new(),
            announced: OnceLock::new(),
            answered: false,
        }
    }

    /// Returns the caller and the path of the request. A token in the request's opaque part applies to this request
    /// only. A file path with a trailing slash is rejected, as by the reference server's file system.
    pub(super) async fn subject(&self, path: &PathAndCgi) -> ServeResult<(Arc<Identity>, StorePath)> {
        let at = StorePath::parse(&path.path_bytes())?;
        self.set_path(&at);
        let identity = match path.cgi_value("authz").and_then(bearer::in_authz) {
            None => self.session.identity().await,
            Some(token) => {
                let identity = self.session.service.access().identify(Some(&token), &self.session.channel()).await;
                Arc::clone(self.identity.get_or_init(|| Arc::new(identity)))
            }
        };
        if is_written_as_directory(path)
            && !at.is_root()
            && identity.may(Activity::Stat, &at)
            && let Ok(found) = self.session.service.store.stat(&identity.caller, &at).await
            && !found.is_directory()
        {
            return Err(Error::new(Fault::NotDirectory, "it is not a directory: remove the trailing slash")
                .at(&at)
                .into());
        }
        Ok((identity, at))
    }

    /// Records the path for the log.
    pub(super) fn set_path(&self, path: &StorePath) {
        if self.session.service.access_log.get().is_on() {
            let _ = self.path.set(path.clone());
        }
    }

    /// Returns the final response with `body`.
    pub(super) fn ok(&self, body: &impl Body) -> ServeResult {
        let mut frame = BytesMut::new();
        response::ok(self.stream_id, body, &mut frame);
        Ok(FinalFrame::frame(frame))
    }

    /// Returns the final response without a body.
    pub(super) fn done(&self) -> ServeResult {
        self.ok(&())
    }

    /// Notifies the client that the response will come within `seconds`, as an asynchronous response.
    async fn send_wait_notice(&self, seconds: u32) -> ServeResult<()> {
        let mut frame = BytesMut::new();
        Response::WaitResp(WaitResp { seconds, message: String::new() }).encode(self.stream_id, &mut frame);
        let _ = self.announced.set(());
        self.send(&frame).await
    }

    /// Waits for a slow operation, notifying the client periodically that the response will come later.
    pub(super) async fn with_wait_notices<T>(&self, outcome: impl Future<Output = T>) -> ServeResult<T> {
        let mut outcome = std::pin::pin!(outcome);
        if let Ok(outcome) = tokio::time::timeout(NOTICE_DELAY, &mut outcome).await {
            return Ok(outcome);
        }
        if !self.session.asynresp {
            return Ok(outcome.await);
        }
        loop {
            self.send_wait_notice(NOTICE_TIMEOUT_S).await?;
            if let Ok(outcome) = tokio::time::timeout(NOTICE_INTERVAL, &mut outcome).await {
                return Ok(outcome);
            }
        }
    }

    /// Sends frames before the last one.
    pub(super) async fn send(&self, frames: &[u8]) -> ServeResult<()> {
        Ok(self.response_writer.send(frames).await?)
    }

    /// Sends frames from several buffers.
    pub(super) async fn send_vectored(&self, slices: &mut [IoSlice<'_>]) -> ServeResult<()> {
        Ok(self.response_writer.send_vectored(slices).await?)
    }

    /// Sends the rest of the response, counts and logs.
    pub(super) async fn finish(mut self, served: ServeResult) {
        let mut frame = BytesMut::new();
        if let Some(rest) = self.conclude(served, &mut frame) {
            // A failure to send marks the connection as broken for its reader.
            let _ = self.response_writer.send_together(rest).await;
        }
        self.answered = true;
    }

    /// Counts and logs, and returns the rest of the response; encodes a refusal into `frame`.
    fn conclude<'f>(&self, served: ServeResult, frame: &'f mut BytesMut) -> Option<&'f [u8]> {
        let mut outcome = Outcome {
            verb: self.verb,
            path: self.path.get(),
            identity: self.identity.get(),
            fault: None,
            denial: None,
            moved_bytes: 0,
            since: self.since,
        };
        match served {
            Ok(answer) => {
                *frame = answer.frame;
                outcome.moved_bytes = answer.moved_bytes;
            }
            Err(Failure::Refused(refusal)) => {
                log_server_fault(self.session.peer, refusal.fault, &refusal.message);
                response::fault(self.stream_id, (refusal.code, refusal.fault), &refusal.message, frame);
                outcome.fault = Some(refusal.fault);
                outcome.denial = refusal.denial();
            }
            Err(Failure::Gone) => outcome.fault = Some(Fault::Cancelled),
        }
        self.session.record(&outcome);
        if self.announced.get().is_some() {
            *frame = into_asynchronous(frame.split());
        }
        (!frame.is_empty()).then_some(frame)
    }
}

impl Drop for ActiveRequest {
    /// A request whose task panicked has no response, and its client would wait forever, so the session ends.
    fn drop(&mut self) {
        if !self.answered {
            self.session.ended.cancel();
        }
    }
}

/// Writes the header of the frame at `start`, where room for it is reserved, and returns the length of its body.
pub(super) fn seal(out: &mut [u8], start: usize, stream_id: StreamId, status: Status) -> u64 {
    let body = out.len().saturating_sub(start).saturating_sub(ResponseHeader::LEN);
    let header = ResponseHeader { stream_id, status, dlen: u32::try_from(body).unwrap_or(i32::MAX as u32) };
    if let Some(header_bytes) = out.get_mut(start..start + ResponseHeader::LEN) {
        header_bytes.copy_from_slice(&header.to_bytes());
    }
    body as u64
}

/// Wraps the response in `frame` as an asynchronous response, as announced by `waitresp`.
fn into_asynchronous(mut frame: BytesMut) -> BytesMut {
    let mut attn = BytesMut::new();
    if let Some(header) = frame.first_chunk().and_then(|header| ResponseHeader::decode(header).ok()) {
        let body = frame.split_off(ResponseHeader::LEN).freeze();
        Response::Attn(Attn::AsynResp { header, body }).encode(StreamId::ZERO, &mut attn);
    }
    attn
}

/// How a request ended, for counters and logs.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    /// From [`verb`].
    pub(super) verb: &'static str,
    pub(super) path: Option<&'a StorePath>,
    /// The caller, if not the session's own identity.
    pub(super) identity: Option<&'a Arc<Identity>>,
    pub(super) fault: Option<Fault>,
    pub(super) denial: Option<Denial>,
    pub(super) moved_bytes: u64,
    pub(super) since: clock::Instant,
}

/// Returns the protocol's name of a request without its prefix. All unknown requests share one, because labels must
/// come from a fixed set.
pub(super) fn verb(code: RequestCode) -> &'static str {
    code.name().and_then(|name| name.strip_prefix("kXR_")).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpStream};
    use tokio_util::sync::CancellationToken;
    use towpath_store::{memory::MemoryStore, sys::net};

    use super::*;
    use crate::{
        ServeConfig, Server,
        fair_pool::PeerProgress,
        xrootd::{response_writer::SocketWriter, session::SessionParameters},
    };

    /// Returns the server's end of a session and the client's end of its connection.
    async fn session(asynresp: bool) -> (Arc<Session>, Arc<ResponseWriter>, TcpStream) {
        let config = ServeConfig { listen: Vec::new(), ..ServeConfig::default() };
        let service = Server::builder(Arc::new(MemoryStore::new(0)), &config).bind().unwrap().service();
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let here = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(net::connect(here), listener.accept());
        let (_, sending) = connected.unwrap().into_split();
        let end = CancellationToken::new();
        let trackers = [PeerProgress::new(end.clone()), PeerProgress::new(end.clone())];
        let response_writer = Arc::new(ResponseWriter::new(SocketWriter::Plain(sending), &service, end, trackers));
        let session = Session::begin(
            &service,
            SessionParameters {
                id: Session::new_id(),
                peer: here,
                local: here,
                identity: Identity::default(),
                login: String::new(),
                asynresp,
                encrypted: false,
            },
        );
        (session, response_writer, accepted.unwrap().0)
    }

    #[tokio::test]
    async fn a_request_without_an_answer_ends_the_session() {
        let (session, response_writer, _client) = session(false).await;
        let active_request = || ActiveRequest::new(&session, &response_writer, RequestCode::open, StreamId::ZERO);
        let done = active_request();
        let served = done.done();
        done.finish(served).await;
        assert!(!session.ended.is_cancelled());
        drop(active_request());
        assert!(session.ended.is_cancelled());
    }

    #[tokio::test]
    async fn what_takes_hours_is_promised_again_before_the_client_gives_up() {
        let (session, response_writer, mut client) = session(true).await;
        tokio::time::pause();
        let active_request = ActiveRequest::new(&session, &response_writer, RequestCode::open, StreamId::ZERO);
        active_request.with_wait_notices(tokio::time::sleep(Duration::from_hours(1))).await.unwrap();
        let mut promise = BytesMut::new();
        let announced = WaitResp { seconds: NOTICE_TIMEOUT_S, message: String::new() };
        Response::WaitResp(announced).encode(StreamId::ZERO, &mut promise);
        let mut came = vec![0; 3 * promise.len()];
        client.read_exact(&mut came).await.unwrap();
        assert_eq!(came, promise.repeat(3));
        let served = active_request.done();
        active_request.finish(served).await;
    }
}
