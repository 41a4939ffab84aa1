//! Greedy clients are limited to their share; others are served meanwhile (RFC 0005).

use std::{net::Ipv4Addr, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};
use towpath_server::{
    fair_pool::{Class, Lease, LeaseHolder},
    units::ByteSize,
};
use towpath_store::{Caller, CreateOptions, Expectation, StorePath};
use towpath_testkit::pattern::Pattern;

use super::{HttpResponse, Site, open_config, request};

/// Differs from the default source address of clients.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

async fn connect_from(address: Ipv4Addr, site: &Site) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(site.address).await.unwrap()
}

/// Sends one request from that address on a new connection.
async fn ask_from(address: Ipv4Addr, site: &Site, what: &str, headers: &[(&str, &str)]) -> HttpResponse {
    let stream = TokioIo::new(connect_from(address, site).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let headers = [&[("host", "x")], headers].concat();
    HttpResponse::of(sender.send_request(request(what, &headers, Bytes::new())).await.unwrap()).await
}

async fn put(site: &Site, path: &str, content: Bytes) {
    let path = StorePath::parse(path.as_bytes()).unwrap();
    let file = site.service.store.create(&Caller::local(), &path, CreateOptions::default()).await.unwrap();
    file.write(0, content).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
}

/// A site with 8 MiB of memory, a long and a short file.
async fn small_site() -> Site {
    let mut config = open_config();
    config.limits.bytes = ByteSize(8 << 20);
    let site = Site::in_memory_with(&config);
    put(&site, "/long", vec![b'x'; 4 << 20].into()).await;
    put(&site, "/short", vec![b'x'; 1000].into()).await;
    site
}

/// Opens a connection with many unread responses, whose windows stay closed.
async fn take_nothing(site: &Site) -> Vec<http::Response<Incoming>> {
    let stream = TokioIo::new(site.connect().await);
    let builder = http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(1024).clone();
    let (mut sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = request(&format!("GET http://{}/long", site.address), &[], Bytes::new());
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(sender.send_request(get.clone()).await.unwrap());
    }
    answers
}

async fn until_requests_wait(site: &Site) {
    while site.service.memory.pool().waiting() == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closed_windows_do_not_keep_others_from_answers() {
    let site = small_site().await;
    let mut untaken = Vec::new();
    for _ in 0..20 {
        untaken.push(take_nothing(&site).await);
    }
    for address in [ELSEWHERE, Ipv4Addr::LOCALHOST] {
        until_requests_wait(&site).await;
        let short = ask_from(address, &site, "GET /short", &[]).await.expect(StatusCode::OK);
        assert_eq!(short.body.len(), 1000);
        until_requests_wait(&site).await;
        ask_from(address, &site, "PROPFIND /", &[("depth", "1")]).await.expect(StatusCode::MULTI_STATUS);
    }
    let long = ask_from(ELSEWHERE, &site, "GET /long", &[]).await.expect(StatusCode::OK);
    assert_eq!(long.body.len(), 4 << 20);
}

#[tokio::test(start_paused = true)]
async fn closed_windows_lose_their_memory_to_a_client_of_their_own_address() {
    let site = small_site().await;
    let mut untaken = Vec::new();
    for _ in 0..20 {
        untaken.push(take_nothing(&site).await);
    }
    until_requests_wait(&site).await;
    // The clock is paused. This is long before the stall timeout of 60 s ends those connections.
    let long = ask_from(Ipv4Addr::LOCALHOST, &site, "GET /long", &[]);
    let long = tokio::time::timeout(Duration::from_secs(40), long).await.expect("idle clients lose their memory");
    assert_eq!(long.expect(StatusCode::OK).body.len(), 4 << 20);
}

#[tokio::test]
async fn memory_for_a_body_is_taken_as_it_comes_and_comes_back() {
    let site = small_site().await;
    let free = || site.service.memory.pool().free();
    let all = free();
    let mut stream = site.connect().await;
    let head = "PROPFIND / HTTP/1.1\r\nhost: x\r\ncontent-length: 262144\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &[b' '; 100 << 10]].concat()).await.unwrap();
    while all - free() < 100 << 10 {
        tokio::task::yield_now().await;
    }
    assert!(all - free() <= 200 << 10, "{} bytes for 100 KiB", all - free());
    drop(stream);
    while free() < all {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_has_a_deadline() {
    let site = Site::in_memory();
    site.plant("/f").await;
    for method in ["PROPFIND", "PROPPATCH", "LOCK"] {
        let mut stream = site.connect().await;
        let head = format!("{method} /f HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut receiving, mut sending) = stream.split();
        let dripping = async {
            while sending.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut answer = [0; 12];
        tokio::select! {
            read = receiving.read_exact(&mut answer) => drop(read.unwrap()),
            () = dripping => {}
        }
        assert_eq!(&answer, b"HTTP/1.1 408", "{method}");
    }
}

#[tokio::test]
async fn untaken_files_and_listings_leave_descriptors_for_others() {
    let mut config = open_config();
    config.limits.files = 64;
    let site = Site::in_memory_with(&config);
    put(&site, "/long", vec![b'x'; 4 << 20].into()).await;
    put(&site, "/short", "short".into()).await;
    let mut untaken = Vec::new();
    for _ in 0..4 {
        untaken.push(take_nothing(&site).await);
    }
    let refused = untaken.iter().flatten().filter(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE).count();
    assert!((40..60).contains(&refused), "{refused} of 80 were refused");
    ask_from(ELSEWHERE, &site, "GET /short", &[]).await.expect(StatusCode::OK);
    ask_from(ELSEWHERE, &site, "PROPFIND /", &[("depth", "1")]).await.expect(StatusCode::MULTI_STATUS);
}

/// A site on which the clients' address has taken all open files except the reserve.
async fn site_without_files() -> (Site, Vec<Lease>) {
    let mut config = open_config();
    config.limits.files = 64;
    let site = Site::in_memory_with(&config);
    put(&site, "/long", Pattern::new(5).bytes(0, 4 << 20)).await;
    put(&site, "/short", "short".into()).await;
    let holder = LeaseHolder::at(Ipv4Addr::LOCALHOST.into());
    let share = std::iter::from_fn(|| site.service.files.try_take(&holder, 1, Class::Large)).collect();
    (site, share)
}

#[tokio::test]
async fn short_answers_from_a_long_file_may_come_from_the_reserve() {
    let (site, _share) = site_without_files().await;
    let free = site.service.files.free();
    let pattern = Pattern::new(5);
    let range = |range| [("range", range)];
    let one = site.ask("GET /long", &range("bytes=1000000-1000099"), "").await.expect(StatusCode::PARTIAL_CONTENT);
    assert_eq!(one.body, pattern.bytes(1_000_000, 100));
    let many = site.ask("GET /long", &range("bytes=7-16,3000000-3000009"), "").await;
    let many = many.expect(StatusCode::PARTIAL_CONTENT);
    assert!(many.field("content-type").starts_with("multipart/byteranges"));
    assert_eq!(many.field("content-length"), many.body.len().to_string());
    for offset in [7, 3_000_000] {
        let part = pattern.bytes(offset, 10);
        assert!(many.body.windows(10).any(|window| window == part), "{offset}");
    }
    let head = site.ask("HEAD /long", &[], "").await.expect(StatusCode::OK);
    assert_eq!(head.field("content-length"), (4 << 20).to_string());
    site.ask("GET /long", &range("bytes=5000000-"), "").await.expect(StatusCode::RANGE_NOT_SATISFIABLE);
    let etag = head.field("etag");
    site.ask("GET /long", &[("if-none-match", etag)], "").await.expect(StatusCode::NOT_MODIFIED);
    for range in ["bytes=0-1000000", "bytes=0-200000,300000-500000", "bytes=0-"] {
        site.ask("GET /long", &[("range", range)], "").await.expect(StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(site.service.files.free(), free);
}

#[tokio::test]
async fn a_head_of_a_directory_may_come_from_the_reserve() {
    let (site, share) = site_without_files().await;
    for number in 0..300 {
        site.plant(&format!("/d/{number}")).await;
    }
    site.ask("GET /d/", &[], "").await.expect(StatusCode::SERVICE_UNAVAILABLE);
    site.ask("HEAD /d/", &[], "").await.expect(StatusCode::OK);
    site.ask("GET /d", &[], "").await.expect(StatusCode::MOVED_PERMANENTLY);
    drop(share);
    site.ask("GET /d/", &[], "").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn files_of_the_reserve_are_closed_although_their_answers_are_not_taken() {
    let (site, _share) = site_without_files().await;
    let free = site.service.files.free();
    let stream = TokioIo::new(site.connect().await);
    let builder = http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(100).clone();
    let (mut sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = |range| request(&format!("GET http://{}/long", site.address), &[("range", range)], Bytes::new());
    let mut untaken = Vec::new();
    for _ in 0..20 {
        let answer = sender.send_request(get("bytes=0-5000,200000-205000")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
        untaken.push(answer);
    }
    // Nor while responses wait for the memory of their connection.
    for _ in 0..5 {
        untaken.push(sender.send_request(get("bytes=0-100000,200000-300000")).await.unwrap());
    }
    assert_eq!(untaken.last().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(site.service.files.free(), free);
}

#[tokio::test]
async fn one_address_does_not_take_all_connections() {
    let mut config = open_config();
    config.limits.connections = 32;
    let site = Site::in_memory_with(&config);
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(site.connect().await);
    }
    while site.service.metrics.disconnected.get() == 0 {
        tokio::task::yield_now().await;
    }
    ask_from(ELSEWHERE, &site, "GET /", &[]).await.expect(StatusCode::OK);
    let refused = site.service.metrics.disconnected.get();
    assert!(refused <= 32 / 3, "{refused} of 32 were refused");
}

#[tokio::test]
async fn idle_connections_of_many_addresses_make_way_for_a_newcomer() {
    let mut config = open_config();
    config.limits.connections = 16;
    let site = Site::in_memory_with(&config);
    let mut silent = Vec::new();
    for octet in 10..100 {
        silent.push(connect_from(Ipv4Addr::new(127, 0, 0, octet), &site).await);
        while site.service.metrics.connections.get() + i64::try_from(site.service.connections.waiting()).unwrap()
            < silent.len().min(16) as i64
        {
            tokio::task::yield_now().await;
        }
        if site.service.connections.free() == 0 {
            break;
        }
    }
    ask_from(Ipv4Addr::new(127, 0, 0, 200), &site, "GET /", &[]).await.expect(StatusCode::OK);
    assert!(site.service.metrics.disconnected.get() > 0);
}

#[tokio::test]
async fn one_writer_does_not_take_all_locks() {
    let site = Site::in_memory();
    let body = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>";
    let stream = TokioIo::new(site.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    put(&site, "/f", "".into()).await;
    let what = format!("LOCK http://{}/f", site.address);
    let lock = request(&what, &[("depth", "0")], body.into());
    let mut held = 0;
    let refusal = loop {
        let answer = HttpResponse::of(sender.send_request(lock.clone()).await.unwrap()).await;
        if answer.status != 200 {
            break answer.expect(StatusCode::SERVICE_UNAVAILABLE);
        }
        held += 1;
    };
    assert!(refusal.text().contains("share"), "{}", refusal.text());
    assert!(held < 4096 / 2, "{held}");
    let stream = TokioIo::new(connect_from(ELSEWHERE, &site).await);
    let (mut other, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    HttpResponse::of(other.send_request(lock).await.unwrap()).await.expect(StatusCode::OK);
}
