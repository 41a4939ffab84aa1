//! HTTP and WebDAV: a server on loopback and a simple client.

mod additional_routes;
mod application;
mod fair_shares;
mod files;
mod framing;
mod limits;
mod links;
mod listing_page;
mod monitoring;
mod namespace;
mod origins;
mod passwords;
mod probe;
mod properties;
mod third_party;
mod tls;
mod uploads;

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use towpath_server::{
    ServeConfig, Server, Service,
    config::{AnonymousRule, Right},
};
use towpath_store::{
    Caller, CreateOptions, Expectation, Store, StorePath,
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
    sys::net,
};

/// A server on its own port.
struct Site {
    address: SocketAddr,
    service: Arc<Service>,
    stopped: tokio::task::JoinHandle<()>,
    directory: Option<tempfile::TempDir>,
}

/// Returns settings with all rights for everyone.
fn open_config() -> ServeConfig {
    let mut config = ServeConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServeConfig::default() };
    let everything = vec![Right::Read, Right::Create, Right::Modify];
    config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: everything }];
    config
}

impl Site {
    fn start(store: Arc<dyn Store>, config: &ServeConfig) -> Self {
        Self::of(Server::builder(store, config).bind().unwrap())
    }

    fn of(server: Server) -> Self {
        let (address, service) = (server.addresses()[0], server.service());
        Self { address, service, stopped: tokio::spawn(server.run()), directory: None }
    }

    fn in_memory_with(config: &ServeConfig) -> Self {
        Self::start(Arc::new(MemoryStore::new(1 << 30)), config)
    }

    fn in_memory() -> Self {
        Self::in_memory_with(&open_config())
    }

    fn in_directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
        Self { directory: Some(directory), ..Self::start(Arc::new(store), &open_config()) }
    }

    /// Stops this server and starts another one on the same directory.
    async fn restarted(self) -> Self {
        let Self { service, stopped, directory, .. } = self;
        service.stopping.cancel();
        stopped.await.unwrap();
        drop(service);
        let store = LocalStore::open(directory.as_ref().unwrap().path(), LocalOptions::default()).unwrap();
        Self { directory, ..Self::start(Arc::new(store), &open_config()) }
    }

    /// Sends one request on a new connection. `what` is the method and the target.
    async fn ask(&self, what: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> HttpResponse {
        let stream = TokioIo::new(net::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let host = self.address.to_string();
        let own = [("host", host.as_str())];
        let own = if headers.iter().any(|(name, _)| *name == "host") { &own[1..] } else { &own };
        let headers = [own, headers].concat();
        HttpResponse::of(sender.send_request(request(what, &headers, body.into())).await.unwrap()).await
    }

    async fn get(&self, target: &str) -> HttpResponse {
        self.ask(&format!("GET {target}"), &[], "").await
    }

    async fn put(&self, target: &str, body: impl Into<Bytes>) -> HttpResponse {
        self.ask(&format!("PUT {target}"), &[], body).await
    }

    /// Like [`Self::ask`], over HTTP/2.
    async fn ask_http2(&self, what: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> HttpResponse {
        let stream = TokioIo::new(net::connect(self.address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let (method, target) = what.split_once(' ').unwrap();
        let what = format!("{method} http://{}{target}", self.address);
        HttpResponse::of(sender.send_request(request(&what, headers, body.into())).await.unwrap()).await
    }

    /// Sends these bytes and returns everything received until the server closes.
    async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A reset also ends the connection.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn connect(&self) -> TcpStream {
        net::connect(self.address).await.unwrap()
    }

    /// Creates a symbolic link in the exported directory.
    fn link(&self, target: &str, name: &str) {
        let directory = self.directory.as_ref().expect("the site has a directory");
        std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
    }

    /// Creates a file in the store without the server.
    async fn plant(&self, path: &str) {
        let path = StorePath::parse(path.as_bytes()).unwrap();
        let options = CreateOptions { parents: true, ..CreateOptions::default() };
        let file = self.service.store.create(&Caller::local(), &path, options).await.unwrap();
        file.commit(Expectation::default()).await.unwrap();
    }

    /// Returns the number of staging files in the exported directory.
    fn staged(&self) -> usize {
        let directory = self.directory.as_ref().expect("the site has a directory");
        directory.path().join(".towpath").read_dir().map_or(0, Iterator::count)
    }

    async fn exists(&self, path: &str) -> bool {
        self.service.store.stat(&Caller::local(), &StorePath::parse(path.as_bytes()).unwrap()).await.is_ok()
    }
}

fn request(what: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
    let (method, target) = what.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(target);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(body)).unwrap()
}

/// A complete response.
#[derive(Debug)]
struct HttpResponse {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpResponse {
    async fn of(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status.as_u16(), headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    /// Returns a header field; empty if it is absent.
    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    fn expect(self, status: StatusCode) -> Self {
        assert_eq!(self.status, status.as_u16(), "{:?} {}", self.headers, String::from_utf8_lossy(&self.body));
        self
    }
}
