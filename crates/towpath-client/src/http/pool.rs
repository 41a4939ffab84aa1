//! A pool of connections to servers: opened on demand, kept while they may be reused, each for one request at a time.
//!
//! Uses HTTP/1.1 only. One HTTP/2 connection could carry many requests, but then the bulk of a file shares one TCP
//! window and one core, and each byte is framed and flow-controlled twice. Several HTTP/1.1 connections avoid these
//! limits.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, header};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::{tcp::TCP_INFO_FIELD, url::Endpoint};
use towpath_store::{
    Blame, Error, Fault, Result,
    sys::clock::{self, Instant},
};

use super::{
    payload::Payload,
    retry_state::Failure,
    target::{Target, is_loopback},
    tunnel,
};
use crate::{
    ClientOptions,
    dial::{self, ConnectionMonitor, Dialer},
    proxy::{Proxies, Proxy, ProxySettings},
};

/// Maximum idle time of a kept connection. Servers close theirs after 60 to 75 s.
const KEPT: Duration = Duration::from_secs(50);

/// Maximum idle time of a connection for a request that cannot be retried: the shortest idle timeout of servers in use
/// is 5 s (Apache).
const FRESH: Duration = Duration::from_secs(4);

/// Minimum idle time of a connection to XRootD after a request for a digest. XRootD before 6.0 (seen with 5.5.3; its
/// issue 2602) sends that response from another thread than that of the request. If the latter ends later, two threads
/// serve the connection: responses are sent twice, so that each further one belongs to the request before, or not at
/// all. Closing the connection at once is no remedy, as that has made the server accept no others.
const DIGEST_REST: Duration = Duration::from_secs(1);

/// Timeout for a kept connection to become ready: nearly no time, unless it is stuck.
const READY_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of idle connections kept to one server.
const MAX_IDLE: usize = 512;

/// Maximum number of servers with kept connections; beyond that, unused ones are dropped.
const MAX_SERVERS: usize = 256;

/// Size of a receive: large enough to make the cost of the system call small. Each connection has a buffer of this size,
/// also between requests.
const RECEIVED_BYTES: usize = 64 << 10;

/// Maximum number of header fields in a response.
const MAX_FIELDS: usize = 200;

/// The connections of one client.
pub(super) struct Pools {
    options: Arc<ClientOptions>,
    dialer: Arc<Dialer>,
    proxies: Proxies,
    pools: Mutex<HashMap<Endpoint, Arc<Pool>>>,
}

/// The pool of connections to one server.
pub(super) struct Pool {
    endpoint: Endpoint,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: Connection,
    since: Instant,
    /// Not used before.
    rests_until: Instant,
}

/// A connection. Dropping it closes it.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Payload>,
    /// The statistics of the connection.
    tap: Weak<ConnectionMonitor>,
    /// 1 while a response is incomplete, else 0.
    underway: Arc<AtomicUsize>,
    /// The proxy that the connection leads through.
    proxy: Option<Arc<Proxy>>,
    /// Minimum idle time before the next request.
    rest: Duration,
    _serving: AbortOnDropHandle<()>,
}

/// The time of a response. Recorded when it is dropped.
#[derive(Debug)]
pub(super) struct ResponseTime {
    tap: Weak<ConnectionMonitor>,
    /// Until the first data: a server may send the header before it reads the file.
    silence: Duration,
    total: Duration,
    has_data: bool,
}

impl ResponseTime {
    /// Adds the time of waiting for data, which `has_arrived` or not.
    pub(super) fn add(&mut self, time: Duration, has_arrived: bool) {
        self.total += time;
        if !self.has_data {
            self.silence += time;
        }
        self.has_data |= has_arrived;
    }
}

impl Drop for ResponseTime {
    fn drop(&mut self) {
        if let Some(tap) = self.tap.upgrade() {
            tap.record_response(self.total, self.silence);
        }
    }
}

impl Connection {
    /// Returns the proxy that forwards requests to `target`, rather than only their bytes.
    pub(super) fn forwarder(&self, target: &Target) -> Option<&Arc<Proxy>> {
        self.proxy.as_ref().filter(|_| !target.endpoint.tls)
    }

    /// Returns the name of `target` for messages about lost connections, with the proxy, if there is one.
    pub(super) fn name(&self, target: &Target) -> String {
        let root = target.root();
        self.proxy.as_ref().map_or_else(|| root.clone(), |proxy| format!("{root} through {proxy}"))
    }

    /// Adds to `message` what a proxy that forwards it needs: the whole URL (RFC 9112 §3.2.2), and its credentials.
    ///
    /// # Errors
    /// `InvalidArgument` if the target has invalid characters.
    pub(super) fn address(&self, message: &mut http::Request<Payload>, target: &Target) -> Result<()> {
        let Some(proxy) = self.forwarder(target) else { return Ok(()) };
        let url = format!("{}{}", target.root(), target.path_and_query);
        *message.uri_mut() =
            url.parse().map_err(|_| Error::new(Fault::InvalidArgument, "the URL has invalid characters"))?;
        if let Some(credentials) = &proxy.authorization {
            message.headers_mut().insert(header::PROXY_AUTHORIZATION, credentials.clone());
        }
        Ok(())
    }

    /// Records the server's statistics of its end of the connection, unless that is its connection to a proxy.
    pub(super) fn note_far_end(&self, headers: &HeaderMap) {
        if self.proxy.is_some() {
            return;
        }
        if let (Some(tap), Some(line)) = (self.tap.upgrade(), headers.get(TCP_INFO_FIELD)) {
            tap.record_peer_statistics(line.as_bytes());
        }
    }

    /// Records that XRootD was asked for a digest.
    pub(super) fn rest_after_digest(&mut self) {
        self.rest = DIGEST_REST;
    }

    /// Starts the time of a response whose header arrived after `silence`.
    pub(super) fn response_time(&self, silence: Duration) -> ResponseTime {
        ResponseTime { tap: self.tap(), silence, total: silence, has_data: false }
    }

    /// Returns its state; `None` if it has ended.
    pub(super) fn look(&self) -> Option<dial::Connection> {
        self.tap.upgrade()?.look()
    }

    /// Returns a handle for the statistics of the connection while it exists.
    pub(super) fn tap(&self) -> Weak<ConnectionMonitor> {
        Weak::clone(&self.tap)
    }
}

impl Pools {
    /// Creates the set without any connection.
    pub(super) fn new(options: Arc<ClientOptions>, dialer: Arc<Dialer>) -> Self {
        // The address of a server behind a proxy is not known here, so it could not be checked.
        let direct = ProxySettings::default();
        let proxies = Proxies::new(if options.destinations.is_everywhere() { &options.proxies } else { &direct });
        Self { options, dialer, proxies, pools: Mutex::default() }
    }

    /// Returns whether statistics of remote ends are requested.
    pub(super) fn asks_for_far_ends(&self) -> bool {
        self.dialer.asks_for_far_ends()
    }

    /// Returns the pool of connections to `endpoint`.
    pub(super) fn of(&self, endpoint: &Endpoint) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if pools.len() >= MAX_SERVERS && !pools.contains_key(endpoint) {
            pools.retain(|_, pool| Arc::strong_count(pool) > 1);
        }
        let new = || {
            // Invalid settings are the error of the first request.
            if let Ok(Some(proxy)) = self.proxies.of(endpoint) {
                tracing::info!("requests to {endpoint} go through {proxy}");
            }
            Arc::new(Pool { endpoint: endpoint.clone(), idle: Mutex::default() })
        };
        Arc::clone(pools.entry(endpoint.clone()).or_insert_with(new))
    }

    /// Returns a connection of `pool`, kept or new. A request that is not `repeatable` gets one that the server is
    /// unlikely to close at this moment.
    pub(super) async fn connection(&self, pool: &Pool, repeatable: bool) -> Result<Connection, Failure> {
        // tinyproxy (seen with 1.11.1) closes each connection after a response without announcing it.
        let is_reliable = pool.endpoint.tls || matches!(self.proxies.of(&pool.endpoint), Ok(None));
        while (repeatable || is_reliable)
            && let Some(mut kept) = pool.take(repeatable)
        {
            // The connection's task may not have processed the end of the last response yet. Or the server responded
            // before it had received the whole last request, and receives the rest slowly or never.
            if matches!(timeout(READY_WAIT, kept.sender.ready()).await, Ok(Ok(()))) {
                kept.underway.store(1, Relaxed);
                return Ok(kept);
            }
        }
        self.dial(&pool.endpoint).await
    }

    /// Returns whether data sent to `endpoint` cannot be read by others: they are encrypted for a verified server, or
    /// stay on this machine.
    pub(super) fn is_confidential(&self, endpoint: &Endpoint) -> bool {
        let is_local = |proxy: Option<Arc<Proxy>>| proxy.is_none_or(|proxy| is_loopback(&proxy.endpoint.host));
        (endpoint.tls && !self.options.insecure)
            || (is_loopback(&endpoint.host) && self.proxies.of(endpoint).is_ok_and(is_local))
    }

    /// Opens a connection to `endpoint`, through a proxy if the settings have one for it.
    pub(super) async fn dial(&self, endpoint: &Endpoint) -> Result<Connection, Failure> {
        if endpoint.tls {
            // Invalid settings are reported whether or not the server can be reached.
            self.dialer.tls().map_err(Failure::Fatal)?;
        }
        if let Some(proxy) = self.proxies.of(endpoint).map_err(Failure::Fatal)? {
            return self.dial_through(proxy, endpoint).await;
        }
        let (stream, link) = self.connect(endpoint).await?;
        if !endpoint.tls {
            return serve(endpoint, stream, link).await;
        }
        serve(endpoint, self.encrypt(endpoint, stream).await?, link).await
    }

    async fn dial_through(&self, proxy: Arc<Proxy>, endpoint: &Endpoint) -> Result<Connection, Failure> {
        let unreachable = |failure: Failure| failure.map(|error| proxy.unreachable(&error));
        let (stream, link) = self.connect(&proxy.endpoint).await.map_err(unreachable)?;
        let link = Link { proxy: Some(Arc::clone(&proxy)), ..link };
        if !proxy.endpoint.tls {
            return self.pass(&proxy, endpoint, stream, link).await;
        }
        let encrypted = self.encrypt(&proxy.endpoint, stream).await.map_err(unreachable)?;
        self.pass(&proxy, endpoint, encrypted, link).await
    }

    /// Makes a connection to `proxy` one to `endpoint`.
    async fn pass<S>(&self, proxy: &Proxy, endpoint: &Endpoint, stream: S, link: Link) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if !endpoint.tls {
            return serve(endpoint, stream, link).await;
        }
        // The proxy resolves the name and connects meanwhile, possibly to several addresses.
        let opened = timeout(self.options.stall, tunnel::open(proxy, endpoint, stream)).await;
        let tunnel = opened.map_err(|_| Failure::NotSent(proxy.lost(endpoint, "no response")))??;
        let encrypted = self.encrypt(endpoint, tunnel).await.map_err(|failure| {
            failure.map(|error| error.clone().with_message(format!("{} (through {proxy})", error.message())))
        })?;
        serve(endpoint, encrypted, link).await
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<(TcpStream, Link), Failure> {
        let underway = Arc::new(AtomicUsize::new(1));
        let connected = self.dialer.connect(&endpoint.host, endpoint.port, &underway).await;
        let (stream, tap) = connected.map_err(|error| match error.fault() {
            Fault::PermissionDenied => Failure::Fatal(error),
            _ => Failure::NotSent(error),
        })?;
        Ok((stream, Link { tap, underway, proxy: None }))
    }

    async fn encrypt<S>(&self, endpoint: &Endpoint, stream: S) -> Result<TlsStream<S>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let options = &self.options;
        let tls = self.dialer.tls().map_err(Failure::Fatal)?;
        let started = timeout(options.connect_timeout, tls.start(&endpoint.host, stream)).await;
        started.map_err(|_| Failure::NotSent(dial::timed_out(endpoint, "TLS")))?.map_err(|error| match error.fault() {
            Fault::Unavailable => Failure::NotSent(error),
            _ => Failure::Fatal(error),
        })
    }
}

impl Pool {
    /// Returns a connection to the pool after its response is complete.
    pub(super) fn keep(&self, mut connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let now = clock::now();
        let rests_until = now + std::mem::take(&mut connection.rest);
        connection.underway.store(0, Relaxed);
        let mut idle = self.idle();
        idle.retain(|kept| now - kept.since < KEPT && !kept.connection.sender.is_closed());
        if idle.len() < MAX_IDLE {
            idle.push(Idle { connection, since: now, rests_until });
        }
    }

    /// Takes the most recently used connection that need not rest, so that connections in excess become old.
    fn take(&self, repeatable: bool) -> Option<Connection> {
        let longest = if repeatable { KEPT } else { FRESH };
        let now = clock::now();
        let mut idle = self.idle();
        let index = idle.iter().rposition(|kept| kept.rests_until <= now)?;
        let kept = idle.remove(index);
        (now - kept.since < longest).then_some(kept.connection)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lower layers of a connection.
struct Link {
    tap: Arc<ConnectionMonitor>,
    underway: Arc<AtomicUsize>,
    proxy: Option<Arc<Proxy>>,
}

async fn serve<T>(endpoint: &Endpoint, stream: T, link: Link) -> Result<Connection, Failure>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaken = http1::Builder::new()
        .max_headers(MAX_FIELDS)
        // XRootD (seen with 5.5.3) does not recognize its header fields in lower case.
        .title_case_headers(true)
        .read_buf_exact_size(Some(RECEIVED_BYTES))
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = shaken.map_err(|error| {
        let message = format!("the connection to {endpoint} was lost: {error}");
        Failure::NotSent(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network))
    })?;
    let name = endpoint.to_string();
    let Link { tap, underway, proxy } = link;
    let watched = Arc::downgrade(&tap);
    let serving = tokio::spawn(async move {
        let _tap = tap;
        if let Err(error) = connection.await {
            tracing::debug!(server = name, %error, "connection ended");
        }
    });
    Ok(Connection {
        sender,
        tap: watched,
        underway,
        proxy,
        rest: Duration::ZERO,
        _serving: AbortOnDropHandle::new(serving),
    })
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.endpoint).finish()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
