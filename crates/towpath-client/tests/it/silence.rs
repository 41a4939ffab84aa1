//! Servers that accept and then say nothing, or stop in the middle of an answer: each call ends in an error that says
//! so, after the time that the options give. The clock is stopped as soon as nothing but time is missing, and then runs
//! as fast as it can.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use towpath_client::ClientOptions;
use towpath_proto::xrootd::{RequestCode, StatFlags, response::StatInfo};
use towpath_store::{
    Blame, CreateOptions, Fault, OpenOptions, Result, Store,
    sys::{clock, net},
};

use crate::{
    peer::{caller, content, options, path, store_at},
    script::Script,
};

/// Waits for the error of a task that must fail; time advances only while all tasks wait. Returns the error and the
/// elapsed time.
async fn given_up<T: std::fmt::Debug>(asking: JoinHandle<Result<T>>) -> (towpath_store::Error, Duration) {
    tokio::time::pause();
    let since = clock::now();
    let outcome = (asking.await.unwrap().unwrap_err(), since.elapsed());
    tokio::time::resume();
    outcome
}

/// That the error names the network and the server, and came neither at once nor later than by all attempts together.
#[track_caller]
fn check(outcome: &(towpath_store::Error, Duration), port: u16, options: &ClientOptions) {
    let (error, took) = outcome;
    assert!(matches!(error.fault(), Fault::Unavailable | Fault::TimedOut), "{error}");
    assert_eq!(error.blame(), Blame::Network, "{error}");
    assert!(error.message().contains(&format!(":{port}")), "{error}");
    let attempts = options.retries + 1;
    let longest = (options.connect_timeout + options.stall * 3) * attempts + options.retry_time;
    assert!((options.connect_timeout.min(options.stall)..longest).contains(took), "after {took:?}: {error}");
}

/// Without further attempts, and with the usual ones.
fn patience() -> [ClientOptions; 2] {
    [ClientOptions { retries: 0, ..options() }, options()]
}

fn listen() -> (TcpListener, u16) {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn stat(store: &Arc<dyn Store>) -> JoinHandle<Result<towpath_store::Metadata>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.stat(&caller(), &path("/f")).await })
}

fn read(store: &Arc<dyn Store>, length: usize) -> JoinHandle<Result<Bytes>> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await?;
        file.read(0, length).await
    })
}

fn create(store: &Arc<dyn Store>) -> JoinHandle<Result<()>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.create(&caller(), &path("/f"), CreateOptions::default()).await.map(drop) })
}

/// A server that reads everything, and responds to every connection with these bytes only.
async fn one_word(listener: TcpListener, word: &'static [u8]) {
    let mut connections = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(word).await.unwrap();
        let mut sink = Vec::new();
        connections.push(tokio::spawn(async move { stream.read_to_end(&mut sink).await }));
    }
}

#[tokio::test]
async fn xroot_servers_that_say_nothing_are_given_up() {
    for options in patience() {
        let (listener, port) = listen();
        tokio::spawn(one_word(listener, b""));
        let store = store_at("root", port, options.clone());
        check(&given_up(stat(&store)).await, port, &options);
        check(&given_up(read(&store, 10)).await, port, &options);
        check(&given_up(create(&store)).await, port, &options);
    }
}

#[tokio::test]
async fn an_xroot_server_that_stops_within_an_answer_is_given_up() {
    let options = ClientOptions { retries: 0, connections: 1, ..options() };
    let script = Script::listen();
    let store = store_at("root", script.port, options.clone());
    let reading = read(&store, 50_000);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open]).await;
    peer.opened(requests[0].0, 0, 50_000);
    peer.send().await;
    let (id, _) = peer.next().await;
    peer.pages(id, 0, &content(50_000), |_| ());
    let half = peer.raw().len() / 2;
    peer.raw().truncate(half);
    peer.send().await;
    check(&given_up(reading).await, script.port, &options);
}

#[tokio::test]
async fn a_server_that_answers_pings_is_waited_for() {
    let script = Script::listen();
    let options = ClientOptions { stall: Duration::from_secs(5), ..options() };
    let store = store_at("root", script.port, options);
    let asking = stat(&store);
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    peer.send().await;
    tokio::time::pause();
    for _ in 0..3 {
        let (id, request, _) = peer.next_of_all().await;
        assert_eq!(request.code(), RequestCode::ping);
        peer.ok(id, &());
        peer.send().await;
    }
    let flags = StatFlags::readable;
    peer.ok(requests[0].0, &StatInfo { id: 1, size: 7, flags, mtime: 0, ..StatInfo::default() });
    peer.send().await;
    assert_eq!(asking.await.unwrap().unwrap().size, 7);
}

#[tokio::test]
async fn http_servers_that_say_nothing_or_stop_in_a_header_are_given_up() {
    for word in [b"".as_slice(), b"HTTP/1.1 200 OK\r\nContent-Le"] {
        for options in patience() {
            let (listener, port) = listen();
            tokio::spawn(one_word(listener, word));
            let store = store_at("http", port, options.clone());
            check(&given_up(stat(&store)).await, port, &options);
            check(&given_up(read(&store, 10)).await, port, &options);
        }
    }
}

#[tokio::test]
async fn an_http_server_that_stops_within_a_body_is_given_up() {
    for options in patience() {
        let (listener, port) = listen();
        tokio::spawn(one_word(listener, b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 100\r\n\r\nhalf"));
        let store = store_at("http", port, options.clone());
        check(&given_up(read(&store, 100)).await, port, &options);
    }
}
