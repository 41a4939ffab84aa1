//! A server under test, and the client's end of a connection to it.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use towpath_proto::xrootd::{
    ErrorCode, Expect, FileHandle, OpenOptions, PROTOCOL_VERSION, PathAndCgi, ProtocolRequestFlags, Request, Response,
    ResponseFramer, StreamId,
    handshake::HANDSHAKE,
    request::{Close, Login, Open, Protocol},
    response::{Body as _, LoginReply, OpenReply, StatusKind},
};
use towpath_server::{
    ServeConfig, Server, ServerBuilder, Service,
    config::{AnonymousRule, Right},
    third_party::Transfers,
};
use towpath_store::{Caller, CreateOptions, Expectation, Store, StorePath, memory::MemoryStore, sys::net};

/// Timeout for operations that only take this long if they hang.
pub(super) const HANG: Duration = Duration::from_secs(30);

/// A running server.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    pub(super) service: Arc<Service>,
    pub(super) stopping: CancellationToken,
    pub(super) running: JoinHandle<()>,
}

impl Site {
    /// Serves `store` with read and write access for everyone.
    pub(super) fn of(store: Arc<dyn Store>) -> Self {
        Self::with(store, |_| {})
    }

    /// Serves `store` with modified settings.
    pub(super) fn with(store: Arc<dyn Store>, change: impl FnOnce(&mut ServeConfig)) -> Self {
        Self::with_transfers(store, None, change)
    }

    /// Like [`Self::with`], with support for third-party copies.
    pub(super) fn with_transfers(
        store: Arc<dyn Store>,
        transfers: Option<Arc<dyn Transfers>>,
        change: impl FnOnce(&mut ServeConfig),
    ) -> Self {
        Self::with_parts(store, change, |builder| match transfers {
            Some(transfers) => builder.transfers(transfers),
            None => builder,
        })
    }

    /// Like [`Self::with`], with additional parts of the server.
    pub(super) fn with_parts(
        store: Arc<dyn Store>,
        change: impl FnOnce(&mut ServeConfig),
        add: impl FnOnce(ServerBuilder<'_>) -> ServerBuilder<'_>,
    ) -> Self {
        let mut config = ServeConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServeConfig::default() };
        config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: vec![Right::Read, Right::Modify] }];
        change(&mut config);
        let server = add(Server::builder(store, &config)).bind().unwrap();
        let (address, service, stopping) = (server.addresses()[0], server.service(), server.stopping());
        Self { address, service, stopping, running: tokio::spawn(server.run()) }
    }

    /// Serves an empty store in memory.
    pub(super) fn empty() -> Self {
        Self::of(Arc::new(MemoryStore::new(1 << 30)))
    }

    /// Creates a file in the store without the server.
    pub(super) async fn put(&self, at: &str, content: &[u8]) {
        let caller = Caller::local();
        let options = CreateOptions { parents: true, ..CreateOptions::default() };
        let file = self.service.store.create(&caller, &path(at), options).await.unwrap();
        file.write(0, Bytes::copy_from_slice(content)).await.unwrap();
        file.commit(Expectation::default()).await.unwrap();
    }

    /// Returns the content of a file in the store, or `None` if there is none.
    pub(super) async fn get(&self, at: &str) -> Option<Bytes> {
        let file = self.service.store.open(&Caller::local(), &path(at), Default::default()).await.ok()?;
        Some(file.read(0, 1 << 30).await.unwrap())
    }
}

pub(super) fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// A response, assembled from its frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum XrootdResponse {
    Ok(Bytes),
    Error(ErrorCode, String),
    /// A [`towpath_proto::xrootd::Status::status`] response: the data after all its bodies.
    Status(Bytes),
    /// Any other response.
    Other(Response),
}

impl XrootdResponse {
    pub(super) fn ok(self) -> Bytes {
        match self {
            Self::Ok(body) => body,
            other => panic!("not ok: {other:?}"),
        }
    }

    pub(super) fn code(self) -> ErrorCode {
        match self {
            Self::Error(code, _) => code,
            other => panic!("no error: {other:?}"),
        }
    }

    /// Panics unless it is this error with this text.
    #[track_caller]
    pub(super) fn expect_error(self, code: ErrorCode, message: &str) {
        assert_eq!(self, Self::Error(code, message.to_owned()));
    }

    pub(super) fn pages(self) -> Bytes {
        match self {
            Self::Status(data) => data,
            other => panic!("no status: {other:?}"),
        }
    }
}

/// The client's end of a connection.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    framer: ResponseFramer,
    /// Parts of incomplete responses.
    pieces: HashMap<StreamId, BytesMut>,
}

impl Peer {
    /// Opens a connection without sending anything.
    pub(super) async fn silent(site: &Site) -> Self {
        Self::on(net::connect(site.address).await.unwrap())
    }

    fn on(stream: TcpStream) -> Self {
        Self { stream, framer: ResponseFramer::new(64 << 20), pieces: HashMap::new() }
    }

    /// Opens a connection with a session, from that address.
    pub(super) async fn logged_in_from(address: Ipv4Addr, site: &Site) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let mut peer = Self::on(socket.connect(site.address).await.unwrap());
        peer.log_in(login()).await;
        peer
    }

    /// Opens a connection with a session.
    pub(super) async fn logged_in(site: &Site) -> Self {
        Self::with_session(site).await.0
    }

    /// Opens a connection with a session, and returns the reply to its login.
    pub(super) async fn with_session(site: &Site) -> (Self, LoginReply) {
        Self::with_login(site, login()).await
    }

    /// Opens a connection with a session that begins with `login`, and returns the reply.
    pub(super) async fn with_login(site: &Site, login: Login) -> (Self, LoginReply) {
        let mut peer = Self::silent(site).await;
        let reply = peer.log_in(login).await;
        (peer, reply)
    }

    async fn log_in(&mut self, login: Login) -> LoginReply {
        self.send(&[HANDSHAKE.to_vec(), encode(1, protocol()), encode(2, login)].concat()).await;
        self.answer(0).await.ok();
        self.answer(1).await.ok();
        LoginReply::decode(self.answer(2).await.ok()).unwrap()
    }

    /// Sends raw bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        timeout(HANG, self.stream.write_all(bytes)).await.expect("the server takes what is sent").unwrap();
    }

    /// Sends a request and waits for the whole response.
    pub(super) async fn ask(&mut self, request: impl Into<Request>) -> XrootdResponse {
        self.ask_with(request, &[]).await
    }

    /// Sends a request with its data and waits for the whole response.
    pub(super) async fn ask_with(&mut self, request: impl Into<Request>, data: &[u8]) -> XrootdResponse {
        let mut bytes = encode(7, request);
        bytes.extend_from_slice(data);
        self.send(&bytes).await;
        self.answer(7).await
    }

    /// Receives the whole response to `stream_id`, which must be the next one.
    pub(super) async fn answer(&mut self, stream_id: u16) -> XrootdResponse {
        let (got, answer) = self.any_answer().await.expect("the connection is open");
        assert_eq!(got, StreamId::from_number(stream_id), "{answer:?}");
        answer
    }

    /// Receives the next whole response on any stream; `None` if the connection ends.
    pub(super) async fn any_answer(&mut self) -> Option<(StreamId, XrootdResponse)> {
        loop {
            let (stream_id, (response, data)) = self.response().await?;
            let pieces = self.pieces.entry(stream_id).or_default();
            let answer = match response {
                Response::OkSoFar(body) => {
                    pieces.extend_from_slice(&body);
                    continue;
                }
                Response::Ok(body) => {
                    pieces.extend_from_slice(&body);
                    XrootdResponse::Ok(pieces.split().freeze())
                }
                Response::Status(status) => {
                    pieces.extend_from_slice(&data);
                    if status.kind == StatusKind::Partial {
                        continue;
                    }
                    XrootdResponse::Status(pieces.split().freeze())
                }
                Response::Error(error) => XrootdResponse::Error(error.code, error.message),
                other => XrootdResponse::Other(other),
            };
            self.pieces.remove(&stream_id);
            return Some((stream_id, answer));
        }
    }

    /// Receives the next frame; `None` if the connection ends.
    pub(super) async fn response(&mut self) -> Option<(StreamId, (Response, Bytes))> {
        loop {
            if let Some(head) = self.framer.next().unwrap() {
                let body = loop {
                    if let Some(body) = self.framer.body().unwrap() {
                        break body;
                    }
                    self.receive().await?;
                };
                let response = match head.status {
                    Some(status) => (Response::Status(status), body),
                    None => (Response::decode(&head.header, body).unwrap(), Bytes::new()),
                };
                return Some((head.header.stream_id, response));
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Option<()> {
        let received = timeout(HANG, self.stream.read_buf(self.framer.buffer())).await.expect("the server answers");
        matches!(received, Ok(1..)).then_some(())
    }

    /// Reads `length` raw bytes.
    pub(super) async fn raw(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        timeout(HANG, self.stream.read_exact(&mut bytes)).await.expect("the server answers").unwrap();
        bytes
    }

    /// Waits until the server closes the connection, ignoring responses.
    pub(super) async fn closed(mut self) {
        while self.any_answer().await.is_some() {}
    }

    /// Waits until the server closes the connection, and panics on any response.
    pub(super) async fn closed_silently(mut self) {
        let last = self.any_answer().await;
        assert!(last.is_none(), "{last:?}");
    }

    /// Opens a file.
    pub(super) async fn open(&mut self, at: &str, options: OpenOptions) -> FileHandle {
        let reply = self.ask(open_request(at, options)).await.ok();
        OpenReply::decode(reply).unwrap().handle
    }

    pub(super) async fn close(&mut self, handle: FileHandle) -> XrootdResponse {
        self.ask(Close { handle, ending: None }).await
    }
}

/// Handshake, `protocol` on stream 1, `login` on stream 2.
pub(super) fn greeting() -> Vec<u8> {
    let mut bytes = HANDSHAKE.to_vec();
    bytes.extend(encode(1, protocol()));
    bytes.extend(encode(2, login()));
    bytes
}

pub(super) fn protocol() -> Protocol {
    let flags = ProtocolRequestFlags::secreqs;
    Protocol { client_version: PROTOCOL_VERSION, flags, expect: Expect::ExpLogin }
}

pub(super) fn login() -> Login {
    Login { pid: 1, user: Login::pad_user("tester"), capver: Login::VERSION_TLS, ..Login::default() }
}

pub(super) fn open_request(at: &str, options: OpenOptions) -> Open {
    Open { options, path: PathAndCgi::new(Bytes::copy_from_slice(at.as_bytes())), ..Open::default() }
}

pub(super) fn encode(stream_id: u16, request: impl Into<Request>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    request.into().encode(StreamId::from_number(stream_id), &mut bytes);
    bytes.to_vec()
}

/// Returns content in which each byte depends on its offset.
pub(super) fn content(length: usize) -> Vec<u8> {
    towpath_testkit::pattern::Pattern::new(1).bytes(0, length).to_vec()
}
