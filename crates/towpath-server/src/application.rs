//! Applications: services that answer HTTP requests without a store.
//!
//! An [`Application`] computes a response from a request. The server provides connections, TLS, tokens, limits, logs,
//! metrics, and the HTTP behaviour common to all responses ([`crate::http`]).

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use http::{Request, Response};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use towpath_store::sys::processor;

use crate::metrics::Collector;

/// Answers the requests of a server without files.
pub trait Application: Collector {
    /// Answers a request from a client at `client` that has read access. May use CPU time but must not block: it runs
    /// on a dedicated thread. An `ETag` in the response enables conditional requests. The server sets
    /// `Content-Length`. The request is a GET, POST or DELETE, with an absolute URI if the client sent a host.
    /// `is_again` is true when the same request is repeated after [`Reply::Later`].
    fn answer(&self, request: &Request<Vec<u8>>, client: IpAddr, is_again: bool) -> Reply;
}

/// The reply of an application to a request.
pub enum Reply {
    /// The response.
    Now(Response<Body>),
    /// No response yet: the request is repeated once the future completes, possibly hours later. A waiting request
    /// holds no permit and has no timeout. It is dropped when the client disconnects or the server stops; in the
    /// latter case the client receives a 503 response. The application must limit the number of
    /// waiting requests.
    Later(BoxFuture<'static, ()>),
}

impl From<Response<Body>> for Reply {
    fn from(answer: Response<Body>) -> Self {
        Self::Now(answer)
    }
}

/// The body of a response.
pub enum Body {
    /// The complete body. Text of 1 KiB and more is compressed for clients that accept it.
    Whole(Vec<u8>),
    /// Chunks that become available over time, possibly for hours. The stream is polled when the connection can send,
    /// on a thread shared with other connections, so polling must be cheap. An idle stream holds no permit and has no
    /// timeout. It is dropped when the client disconnects or the server stops; in the latter case the response ends
    /// normally. The application must limit the number of streams beyond the limits on connections and their
    /// requests.
    Stream(BoxStream<'static, Bytes>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Whole(body) => write!(f, "Whole({} bytes)", body.len()),
            Body::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// An application with the permits for concurrent responses.
#[derive(Debug)]
pub(crate) struct HostedApplication {
    application: Arc<dyn Application>,
    permits: Arc<Semaphore>,
    /// Origins whose pages may read responses (`*`: all).
    pub(crate) origins: Vec<String>,
}

/// Maximum time that a request waits for a permit before it gets a 503 response.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

impl HostedApplication {
    pub(crate) fn new(application: Arc<dyn Application>, origins: Vec<String>) -> Self {
        // More permits would only share the processors, each with the memory of its response.
        Self { application, permits: Arc::new(Semaphore::new(processor::processors())), origins }
    }

    /// Waits for a permit to compute a response; it is held until the response fits into memory.
    pub(crate) async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        timeout(PERMIT_TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await.ok()?.ok()
    }

    /// Runs `work` with the application and returns its result with the permit. Returns `None` if the work panicked,
    /// which is a bug. If this future is dropped, the work still runs to completion and keeps its permit until then.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        work: impl FnOnce(&dyn Application) -> T + Send + 'static,
    ) -> Option<(T, OwnedSemaphorePermit)> {
        let application = Arc::clone(&self.application);
        tokio::task::spawn_blocking(move || (work(&*application), permit)).await.ok()
    }
}
