//! Writeback of dirty pages from the page cache to disk.

#![allow(unsafe_code, reason = "no safe crate has sync_file_range")]

use std::{fs::File, os::fd::AsRawFd as _};

/// Starts writing the dirty pages of `file` to disk without waiting (sync_file_range(2)). It makes nothing durable,
/// but shortens a later fsync. File systems without support ignore it.
pub(crate) fn start(file: &File) {
    // SAFETY: the call reads and writes no memory of this process; the descriptor lives throughout it.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
