//! Files of a store that keeps its state in a directory: reads and writes by position, and the names of files.
//!
//! [`Volume`] is the seam between such a store and the disk. [`SystemVolume`] is a directory of this machine; the test
//! kit has a volume that fails, fills up, and loses or tears unsynced writes.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Timespec, Timestamps, UTIME_NOW},
    io::Errno,
};

use crate::{Space, local, positional};

/// A directory tree of files. Names are relative to its root and have no `..`. All calls may block.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Locks the volume against other users of it, until this is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if another user has locked it, and other errors of the disk.
    fn lock(&self) -> io::Result<()>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn open(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>>;

    /// Like [`Self::open`]; creates a missing file, and its missing parent directories. Only its owner may read it.
    ///
    /// # Errors
    /// Errors of the disk.
    fn open_or_create(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>>;

    /// Renames a file and replaces an existing one; missing parent directories of the new name are created. After a loss
    /// of power the old or the new state is visible.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn remove(&self, name: &Path) -> io::Result<()>;

    /// Returns the entries of a directory, in no particular order.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn entries(&self, directory: &Path) -> io::Result<Vec<VolumeEntry>>;

    /// Returns the space that a file takes on the disk, and when it was last changed or touched.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn usage(&self, name: &Path) -> io::Result<FileUsage>;

    /// Sets the time of [`FileUsage::changed_s`] to now.
    ///
    /// # Errors
    /// `NotFound`, and other errors of the disk.
    fn touch(&self, name: &Path) -> io::Result<()>;

    /// Returns the space of the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    fn space(&self) -> io::Result<Space>;
}

/// The space that a file takes, and its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUsage {
    /// Space on the disk in bytes; less than the size for a sparse file.
    pub allocated_bytes: u64,
    /// When the file was last changed or touched, in seconds since the Unix epoch.
    pub changed_s: i64,
}

/// An entry of a directory of a [`Volume`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeEntry {
    /// The last component of its name.
    pub name: OsString,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// An open file of a [`Volume`]. All calls may be made concurrently; all but [`Self::read_now_at`] may block.
pub trait VolumeFile: Send + Sync + fmt::Debug {
    /// Appends up to `length` bytes at `offset` to `buffer`; fewer only at the end of the file.
    ///
    /// # Errors
    /// Errors of the disk.
    fn read_at(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Fills `buffer` from `offset` without waiting for a disk. `None` if some of the bytes are not in memory or past
    /// the end of the file.
    fn read_now_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()>;

    /// Writes all of `data` at `offset`; a gap before it reads as zeros.
    ///
    /// # Errors
    /// `StorageFull`, and other errors of the disk. A part may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros that take no space.
    ///
    /// # Errors
    /// Errors of the disk.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Frees the space of a range, which then reads as zeros. Parts of blocks are zeroed.
    ///
    /// # Errors
    /// `Unsupported` if the file system cannot, and other errors of the disk.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Waits until the data and the size are on the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns the size in bytes.
    ///
    /// # Errors
    /// Errors of the disk.
    fn size(&self) -> io::Result<u64>;

    /// Returns the open file of this machine, for `sendfile`, if it is one.
    fn system_file(&self) -> Option<Arc<File>>;
}

/// Name of the file that is locked.
const LOCK: &str = "lock";

/// The current time, as set by the kernel.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };

/// A directory of this machine.
#[derive(Debug)]
pub struct SystemVolume {
    root: PathBuf,
    /// Whether its file system has no disk.
    in_memory: bool,
    /// The locked file.
    lock: OnceLock<File>,
}

impl SystemVolume {
    /// Opens a directory, which is created if it is missing.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = fs::canonicalize(root)?;
        if !fs::metadata(&root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let in_memory = local::is_in_memory(&File::open(&root)?)?;
        Ok(Self { root, in_memory, lock: OnceLock::new() })
    }

    fn open_file(&self, name: &Path, create: bool) -> io::Result<Arc<dyn VolumeFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(create).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let file = Arc::new(options.open(self.root.join(name))?);
        Ok(Arc::new(SystemFile { file, in_memory: self.in_memory }))
    }
}

impl Volume for SystemVolume {
    fn lock(&self) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(self.root.join(LOCK))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // If this process has locked it already, the first lock stays.
                let _ = self.lock.set(file);
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "another process uses this directory"))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>> {
        self.open_file(name, false)
    }

    fn open_or_create(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>> {
        match self.open_file(name, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = name.parent() {
                    fs::create_dir_all(self.root.join(parent))?;
                }
                self.open_file(name, true)
            }
            outcome => outcome,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::rename(self.root.join(from), self.root.join(to)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = to.parent() {
                    fs::create_dir_all(self.root.join(parent))?;
                }
                fs::rename(self.root.join(from), self.root.join(to))
            }
            outcome => outcome,
        }
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        fs::remove_file(self.root.join(name))
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<VolumeEntry>> {
        let entries = fs::read_dir(self.root.join(directory))?;
        let described = entries.map(|entry| {
            let entry = entry?;
            Ok(VolumeEntry { name: entry.file_name(), is_directory: entry.file_type()?.is_dir() })
        });
        described.collect()
    }

    fn usage(&self, name: &Path) -> io::Result<FileUsage> {
        let metadata = fs::symlink_metadata(self.root.join(name))?;
        Ok(FileUsage { allocated_bytes: metadata.blocks().saturating_mul(512), changed_s: metadata.mtime() })
    }

    fn touch(&self, name: &Path) -> io::Result<()> {
        let now = Timestamps { last_access: NOW, last_modification: NOW };
        Ok(rustix::fs::utimensat(CWD, self.root.join(name), &now, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn space(&self) -> io::Result<Space> {
        let status = rustix::fs::statvfs(&self.root)?;
        let block = status.f_frsize;
        Ok(Space { total: status.f_blocks.saturating_mul(block), free: status.f_bavail.saturating_mul(block) })
    }
}

/// An open file of this machine.
#[derive(Debug)]
struct SystemFile {
    file: Arc<File>,
    /// Whether the file system has no disk.
    in_memory: bool,
}

impl VolumeFile for SystemFile {
    fn read_at(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(positional::append(&self.file, offset, length, buffer)?)
    }

    fn read_now_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let length = buffer.len();
        let got = positional::read_without_waiting(&self.file, self.in_memory, offset, buffer).ok()??;
        (got == length).then_some(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(positional::write_all(&self.file, offset, data)?)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(positional::retry(|| rustix::fs::fallocate(&self.file, flags, offset, length))?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn system_file(&self) -> Option<Arc<File>> {
        Some(Arc::clone(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_written_by_position() {
        let directory = tempfile::tempdir().unwrap();
        let volume = SystemVolume::open(&directory.path().join("new")).unwrap();
        let name = Path::new("a/b/file");
        assert_eq!(volume.open(name).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = volume.open_or_create(name).unwrap();
        file.write_at(100_000, b"data").unwrap();
        let mut buffer = b"before".to_vec();
        assert_eq!(file.read_at(99_998, 10, &mut buffer).unwrap(), 6);
        assert_eq!(buffer, b"before\0\0data");
        let mut now = [0; 4];
        file.read_now_at(100_000, &mut now).unwrap();
        assert_eq!(&now, b"data");
        assert!(file.read_now_at(100_001, &mut now).is_none(), "past the end");
        assert_eq!(file.size().unwrap(), 100_004);
        volume.rename(name, Path::new("a/b/other")).unwrap();
        let names = volume.entries(Path::new("a/b")).unwrap();
        assert_eq!(names, [VolumeEntry { name: "other".into(), is_directory: false }]);
        let usage = volume.usage(Path::new("a/b/other")).unwrap();
        assert!((1..100_000).contains(&usage.allocated_bytes), "it is sparse: {usage:?}");
        volume.touch(Path::new("a/b/other")).unwrap();
        assert!(volume.usage(Path::new("a/b/other")).unwrap().changed_s >= usage.changed_s);
        volume.remove(Path::new("a/b/other")).unwrap();
        assert!(volume.space().unwrap().total > 0);
        volume.lock().unwrap();
        let other = SystemVolume::open(&directory.path().join("new")).unwrap();
        assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(volume);
        other.lock().unwrap();
    }
}
