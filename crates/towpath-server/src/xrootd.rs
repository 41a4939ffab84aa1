//! The xroot protocol as a face of a store.
//!
//! The life of a connection: [`login`] creates its session (handshake, `protocol`, TLS, `login`, `auth`) or joins it
//! to an existing one (`bind`). Then [`connection`] reads requests; those that need no waiting are answered
//! immediately ([`immediate`]), the others become a [`job`] at their position in the [`request_queue`] of requests or,
//! if data follow, a [`write`]. Responses are sent through the [`response_writer`]. [`bound`] serves connections that
//! carry data for another one.
//!
//! | module | content |
//! | --- | --- |
//! | [`session`], [`files`] | state that outlives a request: identity, memory limits, bound connections, open files |
//! | [`active_request`] | one request and its response: refusals, counters, log |
//! | [`open`], [`read`], [`write`] | open files and their data |
//! | [`metadata`], [`listing`], [`names`], [`attributes`], [`staging`], [`query`] | operations on paths |
//! | [`third_party`] | copies between servers |
//!
//! Memory is limited per connection and in total: it is reserved before a response is produced or data are received.
//! Unsupported requests (`chkpoint`, `clone`, `gpfile`, ...) are rejected with an error response; only an unparsable
//! request stream ends the connection.

mod active_request;
mod attributes;
mod bound;
mod connection;
mod files;
mod immediate;
mod job;
mod listing;
mod login;
mod metadata;
mod names;
mod open;
mod query;
mod read;
mod request_queue;
mod response_writer;
mod session;
mod staging;
mod third_party;
mod write;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsRawFd as _,
    sync::Arc,
};

use tokio::{task::JoinSet, time::timeout};
use towpath_store::sys::clock;

use crate::{Service, Socket, fair_pool::PeerProgress};
use connection::{Connection, SocketReader};
use login::{AuthenticatedConnection, ConnectionRole};
use response_writer::{ResponseWriter, SocketWriter};
use session::Session;

pub use session::Sessions;

/// Serves one connection until it ends. Records the client's progress in `activity`.
pub async fn serve(service: Arc<Service>, socket: Socket, peer: SocketAddr, activity: &Arc<PeerProgress>) {
    let local = socket.local_address().unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
    let admission = timeout(service.limits.handshake.0, login::admit(&service, socket, peer, local));
    let authenticated = tokio::select! {
        authenticated = admission => authenticated,
        () = service.stopping.cancelled() => return,
    };
    match authenticated {
        Ok(Ok(Some(authenticated))) => match authenticated.role {
            ConnectionRole::Main(ref session) => serve_session(Arc::clone(session), authenticated, activity).await,
            ConnectionRole::Bound(ref session, stream_id) => {
                bound::serve(Arc::clone(session), stream_id, authenticated, activity).await;
            }
        },
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "connection ended before its login"),
        Err(_) => {
            service.metrics.disconnected.inc();
            tracing::debug!(%peer, "handshake timeout: login incomplete");
        }
    }
}

async fn serve_session(session: Arc<Session>, authenticated: AuthenticatedConnection, activity: &Arc<PeerProgress>) {
    let socket = authenticated.socket.as_raw_fd();
    let (receiving, sending) = split(authenticated.socket);
    let response_writer = ResponseWriter::new(
        sending,
        &session.service,
        session.ended.clone(),
        [&session.sending, activity].map(Arc::clone),
    );
    let connection = Connection {
        session,
        receiving,
        socket,
        framer: authenticated.framer,
        response_writer: Arc::new(response_writer),
        tasks: JoinSet::new(),
        out: authenticated.unsent.to_vec(),
        long_request: None,
        scratch: Vec::new(),
        since: clock::now(),
        activity: Arc::clone(activity),
    };
    connection.run().await;
}

fn split(socket: Socket) -> (SocketReader, SocketWriter) {
    match socket {
        Socket::Plain(stream) => {
            let (receiving, sending) = stream.into_split();
            (SocketReader::Plain(receiving), SocketWriter::Plain(sending))
        }
        tls => {
            let (receiving, sending) = tokio::io::split(tls);
            (SocketReader::Tls(receiving), SocketWriter::Tls(sending))
        }
    }
}
