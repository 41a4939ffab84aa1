//! Decoders fed with damaged and arbitrary bytes: they may refuse, they must not panic, hang or allocate without bound.
//!
//! Runs on the stable toolchain as a part of `cargo test`. `TOWPATH_FUZZ_CASES` sets the number of cases for each test
//! (default 256); a failing case is shrunk and printed.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use towpath_proto::xrootd::auth::{UnixCredentials, ZtnCredentials, parse_security_protocols};
use towpath_proto::xrootd::handshake::{HANDSHAKE, HandshakeReply, sniff};
use towpath_proto::xrootd::page;
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

use super::{xrootd_arbitrary as arbitrary, xrootd_captures};

#[allow(clippy::disallowed_methods, reason = "this crate does not depend on towpath-store")]
fn config() -> ProptestConfig {
    let cases = std::env::var("TOWPATH_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(256), ..ProptestConfig::default() }
}

/// Streams of the recorded conversations, shortened where they hold file data.
static RECORDED: LazyLock<Vec<(bool, Vec<u8>)>> = LazyLock::new(|| {
    let streams = xrootd_captures::all_streams().into_iter();
    streams.map(|(from_client, bytes)| (from_client, bytes.into_iter().take(2000).collect())).collect()
});

fn recorded(from_client: bool) -> impl Strategy<Value = Vec<u8>> {
    let streams = RECORDED.iter().filter(|(client, _)| *client == from_client).map(|(_, bytes)| bytes.clone());
    select(streams.collect::<Vec<_>>())
}

/// One way to damage a message.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Remove(Index, Index),
    Insert(Index, Vec<u8>),
    /// Four bytes that are likely to be a length: a number at the edge of something.
    Number(Index, u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    let edges = vec![0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff, 4096, 16];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Remove(from, to)),
        1 => (any::<Index>(), vec(any::<u8>(), 1..30)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (any::<Index>(), select(edges)).prop_map(|(at, number)| Damage::Number(at, number)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    match damage {
        _ if length == 0 => {}
        Damage::Set(at, byte) => bytes[at.index(length)] = *byte,
        Damage::Remove(from, to) => {
            let (from, to) = (from.index(length), to.index(length));
            bytes.drain(from.min(to)..from.max(to));
        }
        Damage::Insert(at, more) => {
            let at = at.index(length);
            bytes.splice(at..at, more.iter().copied());
        }
        Damage::Number(at, number) => {
            let at = at.index(length);
            bytes.iter_mut().skip(at).zip(number.to_be_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }
}

fn damaged(clean: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (clean, vec(damage(), 1..6)).prop_map(|(mut bytes, damages)| {
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        bytes
    })
}

/// Anything a client might send: damaged recordings, damaged requests of all kinds, noise.
fn client_stream() -> impl Strategy<Value = Vec<u8>> {
    let made_up = vec((arbitrary::stream_id(), arbitrary::request()), 1..4).prop_map(|requests| {
        let mut out = BytesMut::new();
        requests.iter().for_each(|(stream_id, request)| request.encode(*stream_id, &mut out));
        out.to_vec()
    });
    let with_handshake = |mut rest: Vec<u8>| {
        rest.splice(0..0, HANDSHAKE);
        rest
    };
    prop_oneof![
        damaged(recorded(true)),
        damaged(made_up).prop_map(with_handshake),
        vec(any::<u8>(), 0..200).prop_map(with_handshake),
    ]
}

/// Anything a server might send.
fn server_stream() -> impl Strategy<Value = Vec<u8>> {
    let made_up = vec((arbitrary::stream_id(), arbitrary::response()), 1..4).prop_map(|responses| {
        let mut out = BytesMut::new();
        responses.iter().for_each(|(stream_id, response)| response.encode(*stream_id, &mut out));
        out.to_vec()
    });
    prop_oneof![damaged(recorded(false)), damaged(made_up), vec(any::<u8>(), 0..200)]
}

/// Every body that a client decodes.
fn decode_bodies(body: &Bytes) {
    let _ = HandshakeReply::decode(body.clone());
    let _ = ProtocolReply::decode(body.clone());
    let _ = LoginReply::decode(body.clone());
    let _ = OpenReply::decode(body.clone());
    let _ = StatInfo::decode(body.clone());
    let _ = VfsInfo::decode(body.clone());
    let _ = StatxReply::decode(body.clone());
    let _ = Locations::decode(body.clone());
    let _ = Text::decode(body.clone());
    let _ = PathId::decode(body.clone());
    let _ = FattrResults::from_body(body.clone());
    let _ = FattrList::from_body(body.clone(), true);
    let _ = FattrList::from_body(body.clone(), false);
    let _ = parse_security_protocols(body);
    decode_listing(body);
    decode_vector(body);
}

fn decode_listing(body: &Bytes) {
    for options in [DirlistOptions::NONE, DirlistOptions::dcksm] {
        let mut parser = DirlistParser::new(options);
        parser.push(body);
        parser.finish();
        while let Ok(Some(entry)) = parser.pop() {
            assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
        }
    }
}

fn decode_vector(body: &Bytes) {
    let mut parser = ReadvParser::default();
    parser.push(body.clone());
    let mut data = 0;
    while let Ok(Some(piece)) = parser.pop() {
        data += piece.data.len();
    }
    assert!(data <= body.len());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn server_side(wire in client_stream(), segment in 1..300usize) {
        let limits = Limits { argument_bytes: 4096, list_bytes: 8192, bulk_bytes: 1 << 20 };
        let mut framer = RequestFramer::new(limits);
        let _ = sniff(&wire);
        for now in wire.chunks(segment) {
            framer.buffer().extend_from_slice(now);
            loop {
                framer.take_bulk(usize::MAX);
                let Ok(next) = framer.next() else { return Ok(()) };
                let Some(incoming) = next else { break };
                if let Ok(request) = incoming.request {
                    // Whatever was understood can be said again, and is understood the same way.
                    let mut out = BytesMut::new();
                    request.encode(incoming.header.stream_id, &mut out);
                    let (head, payload) = out.split_first_chunk().unwrap();
                    let again = Request::decode(&RequestHeader::decode(head).unwrap(), Bytes::copy_from_slice(payload));
                    prop_assert_eq!(again, Ok(request));
                }
            }
            prop_assert!(framer.buffer().capacity() < 1 << 20);
        }
    }

    #[test]
    fn client_side(wire in server_stream(), segment in 1..300usize) {
        let mut framer = ResponseFramer::new(4096);
        for now in wire.chunks(segment) {
            framer.buffer().extend_from_slice(now);
            while framer.remaining() == 0 {
                let Ok(Some(head)) = framer.next() else { break };
                let Ok(Some(body)) = framer.body() else { break };
                if let Some(status) = head.status {
                    let _ = PgReadStatus::from_body(&status);
                    let _ = PgWriteStatus::from_body(&status, body);
                } else {
                    let _ = Response::decode(&head.header, body.clone());
                    decode_bodies(&body);
                }
            }
            framer.take(usize::MAX);
            prop_assert!(framer.buffer().capacity() < 1 << 20);
        }
    }

    #[test]
    fn bodies(body in vec(any::<u8>(), 0..300)) {
        let body = Bytes::from(body);
        decode_bodies(&body);
        let _ = ZtnCredentials::decode(body.clone(), 100);
        let _ = UnixCredentials::decode(body.clone());
        for status in Status::ALL {
            let header = ResponseHeader { stream_id: StreamId::ZERO, status: *status, dlen: body.len() as u32 };
            let _ = Response::decode(&header, body.clone());
        }
    }

    #[test]
    fn pages(offset in any::<u64>(), encoded in vec(any::<u8>(), 0..9000), length in any::<u64>()) {
        let mut out = BytesMut::new();
        let _ = page::decode(offset, &encoded, &mut out);
        prop_assert!(page::whole_pages(offset, encoded.len()) <= encoded.len());
        let _ = (page::page_count(offset, length), page::encoded_len(offset, length), page::decoded_len(offset, length));
        let _ = page::pages(offset, length).take(10).count();
    }
}
