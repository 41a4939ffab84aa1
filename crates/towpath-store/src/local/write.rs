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
    errno::{self, ErrnoContext as _},
    holes,
    inode::{self, Inode},
    journal::Journal,
    partial_upload::{PartialUpload, ResumedUpload},
    root::{self, Parent},
    staging::StagingFile,
    upload_digests::UploadDigests,
};
use crate::{
    Caller, CreateOptions, Error, Expectation, Fault, Metadata, Overwrite, Result, StorePath, WriteHandle,
    disk_pool::CancellationCheck,
    positional::{self, write_all},
    sys::clock,
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
pub(super) enum UploadStart {
    Ready(LocalWriter),
    NeedsVerification(Box<UnverifiedUpload>),
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
    initial_data: Mutex<InitialData>,
    /// Bytes written since the last writeback was started.
    kept: AtomicU64,
    completion: Completion,
}

/// What happens to the file at the end.
#[derive(Debug)]
enum Completion {
    /// It is renamed to its target. The journal must be dropped before the lock on the staging file.
    Publish {
        journal: Option<Box<Journal>>,
        staging_file: StagingFile,
        overwrite: Overwrite,
        mode: Option<u32>,
        upload_digests: Mutex<UploadDigests>,
    },
    /// The file keeps its name. The flag is whether its known digests were removed.
    Stay { is_forgotten: Mutex<bool> },
}

/// A file that matches the expectation as far as it can be checked without reading it.
#[derive(Debug)]
struct CheckedUpload {
    body: Body,
    expected: Expectation,
    digests: Digests,
}

/// The result of a commit in a short job.
#[derive(Debug)]
enum Commit {
    Done(Metadata),
    NeedsVerification(Box<CheckedUpload>),
}

/// Data received before the staging file exists.
#[derive(Debug)]
enum InitialData {
    /// No data; the first piece may be held.
    Nothing,
    /// The first piece, held in memory.
    Held { offset: u64, data: Bytes, _room: OwnedSemaphorePermit },
    /// Pieces are written as they arrive.
    Written,
}

/// The memory shared by the small files of one store.
#[derive(Debug)]
pub(super) struct SmallFileMemory(Arc<Semaphore>);

impl Default for SmallFileMemory {
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
    ) -> Result<UploadStart> {
        let parent = match (parent_of(local, path, options.overwrite), path.parent()) {
            (Err(error), Some(above)) if options.parents && error.fault() == Fault::NotFound => {
                local.make_directories(&above)?;
                parent_of(local, path, options.overwrite)?
            }
            (outcome, _) => outcome?,
        };
        let partial = options.resume.map(|key| {
            let size = options.size_hint.ok_or_else(|| {
                Error::new(Fault::InvalidArgument, "an upload with a resume key must announce the size of the file")
            })?;
            PartialUpload::find(local, &parent, caller, key, size)
        });
        let partial = partial.transpose()?.flatten();
        if let Some(size) = options.size_hint {
            let allocated_bytes = partial.as_ref().map_or(Ok(0), PartialUpload::allocated_bytes)?;
            expect_space(&parent.directory, size.saturating_sub(allocated_bytes))?;
        }
        Ok(match partial {
            None => UploadStart::Ready(Self::start(
                local,
                path,
                options,
                local.staging.create(&local.root, &parent.directory)?,
            )),
            Some(partial) if partial.is_nothing() => {
                UploadStart::Ready(Self::resume(local, path, options, partial.resume(Vec::new())?))
            }
            Some(partial) => {
                let (local, path, options) = (Arc::clone(local), path.clone(), options.clone());
                UploadStart::NeedsVerification(Box::new(UnverifiedUpload { local, path, options, partial }))
            }
        })
    }

    /// Starts an upload to the new file `staging_file`.
    fn start(local: &Arc<Local>, path: &StorePath, options: &CreateOptions, staging_file: StagingFile) -> Self {
        let upload_digests = Mutex::new(UploadDigests::new(options.digests, &local.reorder_memory));
        let file = Arc::clone(staging_file.file());
        let is_small = options.size_hint.is_some_and(|size| size <= SMALL_BYTES);
        let initial_data = if is_small { InitialData::Nothing } else { InitialData::Written };
        let completion = Completion::Publish {
            journal: None,
            staging_file,
            overwrite: options.overwrite,
            mode: options.mode,
            upload_digests,
        };
        Self::new(local, path, file, initial_data, completion)
    }

    /// Continues an earlier upload.
    fn resume(local: &Arc<Local>, path: &StorePath, options: &CreateOptions, resumed: ResumedUpload) -> Self {
        let ResumedUpload { journal, staging_file, verified } = resumed;
        let mut upload_digests = UploadDigests::new(options.digests, &local.reorder_memory);
        upload_digests.found(&verified);
        let present = upload_digests.extents();
        let file = Arc::clone(staging_file.file());
        let (overwrite, mode, upload_digests) = (options.overwrite, options.mode, Mutex::new(upload_digests));
        let completion =
            Completion::Publish { journal: Some(Box::new(journal)), staging_file, overwrite, mode, upload_digests };
        Self { present, ..Self::new(local, path, file, InitialData::Written, completion) }
    }

    /// Opens an existing file for updates in place.
    pub(super) fn update(local: &Arc<Local>, path: &StorePath) -> Result<Self> {
        let file = File::from(local.root.open_at(path, root::CHANGE)?);
        inode::expect_regular(Inode::of(file.as_fd())?.status())?;
        let completion = Completion::Stay { is_forgotten: Mutex::new(false) };
        Ok(Self::new(local, path, Arc::new(file), InitialData::Written, completion))
    }

    fn new(
        local: &Arc<Local>,
        path: &StorePath,
        file: Arc<File>,
        initial_data: InitialData,
        completion: Completion,
    ) -> Self {
        let (initial_data, kept) = (Mutex::new(initial_data), AtomicU64::new(0));
        let body = Body { local: Arc::clone(local), path: path.clone(), file, initial_data, kept, completion };
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
        let now =
            self.body.read().await.as_ref().and_then(|body| body.metadata(&*body.initial_data.try_lock().ok()?).ok());
        match now {
            Some(metadata) => Ok(metadata),
            None => self.with_body(|body| body.metadata(&lock(&body.initial_data))).await,
        }
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let mut body = Arc::clone(&self.body).write_owned().await;
        let job = move || {
            let checked = body.take().ok_or_else(finished)?.check(expected)?;
            match checked.missing().is_empty() {
                true => checked.finish().map(Commit::Done),
                false => Ok(Commit::NeedsVerification(Box::new(checked))),
            }
        };
        let outcome = match self.local.pool.run(job).await {
            Ok(Commit::Done(metadata)) => Ok(metadata),
            Ok(Commit::NeedsVerification(checked)) => {
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
            Some(Body { file, completion: Completion::Publish { staging_file, .. }, .. }) => {
                staging_file.discard();
                fs::ftruncate(&*file, 0).context("aborting the upload")
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
            return Err(Error::new(Fault::TooLarge, "the write ends beyond the maximum file size"));
        }
        self.forget_digests()?;
        self.write_held()?;
        let written = match &self.completion {
            // `turn` is held: nothing extends the file concurrently.
            Completion::Publish { .. } => holes::write(&self.file, offset, data),
            Completion::Stay { .. } => write_all(&self.file, offset, data),
        };
        let outcome = written.context("writing");
        drop(turn);
        if self.kept.fetch_add(data.len() as u64, Relaxed) + data.len() as u64 >= WRITEBACK_BYTES {
            self.kept.store(0, Relaxed);
            self.local.start_writeback(&self.file);
        }
        if let Completion::Publish { upload_digests, journal, .. } = &self.completion {
            match (&outcome, journal) {
                (Ok(()), None) => {
                    UploadDigests::add(upload_digests, offset, data);
                }
                (Ok(()), Some(journal)) => {
                    let parts = journal.parts(offset, data);
                    let mut extents =
                        parts.filter_map(|(offset, part)| UploadDigests::add(upload_digests, offset, &part));
                    extents.try_for_each(|extent| journal.wrote(&extent))?;
                }
                // It may have been written partially.
                (Err(_), _) => lock(upload_digests).give_up(offset),
            }
        }
        outcome
    }

    /// Keeps the first piece of a small file in memory, if there is memory left; returns whether it did.
    fn hold(&self, offset: u64, data: &Bytes) -> bool {
        let Completion::Publish { upload_digests, .. } = &self.completion else { return false };
        if data.is_empty() || offset.saturating_add(data.len() as u64) > SMALL_BYTES {
            return false;
        }
        // The holder of the lock may be writing to the disk.
        let Ok(mut initial_data) = self.initial_data.try_lock() else { return false };
        if !matches!(*initial_data, InitialData::Nothing) {
            return false;
        }
        let Ok(_room) = Arc::clone(&self.local.small_file_memory.0).try_acquire_many_owned(data.len() as u32) else {
            return false;
        };
        UploadDigests::add(upload_digests, offset, data);
        *initial_data = InitialData::Held { offset, data: data.clone(), _room };
        true
    }

    /// Writes the held piece. If that fails it is still held, so that a commit does not lose it.
    fn write_held(&self) -> Result<()> {
        let mut initial_data = lock(&self.initial_data);
        if let InitialData::Held { offset, data, .. } = &*initial_data {
            write_all(&self.file, *offset, data).context("writing")?;
        }
        *initial_data = InitialData::Written;
        Ok(())
    }

    fn metadata(&self, initial_data: &InitialData) -> Result<Metadata> {
        let metadata = inode::metadata(Inode::of(self.file.as_fd())?.status());
        Ok(match initial_data {
            InitialData::Held { offset, data, .. } => Metadata { size: offset + data.len() as u64, ..metadata },
            InitialData::Nothing | InitialData::Written => metadata,
        })
    }

    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.write_held()?;
        let size = inode::size_of(Inode::of(self.file.as_fd())?.status());
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = Vec::new();
        positional::append(&self.file, offset, length.min(rest), &mut buffer).context("reading")?;
        Ok(buffer.into())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        if size > LARGEST_FILE_BYTES {
            return Err(Error::new(Fault::TooLarge, "larger than the maximum file size"));
        }
        self.forget_digests()?;
        self.write_held()?;
        fs::ftruncate(&self.file, size).context("setting the size")?;
        if let Completion::Publish { upload_digests, journal, .. } = &self.completion {
            lock(upload_digests).truncate(size);
            journal.iter().for_each(|journal| journal.forget_partial());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.write_held()?;
        // Data that the disk rejected may still be readable until the kernel drops them from its cache.
        self.local.sync_file(&self.file).inspect_err(|_| self.discard())?;
        if let Completion::Publish { journal: Some(journal), .. } = &self.completion {
            journal.flush()?;
            self.local.sync_file(journal.file())?;
        }
        Ok(())
    }

    /// Removes the known digests of a file before its first change in place.
    fn forget_digests(&self) -> Result<()> {
        let Completion::Stay { is_forgotten } = &self.completion else { return Ok(()) };
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
    fn check(self, expected: Expectation) -> Result<CheckedUpload> {
        self.write_held()?;
        let size = inode::size_of(Inode::of(self.file.as_fd())?.status());
        expected.check_size(size)?;
        let digests = match &self.completion {
            Completion::Publish { upload_digests, .. } => lock(upload_digests).finish(size),
            Completion::Stay { .. } => Digests::new(),
        };
        self.compare(&expected, &digests)?;
        Ok(CheckedUpload { body: self, expected, digests })
    }

    /// Compares digests with the expected ones. After a mismatch the data are discarded, so that no upload resumes from
    /// them.
    fn compare(&self, expected: &Expectation, digests: &Digests) -> Result<()> {
        expected.check_digests(digests).inspect_err(|_| self.discard())
    }

    /// Discards the file when it is dropped, unless it is published.
    fn discard(&self) {
        if let Completion::Publish { staging_file, .. } = &self.completion {
            staging_file.discard();
        }
    }

    /// Makes a checked file durable and visible.
    fn finish(&self, expected: &Expectation, digests: Digests) -> Result<Metadata> {
        let mut inode = Inode::of(self.file.as_fd())?;
        let digests = match &self.completion {
            Completion::Publish { staging_file, overwrite, mode, .. } => {
                let before = *inode.status();
                let published = self.publish(&mut inode, staging_file, (*overwrite, *mode), expected, &digests);
                published.inspect_err(|_| self.restore(&inode, &before))?;
                digests
            }
            Completion::Stay { is_forgotten } => {
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
        staging_file: &StagingFile,
        (overwrite, mode): (Overwrite, Option<u32>),
        expected: &Expectation,
        digests: &Digests,
    ) -> Result<()> {
        inode.set_mtime(expected.mtime_ns.unwrap_or_else(clock::unix_ns))?;
        inode.refresh()?;
        digests::keep(inode, digests);
        if let Some(mode) = mode.filter(|mode| inode.status().st_mode & 0o7777 != mode & 0o7777) {
            fs::fchmod(&*self.file, Mode::from_raw_mode(mode & 0o7777)).context("setting the mode")?;
        }
        // The parent is resolved again: the original directory may have been moved during the upload.
        self.local.publish(staging_file, &self.local.root.parent(&self.path)?, overwrite)
    }

    /// Restores mode and time of a file whose publication failed, because the next upload with its key may want others.
    /// Its digests are removed when it is resumed.
    fn restore(&self, inode: &Inode<BorrowedFd<'_>>, before: &fs::Stat) {
        let Completion::Publish { staging_file, .. } = &self.completion else { return };
        if staging_file.is_published() {
            return;
        }
        let mode = fs::fchmod(&*self.file, Mode::from_raw_mode(before.st_mode & 0o7777));
        let restored = mode.context("setting the mode").and_then(|()| inode.set_mtime(inode::mtime_ns(before)));
        if restored.is_err() {
            staging_file.discard();
        }
    }
}

impl UnverifiedUpload {
    /// Reads the stored data and continues with the verified part.
    pub(super) fn read(self, cancelled: &CancellationCheck) -> Result<LocalWriter> {
        let algorithms = self.options.digests.union(Algorithms::DEFAULT).combinable();
        let verified = self.partial.verify(algorithms, cancelled)?;
        Ok(LocalWriter::resume(&self.local, &self.path, &self.options, self.partial.resume(verified)?))
    }
}

impl CheckedUpload {
    /// Returns the expected digests that are not known yet.
    fn missing(&self) -> Algorithms {
        let promised = self.expected.digests.algorithms();
        promised.iter().filter(|wanted| self.digests.get(*wanted).is_none()).collect()
    }

    /// Computes missing digests by reading the file.
    fn read(mut self, cancelled: &CancellationCheck) -> Result<Self> {
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
        Err(errno) => Err(errno::error(errno, "looking up the file")),
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

fn finished() -> Error {
    Error::new(Fault::HandleNotOpen, "the file was committed or aborted already")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
