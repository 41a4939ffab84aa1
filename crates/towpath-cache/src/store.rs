//! The store of one origin as seen through the cache.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use tokio::sync::Notify;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Hasher};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, FileKind, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, READ_BYTES, ReadHandle, Residency, Result, Space, Store, StorePath, WriteHandle, is_settled, sys::clock,
};

use crate::{
    accounts::Account, cache::Cache, file::CachedFile, names::KnownVersion, origin::Origin, rules::Recheck,
    source::Source, version::Version,
};

/// Maximum size of a file that is cached in bytes: 256 TiB. A larger one is probably an error of the origin.
const MAX_FILE_BYTES: u64 = 1 << 48;

/// Counters of an origin since the start. Bytes are those of file contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginStatistics {
    /// Bytes that readers got through the disk of the cache.
    pub served_bytes: u64,
    /// Bytes that readers requested while they were absent.
    pub missed_bytes: u64,
    /// Bytes that readers got from the origin because the disk of the cache failed.
    pub bypass_bytes: u64,
    /// Bytes fetched from the origin to be stored.
    pub fetched_bytes: u64,
    /// Requests to the origin for data.
    pub requests: u64,
    /// Failed requests to the origin for data.
    pub failures: u64,
    /// Stored bytes that were damaged, and are fetched again.
    pub damaged_bytes: u64,
}

/// An origin as seen through a cache. Reads of file contents go through the cache; everything else is passed to the
/// origin, including writes.
pub struct CacheStore {
    cache: Cache,
    origin: Arc<Origin>,
}

impl fmt::Debug for CacheStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheStore").field("origin", &self.origin.name).finish_non_exhaustive()
    }
}

impl CacheStore {
    pub(crate) fn new(cache: Cache, origin: Origin) -> Self {
        Self { cache, origin: Arc::new(origin) }
    }

    /// Returns the path at the origin of a path of the cache.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long.
    pub fn origin_path(&self, path: &StorePath) -> Result<StorePath> {
        self.origin.path(path)
    }

    /// Returns the path of the cache of a path at the origin, the inverse of [`Self::origin_path`]; `None` if the cache
    /// does not show it.
    pub fn cache_path(&self, path: &StorePath) -> Option<StorePath> {
        self.origin.cache_path(path)
    }

    /// Returns the URL of the origin, without credentials.
    pub fn origin_name(&self) -> &str {
        &self.origin.name
    }

    /// Returns the counters.
    pub fn statistics(&self) -> OriginStatistics {
        let counters = &self.origin.counters;
        OriginStatistics {
            served_bytes: counters.served_bytes.load(Relaxed),
            missed_bytes: counters.missed_bytes.load(Relaxed),
            bypass_bytes: counters.bypass_bytes.load(Relaxed),
            fetched_bytes: counters.fetched_bytes.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            failures: counters.failures.load(Relaxed),
            damaged_bytes: counters.damaged_bytes.load(Relaxed),
        }
    }

    /// Returns the version to cache a file as, requested at `requested_ns`; `None` if its content must not be cached: an
    /// empty file may have content all the same, and a file that changed just now may change again without another
    /// version.
    fn version(&self, path: &StorePath, metadata: &Metadata, requested_ns: i64) -> Option<Version> {
        let is_cacheable = metadata.kind == FileKind::File
            && (1..=MAX_FILE_BYTES).contains(&metadata.size)
            && !is_recent(metadata, requested_ns);
        let version = Version::of(&self.origin.name, path, metadata);
        version.filter(|_| is_cacheable && metadata.identifies_content(requested_ns))
    }

    /// Returns the known version of a path of the origin, if a rule permits using it without a query.
    async fn known_version(&self, path: &StorePath, recheck: Recheck) -> Option<Version> {
        if recheck == Recheck::Always {
            return None;
        }
        let (cache, origin, path) = (self.cache.clone(), Arc::clone(&self.origin), path.clone());
        let read = self.cache.disk().pool.run(move || KnownVersion::read(cache.disk(), &origin.name, &path)).await;
        match read {
            Ok(known) => Some(known.filter(|known| !recheck.is_due(known.asked_s, clock::unix_s()))?.version),
            Err(error) => {
                self.cache.disk().record_failure(&error);
                None
            }
        }
    }

    /// Stores the version that the origin reported just now, if a later open may use it.
    async fn remember(&self, version: &Version, recheck: Recheck) {
        if recheck == Recheck::Always || !self.cache.disk().accepts_data() {
            return;
        }
        let known = KnownVersion { version: version.clone(), asked_s: clock::unix_s() };
        let cache = self.cache.clone();
        if let Err(error) = self.cache.disk().pool.run(move || known.write(cache.disk())).await {
            self.cache.disk().record_failure(&error);
        }
    }

    /// Returns the digest of a file, computed by reading it through the cache.
    async fn computed_digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let file = self.open(caller, path, OpenOptions::default()).await?;
        let size = file.metadata().await?.size;
        let mut hasher = Hasher::new(Algorithms::of(&[algorithm]));
        progress(0);
        while hasher.bytes() < size {
            let data = file.read(hasher.bytes(), READ_BYTES).await?;
            if data.is_empty() {
                return Err(Error::new(Fault::Truncated, "the file is shorter than its size").at(path));
            }
            hasher.update(&data);
            progress(hasher.bytes());
        }
        let missing = || Error::new(Fault::Unsupported, "this checksum cannot be computed").at(path);
        hasher.finish().get(algorithm).ok_or_else(missing)
    }

    /// Opens the entry of a version; `None` if the disk of the cache fails.
    async fn cached(&self, version: Version, source: Source, metadata: Metadata) -> Option<Arc<dyn ReadHandle>> {
        match self.cache.entry(version).await {
            Ok(entry) => {
                let account = Account::open(self.cache.accounts(), &self.origin.name, &entry.version.path);
                Some(Arc::new(CachedFile::new(Arc::clone(&self.origin), entry, source, metadata, account)))
            }
            Err(error) => {
                self.cache.disk().record_failure(&error);
                None
            }
        }
    }
}

/// Returns whether a later change of the content could leave the version as it is: nginx, for one, makes the entity tags
/// that it calls strong of the size and the second of the modification.
fn is_recent(metadata: &Metadata, requested_ns: i64) -> bool {
    let is_of_seconds = |mtime_ns: &i64| mtime_ns % 1_000_000_000 == 0;
    metadata.mtime_ns.filter(is_of_seconds).is_some_and(|mtime_ns| !is_settled(mtime_ns, requested_ns))
}

/// Calls a method of the origin's store with the origin's path and identity. Its errors name the origin.
macro_rules! forward {
    ($self:ident, $caller:ident, $path:ident, $method:ident $(, $argument:expr)*) => {{
        let origin = &$self.origin;
        origin.breaker.admit()?;
        let outcome = origin.store.$method(&origin.identity($caller), &origin.path($path)? $(, $argument)*).await;
        origin.breaker.record(&outcome);
        outcome
    }};
}

#[async_trait]
impl Store for CacheStore {
    fn capabilities(&self) -> Capabilities {
        self.origin.store.capabilities()
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        if let Some(version) = self.known_version(&self.origin.path(path)?, self.origin.recheck(path)).await {
            let residency = Residency::of_cached(self.cache.present_bytes(&version), version.size);
            return Ok(Metadata { residency, ..version.metadata() });
        }
        let metadata = forward!(self, caller, path, stat)?;
        Ok(match Version::of(&self.origin.name, &self.origin.path(path)?, &metadata) {
            Some(version) if !metadata.residency.is_offline() && metadata.kind == FileKind::File => {
                let present_bytes = self.cache.present_bytes(&version);
                Metadata { residency: Residency::of_cached(present_bytes, metadata.size), ..metadata }
            }
            _ => metadata,
        })
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        match self.origin.path(path) {
            Ok(path) => self.origin.store.list(&self.origin.identity(caller), &path, options),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let recheck = self.origin.recheck(path);
        if options.version.is_none()
            && let Some(version) = self.known_version(&self.origin.path(path)?, recheck).await
        {
            let source = Source::lazy(self.cache.clone(), Arc::clone(&self.origin), caller, version.clone());
            if let Some(file) = self.cached(version.clone(), source, version.metadata()).await {
                return Ok(file);
            }
        }
        let requested_ns = clock::unix_ns();
        // Ranges are stored, so each is verified when it arrives.
        let options = OpenOptions { verifies_digests: false, ..options };
        let origin_path = self.origin.path(path)?;
        let (opened, metadata) = self.origin.open(caller, &origin_path, options).await?;
        let metadata = match metadata {
            Ok(metadata) => metadata,
            // A file of unknown length is a stream.
            Err(error) if error.fault() == Fault::Unsupported => return Ok(opened),
            Err(error) => return Err(error),
        };
        let Some(version) = self.version(&origin_path, &metadata, requested_ns) else { return Ok(opened) };
        self.remember(&version, recheck).await;
        Ok(self.cached(version, Source::open(Arc::clone(&opened), &metadata), metadata).await.unwrap_or(opened))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        forward!(self, caller, path, create, options)
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        forward!(self, caller, path, update)
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        forward!(self, caller, path, make_directory, parents, mode)
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        forward!(self, caller, path, remove_file)
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        forward!(self, caller, path, remove_directory)
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        forward!(self, caller, path, remove_tree)
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        forward!(self, caller, from, rename, &self.origin.path(to)?, overwrite)
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        forward!(self, caller, from, copy, &self.origin.path(to)?, overwrite)
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        forward!(self, caller, path, change, changes)
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let reads = Notify::new();
        let watch = |bytes| match bytes {
            0 => reads.notify_one(),
            _ => progress(bytes),
        };
        let asked = async { forward!(self, caller, path, digest, algorithm, &watch) };
        tokio::select! {
            biased;
            outcome = asked => outcome,
            // The origin has none, and its client would read the whole file: through the cache it is read once.
            () = reads.notified() => self.computed_digest(caller, path, algorithm, progress).await,
        }
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        forward!(self, caller, path, attributes)
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        forward!(self, caller, path, set_attribute, name, value, create)
    }

    /// Returns the space of the disk of the cache: that of the origin would make metrics depend on it.
    async fn space(&self, _caller: &Caller, _path: &StorePath) -> Result<Space> {
        self.cache.space().await
    }
}

/// Returns the files of an entry of the cache around `origin`, relative to its directory: data and index.
pub fn entry_files(origin: &str, path: &StorePath, metadata: &Metadata) -> Option<[PathBuf; 2]> {
    let name = Version::of(&origin.into(), path, metadata)?.name();
    Some(["data", "index"].map(|extension| crate::version::file_name(&name, extension)))
}
