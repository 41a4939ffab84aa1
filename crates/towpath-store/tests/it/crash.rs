//! A process that is killed in the middle of an upload.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use bytes::Bytes;
use futures::TryStreamExt as _;
use towpath_store::{
    Caller, CreateOptions, Expectation, ListOptions, Store as _, StorePath,
    local::{LocalOptions, LocalStore},
};

use crate::directory::{Directory, path};

/// Tells the child, which is this same test program, where to write.
const CHILD: &str = "TOWPATH_TEST_CRASH";

/// What the child does: one upload that is finished, one that is half written when it says so; then it waits to be killed.
#[tokio::test]
async fn child_writes_until_it_is_killed() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let store = LocalStore::open(root.as_ref(), LocalOptions::default()).unwrap();
    let me = Caller::local();
    let whole = store.create(&me, &path("/whole"), CreateOptions::default()).await.unwrap();
    whole.write(0, "content".into()).await.unwrap();
    whole.commit(Expectation::default()).await.unwrap();
    let half = store.create(&me, &path("/half"), CreateOptions::default()).await.unwrap();
    half.write(0, Bytes::from(vec![1; 1 << 20])).await.unwrap();
    println!("\nhalf-way");
    std::future::pending::<()>().await;
    drop(half);
}

#[tokio::test]
async fn nothing_of_an_upload_is_left_after_a_kill() {
    let directory = Directory::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, directory.host(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "half-way"), "the child ended early");
    // Another store that opens the directory meanwhile leaves the upload alone: it is locked.
    assert_eq!(directory.staged().len(), 1);
    directory.store_in("");
    assert_eq!(directory.staged().len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(directory.staged().len(), 1, "a killed process cleans nothing up");
    let store = directory.store_in("");
    assert!(directory.staged().is_empty(), "the next one does");
    let root = StorePath::root();
    let entries = store.list(&Caller::local(), &root, ListOptions::default()).try_concat().await.unwrap();
    let names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["whole"]);
    assert_eq!(directory.get("/whole").await.unwrap(), "content");
}
