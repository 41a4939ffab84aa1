//! Requests with arbitrary segmentation and any number in flight.

use std::collections::HashMap;

use tokio::io::AsyncWriteExt as _;
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, MkdirOptions, OpenOptions, Response, StreamId, Target,
    request::{Close, Mkdir, Query, Read, Rm, Stat},
};

use super::peer::{Peer, Site, XrootdResponse, content, encode, greeting, open_request};

fn read(offset: u64, length: u32) -> Read {
    Read { handle: FileHandle([0; 4]), offset, length, ..Read::default() }
}

#[tokio::test]
async fn split_at_every_byte() {
    let site = Site::empty();
    site.put("/f", &content(100)).await;
    let flight = [
        greeting(),
        encode(3, open_request("/f", OpenOptions::open_read)),
        encode(4, read(10, 20)),
        encode(5, Query::Config("readv_iov_max".into())),
    ]
    .concat();
    for cut in 0..=flight.len() {
        let mut peer = Peer::silent(&site).await;
        let (first, second) = flight.split_at(cut);
        peer.send(first).await;
        tokio::task::yield_now().await;
        peer.send(second).await;
        let mut answers = HashMap::new();
        for _ in 0..6 {
            let (stream_id, answer) = peer.any_answer().await.unwrap();
            answers.insert(stream_id.number(), answer);
        }
        assert_eq!(answers.remove(&4).unwrap().ok(), content(100)[10..30], "cut at {cut}");
        assert_eq!(answers.remove(&5).unwrap().ok(), "1024\n", "cut at {cut}");
    }
}

#[tokio::test]
async fn many_reads_at_once_all_answered() {
    let site = Site::empty();
    let data = content(3 << 20);
    site.put("/f", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    peer.open("/f", OpenOptions::open_read).await;
    let ranges: Vec<(usize, usize)> =
        (0..300).map(|n| (n * 9_973 % (2 << 20), if n % 7 == 0 { 1 << 20 } else { n * 13 })).collect();
    let requests =
        ranges.iter().enumerate().flat_map(|(n, range)| encode(n as u16, read(range.0 as u64, range.1 as u32)));
    peer.send(&requests.collect::<Vec<u8>>()).await;
    for _ in 0..ranges.len() {
        let (stream_id, answer) = peer.any_answer().await.unwrap();
        let (offset, length) = ranges[usize::from(stream_id.number())];
        assert!(answer.ok() == data[offset..offset + length], "{length} bytes at {offset} differ");
    }
}

#[tokio::test]
async fn what_is_sent_behind_an_open_waits_for_it() {
    let site = Site::empty();
    site.put("/f", b"hello").await;
    let mut peer = Peer::logged_in(&site).await;
    let close = Close { handle: FileHandle([0; 4]), ending: None };
    let flight = [
        encode(1, open_request("/f", OpenOptions::open_read)),
        encode(2, read(0, 5)),
        encode(3, close.clone()),
        encode(4, read(0, 5)),
        encode(5, open_request("/missing", OpenOptions::open_read)),
        encode(6, read(0, 5)),
        encode(7, close),
    ]
    .concat();
    peer.send(&flight).await;
    let mut answers = HashMap::new();
    for _ in 0..7 {
        let (StreamId([_, number]), answer) = peer.any_answer().await.unwrap();
        answers.insert(number, answer);
    }
    let mut of = |number| answers.remove(&number).unwrap();
    assert_eq!(of(2).ok(), "hello");
    assert_eq!(of(3), XrootdResponse::Ok("".into()));
    assert_eq!(of(4).code(), ErrorCode::FileNotOpen, "read behind the close");
    assert_eq!(of(5).code(), ErrorCode::NotFound);
    assert_eq!(of(6).code(), ErrorCode::FileNotOpen, "read of a file that could not be opened");
}

#[tokio::test]
async fn changes_of_names_keep_their_order() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let mkdir = |path: &str| Mkdir { options: MkdirOptions::NONE, path: path.into(), ..Mkdir::default() };
    let stat = Stat { options: Default::default(), wants: 0, wants_node: false, target: Target::Path("/a/b/c".into()) };
    let flight =
        [encode(1, mkdir("/a")), encode(2, mkdir("/a/b")), encode(3, mkdir("/a/b/c")), encode(4, stat)].concat();
    peer.send(&flight).await;
    for _ in 0..4 {
        peer.any_answer().await.unwrap().1.ok();
    }
    let flight = [
        encode(1, open_request("/a/f", OpenOptions::new | OpenOptions::open_updt)),
        encode(2, Close { handle: FileHandle([0; 4]), ending: None }),
        encode(3, Rm { path: "/a/f".into() }),
        encode(4, open_request("/a/f", OpenOptions::new | OpenOptions::open_updt)),
    ];
    peer.send(&flight.concat()).await;
    for _ in 0..4 {
        peer.any_answer().await.unwrap().1.ok();
    }
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_answers() {
    let site = Site::empty();
    let data = content(5 << 20);
    site.put("/f", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    peer.open("/f", OpenOptions::open_read).await;
    peer.send(&encode(1, read(0, 5 << 20))).await;
    peer.stream.shutdown().await.unwrap();
    assert!(peer.answer(1).await.ok() == data);
    peer.closed().await;
}

#[tokio::test]
async fn a_stopping_server_finishes_what_it_began() {
    let site = Site::empty();
    let data = content(32 << 20);
    site.put("/f", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    peer.open("/f", OpenOptions::open_read).await;
    peer.send(&encode(1, read(0, 32 << 20))).await;
    let (_, (first, _)) = peer.response().await.unwrap();
    let Response::OkSoFar(first) = first else { panic!("{first:?}") };
    site.stopping.cancel();
    let rest = peer.answer(1).await.ok();
    assert!([first, rest].concat() == data);
    peer.closed().await;
    site.running.await.unwrap();
}
