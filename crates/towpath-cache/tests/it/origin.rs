//! An origin in memory with one file, a cache around it, and its directory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;
use towpath_cache::{
    Cache, CacheOptions, CacheStore, Credential, OriginOptions, OriginStatistics, Rules, Selection, TreeOptions,
    entry_files,
};
use towpath_store::{
    Caller, CreateOptions, Expectation, OpenOptions, Overwrite, ReadHandle, Store, StorePath, memory::MemoryStore,
};
use towpath_testkit::{
    fault::{FaultStore, Faults, ReadFaults},
    pattern::Pattern,
};

/// The name of the origin.
const NAME: &str = "memory";

pub(crate) struct Origin {
    pub(crate) store: FaultStore,
    cached: Option<Arc<CacheStore>>,
    pub(crate) directory: TempDir,
    pub(crate) size: usize,
}

pub(crate) fn path() -> StorePath {
    StorePath::parse(b"/file").unwrap()
}

/// Opens a cache, once an earlier one has closed the directory: requests in flight keep it open.
pub(crate) async fn open_cache(directory: &Path, options: &CacheOptions) -> Cache {
    for _ in 0..1000 {
        match Cache::open(directory, options.clone()) {
            Err(error) if error.to_string().contains("another process") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            outcome => return outcome.unwrap(),
        }
    }
    panic!("the cache stays open");
}

/// The whole of `store` as an origin.
pub(crate) fn origin(name: &str, store: Arc<dyn Store>) -> OriginOptions {
    let (root, credential) = (StorePath::root(), Credential::Own);
    let request_times = Arc::default();
    OriginOptions { name: name.into(), store, root, credential, bytes_in_flight: 64 << 20, request_times }
}

/// The tree of one origin, without rules.
pub(crate) fn tree(name: &str, store: Arc<dyn Store>) -> TreeOptions {
    TreeOptions { origins: vec![origin(name, store)], rules: Rules::default(), deadline: Duration::from_secs(10) }
}

impl Origin {
    /// An origin with the file [`path`] of `size` bytes, the pattern [`Origin::pattern`].
    pub(crate) async fn with_file(size: usize) -> Self {
        Self::new(size, ReadFaults::default()).await
    }

    /// Like [`Self::with_file`], of an origin whose version tags are weak.
    pub(crate) async fn with_weak_tags(size: usize) -> Self {
        Self::new(size, ReadFaults { has_weak_tags: true, ..ReadFaults::default() }).await
    }

    /// Like [`Self::with_file`], of an origin where each request has its own connection.
    pub(crate) async fn with_separate_connections(size: usize) -> Self {
        Self::new(size, ReadFaults { has_separate_connections: true, ..ReadFaults::default() }).await
    }

    async fn new(size: usize, read_faults: ReadFaults) -> Self {
        let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
        let store = store.with_read_faults(read_faults);
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), CacheOptions::default()).unwrap();
        let cached = Some(Arc::new(cache.around(tree(NAME, Arc::new(store.clone()))).unwrap()));
        let origin = Self { store, cached, directory, size };
        origin.put(origin.pattern()).await;
        origin
    }

    pub(crate) fn pattern(&self) -> Pattern {
        Pattern::new(self.size as u64)
    }

    /// Replaces the file at the origin.
    pub(crate) async fn put(&self, pattern: Pattern) {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        let file = self.store.create(&Caller::local(), &path(), options).await.unwrap();
        file.write(0, pattern.bytes(0, self.size)).await.unwrap();
        // Old enough to be identified by weak tags.
        let mtime_ns = Some(1_700_000_000_000_000_000);
        file.commit(Expectation { mtime_ns, ..Expectation::default() }).await.unwrap();
    }

    /// Opens the cache again, as after a restart.
    pub(crate) async fn reopen(&mut self) {
        self.cached = None;
        let cache = open_cache(self.directory.path(), &CacheOptions::default()).await;
        self.cached = Some(Arc::new(cache.around(tree(NAME, Arc::new(self.store.clone()))).unwrap()));
    }

    fn cached(&self) -> &CacheStore {
        self.cached.as_ref().expect("it is only absent while it is opened again")
    }

    pub(crate) async fn open(&self) -> Arc<dyn ReadHandle> {
        self.cached().open(&Caller::local(), &path(), OpenOptions::default()).await.unwrap()
    }

    pub(crate) async fn try_open(&self) -> towpath_store::Result<Arc<dyn ReadHandle>> {
        self.cached().open(&Caller::local(), &path(), OpenOptions::default()).await
    }

    /// Evicts the file. Returns the number of entries that are in use.
    pub(crate) async fn evict(&self) -> u64 {
        let evicted = self.cached().cache().evict_selected(&Selection::All).await;
        evicted.unwrap().in_use
    }

    /// Reads a range through the cache, and compares it.
    pub(crate) async fn check(&self, file: &dyn ReadHandle, offset: u64, length: usize) {
        let data = file.read(offset, length).await.unwrap();
        assert_eq!(data.len(), length.min(self.size - offset as usize));
        self.pattern().check(offset, &data);
    }

    pub(crate) fn statistics(&self) -> OriginStatistics {
        self.cached().statistics()[0].1
    }

    /// The data file and the index file of the cached file.
    pub(crate) async fn files(&self) -> [PathBuf; 2] {
        let metadata = self.store.stat(&Caller::local(), &path()).await.unwrap();
        entry_files(NAME, &path(), &metadata).unwrap().map(|name| self.directory.path().join(name))
    }
}
