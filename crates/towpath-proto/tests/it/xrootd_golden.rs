//! Bytes as the protocol's description and probes of a real server show them.

use bytes::{Bytes, BytesMut};
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Extent};
use towpath_proto::xrootd::auth::*;
use towpath_proto::xrootd::handshake::{HANDSHAKE, HandshakeReply, Sniff, sniff};
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
    assert_eq!(out[..8], [0, 0, 0, 0, 0, 0, 0, 8]);
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
    golden(Close { handle: HANDLE, ending: None }, "0007 0bbb 01020304 000000000000000000000000 00000000");
    let promise = FileExpectation {
        size: 9,
        mtime_ns: None,
        digests: Digest::from_hex(Algorithm::Crc32c, "e3069283").unwrap().into(),
    };
    golden(
        Close { handle: HANDLE, ending: Some(CloseAction::Commit(promise)) },
        "0007 0bbb 01020304 000000000000000000000000 00000016 73697a653d3926637263333263 3d6533303639323833",
    );
    let promise = FileExpectation { size: 9, mtime_ns: Some(-1_500_000_000), ..FileExpectation::default() };
    golden(
        Close { handle: HANDLE, ending: Some(CloseAction::Commit(promise)) },
        "0007 0bbb 01020304 000000000000000000000000 00000018 73697a653d39266d74696d653d2d31353030303030303030",
    );
    let (keep, abandon) = (Some(CloseAction::Keep), Some(CloseAction::Abandon));
    golden(Close { handle: HANDLE, ending: keep }, "0007 0bbb 01020304 000000000000000000000000 00000004 6b656570");
    golden(
        Close { handle: HANDLE, ending: abandon },
        "0007 0bbb 01020304 000000000000000000000000 00000007 6162616e646f6e",
    );
    for text in [
        "size=x",
        "crc32c=e3069283",
        "size=9&crc33=e3069283",
        "size=9&crc32c=e306928x",
        "size=9&",
        "size=9&mtime=x",
        "\u{e9}",
    ] {
        let mut wire = hex("0007 0bbb 01020304 000000000000000000000000");
        wire.extend((text.len() as u32).to_be_bytes());
        wire.extend(text.bytes());
        assert_eq!(decode(&wire), Err(DecodeError::Invalid { what: "end of a close" }), "{text}");
    }
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
        Stat { options: StatOptions::vfs, wants: 0, wants_node: false, target: Target::Path("/a".into()) },
        "0007 0bc9 01 00000000000000 00000000 00000000 00000002 2f61",
    );
    golden(
        Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Handle(HANDLE) },
        "0007 0bc9 00 00000000000000 00000000 01020304 00000000",
    );
    golden(
        Dirlist { options: DirlistOptions::dstat, wants_node: false, path: "/".into() },
        "0007 0bbc 000000000000000000000000000000 02 00000001 2f",
    );
    golden(
        Stat { options: StatOptions::NONE, wants: 0, wants_node: true, target: Target::Path("/a".into()) },
        "0007 0bc9 00 74704e31000000 00000000 00000000 00000002 2f61",
    );
    golden(
        Dirlist { options: DirlistOptions::dstat, wants_node: true, path: "/".into() },
        "0007 0bbc 74704e310000000000000000000000 02 00000001 2f",
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

#[test]
fn requests_that_change_something() {
    golden(
        Write { handle: HANDLE, offset: 1, path_id: PathId(2), length: 3 },
        "0007 0bcb 01020304 0000000000000001 02 000000 00000003",
    );
    golden(
        PgWrite { handle: HANDLE, offset: 1, path_id: PathId(2), flags: PageFlags::retry, length: 7 },
        "0007 0bd2 01020304 0000000000000001 02 01 0000 00000007",
    );
    let element = VectorElement { handle: HANDLE, length: 5, offset: 6 };
    let writev = Writev { options: WritevOptions::doSync, elements: vec![element, element] };
    assert_eq!(Request::from(writev.clone()).bulk_len(), 10);
    golden(
        writev,
        "0007 0bd7 01 000000000000000000000000000000 00000020
         01020304 00000005 0000000000000006 01020304 00000005 0000000000000006",
    );
    golden(
        Truncate { target: Target::Handle(HANDLE), size: 256 },
        "0007 0bd4 01020304 0000000000000100 00000000 00000000",
    );
    golden(
        Truncate { target: Target::Path("/a".into()), size: 256 },
        "0007 0bd4 00000000 0000000000000100 00000000 00000002 2f61",
    );
    golden(Sync { handle: HANDLE }, "0007 0bc8 01020304 000000000000000000000000 00000000");
    golden(
        Mkdir { options: MkdirOptions::mkdirpath, mode: Mode(0o755), path: "/a".into() },
        "0007 0bc0 01 00000000000000000000000000 01ed 00000002 2f61",
    );
    golden(Chmod { mode: Mode(0o750), path: "/a".into() }, "0007 0bba 0000000000000000000000000000 01e8 00000002 2f61");
    golden(Rm { path: "/a".into() }, "0007 0bc6 00000000000000000000000000000000 00000002 2f61");
    golden(Rmdir { path: "/a".into() }, "0007 0bc7 00000000000000000000000000000000 00000002 2f61");
    let attributes = vec![("a".into(), "vv".into()), ("b".into(), Bytes::new())];
    golden(
        Fattr { target: Target::Path("/f".into()), operation: FattrOperation::Set { new: true, attributes } },
        "0007 0bcc 00000000 03 02 01 000000000000000000 00000015 2f6600 0000 6100 0000 6200 00000002 7676 00000000",
    );
    golden(
        Fattr { target: Target::Handle(HANDLE), operation: FattrOperation::List { values: true } },
        "0007 0bcc 01020304 02 00 10 000000000000000000 00000001 00",
    );
}

#[test]
fn attribute_values_are_bounded() {
    let set = |length: usize| Fattr {
        target: Target::Path("/f".into()),
        operation: FattrOperation::Set { new: false, attributes: vec![("a".into(), vec![b'v'; length].into())] },
    };
    for (length, is_allowed) in [(Fattr::MAX_VALUE_BYTES, true), (Fattr::MAX_VALUE_BYTES + 1, false)] {
        let mut out = BytesMut::new();
        Request::from(set(length)).encode(STREAM, &mut out);
        assert_eq!(decode(&out).is_ok(), is_allowed, "{length} bytes");
    }
}

#[test]
fn a_login_announces_that_the_client_takes_late_responses() {
    let login = |capver| Login { capver, ..Login::default() };
    assert!(login(Login::ASYNCRESP | Login::VERSION_TLS).understands_asynresp());
    assert!(!login(Login::VERSION_TLS).understands_asynresp());
}

#[test]
fn a_file_handle_is_a_big_endian_number() {
    assert_eq!(FileHandle::from_number(0x0102_0304), HANDLE);
    assert_eq!(HANDLE.number(), 0x0102_0304);
}

#[test]
fn an_encoded_path_keeps_special_bytes() {
    let encoded = PathAndCgi::percent_encoded(b"/a?b%20\n", b"k=v");
    assert_eq!(encoded.path, "/a%3Fb%2520%0A");
    assert_eq!(encoded.cgi, "k=v&towpath.encoded=1");
    assert_eq!(*encoded.path_bytes(), *b"/a?b%20\n");
    assert_eq!(*PathAndCgi::new("/a%3Fb").path_bytes(), *b"/a%3Fb");
}

#[test]
fn rarely_needed_requests() {
    let prepare = Prepare {
        options: PrepareOptions::stage | PrepareOptions::notify,
        priority: 1,
        port: 0x1234,
        options_x: PrepareOptionsX::evict,
        list: Bytes::new(),
    };
    let prepare = prepare.with_paths(["/a".into(), "/b?c".into()]);
    assert_eq!(prepare.paths().collect::<Vec<_>>(), [PathAndCgi::from("/a"), "/b?c".into()]);
    golden(prepare, "0007 0bcd 0a 01 1234 0001 00000000000000000000 00000007 2f610a2f623f63");
    golden(Statx::new(["/a".into(), "/b".into()]), "0007 0bce 00000000000000000000000000000000 00000005 2f610a2f62");
    golden(
        Set { modifier: 1, text: "appid x".into() },
        "0007 0bca 000000000000000000000000000000 01 00000007 61707069642078",
    );
    golden(
        Sigver {
            expected: RequestCode::rm,
            version: 1,
            flags: SigverFlags::nodata,
            seqno: 2,
            crypto: 0x81,
            signature: "s".into(),
        },
        "0007 0bd5 0bc6 01 01 0000000000000002 81 000000 00000001 73",
    );
    golden(
        Chkpoint { handle: HANDLE, operation: Checkpoint::Control(CheckpointCode::ckpRollback) },
        "0007 0bc4 01020304 0000000000000000000000 03 00000000",
    );
    let element = CloneElement { source: HANDLE, source_offset: 1, length: 2, destination_offset: 3 };
    golden(
        CloneRanges { destination: HANDLE, elements: vec![element] },
        "0007 0bd8 01020304 000000000000000000000000 00000020
         01020304 00000000 0000000000000001 0000000000000002 0000000000000003",
    );
    golden(Gpfile::default(), "0007 0bbd 00000000000000000000000000000000 00000000");
    golden(Query::Visa(HANDLE), "0007 0bb9 0008 0000 01020304 0000000000000000 00000000");
}

/// Encodes `response`, compares with `wire`, and decodes that.
fn golden_response(response: Response, wire: &str) {
    let mut out = BytesMut::new();
    response.encode(STREAM, &mut out);
    assert_eq!(out, hex(wire), "{response:?} encodes to {out:02x?}");
    let (head, body) = out.split_first_chunk().unwrap();
    let header = ResponseHeader::decode(head).unwrap();
    assert_eq!(Response::decode(&header, Bytes::copy_from_slice(body)), Ok(response));
}

#[test]
fn answers_that_are_not_results() {
    let error = ErrorReply { code: ErrorCode::NotFound, message: "gone".into(), named: None };
    golden_response(Response::Error(error), "0007 0fa3 00000009 00000bc3 676f6e6500");
    let host = Redirect::Host { host: "h".into(), port: 1094, cgi: "a=b".into(), login_cgi: "c".into() };
    golden_response(Response::Redirect(host), "0007 0fa4 0000000b 00000446 68 3f 613d62 3f 63");
    let url = Redirect::Url { url: "u".into(), flags: RedirectFlags::collapseRedir };
    golden_response(Response::Redirect(url), "0007 0fa4 00000005 ffffdfff 75");
    let url = Redirect::Url { url: "u".into(), flags: RedirectFlags::default() };
    golden_response(Response::Redirect(url), "0007 0fa4 00000005 ffffffff 75");
    golden_response(Response::Wait(Wait { seconds: 5, message: "w".into() }), "0007 0fa5 00000005 00000005 77");
    let waitresp = WaitResp { seconds: 600, message: "Job scheduled.".into() };
    golden_response(Response::WaitResp(waitresp), "0007 0fa6 00000012 00000258 4a6f62207363686564756c65642e");
    golden_response(Response::AuthMore("x".into()), "0007 0fa2 00000001 78");

    // The stream id of the request stands inside.
    let header = ResponseHeader { stream_id: STREAM, status: Status::ok, dlen: 1 };
    let asynresp = Attn::AsynResp { header, body: "x".into() };
    golden_response(Response::Attn(asynresp), "0000 0fa1 00000011 00001390 00000000 0007 0000 00000001 78");
    golden_response(Response::Attn(Attn::AsyncMs("m".into())), "0000 0fa1 00000005 0000138a 6d");
}

/// The answer of a 5.5.3 server to a pgwrite whose second page was damaged.
#[test]
fn pgwrite_with_a_bad_page() {
    let status = PgWriteStatus { offset: 4090, bad_pages: vec![Page { offset: 4096, length: 4096 }] };
    let mut out = BytesMut::new();
    status.encode(STREAM, &mut out);
    assert_eq!(
        out,
        hex("0007 0fa7 00000018 04a5c249 0007 1a 00 00000000 00000010 0000000000000ffa
             80394ad3 1000 1000 0000000000001000")
    );
}

#[test]
fn session_answers() {
    let flags = ServerFlags::isServer | ServerFlags::suppgrw | ServerFlags::supposc;
    golden_body(ProtocolReply { version: 0x511, flags, ..ProtocolReply::default() }, &hex("00000511 00300001"));
    let security =
        SecurityRequirements { level: SecurityLevel::STANDARD, overrides: vec![[1, 2]], ..Default::default() };
    golden_body(
        ProtocolReply { version: 0x520, flags, bind_interfaces: Some("abc".into()), security: Some(security) },
        &hex("00000520 00300001 42 00 0004 61626300 53 00 00 00 02 01 0102"),
    );
    let session_id = SessionId(*b"0123456789abcdef");
    golden_body(LoginReply { session_id, security: Bytes::new() }, b"0123456789abcdef");
    let offers = [SecurityProtocol::ztn(4096), SecurityProtocol::unix()];
    golden_body(
        LoginReply { session_id, security: write_security_protocols(&offers) },
        b"0123456789abcdef&P=ztn,0:4096:&P=unix\0",
    );
    assert_eq!(parse_security_protocols(b"&P=ztn,0:4096:&P=unix"), Ok(offers.to_vec()));
    assert_eq!(
        parse_security_protocols(b"&P=much-too-long"),
        Err(DecodeError::Invalid { what: "name of a security protocol" })
    );
    golden_body(PathId(3), &[3]);
    let ztn = ZtnCredentials { token: "tok".into() };
    assert_eq!(ztn.encode().unwrap(), hex("7a746e00 00 54 0000 0004 746f6b 00"));
}

#[test]
fn listings() {
    let mut out = BytesMut::new();
    let with = |options| Dirlist { options, ..Dirlist::default() };
    DirlistWriter::new(STREAM, &with(DirlistOptions::NONE), "adler32").finish(&mut out);
    assert_eq!(out, hex("0007 0000 00000000"), "an empty directory");
    out.clear();
    DirlistWriter::new(STREAM, &with(DirlistOptions::dstat), "adler32").finish(&mut out);
    assert_eq!(out[8..], *b".\n0 0 0 0\0", "an empty directory with metadata");

    let mut writer = DirlistWriter::new(STREAM, &with(DirlistOptions::NONE), "adler32");
    assert!(!writer.entry(&DirlistEntry { name: "a\nb".into(), ..DirlistEntry::default() }, &mut out));
    for name in ["a", "b"] {
        assert!(writer.entry(&DirlistEntry { name: name.into(), ..DirlistEntry::default() }, &mut out));
    }
    out.clear();
    writer.finish(&mut out);
    assert_eq!(out[8..], *b"a\nb\0");

    let wants_node = Dirlist { options: DirlistOptions::dstat, wants_node: true, ..Dirlist::default() };
    let mut writer = DirlistWriter::new(STREAM, &wants_node, "adler32");
    assert!(writer.entry(&DirlistEntry { name: "a\nb%".into(), ..DirlistEntry::default() }, &mut out));
    out.clear();
    writer.finish(&mut out);
    assert_eq!(out[8..], *b".\n0 0 0 0 tpN1\na%0Ab%25\n0 0 0 0\0");

    // A server that passes over the wish sends names as they are.
    for (start, name) in [(b".\n0 0 0 0\n".as_slice(), "%41"), (b".\n0 0 0 0 tpN1\n", "A")] {
        let mut parser = DirlistParser::new(DirlistOptions::dstat);
        start.iter().for_each(|byte| parser.push(&[*byte]));
        assert_eq!(parser.pop(), Ok(None));
        parser.push(b"%41\n0 0 0 0\n");
        assert_eq!(parser.pop().unwrap().unwrap().name, name);
    }

    let mut ignored = DirlistParser::new(DirlistOptions::dstat);
    ignored.push(b"a\nb\n.\n..\n");
    ignored.finish();
    let mut next = || ignored.pop().map(|entry| entry.map(|entry| entry.name));
    assert_eq!([next(), next(), next()], [Ok(Some("a".into())), Ok(Some("b".into())), Ok(None)], "dstat not honoured");

    let mut outside = DirlistParser::new(DirlistOptions::NONE);
    outside.push(b"../a\n");
    assert_eq!(outside.pop(), Err(DecodeError::Invalid { what: "name of a directory entry" }));
}

#[test]
fn paths() {
    let path = PathAndCgi::from("//a/./b//?authz=Bearer%20x&c&=d?e");
    assert_eq!(path.normalized(), Ok("/a/b".into()));
    assert_eq!(path.cgi_value("authz"), Some(&b"Bearer%20x"[..]));
    assert_eq!(path.cgi_pairs().collect::<Vec<_>>()[1..], [(&b"c"[..], &b""[..]), (b"", b"d?e")]);
    assert_eq!(format!("{path:?}"), "//a/./b//?..", "secrets stay out of logs");
    for (given, clean) in [("/", "/"), ("//", "/"), ("/a", "/a"), ("/a/", "/a"), ("/.", "/"), ("/...", "/...")] {
        assert_eq!(PathAndCgi::from(given).normalized(), Ok(clean.into()), "{given}");
    }
    for bad in ["a", "/..", "/a/../b", "*"] {
        assert!(PathAndCgi::from(bad).normalized().is_err(), "{bad}");
    }
    let everywhere = Locate { path: "*/a".into(), ..Locate::default() };
    assert_eq!(everywhere.wildcard_path(), Some("/a".into()));
    assert_eq!(Locate { path: "/a".into(), ..Locate::default() }.wildcard_path(), None);
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
            node: None,
        },
        text,
    );
    golden_body(StatInfo { id: 1, size: 2, flags: StatFlags::isDir, mtime: 3, ..StatInfo::default() }, b"1 2 2 3\0");
    let vfs = VfsInfo { rw_nodes: 1, rw_free_mib: 70625, rw_used_percent: 72, ..VfsInfo::default() };
    golden_body(vfs, b"1 70625 72 0 0 0\0");
    let stat = Some(StatInfo { size: 2, ..StatInfo::default() });
    golden_body(
        OpenReply { handle: HANDLE, stat, ..OpenReply::default() },
        b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x000 2 0 0\0",
    );
    golden_body(OpenReply { handle: HANDLE, ..OpenReply::default() }, &HANDLE.0);
    let extent = Extent::of(Algorithms::DEFAULT, 0x1234, b"123456789").unwrap();
    let nothing = OpenReply { handle: HANDLE, present: Some(Vec::new()), ..OpenReply::default() };
    golden_body(nothing.clone(), b"\x01\x02\x03\x04\0\0\0\0\0\0\0\0\0tpR1");
    golden_body(
        OpenReply { present: Some(vec![extent]), ..nothing },
        b"\x01\x02\x03\x04\0\0\0\0\0\0\0\0\0tpR1\0\0\0\0\0\0\x12\x34\0\0\0\0\0\0\0\x09\xe3\x06\x92\x83\x09\x1e\x01\xde",
    );
}

#[test]
fn locate_answer() {
    let location =
        LocationInfo { manager: false, pending: false, writable: true, address: "[::127.0.0.1]:1094".into() };
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
