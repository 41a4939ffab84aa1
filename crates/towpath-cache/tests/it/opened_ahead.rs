//! The next file of a dataset, which is opened before it is requested.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tempfile::TempDir;
use towpath_cache::{Cache, CacheOptions, CacheStore};
use towpath_store::{
    CacheDirectives, Caller, CreateOptions, Expectation, Fault, OpenOptions, Overwrite, ReadHandle, Residency, Store,
    StorePath, memory::MemoryStore,
};
use towpath_testkit::fault::{FaultStore, Faults, ReadFaults};

use crate::origin::tree;

/// A tree that ROOT 6.40 wrote: offset and length of its baskets, and of its record with what follows.
const TREE: &[u8] = include_bytes!("../../../towpath-rootfile/tests/data/tree.root");
const BASKETS: [(u64, usize); 3] = [(218, 1769), (1987, 1228), (3215, 1187)];
const RECORD: (u64, usize) = (4402, 5573);
/// Size of the files: an open requests all of it.
const SIZE: usize = 128 << 10;

struct Site {
    origin: FaultStore,
    cached: CacheStore,
    _directory: TempDir,
}

fn content(number: u8) -> Bytes {
    let mut content = TREE.to_vec();
    content.resize(SIZE, number);
    content.into()
}

fn path(name: &str) -> StorePath {
    StorePath::parse(name.as_bytes()).unwrap()
}

fn shared() -> ReadFaults {
    ReadFaults { shares_open_files: true, ..ReadFaults::default() }
}

impl Site {
    fn new(read_faults: ReadFaults) -> Self {
        let origin = FaultStore::new(Arc::new(MemoryStore::new(1 << 24)), Faults::default());
        let origin = origin.with_read_faults(read_faults);
        let directory = tempfile::tempdir().unwrap();
        let options = CacheOptions { columns: true, ..CacheOptions::default() };
        let cache = Cache::open(directory.path(), options).unwrap();
        let cached = cache.around(tree("origin", Arc::new(origin.clone()))).unwrap();
        Self { origin, cached, _directory: directory }
    }

    /// Creates two files of a dataset, and reads the first.
    async fn with_two_files(read_faults: ReadFaults) -> Self {
        let site = Self::new(read_faults);
        site.put("/run_1.root", 1).await;
        site.put("/run_2.root", 2).await;
        site.read_first().await;
        site
    }

    async fn put(&self, name: &str, number: u8) {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        let file = self.origin.create(&Caller::local(), &path(name), options).await.unwrap();
        file.write(0, content(number)).await.unwrap();
        let mtime_ns = Some((1_700_000_000 + i64::from(number)) * 1_000_000_000);
        file.commit(Expectation { mtime_ns, ..Expectation::default() }).await.unwrap();
    }

    async fn open(&self, name: &str, cache: CacheDirectives) -> Arc<dyn ReadHandle> {
        let options = OpenOptions { cache, ..OpenOptions::default() };
        self.cached.open(&Caller::local(), &path(name), options).await.unwrap()
    }

    /// Reads the columns of the first file.
    async fn read_first(&self) {
        let file = self.open("/run_1.root", CacheDirectives::default()).await;
        file.read(RECORD.0, RECORD.1).await.unwrap();
        for (offset, length) in BASKETS {
            // The index is read in the background.
            tokio::time::sleep(Duration::from_millis(20)).await;
            file.read(offset, length).await.unwrap();
        }
    }

    fn fetched_files(&self) -> u64 {
        let fetched = self.cached.statistics()[0].1.fetched_bytes;
        assert_eq!(fetched % SIZE as u64, 0);
        fetched / SIZE as u64
    }

    async fn until_fetched(&self, files: u64) {
        for _ in 0..2000 {
            if self.cached.statistics()[0].1.fetched_bytes == files * SIZE as u64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{files} files are not fetched: {:?}", self.cached.statistics()[0].1);
    }

    /// Reads all of the second file through the cache.
    async fn read_second(&self, cache: CacheDirectives) -> Bytes {
        self.open("/run_2.root", cache).await.read(0, SIZE).await.unwrap()
    }
}

#[tokio::test]
async fn the_next_file_is_there_when_it_is_requested() {
    for faults in [ReadFaults::default(), shared()] {
        let site = Site::with_two_files(faults).await;
        site.until_fetched(2).await;
        assert_eq!(site.read_second(CacheDirectives::default()).await, content(2));
        assert_eq!(site.fetched_files(), 2);
    }
}

#[tokio::test]
async fn the_file_behind_an_opened_one_is_opened_if_the_dataset_is_known() {
    let site = Site::with_two_files(ReadFaults::default()).await;
    site.until_fetched(2).await;
    site.put("/run_3.root", 3).await;
    let second = site.open("/run_2.root", CacheDirectives::default()).await;
    site.until_fetched(3).await;
    assert_eq!(second.read(0, SIZE).await.unwrap(), content(2));
}

#[tokio::test]
async fn an_open_of_an_unknown_dataset_opens_nothing_more() {
    let site = Site::new(ReadFaults::default());
    site.put("/run_1.root", 1).await;
    site.put("/run_2.root", 2).await;
    let _first = site.open("/run_1.root", CacheDirectives::default()).await;
    site.until_fetched(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(site.fetched_files(), 1);
}

#[tokio::test]
async fn a_reader_that_opens_one_file_after_the_other_gets_more() {
    // Two files, if the storage reports which ones are on tape.
    for (faults, fetched) in [(shared(), [1, 4, 5, 6]), (ReadFaults::default(), [1, 3, 4, 5])] {
        let site = Site::new(faults);
        for number in 1..=6 {
            site.put(&format!("/run_{number}.root"), number).await;
        }
        // It reads no columns, as one that counts entries first.
        for (number, fetched) in (1..=4).zip(fetched) {
            let file = site.open(&format!("/run_{number}.root"), CacheDirectives::default()).await;
            assert_eq!(file.read(0, SIZE).await.unwrap(), content(number));
            site.until_fetched(fetched).await;
        }
        // One that reads nothing but what the cache has.
        let options = OpenOptions {
            cache: CacheDirectives { only_if_cached: true, ..CacheDirectives::default() },
            ..OpenOptions::default()
        };
        let _ = site.cached.open(&Caller::local(), &path("/run_5.root"), options).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(site.fetched_files(), fetched[3]);
    }
}

#[tokio::test]
async fn a_reader_gets_the_file_that_its_path_has() {
    let checked = CacheDirectives { max_age_s: Some(0), ..CacheDirectives::default() };
    for faults in [ReadFaults::default(), shared()] {
        for directives in [CacheDirectives::default(), checked] {
            let site = Site::with_two_files(faults.clone()).await;
            site.until_fetched(2).await;
            site.put("/run_2.root", 3).await;
            assert_eq!(site.read_second(directives).await, content(3));
        }
    }
}

#[tokio::test]
async fn a_reader_never_gets_a_file_that_was_replaced() {
    let site = Site::with_two_files(shared()).await;
    site.until_fetched(2).await;
    // Another client of the storage has the former file open, so that all opens get it.
    let held = site.origin.open(&Caller::local(), &path("/run_2.root"), OpenOptions::default()).await.unwrap();
    site.put("/run_2.root", 3).await;
    let opened = site.cached.open(&Caller::local(), &path("/run_2.root"), OpenOptions::default()).await;
    assert_eq!(opened.unwrap_err().fault(), Fault::Unavailable);
    drop(held);
    assert_eq!(site.read_second(CacheDirectives::default()).await, content(3));
}

#[tokio::test]
async fn a_file_on_tape_and_a_missing_one_are_not_opened() {
    let site = Site::with_two_files(ReadFaults { residency: Some(Residency::Offline), ..ReadFaults::default() }).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(site.fetched_files(), 1);
    let site = Site::new(ReadFaults::default());
    site.put("/run_1.root", 1).await;
    site.read_first().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((site.fetched_files(), site.cached.statistics()[0].1.missing), (1, 0));
    // That it was missing is not remembered.
    site.put("/run_2.root", 2).await;
    assert_eq!(site.read_second(CacheDirectives::default()).await, content(2));
}
