//! Turns a connection into a session in as few flights as the server permits. Bytes in, bytes out: this module has no
//! sockets.
//!
//! Requests that are sent together:
//!
//! | assumed requirements of the server | flights after TCP's own |
//! | --- | --- |
//! | neither TLS nor credentials | handshake, `protocol`, `login` **and the first requests** |
//! | TLS | handshake, `protocol` · TLS · `login` and the first requests |
//! | credentials that succeeded the last time | (TLS ·) `login`, `auth` and the first requests |
//!
//! A wrong assumption costs only a round trip or two. A server that requires credentials rejects the first requests,
//! which the caller retries, or closes the connection (as 5.5.3 does), and the next connection uses
//! [`SetupOptions::patient`]. A first flight must therefore contain only requests that may be repeated. If a server
//! requires TLS, the flight fails with [`SetupFailure::NeedsTls`], and the caller connects again with
//! [`SetupOptions::tls`]. A flight before TLS contains no secrets: [`SetupOptions::optimistic`] must not be set for
//! requests that carry a token.

use bytes::{Bytes, BytesMut};
use towpath_proto::xrootd::{
    ErrorCode, Expect, LoginAbility, PROTOCOL_VERSION, ProtocolRequestFlags, Request, Response, ServerFlags, SessionId,
    StreamId,
    auth::{SecurityProtocol, parse_security_protocols},
    codes::PROTOCOL_VERSION_PGRW,
    handshake::{HANDSHAKE, HandshakeReply},
    request::{Endsess, Login, Protocol},
    response::{Body, LoginReply, ProtocolReply},
};
use towpath_store::{Blame, Error, Fault};

use super::auth::AvailableCredentials;
use crate::words::readable;

/// Stream ids reserved for requests of the connection itself.
pub(super) mod reserved {
    use towpath_proto::xrootd::StreamId;

    pub(in crate::xrootd) const PROTOCOL: StreamId = StreamId::from_number(1);
    pub(in crate::xrootd) const LOGIN: StreamId = StreamId::from_number(2);
    pub(in crate::xrootd) const AUTH: StreamId = StreamId::from_number(3);
    pub(in crate::xrootd) const ENDSESS: StreamId = StreamId::from_number(4);
    pub(in crate::xrootd) const PING: StreamId = StreamId::from_number(5);
    /// First stream id for requests of callers.
    pub(in crate::xrootd) const FIRST_FREE: u16 = 16;
}

/// Whether to encrypt the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsWish {
    /// Only if the server requires it; the flight then fails with [`SetupFailure::NeedsTls`].
    Avoid,
    /// From the start.
    Insist,
}

/// Information available before the connection.
#[derive(Debug, Clone)]
pub(super) struct SetupOptions {
    /// Name of the server, for messages.
    pub host: String,
    pub tls: TlsWish,
    /// Whether requests may be sent before the first response of the server. Never set with TLS.
    pub optimistic: bool,
    /// Whether requests wait until the session is ready.
    pub patient: bool,
    /// The offer that led to the last successful login; `None` if the server required no credentials, or is unknown.
    pub offer: Option<SecurityProtocol>,
    pub credentials: AvailableCredentials,
    /// Appended to the opaque information of the login, as requested by a redirect.
    pub login_cgi: Bytes,
    /// The previous session, to be ended.
    pub previous: Option<SessionId>,
}

/// A session that is ready for requests.
#[derive(Debug, Clone)]
pub(super) struct SessionInfo {
    pub session_id: SessionId,
    pub version: u32,
    pub flags: ServerFlags,
    /// The offer accepted by the login; `None` if no credentials were required.
    pub offer: Option<SecurityProtocol>,
    /// The server's message if it refused other credentials before.
    pub refusal: Option<String>,
}

impl SessionInfo {
    /// Returns whether `pgread` and `pgwrite` may be used.
    pub(super) fn has_pages(&self) -> bool {
        self.flags.contains(ServerFlags::suppgrw) && self.version >= PROTOCOL_VERSION_PGRW
    }
}

/// The next action of the connection after a response.
#[derive(Debug)]
pub(super) enum Progress {
    /// Send the output of [`SessionSetup::take_output`], and wait for the next response.
    More,
    /// Start TLS now, then call [`SessionSetup::tls_started`].
    StartTls,
    /// Send the output of [`SessionSetup::take_output`]; the session is ready.
    Ready(SessionInfo),
}

/// The reason why a connection did not become a session.
#[derive(Debug, Clone)]
pub(super) enum SetupFailure {
    /// The server requires TLS: connect again.
    NeedsTls,
    /// The server asks to wait.
    Wait { seconds: u32 },
    /// A retry may help.
    Broken(Error),
    /// A retry is useless.
    Fatal(Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Protocol,
    Tls,
    Login,
    Auth,
    Done,
}

/// The state of one connection until it becomes a session.
#[derive(Debug)]
pub(super) struct SessionSetup {
    plan: SetupOptions,
    stage: Stage,
    output: BytesMut,
    encrypted: bool,
    login_sent: bool,
    /// The response to the login, if it arrived before that to `protocol`: servers that process requests immediately,
    /// such as go-hep's, respond in any order.
    early_login: Option<Response>,
    session: SessionInfo,
    offers: Vec<SecurityProtocol>,
    /// Number of processed offers.
    tried: usize,
}

impl SessionSetup {
    /// Creates the setup that `plan` describes, with its first output.
    pub(super) fn new(plan: SetupOptions) -> Self {
        let session = SessionInfo {
            session_id: SessionId::default(),
            version: 0,
            flags: ServerFlags::NONE,
            offer: None,
            refusal: None,
        };
        let mut setup = Self {
            plan,
            stage: Stage::Handshake,
            output: BytesMut::from(&HANDSHAKE[..]),
            encrypted: false,
            login_sent: false,
            early_login: None,
            session,
            offers: Vec::new(),
            tried: 0,
        };
        setup.ask_protocol();
        if setup.plan.optimistic {
            setup.ask_login();
        }
        setup
    }

    /// Returns the bytes to send now; may be empty.
    pub(super) fn take_output(&mut self) -> Bytes {
        self.output.split().freeze()
    }

    /// Returns whether only TLS may read the next bytes: until the response to `protocol`, no other request is in
    /// flight.
    pub(super) fn before_tls(&self) -> bool {
        !self.plan.optimistic && matches!(self.stage, Stage::Handshake | Stage::Protocol | Stage::Tls)
    }

    /// Returns whether requests of callers may be sent after the output.
    pub(super) fn lets_requests_out(&self) -> bool {
        if self.plan.patient { self.is_done() } else { self.login_sent }
    }

    /// Returns whether the session is ready.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Returns whether the connection is encrypted and the server's identity verified.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Continues with the login after the TLS handshake.
    pub(super) fn tls_started(&mut self) {
        self.encrypted = true;
        self.stage = Stage::Login;
        self.ask_login();
    }

    /// Processes the response to one of the setup's own requests.
    pub(super) fn answer(&mut self, stream_id: StreamId, response: Response) -> Result<Progress, SetupFailure> {
        match response {
            Response::Wait(wait) => return Err(SetupFailure::Wait { seconds: wait.seconds }),
            Response::Error(error) if error.code == ErrorCode::TLSRequired && !self.encrypted => {
                return Err(SetupFailure::NeedsTls);
            }
            _ => {}
        }
        match (self.stage, stream_id) {
            (_, reserved::ENDSESS | reserved::PING) => Ok(Progress::More),
            (Stage::Handshake, StreamId::ZERO) => self.handshaken(response),
            (Stage::Protocol, reserved::PROTOCOL) => self.protocol_known(response),
            (Stage::Protocol, reserved::LOGIN) if self.login_sent && self.early_login.is_none() => {
                self.early_login = Some(response);
                Ok(Progress::More)
            }
            (Stage::Login, reserved::LOGIN) => self.logged_in(response),
            (Stage::Auth, reserved::AUTH) => self.authenticated(response),
            _ => Err(self.broken("unexpected response")),
        }
    }

    fn handshaken(&mut self, response: Response) -> Result<Progress, SetupFailure> {
        let _: HandshakeReply = self.body(response)?;
        self.stage = Stage::Protocol;
        Ok(Progress::More)
    }

    fn protocol_known(&mut self, response: Response) -> Result<Progress, SetupFailure> {
        let reply: ProtocolReply = self.body(response)?;
        (self.session.version, self.session.flags) = (reply.version, reply.flags);
        let goes_to_tls = reply.flags.contains(ServerFlags::gotoTLS);
        match self.plan.tls {
            TlsWish::Insist if goes_to_tls => {
                self.stage = Stage::Tls;
                return Ok(Progress::StartTls);
            }
            TlsWish::Insist => {
                let message = format!("{} does not support TLS", self.plan.host);
                let error = Error::new(Fault::TlsRequired, message).blamed_on(Blame::Storage);
                return Err(SetupFailure::Fatal(error));
            }
            TlsWish::Avoid => {
                let demands = ServerFlags::gotoTLS | ServerFlags::tlsLogin | ServerFlags::tlsSess;
                if reply.flags.intersects(demands) {
                    return Err(SetupFailure::NeedsTls);
                }
            }
        }
        self.stage = Stage::Login;
        if !self.login_sent {
            self.ask_login();
        }
        match self.early_login.take() {
            Some(response) => self.logged_in(response),
            None => Ok(Progress::More),
        }
    }

    fn logged_in(&mut self, response: Response) -> Result<Progress, SetupFailure> {
        let reply: LoginReply = self.body(response)?;
        self.session.session_id = reply.session_id;
        if reply.security.is_empty() {
            return Ok(self.ready());
        }
        self.offers = parse_security_protocols(&reply.security).map_err(|error| self.broken(&error.to_string()))?;
        self.stage = Stage::Auth;
        match &self.session.offer {
            // The credentials were sent with the login; the response to them is next.
            Some(sent) if self.offers.iter().any(|offer| offer.name == sent.name) => {
                self.tried = self.offers.iter().position(|offer| offer.name == sent.name).map_or(0, |at| at + 1);
                Ok(Progress::More)
            }
            _ => self.try_next_offer(None),
        }
    }

    fn authenticated(&mut self, response: Response) -> Result<Progress, SetupFailure> {
        match response {
            Response::Ok(_) => Ok(self.ready()),
            Response::Error(error) => self.try_next_offer(Some(&error.message)),
            Response::AuthMore(_) => self.try_next_offer(Some("another authentication round is not supported")),
            _ => Err(self.broken("unexpected response to auth")),
        }
    }

    /// Sends the credentials for the next usable offer.
    fn try_next_offer(&mut self, refusal: Option<&str>) -> Result<Progress, SetupFailure> {
        if let Some(message) = refusal {
            self.session.refusal = Some(readable(message));
        }
        while let Some(offer) = self.offers.get(self.tried).cloned() {
            self.tried += 1;
            if self.send_credentials(offer).map_err(SetupFailure::Fatal)? {
                return Ok(Progress::More);
            }
        }
        let error = self.plan.credentials.exhausted(&self.plan.host, &self.offers, self.encrypted, refusal);
        Err(SetupFailure::Fatal(error))
    }

    fn send_credentials(&mut self, offer: SecurityProtocol) -> Result<bool, Error> {
        let Some(auth) = self.plan.credentials.credentials(&offer, self.encrypted)? else { return Ok(false) };
        Request::from(auth).encode(reserved::AUTH, &mut self.output);
        self.session.offer = Some(offer);
        Ok(true)
    }

    fn ready(&mut self) -> Progress {
        self.stage = Stage::Done;
        if let Some(session_id) = self.plan.previous.take() {
            Request::from(Endsess { session_id }).encode(reserved::ENDSESS, &mut self.output);
        }
        Progress::Ready(self.session.clone())
    }

    fn ask_protocol(&mut self) {
        // The server may start TLS right after its response if the client reports that it supports TLS; that would fail
        // if the client had sent more than `protocol` by then.
        let flags = match self.plan.tls {
            TlsWish::Avoid => ProtocolRequestFlags::NONE,
            TlsWish::Insist => ProtocolRequestFlags::ableTLS | ProtocolRequestFlags::wantTLS,
        };
        let protocol = Protocol { client_version: PROTOCOL_VERSION, flags, expect: Expect::ExpLogin };
        Request::from(protocol).encode(reserved::PROTOCOL, &mut self.output);
    }

    fn ask_login(&mut self) {
        self.login_sent = true;
        let mut cgi = BytesMut::from(&b"xrd.appname=towpath&xrd.rn=v5"[..]);
        if !self.plan.login_cgi.is_empty() {
            cgi.extend_from_slice(b"&");
            cgi.extend_from_slice(&self.plan.login_cgi);
        }
        let login = Login {
            pid: std::process::id(),
            user: Login::pad_user(&self.plan.credentials.user),
            ability: LoginAbility::fullurl | LoginAbility::readrdok | LoginAbility::hasipv64 | LoginAbility::redirflags,
            capver: Login::ASYNCRESP | Login::VERSION_TLS,
            cgi: cgi.freeze(),
            ..Login::default()
        };
        Request::from(login).encode(reserved::LOGIN, &mut self.output);
        if let Some(offer) = self.plan.offer.take() {
            // Unavailable credentials are looked up again, with an error to report, once the server requires them.
            let _ = self.send_credentials(offer);
        }
    }

    fn body<B: Body>(&self, response: Response) -> Result<B, SetupFailure> {
        match response {
            Response::Ok(body) => B::decode(body).map_err(|error| self.broken(&error.to_string())),
            Response::Error(error) => {
                let message = format!("{} refused the login: {}", self.plan.host, readable(&error.message));
                Err(SetupFailure::Fatal(Error::new(error.fault(), message)))
            }
            _ => Err(self.broken("unexpected response before the login")),
        }
    }

    fn broken(&self, why: &str) -> SetupFailure {
        let message = format!("{} violated the protocol: {why}", self.plan.host);
        SetupFailure::Broken(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage))
    }
}

#[cfg(test)]
mod tests;
