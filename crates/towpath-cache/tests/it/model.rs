//! Random operations on a cache, compared with a model: which version each file has. The disk of the cache fails, fills
//! up, and loses power; the origin changes. A read returns the bytes of its version, or `Changed` if that is gone.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures::StreamExt as _;
use proptest::prelude::*;
use towpath_cache::{Cache, CacheOptions, CacheStore};
use towpath_store::{
    ByteRange, Caller, CreateOptions, Error, Expectation, Fault, OpenOptions, Overwrite, ReadHandle, Store, StorePath,
    memory::MemoryStore,
};
use towpath_testkit::{pattern::Pattern, random::Random, volume::FaultVolume};

use crate::origin::tree;

const FILES: usize = 3;
/// Sizes that are no multiples of anything; the largest has two segments.
const SIZES: [usize; FILES] = [70_001, 1_500_007, 20_000_003];
/// The content of the largest file.
static LARGE: OnceLock<Bytes> = OnceLock::new();
const MAX_CACHED_BYTES: u64 = 1_000_000;

#[derive(Debug, Clone)]
enum Step {
    Read { file: usize, offset: u64, length: usize },
    ReadOld { offset: u64, length: usize },
    Vector { file: usize, starts: Vec<u64>, length: usize, announced: bool },
    Keep { file: usize },
    Change { file: usize },
    Evict,
    Walk,
    Restart,
    LosePower { seed: u64 },
    Fill { free_bytes: Option<u64> },
    Fail { call: &'static str, after: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..FILES, 0..20_000_003_u64, 1..200_000_usize);
    let calls = prop_oneof![
        Just("open"),
        Just("open_or_create"),
        Just("write_at"),
        Just("read_at"),
        Just("punch_hole"),
        Just("rename"),
        Just("remove"),
        Just("usage"),
        Just("set_size"),
        Just("touch"),
        Just("size")
    ];
    prop_oneof![
        8 => range().prop_map(|(file, offset, length)| Step::Read { file, offset, length }),
        2 => range().prop_map(|(_, offset, length)| Step::ReadOld { offset, length }),
        4 => (0..FILES, proptest::collection::vec(0..20_000_003_u64, 1..40), 1..3000_usize, any::<bool>())
            .prop_map(|(file, starts, length, announced)| Step::Vector { file, starts, length, announced }),
        1 => (0..FILES).prop_map(|file| Step::Keep { file }),
        // The large one takes too long to write.
        1 => (0..FILES - 1).prop_map(|file| Step::Change { file }),
        3 => Just(Step::Evict),
        1 => Just(Step::Walk),
        1 => Just(Step::Restart),
        2 => any::<u64>().prop_map(|seed| Step::LosePower { seed }),
        1 => proptest::option::of(0..100_000_u64).prop_map(|free_bytes| Step::Fill { free_bytes }),
        2 => (calls, 0..4_u64).prop_map(|(call, after)| Step::Fail { call, after }),
    ]
}

struct Model {
    origin: Arc<MemoryStore>,
    volume: FaultVolume,
    cache: Cache,
    cached: CacheStore,
    versions: [u64; FILES],
    old: Option<(Arc<dyn ReadHandle>, Pattern, usize)>,
}

fn path(file: usize) -> StorePath {
    StorePath::parse(format!("/file{file}").as_bytes()).unwrap()
}

fn open_cache(volume: &FaultVolume, origin: &Arc<MemoryStore>) -> (Cache, CacheStore) {
    let options = CacheOptions { max_bytes: Some(MAX_CACHED_BYTES), ..CacheOptions::default() };
    // A planned fault of an earlier step may hit the start.
    let cache = (0..50).find_map(|_| Cache::on(Arc::new(volume.clone()), options.clone()).ok()).unwrap();
    let cached = cache.around(tree("memory", Arc::clone(origin) as _)).unwrap();
    (cache, cached)
}

impl Model {
    async fn new() -> Self {
        let (origin, volume) = (Arc::new(MemoryStore::new(1 << 30)), FaultVolume::default());
        let (cache, cached) = open_cache(&volume, &origin);
        let mut model = Self { origin, volume, cache, cached, versions: [0; FILES], old: None };
        for file in 0..FILES {
            model.change(file).await;
        }
        model
    }

    fn pattern(&self, file: usize) -> Pattern {
        Pattern::new(self.versions[file] * FILES as u64 + file as u64)
    }

    async fn change(&mut self, file: usize) {
        self.versions[file] += 1;
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        let writer = self.origin.create(&Caller::local(), &path(file), options).await.unwrap();
        let content = match file {
            2 => LARGE.get_or_init(|| self.pattern(2).bytes(0, SIZES[2])).clone(),
            _ => self.pattern(file).bytes(0, SIZES[file]),
        };
        writer.write(0, content).await.unwrap();
        writer.commit(Expectation::default()).await.unwrap();
    }

    async fn open(&self, file: usize) -> Arc<dyn ReadHandle> {
        self.cached.open(&Caller::local(), &path(file), OpenOptions::default()).await.unwrap()
    }

    fn reopen(&mut self) {
        self.old = None;
        (self.cache, self.cached) = open_cache(&self.volume, &self.origin);
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Read { file, offset, length } => {
                let offset = offset % SIZES[file] as u64;
                let data = self.open(file).await.read(offset, length).await.unwrap();
                assert_eq!(data.len(), length.min(SIZES[file] - offset as usize));
                self.pattern(file).check(offset, &data);
            }
            Step::ReadOld { offset, length } => {
                let Some((handle, pattern, size)) = &self.old else { return };
                let offset = offset % *size as u64;
                match handle.read(offset, length).await {
                    Ok(data) => pattern.check(offset, &data),
                    Err(error) => assert_eq!(error.fault(), Fault::Changed),
                }
            }
            Step::Vector { file, starts, length, announced } => self.vector(file, &starts, length, announced).await,
            Step::Keep { file } => self.old = Some((self.open(file).await, self.pattern(file), SIZES[file])),
            Step::Change { file } => self.change(file).await,
            Step::Evict => drop(self.cache.evict_excess().await),
            Step::Walk => drop(self.cache.walk().await),
            Step::Restart => self.reopen(),
            Step::LosePower { seed } => {
                self.volume = self.volume.crash(&mut Random::new(seed));
                self.reopen();
            }
            Step::Fill { free_bytes } => self.volume.set_free_bytes(free_bytes),
            Step::Fail { call, after } => self.volume.fail(call, after, io::ErrorKind::Other),
        }
    }

    async fn vector(&self, file: usize, starts: &[u64], length: usize, announced: bool) {
        let handle = self.open(file).await;
        let offsets = starts.iter().map(|start| start % (SIZES[file] - length) as u64);
        let ranges: Vec<_> = offsets.map(|offset| ByteRange { offset, length }).collect();
        if let Some(preparation) = announced.then(|| handle.prepare(&ranges)).flatten() {
            for range in &ranges {
                preparation.ready(*range).await.unwrap();
            }
        }
        let results: Vec<_> = handle.read_vector(ranges.clone()).collect().await;
        assert_eq!(results.len(), ranges.len());
        for (index, result) in results {
            let data = result.unwrap_or_else(|error: Error| panic!("{error:?}"));
            assert_eq!(data.len(), length);
            self.pattern(file).check(ranges[index].offset, &data);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_read_ever_returns_other_bytes(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut model = Model::new().await;
            for step in steps {
                model.step(step).await;
            }
        });
    }
}
