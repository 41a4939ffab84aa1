//! An xroot server with wrong responses. The reader gets an immediate error with the right blame.

use bytes::Bytes;
use towpath_client::ClientOptions;
use towpath_proto::xrootd::{
    Request, RequestCode, Status, StreamId,
    request::PgRead,
    response::{PgReadStatus, ResponseHeader, StatusKind},
};
use towpath_store::{Blame, Fault};

use crate::{
    peer::{caller, content, options, path},
    script::{Peer, Script},
    scripted::{done, opened_with, read},
};

/// A violation of the protocol may be a transmission error and is retried, but not here.
fn once() -> ClientOptions {
    ClientOptions { retries: 0, ..options() }
}

/// How a read of 100 bytes from 100 on is answered.
type Lie = fn(&mut Peer, StreamId);

const LIES: &[(&str, Lie)] = &[
    ("more pages than were asked for", |peer, id| peer.pages(id, 100, &content(5000), |_| ())),
    ("pages of another place", |peer, id| peer.pages(id, 5000, &content(100), |_| ())),
    ("data without checksums", |peer, id| peer.ok(id, &Bytes::from_static(&[0; 100]))),
    ("more pages than there is memory for", |peer, id| {
        let status = PgReadStatus { kind: StatusKind::Final, offset: 100, data_len: i32::MAX as u32 };
        peer.raw().extend_from_slice(&status.to_bytes(id));
    }),
    ("a redirect without a port", |peer, id| frame(peer, id, Status::redirect, b"\0\0")),
    ("a redirect to nowhere", |peer, id| frame(peer, id, Status::redirect, &1094u32.to_be_bytes())),
    ("a wait without a time", |peer, id| frame(peer, id, Status::wait, b"\0\0")),
    ("a promise without a time", |peer, id| frame(peer, id, Status::waitresp, b"")),
    ("an error without a code", |peer, id| frame(peer, id, Status::error, b"\0")),
    ("a status that does not exist", |peer, id| frame(peer, id, Status(4999), b"")),
    ("an answer that nobody asked for", |peer, _| frame(peer, StreamId::from_number(40_000), Status::ok, b"")),
    ("a word to all without an action", |peer, _| frame(peer, StreamId::ZERO, Status::attn, b"\0")),
    ("a late answer without a header", |peer, _| frame(peer, StreamId::ZERO, Status::attn, &ASYNRESP)),
    ("a late answer shorter than it says", |peer, id| late(peer, id, Status::ok, 100, b"short")),
    ("a late answer of a negative length", |peer, id| late(peer, id, Status::ok, u32::MAX, b"")),
    ("a late answer without checksums", |peer, id| late(peer, id, Status::ok, 100, &[0; 100])),
    ("a late error without a code", |peer, id| late(peer, id, Status::error, 1, b"\0")),
    ("a late redirect without a port", |peer, id| late(peer, id, Status::redirect, 2, b"\0\0")),
    ("a late wait without a time", |peer, id| late(peer, id, Status::wait, 0, b"")),
    ("a late answer in a late answer", |peer, id| late(peer, id, Status::attn, 8, &ASYNRESP)),
    ("a late answer in pieces", |peer, id| late(peer, id, Status::oksofar, 3, b"abc")),
    ("a late answer of no known status", |peer, id| late(peer, id, Status(4999), 0, b"")),
    ("an answer longer than any may be", |peer, id| {
        let header = ResponseHeader { stream_id: id, status: Status::ok, dlen: u32::MAX };
        peer.raw().extend_from_slice(&header.to_bytes());
    }),
];

/// Action 5008, and four reserved bytes.
const ASYNRESP: [u8; 8] = [0, 0, 0x13, 0x90, 0, 0, 0, 0];

fn frame(peer: &mut Peer, stream_id: StreamId, status: Status, body: &[u8]) {
    let header = ResponseHeader { stream_id, status, dlen: body.len() as u32 };
    peer.raw().extend_from_slice(&header.to_bytes());
    peer.raw().extend_from_slice(body);
}

/// An `attn` with `asynresp`, whose header says that it has `dlen` bytes.
fn late(peer: &mut Peer, stream_id: StreamId, status: Status, dlen: u32, body: &[u8]) {
    let header = ResponseHeader { stream_id, status, dlen }.to_bytes();
    frame(peer, StreamId::ZERO, Status::attn, &[&ASYNRESP, &header, body].concat());
}

#[tokio::test]
async fn what_a_server_answers_beside_the_question_is_its_fault() {
    for (name, lie) in LIES {
        let script = Script::listen();
        let (_store, file, mut peer) = opened_with(&script, once()).await;
        let reading = read(&file, 100, 100);
        let (id, request) = peer.next().await;
        assert!(matches!(request, Request::PgRead(PgRead { offset: 100, .. })), "{name}: {request:?}");
        lie(&mut peer, id);
        peer.send().await;
        let error = done(reading).await.unwrap_err();
        assert_eq!((error.fault(), error.blame()), (Fault::Protocol, Blame::Storage), "{name}: {error}");
    }
}

#[tokio::test]
async fn metadata_that_never_end_are_the_servers_fault() {
    let script = Script::listen();
    let (store, _file, mut peer) = opened_with(&script, once()).await;
    let asking = tokio::spawn(async move { store.stat(&caller(), &path("/f")).await });
    let requests = peer.expect(&[RequestCode::stat]).await;
    let header = ResponseHeader { stream_id: requests[0].0, status: Status::ok, dlen: i32::MAX as u32 };
    peer.raw().extend_from_slice(&header.to_bytes());
    peer.send().await;
    let error = done(asking).await.unwrap_err();
    assert_eq!((error.fault(), error.blame()), (Fault::Protocol, Blame::Storage), "{error}");
}
