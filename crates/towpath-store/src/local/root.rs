//! The root directory of a local store, and the resolution of every [`StorePath`].
//!
//! The kernel resolves each path of an export beneath the root's descriptor (`openat2`, `RESOLVE_BENEATH`): a symbolic
//! link that stays inside works, one that leads out fails, and there is no race between check and use. Paths of the
//! process's own user ([`Scope::User`]) are resolved without restrictions. Calls that change a name (create, rename,
//! remove) open the parent in the same way and then operate on a single component.

use std::{
    ffi::OsStr,
    fmt,
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    Scope,
    errno::{self, ErrnoContext as _},
};
use crate::{Error, Fault, Result, StorePath};

/// Name of the staging directories.
pub(super) const RESERVED_NAME: &str = ".towpath";

/// Returns whether `name` is that of a staging directory, `.towpath` or `.towpath-1000`. Such names are reserved in all
/// paths.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    let rest = name.strip_prefix(RESERVED_NAME.as_bytes());
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix(b"-").is_some_and(|user| user.iter().all(u8::is_ascii_digit))
    })
}

/// Flags for reading a file. Opening a named pipe or a terminal neither blocks nor makes it the controlling terminal.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Flags for changing an existing file.
pub(super) const CHANGE: OFlags = OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Resolution flags for every path of an export.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Maximum number of attempts: `openat2` returns `EAGAIN` if a directory was renamed while it resolved `..` in a link.
const ATTEMPTS: usize = 64;

/// File systems that answer metadata calls from memory once a path is cached, from `linux/magic.h`, without contacting
/// a server: ext, XFS, Btrfs, OverlayFS, and those in memory.
const LOCAL_FILE_SYSTEMS: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, TMPFS, RAMFS];
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// The root directory of a store.
pub(super) struct Root {
    /// The path it was opened at, for messages.
    path: PathBuf,
    /// The directory of an export, independent of later renames. Paths of the user are resolved from `path`.
    directory: Option<OwnedFd>,
    file_system: u64,
    resolve: ResolveFlags,
}

impl Root {
    /// Opens `path`, which must be a directory.
    pub(super) fn open(path: &Path, scope: Scope) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty())
            .map_err(|errno| errno::error(errno, &format!("opening the root {}", path.display())))?;
        let file_system = file_system_of(&directory)?;
        let (directory, resolve) = match scope {
            Scope::Export => (Some(directory), BENEATH),
            Scope::User => (None, ResolveFlags::empty()),
        };
        Ok(Self { path: path.to_owned(), directory, file_system, resolve })
    }

    /// Opens the root's directory for queries, not for reading.
    pub(super) fn directory(&self) -> Result<OwnedFd> {
        self.open_at(&StorePath::root(), OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens `path` with `flags`.
    pub(super) fn open_at(&self, path: &StorePath, flags: OFlags) -> Result<OwnedFd> {
        let mut attempts = 0;
        loop {
            match self.resolve(path, flags, self.resolve) {
                None => return Err(Error::new(Fault::PermissionDenied, "the name .towpath is reserved")),
                Some(Err(Errno::AGAIN)) if attempts < ATTEMPTS => attempts += 1,
                Some(outcome) => return outcome.map_err(resolution_error),
            }
        }
    }

    /// Like [`Self::open_at`], if the kernel has everything in memory and the path is on the root's own local file
    /// system; `None` otherwise.
    pub(super) fn open_at_now(&self, path: &StorePath, flags: OFlags) -> Option<Result<OwnedFd>> {
        if !is_local(self.file_system) {
            return None;
        }
        let resolve = self.resolve | ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        match self.resolve(path, flags, resolve)? {
            // AGAIN: not in memory. XDEV: another mount, or outside of the root. INVAL: a kernel before 5.12.
            Err(Errno::AGAIN | Errno::XDEV | Errno::INVAL) => None,
            outcome => Some(outcome.map_err(resolution_error)),
        }
    }

    /// Returns whether the root's file system is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        is_in_memory(self.file_system)
    }

    /// Resolves `path`; `None` if it contains a reserved name.
    fn resolve(&self, path: &StorePath, flags: OFlags, resolve: ResolveFlags) -> Option<rustix::io::Result<OwnedFd>> {
        if path.components().any(is_reserved) {
            return None;
        }
        let relative = OsStr::from_bytes(if path.is_root() { b"." } else { path.relative() });
        let flags = flags | OFlags::CLOEXEC;
        Some(match &self.directory {
            Some(directory) => fs::openat2(directory, relative, flags, Mode::empty(), resolve),
            None => fs::openat2(fs::CWD, self.path.join(relative), flags, Mode::empty(), resolve),
        })
    }

    /// Opens the parent directory of `path`, for calls that take a directory and a name. Fails for the root, which has
    /// no name.
    pub(super) fn parent<'a>(&self, path: &'a StorePath) -> Result<Parent<'a>> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(Error::new(Fault::InvalidArgument, "this operation is not allowed on the root directory"));
        };
        if is_reserved(name) {
            return Err(Error::new(Fault::PermissionDenied, "the name .towpath is reserved"));
        }
        let directory = self.open_at(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(Parent { directory, name: OsStr::from_bytes(name) })
    }

    /// Returns `NotFound` or `NotDirectory` unless `path` is a directory.
    pub(super) fn expect_directory(&self, path: &StorePath) -> Result<()> {
        self.open_at(path, OFlags::PATH | OFlags::DIRECTORY).map(drop)
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// A directory, and the name of an entry in it.
#[derive(Debug)]
pub(super) struct Parent<'a> {
    /// The directory, opened with `O_PATH`.
    pub(super) directory: OwnedFd,
    /// A single component.
    pub(super) name: &'a OsStr,
}

impl Parent<'_> {
    /// Returns `NotRegular` if the entry is a device, pipe or socket: these are neither read nor replaced.
    pub(super) fn expect_replaceable(&self) -> Result<()> {
        match fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if is_special(FileType::from_raw_mode(status.st_mode)) => Err(special()),
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno::error(errno, "looking up the file")),
        }
    }

    /// Opens the directory again, with a descriptor that can be synced.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.directory, ".", flags, Mode::empty()).context("opening the directory to sync it")
    }
}

/// Returns the type of the file system that contains an open file or directory.
pub(super) fn file_system_of(descriptor: impl AsFd) -> Result<u64> {
    Ok(fs::fstatfs(descriptor).context("querying the file system")?.f_type as u64)
}

/// Returns whether the metadata of a file system are authoritative: a reported size is correct.
pub(super) fn is_local(file_system: u64) -> bool {
    LOCAL_FILE_SYSTEMS.contains(&file_system)
}

/// Returns whether a file system is in memory.
pub(super) fn is_in_memory(file_system: u64) -> bool {
    [TMPFS, RAMFS].contains(&file_system)
}

/// Returns whether it is neither a file nor a directory nor a link.
pub(super) fn is_special(file_type: FileType) -> bool {
    !matches!(file_type, FileType::RegularFile | FileType::Directory | FileType::Symlink)
}

/// Returns the error of replacing a device, pipe or socket.
pub(super) fn special() -> Error {
    Error::new(Fault::NotRegular, "it is a device, pipe or socket, which cannot be replaced")
}

fn resolution_error(errno: Errno) -> Error {
    match errno {
        Errno::XDEV => Error::new(Fault::PermissionDenied, "a symbolic link leads out of the store"),
        // A socket, or a device without a driver.
        Errno::NXIO | Errno::NODEV => Error::new(Fault::NotRegular, "it is not a regular file"),
        other => errno::error(other, "opening"),
    }
}
