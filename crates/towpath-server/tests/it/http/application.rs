//! Applications: streamed and compressed responses, and the permits to compute them.

use std::{
    io::Read as _,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::{FutureExt as _, StreamExt as _, future, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::{metrics::gauge::ConstGauge, registry::Registry};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Mutex, mpsc},
    time::timeout,
};
use towpath_server::{
    ServeConfig, Server,
    application::{Application, Body, Reply},
    metrics::Collector,
    units::ByteSize,
};
use towpath_store::sys::processor;

use super::{Site, open_config, request};

/// Senders of the requested streams.
type Streams = mpsc::UnboundedReceiver<mpsc::Sender<Bytes>>;

/// An application that answers by path only.
#[derive(Debug)]
struct TestApplication {
    /// Number of requests so far.
    asked: AtomicUsize,
    /// While locked, `/gate` blocks.
    gate: Mutex<()>,
    streams: mpsc::UnboundedSender<mpsc::Sender<Bytes>>,
}

impl TestApplication {
    fn events(&self) -> Body {
        let (sender, mut receiver) = mpsc::channel(1);
        self.streams.send(sender).unwrap();
        Body::Stream(stream::poll_fn(move |cx| receiver.poll_recv(cx)).boxed())
    }

    /// Returns no response the first time, and then `now`.
    fn later(&self, is_again: bool) -> Reply {
        if is_again {
            return Response::new(Body::Whole(b"now".to_vec())).into();
        }
        let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
        self.streams.send(sender).unwrap();
        Reply::Later(async move { drop(receiver.recv().await) }.boxed())
    }
}

impl Collector for TestApplication {
    fn register_metrics(&self, registry: &mut Registry) {
        registry.register("example", "An example", ConstGauge::new(7_i64));
    }
}

impl Application for TestApplication {
    fn answer(&self, request: &Request<Vec<u8>>, _: IpAddr, is_again: bool) -> Reply {
        self.asked.fetch_add(1, SeqCst);
        let whole = |length| Body::Whole(vec![b'a'; length]);
        let (media_type, body) = match request.uri().path() {
            "/later" => return self.later(is_again),
            "/uri" => ("text/plain", Body::Whole(request.uri().to_string().into_bytes())),
            "/events" => ("text/event-stream", self.events()),
            "/gate" => {
                drop(self.gate.blocking_lock());
                ("text/plain", whole(1))
            }
            "/short" => ("text/plain", whole(1023)),
            "/text" => ("application/alto-costmap+json", whole(64 << 10)),
            "/bytes" => ("application/octet-stream", whole(64 << 10)),
            _ => ("application/octet-stream", whole(4 << 20)),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"v1\""));
        response.into()
    }
}

fn start(config: &ServeConfig) -> (Site, Arc<TestApplication>, Streams) {
    start_for(Vec::new(), config)
}

/// Starts a server whose responses are readable by pages from these origins.
fn start_for(origins: Vec<String>, config: &ServeConfig) -> (Site, Arc<TestApplication>, Streams) {
    let (sender, streams) = mpsc::unbounded_channel();
    let desk = Arc::new(TestApplication { asked: AtomicUsize::new(0), gate: Mutex::new(()), streams: sender });
    let server = Server::application_builder(Arc::clone(&desk) as _, origins, config).bind().unwrap();
    (Site::of(server), desk, streams)
}

/// 16 MiB of memory for responses, 1 MiB per connection.
fn little_memory() -> ServeConfig {
    let mut config = open_config();
    config.limits.bytes = ByteSize(16 << 20);
    config
}

async fn connect_http2(site: &Site) -> http2::SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(site.connect().await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(site: &Site, path: &str) -> Request<Full<Bytes>> {
    request(&format!("GET http://{}{path}", site.address), &[], Bytes::new())
}

/// Sends a request on a new connection that ends with the response.
async fn begin(site: &Site, path: &str) -> TcpStream {
    let mut stream = site.connect().await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: gzip\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn silent_streams_keep_no_place_and_end_well_when_the_server_stops() {
    let (site, _, mut streams) = start(&open_config());
    let mut sender = connect_http2(&site).await;
    let mut answers = Vec::new();
    for _ in 0..=processor::processors() {
        answers.push(sender.send_request(get(&site, "/events")).await.unwrap());
    }
    let mut plain = begin(&site, "/events").await;
    let mut events = Vec::new();
    for _ in 0..=answers.len() {
        events.push(streams.recv().await.unwrap());
    }
    site.get("/short").await.expect(StatusCode::OK);
    site.service.stopping.cancel();
    for answer in answers {
        assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\n0\r\n\r\n"), "{answer}");
    for events in events {
        events.closed().await;
    }
    site.stopped.await.unwrap();
}

#[tokio::test]
async fn who_waits_for_an_answer_keeps_no_place() {
    let (site, _, mut streams) = start(&open_config());
    let (mut clients, mut answers) = (Vec::new(), Vec::new());
    for number in 0..=processor::processors() {
        clients.push(begin(&site, &format!("/later?{number}")).await);
        answers.push(streams.recv().await.unwrap());
    }
    site.get("/short").await.expect(StatusCode::OK);
    drop(clients.pop());
    answers.pop().unwrap().closed().await;
    drop(answers.pop());
    let mut answer = String::new();
    clients.pop().unwrap().read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nnow"), "{answer}");
    site.service.stopping.cancel();
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    site.stopped.await.unwrap();
}

#[tokio::test]
async fn an_application_knows_where_it_is_asked() {
    let (site, ..) = start(&open_config());
    let answer = site.get("/uri").await.expect(StatusCode::OK);
    assert_eq!(answer.body, format!("http://{}/uri", site.address).as_bytes());
}

#[tokio::test]
async fn a_stream_is_dropped_when_its_client_has_gone() {
    let (site, _, mut streams) = start(&open_config());
    let connection = begin(&site, "/events").await;
    let events = streams.recv().await.unwrap();
    drop(connection);
    events.closed().await;
    let mut sender = connect_http2(&site).await;
    let answer = sender.send_request(get(&site, "/events")).await.unwrap();
    let events = streams.recv().await.unwrap();
    drop(answer);
    events.closed().await;
    let again = sender.send_request(get(&site, "/short")).await.unwrap();
    assert_eq!(again.status(), StatusCode::OK, "the connection goes on");
    assert!(site.ask("HEAD /events", &[], "").await.expect(StatusCode::OK).body.is_empty());
    streams.recv().await.unwrap().closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_outlives_every_limit() {
    let (site, _, mut streams) = start(&open_config());
    let mut connection = begin(&site, "/events").await;
    let events = streams.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
    events.send("data: late\n\n".into()).await.unwrap();
    drop(events);
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    // The client accepts gzip, which would delay events.
    assert!(answer.ends_with("\r\n\r\nC\r\ndata: late\n\n\r\n0\r\n\r\n"), "{answer}");
    assert_eq!(site.service.metrics.disconnected.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_asked_for_no_more_than_its_client_takes() {
    let (site, _, mut streams) = start(&little_memory());
    let mut connection = begin(&site, "/events").await;
    let events = streams.recv().await.unwrap();
    let piece = Bytes::from(vec![b'~'; 1 << 20]);
    let mut pieces = 0;
    while let Ok(sent) = timeout(Duration::from_secs(1), events.send(piece.clone())).await {
        sent.unwrap();
        pieces += 1;
        assert!(pieces < 1024, "more than any buffer of the system holds");
    }
    drop(events);
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.iter().filter(|byte| **byte == b'~').count(), pieces << 20);
}

#[tokio::test]
async fn the_metrics_include_those_of_the_application() {
    let (site, _application, _streams) = start(&open_config());
    let response = site.get("/metrics").await.expect(StatusCode::OK);
    let metrics = response.text();
    assert!(metrics.contains("\ntowpath_example 7\n") && !metrics.contains("towpath_export"), "{metrics}");
}

#[tokio::test]
async fn who_takes_no_answer_keeps_nobody_elses_from_being_made() {
    let (site, desk, _streams) = start(&little_memory());
    let mut sender = connect_http2(&site).await;
    let first = sender.send_request(get(&site, "/large")).await.unwrap();
    let others: Vec<_> =
        (0..=processor::processors()).map(|_| tokio::spawn(sender.send_request(get(&site, "/large")))).collect();
    sender.send_request(get(&site, "/metrics")).await.unwrap();
    assert_eq!(desk.asked.load(SeqCst), 1, "the others have come, and wait until the first is taken");
    site.get("/text").await.expect(StatusCode::OK);
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes().len(), 4 << 20);
    let lengths = others.into_iter().map(|other| async move {
        let answer = other.await.unwrap().unwrap();
        answer.into_body().collect().await.unwrap().to_bytes().len()
    });
    assert!(future::join_all(lengths).await.into_iter().all(|length| length == 4 << 20));
}

#[tokio::test]
async fn an_answer_in_the_making_has_its_place_also_when_its_client_has_gone() {
    let (site, desk, _streams) = start(&open_config());
    let closed = desk.gate.lock().await;
    let mut clients = Vec::new();
    for _ in 0..processor::processors() {
        clients.push(begin(&site, "/gate").await);
    }
    while desk.asked.load(SeqCst) < clients.len() {
        tokio::task::yield_now().await;
    }
    drop(clients);
    while site.service.metrics.connections.get() > 0 {
        tokio::task::yield_now().await;
    }
    let mut next = pin!(site.get("/short"));
    assert!(timeout(Duration::from_millis(200), &mut next).await.is_err());
    drop(closed);
    next.await.expect(StatusCode::OK);
}

#[tokio::test]
async fn text_goes_compressed_to_who_takes_it() {
    let (site, ..) = start(&open_config());
    let told = ["content-encoding", "vary", "etag"];
    let plain = site.get("/text").await.expect(StatusCode::OK);
    assert_eq!(told.map(|name| plain.field(name)), ["", "accept-encoding", "\"v1\""]);
    let taken = [("accept-encoding", "br, gzip;q=0.8")];
    let packed = site.ask("GET /text", &taken, "").await.expect(StatusCode::OK);
    assert_eq!(told.map(|name| packed.field(name)), ["gzip", "accept-encoding", "W/\"v1\""]);
    assert_eq!(packed.field("content-length"), packed.body.len().to_string());
    assert!(packed.body.len() < plain.body.len());
    let mut text = Vec::new();
    GzDecoder::new(&*packed.body).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
    let head = site.ask("HEAD /text", &taken, "").await.expect(StatusCode::OK);
    assert!(head.body.is_empty());
    for name in ["content-length", "content-encoding", "vary", "etag"] {
        assert_eq!(head.field(name), packed.field(name), "{name}");
    }
}

#[tokio::test]
async fn what_gains_nothing_or_is_not_taken_goes_as_it_is() {
    let (site, ..) = start(&open_config());
    for (path, accepted, length, vary) in [
        ("/text", "gzip;q=0", 64 << 10, "accept-encoding"),
        ("/text", "gzip;q=0.5, identity", 64 << 10, "accept-encoding"),
        ("/short", "gzip", 1023, ""),
        ("/bytes", "gzip", 64 << 10, ""),
    ] {
        let answer = site.ask(&format!("GET {path}"), &[("accept-encoding", accepted)], "").await;
        let told = (answer.field("content-encoding"), answer.field("vary"), answer.field("etag"));
        assert_eq!(told, ("", vary, "\"v1\""), "{path} {accepted}");
        assert_eq!(answer.body, vec![b'a'; length], "{path} {accepted}");
    }
}

#[tokio::test]
async fn caches_keep_answers_to_permitted_and_other_origins_apart() {
    let (site, ..) = start_for(vec!["https://a.example".to_owned()], &open_config());
    for (fields, permitted) in [
        (&[("origin", "https://a.example")][..], "https://a.example"),
        (&[("origin", "https://b.example")], ""),
        (&[], ""),
    ] {
        let answer = site.ask("GET /short", fields, "").await.expect(StatusCode::OK);
        let told = ["access-control-allow-origin", "vary"].map(|name| answer.field(name));
        assert_eq!(told, [permitted, "origin"], "{fields:?}");
    }
}

#[tokio::test]
async fn who_has_either_form_is_told_so() {
    let (site, ..) = start(&open_config());
    for (accepted, tag) in [("gzip", "W/\"v1\""), ("identity", "\"v1\"")] {
        for held in ["\"v1\"", "W/\"v1\"", "\"v0\", W/\"v1\""] {
            let fields = [("accept-encoding", accepted), ("if-none-match", held)];
            let answer = site.ask("GET /text", &fields, "").await.expect(StatusCode::NOT_MODIFIED);
            let told = ["etag", "vary", "content-encoding"].map(|name| answer.field(name));
            assert_eq!(told, [tag, "accept-encoding", ""], "{held}");
            assert!(answer.body.is_empty());
        }
    }
    let fields = [("accept-encoding", "gzip"), ("if-none-match", "\"v0\"")];
    site.ask("GET /text", &fields, "").await.expect(StatusCode::OK);
}
