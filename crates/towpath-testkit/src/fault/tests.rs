use std::collections::HashSet;

use futures::TryStreamExt as _;
use towpath_store::{
    ByteRange, Expectation,
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
};

use super::*;
use crate::pattern::Pattern;

const SIZE: usize = 100_000;

fn memory(faults: Faults) -> FaultStore {
    FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), faults)
}

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// Uploads a file in pieces and reads it back, without retries; returns the results.
async fn session(store: &FaultStore) -> Vec<Result<usize, Fault>> {
    let (me, pattern) = (&Caller::local(), Pattern::new(1));
    let mut outcomes = Vec::new();
    let mut note = |outcome: Result<usize>| outcomes.push(outcome.map_err(|error| error.fault()));
    for name in ["/a", "/b", "/c"].map(path) {
        match store.create(me, &name, CreateOptions::default()).await {
            Ok(file) => {
                for offset in (0..SIZE).step_by(10_000) {
                    note(file.write(offset as u64, pattern.bytes(offset as u64, 10_000)).await.map(|()| 10_000));
                }
                note(file.commit(Expectation::default()).await.map(|metadata| metadata.size as usize));
            }
            Err(error) => note(Err(error)),
        }
        match store.open(me, &name, OpenOptions::default()).await {
            Ok(file) => {
                for offset in (0..SIZE).step_by(10_000) {
                    note(file.read(offset as u64, 10_000).await.map(|data| data.len()));
                }
                let mut buffer = Vec::new();
                note(file.read_now(0, 100, &mut buffer).unwrap_or(Ok(0)));
                let vector: Vec<_> = file.read_vector(vec![ByteRange { offset: 0, length: 100 }; 5]).collect().await;
                vector.into_iter().for_each(|(_, result)| note(result.map(|data| data.len())));
            }
            Err(error) => note(Err(error)),
        }
        note(store.stat(me, &name).await.map(|metadata| metadata.size as usize));
    }
    outcomes
}

fn some_of_everything(seed: u64) -> Faults {
    Faults {
        seed,
        errors_per_mille: 50,
        delays_per_mille: 100,
        longest_delay: Duration::from_secs(60),
        short_reads_per_mille: 100,
        torn_writes_per_mille: 100,
        crash_after: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_faults() {
    let (first, second, other) =
        (memory(some_of_everything(1)), memory(some_of_everything(1)), memory(some_of_everything(2)));
    assert_eq!(session(&first).await, session(&second).await);
    assert_eq!(first.record(), second.record());
    session(&other).await;
    assert_ne!(first.record(), other.record());
}

#[tokio::test(start_paused = true)]
async fn every_fault_comes_and_is_on_record() {
    let mut kinds = HashSet::new();
    for seed in 0..20 {
        let store = memory(some_of_everything(seed));
        let before = towpath_store::sys::clock::now();
        let outcomes = session(&store).await;
        let record = store.record();
        let delays = record.iter().filter_map(|injected| match injected.what {
            Injection::Delay(delay) if injected.name != "read_now" => Some(delay),
            _ => None,
        });
        // Tokio's clock has milliseconds.
        let slack = Duration::from_millis(record.len() as u64);
        let (waited, asked) = (before.elapsed(), delays.sum::<Duration>());
        assert!(asked <= waited && waited <= asked + slack, "{waited:?} were waited, {asked:?} on record");
        let errors = record.iter().filter(|injected| matches!(injected.what, Injection::Error(_))).count();
        let seen = outcomes.iter().filter(|outcome| matches!(outcome, Err(fault) if ERRORS.contains(fault))).count();
        assert!(seen >= errors, "{errors} errors on record, {seen} seen");
        kinds.extend(record.iter().map(|injected| std::mem::discriminant(&injected.what)));
    }
    assert_eq!(kinds.len(), 4);
}

#[tokio::test]
async fn a_short_read_and_a_torn_write_are_as_recorded() {
    let (me, at, pattern) = (&Caller::local(), path("/file"), Pattern::new(3));
    let inner = MemoryStore::new(1 << 20);
    let torn = Faults { torn_writes_per_mille: 1000, seed: 5, ..Faults::default() };
    let store = FaultStore::new(Arc::new(inner.clone()), torn);
    let file = store.create(me, &at, CreateOptions::default()).await.unwrap();
    assert_eq!(file.write(0, pattern.bytes(0, SIZE)).await.unwrap_err().fault(), Fault::Io);
    let Injection::TornWrite(written) = store.record()[0].what else { panic!("{:?}", store.record()) };
    assert_eq!(file.commit(Expectation::default()).await.unwrap().size, written as u64);

    let short = Faults { short_reads_per_mille: 1000, seed: 6, ..Faults::default() };
    let store = FaultStore::new(Arc::new(inner), short);
    let file = store.open(me, &at, OpenOptions::default()).await.unwrap();
    let data = file.read(10, written - 10).await.unwrap();
    let Injection::ShortRead(length) = store.record()[0].what else { panic!("{:?}", store.record()) };
    assert_eq!(data.len(), length);
    pattern.check(10, &data);
}

#[tokio::test]
async fn after_a_crash_everything_fails_and_the_torso_is_hidden() {
    let (me, at) = (&Caller::local(), path("/file"));
    let directory = tempfile::tempdir().unwrap();
    for crash_after in 0..6 {
        let inner = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
        let store = FaultStore::new(Arc::new(inner), Faults { crash_after: Some(crash_after), ..Faults::default() });
        let upload = async {
            let file = store.create(me, &at, CreateOptions::default()).await?;
            file.write(0, "half".into()).await?;
            file.write(4, "half".into()).await?;
            file.sync().await?;
            file.commit(Expectation::default()).await
        };
        let outcome = upload.await;
        let reopened = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
        let entries = reopened.list(me, &StorePath::root(), ListOptions::default()).try_concat().await.unwrap();
        if crash_after < 5 {
            assert_eq!(outcome.unwrap_err().fault(), Fault::Unavailable);
            assert_eq!(store.stat(me, &at).await.unwrap_err().fault(), Fault::Unavailable);
            assert_eq!(
                store.record()[0],
                InjectedFault { call: crash_after, name: NAMES[crash_after as usize], what: Injection::Crash }
            );
            assert_eq!(entries, []);
        } else {
            assert_eq!(outcome.unwrap().size, 8);
            assert_eq!(entries.len(), 1);
        }
    }
}

#[tokio::test]
async fn calls_are_held_until_they_are_let_go() {
    let store = memory(Faults::default());
    let held = store.hold("stat");
    let asking = tokio::spawn({
        let store = store.clone();
        async move { store.stat(&Caller::local(), &path("/none")).await }
    });
    held.reached().await;
    assert!(!asking.is_finished());
    store.space(&Caller::local(), &StorePath::root()).await.unwrap();
    drop(held);
    assert_eq!(asking.await.unwrap().unwrap_err().fault(), Fault::NotFound);
}

/// The calls of an upload, in their order.
const NAMES: [&str; 5] = ["create", "write", "write", "sync", "commit"];
