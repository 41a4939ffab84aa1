//! What an operator does with a cache.

use std::sync::Arc;

use towpath_cache::{Cache, CacheOptions, CacheStore, ScrubOutcome, Selection, Spoiling};
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, OpenOptions, Residency, Store, StorePath, memory::MemoryStore,
};
use towpath_testkit::{pattern::Pattern, volume::FaultVolume};

use crate::origin::{open_cache, tree};

const BYTES: usize = 100_000;

struct Setup {
    /// Absent while it is opened again.
    open: Option<(Cache, CacheStore)>,
    directory: tempfile::TempDir,
    origin: Arc<MemoryStore>,
}

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// Selects the entries at or below a path of an origin.
fn below(origin: &str, path: StorePath) -> Selection {
    Selection::Below(vec![(origin.into(), path)])
}

impl Setup {
    /// A cache with the files `/a/0`, `/a/1` and `/b/0`, all read.
    async fn new() -> Self {
        let origin = Arc::new(MemoryStore::new(1 << 30));
        let options = CreateOptions { parents: true, ..CreateOptions::default() };
        for name in ["/a/0", "/a/1", "/b/0"] {
            let file = origin.create(&Caller::local(), &path(name), options.clone()).await.unwrap();
            file.write(0, Pattern::new(0).bytes(0, BYTES)).await.unwrap();
            file.commit(Expectation::default()).await.unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let open = Some(open(&directory, &origin, u64::MAX).await);
        let setup = Self { open, directory, origin };
        for name in ["/a/0", "/a/1", "/b/0"] {
            setup.check(name).await;
        }
        setup
    }

    fn cache(&self) -> &Cache {
        &self.open.as_ref().unwrap().0
    }

    fn cached(&self) -> &CacheStore {
        &self.open.as_ref().unwrap().1
    }

    async fn check(&self, name: &str) {
        let file = self.cached().open(&Caller::local(), &path(name), OpenOptions::default()).await.unwrap();
        let data = file.read(0, BYTES).await.unwrap();
        assert_eq!(data.len(), BYTES);
        Pattern::new(0).check(0, &data);
    }

    async fn present(&self) -> Vec<(String, u64, bool)> {
        let list = self.cache().describe(&below("memory", StorePath::root()), usize::MAX).await.unwrap();
        list.entries
            .into_iter()
            .map(|entry| (format!("{:?}", *entry.target), entry.present_bytes, entry.is_pinned))
            .collect()
    }
}

async fn open(directory: &tempfile::TempDir, origin: &Arc<MemoryStore>, max_bytes: u64) -> (Cache, CacheStore) {
    let options = CacheOptions { max_bytes: Some(max_bytes), high_watermark: 1.0, ..CacheOptions::default() };
    let cache = open_cache(directory.path(), &options).await;
    let cached = cache.around(tree("memory", Arc::clone(origin) as _)).unwrap();
    (cache, cached)
}

#[tokio::test]
async fn an_operator_evicts_what_is_below_a_path() {
    let setup = Setup::new().await;
    assert_eq!(setup.present().await.iter().map(|entry| entry.1).sum::<u64>(), 3 * BYTES as u64);
    let open = setup.cached().open(&Caller::local(), &path("/a/1"), OpenOptions::default()).await.unwrap();
    assert!(setup.cached().statistics()[0].1.damaged_bytes == 0 && open.read(0, 10).await.is_ok());
    let part = open.local_part(0, 1000).unwrap();
    let eviction = setup.cache().evict_selected(&below("memory", path("/a"))).await.unwrap();
    assert_eq!((eviction.entries, eviction.in_use, eviction.pinned), (2, 1, 0));
    assert!(eviction.freed_bytes >= BYTES as u64);
    assert_eq!(setup.present().await.len(), 2);
    drop(part);
    let freed_bytes = setup.cache().evict_selected(&below("memory", path("/a"))).await.unwrap().freed_bytes;
    assert_eq!(freed_bytes, (BYTES as u64).next_multiple_of(4096), "whole blocks");
    Pattern::new(0).check(0, &open.read(0, BYTES).await.unwrap());
    assert_eq!(setup.cache().evict_selected(&below("other", path("/b"))).await.unwrap().entries, 0);
}

#[tokio::test]
async fn a_listing_is_bounded_and_opens_nothing() {
    let mut setup = Setup::new().await;
    setup.open = None;
    setup.open = Some(open(&setup.directory, &setup.origin, u64::MAX).await);
    setup.cache().walk().await.unwrap();
    let calls = async |max| setup.cache().describe(&Selection::All, max).await.unwrap();
    let all = calls(usize::MAX).await;
    let present: Vec<_> =
        all.entries.iter().map(|entry| (StorePath::clone(&entry.target), entry.present_bytes)).collect();
    let expected = ["/a/0", "/a/1", "/b/0"].map(|name| (path(name), BYTES as u64));
    assert_eq!((all.total, present), (3, expected.to_vec()), "closed entries of whole files");
    let first = calls(1).await;
    assert_eq!((first.total, first.entries.len(), &*first.entries[0].target), (3, 1, &path("/a/0")));
    let selection = below("memory", path("/a"));
    let list = || Box::pin(setup.cache().describe(&selection, 10));
    // A listing of three entries may end before its first poll returns.
    let running = loop {
        let mut listing = list();
        if futures::poll!(&mut listing).is_pending() {
            break listing;
        }
    };
    assert_eq!(list().await.unwrap_err().fault(), Fault::Overloaded, "one at a time");
    assert_eq!(running.await.unwrap().total, 2);
    drop(Box::pin(list()));
    assert_eq!(list().await.unwrap().total, 2);
}

#[tokio::test]
async fn pinned_paths_stay_also_after_a_restart() {
    let mut setup = Setup::new().await;
    assert_eq!(setup.cache().pin("memory", &path("/a"), true).await.unwrap(), 2);
    for _ in 0..2 {
        let eviction = setup.cache().evict_selected(&below("memory", StorePath::root())).await.unwrap();
        assert_eq!(eviction.pinned, 2);
        setup.open = None;
        setup.open = Some(open(&setup.directory, &setup.origin, 1).await);
        setup.cache().walk().await.unwrap();
        setup.cache().evict_excess().await.unwrap();
        let names: Vec<_> = setup.present().await.into_iter().filter(|(.., is_pinned)| *is_pinned).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        setup.check("/b/0").await;
    }
    setup.cache().pin("memory", &path("/a"), false).await.unwrap();
    let refused = setup.cache().pin("memory", &path("/a"), false).await;
    assert_eq!(refused.unwrap_err().fault(), Fault::NotFound);
    setup.cache().evict_selected(&below("memory", StorePath::root())).await.unwrap();
    assert_eq!(setup.present().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_opened_while_a_pin_waits_for_the_disk() {
    let Setup { origin, .. } = Setup::new().await;
    let volume = FaultVolume::default();
    let cache = Cache::on(Arc::new(volume.clone()), CacheOptions::default()).unwrap();
    let cached = cache.around(tree("memory", origin)).unwrap();
    let held = volume.hold("rename");
    let pinning = tokio::spawn({
        let cache = cache.clone();
        async move { cache.pin("memory", &path("/a"), true).await }
    });
    let held = tokio::task::spawn_blocking(move || {
        held.wait();
        held
    });
    let held = held.await.unwrap();
    let file = cached.open(&Caller::local(), &path("/a/0"), OpenOptions::default()).await.unwrap();
    Pattern::new(0).check(0, &file.read(0, BYTES).await.unwrap());
    assert!(!pinning.is_finished());
    drop(held);
    assert_eq!(pinning.await.unwrap().unwrap(), 1, "the entry that was opened meanwhile");
    drop(file);
    assert_eq!(cache.evict_selected(&below("memory", path("/a"))).await.unwrap().pinned, 1);
}

#[tokio::test]
async fn a_scrub_finds_damage_and_the_next_read_repairs_it() {
    let setup = Setup::new().await;
    let clean = setup.cache().scrub(u64::MAX).await.unwrap();
    assert_eq!(clean, ScrubOutcome { entries: 3, compared_bytes: 3 * BYTES as u64, damaged_bytes: 0, failures: 0 });
    for (how, damaged) in [(Spoiling::Corrupt, 16_384), (Spoiling::Truncate, BYTES as u64)] {
        assert_eq!(setup.cache().spoil(&below("memory", path("/a/0")), how).await.unwrap(), 1);
        let found = setup.cache().scrub(u64::MAX).await.unwrap();
        assert_eq!(found.damaged_bytes, damaged, "{found:?}");
        setup.check("/a/0").await;
        assert_eq!(setup.cache().scrub(u64::MAX).await.unwrap().damaged_bytes, 0);
        // A read finds it too.
        setup.cache().spoil(&below("memory", path("/a/0")), how).await.unwrap();
        let before = setup.cached().statistics()[0].1.damaged_bytes;
        setup.check("/a/0").await;
        assert!(setup.cached().statistics()[0].1.damaged_bytes > before);
    }
    let spoil = async |name| setup.cache().spoil(&below("memory", path(name)), Spoiling::Corrupt).await.unwrap_err();
    assert_eq!(spoil("/nothing").await.fault(), Fault::NotFound);
    let directory = spoil("/a").await;
    assert_eq!(directory.fault(), Fault::InvalidArgument, "a directory is not damaged");
    assert!(directory.to_string().contains("entries below it: 2"), "{directory}");
    let all = setup.cache().spoil(&Selection::All, Spoiling::Corrupt).await.unwrap_err();
    assert!(all.to_string().contains("entries below it: 3"), "{all}");
    assert_eq!(setup.cache().scrub(u64::MAX).await.unwrap().damaged_bytes, 0);
}

#[tokio::test]
async fn accesses_are_recorded_with_what_was_missing() {
    let setup = Setup::new().await;
    setup.check("/a/0").await;
    let records = setup.cache().accesses(&below("memory", path("/a/0")));
    let bytes: Vec<_> = records.iter().map(|record| (record.served_bytes, record.missed_bytes)).collect();
    assert_eq!(bytes, [(BYTES as u64, BYTES as u64), (BYTES as u64, 0)]);
    assert!(records[0].origin_wait <= records[0].duration);
    assert_eq!(setup.cache().accesses(&below("memory", path("/a"))).len(), 3);
}

#[tokio::test]
async fn a_stat_says_how_much_is_in_the_cache() {
    let setup = Setup::new().await;
    let residency = async || setup.cached().stat(&Caller::local(), &path("/a/0")).await.unwrap().residency;
    assert_eq!(residency().await, Residency::Online);
    setup.cache().evict_selected(&below("memory", path("/a/0"))).await.unwrap();
    assert_eq!(residency().await, Residency::Partial { present_bytes: 0 });
    let file = setup.cached().open(&Caller::local(), &path("/a/0"), OpenOptions::default()).await.unwrap();
    file.read(1000, 500).await.unwrap();
    assert_eq!(residency().await, Residency::Partial { present_bytes: 500 });
    assert_eq!(file.metadata().await.unwrap().residency, Residency::Partial { present_bytes: 500 });
}

#[tokio::test]
async fn a_directory_belongs_to_one_process() {
    let setup = Setup::new().await;
    let refused = Cache::open(setup.directory.path(), CacheOptions::default());
    assert!(refused.unwrap_err().to_string().contains("another process uses this directory"));
}
