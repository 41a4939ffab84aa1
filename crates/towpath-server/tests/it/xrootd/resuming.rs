//! Resumable uploads: a key in the `open`, the present extents in its response, and how they end.

use std::sync::Arc;

use tempfile::TempDir;
use towpath_proto::{
    checksum::{Algorithms, Extent},
    xrootd::{
        ErrorCode, FileHandle, OpenOptions, PathAndCgi,
        request::{Close, CloseAction, FileExpectation, Open, Write},
        response::{Body as _, OpenReply, StatInfo},
    },
};
use towpath_store::{
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
};

use super::peer::{Peer, Site, XrootdResponse, content};

const REPLACE: OpenOptions = OpenOptions::delete.union(OpenOptions::open_updt);
const SIZE: usize = 3_000_000;

fn in_directory() -> (TempDir, Site) {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    (directory, Site::of(Arc::new(store)))
}

fn open(key: &str) -> Open {
    let cgi = format!("oss.asize={SIZE}&towpath.resume={key}");
    Open { options: REPLACE, path: PathAndCgi::from("/f").with_cgi(cgi), ..Open::default() }
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Opens the upload with [`KEY`]; retries while the server reports it as in use, until the server has noticed the end
/// of the old connection.
async fn take_up(peer: &mut Peer) -> (FileHandle, Vec<Extent>) {
    loop {
        match peer.ask(open(KEY)).await {
            XrootdResponse::Error(ErrorCode::Overloaded, message) => {
                assert!(message.contains("in flight"), "{message}");
            }
            answer => {
                let reply = OpenReply::decode(answer.ok()).unwrap();
                return (reply.handle, reply.present.expect("it can be taken up again"));
            }
        }
    }
}

async fn write(peer: &mut Peer, handle: FileHandle, start: usize, end: usize) {
    let data = &content(SIZE)[start..end];
    let request = Write { handle, offset: start as u64, length: data.len() as u32, ..Write::default() };
    peer.ask_with(request, data).await.ok();
}

fn extent(start: usize, end: usize) -> Extent {
    Extent::of(Algorithms::DEFAULT, start as u64, &content(SIZE)[start..end]).unwrap()
}

#[tokio::test]
async fn an_upload_outlives_its_connection() {
    let (_directory, site) = in_directory();
    let mut peer = Peer::logged_in(&site).await;
    let (handle, present) = take_up(&mut peer).await;
    assert_eq!(present, []);
    write(&mut peer, handle, 0, 2_000_000).await;
    write(&mut peer, handle, 2_500_000, SIZE).await;
    assert_eq!(peer.ask(open(KEY)).await.code(), ErrorCode::Overloaded);
    drop(peer);
    let mut peer = Peer::logged_in(&site).await;
    let (handle, present) = take_up(&mut peer).await;
    assert_eq!(present, [extent(0, 2_000_000), extent(2_500_000, SIZE)]);
    assert_eq!(site.get("/f").await, None);
    write(&mut peer, handle, 2_000_000, 2_500_000).await;
    let digests = extent(0, SIZE).digests();
    let ending = Some(CloseAction::Commit(FileExpectation { size: SIZE as u64, mtime_ns: None, digests }));
    let answer = peer.ask(Close { handle, ending }).await.ok();
    assert_eq!(StatInfo::decode(answer).unwrap().size, SIZE as u64);
    assert!(site.get("/f").await.unwrap() == content(SIZE));
}

#[tokio::test]
async fn the_close_says_what_stays() {
    let (_directory, site) = in_directory();
    let mut peer = Peer::logged_in(&site).await;
    let (handle, _) = take_up(&mut peer).await;
    write(&mut peer, handle, 0, 100).await;
    // Closing requires all announced bytes; closing too early keeps the upload.
    peer.close(handle)
        .await
        .expect_error(ErrorCode::IOError, "3000000 bytes were announced, but 100 arrived: the upload can be resumed");
    let (handle, present) = take_up(&mut peer).await;
    assert_eq!(present, [extent(0, 100)]);
    write(&mut peer, handle, 100, SIZE).await;
    // Although it is complete.
    peer.ask(Close { handle, ending: Some(CloseAction::Keep) }).await.ok();
    assert_eq!(site.get("/f").await, None);
    let (handle, present) = take_up(&mut peer).await;
    assert_eq!(present, [extent(0, SIZE)]);
    peer.ask(Close { handle, ending: Some(CloseAction::Abandon) }).await.ok();
    assert_eq!(site.get("/f").await, None);
    let (handle, present) = take_up(&mut peer).await;
    assert_eq!(present, []);
    write(&mut peer, handle, 0, SIZE).await;
    peer.close(handle).await.ok();
    assert!(site.get("/f").await.unwrap() == content(SIZE));
}

/// Without a key both discard the data.
#[tokio::test]
async fn an_upload_can_be_given_up() {
    let (directory, site) = in_directory();
    let mut peer = Peer::logged_in(&site).await;
    for ending in [CloseAction::Keep, CloseAction::Abandon] {
        let handle = peer.open("/f", REPLACE).await;
        write(&mut peer, handle, 0, 100).await;
        peer.ask(Close { handle, ending: Some(ending) }).await.ok();
        assert_eq!(site.get("/f").await, None);
        assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let (_directory, site) = in_directory();
    let mut peer = Peer::logged_in(&site).await;
    for key in ["", "0", &KEY[1..], "g00102030405060708090a0b0c0d0e0f"] {
        assert_eq!(peer.ask(open(key)).await.code(), ErrorCode::ArgInvalid, "{key}");
    }
    let path = PathAndCgi::from("/f").with_cgi(format!("towpath.resume={KEY}"));
    let without_size = Open { options: REPLACE, path, ..Open::default() };
    assert_eq!(peer.ask(without_size).await.code(), ErrorCode::ArgInvalid);
}

#[tokio::test]
async fn a_store_that_keeps_nothing_says_so() {
    let site = Site::of(Arc::new(MemoryStore::new(1 << 30)));
    let mut peer = Peer::logged_in(&site).await;
    let reply = OpenReply::decode(peer.ask(open(KEY)).await.ok()).unwrap();
    assert_eq!(reply.present, None);
}
