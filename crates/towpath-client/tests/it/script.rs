//! A server that answers as a test says, request by request.

use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, PROTOCOL_VERSION, Request, RequestCode, RequestFramer, Response, ServerFlags, SessionId,
    StatFlags, StreamId,
    handshake::HandshakeReply,
    page,
    request::Limits,
    response::{self, Body, EntryChecksum, LoginReply, OpenReply, PgReadStatus, ProtocolReply, StatInfo, StatusKind},
};
use towpath_store::sys::net;

/// Nothing here takes so long unless it hangs.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// Where a scripted server listens.
pub(crate) struct Script {
    listener: TcpListener,
    pub(crate) port: u16,
}

impl Script {
    pub(crate) fn listen() -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = tokio::time::timeout(HANG, self.listener.accept()).await.expect("nobody connects").unwrap();
        Peer { stream, framer: RequestFramer::new(Limits::default()), out: BytesMut::new() }
    }

    /// The next connection, whose first flight is the handshake, `protocol`, `login` and `then`. Nothing is answered
    /// before all of them have come; then all but `then` are, and the ids of those are given.
    pub(crate) async fn first_flight(&self, then: &[RequestCode]) -> (Peer, Vec<(StreamId, Request)>) {
        let mut peer = self.accept().await;
        let (protocol, request) = peer.next().await;
        assert!(matches!(request, Request::Protocol(_)), "{request:?}");
        let (login, request) = peer.next().await;
        assert!(matches!(request, Request::Login(_)), "{request:?}");
        let requests = peer.expect(then).await;
        peer.welcome(protocol, login, ServerFlags::isServer | ServerFlags::suppgrw);
        (peer, requests)
    }
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    framer: RequestFramer,
    out: BytesMut,
}

impl Peer {
    /// The next request; its data, if it has any, are dropped.
    pub(crate) async fn next(&mut self) -> (StreamId, Request) {
        let (stream_id, request, _) = self.next_with_data().await;
        (stream_id, request)
    }

    /// Returns the next request and its data. Pings of the client during a long wait are skipped.
    pub(crate) async fn next_with_data(&mut self) -> (StreamId, Request, BytesMut) {
        loop {
            let next = self.next_of_all().await;
            if next.1.code() != RequestCode::ping {
                return next;
            }
        }
    }

    /// The next request and its data, whatever it is.
    pub(crate) async fn next_of_all(&mut self) -> (StreamId, Request, BytesMut) {
        loop {
            if let Some(incoming) = self.framer.next().unwrap() {
                let mut data = BytesMut::new();
                while self.framer.bulk_remaining() > 0 {
                    data.extend_from_slice(&self.framer.take_bulk(usize::MAX));
                    if self.framer.bulk_remaining() > 0 {
                        self.receive().await;
                    }
                }
                return (incoming.header.stream_id, incoming.request.unwrap(), data);
            }
            self.receive().await;
        }
    }

    async fn receive(&mut self) {
        let received = tokio::time::timeout(HANG, self.stream.read_buf(self.framer.buffer())).await;
        assert!(received.expect("nothing comes").unwrap() > 0, "the client hung up");
    }

    /// Returns the next requests, which must be of these kinds. An unexpected query of the kind of server is rejected,
    /// as by a server other than towpath.
    pub(crate) async fn expect(&mut self, codes: &[RequestCode]) -> Vec<(StreamId, Request)> {
        let mut requests = Vec::new();
        for code in codes {
            let (mut stream_id, mut request) = self.next().await;
            if request.code() == RequestCode::query && *code != RequestCode::query {
                self.refuse(stream_id, ErrorCode::ArgInvalid);
                (stream_id, request) = self.next().await;
            }
            assert_eq!(request.code(), *code, "{request:?}");
            requests.push((stream_id, request));
        }
        requests
    }

    /// The answers to handshake, `protocol` and `login`; sent with the next [`Self::send`].
    pub(crate) fn welcome(&mut self, protocol: StreamId, login: StreamId, flags: ServerFlags) {
        self.ok(StreamId::ZERO, &HandshakeReply { protocol_version: PROTOCOL_VERSION, server_type: 1 });
        self.ok(protocol, &ProtocolReply { version: PROTOCOL_VERSION, flags, ..ProtocolReply::default() });
        self.ok(login, &LoginReply { session_id: SessionId([9; 16]), ..LoginReply::default() });
    }

    pub(crate) fn ok(&mut self, stream_id: StreamId, body: &impl Body) {
        response::ok(stream_id, body, &mut self.out);
    }

    /// Sends a part of a response.
    pub(crate) fn part(&mut self, stream_id: StreamId, body: &impl Body) {
        response::oksofar(stream_id, body, &mut self.out);
    }

    pub(crate) fn respond(&mut self, stream_id: StreamId, response: &Response) {
        response.encode(stream_id, &mut self.out);
    }

    pub(crate) fn refuse(&mut self, stream_id: StreamId, code: ErrorCode) {
        response::error(stream_id, code, "refused by the script", &mut self.out);
    }

    /// The answer to an open.
    pub(crate) fn opened(&mut self, stream_id: StreamId, handle: u32, size: usize) {
        self.opened_as(stream_id, handle, size, None);
    }

    /// The answer to an open, with a known checksum `name:value`.
    pub(crate) fn opened_with_checksum(&mut self, stream_id: StreamId, handle: u32, size: usize, checksum: &str) {
        let (algorithm, value) = checksum.split_once(':').unwrap();
        let checksum = EntryChecksum { algorithm: algorithm.into(), value: value.into() };
        self.opened_as(stream_id, handle, size, Some(checksum));
    }

    fn opened_as(&mut self, stream_id: StreamId, handle: u32, size: usize, checksum: Option<EntryChecksum>) {
        let handle = FileHandle(handle.to_le_bytes());
        self.ok(stream_id, &OpenReply { handle, stat: Some(Self::stat_of(size)), checksum, present: None });
    }

    /// Returns the metadata of a file of `size` bytes that is opened.
    pub(crate) fn stat_of(size: usize) -> StatInfo {
        let flags = StatFlags::readable;
        StatInfo { id: 1, size: size as u64, flags, mtime: 1_700_000_000, ..StatInfo::default() }
    }

    /// Responds to a pgread; `damage` is applied to the bytes on the wire.
    pub(crate) fn pages(&mut self, stream_id: StreamId, offset: u64, data: &[u8], damage: impl FnOnce(&mut [u8])) {
        let mut encoded = BytesMut::new();
        page::encode(offset, data, &mut encoded);
        damage(&mut encoded);
        let status = PgReadStatus { kind: StatusKind::Final, offset, data_len: encoded.len() as u32 };
        self.out.extend_from_slice(&status.to_bytes(stream_id));
        self.out.extend_from_slice(&encoded);
    }

    pub(crate) fn raw(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Sends the answers so far.
    pub(crate) async fn send(&mut self) {
        let out = self.out.split();
        self.stream.write_all(&out).await.unwrap();
    }

    /// As [`Self::send`]; whether the client is still there.
    pub(crate) async fn try_send(&mut self) -> bool {
        let out = self.out.split();
        self.stream.write_all(&out).await.is_ok()
    }
}
