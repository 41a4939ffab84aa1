//! Space in blocks, quotas, access records, and their simulation.

use std::{
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use towpath_cache::{
    AccessLine, Cache, CacheOptions, CacheStore, OriginStatistics, Quota, Selection, Spoiling,
    simulation::{SimulationOptions, Simulator},
};
use towpath_store::{
    ByteRange, Caller, CreateOptions, Expectation, OpenOptions, ReadHandle, Store, StorePath, memory::MemoryStore,
    sys::disk,
};
use towpath_testkit::pattern::Pattern;

use crate::origin::{open_cache, tree};

const NAME: &str = "memory";

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// A cache around an origin with files, and the lines of its accesses.
struct Site {
    cache: Cache,
    cached: CacheStore,
    origin: Arc<MemoryStore>,
    directory: tempfile::TempDir,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn new(files: &[(&str, usize)], options: CacheOptions) -> Self {
        let origin = Arc::new(MemoryStore::new(1 << 30));
        for (name, length) in files {
            let parents = CreateOptions { parents: true, ..CreateOptions::default() };
            let writer = origin.create(&Caller::local(), &path(name), parents).await.unwrap();
            writer.write(0, Pattern::new(*length as u64).bytes(0, *length)).await.unwrap();
            writer.commit(Expectation::default()).await.unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), options).unwrap();
        let cached = cache.around(tree(NAME, Arc::clone(&origin) as _)).unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let sink = Arc::clone(&lines);
        cache.observe_accesses(Box::new(move |record| sink.lock().unwrap().push(AccessLine::from(record).to_json())));
        Self { cache, cached, origin, directory, lines }
    }

    async fn open(&self, name: &str) -> Arc<dyn ReadHandle> {
        self.cached.open(&Caller::local(), &path(name), OpenOptions::default()).await.unwrap()
    }

    /// Reads a file in pieces of 1 MiB.
    async fn read(&self, name: &str, end: u64) {
        let file = self.open(name).await;
        for offset in (0..end).step_by(1 << 20) {
            file.read(offset, (end - offset).min(1 << 20) as usize).await.unwrap();
        }
    }

    fn statistics(&self) -> OriginStatistics {
        self.cached.statistics()[0].1
    }

    /// The space that the files of the cache take on the disk.
    fn disk_bytes(&self) -> u64 {
        fn below(directory: &Path) -> u64 {
            let entries = disk::entries(directory, 100_000).unwrap();
            let sizes = entries.iter().map(|entry| match entry.is_dir() {
                true => below(entry),
                false => disk::open(entry).unwrap().metadata().unwrap().blocks() * 512,
            });
            sizes.sum()
        }
        below(&self.directory.path().join("entries"))
    }
}

fn limited(max_bytes: u64) -> CacheOptions {
    CacheOptions { max_bytes: Some(max_bytes), high_watermark: 1.0, low_watermark: 0.9, ..CacheOptions::default() }
}

/// Reads 100 bytes of each 64 KiB, one vector for each MiB.
async fn read_sparsely(file: &dyn ReadHandle, size: u64) {
    for start in (0..size).step_by(1 << 20) {
        let ranges = (0..16).map(|number| ByteRange { offset: start + number * (64 << 10) + 4000, length: 100 });
        let results: Vec<_> = futures::StreamExt::collect(file.read_vector(ranges.collect())).await;
        assert!(results.iter().all(|(_, result)| result.is_ok()));
    }
}

#[tokio::test]
async fn sparse_reads_take_the_blocks_that_they_touch_and_stay_within_the_limit() {
    let (size, limit) = (64 << 20, 4_000_000);
    let site = Site::new(&[("/a", size), ("/b", size)], limited(limit)).await;
    read_sparsely(&*site.open("/a").await, size as u64).await;
    let (counted, taken) = (site.cache.statistics().bytes, site.disk_bytes());
    // 100 bytes at 4,000 touch two blocks; the content is 102,400 bytes.
    assert!(counted >= 1024 * 8192 && taken >= 1024 * 8192, "{counted} {taken}");
    assert!(counted.abs_diff(taken) <= taken / 20, "counted {counted}, taken {taken}");
    site.cache.evict_excess().await.unwrap();
    read_sparsely(&*site.open("/b").await, size as u64).await;
    site.cache.evict_excess().await.unwrap();
    let (counted, taken) = (site.cache.statistics().bytes, site.disk_bytes());
    assert!(counted <= limit && taken <= limit + limit / 20, "counted {counted}, taken {taken}");
}

#[tokio::test]
async fn damaged_bytes_are_counted_once() {
    let size = 1_000_000;
    let site = Site::new(&[("/a", size)], CacheOptions::default()).await;
    site.read("/a", size as u64).await;
    let before = site.cache.statistics().bytes;
    let a = Selection::Below(vec![(NAME.into(), path("/a"))]);
    site.cache.spoil(&a, Spoiling::Truncate).await.unwrap();
    site.read("/a", size as u64).await;
    assert!(site.statistics().damaged_bytes > 500_000);
    // New records may take another block.
    let after = site.cache.statistics().bytes;
    assert!((before..=before + 8192).contains(&after), "{before} {after}");
}

#[tokio::test]
async fn a_quota_limits_what_is_below_its_path_also_after_a_restart() {
    let names: Vec<String> = (0..10).flat_map(|file| [format!("/a/{file}"), format!("/b/{file}")]).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), 1_000_000)).collect();
    let quota = Quota { path: path("/a"), places: vec![(NAME.into(), path("/a"))], max_bytes: 4_000_000 };
    let options = CacheOptions { quotas: vec![quota], high_watermark: 1.0, low_watermark: 0.8, ..Default::default() };
    let site = Site::new(&files, options.clone()).await;
    for name in &names {
        site.read(name, 1_000_000).await;
    }
    let used = |cache: &Cache| (cache.quotas()[0].bytes, cache.quotas()[0].entries);
    assert!(used(&site.cache).0 >= 10_000_000 && used(&site.cache).1 == 10);
    site.cache.evict_excess().await.unwrap();
    let (bytes, entries) = used(&site.cache);
    assert!((2_000_000..=3_200_000).contains(&bytes) && (2..=3).contains(&entries), "{bytes} {entries}");
    assert_eq!(site.cache.statistics().entries, 10 + entries, "nothing outside of the quota was evicted");
    let Site { cache, cached, origin, directory, .. } = site;
    drop((cache, cached));
    let cache = open_cache(directory.path(), &options).await;
    let _cached = cache.around(tree(NAME, origin)).unwrap();
    assert_eq!(used(&cache), (0, 0), "a start reads no entry");
    cache.walk().await.unwrap();
    assert_eq!(used(&cache).1, entries);
    assert!(used(&cache).0.abs_diff(bytes) < 100_000);
}

#[tokio::test]
async fn a_record_has_what_was_read_and_where_it_came_from() {
    let size = 40 << 20;
    let site = Site::new(&[("/a", size)], CacheOptions::default()).await;
    // In sequence, so that most of it is fetched by read-ahead.
    site.read("/a", size as u64).await;
    site.read("/a", size as u64).await;
    let file = site.open("/a").await;
    let part = file.local_part(5, 100).unwrap();
    part.record_sent(5, 60);
    drop((part, file));
    let lines = site.lines.lock().unwrap();
    let lines: Vec<AccessLine> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bytes: Vec<_> = lines.iter().map(|line| (line.hit_bytes, line.miss_bytes, line.bypass_bytes)).collect();
    assert_eq!(bytes, [(0, size as u64, 0), (size as u64, 0, 0), (60, 0, 0)]);
    assert!(lines.iter().all(|line| (&*line.origin, &*line.path, line.size) == (NAME, "/a", size as u64)));
    assert!(lines[0].entry == lines[2].entry && lines[0].origin_us > 0 && lines[1].origin_us == 0);
    assert_eq!(lines[0].segments.len(), 2, "two whole segments, and the rest");
}

/// The numbers of a fixed sequence below `limit`, small ones more often.
fn skewed(state: &mut u64, limit: u64) -> u64 {
    let mut next = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    };
    next().min(next()).min(next())
}

/// The hit rate by bytes may differ by 5 points: victims are random, and all accesses fall into a few seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_simulation_has_the_hit_rate_of_the_cache_that_wrote_the_log() {
    let names: Vec<String> = (0..80).map(|file| format!("/{file}")).collect();
    let length = |number: usize| 200_000 + number * 7919 % 40 * 50_000;
    let files: Vec<(&str, usize)> = names.iter().enumerate().map(|(number, name)| (&**name, length(number))).collect();
    let limit = 30_000_000;
    let site = Site::new(&files, limited(limit)).await;
    let (mut state, mut requested) = (1, 0);
    for _ in 0..600 {
        let (name, length) = files[skewed(&mut state, files.len() as u64) as usize];
        // Some readers read only the first half.
        let length = if skewed(&mut state, 3) == 0 { length as u64 / 2 } else { length as u64 };
        site.cache.evict_excess().await.unwrap();
        site.read(name, length).await;
        requested += length;
    }
    let statistics = site.statistics();
    assert_eq!(statistics.served_bytes, requested);
    let real = 1.0 - statistics.missed_bytes as f64 / requested as f64;
    let options = SimulationOptions { high_watermark: 1.0, low_watermark: 0.9, check_interval: Duration::ZERO };
    let mut simulator = Simulator::new(&[limit], &options);
    for line in site.lines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        simulator.read_line(line.as_bytes());
    }
    let (sizes, unlimited, content) = simulator.finish();
    assert_eq!((content.accesses, content.requested_bytes, content.invalid_lines), (600, requested, 0));
    assert_eq!(content.recorded_hit_bytes, requested - statistics.missed_bytes);
    let simulated = sizes[0].hit_bytes as f64 / requested as f64;
    let everything = unlimited.hit_bytes as f64 / requested as f64;
    println!("real {real:.3}, simulated {simulated:.3}, everything {everything:.3}");
    assert!((real - simulated).abs() < 0.05, "real {real:.3}, simulated {simulated:.3}");
    assert!((0.2..everything - 0.1).contains(&real), "the size must matter: {real:.3} of {everything:.3}");
}
