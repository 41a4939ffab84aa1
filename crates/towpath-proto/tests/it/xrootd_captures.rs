//! Conversations recorded between the real xrdcp, xrdfs and xrootd 5.5.3 (`interop/xrootd-captures.sh`), replayed.
//!
//! Every request must decode and, encoded again, give the same bytes, but for the differences that the `request`
//! module documents; every response must decode, and its typed body too.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use towpath_proto::xrootd::handshake::{HANDSHAKE, HandshakeReply};
use towpath_proto::xrootd::page;
use towpath_proto::xrootd::request::{Dirlist, PayloadClass};
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

use super::xrootd_golden::hex;

/// Who sent a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Server,
}

/// One connection: runs of bytes in the order of their transmission.
type Conversation = Vec<(Sender, Vec<u8>)>;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// The connections in the recording `name`.
#[expect(clippy::disallowed_methods, reason = "test data next to the test")]
fn recording(name: &str) -> Vec<Conversation> {
    let text = std::fs::read_to_string(directory().join(format!("{name}.txt"))).unwrap();
    let mut connections = Vec::new();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("connection", _)) => connections.push(Conversation::new()),
            Some((">", bytes)) => connections.last_mut().unwrap().push((Sender::Client, hex(bytes))),
            Some(("<", bytes)) => connections.last_mut().unwrap().push((Sender::Server, hex(bytes))),
            _ => assert!(line.starts_with('#'), "{name}: {line}"),
        }
    }
    connections
}

/// All bytes of each sender in all recordings: what the fuzz tests start from.
#[expect(clippy::disallowed_methods, reason = "test data next to the test")]
pub(super) fn all_streams() -> Vec<(bool, Vec<u8>)> {
    let files = std::fs::read_dir(directory()).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let conversations = names.flat_map(|name| recording(&name));
    conversations
        .flat_map(|conversation| {
            [(true, Sender::Client), (false, Sender::Server)].map(|(from_client, who)| {
                let bytes =
                    conversation.iter().filter(|(sender, _)| *sender == who).flat_map(|(_, bytes)| bytes.clone());
                (from_client, bytes.collect())
            })
        })
        .collect()
}

/// What a request was, and the data that came with it.
#[derive(Debug, Clone)]
struct CapturedRequest {
    stream_id: StreamId,
    request: Request,
    data: Bytes,
}

/// One response: final or not, with the data of a status response.
#[derive(Debug, Clone)]
struct CapturedResponse {
    stream_id: StreamId,
    response: Response,
    data: Bytes,
}

/// Replays one connection and returns its requests, and its answers without that to the handshake.
fn replay(conversation: &Conversation) -> (Vec<CapturedRequest>, Vec<CapturedResponse>) {
    let mut server = RequestFramer::new(Limits::default());
    let mut client = ResponseFramer::new(1 << 20);
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let mut from_client = Vec::new();
    for (sender, bytes) in conversation {
        match sender {
            Sender::Client => {
                from_client.extend_from_slice(bytes);
                server.buffer().extend_from_slice(bytes);
                while let Some(incoming) = server.next().unwrap() {
                    let data = server.take_bulk(usize::MAX);
                    assert_eq!(server.bulk_remaining(), 0, "recordings hold whole messages");
                    let request = incoming.request.unwrap();
                    requests.push(CapturedRequest { stream_id: incoming.header.stream_id, request, data });
                }
            }
            Sender::Server => {
                client.buffer().extend_from_slice(bytes);
                while let Some(head) = client.next().unwrap() {
                    answers.push(answer(&mut client, head));
                }
            }
        }
    }
    assert!(server.buffer().is_empty() && client.buffer().is_empty(), "no bytes are left over");
    same_bytes(&from_client, &requests);
    let handshake = answers.remove(0);
    let Response::Ok(body) = handshake.response else { panic!("{handshake:?}") };
    assert_eq!(HandshakeReply::decode(body).unwrap().server_type, HandshakeReply::DATA_SERVER);
    (requests, answers)
}

fn answer(client: &mut ResponseFramer, head: ResponseHead) -> CapturedResponse {
    let body = client.body().unwrap().unwrap();
    let stream_id = head.header.stream_id;
    let (response, data) = match head.status {
        Some(status) => (Response::Status(status), body),
        None => (Response::decode(&head.header, body).unwrap(), Bytes::new()),
    };
    CapturedResponse { stream_id, response, data }
}

/// Encodes `requests` and compares with what the client sent.
fn same_bytes(from_client: &[u8], requests: &[CapturedRequest]) {
    let mut original = from_client.strip_prefix(&HANDSHAKE).unwrap();
    for CapturedRequest { stream_id, request, data } in requests {
        let header = RequestHeader::decode(original.first_chunk().unwrap()).unwrap();
        let beyond = if header.payload_class() == PayloadClass::Bulk { 0 } else { data.len() };
        let (sent, rest) = original.split_at(RequestHeader::LEN + header.dlen as usize + beyond);
        original = rest;

        let mut encoded = BytesMut::new();
        request.encode(*stream_id, &mut encoded);
        encoded.extend_from_slice(data);
        let same = encoded == sent || normal_form(header.code, &encoded) == normal_form(header.code, sent);
        assert!(same, "{request:?}: {sent:02x?} became {encoded:02x?}");
    }
    assert!(original.is_empty());
}

/// A message without what the `request` module says may change: trailing zeros, and the length of the first path.
fn normal_form(code: RequestCode, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (head, payload) = message.split_at(RequestHeader::LEN);
    let mut head = head.to_vec();
    let mut payload = payload.to_vec();
    match code {
        RequestCode::read | RequestCode::pgread | RequestCode::query | RequestCode::fattr => {
            head.truncate(20);
            payload.truncate(payload.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        }
        RequestCode::mv => head[18..20].fill(0),
        _ => {}
    }
    (head, payload)
}

/// Decodes the whole body of every answer with the type that belongs to its request, encodes it, and compares.
fn typed_bodies(requests: &[CapturedRequest], answers: &[CapturedResponse]) {
    let mut pending: HashMap<StreamId, (Request, BytesMut)> = HashMap::new();
    let mut order = requests.iter();
    for answer in answers {
        if matches!(answer.response, Response::Attn(_)) {
            continue;
        }
        let (request, body) = pending.entry(answer.stream_id).or_insert_with(|| {
            let next = order.by_ref().find(|seen| seen.stream_id == answer.stream_id);
            (next.unwrap().request.clone(), BytesMut::new())
        });
        match &answer.response {
            Response::OkSoFar(piece) => body.extend_from_slice(piece),
            Response::WaitResp(_) => {}
            Response::Ok(piece) => {
                body.extend_from_slice(piece);
                typed_body(request, &body.clone().freeze());
                pending.remove(&answer.stream_id);
            }
            _ => drop(pending.remove(&answer.stream_id)),
        }
    }
}

fn typed_body(request: &Request, body: &Bytes) {
    match request {
        Request::Protocol(_) => same::<ProtocolReply>(body),
        Request::Login(_) => same::<LoginReply>(body),
        Request::Bind(_) => same::<PathId>(body),
        Request::Open(_) => same::<OpenReply>(body),
        Request::Stat(stat) if stat.options.contains(StatOptions::vfs) => same::<VfsInfo>(body),
        Request::Stat(_) => same::<StatInfo>(body),
        Request::Locate(_) => same::<Locations>(body),
        Request::Dirlist(dirlist) => same_listing(dirlist.options, body),
        Request::Query(_) | Request::Prepare(_) => {
            assert!(!Text::decode(body.clone()).unwrap().0.is_empty());
        }
        Request::Fattr(fattr) => match &fattr.operation {
            FattrOperation::List { values } => {
                assert_eq!(FattrList::from_body(body.clone(), *values).unwrap().to_body(), body);
            }
            operation => assert_eq!(FattrResults::from_body(body.clone()).unwrap().to_body(operation), body),
        },
        Request::Statx(_) => same::<StatxReply>(body),
        Request::Read(_) | Request::Readv(_) | Request::Set(_) => {}
        _ => assert!(body.is_empty(), "{request:?} is answered by {body:?}"),
    }
}

/// Decodes `body` as `B`, encodes that, and compares.
fn same<B: Body>(body: &Bytes) {
    let mut encoded = BytesMut::new();
    B::decode(body.clone()).unwrap().encode(&mut encoded);
    assert_eq!(encoded, body);
}

fn same_listing(options: DirlistOptions, body: &Bytes) {
    let mut parser = DirlistParser::new(options);
    parser.push(body);
    parser.finish();
    let mut writer = DirlistWriter::new(StreamId::ZERO, &Dirlist { options, ..Dirlist::default() }, "adler32");
    let mut out = BytesMut::new();
    while let Some(entry) = parser.pop().unwrap() {
        assert!(writer.entry(&entry, &mut out));
    }
    writer.finish(&mut out);
    assert_eq!(out[ResponseHeader::LEN..], *body);
}

/// Replays a recording with one connection.
fn conversation(name: &str) -> (Vec<CapturedRequest>, Vec<CapturedResponse>) {
    let connections = recording(name);
    assert_eq!(connections.len(), 1);
    let (requests, answers) = replay(&connections[0]);
    assert!(!requests.is_empty() && !answers.is_empty());
    (requests, answers)
}

/// The file that the recordings are about: its content is a function of the offset.
fn content(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(|at| ((at * 7 + at / 256) % 251) as u8).collect()
}

fn codes(requests: &[CapturedRequest]) -> Vec<RequestCode> {
    requests.iter().map(|seen| seen.request.code()).collect()
}

#[test]
fn xrdfs_conversations() {
    let names = [
        "chmod",
        "locate",
        "ls",
        "ls-checksum",
        "ls-empty",
        "ls-long",
        "mkdir",
        "mv",
        "prepare",
        "query-checksum",
        "query-config",
        "query-space",
        "query-stats",
        "query-xattr",
        "rm",
        "rmdir",
        "spaceinfo",
        "stat",
        "statvfs",
        "truncate",
        "xattr-del",
        "xattr-get",
        "xattr-list",
        "xattr-set",
    ];
    for name in names {
        let (requests, answers) = conversation(&format!("xrdfs-{name}"));
        typed_bodies(&requests, &answers);
    }
}

#[test]
fn a_text_ends_at_its_first_nul() {
    let (_, answers) = conversation("xrdfs-query-xattr");
    let Some(CapturedResponse { response: Response::Ok(body), .. }) = answers.last() else { panic!() };
    assert_ne!(body.last(), Some(&0), "the server sent bytes without meaning after the NUL");
    assert!(Text::decode(body.clone()).unwrap().0.ends_with(b"&ofs.ap=a"));
}

#[test]
fn listing_with_checksums() {
    let (requests, answers) = conversation("xrdfs-ls-checksum");
    let Some(CapturedRequest { request: Request::Dirlist(dirlist), .. }) = requests.last() else { panic!() };
    assert_eq!(dirlist.options, DirlistOptions::dstat | DirlistOptions::dcksm);
    let Some(CapturedResponse { response: Response::Ok(body), .. }) = answers.last() else { panic!() };
    let mut parser = DirlistParser::new(dirlist.options);
    parser.push(body);
    parser.finish();
    let first = parser.pop().unwrap().unwrap();
    assert_eq!((&*first.name, first.checksum), (&b"new.bin"[..], None));
    let second = parser.pop().unwrap().unwrap();
    let checksum = EntryChecksum { algorithm: "adler32".into(), value: "31552981".into() };
    assert_eq!((&*second.name, second.checksum), (&b"small.bin"[..], Some(checksum)));
    assert_eq!(second.stat.unwrap().size, 9000);
    assert_eq!(parser.pop().unwrap(), None);
}

#[test]
fn xrdcp_downloads_with_pgread() {
    let (requests, answers) = conversation("xrdcp-download");
    use RequestCode as Code;
    assert_eq!(codes(&requests), [Code::protocol, Code::login, Code::open, Code::pgread, Code::close]);
    typed_bodies(&requests, &answers.iter().filter(|a| a.data.is_empty()).cloned().collect::<Vec<_>>());

    let pgread = answers.iter().find(|answer| !answer.data.is_empty()).unwrap();
    let Response::Status(body) = &pgread.response else { panic!("{pgread:?}") };
    let status = PgReadStatus::from_body(body).unwrap();
    assert_eq!((status.kind, status.offset), (StatusKind::Final, 0));
    let mut data = BytesMut::new();
    assert_eq!(page::decode(0, &pgread.data, &mut data), Ok(vec![]));
    assert_eq!(data, content(0, 9000));
    let mut encoded = BytesMut::new();
    page::encode(0, &data, &mut encoded);
    assert_eq!(encoded, pgread.data);
}

#[test]
fn xrdcp_uploads_with_pgwrite() {
    let (requests, answers) = conversation("xrdcp-upload");
    let open = requests.iter().find_map(|seen| match &seen.request {
        Request::Open(open) => Some(open),
        _ => None,
    });
    let open = open.unwrap();
    assert!(open.options.writes() && open.options.creates());
    assert_eq!(open.path.cgi_value("oss.asize"), Some(&b"9000"[..]));

    let pgwrite = requests.iter().find(|seen| seen.request.code() == RequestCode::pgwrite).unwrap();
    let mut data = BytesMut::new();
    assert_eq!(page::decode(0, &pgwrite.data, &mut data), Ok(vec![]));
    assert_eq!(data, content(0, 9000));

    let status = answers.iter().find_map(|answer| match &answer.response {
        Response::Status(body) => Some(PgWriteStatus::from_body(body, answer.data.clone()).unwrap()),
        _ => None,
    });
    assert_eq!(status, Some(PgWriteStatus { offset: 0, bad_pages: vec![] }));
    assert!(answers.iter().any(|answer| matches!(&answer.response,
        Response::Error(error) if error.code == ErrorCode::NotFound)));
}

/// The server promises the checksum, and sends it unasked.
#[test]
fn a_checksum_comes_as_asynresp() {
    let (requests, answers) = conversation("xrdcp-checksum");
    let query = requests.iter().find(|seen| seen.request.code() == RequestCode::query).unwrap();
    let promise = answers.iter().position(|answer| matches!(answer.response, Response::WaitResp(_))).unwrap();
    let Response::WaitResp(waitresp) = &answers[promise].response else { panic!() };
    assert_eq!((waitresp.seconds, &*waitresp.message), (600, "Job scheduled."));
    let Response::Attn(Attn::AsynResp { header, body }) = &answers[promise + 1].response else { panic!() };
    assert_eq!(header.stream_id, query.stream_id);
    let Ok(Response::Ok(body)) = Response::decode(header, body.clone()) else { panic!() };
    assert_eq!(Text::decode(body).unwrap().0, "adler32 31552981");
}

/// The request goes over the first connection, the data come over the second.
#[test]
fn xrdcp_binds_more_connections() {
    let connections = recording("xrdcp-streams");
    let (main, _) = replay(&connections[0]);
    let pgread = main.iter().find_map(|seen| match &seen.request {
        Request::PgRead(pgread) => Some(pgread),
        _ => None,
    });
    assert_eq!(pgread.unwrap().path_id, PathId(1));
    let (requests, answers) = replay(&connections[1]);
    assert_eq!(codes(&requests), [RequestCode::protocol, RequestCode::bind]);
    typed_bodies(&requests, &answers[..2]);
    assert_eq!(page::verify(0, &answers[2].data), Ok(vec![]));
}

#[test]
fn an_error_has_code_and_message() {
    let (_, answers) = conversation("xrdcp-missing");
    let Some(CapturedResponse { response: Response::Error(error), .. }) = answers.last() else { panic!() };
    assert_eq!(error.code, ErrorCode::NotFound);
    assert_eq!(error.message, "Unable to open /data/missing.bin; no such file or directory");
}

/// Plain reads at the end of the file, vectors, and the requests about an open file.
#[test]
fn plain_reads_writes_and_vectors() {
    let (requests, answers) = conversation("python-calls");
    typed_bodies(&requests, &answers);
    let after = |wanted: RequestCode| {
        let at = requests.iter().position(|seen| seen.request.code() == wanted).unwrap();
        answers[at..].iter().map(|answer| answer.response.clone()).collect::<Vec<_>>()
    };

    let reads = after(RequestCode::read);
    assert_eq!(reads[0], Response::Ok(content(100, 50).into()));
    // A read across the end of the file: a piece, and an empty end. A read at the end: empty.
    assert_eq!(reads[1], Response::OkSoFar(content(8990, 10).into()));
    assert_eq!(reads[2], Response::Ok(Bytes::new()));
    assert_eq!(reads[3], Response::Ok(Bytes::new()));

    let Response::Ok(vector) = &reads[4] else { panic!() };
    let mut parser = ReadvParser::default();
    parser.push(vector.clone());
    for (offset, length) in [(0, 10), (4090, 12), (8990, 10)] {
        let piece = parser.pop().unwrap().unwrap();
        assert_eq!((piece.element.offset, piece.element.length as usize), (offset as u64, length));
        assert_eq!(piece.data, content(offset, length));
    }
    assert!(parser.is_between_elements());
    assert!(matches!(&reads[5], Response::Error(error) if error.code == ErrorCode::FSError));

    let write = requests.iter().find(|seen| seen.request.code() == RequestCode::write).unwrap();
    assert_eq!(write.data, "0123456789");
    assert!(matches!(&write.request, Request::Write(write) if write.offset == 5 && write.length == 10));
}

/// The last response to the first request with this code after `skip` others.
fn answers_to(
    requests: &[CapturedRequest],
    answers: &[CapturedResponse],
    code: RequestCode,
    skip: usize,
) -> CapturedResponse {
    let asked = requests.iter().filter(|seen| seen.request.code() == code).nth(skip).unwrap();
    answers.iter().rfind(|answer| answer.stream_id == asked.stream_id).unwrap().clone()
}

/// A server finds a damaged page, takes it again, and refuses to close a file that still has one.
#[test]
fn damaged_pages() {
    let (requests, answers) = conversation("raw-calls");
    let pgwrite = |index| {
        let CapturedResponse { response: Response::Status(body), data, stream_id } =
            answers_to(&requests, &answers, RequestCode::pgwrite, index)
        else {
            panic!()
        };
        let status = PgWriteStatus::from_body(&body, data).unwrap();
        let mut encoded = BytesMut::new();
        status.encode(stream_id, &mut encoded);
        let sent = answers.iter().find(|answer| answer.stream_id == stream_id).unwrap();
        let mut received = BytesMut::new();
        sent.response.encode(stream_id, &mut received);
        received.extend_from_slice(&sent.data);
        assert_eq!(encoded, received);
        status.bad_pages
    };
    assert_eq!(pgwrite(0), []);
    assert_eq!(pgwrite(1), [page::Page { offset: 4096, length: 4096 }]);
    assert_eq!(pgwrite(2), []);
    assert_eq!(pgwrite(3), [page::Page { offset: 4090, length: 6 }]);
    let damaged = requests.iter().filter(|seen| seen.request.code() == RequestCode::pgwrite).nth(1).unwrap();
    assert_eq!(page::verify(4090, &damaged.data), Ok(vec![page::Page { offset: 4096, length: 4096 }]));

    let close = answers_to(&requests, &answers, RequestCode::close, 0);
    assert!(matches!(close.response, Response::Error(error) if error.code == ErrorCode::ChkSumErr));

    let pgread = answers_to(&requests, &answers, RequestCode::pgread, 0);
    let mut data = BytesMut::new();
    assert_eq!((pgread.data.len(), page::decode(4090, &pgread.data, &mut data)), (18, Ok(vec![])));
    assert_eq!(data, "aaaaaabbbb");
}

/// Requests that no command sends: `writev`, attributes of a handle, `statx`, checkpoints, pieces of listings.
#[test]
fn requests_written_byte_by_byte() {
    let (requests, answers) = conversation("raw-calls");
    typed_bodies(&requests, &answers);

    let writev = requests.iter().find(|seen| seen.request.code() == RequestCode::writev).unwrap();
    assert_eq!((writev.request.bulk_len(), &writev.data[..]), (8, &b"12345678"[..]));
    let Response::Ok(vector) = answers_to(&requests, &answers, RequestCode::readv, 0).response else { panic!() };
    let mut parser = ReadvParser::default();
    parser.push(vector);
    let mut read = || parser.pop().unwrap().unwrap().data;
    assert_eq!([read(), read(), read()], ["678", "", "12345"]);

    let Response::Ok(attributes) = answers_to(&requests, &answers, RequestCode::fattr, 1).response else { panic!() };
    let outcomes = FattrResults::from_body(attributes).unwrap().0.into_iter().map(|result| result.outcome);
    assert_eq!(outcomes.collect::<Vec<_>>(), [Ok("vv".into()), Err(ErrorCode::AttrNotFound)]);

    let Response::Ok(kinds) = answers_to(&requests, &answers, RequestCode::statx, 0).response else { panic!() };
    let (file, directory) = (StatFlags::NONE, StatFlags::isDir);
    assert_eq!(StatxReply::decode(kinds).unwrap().0, [directory, file, directory]);

    let checkpoint = answers_to(&requests, &answers, RequestCode::chkpoint, 0);
    assert!(matches!(checkpoint.response, Response::Error(error) if error.code == ErrorCode::Unsupported));
    assert!(answers.iter().any(|answer| matches!(answer.response, Response::OkSoFar(_))), "listings come in pieces");
}
