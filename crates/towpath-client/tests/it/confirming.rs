//! Reads that are confirmed to be of the opened version ([`OpenOptions::confirms`]), by kinds of servers.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use tokio::task::JoinHandle;
use towpath_client::ClientOptions;
use towpath_proto::xrootd::{ErrorCode, Request, RequestCode, StreamId, VectorElement, request::Readv};
use towpath_store::{ByteRange, Error, Fault, OpenOptions, ReadHandle, Result};

use crate::{
    peer::{caller, options, path, store_at},
    script::{Peer, Script},
    scripted::{done, read},
};

const SIZE: usize = 10_000;
const OURS: &[u8] = b"towpath-0.1.0\n1\n1\n1\n1\n";
const XROOTD: &[u8] = b"v5.5.3\ntowpath.resume\ntowpath.share\ntowpath.node\n1\n";

/// Opens a file at a server that answers the query for its software so, or refuses it.
async fn opened(script: &Script, software: Option<&'static [u8]>) -> (Arc<dyn ReadHandle>, Peer) {
    let store = store_at("root", script.port, ClientOptions { connections: 1, ..options() });
    let confirms = OpenOptions { confirms: true, ..OpenOptions::default() };
    let file = store.open(&caller(), &path("/f"), confirms).await.unwrap();
    let metadata = tokio::spawn({
        let file = Arc::clone(&file);
        async move { file.metadata().await }
    });
    // The query is in the flight of the open.
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::query]).await;
    peer.opened(requests[0].0, 0, SIZE);
    match software {
        Some(answer) => peer.ok(requests[1].0, &Bytes::from_static(answer)),
        None => peer.refuse(requests[1].0, ErrorCode::ArgInvalid),
    }
    peer.send().await;
    assert_eq!(done(metadata).await.unwrap().size, SIZE as u64);
    (file, peer)
}

/// Two ranges, read together.
fn vector(file: &Arc<dyn ReadHandle>) -> JoinHandle<Result<Vec<Bytes>>> {
    let file = Arc::clone(file);
    tokio::spawn(async move {
        let ranges = [(0, 3), (100, 2)].map(|(offset, length)| ByteRange { offset, length });
        let mut results: Vec<(usize, Result<Bytes>)> = file.read_vector(ranges.to_vec()).collect().await;
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    })
}

/// Answers a vector read.
fn answer(peer: &mut Peer, (stream_id, request): &(StreamId, Request)) {
    let Request::Readv(Readv { elements, .. }) = request else { panic!("{request:?}") };
    let mut body = BytesMut::new();
    for element in elements {
        VectorElement::encode(element, &mut body);
        body.put_bytes(b'x', element.length as usize);
    }
    peer.ok(*stream_id, &body.freeze());
}

fn is_whole(result: Result<Vec<Bytes>>) -> bool {
    result.unwrap() == [Bytes::from_static(b"xxx"), Bytes::from_static(b"xx")]
}

#[tokio::test]
async fn a_towpath_server_compares_the_version_itself() {
    let script = Script::listen();
    let (file, mut peer) = opened(&script, Some(OURS)).await;
    for _ in 0..2 {
        let reading = vector(&file);
        let requests = peer.expect(&[RequestCode::readv]).await;
        answer(&mut peer, &requests[0]);
        peer.send().await;
        assert!(is_whole(done(reading).await));
    }
    let reading = read(&file, 0, 3);
    let requests = peer.expect(&[RequestCode::pgread]).await;
    peer.pages(requests[0].0, 0, b"abc", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "abc");
}

#[tokio::test]
async fn a_vector_of_xrootd_is_confirmed_in_its_round_trip() {
    let script = Script::listen();
    let (file, mut peer) = opened(&script, Some(XROOTD)).await;
    let reading = vector(&file);
    // Nothing is answered before both have come.
    let requests = peer.expect(&[RequestCode::readv, RequestCode::stat]).await;
    answer(&mut peer, &requests[0]);
    peer.ok(requests[1].0, &Peer::stat_of(SIZE));
    peer.send().await;
    assert!(is_whole(done(reading).await));

    let reading = vector(&file);
    let requests = peer.expect(&[RequestCode::readv, RequestCode::stat]).await;
    answer(&mut peer, &requests[0]);
    peer.ok(requests[1].0, &Bytes::from_static(b"1 10000 16 1700000007\0"));
    peer.send().await;
    assert_eq!(done(reading).await.unwrap_err().fault(), Fault::Changed);
}

#[tokio::test]
async fn without_an_answer_the_version_is_compared_separately() {
    let script = Script::listen();
    let (file, mut peer) = opened(&script, Some(XROOTD)).await;
    let reading = vector(&file);
    let requests = peer.expect(&[RequestCode::readv, RequestCode::stat]).await;
    answer(&mut peer, &requests[0]);
    peer.refuse(requests[1].0, ErrorCode::IOError);
    peer.send().await;
    let requests = peer.expect(&[RequestCode::stat]).await;
    peer.ok(requests[0].0, &Peer::stat_of(SIZE + 1));
    peer.send().await;
    assert_eq!(done(reading).await.unwrap_err().fault(), Fault::Changed);
}

/// Pages are read asynchronously by XRootD, and other servers may read vectors so.
#[tokio::test]
async fn other_reads_are_confirmed_after_their_response() {
    for software in [Some(XROOTD), Some(&b"dCache 9.2\n"[..]), None] {
        for is_vector in [false, true] {
            if is_vector && software == Some(XROOTD) {
                continue;
            }
            let script = Script::listen();
            let (file, mut peer) = opened(&script, software).await;
            let reading: JoinHandle<Result<(), Error>> = match is_vector {
                true => {
                    let reading = vector(&file);
                    let requests = peer.expect(&[RequestCode::readv]).await;
                    answer(&mut peer, &requests[0]);
                    tokio::spawn(async move { reading.await.unwrap().map(drop) })
                }
                false => {
                    let reading = read(&file, 0, 3);
                    let requests = peer.expect(&[RequestCode::pgread]).await;
                    peer.pages(requests[0].0, 0, b"abc", |_| ());
                    tokio::spawn(async move { reading.await.unwrap().map(drop) })
                }
            };
            peer.send().await;
            let (stream_id, request) = peer.next().await;
            assert_eq!(request.code(), RequestCode::stat, "{software:?}");
            assert!(!reading.is_finished(), "not before the version is known");
            peer.ok(stream_id, &Bytes::from_static(b"1 10000 16 1700000007\0"));
            peer.send().await;
            assert_eq!(done(reading).await.unwrap_err().fault(), Fault::Changed);
        }
    }
}
