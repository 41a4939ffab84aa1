//! State shared by the requests of one connection.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd as _, RawFd},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{connection_io::SpanQueue, http10::StatusLine, watchdog::ConnectionWatchdog};
use crate::{
    Buffers, MemoryPool, Port, Service, Socket,
    buffers::MemoryPermit,
    fair_pool::{Lease, LeaseHolder, PeerProgress, PeerWaitGuard},
};

/// Number of concurrent responses of an application on one connection, each with an equal part of the connection's
/// memory.
const MAX_ADVANCES: u64 = 4;

/// The state of one connection, with its memory limit in addition to the one for all connections.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// The content of the port.
    pub(super) port: Port,
    /// Address of the client.
    pub(super) peer: SocketAddr,
    /// File descriptor of the socket, which stays open while requests are processed.
    pub(super) socket: RawFd,
    /// Whether the connection is encrypted.
    pub(super) encrypted: bool,
    /// Detects a stalled client.
    pub(super) watchdog: Arc<ConnectionWatchdog>,
    /// Sets the version in the next status line.
    pub(super) status_line: Arc<StatusLine>,
    /// File spans to be sent.
    pub(super) span_queue: Arc<SpanQueue>,
    /// Tracks the client's progress in sending and receiving.
    pub(super) activity: Arc<PeerProgress>,
    /// Cancelled when other clients need memory that this one does not release; the connection then ends.
    pub(super) revoked: CancellationToken,
    own: Buffers,
    advance_bytes: usize,
    all: MemoryPool,
}

/// A part of a connection's memory reserved for a response of unknown length.
#[derive(Debug)]
pub(super) struct ResponseMemoryPermit(MemoryPermit);

/// The memory of one request, for its body and its response, with the progress of its client.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    connection: Arc<ConnectionState>,
    holder: Arc<LeaseHolder>,
    progress: Arc<PeerProgress>,
}

/// Memory for a piece of a response or of a body, released on drop.
#[derive(Debug)]
pub(super) struct ChunkMemoryPermit {
    _own: MemoryPermit,
    _all: Lease,
    awaits: Option<PeerWaitGuard>,
}

impl ChunkMemoryPermit {
    /// Records that the client has received or sent `bytes` of it.
    pub(super) fn record_progress(&self, bytes: usize) {
        if let Some(awaits) = &self.awaits {
            awaits.record_progress(bytes);
        }
    }
}

impl Claim {
    /// Creates the claim of a request on `connection` that is counted for `holder`.
    pub(super) fn new(connection: &Arc<ConnectionState>, holder: &Arc<LeaseHolder>) -> Self {
        Self {
            connection: Arc::clone(connection),
            holder: Arc::clone(holder),
            progress: PeerProgress::new(connection.revoked.clone()),
        }
    }

    /// Returns the connection.
    pub(super) fn connection(&self) -> &Arc<ConnectionState> {
        &self.connection
    }

    /// Reserves `bytes` once this connection and the share of its holder have room.
    pub(super) async fn reserve(&self, bytes: usize) -> ChunkMemoryPermit {
        // Connection memory first: a connection over its limit must not queue for the shared memory.
        let own = self.connection.own.acquire(bytes).await;
        ChunkMemoryPermit {
            _own: own,
            _all: self.connection.all.take(&self.holder, bytes, &self.progress).await,
            awaits: None,
        }
    }

    /// Like [`Self::reserve`], but returns `None` if the client must first read other responses on this connection.
    pub(super) async fn try_reserve(&self, bytes: usize) -> Option<ChunkMemoryPermit> {
        let own = self.connection.own.try_acquire(bytes)?;
        Some(ChunkMemoryPermit {
            _own: own,
            _all: self.connection.all.take(&self.holder, bytes, &self.progress).await,
            awaits: None,
        })
    }

    /// Takes `bytes` that a response holds beside its pieces, once the share of its holder has room. They do not count
    /// for the connection, whose memory the pieces wait for.
    pub(super) async fn lease(&self, bytes: usize) -> Lease {
        self.connection.all.take(&self.holder, bytes, &self.progress).await
    }

    /// Converts an advance into memory for a response of `bytes`, once the holder's share permits it. Does not wait
    /// for the connection's own memory: if the response is longer than the advance and too little is free, the
    /// connection exceeds its limit by the difference.
    pub(super) async fn reserve_advanced(&self, advance: ResponseMemoryPermit, bytes: usize) -> ChunkMemoryPermit {
        let own = self.connection.own.resize(advance.0, bytes);
        ChunkMemoryPermit {
            _own: own,
            _all: self.connection.all.take(&self.holder, bytes, &self.progress).await,
            awaits: None,
        }
    }

    /// Converts a lease into memory for a response of `bytes`, once this connection has room.
    pub(super) async fn reserve_leased(&self, mut lease: Lease, bytes: usize) -> ChunkMemoryPermit {
        lease.shrink_to(bytes as u64);
        ChunkMemoryPermit { _own: self.connection.own.acquire(bytes).await, _all: lease, awaits: None }
    }

    /// Marks the claim as waiting for the client, which must send data.
    pub(super) fn await_sender(&self) -> PeerWaitGuard {
        self.progress.await_peer()
    }

    /// Marks memory as waiting for the client, which must receive its content or send the data for it.
    pub(super) fn await_client(&self, reserved: ChunkMemoryPermit) -> ChunkMemoryPermit {
        ChunkMemoryPermit { awaits: Some(self.progress.await_peer()), ..reserved }
    }
}

impl ConnectionState {
    /// Creates the state of a new connection.
    pub(super) fn new(
        service: &Service,
        port: Port,
        socket: &Socket,
        peer: SocketAddr,
        activity: &Arc<PeerProgress>,
    ) -> Self {
        let own_bytes = service.limits.memory_of_connection();
        // A response of an application is computed before its length is known, so its advance is a part of the
        // connection's limit.
        let is_hosted = service.application.is_some();
        Self {
            port,
            peer,
            socket: socket.as_raw_fd(),
            encrypted: socket.is_encrypted(),
            watchdog: Arc::new(ConnectionWatchdog::new()),
            status_line: Arc::default(),
            span_queue: Arc::default(),
            activity: Arc::clone(activity),
            revoked: CancellationToken::new(),
            own: if is_hosted { Buffers::new(own_bytes) } else { Buffers::growing_to(own_bytes) },
            advance_bytes: usize::try_from(own_bytes / MAX_ADVANCES).unwrap_or(usize::MAX),
            all: service.memory.clone(),
        }
    }

    /// Whether a response of that HTTP version can use `sendfile`.
    pub(super) fn can_send_files(&self, version: http::Version) -> bool {
        !self.encrypted && version < http::Version::HTTP_2
    }

    /// Waits for an advance for a response.
    pub(super) async fn advance(&self) -> ResponseMemoryPermit {
        ResponseMemoryPermit(self.own.acquire(self.advance_bytes).await)
    }
}
