//! The receive window of a new connection.
//!
//! The kernel begins with a small buffer (`tcp_rmem`, mostly 128 KiB, half of it for the window), and enlarges it once in
//! a round trip as the program reads. The sender's window doubles in each round trip, so it waits for the receiver's:
//! over 240 ms, 2 MB took 13 round trips instead of 8.

#![allow(unsafe_code, reason = "setsockopt has no safe form for this option")]

use std::os::fd::AsRawFd;

/// Window in bytes that a connection may have from its start. Memory is taken only for received data.
const WINDOW_BYTES: libc::c_int = 16 << 20;

/// Enlarges the receive buffer of `socket`, which is not connected yet, up to the system's maximum for automatic buffers
/// (`tcp_rmem`). Failures are ignored: the window then grows as usual.
pub(super) fn open(socket: &impl AsRawFd) {
    // A threshold for wake-ups makes room for as many bytes, and the room stays. SO_RCVBUF would need a higher
    // `net.core.rmem_max`, and switch the automatic off. The threshold also limits the window, and with it the scale that
    // is agreed when the connection is established: the last option removes this limit.
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT, WINDOW_BYTES),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 0),
    ] {
        set_option(socket, level, name, value);
    }
}

fn set_option(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let (from, length) = ((&raw const value).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of `value`, which lives throughout the call.
    let _ = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, length) };
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::net::sockopt;
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn a_connection_begins_with_the_largest_automatic_buffer() {
        let socket = TcpSocket::new_v4().unwrap();
        open(&socket);
        let settings = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        let most: usize = settings.split_ascii_whitespace().nth(2).unwrap().parse().unwrap();
        let buffer = sockopt::socket_recv_buffer_size(&socket).unwrap();
        assert!(buffer >= most.min(2 * WINDOW_BYTES as usize) / 2, "{buffer} of {most}");
    }
}
