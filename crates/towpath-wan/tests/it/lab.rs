//! Helpers of the tests: a WAN if permitted, clocks, echo requests, and a transfer whose every byte is checked.
#![allow(clippy::disallowed_methods, reason = "the sockets must be made in the hosts, by std's own calls")]

use std::{
    env,
    io::{Read as _, Write as _},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, ipproto, recv, sendto, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
    time::{ClockId, clock_gettime},
};
use towpath_wan::{Builder, Host, HostIndex, LinkCounters, LinkName, LinkSettings, Rate, Wan};

/// Timeout that only a hang exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Builds the emulator; without root returns `None` with a message, or fails if `TOWPATH_REQUIRE_PEERS` is set, as by
/// `make test`.
pub(crate) fn wan(builder: Builder) -> Option<Wan> {
    is_root().then(|| builder.build().expect("root can make a WAN"))
}

#[allow(clippy::disallowed_methods, reason = "this crate does not depend on towpath-store")]
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(env::var_os("TOWPATH_REQUIRE_PEERS").is_none(), "the WAN emulator is to be tested, and needs root");
        eprintln!("SKIPPED: the WAN emulator needs root");
    }
    is_root
}

pub(crate) fn host(number: u8) -> HostIndex {
    HostIndex::from_number(number).unwrap()
}

/// A link with that rate and one-way delay.
pub(crate) fn link(mbit_per_s: u32, delay_ms: u64) -> LinkSettings {
    LinkSettings {
        rate: Some(Rate::from_mbit_per_s(mbit_per_s)),
        delay: Duration::from_millis(delay_ms),
        ..LinkSettings::default()
    }
}

pub(crate) fn counters(wan: &Wan, name: LinkName) -> LinkCounters {
    let report = wan.report().unwrap();
    report.network.links.iter().find(|report| report.link == name).unwrap().counters
}

pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// Returns the round trips of ICMP echo requests from a host to an address, to which its kernel responds.
pub(crate) fn ping(from: &Host, to: &Host, count: u16) -> Vec<Duration> {
    let to = SocketAddrV4::new(to.address(), 0);
    from.within(move || {
        let socket =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP)).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        (0..count).map(|sequence| echo(&socket, &to, sequence)).collect()
    })
    .unwrap()
}

fn echo(socket: &rustix::fd::OwnedFd, to: &SocketAddrV4, sequence: u16) -> Duration {
    let [high, low] = sequence.to_be_bytes();
    // Type 8, code 0, checksum, identifier 0x7077, sequence number.
    let mut request = [8, 0, 0, 0, 0x70, 0x77, high, low];
    let sum = 0x0800 + 0x7077 + u32::from(sequence);
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    request[2..4].copy_from_slice(&checksum.to_be_bytes());
    let begin = now();
    sendto(socket, &request, SendFlags::empty(), to).unwrap();
    loop {
        let mut answer = [0; 100];
        let (bytes, _) = recv(socket, &mut answer, RecvFlags::empty()).expect("an answer");
        // The IP header comes first; requests sent by the other side are received too.
        if answer[..bytes].get(20) == Some(&0) && answer[24..28] == request[4..8] {
            return now() - begin;
        }
    }
}

/// Content is a function of the offset, so that a misplaced byte is detected.
fn byte_at(offset: usize) -> u8 {
    let word = (offset / 8) as u64;
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[offset % 8]
}

/// A transfer in flight; the receiver reports the arrival of the first byte.
pub(crate) struct Transfer {
    begin: Duration,
    pub(crate) began: mpsc::Receiver<()>,
    receiver: JoinHandle<Duration>,
    sender: JoinHandle<()>,
}

impl Transfer {
    /// Sends `bytes` bytes over TCP to `address` of the host `to`.
    pub(crate) fn start(from: &Host, to: &Host, address: IpAddr, bytes: usize) -> Self {
        let listener = to.within(move || TcpListener::bind((address, 0)).unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, began) = mpsc::channel();
        let receiver = to.within(move || thread::spawn(move || receive(&listener, bytes, &tell))).unwrap();
        let begin = now();
        let sender = from.within(move || thread::spawn(move || send(address, port, bytes))).unwrap();
        Self { begin, began, receiver, sender }
    }

    /// Waits for the last byte; returns the time since the start.
    pub(crate) fn finish(self) -> Duration {
        self.sender.join().unwrap();
        self.receiver.join().unwrap() - self.begin
    }
}

fn send(address: IpAddr, port: u16, bytes: usize) {
    let mut stream = TcpStream::connect((address, port)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let content: Vec<u8> = (0..bytes).map(byte_at).collect();
    stream.write_all(&content).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Checks every byte and the end; returns the arrival time of the last byte.
fn receive(listener: &TcpListener, bytes: usize, tell: &mpsc::Sender<()>) -> Duration {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut block, mut received) = (vec![0; 1 << 16], 0);
    loop {
        let count = stream.read(&mut block).unwrap();
        if count == 0 {
            break;
        }
        if received == 0 {
            // Most tests do not wait for it.
            let _ = tell.send(());
        }
        for (index, byte) in block[..count].iter().enumerate() {
            assert_eq!(*byte, byte_at(received + index), "at {}", received + index);
        }
        received += count;
    }
    assert_eq!(received, bytes);
    now()
}
