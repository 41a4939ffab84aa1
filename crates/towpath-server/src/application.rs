//! Services that answer requests by themselves, in the place of a store: what is asked for is no file.
//!
//! An [`Application`] turns a request into an answer; everything else is the server's: connections, TLS, tokens, bounds, log and metrics, and of HTTP
//! what is the same for all answers ([`crate::http`]).

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use http::{Request, Response};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use towpath_store::sys::processor;

/// What answers the requests of a server without files.
pub trait Application: Send + Sync + fmt::Debug {
    /// The answer to a request from a client at that address, who may read. It may take processor time, and must not wait for anything: it is called by a thread that
    /// does nothing else meanwhile. A tag that it gives its answer (`ETag`) lets clients that have it be told so without it. `Content-Length` is the server's to tell. The request is
    /// a GET, a POST or a DELETE, and its URI absolute as far as the client says where it sends it. `is_again` says whether that request was to be asked again.
    fn answer(&self, request: &Request<Vec<u8>>, client: IpAddr, is_again: bool) -> Reply;
}

/// What an application says to a request.
pub enum Reply {
    /// This.
    Now(Response<Body>),
    /// Nothing yet: it is asked the same again once this is over, hours later if need be. Waiting costs no place among the answers in the making, and no limit ends it; it is dropped when
    /// the client has gone, and when the server stops: then the client is told to come again. How many may wait is for the application to say.
    Later(BoxFuture<'static, ()>),
}

impl From<Response<Body>> for Reply {
    fn from(answer: Response<Body>) -> Self {
        Self::Now(answer)
    }
}

/// The body of an answer.
pub enum Body {
    /// All of it. Text of 1 KiB and more goes compressed to clients that take it so.
    Whole(Vec<u8>),
    /// Pieces as they come about, for hours if need be. The next one is asked for when the connection can take it, by a thread that serves other connections too:
    /// that must cost next to nothing. A silent stream costs no place among the answers in the making, and no limit ends it. It is dropped when its client has gone,
    /// and when the server stops: then the answer ends as if no piece were left. How many there may be, beyond the bounds on connections and their requests, is for
    /// the application to say.
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

/// An application with the places for requests that it answers at once.
#[derive(Debug)]
pub(crate) struct Hosted {
    application: Arc<dyn Application>,
    places: Arc<Semaphore>,
    /// Origins whose pages may read what is told (`*`: all).
    pub(crate) origins: Vec<String>,
}

/// How long a request may wait for a place before its client is told to come again.
const PATIENCE: Duration = Duration::from_secs(10);

impl Hosted {
    pub(crate) fn new(application: Arc<dyn Application>, origins: Vec<String>) -> Self {
        // More would only share the processors, each with the memory of its answer.
        Self { application, places: Arc::new(Semaphore::new(processor::processors())), origins }
    }

    /// A place to make an answer, and to keep it until there is room for it.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()
    }

    /// What comes of work with the application, and the place where it was done; none if it failed, which is a defect. Dropped before, the work still goes on to its end,
    /// and has the place until then.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnOnce(&dyn Application) -> T + Send + 'static,
    ) -> Option<(T, OwnedSemaphorePermit)> {
        let application = Arc::clone(&self.application);
        tokio::task::spawn_blocking(move || (work(&*application), place)).await.ok()
    }
}
