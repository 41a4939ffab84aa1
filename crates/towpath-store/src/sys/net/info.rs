//! Kernel statistics of a TCP connection: `TCP_INFO` of tcp(7), laid out as in `linux/tcp.h`.

#![allow(unsafe_code, reason = "getsockopt has no safe form for this option")]

use std::{fs, io, mem::size_of, os::fd::AsRawFd, sync::OnceLock, time::Duration};

use towpath_proto::tcp::{CongestionControl, TcpInfo};

/// Number of bytes of `struct tcp_info` that are read; older kernels fill in fewer, and the rest stays zero.
const INFO_BYTES: usize = 232;

/// Maximum length of the name of a congestion control in bytes (`TCP_CA_NAME_MAX`).
const CONTROL_BYTES: usize = 16;

/// Returns the kernel's statistics of the connection `socket`.
///
/// # Errors
/// Errors of the system: it is not a TCP socket.
pub fn tcp_info(socket: &impl AsRawFd) -> io::Result<TcpInfo> {
    let bytes: [u8; INFO_BYTES] = option(socket, libc::TCP_INFO)?;
    let name: [u8; CONTROL_BYTES] = option(socket, libc::TCP_CONGESTION)?;
    let name = name.split(|byte| *byte == 0).next().and_then(|name| std::str::from_utf8(name).ok());
    let control = name.map_or(CongestionControl::Other, CongestionControl::of_name);
    let [most_send_buffer, most_receive_buffer] = most_buffers();
    Ok(TcpInfo { control, most_send_buffer, most_receive_buffer, ..from_bytes(&bytes) })
}

/// Returns how many times in a row the kernel has retransmitted the oldest unacknowledged bytes. The wait doubles each
/// time, starting with a round trip and at least 200 ms. Acknowledgements are sent by the peer's kernel, independent of
/// its program.
///
/// # Errors
/// Errors of the system: it is not a TCP socket.
pub fn vain_resends(socket: &impl AsRawFd) -> io::Result<u8> {
    let [.., resends] = option::<3>(socket, libc::TCP_INFO)?;
    Ok(resends)
}

/// Sets the congestion control of the connection `socket`.
///
/// # Errors
/// Errors of the system: it is not available, or not permitted (`net.ipv4.tcp_allowed_congestion_control`).
pub(super) fn set_control(socket: &impl AsRawFd, control: CongestionControl) -> io::Result<()> {
    let name = control.name();
    let (from, length) = (name.as_ptr().cast(), name.len() as libc::socklen_t);
    // SAFETY: the kernel reads at most `length` bytes of `name`, which lives throughout the call.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, from, length) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn option<const N: usize>(socket: &impl AsRawFd, name: libc::c_int) -> io::Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    let mut length = size_of::<[u8; N]>() as libc::socklen_t;
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which lives throughout the call, and then how many
    // it wrote to `length`.
    let outcome = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, to, &raw mut length) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes) }
}

/// Returns the kernel's maximum automatic send and receive buffers in bytes; zero if unknown. They are read once, at
/// the first call.
fn most_buffers() -> [u64; 2] {
    static MOST: OnceLock<[u64; 2]> = OnceLock::new();
    let read = |name| {
        let triple = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        triple.split_ascii_whitespace().nth(2).and_then(|most| most.parse().ok()).unwrap_or(0)
    };
    *MOST.get_or_init(|| ["tcp_wmem", "tcp_rmem"].map(read))
}

fn from_bytes(bytes: &[u8; INFO_BYTES]) -> TcpInfo {
    let word = |at: usize| u64::from(u32::from_ne_bytes(field(bytes, at)));
    let long = |at: usize| u64::from_ne_bytes(field(bytes, at));
    let micros = Duration::from_micros;
    // An unmeasured round trip is all ones.
    let min_rtt = Some(word(148)).filter(|micros| *micros != u64::from(u32::MAX));
    let (threshold, window) = (word(76), word(80));
    TcpInfo {
        min_rtt: micros(min_rtt.unwrap_or(0)),
        rtt: micros(word(68)),
        congestion_window: window * word(16),
        slow_start_threshold: threshold * word(16),
        peer_window: word(228),
        received: long(128),
        out_of_order: word(224),
        acknowledged: long(120),
        sent: long(200),
        resent: long(208),
        delivery_rate: long(160),
        busy: micros(long(168)),
        limited_by_peer: micros(long(176)),
        limited_by_buffer: micros(long(184)),
        // BBR sets the threshold at the end of its startup too.
        is_in_slow_start: window < threshold,
        is_starved: word(144) == 0 && word(24) < window,
        ..TcpInfo::default()
    }
}

fn field<const N: usize>(bytes: &[u8; INFO_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes.get(at + index).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::{connect, listen};
    use super::*;

    #[tokio::test]
    async fn the_kernel_counts_what_was_sent_and_received() {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let mut near = connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(&[7; 100_000]).await.unwrap();
        far.read_exact(&mut vec![0; 100_000]).await.unwrap();
        far.write_all(&[7; 1000]).await.unwrap();
        near.read_exact(&mut [0; 1000]).await.unwrap();
        let info = tcp_info(&near).unwrap();
        assert_eq!((info.acknowledged, info.sent, info.resent, info.received), (100_001, 100_000, 0, 1000));
        assert!(info.min_rtt > Duration::ZERO && info.min_rtt < Duration::from_secs(1), "{info:?}");
        assert!(info.min_rtt <= info.rtt * 2, "{info:?}");
        assert!(info.congestion_window >= 10 * 500 && info.peer_window > 0, "{info:?}");
        assert!(info.delivery_rate > 0, "{info:?}");
        assert!(info.is_in_slow_start, "{info:?}");
        assert!(info.most_send_buffer >= 4096 && info.most_receive_buffer >= 4096, "{info:?}");
    }

    #[test]
    fn only_tcp_sockets_tell() {
        assert!(tcp_info(&std::io::stdin()).is_err());
    }
}
