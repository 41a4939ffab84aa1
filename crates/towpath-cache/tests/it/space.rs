//! Eviction, leftovers, and full disks.

use std::{os::unix::fs::FileExt as _, sync::Arc};

use futures::future::join_all;
use towpath_cache::{Cache, CacheOptions, CacheStore};
use towpath_store::{
    ByteRange, Caller, CreateOptions, Expectation, OpenOptions, ReadHandle, Store, StorePath, memory::MemoryStore,
    sys::disk,
};
use towpath_testkit::{pattern::Pattern, volume::FaultVolume};

use crate::origin::{open_cache, tree};

const FILE_BYTES: usize = 1_000_000;

struct Files {
    cache: Cache,
    cached: Arc<CacheStore>,
    directory: tempfile::TempDir,
}

fn path(file: u64) -> StorePath {
    StorePath::parse(format!("/{file}").as_bytes()).unwrap()
}

async fn put(origin: &MemoryStore, file: u64, length: usize) {
    let writer = origin.create(&Caller::local(), &path(file), CreateOptions::default()).await.unwrap();
    writer.write(0, Pattern::new(file).bytes(0, length)).await.unwrap();
    writer.commit(Expectation::default()).await.unwrap();
}

impl Files {
    /// A cache of at most `max_bytes` around an origin with `count` files of `length` bytes.
    async fn new(count: u64, length: usize, max_bytes: u64) -> Self {
        let origin = MemoryStore::new(1 << 30);
        for file in 0..count {
            put(&origin, file, length).await;
        }
        let directory = tempfile::tempdir().unwrap();
        let options = CacheOptions { max_bytes: Some(max_bytes), high_watermark: 1.0, ..CacheOptions::default() };
        let cache = Cache::open(directory.path(), options).unwrap();
        let cached = Arc::new(cache.around(tree("memory", Arc::new(origin))).unwrap());
        Self { cache, cached, directory }
    }

    async fn open(&self, file: u64) -> Arc<dyn ReadHandle> {
        self.cached.open(&Caller::local(), &path(file), OpenOptions::default()).await.unwrap()
    }

    async fn check(&self, file: u64, offset: u64, length: usize) {
        Pattern::new(file).check(offset, &self.open(file).await.read(offset, length).await.unwrap());
    }
}

#[tokio::test]
async fn a_cache_above_its_limit_is_emptied_to_below_and_reads_go_on() {
    let files = Files::new(10, FILE_BYTES, 5_000_000).await;
    for file in 0..10 {
        files.check(file, 0, FILE_BYTES).await;
    }
    assert!(files.cache.statistics().bytes >= 10 * FILE_BYTES as u64);
    files.cache.evict_excess().await.unwrap();
    let statistics = files.cache.statistics();
    assert!((3_000_000..=5_000_000).contains(&statistics.bytes), "{statistics:?}");
    assert!((3..=5).contains(&statistics.entries));
    let fetched = files.cached.statistics()[0].1.fetched_bytes;
    for file in 0..10 {
        files.check(file, 0, FILE_BYTES).await;
    }
    let again = files.cached.statistics()[0].1.fetched_bytes - fetched;
    assert_eq!(again, (10 - statistics.entries) * FILE_BYTES as u64);
}

#[tokio::test]
async fn what_is_leased_stays_and_the_rest_of_an_open_file_goes() {
    let files = Files::new(1, 50 << 20, 1000).await;
    let file = files.open(0).await;
    for offset in (0..50 << 20).step_by(1 << 20) {
        Pattern::new(0).check(offset, &file.read(offset, 1 << 20).await.unwrap());
    }
    let part = file.local_part(100, 1 << 20).unwrap();
    files.cache.evict_excess().await.unwrap();
    let left = files.cache.statistics().bytes;
    assert!(left > 0 && left <= 17 << 20, "{left}");
    let mut data = vec![0; 1 << 20];
    part.file.read_exact_at(&mut data, 100).unwrap();
    Pattern::new(0).check(100, &data);
    drop(part);
    files.cache.evict_excess().await.unwrap();
    assert!(file.local_part(100, 1 << 20).is_none());
    for offset in (0..50 << 20).step_by(1 << 20) {
        Pattern::new(0).check(offset, &file.read(offset, 1 << 20).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_during_an_eviction_returns_no_hole() {
    let (origin, volume) = (MemoryStore::new(1 << 30), FaultVolume::default());
    put(&origin, 0, FILE_BYTES).await;
    let options = CacheOptions { max_bytes: Some(1000), ..CacheOptions::default() };
    let cache = Cache::on(Arc::new(volume.clone()), options).unwrap();
    let cached = cache.around(tree("memory", Arc::new(origin))).unwrap();
    let file = cached.open(&Caller::local(), &path(0), OpenOptions::default()).await.unwrap();
    let data = file.read(0, 5000).await.unwrap();
    let held = volume.hold("read_now_at");
    let reading = std::thread::spawn({
        let file = Arc::clone(&file);
        move || file.read_now(0, 5000, &mut Vec::new()).is_some()
    });
    tokio::task::block_in_place(|| held.wait());
    cache.evict_excess().await.unwrap();
    assert_eq!(cache.statistics().bytes / 4096, 1, "the index");
    drop(held);
    assert!(!reading.join().unwrap(), "the bytes were removed during the read");
    assert_eq!(file.read(0, 5000).await.unwrap(), data);
    assert!(file.read_now(0, 5000, &mut Vec::new()).is_some(), "they were fetched again");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_served_while_everything_is_evicted_again_and_again() {
    let files = Arc::new(Files::new(4, 20 << 20, 1000).await);
    let evicting = tokio::spawn({
        let files = Arc::clone(&files);
        async move {
            loop {
                files.cache.evict_excess().await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let readers = (0..8_u64).map(|reader| {
        let files = Arc::clone(&files);
        tokio::spawn(async move {
            for round in 0..60_u64 {
                let (file, offset) = (round % 4, (reader * 7919 + round * 104_729_003) % (19 << 20));
                let handle = files.open(file).await;
                let ranges = [ByteRange { offset, length: 300_000 }, ByteRange { offset: offset / 2, length: 5000 }];
                if let Some(preparation) = handle.prepare(&ranges) {
                    preparation.ready(ranges[0]).await.unwrap();
                }
                if let Some(part) = handle.local_part(offset, 300_000) {
                    let mut data = vec![0; 300_000];
                    part.file.read_exact_at(&mut data, offset).unwrap();
                    Pattern::new(file).check(offset, &data);
                }
                for range in ranges {
                    Pattern::new(file).check(range.offset, &handle.read(range.offset, range.length).await.unwrap());
                }
            }
        })
    });
    join_all(readers.collect::<Vec<_>>()).await.into_iter().for_each(|reader| reader.unwrap());
    evicting.abort();
}

#[tokio::test]
async fn a_walk_finds_the_entries_and_removes_only_leftovers() {
    let files = Files::new(5, FILE_BYTES, u64::MAX).await;
    for file in 0..5 {
        files.check(file, 0, 100_000 * (file as usize + 1)).await;
    }
    let Files { cache, cached, directory } = files;
    let root = directory.path();
    drop((cache, cached));
    let orphan = root.join(format!("entries/00/{}.data", "0".repeat(62)));
    for path in [&orphan, &root.join("trash/x"), &root.join("entries/README"), &root.join("entries/00/notes.txt")] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        disk::write(path, b"left behind").unwrap();
    }
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    disk::append(&root.join("trash/x")).unwrap().set_modified(long_ago).unwrap();
    disk::write(&root.join("trash/new"), b"being written").unwrap();
    let without_data = root.join(format!("entries/00/{}.index", "1".repeat(62)));
    disk::write(&without_data, b"left behind").unwrap();
    let cache = open_cache(root, &CacheOptions::default()).await;
    assert_eq!(cache.statistics().entries, 0, "a start reads no entry");
    assert_eq!(cache.walk().await.unwrap(), 0);
    assert!(!without_data.exists() && root.join("trash/new").exists());
    let statistics = cache.statistics();
    assert_eq!(statistics.entries, 5);
    assert!((1_500_000..1_700_000).contains(&statistics.bytes), "{statistics:?}");
    assert!(!orphan.exists() && !root.join("trash/x").exists());
    assert!(root.join("entries/README").exists() && root.join("entries/00/notes.txt").exists());
}

#[tokio::test]
async fn a_full_disk_makes_the_cache_pass_reads_through_until_there_is_room() {
    let origin = MemoryStore::new(1 << 30);
    put(&origin, 0, FILE_BYTES).await;
    let volume = FaultVolume::default();
    let cache = Cache::on(Arc::new(volume.clone()), CacheOptions::default()).unwrap();
    let cached = cache.around(tree("memory", Arc::new(origin))).unwrap();
    let open = async || cached.open(&Caller::local(), &path(0), OpenOptions::default()).await.unwrap();
    let check = async |offset: u64| {
        Pattern::new(0).check(offset, &open().await.read(offset, 50_000).await.unwrap());
    };
    check(0).await;
    volume.set_free_bytes(Some(1000));
    check(100_000).await;
    check(100_000).await;
    check(0).await;
    let (_, statistics) = cached.statistics().remove(0);
    assert_eq!((statistics.bypass_bytes, cache.statistics().disk_failures), (100_000, 1));
    volume.set_free_bytes(None);
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    check(200_000).await;
    check(200_000).await;
    assert_eq!(cached.statistics()[0].1.bypass_bytes, 100_000, "it stores again");
}

/// A cache on a volume that counts calls, around four small files.
struct CountedFiles {
    cache: Cache,
    cached: CacheStore,
    volume: FaultVolume,
}

impl CountedFiles {
    async fn new(options: CacheOptions) -> Self {
        let origin = MemoryStore::new(1 << 20);
        for file in 0..4 {
            put(&origin, file, 1000).await;
        }
        let volume = FaultVolume::default();
        // One thread of the disk: it has written what a read fetched before it runs the next job.
        let cache = Cache::on(Arc::new(volume.clone()), CacheOptions { disk_jobs: 1, ..options }).unwrap();
        let cached = cache.around(tree("memory", Arc::new(origin))).unwrap();
        Self { cache, cached, volume }
    }

    /// Reads a file. Returns the number of calls to the disk.
    async fn read(&self, file: u64) -> u64 {
        let before = self.volume.calls();
        let handle = self.cached.open(&Caller::local(), &path(file), OpenOptions::default()).await.unwrap();
        Pattern::new(file).check(0, &handle.read(0, 1000).await.unwrap());
        self.volume.calls() - before
    }
}

#[tokio::test]
async fn the_files_opened_last_stay_open() {
    let files = CountedFiles::new(CacheOptions { idle_files: 3.try_into().unwrap(), ..CacheOptions::default() }).await;
    for file in [3, 0, 1, 2] {
        files.read(file).await;
    }
    let calls_if_open = files.read(0).await;
    for file in [1, 2, 0, 1, 2] {
        assert_eq!(files.read(file).await, calls_if_open, "{file}");
    }
    assert!(files.read(3).await > calls_if_open);
    assert!(files.read(0).await > calls_if_open, "3 took its place");
    assert_eq!(files.read(2).await, calls_if_open);
}

#[tokio::test]
async fn files_without_a_reader_are_closed_if_their_memory_exceeds_the_limit() {
    let files = CountedFiles::new(CacheOptions { idle_memory_bytes: 500, ..CacheOptions::default() }).await;
    for file in 0..4 {
        files.read(file).await;
    }
    let reader = files.cached.open(&Caller::local(), &path(3), OpenOptions::default()).await.unwrap();
    let calls_if_open = files.read(3).await;
    files.cache.close_excess().await;
    for file in [3, 2, 1] {
        assert_eq!(files.read(file).await, calls_if_open, "{file}");
    }
    assert!(files.read(0).await > calls_if_open, "it was opened before the others");
    drop(reader);
}
