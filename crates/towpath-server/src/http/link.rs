//! What the requests of one connection share.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd as _, RawFd},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{http10::StatusLine, pulse::Pulse, wire::Outbox};
use crate::{
    Buffers, Memory, Service, Socket,
    buffers::Room,
    shares::{AwaitsPeer, Holder, Lease, Standing},
};

/// Answers of an application that may be in the making on one connection, each with an equal part of the connection's memory.
const ADVANCES: u64 = 4;

/// The memory that one connection may take, beside all connections' bound.
#[derive(Debug)]
pub(super) struct Link {
    /// The other end.
    pub(super) peer: SocketAddr,
    /// The number of the socket, which is open as long as requests are answered.
    pub(super) socket: RawFd,
    /// Whether what is sent is encrypted.
    pub(super) encrypted: bool,
    /// Whether the client keeps up.
    pub(super) pulse: Arc<Pulse>,
    /// The version that the next response says.
    pub(super) status_line: Arc<StatusLine>,
    /// Spans of files to be sent.
    pub(super) outbox: Arc<Outbox>,
    /// What the client sends and takes, whatever it is.
    pub(super) activity: Arc<Standing>,
    /// Cancelled when others need memory that the client does not move: then the connection ends.
    pub(super) revoked: CancellationToken,
    own: Buffers,
    advance_bytes: usize,
    all: Memory,
}

/// Of a connection's memory, a part that is kept for an answer while nobody knows how long it gets.
#[derive(Debug)]
pub(super) struct Advance(Room);

/// What one request takes of the memory, for its body and for its answer, and whether its client moves that.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    link: Arc<Link>,
    holder: Arc<Holder>,
    standing: Arc<Standing>,
}

/// Memory for a piece of an answer or of a body, until dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    _own: Room,
    _all: Lease,
    awaits: Option<AwaitsPeer>,
}

impl Reserved {
    /// Records that the client has taken, or sent, `bytes` of it.
    pub(super) fn moved(&self, bytes: usize) {
        if let Some(awaits) = &self.awaits {
            awaits.moved(bytes);
        }
    }
}

impl Claim {
    /// Returns the claim of a request on `link` that counts for `holder`.
    pub(super) fn new(link: &Arc<Link>, holder: &Arc<Holder>) -> Self {
        Self { link: Arc::clone(link), holder: Arc::clone(holder), standing: Standing::new(link.revoked.clone()) }
    }

    /// Returns the connection.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Takes memory for `bytes`, once this connection and the share of its holder have room for it.
    pub(super) async fn reserve(&self, bytes: usize) -> Reserved {
        // First its own: a connection that has used up its share must not queue for everybody's.
        let own = self.link.own.room(bytes).await;
        Reserved { _own: own, _all: self.link.all.take(&self.holder, bytes, &self.standing).await, awaits: None }
    }

    /// As [`Self::reserve`]; none if the client has to take other answers on this connection first.
    pub(super) async fn reserve_if_room(&self, bytes: usize) -> Option<Reserved> {
        let own = self.link.own.room_now(bytes)?;
        Some(Reserved { _own: own, _all: self.link.all.take(&self.holder, bytes, &self.standing).await, awaits: None })
    }

    /// Takes memory for an answer of `bytes` that was made on an advance, once the holder's share has room for it. It does not wait for the connection's own: if too little is
    /// free for a longer answer than the advance, the connection goes beyond its bound by it.
    pub(super) async fn reserve_advanced(&self, advance: Advance, bytes: usize) -> Reserved {
        let own = self.link.own.fit(advance.0, bytes);
        Reserved { _own: own, _all: self.link.all.take(&self.holder, bytes, &self.standing).await, awaits: None }
    }

    /// Marks memory as kept by the client from now on, which does not take what is in it or does not send what it is for.
    pub(super) fn await_client(&self, reserved: Reserved) -> Reserved {
        Reserved { awaits: Some(self.standing.await_peer()), ..reserved }
    }
}

impl Link {
    /// The link of a new connection.
    pub(super) fn new(service: &Service, socket: &Socket, peer: SocketAddr, activity: &Arc<Standing>) -> Self {
        let own_bytes = service.limits.memory_of_connection();
        // An application's answer is made before its length is known, on an advance of all that the connection may take.
        let is_hosted = service.application.is_some();
        Self {
            peer,
            socket: socket.as_raw_fd(),
            encrypted: socket.is_encrypted(),
            pulse: Arc::new(Pulse::new()),
            status_line: Arc::default(),
            outbox: Arc::default(),
            activity: Arc::clone(activity),
            revoked: CancellationToken::new(),
            own: if is_hosted { Buffers::new(own_bytes) } else { Buffers::growing_to(own_bytes) },
            advance_bytes: usize::try_from(own_bytes / ADVANCES).unwrap_or(usize::MAX),
            all: service.memory.clone(),
        }
    }

    /// Whether a piece of a file can go by `sendfile` in an answer of that HTTP version.
    pub(super) fn can_send_files(&self, version: http::Version) -> bool {
        !self.encrypted && version < http::Version::HTTP_2
    }

    /// An advance on an answer, once this connection has so much room.
    pub(super) async fn advance(&self) -> Advance {
        Advance(self.own.room(self.advance_bytes).await)
    }
}
