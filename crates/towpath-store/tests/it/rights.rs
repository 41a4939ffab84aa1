//! What the file system forbids. Root may do nearly everything, so the tests take what stops root too.

use std::path::Path;

use rustix::{
    fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open},
    mount::{MountFlags, mount_remount},
};
use towpath_store::{Caller, Changes, Fault, Overwrite, Store as _};

use crate::{
    directory::{Directory, path},
    disk_full::Mount,
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
    assert!(!(can.write || can.update || can.rename || can.copy || can.set_mtime));
    let me = &Caller::local();
    let outcomes = [
        store.create(me, &path("/new"), Default::default()).await.map(drop),
        store.update(me, &path("/file")).await.map(drop),
        store.remove_file(me, &path("/file")).await,
    ];
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap_err().fault() == Fault::ReadOnly));
    assert_eq!(store.stat(me, &path("/file")).await.unwrap().size, 7);
}
