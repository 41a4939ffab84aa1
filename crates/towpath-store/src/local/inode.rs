//! One inode: its status and attributes, and the calls that change them by descriptor.
//!
//! An `O_PATH` descriptor needs no read permission and has no side effects on devices, but most calls reject it
//! (`EBADF`). Its link in `/proc/self/fd` names exactly the same inode, even after a rename, and works with all calls
//! at several times the cost. Without `/proc`, such files have no digests and attributes.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{self, FileType, Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

use super::{errno::ErrnoContext as _, root::Root};
use crate::{
    Error, Fault, FileKind, Metadata, Result, StorePath, VersionTag,
    sys::{clock, host},
};

const NS_PER_S: i64 = 1_000_000_000;

/// An open inode, possibly only with `O_PATH`, and its status when it was opened.
#[derive(Debug)]
pub(super) struct Inode<Fd = OwnedFd> {
    descriptor: Fd,
    status: Stat,
}

impl Inode {
    /// Opens the inode at `path`, following links.
    pub(super) fn open(root: &Root, path: &StorePath) -> Result<Self> {
        Self::of(root.open_at(path, OFlags::PATH)?)
    }
}

impl<Fd: AsFd> Inode<Fd> {
    /// Returns the inode of an open descriptor.
    pub(super) fn of(descriptor: Fd) -> Result<Self> {
        let status = fs::fstat(&descriptor).context("reading the status")?;
        Ok(Self { descriptor, status })
    }

    /// Returns the status when it was opened or last refreshed.
    pub(super) fn status(&self) -> &Stat {
        &self.status
    }

    /// Reads the status again.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.status = fs::fstat(&self.descriptor).context("reading the status")?;
        Ok(())
    }

    /// Sets the permission bits.
    pub(super) fn set_mode(&self, mode: u32) -> Result<()> {
        fs::chmod(self.link(), Mode::from_raw_mode(mode & 0o7777)).context("setting the mode")
    }

    /// Sets the modification time and keeps the access time.
    pub(super) fn set_mtime(&self, mtime_ns: i64) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: mtime_ns.div_euclid(NS_PER_S),
                tv_nsec: mtime_ns.rem_euclid(NS_PER_S),
            },
        };
        let set = match fs::futimens(&self.descriptor, &times) {
            // An `O_PATH` descriptor.
            Err(Errno::BADF) => fs::utimensat(fs::CWD, self.link(), &times, fs::AtFlags::empty()),
            set => set,
        };
        set.context("setting the time")
    }

    /// Returns the names of all extended attributes that start with `prefix`; none if the file system does not support
    /// attributes.
    pub(super) fn attribute_names(&self, prefix: &[u8]) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut list = Vec::with_capacity(1024);
        loop {
            let listed = match fs::flistxattr(&self.descriptor, rustix::buffer::spare_capacity(&mut list)) {
                Err(Errno::BADF) => fs::listxattr(self.link(), rustix::buffer::spare_capacity(&mut list)),
                listed => listed,
            };
            match listed {
                Ok(_) => break,
                // The kernel limits a list to 64 KiB (XATTR_LIST_MAX).
                Err(Errno::RANGE) if list.capacity() < 65_536 => list.reserve(65_536),
                Err(Errno::OPNOTSUPP) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(list.split(|b| *b == 0).filter(|name| name.starts_with(prefix)).map(<[u8]>::to_vec).collect())
    }

    /// Returns the value of an extended attribute; `ERANGE` if it is longer than `limit_bytes`.
    pub(super) fn attribute(&self, name: &[u8], limit_bytes: usize) -> rustix::io::Result<Vec<u8>> {
        // With a capacity of zero the kernel would return the length instead.
        let mut value = Vec::with_capacity(limit_bytes.max(1));
        match fs::fgetxattr(&self.descriptor, name, rustix::buffer::spare_capacity(&mut value)) {
            Err(Errno::BADF) => fs::getxattr(self.link(), name, rustix::buffer::spare_capacity(&mut value)),
            got => got,
        }?;
        value.shrink_to_fit();
        Ok(value)
    }

    /// Sets an extended attribute.
    pub(super) fn set_attribute(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> rustix::io::Result<()> {
        match fs::fsetxattr(&self.descriptor, name, value, flags) {
            Err(Errno::BADF) => fs::setxattr(self.link(), name, value, flags),
            set => set,
        }
    }

    /// Removes an extended attribute.
    pub(super) fn remove_attribute(&self, name: &[u8]) -> rustix::io::Result<()> {
        match fs::fremovexattr(&self.descriptor, name) {
            Err(Errno::BADF) => fs::removexattr(self.link(), name),
            removed => removed,
        }
    }

    /// Returns a path that refers to this inode while the descriptor is open.
    fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_fd().as_raw_fd())
    }
}

impl<Fd: AsFd> AsFd for Inode<Fd> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The version of a file's content: inode, size and modification time.
///
/// Two changes that keep the size within one clock tick of the file system (4 ms or less; Linux 6.13 has finer ones)
/// are indistinguishable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    inode: u64,
    pub(super) size: u64,
    mtime_ns: i64,
}

impl Stamp {
    pub(super) fn of(status: &Stat) -> Self {
        // Wraps around for times out of range, which keeps different times different.
        let mtime_ns = status.st_mtime.wrapping_mul(NS_PER_S).wrapping_add(status.st_mtime_nsec as i64);
        Self { inode: status.st_ino, size: size_of(status), mtime_ns }
    }

    /// Returns the public version tag.
    pub(super) fn tag(self) -> Option<VersionTag> {
        VersionTag::of_numbers("", [self.inode, self.size, self.mtime_ns as u64])
    }

    /// Returns `Changed` unless the file behind `descriptor` still has this version.
    pub(super) fn check(self, descriptor: impl AsFd) -> Result<()> {
        let now = fs::fstat(descriptor).context("reading the status")?;
        if Stamp::of(&now) != self {
            return Err(Error::new(Fault::Changed, "the file was changed while it was open"));
        }
        Ok(())
    }
}

/// Converts a `status` to metadata without digests. Times before 1677 and after 2262 do not fit and are omitted.
pub(super) fn metadata(status: &Stat) -> Metadata {
    let kind = kind(FileType::from_raw_mode(status.st_mode));
    let stamp = Stamp::of(status);
    Metadata {
        mtime_ns: exact_ns(status.st_mtime, status.st_mtime_nsec),
        ctime_ns: exact_ns(status.st_ctime, status.st_ctime_nsec),
        atime_ns: exact_ns(status.st_atime, status.st_atime_nsec),
        mode: Some(status.st_mode & 0o7777),
        version: stamp.tag().filter(|_| kind == FileKind::File),
        file_id: Some(stamp.inode),
        directory_id: (kind == FileKind::Directory).then(|| host::directory_id(status.st_dev, stamp.inode)),
        ..Metadata::new(kind, if kind == FileKind::File { stamp.size } else { 0 })
    }
}

/// Converts the kind; a symbolic link is `Other` unless it was followed.
pub(super) fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    }
}

/// Returns `IsDirectory` or `NotRegular` unless `status` is that of a regular file.
pub(super) fn expect_regular(status: &Stat) -> Result<()> {
    match kind(FileType::from_raw_mode(status.st_mode)) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::new(Fault::IsDirectory, "it is a directory")),
        FileKind::Other => Err(Error::new(Fault::NotRegular, "it is not a regular file")),
    }
}

/// Returns the size of a file in bytes.
pub(super) fn size_of(status: &Stat) -> u64 {
    u64::try_from(status.st_size).unwrap_or(0)
}

/// Returns the disk space that a file takes in bytes.
pub(super) fn allocated_bytes(status: &Stat) -> u64 {
    // The unit of `st_blocks`, on every file system.
    u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// Returns whether the file takes less disk space than its size, so that it may have holes.
pub(super) fn is_sparse(status: &Stat) -> bool {
    allocated_bytes(status) < size_of(status)
}

/// Returns the modification time in nanoseconds since the Unix epoch.
pub(super) fn mtime_ns(status: &Stat) -> i64 {
    time_ns(status.st_mtime, status.st_mtime_nsec)
}

/// Returns the time of the last change of content or attributes in nanoseconds since the Unix epoch.
pub(super) fn ctime_ns(status: &Stat) -> i64 {
    time_ns(status.st_ctime, status.st_ctime_nsec)
}

/// Returns whether any later change is certain to give the file another time than `time_ns`, even in whole seconds. A
/// file changed just now, or in the future, could change again with the same time.
pub(super) fn is_settled(time_ns: i64) -> bool {
    crate::is_settled(time_ns, clock::unix_ns())
}

fn exact_ns(seconds: i64, nanoseconds: u64) -> Option<i64> {
    seconds.checked_mul(NS_PER_S)?.checked_add(nanoseconds as i64)
}

/// Returns the nearest representable time.
fn time_ns(seconds: i64, nanoseconds: u64) -> i64 {
    seconds.saturating_mul(NS_PER_S).saturating_add(nanoseconds as i64)
}
