//! Uploads that are taken up again, over networks and servers that make it hard.

use std::{sync::Arc, time::Duration};

use towpath_client::ClientOptions;
use towpath_proto::checksum::{Algorithms, Extent, ExtentDigests, Hasher, Holes};
use towpath_store::{
    CreateOptions, Expectation, Fault, Overwrite, ResumeKey, Store, WriteHandle,
    local::{LocalOptions, LocalStore},
};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use crate::{
    faults::Proxy,
    own::{serve_directory, serve_store},
    peer::{Xrootd, caller, options, path, store_at},
};

const SIZE: u64 = 20 << 20;
const PIECE_BYTES: u64 = 256 << 10;
const PATTERN: Pattern = Pattern::new(5);

fn resuming() -> CreateOptions {
    let resume = Some(ResumeKey::of(&[b"source", b"target"]));
    CreateOptions { resume, size_hint: Some(SIZE), overwrite: Overwrite::Replace, ..CreateOptions::default() }
}

async fn write(file: &dyn WriteHandle, offset: u64) -> towpath_store::Result<()> {
    file.write(offset, PATTERN.bytes(offset, PIECE_BYTES as usize)).await
}

/// Writes the missing ranges in whole pieces, and commits with digests that required no read of the source.
async fn finish(store: &dyn Store, file: &dyn WriteHandle) {
    let present = file.present().await.unwrap();
    let mut digests = ExtentDigests::new(Algorithms::DEFAULT);
    present.iter().for_each(|extent| digests.insert(*extent));
    let is_present =
        |offset| present.iter().any(|extent| extent.offset() <= offset && offset + PIECE_BYTES <= extent.end());
    for offset in (0..SIZE).step_by(PIECE_BYTES as usize).filter(|offset| !is_present(*offset)) {
        write(file, offset).await.unwrap();
        digests.add(offset, &PATTERN.bytes(offset, PIECE_BYTES as usize));
    }
    let digests = digests.finish(SIZE, Holes::Refuse).unwrap();
    assert_eq!(digests, Hasher::digest(Algorithms::DEFAULT, &PATTERN.bytes(0, SIZE as usize)));
    file.commit(Expectation { size: Some(SIZE), digests, mtime_ns: None }).await.unwrap();
    let read = store.open(&caller(), &path("/f"), Default::default()).await.unwrap();
    PATTERN.check(0, &read.read(0, SIZE as usize).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_when_its_connection_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    // Amid the answers to the writes.
    let proxy = Proxy::start(serve_directory(&directory), vec![1500]);
    let store = store_at("root", proxy.port, ClientOptions { connections: 1, ..options() });
    let file = store.create(&caller(), &path("/f"), resuming()).await.unwrap();
    let mut written = 0;
    let error = loop {
        match write(&*file, written).await {
            Ok(()) => written += PIECE_BYTES,
            Err(error) => break error,
        }
    };
    assert_eq!(error.fault(), Fault::Unavailable);
    assert!(error.message().ends_with("the received part is kept, and the upload can be resumed"), "{error}");
    assert!((1..SIZE).contains(&written), "{written} bytes were written");
    drop(file);
    let file = store.create(&caller(), &path("/f"), resuming()).await.unwrap();
    let present: u64 = file.present().await.unwrap().iter().map(Extent::bytes).sum();
    assert!(present >= written && present <= written + PIECE_BYTES, "{present} of {written} bytes are there");
    finish(&*store, &*file).await;
}

/// Another process, as it were: nothing is known of the server, nor of the file that is to be replaced.
#[tokio::test(flavor = "multi_thread")]
async fn another_client_goes_on_and_replaces_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let port = serve_directory(&directory);
    let first = store_at("root", port, options());
    let old = first.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    old.write(0, "old".into()).await.unwrap();
    old.commit(Expectation::default()).await.unwrap();
    let file = first.create(&caller(), &path("/f"), resuming()).await.unwrap();
    write(&*file, PIECE_BYTES).await.unwrap();
    drop(file);
    let second = store_at("root", port, options());
    let file = second.create(&caller(), &path("/f"), resuming()).await.unwrap();
    let present = file.present().await.unwrap();
    assert_eq!(
        present.iter().map(|extent| (extent.offset(), extent.bytes())).collect::<Vec<_>>(),
        [(PIECE_BYTES, PIECE_BYTES)]
    );
    finish(&*second, &*file).await;
}

/// Stored data may be long, and are read before the upload begins.
#[tokio::test]
async fn an_upload_that_takes_long_to_begin_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let slow = slow(&directory);
    let held = slow.hold("create");
    let store = store_at("root", serve_store(Arc::new(slow), |_| ()), options());
    let creating = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.create(&caller(), &path("/f"), resuming()).await }
    });
    held.reached().await;
    // Twice as long as a client hears nothing before it gives a server up.
    for _ in 0..12 {
        store.stat(&caller(), &path("/")).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10)).await;
        tokio::time::resume();
    }
    assert!(!creating.is_finished());
    drop(held);
    finish(&*store, &*creating.await.unwrap().unwrap()).await;
}

/// All of it is there; a plain close would show it.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_given_up_neither_shows_nor_loses_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let slow = slow(&directory);
    let store = store_at("root", serve_store(Arc::new(slow.clone()), |_| ()), options());
    let file = store.create(&caller(), &path("/f"), resuming()).await.unwrap();
    for offset in (0..SIZE).step_by(PIECE_BYTES as usize) {
        write(&*file, offset).await.unwrap();
    }
    drop(file);
    let held = slow.hold("create");
    let creating = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.create(&caller(), &path("/f"), resuming()).await.map(drop) }
    });
    held.reached().await;
    creating.abort();
    assert!(creating.await.unwrap_err().is_cancelled());
    drop(held);
    let file = store.create(&caller(), &path("/f"), resuming()).await.unwrap();
    assert_eq!(file.present().await.unwrap().iter().map(Extent::bytes).sum::<u64>(), SIZE);
    assert_eq!(store.stat(&caller(), &path("/f")).await.unwrap_err().fault(), Fault::NotFound);
    finish(&*store, &*file).await;
}

/// A directory whose calls can be held.
fn slow(directory: &tempfile::TempDir) -> FaultStore {
    let local = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    FaultStore::new(Arc::new(local), Faults::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_foreign_server_it_is_known_that_it_keeps_nothing() {
    let Some(server) = Xrootd::start("") else { return };
    let store = server.store();
    let file = store.create(&caller(), &path("/f"), resuming()).await.unwrap();
    assert_eq!(file.present().await.unwrap(), []);
    assert!(!store.capabilities().resume);
    finish(&*store, &*file).await;
}
