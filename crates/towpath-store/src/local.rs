//! A store in a local directory.
//!
//! [`LocalStore`] holds a descriptor of its root; the kernel resolves every path beneath it, so that neither `..` nor,
//! in an export ([`Scope`]), a symbolic link leads out. System calls that may block on a disk run in the disk pool;
//! only cached paths and cached pages are read on the calling thread, which covers most requests to a busy server.
//!
//! Modules: `root` (resolution of paths), `inode` (status and attributes of one file), `read`, `vector` and
//! `vector_now` (reads), `staging`, `write`, `upload_digests` and `sequential_hasher` (uploads, invisible until the
//! commit), `journal` and `partial_upload` (resumable uploads), `copy`, `holes` (sparse files), `list`, `digests` and
//! `attributes` (stored as extended attributes in XRootD's layout; `digest_cache` caches them, `digest_flights` shares
//! their computation), `pool` (threads).
//!
//! Not included: authorization (the permissions of the process apply), and quotas beyond those of the file system.

mod attributes;
mod copy;
mod digest_cache;
mod digest_flights;
mod digests;
mod errno;
mod holes;
mod inode;
mod journal;
mod list;
mod partial_upload;
mod read;
mod root;
mod sequential_hasher;
mod staging;
mod upload_digests;
mod vector;
mod vector_now;
mod write;

use std::{
    fmt,
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::{
    fs::{self, AtFlags, Mode, OFlags, StatVfsMountFlags, XattrFlags},
    io::Errno,
};
use tokio::sync::watch;
use towpath_proto::checksum::{Algorithm, Digest, Digests};

use self::{
    digest_cache::DigestCache,
    digest_flights::{DigestFlights, Flight},
    errno::ErrnoContext as _,
    inode::Inode,
    read::LocalFile,
    root::{Parent, Root},
    sequential_hasher::ReorderMemory,
    staging::{Staging, StagingFile},
    write::{LocalWriter, SmallFileMemory, UploadStart},
};
use crate::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, FileKind, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, READ_BYTES, ReadHandle, Result, Space, Store, StorePath, WriteHandle, disk_pool::DiskPool,
    sys::writeback,
};

/// The durability of committed uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Commits do not sync. After a power failure a file may have holes.
    None,
    /// Data are synced before the rename: after a power failure the file is complete or absent.
    #[default]
    File,
    /// The directory is synced too before the commit returns, and after directories are created, renamed or removed.
    /// Requires read permission for the directory.
    FileAndDirectory,
}

/// The owner of the files in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Files for others: no symbolic link leads out of the root, and uploads are staged at the top of each mount.
    #[default]
    Export,
    /// The files of the process's own user: symbolic links are followed anywhere, and uploads are staged in their
    /// destination directory, where only resumable data are left behind.
    User,
}

/// Options of a local store.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Owner of the files.
    pub scope: Scope,
    /// Durability of commits.
    pub durability: Durability,
    /// Maximum number of blocking system calls in flight, each on its own thread.
    pub disk_jobs: usize,
}

impl Default for LocalOptions {
    /// 64 disk jobs: the queue depth at which a disk no longer gets faster with more requests.
    fn default() -> Self {
        Self { scope: Scope::default(), durability: Durability::default(), disk_jobs: 64 }
    }
}

/// A store in a local directory. Its methods must be called within a tokio runtime. Clones share their state.
#[derive(Debug, Clone)]
pub struct LocalStore(Arc<Local>);

/// State shared by the store and all its handles.
struct Local {
    root: Root,
    staging: Staging,
    digest_cache: DigestCache,
    digest_flights: DigestFlights,
    reorder_memory: ReorderMemory,
    small_file_memory: SmallFileMemory,
    pool: DiskPool,
    options: LocalOptions,
    capabilities: Capabilities,
}

/// The result of looking up a digest.
enum DigestLookup {
    Digest(Digest),
    /// Unknown: it has to be computed, or a computation is in flight.
    Unknown(Flight),
}

/// Reads a journal of any content.
///
/// # Panics
/// If a record is not within the file.
#[cfg(fuzzing)]
pub fn fuzz_journal(journal: &[u8]) {
    journal::fuzz(journal);
}

impl LocalStore {
    /// Opens the directory `root` and removes the leftovers of uploads that a crash interrupted.
    ///
    /// # Errors
    /// `root` cannot be opened or is not a directory, or its staging directory cannot be cleaned.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Self> {
        let root = Root::open(root, options.scope)?;
        let staging = Staging::new(options.scope);
        staging.clean_root(&root)?;
        let capabilities = capabilities(&root)?;
        let pool = DiskPool::new(options.disk_jobs);
        Ok(Self(Arc::new(Local {
            root,
            staging,
            digest_cache: DigestCache::default(),
            digest_flights: DigestFlights::default(),
            reorder_memory: ReorderMemory::default(),
            small_file_memory: SmallFileMemory::default(),
            pool,
            options,
            capabilities,
        })))
    }

    /// Runs `job` for `path` in the disk pool.
    async fn at<T: Send + 'static>(
        &self,
        path: &StorePath,
        job: impl FnOnce(&Arc<Local>, &StorePath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (local, path) = (Arc::clone(&self.0), path.clone());
        self.0.pool.run(move || job(&local, &path).map_err(|error| error.at(&path))).await
    }

    /// Computes a digest of `file`, the open file at `path`, by reading it.
    async fn compute(
        &self,
        path: &StorePath,
        file: File,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let (bytes_read, mut news) = watch::channel(0);
        let local = Arc::clone(&self.0);
        let mut job = std::pin::pin!(self.0.pool.run_long(move |cancelled| {
            let report = |bytes| {
                bytes_read.send_replace(bytes);
            };
            digests::compute_and_keep(&local, &file, algorithm, cancelled, report)
        }));
        loop {
            tokio::select! {
                biased;
                Ok(()) = news.changed() => progress(*news.borrow_and_update()),
                outcome = &mut job => return outcome.map_err(|error| error.at(path)),
            }
        }
    }
}

/// Returns whether the file system of an open file or directory has no disk.
pub(crate) fn is_in_memory(file: &File) -> std::io::Result<bool> {
    let status = rustix::fs::fstatfs(file)?;
    Ok(root::is_in_memory(u64::try_from(status.f_type).unwrap_or(0)))
}

#[async_trait]
impl Store for LocalStore {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities.clone()
    }

    async fn stat(&self, _: &Caller, path: &StorePath) -> Result<Metadata> {
        match self.0.stat_now(path) {
            Some(outcome) => outcome.map_err(|error| error.at(path)),
            None => self.at(path, |local, path| Ok(local.metadata(&Inode::open(&local.root, path)?))).await,
        }
    }

    fn list(&self, _: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        list::list(Arc::clone(&self.0), path.clone(), options)
    }

    async fn open(&self, _: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let file = match LocalFile::open_now(&self.0, path, &options) {
            Some(outcome) => outcome.map_err(|error| error.at(path))?,
            None => self.at(path, move |local, path| LocalFile::open(local, path, &options)).await?,
        };
        Ok(Arc::new(file))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        let caller = caller.clone();
        let begun = self.at(path, move |local, path| LocalWriter::create(local, &caller, path, &options)).await?;
        Ok(Arc::new(match begun {
            UploadStart::Ready(writer) => writer,
            UploadStart::NeedsVerification(found) => {
                let read = self.0.pool.run_long(move |cancelled| found.read(cancelled)).await;
                read.map_err(|error| error.at(path))?
            }
        }))
    }

    async fn update(&self, _: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        let writer = self.at(path, LocalWriter::update).await?;
        Ok(Arc::new(writer))
    }

    async fn make_directory(&self, _: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.at(path, move |local, path| {
            if path.is_root() {
                return if parents { Ok(()) } else { Err(Error::new(Fault::AlreadyExists, "it exists already")) };
            }
            if let Some(above) = path.parent().filter(|_| parents) {
                local.make_directories(&above)?;
            }
            match local.make_directory(path, mode) {
                Err(error) if parents && error.fault() == Fault::AlreadyExists => {
                    local.root.expect_directory(path).map_err(|_| error)
                }
                outcome => outcome,
            }
        })
        .await
    }

    async fn remove_file(&self, _: &Caller, path: &StorePath) -> Result<()> {
        self.at(path, |local, path| match path.is_root() {
            true => Err(Error::new(Fault::IsDirectory, "it is a directory")),
            false => local.remove(path, AtFlags::empty()),
        })
        .await
    }

    async fn remove_directory(&self, _: &Caller, path: &StorePath) -> Result<()> {
        self.at(path, |local, path| local.remove(path, AtFlags::REMOVEDIR)).await
    }

    async fn remove_tree(&self, _: &Caller, path: &StorePath) -> Result<()> {
        Err(Error::new(Fault::Unsupported, "a tree is removed entry by entry").at(path))
    }

    async fn rename(&self, _: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let to = to.clone();
        self.at(from, move |local, from| local.rename(from, &to, overwrite)).await
    }

    async fn copy(&self, _: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let (local, source, target) = (Arc::clone(&self.0), from.clone(), to.clone());
        let job = move |cancelled: &_| copy::copy(&local, &source, &target, overwrite, cancelled);
        self.0.pool.run_long(job).await.map_err(|error| error.at(from))
    }

    async fn change(&self, _: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        self.at(path, move |local, path| local.change(path, changes)).await
    }

    async fn digest(
        &self,
        _: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let (file, known) = self.at(path, move |local, path| local.known_digest(path, algorithm)).await?;
        match known {
            DigestLookup::Digest(digest) => Ok(digest),
            DigestLookup::Unknown(flight) => {
                let computed = flight.get_or_try_init(|| self.compute(path, file, algorithm, progress)).await;
                computed.copied()
            }
        }
    }

    async fn attributes(&self, _: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        self.at(path, |local, path| attributes::list(&Inode::open(&local.root, path)?)).await
    }

    async fn set_attribute(
        &self,
        _: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
        let flags = if create { XattrFlags::CREATE } else { XattrFlags::empty() };
        self.at(path, move |local, path| {
            attributes::set(&Inode::open(&local.root, path)?, &name, value.as_deref(), flags)
        })
        .await
    }

    async fn space(&self, _: &Caller, path: &StorePath) -> Result<Space> {
        self.at(path, |local, path| space_of(&local.root.open_at(path, OFlags::PATH)?)).await
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("root", &self.root).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Queries.
impl Local {
    /// Returns the metadata of `path`, if that needs no disk access.
    fn stat_now(&self, path: &StorePath) -> Option<Result<Metadata>> {
        match self.root.open_at_now(path, OFlags::PATH)? {
            Ok(descriptor) => self.metadata_now(&Inode::of(descriptor).ok()?, self.root.is_in_memory()).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the metadata with known digests, if these are cached, or if the file system needs no disk access
    /// (`is_in_memory`).
    fn metadata_now<Fd: AsFd>(&self, inode: &Inode<Fd>, is_in_memory: bool) -> Option<Metadata> {
        let metadata = inode::metadata(inode.status());
        match metadata.kind {
            FileKind::File => {
                let read = || is_in_memory.then(|| self.read_digests(inode));
                Some(Metadata { digests: self.digest_cache.get(inode.status()).or_else(read)?, ..metadata })
            }
            FileKind::Directory | FileKind::Other => Some(metadata),
        }
    }

    /// Returns the metadata with known digests.
    fn metadata<Fd: AsFd>(&self, inode: &Inode<Fd>) -> Metadata {
        self.metadata_now(inode, false)
            .unwrap_or_else(|| Metadata { digests: self.read_digests(inode), ..inode::metadata(inode.status()) })
    }

    fn read_digests<Fd: AsFd>(&self, inode: &Inode<Fd>) -> Digests {
        let digests = digests::known(inode);
        self.digest_cache.put(inode.status(), &digests);
        digests
    }
}

/// Calls that change names and attributes; they block.
impl Local {
    fn make_directory(&self, path: &StorePath, mode: Option<u32>) -> Result<()> {
        let parent = self.root.parent(path)?;
        let names = self.names_to_sync(&parent)?;
        let initial = Mode::from_raw_mode(mode.unwrap_or(0o777) & 0o7777);
        fs::mkdirat(&parent.directory, parent.name, initial).context("creating the directory")?;
        if let Some(mode) = mode {
            // Set the bits that the umask of the process has cleared.
            Inode::open(&self.root, path)?.set_mode(mode)?;
        }
        sync_names(names)
    }

    /// Creates `path` and all missing parent directories.
    fn make_directories(&self, path: &StorePath) -> Result<()> {
        match self.root.expect_directory(path) {
            Err(error) if error.fault() == Fault::NotFound => {}
            outcome => return outcome,
        }
        if let Some(above) = path.parent() {
            self.make_directories(&above)?;
        }
        match self.make_directory(path, None) {
            // Another task created it concurrently.
            Err(error) if error.fault() == Fault::AlreadyExists => self.root.expect_directory(path),
            outcome => outcome,
        }
    }

    fn remove(&self, path: &StorePath, flags: AtFlags) -> Result<()> {
        let parent = self.root.parent(path)?;
        let names = self.names_to_sync(&parent)?;
        let unlink = || fs::unlinkat(&parent.directory, parent.name, flags);
        match unlink() {
            // It may contain only staging areas, which listings do not show.
            Err(Errno::NOTEMPTY) => {
                staging::remove_areas(&self.root.open_at(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?);
                unlink()
            }
            outcome => outcome,
        }
        .context("removing")?;
        sync_names(names)
    }

    fn rename(&self, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let (source, target) = (self.root.parent(from)?, self.root.parent(to)?);
        // The new name must be durable before the old one is removed.
        let names = [self.names_to_sync(&target)?, self.names_to_sync(&source)?];
        match overwrite {
            Overwrite::Replace => {
                target.expect_replaceable()?;
                fs::renameat(&source.directory, source.name, &target.directory, target.name)
            }
            Overwrite::Refuse => staging::rename_without_replacing(&source.directory, source.name, &target),
        }
        .map_err(|errno| errno::across_devices(errno, "renaming"))?;
        names.into_iter().try_for_each(sync_names)
    }

    /// The size is changed first, because this also removes the known digests, which setting a time must not carry
    /// over. The mode is changed last, because it may prevent changes to attributes, and so to digests.
    fn change(&self, path: &StorePath, changes: Changes) -> Result<()> {
        if let Some(size) = changes.size {
            let file = File::from(self.root.open_at(path, root::CHANGE)?);
            let inode = Inode::of(file.as_fd())?;
            inode::expect_regular(inode.status())?;
            digests::forget(&inode)?;
            fs::ftruncate(&file, size).context("setting the size")?;
        }
        let mut inode = Inode::open(&self.root, path)?;
        if let Some(mtime_ns) = changes.mtime_ns {
            digests::set_mtime(&mut inode, mtime_ns)?;
        }
        changes.mode.map_or(Ok(()), |mode| inode.set_mode(mode))
    }

    fn known_digest(&self, path: &StorePath, algorithm: Algorithm) -> Result<(File, DigestLookup)> {
        let file = File::from(self.root.open_at(path, root::READ)?);
        let inode = Inode::of(file.as_fd())?;
        inode::expect_regular(inode.status())?;
        let known = match digests::known(&inode).get(algorithm) {
            Some(digest) => DigestLookup::Digest(digest),
            None => DigestLookup::Unknown(self.digest_flights.join(inode.status(), algorithm)),
        };
        Ok((file, known))
    }

    /// Makes a staging file durable, with its attributes, mode and time, and renames it to its target.
    fn publish(&self, staging_file: &StagingFile, target: &Parent<'_>, overwrite: Overwrite) -> Result<()> {
        let names = self.names_to_sync(target)?;
        // Data that the disk rejected may still be readable until the kernel drops them from its cache.
        self.sync_file(staging_file.file()).inspect_err(|_| staging_file.discard())?;
        staging_file.publish(target, overwrite)?;
        sync_names(names)
    }

    /// Syncs a file if the store's policy requires it: the data, and the times and attributes that describe them.
    fn sync_file(&self, file: &File) -> Result<()> {
        match self.options.durability {
            Durability::None => Ok(()),
            Durability::File | Durability::FileAndDirectory => fs::fsync(file).context("syncing the file"),
        }
    }

    /// Starts writing dirty pages of a file to disk, if the store's policy will require a sync.
    fn start_writeback(&self, file: &File) {
        match self.options.durability {
            Durability::None => {}
            Durability::File | Durability::FileAndDirectory => writeback::start(file),
        }
    }

    /// Opens the directory for [`sync_names`], if the store's policy requires it. Called before names are changed, so
    /// that a directory that cannot be opened fails the call before anything is visible.
    fn names_to_sync(&self, directory: &Parent<'_>) -> Result<Option<OwnedFd>> {
        match self.options.durability {
            Durability::None | Durability::File => Ok(None),
            Durability::FileAndDirectory => directory.open().map(Some),
        }
    }
}

/// Syncs the entries of a directory.
fn sync_names(directory: Option<OwnedFd>) -> Result<()> {
    directory.map_or(Ok(()), |directory| fs::fsync(directory).context("syncing the directory"))
}

fn capabilities(root: &Root) -> Result<Capabilities> {
    let directory = root.directory()?;
    let mount = fs::fstatvfs(&directory).context("querying the file system")?;
    let write = !mount.f_flag.contains(StatVfsMountFlags::RDONLY);
    Ok(Capabilities {
        create: write,
        write_any_order: write,
        update: write,
        remove: write,
        remove_tree: false,
        rename: write,
        copy: write,
        attributes: attributes::are_supported(&Inode::of(directory)?),
        set_mtime: write,
        read_bytes: READ_BYTES,
        vector_ranges: vector::RANGES,
        vector_range_bytes: vector::BATCH_BYTES,
        digests: Algorithm::ALL.into_iter().collect(),
        resume: write,
        queries: false,
        confirms: false,
    })
}

/// Returns the space of the file system that contains `directory`, or any file.
fn space_of(descriptor: &OwnedFd) -> Result<Space> {
    let mount = fs::fstatvfs(descriptor).context("querying free space")?;
    let bytes = |blocks: u64| blocks.saturating_mul(mount.f_frsize);
    Ok(Space { total: bytes(mount.f_blocks), free: bytes(mount.f_bavail) })
}
