//! Accepts connections and detects their protocol from the first bytes.
//!
//! | first byte | protocol |
//! | --- | --- |
//! | 0x16 | a TLS ClientHello; the first byte inside selects the protocol |
//! | 0x00 | the xroot handshake (its first four words are 0, 0, 0, 4) |
//! | other | HTTP/1.1, or HTTP/2 with its preface `PRI` |
//!
//! A connection is accepted only when a connection slot is free; until then it waits in the kernel's queue.
//!
//! Ports for monitoring have slots of their own, so that they respond when all other slots are taken.

mod builder;

use std::{io, net::SocketAddr, os::fd::AsRawFd as _, sync::Arc, time::Duration};

use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use towpath_store::sys::net;

pub use self::builder::ServerBuilder;
use crate::{
    Service, Socket,
    access_log::AccessLines,
    config::Limits,
    fair_pool::{Class, LeaseHolder, PeerProgress},
    http, reload, xrootd,
};

/// Content type byte of a TLS handshake record (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// A fatal alert `handshake_failure` in a record of TLS 1.2 (RFC 5246 §7.2), which clients of all versions understand.
const HANDSHAKE_FAILURE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];
/// Maximum number of bytes received from a client whose TLS connection is refused: one record.
const MAX_HELLO_BYTES: u64 = (1 << 14) + 5;
/// First byte of the xroot handshake.
const XROOTD_HANDSHAKE: u8 = 0;

/// Share of the connections that one network may hold, relative to the free ones: three to one, because batch systems
/// are behind one address.
const CONNECTIONS_ALPHA: u64 = 3;
/// Maximum number of connections to the ports for monitoring. Monitoring systems keep few connections.
const MONITORING_CONNECTIONS: u64 = 64;
/// Maximum number of connections beyond the limit that wait for a slot; further ones wait in the kernel's queue.
const MAX_WAITING_CONNECTIONS: usize = 64;
/// Maximum time that a connection from a network without connections waits for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);
/// File descriptors reserved for listeners, logs, the runtime and short metadata operations, beside connections and
/// open files.
const OTHER_DESCRIPTORS: u64 = 256;

/// A server that is listening but not yet accepting.
#[derive(Debug)]
pub struct Server {
    service: Arc<Service>,
    listeners: Vec<TcpListener>,
    monitoring_listeners: Vec<TcpListener>,
    drain: Duration,
}

/// The content of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The store or the application, by all protocols.
    Main,
    /// Metrics and health, by plain HTTP, for all clients.
    Monitoring,
}

impl Server {
    /// Returns the listening addresses, with the actual port for each configured port 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.listeners)
    }

    /// Returns the addresses of the ports for monitoring, with the actual port for each configured port 0.
    pub fn monitoring_addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.monitoring_listeners)
    }

    /// Returns access to the access log for lines that are not of requests.
    pub fn access_lines(&self) -> AccessLines {
        AccessLines::new(&self.service)
    }

    /// Returns the token that stops the server when cancelled.
    pub fn stopping(&self) -> CancellationToken {
        self.service.stopping.clone()
    }

    /// Returns the state shared by the connections, for its counters.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }

    /// Serves until [`Self::stopping`] is cancelled, then drains requests in flight for up to the setting `drain`.
    pub async fn run(self) {
        self.service.access().fetch_keys();
        let _following = AbortOnDropHandle::new(tokio::spawn(reload::follow_certificate(Arc::clone(&self.service))));
        let connections = TaskTracker::new();
        let most = descriptors(&self.service.limits).0;
        let ports =
            [(Port::Main, self.listeners, most), (Port::Monitoring, self.monitoring_listeners, MONITORING_CONNECTIONS)];
        for (port, listeners, most) in ports {
            let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(MAX_WAITING_CONNECTIONS);
            let slots = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
            for listener in listeners {
                let (service, slots, tracker) = (Arc::clone(&self.service), Arc::clone(&slots), connections.clone());
                connections.spawn(accept(listener, port, service, slots, tracker));
            }
        }
        self.service.stopping.cancelled().await;
        connections.close();
        if timeout(self.drain, connections.wait()).await.is_err() {
            tracing::warn!(left = connections.len(), "stopped with requests in flight");
        }
        self.service.access_log.get().finish().await;
    }
}

fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

async fn accept(listener: TcpListener, port: Port, service: Arc<Service>, slots: Arc<Semaphore>, tracker: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = service.stopping.cancelled() => return,
            accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            } => accepted,
        };
        match accepted {
            (slot, Ok((stream, peer))) => {
                let service = Arc::clone(&service);
                tracker.spawn(async move {
                    let _slot = slot;
                    admit(&service, port, stream, peer).await;
                });
            }
            (_, Err(error)) => {
                // The process is out of descriptors, or a client disconnected. Neither stops the server.
                tracing::warn!(%error, "failed to accept a connection; retrying in 20 ms");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Serves a connection if the share of its network permits it, until it is evicted while idle.
async fn admit(service: &Arc<Service>, port: Port, stream: TcpStream, peer: SocketAddr) {
    if let Some(user) = service.only_user
        && !is_of_user(user, &stream, peer).await
    {
        return service.record_disconnect(peer, "is not a process of the user of this server");
    }
    let evicted = CancellationToken::new();
    let activity = PeerProgress::watching(evicted.clone());
    let holder = LeaseHolder::at(peer.ip());
    let (pool, exhausted) = match port {
        Port::Main => (&service.connections, "came from a network that has exhausted its share of limits.connections"),
        Port::Monitoring => {
            (&service.monitoring_connections, "came from a network that has too many connections for monitoring")
        }
    };
    let lease = pool.take_soon(&holder, Class::Small, &activity, SLOT_TIMEOUT).await;
    let why = match lease {
        None => exhausted,
        Some(_lease) => match evicted.run_until_cancelled(serve(service, port, stream, peer, &activity)).await {
            Some(()) => return,
            None => "was idle or slow, and other clients needed the slot",
        },
    };
    service.record_disconnect(peer, why);
}

/// Returns whether a process of `user` on this machine has the other end of a connection.
async fn is_of_user(user: u32, stream: &TcpStream, peer: SocketAddr) -> bool {
    let local = stream.local_addr();
    let found = tokio::task::spawn_blocking(move || net::peer_user(local?, peer)).await.map_err(io::Error::other);
    match found.flatten() {
        Ok(found) => found == Some(user),
        Err(error) => {
            tracing::warn!(%peer, %error, "refused a connection: the user at its other end is unknown");
            false
        }
    }
}

/// Returns the limits of connections and open files from the settings, reduced to the descriptors of the process.
fn descriptors(limits: &Limits) -> (u64, u64) {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = (limits.connections as u64).clamp(1, (most / 4 * 3).max(1));
    let rest = most.saturating_sub(connections).saturating_sub(OTHER_DESCRIPTORS);
    let files = (limits.files as u64).min(rest.max(most / 8));
    (connections, files.max(1))
}

async fn serve(service: &Arc<Service>, port: Port, stream: TcpStream, peer: SocketAddr, activity: &Arc<PeerProgress>) {
    service.metrics.accepted.inc();
    let _count_guard = ConnectionCountGuard::new(service);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
    }
    let _suiting = AbortOnDropHandle::new(tokio::spawn(net::suit_to_path(stream.as_raw_fd())));
    let recognized = timeout(service.limits.handshake.0, recognize(service, port, stream));
    match service.stopping.run_until_cancelled(recognized).await {
        Some(Ok(Ok(Some((Protocol::Xrootd, _))))) if service.application.is_some() => {
            tracing::debug!(%peer, "rejected an XRootD client: this server has no files");
        }
        Some(Ok(Ok(Some((Protocol::Xrootd, socket))))) => {
            xrootd::serve(Arc::clone(service), socket, peer, activity).await;
        }
        Some(Ok(Ok(Some((Protocol::Http, socket))))) => {
            http::serve(Arc::clone(service), port, socket, peer, activity).await;
        }
        None | Some(Ok(Ok(None))) => {}
        Some(Ok(Err(error))) => tracing::debug!(%peer, %error, "connection ended before its first request"),
        Some(Err(_)) => {
            service.metrics.disconnected.inc();
            tracing::debug!(%peer, "handshake timeout: no byte received");
        }
    }
}

/// Counts a connection while it is served.
struct ConnectionCountGuard<'a>(&'a Service);

impl<'a> ConnectionCountGuard<'a> {
    fn new(service: &'a Service) -> Self {
        service.metrics.connections.inc();
        Self(service)
    }
}

impl Drop for ConnectionCountGuard<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Xrootd,
    Http,
}

/// Detects the protocol of a new connection without consuming its bytes. Returns `None` if the client disconnected
/// without sending any.
async fn recognize(service: &Service, port: Port, stream: TcpStream) -> io::Result<Option<(Protocol, Socket)>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    let (is_tls, is_monitoring) = (first[0] == TLS_HANDSHAKE, port == Port::Monitoring);
    if is_monitoring && first[0] == XROOTD_HANDSHAKE {
        return Err(io::Error::other("the client does not use HTTP, as the ports of metrics.listen require"));
    }
    if !is_tls {
        return Ok(Some((protocol_of(first[0]), Socket::Plain(stream))));
    }
    let Some(tls) = service.tls().filter(|_| !is_monitoring) else {
        refuse_tls(service, port, stream).await?;
        return Ok(None);
    };
    let mut stream = BufReader::new(tls.accept(stream).await?);
    let Some(&first) = stream.fill_buf().await?.first() else { return Ok(None) };
    Ok(Some((protocol_of(first), Socket::Tls(Box::new(stream)))))
}

/// Responds to a ClientHello with an alert, so that the client can report why it gets no connection, and logs it.
async fn refuse_tls(service: &Service, port: Port, mut stream: TcpStream) -> io::Result<()> {
    if let Some(unlogged) = service.tls_refusal_log.admit() {
        let peer = stream.peer_addr()?;
        let why = match port {
            Port::Main => "no certificate is configured (tls.certificate)",
            Port::Monitoring => "the ports of metrics.listen use plain HTTP",
        };
        let more = if unlogged > 0 { format!("; {unlogged} more were not logged") } else { String::new() };
        tracing::warn!(%peer, "refused a TLS connection: {why}{more}");
    }
    stream.write_all(&HANDSHAKE_FAILURE).await?;
    stream.shutdown().await?;
    // Unread bytes would turn the end of the connection into a reset, and the client might lose the alert.
    tokio::io::copy(&mut stream.take(MAX_HELLO_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

fn protocol_of(first: u8) -> Protocol {
    if first == XROOTD_HANDSHAKE { Protocol::Xrootd } else { Protocol::Http }
}
