//! Paths cannot leave the root.

use std::{os::unix::fs::symlink, path::Path, sync::Arc};

use futures::TryStreamExt as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use towpath_store::{
    Caller, Changes, CreateOptions, Expectation, Fault, FileKind, ListOptions, OpenOptions, Overwrite, Result,
    Store as _, StorePath, local::LocalStore, sys::disk,
};

use crate::directory::{Directory, path};

/// Creates `secret` next to the root `inside`, and several kinds of links that lead there.
fn with_links() -> (Directory, LocalStore) {
    let outer = Directory::new();
    std::fs::create_dir_all(outer.host("inside/directory")).unwrap();
    std::fs::create_dir(outer.host("outside")).unwrap();
    disk::write(&outer.host("outside/secret"), b"secret").unwrap();
    disk::write(&outer.host("inside/file"), b"content").unwrap();
    let link = |target: &Path, name: &str| symlink(target, outer.host("inside").join(name)).unwrap();
    link(&outer.host("outside"), "absolute");
    link(Path::new("../outside"), "relative");
    link(Path::new("relative"), "chain-1");
    link(Path::new("chain-1"), "chain-2");
    link(Path::new("directory/../../outside"), "winding");
    link(&outer.host("outside/secret"), "absolute-file");
    link(Path::new("/proc/self/root"), "magic");
    link(Path::new("loop"), "loop");
    link(Path::new("missing"), "dangling");
    link(Path::new("directory/../file"), "inner");
    link(Path::new("directory"), "inner-directory");
    let store = outer.store_in("inside");
    (outer, store)
}

/// Returns the results of all calls for the path `at`.
async fn all_calls(store: &LocalStore, at: &StorePath) -> Vec<Result<()>> {
    let me = &Caller::local();
    let below = at.join(b"new").unwrap();
    let file = path("/file");
    vec![
        store.stat(me, at).await.map(drop),
        store.open(me, at, OpenOptions::default()).await.map(drop),
        store.update(me, at).await.map(drop),
        store.list(me, at, ListOptions::default()).try_collect::<Vec<_>>().await.map(drop),
        store.create(me, &below, CreateOptions { parents: true, ..CreateOptions::default() }).await.map(drop),
        store.make_directory(me, &below, true, None).await,
        store.remove_file(me, &at.join(b"secret").unwrap()).await,
        store.remove_directory(me, &below).await,
        store.rename(me, &file, &below, Overwrite::Replace).await,
        store.copy(me, &file, &below, Overwrite::Replace).await,
        store.copy(me, at, &path("/copy"), Overwrite::Replace).await,
        store.change(me, at, Changes { mode: Some(0o777), ..Changes::default() }).await,
        store.set_attribute(me, at, b"name", Some(b"value"), false).await,
        store.attributes(me, at).await.map(drop),
        store.space(me, at).await.map(drop),
    ]
}

#[tokio::test]
async fn links_that_lead_out_are_refused_by_every_call() {
    let (outer, store) = with_links();
    for name in ["absolute", "relative", "chain-1", "chain-2", "winding"] {
        let results = all_calls(&store, &path(&format!("/{name}"))).await;
        for (call, result) in results.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().fault(), Fault::PermissionDenied, "call {call} by {name}");
        }
    }
    let file = store.open(&Caller::local(), &path("/absolute-file"), OpenOptions::default()).await;
    assert_eq!(file.unwrap_err().fault(), Fault::PermissionDenied);
    assert_eq!(disk::read(&outer.host("outside/secret"), 100).unwrap(), b"secret");
    assert_eq!(outer.host("outside").read_dir().unwrap().count(), 1);
}

#[tokio::test]
async fn links_of_the_kernel_and_circles_are_refused() {
    let (_outer, store) = with_links();
    for name in ["magic", "magic/etc", "loop"] {
        assert!(store.stat(&Caller::local(), &path(&format!("/{name}"))).await.is_err(), "{name}");
    }
    let dangling = store.stat(&Caller::local(), &path("/dangling")).await;
    assert_eq!(dangling.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test]
async fn links_that_stay_inside_work() {
    let (_outer, store) = with_links();
    let me = &Caller::local();
    let file = store.open(me, &path("/inner"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "content");
    assert!(store.stat(me, &path("/inner-directory")).await.unwrap().is_directory());
    let file = store.create(me, &path("/inner-directory/new"), CreateOptions::default()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(store.stat(me, &path("/directory/new")).await.unwrap().kind, FileKind::File);
}

#[tokio::test]
async fn links_are_listed_as_what_they_point_to() {
    let (_outer, store) = with_links();
    for metadata in [false, true] {
        let options = ListOptions { metadata, digests: metadata };
        let entries = store.list(&Caller::local(), &StorePath::root(), options).try_concat().await.unwrap();
        assert_eq!(entries.len(), 13);
        for entry in entries {
            let expected = match &entry.name[..] {
                b"file" | b"inner" => FileKind::File,
                b"directory" | b"inner-directory" => FileKind::Directory,
                _ => FileKind::Other,
            };
            assert_eq!(entry.metadata.kind, expected, "{:?}", entry.name);
        }
    }
}

#[tokio::test]
async fn the_staging_directory_is_out_of_reach() {
    let directory = Directory::new();
    directory.put("/file", "content").await.unwrap();
    let file = directory.create("/upload").await.unwrap();
    let staged = format!("/.towpath/{}", directory.staged()[0]);
    for at in ["/.towpath", &staged, "/.towpath/deeper/still"] {
        let results = all_calls(&directory.store, &path(at)).await;
        assert!(results.into_iter().all(|result| result.unwrap_err().fault() == Fault::PermissionDenied), "{at}");
    }
    let me = &Caller::local();
    let root = StorePath::root();
    let entries = directory.store.list(me, &root, ListOptions::default()).try_concat().await.unwrap();
    assert_eq!(entries.len(), 1);
    file.commit(Expectation::default()).await.unwrap();
    let onto = directory.store.rename(me, &path("/file"), &path("/.towpath"), Overwrite::Replace).await;
    assert_eq!(onto.unwrap_err().fault(), Fault::PermissionDenied);
}

/// While files below a directory are opened and written, the directory is repeatedly exchanged with a link that leads
/// out of the export.
#[tokio::test]
async fn a_directory_that_becomes_a_link_while_it_is_opened_leads_nowhere() {
    let outer = Directory::new();
    for name in ["inside/directory", "outside"] {
        std::fs::create_dir_all(outer.host(name)).unwrap();
        disk::write(&outer.host(name).join("file"), name.as_bytes()).unwrap();
    }
    symlink(outer.host("outside"), outer.host("inside/link")).unwrap();
    let store = outer.store_in("inside");
    let (directory, link) = (outer.host("inside/directory"), outer.host("inside/link"));
    let race = Arc::new(());
    let is_on = Arc::downgrade(&race);
    let exchanger = std::thread::spawn(move || {
        while is_on.strong_count() > 0 {
            renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        }
    });
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..2000 {
        match store.open(&Caller::local(), &path("/directory/file"), OpenOptions::default()).await {
            Ok(file) => {
                assert_eq!(file.read(0, 100).await.unwrap(), "inside/directory");
                opened += 1;
            }
            Err(error) => {
                assert_eq!(error.fault(), Fault::PermissionDenied);
                refused += 1;
            }
        }
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        if let Ok(new) = store.create(&Caller::local(), &path("/directory/new"), options).await {
            let _ = new.commit(Expectation::default()).await;
        }
    }
    drop(race);
    exchanger.join().unwrap();
    assert!(opened > 0 && refused > 0, "no race was seen: {opened} opened, {refused} refused");
    assert_eq!(outer.host("outside").read_dir().unwrap().count(), 1, "a file was written outside");
}
