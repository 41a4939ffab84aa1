//! One staged file, and the journal of one with a key.

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
        errno::{self, Doing as _},
        root::Parent,
        write,
    },
    sys::random,
};

/// Names are random 64-bit numbers: a second attempt is needed only if a cleaner of another process was quicker.
const ATTEMPTS: usize = 8;

/// An invisible file of an upload. Dropping it removes it, unless it was published, or is resumable and not empty.
#[derive(Debug)]
pub(in crate::local) struct Staged {
    area: Arc<Area>,
    name: String,
    file: Arc<File>,
    has_journal: bool,
    /// It is to stay when it is dropped.
    is_kept: AtomicBool,
    is_published: AtomicBool,
}

/// The staged file of a key.
pub(super) enum Found {
    Staged(Staged),
    /// Somebody is writing it.
    InUse,
    /// The file system has no locks, so a running upload cannot be detected.
    Unlockable,
}

impl Staged {
    /// A new file in `area`.
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
                // A cleaner has it: it takes the new file for a stale one.
                Err(errno @ Errno::WOULDBLOCK) => {
                    last = errno;
                    continue;
                }
                // A file system without locks: cleaners cannot lock either, and leave it.
                Err(errno) => tracing::debug!(%errno, "the staging directory has no locks"),
                Ok(()) => {}
            }
            if fs::fstat(&file)?.st_nlink > 0 {
                return Ok(Self::new(area, name, file, false));
            }
        }
        Err(last)
    }

    /// The file that the last upload with `key` left in `area`, or a new one.
    pub(super) fn take_up(area: &Arc<Area>, key: ResumeKey) -> rustix::io::Result<Found> {
        let name = format!("{RESUME_PREFIX}{key}");
        for _ in 0..ATTEMPTS {
            let (file, is_writable) = open_or_create(&area.directory, &name)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Found::InUse),
                Err(errno) => {
                    tracing::debug!(%errno, "the staging directory has no locks: no upload can be taken up again");
                    return Ok(Found::Unlockable);
                }
            }
            // Who had the lock before may have published or removed it.
            let is_there = match fs::statat(&area.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) if status.st_ino != fs::fstat(&file)?.st_ino => false,
                // It has been published where a rename is a new link, and the old name was left.
                Ok(status) if status.st_nlink > 1 => {
                    fs::unlinkat(&area.directory, &name, AtFlags::empty())?;
                    false
                }
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                Err(errno) => return Err(errno),
            };
            match is_there {
                true if is_writable => return Ok(Found::Staged(Self::new(area, name, file, true))),
                true => fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?,
                false => {}
            }
        }
        Err(Errno::EXIST)
    }

    /// The file `name`, which is open and locked.
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

    /// Gives it to a group, if one is named.
    pub(super) fn set_group(&self, group: Option<Gid>) -> Result<()> {
        if group.is_none() {
            return Ok(());
        }
        match fs::fchown(&*self.file, None, group) {
            // Only members may give a file to a group, though a file made in the directory would have got it.
            Err(Errno::PERM) => {
                tracing::debug!("the file keeps the group of this process");
                Ok(())
            }
            outcome => outcome.doing("setting the group"),
        }
    }

    /// Removes the oldest leftovers of other uploads of the same user if they exceed the limit, but none of the last
    /// hours.
    pub(in crate::local) fn bound_others(&self) -> Result<()> {
        let prefix = self.name.get(..RESUME_PREFIX.len() + USER_DIGITS).unwrap_or(&self.name);
        stale::bound(&self.area.directory, prefix)
    }

    /// The file itself.
    pub(in crate::local) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Its journal, if there is one.
    pub(in crate::local) fn journal(&self) -> rustix::io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&self.area.directory, self.beside(JOURNAL_SUFFIX), flags, Mode::empty()) {
            Ok(descriptor) => Ok(Some(File::from(descriptor))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Puts a journal with `content` in the place of the one that there is, in one step.
    pub(in crate::local) fn replace_journal(&self, content: &[u8]) -> rustix::io::Result<File> {
        let (new, name) = (self.beside(NEW_JOURNAL_SUFFIX), self.beside(JOURNAL_SUFFIX));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.area.directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
        write::write_all(&file, 0, content)?;
        fs::renameat(&self.area.directory, &new, &self.area.directory, &name)?;
        Ok(file)
    }

    fn beside(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.name)
    }

    /// It shall not stay when it is dropped, though it has a key.
    pub(in crate::local) fn discard(&self) {
        self.is_kept.store(false, Ordering::Relaxed);
    }

    /// Gives it its name. If that fails it is still staged.
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
        // Not before: a crash between the two would cost all that is proven.
        self.remove_journal();
        Ok(())
    }

    /// Whether it has its name.
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
                Err(errno) => tracing::warn!(name = %self.name, %errno, "the journal of an upload is not removed"),
            }
        }
    }

    /// Returns whether the file is kept when it is dropped. Empty files are not worth keeping.
    fn stays(&self) -> bool {
        let is_empty = || fs::fstat(&*self.file).is_ok_and(|status| status.st_size == 0);
        self.is_kept.load(Ordering::Relaxed) && !is_empty()
    }
}

/// Opens the staged file `name` of a key, or makes it; whether it can be written. One that a commit has given a mode, before it was killed, may not be.
fn open_or_create(area: &OwnedFd, name: &str) -> rustix::io::Result<(File, bool)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(area, name, flags | OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o666)) {
        Err(Errno::ACCESS) => Ok((File::from(fs::openat(area, name, flags | OFlags::RDONLY, Mode::empty())?), false)),
        outcome => Ok((File::from(outcome?), true)),
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_published() {
            return;
        }
        if self.stays() {
            // Closing it is not enough: a process that is just being started has a copy of the descriptor for a moment.
            if let Err(errno) = fs::flock(&*self.file, FlockOperation::Unlock) {
                tracing::warn!(name = %self.name, %errno, "an upload is not unlocked");
            }
            return;
        }
        self.remove_journal();
        if let Err(errno) = fs::unlinkat(&self.area.directory, &self.name, AtFlags::empty()) {
            tracing::warn!(name = %self.name, %errno, "an abandoned upload is not removed");
        }
        // The name goes at once, on this thread: nothing is left when the handle is. Giving back the blocks of a large file takes longer;
        // that happens when it is closed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let file = Arc::clone(&self.file);
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// As `renameat2(RENAME_NOREPLACE)`; of files also where the file system does not know it (NFS).
pub(in crate::local) fn rename_without_replacing(
    from: &OwnedFd,
    name: &OsStr,
    target: &Parent<'_>,
) -> rustix::io::Result<()> {
    match fs::renameat_with(from, name, &target.directory, target.name, RenameFlags::NOREPLACE) {
        Err(errno @ Errno::INVAL) => match fs::linkat(from, name, &target.directory, target.name, AtFlags::empty()) {
            Ok(()) => {
                // The new name is visible: to fail now would be a lie.
                if let Err(errno) = fs::unlinkat(from, name, AtFlags::empty()) {
                    tracing::warn!(name = %name.display(), %errno, "a file that was renamed keeps its old name too");
                }
                Ok(())
            }
            // A directory: the first answer was about something else (it was to be moved into itself).
            Err(Errno::PERM) => Err(errno),
            Err(other) => Err(other),
        },
        outcome => outcome,
    }
}
