//! One file written over several connections: further handles of an upload in other sessions.

use std::sync::Arc;

use tempfile::TempDir;
use towpath_proto::{
    checksum::{Algorithms, Hasher},
    xrootd::{
        ErrorCode, FileHandle, OpenOptions, PathAndCgi, SessionId,
        request::{Close, CloseAction, FileExpectation, Open, Query, SharedHandle, Write},
        response::{Body as _, OpenReply},
    },
};
use towpath_store::local::{LocalOptions, LocalStore};

use super::peer::{Peer, Site, XrootdResponse, content, encode};

const REPLACE: OpenOptions = OpenOptions::delete.union(OpenOptions::open_updt);
const SIZE: usize = 3_000_000;

fn in_directory() -> (TempDir, Site) {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    (directory, Site::of(Arc::new(store)))
}

fn request(at: &str, session_id: SessionId, handle: FileHandle) -> Open {
    let cgi = SharedHandle { session_id, handle }.pair();
    Open { options: OpenOptions::open_updt, path: PathAndCgi::from(at).with_cgi(cgi), ..Open::default() }
}

async fn share(peer: &mut Peer, session_id: SessionId, handle: FileHandle) -> FileHandle {
    OpenReply::decode(peer.ask(request("/f", session_id, handle)).await.ok()).unwrap().handle
}

async fn write(peer: &mut Peer, handle: FileHandle, start: usize, end: usize) {
    let data = &content(SIZE)[start..end];
    let request = Write { handle, offset: start as u64, length: data.len() as u32, ..Write::default() };
    peer.ask_with(request, data).await.ok();
}

fn promise() -> Option<CloseAction> {
    let digests = Hasher::digest(Algorithms::DEFAULT, &content(SIZE));
    Some(CloseAction::Commit(FileExpectation { size: SIZE as u64, mtime_ns: None, digests }))
}

#[tokio::test]
async fn a_file_comes_over_several_connections() {
    let (_directory, site) = in_directory();
    let (mut first, login) = Peer::with_session(&site).await;
    let words = first.ask(Query::Config(SharedHandle::KEY.into())).await.ok();
    assert_eq!(words, "1\n");
    let handle = first.open("/f", REPLACE).await;
    let mut second = Peer::logged_in(&site).await;
    // Makes the number differ from the first session.
    second.open("/other", REPLACE).await;
    let shared = share(&mut second, login.session_id, handle).await;
    assert_ne!(shared, handle);
    write(&mut first, handle, 0, 1_000_000).await;
    write(&mut second, shared, 2_000_000, SIZE).await;
    write(&mut first, handle, 1_000_000, 2_000_000).await;
    second.ask(Close { handle: shared, ending: Some(CloseAction::Keep) }).await.ok();
    assert_eq!(site.get("/f").await, None, "to leave it is not to end it");
    first.ask(Close { handle, ending: promise() }).await.ok();
    assert!(site.get("/f").await.unwrap() == content(SIZE));
}

#[tokio::test]
async fn an_upload_outlives_the_connection_that_began_it_and_what_broke_off_there_comes_again() {
    let (_directory, site) = in_directory();
    let (mut first, login) = Peer::with_session(&site).await;
    let handle = first.open("/f", REPLACE).await;
    let mut second = Peer::logged_in(&site).await;
    let shared = share(&mut second, login.session_id, handle).await;
    write(&mut first, handle, 0, 1_000_000).await;
    let (offset, length) = (1_000_000, 2_000_000);
    first.send(&encode(7, Write { handle, offset, length, ..Write::default() })).await;
    first.send(&content(SIZE)[1_000_000..2_500_000]).await;
    drop(first);
    write(&mut second, shared, 1_000_000, SIZE).await;
    second.ask(Close { handle: shared, ending: promise() }).await.ok();
    assert!(site.get("/f").await.unwrap() == content(SIZE));
}

#[tokio::test]
async fn an_upload_ends_with_its_last_handle() {
    let (directory, site) = in_directory();
    let (mut first, login) = Peer::with_session(&site).await;
    let handle = first.open("/f", REPLACE).await;
    let mut second = Peer::logged_in(&site).await;
    let shared = share(&mut second, login.session_id, handle).await;
    first.ask(Close { handle, ending: Some(CloseAction::Keep) }).await.ok();
    assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 1);
    second.ask(Close { handle: shared, ending: Some(CloseAction::Keep) }).await.ok();
    assert_eq!(directory.path().join(".towpath").read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn nobody_finds_what_he_cannot_name() {
    let (_directory, site) = in_directory();
    site.put("/read", b"x").await;
    let (mut first, login) = Peer::with_session(&site).await;
    let handle = first.open("/f", REPLACE).await;
    let reading = first.open("/read", OpenOptions::open_read).await;
    let mut second = Peer::logged_in(&site).await;
    let wrong = [
        request("/f", SessionId([7; 16]), handle),
        request("/f", login.session_id, FileHandle([9; 4])),
        request("/g", login.session_id, handle),
        request("/read", login.session_id, reading),
    ];
    for wrong in wrong {
        assert_eq!(second.ask(wrong).await.code(), ErrorCode::FileNotOpen);
    }
    let path = PathAndCgi::from("/f").with_cgi("towpath.share=00");
    let garbled = Open { options: OpenOptions::open_updt, path, ..Open::default() };
    assert!(matches!(second.ask(garbled).await, XrootdResponse::Error(ErrorCode::ArgInvalid, _)));
}
