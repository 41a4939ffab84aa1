//! Bytes as the protocol's description and probes of a real server show them.

use bytes::{Bytes, BytesMut};
use towpath_proto::xrootd::handshake::{HANDSHAKE, HANDSHAKE_REPLY_HEADER, HandshakeReply, Sniff, sniff};
use towpath_proto::xrootd::page::{self, Page};
use towpath_proto::xrootd::request::*;
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

/// Bytes from hexadecimal text; blanks are for the eye.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

const STREAM: StreamId = StreamId([0x00, 0x07]);
const HANDLE: FileHandle = FileHandle([1, 2, 3, 4]);

/// Encodes `request`, compares with `wire`, and decodes that.
fn golden(request: impl Into<Request>, wire: &str) {
    let request = request.into();
    let mut out = BytesMut::new();
    request.encode(STREAM, &mut out);
    assert_eq!(out, hex(wire), "{request:?} encodes to {out:02x?}");
    assert_eq!(decode(&out), Ok(request));
}

fn decode(wire: &[u8]) -> Result<Request, DecodeError> {
    let (head, payload) = wire.split_first_chunk().unwrap();
    Request::decode(&RequestHeader::decode(head)?, Bytes::copy_from_slice(payload))
}

/// Encodes `body`, compares with `wire`, and decodes that.
fn golden_body<B: Body + PartialEq + std::fmt::Debug>(body: B, wire: &[u8]) {
    let mut out = BytesMut::new();
    body.encode(&mut out);
    assert_eq!(out, wire);
    assert_eq!(B::decode(Bytes::copy_from_slice(wire)), Ok(body));
}

#[test]
fn handshake_and_its_answer() {
    assert_eq!(HANDSHAKE.to_vec(), hex("00000000 00000000 00000000 00000004 000007dc"));
    assert_eq!(sniff(&HANDSHAKE[..19]), Sniff::NeedMore);
    assert_eq!(sniff(b""), Sniff::NeedMore);
    assert_eq!(sniff(&hex("00000000 00000000 00000000 00000004 000007dc 0001")), Sniff::Handshake);
    assert_eq!(sniff(b"GET / HTTP/1.1"), Sniff::Other);
    assert_eq!(sniff(&[0x16, 0x03, 0x01]), Sniff::Other);

    let mut out = BytesMut::new();
    ok(StreamId::ZERO, &HandshakeReply { protocol_version: 0x511, server_type: 1 }, &mut out);
    assert_eq!(out, hex("0000 0000 00000008 00000511 00000001"));
    assert_eq!(out[..8], HANDSHAKE_REPLY_HEADER.to_bytes());
}

#[test]
fn session_requests() {
    let flags = ProtocolRequestFlags::secreqs | ProtocolRequestFlags::ableTLS | ProtocolRequestFlags::bifreqs;
    golden(
        Protocol { client_version: 0x511, flags, expect: Expect::ExpLogin },
        "0007 0bbe 00000511 0b 03 00000000000000000000 00000000",
    );
    golden(
        Login {
            pid: 0x1234,
            user: Login::pad_user("anna"),
            ability: LoginAbility::fullurl | LoginAbility::redirflags,
            capver: Login::ASYNCRESP | Login::VERSION_TLS,
            cgi: "xrd.cc=ch".into(),
            ..Login::default()
        },
        "0007 0bbf 00001234 616e6e6100000000 00 81 85 00 00000009 7872642e63633d6368",
    );
    let session_id = SessionId(*b"0123456789abcdef");
    golden(Bind { session_id }, "0007 0bd0 30313233343536373839616263646566 00000000");
    golden(Endsess { session_id }, "0007 0bcf 30313233343536373839616263646566 00000000");
    golden(Ping, "0007 0bc3 00000000000000000000000000000000 00000000");
    golden(
        Auth { credential_type: *b"ztn\0", credentials: "tok".into() },
        "0007 0bb8 000000000000000000000000 7a746e00 00000003 746f6b",
    );
}

#[test]
fn file_requests() {
    golden(
        Open {
            mode: Mode::ur | Mode::uw,
            options: OpenOptions::open_read | OpenOptions::retstat,
            path: PathAndCgi::from("/a?b=c"),
            ..Open::default()
        },
        "0007 0bc2 0180 0410 0000 000000000000 00000000 00000006 2f613f623d63",
    );
    golden(Close { handle: HANDLE }, "0007 0bbb 01020304 000000000000000000000000 00000000");
    golden(
        Read { handle: HANDLE, offset: 0x1_0000_0000, length: 10, path_id: PathId(0) },
        "0007 0bc5 01020304 0000000100000000 0000000a 00000000",
    );
    golden(
        Read { handle: HANDLE, offset: 0, length: 10, path_id: PathId(2) },
        "0007 0bc5 01020304 0000000000000000 0000000a 00000008 02 00000000000000",
    );
    golden(
        PgRead { handle: HANDLE, offset: 4090, length: 10, path_id: PathId(0), flags: PageFlags::retry },
        "0007 0bd6 01020304 0000000000000ffa 0000000a 00000002 00 01",
    );
    let element = VectorElement { handle: HANDLE, length: 5, offset: 6 };
    golden(
        Readv { path_id: PathId(1), elements: vec![element, element] },
        "0007 0bd1 000000000000000000000000000000 01 00000020
         01020304 00000005 0000000000000006 01020304 00000005 0000000000000006",
    );
}

#[test]
fn namespace_requests() {
    golden(
        Stat { options: StatOptions::vfs, wants: 0, target: Target::Path("/a".into()) },
        "0007 0bc9 01 00000000000000 00000000 00000000 00000002 2f61",
    );
    golden(
        Stat { options: StatOptions::NONE, wants: 0, target: Target::Handle(HANDLE) },
        "0007 0bc9 00 00000000000000 00000000 01020304 00000000",
    );
    golden(
        Dirlist { options: DirlistOptions::dstat, path: "/".into() },
        "0007 0bbc 000000000000000000000000000000 02 00000001 2f",
    );
    golden(
        Locate { options: LocateOptions::nowait | LocateOptions::ForDirlist, path: "*/a".into() },
        "0007 0bd3 2400 0000000000000000000000000000 00000003 2a2f61",
    );
    golden(
        Query::Config("readv_ior_max readv_iov_max".into()),
        "0007 0bb9 0007 0000 00000000 0000000000000000 0000001b
         72656164765f696f725f6d61782072656164765f696f765f6d6178",
    );
    golden(
        Mv { from: "/a".into(), to: "/b".into() },
        "0007 0bc1 0000000000000000000000000000 0002 00000005 2f61 20 2f62",
    );
}

/// `pgread(4090, 10)` of a file: checksum, 6 bytes, checksum, 4 bytes.
#[test]
fn pgread_unaligned_at_both_ends() {
    let data = b"abcdefghij";
    let mut encoded = BytesMut::new();
    page::encode(4090, data, &mut encoded);
    assert_eq!(encoded.len(), 18);
    assert_eq!(encoded[4..10], data[..6]);
    assert_eq!(encoded[14..], data[6..]);

    let status = PgReadStatus { kind: StatusKind::Final, offset: 4090, data_len: 18 };
    let head = status.to_bytes(STREAM);
    assert_eq!(head[..8], hex("0007 0fa7 00000018"));
    assert_eq!(head[12..], hex("0007 1e 00 00000000 00000012 0000000000000ffa"));

    let mut framer = ResponseFramer::new(1024);
    framer.buffer().extend_from_slice(&head);
    framer.buffer().extend_from_slice(&encoded);
    let body = framer.next().unwrap().unwrap().status.unwrap();
    assert_eq!(PgReadStatus::from_body(&body), Ok(status));
    assert_eq!(framer.body().unwrap().unwrap(), encoded);

    let mut decoded = BytesMut::new();
    assert_eq!(page::decode(4090, &encoded, &mut decoded), Ok(vec![]));
    assert_eq!(decoded, data.as_slice());
    encoded[15] ^= 1;
    assert_eq!(page::verify(4090, &encoded), Ok(vec![Page { offset: 4096, length: 4 }]));
}

#[test]
fn stat_texts() {
    let text = b"43040271000206848 888062 16 1795288351 1795288351 1795288352 0644 root root\0";
    golden_body(
        StatInfo {
            id: 43_040_271_000_206_848,
            size: 888_062,
            flags: StatFlags::readable,
            mtime: 1_795_288_351,
            extended: Some(StatExtended {
                ctime: 1_795_288_351,
                atime: 1_795_288_352,
                mode: Mode(0o644),
                owner: "root".into(),
                group: "root".into(),
            }),
        },
        text,
    );
    golden_body(StatInfo { id: 1, size: 2, flags: StatFlags::isDir, mtime: 3, extended: None }, b"1 2 2 3\0");
    let vfs = VfsInfo { rw_nodes: 1, rw_free_mib: 70625, rw_used_percent: 72, ..VfsInfo::default() };
    golden_body(vfs, b"1 70625 72 0 0 0\0");
    let stat = Some(StatInfo { size: 2, ..StatInfo::default() });
    golden_body(OpenReply { handle: HANDLE, stat }, b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x000 2 0 0\0");
    golden_body(OpenReply { handle: HANDLE, stat: None }, &HANDLE.0);
}

#[test]
fn locate_answer() {
    let location = Location { manager: false, pending: false, writable: true, address: "[::127.0.0.1]:1094".into() };
    golden_body(Locations(vec![location]), b"Sw[::127.0.0.1]:1094\0");
}

/// A `get` of `a`, which has two bytes, and of `b`, which does not exist.
#[test]
fn fattr_get_of_one_and_a_half() {
    let body = Bytes::from(hex("01 02 0000 6100 0bd3 6200 00000002 7676 00000000"));
    let results = FattrResults::from_body(body.clone()).unwrap();
    let expected = [
        FattrResult { name: "a".into(), outcome: Ok("vv".into()) },
        FattrResult { name: "b".into(), outcome: Err(ErrorCode::AttrNotFound) },
    ];
    assert_eq!(results.0, expected);
    assert_eq!(results.to_body(&FattrOperation::Get(vec!["a".into(), "b".into()])), body);
}
