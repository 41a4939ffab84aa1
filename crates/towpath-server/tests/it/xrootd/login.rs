//! TLS and authentication.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls};
use towpath_proto::{
    tcp::{TCP_INFO_WORD, TcpInfo},
    xrootd::{
        ErrorCode, FileHandle, OpenOptions, PathAndCgi, PrepareOptions, PrepareOptionsX, ProtocolRequestFlags,
        Response, ResponseFramer, ServerFlags,
        auth::{UnixCredentials, ZtnCredentials},
        handshake::HANDSHAKE,
        request::{Auth, Endsess, Open, Ping, Prepare, Protocol, Query, Read, Write},
        response::{Body as _, LoginReply, ProtocolReply},
    },
};
use towpath_server::{ServeConfig, config::IssuerConfig, metrics::Exposition};
use towpath_store::{memory::MemoryStore, sys::disk};
use towpath_testkit::issuer::{SigningKey, jwks, wlcg_claims};

use super::peer::{Peer, Site, encode, login, open_request, protocol};

const ISSUER: &str = "https://issuer.example";

/// A site with TLS that accepts tokens, and the client's keys and certificates.
struct TlsSite {
    site: Site,
    config: ServeConfig,
    key: SigningKey,
    ca: rustls::pki_types::CertificateDer<'static>,
    _files: tempfile::TempDir,
}

fn secure(change: impl FnOnce(&mut ServeConfig)) -> TlsSite {
    let files = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = SigningKey::es256("key");
    let (certificate, private, keys) =
        (files.path().join("cert.pem"), files.path().join("key.pem"), files.path().join("jwks"));
    disk::write(&certificate, certified.cert.pem().as_bytes()).unwrap();
    disk::write(&private, certified.signing_key.serialize_pem().as_bytes()).unwrap();
    disk::write(&keys, jwks([&key]).to_string().as_bytes()).unwrap();
    let mut used = ServeConfig::default();
    let site = Site::with(Arc::new(MemoryStore::new(1 << 20)), |config| {
        config.tls.certificate = Some(certificate);
        config.tls.key = Some(private);
        config.access.audiences = vec!["https://se.example".into()];
        config.access.issuers =
            vec![IssuerConfig { issuer: ISSUER.into(), base_path: "/vo".into(), keys: Some(keys), ca: None }];
        config.access.anonymous.clear();
        change(config);
        used = config.clone();
    });
    TlsSite { site, config: used, key, ca: certified.cert.der().clone(), _files: files }
}

impl TlsSite {
    fn token(&self, scope: &str) -> String {
        self.token_of("alice", scope)
    }

    fn token_of(&self, subject: &str, scope: &str) -> String {
        let mut claims = wlcg_claims(ISSUER, scope);
        claims["sub"] = json!(subject);
        claims["aud"] = json!("https://se.example");
        self.key.token(&claims)
    }

    /// Opens a connection and starts TLS after `protocol`.
    async fn client(&self) -> Client {
        let mut peer = Peer::silent(&self.site).await;
        let flags = ProtocolRequestFlags::ableTLS | ProtocolRequestFlags::wantTLS;
        peer.send(&[HANDSHAKE.to_vec(), encode(1, Protocol { flags, ..protocol() })].concat()).await;
        peer.answer(0).await.ok();
        let reply = ProtocolReply::decode(peer.answer(1).await.ok()).unwrap();
        assert!(reply.flags.contains(ServerFlags::haveTLS | ServerFlags::gotoTLS));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect("localhost".try_into().unwrap(), peer.stream).await.unwrap();
        Client { stream, framer: ResponseFramer::new(1 << 20) }
    }
}

/// The client's end of a TLS connection.
struct Client {
    stream: TlsStream<tokio::net::TcpStream>,
    framer: ResponseFramer,
}

impl Client {
    async fn ask(&mut self, request: impl Into<towpath_proto::xrootd::Request>) -> Response {
        self.stream.write_all(&encode(5, request)).await.unwrap();
        loop {
            if let Some(head) = self.framer.next().unwrap() {
                loop {
                    if let Some(body) = self.framer.body().unwrap() {
                        return Response::decode(&head.header, body).unwrap();
                    }
                    self.stream.read_buf(self.framer.buffer()).await.unwrap();
                }
            }
            assert_ne!(self.stream.read_buf(self.framer.buffer()).await.unwrap(), 0, "the server hung up");
        }
    }

    async fn code(&mut self, request: impl Into<towpath_proto::xrootd::Request>) -> ErrorCode {
        self.error(request).await.0
    }

    async fn error(&mut self, request: impl Into<towpath_proto::xrootd::Request>) -> (ErrorCode, String) {
        match self.ask(request).await {
            Response::Error(error) => (error.code, error.message),
            other => panic!("{other:?}"),
        }
    }

    async fn ok(&mut self, request: impl Into<towpath_proto::xrootd::Request>) -> bytes::Bytes {
        match self.ask(request).await {
            Response::Ok(body) => body,
            other => panic!("{other:?}"),
        }
    }
}

fn ztn(token: &str) -> Auth {
    let credentials = ZtnCredentials { token: token.to_owned().into() }.encode().unwrap();
    Auth { credential_type: ZtnCredentials::TYPE, credentials }
}

#[tokio::test]
async fn a_token_in_tls_opens_what_it_is_for() {
    let secure = secure(|_| {});
    secure.site.put("/vo/foo/bar/x", b"x").await;
    secure.site.put("/vo/foo/bargain", b"x").await;
    let mut client = secure.client().await;
    let reply = LoginReply::decode(client.ok(login()).await).unwrap();
    assert_eq!(reply.security, "&P=ztn,0:16384:");
    assert_eq!(client.code(open_request("/vo/foo/bar/x", OpenOptions::open_read)).await, ErrorCode::NotAuthorized);
    client.ok(Ping).await;
    assert_eq!(client.code(ztn("not.a.token")).await, ErrorCode::AuthFailed);
    let unix = UnixCredentials { user: "root".into(), group: String::new() };
    let unix = Auth { credential_type: UnixCredentials::TYPE, credentials: unix.encode() };
    assert_eq!(client.code(unix).await, ErrorCode::AuthFailed, "not offered, as anonymous callers may do nothing");
    client.ok(ztn(&secure.token("storage.read:/foo/bar"))).await;
    client.ok(open_request("/vo/foo/bar/x", OpenOptions::open_read)).await;
    assert_eq!(client.code(open_request("/vo/foo/bargain", OpenOptions::open_read)).await, ErrorCode::NotAuthorized);
    assert_eq!(client.code(open_request("/vo/foo/bar/x", OpenOptions::open_updt)).await, ErrorCode::NotAuthorized);
}

#[tokio::test]
async fn a_refused_token_leaves_public_rights_and_is_reported_after_the_fallback() {
    use towpath_server::config::{AnonymousRule, Right};
    let secure = secure(|config| {
        config.access.anonymous = vec![AnonymousRule { path: "/public".into(), allow: vec![Right::Read] }];
    });
    secure.site.put("/public/f", b"x").await;
    secure.site.put("/vo/f", b"x").await;
    let mut expired = wlcg_claims(ISSUER, "storage.read:/");
    expired["aud"] = json!("https://se.example");
    expired["exp"] = json!(1_700_000_000);
    let mut client = secure.client().await;
    client.ok(login()).await;
    let refused = client.error(ztn(&secure.key.token(&expired))).await;
    assert_eq!(refused.0, ErrorCode::AuthFailed);
    assert!(refused.1.contains("expired"), "{}", refused.1);
    let unix = UnixCredentials { user: "alice".into(), group: String::new() };
    client.ok(Auth { credential_type: UnixCredentials::TYPE, credentials: unix.encode() }).await;
    client.ok(open_request("/public/f", OpenOptions::open_read)).await;
    let (code, message) = client.error(open_request("/vo/f", OpenOptions::open_read)).await;
    assert_eq!(code, ErrorCode::AuthFailed);
    assert!(message.contains("expired") && message.contains("anonymous callers may not read"), "{message}");

    // A token of one request.
    let authz = |path: &str, token: &str| Open {
        options: OpenOptions::open_read,
        path: PathAndCgi::from(path).with_cgi(format!("authz=Bearer%20{token}")),
        ..Open::default()
    };
    client.ok(authz("/public/f", "for.ge.d")).await;
    let (_, message) = client.error(authz("/vo/f", "for.ge.d")).await;
    assert!(message.contains("malformed"), "{message}");

    let mut alice = secure.client().await;
    alice.ok(login()).await;
    alice.ok(ztn(&secure.token("storage.read:/mine"))).await;
    alice.ok(open_request("/public/f", OpenOptions::open_read)).await;
    let (code, message) = alice.error(open_request("/vo/f", OpenOptions::open_read)).await;
    assert_eq!(code, ErrorCode::NotAuthorized);
    assert!(message.contains("it may read /vo/mine"), "{message}");
}

#[tokio::test]
async fn bytes_are_counted_by_the_issuer_of_the_token_that_opened_the_file() {
    use towpath_server::{
        config::{AnonymousRule, Right},
        metrics::Exposition,
    };
    let secure = secure(|config| {
        config.access.anonymous = vec![AnonymousRule { path: "/public".into(), allow: vec![Right::Read] }];
    });
    secure.site.put("/public/f", &[0; 3]).await;
    secure.site.put("/vo/f", &[0; 5]).await;
    let mut client = secure.client().await;
    client.ok(login()).await;
    let unix = UnixCredentials { user: "alice".into(), group: String::new() };
    client.ok(Auth { credential_type: UnixCredentials::TYPE, credentials: unix.encode() }).await;
    let authz = PathAndCgi::from("/vo/f").with_cgi(format!("authz=Bearer%20{}", secure.token("storage.read:/")));
    for path in [PathAndCgi::from("/public/f"), authz] {
        let opened = client.ok(Open { options: OpenOptions::open_read, path, ..Open::default() }).await;
        let handle = FileHandle(opened[..4].try_into().unwrap());
        client.ok(Read { handle, offset: 0, length: 100, ..Read::default() }).await;
    }
    let metrics = secure.site.service.render_metrics(Exposition::Classic).await;
    for (issuer, bytes) in [("anonymous", 3), (ISSUER, 5)] {
        let line = format!("towpath_sent_bytes_total{{face=\"xrootd\",issuer=\"{issuer}\"}} {bytes}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn a_reload_changes_the_rights_of_a_session() {
    let secure = secure(|_| {});
    secure.site.put("/vo/f", b"x").await;
    let mut alice = secure.client().await;
    alice.ok(login()).await;
    alice.ok(ztn(&secure.token("storage.read:/"))).await;
    alice.ok(open_request("/vo/f", OpenOptions::open_read)).await;

    let mut closed = secure.config.clone();
    closed.access.issuers.clear();
    closed.limits.files += 1;
    assert_eq!(secure.site.service.reload(&closed).unwrap(), ["limits.files"]);
    let (code, message) = alice.error(open_request("/vo/f", OpenOptions::open_read)).await;
    assert_eq!(code, ErrorCode::AuthFailed, "{message}");

    let mut invalid = secure.config.clone();
    invalid.tls.certificate = Some("/missing".into());
    let error = secure.site.service.reload(&invalid).unwrap_err().to_string();
    assert!(error.contains("/missing"), "{error}");
    alice.error(open_request("/vo/f", OpenOptions::open_read)).await;

    assert!(secure.site.service.reload(&secure.config).unwrap().is_empty());
    alice.ok(open_request("/vo/f", OpenOptions::open_read)).await;
}

#[tokio::test]
async fn nobody_ends_the_session_of_somebody_else() {
    let secure = secure(|_| {});
    let (mut alice, mut bob) = (secure.client().await, secure.client().await);
    let session_id = LoginReply::decode(alice.ok(login()).await).unwrap().session_id;
    alice.ok(ztn(&secure.token("storage.read:/"))).await;
    bob.ok(login()).await;
    bob.ok(ztn(&secure.token_of("bob", "storage.read:/"))).await;
    let Response::Error(refused) = bob.ask(Endsess { session_id }).await else { panic!("it was not refused") };
    assert_eq!((refused.code, &*refused.message), (ErrorCode::NotAuthorized, "the session belongs to another user"));
    alice.ok(Ping).await;
    let mut again = secure.client().await;
    again.ok(login()).await;
    again.ok(ztn(&secure.token("storage.read:/"))).await;
    again.ok(Endsess { session_id }).await;
    assert_eq!(alice.stream.read(&mut [0]).await.unwrap_or(0), 0, "it has ended");
}

#[tokio::test]
async fn without_tls_only_anonymous() {
    let secure = secure(|config| config.tls.required = true);
    let mut peer = Peer::silent(&secure.site).await;
    peer.send(&[HANDSHAKE.to_vec(), encode(1, protocol()), encode(2, login())].concat()).await;
    peer.answer(0).await.ok();
    let reply = ProtocolReply::decode(peer.answer(1).await.ok()).unwrap();
    assert!(reply.flags.contains(ServerFlags::haveTLS | ServerFlags::tlsLogin));
    assert_eq!(peer.answer(2).await.code(), ErrorCode::TLSRequired);
}

#[tokio::test]
async fn a_cache_announces_itself() {
    for is_cache in [false, true] {
        let store = Arc::new(MemoryStore::new(0));
        let site = Site::with_parts(store, |_| {}, |builder| builder.is_cache(is_cache));
        let mut peer = Peer::silent(&site).await;
        peer.send(&[HANDSHAKE.to_vec(), encode(1, protocol()), encode(2, login())].concat()).await;
        peer.answer(0).await.ok();
        let first = ProtocolReply::decode(peer.answer(1).await.ok()).unwrap();
        peer.answer(2).await.ok();
        let in_session = ProtocolReply::decode(peer.ask(protocol()).await.ok()).unwrap();
        for flags in [first.flags, in_session.flags] {
            assert_eq!(flags.0 & 0x280, if is_cache { 0x280 } else { 0 }, "{flags:?}");
            assert!(flags.contains(ServerFlags::isServer | ServerFlags::suppgrw));
        }
    }
}

/// A client sends `protocol` and `login` together, and connects again with TLS if the server requires that.
#[tokio::test]
async fn only_a_login_that_ignores_required_tls_is_a_denial() {
    let secure = secure(|config| config.tls.required = true);
    let metrics = || secure.site.service.render_metrics(Exposition::Classic);
    let mut peer = Peer::silent(&secure.site).await;
    peer.send(&[HANDSHAKE.to_vec(), encode(1, protocol()), encode(2, login())].concat()).await;
    peer.answer(0).await.ok();
    peer.answer(1).await.ok();
    assert_eq!(peer.answer(2).await.code(), ErrorCode::TLSRequired);
    assert!(!metrics().await.contains("towpath_denials_total{"));
    assert_eq!(peer.ask(login()).await.code(), ErrorCode::TLSRequired);
    let line = "towpath_denials_total{face=\"xrootd\",reason=\"tls_required\"} 1";
    assert!(metrics().await.contains(line), "{}", metrics().await);
}

#[tokio::test]
async fn what_was_said_in_clear_does_not_count_in_tls() {
    let secure = secure(|_| {});
    let mut peer = Peer::silent(&secure.site).await;
    let protocol = Protocol { flags: ProtocolRequestFlags::wantTLS, ..protocol() };
    peer.send(&[HANDSHAKE.to_vec(), encode(1, protocol), encode(2, login())].concat()).await;
    peer.answer(0).await.ok();
    peer.answer(1).await.ok();
    peer.closed().await;
}

#[tokio::test]
async fn a_token_may_speak_for_one_request() {
    use towpath_server::config::{AnonymousRule, Right};
    let secure = secure(|config| {
        config.access.anonymous = vec![AnonymousRule { path: "/public".into(), allow: vec![Right::Read] }];
    });
    secure.site.put("/vo/f", b"x").await;
    let mut peer = Peer::logged_in(&secure.site).await;
    let open = |cgi: String| Open {
        options: OpenOptions::open_read,
        path: PathAndCgi::from("/vo/f").with_cgi(cgi),
        ..Open::default()
    };
    assert_eq!(peer.ask(open("x=1".into())).await.code(), ErrorCode::AuthFailed);
    let token = secure.token("storage.read:/");
    peer.ask(open(format!("x=1&authz=Bearer%20{token}"))).await.ok();
    assert_eq!(peer.ask(open("authz=Bearer%20forged".into())).await.code(), ErrorCode::AuthFailed);
    assert_eq!(peer.ask(open(String::new())).await.code(), ErrorCode::AuthFailed, "the session stays anonymous");
}

#[tokio::test]
async fn figures_of_the_connection_are_for_callers_with_rights() {
    let secure = secure(|config| (config.tls.certificate, config.tls.key) = (None, None));
    secure.site.put("/vo/f", b"x").await;
    let mut peer = Peer::logged_in(&secure.site).await;
    let question = || Query::Config(TCP_INFO_WORD.into());
    assert_eq!(peer.ask(question()).await.ok(), [TCP_INFO_WORD, b"\n"].concat(), "no right, no figures");
    let path = PathAndCgi::from("/vo/f").with_cgi(format!("authz=Bearer%20{}", secure.token("storage.read:/")));
    peer.ask(Open { options: OpenOptions::open_read, path, ..Open::default() }).await.ok();
    let told = peer.ask(question()).await.ok();
    std::str::from_utf8(&told).unwrap().trim().parse::<TcpInfo>().unwrap();
}

#[tokio::test]
async fn a_token_to_stage_files_prepares_them_and_reads_nothing() {
    let secure = secure(|_| {});
    secure.site.put("/vo/d/f", b"x").await;
    let mut client = secure.client().await;
    client.ok(login()).await;
    client.ok(ztn(&secure.token("storage.stage:/d"))).await;
    let prepare = |list: &'static str| Prepare {
        options: PrepareOptions::stage,
        priority: 0,
        port: 0,
        options_x: PrepareOptionsX::NONE,
        list: list.into(),
    };
    client.ok(prepare("/vo/d/f")).await;
    assert_eq!(client.code(prepare("/vo/other")).await, ErrorCode::NotAuthorized);
    assert_eq!(client.code(open_request("/vo/d/f", OpenOptions::open_read)).await, ErrorCode::NotAuthorized);
}

#[tokio::test]
async fn data_before_the_authentication_end_the_connection() {
    let secure = secure(|_| {});
    let mut client = secure.client().await;
    client.ok(login()).await;
    let mut write = encode(5, Write { handle: FileHandle([0; 4]), length: 1 << 30, ..Write::default() });
    // A negative offset: the request is invalid, but its data follow nevertheless.
    write[8] = 0x80;
    client.stream.write_all(&write).await.unwrap();
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest).await;
    assert_ne!(rest.len(), 0, "the refusal");
}

#[tokio::test]
async fn tokens_mean_nothing_to_a_server_without_issuers() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let path = PathAndCgi::from("/f").with_cgi("authz=Bearer%20for.somebody.else".to_owned());
    peer.ask(Open { options: OpenOptions::open_read, path, ..Open::default() }).await.ok();
}
