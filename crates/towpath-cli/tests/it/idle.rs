//! Ten thousand idle connections: their cost, and the service of other clients meanwhile.
//!
//! The server is a separate process, so that both ends of the connections do not share one descriptor limit, and its
//! memory can be measured.

use std::{net::SocketAddr, time::Duration};

use bytes::BytesMut;
use futures::{StreamExt as _, stream};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use towpath_proto::xrootd::{
    Expect, PROTOCOL_VERSION, ProtocolRequestFlags, Request, StreamId,
    handshake::HANDSHAKE,
    request::{Login, Ping, Protocol},
};
use towpath_store::sys::net;

use super::program::ServerProcess;

const CONNECTIONS: u64 = 10_000;
/// Descriptors that the test needs in addition to its connections.
const OTHER_DESCRIPTORS: u64 = 200;
/// Number of connections opened concurrently.
const AT_ONCE: usize = 128;
/// Maximum memory of the server per connection. Measured on Linux 6, debug build: 5.7 KB (xroot), 31 KB (HTTP, most of
/// it hyper's buffers).
const LIMIT_BYTES: u64 = 64 << 10;
/// Timeout of each step; only a hang takes this long.
const HANG: Duration = Duration::from_secs(30);

/// A protocol: the first and the later messages of a client, and the end of the responses.
struct Face {
    name: &'static str,
    hello: Vec<u8>,
    question: Vec<u8>,
    answer_ends: &'static [u8],
}

fn xrootd() -> Face {
    let frame = |number, request: Request| {
        let mut bytes = BytesMut::new();
        request.encode(StreamId::from_number(number), &mut bytes);
        bytes.to_vec()
    };
    let (flags, expect) = (ProtocolRequestFlags::secreqs, Expect::ExpLogin);
    let protocol = Protocol { client_version: PROTOCOL_VERSION, flags, expect };
    let login = Login { pid: 1, user: Login::pad_user("idle"), capver: Login::VERSION_TLS, ..Login::default() };
    let ping = frame(0x0a0a, Ping.into());
    let hello = [HANDSHAKE.to_vec(), frame(1, protocol.into()), frame(2, login.into()), ping.clone()].concat();
    Face { name: "xroot", hello, question: ping, answer_ends: b"\x0a\x0a\0\0\0\0\0\0" }
}

fn http() -> Face {
    let question = b"HEAD / HTTP/1.1\r\nHost: towpath\r\n\r\n".to_vec();
    Face { name: "HTTP", hello: question.clone(), question, answer_ends: b"\r\n\r\n" }
}

impl Face {
    async fn connect(&self, address: SocketAddr) -> TcpStream {
        let mut stream = net::connect(address).await.unwrap();
        self.ask(&mut stream, &self.hello).await;
        stream
    }

    async fn ask(&self, stream: &mut TcpStream, question: &[u8]) {
        let exchange = async {
            stream.write_all(question).await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(self.answer_ends) {
                assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "{} closed the connection", self.name);
            }
        };
        timeout(HANG, exchange).await.expect("the server answers");
    }
}

/// Returns the number of connections that the server permits one address and the system permits this process, at most
/// [`CONNECTIONS`]: three quarters of the descriptors of a server are for connections, and slightly more than three
/// quarters of these for one address.
fn connections() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    CONNECTIONS.min(limit.current.map_or(CONNECTIONS, |limit| (limit / 20 * 11).saturating_sub(OTHER_DESCRIPTORS)))
}

#[tokio::test]
async fn ten_thousand_idle_connections_are_held() {
    let directory = tempfile::tempdir().unwrap();
    let number = connections();
    for face in [xrootd(), http()] {
        let served = ServerProcess::start(directory.path());
        face.connect(served.address).await;
        let before = served.resident_bytes();
        let connecting = stream::iter(0..number).map(|_| face.connect(served.address)).buffer_unordered(AT_ONCE);
        let mut idle: Vec<TcpStream> = connecting.collect().await;
        let each = served.resident_bytes().saturating_sub(before) / number;
        println!("{} face: {number} idle connections, {each} bytes of resident memory each", face.name);
        face.connect(served.address).await;
        for stream in idle.iter_mut().step_by(100) {
            face.ask(stream, &face.question).await;
        }
        assert!(each < LIMIT_BYTES, "an idle connection to the {} face costs {each} bytes", face.name);
    }
}
