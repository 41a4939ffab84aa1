//! Routes and metrics beside a store, and the identity of their callers.

use std::{pin::pin, time::Duration};

use async_trait::async_trait;
use futures::{FutureExt as _, stream};
use http::Method;
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2};
use prometheus_client::{metrics::gauge::ConstGauge, registry::Registry};
use tempfile::NamedTempFile;
use tokio::{sync::Notify, time::timeout};
use towpath_client::{Client, ClientOptions, TokenSource};
use towpath_server::{
    access::Activity,
    config::IssuerConfig,
    metrics::{Collector, Exposition},
    routes::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, RouteRequest, RouteResponse, Routes},
};
use towpath_store::{Error, Fault, OpenOptions, Result, sys::disk};
use towpath_testkit::issuer::{SigningKey, jwks, wlcg_claims};

use super::*;

const ISSUER: &str = "https://issuer.example";
const ROUTE: (&str, &str) = ("towpath-route", "1");

/// Timeout for requests that only take this long if they hang.
const HANG: Duration = Duration::from_secs(30);

/// Routes below `test/`.
#[derive(Debug, Default)]
struct TestRoutes {
    /// The route `test/wait` has been called.
    waiting: Notify,
    /// Lets `test/wait` respond.
    released: Notify,
}

#[async_trait]
impl Routes for TestRoutes {
    fn methods(&self, path: &str) -> &[Method] {
        match path {
            "test/caller" | "test/query" | "test/wait" | "test/long" | "test/longest" => &[Method::GET],
            "test/evict" => &[Method::POST],
            "test/echo" => &[Method::POST, Method::PUT],
            "test/conflict" | "test/error" => &[Method::GET, Method::DELETE],
            _ => &[],
        }
    }

    async fn answer(&self, request: RouteRequest) -> Result<RouteResponse> {
        let text = |body: Bytes| RouteResponse::ok("text/plain", body);
        Ok(match (&request.method, request.path.as_str()) {
            (&Method::GET, "test/caller") => {
                let subject = request.identity.caller.subject.as_deref();
                text(subject.unwrap_or("anonymous").to_owned().into())
            }
            (&Method::GET, "test/query") => text(request.query.into()),
            (&Method::GET, "test/wait") => {
                self.waiting.notify_one();
                self.released.notified().await;
                text("done".into())
            }
            (&Method::GET, "test/long") => text(vec![b'x'; MAX_RESPONSE_BYTES + 1].into()),
            (&Method::GET, "test/longest") => text(vec![b'x'; MAX_RESPONSE_BYTES].into()),
            (&Method::POST, "test/evict") => {
                let path = StorePath::parse(&request.parameter("path").unwrap()).unwrap();
                request.identity.check(Activity::Modify, &path)?;
                RouteResponse { status: StatusCode::ACCEPTED, ..text("evicted".into()) }
            }
            (&Method::POST | &Method::PUT, "test/echo") => text(request.body),
            (&Method::GET, "test/conflict") => RouteResponse { status: StatusCode::CONFLICT, ..text("busy".into()) },
            (&Method::GET, "test/error") => return Err(Error::new(Fault::NoSpace, "the cache is full")),
            (method, path) => panic!("{method} {path} is not in the methods of its route"),
        })
    }
}

impl Collector for TestRoutes {
    fn register_metrics(&self, registry: &mut Registry) {
        registry.register("test_entries", "Entries of the test", ConstGauge::new(7_i64));
    }
}

/// A server with a store and routes, and the key of its token issuer.
struct RoutedSite {
    site: Site,
    routes: Arc<TestRoutes>,
    key: SigningKey,
    _keys: NamedTempFile,
}

impl RoutedSite {
    /// Starts a server with the right to read for all callers.
    fn start() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServeConfig)) -> Self {
        let (key, keys) = (SigningKey::es256("key"), NamedTempFile::new().unwrap());
        disk::write(keys.path(), jwks([&key]).to_string().as_bytes()).unwrap();
        let mut config = open_config();
        config.access.anonymous[0].allow = vec![Right::Read];
        let keys_path = Some(keys.path().to_owned());
        config.access.issuers =
            vec![IssuerConfig { issuer: ISSUER.into(), base_path: "/".into(), keys: keys_path, ca: None }];
        change(&mut config);
        let (routes, store) = (Arc::new(TestRoutes::default()), Arc::new(MemoryStore::new(1 << 30)));
        let builder = Server::builder(store, &config).routes(Arc::clone(&routes) as _);
        let server = builder.collector(Arc::clone(&routes) as _).bind().unwrap();
        Self { site: Site::of(server), routes, key, _keys: keys }
    }

    /// Returns the credentials of alice with these scopes.
    fn token(&self, scope: &str) -> String {
        format!("Bearer {}", self.key.token(&wlcg_claims(ISSUER, scope)))
    }

    /// Sends a request to a route. `what` is the method and the path below the prefix.
    async fn ask(&self, what: &str, authorization: &str, body: impl Into<Bytes>) -> HttpResponse {
        let (method, path) = what.split_once(' ').unwrap();
        let headers = [ROUTE, ("authorization", authorization)];
        self.site.ask(&format!("{method} /.well-known/towpath/{path}"), &headers, body).await
    }

    async fn has_metric(&self, line: &str) -> bool {
        self.site.service.render_metrics(Exposition::Classic).await.lines().any(|found| found == line)
    }
}

#[tokio::test]
async fn files_are_served_beside_routes() {
    let routed = RoutedSite::start();
    let (site, modify) = (&routed.site, routed.token("storage.modify:/"));
    site.ask("PUT /file", &[("authorization", &modify)], "content").await.expect(StatusCode::CREATED);
    assert_eq!(site.get("/file").await.text(), "content");
    let options = ClientOptions { token: TokenSource::Nothing, ..ClientOptions::default() };
    let url = format!("root://{}//file", site.address).parse().unwrap();
    let (store, path) = Client::new(Arc::new(options)).connect(&url).unwrap();
    let file = store.open(&Caller::local(), &path, OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "content");
}

#[tokio::test]
async fn a_route_sees_its_caller() {
    let routed = RoutedSite::start();
    let answer = routed.ask("GET test/caller", &routed.token("storage.read:/"), "").await.expect(StatusCode::OK);
    assert_eq!(answer.text(), "alice");
    assert_eq!(["content-type", "cache-control"].map(|name| answer.field(name)), ["text/plain", "no-store"]);
    assert_eq!(routed.ask("GET test/caller", "", "").await.expect(StatusCode::OK).text(), "anonymous");
    let token = routed.token("storage.read:/").replace(' ', "%20");
    let answer = routed.ask(&format!("GET test/query?a=%2f&authz={token}&b"), "", "").await;
    assert_eq!(answer.expect(StatusCode::OK).text(), "a=%2f&b");
}

#[tokio::test]
async fn a_caller_without_the_right_is_denied_as_for_files() {
    let routed = RoutedSite::start();
    routed.site.plant("/file").await;
    let evict = "POST test/evict?path=/file";
    for (scope, status) in [("", StatusCode::UNAUTHORIZED), ("storage.read:/", StatusCode::FORBIDDEN)] {
        let token = if scope.is_empty() { String::new() } else { routed.token(scope) };
        let route = routed.ask(evict, &token, "").await.expect(status);
        let file = routed.site.ask("DELETE /file", &[("authorization", &token)], "").await.expect(status);
        assert_eq!(route.text(), file.text());
        assert!(route.text().contains("change or delete this"), "{}", route.text());
        for name in ["www-authenticate", "towpath-fault"] {
            assert_eq!(route.field(name), file.field(name), "{name}");
        }
        assert!(!route.field("www-authenticate").is_empty());
    }
    for reason in ["anonymous", "missing_scope"] {
        let line = format!("towpath_denials_total{{face=\"http\",reason=\"{reason}\"}} 2");
        assert!(routed.has_metric(&line).await, "{line}");
    }
    let answer = routed.ask(evict, &routed.token("storage.modify:/"), "").await.expect(StatusCode::ACCEPTED);
    assert_eq!(answer.text(), "evicted");
}

#[tokio::test]
async fn routes_and_files_of_the_same_name_hide_nothing() {
    let routed = RoutedSite::start();
    let path = "/.well-known/towpath/test/caller";
    routed.site.get(path).await.expect(StatusCode::NOT_FOUND);
    routed.site.plant(path).await;
    assert_eq!(routed.site.get(path).await.expect(StatusCode::OK).text(), "");
    assert_eq!(routed.ask("GET test/caller", "", "").await.expect(StatusCode::OK).text(), "anonymous");
    routed.site.ask("GET /test/caller", &[ROUTE], "").await.expect(StatusCode::NOT_FOUND);
    let without_routes = Site::in_memory();
    without_routes.plant(path).await;
    assert_eq!(without_routes.ask(&format!("GET {path}"), &[ROUTE], "").await.expect(StatusCode::OK).text(), "");
}

/// Routes below `more/`.
#[derive(Debug)]
struct MoreRoutes;

#[async_trait]
impl Routes for MoreRoutes {
    fn methods(&self, path: &str) -> &[Method] {
        match path {
            "more" | "test/caller" => &[Method::GET],
            _ => &[],
        }
    }

    async fn answer(&self, _: RouteRequest) -> Result<RouteResponse> {
        Ok(RouteResponse::ok("text/plain", "more"))
    }
}

#[tokio::test]
async fn all_routes_of_a_server_are_served() {
    let (first, store) = (Arc::new(TestRoutes::default()), Arc::new(MemoryStore::new(1 << 20)));
    let config = open_config();
    let server = Server::builder(store, &config).routes(first).routes(Arc::new(MoreRoutes)).bind().unwrap();
    let site = Site::of(server);
    for (path, text) in [("more", "more"), ("test/caller", "anonymous"), ("test/query?a", "a")] {
        let answer = site.ask(&format!("GET /.well-known/towpath/{path}"), &[ROUTE], "").await;
        assert_eq!(answer.expect(StatusCode::OK).text(), text, "the first routes with a path count");
    }
    site.ask("GET /.well-known/towpath/none", &[ROUTE], "").await.expect(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_refused() {
    let routed = RoutedSite::start();
    for path in ["test", "test/other", "test/caller/more", "metrics", "test/%ff"] {
        for method in ["GET", "POST", "DELETE", "PROPFIND", "OPTIONS"] {
            routed.ask(&format!("{method} {path}"), "", "body").await.expect(StatusCode::NOT_FOUND);
        }
    }
    for (what, allowed) in [
        ("POST test/caller", "GET, HEAD, OPTIONS"),
        ("PROPFIND test/caller", "GET, HEAD, OPTIONS"),
        ("PATCH test/caller", "GET, HEAD, OPTIONS"),
        ("GET test/echo", "POST, PUT, OPTIONS"),
        ("HEAD test/echo", "POST, PUT, OPTIONS"),
    ] {
        let answer = routed.ask(what, "", "body").await.expect(StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.field("allow"), allowed, "{what}");
    }
    let answer = routed.ask("OPTIONS test/conflict", "", "").await.expect(StatusCode::NO_CONTENT);
    assert_eq!(answer.field("allow"), "GET, DELETE, HEAD, OPTIONS");
    let head = routed.ask("HEAD test/caller", "", "").await.expect(StatusCode::OK);
    assert_eq!((head.text(), head.field("content-length")), ("", "9"));
}

#[tokio::test]
async fn bodies_are_bounded() {
    let routed = RoutedSite::start();
    let free = routed.site.service.memory.pool().free();
    for (length, status) in [
        (0, StatusCode::OK),
        (1, StatusCode::OK),
        (MAX_REQUEST_BYTES, StatusCode::OK),
        (MAX_REQUEST_BYTES + 1, StatusCode::PAYLOAD_TOO_LARGE),
        (8 * MAX_REQUEST_BYTES, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let body = vec![b'x'; length];
        let answer = routed.ask("PUT test/echo", "", body.clone()).await.expect(status);
        assert!(status != StatusCode::OK || answer.body == body);
        let what = "POST /.well-known/towpath/test/echo";
        routed.site.ask_http2(what, &[ROUTE], body.clone()).await.expect(status);
        assert_eq!(post_in_chunks(&routed.site, body).await, status, "{length}");
    }
    routed.ask("GET test/longest", "", "").await.expect(StatusCode::OK);
    routed.ask("GET test/long", "", "").await.expect(StatusCode::INTERNAL_SERVER_ERROR);
    while routed.site.service.memory.pool().free() < free {
        tokio::task::yield_now().await;
    }
}

/// Sends a body of unknown length over HTTP/1.1, and returns the status.
async fn post_in_chunks(site: &Site, body: Vec<u8>) -> StatusCode {
    let stream = TokioIo::new(site.connect().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let chunks: Vec<_> = body.chunks(100_000).map(Bytes::copy_from_slice).collect();
    let frames = stream::iter(chunks.into_iter().map(|chunk| Ok::<_, std::convert::Infallible>(Frame::data(chunk))));
    let request = Request::builder().method("POST").uri("/.well-known/towpath/test/echo").header("host", "here");
    let request = request.header(ROUTE.0, ROUTE.1).body(StreamBody::new(frames)).unwrap();
    sender.send_request(request).await.unwrap().status()
}

#[tokio::test]
async fn failures_of_routes_are_counted_by_fault() {
    let routed = RoutedSite::start();
    assert_eq!(routed.ask("GET test/conflict", "", "").await.expect(StatusCode::CONFLICT).text(), "busy");
    let answer = routed.ask("GET test/error", "", "").await.expect(StatusCode::INSUFFICIENT_STORAGE);
    assert!(answer.text().starts_with("the cache is full\n"), "{}", answer.text());
    routed.ask("GET test/caller", "", "").await.expect(StatusCode::OK);
    let conflict = Fault::from_http(409).name();
    for outcome in [conflict, Fault::NoSpace.name(), "ok"] {
        let line = format!("towpath_requests_total{{face=\"http\",verb=\"GET\",outcome=\"{outcome}\"}} 1");
        assert!(routed.has_metric(&line).await, "{line}");
    }
}

#[tokio::test]
async fn a_waiting_route_keeps_no_other_request_of_its_connection_waiting() {
    let routed = RoutedSite::with(|config| config.limits.bytes = towpath_server::units::ByteSize(16 << 20));
    let modify = routed.token("storage.modify:/");
    let put = routed.site.ask("PUT /file", &[("authorization", &modify)], vec![b'x'; 4 << 20]).await;
    put.expect(StatusCode::CREATED);
    let stream = TokioIo::new(routed.site.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut get = |path: &str, headers: &[_]| {
        sender.send_request(request(&format!("GET http://{}{path}", routed.site.address), headers, Bytes::new()))
    };
    let mut waiting = pin!(get("/.well-known/towpath/test/wait", &[ROUTE]));
    tokio::select! {
        () = routed.routes.waiting.notified() => {}
        answer = &mut waiting => panic!("{answer:?}"),
    }
    let file = timeout(HANG, async { HttpResponse::of(get("/file", &[]).await.unwrap()).await });
    let file = file.await.expect("the route does not block the file").expect(StatusCode::OK);
    assert_eq!(file.body.len(), 4 << 20);
    assert!(waiting.as_mut().now_or_never().is_none());
    routed.routes.released.notify_one();
    assert_eq!(HttpResponse::of(waiting.await.unwrap()).await.expect(StatusCode::OK).text(), "done");
}

#[tokio::test]
async fn web_pages_of_other_origins_cannot_use_routes() {
    let routed = RoutedSite::with(|config| config.http.cors_origins = vec!["*".into()]);
    let preflight = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "towpath-route"),
    ];
    let answer = routed.site.ask("OPTIONS /.well-known/towpath/test/evict", &preflight, "").await;
    let fields = answer.field("access-control-allow-headers");
    assert!(fields.contains("authorization") && !fields.contains("towpath-route"), "{fields}");
}

#[tokio::test]
async fn the_metrics_include_those_of_collectors() {
    let routed = RoutedSite::start();
    let page = routed.site.get("/metrics").await.expect(StatusCode::OK);
    let lines: Vec<_> = page.text().lines().collect();
    assert!(lines.contains(&"towpath_test_entries 7"), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("towpath_export_size_bytes{")), "{lines:?}");
}
