//! Load on an XRootD server, ours or another: the same requests from several connections, several in flight on each.
//!
//! `xroot_load HOST:PORT PATH SIZE CLIENTS DEPTH SECONDS (read|readv|mixed|stat)` prints one JSON object:
//! requests, bytes received, seconds, and latencies (mean, median, 99th percentile) in microseconds.
//!
//! Reads have random offsets in the file PATH of SIZE bytes; `mixed` draws small reads, large reads and vectors with
//! equal probability. `stat` draws random entries of the directory PATH, which has SIZE of them: `f000000`, `f000001`
//! and so on.
//!
//! All servers get the same load from the same program, so that their figures can be compared. Data are received and
//! dropped.

use std::{
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use towpath_proto::xrootd::{
    FileHandle, OpenOptions, PathAndCgi, Request, ResponseFramer, StatOptions, Status, StreamId, Target, VectorElement,
    handshake::HANDSHAKE,
    request::{Login, Open, Protocol, Read, Readv, Stat},
    response::{Body as _, OpenReply},
};
use towpath_store::sys::{clock, net};

/// Bytes of a small read.
const READ_BYTES: u32 = 4096;
/// Size of the receive buffer: with a smaller one the client, not the server, would be the bottleneck.
const RECEIVE_BYTES: usize = 256 << 10;
/// Bytes of a large read, as in a copy.
const LARGE_READ_BYTES: u32 = 1 << 20;
/// A vector as the analysis of a few branches sends it.
const VECTOR: (usize, u32) = (1024, 1536);

/// The kind of request to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Readv,
    Mixed,
    Stat,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone)]
struct Plan {
    address: SocketAddr,
    path: Bytes,
    size: u64,
    clients: u64,
    depth: u16,
    time: Duration,
    kind: Kind,
}

fn plan() -> Option<Plan> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, size, clients, depth, seconds, kind] = arguments.as_slice() else { return None };
    Some(Plan {
        address: address.parse().ok()?,
        path: Bytes::from(path.clone().into_bytes()),
        size: size.parse().ok()?,
        clients: clients.parse().ok()?,
        depth: depth.parse().ok()?,
        time: Duration::from_secs_f64(seconds.parse().ok()?),
        kind: match kind.as_str() {
            "read" => Kind::Read,
            "readv" => Kind::Readv,
            "mixed" => Kind::Mixed,
            "stat" => Kind::Stat,
            _ => return None,
        },
    })
}

/// A small generator (xorshift64*): the offsets are the same for every server.
struct Offsets(u64);

impl Offsets {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % below
    }
}

struct Client {
    stream: TcpStream,
    framer: ResponseFramer,
    handle: FileHandle,
    offsets: Offsets,
}

impl Client {
    async fn open(plan: &Plan, number: u64) -> Result<Self, Failure> {
        let mut stream = net::connect(plan.address).await?;
        let mut out = BytesMut::from(&HANDSHAKE[..]);
        let open =
            Open { options: OpenOptions::open_read, path: PathAndCgi::new(plan.path.clone()), ..Open::default() };
        let login = Login { user: Login::pad_user("load"), capver: Login::VERSION_TLS, ..Login::default() };
        Request::Protocol(Protocol { client_version: 0x520, ..Protocol::default() })
            .encode(StreamId::from_number(1), &mut out);
        Request::Login(login).encode(StreamId::from_number(2), &mut out);
        // The connection is ready after the last of these responses.
        let last = if plan.kind == Kind::Stat { 2 } else { 3 };
        if plan.kind != Kind::Stat {
            Request::Open(open).encode(StreamId::from_number(3), &mut out);
        }
        stream.write_all(&out).await?;
        let offsets = Offsets(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut client = Self { stream, framer: ResponseFramer::new(1 << 20), handle: FileHandle::default(), offsets };
        loop {
            let (stream_id, status, body) = client.answer().await?;
            if status != Status::ok {
                return Err(format!("the server answered {status:?}: {}", String::from_utf8_lossy(&body)).into());
            }
            if stream_id == StreamId::from_number(last) {
                if plan.kind != Kind::Stat {
                    client.handle = OpenReply::decode(body)?.handle;
                }
                return Ok(client);
            }
        }
    }

    /// One whole answer; its body is kept (set-up only).
    async fn answer(&mut self) -> Result<(StreamId, Status, Bytes), Failure> {
        let head = loop {
            if let Some(head) = self.framer.next()? {
                break head;
            }
            self.receive().await?;
        };
        loop {
            if let Some(body) = self.framer.body()? {
                return Ok((head.header.stream_id, head.header.status, body));
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        let buffer = self.framer.buffer();
        if buffer.capacity() - buffer.len() < RECEIVE_BYTES / 2 {
            buffer.reserve(RECEIVE_BYTES);
        }
        if self.stream.read_buf(buffer).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    fn request(&mut self, plan: &Plan, stream_id: u16, out: &mut BytesMut) {
        let request = match plan.kind {
            Kind::Read => self.read(plan.size, READ_BYTES),
            Kind::Readv => self.vector(plan.size),
            Kind::Stat => self.stat(plan),
            Kind::Mixed => match self.offsets.next(3) {
                0 => self.read(plan.size, READ_BYTES),
                1 => self.read(plan.size, LARGE_READ_BYTES),
                _ => self.vector(plan.size),
            },
        };
        request.encode(StreamId::from_number(stream_id), out);
    }

    /// One aligned read at a random place.
    fn read(&mut self, file_bytes: u64, length: u32) -> Request {
        let offset = self.offsets.next(file_bytes / u64::from(length)) * u64::from(length);
        Request::Read(Read { handle: self.handle, offset, length, ..Read::default() })
    }

    fn vector(&mut self, file_bytes: u64) -> Request {
        let handle = self.handle;
        let elements = (0..VECTOR.0).map(|_| {
            let offset = self.offsets.next(file_bytes - u64::from(VECTOR.1));
            VectorElement { handle, length: VECTOR.1, offset }
        });
        Request::Readv(Readv { elements: elements.collect(), ..Readv::default() })
    }

    fn stat(&mut self, plan: &Plan) -> Request {
        let name = format!("{}/f{:06}", String::from_utf8_lossy(&plan.path), self.offsets.next(plan.size));
        let target = Target::Path(PathAndCgi::new(name.into_bytes()));
        Request::Stat(Stat { options: StatOptions::default(), wants: 0, wants_node: false, target })
    }

    /// Keeps `depth` requests in flight until `end`, and gives the latency of each and the bytes received.
    async fn load(mut self, plan: Plan, end: clock::Instant) -> Result<(Vec<u32>, u64), Failure> {
        let mut sent = vec![Instant::from(clock::now()); usize::from(plan.depth)];
        let mut latencies = Vec::new();
        let mut bytes = 0;
        let mut out = BytesMut::new();
        for stream_id in 0..plan.depth {
            self.request(&plan, stream_id, &mut out);
        }
        self.stream.write_all(&out).await?;
        let mut outstanding = plan.depth;
        let mut current = None;
        while outstanding > 0 {
            self.receive().await?;
            out.clear();
            loop {
                if current.is_none() {
                    current = self.framer.next()?.map(|head| head.header);
                }
                let Some(header) = current else { break };
                bytes += self.framer.take(usize::MAX).len() as u64;
                if self.framer.remaining() > 0 {
                    break;
                }
                current = None;
                let slot = usize::from(header.stream_id.number());
                match header.status {
                    Status::oksofar => continue,
                    Status::ok => {}
                    other => return Err(format!("a request was answered with {other:?}").into()),
                }
                let now = Instant::from(clock::now());
                latencies.push(u32::try_from(now.duration_since(sent[slot]).as_micros()).unwrap_or(u32::MAX));
                if now < Instant::from(end) {
                    sent[slot] = now;
                    self.request(&plan, header.stream_id.number(), &mut out);
                } else {
                    outstanding -= 1;
                }
            }
            if !out.is_empty() {
                self.stream.write_all(&out).await?;
            }
        }
        Ok((latencies, bytes))
    }
}

async fn run(plan: Plan) -> Result<serde_json::Value, Failure> {
    let mut clients = Vec::new();
    for number in 1..=plan.clients {
        clients.push(Client::open(&plan, number).await?);
    }
    let start = clock::now();
    let end = start + plan.time;
    let tasks: Vec<_> = clients.into_iter().map(|client| tokio::spawn(client.load(plan.clone(), end))).collect();
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    for task in tasks {
        let (more, received) = task.await??;
        latencies.extend(more);
        bytes += received;
    }
    let seconds = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let mean = latencies.iter().map(|us| f64::from(*us)).sum::<f64>() / latencies.len() as f64;
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Ok(serde_json::json!({
        "requests": latencies.len(), "bytes": bytes, "seconds": seconds,
        "mean_us": mean, "median_us": at(0.5), "p99_us": at(0.99),
    }))
}

fn main() -> ExitCode {
    let Some(plan) = plan() else {
        eprintln!("usage: xroot_load HOST:PORT PATH SIZE CLIENTS DEPTH SECONDS (read|readv|mixed|stat)");
        return ExitCode::from(2);
    };
    // One thread: the load must not take the processor that the server needs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(plan))) {
        Ok(outcome) => {
            println!("{outcome}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xroot_load: {error}");
            ExitCode::FAILURE
        }
    }
}
