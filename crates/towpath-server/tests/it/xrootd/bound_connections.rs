//! `bind`: further connections that carry the data of one session, both ways.

use std::sync::Arc;

use towpath_proto::xrootd::{
    ErrorCode, Expect, FileHandle, OpenOptions, PathId, SessionId,
    handshake::HANDSHAKE,
    page,
    request::{Bind, PgRead, PgWrite, Ping, Protocol, Read, ReadElement, Readv, Write},
    response::Body as _,
};
use towpath_store::local::{LocalOptions, LocalStore};

use super::peer::{Peer, Site, XrootdResponse, content, encode, protocol};

async fn bind(site: &Site, session_id: SessionId) -> (Peer, XrootdResponse) {
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
    // One store that supports `sendfile`, and one that does not.
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

/// Returns a write of `length` bytes, whose data arrive on the bound connection `path_id`.
fn write(handle: FileHandle, offset: u64, length: usize, path_id: u8) -> Write {
    Write { handle, offset, length: length as u32, path_id: PathId(path_id) }
}

#[tokio::test]
async fn data_of_writes_come_in_on_the_connection_that_the_request_names() {
    let site = Site::empty();
    let (mut main, login) = Peer::with_session(&site).await;
    let (mut first, _) = bind(&site, login.session_id).await;
    let (mut second, _) = bind(&site, login.session_id).await;
    let data = content((5 << 20) + 3);
    let handle = main.open("/f", OpenOptions::new | OpenOptions::open_updt).await;
    // Data before their request, requests in another order than data on two connections, several on one, pages.
    let [a, b, c, d] = [0..100, 100..1 << 20, 1 << 20..4 << 20, 4 << 20..data.len()];
    second.send(&data[a.clone()]).await;
    main.send(&encode(10, write(handle, 0, a.len(), 2))).await;
    assert_eq!(second.answer(10).await.ok(), "");
    main.send(&encode(11, write(handle, b.start as u64, b.len(), 1))).await;
    let mut pages = bytes::BytesMut::new();
    page::encode(c.start as u64, &data[c.clone()], &mut pages);
    let (offset, length, path_id) = (c.start as u64, pages.len() as u32, PathId(2));
    main.send(&encode(12, PgWrite { handle, offset, length, path_id, ..PgWrite::default() })).await;
    main.send(&encode(13, write(handle, d.start as u64, d.len(), 1))).await;
    second.send(&pages).await;
    second.answer(12).await.pages();
    main.ask(Ping).await.ok();
    first.send(&[&data[b], &data[d]].concat()).await;
    let mut answers = [first.any_answer().await.unwrap(), first.any_answer().await.unwrap()];
    answers.sort_by_key(|(stream_id, _)| *stream_id);
    answers.into_iter().for_each(|(_, answer)| assert_eq!(answer.ok(), ""));
    main.close(handle).await.ok();
    assert!(site.get("/f").await.unwrap() == data);
}

#[tokio::test]
async fn a_refused_write_leaves_both_connections_in_step() {
    let site = Site::empty();
    let (mut main, login) = Peer::with_session(&site).await;
    let (mut bound, _) = bind(&site, login.session_id).await;
    let handle = main.open("/f", OpenOptions::new | OpenOptions::open_updt).await;
    let beyond = Write { offset: u64::MAX, ..write(handle, 0, 3, 1) };
    for (refused, code) in
        [(write(FileHandle([9; 4]), 0, 3, 1), ErrorCode::FileNotOpen), (beyond, ErrorCode::ArgInvalid)]
    {
        main.send(&encode(20, refused)).await;
        bound.send(b"bad").await;
        assert_eq!(main.answer(20).await.code(), code);
    }
    main.send(&encode(21, write(handle, 0, 3, 7))).await;
    assert_eq!(main.answer(21).await.code(), ErrorCode::ArgInvalid, "there is no connection 7");
    main.send(&encode(22, write(handle, 0, 4, 1))).await;
    bound.send(b"good").await;
    bound.answer(22).await.ok();
    main.close(handle).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "good");
}

#[tokio::test]
async fn a_bound_connection_that_breaks_off_leaves_the_session_alone() {
    let site = Site::empty();
    let (mut main, login) = Peer::with_session(&site).await;
    let (mut bound, _) = bind(&site, login.session_id).await;
    let handle = main.open("/f", OpenOptions::new | OpenOptions::open_updt).await;
    main.send(&encode(30, write(handle, 0, 8, 1))).await;
    bound.send(b"half").await;
    drop(bound);
    // `close` waits for the write, which ends without its data.
    main.ask(Write { path_id: PathId::MAIN, ..write(handle, 0, 0, 0) }).await.ok();
    main.close(handle).await.ok();
    let (mut again, answer) = bind(&site, login.session_id).await;
    assert_eq!(PathId::decode(answer.ok()).unwrap(), PathId(1), "its place is free");
    let handle = main.open("/g", OpenOptions::new | OpenOptions::open_updt).await;
    main.send(&encode(31, write(handle, 0, 3, 1))).await;
    again.send(b"new").await;
    again.answer(31).await.ok();
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
