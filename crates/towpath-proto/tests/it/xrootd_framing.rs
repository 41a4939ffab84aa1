//! Streams cut anywhere, requests that are too long, cut short or wrong: the framers stay in step or say why not.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use towpath_proto::xrootd::handshake::HANDSHAKE;
use towpath_proto::xrootd::request::*;
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

use super::xrootd_arbitrary as arbitrary;
use super::xrootd_golden::hex;

/// Data of `length` bytes: what follows a write.
fn data(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Returns how many bytes of data follow a request on its own connection: none if they arrive on a bound one.
fn own_bulk_len(request: &Request) -> u64 {
    match request {
        Request::Write(Write { path_id, .. }) | Request::PgWrite(PgWrite { path_id, .. })
            if *path_id != PathId::MAIN =>
        {
            0
        }
        _ => request.bulk_len(),
    }
}

/// A whole connection as a client sends it.
fn stream(requests: &[(StreamId, Request)]) -> BytesMut {
    let mut out = BytesMut::from(&HANDSHAKE[..]);
    for (stream_id, request) in requests {
        request.encode(*stream_id, &mut out);
        out.extend_from_slice(&data(own_bulk_len(request)));
    }
    out
}

/// Feeds `wire` in segments and collects the requests; data are taken from the buffer, or around it.
fn receive(wire: &[u8], segment: usize, around: bool) -> Vec<(StreamId, Request)> {
    let mut framer = RequestFramer::new(Limits::default());
    let mut requests = Vec::new();
    let mut bulk: Vec<u8> = Vec::new();
    let mut wire = wire;
    while !wire.is_empty() {
        let (now, later) = wire.split_at(segment.min(wire.len()));
        let straight = if around && framer.buffer().is_empty() { framer.bulk_remaining() } else { 0 };
        let (straight, buffered) = now.split_at(now.len().min(straight as usize));
        wire = later;
        bulk.extend_from_slice(straight);
        framer.bulk_received(straight.len() as u64);
        framer.buffer().extend_from_slice(buffered);
        loop {
            bulk.extend_from_slice(&framer.take_bulk(100));
            if framer.bulk_remaining() > 0 && !framer.buffer().is_empty() {
                continue;
            }
            let Some(incoming) = framer.next().unwrap() else { break };
            let request = incoming.request.unwrap();
            assert_eq!(framer.bulk_remaining(), own_bulk_len(&request));
            requests.push((incoming.header.stream_id, request));
        }
    }
    assert_eq!(bulk, requests.iter().flat_map(|(_, request)| data(own_bulk_len(request))).collect::<Vec<_>>());
    requests
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn requests_in_segments_of_any_size(
        requests in vec((arbitrary::stream_id(), arbitrary::request()), 0..12),
        segment in prop_oneof![Just(1usize), 2..100usize, Just(1 << 20)],
        around in any::<bool>(),
    ) {
        prop_assert_eq!(receive(&stream(&requests), segment, around), requests);
    }

    #[test]
    fn responses_in_segments_of_any_size(
        responses in vec((arbitrary::stream_id(), arbitrary::response()), 0..12),
        segment in prop_oneof![Just(1usize), 2..100usize, Just(1 << 20)],
    ) {
        // The data of a status response are as long as it says; keep that short.
        let short = |response| match response {
            Response::Status(body) => Response::Status(StatusBody { data_len: body.data_len % 500, ..body }),
            other => other,
        };
        let responses: Vec<_> = responses.into_iter().map(|(stream_id, response)| (stream_id, short(response))).collect();
        let mut wire = BytesMut::new();
        for (stream_id, response) in &responses {
            response.encode(*stream_id, &mut wire);
            if let Response::Status(body) = response {
                wire.extend_from_slice(&data(u64::from(body.data_len)));
            }
        }
        let mut framer = ResponseFramer::new(1000);
        let (mut received, mut head) = (Vec::new(), None);
        for now in wire.chunks(segment) {
            framer.buffer().extend_from_slice(now);
            loop {
                let Some(current) = head.take().or_else(|| framer.next().unwrap()) else { break };
                let Some(body) = framer.body().unwrap() else {
                    head = Some(current);
                    break;
                };
                received.push(match current.status {
                    Some(status) => Response::Status(status),
                    None => Response::decode(&current.header, body).unwrap(),
                });
            }
        }
        prop_assert_eq!(received, responses.into_iter().map(|(_, response)| response).collect::<Vec<_>>());
    }
}

/// A framer past its handshake, with `wire` in its buffer.
fn framer_with(wire: &str) -> RequestFramer {
    let mut framer = RequestFramer::new(Limits { argument_bytes: 64, list_bytes: 128, bulk_bytes: 1000 });
    framer.buffer().extend_from_slice(&HANDSHAKE);
    framer.buffer().extend_from_slice(&hex(wire));
    framer
}

const PING: &str = "0001 0bc3 00000000000000000000000000000000 00000000";

/// A request that is refused leaves the next one where it should be.
#[test]
fn refused_requests_keep_the_stream_in_step() {
    let refused = [
        ("unknown code", "0007 ffff 00000000000000000000000000000000 00000002 2f61", ErrorCode::InvalidRequest),
        ("no path", "0007 0bc6 00000000000000000000000000000000 00000000", ErrorCode::ArgMissing),
        ("NUL in a path", "0007 0bc6 00000000000000000000000000000000 00000003 2f0061", ErrorCode::ArgInvalid),
        ("negative length", "0007 0bc5 00000000 0000000000000000 ffffffff 00000000", ErrorCode::ArgInvalid),
        ("negative offset", "0007 0bc5 00000000 ffffffffffffffff 00000001 00000000", ErrorCode::ArgInvalid),
        ("pgread of nothing", "0007 0bd6 00000000 0000000000000000 00000000 00000000", ErrorCode::ArgInvalid),
        ("vector cut short", "0007 0bd1 00000000000000000000000000000000 00000003 000000", ErrorCode::ArgInvalid),
        ("empty vector", "0007 0bd1 00000000000000000000000000000000 00000000", ErrorCode::ArgMissing),
        ("write at -1", "0007 0bcb 00000000 ffffffffffffffff 00000000 00000003 010203", ErrorCode::ArgInvalid),
        ("mv without second path", "0007 0bc1 00000000000000000000000000000000 00000002 2f61", ErrorCode::ArgMissing),
        ("17 attributes", "0007 0bcc 00000000 01 11 00000000000000000000 00000003 2f6100", ErrorCode::ArgTooLong),
        (
            "name without NUL",
            "0007 0bcc 00000000 01 01 00000000000000000000 00000006 2f6100 000061",
            ErrorCode::ArgInvalid,
        ),
    ];
    let long = [
        ("argument of 65 bytes", "0007 0bc6 00000000000000000000000000000000 00000041", 65),
        ("list of 129 bytes", "0007 0bcd 00000000000000000000000000000000 00000081", 129),
        ("data of 1001 bytes", "0007 0bcb 00000000000000000000000000000000 000003e9", 1001),
    ];
    let long = long.map(|(what, head, bytes)| (what, format!("{head}{}", "2f".repeat(bytes)), ErrorCode::ArgTooLong));
    let refused = refused.map(|(what, wire, code)| (what, wire.to_owned(), code));
    for (what, wire, code) in refused.into_iter().chain(long) {
        let mut framer = framer_with(&format!("{wire}{PING}"));
        let refused = framer.next().unwrap().unwrap();
        assert_eq!(refused.header.stream_id, StreamId([0, 7]), "{what}");
        assert_eq!(refused.request.unwrap_err().code(), code, "{what}");
        framer.take_bulk(usize::MAX);
        assert_eq!(framer.next().unwrap().unwrap().request, Ok(Request::Ping(Ping)), "{what}");
    }
}

/// A stream whose next request cannot be found is given up.
#[test]
fn lost_streams_are_given_up() {
    let lost = [
        ("negative dlen", "0007 0bc3 00000000000000000000000000000000 ffffffff"),
        ("vector cut short", "0007 0bd7 00000000000000000000000000000000 00000003 000000"),
        (
            "vector of 1001 bytes",
            "0007 0bd7 00000000000000000000000000000000 00000010 00000000 000003e9 0000000000000000",
        ),
        (
            "writev under a checkpoint",
            "0007 0bc4 00000000 0000000000000000000000 04 00000018
             0007 0bd7 00000000000000000000000000000000 00000010",
        ),
    ];
    for (what, wire) in lost {
        assert!(framer_with(wire).next().is_err(), "{what}");
    }
    let mut other = RequestFramer::new(Limits::default());
    other.buffer().extend_from_slice(b"GET /");
    assert!(other.next().is_err());
}

/// An announced length is checked against the limits before memory is allocated, and a message is returned only when
/// complete.
#[test]
fn nothing_comes_out_of_a_part() {
    let mut request = BytesMut::new();
    Request::from(Rm { path: "/some/path".into() }).encode(StreamId::ZERO, &mut request);
    for length in 0..request.len() {
        let mut framer = RequestFramer::new(Limits::default());
        framer.buffer().extend_from_slice(&HANDSHAKE);
        framer.buffer().extend_from_slice(&request[..length]);
        assert_eq!(framer.next(), Ok(None));
    }
}

#[test]
fn a_body_beyond_the_limit_can_still_be_taken_in_parts() {
    let mut framer = ResponseFramer::new(10);
    ok(StreamId::ZERO, &Bytes::from_static(b"eleven byte"), framer.buffer());
    assert!(framer.next().unwrap().is_some());
    assert!(framer.body().is_err());
    assert_eq!(framer.take(6), "eleven");
    assert_eq!(framer.body().unwrap().unwrap(), " byte");
    assert_eq!(framer.next(), Ok(None));
}

/// The client gives the connection up if a status response does not fit its checksum, stream id or request.
#[test]
fn status_responses_are_verified() {
    let good = PgReadStatus { kind: StatusKind::Final, offset: 0, data_len: 0 }.to_bytes(StreamId([0, 7]));
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 0x01;
        let mut framer = ResponseFramer::new(100);
        framer.buffer().extend_from_slice(&bad);
        // A flipped bit in the status or the length gives another kind of response, or an incomplete one.
        let noticed = !matches!(framer.next(), Ok(Some(ResponseHead { status: Some(_), .. })));
        assert!(noticed, "byte {at}");
    }
}
