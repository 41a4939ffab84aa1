//! Network probes: results, rights and limits.

use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_proto::probe::{Event, Frames, PROBE_TYPE, ProbeSummary, Sample};
use towpath_server::{
    ServeConfig,
    config::{AnonymousRule, Right},
};

use super::{HttpResponse, Site, open_config};

const PROBE: &str = "/.well-known/towpath/probe";

/// Returns the number of data bytes, the samples, and the end frame.
fn taken(answer: &HttpResponse) -> (u64, Vec<Sample>, Option<ProbeSummary>) {
    assert_eq!(answer.field("content-type"), PROBE_TYPE);
    let (mut bytes, mut samples, mut end) = (0, Vec::new(), None);
    let each = |event| match event {
        Event::Data(more) => bytes += more as u64,
        Event::Sample(sample) => samples.push(sample),
        Event::End(last) => end = Some(last),
    };
    Frames::default().take(&answer.body, each).unwrap();
    (bytes, samples, end)
}

impl Site {
    /// Sends a probe of `path` with the parameters `ask`.
    async fn probe(&self, method: &str, path: &str, ask: &str) -> HttpResponse {
        self.ask(&format!("{method} {PROBE}{path}"), &[("towpath-probe", ask)], "").await
    }
}

#[tokio::test]
async fn bytes_come_with_what_the_kernel_says_of_them() {
    let site = Site::in_memory();
    let answer = site.probe("GET", "/", "direction=down duration_ms=300 interval_ms=10").await;
    let (bytes, samples, end) = taken(&answer.expect(StatusCode::OK));
    let end = end.unwrap();
    assert_eq!(end.bytes, bytes);
    assert!(bytes > 0 && end.at >= Duration::from_millis(300), "{end:?}");
    assert!(samples.len() >= 3 && samples.is_sorted_by_key(|sample| sample.at), "{samples:?}");
    assert!(samples.iter().map(|sample| sample.info.sent).is_sorted());
    assert!(samples.last().unwrap().info.sent > bytes / 2, "{samples:?}");
}

#[tokio::test]
async fn what_is_sent_is_counted_and_thrown_away() {
    let site = Site::in_memory();
    let headers = [("towpath-probe", "direction=up duration_ms=5000 interval_ms=100")];
    let answer = site.ask(&format!("POST {PROBE}/new"), &headers, vec![7; 3 << 20]).await.expect(StatusCode::OK);
    let (bytes, samples, end) = taken(&answer);
    assert_eq!((bytes, end.unwrap().bytes), (0, 3 << 20));
    assert!(samples[0].info.received > 3 << 20);
    assert!(!site.exists("/new").await);
    assert!(site.get("/metrics").await.text().contains("received"));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_end_is_ended() {
    let site = Site::in_memory();
    let mut stream = site.connect().await;
    let head = format!(
        "POST {PROBE}/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\
         towpath-probe: direction=up duration_ms=100 interval_ms=100\r\n\r\nthis, and nothing more"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    assert!(String::from_utf8_lossy(&answer).contains("bytes=22"));
}

#[tokio::test]
async fn who_may_not_read_or_write_there_may_not_probe() {
    let mut config = ServeConfig { listen: open_config().listen, ..ServeConfig::default() };
    config.access.anonymous = vec![
        AnonymousRule { path: "/out/".into(), allow: vec![Right::Read] },
        AnonymousRule { path: "/in".into(), allow: vec![Right::Create] },
    ];
    let site = Site::in_memory_with(&config);
    let [down, up] = ["down", "up"].map(|way| format!("direction={way} duration_ms=10 interval_ms=10"));
    for (method, path, ask, status) in [
        ("GET", "/out", &down, StatusCode::OK),
        ("GET", "/out/file", &down, StatusCode::OK),
        ("GET", "/in", &down, StatusCode::UNAUTHORIZED),
        ("GET", "/", &down, StatusCode::UNAUTHORIZED),
        ("GET", "", &down, StatusCode::UNAUTHORIZED),
        ("POST", "/in/file", &up, StatusCode::OK),
        ("POST", "/out/file", &up, StatusCode::UNAUTHORIZED),
    ] {
        let answer = site.probe(method, path, ask).await;
        assert_eq!(answer.status, status.as_u16(), "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let site = Site::in_memory();
    for (method, ask) in [
        ("GET", ""),
        ("GET", "direction=down duration_ms=60001 interval_ms=100"),
        ("GET", "direction=down duration_ms=100 interval_ms=1"),
        ("GET", "direction=up duration_ms=100 interval_ms=10"),
        ("POST", "direction=down duration_ms=100 interval_ms=10"),
        ("PUT", "direction=up duration_ms=100 interval_ms=10"),
        ("DELETE", "direction=down duration_ms=100 interval_ms=10"),
    ] {
        site.probe(method, "/", ask).await.expect(StatusCode::BAD_REQUEST);
    }
    assert!(!site.exists(PROBE).await);
}

#[tokio::test]
async fn a_file_of_that_name_is_a_file() {
    let site = Site::in_memory();
    site.plant(&format!("{PROBE}/file")).await;
    assert!(site.get(&format!("{PROBE}/file")).await.expect(StatusCode::OK).body.is_empty());
    site.get(&format!("{PROBE}/other")).await.expect(StatusCode::NOT_FOUND);
    site.ask(&format!("POST {PROBE}/file"), &[], "").await.expect(StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn how_many_and_how_long_is_bounded_and_all_can_be_refused() {
    let ask = "direction=down duration_ms=10 interval_ms=10";
    let mut config = open_config();
    config.probe.longest = "1s".parse().unwrap();
    config.probe.connections = 1;
    let site = Site::in_memory_with(&config);
    let answer = site.probe("GET", "/", "direction=down duration_ms=1001 interval_ms=10").await;
    assert!(answer.expect(StatusCode::BAD_REQUEST).text().contains("1000 ms"));
    let long = "direction=down duration_ms=1000 interval_ms=100";
    // A client that reads nothing keeps its permit until it disconnects.
    let mut stream = site.connect().await;
    let request = format!("GET {PROBE}/ HTTP/1.1\r\nhost: x\r\ntowpath-probe: {long}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    let answer = site.probe("GET", "/", ask).await.expect(StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.text().contains("probe.connections"), "{answer:?}");
    drop(stream);
    while site.probe("GET", "/", ask).await.status != 200 {
        tokio::task::yield_now().await;
    }
    config.probe.enabled = false;
    let answer = Site::in_memory_with(&config).probe("GET", "/", ask).await.expect(StatusCode::FORBIDDEN);
    assert!(answer.text().contains("probe.enabled"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_next_to_nothing_does_not_keep_its_place() {
    let ask = "direction=down duration_ms=10 interval_ms=10";
    let mut config = open_config();
    config.probe.connections = 1;
    let site = Site::in_memory_with(&config);
    let mut stream = site.connect().await;
    let request = format!("GET {PROBE}/ HTTP/1.1\r\nhost: x\r\ntowpath-probe: {ask}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    // With a paused clock a busy probe would never end.
    tokio::time::resume();
    site.probe("GET", "/", ask).await.expect(StatusCode::OK);
    drop(stream);
}

#[tokio::test]
async fn a_probe_takes_nothing_of_the_memory_for_answers() {
    let site = Site::in_memory();
    let mut stream = site.connect().await;
    let ask = "direction=down duration_ms=60000 interval_ms=10";
    let request = format!("GET {PROBE}/ HTTP/1.1\r\nhost: x\r\ntowpath-probe: {ask}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 1 << 10]).await.unwrap();
    assert_eq!(site.service.memory.pool().free(), site.service.limits.bytes.0);
    drop(stream);
}

#[tokio::test]
async fn a_server_that_stops_ends_probes() {
    let site = Site::in_memory();
    let service = std::sync::Arc::clone(&site.service);
    let long = "direction=down duration_ms=60000 interval_ms=1000";
    let probing = site.probe("GET", "/", long);
    let stopping = async {
        while service.metrics.connections.get() == 0 {
            tokio::task::yield_now().await;
        }
        service.stopping.cancel();
    };
    let (answer, ()) = futures::join!(probing, stopping);
    if answer.status == 200 {
        let (_, _, end) = taken(&answer);
        assert!(end.unwrap().at < Duration::from_secs(30));
    }
    site.stopped.await.unwrap();
}
