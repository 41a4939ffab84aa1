//! A web server for each test, which does what the test wants: above all what real servers seldom do.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio_util::task::AbortOnDropHandle;
use towpath_client::{Client, ClientOptions, PasswordSource, ProxySettings, TokenSource};
use towpath_store::{Caller, Error, ReadHandle, Store, StorePath, sys::net};

/// The request of a client.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The number of connections before the one it came over.
    pub(crate) connection: usize,
}

impl ReceivedRequest {
    /// A header field; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    Broken,
    Stalled,
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Option<Bytes>,
    length: Option<u64>,
    ending: Ending,
    flushed: bool,
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(bytes) = self.bytes.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.ending {
            Ending::Whole => Poll::Ready(None),
            // Data before it are sent first.
            Ending::Broken if !self.flushed => {
                self.flushed = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ending::Broken => Poll::Ready(Some(Err(std::io::ErrorKind::BrokenPipe.into()))),
            Ending::Stalled => Poll::Pending,
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.length.map_or_else(Default::default, hyper::body::SizeHint::with_exact)
    }
}

/// Marks a request that gets no answer.
#[derive(Debug, Clone, Copy)]
enum NoAnswer {
    /// The connection is closed.
    HangUp,
    /// The connection stays open.
    Silence,
}

/// No answer: the server has the request, and closes the connection.
pub(crate) fn hang_up() -> Reply {
    let mut reply = reply(200);
    reply.0.extensions_mut().insert(NoAnswer::HangUp);
    reply
}

/// No answer, on a connection that stays open.
pub(crate) fn silence() -> Reply {
    let mut reply = reply(200);
    reply.0.extensions_mut().insert(NoAnswer::Silence);
    reply
}

/// An answer in the making.
#[derive(Debug)]
pub(crate) struct Reply(Response<Content>);

/// An answer without body.
pub(crate) fn reply(status: u16) -> Reply {
    let content = Content { bytes: None, length: Some(0), ending: Ending::Whole, flushed: false };
    Reply(Response::builder().status(status).body(content).unwrap())
}

impl Reply {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.headers_mut().insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        // Also for HEAD, and if it is empty.
        self.0.headers_mut().insert("content-length", bytes.len().into());
        *self.0.body_mut() =
            Content { length: Some(bytes.len() as u64), bytes: Some(bytes), ending: Ending::Whole, flushed: false };
        self
    }

    /// Only the first `bytes` of the body come; then the connection breaks.
    pub(crate) fn broken_after(self, bytes: usize) -> Self {
        self.cut(bytes, Ending::Broken)
    }

    /// Only the first `bytes` of the body come; then nothing more.
    pub(crate) fn stalled_after(self, bytes: usize) -> Self {
        self.cut(bytes, Ending::Stalled)
    }

    fn cut(mut self, bytes: usize, ending: Ending) -> Self {
        let content = self.0.body_mut();
        content.ending = ending;
        content.bytes = content.bytes.take().map(|all| all.slice(..bytes));
        self
    }

    /// The body comes without a length, and ends with the connection.
    pub(crate) fn until_the_end(mut self) -> Self {
        *self.0.version_mut() = http::Version::HTTP_10;
        self.0.headers_mut().remove("content-length");
        self.0.body_mut().length = None;
        self
    }

    /// The body comes in chunks, without a length.
    pub(crate) fn chunked(mut self) -> Self {
        self.0.headers_mut().remove("content-length");
        self.0.body_mut().length = None;
        self
    }
}

/// A file as a well-behaved server answers for it.
pub(crate) fn serve_file(asked: &ReceivedRequest, content: &Bytes, etag: &str) -> Reply {
    if !matches!(asked.field("if-match"), "" | "*") && asked.field("if-match") != etag {
        return reply(412);
    }
    let whole = reply(200).with("etag", etag).body(content.clone());
    let Some(range) = asked.field("range").strip_prefix("bytes=") else { return whole };
    let Some((first, last)) = range.split_once('-').filter(|_| !range.contains(',')) else { return whole };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let size = content.len();
    if first >= size {
        return reply(416).with("content-range", &format!("bytes */{size}"));
    }
    let last = last.min(size - 1);
    let range = format!("bytes {first}-{last}/{size}");
    reply(206).with("etag", etag).with("content-range", &range).body(content.slice(first..=last))
}

/// The server.
#[derive(Debug)]
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Web {
    /// Starts a server that responds with `answer`, which gets the number of previous requests.
    pub(crate) fn start(answer: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::new(false, answer)
    }

    /// A server that answers a request with `Expect` by its header alone.
    pub(crate) fn start_impatient(answer: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::new(true, answer)
    }

    fn new(impatient: bool, answer: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = net::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { break };
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = match impatient && parts.headers.contains_key("expect") {
                            true => Bytes::new(),
                            false => match body.collect().await {
                                Ok(body) => body.to_bytes(),
                                // An incomplete request is ignored.
                                Err(_) => std::future::pending().await,
                            },
                        };
                        let target = parts.uri.to_string();
                        let (method, headers) = (parts.method, parts.headers);
                        let asked = ReceivedRequest { method, target, headers, body, connection };
                        let before = {
                            let mut seen = seen.lock().unwrap();
                            seen.push(asked.clone());
                            seen.len() - 1
                        };
                        let response = answer(&asked, before).0;
                        match response.extensions().get::<NoAnswer>() {
                            Some(NoAnswer::HangUp) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                            Some(NoAnswer::Silence) => std::future::pending().await,
                            None => Ok(response),
                        }
                    }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, asked, _serving: AbortOnDropHandle::new(serving) }
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// The methods of all requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.asked().iter().map(|asked| asked.method.to_string()).collect()
    }

    /// The store of this server.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store_with(&options())
    }

    /// The same for a client with options.
    pub(crate) fn store_with(&self, options: &ClientOptions) -> Arc<dyn Store> {
        store(&format!("http://{}/", self.address), options)
    }

    /// The file at `path`, for reading.
    pub(crate) async fn open(&self, path: &str) -> Arc<dyn ReadHandle> {
        self.store().open(&Caller::local(), &self::path(path), Default::default()).await.unwrap()
    }
}

/// The store behind `url`.
pub(crate) fn store(url: &str, options: &ClientOptions) -> Arc<dyn Store> {
    Client::new(Arc::new(options.clone())).connect(&url.parse().unwrap()).unwrap().0
}

/// Options for tests: no token of the environment, and short timeouts.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        token: TokenSource::Nothing,
        passwords: PasswordSource::Nothing,
        proxies: ProxySettings::default(),
        stall: std::time::Duration::from_millis(500),
        retries: 2,
        ..ClientOptions::default()
    }
}

pub(crate) fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

/// Returns the error of a task that must fail.
#[track_caller]
pub(crate) fn error<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("it must fail")
}
