//! Sessions: state that outlives one request and is shared by the connections of one client.
//!
//! A session begins with `login` and ends with the connection that logged in, or by `endsess` from a later one. Its
//! id is a secret: a client that knows it and has the same address can `bind` further connections to it, which then
//! carry the data of reads and writes.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_proto::xrootd::{ErrorCode, PathId, SessionId, StreamId};
use towpath_store::{Fault, Secret, StorePath, sys::random};

use super::{
    active_request::{ErrorResponse, Outcome, ServeResult},
    bound::BoundPath,
    files::{Files, Slot},
    request_queue::RequestQueue,
};
use crate::{
    Buffers, Service,
    access::{Access, Channel, Identity, Person},
    access_log::Record,
    buffers::MemoryPermit,
    fair_pool::{Class, FILE_LEASE_TIMEOUT, Lease, LeaseHolder, PeerProgress},
    metrics::{Face, Issuer},
    reload::Reloadable,
};

/// Maximum number of bound connections of a session, as reported by `query config bind_max`.
pub(super) const BIND_MAX: usize = 15;

/// Memory for pending attributes, in bytes; counted in units of 4 KiB, enough for 512 small ones. It is separate from
/// the memory for all responses, because the client decides how long it is held.
const ATTRIBUTES_BYTES: u64 = 2 << 20;

/// Minimum memory reserved before data are received, in bytes: some pages with their checksums.
const MIN_RECEIVE_BYTES: usize = 16 << 10;

/// Number of open files of a session that may come from the reserve, so that a client can open some even if others at
/// its address have exhausted their share.
const MAX_RESERVE_FILES: usize = 4;

/// The sessions of a server.
#[derive(Debug, Default)]
pub struct Sessions {
    by_id: Mutex<HashMap<SessionId, Arc<Session>>>,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) service: Arc<Service>,
    pub(super) id: SessionId,
    pub(super) peer: SocketAddr,
    /// The server's address on this connection.
    pub(super) local: SocketAddr,
    identity: Reloadable<SessionIdentity>,
    /// The client's login name: `user.pid`.
    pub(super) login: String,
    /// Whether the client supports responses announced by `waitresp`.
    pub(super) asynresp: bool,
    /// Whether it uses TLS.
    pub(super) encrypted: bool,
    /// The queue of requests that use names.
    pub(super) names: RequestQueue,
    pub(super) files: Files,
    /// Permits for requests in flight.
    pub(super) request_permits: Arc<Semaphore>,
    /// Cancelled when the session ends or the server stops.
    pub(super) ended: CancellationToken,
    /// The holder whose shares of memory and files it uses.
    pub(super) holder: Arc<LeaseHolder>,
    /// Tracks the client's progress in receiving responses and in sending data.
    pub(super) sending: Arc<PeerProgress>,
    pub(super) receiving: Arc<PeerProgress>,
    /// Cancelled when other clients need memory that this one does not release; the session then ends.
    pub(super) revoked: CancellationToken,
    /// Memory for attributes of uploads that are not closed.
    pub(super) attributes: Buffers,
    answers: Buffers,
    uploads: Buffers,
    paths: Mutex<[Option<BoundPath>; BIND_MAX]>,
    checksums: Mutex<HashMap<StreamId, (StorePath, CancellationToken)>>,
}

/// The identity of a session's client.
#[derive(Debug)]
struct SessionIdentity {
    identity: Arc<Identity>,
    /// The access policy that it was derived from.
    access: Arc<Access>,
    /// The token of the login.
    token: Option<Secret>,
}

/// The properties of a new session, from its login.
#[derive(Debug)]
pub(super) struct SessionParameters {
    pub(super) id: SessionId,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) identity: Identity,
    pub(super) login: String,
    pub(super) asynresp: bool,
    pub(super) encrypted: bool,
}

/// A permit for memory, within the limits of the connection and of the server.
#[derive(Debug)]
pub(super) struct RequestMemoryPermit {
    _own: Option<MemoryPermit>,
    _all: Lease,
}

impl Session {
    /// Starts a session.
    pub(super) fn begin(service: &Arc<Service>, parameters: SessionParameters) -> Arc<Self> {
        let limits = &service.limits;
        let share = limits.memory_of_connection();
        let revoked = CancellationToken::new();
        let session = Arc::new(Self {
            service: Arc::clone(service),
            id: parameters.id,
            peer: parameters.peer,
            local: parameters.local,
            holder: LeaseHolder::of(&parameters.identity.caller),
            sending: PeerProgress::new(revoked.clone()),
            receiving: PeerProgress::new(revoked.clone()),
            revoked,
            identity: Reloadable::new(SessionIdentity {
                token: parameters.identity.caller.token.clone(),
                identity: Arc::new(parameters.identity),
                access: service.access(),
            }),
            login: parameters.login,
            asynresp: parameters.asynresp,
            encrypted: parameters.encrypted,
            names: RequestQueue::default(),
            files: Files::new(limits.files_per_connection),
            request_permits: Arc::new(Semaphore::new(limits.requests_per_connection.max(1))),
            ended: service.stopping.child_token(),
            attributes: Buffers::new(ATTRIBUTES_BYTES),
            answers: Buffers::growing_to(share),
            uploads: Buffers::growing_to(share),
            paths: Mutex::default(),
            checksums: Mutex::default(),
        });
        let mut sessions = service.sessions.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.id, Arc::clone(&session));
        session
    }

    /// Generates an unguessable id.
    pub(super) fn new_id() -> SessionId {
        SessionId(random::bytes())
    }

    /// Ends the session: closes its connections and drops its uploads.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.files.clear();
        let mut sessions = self.service.sessions.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.remove(&self.id);
    }

    /// Reserves memory for a response.
    pub(super) async fn memory_to_answer(&self, bytes: usize) -> RequestMemoryPermit {
        let own = self.answers.acquire(bytes).await;
        RequestMemoryPermit {
            _own: Some(own),
            _all: self.service.memory.take(&self.holder, bytes, &self.sending).await,
        }
    }

    /// Reserves memory for received data. Its limit is separate from that for responses, so that a client that sends
    /// before it reads makes progress.
    pub(super) async fn memory_to_receive(&self, bytes: usize) -> RequestMemoryPermit {
        let own = self.uploads.acquire(bytes).await;
        RequestMemoryPermit {
            _own: Some(own),
            _all: self.service.memory.take(&self.holder, bytes, &self.receiving).await,
        }
    }

    /// Reserves memory for a part of an argument. Limited by the client's share only: earlier parts are held until
    /// all have arrived, and must not block later ones.
    pub(super) async fn memory_for_argument(&self, bytes: usize) -> RequestMemoryPermit {
        RequestMemoryPermit { _own: None, _all: self.service.memory.take(&self.holder, bytes, &self.receiving).await }
    }

    /// Returns how much data to reserve memory for and receive at once; it grows with the data that the client has
    /// sent.
    pub(super) fn receive_bytes(&self) -> usize {
        (self.uploads.bound_bytes() / 4).max(MIN_RECEIVE_BYTES)
    }

    /// Records that the client has sent `bytes` of data.
    pub(super) fn received(&self, bytes: usize) {
        self.uploads.record_progress(bytes);
    }

    /// Takes a lease for a file, or a directory to list, from the client's share.
    ///
    /// # Errors
    /// `Overloaded` if the share does not permit one more.
    pub(super) async fn lease_file(&self, class: Class, progress: &Arc<PeerProgress>) -> Result<Lease, ErrorResponse> {
        let lease = self.service.files.take_soon(&self.holder, class, progress, FILE_LEASE_TIMEOUT).await;
        let message = "your share of open files is exhausted: close some, or try again later";
        lease.ok_or_else(|| ErrorResponse::new(Fault::Overloaded, message))
    }

    /// Assigns a handle for a file to open.
    ///
    /// # Errors
    /// `Overloaded` if the session's limit or the client's share of open files is exhausted.
    pub(super) async fn reserve_slot(&self) -> Result<Arc<Slot>, ErrorResponse> {
        let class = if self.files.has_fewer_than(MAX_RESERVE_FILES) { Class::Small } else { Class::Large };
        let progress = PeerProgress::watching(self.revoked.clone());
        self.files.reserve(self.lease_file(class, &progress).await?, progress)
    }

    /// Binds a further connection.
    ///
    /// # Errors
    /// `Overloaded` if there are already [`BIND_MAX`].
    pub(super) fn bind(&self, bound: BoundPath) -> Result<PathId, ErrorResponse> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let free = paths.iter_mut().enumerate().find(|(_, path)| path.is_none());
        let Some((index, path)) = free else {
            return Err(ErrorResponse::with_code(
                ErrorCode::Overloaded,
                "the session has reached its limit of connections",
            ));
        };
        *path = Some(bound);
        Ok(PathId(u8::try_from(index + 1).unwrap_or(u8::MAX)))
    }

    /// Removes a bound connection.
    pub(super) fn unbind(&self, id: PathId) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = paths.get_mut(usize::from(id.0).wrapping_sub(1)) {
            *path = None;
        }
    }

    /// Returns the bound connection `id`, or `None` for the connection that logged in.
    ///
    /// # Errors
    /// `ArgInvalid` if no connection with that id is bound.
    pub(super) fn path(&self, id: PathId) -> Result<Option<BoundPath>, ErrorResponse> {
        if id == PathId::MAIN {
            return Ok(None);
        }
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let path = paths.get(usize::from(id.0).wrapping_sub(1)).and_then(Option::clone);
        path.map(Some)
            .ok_or_else(|| ErrorResponse::with_code(ErrorCode::ArgInvalid, "no connection with this path id is bound"))
    }

    /// Returns the identity of the client under the current access policy.
    pub(super) async fn identity(&self) -> Arc<Identity> {
        let (current, access) = (self.identity.get(), self.service.access());
        if Arc::ptr_eq(&current.access, &access) {
            return Arc::clone(&current.identity);
        }
        let token = current.token.clone();
        let mut identity = access.identify(token.as_ref(), &self.channel()).await;
        if token.is_none() {
            identity.refused.clone_from(&current.identity.refused);
        }
        // Keys that are unavailable now may be available at the next request.
        let is_final = identity.refused.as_ref().is_none_or(|error| error.fault() != Fault::Unavailable);
        let identity = Arc::new(identity);
        if is_final {
            self.identity.replace(SessionIdentity { identity: Arc::clone(&identity), access, token });
        }
        identity
    }

    /// Returns the identity at the last call of [`Self::identity`].
    pub(super) fn known_identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity.get().identity)
    }

    /// Returns how the session's requests arrive.
    pub(super) fn channel(&self) -> Channel {
        Channel { face: Face::Xrootd, address: self.peer.ip(), is_encrypted: self.encrypted }
    }

    /// Counts bytes sent of a file that `identity` has opened.
    pub(super) fn record_sent(&self, identity: &Identity, bytes: u64) {
        self.service.metrics.record_sent(Face::Xrootd, &Issuer::of(&identity.caller), bytes);
    }

    /// Counts bytes received from callers with credentials of `issuer`.
    pub(super) fn record_received(&self, issuer: &Issuer, bytes: u64) {
        self.service.metrics.record_received(Face::Xrootd, issuer, bytes);
    }

    /// Counts and logs a completed request.
    pub(super) fn record(&self, outcome: &Outcome<'_>) {
        let own = self.known_identity();
        let caller = &outcome.identity.unwrap_or(&own).caller;
        let path: &dyn fmt::Display = outcome.path.map_or(&"", |path| path);
        self.service.record_request(&Record {
            face: Face::Xrootd,
            peer: self.peer,
            subject: caller.subject.as_deref(),
            issuer: caller.issuer.as_deref(),
            verb: outcome.verb,
            path: format_args!("{path}"),
            fault: outcome.fault,
            denial: outcome.denial.as_ref(),
            bytes: outcome.moved_bytes,
            took: outcome.since.elapsed(),
        });
    }

    /// Registers the computation of a checksum of `path` for the request `stream_id`. The returned token is cancelled
    /// by `query checksum cancel`.
    pub(super) fn register_checksum(&self, stream_id: StreamId, path: &StorePath) -> CancellationToken {
        let token = self.ended.child_token();
        self.checksums().insert(stream_id, (path.clone(), token.clone()));
        token
    }

    /// Removes the computation of the request `stream_id`.
    pub(super) fn unregister_checksum(&self, stream_id: StreamId) {
        self.checksums().remove(&stream_id);
    }

    /// Cancels all computations of checksums, because their client has disconnected.
    pub(super) fn cancel_all_checksums(&self) {
        self.checksums().values().for_each(|(_, token)| token.cancel());
    }

    /// Cancels all computations of checksums of `path`.
    pub(super) fn cancel_checksums(&self, path: &StorePath) {
        self.checksums().values().filter(|(of, _)| of == path).for_each(|(_, token)| token.cancel());
    }

    fn checksums(&self) -> MutexGuard<'_, HashMap<StreamId, (StorePath, CancellationToken)>> {
        self.checksums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    /// Returns the session with this id if it belongs to a client at the address of `peer`.
    pub(super) fn find(&self, id: SessionId, peer: SocketAddr) -> Option<Arc<Session>> {
        let sessions = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&id).filter(|session| session.peer.ip() == peer.ip()).cloned()
    }

    /// Ends the session `id` for `asking`, which must have the same identity. An unknown session has already ended.
    pub(super) fn end(&self, id: SessionId, asking: &Session) -> ServeResult<()> {
        let Some(session) = self.find(id, asking.peer) else { return Ok(()) };
        let person = |session: &Session| Person::of(&session.known_identity().caller);
        if person(&session) != person(asking) {
            return Err(
                ErrorResponse::with_code(ErrorCode::NotAuthorized, "the session belongs to another user").into()
            );
        }
        session.end();
        Ok(())
    }
}
