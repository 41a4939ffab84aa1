//! A file of a local store that is open for reading.
//!
//! A short read is served by `read_now`, which copies it from the page cache on the calling thread (`RWF_NOWAIT`) and
//! compares size, time and inode (`fstat`). If some data are not cached, the disk pool reads them. The version is
//! compared *after* each read: a writer changes the modification time before it changes the data, so data of another
//! version cannot pass.

use std::{fs::File, os::fd::AsFd, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use rustix::{fs::Stat, io};

use super::{
    Local,
    errno::ErrnoContext as _,
    holes,
    inode::{self, Inode, Stamp},
    root, vector, vector_now,
};
use crate::{
    ByteRange, ContentStream, Error, Fault, FileKind, LocalPart, Metadata, OpenOptions, Preparation, ReadBuffer,
    ReadHandle, Result, StorePath, VectorReads,
    positional::{self, append, read_without_waiting},
};

/// Maximum number of bytes copied on a network thread: about 40 µs, the cost of two context switches. Longer reads go
/// to the disk pool.
const READ_NOW_BYTES: usize = 256 * 1024;

/// A local file open for reading.
#[derive(Debug)]
pub(super) struct LocalFile {
    pub(super) local: Arc<Local>,
    pub(super) file: Arc<File>,
    pub(super) path: StorePath,
    pub(super) view: View,
    /// The opened version.
    opened: Stamp,
    pub(super) in_memory: bool,
    /// Whether it may have holes.
    is_sparse: bool,
    metadata: Metadata,
}

/// The version that reads return.
#[derive(Debug, Clone, Copy)]
pub(super) enum View {
    /// The opened version.
    Pinned(Stamp),
    /// The current content.
    Current,
}

impl View {
    /// Returns `Changed` if the view is pinned and the file has another version.
    pub(super) fn check(self, file: &File) -> Result<()> {
        match self {
            View::Pinned(stamp) => stamp.check(file),
            View::Current => Ok(()),
        }
    }

    /// Returns the size of the file.
    pub(super) fn size(self, file: &File) -> Result<u64> {
        match self {
            View::Pinned(stamp) => Ok(stamp.size),
            View::Current => Ok(inode::size_of(Inode::of(file)?.status())),
        }
    }
}

impl LocalFile {
    /// Opens the file at `path`.
    pub(super) fn open(local: &Arc<Local>, path: &StorePath, options: &OpenOptions) -> Result<Self> {
        let file = File::from(local.root.open_at(path, root::READ)?);
        let inode = Inode::of(file.as_fd())?;
        inode::expect_regular(inode.status())?;
        let file_system = root::file_system_of(&file)?;
        expect_length(&file, &inode, file_system)?;
        let metadata = local.metadata(&inode);
        let in_memory = root::is_in_memory(file_system);
        let status = *inode.status();
        Self::new(local, path, options, file, metadata, &status, in_memory)
    }

    /// Like [`Self::open`], if no disk access is needed; `None` otherwise.
    pub(super) fn open_now(local: &Arc<Local>, path: &StorePath, options: &OpenOptions) -> Option<Result<Self>> {
        let file = match local.root.open_at_now(path, root::READ)? {
            Ok(descriptor) => File::from(descriptor),
            Err(error) => return Some(Err(error)),
        };
        let inode = Inode::of(file.as_fd()).ok()?;
        let in_memory = local.root.is_in_memory();
        let metadata = local.metadata_now(&inode, in_memory).filter(|metadata| metadata.kind == FileKind::File)?;
        let status = *inode.status();
        Some(Self::new(local, path, options, file, metadata, &status, in_memory))
    }

    fn new(
        local: &Arc<Local>,
        path: &StorePath,
        options: &OpenOptions,
        file: File,
        metadata: Metadata,
        status: &Stat,
        in_memory: bool,
    ) -> Result<Self> {
        if !options.accept(&metadata) {
            return Err(Error::new(Fault::Changed, "the file no longer has the requested version"));
        }
        let (opened, is_sparse) = (Stamp::of(status), inode::is_sparse(status));
        let view = if options.follows { View::Current } else { View::Pinned(opened) };
        let (local, file, path) = (Arc::clone(local), Arc::new(file), path.clone());
        Ok(Self { local, file, path, view, opened, in_memory, is_sparse, metadata })
    }

    /// Returns the length of a read of `length` bytes at `offset`, clipped to the end of the file.
    fn within(&self, offset: u64, length: usize) -> Result<usize> {
        let rest = self.view.size(&self.file)?.saturating_sub(offset);
        Ok(usize::try_from(rest).map_or(length, |rest| rest.min(length)))
    }

    fn try_read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        let before = buffer.len();
        let read = if self.in_memory {
            append(&self.file, offset, length, buffer).map(Some)
        } else {
            // Safe code cannot pass uninitialized memory to `preadv2`.
            buffer.resize(before + length, 0);
            read_without_waiting(&self.file, self.in_memory, offset, buffer.get_mut(before..)?)
        };
        let read = read.transpose()?.context("reading");
        let outcome = read.and_then(|got| self.view.check(&self.file).map(|()| got));
        match outcome {
            Ok(got) if got == length => Some(Ok(length)),
            Ok(_) => None,
            Err(error) => Some(Err(error.at(&self.path))),
        }
    }
}

#[async_trait]
impl ReadHandle for LocalFile {
    async fn metadata(&self) -> Result<Metadata> {
        if let View::Current = self.view {
            let inode = Inode::of(self.file.as_fd())?;
            if Stamp::of(inode.status()) != self.opened {
                return Ok(inode::metadata(inode.status()));
            }
        }
        Ok(self.metadata.clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let length = self.within(offset, length).map_err(|error| error.at(&self.path))?;
        self.read_into(offset, length, Vec::with_capacity(length)).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        if let Some(outcome) = self.read_now(offset, length, &mut buffer) {
            return outcome.map(|_| buffer);
        }
        let length = self.within(offset, length).map_err(|error| error.at(&self.path))?;
        let (file, view, is_sparse) = (Arc::clone(&self.file), self.view, self.is_sparse);
        let job = move || {
            let read = if is_sparse { holes::append } else { append };
            let got = read(&file, offset, length, &mut buffer).context("reading")?;
            view.check(&file)?;
            if got < length && matches!(view, View::Pinned(_)) {
                return Err(Error::new(Fault::Io, "the file ended before its size"));
            }
            Ok(buffer)
        };
        self.local.pool.run(job).await.map_err(|error| error.at(&self.path))
    }

    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        let length = match self.within(offset, length) {
            Ok(length) => length,
            Err(error) => return Some(Err(error.at(&self.path))),
        };
        if length > READ_NOW_BYTES {
            return None;
        }
        let before = buffer.len();
        let outcome = self.try_read_now(offset, length, buffer);
        if !matches!(outcome, Some(Ok(_))) {
            buffer.truncate(before);
        }
        outcome
    }

    fn read_vector_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        vector_now::fill_now(self, buffers)
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        match self.view.size(&self.file) {
            Ok(size) => vector::read(self, &ranges, size),
            Err(error) => {
                let error = error.at(&self.path);
                stream::iter((0..ranges.len()).map(move |index| (index, Err(error.clone())))).boxed()
            }
        }
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        Ok(None)
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        Some(LocalPart::new(Arc::clone(&self.file)))
    }

    fn check_version(&self) -> Result<()> {
        self.view.check(&self.file).map_err(|error| error.at(&self.path))
    }
}

/// Returns `NotRegular` if a file that reports size 0 has content: files in `/proc` are streams of unknown length.
pub(super) fn expect_length<Fd: AsFd>(file: &File, inode: &Inode<Fd>, file_system: u64) -> Result<()> {
    if inode::size_of(inode.status()) > 0 || root::is_local(file_system) {
        return Ok(());
    }
    let got = positional::retry(|| io::pread(file, &mut [0][..], 0)).context("reading")?;
    Stamp::of(inode.status()).check(file)?;
    if got > 0 {
        let message =
            "it is not a regular file: it reports 0 bytes but has more (copied alone, it is read as a stream)";
        return Err(Error::new(Fault::NotRegular, message));
    }
    Ok(())
}
