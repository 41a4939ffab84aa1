//! Large files over HTTP to our own server: in parts, over several connections, and on where they broke off.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use towpath_proto::checksum::{Algorithms, Extent, Hasher};
use towpath_store::{CreateOptions, Expectation, Fault, Overwrite, ResumeKey, Store, WriteHandle, memory::MemoryStore};

use crate::{
    faults::Proxy,
    own::{serve_directory, serve_store},
    peer::{caller, content, options, path, store_at},
};

const PIECE_BYTES: usize = 2 << 20;
/// Slightly more than the maximum of a single request.
const SIZE: usize = (64 << 20) + 4097;

static CONTENT: LazyLock<Bytes> = LazyLock::new(|| content(SIZE).into());

fn creating(key: &str) -> CreateOptions {
    let resume = Some(ResumeKey::of(&[key.as_bytes()]));
    CreateOptions { resume, size_hint: Some(SIZE as u64), overwrite: Overwrite::Replace, ..CreateOptions::default() }
}

/// Writes the missing ranges, several pieces at once.
async fn write(file: &dyn WriteHandle, until: usize) -> towpath_store::Result<()> {
    let present = file.present().await?;
    let is_there =
        |start: usize| present.iter().any(|extent| extent.offset() <= start as u64 && (start as u64) < extent.end());
    let starts = (0..until).step_by(PIECE_BYTES).filter(|start| !is_there(*start));
    let pieces = starts.map(|start| file.write(start as u64, CONTENT.slice(start..SIZE.min(start + PIECE_BYTES))));
    futures::future::try_join_all(pieces).await.map(drop)
}

async fn commit(file: &dyn WriteHandle) -> towpath_store::Result<()> {
    let digests = Hasher::digest(Algorithms::DEFAULT, &CONTENT);
    file.commit(Expectation { size: Some(SIZE as u64), digests, mtime_ns: None }).await.map(drop)
}

async fn check(store: &dyn Store) {
    let file = store.open(&caller(), &path("/f"), Default::default()).await.unwrap();
    assert!(file.read(0, SIZE + 1).await.unwrap() == *CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_over_many_connections_and_lost_ones_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start_for_uploads(serve_directory(&directory), vec![usize::MAX, 1 << 20, usize::MAX, 3 << 20]);
    let store = store_at("http", proxy.port, options());
    let file = store.create(&caller(), &path("/f"), creating("a")).await.unwrap();
    write(&*file, SIZE).await.unwrap();
    commit(&*file).await.unwrap();
    check(&*store).await;
    assert!(proxy.cut() > 0);
    assert!(proxy.sent().iter().filter(|bytes| **bytes > PIECE_BYTES).count() > 4, "{:?}", proxy.sent());
    assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 0);
}

/// Like a killed client: no end is sent.
#[tokio::test(flavor = "multi_thread")]
async fn another_client_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let port = serve_directory(&directory);
    let first = store_at("http", port, options());
    assert!(first.capabilities().resume, "that is not known before it was asked");
    let file = first.create(&caller(), &path("/f"), creating("a")).await.unwrap();
    write(&*file, 20 * PIECE_BYTES).await.unwrap();
    drop(file);
    let second = store_at("http", port, options());
    // The server waits some seconds whether the first one is heard again.
    let file = second.create(&caller(), &path("/f"), creating("a")).await.unwrap();
    let present: u64 = file.present().await.unwrap().iter().map(Extent::bytes).sum();
    assert_eq!(present, 20 * PIECE_BYTES as u64);
    write(&*file, SIZE).await.unwrap();
    commit(&*file).await.unwrap();
    check(&*second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_up_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_at("http", serve_directory(&directory), options());
    let left = || directory.path().join(".towpath").read_dir().unwrap().count();
    for is_dropped in [true, false] {
        let without = CreateOptions { resume: None, ..creating("") };
        let file = store.create(&caller(), &path("/f"), without).await.unwrap();
        file.write(0, CONTENT.slice(..PIECE_BYTES)).await.unwrap();
        assert_eq!(left(), 1);
        match is_dropped {
            false => file.abort().await.unwrap(),
            true => {
                drop(file);
                // Another one of the same client comes behind what gives it up.
                while left() > 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        assert_eq!(left(), 0);
    }
    // Wrong data are not kept.
    let file = store.create(&caller(), &path("/f"), creating("a")).await.unwrap();
    write(&*file, SIZE).await.unwrap();
    let digests = Hasher::digest(Algorithms::DEFAULT, b"other");
    let expected = Expectation { digests, ..Expectation::default() };
    assert_eq!(file.commit(expected).await.unwrap_err().fault(), Fault::ChecksumMismatch);
    assert_eq!(left(), 0);
    let file = store.create(&caller(), &path("/f"), creating("a")).await.unwrap();
    write(&*file, SIZE - PIECE_BYTES).await.unwrap();
    assert_eq!(commit(&*file).await.unwrap_err().fault(), Fault::Truncated);
    assert_eq!(store.stat(&caller(), &path("/f")).await.unwrap_err().fault(), Fault::NotFound);
}

/// A storage behind our server that keeps nothing still takes parts.
#[tokio::test(flavor = "multi_thread")]
async fn parts_need_no_journal_and_make_parents() {
    let store = store_at("http", serve_store(Arc::new(MemoryStore::new(1 << 30)), |_| ()), options());
    let options = CreateOptions { parents: true, ..creating("a") };
    let file = store.create(&caller(), &path("/a/b/f"), options).await.unwrap();
    assert_eq!(file.present().await.unwrap(), []);
    write(&*file, SIZE).await.unwrap();
    commit(&*file).await.unwrap();
    assert_eq!(store.stat(&caller(), &path("/a/b/f")).await.unwrap().size, SIZE as u64);
}
