//! Links that lead to a parent directory, and trees reachable under two names.

use std::{os::unix::fs::symlink, path::Path};

use towpath_store::{
    Caller, StorePath,
    local::{LocalOptions, LocalStore, Scope},
};

use towpath_testkit::fault::{FaultStore, Faults};

use super::{foreign::Foreign, *};
use crate::{ListingFailure, overlap};

fn local(root: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(root, LocalOptions::default()).unwrap())
}

/// Returns a location on a server named `host`.
fn behind(host: &str, store: &Arc<dyn Store>, path: &str) -> StoreLocation {
    let path = StorePath::parse(path.as_bytes()).unwrap();
    StoreLocation::remote(Arc::clone(store), Caller::local(), path, (host.into(), 1094), &format!("http://{host}"))
}

/// Creates a file, a link to its directory, and a link to a parent directory in a subdirectory.
async fn looping(root: &Path) -> Arc<dyn Store> {
    let store = local(root);
    for name in ["/a", "/s/b"] {
        put(&store, name, Bytes::from_static(b"x")).await;
    }
    symlink(".", root.join("self")).unwrap();
    symlink("..", root.join("s/up")).unwrap();
    store
}

/// Copies all of `from` to an empty destination; returns its content and the failures by name.
async fn copied(from: &Arc<dyn Store>) -> (Tree, Vec<(String, Fault)>) {
    let to = memory();
    let (ends, trees) = (Job::new(behind("127.0.0.1", from, "/"), location(&to, "/t")), Trees::default());
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let jobs = crate::jobs(vec![ends], Some(trees), mover.progress()).unwrap();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    let mut missed: Vec<_> = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome {
            crate::Outcome::Failed(FailedJob { job, error }) => Some((job.from.path.to_string(), error.fault())),
            _ => None,
        })
        .collect();
    missed.sort();
    let files = tree(&to, "/t").await.into_iter().filter(|(_, size)| size.is_some()).collect();
    (files, missed)
}

#[tokio::test]
async fn two_links_upwards_end_a_copy_whatever_the_server_tells() {
    let root = tempfile::tempdir().unwrap();
    let store = looping(root.path()).await;
    let files = Tree::from([("/a".into(), Some(1)), ("/s/b".into(), Some(1))]);
    let loops = ["/s/up", "/self"].map(|name| (name.to_owned(), Fault::InvalidArgument));
    for store in [Foreign::of(&store), store] {
        assert_eq!(copied(&store).await, (files.clone(), loops.to_vec()), "{store:?}");
    }
}

#[tokio::test]
async fn two_links_upwards_end_a_listing() {
    let root = tempfile::tempdir().unwrap();
    let store = Foreign::of(&looping(root.path()).await);
    let mut walk = Walk::new(&behind("127.0.0.1", &store, "/"), ListOptions { metadata: true, digests: false });
    let (mut listed, mut unlisted) = (Vec::new(), Vec::new());
    while let Some(batch) = walk.next().await {
        match batch {
            Ok(batch) => {
                listed.push(batch.directory.to_string());
                for entry in batch.entries.iter().filter(|entry| entry.metadata.is_directory()) {
                    walk.enter(&batch, batch.path_of(entry).unwrap(), &entry.metadata);
                }
            }
            Err(ListingFailure { directory, .. }) => unlisted.push(directory.to_string()),
        }
    }
    unlisted.sort();
    assert_eq!(unlisted, ["/s/up", "/self"]);
    assert!(listed.len() <= 4, "{listed:?}");
}

/// Like a hierarchy of OME-Zarr, in which each level looks like its parent.
#[tokio::test]
async fn a_tree_that_repeats_itself_is_copied_whole() {
    let from = memory();
    let names: Vec<_> = (0..20).map(|depth| format!("{}/group", "/0".repeat(depth))).collect();
    for name in &names {
        put(&from, name, Bytes::from_static(b"x")).await;
    }
    let files: Tree = names.into_iter().map(|name| (name, Some(1))).collect();
    assert_eq!(copied(&Foreign::of(&from)).await, (files, vec![]));
}

fn deleting() -> SyncOptions {
    SyncOptions { compare: Compare::Size, delete: true, ..SyncOptions::default() }
}

/// Runs both passes of `both` and returns their faults.
async fn refused(both: Result<Arc<Sync>>) -> Vec<Fault> {
    let both = match both {
        Ok(both) => both,
        Err(error) => return vec![error.fault()],
    };
    let progress = Progress::new(Arc::new(NoopObserver));
    let fault = |step: Result<SyncAction, FailedJob>| std::future::ready(step.err().map(|missed| missed.error.fault()));
    let mut faults: Vec<_> = both.copying(&progress).filter_map(fault).collect().await;
    faults.extend(both.deleting(&progress).filter_map(fault).collect::<Vec<_>>().await);
    faults
}

#[tokio::test]
async fn a_source_in_its_destination_under_another_host_name_stays() {
    let root = tempfile::tempdir().unwrap();
    let own = local(root.path());
    put(&own, "/p/src/a", Bytes::from_static(b"precious")).await;
    // By ids; by addresses; by a marker, where addresses are not sufficient.
    let foreign = Foreign::of(&own);
    for (store, hosts) in [
        (&own, ["127.0.0.1", "127.0.0.2"]),
        (&foreign, ["localhost", "127.0.0.1"]),
        (&foreign, ["127.0.0.1", "127.0.0.2"]),
    ] {
        let [from, to] = hosts;
        let ends = Job::new(behind(from, store, "/p/src"), behind(to, store, "/p"));
        let faults = refused(Sync::new(ends, deleting())).await;
        assert!(faults.contains(&Fault::InvalidArgument), "{hosts:?}: {faults:?}");
        assert_eq!(get(&own, "/p/src/a").await.unwrap(), "precious", "{hosts:?}");
    }
    assert!(tree(&own, "/p").await.keys().all(|name| !name.contains("marker")), "markers are removed");
}

/// The server reports no ids and also exports the target of the link.
#[tokio::test]
async fn a_source_that_a_link_leads_to_stays() {
    let root = tempfile::tempdir().unwrap();
    let whole: Arc<dyn Store> = Arc::new(
        LocalStore::open(Path::new("/"), LocalOptions { scope: Scope::User, ..LocalOptions::default() }).unwrap(),
    );
    put(&local(root.path()), "/export/dir/src/a", Bytes::from_static(b"precious")).await;
    let export = local(&root.path().join("export"));
    symlink(root.path().join("export/dir"), root.path().join("link")).unwrap();
    let from = location(&whole, root.path().join("link/src").to_str().unwrap());
    let ends = Job::new(from, behind("127.0.0.2", &Foreign::of(&export), "/"));
    let faults = refused(Sync::new(ends, deleting())).await;
    assert_eq!(faults, [Fault::InvalidArgument]);
    assert_eq!(get(&export, "/dir/src/a").await.unwrap(), "precious");
}

#[tokio::test]
async fn nothing_is_deleted_while_the_source_does_not_answer() {
    let (from, to) = (FaultStore::new(memory(), Faults::default()), memory());
    put(&to, "/theirs/extra", Bytes::from_static(b"x")).await;
    from.fail("stat", 0, Fault::Unavailable);
    let from: Arc<dyn Store> = Arc::new(from);
    let ends = Job::new(behind("127.0.0.1", &from, "/ours"), location(&to, "/theirs"));
    let error = overlap::refuse_by_marker(&ends, &overlap::EndIds::default()).await.unwrap_err();
    assert_eq!((error.fault(), error.path().map(ToString::to_string)), (Fault::Unavailable, Some("/ours".into())));
    assert_eq!(tree(&to, "/theirs").await.into_keys().collect::<Vec<_>>(), ["/extra"], "the marker is removed");
}

/// The destination exports more of the file system than the source, and is about to delete the source's parent
/// directory.
#[tokio::test]
async fn an_extra_that_holds_the_source_stays() {
    let root = tempfile::tempdir().unwrap();
    let whole = local(root.path());
    put(&whole, "/to/extra/export/src/a", Bytes::from_static(b"precious")).await;
    put(&whole, "/to/extra/other", Bytes::from_static(b"x")).await;
    let export = local(&root.path().join("to/extra/export"));
    let ends = Job::new(behind("127.0.0.1", &export, "/src"), behind("127.0.0.2", &whole, "/to"));
    let faults = refused(Sync::new(ends, deleting())).await;
    assert_eq!(faults, [Fault::InvalidArgument]);
    assert_eq!(get(&export, "/src/a").await.unwrap(), "precious");
    assert!(get(&whole, "/to/extra/other").await.is_err(), "what is beside it goes");
}

#[tokio::test]
async fn a_copy_into_a_directory_below_its_source_ends() {
    let root = tempfile::tempdir().unwrap();
    let whole = local(root.path());
    put(&whole, "/src/a", Bytes::from_static(b"x")).await;
    put(&whole, "/src/export/old", Bytes::from_static(b"x")).await;
    let export = local(&root.path().join("src/export"));
    let ends = Job::new(behind("127.0.0.2", &whole, "/src"), behind("127.0.0.1", &export, "/t"));
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let jobs = crate::jobs(vec![ends], Some(Trees::default()), mover.progress()).unwrap();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    let missed = outcomes.iter().filter(|outcome| matches!(outcome, crate::Outcome::Failed(_))).count();
    assert_eq!((missed, outcomes.len()), (1, 2), "{outcomes:?}");
    assert_eq!(tree(&export, "/t").await, Tree::from([("/a".into(), Some(1))]));
}

#[tokio::test]
async fn what_is_listed_and_not_found_is_not_told_as_deleted() {
    let (from, inner) = (memory(), memory());
    put(&from, "/ours/a", Bytes::from_static(b"x")).await;
    put(&inner, "/theirs/dangling", Bytes::from_static(b"x")).await;
    let to: Arc<dyn Store> = Arc::new(Foreign { inner, unfound: Some("/theirs/dangling") });
    let both = sync(&from, &to, deleting());
    carry_out(|progress| both.copying(progress)).await;
    let steps: Vec<_> = both.deleting(&Progress::new(Arc::new(NoopObserver))).collect().await;
    let [Err(FailedJob { error, .. })] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(error.fault(), Fault::Changed);
}
