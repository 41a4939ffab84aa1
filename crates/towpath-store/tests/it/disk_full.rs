//! A disk that is full: a small file system in memory, mounted by the test itself.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use towpath_proto::checksum::Hasher;
use towpath_store::{Caller, CreateOptions, Expectation, Fault, Store as _};

use crate::directory::{Directory, path};

/// A tmpfs of its own, unmounted when it is dropped.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts `size` at `at`, which is made; none, with a message, where the test may not mount.
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

#[tokio::test]
async fn an_upload_to_a_full_disk_fails_and_gives_the_room_back() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "1m") else { return };
    let store = directory.store_in("small");
    let me = &Caller::local();
    let free = store.space(me, &path("/")).await.unwrap().free;
    assert!(free <= 1 << 20);
    let file = store.create(me, &path("/file"), CreateOptions::default()).await.unwrap();
    let piece = Bytes::from(vec![1; 512 * 1024]);
    file.write(0, piece.clone()).await.unwrap();
    let mut offset = 512 * 1024;
    let error = loop {
        match file.write(offset, piece.clone()).await {
            Ok(()) => offset += 512 * 1024,
            Err(error) => break error,
        }
    };
    assert_eq!(error.fault(), Fault::NoSpace);
    assert!(offset <= 1 << 20);
    file.abort().await.unwrap();
    drop(file);
    let file = store.create(me, &path("/file"), CreateOptions::default()).await.unwrap();
    file.write(0, piece).await.unwrap();
    file.commit(Expectation { size: Some(512 * 1024), ..Expectation::default() }).await.unwrap();
    let options = CreateOptions { size_hint: Some(700 * 1024), ..CreateOptions::default() };
    let hinted = store.create(me, &path("/other"), options).await;
    assert_eq!(hinted.unwrap_err().fault(), Fault::NoSpace, "found out before the first byte");
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
