//! Several stores in one namespace.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use towpath_store::{
    Caller, CombinedStore, CreateOptions, Expectation, Fault, FileKind, ListOptions, OpenOptions, Overwrite, Result,
    Store, StorePath,
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
    sys::disk,
};
use towpath_testkit::{
    conformance::{self, Fixture},
    fault::{FaultStore, Faults},
    limited_store::LimitedStore,
};

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// Returns a store with `/a`, `/vo/b` and `/vo/c`.
fn combined() -> CombinedStore {
    let member = |prefix: &str| (path(prefix), Arc::new(MemoryStore::new(1 << 20)) as Arc<dyn Store>);
    CombinedStore::new(vec![member("/a"), member("/vo/b"), member("/vo/c")]).unwrap()
}

async fn write(store: &CombinedStore, at: &str) -> Result<()> {
    let handle = store.create(&Caller::local(), &path(at), CreateOptions::default()).await?;
    handle.write(0, at.to_owned().into()).await?;
    handle.commit(Expectation::default()).await.map(drop)
}

async fn names(store: &CombinedStore, at: &str) -> Result<Vec<String>> {
    let batches = store.list(&Caller::local(), &path(at), ListOptions { metadata: true, digests: false });
    let entries: Vec<_> = batches.try_concat().await?;
    let mut names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn a_combined_store_keeps_the_promises() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    let local: Arc<dyn Store> = Arc::new(local);
    let alone = CombinedStore::new(vec![(path("/vo/data"), Arc::clone(&local))]).unwrap();
    // What one store does not support, no store does: for instance resumption, by a store in memory.
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new(0));
    let members = vec![(path("/memory"), memory), (path("/vo/data"), local)];
    let beside_read_only = CombinedStore::with_read_only(members.clone(), &[path("/memory")]).unwrap();
    assert!(beside_read_only.capabilities().resume, "nothing is written to the store that does not support it");
    let beside = CombinedStore::new(members.clone()).unwrap();
    assert_eq!([alone.capabilities().resume, beside.capabilities().resume], [true, false]);
    let closed = CombinedStore::with_read_only(members.clone(), &[path("/memory"), path("/vo/data")]).unwrap();
    assert!(closed.capabilities().is_read_only());
    let accepting: Arc<dyn Store> = Arc::new(LimitedStore::create_only(Arc::new(MemoryStore::new(0))));
    let beside_accepting = CombinedStore::new([members.clone(), vec![(path("/in"), accepting)]].concat()).unwrap();
    let can = beside_accepting.capabilities();
    assert!(can.create && !(can.rename || can.remove || can.update), "{can:?}");
    for (store, name) in [(alone, "alone"), (beside, "beside")] {
        let directory = path("/vo/data").join(name.as_bytes()).unwrap();
        store.make_directory(&Caller::local(), &directory, false, None).await.unwrap();
        conformance::check(&Fixture { directory, ..Fixture::new(Arc::new(store)) }).await;
    }
}

#[tokio::test]
async fn directories_above_the_stores_can_be_listed_and_not_changed() {
    let (store, caller) = (combined(), Caller::local());
    write(&store, "/vo/b/file").await.unwrap();
    assert_eq!(names(&store, "/").await.unwrap(), ["a", "vo"]);
    assert_eq!(names(&store, "/vo").await.unwrap(), ["b", "c"]);
    assert_eq!(names(&store, "/vo/b").await.unwrap(), ["file"]);
    assert_eq!(names(&store, "/b").await.unwrap_err().fault(), Fault::NotFound);
    for at in ["/", "/vo", "/vo/b"] {
        assert_eq!(store.stat(&caller, &path(at)).await.unwrap().kind, FileKind::Directory, "{at}");
        assert!(store.remove_directory(&caller, &path(at)).await.is_err(), "{at}");
        assert_eq!(store.remove_file(&caller, &path(at)).await.unwrap_err().fault(), Fault::IsDirectory, "{at}");
        store.make_directory(&caller, &path(at), true, None).await.unwrap();
        let again = store.make_directory(&caller, &path(at), false, None).await;
        assert_eq!(again.unwrap_err().fault(), Fault::AlreadyExists, "{at}");
    }
    for at in ["/file", "/vo/file"] {
        let error = write(&store, at).await.unwrap_err();
        assert_eq!(error.fault(), Fault::ReadOnly);
        assert!(error.message().ends_with("/a, /vo/b, /vo/c"), "{error}");
        let missing = store.remove_file(&caller, &path(at)).await.unwrap_err();
        assert_eq!((missing.fault(), missing.path()), (Fault::NotFound, Some(&path(at))));
    }
}

#[tokio::test]
async fn nothing_is_renamed_from_one_store_to_another() {
    let (store, caller) = (combined(), Caller::local());
    write(&store, "/a/x").await.unwrap();
    let renamed = store.rename(&caller, &path("/a/x"), &path("/vo/b/x"), Overwrite::Refuse).await;
    assert_eq!(renamed.unwrap_err().fault(), Fault::Unsupported);
    assert_eq!(names(&store, "/vo/b").await.unwrap(), [""; 0]);
    store.rename(&caller, &path("/a/x"), &path("/a/y"), Overwrite::Refuse).await.unwrap();
    assert_eq!(names(&store, "/a").await.unwrap(), ["y"]);
}

#[tokio::test]
async fn a_copy_from_one_store_to_another_is_the_same() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let member = |prefix: &str, directory: &tempfile::TempDir| {
        let store = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
        (path(prefix), Arc::new(store) as Arc<dyn Store>)
    };
    let store = CombinedStore::new(vec![member("/a", &directories[0]), member("/b", &directories[1])]).unwrap();
    let (caller, from, to) = (Caller::local(), path("/a/x"), path("/b/x"));
    let content: Vec<u8> = (0..5_000_001_u32).map(|number| (number % 251) as u8).collect();
    let handle = store.create(&caller, &from, CreateOptions { mode: Some(0o640), ..CreateOptions::default() });
    let handle = handle.await.unwrap();
    handle.write(0, content.clone().into()).await.unwrap();
    handle.commit(Expectation::default()).await.unwrap();
    store.set_attribute(&caller, &from, b"colour", Some(b"red"), false).await.unwrap();

    store.copy(&caller, &from, &to, Overwrite::Refuse).await.unwrap();
    let [original, copy] = [store.stat(&caller, &from).await.unwrap(), store.stat(&caller, &to).await.unwrap()];
    assert_eq!((copy.size, copy.mode, &copy.digests), (original.size, original.mode, &original.digests));
    assert!(!copy.digests.is_empty());
    assert_eq!(store.attributes(&caller, &to).await.unwrap(), [("colour".into(), "red".into())]);
    assert_eq!(disk::read(&directories[1].path().join("x"), 1 << 30).unwrap(), content);
    for (from, to, fault) in [
        ("/a/x", "/b/x", Fault::AlreadyExists),
        ("/a/none", "/b/y", Fault::NotFound),
        ("/a", "/b/y", Fault::IsDirectory),
        ("/", "/b/y", Fault::IsDirectory),
        ("/a/x", "/c", Fault::ReadOnly),
    ] {
        let refused = store.copy(&caller, &path(from), &path(to), Overwrite::Refuse).await;
        assert_eq!(refused.unwrap_err().fault(), fault, "{from} {to}");
    }
    assert_eq!(names(&store, "/b").await.unwrap(), ["x"]);
}

#[tokio::test]
async fn the_space_of_several_stores_is_that_of_each() {
    let (store, caller) = (combined(), Caller::local());
    assert_eq!(store.space(&caller, &path("/vo/b")).await.unwrap().total, 1 << 20);
    let error = store.space(&caller, &path("/vo")).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Unsupported);
    assert!(error.message().ends_with("one of /vo/b, /vo/c"), "{error}");
    assert_eq!(store.space(&caller, &path("/none")).await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test]
async fn errors_have_the_path_in_the_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    let store = CombinedStore::new(vec![(path("/vo/b"), Arc::new(local))]).unwrap();
    let (caller, file) = (Caller::local(), path("/vo/b/file"));
    let missing = store.open(&caller, &file, OpenOptions::default()).await.unwrap_err();
    assert_eq!(missing.path(), Some(&file));
    write(&store, "/vo/b/file").await.unwrap();
    let handle = store.open(&caller, &file, OpenOptions::default()).await.unwrap();
    disk::write(&directory.path().join("file"), b"changed").unwrap();
    let changed = handle.read(0, 1 << 10).await.unwrap_err();
    assert_eq!((changed.fault(), changed.path()), (Fault::Changed, Some(&file)));
    let listing = store.list(&caller, &file, ListOptions::default()).next().await.unwrap().unwrap_err();
    assert_eq!(listing.path(), Some(&file));
}

#[tokio::test]
async fn a_listing_does_not_wait_for_the_stores() {
    let broken = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
    let member: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
    let store = CombinedStore::new(vec![(path("/a"), Arc::new(broken.clone())), (path("/b"), member)]).unwrap();
    let gate = broken.hold("stat");
    assert_eq!(names(&store, "/").await.unwrap(), ["a", "b"]);
    drop(gate);
    broken.fail("stat", 0, Fault::Io);
    assert_eq!(store.stat(&Caller::local(), &path("/a")).await.unwrap_err().fault(), Fault::Io);
}

#[test]
fn nested_prefixes_are_refused() {
    let member = |prefix: &str| (path(prefix), Arc::new(MemoryStore::new(0)) as Arc<dyn Store>);
    for (a, b) in [("/a", "/a"), ("/a", "/a/b"), ("/", "/b")] {
        let error = CombinedStore::new(vec![member(a), member(b)]).unwrap_err();
        assert_eq!(error.fault(), Fault::InvalidArgument, "{a} {b}");
    }
    assert!(CombinedStore::new(Vec::new()).is_err());
}
