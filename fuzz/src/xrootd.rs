//! XRootD frames: the two framers, and the bodies of responses.

use bytes::{Bytes, BytesMut};
use towpath_proto::xrootd::{
    DecodeError, DirlistOptions, IncomingRequest, PathAndCgi, Request, RequestFramer, RequestHeader, Response,
    ResponseFramer, StreamId, auth,
    handshake::HANDSHAKE,
    page,
    request::Limits,
    response::{
        Body, DirlistParser, FattrList, FattrResults, Locations, LoginReply, OpenReply, ProtocolReply, ReadvParser,
        StatInfo, StatxReply, Text, VfsInfo,
    },
};

/// Small limits, so that the fuzzer reaches them.
const LIMITS: Limits = Limits { argument_bytes: 4 << 10, list_bytes: 8 << 10, bulk_bytes: 1 << 20 };

/// A client's stream after the handshake. Properties: how the network cuts the stream does not change the requests, and
/// an encoded request decodes to itself.
pub fn request(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let whole = requests(stream, stream.len());
    assert_eq!(whole, requests(stream, usize::from(*cut).max(1)), "the cuts of the stream changed the requests");
    for request in whole.0.into_iter().filter_map(|incoming| incoming.request.ok()) {
        let mut bytes = BytesMut::new();
        request.encode(StreamId::ZERO, &mut bytes);
        let (head, payload) = bytes.split_first_chunk::<{ RequestHeader::LEN }>().unwrap();
        let header = RequestHeader::decode(head).unwrap();
        let decoded = Request::decode(&header, Bytes::copy_from_slice(payload)).unwrap();
        assert_eq!(decoded, request, "an encoded request decoded to another one");
    }
}

/// The requests of a stream that arrives in pieces of `piece` bytes, and the error that ended it.
fn requests(stream: &[u8], piece: usize) -> (Vec<IncomingRequest>, Option<DecodeError>) {
    let mut framer = RequestFramer::new(LIMITS);
    framer.buffer().extend_from_slice(&HANDSHAKE);
    let mut requests = Vec::new();
    for piece in stream.chunks(piece.max(1)) {
        framer.buffer().extend_from_slice(piece);
        loop {
            while !framer.take_bulk(usize::MAX).is_empty() {}
            match framer.next() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

/// A server's stream; the first byte of the input chooses the type that the body of each `ok` response is decoded as.
pub fn response(input: &[u8]) {
    let Some((kind, stream)) = input.split_first() else { return };
    let mut framer = ResponseFramer::new(64 << 10);
    framer.buffer().extend_from_slice(stream);
    while let Ok(Some(head)) = framer.next() {
        match framer.body() {
            Ok(Some(body)) => {
                let _ = Response::decode(&head.header, body.clone());
                decode_body(*kind, body);
            }
            Ok(None) => break,
            Err(_) => while !framer.take(4096).is_empty() {},
        }
    }
}

fn decode_body(kind: u8, body: Bytes) {
    match kind % 16 {
        0 => round_trip::<Locations>(body),
        1 => round_trip::<LoginReply>(body),
        2 => round_trip::<OpenReply>(body),
        3 => round_trip::<ProtocolReply>(body),
        4 => round_trip::<StatInfo>(body),
        5 => round_trip::<StatxReply>(body),
        6 => round_trip::<Text>(body),
        7 => round_trip::<VfsInfo>(body),
        8 => drop(FattrResults::from_body(body)),
        9 => drop(FattrList::from_body(body, true)),
        10 => drop(FattrList::from_body(body, false)),
        11 => listing(&body),
        12 => vector(body),
        13 => drop(page::decode(0, &body, &mut BytesMut::new())),
        14 => drop(auth::parse_security_protocols(&body)),
        _ => drop(PathAndCgi::decode(body)),
    }
}

/// What decodes is encoded and decoded again, to the same value.
fn round_trip<B: Body + PartialEq + std::fmt::Debug>(body: Bytes) {
    let Ok(value) = B::decode(body) else { return };
    let mut bytes = BytesMut::new();
    value.encode(&mut bytes);
    assert_eq!(B::decode(bytes.freeze()).as_ref(), Ok(&value), "an encoded body decoded to another one");
}

fn vector(body: Bytes) {
    let mut parser = ReadvParser::default();
    parser.push(body);
    while let Ok(Some(_)) = parser.pop() {}
}

fn listing(body: &[u8]) {
    let Some((options, text)) = body.split_first() else { return };
    let mut parser = DirlistParser::new(DirlistOptions(*options));
    parser.push(text);
    while let Ok(Some(_)) = parser.pop() {}
    parser.finish();
    while let Ok(Some(_)) = parser.pop() {}
}
