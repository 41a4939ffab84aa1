//! Servers that keep a client waiting: with answers that have nothing in them, with promises, with signs of life. Each
//! call ends in an error that blames the server, within the time that the options give; and a client that waits says
//! so. Time runs only where everybody waits.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::TryStreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_client::{
    Client, ClientOptions, WaitReporter,
    third_party::{SiteCopy, TransferMode},
};
use towpath_proto::{
    url::Url,
    xrootd::{
        RequestCode, Response, Status, StreamId,
        response::{Attn, PgReadStatus, Redirect, ResponseHeader, StatusKind, Wait, WaitResp},
    },
};
use towpath_store::{
    Blame, Error, Fault, ListOptions, OpenOptions, Overwrite, Result, Store,
    sys::{clock, net},
};

use crate::{
    peer::{caller, options, path},
    script::{Peer, Script},
    scripted::opened_with,
};

/// How long between two words of a server.
const BETWEEN: Duration = Duration::from_secs(1);

const STALL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(20);

/// The store at a port of this machine, by its address: a name is looked up by a thread that the clock does not wait
/// for.
fn store_at(scheme: &str, port: u16, options: ClientOptions) -> Arc<dyn Store> {
    let url = format!("{scheme}://127.0.0.1:{port}//").parse().unwrap();
    Client::new(Arc::new(options)).connect(&url).unwrap().0
}

fn impatient() -> ClientOptions {
    ClientOptions { stall: STALL, patience: PATIENCE, retries: 0, connections: 1, ..options() }
}

/// Returns the error of a task that must fail within `limit`; time advances while all tasks wait.
async fn fails_within<T: std::fmt::Debug>(limit: Duration, asking: JoinHandle<Result<T>>) -> Error {
    tokio::time::pause();
    let since = clock::now();
    let outcome = tokio::time::timeout(limit, asking).await;
    let took = since.elapsed();
    tokio::time::resume();
    outcome.unwrap_or_else(|_| panic!("still waiting after {took:?}")).unwrap().unwrap_err()
}

#[track_caller]
fn blames_server(error: &Error, fault: Fault) {
    assert_eq!((error.fault(), error.blame()), (fault, Blame::Storage), "{error}");
}

/// Repeats the same message.
fn repeat(mut peer: Peer, say: impl Fn(&mut Peer) + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            say(&mut peer);
            if !peer.try_send().await {
                return std::future::pending().await;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }))
}

fn stat(store: &Arc<dyn Store>) -> JoinHandle<Result<()>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.stat(&caller(), &path("/f")).await.map(drop) })
}

fn list(store: &Arc<dyn Store>) -> JoinHandle<Result<()>> {
    let store = Arc::clone(store);
    let all = async move |store: Arc<dyn Store>| {
        let listing = store.list(&caller(), &path("/d"), ListOptions { metadata: false, digests: false });
        listing.try_collect::<Vec<_>>().await.map(drop)
    };
    tokio::spawn(all(store))
}

#[tokio::test]
async fn empty_parts_of_an_answer_do_not_hold_a_client() {
    for code in [RequestCode::stat, RequestCode::dirlist] {
        let script = Script::listen();
        let store = store_at("root", script.port, impatient());
        let asking = if code == RequestCode::stat { stat(&store) } else { list(&store) };
        let (mut peer, requests) = script.first_flight(&[code]).await;
        let id = requests[0].0;
        peer.send().await;
        let _lying = repeat(peer, move |peer| peer.part(id, &Bytes::new()));
        blames_server(&fails_within(PATIENCE + STALL, asking).await, Fault::TimedOut);
    }
}

#[tokio::test]
async fn parts_without_a_byte_of_the_file_do_not_hold_a_reader() {
    let script = Script::listen();
    let (_store, file, mut peer) = opened_with(&script, impatient()).await;
    let reading = tokio::spawn(async move { file.read(100, 5000).await });
    let (id, _) = peer.next().await;
    let empty = PgReadStatus { kind: StatusKind::Partial, offset: 100, data_len: 0 };
    let _lying = repeat(peer, move |peer| peer.raw().extend_from_slice(&empty.to_bytes(id)));
    let error = fails_within(PATIENCE + STALL, reading).await;
    assert_eq!(error.blame(), Blame::Storage, "{error}");
}

#[tokio::test]
async fn messages_for_the_user_are_no_answer() {
    let script = Script::listen();
    let store = store_at("root", script.port, impatient());
    let asking = stat(&store);
    let (mut peer, _) = script.first_flight(&[RequestCode::stat]).await;
    peer.send().await;
    let message = Response::Attn(Attn::AsyncMs("a moment, please".into()));
    let _lying = repeat(peer, move |peer| peer.respond(StreamId::ZERO, &message));
    blames_server(&fails_within(PATIENCE + STALL, asking).await, Fault::TimedOut);
}

#[tokio::test]
async fn a_login_does_not_last_for_ever() {
    let script = Script::listen();
    let store = store_at("root", script.port, impatient());
    let asking = stat(&store);
    let peer = script.accept().await;
    let message = Response::Attn(Attn::AsyncMs("a moment, please".into()));
    let _lying = repeat(peer, move |peer| peer.respond(StreamId::ZERO, &message));
    // Twice: once with requests behind the login, and once more without.
    let error = fails_within(STALL * 5, asking).await;
    assert!(error.message().contains(&script.port.to_string()), "{error}");
}

#[tokio::test]
async fn promises_of_an_answer_are_not_renewed_for_ever() {
    let script = Script::listen();
    let store = store_at("root", script.port, impatient());
    let asking = stat(&store);
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    peer.send().await;
    let id = requests[0].0;
    let promise = Response::WaitResp(WaitResp { seconds: 1000, message: String::new() });
    let _lying = repeat(peer, move |peer| peer.respond(id, &promise));
    blames_server(&fails_within(PATIENCE * 17, asking).await, Fault::TimedOut);
}

#[tokio::test]
async fn waits_that_a_server_asks_for_are_bounded_together() {
    let script = Script::listen();
    let store = store_at("root", script.port, impatient());
    let asking = stat(&store);
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    let wait = Response::Wait(Wait { seconds: 6, message: String::new() });
    peer.respond(requests[0].0, &wait);
    peer.send().await;
    let _lying = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (id, _) = peer.next().await;
            peer.respond(id, &wait);
            peer.send().await;
        }
    }));
    blames_server(&fails_within(PATIENCE + STALL, asking).await, Fault::TimedOut);
}

#[tokio::test]
async fn a_redirect_to_itself_is_the_servers_fault() {
    let script = Script::listen();
    let port = script.port;
    let store = store_at("root", port, impatient());
    let asking = stat(&store);
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    let (host, port, none) = ("127.0.0.1".to_owned(), u32::from(port), Bytes::new());
    peer.respond(requests[0].0, &Response::Redirect(Redirect::Host { host, port, cgi: none.clone(), login_cgi: none }));
    peer.send().await;
    blames_server(&fails_within(PATIENCE, asking).await, Fault::Protocol);
}

#[tokio::test]
async fn a_promised_answer_that_makes_no_sense_is_the_servers_fault() {
    let script = Script::listen();
    let store = store_at("root", script.port, impatient());
    let asking = stat(&store);
    let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
    let id = requests[0].0;
    peer.respond(id, &Response::WaitResp(WaitResp { seconds: 60, message: String::new() }));
    // An error whose body has no room for its code.
    let header = ResponseHeader { stream_id: id, status: Status::error, dlen: 1 };
    peer.respond(StreamId::ZERO, &Response::Attn(Attn::AsynResp { header, body: Bytes::from_static(b"x") }));
    peer.send().await;
    blames_server(&fails_within(PATIENCE, asking).await, Fault::Protocol);
}

/// A server that takes a request, answers it with `first`, and then says `again` every second. It hangs up if it has no
/// more to say.
pub(crate) fn web(first: &str, again: &str) -> (u16, AbortOnDropHandle<()>) {
    let listener: TcpListener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (first, again): (Arc<str>, Arc<str>) = (first.into(), again.into());
    let serving = async move {
        let mut connections = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let (first, again) = (Arc::clone(&first), Arc::clone(&again));
            connections.push(AbortOnDropHandle::new(tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n")
                    && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0)
                {}
                let mut is_open = stream.write_all(first.as_bytes()).await.is_ok();
                while is_open && (first.is_empty() || !again.is_empty()) {
                    tokio::time::sleep(BETWEEN).await;
                    is_open = stream.write_all(again.as_bytes()).await.is_ok();
                }
            })));
        }
    };
    (port, AbortOnDropHandle::new(tokio::spawn(serving)))
}

#[tokio::test]
async fn interim_responses_are_no_answer() {
    for word in ["HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let (port, _lying) = web(word, word);
        let error = fails_within(PATIENCE + STALL, stat(&store_at("http", port, impatient()))).await;
        assert_eq!(error.fault(), Fault::TimedOut, "{error}");
        assert!(error.message().contains(&port.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_drips_does_not_hold_a_reader() {
    let (port, _lying) = web("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 100000\r\n\r\nx", "x");
    let store = store_at("http", port, impatient());
    let reading = tokio::spawn(async move {
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await?;
        file.read(0, 100_000).await
    });
    let error = fails_within(STALL * 4, reading).await;
    assert_eq!(error.fault(), Fault::TimedOut, "{error}");
}

#[tokio::test]
async fn a_server_that_is_always_busy_is_given_up() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 6\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (port, _lying) = web(busy, "");
    let error = fails_within(PATIENCE + STALL, stat(&store_at("http", port, impatient()))).await;
    assert_eq!(error.fault(), Fault::Unavailable, "{error}");
}

#[tokio::test]
async fn markers_without_a_new_byte_do_not_hold_a_third_party_copy() {
    const MARKER: &str = "Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: 5\nTotal Stripe Count: 1\nEnd\n";
    let chunk = format!("{:x}\r\n{MARKER}\r\n", MARKER.len());
    let (port, _lying) = web("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk);
    let to: Url = format!("http://127.0.0.1:{port}/f").parse().unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let copying = tokio::spawn({
        let told = Arc::clone(&told);
        async move {
            let from: Url = "https://other.example.org/f".parse().unwrap();
            let copy = SiteCopy { from: &from, to: &to, mode: TransferMode::Pull, overwrite: Overwrite::Refuse };
            let client = Client::new(Arc::new(impatient()));
            client.copy_between(&caller(), copy, &|bytes| told.store(bytes, Ordering::Relaxed)).await
        }
    });
    blames_server(&fails_within(PATIENCE + STALL, copying).await, Fault::TimedOut);
    assert_eq!(told.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_client_that_waits_says_for_what_once_and_then_sparsely() {
    for scheme in ["root", "http"] {
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&said);
        let waits = WaitReporter::new(move |text| listener.lock().unwrap().push(text.to_owned()));
        let (stall, patience) = (Duration::from_secs(40), Duration::from_secs(40));
        let options = ClientOptions { waits, stall, patience, ..impatient() };
        let (port, _silent) = web("", "");
        fails_within(stall * 4, stat(&store_at(scheme, port, options))).await;
        let said = said.lock().unwrap();
        assert!((2..6).contains(&said.len()), "{said:?}");
        assert!(said.iter().all(|text| text.contains(&port.to_string())), "{said:?}");
    }
}
