//! Removal of leftovers in a staging area: files from crashes, and resumable uploads that were not resumed.

use std::{ffi::OsStr, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _, time::Duration};

use rustix::{
    fs::{self, AtFlags, Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{FILE_PREFIX, JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX, RESUME_PREFIX};
use crate::{
    Result,
    local::{
        errno::{self, ErrnoContext as _},
        inode,
    },
    sys::clock,
};

/// Removes the unlocked files in `area`; those of resumable uploads only if they were not written to for `kept`.
pub(super) fn remove_stale(area: &OwnedFd, kept: Duration) -> Result<()> {
    each(area, |name| {
        let is_of_key = name.starts_with(RESUME_PREFIX.as_bytes()) && owner_of_journal(name).is_none();
        if name.starts_with(FILE_PREFIX.as_bytes()) || is_of_key && has_rested(area, name, kept) {
            remove_if_stale(area, name)?;
        }
        Ok(())
    })?;
    // Then their journals, and orphaned journals.
    each(area, |name| {
        let Some(owner) = owner_of_journal(name) else { return Ok(()) };
        if status(area, owner).is_none() && has_rested(area, name, kept) {
            remove(area, name)?;
        }
        Ok(())
    })
}

/// Maximum number of interrupted uploads that one user may leave in an area.
const MAX_LEFT: usize = 64;

/// Divisor of the file system's size that limits their total size.
const LARGEST_SHARE: u64 = 10;

/// Leftovers written to within this time are kept: the upload may be about to resume.
const SPARED: Duration = Duration::from_secs(6 * 3600);

/// The leftovers of a resumable upload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StaleUpload {
    written_ns: i64,
    bytes: u64,
    name: Vec<u8>,
}

/// Removes the oldest leftovers of one user in `area`, whose names begin with `prefix`, if there are too many or they
/// are too large. Locked files are kept, but count.
pub(super) fn bound(area: &OwnedFd, prefix: &str) -> Result<()> {
    let mut left = Vec::new();
    each(area, |name| {
        if name.starts_with(prefix.as_bytes())
            && owner_of_journal(name).is_none()
            && let Some(status) = status(area, name)
        {
            let written_ns = written(area, name).map_or(0, |status| inode::mtime_ns(&status));
            let bytes = inode::allocated_bytes(&status);
            left.push(StaleUpload { written_ns, bytes, name: name.to_vec() });
        }
        Ok(())
    })?;
    let space = fs::fstatvfs(area).context("querying the size of the file system")?;
    let largest = space.f_blocks.saturating_mul(space.f_frsize) / LARGEST_SHARE;
    let spared_ns = clock::unix_ns().saturating_sub(i64::try_from(SPARED.as_nanos()).unwrap_or(i64::MAX));
    for excess in too_many(left, largest, spared_ns) {
        remove_if_stale(area, &excess.name)?;
        if status(area, &excess.name).is_none() {
            remove(area, &[&excess.name, JOURNAL_SUFFIX.as_bytes()].concat())?;
        }
    }
    Ok(())
}

/// Returns the entries of `left` to remove so that at most [`MOST_LEFT`] with at most `most_bytes` remain: the oldest,
/// except those written since `spared_ns`.
fn too_many(mut left: Vec<StaleUpload>, most_bytes: u64, spared_ns: i64) -> Vec<StaleUpload> {
    left.sort();
    let (mut number, mut bytes) = (left.len(), left.iter().map(|one| one.bytes).sum::<u64>());
    let mut excess = Vec::new();
    for one in left {
        if one.written_ns >= spared_ns || (number <= MAX_LEFT && bytes <= most_bytes) {
            break;
        }
        (number, bytes) = (number - 1, bytes - one.bytes);
        excess.push(one);
    }
    excess
}

/// Calls `job` with each name in `area`.
fn each(area: &OwnedFd, mut job: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    for entry in Dir::read_from(area).context("listing the staging directory")? {
        job(entry.context("listing the staging directory")?.file_name().to_bytes())?;
    }
    Ok(())
}

/// Returns the staging file of the journal, or replacement journal, `name`; `None` if that is not a journal.
fn owner_of_journal(name: &[u8]) -> Option<&[u8]> {
    let owner = [JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX].iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    owner.starts_with(RESUME_PREFIX.as_bytes()).then_some(owner)
}

fn status(area: &OwnedFd, name: &[u8]) -> Option<fs::Stat> {
    fs::statat(area, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Returns the status with the time of the last write to `name`. For a staging file it is that of its journal, because
/// a commit may have set its own.
fn written(area: &OwnedFd, name: &[u8]) -> Option<fs::Stat> {
    let journal = [name, JOURNAL_SUFFIX.as_bytes()].concat();
    status(area, &journal).or_else(|| status(area, name))
}

/// Returns whether nothing was written to `name` for `duration`.
fn has_rested(area: &OwnedFd, name: &[u8], duration: Duration) -> bool {
    let Some(written) = written(area, name) else { return false };
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
        tracing::info!(name = %name.escape_ascii(), "removed an unfinished upload");
    }
    Ok(())
}

/// Removes a file; returns whether it existed.
fn remove(area: &OwnedFd, name: &[u8]) -> Result<bool> {
    match fs::unlinkat(area, OsStr::from_bytes(name), AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno::error(errno, "removing an unfinished upload")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(sizes: &[u64]) -> Vec<StaleUpload> {
        let each =
            |(number, bytes): (usize, &u64)| StaleUpload { written_ns: number as i64, bytes: *bytes, name: vec![b'n'] };
        sizes.iter().enumerate().map(each).collect()
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let gone_of = |sizes: &[u64], most, spared_ns| too_many(left(sizes), most, spared_ns).len();
        let gone = |sizes: &[u64], most| gone_of(sizes, most, i64::MAX);
        assert_eq!(gone(&[5, 5, 5], 15), 0);
        assert_eq!(gone(&[5, 5, 5], 14), 1);
        assert_eq!(gone(&[5, 100, 5], 14), 2);
        assert_eq!(gone_of(&[5, 5, 100], 14, 2), 2, "what was written just now stays however large it is");
        assert_eq!(gone(&[1; MAX_LEFT], 1000), 0);
        assert_eq!(gone(&[1; MAX_LEFT + 3], 1000), 3);
        assert_eq!(gone(&[], 0), 0);
    }
}
