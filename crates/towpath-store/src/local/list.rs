//! Directory listings: one `getdents64` call and one disk job per batch.
//!
//! There is no read-ahead: an idle listing holds a descriptor and one buffer, but no thread.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, Stat},
    io::Errno,
};

use super::{
    Local,
    errno::{self, ErrnoContext as _},
    inode::{self, Inode},
    root::is_reserved,
};
use crate::{Entry, FileKind, ListOptions, Listing, Metadata, Result, StorePath};

/// The smallest record of the kernel takes 24 bytes, so one call returns at most 900 entries.
const BUFFER_BYTES: usize = 21_600;
/// A batch with fewer entries is most likely the last, so the same job checks for the end.
const FEW: usize = 100;

/// Returns the batches of the directory at `path`.
pub(super) fn list(local: Arc<Local>, path: StorePath, options: ListOptions) -> Listing {
    let lister = Lister { local, path, options, directory: None, has_ended: false };
    stream::try_unfold(lister, |lister| async {
        if lister.has_ended {
            return Ok(None);
        }
        let (pool, path) = (lister.local.pool.clone(), lister.path.clone());
        let outcome = pool.run(move || lister.next()).await;
        outcome.map_err(|error| error.at(&path))
    })
    .boxed()
}

#[derive(Debug)]
struct Lister {
    local: Arc<Local>,
    path: StorePath,
    options: ListOptions,
    directory: Option<OwnedFd>,
    has_ended: bool,
}

impl Lister {
    /// Returns the next non-empty batch, and the lister for the following one.
    fn next(mut self) -> Result<Option<(Vec<Entry>, Self)>> {
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => self.local.root.open_at(&self.path, OFlags::RDONLY | OFlags::DIRECTORY)?,
        };
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut batch = Vec::new();
        while batch.len() <= FEW && !self.has_ended {
            let mut records = RawDir::new(&directory, buffer.spare_capacity_mut());
            self.has_ended = true;
            while self.has_ended || !records.is_buffer_empty() {
                let Some(record) = records.next() else { break };
                let record = record.context("reading the directory")?;
                self.has_ended = false;
                batch.extend(self.entry(&directory, record.file_name().to_bytes(), record.file_type())?);
            }
        }
        self.directory = Some(directory);
        Ok(if batch.is_empty() { None } else { Some((batch, self)) })
    }

    /// Returns an entry; `None` for a hidden one, and for one that was removed in the meantime.
    fn entry(&self, directory: &OwnedFd, name: &[u8], file_type: FileType) -> Result<Option<Entry>> {
        if matches!(name, b"." | b"..") || is_reserved(name) {
            return Ok(None);
        }
        let is_unclear = matches!(file_type, FileType::Unknown | FileType::Symlink);
        let metadata = if self.options.metadata || self.options.digests || is_unclear {
            let Some(status) = status(directory, name)? else { return Ok(None) };
            self.described(directory, name, &status)
        } else {
            Metadata::new(inode::kind(file_type), 0)
        };
        Ok(Some(Entry { name: Bytes::copy_from_slice(name), metadata }))
    }

    /// Returns the metadata of an entry; for a link those of its target, if that is inside the store.
    fn described(&self, directory: &OwnedFd, name: &[u8], status: &Stat) -> Metadata {
        let own = inode::metadata(status);
        if FileType::from_raw_mode(status.st_mode) == FileType::Symlink {
            let target = self.path.join(name).ok().and_then(|path| Inode::open(&self.local.root, &path).ok());
            let described = target.map_or(own, |target| match self.options.digests {
                true => self.local.metadata(&target),
                false => inode::metadata(target.status()),
            });
            return Metadata { is_link: true, ..described };
        }
        if !self.options.digests || own.kind != FileKind::File {
            return own;
        }
        let known = self.local.digest_cache.get(status).map(|digests| Metadata { digests, ..own.clone() });
        known.or_else(|| self.read_digests(directory, name)).unwrap_or(own)
    }

    /// Returns metadata with digests of an entry that is not a link; `None` if it was removed.
    fn read_digests(&self, directory: &OwnedFd, name: &[u8]) -> Option<Metadata> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = fs::openat(directory, OsStr::from_bytes(name), flags, Mode::empty()).ok()?;
        Some(self.local.metadata(&Inode::of(descriptor).ok()?))
    }
}

/// Returns the status of the entry itself, without following links; `None` if it is gone.
fn status(directory: &OwnedFd, name: &[u8]) -> Result<Option<Stat>> {
    match fs::statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(Some(status)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno::error(errno, "reading the status of an entry")),
    }
}
