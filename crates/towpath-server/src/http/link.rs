//! What the requests of one connection share.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd as _, RawFd},
    sync::Arc,
};

use super::{
    pulse::{Debt, Kept, Pulse},
    wire::Outbox,
};
use crate::{Buffers, Room, Service, Socket};

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
    /// Spans of files to be sent.
    pub(super) outbox: Arc<Outbox>,
    own: Buffers,
    advance_bytes: usize,
    all: Buffers,
}

/// Of a connection's memory, a part that is kept for an answer while nobody knows how long it gets.
#[derive(Debug)]
pub(super) struct Advance(Room);

/// Memory for a piece of an answer or of an upload, until dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    _own: Room,
    _all: Room,
    _kept: Option<Kept>,
}

impl Reserved {
    /// From now on it is the client who keeps this memory, by not taking what is in it: a piece of the answer that has that debt.
    pub(super) fn owed_to_client(self, debt: &Arc<Debt>) -> Self {
        Self { _kept: Some(debt.keep()), ..self }
    }
}

impl Link {
    /// The link of a new connection.
    pub(super) fn new(service: &Service, socket: &Socket, peer: SocketAddr) -> Self {
        let own_bytes = service.limits.memory_of_connection();
        Self {
            peer,
            socket: socket.as_raw_fd(),
            encrypted: socket.is_encrypted(),
            pulse: Arc::new(Pulse::new()),
            outbox: Arc::default(),
            own: Buffers::new(own_bytes),
            advance_bytes: usize::try_from(own_bytes / ADVANCES).unwrap_or(usize::MAX),
            all: service.buffers.clone(),
        }
    }

    /// Whether a piece of a file can go by `sendfile` in an answer of that HTTP version.
    pub(super) fn can_send_files(&self, version: http::Version) -> bool {
        !self.encrypted && version < http::Version::HTTP_2
    }

    /// Whether little is left of the memory that all connections share.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.all.is_short()
    }

    /// Memory for `bytes`, once this connection and all of them have room for it.
    pub(super) async fn reserve(&self, bytes: usize) -> Reserved {
        // First its own: a connection that has used up its share must not queue for everybody's.
        let own = self.own.room(bytes).await;
        Reserved { _own: own, _all: self.all.room(bytes).await, _kept: None }
    }

    /// An advance on an answer, once this connection has so much room.
    pub(super) async fn advance(&self) -> Advance {
        Advance(self.own.room(self.advance_bytes).await)
    }

    /// Memory for an answer of `bytes` that was made on an advance, once all connections have room for it. It does not wait for this one: if too little is free for a
    /// longer answer than the advance, the connection goes beyond its share by it.
    pub(super) async fn reserve_advanced(&self, advance: Advance, bytes: usize) -> Reserved {
        let own = self.own.fit(advance.0, bytes);
        Reserved { _own: own, _all: self.all.room(bytes).await, _kept: None }
    }
}
