//! Metrics and health.

use std::time::Duration;

use futures::FutureExt as _;
use rcgen::generate_simple_self_signed;
use towpath_server::{config::IssuerConfig, metrics::Exposition};
use towpath_store::sys::{clock, disk};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    issuer::{SigningKey, jwks, wlcg_claims},
};

use super::*;

/// Returns settings with a port for monitoring in addition to `config`.
fn monitored(config: ServeConfig) -> ServeConfig {
    let mut config = config;
    config.metrics.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config
}

/// Starts a server with a port for monitoring. Returns the server, and the same one as seen at that port.
fn start(store: Arc<dyn Store>, config: ServeConfig) -> (Site, Site) {
    let server = Server::builder(store, &monitored(config)).bind().unwrap();
    let address = server.monitoring_addresses()[0];
    let site = Site::of(server);
    let service = Arc::clone(&site.service);
    let port = Site { address, service, stopped: tokio::spawn(async {}), directory: None };
    (site, port)
}

/// Returns settings that let no client in, and require TLS with a new certificate in `directory`.
fn closed_config(directory: &std::path::Path) -> ServeConfig {
    let certified = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["certificate", "key"].map(|name| directory.join(name));
    disk::write(&certificate, certified.cert.pem().as_bytes()).unwrap();
    disk::write(&key, certified.signing_key.serialize_pem().as_bytes()).unwrap();
    let mut config = open_config();
    config.access.anonymous.clear();
    (config.tls.certificate, config.tls.key, config.tls.required) = (Some(certificate), Some(key), true);
    config
}

#[tokio::test]
async fn a_port_for_monitoring_is_open_to_all_clients() {
    let directory = tempfile::tempdir().unwrap();
    let (site, port) = start(Arc::new(MemoryStore::new(0)), closed_config(directory.path()));
    for path in ["/metrics", "/.well-known/towpath/metrics"] {
        site.get(path).await.expect(StatusCode::UPGRADE_REQUIRED);
        assert!(port.get(path).await.expect(StatusCode::OK).text().contains("\ntowpath_connections 1\n"));
    }
    for path in ["/healthz", "/.well-known/towpath/health"] {
        assert_eq!(port.get(path).await.expect(StatusCode::OK).text(), "ok\n");
        assert_eq!(port.ask(&format!("HEAD {path}"), &[], "").await.expect(StatusCode::OK).text(), "");
    }
}

#[tokio::test]
async fn a_port_for_monitoring_has_no_files() {
    let mut config = open_config();
    config.http.cors_origins = vec!["*".into()];
    let (site, port) = start(Arc::new(MemoryStore::new(1 << 20)), config);
    site.put("/file", "secret").await.expect(StatusCode::CREATED);
    site.put("/metrics", "a file").await.expect(StatusCode::CREATED);
    for what in
        ["GET /", "GET /file", "PUT /new", "PUT /metrics", "POST /metrics", "OPTIONS /", "DELETE /file", "PROPFIND /"]
    {
        let answer = port.ask(what, &[("origin", "https://page.example")], "body").await;
        let answer = answer.expect(StatusCode::NOT_FOUND);
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{what}");
    }
    assert!(port.get("/metrics").await.text().contains("towpath_connections"));
    assert_eq!(site.get("/file").await.text(), "secret");
    site.get("/new").await.expect(StatusCode::NOT_FOUND);
    assert_eq!(port.say(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\x07\xdc").await, "", "not XRootD");
}

#[tokio::test]
async fn a_port_for_monitoring_answers_when_all_connections_are_taken() {
    let mut config = open_config();
    config.limits.connections = 4;
    let (site, port) = start(Arc::new(MemoryStore::new(0)), config);
    let mut taken = Vec::new();
    while site.service.connections.free() > 1 {
        taken.push(site.connect().await);
        while site.service.metrics.accepted.get() < taken.len() as u64 {
            tokio::task::yield_now().await;
        }
    }
    assert!(port.get("/metrics").await.text().contains("\ntowpath_connections 4\n"));
}

#[tokio::test]
async fn a_port_for_monitoring_bounds_headers() {
    let mut config = open_config();
    config.limits.header_bytes = towpath_server::units::ByteSize(4096);
    let (_site, port) = start(Arc::new(MemoryStore::new(0)), config);
    let long = "x".repeat(5000);
    port.ask("GET /metrics", &[("x-long", &long)], "").await.expect(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn metrics_describe_the_server_and_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = closed_config(directory.path());
    // Port 9 (discard) rejects connections.
    let issuer = IssuerConfig { issuer: "http://127.0.0.1:9".into(), base_path: "/".into(), keys: None, ca: None };
    config.access.issuers = vec![issuer];
    let began_s = clock::unix_s();
    let (_site, port) = start(Arc::new(MemoryStore::new(1 << 20)), config);
    let metrics = loop {
        let metrics = port.get("/metrics").await.text().to_owned();
        if metrics.contains("\ntowpath_issuer_reachable{issuer=\"http://127.0.0.1:9\"} 0\n") {
            break metrics;
        }
    };
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} is missing: {metrics}")).parse::<f64>().unwrap()
    };
    let space = ["size", "free"].map(|name| value(&format!("towpath_export_{name}_bytes{{export=\"/\"}}")));
    assert_eq!(space, [(1 << 20) as f64; 2]);
    assert_eq!(value("towpath_export_responsive{export=\"/\"}"), 1.0);
    assert_eq!(value(concat!("towpath_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}")), 1.0);
    assert!(value("towpath_certificate_expiry_timestamp_seconds") > began_s as f64);
    assert!((began_s..=clock::unix_s()).contains(&(value("process_start_time_seconds") as i64)));
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(value("process_resident_memory_bytes") > (1 << 20) as f64);
    assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")));
}

#[tokio::test(start_paused = true)]
async fn metrics_do_not_wait_for_a_file_system_that_hangs() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
    let server = Server::builder(Arc::new(store.clone()), &monitored(open_config())).bind().unwrap();
    let service = server.service();
    let has_space = async || service.render_metrics(Exposition::Classic).await.contains("towpath_export_free_bytes");
    assert!(has_space().await);
    let gate = store.hold("space");
    assert!(has_space().await, "the last value is recent");
    tokio::time::advance(Duration::from_secs(10)).await;
    for _ in 0..3 {
        assert!(!has_space().await);
    }
    gate.reached().await;
    assert!(gate.reached().now_or_never().is_none(), "only one call waits");
    drop(gate);
    assert!(has_space().await);
}

#[tokio::test]
async fn metrics_are_openmetrics_for_clients_that_accept_it() {
    let site = Site::in_memory();
    let classic = site.get("/metrics").await;
    assert_eq!(classic.field("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(classic.text().contains("\n# TYPE towpath_connections_accepted_total counter\n"));
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let open = site.ask("GET /metrics", &[("accept", accept)], "").await;
    assert_eq!(open.field("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(
        open.text().contains("\n# TYPE towpath_connections_accepted counter\n") && open.text().ends_with("# EOF\n")
    );
}

#[tokio::test]
async fn bytes_are_counted_by_issuer() {
    let key = SigningKey::es256("k");
    let file = tempfile::NamedTempFile::new().unwrap();
    disk::write(file.path(), jwks([&key]).to_string().as_bytes()).unwrap();
    let mut config = open_config();
    let keys = Some(file.path().to_owned());
    let name = "https://issuer.example";
    config.access.issuers = vec![IssuerConfig { issuer: name.into(), base_path: "/".into(), keys, ca: None }];
    let site = Site::in_memory_with(&config);
    let token = format!("Bearer {}", key.token(&wlcg_claims(name, "storage.read:/")));
    site.put("/file", "12345").await.expect(StatusCode::CREATED);
    site.ask("GET /file", &[("authorization", &token)], "").await.expect(StatusCode::OK);
    site.ask("GET /file", &[("authorization", "Bearer not.a.token"), ("range", "bytes=0-1")], "").await;
    let metrics = site.service.render_metrics(Exposition::Classic).await;
    for line in [
        "towpath_received_bytes_total{face=\"http\",issuer=\"anonymous\"} 5\n",
        "towpath_sent_bytes_total{face=\"http\",issuer=\"anonymous\"} 2\n",
        "towpath_sent_bytes_total{face=\"http\",issuer=\"https://issuer.example\"} 5\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}
