//! Metrics and health.

use rcgen::generate_simple_self_signed;
use towpath_store::sys::disk;

use super::*;

/// Returns settings with a port for monitoring in addition to `config`.
fn monitored(config: ServeConfig) -> ServeConfig {
    let mut config = config;
    config.metrics.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config
}

/// Starts a server with a port for monitoring. Returns the server, and the same one as seen at that port.
fn start(store: Arc<dyn Store>, config: ServeConfig) -> (Site, Site) {
    let server = Server::bind(store, &monitored(config)).unwrap();
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
