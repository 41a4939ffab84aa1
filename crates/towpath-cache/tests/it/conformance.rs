//! The conformance suite of stores, run by a cache around stores with and without faults.

use std::sync::Arc;

use towpath_cache::{Cache, CacheOptions};
use towpath_store::{
    Store,
    local::{Durability, LocalOptions, LocalStore},
    memory::MemoryStore,
};
use towpath_testkit::conformance::{self, Fixture};

use crate::origin::tree;

async fn check(origin: Arc<dyn Store>) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), CacheOptions::default()).unwrap();
    let store = Arc::new(cache.around(tree("memory", origin)).unwrap());
    conformance::check(&Fixture::new(Arc::clone(&store) as _)).await;
    let (_, statistics) = store.statistics().remove(0);
    assert!(statistics.fetched_bytes > 1 << 20, "the checks read through the cache: {statistics:?}");
    assert_eq!((statistics.bypass_bytes, statistics.damaged_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_around_memory_keeps_the_promises() {
    check(Arc::new(MemoryStore::new(64 << 20))).await;
}

#[tokio::test]
async fn a_cache_around_a_directory_keeps_the_promises() {
    let directory = tempfile::tempdir().unwrap();
    let options = LocalOptions { durability: Durability::None, ..LocalOptions::default() };
    check(Arc::new(LocalStore::open(directory.path(), options).unwrap())).await;
}
