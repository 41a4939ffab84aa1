//! A full disk: a small in-memory file system mounted by the test.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use towpath_proto::checksum::Hasher;
use towpath_store::{Caller, CreateOptions, Expectation, Fault, Overwrite, Store as _, sys::disk};

use crate::directory::{Directory, path};

/// A mounted tmpfs, unmounted on drop.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a file system of `size` at `at`, which is created. Returns `None` and prints a message if mounting is not
    /// permitted.
    pub(crate) fn new(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        let mounted = rustix::mount::mount("towpath-test", at, "tmpfs", rustix::mount::MountFlags::empty(), &*data);
        match mounted {
            Ok(()) => Some(Self(at.to_owned())),
            Err(errno) => {
                eprintln!("skipped: this test mounts a file system, and may not ({errno})");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

const FULL: &str = "writing: No space left on device";

#[tokio::test]
async fn an_upload_to_a_full_disk_fails_and_gives_the_room_back() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "1m") else { return };
    let store = directory.store_in("small");
    let me = &Caller::local();
    let free = async || store.space(me, &path("/")).await.unwrap().free;
    let file = store.create(me, &path("/file"), CreateOptions::default()).await.unwrap();
    let before = free().await;
    let piece = Bytes::from(vec![1; 512 * 1024]);
    file.write(0, piece.clone()).await.unwrap();
    let mut offset = 512 * 1024;
    let error = loop {
        match file.write(offset, piece.clone()).await {
            Ok(()) => offset += 512 * 1024,
            Err(error) => break error,
        }
    };
    assert_eq!((error.fault(), error.message()), (Fault::NoSpace, FULL));
    assert!(offset <= 1 << 20);
    file.abort().await.unwrap();
    assert_eq!(free().await, before, "the room is back");
    assert_eq!(left(&directory), [".towpath"], "neither a torso nor a temporary file");
    drop(file);
    let file = store.create(me, &path("/file"), CreateOptions::default()).await.unwrap();
    file.write(0, piece).await.unwrap();
    file.commit(Expectation { size: Some(512 * 1024), ..Expectation::default() }).await.unwrap();
    let options = CreateOptions { size_hint: Some(700 * 1024), ..CreateOptions::default() };
    let hinted = store.create(me, &path("/other"), options).await;
    assert_eq!(hinted.unwrap_err().fault(), Fault::NoSpace, "found out before the first byte");
}

/// The files in the small file system, including staging files.
fn left(directory: &Directory) -> Vec<String> {
    let names = |host: std::path::PathBuf| {
        let entries = host.read_dir().unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    [names(directory.host("small")), names(directory.host("small/.towpath"))].concat()
}

#[tokio::test]
async fn a_small_file_that_waits_in_memory_while_the_disk_fills_fails_when_it_is_committed() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "1m") else { return };
    let store = directory.store_in("small");
    let me = &Caller::local();
    let options = CreateOptions { size_hint: Some(10_000), ..CreateOptions::default() };
    let file = store.create(me, &path("/file"), options).await.unwrap();
    file.write(0, vec![1; 10_000].into()).await.unwrap();
    let hog = store.create(me, &path("/hog"), CreateOptions::default()).await.unwrap();
    hog.write(0, vec![1; 2 << 20].into()).await.unwrap_err();
    let error = file.commit(Expectation::default()).await.unwrap_err();
    assert_eq!((error.fault(), error.message()), (Fault::NoSpace, FULL));
    drop(hog);
    assert_eq!(left(&directory), [".towpath"], "neither a torso nor a temporary file");
}

#[tokio::test]
async fn a_copy_to_a_full_disk_leaves_nothing() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "1m") else { return };
    disk::write(&directory.host("large"), &vec![1; 2 << 20]).unwrap();
    let me = &Caller::local();
    let (large, copy) = (path("/large"), path("/small/copy"));
    let error = directory.store.copy(me, &large, &copy, Overwrite::Replace).await.unwrap_err();
    assert_eq!((error.fault(), error.message()), (Fault::NoSpace, "copying: No space left on device"));
    assert_eq!(left(&directory), [".towpath"], "neither a torso nor a temporary file");
}

#[tokio::test]
async fn digests_are_not_those_of_zeros_where_a_part_of_a_failed_piece_is() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "1m") else { return };
    let store = directory.store_in("small");
    let file = store.create(&Caller::local(), &path("/file"), CreateOptions::default()).await.unwrap();
    file.write(0, vec![1; 1000].into()).await.unwrap();
    file.write(1000, vec![1; 2 << 20].into()).await.unwrap_err();
    let written = usize::try_from(file.metadata().await.unwrap().size).unwrap();
    assert!(written > 1000, "a part was written");
    let known = file.commit(Expectation::default()).await.unwrap().digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &vec![1; written]));
}
