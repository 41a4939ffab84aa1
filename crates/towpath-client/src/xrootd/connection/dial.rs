//! Establishes a connection: resolves the host name, connects by TCP and TLS if required, and runs reader and writer.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::xrootd::{Response, ResponseFramer};
use towpath_store::{Blame, Error, Fault, Result};

use super::{Failure, XrootdConnectionState, broken, reader::Reader, writer};
use crate::{
    WaitReporter,
    dial::{ConnectionMonitor, Dialer, timed_out},
    tls::Tls,
    xrootd::session_setup::{Progress, SessionSetup, SetupFailure, SetupOptions},
};

/// The destination of a connection, and its options.
#[derive(Debug)]
pub(in crate::xrootd) struct Dial {
    pub(in crate::xrootd) host: String,
    pub(in crate::xrootd) port: u16,
    pub(in crate::xrootd) plan: SetupOptions,
    /// Required if the plan wants TLS.
    pub(in crate::xrootd) tls: Option<Tls>,
    pub(in crate::xrootd) connect_timeout: Duration,
    pub(in crate::xrootd) dialer: Arc<Dialer>,
    /// Bytes of file data in flight in the session.
    pub(in crate::xrootd) underway: Arc<AtomicUsize>,
    pub(in crate::xrootd) stall: Duration,
    /// Like `stall`, until the session is ready.
    pub(in crate::xrootd) login_stall: Duration,
    pub(in crate::xrootd) patience: Duration,
    pub(in crate::xrootd) max_wait: Option<Duration>,
    pub(in crate::xrootd) waits: WaitReporter,
}

/// Maximum length of a response body before TLS, in bytes.
const EARLY_BODY_LIMIT: usize = 64 << 10;

type Input = Box<dyn AsyncRead + Send + Unpin>;
type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Connects, and serves the connection until it is lost or dropped.
pub(super) async fn run(
    dial: Dial,
    shared: Arc<XrootdConnectionState>,
    queue: mpsc::UnboundedReceiver<writer::QueuedRequest>,
) {
    let host = dial.plan.host.clone();
    let failure = match open(dial).await {
        Ok((input, output, setup, tap)) => {
            // The tap lives until this call ends.
            let _ = shared.tap.set(Arc::downgrade(&tap));
            serve(host.clone(), &shared, input, output, setup, queue).await
        }
        Err(failure) => setup_failed(failure),
    };
    tracing::debug!(host, "connection ended: {failure}");
    shared.lose(&failure);
}

/// Returns the failure of the requests that wait for a session whose setup failed.
pub(super) fn setup_failed(failure: SetupFailure) -> Failure {
    match failure {
        SetupFailure::NeedsTls => Failure::TooEarly,
        SetupFailure::Wait { seconds } => Failure::Wait { seconds },
        SetupFailure::Broken(error) => Failure::NotSent(error),
        SetupFailure::Fatal(error) => Failure::Fatal(error),
    }
}

async fn open(dial: Dial) -> Result<(Input, Output, SessionSetup, Arc<ConnectionMonitor>), SetupFailure> {
    let connected = dial.dialer.connect(&dial.host, dial.port, &dial.underway).await;
    let (mut stream, tap) = connected.map_err(|error| match error.fault() {
        Fault::PermissionDenied => SetupFailure::Fatal(error),
        _ => SetupFailure::Broken(error),
    })?;
    let host = dial.plan.host.clone();
    let mut setup = SessionSetup::new(dial.plan);
    if !setup.before_tls() {
        let (input, output) = stream.into_split();
        return Ok((Box::new(input), Box::new(output), setup, tap));
    }
    let starts_tls = timeout(dial.connect_timeout, negotiate(&host, &mut stream, &mut setup));
    let late = |what| SetupFailure::Broken(timed_out(&host, what));
    if !starts_tls.await.map_err(|_| late("the response to the first request"))?? {
        let (input, output) = stream.into_split();
        return Ok((Box::new(input), Box::new(output), setup, tap));
    }
    let Some(tls) = &dial.tls else {
        return Err(SetupFailure::Fatal(Error::new(Fault::Internal, "TLS was requested, but is not configured")));
    };
    let encrypted = timeout(dial.connect_timeout, tls.start(&dial.host, stream));
    let encrypted = encrypted.await.map_err(|_| late("TLS"))?.map_err(|error| match error.fault() {
        Fault::Unavailable => SetupFailure::Broken(error),
        _ => SetupFailure::Fatal(error),
    })?;
    setup.tls_started();
    let (input, output) = tokio::io::split(encrypted);
    Ok((Box::new(input), Box::new(output), setup, tap))
}

/// Exchanges the messages before TLS. Returns whether TLS is to be started now.
async fn negotiate(host: &str, stream: &mut TcpStream, setup: &mut SessionSetup) -> Result<bool, SetupFailure> {
    let lost = |error: std::io::Error| {
        let message = format!("the connection to {host} was lost: {error}");
        SetupFailure::Broken(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network))
    };
    let garbled = |error| SetupFailure::Broken(broken(host, &error));
    stream.write_all(&setup.take_output()).await.map_err(lost)?;
    let mut framer = ResponseFramer::new(EARLY_BODY_LIMIT);
    let mut head = None;
    loop {
        if head.is_none() {
            head = framer.next().map_err(garbled)?;
        }
        if let Some(current) = &head
            && let Some(body) = framer.body().map_err(garbled)?
        {
            let response = Response::decode(&current.header, body).map_err(garbled)?;
            let progress = setup.answer(current.header.stream_id, response)?;
            head = None;
            match progress {
                Progress::StartTls => return Ok(true),
                _ if !setup.before_tls() => return Ok(false),
                _ => continue,
            }
        }
        if stream.read_buf(framer.buffer()).await.map_err(lost)? == 0 {
            return Err(lost(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Runs reader and writer until one of them ends.
async fn serve(
    host: String,
    shared: &Arc<XrootdConnectionState>,
    input: Input,
    output: Output,
    mut setup: SessionSetup,
    queue: mpsc::UnboundedReceiver<writer::QueuedRequest>,
) -> Failure {
    let (control, orders) = mpsc::unbounded_channel();
    let (gate, opened) = oneshot::channel();
    let first = setup.take_output();
    let gate = if setup.lets_requests_out() {
        // The receiver is alive: it was created two lines above.
        let _ = gate.send(());
        None
    } else {
        Some(gate)
    };
    let writer = writer::run(output, first, opened, orders, queue);
    let mut writer = AbortOnDropHandle::new(tokio::spawn(writer));
    let reader = Reader::new(host.clone(), input, Arc::clone(shared), control, setup, gate);
    tokio::select! {
        failure = reader.run() => failure,
        ended = &mut writer => match ended {
            Ok(Err(error)) => {
                let message = format!("the connection to {host} was lost: {error}");
                shared.loss(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network))
            }
            // The connection has been dropped.
            _ => Failure::NotSent(super::closed()),
        },
    }
}
