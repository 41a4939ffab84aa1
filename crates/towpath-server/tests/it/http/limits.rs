//! Limits: slow, large and disconnected clients. Tokio's clock is paused: it jumps to the next timer when all tasks
//! are idle.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use towpath_server::{
    fair_pool::{Class, Lease, LeaseHolder, PeerProgress},
    units::ByteSize,
};
use towpath_store::{Caller, CreateOptions, Expectation, StorePath};
use towpath_testkit::pattern::Pattern;

use super::{Site, open_config, request};

/// Waits until `clients` have been dropped. Each iteration lets the clock jump to the next deadline.
async fn until_dropped(site: &Site, clients: u64) {
    while site.service.metrics.disconnected.get() < clients {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_never_ends_ends_the_connection() {
    let site = Site::in_memory();
    let mut stream = site.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    until_dropped(&site, 1).await;
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
}

#[tokio::test(start_paused = true)]
async fn silence_between_requests_has_its_own_time() {
    let site = Site::in_memory();
    let mut stream = site.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 1024];
    let _ = stream.read(&mut answer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(site.service.metrics.disconnected.get(), 0, "an hour of silence is allowed");
    until_dropped(&site, 1).await;
}

#[tokio::test]
async fn who_takes_no_byte_is_dropped() {
    let mut config = open_config();
    config.limits.stall = "200ms".parse().unwrap();
    for version in ["HTTP/1.1", "HTTP/2"] {
        let site = Site::in_memory_with(&config);
        site.put("/file", Pattern::new(8).bytes(0, 32 << 20)).await;
        let mut stream = site.connect().await;
        match version {
            "HTTP/1.1" => stream.write_all(b"GET /file HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap(),
            // The preface, empty settings, and a request for the file; no window is opened beyond the initial 64 KiB.
            _ => stream.write_all(&http2_request("GET", "/file", false)).await.unwrap(),
        }
        while site.service.metrics.disconnected.get() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let metrics = site.get("/metrics").await;
        assert!(metrics.text().contains("verb=\"GET\",outcome=\"Cancelled\""), "{}", metrics.text());
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_one_answer_in_memory_is_dropped_whatever_else_it_takes() {
    let site = Site::in_memory();
    let path = StorePath::parse(b"/large").unwrap();
    let large = site.service.store.create(&Caller::local(), &path, CreateOptions::default()).await.unwrap();
    large.write(0, Pattern::new(11).bytes(0, 8 << 20)).await.unwrap();
    large.commit(Expectation::default()).await.unwrap();
    site.put("/small", "x").await;
    let stream = TokioIo::new(site.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let get = |path: &str| request(&format!("GET http://{}{path}", site.address), &[], Bytes::new());
    // The body is never read, so its window stays closed after the first two megabytes.
    let _unread = sender.send_request(get("/large")).await.unwrap();
    let mut rest_moves = async || {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(25)).await;
            if let Ok(small) = sender.send_request(get("/small")).await {
                let _ = small.into_body().collect().await;
            }
        }
        site.service.metrics.disconnected.get()
    };
    assert_eq!(rest_moves().await, 0, "nobody lacks the memory");
    let _hungry = take_most(&site);
    let (waiting, progress) = (LeaseHolder::at([10, 0, 1, 0].into()), PeerProgress::new(CancellationToken::new()));
    tokio::select! {
        dropped = rest_moves() => assert_eq!(dropped, 1, "the memory came back too late"),
        _ = site.service.memory.take(&waiting, 4 << 20, &progress) => {}
    }
    until_dropped(&site, 1).await;
}

/// Takes the shares of many addresses, so that little is free.
fn take_most(site: &Site) -> Vec<Lease> {
    let pool = site.service.memory.pool();
    let of_one = |octet: u8| {
        let holder = LeaseHolder::at([10, 0, 0, octet].into());
        std::iter::from_fn(move || pool.try_take(&holder, 1 << 20, Class::Large))
    };
    (0..64).flat_map(of_one).collect()
}

/// The preface, empty settings, and a request, optionally with a body to follow.
fn http2_request(method: &str, path: &str, has_body: bool) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[0x40 | name, value.len() as u8], value.as_bytes()].concat();
    let block = [literal(2, method), vec![0x86], literal(1, "x"), literal(4, path)].concat();
    let header = http2_frame(1, if has_body { 4 } else { 5 }, &block);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(), header].concat()
}

/// A frame of the first stream.
fn http2_frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

#[tokio::test]
async fn an_upload_that_stops_is_refused() {
    let mut config = open_config();
    config.limits.stall = "200ms".parse().unwrap();
    let site = Site::in_memory_with(&config);
    let answer =
        site.say(b"PUT /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 10\r\n\r\nhalf").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(!site.exists("/file").await);
}

#[tokio::test]
async fn long_headers_are_refused() {
    let mut config = open_config();
    config.limits.header_bytes = ByteSize(8192);
    let site = Site::in_memory_with(&config);
    let long = "x".repeat(9000);
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    site.ask("GET /", &[("x-long", &long)], "").await.expect(status);
    let many: Vec<_> = (0..200).map(|_| ("x", "y")).collect();
    site.ask("GET /", &many, "").await.expect(status);
    let endless = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; 1 << 20]].concat();
    let mut stream = site.connect().await;
    // The connection is closed during the send.
    let _ = stream.write_all(&endless).await;
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    // In HTTP/2 the body may arrive before the header is processed.
    let body = [(0, 16 << 10), (0, 16 << 10), (1, 0)].map(|(flags, length)| http2_frame(0, flags, &vec![b'x'; length]));
    let mut stream = site.connect().await;
    stream.write_all(&[http2_request("PUT", "/file", true), body.concat()].concat()).await.unwrap();
    while !site.exists("/file").await {
        let mut answer = [0; 1024];
        assert_ne!(stream.read(&mut answer).await.unwrap(), 0);
    }
    let text = site.say(b"no HTTP at all\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
}

#[tokio::test]
async fn requests_under_way_end_well_when_the_server_stops() {
    let pattern = Pattern::new(9);
    let site = Site::in_directory();
    site.put("/file", pattern.bytes(0, 16 << 20)).await;
    let mut stream = site.connect().await;
    stream.write_all(b"GET /file HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    stream.read_exact(&mut answer).await.unwrap();
    site.service.stopping.cancel();
    stream.read_to_end(&mut answer).await.unwrap();
    let data = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - data, 16 << 20);
    pattern.check(0, &answer[data..]);
    site.stopped.await.unwrap();
}

#[tokio::test]
async fn memory_for_answers_is_shared_not_exceeded() {
    let mut config = open_config();
    config.limits.bytes = ByteSize(1 << 20);
    let site = Site::in_memory_with(&config);
    let pattern = Pattern::new(10);
    site.put("/file", pattern.bytes(0, 4 << 20)).await;
    // Eight responses of 4 MiB through 1 MiB of memory all arrive.
    let answers = futures::future::join_all((0..8).map(|_| site.ask_http2("GET /file", &[], ""))).await;
    answers.iter().for_each(|answer| pattern.check(0, &answer.body));
    // Uploads too.
    let names: Vec<_> = (0..8).map(|index| format!("/up{index}")).collect();
    let uploads = names.iter().map(|name| site.put(name, pattern.bytes(0, 4 << 20)));
    futures::future::join_all(uploads).await.into_iter().for_each(|answer| {
        answer.expect(StatusCode::CREATED);
    });
}
