mod deleting;
mod folding;
mod foreign;
mod generated;
mod loops;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;
use towpath_store::{Fault, FileKind, ListOptions, Store};
use towpath_testkit::limited_store::LimitedStore;

use self::generated::Generated;
use super::*;
use crate::{
    Mover, NoopObserver, Progress, Walk,
    mover::tests::{get, location, memory, options, put},
};

/// Files with their sizes, which determine their contents, and directories.
type Tree = BTreeMap<String, Option<usize>>;

/// Returns everything below `top`.
async fn tree(store: &Arc<dyn Store>, top: &str) -> Tree {
    let mut found = Tree::new();
    let mut walk = Walk::new(&location(store, top), ListOptions { metadata: true, ..ListOptions::default() });
    while let Some(batch) = walk.next().await {
        let batch = batch.unwrap();
        for entry in &batch.entries {
            let path = batch.path_of(entry).unwrap();
            let is_file = entry.metadata.kind == FileKind::File;
            let below = path.to_string().replacen(top, "", 1);
            found.insert(below, is_file.then_some(entry.metadata.size as usize));
            if !is_file {
                walk.enter(&batch, path, &entry.metadata);
            }
        }
    }
    found
}

/// Creates a store with `tree` below `top`; entries whose names conflict are skipped.
async fn store_of(tree: &Tree, top: &str) -> Arc<dyn Store> {
    let store = memory();
    let place_of_top = location(&store, top);
    store.make_directory(&place_of_top.caller, &place_of_top.path, true, None).await.unwrap();
    for (name, size) in tree {
        let location = location(&store, &format!("{top}/{name}"));
        if let Some(above) = location.path.parent()
            && store.make_directory(&location.caller, &above, true, None).await.is_ok()
        {
            match size {
                Some(size) if store.stat(&location.caller, &location.path).await.is_err() => {
                    put(&store, &format!("{top}/{name}"), vec![b'x'; *size].into()).await;
                }
                Some(_) => {}
                None => drop(store.make_directory(&location.caller, &location.path, true, None).await),
            }
        }
    }
    store
}

fn sync(from: &Arc<dyn Store>, to: &Arc<dyn Store>, options: SyncOptions) -> Arc<Sync> {
    Sync::new(Job::new(location(from, "/ours"), location(to, "/theirs")), options).unwrap()
}

/// Runs the steps, copies the files, and returns the number of steps except unchanged files.
async fn carry_out(steps: impl FnOnce(&Arc<Progress>) -> SyncActions) -> usize {
    let counted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&counted);
    let options = crate::Options { overwrite: towpath_store::Overwrite::Replace, ..options() };
    let mover = Mover::new(options, Arc::new(NoopObserver));
    let jobs = steps(mover.progress()).filter_map(move |step| {
        let job = match step.unwrap() {
            SyncAction::Same(_) => None,
            step => {
                count.fetch_add(1, Relaxed);
                if let SyncAction::Copy(job, _) = step { Some(Ok(job)) } else { None }
            }
        };
        std::future::ready(job)
    });
    let mut outcomes = std::pin::pin!(mover.run(jobs.boxed()));
    while let Some(outcome) = outcomes.next().await {
        assert!(matches!(outcome, crate::Outcome::Copied(..)), "{outcome:?}");
    }
    counted.load(Relaxed) as usize
}

fn trees() -> impl Strategy<Value = Tree> {
    let name = "[ab](/[ab]){0,2}";
    proptest::collection::btree_map(name, proptest::option::of(0..3_usize), 0..8)
}

proptest! {
    #[test]
    fn the_destination_ends_as_the_source_is(ours in trees(), theirs in trees()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let (from, to) = (store_of(&ours, "/ours").await, store_of(&theirs, "/theirs").await);
            let before = tree(&to, "/theirs").await;
            let options = SyncOptions { compare: Compare::Size, delete: true, ..SyncOptions::default() };
            let dry = SyncOptions { dry_run: true, ..options.clone() };
            let planned = sync(&from, &to, dry).copying(&Progress::new(Arc::new(NoopObserver))).filter(|step| {
                std::future::ready(!matches!(step, Ok(SyncAction::Same(_))))
            }).count().await;
            assert_eq!(tree(&to, "/theirs").await, before, "a dry run changes nothing");

            let both = sync(&from, &to, options.clone());
            let copied = carry_out(|progress| both.copying(progress)).await;
            let left = tree(&to, "/theirs").await;
            assert!(before.keys().all(|name| left.contains_key(name)), "the first pass deletes nothing");
            carry_out(|progress| both.deleting(progress)).await;
            assert_eq!(tree(&to, "/theirs").await, tree(&from, "/ours").await);
            assert!(copied <= planned, "{copied} steps, {planned} were planned");
            assert_eq!(carry_out(|progress| sync(&from, &to, options).copying(progress)).await, 0, "the second time");
        });
    }
}

#[tokio::test]
async fn without_permission_what_is_in_the_way_stays() {
    let (from, to) = (memory(), memory());
    put(&from, "/ours/a", Bytes::from_static(b"file")).await;
    put(&to, "/theirs/a/b", Bytes::from_static(b"in the way")).await;
    let progress = Progress::new(Arc::new(NoopObserver));
    let steps: Vec<_> = sync(&from, &to, SyncOptions::default()).copying(&progress).collect().await;
    let [Err(FailedJob { job, error })] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((job.to.to_string().as_str(), error.fault()), ("/theirs/a", Fault::IsDirectory));
    assert_eq!(get(&to, "/theirs/a/b").await.unwrap(), "in the way");
}

#[tokio::test]
async fn a_destination_without_removal_takes_new_files_and_refuses_to_delete() {
    let inner = memory();
    let to: Arc<dyn Store> = Arc::new(LimitedStore::create_only(Arc::clone(&inner)));
    let from = memory();
    put(&from, "/ours/a", Bytes::from_static(b"a")).await;
    put(&to, "/theirs/extra", Bytes::from_static(b"extra")).await;
    let delete = SyncOptions { compare: Compare::Size, delete: true, ..SyncOptions::default() };
    let progress = Progress::new(Arc::new(NoopObserver));
    let steps: Vec<_> = sync(&from, &to, delete.clone()).copying(&progress).collect().await;
    let [Err(FailedJob { error, .. })] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(error.fault(), Fault::Unsupported);
    assert_eq!(tree(&to, "/theirs").await.len(), 1, "nothing is copied before the error");
    let keep = SyncOptions { delete: false, ..delete };
    assert_eq!(carry_out(|progress| sync(&from, &to, keep).copying(progress)).await, 1);
    assert_eq!(get(&to, "/theirs/a").await.unwrap(), "a");
    assert_eq!(get(&to, "/theirs/extra").await.unwrap(), "extra");
}

/// Neither end has times or digests: only the user can decide that equal sizes are sufficient.
#[tokio::test]
async fn files_of_one_size_of_which_nothing_else_is_known_are_copied() {
    let (inner, to) = (memory(), memory());
    put(&inner, "/ours/a", Bytes::from_static(b"new")).await;
    put(&to, "/theirs/a", Bytes::from_static(b"old")).await;
    let from = foreign::Foreign::of(&inner);
    let reason = async |compare| {
        let options = SyncOptions { compare, ..SyncOptions::default() };
        let steps = sync(&from, &to, options).copying(&Progress::new(Arc::new(NoopObserver)));
        let reasons = steps.filter_map(|step| {
            std::future::ready(if let Ok(SyncAction::Copy(_, why)) = step { Some(why) } else { None })
        });
        reasons.collect::<Vec<_>>().await
    };
    assert_eq!(reason(Compare::Auto).await, [CopyReason::Unproven]);
    assert_eq!(reason(Compare::Digest).await, [CopyReason::Digest]);
    assert_eq!(reason(Compare::Size).await, []);
}

/// The number of jobs and directories in memory is limited, independently of the number of files, even while complete
/// directories wait for their times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_grow_with_the_tree() {
    for (directories, files) in [(2_000, 10), (200, 100), (1, 50_000), (40_000, 0)] {
        let from = Generated::new(directories, files).await;
        let to = Generated::new(0, 0).await;
        let (source, target): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::clone(&from) as _, to);
        let ends = Job::new(location(&source, "/"), location(&target, "/t"));
        let copied = carry_out(|progress| Sync::copy(ends, Trees::default()).copying(progress)).await;
        assert_eq!(copied, 1 + directories + directories * files, "with the root");
        let most = from.clones.load(Relaxed);
        assert!(most < 20_000, "{most} of {directories} times {files} were in memory at once");
    }
}

/// Files are returned while their directory is listed, and the listing waits for their copies, even if it never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_waits_for_the_copies_of_what_it_has_told() {
    const FILES: usize = 3 << 20;
    let from = Generated::new(1, FILES).await;
    let (source, target): (Arc<dyn Store>, _) = (Arc::clone(&from) as _, memory());
    let ends = Job::new(location(&source, "/"), location(&target, "/t"));
    let mut steps = Sync::copy(ends, Trees::default()).copying(&Progress::new(Arc::new(NoopObserver)));
    let most = (names::READ_AHEAD + STEPS + 4 * SMALL) as u64;
    for taken in 0..100_000 {
        steps.next().await.unwrap().unwrap();
        let listed = from.listed.load(Relaxed);
        assert!(listed <= taken + most, "{listed} entries were listed when {taken} files were taken");
    }
}

/// Enough that all directories listed concurrently can reach their ends at the same time.
#[tokio::test]
async fn empty_directories_do_not_end_a_walk() {
    // The first directory to be entered is the last to be listed.
    let mut wanted: Tree = (0..200).map(|number| (format!("/{number:03}"), None)).collect();
    wanted.insert("/000/file".into(), Some(7));
    let store = store_of(&wanted, "/top").await;
    assert_eq!(tree(&store, "/top").await, wanted);
}

/// A directory with endless subdirectories fails, and the rest of the tree is copied.
#[tokio::test]
async fn a_walk_has_room_for_so_many_directories() {
    let store: Arc<dyn Store> = Generated::new(10_000, 0).await;
    let mut walk = Walk::new(&location(&store, "/"), ListOptions::default()).with_room_for(100_000);
    let (mut listed, mut unlisted) = (0, Vec::new());
    while let Some(batch) = walk.next().await {
        match batch {
            Ok(batch) => {
                listed += batch.entries.len();
                for entry in &batch.entries {
                    walk.enter(&batch, batch.path_of(entry).unwrap(), &entry.metadata);
                }
            }
            Err(missed) => unlisted.push((missed.directory.to_string(), missed.error.fault())),
        }
    }
    assert_eq!(unlisted, [("/".to_owned(), Fault::TooLarge)]);
    assert!(listed < 10_000, "{listed}");
}

/// Both directories are large at both ends, and each is detected as large at a different end first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_directories_do_not_wait_for_each_other() {
    const FILES: usize = (32 << 10) + 1;
    let from: Arc<dyn Store> = Generated::with_slow(2, FILES, Some("/1")).await;
    let to: Arc<dyn Store> = Generated::with_slow(2, FILES, Some("/0")).await;
    let caller = towpath_store::Caller::local();
    let there =
        StoreLocation::remote(to, caller, towpath_store::StorePath::root(), ("there".into(), 1094), "root://there/");
    let options = SyncOptions { compare: Compare::Size, ..SyncOptions::default() };
    let sync = Sync::new(Job::new(location(&from, "/"), there), options).unwrap();
    let steps: Vec<_> =
        tokio::time::timeout(Duration::from_secs(60), sync.copying(&Progress::new(Arc::new(NoopObserver))).collect())
            .await
            .expect("one waits for the other");
    let same = steps.iter().map(|step| if let Ok(SyncAction::Same(files)) = step { *files } else { 0 });
    assert_eq!(same.sum::<u64>(), 2 * FILES as u64);
}
