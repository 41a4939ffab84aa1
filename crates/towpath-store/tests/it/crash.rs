//! Uploads of a process that is killed.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use bytes::Bytes;
use futures::TryStreamExt as _;
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, ListOptions, Store as _, StorePath,
    local::{LocalOptions, LocalStore},
};

use crate::{
    directory::{Directory, path},
    resuming,
};

/// Environment variable with the working directory of the child process, which is this test program.
const CHILD: &str = "TOWPATH_TEST_CRASH";

/// Body of the child process: completes one upload, writes half of another, reports it, and waits to be killed.
#[tokio::test]
async fn child_writes_until_it_is_killed() {
    let Some(root) = towpath_store::sys::environment::variable(CHILD) else { return };
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
    // A second store that opens the directory meanwhile leaves the locked upload alone.
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

/// Like [`CHILD`], for a child that writes a resumable upload.
const WRITING_CHILD: &str = "TOWPATH_TEST_CRASH_WRITING";

/// Many blocks, so that the upload is rarely complete when the child is killed.
const SIZE: u64 = 64 << 20;

/// Body of the child process: resumes the upload and writes the missing ranges from several tasks, in pieces that do
/// not align with blocks, reports its progress, and starts over when it is complete.
#[tokio::test(flavor = "multi_thread")]
async fn child_writes_an_upload_with_a_key_until_it_is_killed() {
    let Some(root) = towpath_store::sys::environment::variable(WRITING_CHILD) else { return };
    let store = LocalStore::open(root.as_ref(), LocalOptions::default()).unwrap();
    let file = store.create(&Caller::local(), &path("/file"), resuming::options(SIZE)).await.unwrap();
    let present = file.present().await.unwrap();
    let is_present =
        |start: u64, end: u64| present.iter().any(|extent| extent.offset() <= start && end <= extent.end());
    let writers = (0..WRITERS).map(async |writer| {
        let (from, to) = (SIZE / WRITERS * writer, SIZE / WRITERS * (writer + 1));
        for start in (from..to).step_by(PIECE as usize) {
            let end = to.min(start + PIECE);
            if !is_present(start, end) {
                resuming::write(&*file, start, end).await;
            }
            println!("\nwrote");
        }
    });
    futures::future::join_all(writers).await;
    std::future::pending::<()>().await;
}

const PIECE: u64 = 300_007;
const WRITERS: u64 = 4;

#[tokio::test]
async fn an_upload_goes_on_where_it_was_killed() {
    let directory = Directory::new();
    let mut present_before = 0;
    for kill in 1..=4_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_writes_an_upload_with_a_key_until_it_is_killed", "--nocapture"])
            .env(WRITING_CHILD, directory.host(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Each time after a few dozen more pieces, with unreported ones in flight.
        let told = lines.by_ref().filter(|line| line == "wrote").take(40 * kill as usize).count();
        assert_eq!(told as u64, 40 * kill, "the child ended early");
        let busy = directory.store.create(&Caller::local(), &path("/file"), resuming::options(SIZE)).await;
        assert_eq!(busy.unwrap_err().fault(), Fault::Overloaded, "the child has the key");
        // The pipe still has a reader, so that the child does not end before it is killed.
        child.kill().unwrap();
        child.wait().unwrap();
        drop(lines);
        assert_eq!(directory.stat("/file").await.unwrap_err().fault(), Fault::NotFound);
        let file = directory.store.create(&Caller::local(), &path("/file"), resuming::options(SIZE)).await.unwrap();
        let present = file.present().await.unwrap();
        let bytes: u64 = present.iter().map(|extent| extent.bytes()).sum();
        // The reported pieces (the last piece of a writer may be short), minus two possibly incomplete blocks per
        // writer.
        let least = (40 * kill - WRITERS) * PIECE - WRITERS * (2 << 20);
        assert!(
            bytes >= present_before && bytes >= least,
            "{bytes} bytes are there, {present_before} were, {least} must"
        );
        present_before = bytes;
    }
    let file = directory.store.create(&Caller::local(), &path("/file"), resuming::options(SIZE)).await.unwrap();
    resuming::finish(&directory, &*file, SIZE).await;
}
