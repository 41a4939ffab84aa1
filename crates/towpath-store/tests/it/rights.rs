//! Permissions of the file system. Root may do nearly everything, so these tests use restrictions that apply to root
//! too, or run as an unprivileged user.

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use futures::TryStreamExt as _;
use rustix::{
    fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open},
    mount::{MountFlags, mount_remount},
};
use towpath_proto::checksum::{Algorithm, Algorithms};
use towpath_store::{
    Caller, Changes, CreateOptions, Expectation, Fault, ListOptions, OpenOptions, Overwrite, Store as _,
    local::{Durability, LocalOptions, LocalStore},
};

use crate::{
    directory::{Directory, path},
    disk_full::Mount,
    resuming,
};

fn set_immutable(host: &Path, is_immutable: bool) -> rustix::io::Result<()> {
    let file = open(host, OFlags::RDONLY, Mode::empty())?;
    let mut flags = ioctl_getflags(&file)?;
    flags.set(IFlags::IMMUTABLE, is_immutable);
    ioctl_setflags(&file, flags)
}

#[tokio::test]
async fn what_may_not_be_changed_is_denied() {
    let directory = Directory::on_disk();
    std::fs::create_dir(directory.host("fixed")).unwrap();
    directory.put("/fixed/file", "content").await.unwrap();
    directory.put("/file", "content").await.unwrap();
    if let Err(errno) = set_immutable(&directory.host("fixed"), true) {
        eprintln!("skipped: this file system or user cannot make a directory immutable ({errno})");
        return;
    }
    let (me, file) = (&Caller::local(), path("/fixed/file"));
    let outcomes = [
        directory.put("/fixed/new", "content").await.map(drop),
        directory.put("/fixed/file", "content").await.map(drop),
        directory.store.remove_file(me, &file).await,
        directory.store.rename(me, &file, &path("/moved"), Overwrite::Refuse).await,
        directory.store.rename(me, &path("/file"), &path("/fixed/moved"), Overwrite::Refuse).await,
        directory.store.copy(me, &path("/file"), &path("/fixed/copy"), Overwrite::Refuse).await,
        directory.store.make_directory(me, &path("/fixed/directory"), false, None).await,
        directory.store.change(me, &path("/fixed"), Changes { mode: Some(0o777), ..Changes::default() }).await,
    ];
    set_immutable(&directory.host("fixed"), false).unwrap();
    for (call, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.unwrap_err().fault(), Fault::PermissionDenied, "call {call}");
    }
    assert_eq!(directory.get("/fixed/file").await.unwrap(), "content");
    assert!(directory.staged().is_empty());
}

#[tokio::test]
async fn a_read_only_file_system_says_so() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("mounted"), "1m") else { return };
    towpath_store::sys::disk::write(&directory.host("mounted/file"), b"content").unwrap();
    mount_remount(directory.host("mounted"), MountFlags::RDONLY, c"").unwrap();
    let store = directory.store_in("mounted");
    let can = store.capabilities();
    assert!(can.is_read_only() && !(can.write_any_order || can.copy || can.set_mtime || can.resume));
    let me = &Caller::local();
    let outcomes = [
        store.create(me, &path("/new"), Default::default()).await.map(drop),
        store.update(me, &path("/file")).await.map(drop),
        store.remove_file(me, &path("/file")).await,
    ];
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap_err().fault() == Fault::ReadOnly));
    assert_eq!(store.stat(me, &path("/file")).await.unwrap().size, 7);
}

/// Returns whether this process runs as an unprivileged user; otherwise runs `test` in a process that does.
fn is_unprivileged(test: &str) -> bool {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    match child.args(["--exact", test]).current_dir("/").uid(NOBODY).gid(NOBODY).status() {
        Ok(status) => assert!(status.success(), "{test} failed"),
        Err(error) => eprintln!("skipped: nobody may not run this program ({error})"),
    }
    false
}

#[tokio::test]
async fn what_may_not_be_read_is_denied() {
    if !is_unprivileged("rights::what_may_not_be_read_is_denied") {
        return;
    }
    let directory = Directory::new();
    let set_mode = |name, mode| {
        std::fs::set_permissions(directory.host(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(directory.host("closed")).unwrap();
    for name in ["/closed/file", "/secret"] {
        directory.put(name, "content").await.unwrap();
    }
    set_mode("closed", 0);
    set_mode("secret", 0);
    let (me, store) = (&Caller::local(), &directory.store);
    let (secret, closed, inside) = (path("/secret"), path("/closed"), path("/closed/file"));
    let outcomes = [
        store.open(me, &secret, OpenOptions::default()).await.map(drop),
        store.update(me, &secret).await.map(drop),
        store.digest(me, &secret, Algorithm::Sha256, &|_| {}).await.map(drop),
        store.copy(me, &secret, &path("/copy"), Overwrite::Refuse).await,
        store.change(me, &secret, Changes { size: Some(0), ..Changes::default() }).await,
        store.list(me, &closed, ListOptions::default()).try_concat().await.map(drop),
        store.stat(me, &inside).await.map(drop),
        store.open(me, &inside, OpenOptions::default()).await.map(drop),
        directory.put("/closed/new", "content").await.map(drop),
        directory.put("/closed/file", "content").await.map(drop),
    ];
    set_mode("closed", 0o700);
    set_mode("secret", 0o600);
    for (call, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        assert_eq!(error.fault(), Fault::PermissionDenied, "call {call}");
        assert!(error.message().ends_with(": Permission denied"), "call {call}: {error}");
    }
    for name in ["/secret", "/closed/file"] {
        assert_eq!(directory.get(name).await.unwrap(), "content");
    }
    assert!(!directory.host("copy").exists() && !directory.host("closed/new").exists());
    assert!(directory.staged().is_empty());
}

#[tokio::test]
async fn a_file_that_nobody_may_write_keeps_its_digests_and_is_copied() {
    if !is_unprivileged("rights::a_file_that_nobody_may_write_keeps_its_digests_and_is_copied") {
        return;
    }
    let directory = Directory::new();
    let (me, at) = (&Caller::local(), path("/file"));
    let options = CreateOptions { mode: Some(0o644), ..CreateOptions::default() };
    let file = directory.store.create(me, &at, options).await.unwrap();
    file.write(0, "content".into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    directory.store.set_attribute(me, &at, b"colour", Some(b"red"), true).await.unwrap();
    let changes = Changes { mode: Some(0o444), mtime_ns: Some(86_400_000_000_000), ..Changes::default() };
    directory.store.change(me, &at, changes).await.unwrap();
    let options = CreateOptions { mode: Some(0o444), ..CreateOptions::default() };
    let other = directory.store.create(me, &path("/other"), options).await.unwrap();
    other.write(0, "other".into()).await.unwrap();
    other.commit(Expectation::default()).await.unwrap();
    directory.store.copy(me, &at, &path("/copy"), Overwrite::Refuse).await.unwrap();
    for name in ["/file", "/other", "/copy"] {
        let metadata = directory.stat(name).await.unwrap();
        assert_eq!((metadata.mode, metadata.digests.algorithms()), (Some(0o444), Algorithms::DEFAULT), "{name}");
    }
    let attributes = directory.store.attributes(me, &path("/copy")).await.unwrap();
    assert_eq!(attributes, [("colour".into(), "red".into())]);
}

#[tokio::test]
async fn an_upload_is_taken_up_though_a_commit_that_was_killed_had_set_its_mode() {
    if !is_unprivileged("rights::an_upload_is_taken_up_though_a_commit_that_was_killed_had_set_its_mode") {
        return;
    }
    let directory = Directory::new();
    let (me, at, options) = (&Caller::local(), path("/file"), resuming::options(5_000_000));
    let file = directory.store.create(me, &at, options.clone()).await.unwrap();
    resuming::write(&*file, 0, 4_000_000).await;
    drop(file);
    let staged = directory.staged().into_iter().find(|name| !name.contains('.')).unwrap();
    let host = directory.host(".towpath").join(staged);
    std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o444)).unwrap();
    let file = directory.store.create(me, &at, options).await.unwrap();
    assert_eq!(file.metadata().await.unwrap().size, 4_000_000);
    resuming::finish(&directory, &*file, 5_000_000).await;
}

#[tokio::test]
async fn nothing_is_visible_where_the_directory_cannot_be_synced() {
    if !is_unprivileged("rights::nothing_is_visible_where_the_directory_cannot_be_synced") {
        return;
    }
    let directory = Directory::new();
    std::fs::create_dir(directory.host("box")).unwrap();
    let set_mode = |mode| {
        std::fs::set_permissions(directory.host("box"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let options = LocalOptions { durability: Durability::FileAndDirectory, ..LocalOptions::default() };
    let store = LocalStore::open(&directory.host(""), options).unwrap();
    let file = store.create(&Caller::local(), &path("/box/file"), CreateOptions::default()).await.unwrap();
    set_mode(0o333);
    assert_eq!(file.commit(Expectation::default()).await.unwrap_err().fault(), Fault::PermissionDenied);
    directory.put("/box/other", "content").await.unwrap();
    set_mode(0o700);
    assert!(!directory.host("box/file").exists());
    assert!(directory.host("box/other").exists(), "without the sync of the directory it need not be read");
}
