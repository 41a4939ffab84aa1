//! What the kernel knows of a TCP connection: `TCP_INFO` of tcp(7), laid out as in `linux/tcp.h`.

#![allow(unsafe_code, reason = "getsockopt has no safe form for this option")]

use std::{io, mem::size_of, os::fd::AsRawFd, time::Duration};

/// Bytes of `struct tcp_info` that are read here; older kernels fill in less, and the rest stays zero.
const INFO_BYTES: usize = 232;

/// One look at a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// The smallest round trip of the last minutes; zero if none has been measured.
    pub min_rtt: Duration,
    /// The smoothed round trip.
    pub rtt: Duration,
    /// What may be in flight from here, in bytes: the congestion window.
    pub congestion_window: u64,
    /// What the other end permits to be in flight, in bytes.
    pub peer_window: u64,
    /// Bytes received, in order.
    pub received: u64,
    /// Bytes sent that were acknowledged.
    pub acknowledged: u64,
    /// Bytes sent, those sent again included.
    pub sent: u64,
    /// Bytes sent again.
    pub resent: u64,
    /// How fast the last bytes were delivered, in bytes per second.
    pub delivery_rate: u64,
    /// How long there was something to send.
    pub busy: Duration,
    /// How long of it the other end's window held it up.
    pub limited_by_peer: Duration,
    /// How long of it the own send buffer held it up (`net.ipv4.tcp_wmem`).
    pub limited_by_buffer: Duration,
}

/// Asks the kernel about the connection `socket`.
///
/// # Errors
/// The system's: it is no TCP socket.
pub fn tcp_info(socket: &impl AsRawFd) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; INFO_BYTES];
    let mut length = size_of::<[u8; INFO_BYTES]>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which lives throughout the call, and then how many it wrote to `length`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(TcpInfo::from_bytes(&bytes)) }
}

impl TcpInfo {
    fn from_bytes(bytes: &[u8; INFO_BYTES]) -> Self {
        let word = |at: usize| u64::from(u32::from_ne_bytes(field(bytes, at)));
        let long = |at: usize| u64::from_ne_bytes(field(bytes, at));
        let micros = Duration::from_micros;
        // A window that has not been measured yet is all ones.
        let min_rtt = Some(word(148)).filter(|micros| *micros != u64::from(u32::MAX));
        Self {
            min_rtt: micros(min_rtt.unwrap_or(0)),
            rtt: micros(word(68)),
            congestion_window: word(80) * word(16),
            peer_window: word(228),
            received: long(128),
            acknowledged: long(120),
            sent: long(200),
            resent: long(208),
            delivery_rate: long(160),
            busy: micros(long(168)),
            limited_by_peer: micros(long(176)),
            limited_by_buffer: micros(long(184)),
        }
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
    }

    #[test]
    fn only_tcp_sockets_tell() {
        assert!(tcp_info(&std::io::stdin()).is_err());
    }
}
