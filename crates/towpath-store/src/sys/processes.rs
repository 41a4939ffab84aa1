//! Child processes.

#![allow(unsafe_code, reason = "close_range has no safe form")]

/// First descriptor after the standard ones.
const FIRST: libc::c_uint = 3;

/// Makes all descriptors of this process, except the standard ones, close in the programs that it starts: also those that it
/// got from its own parent. Without effect on Linux before 5.11.
pub fn close_in_children() {
    // SAFETY: a flag of descriptors is set, which has no effect on their use in this process.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
