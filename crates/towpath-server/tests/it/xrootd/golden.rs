//! Bytes on the wire, as sent by an unmodified XRootD server.

use towpath_proto::xrootd::{
    FattrOperation, OpenOptions, Target,
    handshake::HANDSHAKE,
    request::{Fattr, PgRead, Query, ReadElement, Readv},
};

use super::peer::{Peer, Site, content, encode, login, open_request, protocol};

#[tokio::test]
async fn everything_in_one_flight() {
    let site = Site::empty();
    site.put("/f", b"0123456789").await;
    let mut peer = Peer::silent(&site).await;
    let elements = [(2, 3), (7, 3)].map(|(offset, length)| ReadElement { offset, length, ..ReadElement::default() });
    let flight = [
        HANDSHAKE.to_vec(),
        encode(1, protocol()),
        encode(2, login()),
        encode(3, open_request("/f", OpenOptions::open_read)),
        encode(4, Readv { elements: elements.to_vec(), ..Readv::default() }),
    ];
    peer.send(&flight.concat()).await;
    assert_eq!(peer.raw(16).await, [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1], "handshake");
    assert_eq!(peer.raw(16).await, [0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0x30, 0, 1], "protocol");
    assert_eq!(peer.raw(8).await, [0, 2, 0, 0, 0, 0, 0, 16], "login");
    peer.raw(16).await;
    assert_eq!(peer.raw(12).await, [0, 3, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0], "open: handle 0");
    let mut readv = vec![0, 4, 0, 0, 0, 0, 0, 38];
    readv.extend([0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, b'2', b'3', b'4']);
    readv.extend([0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 7, b'7', b'8', b'9']);
    assert_eq!(peer.raw(46).await, readv);
}

#[tokio::test]
async fn pages_are_those_of_the_file() {
    let site = Site::empty();
    let data = content(8192);
    site.put("/f", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    peer.send(&encode(7, PgRead { handle, offset: 4090, length: 10, ..PgRead::default() })).await;
    let head = peer.raw(32).await;
    assert_eq!(head[..8], [0, 7, 0x0f, 0xa7, 0, 0, 0, 24], "status 4007, 24 bytes of body");
    assert_eq!(head[12..], [0, 7, 30, 0, 0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0x0f, 0xfa]);
    let pages = peer.raw(18).await;
    assert_eq!((&pages[4..10], &pages[14..]), (&data[4090..4096], &data[4096..4100]));
}

#[tokio::test]
async fn attributes_answer_each_for_itself() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let target = || Target::Path("/f".into());
    let set = FattrOperation::Set { new: false, attributes: vec![("a".into(), "vv".into())] };
    peer.ask(Fattr { target: target(), operation: set }).await.ok();
    let get = FattrOperation::Get(vec!["a".into(), "b".into()]);
    let answer = peer.ask(Fattr { target: target(), operation: get }).await.ok();
    let golden = [&[1, 2, 0, 0, b'a', 0, 0x0b, 0xd3, b'b', 0][..], &[0, 0, 0, 2, b'v', b'v', 0, 0, 0, 0]];
    assert_eq!(answer, golden.concat());
}

#[tokio::test]
async fn configuration_is_a_line_for_each_word() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    let words = "readv_ior_max readv_iov_max tpc bind_max nonsense fattr";
    let answer = peer.ask(Query::Config(words.into())).await.ok();
    assert_eq!(&*answer, b"2097136\n1024\n1\n15\nnonsense\n248 65536\n");
}
