//! What the emulator does with ping and one TCP connection, as JSON lines: `wan_figures RATE_MBIT RTT_MS SECONDS [LOSS [CONGESTION_CONTROL]]`.
//!
//! For figures that are worth keeping the machine must be otherwise idle. Rates are of payload, without the first half of the time. A rate of 0 is
//! unlimited: what comes out then is the highest rate of this machine.
#![allow(clippy::disallowed_methods, reason = "the sockets must be made in the hosts, by std's own calls")]

use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, ipproto, recv, sendto, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
    time::{ClockId, clock_gettime},
};
use towpath_wan::{Host, LinkSettings, Queue, Rate, Wan};

const PINGS: u16 = 50;

/// The longest round trip that is measured.
const PATIENCE: Duration = Duration::from_secs(2);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).map_or(Ok(0.0), |text| text.parse::<f64>());
    let (rate_mbit, rtt_ms, seconds, loss) = (number(0)?, number(1)?, number(2)?, number(3)?);
    let settings = LinkSettings {
        rate: Rate::from_bits_per_s((rate_mbit * 1e6) as u64),
        delay: Duration::from_secs_f64(rtt_ms / 2e3),
        queue: Queue::Bdp,
        loss,
        ..LinkSettings::default()
    };
    // Enough for 10 Gbit/s and 200 ms, with the kernel's overhead.
    let mut builder = Wan::builder().pairs(settings).most_buffer(1 << 30);
    if let Some(name) = arguments.get(4) {
        builder = builder.congestion_control(name.as_str());
    }
    let wan = builder.build()?;
    let [first, second] = wan.hosts() else { return Err("two hosts were asked for".into()) };
    let mut trips_ms = ping(first, second)?;
    trips_ms.sort_by(f64::total_cmp);
    let payload_mbit = stream(first, second, Duration::from_secs_f64(seconds))?;
    let report = wan.report()?;
    let overruns: u64 = report.hosts.iter().map(|host| host.overruns).sum();
    let figures = serde_json::json!({
        "rate_mbit": rate_mbit, "rtt_ms": rtt_ms, "loss": loss, "seconds": seconds,
        "ping_ms": { "least": trips_ms.first(), "median": trips_ms.get(trips_ms.len() / 2), "most": trips_ms.last() },
        "payload_mbit": payload_mbit,
        "overruns": overruns,
        "engine": report.network.engine,
        "link": report.network.links.first().map(|link| link.counters),
    });
    println!("{figures}");
    Ok(())
}

fn now_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Round trips of ICMP echo requests in ms.
fn ping(from: &Host, to: &Host) -> Outcome<Vec<f64>> {
    let to = SocketAddrV4::new(to.address(), 0);
    from.within(move || {
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let mut trips_ms = Vec::new();
        for sequence in 0..PINGS {
            let [high, low] = sequence.to_be_bytes();
            let checksum = !(0x0800 + 0x7077 + sequence);
            let [sum_high, sum_low] = checksum.to_be_bytes();
            let begin_s = now_s();
            sendto(&socket, &[8, 0, sum_high, sum_low, 0x70, 0x77, high, low], SendFlags::empty(), &to)?;
            let mut answer = [0; 64];
            // What is lost is left out.
            while recv(&socket, &mut answer, RecvFlags::empty()).is_ok() {
                if answer[20] == 0 && answer[26..28] == [high, low] {
                    trips_ms.push((now_s() - begin_s) * 1e3);
                    break;
                }
            }
        }
        Outcome::Ok(trips_ms)
    })?
}

/// The payload in Mbit/s that one connection has in the second half of the time.
fn stream(from: &Host, to: &Host, length: Duration) -> Outcome<f64> {
    let address = to.address();
    let listener = to.within(move || TcpListener::bind((address, 0)))??;
    let port = listener.local_addr()?.port();
    let send = move || {
        let mut stream = TcpStream::connect((address, port))?;
        let block = vec![1; 1 << 20];
        // Until the receiver has enough.
        while stream.write_all(&block).is_ok() {}
        std::io::Result::Ok(())
    };
    let sender = from.within(move || thread::spawn(send))?;
    let receive = move || {
        let (mut stream, _) = listener.accept()?;
        let mut block = vec![0; 1 << 20];
        let (begin_s, half_s) = (now_s(), length.as_secs_f64() / 2.0);
        let (mut counted_from_s, mut counted_bytes) = (None, 0);
        loop {
            let bytes = stream.read(&mut block)?;
            let now_s = now_s();
            match counted_from_s {
                None if now_s - begin_s >= half_s => counted_from_s = Some(now_s),
                None => {}
                Some(from_s) => {
                    counted_bytes += bytes;
                    if now_s - begin_s >= 2.0 * half_s {
                        return Outcome::Ok(counted_bytes as f64 * 8.0 / (now_s - from_s) / 1e6);
                    }
                }
            }
        }
    };
    let payload_mbit = to.within(move || thread::spawn(receive))?.join().map_err(|_| "the receiver panicked")??;
    sender.join().map_err(|_| "the sender panicked")??;
    Ok(payload_mbit)
}
