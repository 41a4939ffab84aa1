//! `COPY` between two servers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use towpath_proto::http::tpc::{CopyOutcome, Event, Marker, Reader};
use towpath_server::{
    ServeConfig, Server,
    config::{AnonymousRule, Right},
    third_party::{Direction, Transfers},
    units::HumanDuration,
};
use towpath_store::{Overwrite, Secret, Store, memory::MemoryStore, sys::net};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use super::{HttpResponse, Site, open_config};
use crate::it::copier::{Copier, Recorder};

/// Long enough for several pieces, and not a multiple of any.
const SIZE: usize = 1_000_003;

/// All rights for everyone, and copies to this machine are allowed.
fn config() -> ServeConfig {
    let mut config = open_config();
    config.third_party.anonymous = true;
    config.third_party.allow = vec!["127.0.0.1".into()];
    config.third_party.markers = HumanDuration(Duration::from_millis(20));
    config
}

fn site_with(transfers: Arc<dyn Transfers>, config: &ServeConfig) -> Site {
    Site::of(Server::builder(Arc::new(MemoryStore::new(1 << 30)), config).transfers(transfers).bind().unwrap())
}

fn site() -> Site {
    site_with(Arc::new(Copier), &config())
}

/// A server whose store can be blocked.
fn slow_site() -> (Site, FaultStore) {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let served: Arc<dyn Store> = Arc::new(store.clone());
    (Site::of(Server::builder(served, &config()).transfers(Arc::new(Copier)).bind().unwrap()), store)
}

fn content() -> Bytes {
    Pattern::new(7).bytes(0, SIZE)
}

impl Site {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn pull(&self, path: &str, source: &str) -> HttpResponse {
        self.ask(&format!("COPY {path}"), &[("source", source)], "").await
    }
}

impl HttpResponse {
    fn events(self) -> Vec<Event> {
        let mut reader = Reader::default();
        let mut events = reader.take(&self.expect(StatusCode::ACCEPTED).body);
        events.extend(reader.finish());
        events
    }

    /// Returns the outcome, after at least one marker.
    fn outcome(self) -> CopyOutcome {
        let mut events = self.events();
        let Some(Event::Outcome(outcome)) = events.pop() else { panic!("no verdict: {events:?}") };
        assert!(matches!(events.last(), Some(Event::Marker(_))), "{events:?}");
        outcome
    }

    fn failure(self) -> String {
        match self.outcome() {
            CopyOutcome::Failure(reason) => reason,
            CopyOutcome::Success => panic!("it succeeded"),
        }
    }
}

/// Whether the header of a request is complete.
fn has_header(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
}

/// Starts a server that sends the next of these responses on each connection, then repeats the last one.
async fn canned(answers: Vec<String>) -> String {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut answers = answers.into_iter().peekable();
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answers.next_if(|_| true).unwrap_or_default();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !has_header(&request) && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_file_is_fetched() {
    let (here, there) = (site(), site());
    there.put("/file", content()).await.expect(StatusCode::CREATED);
    let answer = here.pull("/copy", &there.url("/file")).await;
    assert!(answer.field("content-type").starts_with("text/plain"));
    let events = answer.events();
    let [Event::Marker(first), .., Event::Marker(last), Event::Outcome(CopyOutcome::Success)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((first.stripes, last), (1, Marker { bytes: SIZE as u64, ..last }));
    assert_eq!(here.get("/copy").await.body, content());
    assert!(
        here.get("/metrics")
            .await
            .text()
            .contains("towpath_third_party_copied_bytes_total{direction=\"pull\"} 1000003")
    );
}

#[tokio::test]
async fn a_file_is_sent() {
    let (here, there) = (site(), site());
    here.put("/file", content()).await.expect(StatusCode::CREATED);
    let sent = here.ask("COPY /file", &[("destination", &there.url("/copy"))], "").await;
    assert_eq!(sent.outcome(), CopyOutcome::Success);
    assert_eq!(there.get("/copy").await.body, content());
}

#[tokio::test]
async fn a_copy_within_the_server_stays_one() {
    let here = site();
    here.put("/file", "x").await;
    here.ask("COPY /file", &[("destination", &here.url("/copy"))], "").await.expect(StatusCode::CREATED);
    here.ask("COPY /file", &[("destination", "/another")], "").await.expect(StatusCode::CREATED);
    here.ask("MOVE /file", &[("destination", "http://other.example.org/copy")], "")
        .await
        .expect(StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_server_without_transfers_says_so() {
    let here = Site::in_memory();
    here.pull("/copy", "http://127.0.0.1:1/file").await.expect(StatusCode::NOT_IMPLEMENTED);
    let mut config = config();
    config.third_party.enabled = false;
    let here = site_with(Arc::new(Copier), &config);
    here.pull("/copy", "http://127.0.0.1:1/file").await.expect(StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test]
async fn who_shows_no_token_has_nothing_sent_or_fetched_unless_it_is_allowed() {
    let recorder = Arc::new(Recorder::default());
    let mut config = config();
    config.third_party.anonymous = false;
    let here = site_with(Arc::clone(&recorder) as _, &config);
    here.put("/file", "x").await;
    for (line, field) in [("COPY /file", "destination"), ("COPY /copy", "source")] {
        let refused = here.ask(line, &[(field, "http://127.0.0.1:1/other")], "").await;
        let refused = refused.expect(StatusCode::UNAUTHORIZED);
        assert!(refused.text().contains("third-party"), "{refused:?}");
    }
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_asked_for_is_understood() {
    let recorder = Arc::new(Recorder::default());
    let here = site_with(Arc::clone(&recorder) as _, &config());
    here.put("/old", "x").await;
    let fields = [
        ("source", "davs://127.0.0.1:8443/f"),
        ("overwrite", "F"),
        ("requirechecksumverification", "true"),
        ("credential", "none"),
        ("x-number-of-streams", "4"),
        ("scitag", "65"),
        ("clientinfo", "job-id=1;file-id=2;retry=0"),
        ("secure-redirection", "1"),
        ("transferheaderauthorization", "Bearer secret-token"),
        ("transferheaderflowexperiment", "secret-3"),
        ("transferheaderhost", "evil"),
        ("transferheadercontent-length", "5"),
        ("transferheaderconnection", "close"),
        ("transferheaderproxy-authorization", "x"),
        ("transferheaderif-match", "x"),
        ("transferheader", "x"),
    ];
    assert_eq!(here.ask("COPY /new", &fields, "").await.outcome(), CopyOutcome::Success);
    here.pull("/old", "dav://127.0.0.1/f").await.expect(StatusCode::ACCEPTED);
    here.ask("COPY /old", &[("destination", "https://127.0.0.1/f")], "").await.expect(StatusCode::ACCEPTED);
    let copies = recorder.0.lock().unwrap();
    let [full, plain, push] = &copies[..] else { panic!("{copies:?}") };
    assert_eq!(full.remote.to_string(), "davs://127.0.0.1:8443/f");
    assert_eq!((full.direction, full.overwrite), (Direction::Pull, Overwrite::Refuse));
    assert!(full.checksum.is_some());
    assert_eq!(full.token.as_ref().map(Secret::expose), Some("secret-token"));
    let names: Vec<_> = full.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["flowexperiment"]);
    assert!(!format!("{full:?}").contains("secret"), "{full:?}");
    assert_eq!((plain.direction, plain.overwrite, plain.checksum), (Direction::Pull, Overwrite::Replace, None));
    assert_eq!((push.direction, push.local.as_bytes()), (Direction::Push, b"/old".as_slice()));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_at_once() {
    let here = site();
    here.put("/file", "x").await;
    here.ask("MKCOL /directory", &[], "").await;
    let source = ("source", "http://127.0.0.1:1/f");
    for (target, fields, status) in [
        ("/new", vec![source, ("destination", "http://127.0.0.1:1/f")], StatusCode::BAD_REQUEST),
        ("/new", vec![], StatusCode::BAD_REQUEST),
        ("/new", vec![("source", "ftp://127.0.0.1/f")], StatusCode::BAD_REQUEST),
        ("/new", vec![("source", "gopher://127.0.0.1:6379/_x")], StatusCode::BAD_REQUEST),
        ("/new", vec![("source", "file:///etc/passwd")], StatusCode::BAD_REQUEST),
        ("/new", vec![("source", "root://127.0.0.1//f")], StatusCode::BAD_REQUEST),
        ("/new", vec![("source", "/file")], StatusCode::BAD_REQUEST),
        ("/new", vec![source, ("credential", "gridsite")], StatusCode::BAD_REQUEST),
        ("/new", vec![source, ("overwrite", "perhaps")], StatusCode::BAD_REQUEST),
        ("/new", vec![source, ("requirechecksumverification", "1")], StatusCode::BAD_REQUEST),
        ("/file", vec![source, ("overwrite", "F")], StatusCode::PRECONDITION_FAILED),
        ("/file", vec![source, ("if-none-match", "*")], StatusCode::PRECONDITION_FAILED),
        ("/directory", vec![source], StatusCode::METHOD_NOT_ALLOWED),
        ("/new/", vec![source], StatusCode::METHOD_NOT_ALLOWED),
        ("/none/new", vec![source], StatusCode::CONFLICT),
        ("/file", vec![("destination", "root://127.0.0.1//f")], StatusCode::BAD_REQUEST),
        ("/none", vec![("destination", "http://127.0.0.1:1/f")], StatusCode::NOT_FOUND),
        ("/directory", vec![("destination", "http://127.0.0.1:1/f")], StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let answer = here.ask(&format!("COPY {target}"), &fields, "").await;
        assert_eq!(answer.status, status.as_u16(), "{target} {fields:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_same_rights_are_needed_as_to_read_and_to_write() {
    let recorder = Arc::new(Recorder::default());
    let with = |rights: &[Right]| {
        let mut config = config();
        config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: rights.to_vec() }];
        site_with(Arc::clone(&recorder) as _, &config)
    };
    let (source, destination) = (("source", "http://127.0.0.1:1/f"), ("destination", "http://127.0.0.1:1/f"));
    for (rights, target, field, status) in [
        (&[Right::Read][..], "/new", source, StatusCode::UNAUTHORIZED),
        (&[Right::Create], "/new", source, StatusCode::ACCEPTED),
        (&[Right::Create], "/old", source, StatusCode::UNAUTHORIZED),
        (&[Right::Modify], "/old", source, StatusCode::ACCEPTED),
        (&[Right::Modify], "/old", destination, StatusCode::UNAUTHORIZED),
        (&[Right::Read], "/old", destination, StatusCode::ACCEPTED),
    ] {
        let here = with(rights);
        here.plant("/old").await;
        here.ask(&format!("COPY {target}"), &[field], "").await.expect(status);
    }
    // A caller with only `Create` replaces nothing, even if a file is created meanwhile.
    let copies = recorder.0.lock().unwrap();
    assert_eq!(copies.iter().map(|copy| copy.overwrite).next(), Some(Overwrite::Refuse));
}

#[tokio::test]
async fn private_addresses_are_refused_whatever_they_are_called() {
    let mut config = config();
    config.third_party.allow = Vec::new();
    let here = site_with(Arc::new(Copier), &config);
    here.put("/file", "x").await;
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.1.1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        for field in ["source", "destination"] {
            let url = format!("http://{host}:1094/file");
            let target = if field == "source" { "COPY /new" } else { "COPY /file" };
            let answer = here.ask(target, &[(field, &url)], "").await;
            assert_eq!(answer.status, 403, "{host}: {}", answer.text());
        }
    }
    assert!(!here.exists("/new").await);
}

#[tokio::test]
async fn a_redirect_leads_to_no_forbidden_address() {
    let secret = site();
    secret.put("/file", "secret").await;
    let here = site();
    for forbidden in ["127.0.0.2", "[::1]", "localhost.", "169.254.169.254"] {
        let location = format!("http://{forbidden}:{}/file", secret.address.port());
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let source = canned(vec![answer; 9]).await;
        let outcome = here.pull("/copy", &format!("{source}/file")).await.outcome();
        // `localhost.` is allowed because it resolves to 127.0.0.1.
        if forbidden != "localhost." {
            assert!(
                matches!(&outcome, CopyOutcome::Failure(reason) if reason.contains("no public or allowed address")),
                "{outcome:?}"
            );
            assert!(!here.exists("/copy").await);
        }
    }
}

/// Returns the first request header received by `listener` for a copy of `source` with secrets.
async fn arrives_at(listener: &TcpListener, source: String) -> String {
    let here = site();
    let copying = tokio::spawn(async move {
        let fields = [
            ("source", source.as_str()),
            ("transferheaderauthorization", "Bearer t0ken"),
            ("transferheaderx-key", "k3y"),
        ];
        here.ask("COPY /copy", &fields, "").await
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !has_header(&request) {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0);
    }
    copying.abort();
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn secrets_do_not_follow_redirects() {
    let caught = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let location = format!("http://{}/file", caught.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let source = canned(vec![answer; 9]).await;
    let request = arrives_at(&caught, source).await;
    assert!(!request.contains("t0ken") && !request.contains("k3y"), "{request}");
}

#[tokio::test]
async fn fields_for_the_other_server_arrive_there() {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let source = format!("http://{}/file", listener.local_addr().unwrap());
    let request = arrives_at(&listener, source).await.to_ascii_lowercase();
    assert!(request.contains("authorization: bearer t0ken\r\n") && request.contains("x-key: k3y\r\n"), "{request}");
}

#[tokio::test]
async fn what_is_not_what_the_source_has_does_not_appear() {
    let head = "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nConnection: close\r\n";
    for (answer, reason) in [
        // It ends too early.
        (format!("{head}Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\nshort"), ""),
        // The digest does not match.
        (
            format!("{head}Content-Range: bytes 0-4/5\r\nContent-Length: 5\r\nDigest: adler32=00000001\r\n\r\nwrong"),
            "adler32",
        ),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(), "404"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nwrong\r\n0\r\n\r\n".into(),
            "does not report the file's size",
        ),
    ] {
        let here = site();
        let source = canned(vec![answer; 9]).await;
        let failure = here.pull("/copy", &format!("{source}/file")).await.failure();
        assert!(failure.contains(reason), "{failure}");
        assert!(!here.exists("/copy").await);
    }
}

#[tokio::test]
async fn a_digest_that_must_be_compared_is_compared() {
    let (here, there) = (site(), site());
    there.put("/file", content()).await;
    let fields = [("source", there.url("/file")), ("requirechecksumverification", "true".into())];
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(here.ask("COPY /copy", &fields, "").await.outcome(), CopyOutcome::Success);
    assert_eq!(here.get("/copy").await.body, content());
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_copy() {
    let here = Site::of({
        let directory = tempfile::tempdir().unwrap().keep();
        let store = towpath_store::local::LocalStore::open(&directory, Default::default()).unwrap();
        Server::builder(Arc::new(store), &config()).transfers(Arc::new(Copier)).bind().unwrap()
    });
    let (there, store) = slow_site();
    there.put("/file", content()).await;
    let held = store.hold("open");
    let mut client = here.connect().await;
    let request = format!("COPY /copy HTTP/1.1\r\nHost: here\r\nSource: {}\r\n\r\n", there.url("/file"));
    client.write_all(request.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains("End\n") {
        assert!(client.read_buf(&mut told).await.unwrap() > 0);
    }
    held.reached().await;
    drop(client);
    // The permit of the copy is released when it ends.
    while here.service.third_party.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    drop(held);
    assert!(!here.exists("/copy").await);
    let metrics = here.service.render_metrics(towpath_server::metrics::Exposition::Classic).await;
    assert!(metrics.contains("copies_total{direction=\"pull\",outcome=\"Cancelled\"} 1"), "{metrics}");
}

#[tokio::test]
async fn only_so_many_copies_are_made_at_once() {
    let mut config = config();
    config.third_party.copies = 1;
    let here = site_with(Arc::new(Copier), &config);
    let (there, store) = slow_site();
    there.put("/file", "x").await;
    let held = store.hold("open");
    let source = there.url("/file");
    let (first, ()) = tokio::join!(here.pull("/first", &source), async {
        held.reached().await;
        let refused = here.pull("/second", &source).await;
        assert_eq!((refused.status, refused.field("retry-after")), (429, "5"));
        drop(held);
    });
    assert_eq!(first.outcome(), CopyOutcome::Success);
    assert_eq!(here.pull("/second", &source).await.outcome(), CopyOutcome::Success);
}

#[tokio::test]
async fn a_copy_that_stands_still_is_given_up() {
    let mut config = config();
    config.third_party.idle = HumanDuration(Duration::from_millis(50));
    let here = site_with(Arc::new(Copier), &config);
    let (there, store) = slow_site();
    there.put("/file", content()).await;
    let _held = store.hold("open");
    let failure = here.pull("/copy", &there.url("/file")).await.failure();
    assert!(failure.contains("no byte was written"), "{failure}");
    assert!(!here.exists("/copy").await);
}

#[tokio::test]
async fn rules_that_mean_nothing_are_refused_at_the_start() {
    let mut config = config();
    config.third_party.allow = vec!["10.0.0.0/99".into()];
    let refused = Server::builder(Arc::new(MemoryStore::new(0)), &config).bind().unwrap_err();
    assert!(refused.to_string().contains("10.0.0.0/99"), "{refused}");
}
