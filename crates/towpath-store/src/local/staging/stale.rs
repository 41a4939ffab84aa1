//! What a crash left in a staging area, and uploads with a key that nobody took up again.

use std::{ffi::OsStr, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _, time::Duration};

use rustix::{
    fs::{self, AtFlags, Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{FILE_PREFIX, JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX, RESUME_PREFIX};
use crate::{
    Result,
    local::{
        errno::{self, Doing as _},
        inode,
    },
    sys::clock,
};

/// Removes the files in `area` that no process has locked; those of uploads with a key only if nothing was written for as long as `kept`.
pub(super) fn remove_stale(area: &OwnedFd, kept: Duration) -> Result<()> {
    each(area, |name| {
        let is_of_key = name.starts_with(RESUME_PREFIX.as_bytes()) && owner_of_journal(name).is_none();
        if name.starts_with(FILE_PREFIX.as_bytes()) || is_of_key && has_rested(area, name, kept) {
            remove_if_stale(area, name)?;
        }
        Ok(())
    })?;
    // Then the journals of those, and what a crash left of others.
    each(area, |name| {
        let Some(owner) = owner_of_journal(name) else { return Ok(()) };
        if status(area, owner).is_none() && has_rested(area, name, kept) {
            remove(area, name)?;
        }
        Ok(())
    })
}

/// Calls `job` with each name in `area`.
fn each(area: &OwnedFd, mut job: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    for entry in Dir::read_from(area).doing("listing the staging directory")? {
        job(entry.doing("listing the staging directory")?.file_name().to_bytes())?;
    }
    Ok(())
}

/// The name of the staged file whose journal, or next journal, is called `name`; none if that is no journal.
fn owner_of_journal(name: &[u8]) -> Option<&[u8]> {
    let owner = [JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX].iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    owner.starts_with(RESUME_PREFIX.as_bytes()).then_some(owner)
}

fn status(area: &OwnedFd, name: &[u8]) -> Option<fs::Stat> {
    fs::statat(area, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Whether nothing was written to `name` for so long. Of a staged file its journal tells: its own time a commit may have set.
fn has_rested(area: &OwnedFd, name: &[u8], duration: Duration) -> bool {
    let journal = [name, JOURNAL_SUFFIX.as_bytes()].concat();
    let Some(written) = status(area, &journal).or_else(|| status(area, name)) else { return false };
    let rested_ns = clock::unix_ns().saturating_sub(inode::mtime_ns(&written));
    u128::try_from(rested_ns).unwrap_or(0) >= duration.as_nanos()
}

fn remove_if_stale(area: &OwnedFd, name: &[u8]) -> Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(area, OsStr::from_bytes(name), flags, Mode::empty()) else { return Ok(()) };
    if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    if remove(area, name)? {
        tracing::info!(name = %name.escape_ascii(), "removed an upload that was never finished");
    }
    Ok(())
}

/// Whether it was there.
fn remove(area: &OwnedFd, name: &[u8]) -> Result<bool> {
    match fs::unlinkat(area, OsStr::from_bytes(name), AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno::error(errno, "removing an unfinished upload")),
    }
}
