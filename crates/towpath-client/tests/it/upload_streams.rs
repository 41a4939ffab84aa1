//! One file upwards over several connections, and what happens when some of them are lost.

use std::{
    ops::Range,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use towpath_client::ClientOptions;
use towpath_proto::checksum::{Algorithms, Hasher};
use towpath_store::{CreateOptions, Expectation, Fault, Overwrite, Store, sys::disk};

use crate::{
    faults::Proxy,
    own::serve_directory,
    peer::{Xrootd, caller, content, options, path, store_at},
};

const STREAMS: usize = 4;
const PIECE_BYTES: usize = 1 << 20;
const SIZE: usize = 40 * PIECE_BYTES + 4097;

/// By then the upload goes over all connections.
const SPREAD: usize = 20 * PIECE_BYTES;

static CONTENT: LazyLock<Bytes> = LazyLock::new(|| content(SIZE).into());

fn store(port: u16) -> Arc<dyn Store> {
    store_at("root", port, ClientOptions { connections: STREAMS, ..options() })
}

fn replacing() -> CreateOptions {
    let overwrite = Overwrite::Replace;
    CreateOptions { overwrite, size_hint: Some(SIZE as u64), ..CreateOptions::default() }
}

/// Uploads a file of [`SIZE`] bytes, many pieces at once; when all connections are in use `cuts` are cut.
async fn upload(store: &dyn Store, options: CreateOptions, proxy: &Proxy, cuts: &[usize]) -> towpath_store::Result<()> {
    let file = store.create(&caller(), &path("/f"), options).await?;
    let pieces = |range: Range<usize>| {
        let end = range.end;
        let write = |start: usize| file.write(start as u64, CONTENT.slice(start..end.min(start + PIECE_BYTES)));
        futures::future::try_join_all(range.step_by(PIECE_BYTES).map(write).collect::<Vec<_>>())
    };
    for _ in 0..100 {
        // On a busy machine the first ones may all be sent before the other connections are there.
        pieces(0..SPREAD).await?;
        if proxy.sent().iter().filter(|bytes| **bytes > PIECE_BYTES).count() == STREAMS {
            break;
        }
    }
    let cut = async { cuts.iter().for_each(|number| proxy.cut_now(*number)) };
    futures::future::join(pieces(SPREAD..SIZE), cut).await.0?;
    let digests = Hasher::digest(Algorithms::DEFAULT, &CONTENT);
    file.commit(Expectation { size: Some(SIZE as u64), digests, mtime_ns: None }).await.map(drop)
}

async fn is_there(store: &dyn Store) -> bool {
    let file = store.open(&caller(), &path("/f"), Default::default()).await.unwrap();
    file.read(0, SIZE + 1).await.unwrap() == *CONTENT
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_over_all_connections() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(serve_directory(&directory), Vec::new());
    let store = store(proxy.port);
    upload(&*store, replacing(), &proxy, &[]).await.unwrap();
    assert!(is_there(&*store).await);
    let sent = proxy.sent();
    assert_eq!(sent.len(), STREAMS);
    assert!(sent.iter().all(|bytes| *bytes > PIECE_BYTES), "{sent:?}");
    assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_under_way_on_a_lost_connection_goes_over_another_one() {
    // The first one is the one that began it.
    for cuts in [&[1][..], &[1, 2], &[0], &[0, 1, 3]] {
        let directory = tempfile::tempdir().unwrap();
        let proxy = Proxy::start(serve_directory(&directory), Vec::new());
        let store = store(proxy.port);
        upload(&*store, replacing(), &proxy, cuts).await.unwrap();
        assert!(is_there(&*store).await);
        assert_eq!(proxy.cut(), cuts.len(), "{cuts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_stays_on_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(serve_directory(&directory), Vec::new());
    let store = store(proxy.port);
    let file = store.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    let pieces = (0..8 * PIECE_BYTES).step_by(PIECE_BYTES);
    let pieces = pieces.map(|start| file.write(start as u64, Bytes::from(vec![7; PIECE_BYTES])));
    futures::future::try_join_all(pieces).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(proxy.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_given_up_ends_on_all_connections() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(serve_directory(&directory));
    let file = store.create(&caller(), &path("/f"), replacing()).await.unwrap();
    let pieces = (0..20 * PIECE_BYTES).step_by(PIECE_BYTES);
    let pieces = pieces.map(|start| file.write(start as u64, Bytes::from(vec![7; PIECE_BYTES])));
    futures::future::try_join_all(pieces).await.unwrap();
    file.abort().await.unwrap();
    assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 0);
    assert_eq!(store.stat(&caller(), &path("/f")).await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_server_takes_one_file_over_several_connections() {
    let Some(server) = Xrootd::start("") else { return };
    let new = || CreateOptions { overwrite: Overwrite::Refuse, ..replacing() };
    for (options, cuts) in [(new(), &[][..]), (replacing(), &[]), (replacing(), &[1]), (replacing(), &[0])] {
        let proxy = Proxy::start(server.port, Vec::new());
        let store = store(proxy.port);
        upload(&*store, options, &proxy, cuts).await.unwrap();
        assert!(disk::read(&server.file("f"), 1 << 30).unwrap() == *CONTENT);
        let sent = proxy.sent();
        assert!(sent.iter().filter(|bytes| **bytes > PIECE_BYTES).count() > 1, "{sent:?}");
        assert_eq!(proxy.cut(), cuts.len());
    }
    // A new file whose connection is lost is looked after by the server for some minutes, and is whole when another one
    // closes it.
    store(server.port).remove_file(&caller(), &path("/f")).await.unwrap();
    let proxy = Proxy::start(server.port, Vec::new());
    upload(&*store(proxy.port), new(), &proxy, &[1]).await.unwrap();
    assert!(disk::read(&server.file("f"), 1 << 30).unwrap() == *CONTENT);
}
