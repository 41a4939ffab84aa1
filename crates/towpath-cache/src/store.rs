//! The tree of an origin, or of several with the same tree, as seen through the cache.

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::Notify;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Hasher};
use towpath_store::{
    CacheDirectives, Caller, Capabilities, Changes, CreateOptions, Error, Fault, FileKind, ListOptions, Listing,
    Metadata, OpenOptions, Overwrite, READ_BYTES, ReadHandle, RequestTime, Residency, Result, Reuse, Space, Store,
    StorePath, WriteHandle,
};

use crate::{
    breaker::is_unreachable,
    cache::Cache,
    joined_opens::JoinedOpens,
    missing::MissingPaths,
    names::KnownVersion,
    opened_ahead::OpenedAhead,
    opens::Opened,
    origins::Origins,
    rules::{Recheck, Rules},
    target::Target,
    version::{SameContent, Version},
    writes::{Write, Writes},
    written_file::WrittenFile,
};

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
    /// Opens and queries that were answered with a stale version because the origin failed.
    pub stale: u64,
    /// Opens and queries of paths that were known to be missing.
    pub missing: u64,
    /// Times of its requests, of any kind.
    pub request_time: RequestTime,
}

impl OriginStatistics {
    /// Adds the counters of another time, or of another client of the same origin.
    pub(crate) fn add(&mut self, more: &Self) {
        self.served_bytes += more.served_bytes;
        self.missed_bytes += more.missed_bytes;
        self.bypass_bytes += more.bypass_bytes;
        self.fetched_bytes += more.fetched_bytes;
        self.requests += more.requests;
        self.failures += more.failures;
        self.damaged_bytes += more.damaged_bytes;
        self.stale += more.stale;
        self.missing += more.missing;
        self.request_time.total += more.request_time.total;
        self.request_time.server += more.request_time.server;
    }
}

/// Calls a method of the first origin's store with its paths and identity.
macro_rules! forward {
    ($self:ident, $caller:ident, $method:ident, $path:ident $(to $to:ident)? $(, $argument:expr)*) => {{
        let origin = $self.origins.primary();
        let (path, identity) = (origin.path($path)?, origin.identity($caller));
        origin.call(None, origin.store.$method(&identity, &path $(, &origin.path($to)?)? $(, $argument)*)).await
    }};
}

/// The tree of an origin, or of several with the same tree, as seen through a cache. Reads of file contents go through
/// the cache; everything else is passed to the origin, including writes. Writes go to the first origin only.
#[derive(Clone)]
pub struct CacheStore {
    pub(crate) cache: Cache,
    pub(crate) origins: Arc<Origins>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) missing: Arc<MissingPaths>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) opens: JoinedOpens<Opened>,
    pub(crate) ahead: Arc<OpenedAhead>,
}

impl fmt::Debug for CacheStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheStore").field("origin", &self.origins.primary().name).finish_non_exhaustive()
    }
}

impl CacheStore {
    pub(crate) fn new(cache: Cache, origins: Origins, rules: Rules) -> Self {
        let (missing, writes, opens, ahead) = Default::default();
        Self { cache, origins: Arc::new(origins), rules: Arc::new(rules), missing, writes, opens, ahead }
    }

    /// Returns the names of the origins, each with the path there of a path of the cache.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long.
    pub fn origin_paths(&self, path: &StorePath) -> Result<Vec<(Arc<str>, StorePath)>> {
        self.origins.all().iter().map(|origin| Ok((Arc::clone(&origin.name), origin.path(path)?))).collect()
    }

    /// Returns the path of the cache of a path at an origin, the inverse of [`Self::origin_paths`]; `None` if the cache
    /// does not show it.
    pub fn cache_path(&self, origin: &str, path: &StorePath) -> Option<StorePath> {
        self.origins
            .all()
            .iter()
            .filter(|candidate| *candidate.name == *origin)
            .find_map(|origin| origin.cache_path(path))
    }

    /// Returns the counters of each origin, with its URL without credentials.
    pub fn statistics(&self) -> Vec<(Arc<str>, OriginStatistics)> {
        let origins = self.origins.all().iter();
        origins.map(|origin| (Arc::clone(&origin.name), origin.statistics())).collect()
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns when to query the origin for the version of a file.
    pub(crate) fn recheck(&self, path: &StorePath) -> Recheck {
        if self.asks_for_each_caller() { Recheck::Always } else { self.rules.of(path).recheck }
    }

    /// Returns the known versions of a target in the cache, if they are in memory for all origins.
    fn known_in_memory(&self, target: &Target) -> Option<Vec<Arc<KnownVersion>>> {
        let origins = self.origins.all().iter();
        let known = origins.map(|origin| self.cache.names().get(&origin.name, &origin.target(target).ok()?));
        Some(known.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Returns the known version of a target in the cache at each origin. May wait for the disk.
    pub(crate) async fn known_versions(&self, target: &Target) -> Vec<Arc<KnownVersion>> {
        if let Some(known) = self.known_in_memory(target) {
            return known;
        }
        let (cache, origins, target) = (self.cache.clone(), Arc::clone(&self.origins), target.clone());
        let read = move || {
            let origins = origins.all().iter();
            let known = origins.map(|origin| cache.names().read(cache.disk(), &origin.name, &origin.target(&target)?));
            known.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
        };
        self.cache.disk().pool.run(read).await.unwrap_or_else(|error| {
            self.cache.disk().record_unreadable(&error);
            Vec::new()
        })
    }

    /// Begins a write to paths of the cache, and forgets their versions.
    async fn begin_write(&self, paths: &[&StorePath]) -> Write {
        let write = self.writes.begin(Some(paths));
        self.missing.remove(write.keys.as_deref().unwrap_or_default());
        self.ahead.clear();
        for path in paths {
            self.forget_names(&Target::from((*path).clone())).await;
        }
        write
    }

    /// Begins a write to a directory of the cache, and forgets the versions of all paths: the cache cannot find those
    /// below the directory.
    async fn begin_tree_write(&self) -> Write {
        let write = self.writes.begin(None);
        self.missing.clear();
        self.ahead.clear();
        let cache = self.cache.clone();
        if let Err(error) = self.cache.disk().pool.run(move || cache.names().forget_all(cache.disk())).await {
            self.cache.disk().record_failure(&error);
        }
        write
    }

    /// Begins a rename or a copy of a file or of a directory, whichever `from` is.
    ///
    /// # Errors
    /// `NotFound`, and errors of an unreachable origin: nothing is changed then.
    async fn begin_transfer(&self, caller: &Caller, from: &StorePath, to: &StorePath) -> Result<Write> {
        match async { forward!(self, caller, stat, from) }.await {
            Ok(found) if !found.is_directory() => Ok(self.begin_write(&[from, to]).await),
            Err(error) if error.fault() == Fault::NotFound || is_unreachable(&error) => Err(error),
            _ => Ok(self.begin_tree_write().await),
        }
    }

    /// Returns the metadata of a file with the share of it that is in the cache.
    fn with_residency(&self, version: &Version, metadata: Metadata) -> Metadata {
        let residency = Residency::of_cached(self.cache.present_bytes(version), metadata.size);
        Metadata { residency, ..metadata }
    }

    /// Returns the version of the entry for a file that an origin reported as `found`: of several origins, that with the
    /// most bytes in the cache and the same content.
    pub(crate) async fn entry_version(&self, target: &Target, found: Version, recheck: Recheck) -> Version {
        if self.origins.all().len() == 1 {
            return found;
        }
        let same_content = SameContent::under(recheck);
        let known = self.known_versions(target).await.into_iter().map(|known| known.version.clone());
        let same = known.filter(|known| same_content.is_of(known, &found.origin, &found.metadata()));
        same.chain([found.clone()]).max_by_key(|version| self.cache.present_bytes(version)).unwrap_or(found)
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

    /// Lists a directory at the first origin that responds.
    async fn list_first(origins: Arc<Origins>, caller: Caller, path: StorePath, options: ListOptions) -> Listing {
        let (caller, path, options) = (&caller, &path, &options);
        let listed = origins.call(|origin| {
            async move {
                let mut listing = origin.store.list(&origin.identity(caller), &origin.path(path)?, *options);
                Ok((listing.next().await.transpose()?, listing))
            }
            .boxed()
        });
        match listed.await {
            Ok((_, (first, rest))) => stream::iter(first.map(Ok)).chain(rest).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

#[async_trait]
impl Store for CacheStore {
    fn capabilities(&self) -> Capabilities {
        self.origins.primary().store.capabilities()
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        let target = &Target::from(path.clone());
        let lookup = self.look_up(target, CacheDirectives::default()).await?;
        if let Some(known) = lookup.usable() {
            return Ok(self.with_residency(&known.version, known.metadata(Reuse::Cache)));
        }
        let stat = self.call_or_stale(&lookup, |origin| {
            async move { origin.store.stat(&origin.identity(caller), &origin.path(path)?).await }.boxed()
        });
        let (origin, metadata) = match stat.await {
            Ok(Ok(found)) => found,
            Ok(Err(stale)) => return Ok(self.with_residency(&stale.version, stale.metadata(Reuse::Error))),
            Err(error) => {
                self.remember_missing(&lookup, target, &error).await;
                return Err(error);
            }
        };
        let version = Version::of(&origin.name, &origin.target(target)?, &metadata);
        Ok(match version.filter(|_| !metadata.residency.is_offline() && metadata.kind == FileKind::File) {
            Some(version) => {
                let version = self.entry_version(target, version, self.recheck(path)).await;
                self.with_residency(&version, metadata)
            }
            None => metadata,
        })
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        let listing = Self::list_first(Arc::clone(&self.origins), caller.clone(), path.clone(), options);
        listing.flatten_stream().boxed()
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.open_target(caller, &self.target(path, &options), options).await
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        let write = self.begin_write(&[path]).await;
        match async { forward!(self, caller, create, path, options) }.await {
            Ok(file) => Ok(Arc::new(WrittenFile::new(file, write))),
            error => write.end(error),
        }
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        let write = self.begin_write(&[path]).await;
        match async { forward!(self, caller, update, path) }.await {
            Ok(file) => Ok(Arc::new(WrittenFile::new(file, write))),
            error => write.end(error),
        }
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        let write = self.begin_write(&[path]).await;
        let outcome = async { forward!(self, caller, make_directory, path, parents, mode) }.await;
        write.end(outcome)
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let write = self.begin_write(&[path]).await;
        let outcome = async { forward!(self, caller, remove_file, path) }.await;
        write.end(outcome)
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let write = self.begin_write(&[path]).await;
        let outcome = async { forward!(self, caller, remove_directory, path) }.await;
        write.end(outcome)
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        // Where a tree is removed entry by entry, this only fails.
        let write = match self.capabilities().remove_tree {
            true => self.begin_tree_write().await,
            false => self.begin_write(&[path]).await,
        };
        let outcome = async { forward!(self, caller, remove_tree, path) }.await;
        write.end(outcome)
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let write = self.begin_transfer(caller, from, to).await?;
        let outcome = async { forward!(self, caller, rename, from to to, overwrite) }.await;
        write.end(outcome)
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let write = self.begin_transfer(caller, from, to).await?;
        let outcome = async { forward!(self, caller, copy, from to to, overwrite) }.await;
        write.end(outcome)
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        let write = self.begin_write(&[path]).await;
        let outcome = async { forward!(self, caller, change, path, changes) }.await;
        write.end(outcome)
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        if self.look_up(&Target::from(path.clone()), CacheDirectives::default()).await?.usable().is_some() {
            // An open returns this version, although the origin may have a newer one.
            return self.computed_digest(caller, path, algorithm, progress).await;
        }
        let reads = Notify::new();
        let watch = |bytes| match bytes {
            0 => reads.notify_one(),
            _ => progress(bytes),
        };
        let watch = &watch;
        let asked = self.origins.call_slow(|origin| {
            async move { origin.store.digest(&origin.identity(caller), &origin.path(path)?, algorithm, watch).await }
                .boxed()
        });
        tokio::select! {
            biased;
            outcome = asked => outcome,
            // The origin has none, and its client would read the whole file: through the cache it is read once.
            () = reads.notified() => self.computed_digest(caller, path, algorithm, progress).await,
        }
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        let attributes = self.origins.call(|origin| {
            async move { origin.store.attributes(&origin.identity(caller), &origin.path(path)?).await }.boxed()
        });
        attributes.await.map(|(_, attributes)| attributes)
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        forward!(self, caller, set_attribute, path, name, value, create)
    }

    /// Returns the space of the disk of the cache: that of the origin would make metrics depend on it.
    async fn space(&self, _caller: &Caller, _path: &StorePath) -> Result<Space> {
        self.cache.space().await
    }
}

/// Returns the files of an entry of the cache around `origin`, relative to its directory: data and index.
pub fn entry_files(origin: &str, path: &StorePath, metadata: &Metadata) -> Option<[PathBuf; 2]> {
    let name = Version::of(&origin.into(), &Target::from(path.clone()), metadata)?.name();
    Some(["data", "index"].map(|extension| crate::version::file_name(&name, extension)))
}
