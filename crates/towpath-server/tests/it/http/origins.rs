//! Cross-origin requests (CORS) as sent by JSROOT; challenges for tokens.

use std::sync::Arc;

use http::{StatusCode, header};
use tempfile::NamedTempFile;
use tokio::io::AsyncReadExt as _;
use towpath_server::{
    Server,
    config::{IssuerConfig, Right},
};
use towpath_store::{
    memory::MemoryStore,
    sys::{disk, net},
};
use towpath_testkit::issuer::{SigningKey, jwks, wlcg_claims};

use super::{Site, open_config};

const JSROOT: &str = "https://root.cern";

#[tokio::test]
async fn pages_of_named_origins_may_read_files_and_ranges() {
    let mut config = open_config();
    config.http.cors_origins = vec![JSROOT.into()];
    let site = Site::in_memory_with(&config);
    site.put("/f.root", "content").await.expect(StatusCode::CREATED);
    let preflight = [
        ("origin", JSROOT),
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "authorization,range"),
    ];
    let answer = site.ask("OPTIONS /f.root", &preflight, "").await.expect(StatusCode::OK);
    assert_eq!(answer.field("access-control-allow-origin"), JSROOT);
    assert!(answer.field("access-control-allow-methods").contains("GET"));
    let fields = answer.field("access-control-allow-headers");
    assert!(["authorization", "range", "if-range"].iter().all(|name| fields.split(", ").any(|field| field == *name)));
    for (what, range, status) in [
        ("GET /f.root", "bytes=0-1", StatusCode::PARTIAL_CONTENT),
        ("GET /f.root", "bytes=0-1,3-4", StatusCode::PARTIAL_CONTENT),
        ("HEAD /f.root", "", StatusCode::OK),
        // Errors must be readable for pages, too.
        ("GET /missing", "bytes=0-1", StatusCode::NOT_FOUND),
        ("GET /f.root", "bytes=99-", StatusCode::RANGE_NOT_SATISFIABLE),
    ] {
        let answer = site.ask(what, &[("origin", JSROOT), ("range", range)], "").await.expect(status);
        assert_eq!(answer.field("access-control-allow-origin"), JSROOT, "{what}");
        let exposed = answer.field("access-control-expose-headers");
        for name in ["accept-ranges", "content-range", "etag", "digest"] {
            assert!(exposed.split(", ").any(|field| field == name), "{name}");
        }
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
    let other = site.ask("GET /f.root", &[("origin", "https://evil.example")], "").await.expect(StatusCode::OK);
    assert!(!other.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    assert_eq!(other.field("vary"), "origin", "caches keep the two apart");
}

#[tokio::test]
async fn pages_of_other_origins_read_nothing_by_default() {
    let site = Site::in_memory();
    for what in ["OPTIONS /", "GET /"] {
        let answer = site.ask(what, &[("origin", JSROOT), ("access-control-request-method", "GET")], "").await;
        assert!(answer.expect(StatusCode::OK).headers.keys().all(|name| !name.as_str().starts_with("access-control")));
    }
}

/// A page of another site, or of a site whose name leads to this machine.
#[tokio::test]
async fn a_server_of_one_user_serves_no_pages() {
    let (config, own) = (open_config(), rustix::process::geteuid().as_raw());
    let site = |user| {
        let store = Arc::new(MemoryStore::new(1 << 30));
        Site::of(Server::builder(store, &config).only_user(user).bind().unwrap())
    };
    let of_own = site(own);
    let port = of_own.address.port();
    for (host, origin, status) in [
        (format!("127.0.0.1:{port}"), None, 200),
        (format!("LocalHost:{port}"), None, 200),
        ("[::1]".to_owned(), None, 200),
        (format!("127.0.0.1:{port}"), Some(JSROOT), 403),
        (format!("127.0.0.1:{port}"), Some("null"), 403),
        (format!("evil.example:{port}"), None, 403),
        (format!("127.0.0.1.evil.example:{port}"), None, 403),
        (format!("192.0.2.1:{port}"), None, 403),
    ] {
        let mut fields = vec![("host", &*host)];
        fields.extend(origin.map(|origin| ("origin", origin)));
        assert_eq!(of_own.ask("GET /", &fields, "").await.status, status, "{host} {origin:?}");
    }
    for (site, status) in [("none", 200), ("same-origin", 200), ("cross-site", 403), ("same-site", 403)] {
        assert_eq!(of_own.ask("GET /", &[("sec-fetch-site", site)], "").await.status, status, "{site}");
    }
    assert_eq!(of_own.ask_http2("GET /", &[], "").await.status, 200);

    let of_another = site(own + 1);
    let mut stream = net::connect(of_another.address).await.unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).await;
    assert!(ended.is_err() || answer.is_empty(), "another user gets no response");
}

#[tokio::test]
async fn challenges_say_what_is_wrong_with_a_token() {
    const ISSUER: &str = "https://issuer.example";
    let (key, keys) = (SigningKey::es256("key"), NamedTempFile::new().unwrap());
    disk::write(keys.path(), jwks([&key]).to_string().as_bytes()).unwrap();
    let mut config = open_config();
    config.access.anonymous[0].allow = vec![Right::Stat];
    config.access.audiences = vec!["https://se.example".into()];
    let keys_path = Some(keys.path().to_owned());
    config.access.issuers =
        vec![IssuerConfig { issuer: ISSUER.into(), base_path: "/".into(), keys: keys_path, ca: None }];
    let site = Site::in_memory_with(&config);
    site.plant("/d/f").await;
    let bearer = |claims| format!("Bearer {}", key.token(&claims));
    let mut expired = wlcg_claims(ISSUER, "storage.read:/");
    expired["exp"] = 1.into();
    let ask = async |authorization: &str| {
        let answer = site.ask("GET /d/f", &[("authorization", authorization)], "").await;
        (answer.status, answer.field("www-authenticate").to_owned())
    };
    assert_eq!(ask("").await, (401, "Bearer realm=\"towpath\"".into()), "no error where there was no token");
    for (token, status, error) in [
        ("Bearer garbage", 401, "error=\"invalid_token\""),
        (&*bearer(expired), 401, "error=\"invalid_token\""),
        (&*bearer(wlcg_claims(ISSUER, "storage.read:/other")), 403, "error=\"insufficient_scope\""),
    ] {
        let (got, challenge) = ask(token).await;
        assert_eq!(got, status, "{challenge}");
        assert!(challenge.starts_with("Bearer error=") && challenge.contains(error), "{challenge}");
        assert!(challenge.contains("error_description=\""), "{challenge}");
    }
    assert_eq!(ask(&bearer(wlcg_claims(ISSUER, "storage.read:/"))).await, (200, String::new()));

    // Public rights remain; the refusal is reported with the response.
    let mut expired = wlcg_claims(ISSUER, "storage.read:/");
    expired["exp"] = 1.into();
    for (token, challenge) in [(expired, "invalid_token"), (wlcg_claims(ISSUER, "storage.read:/other"), "")] {
        let answer = site.ask("PROPFIND /d", &[("authorization", &bearer(token)), ("depth", "0")], "").await;
        assert_eq!(answer.status, StatusCode::MULTI_STATUS);
        assert!(answer.field("www-authenticate").contains(challenge), "{challenge}");
    }
    let metrics =
        site.ask("GET /metrics", &[("authorization", &bearer(wlcg_claims(ISSUER, "storage.read:/")))], "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (reason, count) in [("anonymous", 1), ("token_malformed", 1), ("token_expired", 1), ("missing_scope", 1)] {
        let line = format!("towpath_denials_total{{face=\"http\",reason=\"{reason}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}
