//! A file of a local store that is being written: an upload, or an update in place.
//!
//! An upload writes pieces from many tasks to an invisible staging file and computes their checksums on the way.
//! `commit` waits for the last piece, compares size and digests with the expectation, stores the digests with the
//! file, syncs it according to the store's policy, and renames it to its name. An update has no staging file and no
//! rename, and removes known digests before its first change and again when it ends.
//!
//! Writes hold the body's lock shared; `commit`, `abort` and `set_size` hold it exclusively, so that no piece is
//! written after the end, and checksums and size agree. The single piece of a small file is kept in memory until the
//! commit, which saves a context switch, the largest part of its cost.

use std::{
    fs::File,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::{
    fs::{self, AtFlags, FileType, Mode},
    io,
};
use tokio::sync::{self, OwnedMutexGuard, OwnedSemaphorePermit, RwLock, Semaphore};
use towpath_proto::checksum::{Algorithms, Digests, Extent};

use super::{
    Local, digests,
    errno::{self, Doing as _},
    holes,
    inode::{self, Inode},
    journal::Journal,
    partial_upload::{PartialUpload, Resumed},
    pool::Cancelled,
    read,
    root::{self, Parent},
    staging::Staged,
    sums::Sums,
};
use crate::{
    Caller, CreateOptions, Error, Expectation, Fault, Metadata, Overwrite, Result, StorePath, WriteHandle, sys::clock,
};

/// Offsets are signed in the kernel.
const LARGEST_FILE_BYTES: u64 = i64::MAX as u64;

/// Maximum announced size of a small file, in bytes. Its checksums take a network thread 10 µs.
const SMALL_BYTES: u64 = 64 << 10;
/// Maximum memory for the data of small files of one store in bytes; further ones are written like large files.
const HELD_BYTES: usize = 16 << 20;

/// Interval in bytes at which written data are sent to the disk, so that the final fsync does not have to write
/// gigabytes: the kernel would keep them for half a minute.
const WRITEBACK_BYTES: u64 = 16 << 20;

/// A local file being written.
#[derive(Debug)]
pub(super) struct LocalWriter {
    local: Arc<Local>,
    path: StorePath,
    /// `None` after commit or abort.
    body: Arc<RwLock<Option<Body>>>,
    /// Serializes writes to the file. The kernel permits one write at a time per file and spins for the others, which
    /// took a sixth of an upload's time.
    turn: Arc<sync::Mutex<()>>,
    /// Extents that were stored when the upload began.
    present: Vec<Extent>,
}

/// The result of starting an upload in a short job.
#[derive(Debug)]
pub(super) enum Begun {
    Ready(LocalWriter),
    MustRead(Box<UnverifiedUpload>),
}

/// A resumed upload whose stored data have to be read first.
#[derive(Debug)]
pub(super) struct UnverifiedUpload {
    local: Arc<Local>,
    path: StorePath,
    options: CreateOptions,
    partial: PartialUpload,
}

#[derive(Debug)]
struct Body {
    local: Arc<Local>,
    path: StorePath,
    file: Arc<File>,
    early: Mutex<Early>,
    /// Bytes written since the last writeback was started.
    kept: AtomicU64,
    end: End,
}

/// What happens to the file at the end.
#[derive(Debug)]
enum End {
    /// It is renamed to its target. The journal must be dropped before the lock on the staging file.
    Publish {
        journal: Option<Box<Journal>>,
        staged: Staged,
        overwrite: Overwrite,
        mode: Option<u32>,
        sums: Mutex<Sums>,
    },
    /// The file keeps its name. The flag is whether its known digests were removed.
    Stay { is_forgotten: Mutex<bool> },
}

/// A file that matches the expectation as far as it can be checked without reading it.
#[derive(Debug)]
struct Checked {
    body: Body,
    expected: Expectation,
    digests: Digests,
}

/// The result of a commit in a short job.
#[derive(Debug)]
enum Commit {
    Done(Metadata),
    MustRead(Box<Checked>),
}

/// Data received before the staging file exists.
#[derive(Debug)]
enum Early {
    /// No data; the first piece may be held.
    Nothing,
    /// The first piece, held in memory.
    Held { offset: u64, data: Bytes, _room: OwnedSemaphorePermit },
    /// Pieces are written as they arrive.
    Written,
}

/// The memory shared by the small files of one store.
#[derive(Debug)]
pub(super) struct Held(Arc<Semaphore>);

impl Default for Held {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD_BYTES)))
    }
}

impl LocalWriter {
    /// Starts an upload.
    pub(super) fn create(
        local: &Arc<Local>,
        caller: &Caller,
        path: &StorePath,
        options: &CreateOptions,
    ) -> Result<Begun> {
        let parent = match (parent_of(local, path, options.overwrite), path.parent()) {
            (Err(error), Some(above)) if options.parents && error.fault() == Fault::NotFound => {
                local.make_directories(&above)?;
                parent_of(local, path, options.overwrite)?
            }
            (outcome, _) => outcome?,
        };
        let partial = options.resume.map(|key| {
            let size = options.size_hint.ok_or_else(|| {
                Error::new(Fault::InvalidArgument, "an upload with a resume key must say how large the file will be")
            })?;
            PartialUpload::find(local, &parent, caller, key, size)
        });
        let partial = partial.transpose()?.flatten();
        if let Some(size) = options.size_hint {
            let allocated_bytes = partial.as_ref().map_or(Ok(0), PartialUpload::allocated_bytes)?;
            expect_space(&parent.directory, size.saturating_sub(allocated_bytes))?;
        }
        Ok(match partial {
            None => {
                Begun::Ready(Self::start(local, path, options, local.staging.create(&local.root, &parent.directory)?))
            }
            Some(partial) if partial.is_nothing() => {
                Begun::Ready(Self::resume(local, path, options, partial.resume(Vec::new())?))
            }
            Some(partial) => {
                let (local, path, options) = (Arc::clone(local), path.clone(), options.clone());
                Begun::MustRead(Box::new(UnverifiedUpload { local, path, options, partial }))
            }
        })
    }

    /// Starts an upload to the new file `staged`.
    fn start(local: &Arc<Local>, path: &StorePath, options: &CreateOptions, staged: Staged) -> Self {
        let sums = Mutex::new(Sums::new(options.digests, &local.early_room));
        let file = Arc::clone(staged.file());
        let is_small = options.size_hint.is_some_and(|size| size <= SMALL_BYTES);
        let early = if is_small { Early::Nothing } else { Early::Written };
        let end = End::Publish { journal: None, staged, overwrite: options.overwrite, mode: options.mode, sums };
        Self::new(local, path, file, early, end)
    }

    /// Continues an earlier upload.
    fn resume(local: &Arc<Local>, path: &StorePath, options: &CreateOptions, resumed: Resumed) -> Self {
        let Resumed { journal, staged, verified } = resumed;
        let mut sums = Sums::new(options.digests, &local.early_room);
        sums.found(&verified);
        let present = sums.extents();
        let file = Arc::clone(staged.file());
        let (overwrite, mode, sums) = (options.overwrite, options.mode, Mutex::new(sums));
        let end = End::Publish { journal: Some(Box::new(journal)), staged, overwrite, mode, sums };
        Self { present, ..Self::new(local, path, file, Early::Written, end) }
    }

    /// Opens an existing file for updates in place.
    pub(super) fn update(local: &Arc<Local>, path: &StorePath) -> Result<Self> {
        let file = File::from(local.root.open_at(path, root::CHANGE)?);
        inode::expect_regular(Inode::of(file.as_fd())?.status())?;
        let end = End::Stay { is_forgotten: Mutex::new(false) };
        Ok(Self::new(local, path, Arc::new(file), Early::Written, end))
    }

    fn new(local: &Arc<Local>, path: &StorePath, file: Arc<File>, early: Early, end: End) -> Self {
        let (early, kept) = (Mutex::new(early), AtomicU64::new(0));
        let body = Body { local: Arc::clone(local), path: path.clone(), file, early, kept, end };
        let body = Arc::new(RwLock::new(Some(body)));
        Self { local: Arc::clone(local), path: path.clone(), body, turn: Arc::default(), present: Vec::new() }
    }

    /// Runs `job` on the body, concurrently with other jobs. The job runs to its end even if the future is dropped.
    async fn with_body<T: Send + 'static>(&self, job: impl FnOnce(&Body) -> Result<T> + Send + 'static) -> Result<T> {
        let body = Arc::clone(&self.body).read_owned().await;
        let outcome = self.local.pool.run(move || job(body.as_ref().ok_or_else(finished)?)).await;
        outcome.map_err(|error| error.at(&self.path))
    }
}

#[async_trait]
impl WriteHandle for LocalWriter {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        if self.body.read().await.as_ref().is_some_and(|body| body.hold(offset, &data)) {
            return Ok(());
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.with_body(move |body| body.write(offset, &data, turn)).await
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(self.present.clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.with_body(move |body| body.read(offset, length)).await
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        let body = Arc::clone(&self.body).write_owned().await;
        let job = move || body.as_ref().ok_or_else(finished)?.set_size(size);
        self.local.pool.run(job).await.map_err(|error| error.at(&self.path))
    }

    async fn sync(&self) -> Result<()> {
        self.with_body(Body::sync).await
    }

    async fn metadata(&self) -> Result<Metadata> {
        // `fstat` of an open file needs no disk access.
        let now = self.body.read().await.as_ref().and_then(|body| body.metadata(&*body.early.try_lock().ok()?).ok());
        match now {
            Some(metadata) => Ok(metadata),
            None => self.with_body(|body| body.metadata(&lock(&body.early))).await,
        }
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let mut body = Arc::clone(&self.body).write_owned().await;
        let job = move || {
            let checked = body.take().ok_or_else(finished)?.check(expected)?;
            match checked.missing().is_empty() {
                true => checked.finish().map(Commit::Done),
                false => Ok(Commit::MustRead(Box::new(checked))),
            }
        };
        let outcome = match self.local.pool.run(job).await {
            Ok(Commit::Done(metadata)) => Ok(metadata),
            Ok(Commit::MustRead(checked)) => {
                self.local.pool.run_long(|cancelled| checked.read(cancelled)?.finish()).await
            }
            Err(error) => Err(error),
        };
        outcome.map_err(|error| error.at(&self.path))
    }

    async fn abort(&self) -> Result<()> {
        let mut body = Arc::clone(&self.body).write_owned().await;
        let job = move || match body.take() {
            // Truncated first, so that its space is free when this returns, although the descriptor is closed a little
            // later.
            Some(Body { file, end: End::Publish { staged, .. }, .. }) => {
                staged.discard();
                fs::ftruncate(&*file, 0).doing("giving up the upload")
            }
            Some(_) | None => Ok(()),
        };
        self.local.pool.run(job).await
    }
}

impl Body {
    /// Writes a piece. `turn` is released after the write, because checksums of pieces may be computed in parallel.
    fn write(&self, offset: u64, data: &Bytes, turn: OwnedMutexGuard<()>) -> Result<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > LARGEST_FILE_BYTES) {
            return Err(Error::new(Fault::TooLarge, "the piece ends beyond the largest file"));
        }
        self.forget_digests()?;
        self.write_held()?;
        let written = match &self.end {
            // `turn` is held: nothing extends the file concurrently.
            End::Publish { .. } => holes::write(&self.file, offset, data),
            End::Stay { .. } => write_all(&self.file, offset, data),
        };
        let outcome = written.doing("writing");
        drop(turn);
        if self.kept.fetch_add(data.len() as u64, Relaxed) + data.len() as u64 >= WRITEBACK_BYTES {
            self.kept.store(0, Relaxed);
            self.local.start_writeback(&self.file);
        }
        if let End::Publish { sums, journal, .. } = &self.end {
            match (&outcome, journal) {
                (Ok(()), None) => {
                    Sums::add(sums, offset, data);
                }
                (Ok(()), Some(journal)) => {
                    let parts = journal.parts(offset, data);
                    let mut extents = parts.filter_map(|(offset, part)| Sums::add(sums, offset, &part));
                    extents.try_for_each(|extent| journal.wrote(&extent))?;
                }
                // It may have been written partially.
                (Err(_), _) => lock(sums).give_up(offset),
            }
        }
        outcome
    }

    /// Keeps the first piece of a small file in memory, if there is memory left; returns whether it did.
    fn hold(&self, offset: u64, data: &Bytes) -> bool {
        let End::Publish { sums, .. } = &self.end else { return false };
        if data.is_empty() || offset.saturating_add(data.len() as u64) > SMALL_BYTES {
            return false;
        }
        // The holder of the lock may be writing to the disk.
        let Ok(mut early) = self.early.try_lock() else { return false };
        if !matches!(*early, Early::Nothing) {
            return false;
        }
        let Ok(_room) = Arc::clone(&self.local.held.0).try_acquire_many_owned(data.len() as u32) else { return false };
        Sums::add(sums, offset, data);
        *early = Early::Held { offset, data: data.clone(), _room };
        true
    }

    /// Writes the held piece. If that fails it is still held, so that a commit does not lose it.
    fn write_held(&self) -> Result<()> {
        let mut early = lock(&self.early);
        if let Early::Held { offset, data, .. } = &*early {
            write_all(&self.file, *offset, data).doing("writing")?;
        }
        *early = Early::Written;
        Ok(())
    }

    fn metadata(&self, early: &Early) -> Result<Metadata> {
        let metadata = inode::metadata(Inode::of(self.file.as_fd())?.status());
        Ok(match early {
            Early::Held { offset, data, .. } => Metadata { size: offset + data.len() as u64, ..metadata },
            Early::Nothing | Early::Written => metadata,
        })
    }

    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.write_held()?;
        let size = inode::size_of(Inode::of(self.file.as_fd())?.status());
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = Vec::new();
        read::append(&self.file, offset, length.min(rest), &mut buffer).doing("reading")?;
        Ok(buffer.into())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        if size > LARGEST_FILE_BYTES {
            return Err(Error::new(Fault::TooLarge, "larger than the largest file"));
        }
        self.forget_digests()?;
        self.write_held()?;
        fs::ftruncate(&self.file, size).doing("setting the size")?;
        if let End::Publish { sums, journal, .. } = &self.end {
            lock(sums).truncate(size);
            journal.iter().for_each(|journal| journal.forget_partial());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.write_held()?;
        // Data that the disk rejected may still be readable until the kernel drops them from its cache.
        self.local.sync_file(&self.file).inspect_err(|_| self.discard())?;
        if let End::Publish { journal: Some(journal), .. } = &self.end {
            journal.flush()?;
            self.local.sync_file(journal.file())?;
        }
        Ok(())
    }

    /// Removes the known digests of a file before its first change in place.
    fn forget_digests(&self) -> Result<()> {
        let End::Stay { is_forgotten } = &self.end else { return Ok(()) };
        let mut is_forgotten = lock(is_forgotten);
        if !*is_forgotten {
            if digests::forget(&Inode::of(self.file.as_fd())?)? {
                // Also on disk: after a power failure there could be new data with old attributes and an old time.
                self.local.sync_file(&self.file)?;
            }
            *is_forgotten = true;
        }
        Ok(())
    }

    /// Compares everything that can be compared without reading the file.
    fn check(self, expected: Expectation) -> Result<Checked> {
        self.write_held()?;
        let size = inode::size_of(Inode::of(self.file.as_fd())?.status());
        expected.check_size(size)?;
        let digests = match &self.end {
            End::Publish { sums, .. } => lock(sums).finish(size),
            End::Stay { .. } => Digests::new(),
        };
        self.compare(&expected, &digests)?;
        Ok(Checked { body: self, expected, digests })
    }

    /// Compares digests with the expected ones. After a mismatch the data are discarded, so that no upload resumes from
    /// them.
    fn compare(&self, expected: &Expectation, digests: &Digests) -> Result<()> {
        expected.check_digests(digests).inspect_err(|_| self.discard())
    }

    /// Discards the file when it is dropped, unless it is published.
    fn discard(&self) {
        if let End::Publish { staged, .. } = &self.end {
            staged.discard();
        }
    }

    /// Makes a checked file durable and visible.
    fn finish(&self, expected: &Expectation, digests: Digests) -> Result<Metadata> {
        let mut inode = Inode::of(self.file.as_fd())?;
        let digests = match &self.end {
            End::Publish { staged, overwrite, mode, .. } => {
                let before = *inode.status();
                let published = self.publish(&mut inode, staged, (*overwrite, *mode), expected, &digests);
                published.inspect_err(|_| self.restore(&inode, &before))?;
                digests
            }
            End::Stay { is_forgotten } => {
                // Digests that other readers stored between the changes.
                if *lock(is_forgotten) {
                    digests::forget(&inode)?;
                }
                if let Some(mtime_ns) = expected.mtime_ns {
                    digests::set_mtime(&mut inode, mtime_ns)?;
                }
                self.sync()?;
                digests::known(&inode)
            }
        };
        inode.refresh()?;
        Ok(Metadata { digests, ..inode::metadata(inode.status()) })
    }

    /// Sets time, digests, mode and name of a staging file. The mode is set after the digests, because some modes
    /// prevent setting attributes.
    fn publish(
        &self,
        inode: &mut Inode<BorrowedFd<'_>>,
        staged: &Staged,
        (overwrite, mode): (Overwrite, Option<u32>),
        expected: &Expectation,
        digests: &Digests,
    ) -> Result<()> {
        inode.set_mtime(expected.mtime_ns.unwrap_or_else(clock::unix_ns))?;
        inode.refresh()?;
        digests::keep(inode, digests);
        if let Some(mode) = mode.filter(|mode| inode.status().st_mode & 0o7777 != mode & 0o7777) {
            fs::fchmod(&*self.file, Mode::from_raw_mode(mode & 0o7777)).doing("setting the mode")?;
        }
        // The parent is resolved again: the original directory may have been moved during the upload.
        self.local.publish(staged, &self.local.root.parent(&self.path)?, overwrite)
    }

    /// Restores mode and time of a file whose publication failed, because the next upload with its key may want others.
    /// Its digests are removed when it is resumed.
    fn restore(&self, inode: &Inode<BorrowedFd<'_>>, before: &fs::Stat) {
        let End::Publish { staged, .. } = &self.end else { return };
        if staged.is_published() {
            return;
        }
        let mode = fs::fchmod(&*self.file, Mode::from_raw_mode(before.st_mode & 0o7777));
        let restored = mode.doing("setting the mode").and_then(|()| inode.set_mtime(inode::mtime_ns(before)));
        if restored.is_err() {
            staged.discard();
        }
    }
}

impl UnverifiedUpload {
    /// Reads the stored data and continues with the verified part.
    pub(super) fn read(self, cancelled: &Cancelled) -> Result<LocalWriter> {
        let algorithms = self.options.digests.union(Algorithms::DEFAULT).combinable();
        let verified = self.partial.verify(algorithms, cancelled)?;
        Ok(LocalWriter::resume(&self.local, &self.path, &self.options, self.partial.resume(verified)?))
    }
}

impl Checked {
    /// Returns the expected digests that are not known yet.
    fn missing(&self) -> Algorithms {
        let promised = self.expected.digests.algorithms();
        promised.iter().filter(|wanted| self.digests.get(*wanted).is_none()).collect()
    }

    /// Computes missing digests by reading the file.
    fn read(mut self, cancelled: &Cancelled) -> Result<Self> {
        let computed = digests::compute(&self.body.file, self.missing(), cancelled, |_| {})?;
        computed.iter().for_each(|digest| self.digests.insert(*digest));
        self.body.compare(&self.expected, &self.digests)?;
        Ok(self)
    }

    fn finish(self) -> Result<Metadata> {
        self.body.finish(&self.expected, self.digests)
    }
}

/// Opens the parent directory of `path`. Fails early if a commit could not succeed at this moment.
pub(super) fn parent_of<'a>(local: &Local, path: &'a StorePath, overwrite: Overwrite) -> Result<Parent<'a>> {
    let is_directory = || Error::new(Fault::IsDirectory, "it is a directory");
    if path.is_root() {
        return Err(is_directory());
    }
    let parent = local.root.parent(path)?;
    let existing = fs::statat(&parent.directory, parent.name, AtFlags::SYMLINK_NOFOLLOW);
    match existing.map(|status| FileType::from_raw_mode(status.st_mode)) {
        Ok(FileType::Directory) => Err(is_directory()),
        Ok(_) if overwrite == Overwrite::Refuse => Err(Error::new(Fault::AlreadyExists, "it exists already")),
        Ok(file_type) if root::is_special(file_type) => Err(root::special()),
        Ok(_) | Err(io::Errno::NOENT) => Ok(parent),
        Err(errno) => Err(errno::error(errno, "looking for the file")),
    }
}

/// Returns `NoSpace` if the file system has less free space than `size` bytes. The space is not reserved (`fallocate`):
/// this made no upload faster on ext4, costs a second per GiB in memory, and would fill holes.
fn expect_space(directory: &rustix::fd::OwnedFd, size: u64) -> Result<()> {
    let space = super::space_of(directory)?;
    if size > space.free {
        return Err(Error::new(Fault::NoSpace, format!("{size} bytes do not fit: {} are free", space.free)));
    }
    Ok(())
}

/// Writes all of `data`. `pwrite` may write less than requested, for instance shortly before the disk is full.
pub(super) fn write_all(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
        match read::retry(|| io::pwrite(file, rest, offset + written as u64))? {
            0 => return Err(io::Errno::IO),
            more => written += more,
        }
    }
    Ok(())
}

fn finished() -> Error {
    Error::new(Fault::HandleNotOpen, "the file was committed or aborted already")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
