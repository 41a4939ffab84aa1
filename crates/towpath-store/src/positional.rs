//! Positional reads and writes of open files: complete ones, and reads from the page cache alone.

use std::{fs::File, io::IoSliceMut};

use rustix::io::{self, Errno, ReadWriteFlags};

/// Reads into `buffer`, up to its length, the bytes that are available without waiting for a disk; `None` if there are
/// none.
pub(crate) fn read_without_waiting(
    file: &File,
    in_memory: bool,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    if buffer.is_empty() {
        return Ok(Some(0));
    }
    if in_memory {
        return fill(file, offset, buffer).map(Some);
    }
    match retry(|| io::preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)) {
        Ok(got) => Ok(Some(got)),
        // AGAIN: not in the page cache. OPNOTSUPP: not supported by the file system.
        Err(Errno::AGAIN | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Reads at `offset` until `buffer` is full or the file ends; returns the number of bytes read.
pub(crate) fn fill(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match retry(|| io::pread(file, &mut *rest, offset + filled as u64))? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

/// Like [`fill`], appended to `buffer`; zeros the buffer first only where it has no spare capacity.
pub(crate) fn append(file: &File, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let before = buffer.len();
    buffer.reserve_exact(length);
    // The kernel fills the whole capacity: if that exceeds the requested length, the read takes two steps.
    if buffer.capacity() - before > length {
        buffer.resize(before + length, 0);
        let filled = fill(file, offset, buffer.get_mut(before..).unwrap_or_default())?;
        buffer.truncate(before + filled);
        return Ok(filled);
    }
    while buffer.len() < before + length {
        let at = offset + (buffer.len() - before) as u64;
        if retry(|| io::pread(file, rustix::buffer::spare_capacity(buffer), at))? == 0 {
            break;
        }
    }
    Ok(buffer.len() - before)
}

/// Repeats a call interrupted by a signal.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Writes all of `data`. `pwrite` may write less than requested, for instance shortly before the disk is full.
pub(crate) fn write_all(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
        match retry(|| io::pwrite(file, rest, offset + written as u64))? {
            0 => return Err(io::Errno::IO),
            more => written += more,
        }
    }
    Ok(())
}
