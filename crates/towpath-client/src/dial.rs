//! Resolves a host name and connects to a permitted address.

use std::{
    fmt,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::{
    Blame, Error, Fault, RequestTime, RequestTimes, Result, os_message,
    sys::net::{self, TcpInfo},
};

use crate::{ClientOptions, tls::Tls};

/// Maximum number of connections for bulk data to one site.
pub const MAX_CONNECTIONS: usize = 64;

/// Number of consecutive retransmissions without acknowledgement before a connection is compared with a new one. It is
/// reached after 1.5 s, on long paths after seven round trips. So many losses by chance are practically impossible.
const DOUBTED_RESENDS: u8 = 3;

/// Number of further retransmissions, after a new connection succeeded, until a connection counts as cut off: the path
/// may have recovered only a moment ago.
const CUT_RESENDS: u8 = 2;

/// Silence of a server that counts as time of the network without a look at the round trip.
const SHORT_SILENCE: Duration = Duration::from_millis(1);

/// Establishes and monitors the connections of one client.
#[derive(Debug)]
pub(crate) struct Dialer {
    options: Arc<ClientOptions>,
    connections: AtomicUsize,
    asks_for_far_ends: AtomicBool,
    connected: AtomicU64,
    taps: Mutex<Vec<Weak<ConnectionMonitor>>>,
    tls: OnceLock<Result<Tls>>,
    times: Arc<RequestTimes>,
}

/// Gives the dialer access to a connection while the connection's owner keeps it.
#[derive(Debug)]
pub(crate) struct ConnectionMonitor {
    number: u64,
    host: Arc<str>,
    port: u16,
    /// A second descriptor of the socket.
    socket: OwnedFd,
    options: Arc<ClientOptions>,
    /// Number of unacknowledged retransmissions when a new connection succeeded; 0 if none has been tried.
    compared: AtomicU8,
    /// Bytes of file data requested or offered, and not yet transferred.
    underway: Arc<AtomicUsize>,
    /// The server's latest statistics of its end.
    far: Mutex<Option<TcpInfo>>,
    times: Arc<RequestTimes>,
    /// Task that adapts the congestion control to the path.
    _suiting: AbortOnDropHandle<()>,
}

/// The state of the path of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathState {
    /// No problem is known.
    Good,
    /// Sent data are not acknowledged.
    Doubtful,
    /// Sent data are not acknowledged although the server is reachable.
    Cut,
}

/// The state of a live connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Number of the connection, unique within the client.
    pub number: u64,
    /// Name or address of the server, as requested.
    pub host: Arc<str>,
    /// The server's port.
    pub port: u16,
    /// Whether file data are requested or offered and not yet transferred.
    pub has_work: bool,
    /// Kernel statistics of the connection.
    pub info: TcpInfo,
    /// The latest kernel statistics of the server ([`crate::Client::ask_far_ends`]); `None` if the server did not send
    /// them.
    pub far: Option<TcpInfo>,
}

impl Dialer {
    /// Creates a dialer without connections.
    pub(crate) fn new(options: Arc<ClientOptions>) -> Self {
        let connections = AtomicUsize::new(options.connections.clamp(1, MAX_CONNECTIONS));
        Self {
            options,
            connections,
            asks_for_far_ends: AtomicBool::new(false),
            connected: AtomicU64::new(0),
            taps: Mutex::default(),
            tls: OnceLock::new(),
            times: Arc::default(),
        }
    }

    /// Returns the TLS configuration of the client, which is created on first use.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub(crate) fn tls(&self) -> Result<Tls> {
        self.tls.get_or_init(|| Tls::new(&self.options)).clone()
    }

    /// Returns the maximum number of concurrent connections for bulk data to one site.
    pub(crate) fn connection_limit(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sets the connection limit, at most [`MAX_CONNECTIONS`]. Surplus connections end after their requests in flight.
    pub(crate) fn set_connection_limit(&self, connections: usize) {
        self.connections.store(connections.clamp(1, MAX_CONNECTIONS), Ordering::Relaxed);
    }

    /// Returns whether statistics of remote ends are requested.
    pub(crate) fn asks_for_far_ends(&self) -> bool {
        self.asks_for_far_ends.load(Ordering::Relaxed)
    }

    /// Requests statistics of remote ends from now on.
    pub(crate) fn ask_for_far_ends(&self) {
        self.asks_for_far_ends.store(true, Ordering::Relaxed);
    }

    /// Connects to the first address of `host` that responds. [`ClientOptions::destinations`] checks each address, so
    /// that a name whose address has changed cannot lead to a forbidden one. The tap must be dropped when the
    /// connection ends; its owner counts in `underway` the bytes of file data assigned to the connection.
    ///
    /// # Errors
    /// `PermissionDenied` if the host has addresses but none is permitted; a retry is useless. The addresses are only
    /// logged: a client that chose the host must not learn the result of a lookup that only this machine can make.
    /// Otherwise `Unavailable` and `TimedOut`.
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        underway: &Arc<AtomicUsize>,
    ) -> Result<(TcpStream, Arc<ConnectionMonitor>)> {
        let stream = connect(host, port, &self.options).await?;
        let duplicate = stream.as_fd().try_clone_to_owned();
        let socket =
            duplicate.map_err(|error| Error::from_errno(error.raw_os_error().unwrap_or(0), "watching a connection"))?;
        let number = self.connected.fetch_add(1, Ordering::Relaxed);
        let suiting = AbortOnDropHandle::new(tokio::spawn(net::suit_to_path(socket.as_raw_fd())));
        let tap = Arc::new(ConnectionMonitor {
            number,
            host: host.into(),
            port,
            socket,
            options: Arc::clone(&self.options),
            compared: AtomicU8::new(0),
            underway: Arc::clone(underway),
            far: Mutex::default(),
            times: Arc::clone(&self.times),
            _suiting: suiting,
        });
        let mut taps = self.taps();
        taps.retain(|tap| tap.strong_count() > 0);
        taps.push(Arc::downgrade(&tap));
        Ok((stream, tap))
    }

    /// Returns the times of all responses.
    pub(crate) fn request_times(&self) -> Arc<RequestTimes> {
        Arc::clone(&self.times)
    }

    /// Returns the live connections.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let taps: Vec<_> = self.taps().iter().filter_map(Weak::upgrade).collect();
        taps.iter().filter_map(|tap| tap.look()).collect()
    }

    fn taps(&self) -> MutexGuard<'_, Vec<Weak<ConnectionMonitor>>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionMonitor {
    /// Returns the state of the connection; `None` if the kernel does not report it.
    pub(crate) fn look(&self) -> Option<Connection> {
        Some(Connection {
            number: self.number,
            host: Arc::clone(&self.host),
            port: self.port,
            has_work: self.underway.load(Ordering::Relaxed) > 0,
            info: net::tcp_info(&self.socket).ok()?,
            far: *self.far(),
        })
    }

    /// Records a response after which the connection has spent `total` more on requests, with a `silence` before the
    /// first byte of the response.
    pub(crate) fn record_response(&self, total: Duration, silence: Duration) {
        let server = match silence < SHORT_SILENCE {
            true => Duration::ZERO,
            false => silence.saturating_sub(net::tcp_info(&self.socket).map(|info| info.rtt).unwrap_or_default()),
        };
        self.times.record(RequestTime { total, server });
    }

    /// Determines whether sent data no longer arrive although a new connection works. If new connections fail too, the
    /// network is down and this connection may recover with it: it is given up only after two more retransmissions.
    pub(crate) async fn path_state(&self) -> PathState {
        let resends = net::vain_resends(&self.socket).unwrap_or(0);
        let compared = self.compared.load(Ordering::Relaxed);
        match resends {
            ..DOUBTED_RESENDS => {
                self.compared.store(0, Ordering::Relaxed);
                PathState::Good
            }
            _ if compared > 0 && resends >= compared.saturating_add(CUT_RESENDS) => PathState::Cut,
            _ => {
                if compared == 0 && connect(&self.host, self.port, &self.options).await.is_ok() {
                    let resends = net::vain_resends(&self.socket).unwrap_or(0);
                    self.compared.store(resends, Ordering::Relaxed);
                }
                PathState::Doubtful
            }
        }
    }

    /// Records the server's statistics of its end. Returns whether `line` has any.
    pub(crate) fn record_peer_statistics(&self, line: &[u8]) -> bool {
        let Some(info) = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok()) else { return false };
        *self.far() = Some(info);
        true
    }

    fn far(&self) -> MutexGuard<'_, Option<TcpInfo>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(host: &str, port: u16, options: &ClientOptions) -> Result<TcpStream> {
    let (limit, destinations) = (options.connect_timeout, &options.destinations);
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let unreachable = |why: String| {
        Error::new(Fault::Unavailable, format!("cannot connect to {name}: {why}")).blamed_on(Blame::Network)
    };
    let resolved = timeout(limit, net::resolve(host, port)).await;
    let addresses =
        resolved.map_err(|_| timed_out(&name, "DNS lookup"))?.map_err(|error| unreachable(error.to_string()))?;
    let mut last = unreachable("no address found".into());
    let mut forbidden = false;
    let mut tried = false;
    for address in addresses {
        if !destinations.permits(host, address.ip()) {
            tracing::info!(host, %address, "skipping an address that is neither public nor allowed");
            forbidden = true;
            continue;
        }
        tried = true;
        match timeout(limit, net::connect_to_receive(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if address.to_string() == name => last = unreachable(os_message(&error)),
            Ok(Err(error)) => last = unreachable(format!("{address}: {}", os_message(&error))),
            Err(_) => last = timed_out(&name, "connecting"),
        }
    }
    if forbidden && !tried {
        let message = format!("{host} has no public or allowed address");
        return Err(Error::new(Fault::PermissionDenied, message));
    }
    Err(last)
}

/// Returns the error for a timeout of a connection to `server`.
pub(crate) fn timed_out(server: impl fmt::Display, what: &str) -> Error {
    Error::new(Fault::TimedOut, format!("{server}: {what} timed out")).blamed_on(Blame::Network)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{io::AsyncWriteExt as _, net::TcpListener};
    use towpath_proto::destination_policy::DestinationPolicy;
    use towpath_testkit::socket::deafen;

    use super::*;

    fn within(destinations: DestinationPolicy) -> ClientOptions {
        ClientOptions { destinations: Arc::new(destinations), ..ClientOptions::default() }
    }

    #[tokio::test]
    async fn connections_are_seen_as_long_as_they_live() {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = Dialer::new(Arc::new(ClientOptions::default()));
        let (_stream, tap) = dialer.connect("127.0.0.1", port, &Arc::default()).await.unwrap();
        let seen = dialer.connections();
        assert!(matches!(seen.as_slice(), [one] if &*one.host == "127.0.0.1" && one.port == port), "{seen:?}");
        drop(tap);
        assert!(dialer.connections().is_empty());
    }

    /// Returns the listener, both ends of a connection, and its tap; the listener would accept further connections.
    async fn connected() -> (TcpListener, TcpStream, Arc<ConnectionMonitor>, TcpStream) {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = Dialer::new(Arc::new(ClientOptions::default()));
        let (stream, tap) = dialer.connect("127.0.0.1", port, &Arc::default()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (listener, stream, tap, far)
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_off_is_noticed() {
        let (_listener, mut stream, tap, far) = connected().await;
        stream.write_all(b"it arrives").await.unwrap();
        far.readable().await.unwrap();
        assert_eq!(tap.path_state().await, PathState::Good);
        deafen(&far);
        stream.write_all(b"it does not").await.unwrap();
        let becomes = async |state| {
            while tap.path_state().await != state {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(60), becomes(PathState::Doubtful)).await.expect("it is noticed");
        timeout(Duration::from_secs(60), becomes(PathState::Cut)).await.expect("it is told from a slow one");
    }

    #[tokio::test]
    async fn a_network_that_is_out_cuts_nothing() {
        let (listener, mut stream, tap, far) = connected().await;
        drop(listener);
        deafen(&far);
        stream.write_all(b"it does not arrive").await.unwrap();
        let unheard = async || {
            while net::vain_resends(&stream).unwrap() < DOUBTED_RESENDS + CUT_RESENDS {
                assert_ne!(tap.path_state().await, PathState::Cut);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(60), unheard()).await.expect("it is sent again");
        assert_eq!(tap.path_state().await, PathState::Doubtful, "a new one would not arrive either");
    }

    #[tokio::test]
    async fn the_address_that_is_connected_to_is_the_one_that_was_checked() {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "0"] {
            let refused = connect(host, port, &within(DestinationPolicy::public())).await.unwrap_err();
            assert_eq!(refused.fault(), Fault::PermissionDenied, "{host}");
            let told = refused.to_string().replace(host, "");
            assert!(!told.contains("127.0.0.1") && !told.contains("::"), "{host}: {refused}");
        }
        let destinations = DestinationPolicy::beyond_public(&["127.0.0.1"]).unwrap();
        let stream = connect("localhost", port, &within(destinations)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}
