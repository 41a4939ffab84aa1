//! Opens of files through the cache.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures::FutureExt as _;
use towpath_store::{
    CacheDirectives, Caller, ContentStream, Error, Fault, FileKind, Metadata, OpenOptions, ReadHandle, Result, Reuse,
    Store as _, StorePath, is_settled, sys::clock,
};

use crate::{
    accounts::Account,
    file::CachedFile,
    freshness::{Lookup, not_cached},
    missing::target_key,
    names::KnownVersion,
    opened_ahead::AheadFile,
    origin::{Origin, OriginFile},
    results::{ResultFile, is_of_content},
    source::{OpenFile, Opening, Source},
    store::CacheStore,
    target::Target,
    version::{SameContent, Version},
};

/// Maximum size of a file that is cached in bytes: 256 TiB. A larger one is probably an error of the origin.
const MAX_FILE_BYTES: u64 = 1 << 48;

/// How often a file that was replaced is opened again.
const REOPENS: u32 = 20;
/// The pause before.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// An open file.
#[derive(Debug, Clone)]
pub(crate) enum Opened {
    /// An entry of the cache.
    Cached(CachedFile),
    /// Collected, but not stored.
    Collected(Arc<ResultFile>),
    /// For one reader.
    Single(Arc<dyn ReadHandle>),
}

impl Opened {
    fn into_handle(self) -> Arc<dyn ReadHandle> {
        match self {
            Self::Cached(file) => Arc::new(file),
            Self::Collected(file) => file,
            Self::Single(handle) => handle,
        }
    }
}

/// An open that needs the origin.
struct OriginOpen<'a> {
    store: &'a CacheStore,
    caller: &'a Caller,
    target: &'a Target,
    lookup: Lookup,
    options: OpenOptions,
    /// The file, if it was opened before it was requested.
    ahead: Mutex<Option<AheadFile>>,
    /// The time of the request in nanoseconds since the Unix epoch.
    requested_ns: i64,
}

impl CacheStore {
    /// Opens a target in the cache. Opens of one query at the same time are one request to the origin.
    ///
    /// # Errors
    /// Errors of the origin; `TimedOut` if the directives of the client forbid a request to it.
    pub(crate) async fn open_target(
        &self,
        caller: &Caller,
        target: &Target,
        options: OpenOptions,
    ) -> Result<Arc<dyn ReadHandle>> {
        let lookup = self.look_up(target, options.cache).await?;
        // A client that demands a version, or that it is checked, gets a request of its own.
        let is_special = options.version.is_some() || options.cache != CacheDirectives::default();
        let ahead = if options.cache.only_if_cached { None } else { self.take_ahead(caller, target) };
        let ahead = ahead.filter(|_| !is_special);
        if options.version.is_none()
            && let Some(known) = lookup.usable()
        {
            if let Some(AheadFile { file, .. }) = &ahead
                && *file.version() == known.version
            {
                file.expect_reader();
                return Ok(Arc::new(self.given(file, known.metadata(Reuse::Cache)).await));
            }
            if let Some(file) = self.cached_lazily(caller, target, known, Reuse::Cache, options.cache).await {
                return Ok(Arc::new(file));
            }
        }
        if options.cache.only_if_cached {
            return Err(not_cached().at(target));
        }
        if let Some(ahead) = &ahead {
            ahead.file.expect_reader();
        }
        let is_joined = target.query().is_some() && target.is_cacheable() && !is_special;
        if !is_joined || self.asks_for_each_caller() {
            return self.open_at_origin(caller, target, lookup, options, ahead).await.map(Opened::into_handle);
        }
        let open = {
            let (store, caller, target, options) = (self.clone(), caller.clone(), target.clone(), options.clone());
            async move { store.open_at_origin(&caller, &target, lookup, options, None).await }
        };
        let (opened, is_first) = self.opens.join(target_key(target), open).await;
        match opened? {
            opened if is_first => return Ok(opened.into_handle()),
            Opened::Cached(file) => {
                let account = Account::open(self.cache.accounts(), file.origin(), file.version());
                return Ok(Arc::new(file.reopened(account)));
            }
            Opened::Collected(file) => return Ok(file),
            Opened::Single(_) => {}
        }
        let lookup = self.look_up(target, options.cache).await?;
        self.open_at_origin(caller, target, lookup, options, None).await.map(Opened::into_handle)
    }

    /// Opens a target that no reader has requested; `None` if it cannot be cached. That it is missing is not remembered.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn open_ahead(&self, caller: &Caller, target: &Target) -> Result<Option<AheadFile>> {
        if self.missing.contains(target) {
            return Ok(None);
        }
        let lookup = self.look_up(target, CacheDirectives::default()).await?;
        // A reader needs no request for it.
        if lookup.usable().is_some() {
            return Ok(None);
        }
        let stat = self.origins.call(|origin| {
            async move { origin.store.stat(&origin.identity(caller), &origin.path(target)?).await }.boxed()
        });
        let (queried, found) = stat.await?;
        // An open would recall the file from tape.
        if found.residency.is_offline() {
            return Ok(None);
        }
        let options = OpenOptions { verifies_digests: false, ..OpenOptions::default() };
        let requested_ns = clock::unix_ns();
        let open = OriginOpen { store: self, caller, target, lookup, options, ahead: Mutex::default(), requested_ns };
        let opened = self.origins.call(|origin| origin.open(caller, target, open.options.clone()).boxed());
        let (origin, OriginFile::Open(handle, metadata)) = opened.await? else { return Ok(None) };
        let metadata = open.lookup.date_back(metadata);
        let Some((version, source)) = open.identified(origin, Some(handle), &metadata).await? else { return Ok(None) };
        let entry = self.cache.entry_unused(version).await?;
        let Some(origin) = self.origin_of(&entry.version) else { return Ok(None) };
        let account = Account::without_reader(self.cache.accounts(), origin, &entry.version);
        let file = CachedFile::new(Arc::clone(origin), entry, source, metadata, account, self.cache.columns());
        Ok(Some(AheadFile { file, origin: Arc::clone(&queried.name), found }))
    }

    /// Gives a file that was opened ahead to a reader, with the metadata of the reader's open.
    async fn given(&self, file: &CachedFile, metadata: Metadata) -> CachedFile {
        self.cache.record_use(file.entry()).await;
        file.clone().for_reader(metadata)
    }

    fn origin_of(&self, version: &Version) -> Option<&Arc<Origin>> {
        self.origins.all().iter().find(|origin| origin.name == version.origin)
    }

    async fn open_at_origin(
        &self,
        caller: &Caller,
        target: &Target,
        lookup: Lookup,
        options: OpenOptions,
        ahead: Option<AheadFile>,
    ) -> Result<Opened> {
        let lookup = if options.version.is_some() { lookup.without_stale() } else { lookup };
        // Ranges are stored, so each is verified when it arrives.
        let options = OpenOptions { verifies_digests: false, ..options };
        let (ahead, requested_ns) = (Mutex::new(ahead), clock::unix_ns());
        let open = OriginOpen { store: self, caller, target, lookup, options, ahead, requested_ns };
        match self.call_or_stale(&open.lookup, |origin| open.open(origin).boxed()).await {
            Ok(Ok((origin, OriginFile::Open(handle, metadata)))) => open.found(origin, Some(handle), metadata).await,
            Ok(Ok((origin, OriginFile::Unchanged(metadata)))) => open.found(origin, None, metadata).await,
            Ok(Ok((origin, OriginFile::Stream(stream)))) => match open.streamed(origin, stream).await {
                Err(error) => {
                    origin.breaker.record(&Err::<(), _>(error.clone()));
                    match open.lookup.stale_instead_of(&error) {
                        Some(stale) => open.stale(stale).await,
                        None => Err(error),
                    }
                }
                opened => opened,
            },
            Ok(Err(stale)) => open.stale(&stale).await,
            Err(error) => {
                self.remember_missing(&open.lookup, target, &error).await;
                Err(error)
            }
        }
    }

    /// Opens a target at the origin although the version in the cache is valid: it cannot be used.
    async fn open_uncached(&self, caller: &Caller, target: &Target, options: OpenOptions) -> Result<Opened> {
        let opened = self.origins.call(|origin| origin.open(caller, target, options.clone()).boxed());
        match opened.await?.1 {
            OriginFile::Open(handle, _) => Ok(Opened::Single(handle)),
            OriginFile::Stream(stream) => Ok(Opened::Single(Arc::new(ResultFile::passed_on(stream)))),
            OriginFile::Unchanged(_) => {
                let message = "the origin sent no content, although the request had no condition";
                Err(Error::new(Fault::Protocol, message).at(target))
            }
        }
    }

    /// Returns the target of an open. Without origins whose files have queries, a query selects nothing; but a long name
    /// does, and the origin refuses it.
    pub(crate) fn target(&self, path: &StorePath, options: &OpenOptions) -> Target {
        let has_queries = self.capabilities().queries;
        let query = options.query.clone().filter(|query| has_queries || query.starts_with('/'));
        Target::new(path.clone(), query)
    }

    /// Returns the version to cache a file as, requested at `requested_ns`; `None` if its content must not be cached: an
    /// empty file may have content nevertheless, and a file that changed just now may change again without another
    /// version.
    fn version(origin: &Origin, target: &Target, metadata: &Metadata, requested_ns: i64) -> Option<Version> {
        let is_cacheable = metadata.kind == FileKind::File
            && (1..=MAX_FILE_BYTES).contains(&metadata.size)
            && target.is_cacheable()
            && !is_recent(metadata, requested_ns);
        let version = Version::of(&origin.name, target, metadata);
        version.filter(|_| is_cacheable && metadata.identifies_content(requested_ns))
    }

    /// Opens the entry of a known version. The file at the origin is opened when absent bytes are read.
    async fn cached_lazily(
        &self,
        caller: &Caller,
        target: &Target,
        known: &KnownVersion,
        reuse: Reuse,
        directives: CacheDirectives,
    ) -> Option<CachedFile> {
        let opening = self.opening(caller, target, &known.version);
        let opening = Opening { is_forbidden: directives.only_if_cached, ..opening };
        self.cached(known.version.clone(), Source::new(opening, None), known.metadata(reuse)).await
    }

    /// Opens the entry of a version; `None` if the disk of the cache fails.
    async fn cached(&self, version: Version, source: Source, metadata: Metadata) -> Option<CachedFile> {
        let origin = self.origin_of(&version)?;
        match self.cache.entry(version).await {
            Ok(entry) => {
                let account = Account::open(self.cache.accounts(), origin, &entry.version);
                Some(CachedFile::new(Arc::clone(origin), entry, source, metadata, account, self.cache.columns()))
            }
            Err(error) => {
                self.cache.disk().record_failure(&error);
                None
            }
        }
    }

    /// Returns how to open the file of an entry for a caller.
    fn opening(&self, caller: &Caller, target: &Target, version: &Version) -> Opening {
        Opening {
            store: self.clone(),
            caller: caller.clone(),
            target: target.clone(),
            version: version.clone(),
            same_content: SameContent::under(self.recheck(target)),
            is_forbidden: false,
        }
    }
}

impl OriginOpen<'_> {
    /// Opens the file at an origin.
    ///
    /// An XRootD server has one open file for all opens of a path: it opens the old file as long as this cache has that open,
    /// although another one has taken its name. So the path is queried too, and a file that was opened ahead is closed and
    /// opened again if its path has changed.
    async fn open(&self, origin: &Arc<Origin>) -> Result<OriginFile> {
        let options = OpenOptions { held: self.lookup.held(&origin.name), ..self.options.clone() };
        let open = || origin.open(self.caller, self.target, options.clone());
        // Only storages over xroot confirm.
        let is_shared = origin.store.capabilities().confirms;
        let ahead = self.ahead().clone().filter(|ahead| is_shared && ahead.origin == origin.name);
        let Some(AheadFile { file, found, .. }) = ahead else { return open().await };
        let stat = async { origin.store.stat(&origin.identity(self.caller), &origin.path(self.target)?).await };
        let (mut opened, now) = futures::join!(open(), stat);
        if now.is_ok_and(|now| (now.size, now.mtime_ns) == (found.size, found.mtime_ns)) {
            return opened;
        }
        let old = (file.version().size, file.version().mtime_ns);
        drop((file, self.ahead().take()));
        for _ in 0..REOPENS {
            match &opened {
                Ok(OriginFile::Open(_, metadata)) if (metadata.size, metadata.mtime_ns) == old => {}
                _ => return opened,
            }
            drop(opened);
            // Until the requests of the first blocks have ended: they have the file open too.
            tokio::time::sleep(REOPEN_PAUSE).await;
            opened = open().await;
        }
        let message = "the file was replaced, and the storage still shows the former one: try again";
        Err(Error::new(Fault::Unavailable, message).at(self.target))
    }

    fn ahead(&self) -> MutexGuard<'_, Option<AheadFile>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the version that the origin reported, whose file is open as `handle`.
    async fn found(
        &self,
        origin: &Arc<Origin>,
        handle: Option<Arc<dyn ReadHandle>>,
        metadata: Metadata,
    ) -> Result<Opened> {
        let Self { store, caller, target, lookup, .. } = self;
        let metadata = lookup.date_back(metadata);
        if let Some((version, source)) = self.identified(origin, handle.clone(), &metadata).await? {
            let ahead = self.ahead().take();
            if let Some(AheadFile { file, .. }) = &ahead
                && *file.version() == version
            {
                return Ok(Opened::Cached(store.given(file, metadata).await));
            }
            if let Some(file) = store.cached(version, source, metadata).await {
                return Ok(Opened::Cached(file));
            }
        }
        match handle {
            Some(handle) => Ok(Opened::Single(handle)),
            None => store.open_uncached(caller, target, self.options.clone()).await,
        }
    }

    /// Returns the version that the origin reported, and its file there; `None` if the file may not be cached.
    async fn identified(
        &self,
        origin: &Arc<Origin>,
        handle: Option<Arc<dyn ReadHandle>>,
        metadata: &Metadata,
    ) -> Result<Option<(Version, Source)>> {
        let Self { store, caller, target, lookup, .. } = self;
        let found = self.version(origin, metadata)?;
        store.remember(lookup, target, found.as_ref(), metadata).await;
        let Some(found) = found else { return Ok(None) };
        let version = store.entry_version(target, found, store.recheck(target)).await;
        let file = handle.map(|handle| OpenFile::new(origin, handle, metadata));
        let source = Source::new(store.opening(caller, target, &version), file);
        Ok(Some((version, source)))
    }

    /// Collects and stores content that can be read only once, if the origin and the memory permit it.
    async fn streamed(&self, origin: &Arc<Origin>, stream: ContentStream) -> Result<Opened> {
        let Self { store, caller, target, lookup, .. } = self;
        if !target.is_cacheable() || !lookup.may_store(&stream.metadata) {
            store.remember(lookup, target, None, &stream.metadata).await;
            return Ok(Opened::Single(Arc::new(ResultFile::passed_on(stream))));
        }
        origin.counters.requests.fetch_add(1, Relaxed);
        let file = Arc::new(ResultFile::collect(stream, store.cache.result_memory()).await?);
        let Some((content, metadata)) = file.whole() else { return Ok(Opened::Single(file)) };
        if !self.options.accept(metadata) {
            return Err(Error::new(Fault::Changed, "the origin sent another version than the required one").at(target));
        }
        origin.counters.fetched_bytes.fetch_add(metadata.size, Relaxed);
        let metadata = lookup.date_back(metadata.clone());
        let Some(found) = self.version(origin, &metadata)? else {
            store.remember(lookup, target, None, &metadata).await;
            return Ok(Opened::Collected(file));
        };
        let version = store.entry_version(target, found.clone(), store.recheck(target)).await;
        let source = Source::new(store.opening(caller, target, &version), None);
        match store.cached(version, source, metadata.clone()).await {
            // Only then: a later open reads the entry.
            Some(cached) if cached.store(content).await => {
                store.remember(lookup, target, Some(&found), &metadata).await;
                Ok(Opened::Cached(cached))
            }
            _ => Ok(Opened::Collected(file)),
        }
    }

    /// Opens the entry of a stale version.
    async fn stale(&self, stale: &KnownVersion) -> Result<Opened> {
        let Self { store, caller, target, lookup, .. } = self;
        let file = store.cached_lazily(caller, target, stale, Reuse::Error, lookup.directives()).await;
        let failed = || Error::new(Fault::Unavailable, "the origin and the disk failed").at(target);
        file.map(Opened::Cached).ok_or_else(failed)
    }

    /// Returns the version to cache the file as, if it may be cached.
    fn version(&self, origin: &Origin, metadata: &Metadata) -> Result<Option<Version>> {
        let version = CacheStore::version(origin, &origin.target(self.target)?, metadata, self.requested_ns);
        Ok(version.filter(|_| self.lookup.may_store(metadata)))
    }
}

/// Returns whether a later change of the content could leave the version as it is: nginx, for one, makes the entity tags
/// that it calls strong of the size and the second of the modification.
fn is_recent(metadata: &Metadata, requested_ns: i64) -> bool {
    let is_of_seconds = |mtime_ns: &i64| mtime_ns % 1_000_000_000 == 0;
    !is_of_content(metadata.version.as_ref())
        && metadata.mtime_ns.filter(is_of_seconds).is_some_and(|mtime_ns| !is_settled(mtime_ns, requested_ns))
}
