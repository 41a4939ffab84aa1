//! The sessions of one user at one server, and the server's known capabilities.
//!
//! Bulk data are transferred over a few sessions concurrently, so that several cores receive. They are independent
//! sessions, not streams bound to one session: every server accepts them (binding is declined by proxies, and for
//! clients behind address translation), each is re-established independently, and a further open of the file is sent
//! together with the first read.
//!
//! The first session carries all requests; further ones are started when it is busy ([`super::spread`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future;
use tokio::{
    runtime::Handle,
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore},
};
use towpath_proto::xrootd::{PathAndCgi, ServerFlags, SessionId, auth::SecurityProtocol};
use towpath_store::{Blame, Error, Fault, Result, Secret, StorePath};

use super::{
    auth::AvailableCredentials,
    connection::{Dial, Failure},
    server::Server,
    session::Session,
    session_setup::{SetupOptions, TlsWish},
    sites::Sites,
    software::{ReopenMethod, ServerSoftware},
    spread::{self, SessionLoad},
};
use crate::{
    ClientOptions,
    dial::{Dialer, MAX_CONNECTIONS},
    token::{NO_TOKEN, Tokens, WithholdReason, are_credentials_useless},
};

/// Minimum number of bytes in flight for the start of a session without them.
const QUEUED_BYTES: usize = 8 << 20;

/// Round trips of a request in another session: the open of the file there, and the request.
const OTHER_ROUND_TRIPS: u32 = 2;

/// Round trips of a request in a new session: connection, login, open, and the request.
const NEW_ROUND_TRIPS: u32 = 4;

/// The user at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// User name of the login.
    pub user: String,
    /// The token of the call; if `None`, the token of the options is used.
    pub token: Option<Secret>,
    /// Whether no token is sent.
    pub is_nobody: bool,
    /// Whether requests carry secrets: then only the handshake may be sent before TLS has been negotiated.
    pub careful: bool,
}

/// The known requirements and capabilities of a server.
#[derive(Debug, Default)]
struct ServerTraits {
    tls: bool,
    offer: Option<SecurityProtocol>,
    /// Number of sessions lost before they were ready.
    early_losses: u32,
    /// Whether a session has been ready before.
    good: bool,
    /// Whether `pgread` and `pgwrite` can be used; `None` before the first response.
    pages: Option<bool>,
    /// The server's message if it refused credentials before it admitted the caller with others.
    refusal: Option<String>,
    /// Whether the refusal was reported, by a warning or in an error.
    is_refusal_reported: bool,
}

/// Returns whether a request would treat the part of the path after a question mark as opaque information.
fn is_split_on_the_wire(path: &StorePath) -> bool {
    path.as_bytes().contains(&b'?')
}

/// The connections of one user to one server.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) server: Server,
    identity: Identity,
    options: Arc<ClientOptions>,
    tokens: Arc<Tokens>,
    dialer: Arc<Dialer>,
    slots: Mutex<Vec<Option<Arc<Session>>>>,
    /// Sessions without open files.
    listings: Mutex<Vec<Arc<Session>>>,
    known: Mutex<ServerTraits>,
    software: OnceCell<ServerSoftware>,
    /// Permits for file data in flight, in KiB.
    window: Arc<Semaphore>,
    window_kib: u32,
}

impl Site {
    /// Creates a site without sessions.
    pub(super) fn new(server: Server, identity: Identity, sites: &Sites) -> Self {
        let options = &sites.options;
        let window_kib = u32::try_from(options.window_bytes >> 10).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        Self {
            known: Mutex::new(ServerTraits { tls: server.tls, ..ServerTraits::default() }),
            server,
            identity,
            options: Arc::clone(options),
            tokens: Arc::clone(&sites.tokens),
            dialer: Arc::clone(&sites.dialer),
            slots: Mutex::default(),
            listings: Mutex::default(),
            software: OnceCell::new(),
            window: Arc::new(Semaphore::new(window_kib as usize)),
            window_kib,
        }
    }

    fn known(&self) -> MutexGuard<'_, ServerTraits> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<Arc<Session>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a session has been ready before.
    pub(super) fn is_known_good(&self) -> bool {
        self.learn();
        self.known().good
    }

    /// Returns whether data should be sent as pages with checksums: the server supports them (assumed before the first
    /// response), and TLS, which detects corruption itself, is not used.
    pub(super) fn wants_pages(&self, session: &Session) -> bool {
        let said = session.established().map(super::session_setup::SessionInfo::has_pages);
        let known = self.known();
        !known.tls && said.or(known.pages).unwrap_or(true)
    }

    /// Returns the number of the session for the next bulk request ([`spread::choose`]).
    pub(super) fn next_session(&self) -> usize {
        let slots = self.slots();
        let known: Vec<_> =
            slots.iter().map(|slot| slot.as_ref().map_or(SessionLoad::NEW, |session| session.session_load())).collect();
        spread::choose(&known, self.dialer.connection_limit())
    }

    /// Returns the number of the session for a request that should not wait for bulk data: the first one, unless its data in
    /// flight take longer than the request in one that carries none, with the start of that if it is missing.
    pub(super) fn quiet_session(&self) -> usize {
        let number = self.dialer.connection_limit();
        let session = |number| self.slots().get(number).and_then(Clone::clone);
        let is_ready = session(number).is_some_and(|session| session.is_alive() && session.established().is_some());
        let (bytes, round_trips) =
            if is_ready { (spread::BUSY_BYTES, OTHER_ROUND_TRIPS) } else { (QUEUED_BYTES, NEW_ROUND_TRIPS) };
        let is_quiet_better = session(0).is_some_and(|first| first.queue_exceeds(bytes, round_trips));
        if is_quiet_better { number } else { 0 }
    }

    /// Returns the sessions for bulk data; missing ones are started. Returns immediately.
    ///
    /// # Errors
    /// Fails if TLS cannot be configured.
    pub(super) fn sessions(&self) -> Result<Vec<Arc<Session>>> {
        (0..self.dialer.connection_limit()).map(|number| self.session(number)).collect()
    }

    /// Returns the session with this number; starts it if it is missing or lost. Returns immediately.
    ///
    /// # Errors
    /// Fails if TLS cannot be configured.
    pub(super) fn session(&self, number: usize) -> Result<Arc<Session>> {
        self.learn();
        let mut slots = self.slots();
        let number = number.min(MAX_CONNECTIONS - 1);
        if slots.len() <= number {
            slots.resize(number + 1, None);
        }
        let Some(slot) = slots.get_mut(number) else {
            return Err(Error::new(Fault::Internal, "the server has no session slot"));
        };
        match slot {
            Some(session) if session.is_alive() => Ok(Arc::clone(session)),
            lost => {
                lost.iter().for_each(|session| self.mourn(session));
                let previous = lost.as_ref().and_then(|session| session.established()).map(|said| said.session_id);
                let session = Arc::new(Session::start(self.dial(previous)?, Handle::current()));
                *lost = Some(Arc::clone(&session));
                Ok(session)
            }
        }
    }

    /// Returns a session without open files, for a listing.
    ///
    /// # Errors
    /// Fails if TLS cannot be configured.
    pub(super) fn listing_session(&self) -> Result<Arc<Session>> {
        self.learn();
        let mut sessions = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.iter().find(|session| session.is_alive() && !session.is_occupied()) {
            return Ok(Arc::clone(session));
        }
        sessions.iter().filter(|session| !session.is_alive()).for_each(|session| self.mourn(session));
        sessions.retain(|session| session.is_alive());
        let session = Arc::new(Session::start(self.dial(None)?, Handle::current()));
        sessions.push(Arc::clone(&session));
        Ok(session)
    }

    /// Returns whether the server has identified itself as towpath.
    pub(super) fn is_known_to_be_ours(&self) -> bool {
        self.software.get().is_some_and(|software| software.is_ours)
    }

    /// Returns whether uploads can be resumed; `None` before the server has reported it.
    pub(super) fn resumes(&self) -> Option<bool> {
        self.software.get().map(|software| software.resumes)
    }

    /// Returns a path in the form of requests to this server. If the path needs encoding, the server is queried for its
    /// support of encoded paths.
    ///
    /// # Errors
    /// As [`Self::path_now`].
    pub(super) async fn path(&self, path: &StorePath, cgi: &Bytes) -> Result<PathAndCgi> {
        if is_split_on_the_wire(path) {
            self.may_be_ours().await;
        }
        self.path_now(path, cgi)
    }

    /// Like [`Self::path`], but with the known capabilities of the server, without a query.
    ///
    /// # Errors
    /// `InvalidArgument` for a path with a `?` if the server does not accept encoded paths: it would treat the part
    /// after the `?` as opaque information, and the request would concern another file.
    pub(super) fn path_now(&self, path: &StorePath, cgi: &Bytes) -> Result<PathAndCgi> {
        match is_split_on_the_wire(path) {
            false => Ok(PathAndCgi { path: Bytes::copy_from_slice(path.as_bytes()), cgi: cgi.clone() }),
            true if self.software.get().is_some_and(|software| software.takes_encoded_paths) => {
                Ok(PathAndCgi::percent_encoded(path.as_bytes(), cgi))
            }
            true => {
                let message =
                    "the xroot protocol cannot send a name with a question mark to this server: use HTTP, or rename it";
                Err(Error::new(Fault::InvalidArgument, message).at(path))
            }
        }
    }

    /// Returns the way to open a file once more that is being written in `session`; `None` if no way is known.
    pub(super) fn reopen_method(&self, session: &Session) -> Option<ReopenMethod> {
        let reopen = self.software.get()?.reopen?;
        // Two opens at a proxy may be two separate opens at its origin.
        (reopen == ReopenMethod::ByHandle || !session.is_at_proxy()?).then_some(reopen)
    }

    /// Returns whether the server may be towpath, which shows an upload only after its close and supports promises. The
    /// query is repeated until it succeeds; until then the server may be towpath, and a file under the name of an
    /// upload must be assumed to be another file.
    pub(super) async fn may_be_ours(&self) -> bool {
        match self.session(0) {
            Ok(session) => self.may_be_ours_by(&session).await,
            Err(_) => true,
        }
    }

    /// Like [`Self::may_be_ours`], with the query sent in `session`.
    async fn may_be_ours_by(&self, session: &Session) -> bool {
        let answered = self.software.get_or_try_init(|| async { session.learn_software().await.copied().ok_or(()) });
        answered.await.map_or(true, |software| software.is_ours)
    }

    /// Returns whether the server is known to reject third-party copies, with a query if it is unknown. A redirector
    /// may lack what its servers have.
    pub(super) async fn lacks_third_party(&self) -> bool {
        self.may_be_ours().await;
        let is_manager = |session: Arc<Session>| {
            session.established().is_some_and(|established| established.flags.contains(ServerFlags::isManager))
        };
        self.software.get().is_some_and(|software| software.lacks_third_party) && !self.session(0).is_ok_and(is_manager)
    }

    /// Requests the server's statistics of all connections, concurrently, since the responses are independent.
    pub(super) async fn ask_far_ends(&self) {
        if self.software.get().is_some_and(|software| !software.is_ours) {
            return;
        }
        let slots = self.slots().clone();
        future::join_all(slots.iter().flatten().map(|session| session.ask_far_end())).await;
    }

    /// Stores the capabilities that the sessions have learned.
    fn learn(&self) {
        let slots = self.slots();
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.known();
        for session in slots.iter().flatten().chain(listings.iter()) {
            if let Some(established) = session.established() {
                known.good = true;
                known.pages = Some(established.has_pages());
                match &established.refusal {
                    // The next session sends the token again: it may have been renewed.
                    Some(_) => known.offer = None,
                    None => known.offer.clone_from(&established.offer),
                }
                if known.refusal != established.refusal {
                    known.refusal.clone_from(&established.refusal);
                    known.is_refusal_reported = false;
                    self.tokens.forget();
                }
            }
        }
    }

    /// Called after a successful request. Warns that the server refused the credentials and admitted the caller without
    /// them, unless that was reported, by a warning or in an error ([`Self::explain`]).
    pub(super) fn warn_of_refusal(&self) {
        self.learn();
        let mut known = self.known();
        if let Some(refusal) = &known.refusal
            && !known.is_refusal_reported
        {
            let host = self.server.name();
            tracing::warn!("{host} refused the credentials and admitted you without them: {refusal}");
            known.is_refusal_reported = true;
        }
    }

    /// Adds to an error about missing rights why the token did not help.
    pub(super) fn explain(&self, error: Error) -> Error {
        if !matches!(error.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied) {
            return error;
        }
        let mut known = self.known();
        known.is_refusal_reported |= known.refusal.is_some();
        let addition = match &known.refusal {
            Some(refusal) if error.message().contains(refusal) => None,
            Some(refusal) => Some(format!("the server refused the credentials: {refusal}")),
            None => self.explain_missing_token(&error, known.tls),
        };
        match addition {
            Some(addition) => error.clone().with_message(format!("{} ({addition})", error.message())),
            None => error,
        }
    }

    /// Returns why no token was sent to the server that denied a request with `error`.
    fn explain_missing_token(&self, error: &Error, is_encrypted: bool) -> Option<String> {
        let message = error.message();
        let has_token = self.has_token();
        match () {
            () if are_credentials_useless(message) || self.identity.is_nobody => None,
            () if has_token && !is_encrypted => {
                let advice = if message.contains("roots://") { "" } else { ": use roots://" };
                Some(format!("the bearer token is not sent without encryption{advice}"))
            }
            () if has_token && self.options.insecure => {
                Some("the bearer token is not sent with --insecure: use --ca-file".into())
            }
            () if !has_token && self.tokens.are_used() && error.fault() == Fault::AuthenticationFailed => {
                Some(NO_TOKEN.into())
            }
            () => None,
        }
    }

    /// Whether the caller has a bearer token.
    fn has_token(&self) -> bool {
        self.identity.token.is_some() || (!self.identity.is_nobody && matches!(self.tokens.current(), Ok(Some(_))))
    }

    /// Records the reason why a session was lost.
    fn mourn(&self, session: &Session) {
        match session.lost() {
            Some(Failure::TooEarly) => self.known().tls = true,
            Some(Failure::EarlyLoss(_)) => self.known().early_losses += 1,
            Some(Failure::Fatal(error)) if error.fault() == Fault::AuthenticationFailed => self.tokens.forget(),
            _ => {}
        }
    }

    fn dial(&self, previous: Option<SessionId>) -> Result<Dial> {
        let known = self.known();
        let token = match &self.identity {
            Identity { is_nobody: true, .. } => Ok(None),
            Identity { token: Some(token), .. } => Ok(Some(token.clone())),
            Identity { token: None, .. } => self.tokens.current(),
        };
        let withheld = match &token {
            _ if self.identity.is_nobody => Some(WithholdReason::Nobody),
            Ok(Some(_)) if !self.server.trusted => Some(WithholdReason::Unencrypted),
            Ok(Some(_)) if self.options.insecure => Some(WithholdReason::Unverified),
            _ => None,
        };
        let token = if self.server.trusted && !self.options.insecure { token } else { Ok(None) };
        // With TLS and a token, credentials are probably required; requests sent before them would be in vain.
        let expects_auth = known.tls && !known.good && matches!(token, Ok(Some(_)));
        let credentials = AvailableCredentials { token, withheld, user: self.identity.user.clone() };
        let tls = known.tls.then(|| self.dialer.tls()).transpose()?;
        let plan = SetupOptions {
            host: self.server.name(),
            tls: if known.tls { TlsWish::Insist } else { TlsWish::Avoid },
            optimistic: !known.tls && !self.identity.careful,
            // The first loss may have been caused by requests sent before the credentials, the second by any request
            // sent early.
            patient: expects_auth || known.early_losses > u32::from(known.offer.is_some()),
            offer: known.offer.clone(),
            credentials,
            login_cgi: Bytes::clone(&self.server.login_cgi),
            previous,
        };
        // Half, because a connection counts as lost after twice this time.
        let stall = self.options.stall.min(self.options.retry_time / 2);
        Ok(Dial {
            host: self.server.host.clone(),
            port: self.server.port,
            plan,
            tls,
            connect_timeout: self.options.connect_timeout,
            dialer: Arc::clone(&self.dialer),
            underway: Arc::default(),
            stall,
            login_stall: self.options.silence_permitted(stall * 2, known.good) / 2,
            patience: self.options.patience,
            max_wait: self.options.max_wait,
            waits: self.options.waits.clone(),
        })
    }

    /// Waits for permits for `bytes` of file data in flight. A request larger than the whole window gets all permits.
    pub(super) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).clamp(1, self.window_kib);
        let permit = Arc::clone(&self.window).acquire_many_owned(kib).await;
        permit.map_err(|_| Error::new(Fault::Internal, "the window is closed").blamed_on(Blame::Towpath))
    }
}
