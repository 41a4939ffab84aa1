//! One staged file.

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
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::FILE_PREFIX;
use crate::{
    Overwrite, Result,
    local::{errno, root::Parent},
    sys::random,
};

/// Names are random 64-bit numbers: a second attempt is needed only if a cleaner of another process was quicker.
const ATTEMPTS: usize = 8;

/// A file that nobody can see yet. Dropping it removes it, unless it has been published.
#[derive(Debug)]
pub(in crate::local) struct Staged {
    area: Arc<OwnedFd>,
    name: String,
    file: Arc<File>,
    is_gone: AtomicBool,
}

impl Staged {
    /// A new file in `area`.
    pub(super) fn create(area: &Arc<OwnedFd>) -> rustix::io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut last = Errno::EXIST;
        for _ in 0..ATTEMPTS {
            let name = format!("{FILE_PREFIX}{:016x}", random::number());
            let file = match fs::openat(&**area, &name, flags, Mode::from_raw_mode(0o666)) {
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
                return Ok(Self {
                    area: Arc::clone(area),
                    name,
                    file: Arc::new(file),
                    is_gone: AtomicBool::new(false),
                });
            }
        }
        Err(last)
    }

    /// The file itself.
    pub(in crate::local) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives it its name. If that fails it is still staged.
    pub(in crate::local) fn publish(&self, target: &Parent<'_>, overwrite: Overwrite) -> Result<()> {
        let (area, name) = (&*self.area, self.name.as_str());
        let outcome = match overwrite {
            Overwrite::Replace => fs::renameat(area, name, &target.directory, target.name),
            Overwrite::Refuse => rename_without_replacing(area, OsStr::new(name), target),
        };
        outcome.map_err(|errno| errno::across_devices(errno, "making the file visible"))?;
        self.is_gone.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_gone.load(Ordering::Relaxed) {
            return;
        }
        if let Err(errno) = fs::unlinkat(&*self.area, &self.name, AtFlags::empty()) {
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
