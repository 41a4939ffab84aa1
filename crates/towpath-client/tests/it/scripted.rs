//! Against a server that does what real ones seldom do. Where a test says that requests leave together, the server
//! answers none of them before all have come.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::JoinHandle;
use towpath_client::ClientOptions;
use towpath_proto::{
    checksum::Algorithm,
    xrootd::{
        ErrorCode, PageFlags, Request, RequestCode, Response, ServerFlags, Status, StreamId, Target,
        page::Page,
        request::{Open, PgRead, Read, Stat},
        response::{
            Attn, ErrorReply, OpenReply, PgWriteStatus, Redirect, ResponseHeader, StatInfo, Text, Wait, WaitResp,
        },
    },
};
use towpath_store::{Blame, CreateOptions, Expectation, Fault, Metadata, OpenOptions, ReadHandle, Result, Store};

use crate::{
    peer::{caller, content, options, path, store_at},
    script::{HANG, Peer, Script},
};

async fn open(store: &dyn Store, name: &str) -> Arc<dyn ReadHandle> {
    store.open(&caller(), &path(name), OpenOptions::default()).await.unwrap()
}

/// A read underway, so that the test can play the server meanwhile.
pub(crate) fn read(file: &Arc<dyn ReadHandle>, offset: u64, length: usize) -> JoinHandle<Result<Bytes>> {
    let file = Arc::clone(file);
    tokio::spawn(async move { file.read(offset, length).await })
}

pub(crate) async fn done<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(HANG, task).await.expect("the client hangs").unwrap()
}

/// A file of 10 000 bytes, open with handle 0, and its server.
async fn opened(script: &Script) -> (Arc<dyn Store>, Arc<dyn ReadHandle>, Peer) {
    opened_with(script, options()).await
}

pub(crate) async fn opened_with(
    script: &Script,
    options: ClientOptions,
) -> (Arc<dyn Store>, Arc<dyn ReadHandle>, Peer) {
    let store = store_at("root", script.port, options);
    let file = open(&*store, "/f").await;
    let reading = read(&file, 0, 100);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    peer.opened(requests[0].0, 0, 10_000);
    peer.pages(requests[1].0, 0, &content(100), |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), content(100));
    (store, file, peer)
}

#[tokio::test]
async fn open_and_first_byte_take_one_flight_also_on_a_warm_session() {
    let script = Script::listen();
    let (store, _first, mut peer) = opened(&script).await;
    let file = open(&*store, "/g").await;
    let reading = read(&file, 5, 10);
    let requests = peer.expect(&[RequestCode::open, RequestCode::pgread]).await;
    let Request::PgRead(PgRead { handle, .. }) = requests[1].1 else { unreachable!() };
    assert_eq!(handle.0, [1, 0, 0, 0]);
    peer.opened(requests[0].0, 1, 10_000);
    peer.pages(requests[1].0, 5, b"0123456789", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "0123456789");
}

#[tokio::test]
async fn a_read_past_the_end_confirms_the_version_without_waiting_for_bulk_data() {
    const SIZE: usize = 1 << 30;
    let script = Script::listen();
    let store = store_at("root", script.port, ClientOptions { connections: 1, ..options() });
    let file = open(&*store, "/f").await;
    let bulk = read(&file, 0, 9 << 20);
    let (mut first, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    first.opened(requests[0].0, 0, SIZE);
    first.send().await;
    assert_eq!(file.metadata().await.unwrap().size, SIZE as u64);

    let check = read(&file, SIZE as u64, 1);
    let (mut second, requests) = script.first_flight(&[RequestCode::open]).await;
    second.opened(requests[0].0, 0, SIZE);
    second.send().await;
    // The open may precede the data.
    let requests = second.expect(&[RequestCode::stat]).await;
    second.ok(requests[0].0, &Peer::stat_of(SIZE));
    second.send().await;
    assert_eq!(done(check).await.unwrap(), "");

    let refused = read(&file, SIZE as u64, 1);
    let requests = second.expect(&[RequestCode::stat]).await;
    second.refuse(requests[0].0, ErrorCode::IOError);
    second.send().await;
    assert!(done(refused).await.is_err(), "the version is not known");

    bulk.abort();
}

#[tokio::test]
async fn a_read_past_the_end_notices_another_version() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let check = read(&file, 10_000, 1);
    let requests = peer.expect(&[RequestCode::stat]).await;
    peer.ok(requests[0].0, &Peer::stat_of(10_001));
    peer.send().await;
    assert_eq!(done(check).await.unwrap_err().fault(), Fault::Changed);
}

#[tokio::test]
async fn pages_are_left_out_where_the_reader_compares_a_known_checksum() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let whole = OpenOptions { verifies_digests: true, ..OpenOptions::default() };
    let file = store.open(&caller(), &path("/f"), whole).await.unwrap();
    let first = read(&file, 0, 100);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    let Request::Open(Open { path, wants_checksum, .. }) = &requests[0].1 else { unreachable!() };
    assert!(*wants_checksum, "the checksum is asked for with the open");
    assert!(path.cgi.is_empty(), "nothing is added to the path: some servers take all of it for the name of the file");
    peer.opened_with_checksum(requests[0].0, 0, 10_000, "crc32c:0000002a");
    peer.pages(requests[1].0, 0, &content(100), |_| ());
    peer.send().await;
    assert_eq!(done(first).await.unwrap(), content(100));
    assert_eq!(file.metadata().await.unwrap().digests.get(Algorithm::Crc32c).unwrap().to_string(), "0000002a");

    let second = read(&file, 100, 5);
    let requests = peer.expect(&[RequestCode::read]).await;
    peer.ok(requests[0].0, &Bytes::from_static(b"bytes"));
    peer.send().await;
    assert_eq!(done(second).await.unwrap(), "bytes");
}

#[tokio::test]
async fn a_wrong_guess_is_noticed_and_done_again() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let file = open(&*store, "/f").await;
    let reading = read(&file, 0, 3);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    peer.opened(requests[0].0, 7, 10_000);
    // The nastiest answer: data, but of another file.
    peer.pages(requests[1].0, 0, b"bad", |_| ());
    peer.send().await;
    let (id, request) = peer.next().await;
    assert!(matches!(request, Request::PgRead(PgRead { handle, .. }) if handle.0 == [7, 0, 0, 0]), "{request:?}");
    peer.pages(id, 0, b"new", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "new");
}

#[tokio::test]
async fn a_server_without_pages_is_read_plainly() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let file = open(&*store, "/f").await;
    let reading = read(&file, 0, 3);
    let mut peer = script.accept().await;
    let setup = peer.expect(&[RequestCode::protocol, RequestCode::login]).await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::pgread]).await;
    peer.welcome(setup[0].0, setup[1].0, ServerFlags::isServer);
    peer.opened(requests[0].0, 0, 3);
    peer.refuse(requests[1].0, ErrorCode::InvalidRequest);
    peer.send().await;
    let (id, request) = peer.next().await;
    assert!(matches!(request, Request::Read(Read { length: 3, .. })), "{request:?}");
    peer.ok(id, &Bytes::from_static(b"abc"));
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "abc");
}

/// Answers a read of all of `data` with the second page damaged.
async fn damage_second_page(peer: &mut Peer, data: &[u8]) {
    let (id, _) = peer.next().await;
    peer.pages(id, 0, data, |wire| wire[4100 + 4 + 17] ^= 0x40);
    peer.send().await;
}

#[tokio::test]
async fn a_damaged_page_is_fetched_again() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let data = content(10_000);
    let reading = read(&file, 0, 10_000);
    damage_second_page(&mut peer, &data).await;
    let (id, request) = peer.next().await;
    let Request::PgRead(again) = request else { panic!("{request:?}") };
    assert_eq!((again.offset, again.length, again.flags), (4096, 4096, PageFlags::retry));
    peer.pages(id, 4096, &data[4096..8192], |_| ());
    peer.send().await;
    assert!(done(reading).await.unwrap() == data);
}

#[tokio::test]
async fn a_page_that_stays_damaged_is_the_fault_of_the_network() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let reading = read(&file, 0, 100);
    for _ in 0..4 {
        let (id, _) = peer.next().await;
        peer.pages(id, 0, &content(100), |wire| wire[50] ^= 1);
        peer.send().await;
    }
    let error = done(reading).await.unwrap_err();
    assert_eq!((error.fault(), error.blame()), (Fault::ChecksumMismatch, Blame::Network));
}

#[tokio::test]
async fn a_damaged_page_is_not_given_out_if_the_connection_is_lost_before_it_comes_again() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let data = content(10_000);
    let reading = read(&file, 0, 10_000);
    damage_second_page(&mut peer, &data).await;
    peer.expect(&[RequestCode::pgread]).await;
    drop(peer);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    let Request::PgRead(rest) = &requests[1].1 else { unreachable!() };
    assert_eq!((rest.offset, rest.length), (4096, 10_000 - 4096));
    peer.opened(requests[0].0, 0, 10_000);
    peer.pages(requests[1].0, 4096, &data[4096..], |_| ());
    peer.send().await;
    assert!(done(reading).await.unwrap() == data);
}

#[tokio::test]
async fn a_file_that_is_opened_again_is_compared_also_if_the_open_tells_nothing() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let reading = read(&file, 0, 100);
    peer.expect(&[RequestCode::pgread]).await;
    drop(peer);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    peer.ok(requests[0].0, &OpenReply::default());
    peer.pages(requests[1].0, 0, &content(100), |_| ());
    peer.send().await;
    let requests = peer.expect(&[RequestCode::endsess, RequestCode::stat]).await;
    peer.ok(requests[1].0, &Bytes::from_static(b"1 10000 16 1700000007\0"));
    peer.send().await;
    assert_eq!(done(reading).await.unwrap_err().fault(), Fault::Changed);
}

#[tokio::test]
async fn waits_are_honoured() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let file = open(&*store, "/f").await;
    let reading = read(&file, 0, 3);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    peer.respond(requests[0].0, &Response::Wait(Wait { seconds: 0, message: "staging".into() }));
    peer.refuse(requests[1].0, ErrorCode::FileNotOpen);
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::pgread]).await;
    peer.opened(requests[0].0, 0, 3);
    peer.pages(requests[1].0, 0, b"abc", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "abc");
}

#[tokio::test]
async fn redirects_are_followed_and_remembered_for_the_file() {
    let (manager, server) = (Script::listen(), Script::listen());
    let store = store_at("root", manager.port, options());
    let file = open(&*store, "/f").await;
    let reading = read(&file, 0, 3);
    let (mut peer, requests) = manager.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    let redirect = Redirect::Host {
        host: "127.0.0.1".into(),
        port: u32::from(server.port),
        cgi: Bytes::from_static(b"where=here"),
        login_cgi: Bytes::new(),
    };
    peer.respond(requests[0].0, &Response::Redirect(redirect));
    peer.refuse(requests[1].0, ErrorCode::FileNotOpen);
    peer.send().await;
    let (mut peer, requests) = server.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    let Request::Open(Open { path, .. }) = &requests[0].1 else { unreachable!() };
    assert_eq!(path.cgi, "where=here");
    peer.opened(requests[0].0, 0, 6);
    peer.pages(requests[1].0, 0, b"abc", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "abc");
    let reading = read(&file, 3, 3);
    let (id, _) = peer.next().await;
    peer.pages(id, 3, b"def", |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), "def");
}

/// As XrdCl does: what the first server calls the file may have another name at the second one, and that is literal.
#[tokio::test]
async fn a_redirect_to_a_url_names_another_path() {
    for (named, wanted) in [("//other/%41", "/other/%41"), ("//", "/f"), ("", "/f")] {
        let (manager, server) = (Script::listen(), Script::listen());
        let store = store_at("root", manager.port, options());
        let asking = tokio::spawn(async move { store.stat(&caller(), &path("/f")).await });
        let (mut peer, requests) = manager.first_flight(&[RequestCode::stat]).await;
        let url = format!("root://127.0.0.1:{}{named}", server.port);
        peer.respond(requests[0].0, &Response::Redirect(Redirect::Url { url, flags: Default::default() }));
        peer.send().await;
        let (mut peer, requests) = server.first_flight(&[RequestCode::stat]).await;
        let Request::Stat(Stat { target: Target::Path(path), .. }) = &requests[0].1 else { unreachable!() };
        assert_eq!(path.path, wanted, "{named}");
        peer.ok(requests[0].0, &StatInfo::default());
        peer.send().await;
        done(asking).await.unwrap();
    }
}

#[tokio::test]
async fn a_promised_answer_comes_unasked() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.digest(&caller(), &path("/f"), Algorithm::Adler32, &|_| ()).await }
    });
    let (mut peer, requests) = script.first_flight(&[RequestCode::query]).await;
    let id = requests[0].0;
    peer.respond(id, &Response::WaitResp(WaitResp { seconds: 60, message: String::new() }));
    let mut body = bytes::BytesMut::new();
    towpath_proto::xrootd::response::Body::encode(&Text(Bytes::from_static(b"adler32 00000001")), &mut body);
    let header = ResponseHeader { stream_id: id, status: Status::ok, dlen: body.len() as u32 };
    peer.respond(StreamId::ZERO, &Response::Attn(Attn::AsynResp { header, body: body.freeze() }));
    peer.send().await;
    assert_eq!(done(asking).await.unwrap().to_string(), "00000001");
}

#[tokio::test]
async fn a_request_that_the_server_lost_ends_though_others_are_answered() {
    let script = Script::listen();
    let patience = Duration::from_secs(60);
    let (store, file, mut peer) = opened_with(&script, ClientOptions { patience, ..options() }).await;
    let lost = read(&file, 0, 5000);
    let (lost_id, _) = peer.next().await;
    for _ in 0..7 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(9)).await;
        tokio::time::resume();
        answer_stat(&store, &mut peer).await;
    }
    assert_eq!(done(lost).await.unwrap_err().fault(), Fault::TimedOut);
    peer.expect(&[RequestCode::close]).await;
    // A late response has no effect.
    peer.pages(lost_id, 0, &content(5000), |_| ());
    answer_stat(&store, &mut peer).await;
}

async fn answer_stat(store: &Arc<dyn Store>, peer: &mut Peer) {
    let store = Arc::clone(store);
    let asking = tokio::spawn(async move { store.stat(&caller(), &path("/f")).await });
    let requests = peer.expect(&[RequestCode::stat]).await;
    peer.ok(requests[0].0, &Bytes::from_static(b"1 10000 16 1700000000\0"));
    peer.send().await;
    done(asking).await.unwrap();
}

#[tokio::test]
async fn the_servers_words_cannot_command_a_terminal() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let asking = tokio::spawn(async move { store.stat(&caller(), &path("/f")).await });
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    let message = format!("\x1b]0;owned\x07\x1b[31mno\n{}", "x".repeat(100_000));
    let reply = ErrorReply { code: ErrorCode::NotAuthorized, message, named: None };
    peer.respond(requests[0].0, &Response::Error(reply));
    peer.send().await;
    let error = done(asking).await.unwrap_err();
    assert!(!error.message().chars().any(char::is_control) && error.message().len() < 400, "{error}");
    assert!(error.message().contains("]0;owned [31mno xxx"), "{error}");
}

#[tokio::test]
async fn pages_that_arrive_damaged_are_sent_again() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let data = content(10_000);
    let uploading = tokio::spawn({
        let (store, data) = (Arc::clone(&store), Bytes::from(data.clone()));
        async move {
            let upload = store.create(&caller(), &path("/f"), CreateOptions::default()).await?;
            upload.write(0, data).await?;
            upload.commit(Expectation { size: Some(10_000), ..Expectation::default() }).await
        }
    });
    // A change does not leave before the login is answered.
    let (mut peer, _) = script.first_flight(&[]).await;
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::query]).await;
    peer.opened(requests[0].0, 0, 0);
    peer.ok(requests[1].0, &Text(Bytes::from_static(b"v5.5.3")));
    peer.send().await;
    let (id, request) = peer.next().await;
    assert!(matches!(&request, Request::PgWrite(write) if write.offset == 0), "{request:?}");
    PgWriteStatus { offset: 0, bad_pages: vec![Page { offset: 8192, length: 1808 }] }.encode(id, peer.raw());
    peer.send().await;
    let (id, request, sent) = peer.next_with_data().await;
    let Request::PgWrite(again) = request else { panic!("{request:?}") };
    assert_eq!((again.offset, again.flags), (8192, PageFlags::retry));
    assert_eq!(sent[4..], data[8192..]);
    PgWriteStatus { offset: 8192, bad_pages: Vec::new() }.encode(id, peer.raw());
    peer.send().await;
    let requests = peer.expect(&[RequestCode::close]).await;
    peer.ok(requests[0].0, &());
    peer.send().await;
    let requests = peer.expect(&[RequestCode::stat]).await;
    peer.ok(requests[0].0, &Bytes::from_static(b"1 10000 48 1700000000\0"));
    peer.send().await;
    assert_eq!(done(uploading).await.unwrap().size, 10_000);
}

/// The upload of a small file to a server of our own, of whose write `bad_pages` arrive damaged. Both the write and the
/// close have come before either is answered.
async fn small_upload(bad_pages: Vec<Page>) -> Result<Metadata> {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let data = Bytes::from(content(5000));
    let uploading = tokio::spawn(async move {
        let options = CreateOptions { size_hint: Some(5000), ..CreateOptions::default() };
        let upload = store.create(&caller(), &path("/f"), options).await?;
        upload.write(0, data).await?;
        upload.commit(Expectation { size: Some(5000), ..Expectation::default() }).await
    });
    let (mut peer, _) = script.first_flight(&[]).await;
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::query]).await;
    peer.opened(requests[0].0, 0, 0);
    peer.ok(requests[1].0, &Text(Bytes::from_static(b"towpath/0.1.0\n1\n1\n")));
    peer.send().await;
    let (write, _, sent) = peer.next_with_data().await;
    assert_eq!(sent[4..4 + 4096], content(5000)[..4096]);
    let requests = peer.expect(&[RequestCode::close]).await;
    let is_damaged = !bad_pages.is_empty();
    PgWriteStatus { offset: 0, bad_pages }.encode(write, peer.raw());
    match is_damaged {
        true => peer.refuse(requests[0].0, ErrorCode::ChkSumErr),
        false => peer.ok(requests[0].0, &Bytes::from_static(b"1 5000 48 1700000000\0")),
    }
    peer.send().await;
    done(uploading).await
}

#[tokio::test]
async fn a_small_file_leaves_together_with_its_close() {
    assert_eq!(small_upload(Vec::new()).await.unwrap().size, 5000);
}

#[tokio::test]
async fn a_small_file_that_arrives_damaged_is_the_fault_of_the_network() {
    let error = small_upload(vec![Page { offset: 4096, length: 904 }]).await.unwrap_err();
    assert_eq!((error.fault(), error.blame()), (Fault::ChecksumMismatch, Blame::Network));
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_disturbs_nothing() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    let dropped = read(&file, 0, 5000);
    let (first, _) = peer.next().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let reading = read(&file, 100, 100);
    let (second, _) = peer.next().await;
    peer.pages(first, 0, &content(5000), |_| ());
    peer.pages(second, 100, &content(200)[100..], |_| ());
    peer.send().await;
    assert_eq!(done(reading).await.unwrap(), content(200)[100..]);
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_noticed() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened(&script).await;
    file.check_version().unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let reading = read(&file, 0, 100);
    let requests = peer.expect(&[RequestCode::pgread, RequestCode::stat]).await;
    peer.pages(requests[0].0, 0, &content(100), |_| ());
    peer.ok(requests[1].0, &Bytes::from_static(b"1 10000 16 1700000007\0"));
    peer.send().await;
    assert_eq!(done(reading).await.unwrap_err().fault(), Fault::Changed);
    assert_eq!(file.check_version().unwrap_err().fault(), Fault::Changed);
}
