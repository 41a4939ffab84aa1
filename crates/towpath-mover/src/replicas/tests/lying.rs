//! Sources that report or deliver wrong data: the destination gets the file of one source, the promised file, or
//! nothing, and only compared data are reported as verified.

use towpath_proto::checksum::{Algorithms, Hasher};
use towpath_store::local::{LocalOptions, LocalStore};

use super::*;
use crate::{CopiedFile, DigestOrigin};

/// Ranges of wrong bytes in a file of [`SIZE`] bytes: in its first piece, in the middle, and in its last byte.
const PLACES: [std::ops::Range<u64>; 3] = [0..1, 9_000_000..9_000_100, SIZE as u64 - 1..SIZE as u64];

fn silent() -> ReadFaults {
    ReadFaults { digests: DigestAvailability::Nothing, ..ReadFaults::default() }
}

/// Creates a store with `data` as `/file`.
async fn store(data: &Bytes) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 30));
    put(&store, "/file", data.clone()).await;
    store
}

/// Returns the same store with `lies`.
fn lying(store: &Arc<dyn Store>, lies: ReadFaults) -> FaultStore {
    FaultStore::new(Arc::clone(store), Faults::default()).with_read_faults(lies)
}

/// Returns the same store with `lies` and delays, so that pieces are left when the other sources are admitted.
fn lying_slowly(store: &Arc<dyn Store>, lies: ReadFaults) -> FaultStore {
    let longest_delay = std::time::Duration::from_millis(100);
    let faults = Faults { delays_per_mille: 1000, longest_delay, ..Faults::default() };
    FaultStore::new(Arc::clone(store), faults).with_read_faults(lies)
}

/// Returns the properties that a Metalink would contain for `data`.
fn named(data: &Bytes) -> FileProperties {
    FileProperties { size: Some(data.len() as u64), digests: Hasher::digest_of(Algorithm::Adler32, data).into() }
}

/// Copies it to a new store; returns the content that arrived, with the result.
async fn arrived(replicas: &Arc<Replicas>) -> Result<(Bytes, CopiedFile)> {
    let to = memory();
    let job = Job::new(replicas.location().unwrap(), location(&to, "/copy"));
    // A small window, so that pieces are left when the other sources are admitted.
    let options = Options { window_bytes: 6 << 20, ..options() };
    let done = Mover::new(options, Arc::new(NoopObserver)).copy(&job).await;
    let there = get(&to, "/copy").await;
    match done {
        Ok(copied) => Ok((there?, copied.unwrap())),
        Err(error) => {
            assert_eq!(there.unwrap_err().fault(), Fault::NotFound, "nothing is visible");
            Err(error)
        }
    }
}

/// Returns the faults for which sources were excluded; `None` for the other sources.
fn left_out(replicas: &Replicas) -> Vec<Option<Fault>> {
    replicas.shares().iter().map(|share| share.error.as_ref().map(Error::fault)).collect()
}

/// Returns the number of bytes that each source delivered.
fn given(replicas: &Replicas) -> Vec<u64> {
    replicas.shares().iter().map(|share| share.bytes).collect()
}

#[tokio::test]
async fn files_that_no_digest_tells_apart_are_not_mixed() {
    let data = [pattern(SIZE), Pattern::new(4).bytes(0, SIZE)];
    let stores = [lying(&store(&data[0]).await, silent()), lying(&store(&data[1]).await, silent())];
    let replicas = of(&stores, FileProperties::default());
    let (arrived, copied) = arrived(&replicas).await.unwrap();
    assert!(arrived == data[0], "the first one named counts");
    assert!(copied.verified.is_empty(), "{copied:?}");
    assert_eq!(given(&replicas), [SIZE as u64, 0]);
    assert_eq!(replicas.shares().iter().map(|share| share.is_spare).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_digest_that_a_source_computes_lets_the_others_give_parts() {
    let data = pattern(3 * SIZE);
    let store = store(&data).await;
    let on_request = ReadFaults { digests: DigestAvailability::OnRequest, ..ReadFaults::default() };
    for (first, second) in [(on_request.clone(), silent()), (silent(), on_request)] {
        let replicas = of(&[lying_slowly(&store, first), lying_slowly(&store, second)], FileProperties::default());
        let (arrived, copied) = arrived(&replicas).await.unwrap();
        assert!(arrived == data);
        let origins: Vec<_> = copied.verified.iter().map(|by| (by.source, by.destination)).collect();
        assert_eq!(origins, [(DigestOrigin::Computed, DigestOrigin::Written)]);
        assert!(given(&replicas).iter().all(|bytes| *bytes > 0), "{:?}", given(&replicas));
    }
}

#[tokio::test(start_paused = true)]
async fn another_file_is_found_out_before_it_is_read() {
    let (one, other) = (pattern(SIZE), Pattern::new(4).bytes(0, SIZE));
    let on_request = ReadFaults { digests: DigestAvailability::OnRequest, ..ReadFaults::default() };
    let stores = [lying_slowly(&store(&one).await, on_request), lying_slowly(&store(&other).await, silent())];
    let replicas = of(&stores, FileProperties::default());
    let (data, copied) = arrived(&replicas).await.unwrap();
    assert!(data == one && !copied.verified.is_empty());
    assert_eq!(given(&replicas), [SIZE as u64, 0]);
    assert_eq!(left_out(&replicas), [None, Some(Fault::Changed)]);
}

#[tokio::test]
async fn one_liar_among_five_is_left_out_and_named() {
    let data = pattern(SIZE);
    let store = store(&data).await;
    for (liar, wrong) in [(0, PLACES[0].clone()), (2, PLACES[1].clone()), (4, PLACES[2].clone()), (1, 0..SIZE as u64)] {
        let lies = |index| ReadFaults { wrong: if index == liar { wrong.clone() } else { 0..0 }, ..silent() };
        let stores: Vec<_> = (0..5).map(|index| lying(&store, lies(index))).collect();
        let replicas = of(&stores, named(&data));
        let (arrived, copied) = arrived(&replicas).await.unwrap();
        assert!(arrived == data, "source {liar} lies at {wrong:?}");
        assert_eq!(copied.verified[0].source, DigestOrigin::Named);
        let out = left_out(&replicas);
        let others = out.iter().enumerate().filter(|(index, _)| *index != liar);
        assert!(others.into_iter().all(|(_, fault)| fault.is_none()), "source {liar} lies at {wrong:?}: {out:?}");
        // The wrong bytes' range may come from another source, but the first piece and the whole file cannot.
        if liar < 2 {
            assert_eq!(out[liar], Some(Fault::ChecksumMismatch), "at {wrong:?}");
        }
    }
}

/// The lead reports the right digest of its file, but delivers other bytes.
#[tokio::test]
async fn a_lead_that_lies_is_left_out() {
    let data = pattern(SIZE);
    let store = store(&data).await;
    for (digests, wrong) in
        [(DigestAvailability::Known, PLACES[0].clone()), (DigestAvailability::OnRequest, PLACES[2].clone())]
    {
        let liar = lying(&store, ReadFaults { wrong: wrong.clone(), digests, ..ReadFaults::default() });
        let replicas = of(&[liar, lying(&store, silent())], FileProperties::default());
        let (arrived, copied) = arrived(&replicas).await.unwrap();
        assert!(arrived == data && !copied.verified.is_empty(), "{wrong:?}");
        assert!(left_out(&replicas)[1].is_none());
    }
}

#[tokio::test]
async fn if_all_sources_lie_nothing_arrives() {
    let data = pattern(SIZE);
    let store = store(&data).await;
    let stores = PLACES.map(|wrong| lying(&store, ReadFaults { wrong, ..silent() }));
    let replicas = of(&stores, named(&data));
    let error = arrived(&replicas).await.unwrap_err();
    assert_eq!(error.fault(), Fault::ChecksumMismatch);
    assert!(error.message().contains("all 3 sources failed"), "{error}");
    let alone = of(&stores[..1], named(&data));
    assert_eq!(arrived(&alone).await.unwrap_err().fault(), Fault::ChecksumMismatch);
}

/// The data of the first source cannot be continued from the second.
#[tokio::test]
async fn a_file_without_digest_starts_again_when_its_source_is_lost() {
    let (one, other) = (pattern(SIZE), Pattern::new(4).bytes(0, SIZE));
    let stores = [store(&one).await, store(&other).await];
    for after in [3, 5, 9] {
        let dying = FaultStore::new(Arc::clone(&stores[0]), dying(after)).with_read_faults(silent());
        let replicas = of(&[dying, lying(&stores[1], silent())], FileProperties::default());
        let (data, copied) = arrived(&replicas).await.unwrap();
        assert!(data == other && copied.verified.is_empty(), "after {after} calls");
        assert_eq!(given(&replicas), [0, SIZE as u64]);
        assert_eq!(left_out(&replicas), [Some(Fault::Unavailable), None]);
    }
}

#[tokio::test]
async fn a_source_that_calls_the_file_empty_does_not_decide() {
    let data = pattern(SIZE);
    let store = store(&data).await;
    for empty in [0, 1] {
        let lies = |index| ReadFaults { size: (index == empty).then_some(0), ..silent() };
        let replicas = of(&[lying(&store, lies(0)), lying(&store, lies(1))], FileProperties::default());
        assert!(arrived(&replicas).await.unwrap().0 == data);
        assert_eq!(left_out(&replicas)[empty], Some(Fault::Changed));
    }
}

/// Its data still have to be verified.
#[tokio::test(start_paused = true)]
async fn the_digest_of_a_source_that_gave_a_part_stays_when_it_is_lost() {
    let data = pattern(3 * SIZE);
    let store = store(&data).await;
    let dying = FaultStore::new(Arc::clone(&store), dying(12));
    let late = lying(&store, silent());
    let held = late.hold("open");
    late.fail("open", 0, Fault::PermissionDenied);
    let replicas = of(&[lying_slowly(&store, silent()), dying, late], FileProperties::default());
    let copying = tokio::spawn({
        let replicas = Arc::clone(&replicas);
        async move { arrived(&replicas).await }
    });
    while replicas.shares()[1].error.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(held);
    let (arrived, copied) = copying.await.unwrap().unwrap();
    assert!(arrived == data && !copied.verified.is_empty(), "{copied:?}");
    assert!(given(&replicas)[1] > 0, "it gave a part");
    assert_eq!(left_out(&replicas), [None, Some(Fault::Unavailable), Some(Fault::PermissionDenied)]);
}

#[tokio::test(start_paused = true)]
async fn a_source_with_another_file_promises_nothing() {
    let (one, other) = (pattern(2 * SIZE), Pattern::new(4).bytes(0, 2 * SIZE));
    let stores =
        [lying_slowly(&store(&one).await, silent()), lying_slowly(&store(&other).await, ReadFaults::default())];
    let replicas = of(&stores, FileProperties::default());
    let (data, copied) = arrived(&replicas).await.unwrap();
    assert!(data == one, "the first one named counts");
    assert!(copied.verified.is_empty(), "{copied:?}");
    assert_eq!(left_out(&replicas), [None, Some(Fault::Changed)]);
}

/// An earlier run accepted parts of two files because of a digest of the second source. That source is lost before it
/// can be compared.
#[tokio::test]
async fn parts_of_an_earlier_run_are_not_shown_without_the_digest_that_proves_them() {
    let run = InterruptedCopy::of_two_files().await;
    run.copy(&run.sources(run.lead(), run.lost()), async || ()).await;
}

/// As before, and the first source refuses to compute a digest only after the upload of the earlier run was found by
/// the digest of the second.
#[tokio::test]
async fn the_digest_that_found_parts_of_an_earlier_run_must_prove_them() {
    let run = InterruptedCopy::of_two_files().await;
    let (lead, lost) = (run.lead(), run.lost());
    let (computing, opening, present) = (lead.hold("digest"), lost.hold("open"), run.to.hold("present"));
    let replicas = run.sources(lead, lost);
    let hold = async || {
        computing.reached().await;
        drop(opening);
        present.reached().await;
        until(|| replicas.shares()[1].error.is_some()).await;
        drop(computing);
        until(|| replicas.pool().unwrap().is_alone()).await;
        drop(present);
    };
    run.copy(&replicas, hold).await;
}

/// Waits until `condition` is met.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

/// The copy of two sources with different files, killed when it had parts of both: the second source gives its file a
/// digest, the first does not.
struct InterruptedCopy {
    files: [Bytes; 2],
    stores: [Arc<dyn Store>; 2],
    to: FaultStore,
    _directory: tempfile::TempDir,
}

impl InterruptedCopy {
    async fn of_two_files() -> Self {
        let one = pattern(80 << 20);
        let mut other = one.to_vec();
        (20 << 20..60 << 20).step_by(1 << 20).for_each(|at| other[at] ^= 1);
        let files = [one, Bytes::from(other)];
        let stores = [store(&files[0]).await, store(&files[1]).await];
        let directory = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap());
        let run = Self { files, stores, to: FaultStore::new(local, Faults::default()), _directory: directory };
        // Delays, so that the copy is not complete before `is_enough` is checked again.
        let replicas = run.sources(run.lead(), lying_slowly(&run.stores[1], ReadFaults::default()));
        let (mover, job) = run.mover(&replicas);
        let is_enough = || given(&replicas).get(1).is_some_and(|bytes| *bytes >= 20 << 20);
        tokio::select! {
            _ = mover.copy(&job) => panic!("it is killed before its end"),
            () = until(is_enough) => run,
        }
    }

    /// Returns the first source.
    fn lead(&self) -> FaultStore {
        lying_slowly(&self.stores[0], silent())
    }

    /// Returns the second source, of which no data can be read at first.
    fn lost(&self) -> FaultStore {
        let lost = lying(&self.stores[1], ReadFaults::default());
        for name in ["read", "read_into"] {
            lost.fail(name, 0, Fault::NotFound);
        }
        lost
    }

    fn sources(&self, lead: FaultStore, second: FaultStore) -> Arc<Replicas> {
        of(&[lead, second], FileProperties::default())
    }

    fn mover(&self, replicas: &Arc<Replicas>) -> (Arc<Mover>, Job) {
        let to: Arc<dyn Store> = Arc::new(self.to.clone());
        let job = Job::new(replicas.location().unwrap(), location(&to, "/copy"));
        (Mover::new(Options { window_bytes: 6 << 20, ..options() }, Arc::new(NoopObserver)), job)
    }

    /// Copies again, which must give the file of the first source, or that of the second one with its digest.
    async fn copy(&self, replicas: &Arc<Replicas>, meanwhile: impl AsyncFnOnce()) {
        let (mover, job) = self.mover(replicas);
        let (copied, ()) = tokio::join!(mover.copy(&job), meanwhile());
        let copied = copied.unwrap().expect("nothing was there");
        let there = get(&job.to.store, "/copy").await.unwrap();
        let expected = &self.files[usize::from(!copied.verified.is_empty())];
        assert!(there == *expected, "a mixture: {copied:?}");
    }
}

/// The upload of a large file is resumed by its proving digest, or by its only possible source.
#[tokio::test]
async fn an_upload_is_resumed_by_what_proves_it() {
    let data = pattern(65 << 20);
    let store = store(&data).await;
    let opened = async |stores: &[FaultStore], known: FileProperties| {
        let replicas = of(stores, known);
        let location = replicas.location().unwrap();
        let file = location.store.open(&location.caller, &location.path, OpenOptions::default()).await.unwrap();
        let metadata = file.metadata().await.unwrap();
        replicas.identity(&metadata)
    };
    let unknown = [lying(&store, silent()), lying(&store, silent())];
    let alone = opened(&unknown, FileProperties::default()).await;
    assert!(matches!(alone, Some(Identity::Alone(source)) if source.to_string() == "/file"));
    let Some(Identity::Proved(sources, digest)) = opened(&unknown, named(&data)).await else { panic!("it is named") };
    assert_eq!((sources.len(), digest.algorithm()), (2, Algorithm::Adler32));
    // While a digest is being computed, the identity is unknown.
    let slow = lying(&store, ReadFaults { digests: DigestAvailability::OnRequest, ..ReadFaults::default() });
    let _held = slow.hold("digest");
    tokio::time::pause();
    assert!(opened(&[slow, unknown[1].clone()], FileProperties::default()).await.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any behaviour of the sources, the result is the file of one of them, or the promised one; and a verified
    /// result has that digest.
    #[test]
    fn what_arrives_is_the_file_of_one_source(
        size in 1..20_000_000_usize,
        sources in prop::collection::vec(
            (0..2_usize, 0..3_u8, any::<bool>(), 0.0..1.0_f64, prop::option::weighted(0.3, 0..30_u64)),
            1..5,
        ),
        is_named in any::<bool>(),
        delays_per_mille in prop::sample::select(vec![0, 300, 1000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let contents = [0, 1].map(|seed| Pattern::new(seed).bytes(0, size));
            let inner = [store(&contents[0]).await, store(&contents[1]).await];
            let (mut stores, mut files) = (Vec::new(), contents.to_vec());
            for (seed, told, lies, at, crash_after) in sources {
                let first = (at * size as f64) as u64;
                let wrong = if lies { first..first + 1 } else { 0..0 };
                let digests = [DigestAvailability::Known, DigestAvailability::OnRequest, DigestAvailability::Nothing][usize::from(told)];
                let longest_delay = std::time::Duration::from_millis(100);
                let faults = Faults { seed: first, crash_after, delays_per_mille, longest_delay, ..Faults::default() };
                let lies = ReadFaults { wrong: wrong.clone(), digests, ..ReadFaults::default() };
                stores.push(FaultStore::new(Arc::clone(&inner[seed]), faults).with_read_faults(lies));
                let mut given = contents[seed].to_vec();
                wrong.for_each(|at| given[at as usize] ^= 1);
                files.push(Bytes::from(given));
            }
            let promised = contents[0].clone();
            let known = if is_named { named(&promised) } else { FileProperties::default() };
            let (data, copied) = match arrived(&of(&stores, known)).await {
                Ok(arrived) => arrived,
                Err(error) => return assert_ne!(error.fault(), Fault::Internal, "{error}"),
            };
            assert!(files.contains(&data), "a mixture");
            assert!(!is_named || data == promised);
            let found = Hasher::digest(Algorithms::of(&Algorithm::ALL), &data);
            assert!(copied.verified.iter().all(|by| found.get(by.digest.algorithm()) == Some(by.digest)));
            assert!(!is_named || !copied.verified.is_empty());
        });
    }
}
