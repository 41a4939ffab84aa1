//! Digests and attributes stored with a local file in XRootD's layout.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, getxattr, setxattr, utimensat};
use towpath_proto::checksum::{
    Algorithm, Digests, Hasher,
    xattr::{self, StoredDigest},
};
use towpath_store::{Caller, Changes, Expectation, Fault, OpenOptions, Overwrite, Store as _, sys::clock, sys::disk};

use crate::directory::{Directory, path};

fn kept(file: &Path, algorithm: Algorithm) -> Option<StoredDigest> {
    let mut value = Vec::with_capacity(xattr::ENCODED_BYTES);
    getxattr(file, xattr::attribute_name(algorithm), rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(StoredDigest::decode(algorithm, &value).unwrap())
}

fn keep(file: &Path, algorithm: Algorithm, content: &[u8], mtime_s: i64) {
    let stored = StoredDigest::new(Hasher::digest_of(algorithm, content), (mtime_s, 0), mtime_s + 60);
    let stored = StoredDigest { file_mtime_subsec_ns: None, ..stored };
    setxattr(file, xattr::attribute_name(algorithm), &stored.encode(), XattrFlags::empty()).unwrap();
}

fn set_mtime(file: &Path, mtime_s: i64) {
    let time = Timespec { tv_sec: mtime_s, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, file, &times, AtFlags::empty()).unwrap();
}

#[tokio::test]
async fn an_upload_keeps_adler32_and_crc32c_for_its_time() {
    for directory in [Directory::new(), Directory::on_disk()] {
        directory.put("/file", "content").await.unwrap();
        let host = directory.host("file");
        for algorithm in [Algorithm::Adler32, Algorithm::Crc32c] {
            let stored = kept(&host, algorithm).unwrap();
            assert_eq!(stored.digest, Hasher::digest_of(algorithm, b"content"));
            assert_eq!(stored.file_mtime_s, host.metadata().unwrap().mtime());
        }
        assert!(kept(&host, Algorithm::Md5).is_none());
    }
}

#[tokio::test]
async fn what_xrootd_kept_is_told_while_it_is_current() {
    let directory = Directory::new();
    let host = directory.host("file");
    disk::write(&host, b"content").unwrap();
    let mtime = host.metadata().unwrap().mtime();
    keep(&host, Algorithm::Md5, b"content", mtime);
    keep(&host, Algorithm::Adler32, b"older content", mtime - 1);
    setxattr(&host, "user.XrdCks.crc32c", b"rubbish", XattrFlags::empty()).unwrap();
    setxattr(&host, "user.XrdCks.sha3", b"unknown", XattrFlags::empty()).unwrap();
    let known = directory.stat("/file").await.unwrap().digests;
    assert_eq!(known, Digests::from(Hasher::digest_of(Algorithm::Md5, b"content")));
    let opened = directory.store.open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    assert_eq!(opened.metadata().await.unwrap().digests, known);
}

#[tokio::test]
async fn a_computed_digest_is_kept_and_one_that_is_kept_is_believed() {
    let directory = Directory::new();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    disk::write(&host, b"content").unwrap();
    set_mtime(&host, 86_400);
    let computed = directory.store.digest(me, &at, Algorithm::Sha256, &|_| {}).await.unwrap();
    assert_eq!(kept(&host, Algorithm::Sha256).unwrap().digest, computed);
    keep(&host, Algorithm::Sha256, b"a lie", host.metadata().unwrap().mtime());
    let believed = directory.store.digest(me, &at, Algorithm::Sha256, &|_| {}).await.unwrap();
    assert_eq!(believed, Hasher::digest_of(Algorithm::Sha256, b"a lie"), "the file was not read again");
}

#[tokio::test]
async fn digests_move_with_the_time_and_go_with_the_content() {
    let directory = Directory::new();
    directory.put("/file", "content").await.unwrap();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    let changes = Changes { mtime_ns: Some(86_400_000_000_000), ..Changes::default() };
    directory.store.change(me, &at, changes).await.unwrap();
    assert_eq!(kept(&host, Algorithm::Adler32).unwrap().file_mtime_s, 86_400);
    let file = directory.store.update(me, &at).await.unwrap();
    assert!(kept(&host, Algorithm::Adler32).is_some(), "nothing was changed yet");
    file.write(0, "C".into()).await.unwrap();
    assert!(kept(&host, Algorithm::Adler32).is_none());
}

/// Sets a time that stays recent however long the test takes: a later change could get the same time in whole seconds.
fn touch_in_the_future(file: &Path) {
    set_mtime(file, clock::unix_s() + 3600);
}

#[tokio::test]
async fn a_digest_is_not_kept_while_a_change_could_pass_unnoticed() {
    let directory = Directory::new();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    disk::write(&host, b"content").unwrap();
    touch_in_the_future(&host);
    let mtime = host.metadata().unwrap().mtime();
    for content in ["content", "CONTENT"] {
        disk::write(&host, content.as_bytes()).unwrap();
        set_mtime(&host, mtime);
        let computed = directory.store.digest(me, &at, Algorithm::Md5, &|_| {}).await.unwrap();
        assert_eq!(computed, Hasher::digest_of(Algorithm::Md5, content.as_bytes()));
        assert!(kept(&host, Algorithm::Md5).is_none());
    }
    set_mtime(&host, 86_400);
    directory.store.digest(me, &at, Algorithm::Md5, &|_| {}).await.unwrap();
    assert!(kept(&host, Algorithm::Md5).is_some(), "it has settled");
}

#[tokio::test]
async fn an_update_leaves_no_digest_behind_that_was_kept_between_its_changes() {
    let directory = Directory::new();
    directory.put("/file", "content").await.unwrap();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    let file = directory.store.update(me, &at).await.unwrap();
    file.write(0, "C".into()).await.unwrap();
    set_mtime(&host, 86_400);
    directory.store.digest(me, &at, Algorithm::Md5, &|_| {}).await.unwrap();
    assert!(kept(&host, Algorithm::Md5).is_some());
    file.write(1, "O".into()).await.unwrap();
    let expected = Expectation { mtime_ns: Some(86_400_000_000_000), ..Expectation::default() };
    assert!(file.commit(expected).await.unwrap().digests.is_empty());
    assert!(kept(&host, Algorithm::Md5).is_none(), "it would count again");
}

#[tokio::test]
async fn digests_of_another_time_do_not_count_again_when_that_time_is_set() {
    let directory = Directory::new();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    disk::write(&host, b"content").unwrap();
    keep(&host, Algorithm::Adler32, b"older content", 86_400);
    keep(&host, Algorithm::Md5, b"content", host.metadata().unwrap().mtime());
    let changes = Changes { mtime_ns: Some(86_400_000_000_000), ..Changes::default() };
    directory.store.change(me, &at, changes).await.unwrap();
    let known = directory.stat("/file").await.unwrap().digests;
    assert_eq!(known, Digests::from(Hasher::digest_of(Algorithm::Md5, b"content")));
}

#[tokio::test]
async fn attributes_are_where_xrootd_looks_for_them() {
    let directory = Directory::new();
    directory.put("/file", "content").await.unwrap();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    directory.store.set_attribute(me, &at, b"colour", Some(b"red"), true).await.unwrap();
    let mut value = Vec::with_capacity(16);
    getxattr(&host, "user.U.colour", rustix::buffer::spare_capacity(&mut value)).unwrap();
    assert_eq!(value, b"red");
    setxattr(&host, "user.other", b"hidden", XattrFlags::empty()).unwrap();
    assert_eq!(directory.store.attributes(me, &at).await.unwrap(), [("colour".into(), "red".into())]);
    let removed = directory.store.set_attribute(me, &at, b"other", None, false).await;
    assert_eq!(removed.unwrap_err().fault(), Fault::AttributeNotFound);
}

#[tokio::test]
async fn more_attributes_than_fit_into_an_answer_are_not_told_but_copied() {
    let directory = Directory::new();
    directory.put("/file", "content").await.unwrap();
    let (me, at) = (&Caller::local(), path("/file"));
    let set = async |number: usize| {
        let (name, value) = (format!("{number:05}"), vec![number as u8; 65_000]);
        directory.store.set_attribute(me, &at, name.as_bytes(), Some(&value), true).await
    };
    for number in 0..32 {
        if let Err(error) = set(number).await {
            eprintln!("skipped: the file system in memory keeps few attributes ({error})");
            return;
        }
    }
    assert_eq!(directory.store.attributes(me, &at).await.unwrap().len(), 32);
    set(32).await.unwrap();
    let error = directory.store.attributes(me, &at).await.unwrap_err();
    assert_eq!((error.fault(), error.message()), (Fault::TooLarge, "its attributes have more than 2097152 bytes"));
    directory.store.copy(me, &at, &path("/copy"), Overwrite::Refuse).await.unwrap();
    directory.store.set_attribute(me, &path("/copy"), b"00000", None, false).await.unwrap();
    assert_eq!(directory.store.attributes(me, &path("/copy")).await.unwrap().len(), 32);
}

#[tokio::test]
async fn many_who_ask_at_once_get_the_same_digest() {
    let directory = Directory::new();
    let (me, at, host) = (&Caller::local(), path("/file"), directory.host("file"));
    let content = vec![7; 3_000_000];
    disk::write(&host, &content).unwrap();
    set_mtime(&host, 86_400);
    let ask = || directory.store.digest(me, &at, Algorithm::Sha256, &|_| {});
    // A dropped request may be the one that runs the computation.
    for _ in 0..4 {
        let _ = futures::poll!(ask());
    }
    let digests = futures::future::join_all((0..20).map(|_| ask())).await;
    let right = Hasher::digest_of(Algorithm::Sha256, &content);
    assert!(digests.into_iter().all(|digest| digest.unwrap() == right));
}
