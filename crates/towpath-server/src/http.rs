//! HTTP and WebDAV as a face of a store.
//!
//! The life of a request: hyper reads it from the [`wire`]; [`routes`] finds out what it is about ([`target`]) and who asks
//! ([`identity`]), and calls its method's function ([`get`], [`put`], [`namespace`], [`copying`], [`propfind`],
//! [`third_party`], [`proppatch`], [`locking`], [`probe`]) with an [`exchange::Exchange`]. That checks access and locks, calls the store, and
//! gives an answer or a [`refusal`]. Bodies ([`body`]) are made as the client takes them; files go by `sendfile` where they can.
//! When the last byte has gone, the request's [`account`] is written to log and metrics.
//!
//! What a client may take or cost is bounded: headers by size, time and number, requests of a connection, memory of
//! one and of all ([`link`]), and time without progress ([`pulse`]).
//!
//! What is not here: how HTTP's values are spelled (`towpath_proto::http`), TLS (the listener).

mod account;
mod application;
mod body;
mod copying;
mod cors;
mod digests;
mod exchange;
mod file_body;
mod framing;
mod get;
mod http10;
mod identity;
mod link;
mod listing_page;
mod locking;
mod locks;
mod media_type;
mod namespace;
mod parts;
mod probe;
mod propfind;
mod proppatch;
mod pulse;
mod put;
mod refusal;
mod respond;
mod routes;
mod service_pages;
mod target;
mod third_party;
mod upload;
mod uploads;
mod verb;
mod wire;

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};

use self::{link::Link, pulse::Late, wire::Wire};
use crate::{
    Service, Socket,
    config::{HttpConfig, Limits, ProbeConfig},
    shares::Standing,
};

/// The longest frame that a client may send on HTTP/2. The least allowed, 16 KiB, is many to take apart.
const FRAME_BYTES: u32 = 256 << 10;

/// Streams that a client may open and cancel before they have been looked at (CVE-2023-44487); more end the connection.
const PENDING_RESETS: usize = 32;

/// Header fields of one request.
const HEADER_FIELDS: usize = 128;

/// The most that hyper reads or holds back at once on HTTP/1.1: what one read of a fast upload brings. It takes its memory as reads fill it.
const BUFFER_BYTES: usize = 512 << 10;

/// What all HTTP connections of a server share.
#[derive(Debug, Default)]
pub struct State {
    settings: HttpConfig,
    locks: locks::Locks,
    uploads: uploads::Uploads,
    probes: probe::Probes,
}

impl State {
    /// The state of a server that starts.
    pub fn new(settings: HttpConfig, probes: ProbeConfig) -> Self {
        Self { settings, probes: probe::Probes::new(probes), ..Self::default() }
    }
}

/// Serves one connection until it ends. `activity` learns what the client sends and takes.
pub async fn serve(service: Arc<Service>, socket: Socket, peer: SocketAddr, activity: &Arc<Standing>) {
    let link = Arc::new(Link::new(&service, &socket, peer, activity));
    let wire = Wire::new(socket, &link, service.limits.header_bytes.0);
    let builder = builder(&service);
    let answer = {
        let (service, link) = (Arc::clone(&service), Arc::clone(&link));
        service_fn(move |request: Request<Incoming>| {
            let (service, link) = (Arc::clone(&service), Arc::clone(&link));
            async move { Ok::<_, Infallible>(routes::answer(service, link, request).await) }
        })
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), answer));
    let mut late = pin!(watch(&link, &service.limits));
    let mut stopping = pin!(service.stopping.cancelled());
    let mut told = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "the connection broke");
                }
                return;
            }
            late = &mut late => {
                service.metrics.dropped.inc();
                tracing::info!(%peer, "dropped the client: {}", late.phrase());
                return;
            }
            () = link.revoked.cancelled() => {
                service.metrics.dropped.inc();
                tracing::info!(%peer, "dropped the client: it did not move memory that other clients need");
                return;
            }
            () = &mut stopping, if !told => {
                told = true;
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
        // The pulse knows how long a header may take, and tells it from silence between two requests.
        .header_read_timeout(None)
        // Streams of applications may be silent for hours: that nothing more will be sent is the one sign that their client has gone.
        .half_close(service.application.is_none())
        .max_headers(HEADER_FIELDS)
        .max_buf_size(BUFFER_BYTES.max(2 * usize::try_from(limits.header_bytes.0).unwrap_or(usize::MAX / 2)));
    builder
        .http2()
        .timer(TokioTimer::new())
        // What a client may send before the server has taken it, in a stream and in all: 64 KiB, and more as it is taken (at most 16 MiB). With large windows from the
        // beginning, each connection could fill one of them with what nothing was reserved for.
        .adaptive_window(true)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(u32::try_from(limits.requests_per_connection).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_header_list_size(u32::try_from(limits.header_bytes.0).unwrap_or(u32::MAX));
    builder
}

/// Ends when the client is late.
async fn watch(link: &Link, limits: &Limits) -> Late {
    loop {
        match link.pulse.late(limits) {
            Ok(again) => tokio::time::sleep(again).await,
            Err(late) => return late,
        }
    }
}
