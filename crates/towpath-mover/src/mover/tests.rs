mod bounds;
mod crashes;
mod failures;
mod remote;
mod streams;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::sync::watch;
use towpath_client::Client;
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, OpenOptions, Overwrite, Store, StorePath,
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    limited_store::LimitedStore,
    misbehaving_server::MisbehavingServer,
    pattern::Pattern,
};

use super::*;
use crate::{NoopObserver, StoreLocation, ThirdParty, Trees, file, flow_control, jobs};

/// Events received by an observer.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) expected: watch::Sender<u64>,
    pub(crate) transferred: watch::Sender<u64>,
    proofs: AtomicU64,
}

impl Observer for Counted {
    fn proves(&self) {
        self.proofs.fetch_add(1, Relaxed);
    }

    fn expect(&self, bytes: u64) {
        self.expected.send_modify(|expected| *expected += bytes);
    }

    fn transferred(&self, bytes: u64) {
        self.transferred.send_modify(|transferred| *transferred += bytes);
    }
}

pub(crate) fn options() -> Options {
    Options {
        overwrite: Overwrite::Refuse,
        skip: SkipPolicy::Nothing,
        checksum: None,
        umask: 0,
        third_party: ThirdParty::Never,
        max_files: 100,
        window_bytes: crate::MAX_BYTES,
        limit_bytes_per_s: None,
        nice: false,
        paths: None,
        client: None,
    }
}

pub(crate) fn location(store: &Arc<dyn Store>, path: &str) -> StoreLocation {
    StoreLocation::local(Arc::clone(store), Caller::local(), StorePath::parse(path.as_bytes()).unwrap())
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1 << 30))
}

pub(crate) async fn put(store: &Arc<dyn Store>, path: &str, data: Bytes) {
    let location = location(store, path);
    let options = CreateOptions { parents: true, ..CreateOptions::default() };
    let handle = store.create(&location.caller, &location.path, options).await.unwrap();
    handle.write(0, data).await.unwrap();
    handle.commit(Expectation::default()).await.unwrap();
}

pub(crate) async fn get(store: &Arc<dyn Store>, path: &str) -> Result<Bytes> {
    let location = location(store, path);
    let handle = store.open(&location.caller, &location.path, OpenOptions::default()).await?;
    handle.read(0, handle.metadata().await?.size as usize).await
}

/// A file on a server that sends wrong metadata or data.
pub(crate) fn served_by(server: &MisbehavingServer) -> StoreLocation {
    let url = format!("http://127.0.0.1:{}/file", server.port()).parse().unwrap();
    let (store, path) = Client::new(Arc::default()).connect(&url).unwrap();
    StoreLocation::remote(store, Caller::local(), path, ("127.0.0.1".into(), server.port()), "http://127.0.0.1")
}

/// The sizes of a tree with empty and small files, files of the size of the first read, and files of several pieces.
fn sizes() -> BTreeMap<String, usize> {
    let sizes = [0, 1, 10_000, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 5 << 20];
    let name = |number: usize, size: &usize| (format!("d{}/e{}/f{number}", number % 7, number % 3), *size);
    sizes.iter().cycle().enumerate().take(70).map(|(number, size)| name(number, size)).collect()
}

#[tokio::test]
async fn a_tree_arrives_whole_and_each_byte_is_counted_once() {
    let (from, to) = (memory(), memory());
    let sizes = sizes();
    for (seed, (name, size)) in sizes.iter().enumerate() {
        put(&from, &format!("/s/{name}"), Pattern::new(seed as u64).bytes(0, *size)).await;
    }
    let counted = Arc::new(Counted::default());
    let mover = Mover::new(options(), Arc::clone(&counted) as _);
    let jobs =
        jobs(vec![Job::new(location(&from, "/s"), location(&to, "/t"))], Some(Trees::default()), mover.progress())
            .unwrap();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Copied(..))), "{outcomes:?}");
    assert_eq!(outcomes.len(), sizes.len());
    for (seed, (name, size)) in sizes.iter().enumerate() {
        let data = get(&to, &format!("/t/{name}")).await.unwrap();
        assert_eq!(data.len(), *size);
        Pattern::new(seed as u64).check(0, &data);
    }
    let total = sizes.values().sum::<usize>() as u64;
    assert_eq!((*counted.expected.borrow(), *counted.transferred.borrow()), (total, total));
    assert_eq!(counted.proofs.load(Relaxed), 0, "of small files nothing was left");
}

/// The permit must last until the bytes are written.
#[tokio::test]
async fn no_more_is_in_flight_than_the_window_holds() {
    let from = memory();
    put(&from, "/large", Pattern::new(1).bytes(0, 64 << 20)).await;
    let slow = FaultStore::new(memory(), Faults::default());
    let held = slow.hold("write");
    let to: Arc<dyn Store> = Arc::new(slow);
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    // No bytes are requested together with the metadata of an empty file, so that all its bytes are pieces.
    let job = Job { size: Some(0), ..Job::new(location(&from, "/large"), location(&to, "/copy")) };
    let copying = tokio::spawn(async move { mover.copy(&job).await });
    for _ in 0..flow_control::MIN_BYTES / file::PIECE_BYTES {
        held.reached().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(held.reached().now_or_never().is_none(), "more is written at once than the window holds");
    drop(held);
    assert_eq!(copying.await.unwrap().unwrap().unwrap().bytes, 64 << 20);
    Pattern::new(1).check(0, &get(&to, "/copy").await.unwrap());
}

/// An HTTP upload is one request, which buffers written data until it is complete.
#[tokio::test]
async fn no_more_files_are_under_way_than_what_is_gathered_of_them_permits() {
    let client = Client::new(Arc::default());
    let (to, path) = client.connect(&"http://127.0.0.1:1/copy".parse().unwrap()).unwrap();
    let to = StoreLocation::remote(to, Caller::local(), path, ("127.0.0.1".into(), 1), "http://127.0.0.1:1");
    let mover = Mover::new(Options { window_bytes: 8 << 20, ..options() }, Arc::new(NoopObserver));
    let job = Job { size: Some(3 << 20), ..Job::new(location(&memory(), "/file"), to) };
    let file_permits = || mover.file_permits(&job).now_or_never();
    let FilePermits { permit, gathered } = file_permits().unwrap();
    let _other = file_permits().unwrap();
    drop(permit);
    assert!(file_permits().is_none(), "its first bytes were written, but it has not come to its end");
    drop(gathered);
    file_permits().unwrap();
}

#[tokio::test]
async fn a_file_that_fails_does_not_keep_others_from_arriving() {
    let (from, to) = (memory(), memory());
    put(&from, "/a", Bytes::from_static(b"content")).await;
    put(&from, "/b", Bytes::from_static(b"content")).await;
    put(&to, "/t/a", Bytes::from_static(b"was there")).await;
    let pair = |name: &str| Job::new(location(&from, &format!("/{name}")), location(&to, &format!("/t/{name}")));
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let jobs = jobs(["a", "b", "c"].map(pair).into(), None, mover.progress()).unwrap();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    let fault = |name: &str| {
        outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Failed(FailedJob { job, error }) if job.from.to_string() == format!("/{name}") => {
                Some(error.fault())
            }
            _ => None,
        })
    };
    assert_eq!(["a", "b", "c"].map(fault), [Some(Fault::AlreadyExists), None, Some(Fault::NotFound)]);
    assert_eq!(get(&to, "/t/a").await.unwrap(), "was there");
    assert_eq!(get(&to, "/t/b").await.unwrap(), "content");
}

/// The memory store keeps digests, and no times of sources.
#[tokio::test]
async fn a_refused_file_is_skipped_only_if_it_is_the_same_and_the_policy_permits() {
    let (from, to) = (memory(), memory());
    for (name, ours, theirs) in [("/same", "content", "content"), ("/other", "content", "CONTENT")] {
        put(&from, name, Bytes::from(ours)).await;
        put(&to, name, Bytes::from(theirs)).await;
    }
    for (skip, is_skipped) in [(SkipPolicy::Nothing, false), (SkipPolicy::SameIfRefused, true)] {
        let mover = Mover::new(Options { skip, ..options() }, Arc::new(NoopObserver));
        let copy = async |name| {
            let copied = mover.copy(&Job::new(location(&from, name), location(&to, name))).await;
            copied.map(|copied| copied.is_some()).map_err(|error| error.fault())
        };
        assert_eq!(copy("/same").await, if is_skipped { Ok(false) } else { Err(Fault::AlreadyExists) }, "{skip:?}");
        assert_eq!(copy("/other").await, Err(Fault::AlreadyExists), "{skip:?}");
    }
}

/// Copies a tree over an existing copy until `most` of its files have ended; returns the outcomes and the number of
/// existing files.
async fn rest_of_a_tree(from: &Arc<dyn Store>, to: &Arc<dyn Store>, most: usize) -> (Vec<Outcome>, u64) {
    let mover = Mover::new(Options { skip: SkipPolicy::Same, ..options() }, Arc::new(NoopObserver));
    let trees = Trees { skip: SkipPolicy::Same, ..Trees::default() };
    let pairs = vec![Job::new(location(from, "/s"), location(to, "/t"))];
    let jobs = jobs(pairs, Some(trees), mover.progress()).unwrap();
    let progress = Arc::clone(mover.progress());
    let outcomes = mover.run(jobs).take(most).collect().await;
    (outcomes, progress.now().skipped_files)
}

#[tokio::test]
async fn a_tree_that_was_cut_off_goes_on_and_nothing_is_asked_of_files_that_are_there() {
    const FILES: usize = 600;
    let (from, to) = (memory(), memory());
    for number in 0..FILES {
        put(&from, &format!("/s/d{}/f{number}", number % 3), Bytes::from_static(b"content")).await;
    }
    let (cut_off, _) = rest_of_a_tree(&from, &to, 100).await;
    assert_eq!(cut_off.len(), 100);
    let (rest, skipped) = rest_of_a_tree(&from, &to, FILES).await;
    assert!(rest.iter().all(|outcome| matches!(outcome, Outcome::Copied(..))), "{rest:?}");
    assert!(skipped >= 100 && rest.len() + skipped as usize == FILES, "{skipped}");
    // A file of another size is not a copy and stays; a directory in its place fails with and without the option.
    put(&from, "/s/d0/other", Bytes::from_static(b"content")).await;
    put(&to, "/t/d0/other", Bytes::from_static(b"of another size")).await;
    put(&to, "/t/d1/f1000/file", Bytes::from_static(b"in the way")).await;
    put(&from, "/s/d1/f1000", Bytes::from_static(b"content")).await;
    let ends = [from, to].map(|end| Arc::new(FaultStore::new(end, Faults::default())));
    let [from, to] = ends.each_ref().map(|end| Arc::clone(end) as Arc<dyn Store>);
    let (rest, skipped) = rest_of_a_tree(&from, &to, FILES).await;
    assert_eq!(skipped as usize, FILES);
    let faults = rest.iter().filter_map(|outcome| match outcome {
        Outcome::Failed(FailedJob { error, .. }) => Some(error.fault()),
        _ => None,
    });
    let mut faults: Vec<_> = faults.collect();
    faults.sort_unstable_by_key(|fault| fault.exit_code());
    assert_eq!(faults, [Fault::IsDirectory, Fault::AlreadyExists], "{rest:?}");
    assert_eq!(rest.len(), 2, "{rest:?}");
    for end in ends {
        assert!(end.calls() < FILES as u64 / 6, "{} calls", end.calls());
    }
}

#[tokio::test]
async fn a_copy_that_is_dropped_leaves_nothing() {
    let from = memory();
    put(&from, "/large", Pattern::new(1).bytes(0, 8 << 20)).await;
    let slow = FaultStore::new(memory(), Faults::default());
    let held = slow.hold("write");
    let to: Arc<dyn Store> = Arc::new(slow);
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let pair = Job::new(location(&from, "/large"), location(&to, "/copy"));
    let jobs = jobs(vec![pair], None, mover.progress()).unwrap();
    let mut outcomes = Box::pin(mover.run(jobs));
    tokio::select! {
        () = held.reached() => {}
        outcome = outcomes.next() => panic!("{outcome:?}"),
    }
    drop(outcomes);
    drop(held);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&to, "/copy").await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test]
async fn a_destination_that_holds_a_lost_upload_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    let slow = FaultStore::new(Arc::new(local), Faults::default());
    let held = slow.hold("write");
    let from = memory();
    put(&from, "/large", Pattern::new(1).bytes(0, 64 << 20)).await;
    let job = Job::new(location(&from, "/large"), location(&(Arc::new(slow) as _), "/copy"));
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let mut lost = Box::pin(mover.copy(&job));
    tokio::select! {
        () = held.reached() => {}
        copied = &mut lost => panic!("{copied:?}"),
    }
    let mut waiting = Box::pin(mover.copy(&job));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    drop(lost);
    drop(held);
    waiting.await.unwrap().unwrap();
    Pattern::new(1).check(0, &get(&job.to.store, "/copy").await.unwrap());
}

#[tokio::test]
async fn a_large_file_goes_on_where_its_copy_was_lost() {
    const SIZE: usize = 80 << 20;
    let directory = tempfile::tempdir().unwrap();
    let to: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap());
    let from = memory();
    put(&from, "/large", Pattern::new(1).bytes(0, SIZE)).await;
    let job = Job::new(location(&from, "/large"), location(&to, "/copy"));

    let counted = Arc::new(Counted::default());
    let mut transferred = counted.transferred.subscribe();
    let mover = Mover::new(options(), counted);
    tokio::select! {
        copied = mover.copy(&job) => panic!("{copied:?}"),
        transferred = transferred.wait_for(|transferred| *transferred >= SIZE as u64 / 2) => drop(transferred),
    }
    assert_eq!(get(&to, "/copy").await.unwrap_err().fault(), Fault::NotFound);

    let counted = Arc::new(Counted::default());
    let mover = Mover::new(options(), Arc::clone(&counted) as _);
    // The dropped handle may not be closed yet; the copy waits for it.
    let copied = mover.copy(&job).await.unwrap().unwrap();
    assert_eq!(copied.bytes, SIZE as u64);
    let again = *counted.transferred.borrow();
    assert!(again > 0 && again <= SIZE as u64 / 2, "{again} bytes were copied again");
    assert_eq!((again, 1), (*counted.expected.borrow(), counted.proofs.load(Relaxed)));
    Pattern::new(1).check(0, &get(&to, "/copy").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_and_told() {
    let (from, to) = (memory(), memory());
    put(&from, "/large", Pattern::new(1).bytes(0, 20 << 20)).await;
    let options = Options { limit_bytes_per_s: Some(1 << 20), ..options() };
    let mover = Mover::new(options, Arc::new(NoopObserver));
    let sampler = crate::Sampler::begin(&mover);
    let start = clock::now();
    mover.copy(&Job::new(location(&from, "/large"), location(&to, "/copy"))).await.unwrap();
    let seconds = (clock::now() - start).as_secs_f64();
    // The last piece of 2 MiB starts when the time of the previous ones is over.
    assert!((17.0..21.0).contains(&seconds), "{seconds}");
    let account = sampler.account();
    let (cause, _, spent) = account.spent()[0];
    assert!(cause == crate::Cause::Limit && spent > 0.9 * seconds, "{:?}", account.spent());
}
