//! Passwords: Digest and Basic over TLS, with both versions of HTTP, and responses to clients without a password.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use towpath_server::{
    ServeConfig, Server,
    config::{Right, UserRule},
};
use towpath_store::{
    memory::MemoryStore,
    sys::{disk, net},
};

use super::{HttpResponse, Site, open_config, request, tls::certify};

/// A server that requires the password of alice or bob, and its client.
struct PasswordSite {
    site: Site,
    client: ClientConfig,
    _directory: TempDir,
}

/// The parameters of a challenge.
struct Challenge {
    realm: String,
    nonce: String,
    is_stale: bool,
}

fn hash(parts: &[&str]) -> String {
    Sha256::digest(parts.join(":")).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file with alice, whose password is `Alice's`, and bob, whose is `Bob's`.
fn write_passwords(path: &Path, mode: u32) {
    let line = |name: &str, password: &str| format!("{name}:sha-256${}\n", hash(&[name, "towpath", password]));
    disk::write(path, (line("alice", "Alice's") + &line("bob", "Bob's")).as_bytes()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn rule(names: Option<&str>, path: &str, right: Right) -> UserRule {
    let names = names.map(|name| vec![name.to_owned()]);
    UserRule { names, path: path.into(), allow: vec![right] }
}

/// All users may read, and alice may modify her files.
fn guarded_config(directory: &Path) -> ServeConfig {
    let mut config = open_config();
    let passwords = directory.join("passwords");
    write_passwords(&passwords, 0o600);
    config.access.anonymous.clear();
    config.access.passwords = Some(passwords);
    config.access.users = vec![rule(None, "/", Right::Read), rule(Some("alice"), "/alice", Right::Modify)];
    config
}

impl PasswordSite {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = guarded_config(directory.path());
        let (_certificate, client) = certify(&mut config);
        let site = Site::in_memory_with(&config);
        site.plant("/file").await;
        site.plant("/alice/old").await;
        Self { site, client, _directory: directory }
    }

    /// Sends one request over TLS, by HTTP/2 or HTTP/1.1.
    async fn ask(&self, is_http2: bool, what: &str, authorization: &str) -> HttpResponse {
        let mut client = self.client.clone();
        client.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = net::connect(self.site.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TokioIo::new(TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap());
        let credentials = [("authorization", authorization)];
        let credentials = if authorization.is_empty() { &[][..] } else { &credentials };
        let (method, target) = what.split_once(' ').unwrap();
        let body = if method == "PUT" { "x" } else { "" };
        if is_http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            let what = format!("{method} https://localhost{target}");
            HttpResponse::of(sender.send_request(request(&what, credentials, body.into())).await.unwrap()).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let headers = [&[("host", "localhost")][..], credentials].concat();
            HttpResponse::of(sender.send_request(request(what, &headers, body.into())).await.unwrap()).await
        }
    }
}

/// Returns all challenges of a 401 response.
fn challenges(answer: &HttpResponse) -> Vec<&str> {
    assert_eq!(answer.status, 401, "{}", answer.text());
    answer.headers.get_all(header::WWW_AUTHENTICATE).iter().map(|value| value.to_str().unwrap()).collect()
}

impl Challenge {
    fn of(answer: &HttpResponse) -> Self {
        let digest = challenges(answer)[0].strip_prefix("Digest ").unwrap();
        let field = |name: &str| digest.split_once(&format!("{name}=\"")).unwrap().1.split_once('"').unwrap().0.into();
        assert!(digest.contains("algorithm=SHA-256") && digest.contains(r#"qop="auth""#), "{digest}");
        Self { realm: field("realm"), nonce: field("nonce"), is_stale: digest.ends_with("stale=true") }
    }

    /// Returns the credentials of a client that knows a password.
    fn answered(&self, (name, password): (&str, &str), what: &str, nc: u32) -> String {
        let Self { realm, nonce, .. } = self;
        let (method, target) = what.split_once(' ').unwrap();
        let nc = format!("{nc:08x}");
        let kept = hash(&[name, realm, password]);
        let response = hash(&[&kept, nonce, &nc, "0a4f113b", "auth", &hash(&[method, target])]);
        format!(
            r#"Digest username="{name}", realm="{realm}", nonce="{nonce}", uri="{target}", cnonce="0a4f113b", nc={nc}, qop=auth, response="{response}", algorithm=SHA-256"#
        )
    }
}

fn basic(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

const ALICE: (&str, &str) = ("alice", "Alice's");

#[tokio::test]
async fn c6_a_digest_lets_in_once() {
    let guarded = PasswordSite::start().await;
    for is_http2 in [false, true] {
        let refused = guarded.ask(is_http2, "GET /file", "").await;
        let challenge = Challenge::of(&refused);
        assert!(!challenge.is_stale);
        let first = challenge.answered(ALICE, "GET /file", 1);
        guarded.ask(is_http2, "GET /file", &first).await.expect(StatusCode::OK);
        let replayed = guarded.ask(is_http2, "GET /file", &first).await;
        let next = Challenge::of(&replayed);
        assert!(next.is_stale && next.nonce != challenge.nonce);
        let second = challenge.answered(ALICE, "GET /file", 2);
        guarded.ask(is_http2, "GET /file", &second).await.expect(StatusCode::OK);
        let elsewhere = challenge.answered(ALICE, "GET /other", 3);
        guarded.ask(is_http2, "GET /file", &elsewhere).await.expect(StatusCode::BAD_REQUEST);
        let method = challenge.answered(ALICE, "DELETE /file", 3);
        assert!(!Challenge::of(&guarded.ask(is_http2, "GET /file", &method).await).is_stale);
        let wrong = challenge.answered(("alice", "Bob's"), "GET /file", 4);
        assert!(!Challenge::of(&guarded.ask(is_http2, "GET /file", &wrong).await).is_stale);
    }
}

#[tokio::test]
async fn c6_basic_is_offered_after_digest_and_over_tls_only() {
    let guarded = PasswordSite::start().await;
    for is_http2 in [false, true] {
        let refused = guarded.ask(is_http2, "GET /file", "").await;
        let challenges = challenges(&refused);
        assert!(challenges.len() == 2 && challenges[0].starts_with("Digest "), "{challenges:?}");
        assert_eq!(challenges[1], r#"Basic realm="towpath", charset="UTF-8""#);
        guarded.ask(is_http2, "GET /file", &basic("bob:Bob's")).await.expect(StatusCode::OK);
        guarded.ask(is_http2, "GET /file", &basic("bob:Alice's")).await.expect(StatusCode::UNAUTHORIZED);
    }
    let site = &guarded.site;
    let bearer = "Bearer realm=\"towpath\"";
    assert_eq!(challenges(&site.get("/file").await), [bearer], "no password is asked for where others can read it");
    for authorization in [basic("bob:Bob's"), "Digest x".to_owned()] {
        let answer = site.ask("GET /file", &[("authorization", &authorization)], "").await;
        let answer = answer.expect(StatusCode::UPGRADE_REQUIRED);
        assert!(answer.text().contains("over TLS only") && !answer.headers.contains_key(header::WWW_AUTHENTICATE));
    }
}

#[tokio::test]
async fn users_may_do_what_the_rules_say() {
    let guarded = PasswordSite::start().await;
    for (what, pair, status) in [
        ("PUT /alice/file", "alice:Alice's", StatusCode::CREATED),
        ("PUT /alice/file", "bob:Bob's", StatusCode::FORBIDDEN),
        ("PUT /file", "alice:Alice's", StatusCode::FORBIDDEN),
        ("GET /alice/file", "bob:Bob's", StatusCode::OK),
    ] {
        let answer = guarded.ask(false, what, &basic(pair)).await;
        assert_eq!(answer.status, status.as_u16(), "{what} {pair}: {}", answer.text());
    }
}

#[tokio::test]
async fn who_guesses_is_told_to_wait() {
    let guarded = PasswordSite::start().await;
    for _ in 0..10 {
        guarded.ask(false, "GET /file", &basic("alice:guess")).await.expect(StatusCode::UNAUTHORIZED);
    }
    let answer = guarded.ask(false, "GET /file", &basic("alice:Alice's")).await;
    let answer = answer.expect(StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers.get_all(header::RETRY_AFTER).iter().count(), 1);
    assert_eq!(answer.field("retry-after"), "60");
}

#[tokio::test]
async fn passwords_that_others_can_see_are_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = guarded_config(directory.path());
    let why = |config: &ServeConfig| {
        let started = Server::builder(Arc::new(MemoryStore::new(1 << 20)), config).bind();
        started.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(why(&config).contains("configure a certificate"), "{}", why(&config));
    let (_certificate, _client) = certify(&mut config);
    assert_eq!(why(&config), "");
    write_passwords(config.access.passwords.as_ref().unwrap(), 0o640);
    assert!(why(&config).contains("chmod 600"), "{}", why(&config));
    disk::write(config.access.passwords.as_ref().unwrap(), b"alice:secret\n").unwrap();
    fs::set_permissions(config.access.passwords.as_ref().unwrap(), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(why(&config).contains("line 1") && !why(&config).contains("secret"), "{}", why(&config));
}
