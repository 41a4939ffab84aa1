use futures::FutureExt as _;
use proptest::prelude::*;
use towpath_proto::checksum::Hasher;
use towpath_store::{CreateOptions, memory::MemoryStore};
use towpath_testkit::{
    fault::{DigestAvailability, FaultStore, Faults, ReadFaults},
    pattern::Pattern,
};

use super::*;
use crate::{
    Job, Mover, NoopObserver, Options,
    mover::tests::{Counted, get, location, memory, options, put},
};

mod lying;

const SIZE: usize = 20_000_003;

/// Creates a store with `data` as `/file`, behind `faults`.
async fn source(data: &Bytes, faults: Faults) -> FaultStore {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 30));
    put(&store, "/file", data.clone()).await;
    FaultStore::new(store, faults)
}

fn dying(after: u64) -> Faults {
    Faults { crash_after: Some(after), ..Faults::default() }
}

fn of(stores: &[FaultStore], known: FileProperties) -> Arc<Replicas> {
    let locations = stores.iter().map(|store| location(&(Arc::new(store.clone()) as Arc<dyn Store>), "/file"));
    Replicas::new(locations.collect(), known)
}

/// Copies the file to a new store and returns the content that arrived.
async fn copied(replicas: &Arc<Replicas>) -> Result<Bytes> {
    let to = memory();
    let job = Job::new(replicas.location().unwrap(), location(&to, "/copy"));
    let done = Mover::new(options(), Arc::new(NoopObserver)).copy(&job).await;
    let there = to.stat(&Caller::local(), &job.to.path).await;
    if done.is_err() {
        assert_eq!(there.unwrap_err().fault(), Fault::NotFound, "nothing is visible");
    }
    done?;
    let file = to.open(&Caller::local(), &job.to.path, OpenOptions::default()).await?;
    file.read(0, usize::MAX >> 1).await
}

fn pattern(length: usize) -> Bytes {
    Pattern::new(3).bytes(0, length)
}

#[tokio::test]
async fn all_sources_give_a_part() {
    let data = pattern(SIZE);
    let stores = [source(&data, Faults::default()).await, source(&data, Faults::default()).await];
    let replicas = of(&stores, FileProperties::default());
    assert!(copied(&replicas).await.unwrap() == data);
    let shares = replicas.shares();
    assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), SIZE as u64, "each byte was counted once");
    assert!(shares.iter().all(|share| share.bytes > 0 && share.error.is_none()));
}

#[tokio::test]
async fn a_source_that_dies_costs_its_pieces_only() {
    let data = pattern(SIZE);
    for after in 0..8 {
        let stores = [source(&data, dying(after)).await, source(&data, Faults::default()).await];
        let replicas = of(&stores, FileProperties::default());
        assert!(copied(&replicas).await.unwrap() == data);
        let shares = replicas.shares();
        assert!(shares[1].error.is_none() && shares[1].bytes > 0, "after {after} calls");
        assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), SIZE as u64);
    }
}

#[tokio::test]
async fn it_fails_when_no_source_is_left() {
    let data = pattern(SIZE);
    let stores = [source(&data, dying(3)).await, source(&data, dying(4)).await];
    let replicas = of(&stores, FileProperties::default());
    let error = copied(&replicas).await.unwrap_err();
    assert!(error.message().contains("all 2 sources failed"), "{error:?}");
    assert!(replicas.shares().iter().all(|share| share.error.is_some()));
}

#[tokio::test]
async fn a_source_with_another_version_is_left_out() {
    let (data, shorter, other) = (pattern(SIZE), pattern(SIZE - 1), Pattern::new(4).bytes(0, SIZE));
    let right = source(&data, Faults::default()).await;
    for wrong in [shorter, other] {
        let wrong = source(&wrong, Faults::default()).await;
        // A memory store knows the digests of its files.
        let replicas = of(&[right.clone(), wrong.clone()], FileProperties::default());
        assert!(copied(&replicas).await.unwrap() == data);
        let shares = replicas.shares();
        assert_eq!((shares[1].bytes, shares[1].error.as_ref().unwrap().fault()), (0, Fault::Changed));
        let size = Some(SIZE as u64);
        let digests = towpath_proto::checksum::Hasher::digest(towpath_proto::checksum::Algorithms::DEFAULT, &data);
        let replicas = of(&[wrong, right.clone()], FileProperties { size, digests });
        assert!(copied(&replicas).await.unwrap() == data, "what is known beforehand counts, whoever stands first");
        assert!(replicas.shares()[0].error.is_some());
    }
}

#[tokio::test]
async fn a_source_with_another_digest_than_the_expected_one_is_left_out_for_good() {
    let (data, other) = (pattern(SIZE), Pattern::new(4).bytes(0, SIZE));
    let (right, wrong) = (source(&data, Faults::default()).await, source(&other, Faults::default()).await);
    let known = || FileProperties { size: None, digests: Hasher::digest_of(Algorithm::Crc32c, &data).into() };
    let expected = Hasher::digest_of(Algorithm::Crc32c, &data);
    let message = format!("its crc32c is {}, expected {expected}", Hasher::digest_of(Algorithm::Crc32c, &other));
    for order in [[wrong.clone(), right.clone()], [right, wrong.clone()]] {
        let replicas = of(&order, known());
        assert!(copied(&replicas).await.unwrap() == data);
        let errors: Vec<_> = replicas.shares().into_iter().filter_map(|share| share.error).collect();
        assert_eq!(errors.iter().map(Error::message).collect::<Vec<_>>(), [&message]);
    }
    for sources in [&[wrong.clone()][..], &[wrong.clone(), wrong.clone()]] {
        let error = copied(&of(sources, known())).await.unwrap_err();
        assert!(error.fault() == Fault::ChecksumMismatch && error.message().contains(&message), "{error:?}");
        assert!(!error.is_retryable());
    }
}

/// A source with correct metadata and wrong content.
#[tokio::test]
async fn a_lie_is_found_at_the_end() {
    let data = pattern(SIZE);
    let short = Faults { short_reads_per_mille: 1000, ..Faults::default() };
    let replicas = of(&[source(&data, short).await, source(&data, Faults::default()).await], FileProperties::default());
    assert!(copied(&replicas).await.unwrap() == data);
    assert_eq!(replicas.shares()[0].error.as_ref().unwrap().fault(), Fault::Truncated);
    let known = FileProperties {
        size: Some(SIZE as u64),
        digests: towpath_proto::checksum::Hasher::digest_of(Algorithm::Sha256, b"another").into(),
    };
    let replicas = of(&[source(&data, Faults::default()).await], known);
    assert_eq!(copied(&replicas).await.unwrap_err().fault(), Fault::ChecksumMismatch);
}

#[tokio::test]
async fn sources_with_different_digests_have_none() {
    let (one, other) = (pattern(1000), Pattern::new(4).bytes(0, 1000));
    for data in [[&one, &other, &other], [&other, &one, &other], [&other, &other, &one]] {
        let mut stores = Vec::new();
        for data in data {
            stores.push(source(data, Faults::default()).await);
        }
        let location = of(&stores, FileProperties::default()).location().unwrap();
        let digest = location.store.digest(&location.caller, &location.path, Algorithm::Sha256, &|_| {}).await;
        assert_eq!(digest.unwrap_err().fault(), Fault::ChecksumMismatch);
    }
}

/// The first source knows no digest, but computes one on request; the second one has another file of the same size,
/// and reports its digests only after those of the first were accepted.
#[tokio::test(start_paused = true)]
async fn digests_that_are_told_late_count_too() {
    let data = pattern(SIZE);
    let longest_delay = std::time::Duration::from_secs(1);
    let slow = Faults { delays_per_mille: 1000, longest_delay, ..Faults::default() };
    let without = source(&data, slow)
        .await
        .with_read_faults(ReadFaults { digests: DigestAvailability::OnRequest, ..ReadFaults::default() });
    let other = source(&Pattern::new(4).bytes(0, SIZE), Faults::default()).await;
    let (computes, words) = (without.hold("digest"), other.hold("metadata"));
    let replicas = of(&[without, other], FileProperties::default());
    let counted = Arc::new(Counted::default());
    let mut transferred = counted.transferred.subscribe();
    let job = Job::new(replicas.location().unwrap(), location(&memory(), "/copy"));
    let mover = Mover::new(Options { window_bytes: 2 << 20, ..options() }, counted);
    let in_turn = async {
        transferred.wait_for(|bytes| *bytes > 0).await.unwrap();
        drop(words);
        drop(computes);
    };
    let (copied, ()) = futures::join!(mover.copy(&job), in_turn);
    let copied = copied.unwrap().unwrap();
    assert!(!copied.verified.is_empty());
    let givers: Vec<_> = replicas.shares().iter().map(|share| share.bytes > 0).collect();
    assert!(givers == [true, false] && get(&job.to.store, "/copy").await.unwrap() == data, "{givers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_stalls_is_overtaken() {
    let data = pattern(SIZE);
    let (slow, good) = (source(&data, Faults::default()).await, source(&data, Faults::default()).await);
    let held = slow.hold("read_into");
    let replicas = of(&[slow.clone(), good.clone()], FileProperties::default());
    assert!(copied(&replicas).await.unwrap() == data);
    assert_eq!(replicas.shares().iter().map(|share| share.bytes).collect::<Vec<_>>(), [0, SIZE as u64]);
    drop(held);
    // Even if it does not respond to the first query.
    let held = slow.hold("metadata");
    let replicas = of(&[slow, good], FileProperties::default());
    assert!(copied(&replicas).await.unwrap() == data);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_slow_source_does_not_hold_a_fast_one_up() {
    let data = pattern(200 << 20);
    let delayed = |millis| Faults {
        delays_per_mille: 1000,
        longest_delay: std::time::Duration::from_millis(millis),
        ..Faults::default()
    };
    let (fast, slow) = (source(&data, delayed(400)).await, source(&data, delayed(20_000)).await);
    let mut times = Vec::new();
    for stores in [vec![fast.clone()], vec![fast.clone(), slow.clone()], vec![slow, fast]] {
        let start = towpath_store::sys::clock::now();
        assert!(copied(&of(&stores, FileProperties::default())).await.unwrap() == data);
        times.push(start.elapsed().as_secs_f64());
    }
    assert!(times[1] < 2.0 * times[0] && times[2] < 2.0 * times[0] + 4.0, "{times:?}");
}

#[tokio::test]
async fn dropping_a_read_gives_its_place_back() {
    let data = pattern(SIZE);
    let store = source(&data, Faults::default()).await;
    let held = store.hold("read_into");
    let replicas = of(&[store], FileProperties::default());
    let file = replicas.open(&Caller::local(), &StorePath::root(), OpenOptions::default()).await.unwrap();
    file.metadata().await.unwrap();
    for _ in 0..20 {
        assert!(file.read(0, 1000).now_or_never().is_none());
    }
    drop(held);
    assert_eq!(file.read(5, 1000).await.unwrap(), data[5..1005]);
}

#[tokio::test]
async fn nothing_is_written_to_several_sources() {
    let replicas = of(&[source(&pattern(10), Faults::default()).await], FileProperties::default());
    let path = StorePath::root();
    let created = replicas.create(&Caller::local(), &path, CreateOptions::default()).await;
    assert_eq!(created.err().unwrap().fault(), Fault::Unsupported);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Under any sequence of failures a copy either arrives intact, or fails because no source is left and leaves
    /// nothing.
    #[test]
    fn each_byte_arrives_right_or_nothing_does(
        size in 0..12_000_000_usize,
        seeds in prop::collection::vec((any::<u64>(), 0..400_u32, 0..200_u32, prop::option::of(0..30_u64)), 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let data = pattern(size);
            let mut stores = Vec::new();
            for (seed, errors_per_mille, short_reads_per_mille, crash_after) in seeds {
                let delays = (500, std::time::Duration::from_millis(seed % 3000));
                let faults = Faults { seed, errors_per_mille, short_reads_per_mille, crash_after, delays_per_mille: delays.0, longest_delay: delays.1, ..Faults::default() };
                stores.push(source(&data, faults).await);
            }
            let replicas = of(&stores, FileProperties::default());
            match copied(&replicas).await {
                Ok(arrived) => {
                    assert!(arrived == data);
                    assert_eq!(replicas.shares().iter().map(|share| share.bytes).sum::<u64>(), size as u64);
                }
                Err(_) => assert!(replicas.shares().iter().all(|share| share.error.is_some())),
            }
        });
    }
}
