//! HTTP over TLS, and responses to clients without TLS.

use std::sync::Arc;

use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use towpath_server::{ServeConfig, Server};
use towpath_store::{
    memory::MemoryStore,
    sys::{disk, net},
};
use towpath_testkit::pattern::Pattern;

use super::{Site, open_config, request};

/// Adds a certificate for `localhost` to the server's settings; returns its directory and a client configuration that
/// trusts it.
pub(super) fn certify(config: &mut ServeConfig) -> (TempDir, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("certificate"), directory.path().join("key"));
    disk::write(&certificate, made.cert.pem().as_bytes()).unwrap();
    disk::write(&key, made.signing_key.serialize_pem().as_bytes()).unwrap();
    config.tls.certificate = Some(certificate);
    config.tls.key = Some(key);
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (directory, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// A server that requires TLS, and a client configuration that trusts its certificate.
fn site() -> (Site, ClientConfig) {
    let mut config = open_config();
    let (_directory, client) = certify(&mut config);
    config.tls.required = true;
    (Site::in_memory_with(&config), client)
}

#[tokio::test]
async fn who_comes_without_tls_is_told_to_upgrade() {
    let (site, _) = site();
    for what in ["GET /", "PUT /file"] {
        let answer = site.ask(what, &[], "x").await.expect(StatusCode::UPGRADE_REQUIRED);
        assert_eq!((answer.field("upgrade"), answer.field("connection")), ("TLS/1.2, HTTP/1.1", "upgrade"));
    }
    assert!(!site.exists("/file").await);
}

#[tokio::test]
async fn tls_without_a_certificate_is_refused_with_an_alert() {
    let site = Site::in_memory();
    let mut stream = net::connect(site.address).await.unwrap();
    // The beginning of a record, longer than the first read of the server.
    let hello = [&[0x16, 3, 1, 0x20, 0][..], &[1; 2000]].concat();
    stream.write_all(&hello).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    assert_eq!(response, [0x15, 3, 3, 0, 2, 2, 40]);
}

#[tokio::test]
async fn a_key_of_another_certificate_is_named() {
    let (mut config, mut other) = (open_config(), open_config());
    let _directories = [certify(&mut config).0, certify(&mut other).0];
    config.tls.key = other.tls.key;
    let store = Arc::new(MemoryStore::new(0));
    let error = Server::builder(store, &config).bind().unwrap_err().to_string();
    assert!(error.contains("it is not the key of the certificate"), "{error}");
    assert!(!error.contains("KeyMismatch"), "{error}");
}

#[tokio::test]
async fn files_go_both_ways_over_http2() {
    let (site, mut client) = site();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let stream = net::connect(site.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let pattern = Pattern::new(11);
    let put = request("PUT https://localhost/file", &[], pattern.bytes(0, 3 << 20));
    assert_eq!(sender.send_request(put).await.unwrap().status(), StatusCode::CREATED);
    let got = sender.send_request(request("GET https://localhost/file", &[], "".into())).await.unwrap();
    pattern.check(0, &got.into_body().collect().await.unwrap().to_bytes());
}
