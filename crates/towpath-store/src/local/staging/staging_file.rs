//! A staging file, and the journal of a resumable one.

use std::{
    ffi::OsStr,
    fs::File,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{self, AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{Area, FILE_PREFIX, JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX, RESUME_PREFIX, USER_DIGITS, stale};
use crate::{
    Overwrite, Result, ResumeKey,
    local::{
        errno::{self, ErrnoContext as _},
        root::Parent,
    },
    positional,
    sys::random,
};

/// Names are random 64-bit numbers: a second attempt is needed only if a cleanup of another process locked the file
/// first.
const ATTEMPTS: usize = 8;

/// The invisible file of an upload. Dropping it removes it, unless it was published, or is resumable and not empty.
#[derive(Debug)]
pub(in crate::local) struct StagingFile {
    area: Arc<Area>,
    name: String,
    file: Arc<File>,
    has_journal: bool,
    /// Whether it is kept when it is dropped.
    is_kept: AtomicBool,
    is_published: AtomicBool,
}

/// The result of opening the staging file of a key.
pub(super) enum StagingLookup {
    Opened(StagingFile),
    /// Another upload is writing it.
    InUse,
    /// The file system does not support locks, so a running upload cannot be detected.
    Unlockable,
}

impl StagingFile {
    /// Creates a new file in `area`.
    pub(super) fn create(area: &Arc<Area>) -> rustix::io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut last = Errno::EXIST;
        for _ in 0..ATTEMPTS {
            let name = format!("{FILE_PREFIX}{:016x}", random::number());
            let file = match fs::openat(&area.directory, &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(descriptor) => File::from(descriptor),
                Err(errno @ Errno::EXIST) => {
                    last = errno;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // A concurrent cleanup has locked the new file, which it takes for a stale one.
                Err(errno @ Errno::WOULDBLOCK) => {
                    last = errno;
                    continue;
                }
                // Without locks, cleanups cannot lock either and keep the file.
                Err(errno) => tracing::debug!(%errno, "the staging directory does not support locks"),
                Ok(()) => {}
            }
            if fs::fstat(&file)?.st_nlink > 0 {
                return Ok(Self::new(area, name, file, false));
            }
        }
        Err(last)
    }

    /// Opens the file that the last upload with `key` left in `area`, or creates one.
    pub(super) fn open_resumable(area: &Arc<Area>, key: ResumeKey) -> rustix::io::Result<StagingLookup> {
        let name = format!("{RESUME_PREFIX}{key}");
        for _ in 0..ATTEMPTS {
            let (file, is_writable) = open_or_create(&area.directory, &name)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(StagingLookup::InUse),
                Err(errno) => {
                    tracing::debug!(%errno, "the staging directory does not support locks: uploads cannot be resumed");
                    return Ok(StagingLookup::Unlockable);
                }
            }
            // The previous holder of the lock may have published or removed it.
            let is_there = match fs::statat(&area.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) if status.st_ino != fs::fstat(&file)?.st_ino => false,
                // It was published by a hard link (where rename is not available), and the old name was left.
                Ok(status) if status.st_nlink > 1 => {
                    fs::unlinkat(&area.directory, &name, AtFlags::empty())?;
                    false
                }
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                Err(errno) => return Err(errno),
            };
            match is_there {
                true if is_writable => return Ok(StagingLookup::Opened(Self::new(area, name, file, true))),
                true => fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?,
                false => {}
            }
        }
        Err(Errno::EXIST)
    }

    /// Wraps the file `name`, which is open and locked.
    fn new(area: &Arc<Area>, name: String, file: File, has_key: bool) -> Self {
        Self {
            area: Arc::clone(area),
            name,
            file: Arc::new(file),
            has_journal: has_key,
            is_kept: AtomicBool::new(has_key),
            is_published: AtomicBool::new(false),
        }
    }

    /// Sets the group of the file, if given.
    pub(super) fn set_group(&self, group: Option<Gid>) -> Result<()> {
        if group.is_none() {
            return Ok(());
        }
        match fs::fchown(&*self.file, None, group) {
            // Only members of a group may assign it, although a file created directly in the directory would have got
            // it.
            Err(Errno::PERM) => {
                tracing::debug!("cannot set the group of a file; it keeps that of this process");
                Ok(())
            }
            outcome => outcome.context("setting the group"),
        }
    }

    /// Removes the oldest leftovers of other uploads of the same user if they exceed the limit, but none of the last
    /// hours.
    pub(in crate::local) fn bound_others(&self) -> Result<()> {
        let prefix = self.name.get(..RESUME_PREFIX.len() + USER_DIGITS).unwrap_or(&self.name);
        stale::bound(&self.area.directory, prefix)
    }

    /// Returns the file.
    pub(in crate::local) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Opens its journal, if there is one.
    pub(in crate::local) fn journal(&self) -> rustix::io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&self.area.directory, self.beside(JOURNAL_SUFFIX), flags, Mode::empty()) {
            Ok(descriptor) => Ok(Some(File::from(descriptor))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Replaces the journal atomically by one with `content`.
    pub(in crate::local) fn replace_journal(&self, content: &[u8]) -> rustix::io::Result<File> {
        let (new, name) = (self.beside(NEW_JOURNAL_SUFFIX), self.beside(JOURNAL_SUFFIX));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.area.directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
        positional::write_all(&file, 0, content)?;
        fs::renameat(&self.area.directory, &new, &self.area.directory, &name)?;
        Ok(file)
    }

    fn beside(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.name)
    }

    /// Discards the file when it is dropped, even if it has a key.
    pub(in crate::local) fn discard(&self) {
        self.is_kept.store(false, Ordering::Relaxed);
    }

    /// Renames the file to its target. If that fails, it stays a staging file.
    pub(in crate::local) fn publish(&self, target: &Parent<'_>, overwrite: Overwrite) -> Result<()> {
        let (area, name) = (&self.area.directory, self.name.as_str());
        let outcome = match overwrite {
            Overwrite::Replace => {
                target.expect_replaceable()?;
                fs::renameat(area, name, &target.directory, target.name)
            }
            Overwrite::Refuse => rename_without_replacing(area, OsStr::new(name), target),
        };
        outcome.map_err(|errno| errno::across_devices(errno, "making the file visible"))?;
        self.is_published.store(true, Ordering::Relaxed);
        // Only now: a crash before the rename would otherwise lose all verified data.
        self.remove_journal();
        Ok(())
    }

    /// Returns whether it was renamed to its target.
    pub(in crate::local) fn is_published(&self) -> bool {
        self.is_published.load(Ordering::Relaxed)
    }

    fn remove_journal(&self) {
        if !self.has_journal {
            return;
        }
        for suffix in [JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX] {
            match fs::unlinkat(&self.area.directory, self.beside(suffix), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => tracing::warn!(name = %self.name, %errno, "cannot remove the journal of an upload"),
            }
        }
    }

    /// Returns whether the file is kept when it is dropped. Empty files are not worth keeping.
    fn stays(&self) -> bool {
        let is_empty = || fs::fstat(&*self.file).is_ok_and(|status| status.st_size == 0);
        self.is_kept.load(Ordering::Relaxed) && !is_empty()
    }
}

/// Opens or creates the staging file `name` of a key; returns whether it is writable. It may not be if a commit had set
/// its mode before it was interrupted.
fn open_or_create(area: &OwnedFd, name: &str) -> rustix::io::Result<(File, bool)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(area, name, flags | OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o666)) {
        Err(Errno::ACCESS) => Ok((File::from(fs::openat(area, name, flags | OFlags::RDONLY, Mode::empty())?), false)),
        outcome => Ok((File::from(outcome?), true)),
    }
}

impl Drop for StagingFile {
    fn drop(&mut self) {
        if self.is_published() {
            return;
        }
        if self.stays() {
            // Closing it is not sufficient: a process that is being started briefly holds a copy of the descriptor.
            if let Err(errno) = fs::flock(&*self.file, FlockOperation::Unlock) {
                tracing::warn!(name = %self.name, %errno, "cannot unlock an upload");
            }
            return;
        }
        self.remove_journal();
        if let Err(errno) = fs::unlinkat(&self.area.directory, &self.name, AtFlags::empty()) {
            tracing::warn!(name = %self.name, %errno, "cannot remove an abandoned upload");
        }
        // The name is removed on this thread, so that nothing is left when the handle is dropped. Freeing the blocks of
        // a large file takes longer and happens when the file is closed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let file = Arc::clone(&self.file);
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// Like `renameat2(RENAME_NOREPLACE)`; for files also on file systems that do not support it (NFS).
pub(in crate::local) fn rename_without_replacing(
    from: &OwnedFd,
    name: &OsStr,
    target: &Parent<'_>,
) -> rustix::io::Result<()> {
    match fs::renameat_with(from, name, &target.directory, target.name, RenameFlags::NOREPLACE) {
        Err(errno @ Errno::INVAL) => match fs::linkat(from, name, &target.directory, target.name, AtFlags::empty()) {
            Ok(()) => {
                // The new name is already visible, so this cannot be reported as a failure.
                if let Err(errno) = fs::unlinkat(from, name, AtFlags::empty()) {
                    tracing::warn!(name = %name.display(), %errno, "cannot remove the old name of a renamed file");
                }
                Ok(())
            }
            // For a directory the first error is the relevant one (such as moving it into itself).
            Err(Errno::PERM) => Err(errno),
            Err(other) => Err(other),
        },
        outcome => outcome,
    }
}
