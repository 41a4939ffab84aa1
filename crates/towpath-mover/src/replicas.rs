//! One file with copies on several storages.
//!
//! [`Replicas`] is a store with just this file, so the mover copies it like any other. Its handle queries all sources
//! and excludes those that contradict the first. The others are read concurrently, each according to its rate
//! ([`share`](self::share)), if a digest of the whole file is known or being computed ([`proof`](self::proof));
//! otherwise only the first is read. A source that fails, or has another version, is excluded and its pieces go to the
//! others; see [`Replicas::shares`]. The copy fails when none is left.
//!
//! Every byte at the destination is therefore from a single source, or part of a file that is compared as a whole with
//! a digest before the commit. If that comparison fails, sources are read one by one until one delivers the promised
//! file ([`history`]).

mod evidence;
mod file;
mod history;
mod proof;
mod share;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use towpath_proto::checksum::{Algorithm, Digest, Digests};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, ListOptions, Listing, Metadata, OpenOptions, Overwrite,
    ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use self::{file::ReplicaFile, history::SourceHistory, share::SourcePool};
use crate::{DigestOrigin, Job, StoreLocation};

/// Properties of the file given with the list of sources, as in a Metalink.
#[derive(Debug, Clone, Default)]
pub struct FileProperties {
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Its digests.
    pub digests: Digests,
}

/// The contribution of one source.
#[derive(Debug, Clone)]
pub struct SourceContribution {
    /// The source.
    pub from: StoreLocation,
    /// Number of bytes it delivered.
    pub bytes: u64,
    /// Why it was excluded, if it was.
    pub error: Option<Error>,
    /// Whether it was not read because no digest could prove that its bytes match the other source.
    pub is_spare: bool,
}

/// One file with several sources.
pub struct Replicas {
    sources: Vec<StoreLocation>,
    known: FileProperties,
    history: Mutex<SourceHistory>,
    /// State of the most recently opened handle.
    pool: Mutex<Option<Arc<SourcePool>>>,
}

/// The identity under which the upload of a file with several sources is resumed.
#[derive(Debug)]
pub(crate) enum Identity {
    /// All bytes are from this source.
    Alone(StoreLocation),
    /// The bytes may be from any of these sources; the whole file is compared with this digest.
    Proved(Vec<StoreLocation>, Digest),
}

impl Replicas {
    /// Creates a file with `sources`, in order of preference: the first one that responds determines size and version.
    pub fn new(sources: Vec<StoreLocation>, known: FileProperties) -> Arc<Self> {
        let history = Mutex::new(SourceHistory::of(sources.len()));
        Arc::new(Self { sources, known, history, pool: Mutex::default() })
    }

    /// Returns the location to copy from, displayed as the first source; `None` without sources.
    pub fn location(self: &Arc<Self>) -> Option<StoreLocation> {
        Some(self.sources.first()?.in_replicas(Arc::clone(self)))
    }

    /// Returns the sources in order of preference.
    pub fn sources(&self) -> &[StoreLocation] {
        &self.sources
    }

    /// Returns the properties given with the list of sources.
    pub fn known(&self) -> &FileProperties {
        &self.known
    }

    /// Returns the contribution of each source so far, in the order of the sources.
    pub fn shares(&self) -> Vec<SourceContribution> {
        let contributions = self.pool().map(|pool| pool.contributions()).unwrap_or_default();
        let history = self.history();
        let each = |(index, from): (usize, &StoreLocation)| {
            let contribution = contributions.get(index).cloned().unwrap_or_default();
            let error = contribution.error.or_else(|| history.error(index).cloned());
            SourceContribution { from: from.clone(), bytes: contribution.bytes, error, is_spare: contribution.is_spare }
        };
        self.sources.iter().enumerate().map(each).collect()
    }

    /// Returns the origin of a digest of the file.
    pub(crate) fn origin(&self, digest: &Digest) -> DigestOrigin {
        let origin = self.pool().and_then(|pool| pool.origin(digest));
        origin.unwrap_or(DigestOrigin::Computed)
    }

    /// Returns the identity under which an upload of the file is resumed; `None` while a digest is being computed,
    /// because nothing would prove that stored parts are of the same file.
    pub(crate) fn identity(&self, metadata: &Metadata) -> Option<Identity> {
        let pool = self.pool()?;
        if pool.is_alone() {
            return self.sources.get(pool.lead()?).cloned().map(Identity::Alone);
        }
        let named = self.known.digests.iter().next();
        let digest = named.or(metadata.digests.iter().next()).copied()?;
        Some(Identity::Proved(self.sources.clone(), digest))
    }

    fn pool(&self) -> Option<Arc<SourcePool>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn history(&self) -> MutexGuard<'_, SourceHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self, options: OpenOptions) -> Result<ReplicaFile> {
        let (out, only) = self.history().start();
        let pool = Arc::new(SourcePool::new(self.known.clone(), &out, only));
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pool));
        Ok(ReplicaFile::open(&self.sources, &options, pool))
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replicas").field(&self.sources).finish()
    }
}

/// Names the contributing sources of `job` in `error`, if it is a checksum mismatch and there are several sources.
pub(crate) fn with_givers(job: &Job, error: Error) -> Error {
    let shares = job.from.shares();
    let givers: Vec<_> = shares.iter().filter(|share| share.bytes > 0).map(|share| share.from.to_string()).collect();
    if error.fault() != Fault::ChecksumMismatch || shares.len() < 2 || givers.is_empty() {
        return error;
    }
    let message = format!("{}: its parts came from {}", error.message(), givers.join(" and "));
    error.with_message(message)
}

/// Returns the error of an unsupported operation.
fn only_read(path: &StorePath) -> Error {
    Error::new(Fault::Unsupported, "a file with several sources is read-only").at(path)
}

#[async_trait]
impl Store for Replicas {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: false,
            write_any_order: false,
            update: false,
            remove: false,
            remove_tree: false,
            rename: false,
            copy: false,
            attributes: false,
            set_mtime: false,
            read_bytes: towpath_store::READ_BYTES,
            vector_ranges: 1024,
            vector_range_bytes: 2 << 20,
            digests: Algorithm::ALL.into_iter().collect(),
            resume: false,
            queries: false,
            confirms: false,
        }
    }

    async fn stat(&self, _caller: &Caller, _path: &StorePath) -> Result<Metadata> {
        self.start(OpenOptions::default()).await?.metadata().await
    }

    fn list(&self, _caller: &Caller, path: &StorePath, _options: ListOptions) -> Listing {
        let error = Error::new(Fault::NotDirectory, "it is not a directory").at(path);
        Box::pin(futures::stream::once(async { Err(error) }))
    }

    async fn open(&self, _caller: &Caller, _path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        // The metadata of one source do not identify the version at another.
        Ok(Arc::new(self.start(OpenOptions { known: None, ..options }).await?))
    }

    async fn create(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _options: CreateOptions,
    ) -> Result<Arc<dyn WriteHandle>> {
        Err(only_read(path))
    }

    async fn update(&self, _caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Err(only_read(path))
    }

    async fn make_directory(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _parents: bool,
        _mode: Option<u32>,
    ) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_file(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_directory(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_tree(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn rename(&self, _caller: &Caller, from: &StorePath, _to: &StorePath, _overwrite: Overwrite) -> Result<()> {
        Err(only_read(from))
    }

    async fn copy(&self, _caller: &Caller, from: &StorePath, _to: &StorePath, _overwrite: Overwrite) -> Result<()> {
        Err(only_read(from))
    }

    async fn change(&self, _caller: &Caller, path: &StorePath, _changes: Changes) -> Result<()> {
        Err(only_read(path))
    }

    /// Returns the known digest, or else the digest of the sources, which must agree.
    async fn digest(
        &self,
        _caller: &Caller,
        _path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        if let Some(known) = self.known.digests.get(algorithm) {
            return Ok(known);
        }
        let shares = self.shares();
        // Only the sources that delivered data; all sources before the first read.
        let is_read = shares.iter().any(|share| share.bytes > 0);
        let good = shares.into_iter().filter(|share| share.error.is_none() && (share.bytes > 0 || !is_read));
        let asked = good.map(|SourceContribution { from, .. }| async move {
            from.store.digest(&from.caller, &from.path, algorithm, progress).await
        });
        let (told, failed): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().partition(Result::is_ok);
        let mut told = told.into_iter().flatten();
        let Some(one) = told.next() else {
            let nobody = || Err(Error::new(Fault::Unavailable, "no source is left"));
            return failed.into_iter().next().unwrap_or_else(nobody);
        };
        let Some(other) = told.find(|other| *other != one) else { return Ok(one) };
        let message = format!("the sources have files with different {algorithm}: {one} and {other}");
        Err(Error::new(Fault::ChecksumMismatch, message))
    }

    async fn attributes(&self, _caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Err(only_read(path))
    }

    async fn set_attribute(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _name: &[u8],
        _value: Option<&[u8]>,
        _create: bool,
    ) -> Result<()> {
        Err(only_read(path))
    }

    async fn space(&self, _caller: &Caller, path: &StorePath) -> Result<Space> {
        Err(only_read(path))
    }
}

#[cfg(test)]
mod tests;
