//! Ways that are cut while both ends live.

#![allow(unsafe_code, reason = "a filter is set with setsockopt, which has no safe form for it")]

use std::{io, mem::size_of, os::fd::AsRawFd};

/// From now on nothing arrives at the TCP connection `socket`: the kernel drops each packet before it looks at it. The
/// other end gets no acknowledgement, and no word of why.
///
/// # Panics
/// If the system refuses.
pub fn deafen(socket: &impl AsRawFd) {
    // Each packet is cut down to nothing, which drops it.
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut filter = [libc::sock_filter { code, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (from, length) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: the kernel reads the program and its one instruction, which live throughout the call, and keeps a copy.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, from, length) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}
