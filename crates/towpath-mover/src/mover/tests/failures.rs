//! Copies whose ends change, fill up, or report wrong data.

use towpath_store::{Blame, sys::disk};
use towpath_testkit::misbehaving_server::{MisbehavingServer, Misbehavior};

use super::*;
use crate::{Cause, Sampler};

const PATTERN: Pattern = Pattern::new(5);

fn local(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap())
}

async fn copy(from: StoreLocation, to: StoreLocation) -> Result<Option<CopiedFile>> {
    Mover::new(options(), Arc::new(NoopObserver)).copy(&Job::new(from, to)).await
}

#[tokio::test]
async fn a_source_that_changes_in_the_middle_arrives_as_it_is_then() {
    for changed in [PATTERN.bytes(7, 8 << 20), PATTERN.bytes(0, 3 << 20), PATTERN.bytes(0, 9 << 20)] {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path().join("source");
        disk::write(&host, &PATTERN.bytes(0, 8 << 20)).unwrap();
        let from = local(&directory);
        let slow = FaultStore::new(memory(), Faults::default());
        let held = slow.hold("write");
        let to: Arc<dyn Store> = Arc::new(slow);
        // Its pieces are requested one after the other, so that some are read after the change.
        let narrow = Options { window_bytes: 1 << 20, ..options() };
        let mover = Mover::new(narrow, Arc::new(NoopObserver));
        let job = Job::new(location(&from, "/source"), location(&to, "/copy"));
        let copying = tokio::spawn(async move { mover.copy(&job).await });
        held.reached().await;
        disk::write(&host, &changed).unwrap();
        drop(held);
        copying.await.unwrap().unwrap();
        assert_eq!(get(&to, "/copy").await.unwrap(), changed);
    }
}

#[tokio::test]
async fn a_source_that_changes_when_it_has_been_read_arrives_as_it_is_then() {
    let directory = tempfile::tempdir().unwrap();
    let host = directory.path().join("source");
    disk::write(&host, &PATTERN.bytes(0, 4 << 20)).unwrap();
    let at = location(&local(&directory), "/source");
    let from = StoreLocation::remote(at.store, at.caller, at.path, ("far".into(), 1), "root://far");
    let slow = FaultStore::new(memory(), Faults::default());
    let held = slow.hold("write");
    let to: Arc<dyn Store> = Arc::new(slow);
    let job = Job::new(from, location(&to, "/copy"));
    let copying = tokio::spawn(async move { Mover::new(options(), Arc::new(NoopObserver)).copy(&job).await });
    // The first read and two pieces.
    for _ in 0..3 {
        held.reached().await;
    }
    disk::write(&host, &PATTERN.bytes(1, 4 << 20)).unwrap();
    drop(held);
    copying.await.unwrap().unwrap();
    assert_eq!(get(&to, "/copy").await.unwrap(), PATTERN.bytes(1, 4 << 20));
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_destination_is_lost_goes_on() {
    const SIZE: usize = 80 << 20;
    let directory = tempfile::tempdir().unwrap();
    let from = memory();
    put(&from, "/large", PATTERN.bytes(0, SIZE)).await;
    let flaky = FaultStore::new(local(&directory), Faults::default());
    for writes in [0, 12, 25] {
        flaky.fail("write", writes, Fault::Unavailable);
    }
    flaky.fail("create", 1, Fault::TimedOut);
    let to: Arc<dyn Store> = Arc::new(flaky);
    let counted = Arc::new(Counted::default());
    let narrow = Options { window_bytes: 4 << 20, ..options() };
    let mover = Mover::new(narrow, Arc::clone(&counted) as _);
    mover.copy(&Job::new(location(&from, "/large"), location(&to, "/copy"))).await.unwrap();
    assert_eq!(get(&to, "/copy").await.unwrap(), PATTERN.bytes(0, SIZE));
    let transferred = *counted.transferred.borrow();
    // Data in flight at the end of an attempt may have arrived.
    assert!(transferred.abs_diff(SIZE as u64) < 32 << 20, "{transferred} bytes were moved");
}

#[tokio::test(start_paused = true)]
async fn a_file_too_small_to_go_on_is_begun_anew_when_its_destination_is_lost() {
    let from = memory();
    for size in [0, 10_000, 5 << 20] {
        put(&from, "/file", PATTERN.bytes(0, size)).await;
        let flaky = Arc::new(FaultStore::new(memory(), Faults::default()));
        let lost = [("write", Fault::Unavailable), ("create", Fault::TimedOut), ("commit", Fault::TimedOut)];
        for (call, fault) in lost {
            flaky.fail(call, u64::from(call == "create"), fault);
        }
        let to = Arc::clone(&flaky) as Arc<dyn Store>;
        copy(location(&from, "/file"), location(&to, "/copy")).await.unwrap();
        assert_eq!(get(&to, "/copy").await.unwrap(), PATTERN.bytes(0, size));
        // Nothing of an empty file is written.
        assert_eq!(flaky.record().len(), if size == 0 { 2 } else { 3 });
        let location = location(&from, "/file");
        from.remove_file(&location.caller, &location.path).await.unwrap();
    }
    put(&from, "/file", PATTERN.bytes(0, 10_000)).await;
    let gone = FaultStore::new(memory(), Faults { crash_after: Some(1), ..Faults::default() });
    let error = copy(location(&from, "/file"), location(&(Arc::new(gone) as _), "/copy")).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn pauses_before_retries_are_not_put_down_to_the_listing() {
    let from = memory();
    put(&from, "/file", PATTERN.bytes(0, 10_000)).await;
    let flaky = FaultStore::new(memory(), Faults::default());
    flaky.fail("write", 0, Fault::Unavailable);
    let to: Arc<dyn Store> = Arc::new(flaky);
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let sampler = Sampler::begin(&mover);
    mover.copy(&Job::new(location(&from, "/file"), location(&to, "/copy"))).await.unwrap();
    let spent = sampler.account().spent();
    assert_eq!(spent.first().map(|(cause, ..)| *cause), Some(Cause::Retry), "{spent:?}");
}

#[tokio::test]
async fn of_two_copies_into_one_name_one_arrives_whole() {
    let from = memory();
    for (name, seed) in [("/a", 1), ("/b", 2)] {
        put(&from, name, Pattern::new(seed).bytes(0, 5 << 20)).await;
    }
    for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
        let directory = tempfile::tempdir().unwrap();
        for to in [memory(), local(&directory)] {
            let mover = Mover::new(Options { overwrite, ..options() }, Arc::new(NoopObserver));
            let jobs = ["/a", "/b"].map(|name| Job::new(location(&from, name), location(&to, "/copy")));
            let outcomes = futures::future::join_all(jobs.iter().map(|job| mover.copy(job))).await;
            let faults: Vec<_> =
                outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(|error| error.fault())).collect();
            let refused = if overwrite == Overwrite::Refuse { vec![Fault::AlreadyExists] } else { Vec::new() };
            assert_eq!(faults, refused);
            let content = get(&to, "/copy").await.unwrap();
            let whose = [1, 2].map(|seed| Pattern::new(seed).first_difference(0, &content).is_none());
            assert!(content.len() == 5 << 20 && (whose[0] || whose[1]), "it is one of them, and nothing between");
        }
    }
}

#[tokio::test]
async fn a_full_destination_says_how_much_is_missing() {
    let from = memory();
    put(&from, "/large", PATTERN.bytes(0, 8 << 20)).await;
    put(&from, "/small", PATTERN.bytes(0, 1 << 20)).await;
    let to: Arc<dyn Store> = Arc::new(MemoryStore::new(6 << 20));
    copy(location(&from, "/small"), location(&to, "/d/hog")).await.unwrap();
    let error = copy(location(&from, "/large"), location(&to, "/d/copy")).await.unwrap_err();
    assert_eq!(error.fault(), Fault::NoSpace);
    assert!(error.message().ends_with(": 3145728 more bytes are needed"), "{error}");
    assert_eq!(get(&to, "/d/copy").await.unwrap_err().fault(), Fault::NotFound);
    assert_eq!(get(&to, "/d/hog").await.unwrap().len(), 1 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_lies_about_does_not_arrive() {
    let honest = MisbehavingServer::start(None, PATTERN.bytes(0, 3 << 20));
    let to = memory();
    let copied = copy(served_by(&honest), location(&to, "/copy")).await.unwrap().unwrap();
    assert!(!copied.verified.is_empty());
    for (misbehavior, fault, blame) in [
        // A network failure cannot be distinguished from a server failure.
        (Misbehavior::Longer, Fault::Unavailable, Blame::Network),
        (Misbehavior::CutOff, Fault::Unavailable, Blame::Network),
        (Misbehavior::OtherRange, Fault::Protocol, Blame::Storage),
        (Misbehavior::OtherDigest, Fault::ChecksumMismatch, Blame::Network),
        (Misbehavior::OtherByte, Fault::ChecksumMismatch, Blame::Network),
    ] {
        let server = MisbehavingServer::start(Some(misbehavior), PATTERN.bytes(0, 3 << 20));
        let directory = tempfile::tempdir().unwrap();
        for to in [memory(), local(&directory)] {
            let error = copy(served_by(&server), location(&to, "/copy")).await.unwrap_err();
            assert_eq!((error.fault(), error.blame()), (fault, blame), "{misbehavior:?}: {error}");
            assert_eq!(error.path().map(ToString::to_string).as_deref(), Some("/file"), "{misbehavior:?}: {error}");
            assert_eq!(get(&to, "/copy").await.unwrap_err().fault(), Fault::NotFound, "{misbehavior:?}");
        }
        let staged = directory.path().join(".towpath").read_dir().map(Iterator::count);
        assert_eq!(staged.unwrap_or(0), 0, "{misbehavior:?} leaves something");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_of_zero_is_not_taken_for_an_empty_file() {
    let to = memory();
    let content = PATTERN.bytes(0, 300_000);
    let from = memory();
    put(&from, "/file", content.clone()).await;
    let server = MisbehavingServer::start(Some(Misbehavior::EmptyHead), content.clone());
    for (number, from) in [location(&from, "/file"), served_by(&server)].into_iter().enumerate() {
        // As listed before the file grew.
        let job = Job { size: Some(0), ..Job::new(from, location(&to, &format!("/{number}"))) };
        let copied = Mover::new(options(), Arc::new(NoopObserver)).copy(&job).await.unwrap().unwrap();
        assert_eq!(copied.bytes, 300_000);
        assert_eq!(get(&to, &format!("/{number}")).await.unwrap(), content);
    }
    put(&from, "/empty", Bytes::new()).await;
    let job = Job { size: Some(0), ..Job::new(location(&from, "/empty"), location(&to, "/empty")) };
    Mover::new(options(), Arc::new(NoopObserver)).copy(&job).await.unwrap().unwrap();
    assert_eq!(get(&to, "/empty").await.unwrap(), "");
}

#[tokio::test]
async fn a_source_is_not_read_for_a_read_only_destination() {
    let from = FaultStore::new(memory(), Faults::default());
    let source: Arc<dyn Store> = Arc::new(from.clone());
    put(&source, "/file", "content".into()).await;
    let before = from.calls();
    let to: Arc<dyn Store> = Arc::new(LimitedStore::new(memory(), |can| *can = can.clone().without_changes()));
    let job = Job { size: Some(7), ..Job::new(location(&source, "/file"), location(&to, "/copy")) };
    let failed = Mover::new(options(), Arc::new(NoopObserver)).copy(&job).await.unwrap_err();
    assert_eq!(failed.fault(), Fault::ReadOnly, "{failed}");
    assert_eq!(from.calls(), before);
}
