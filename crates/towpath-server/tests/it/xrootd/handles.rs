//! File handles: ownership, limits and release.

use towpath_proto::xrootd::{
    ErrorCode, FileHandle, OpenOptions,
    request::{Close, Endsess, Read, Sync, Write},
};
use towpath_server::units::ByteSize;
use towpath_store::memory::MemoryStore;

use super::peer::{Peer, Site, encode, open_request};

const NEW: OpenOptions = OpenOptions::new.union(OpenOptions::open_updt);

fn read(handle: FileHandle) -> Read {
    Read { handle, length: 1, ..Read::default() }
}

#[tokio::test]
async fn handles_are_small_numbers_of_one_session() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let (mut one, mut other) = (Peer::logged_in(&site).await, Peer::logged_in(&site).await);
    let first = one.open("/f", OpenOptions::open_read).await;
    let second = one.open("/f", OpenOptions::open_read).await;
    assert_eq!((first, second), (FileHandle([0; 4]), FileHandle([1, 0, 0, 0])));
    one.close(first).await.ok();
    assert_eq!(one.open("/f", OpenOptions::open_read).await, first, "the lowest free one");
    assert_eq!(other.ask(read(second)).await.code(), ErrorCode::FileNotOpen);
    assert_eq!(one.ask(read(FileHandle([0xff; 4]))).await.code(), ErrorCode::FileNotOpen);
    one.ask(read(second)).await.ok();
}

#[tokio::test]
async fn there_are_only_so_many() {
    let store = std::sync::Arc::new(MemoryStore::new(1 << 20));
    let site = Site::with(store, |config| config.limits.files_per_connection = 3);
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    for _ in 0..3 {
        peer.open("/f", OpenOptions::open_read).await;
    }
    assert_eq!(peer.ask(open_request("/f", OpenOptions::open_read)).await.code(), ErrorCode::Overloaded);
    peer.close(FileHandle([1, 0, 0, 0])).await.ok();
    peer.open("/f", OpenOptions::open_read).await;
    for _ in 0..5 {
        assert_eq!(peer.ask(open_request("/none", OpenOptions::open_read)).await.code(), ErrorCode::Overloaded);
    }
}

#[tokio::test]
async fn failed_opens_keep_no_handle() {
    let store = std::sync::Arc::new(MemoryStore::new(1 << 20));
    let site = Site::with(store, |config| {
        config.limits.files_per_connection = 2;
        config.limits.header_bytes = ByteSize(16 << 10);
    });
    site.put("/d/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    for _ in 0..10 {
        assert_eq!(peer.ask(open_request("/none", OpenOptions::open_read)).await.code(), ErrorCode::NotFound);
        assert_eq!(peer.ask(open_request("/d", OpenOptions::open_read)).await.code(), ErrorCode::isDirectory);
        assert_eq!(peer.ask(open_request("/none", OpenOptions::open_updt)).await.code(), ErrorCode::NotFound);
    }
}

#[tokio::test]
async fn reading_handles_do_not_write() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    let write = Write { handle, length: 1, ..Write::default() };
    assert_eq!(peer.ask_with(write, b"y").await.code(), ErrorCode::FileNotOpen);
    assert_eq!(peer.ask(Sync { handle }).await.code(), ErrorCode::FileNotOpen);
    peer.close(handle).await.ok();
}

#[tokio::test]
async fn endsess_ends_the_uploads_of_an_earlier_session() {
    let site = Site::empty();
    let (mut old, login) = Peer::with_session(&site).await;
    let handle = old.open("/f", NEW).await;
    old.ask_with(Write { handle, length: 1, ..Write::default() }, b"x").await.ok();
    let mut new = Peer::logged_in(&site).await;
    new.ask(Endsess { session_id: login.session_id }).await.ok();
    old.closed().await;
    assert_eq!(site.get("/f").await, None);
    new.open("/f", NEW).await;
}

#[tokio::test]
async fn a_failed_open_takes_nobody_elses_handle() {
    let site = Site::empty();
    site.put("/b", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let (first, open_read) = (FileHandle([0; 4]), OpenOptions::open_read);
    let flight = [
        encode(1, open_request("/missing", open_read)),
        encode(2, Close { handle: first, ending: None }),
        encode(3, open_request("/b", open_read)),
    ];
    peer.send(&flight.concat()).await;
    for _ in 0..3 {
        peer.any_answer().await.unwrap();
    }
    peer.ask(read(first)).await.ok();
}
