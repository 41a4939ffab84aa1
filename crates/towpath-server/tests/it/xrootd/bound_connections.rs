//! `bind`: further connections that carry the data of one session.

use std::sync::Arc;

use towpath_proto::xrootd::{
    ErrorCode, Expect, FileHandle, OpenOptions, PathId, SessionId,
    handshake::HANDSHAKE,
    request::{Bind, PgRead, Protocol, Read, ReadElement, Readv},
    response::Body as _,
};
use towpath_store::local::{LocalOptions, LocalStore};

use super::peer::{Answer, Peer, Site, content, encode, protocol};

async fn bind(site: &Site, session_id: SessionId) -> (Peer, Answer) {
    let mut peer = Peer::silent(site).await;
    let protocol = Protocol { expect: Expect::ExpBind, ..protocol() };
    peer.send(&[HANDSHAKE.to_vec(), encode(1, protocol), encode(2, Bind { session_id })].concat()).await;
    peer.answer(0).await.ok();
    peer.answer(1).await.ok();
    let answer = peer.answer(2).await;
    (peer, answer)
}

#[tokio::test]
async fn data_go_out_on_the_connection_that_the_request_names() {
    let directory = tempfile::tempdir().unwrap();
    // One that sends by `sendfile`, and one that cannot.
    let local = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    for site in [Site::empty(), Site::of(Arc::new(local))] {
        go_out_where_the_request_says(&site).await;
    }
}

async fn go_out_where_the_request_says(site: &Site) {
    let data = content(3 << 20);
    site.put("/f", &data).await;
    let (mut main, login) = Peer::with_session(site).await;
    let (mut first, answer) = bind(site, login.session_id).await;
    assert_eq!(PathId::decode(answer.ok()).unwrap(), PathId(1));
    let (mut second, answer) = bind(site, login.session_id).await;
    assert_eq!(PathId::decode(answer.ok()).unwrap(), PathId(2));
    let handle = main.open("/f", OpenOptions::open_read).await;
    let (length, path_id) = (3 << 20, PathId(1));
    main.send(&encode(11, Read { handle, length, path_id, ..Read::default() })).await;
    main.send(&encode(12, PgRead { handle, length: 100, path_id: PathId(2), ..PgRead::default() })).await;
    let elements = vec![ReadElement { handle, offset: 5, length: 6 }];
    main.send(&encode(13, Readv { path_id: PathId(2), elements })).await;
    assert!(first.answer(11).await.ok() == data);
    let mut answers = [second.any_answer().await.unwrap(), second.any_answer().await.unwrap()];
    answers.sort_by_key(|(stream_id, _)| *stream_id);
    let [(_, pages), (_, vector)] = answers;
    assert_eq!((pages.pages().len(), &vector.ok()[16..]), (104, &data[5..11]));
    let wrong = Read { handle, length, path_id: PathId(3), ..Read::default() };
    assert_eq!(main.ask(wrong).await.code(), ErrorCode::ArgInvalid);
    let unopened = Read { handle: FileHandle([9; 4]), length, path_id: PathId(1), ..Read::default() };
    main.send(&encode(14, unopened)).await;
    assert_eq!(main.answer(14).await.code(), ErrorCode::FileNotOpen, "known before anything is started for it");
    let beyond = vec![ReadElement { handle, offset: 3 << 20, length: 6 }];
    main.send(&encode(15, Readv { path_id: PathId(2), elements: beyond })).await;
    assert_eq!(second.answer(15).await.code(), ErrorCode::FSError);
    drop(main);
    first.closed().await;
    second.closed().await;
}

#[tokio::test]
async fn nobody_joins_a_session_that_is_not() {
    let site = Site::empty();
    let (_, answer) = bind(&site, SessionId([3; 16])).await;
    assert_eq!(answer.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn a_session_has_fifteen_further_connections() {
    let site = Site::empty();
    let (mut main, login) = Peer::with_session(&site).await;
    let mut bound = Vec::new();
    for number in 1..=15 {
        let (peer, answer) = bind(&site, login.session_id).await;
        assert_eq!(PathId::decode(answer.ok()).unwrap(), PathId(number));
        bound.push(peer);
    }
    let (_, answer) = bind(&site, login.session_id).await;
    assert_eq!(answer.code(), ErrorCode::Overloaded);
    assert_eq!(main.ask(Read { handle: FileHandle([0; 4]), ..Read::default() }).await.code(), ErrorCode::FileNotOpen);
}
