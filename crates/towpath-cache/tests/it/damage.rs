//! Damaged, truncated and foreign files in the directory of the cache.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::StreamExt as _;
use towpath_cache::{Cache, CacheOptions, CacheStore, entry_files};
use towpath_store::{ByteRange, Caller, ReadBuffer, ReadHandle, Store, sys::disk};
use towpath_testkit::volume::FaultVolume;

use crate::origin::{Origin, path, tree};

const SIZE: usize = 1_000_000;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Reads the whole file through the cache, spoils its files, opens the cache again, and reads it again. Returns how
/// many bytes were fetched and found damaged.
async fn read_after(spoil: impl FnOnce(&File, &File)) -> (u64, u64) {
    let mut origin = Origin::with_file(SIZE).await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    let [data, index] = origin.files().await;
    spoil(&open(&data), &open(&index));
    origin.reopen().await;
    let file = origin.open().await;
    origin.check(&*file, 0, SIZE).await;
    origin.check(&*file, 0, SIZE).await;
    drop(file);
    let statistics = origin.statistics();
    origin.reopen().await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    assert_eq!(origin.statistics().fetched_bytes, 0, "the repair was stored");
    (statistics.fetched_bytes, statistics.damaged_bytes)
}

#[tokio::test]
async fn without_damage_nothing_is_fetched() {
    assert_eq!(read_after(|_, _| {}).await, (0, 0));
}

#[tokio::test]
async fn a_flipped_bit_is_found_and_only_its_unit_is_fetched_again() {
    let flip = |data: &File, _: &File| {
        let mut byte = [0];
        data.read_exact_at(&mut byte, 500_000).unwrap();
        data.write_all_at(&[byte[0] ^ 1], 500_000).unwrap();
    };
    assert_eq!(read_after(flip).await, (16 << 10, 16 << 10));
}

#[tokio::test]
async fn a_truncated_data_file_is_fetched_again_from_there() {
    let (fetched, damaged) = read_after(|data, _| data.set_len(700_000).unwrap()).await;
    assert_eq!(fetched, damaged);
    assert!((300_000..300_000 + (16 << 10)).contains(&fetched), "{fetched}");
}

#[tokio::test]
async fn zeros_in_place_of_data_are_never_served() {
    let lose = |data: &File, _: &File| {
        data.set_len(0).unwrap();
        data.set_len(SIZE as u64).unwrap();
    };
    assert_eq!(read_after(lose).await, (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn an_index_that_is_empty_or_garbage_counts_as_none() {
    for garbage in [b"".as_slice(), b"tpcache\n", &[0xff; 5000]] {
        let spoil = |_: &File, index: &File| {
            index.set_len(0).unwrap();
            index.write_all_at(garbage, 0).unwrap();
        };
        assert_eq!(read_after(spoil).await, (SIZE as u64, 0));
    }
}

#[tokio::test]
async fn torn_and_damaged_records_cost_only_their_bytes() {
    let length = |index: &File| index.metadata().unwrap().len();
    let torn = read_after(|_, index| index.set_len(length(index) - 10).unwrap()).await;
    assert_eq!(torn, ((SIZE % (16 << 10)) as u64, 0));
    let damaged = read_after(|_, index| index.write_all_at(&[0xff; 24], length(index) - 48).unwrap()).await;
    assert_eq!(damaged, (16 << 10, 0));
}

#[tokio::test]
async fn files_of_another_cache_or_entry_are_not_believed() {
    let mut origin = Origin::with_file(SIZE).await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    disk::remove(&origin.directory.path().join("towpath-cache")).unwrap();
    origin.reopen().await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    assert_eq!(origin.statistics().fetched_bytes, SIZE as u64);
}

/// Reads a damaged file in small pieces, which the network thread verifies if they are in the page cache. Returns the
/// number of bytes that were found damaged.
async fn read_pieces_after_a_flipped_bit(read: impl AsyncFn(&Origin, &dyn ReadHandle)) -> u64 {
    let mut origin = Origin::with_file(SIZE).await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    let [data, _] = origin.files().await;
    open(&data).write_all_at(&[origin.pattern().bytes(500_000, 1)[0] ^ 1], 500_000).unwrap();
    origin.reopen().await;
    let file = origin.open().await;
    read(&origin, &*file).await;
    let damaged = origin.statistics().damaged_bytes;
    read(&origin, &*file).await;
    assert_eq!(origin.statistics().damaged_bytes, damaged, "it was repaired");
    damaged
}

#[tokio::test]
async fn small_reads_of_damaged_data_are_repaired() {
    let damaged = read_pieces_after_a_flipped_bit(async |origin, file| {
        for offset in (0..SIZE).step_by(4000) {
            origin.check(file, offset as u64, 4000).await;
        }
    });
    assert_eq!(damaged.await, 16 << 10);
}

#[tokio::test]
async fn vectors_of_damaged_data_are_repaired() {
    let damaged = read_pieces_after_a_flipped_bit(async |origin, file| {
        let ranges = (0..SIZE as u64 - 100).step_by(1500).map(|offset| ByteRange { offset, length: 100 });
        let ranges: Vec<_> = ranges.collect();
        let mut buffers = vec![[0; 100]; ranges.len()];
        let targets = ranges.iter().zip(&mut buffers);
        let mut targets: Vec<_> =
            targets.map(|(range, buffer)| ReadBuffer { offset: range.offset, buffer: &mut buffer[..] }).collect();
        let Some(outcome) = file.read_vector_now(&mut targets) else {
            let mut reads = file.read_vector(ranges.clone());
            while let Some((index, data)) = reads.next().await {
                origin.pattern().check(ranges[index].offset, &data.unwrap());
            }
            return;
        };
        outcome.unwrap();
        ranges.iter().zip(&buffers).for_each(|(range, data)| origin.pattern().check(range.offset, data));
    });
    assert_eq!(damaged.await, 16 << 10);
}

#[tokio::test]
async fn cached_data_are_verified_without_another_thread() {
    let mut origin = Origin::with_file(SIZE).await;
    origin.check(&*origin.open().await, 0, SIZE).await;
    origin.reopen().await;
    let file = origin.open().await;
    let mut data = Vec::new();
    assert_eq!(file.read_now(100_000, 50_000, &mut data).unwrap().unwrap(), 50_000);
    origin.pattern().check(100_000, &data);
    let has_to_wait = |offset| file.prepare(&[ByteRange { offset, length: 50_000 }]).is_some();
    assert!(!has_to_wait(200_000));
    let [data, _] = origin.files().await;
    open(&data).write_all_at(&[origin.pattern().bytes(500_000, 1)[0] ^ 1], 500_000).unwrap();
    assert!(file.read_now(500_000, 1, &mut Vec::new()).is_none(), "damage is left to a read that may wait");
    assert!(has_to_wait(480_000));
    assert!(file.read_now(400_000, 1, &mut Vec::new()).is_some());
}

/// A cache on a disk with bad sectors.
struct BadDisk {
    origin: Origin,
    volume: FaultVolume,
    cache: Cache,
    cached: CacheStore,
}

impl BadDisk {
    async fn new() -> Self {
        let (origin, volume) = (Origin::with_file(SIZE).await, FaultVolume::default());
        let (cache, cached) = Self::cache(&origin, &volume);
        Self { origin, volume, cache, cached }
    }

    fn cache(origin: &Origin, volume: &FaultVolume) -> (Cache, CacheStore) {
        let cache = Cache::on(Arc::new(volume.clone()), CacheOptions::default()).unwrap();
        let cached = cache.around(tree("memory", Arc::new(origin.store.clone()))).unwrap();
        (cache, cached)
    }

    /// Opens the cache again: nothing is verified.
    fn reopen(&mut self) {
        (self.cache, self.cached) = Self::cache(&self.origin, &self.volume);
    }

    async fn open(&self) -> Arc<dyn ReadHandle> {
        self.cached.open(&Caller::local(), &path(), towpath_store::OpenOptions::default()).await.unwrap()
    }

    async fn check(&self, offset: u64, length: usize) {
        self.origin.check(&*self.open().await, offset, length).await;
    }

    /// The data file and the index file.
    async fn files(&self) -> [PathBuf; 2] {
        entry_files("memory", &path(), &self.origin.store.stat(&Caller::local(), &path()).await.unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_sector_that_cannot_be_read_is_damage_and_storing_goes_on() {
    let mut disk = BadDisk::new().await;
    disk.check(0, 600_000).await;
    let [data, _] = disk.files().await;
    disk.reopen();
    assert!(disk.volume.lose_sector(&data, 500_000));
    disk.check(400_000, 200_000).await;
    let statistics = disk.cached.statistics()[0].1;
    assert_eq!((statistics.damaged_bytes, statistics.fetched_bytes), (16 << 10, 16 << 10), "its unit");
    assert_eq!((statistics.bypass_bytes, disk.cache.statistics().disk_failures), (0, 1));
    // Other bytes are stored at once.
    disk.check(700_000, 100_000).await;
    assert_eq!(disk.cached.statistics()[0].1.bypass_bytes, 0);
    disk.reopen();
    disk.check(0, 600_000).await;
    assert_eq!(disk.cached.statistics()[0].1.fetched_bytes, 0, "the repair was stored");
}

#[tokio::test]
async fn a_sector_that_fails_after_its_comparison_is_fetched_again() {
    let disk = BadDisk::new().await;
    let file = disk.open().await;
    disk.check(0, SIZE).await;
    let [data, _] = disk.files().await;
    assert!(disk.volume.lose_sector(&data, 300_000));
    let ranges = vec![ByteRange { offset: 0, length: 1000 }, ByteRange { offset: 299_000, length: 2000 }];
    for (index, result) in file.read_vector(ranges.clone()).collect::<Vec<_>>().await {
        disk.origin.pattern().check(ranges[index].offset, &result.unwrap());
    }
    assert_eq!(disk.cached.statistics()[0].1.damaged_bytes, 16 << 10);
    assert!(disk.volume.lose_sector(&data, 900_000));
    disk.check(0, SIZE).await;
    let statistics = disk.cached.statistics()[0].1;
    assert_eq!((statistics.damaged_bytes, statistics.bypass_bytes), (32 << 10, 0));
}

#[tokio::test]
async fn an_index_that_cannot_be_read_counts_as_none() {
    let mut disk = BadDisk::new().await;
    disk.check(0, SIZE).await;
    let [_, index] = disk.files().await;
    disk.reopen();
    assert!(disk.volume.lose_sector(&index, 0));
    disk.check(0, SIZE).await;
    let statistics = disk.cached.statistics()[0].1;
    assert_eq!((statistics.fetched_bytes, statistics.bypass_bytes), (SIZE as u64, 0));
    disk.reopen();
    disk.check(0, SIZE).await;
    assert_eq!(disk.cached.statistics()[0].1.fetched_bytes, 0);
}
