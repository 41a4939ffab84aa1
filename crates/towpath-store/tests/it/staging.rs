//! Uploads in progress, and their removal.

use std::{
    fs::File,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use towpath_proto::checksum::Hasher;
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, FileKind, Overwrite, Store as _,
    local::{LocalOptions, LocalStore},
    sys::disk,
};

use crate::directory::{Directory, path};

#[tokio::test]
async fn what_is_staged_goes_with_its_handle() {
    let directory = Directory::new();
    assert!(!directory.host(".towpath").exists(), "a store that is only read leaves no trace");
    let file = directory.create("/file").await.unwrap();
    file.write(0, "content".into()).await.unwrap();
    let staged = directory.staged();
    let digits = staged[0].strip_prefix("upload-").unwrap();
    assert!(staged.len() == 1 && digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{staged:?}");
    drop(file);
    assert!(directory.staged().is_empty());
    let mode = directory.host(".towpath").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "uploads are nobody else's business");
    directory.put("/file", "content").await.unwrap();
    assert!(directory.staged().is_empty());
}

#[tokio::test]
async fn failed_commits_and_dropped_calls_leave_nothing_staged() {
    let directory = Directory::new();
    let file = directory.create("/file").await.unwrap();
    file.commit(Expectation { size: Some(5), ..Expectation::default() }).await.unwrap_err();
    assert!(directory.staged().is_empty());
    let file = directory.create("/file").await.unwrap();
    // The write has begun when the future is dropped; the abort waits for it, because the body is locked.
    let _ = futures::poll!(file.write(0, Bytes::from(vec![7; 1 << 20])));
    file.abort().await.unwrap();
    assert!(directory.staged().is_empty());
}

#[tokio::test]
async fn only_what_nobody_writes_is_removed_when_a_store_is_opened() {
    let directory = Directory::new();
    let alive = directory.create("/alive").await.unwrap();
    alive.write(0, "content".into()).await.unwrap();
    disk::write(&directory.host(".towpath/upload-0123456789abcdef"), b"torso").unwrap();
    disk::write(&directory.host(".towpath/something-else"), b"not ours").unwrap();
    let locked = directory.host(".towpath/upload-0000000000000000");
    disk::write(&locked, b"of another process").unwrap();
    let other = disk::open(&locked).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    assert_eq!(directory.staged().len(), 4);
    directory.store_in("");
    let mut left = directory.staged();
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains(&"upload-0123456789abcdef".to_owned()), "{left:?}");
    alive.commit(Expectation::default()).await.unwrap();
    assert_eq!(directory.get("/alive").await.unwrap(), "content");
}

#[tokio::test]
async fn a_staging_directory_that_was_removed_is_made_again() {
    let directory = Directory::new();
    directory.put("/one", "content").await.unwrap();
    std::fs::remove_dir(directory.host(".towpath")).unwrap();
    directory.put("/two", "content").await.unwrap();
}

#[tokio::test]
async fn a_staging_directory_that_others_can_write_to_is_not_used() {
    let own_name = format!(".towpath-{}", rustix::process::geteuid().as_raw());
    let plants: [fn(&std::path::Path); 3] = [
        |area| std::fs::create_dir(area).and_then(|()| set_mode(area, 0o777)).unwrap(),
        |area| std::os::unix::fs::symlink("elsewhere", area).unwrap(),
        |area| disk::write(area, b"a file").unwrap(),
    ];
    for plant in plants {
        let directory = Directory::new();
        std::fs::create_dir(directory.host("elsewhere")).unwrap();
        plant(&directory.host(".towpath"));
        let store = directory.store_in("");
        let file = store.create(&Caller::local(), &path("/file"), CreateOptions::default()).await.unwrap();
        assert_eq!(directory.host(&own_name).read_dir().unwrap().count(), 1);
        file.commit(Expectation::default()).await.unwrap();
        let listed =
            futures::TryStreamExt::try_concat(store.list(&Caller::local(), &path("/"), Default::default())).await;
        assert_eq!(listed.unwrap().len(), 2, "both names are hidden");
        // This name is unusable too, so no staging area is left.
        set_mode(&directory.host(&own_name), 0o770).unwrap();
        let outcome = directory.store_in("").create(&Caller::local(), &path("/more"), CreateOptions::default()).await;
        assert_eq!(outcome.unwrap_err().fault(), Fault::PermissionDenied);
    }
}

#[tokio::test]
async fn a_staging_directory_of_another_user_is_not_used() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host(".towpath")).unwrap();
    if std::os::unix::fs::chown(directory.host(".towpath"), Some(12345), None).is_err() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    let _file = directory.create("/file").await.unwrap();
    assert!(directory.staged().is_empty());
}

fn set_mode(path: &std::path::Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[tokio::test]
async fn a_directory_that_moves_away_during_an_upload_gets_nothing() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("before")).unwrap();
    let file = directory.create("/before/file").await.unwrap();
    let (me, before, after) = (&Caller::local(), path("/before"), path("/after"));
    directory.store.rename(me, &before, &after, Overwrite::Refuse).await.unwrap();
    assert_eq!(file.commit(Expectation::default()).await.unwrap_err().fault(), Fault::NotFound);
    assert_eq!(directory.host("after").read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn commit_waits_for_a_piece_that_is_being_written() {
    let directory = Directory::new();
    let file = directory.create("/file").await.unwrap();
    // Large enough to take a while.
    let piece = Bytes::from(vec![1; 64 << 20]);
    // Polled once, so that the write has begun, and dropped: the write continues without the future.
    assert!(futures::poll!(Box::pin(file.write(0, piece.clone()))).is_pending());
    let size = Some(piece.len() as u64);
    let metadata = file.commit(Expectation { size, ..Expectation::default() }).await.unwrap();
    assert!(!metadata.digests.is_empty());
    assert_eq!(metadata.digests, Hasher::digest(metadata.digests.algorithms(), &piece));
    assert!(directory.get("/file").await.unwrap() == piece);
}

#[tokio::test]
async fn a_file_gets_the_group_of_a_directory_that_hands_it_on() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("shared")).unwrap();
    if std::os::unix::fs::chown(directory.host("shared"), None, Some(12345)).is_err() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    let mode = std::fs::Permissions::from_mode(0o2775);
    std::fs::set_permissions(directory.host("shared"), mode).unwrap();
    directory.put("/shared/file", "content").await.unwrap();
    let group = std::os::unix::fs::MetadataExt::gid(&directory.host("shared/file").metadata().unwrap());
    assert_eq!(group, 12345);
}

#[tokio::test]
async fn a_file_on_another_mount_is_staged_there() {
    let directory = Directory::on_disk();
    let Some(_mount) = crate::disk_full::Mount::new(&directory.host("mounted"), "1m") else { return };
    std::fs::create_dir(directory.host("mounted/deep")).unwrap();
    let file = directory.create("/mounted/deep/file").await.unwrap();
    file.write(0, "content".into()).await.unwrap();
    assert!(directory.staged().is_empty());
    assert_eq!(directory.host("mounted/.towpath").read_dir().unwrap().count(), 1);
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(directory.get("/mounted/deep/file").await.unwrap(), "content");
    let (me, there) = (&Caller::local(), path("/there"));
    let moved = directory.store.rename(me, &path("/mounted/deep/file"), &there, Overwrite::Refuse).await;
    assert_eq!(moved.unwrap_err().fault(), Fault::Unsupported);
    directory.store.copy(me, &path("/mounted/deep/file"), &there, Overwrite::Refuse).await.unwrap();
    assert_eq!(directory.get("/there").await.unwrap(), "content");
    let entries: Vec<_> = directory.host("mounted").read_dir().unwrap().collect();
    assert_eq!(entries.len(), 2);
    let listed = directory.store.list(me, &path("/mounted"), Default::default());
    let listed = futures::TryStreamExt::try_concat(listed).await.unwrap();
    assert_eq!(listed.len(), 1, "the staging directory of a mount is hidden too");
    drop(file);
}

#[tokio::test]
async fn special_files_are_neither_opened_nor_waited_for() {
    let directory = Directory::new();
    let (fifo, mode) = (directory.host("fifo"), rustix::fs::Mode::RWXU);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    assert_eq!(directory.stat("/fifo").await.unwrap().kind, FileKind::Other);
    assert_eq!(directory.get("/fifo").await.unwrap_err().fault(), Fault::NotRegular);
    let me = &Caller::local();
    assert_eq!(directory.store.update(me, &path("/fifo")).await.unwrap_err().fault(), Fault::NotRegular);
    directory.store.remove_file(me, &path("/fifo")).await.unwrap();
}

#[tokio::test]
async fn special_files_are_not_replaced() {
    let directory = Directory::new();
    let me = &Caller::local();
    directory.put("/file", "content").await.unwrap();
    let begun = directory.create("/fifo").await.unwrap();
    let (fifo, mode) = (directory.host("fifo"), rustix::fs::Mode::RWXU);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    let (file, at) = (path("/file"), path("/fifo"));
    let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    let outcomes = [
        directory.store.create(me, &at, options.clone()).await.map(drop),
        directory.store.copy(me, &file, &at, Overwrite::Replace).await,
        directory.store.rename(me, &file, &at, Overwrite::Replace).await,
    ];
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().fault(), Fault::NotRegular);
    }
    drop(begun);
    // A file that was created during the upload.
    let begun = directory.store.create(me, &path("/late"), options).await.unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.host("late"), mode).unwrap();
    assert_eq!(begun.commit(Expectation::default()).await.unwrap_err().fault(), Fault::NotRegular);
    for name in ["fifo", "late"] {
        assert!(directory.host(name).metadata().unwrap().file_type().is_fifo(), "{name}");
    }
    assert_eq!(directory.get("/file").await.unwrap(), "content");
}

#[tokio::test]
async fn a_file_of_unknown_length_is_not_taken_for_an_empty_one() {
    let processes = LocalStore::open(std::path::Path::new("/proc"), LocalOptions::default()).unwrap();
    let me = &Caller::local();
    assert_eq!(processes.stat(me, &path("/cpuinfo")).await.unwrap().size, 0);
    let opened = processes.open(me, &path("/cpuinfo"), Default::default()).await;
    assert_eq!(opened.unwrap_err().fault(), Fault::NotRegular);
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let directory = Directory::new();
    File::create_new(directory.host("file")).unwrap();
    let open = |name| LocalStore::open(&directory.host(name), LocalOptions::default()).unwrap_err().fault();
    assert_eq!((open("file"), open("missing")), (Fault::NotDirectory, Fault::NotFound));
}

#[tokio::test]
async fn two_stores_upload_the_same_name_only_once() {
    let directory = Directory::new();
    let stores: Vec<_> = (0..8).map(|_| directory.store_in("")).collect();
    let target = path("/file");
    let uploads = stores.iter().map(async |store| {
        let file = store.create(&Caller::local(), &target, CreateOptions::default()).await?;
        file.write(0, "content".into()).await?;
        file.commit(Expectation::default()).await
    });
    let outcomes = futures::future::join_all(uploads).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let refused = outcomes.into_iter().filter_map(towpath_store::Result::err);
    assert!(refused.into_iter().all(|error| error.fault() == Fault::AlreadyExists));
    assert!(directory.staged().is_empty());
}

#[tokio::test]
async fn a_staging_directory_keeps_its_directory_only_while_an_upload_is_under_way() {
    let directory = Directory::new();
    let area = directory.host("directory/.towpath");
    std::fs::create_dir_all(&area).unwrap();
    std::fs::set_permissions(&area, std::fs::Permissions::from_mode(0o700)).unwrap();
    disk::write(&area.join("upload-0123456789abcdef"), b"torso").unwrap();
    disk::write(&area.join("upload-0000000000000000"), b"of another process").unwrap();
    let other = disk::open(&area.join("upload-0000000000000000")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let (me, at) = (&Caller::local(), path("/directory"));
    assert_eq!(directory.store.remove_directory(me, &at).await.unwrap_err().fault(), Fault::NotEmpty);
    drop(other);
    directory.store.remove_directory(me, &at).await.unwrap();
    assert!(!directory.host("directory").exists());
}

#[tokio::test]
async fn nobody_notices_that_the_piece_of_a_small_file_waits_for_the_commit() {
    let directory = Directory::new();
    let create = async |size| {
        let options =
            CreateOptions { size_hint: Some(size), overwrite: Overwrite::Replace, ..CreateOptions::default() };
        directory.store.create(&Caller::local(), &path("/file"), options).await.unwrap()
    };
    let on_disk = || directory.host(&format!(".towpath/{}", directory.staged()[0])).metadata().unwrap().len();

    let file = create(7).await;
    file.write(0, "content".into()).await.unwrap();
    assert_eq!((file.metadata().await.unwrap().size, on_disk()), (7, 0), "it is in memory");
    assert_eq!(file.read(3, 10).await.unwrap(), "tent");
    assert_eq!((file.metadata().await.unwrap().size, on_disk()), (7, 7), "what is read was written before");
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(directory.get("/file").await.unwrap(), "content");

    // Later writes overwrite earlier ones, independently of the announced size.
    let file = create(3).await;
    for (offset, piece) in [(0, "aaaaaa"), (2, "bb"), (6, "cccc")] {
        file.write(offset, piece.into()).await.unwrap();
    }
    let committed = file.commit(Expectation { size: Some(10), ..Expectation::default() }).await.unwrap();
    let content = directory.get("/file").await.unwrap();
    assert_eq!(content, "aabbaacccc");
    let digest = |algorithm| Hasher::digest_of(algorithm, &content);
    assert!(committed.digests.iter().all(|known| *known == digest(known.algorithm())), "{committed:?}");

    let file = create(10).await;
    file.write(5, "xxxxx".into()).await.unwrap();
    file.set_size(7).await.unwrap();
    file.commit(Expectation { size: Some(7), ..Expectation::default() }).await.unwrap();
    assert_eq!(directory.get("/file").await.unwrap(), "\0\0\0\0\0xx");

    let file = create(7).await;
    file.write(0, "content".into()).await.unwrap();
    file.abort().await.unwrap();
    drop(file);
    assert!(directory.staged().is_empty());
    // Larger than announced: written immediately.
    let file = create(7).await;
    file.write(0, vec![7; 1 << 17].into()).await.unwrap();
    assert_eq!(on_disk(), 1 << 17);
}
