//! From the first byte of a connection to a session: handshake, `protocol`, TLS, `login`, `auth`; or `bind` to an
//! existing one.
//!
//! The client may send all of it without waiting, followed by the first requests of the session. All received bytes
//! are kept, and responses are sent together when no complete request is left.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use towpath_proto::xrootd::{
    ErrorCode, Expect, Limits, PROTOCOL_VERSION, ProtocolRequestFlags, Request, RequestCode, RequestFramer,
    RequestHeader, ServerFlags, SessionId, StreamId,
    auth::{SecurityProtocol, UnixCredentials, ZtnCredentials, write_security_protocols},
    handshake::HandshakeReply,
    request::{Auth, Bind, Login, Protocol},
    response::{self, LoginReply, ProtocolReply},
};
use towpath_store::{
    Error, Fault,
    sys::clock::{self, Instant},
};

use super::{
    active_request::{ErrorResponse, verb},
    session::{Session, SessionParameters},
};
use crate::{
    Service, Socket,
    access::{Channel, Identity, tokens::MAX_TOKEN_BYTES},
    access_log::Record,
    metrics::Face,
};

/// Maximum payload of requests other than writes, in bytes: a vector of 1,024 elements takes 16 KiB, 16 attributes 1
/// MiB.
pub(super) const MAX_LIST_BYTES: u32 = 2 << 20;

/// Maximum data in one write, in bytes. They are never buffered completely.
const MAX_WRITE_BYTES: u64 = i32::MAX as u64;

/// Space for received bytes: enough for handshake, `protocol` and `login`, which a client may send together. They must
/// be read together, see [`LoginSequence::has_unsent_tls_demand`].
const FLIGHT_BYTES: usize = 1 << 10;

/// A connection that completed its login.
pub(super) struct AuthenticatedConnection {
    pub(super) socket: Socket,
    /// Holds the bytes received after the last request.
    pub(super) framer: RequestFramer,
    /// Unsent responses.
    pub(super) unsent: BytesMut,
    pub(super) role: ConnectionRole,
}

/// The purpose of an admitted connection.
pub(super) enum ConnectionRole {
    /// The session's main connection.
    Main(Arc<Session>),
    /// A connection to bind to a session; the response goes to this stream id.
    Bound(Arc<Session>, StreamId),
}

/// Performs the login of a new connection; `None` if it ended or violated the protocol.
///
/// # Errors
/// Those of the connection.
pub(super) async fn admit(
    service: &Arc<Service>,
    socket: Socket,
    peer: SocketAddr,
    local: SocketAddr,
) -> io::Result<Option<AuthenticatedConnection>> {
    let argument_bytes = u32::try_from(service.limits.header_bytes.0).unwrap_or(u32::MAX).min(MAX_LIST_BYTES);
    // No list is sent before the session.
    let limits = Limits { argument_bytes, list_bytes: argument_bytes, bulk_bytes: MAX_WRITE_BYTES };
    let framer = RequestFramer::new(limits);
    let mut sequence = LoginSequence {
        service,
        peer,
        local,
        framer,
        out: BytesMut::new(),
        greeted: false,
        has_unsent_tls_demand: false,
        login: None,
        refused: None,
    };
    sequence.run(socket).await
}

/// A connection during its login.
struct LoginSequence<'a> {
    service: &'a Arc<Service>,
    peer: SocketAddr,
    local: SocketAddr,
    framer: RequestFramer,
    out: BytesMut,
    greeted: bool,
    /// Whether the response to `protocol` that demands TLS is unsent. Requests received until it is sent come from a
    /// client that does not know of the demand, and may continue with TLS.
    has_unsent_tls_demand: bool,
    /// Set between `login` and the end of the authentication.
    login: Option<PendingLogin>,
    /// Error of a refused token. The client may fall back to another protocol, as an anonymous caller.
    refused: Option<Error>,
}

/// A login that waits for its credentials.
struct PendingLogin {
    id: SessionId,
    login: String,
    asynresp: bool,
}

/// The consequence of a request.
enum LoginAction {
    Next,
    StartTls,
    Admit(ConnectionRole),
    Close,
}

impl LoginSequence<'_> {
    async fn run(&mut self, mut socket: Socket) -> io::Result<Option<AuthenticatedConnection>> {
        loop {
            match self.step(socket.is_encrypted()).await? {
                None => {
                    self.send(&mut socket).await?;
                    self.framer.buffer().reserve(FLIGHT_BYTES);
                    if socket.read_buf(self.framer.buffer()).await? == 0 {
                        return Ok(None);
                    }
                }
                Some(LoginAction::Next) => {}
                Some(LoginAction::StartTls) => {
                    self.send(&mut socket).await?;
                    socket = self.start_tls(socket).await?;
                }
                Some(LoginAction::Admit(role)) => {
                    let mut framer = std::mem::replace(&mut self.framer, RequestFramer::new(Limits::default()));
                    framer.allow_lists(MAX_LIST_BYTES);
                    return Ok(Some(AuthenticatedConnection { socket, framer, unsent: self.out.split(), role }));
                }
                Some(LoginAction::Close) => {
                    self.send(&mut socket).await?;
                    socket.shutdown().await?;
                    return Ok(None);
                }
            }
        }
    }

    async fn send(&mut self, socket: &mut Socket) -> io::Result<()> {
        self.has_unsent_tls_demand = false;
        socket.write_all(&self.out.split()).await?;
        socket.flush().await
    }

    async fn start_tls(&mut self, socket: Socket) -> io::Result<Socket> {
        // Bytes received in clear text must not be treated as sent over TLS.
        if !self.framer.buffer().is_empty() {
            return Err(io::Error::other("the client sent plain text after requesting TLS"));
        }
        match (socket, self.service.tls()) {
            (Socket::Plain(stream), Some(tls)) => Ok(Socket::Tls(Box::new(BufReader::new(tls.accept(stream).await?)))),
            (socket, _) => Ok(socket),
        }
    }

    /// Handles the next request in the buffer; `None` if it is incomplete.
    async fn step(&mut self, encrypted: bool) -> io::Result<Option<LoginAction>> {
        if !self.greeted {
            if !self.framer.handshake().map_err(io::Error::other)? {
                return Ok(None);
            }
            self.greeted = true;
            let reply = HandshakeReply { protocol_version: PROTOCOL_VERSION, server_type: HandshakeReply::DATA_SERVER };
            response::ok(StreamId::ZERO, &reply, &mut self.out);
        }
        let Some(incoming) = self.framer.next().map_err(io::Error::other)? else { return Ok(None) };
        let (stream_id, since) = (incoming.header.stream_id, clock::now());
        let step = match incoming.request {
            Ok(Request::Protocol(request)) => Ok(self.protocol(stream_id, &request, encrypted)),
            Ok(Request::Login(request)) => self.login(stream_id, &request, encrypted),
            Ok(Request::Bind(request)) => self.bind(stream_id, &request, encrypted),
            Ok(Request::Auth(request)) if self.login.is_some() => self.auth(stream_id, request, encrypted).await,
            Ok(Request::Ping(_)) if self.login.is_some() => {
                response::ok(stream_id, &(), &mut self.out);
                Ok(LoginAction::Next)
            }
            Ok(_) => Ok(self.reject_early(&incoming.header)),
            Err(_) if self.login.is_none() => Ok(self.reject_early(&incoming.header)),
            Err(error) => Err(error.into()),
        };
        let step = step.unwrap_or_else(|refusal| {
            self.record(incoming.header.code, &refusal, since);
            response::fault(stream_id, (refusal.code, refusal.fault), &refusal.message, &mut self.out);
            LoginAction::Next
        });
        // The data of a write would follow. They are not worth receiving, and later requests cannot be found without
        // them.
        Ok(Some(if self.framer.bulk_remaining() > 0 { LoginAction::Close } else { step }))
    }

    fn protocol(&mut self, stream_id: StreamId, request: &Protocol, encrypted: bool) -> LoginAction {
        let wants = request.flags.contains(ProtocolRequestFlags::wantTLS);
        let able = request.flags.intersects(ProtocolRequestFlags::ableTLS | ProtocolRequestFlags::wantTLS);
        let mut reply = protocol_reply(self.service);
        let now = wants || (able && needs_tls(self.service) && request.expect != Expect::ExpNone);
        let mut step = LoginAction::Next;
        if now && !encrypted && self.service.tls().is_some() {
            reply.flags |= ServerFlags::gotoTLS;
            step = LoginAction::StartTls;
        }
        self.has_unsent_tls_demand = !encrypted && needs_tls(self.service);
        response::ok(stream_id, &reply, &mut self.out);
        step
    }

    fn channel(&self, encrypted: bool) -> Channel {
        Channel { face: Face::Xrootd, address: self.peer.ip(), is_encrypted: encrypted }
    }

    /// Counts and logs a refused request.
    fn record(&self, code: RequestCode, refusal: &ErrorResponse, since: Instant) {
        let is_unaware = refusal.fault == Fault::TlsRequired && self.has_unsent_tls_demand;
        let denial = refusal.denial().filter(|_| !is_unaware);
        self.service.record_request(&Record {
            face: Face::Xrootd,
            peer: self.peer,
            subject: None,
            issuer: None,
            verb: verb(code),
            path: format_args!(""),
            fault: Some(refusal.fault),
            denial: denial.as_ref(),
            bytes: 0,
            took: since.elapsed(),
        });
    }

    fn login(&mut self, stream_id: StreamId, request: &Login, encrypted: bool) -> Result<LoginAction, ErrorResponse> {
        if self.login.is_some() {
            return Err(ErrorResponse::with_code(ErrorCode::InvalidRequest, "this connection is already logged in"));
        }
        if needs_tls(self.service) && !encrypted {
            return Err(ErrorResponse::new(Fault::TlsRequired, "this server requires TLS: use roots://"));
        }
        let login = format!("{}.{}", String::from_utf8_lossy(request.user_name()), request.pid);
        let pending = PendingLogin { id: Session::new_id(), login, asynresp: request.understands_asynresp() };
        let offers = self.offers(encrypted);
        let reply = LoginReply { session_id: pending.id, security: write_security_protocols(&offers) };
        response::ok(stream_id, &reply, &mut self.out);
        if offers.is_empty() {
            let identity = self.service.access().anonymous(&self.channel(encrypted));
            return Ok(LoginAction::Admit(self.begin(&pending, identity, encrypted)));
        }
        self.login = Some(pending);
        Ok(LoginAction::Next)
    }

    /// Returns the authentication methods offered to the client; empty if none is required.
    fn offers(&self, encrypted: bool) -> Vec<SecurityProtocol> {
        let (access, mut offers) = (self.service.access(), Vec::new());
        if access.takes_tokens() && encrypted {
            offers.push(SecurityProtocol::ztn(MAX_TOKEN_BYTES));
            if access.has_public_grants() {
                offers.push(SecurityProtocol::unix());
            }
        }
        offers
    }

    async fn auth(
        &mut self,
        stream_id: StreamId,
        request: Auth,
        encrypted: bool,
    ) -> Result<LoginAction, ErrorResponse> {
        let identity = self.identify(request, encrypted).await?;
        response::ok(stream_id, &(), &mut self.out);
        let step = self.login.take().map(|pending| LoginAction::Admit(self.begin(&pending, identity, encrypted)));
        Ok(step.unwrap_or(LoginAction::Close))
    }

    async fn identify(&mut self, request: Auth, encrypted: bool) -> Result<Identity, ErrorResponse> {
        let (access, channel) = (self.service.access(), self.channel(encrypted));
        match request.credential_type {
            ZtnCredentials::TYPE => {
                let token = ZtnCredentials::decode(request.credentials, MAX_TOKEN_BYTES)?.token;
                let token = std::str::from_utf8(&token)
                    .map_err(|_| ErrorResponse::new(Fault::AuthenticationFailed, "the token is not valid text"))?;
                let identified = access.bearer(token, &channel).await;
                self.refused = identified.as_ref().err().cloned();
                Ok(identified?)
            }
            UnixCredentials::TYPE if access.has_public_grants() => {
                Ok(Identity { refused: self.refused.take(), ..access.anonymous(&channel) })
            }
            other => {
                let name = other.escape_ascii();
                let message = format!("the security protocol `{name}` was not offered");
                Err(ErrorResponse::new(Fault::AuthenticationFailed, message))
            }
        }
    }

    fn begin(&self, pending: &PendingLogin, identity: Identity, encrypted: bool) -> ConnectionRole {
        let parameters = SessionParameters {
            id: pending.id,
            peer: self.peer,
            local: self.local,
            identity,
            login: pending.login.clone(),
            asynresp: pending.asynresp,
            encrypted,
        };
        ConnectionRole::Main(Session::begin(self.service, parameters))
    }

    fn bind(&mut self, stream_id: StreamId, request: &Bind, encrypted: bool) -> Result<LoginAction, ErrorResponse> {
        if self.login.is_some() {
            return Err(ErrorResponse::with_code(ErrorCode::InvalidRequest, "this connection already has a session"));
        }
        let session = self.service.sessions.find(request.session_id, self.peer);
        let session =
            session.ok_or_else(|| ErrorResponse::new(Fault::NotFound, "there is no such session to bind to"))?;
        if session.encrypted && !encrypted {
            return Err(ErrorResponse::new(Fault::TlsRequired, "the session uses TLS, so its connections must too"));
        }
        Ok(LoginAction::Admit(ConnectionRole::Bound(session, stream_id)))
    }

    /// Rejects requests before the login is complete: before `login` they end the connection, as with the reference
    /// server; before `auth` they get an error.
    fn reject_early(&mut self, header: &RequestHeader) -> LoginAction {
        let (code, message, step) = match self.login {
            None => (ErrorCode::InvalidRequest, "log in first", LoginAction::Close),
            Some(_) => (ErrorCode::NotAuthorized, "authenticate first", LoginAction::Next),
        };
        response::error(header.stream_id, code, message, &mut self.out);
        step
    }
}

/// Returns the server's response to `protocol`; also used within a session.
pub(super) fn protocol_reply(service: &Service) -> ProtocolReply {
    let mut flags = ServerFlags::isServer | ServerFlags::suppgrw | ServerFlags::supposc;
    if service.tls().is_some() {
        flags |= ServerFlags::haveTLS;
    }
    if needs_tls(service) {
        flags |= ServerFlags::tlsLogin | ServerFlags::tlsData;
    }
    if service.is_cache {
        flags |= ServerFlags::attrCache | ServerFlags::attrProxy;
    }
    ProtocolReply { version: PROTOCOL_VERSION, flags, ..ProtocolReply::default() }
}

/// Whether TLS is required for everything: by configuration, or because only tokens have rights.
fn needs_tls(service: &Service) -> bool {
    let Some(tls) = service.tls() else { return false };
    let access = service.access();
    let only_tokens = access.takes_tokens() && !access.has_public_grants();
    tls.config.required || only_tokens
}

/// Encodes the response to `bind`: the path id of the connection, or the refusal.
pub(super) fn bound(stream_id: StreamId, outcome: &Result<towpath_proto::xrootd::PathId, ErrorResponse>) -> Bytes {
    let mut frame = BytesMut::new();
    match outcome {
        Ok(id) => response::ok(stream_id, id, &mut frame),
        Err(refusal) => response::fault(stream_id, (refusal.code, refusal.fault), &refusal.message, &mut frame),
    }
    frame.freeze()
}
