//! What a crash left in a staging area.

use std::{ffi::CStr, os::fd::OwnedFd};

use rustix::{
    fs::{self, AtFlags, Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::FILE_PREFIX;
use crate::{
    Result,
    local::errno::{self, Doing as _},
};

/// Removes the files in `area` that no process has locked.
pub(super) fn remove_stale(area: &OwnedFd) -> Result<()> {
    for entry in Dir::read_from(area).doing("listing the staging directory")? {
        let entry = entry.doing("listing the staging directory")?;
        if entry.file_name().to_bytes().starts_with(FILE_PREFIX.as_bytes()) {
            remove_if_stale(area, entry.file_name())?;
        }
    }
    Ok(())
}

fn remove_if_stale(area: &OwnedFd, name: &CStr) -> Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(area, name, flags, Mode::empty()) else { return Ok(()) };
    if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    match fs::unlinkat(area, name, AtFlags::empty()) {
        Ok(()) => tracing::info!(name = %name.to_string_lossy(), "removed an upload that was never finished"),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno::error(errno, "removing an unfinished upload")),
    }
    Ok(())
}
