//! Several origins with the same tree.

use std::{sync::Arc, time::Duration};

use towpath_cache::{CacheOptions, CacheStore, Recheck, Rules, TreeOptions};
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, ListOptions, OpenOptions, Overwrite, ReadHandle, Result, Store,
    StorePath, memory::MemoryStore,
};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use crate::origin::{open_cache, origin, path, tree};

/// Modification time of the files, in nanoseconds since the Unix epoch.
const MTIME_NS: i64 = 1_700_000_000_000_000_000;
const SIZE: usize = 1 << 20;
/// More than any test needs.
const MANY: u64 = 1000;

/// Two origins with the same tree.
struct Setup {
    origins: [FaultStore; 2],
    directory: tempfile::TempDir,
    rules: Rules,
}

impl Setup {
    /// Two origins with the file [`path`]; the second one's is `later_ns` younger.
    async fn new(recheck: Recheck, later_ns: i64) -> Self {
        let new = || FaultStore::new(Arc::new(MemoryStore::new(64 << 20)), Faults::default());
        let origins = [new(), new()];
        for (origin, mtime_ns) in origins.iter().zip([MTIME_NS, MTIME_NS + later_ns]) {
            put(origin, Pattern::new(SIZE as u64), mtime_ns).await;
        }
        let rules = Rules::new(vec![(StorePath::root(), recheck)]);
        Self { origins, directory: tempfile::tempdir().unwrap(), rules }
    }

    async fn start(&self) -> CacheStore {
        let cache = open_cache(self.directory.path(), &CacheOptions::default()).await;
        let [first, second] = ["first", "second"];
        let origins =
            vec![origin(first, Arc::new(self.origins[0].clone())), origin(second, Arc::new(self.origins[1].clone()))];
        let options = tree("unused", Arc::new(self.origins[0].clone()));
        cache.around(TreeOptions { origins, rules: self.rules.clone(), ..options }).unwrap()
    }

    /// Makes the calls of these names fail at the first origin.
    fn stop_first(&self, calls: &[&'static str]) {
        for name in calls {
            (0..MANY).for_each(|_| self.origins[0].fail(name, 0, Fault::Unavailable));
        }
    }
}

async fn put(store: &FaultStore, pattern: Pattern, mtime_ns: i64) {
    let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path(), options).await.unwrap();
    file.write(0, pattern.bytes(0, SIZE)).await.unwrap();
    file.commit(Expectation { mtime_ns: Some(mtime_ns), ..Expectation::default() }).await.unwrap();
}

async fn open(store: &CacheStore) -> Result<Arc<dyn ReadHandle>> {
    store.open(&Caller::local(), &path(), OpenOptions::default()).await
}

/// Reads and compares a range.
async fn check(file: &dyn ReadHandle, offset: u64, length: usize) {
    let data = file.read(offset, length).await.unwrap();
    assert_eq!(data.len(), length);
    Pattern::new(SIZE as u64).check(offset, &data);
}

#[tokio::test]
async fn an_unreachable_origin_is_replaced_by_the_next_one() {
    let setup = Setup::new(Recheck::Always, 0).await;
    let store = setup.start().await;
    setup.stop_first(&["open", "stat", "list"]);
    for _ in 0..5 {
        check(&*open(&store).await.unwrap(), 0, SIZE).await;
        assert_eq!(store.stat(&Caller::local(), &path()).await.unwrap().size, SIZE as u64);
        let mut listing = store.list(&Caller::local(), &StorePath::root(), ListOptions::default());
        let names = futures::StreamExt::next(&mut listing).await.unwrap().unwrap();
        assert_eq!(names.len(), 1);
    }
    let statistics = store.statistics();
    assert_eq!((statistics[0].1.fetched_bytes, statistics[1].1.fetched_bytes), (0, SIZE as u64));
}

#[tokio::test]
async fn an_answer_of_the_first_origin_counts_even_if_it_is_no() {
    let setup = Setup::new(Recheck::Always, 0).await;
    let store = setup.start().await;
    let calls = setup.origins[1].calls();
    for fault in [Fault::NotFound, Fault::PermissionDenied, Fault::Io] {
        setup.origins[0].fail("open", 0, fault);
        assert_eq!(open(&store).await.unwrap_err().fault(), fault);
    }
    assert_eq!(setup.origins[1].calls(), calls);
}

#[tokio::test]
async fn all_failures_are_reported_if_no_origin_can_be_reached() {
    let setup = Setup::new(Recheck::Always, 0).await;
    let store = setup.start().await;
    setup.origins.iter().for_each(|origin| origin.fail("open", 0, Fault::Unavailable));
    let error = open(&store).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Unavailable);
    assert!(error.message().contains("no other origin can be reached"), "{error}");
    open(&store).await.unwrap();
}

#[tokio::test]
async fn a_reader_continues_at_the_next_origin_with_the_same_content() {
    let setup = Setup::new(Recheck::Always, 0).await;
    let store = setup.start().await;
    let file = open(&store).await.unwrap();
    check(&*file, 0, 1000).await;
    setup.stop_first(&["open", "read_into", "read_vector", "read"]);
    check(&*file, 500_000, 1000).await;
    check(&*file, 0, SIZE).await;
    let fetched: Vec<_> = store.statistics().iter().map(|(_, statistics)| statistics.fetched_bytes).collect();
    assert_eq!(fetched, [1000, SIZE as u64 - 1000], "what was present was not fetched again");
    // Bytes fetched from the first origin are used without it.
    let again = open(&store).await.unwrap();
    check(&*again, 0, SIZE).await;
    assert_eq!(store.statistics()[1].1.fetched_bytes, SIZE as u64 - 1000);
}

#[tokio::test]
async fn a_file_of_another_time_is_another_version_unless_files_never_change() {
    for (recheck, expected) in [(Recheck::Always, Err(Fault::Changed)), (Recheck::Never, Ok(()))] {
        let setup = Setup::new(recheck, 1_000_000_000).await;
        let store = setup.start().await;
        let file = open(&store).await.unwrap();
        check(&*file, 0, 1000).await;
        setup.stop_first(&["open", "read_into", "read_vector", "read"]);
        let read = file.read(500_000, 1000).await;
        assert_eq!(read.as_ref().map(drop).map_err(towpath_store::Error::fault), expected, "{recheck}");
        // Opened again, it is what the reachable origin has.
        check(&*open(&store).await.unwrap(), 0, SIZE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_does_not_respond_is_given_up_after_the_deadline() {
    let setup = Setup::new(Recheck::Always, 0).await;
    let store = setup.start().await;
    let held = setup.origins[0].hold("open");
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        open(&store).await.unwrap();
    }
    assert!(start.elapsed() >= Duration::from_secs(30) && start.elapsed() < Duration::from_secs(31));
    // From now on it counts as unreachable.
    let start = tokio::time::Instant::now();
    open(&store).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    drop(held);
    // It is probed in the background, and used again.
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(1)).await;
        open(&store).await.unwrap();
    }
    let calls = setup.origins[1].calls();
    open(&store).await.unwrap();
    assert_eq!(setup.origins[1].calls(), calls, "the first origin serves again");
}
