//! HTTP and WebDAV as a face of a store.
//!
//! The life of a request: hyper reads it from the [`connection_io`]; [`routes`] determines its [`target`] and the
//! caller's [`identity`], and calls the function of its method ([`get`], [`put`], [`namespace`], [`copying`],
//! [`propfind`], [`third_party`], [`proppatch`], [`locking`], [`probe`], [`additional_routes`]) with an [`exchange::Exchange`]. That function
//! checks access and locks, calls the store, and returns a response or a [`refusal`]. Bodies ([`body`]) are produced as
//! the client reads them; files are sent by `sendfile` where possible. After the last byte, the request's
//! [`request_tracker`] is written to log and metrics.
//!
//! A client's resource use is bounded: headers by size, time and number, requests per connection, memory per
//! connection and in total ([`connection_state`]), and time without progress ([`watchdog`]).
//!
//! Not here: the syntax of HTTP values (`towpath_proto::http`), TLS (the listener).

mod additional_routes;
mod application;
mod body;
mod cache_fields;
mod connection_io;
mod connection_state;
mod copying;
mod cors;
mod digests;
mod exchange;
mod file_body;
mod framing;
mod get;
mod http10;
mod identity;
mod listing_page;
mod locking;
mod locks;
mod media_type;
mod namespace;
mod parts;
mod probe;
mod propfind;
mod proppatch;
mod put;
mod refusal;
mod request_tracker;
mod respond;
mod routes;
mod service_pages;
mod target;
mod third_party;
mod upload;
mod uploads;
mod verb;
mod watchdog;

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};

use self::{connection_io::ConnectionIo, connection_state::ConnectionState, watchdog::TimeoutKind};
use crate::{
    Port, Service, Socket,
    config::{HttpConfig, Limits, ProbeConfig},
    fair_pool::PeerProgress,
};

/// Maximum size of an HTTP/2 frame, in bytes. The minimum of 16 KiB would cost many frames to parse.
const MAX_FRAME_BYTES: u32 = 256 << 10;

/// Maximum number of streams that a client opens and cancels before they are handled (CVE-2023-44487); more end the
/// connection.
const MAX_PENDING_RESETS: usize = 32;

/// Maximum number of header fields of one request.
const MAX_HEADER_FIELDS: usize = 128;

/// Maximum number of bytes that hyper reads or buffers at once on HTTP/1.1: one read of a fast upload. The buffer
/// grows with the reads.
const MAX_BUFFER_BYTES: usize = 512 << 10;

/// State shared by all HTTP connections of a server.
#[derive(Debug, Default)]
pub struct State {
    settings: HttpConfig,
    locks: locks::Locks,
    uploads: uploads::Uploads,
    probes: probe::Probes,
}

impl State {
    /// Creates the state at server start.
    pub fn new(settings: HttpConfig, probes: ProbeConfig) -> Self {
        Self { settings, probes: probe::Probes::new(probes), ..Self::default() }
    }
}

/// Serves one connection to `port` until it ends. Records the client's progress in `activity`.
pub async fn serve(service: Arc<Service>, port: Port, socket: Socket, peer: SocketAddr, activity: &Arc<PeerProgress>) {
    let connection_state = Arc::new(ConnectionState::new(&service, port, &socket, peer, activity));
    let io = ConnectionIo::new(socket, &connection_state, service.limits.header_bytes.0);
    let builder = builder(&service);
    let answer = {
        let (service, connection_state) = (Arc::clone(&service), Arc::clone(&connection_state));
        service_fn(move |request: Request<Incoming>| {
            let (service, connection_state) = (Arc::clone(&service), Arc::clone(&connection_state));
            async move { Ok::<_, Infallible>(routes::answer(service, connection_state, request).await) }
        })
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), answer));
    let mut timed_out = pin!(watch(&connection_state, &service.limits));
    let mut stopping = pin!(service.stopping.cancelled());
    let mut is_draining = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "connection failed");
                }
                return;
            }
            kind = &mut timed_out => {
                return service.record_disconnect(peer, kind.describe());
            }
            () = connection_state.revoked.cancelled() => {
                return service.record_disconnect(peer, "stalled while other clients needed its memory");
            }
            () = &mut stopping, if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder(service: &Service) -> Builder<TokioExecutor> {
    let limits = &service.limits;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The watchdog enforces the header timeout, and distinguishes it from idle time between requests.
        .header_read_timeout(None)
        // Streams of applications may be idle for hours: the end of the request stream is the only sign that the
        // client has gone.
        .half_close(service.application.is_none())
        .max_headers(MAX_HEADER_FIELDS)
        .max_buf_size(MAX_BUFFER_BYTES.max(2 * usize::try_from(limits.header_bytes.0).unwrap_or(usize::MAX / 2)));
    builder
        .http2()
        .timer(TokioTimer::new())
        // HTTP/2 flow control: the window of a stream and of the connection is 64 KiB and grows as data is consumed
        // (up to 16 MiB). With large initial windows each connection could fill one with data for which no memory is
        // reserved.
        .adaptive_window(true)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_concurrent_streams(u32::try_from(limits.requests_per_connection).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_header_list_size(u32::try_from(limits.header_bytes.0).unwrap_or(u32::MAX));
    builder
}

/// Returns when the client exceeds a timeout.
async fn watch(connection_state: &ConnectionState, limits: &Limits) -> TimeoutKind {
    loop {
        match connection_state.watchdog.check(limits) {
            Ok(next_check) => tokio::time::sleep(next_check).await,
            Err(kind) => return kind,
        }
    }
}
