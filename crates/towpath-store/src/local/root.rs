//! The root directory of a local store, and the only way from a [`StorePath`] to a file.
//!
//! The kernel resolves each path beneath the root's descriptor (`openat2`, `RESOLVE_BENEATH`): a symbolic link that stays
//! inside works, one that leads out fails, and there is no moment between a check and a use. What changes a name
//! (create, rename, remove) opens the parent in the same way and then works on one component of it.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::errno::{self, Doing as _};
use crate::{Error, Fault, Result, StorePath};

/// The name of the staging directories: no path of the store may have it as a component.
pub(super) const RESERVED_NAME: &[u8] = b".towpath";

/// How files are opened to be read. Should it be a named pipe or a terminal, opening it neither waits nor takes it over.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// How existing files are opened to be changed.
pub(super) const CHANGE: OFlags = OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// `openat2` answers `EAGAIN` if some directory was renamed while it resolved `..` in a link; then it is asked again.
const ATTEMPTS: usize = 64;

/// The root directory of a store.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens `path`, which must be a directory.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty())
            .map_err(|errno| errno::error(errno, &format!("opening the root {}", path.display())))?;
        Ok(Self { directory })
    }

    /// The root's own descriptor; good for questions about it, not for reading.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Opens `path` with `flags`.
    pub(super) fn open_at(&self, path: &StorePath, flags: OFlags) -> Result<OwnedFd> {
        if path.components().any(|name| name == RESERVED_NAME) {
            return Err(Error::new(Fault::PermissionDenied, "the name .towpath is reserved"));
        }
        let relative = if path.is_root() { b"." } else { path.relative() };
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            match fs::openat2(&self.directory, OsStr::from_bytes(relative), flags, Mode::empty(), resolve) {
                Ok(descriptor) => return Ok(descriptor),
                Err(Errno::AGAIN) if attempts < ATTEMPTS => attempts += 1,
                Err(errno) => return Err(resolution_error(errno)),
            }
        }
    }

    /// Opens the directory that holds `path`, for calls that take a directory and a name. Fails for the root, which has no name.
    pub(super) fn parent<'a>(&self, path: &'a StorePath) -> Result<Parent<'a>> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(Error::new(Fault::InvalidArgument, "this cannot be done to the root of the store"));
        };
        if name == RESERVED_NAME {
            return Err(Error::new(Fault::PermissionDenied, "the name .towpath is reserved"));
        }
        let directory = self.open_at(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(Parent { directory, name: OsStr::from_bytes(name) })
    }

    /// Fails with `NotFound` or `NotDirectory` unless `path` is a directory.
    pub(super) fn expect_directory(&self, path: &StorePath) -> Result<()> {
        self.open_at(path, OFlags::PATH | OFlags::DIRECTORY).map(drop)
    }
}

/// A directory and the name of something in it.
#[derive(Debug)]
pub(super) struct Parent<'a> {
    /// The directory, opened with `O_PATH`.
    pub(super) directory: OwnedFd,
    /// One component.
    pub(super) name: &'a OsStr,
}

impl Parent<'_> {
    /// Brings the directory's entries to stable storage.
    pub(super) fn sync(&self) -> Result<()> {
        sync_directory(&self.directory)
    }
}

/// Brings the entries of `directory`, which may be an `O_PATH` descriptor, to stable storage.
pub(super) fn sync_directory(directory: &OwnedFd) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = fs::openat(directory, ".", flags, Mode::empty()).doing("opening the directory")?;
    fs::fsync(readable).doing("syncing the directory")
}

fn resolution_error(errno: Errno) -> Error {
    match errno {
        Errno::XDEV => Error::new(Fault::PermissionDenied, "a symbolic link leads out of the store"),
        // A socket; a device without a driver.
        Errno::NXIO | Errno::NODEV => Error::new(Fault::NotRegular, "it is not a regular file"),
        other => errno::error(other, "opening"),
    }
}
