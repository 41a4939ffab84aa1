//! Services that answer requests by themselves, in the place of a store: what is asked for is no file.
//!
//! An [`Application`] turns a request into an answer; everything else is the server's: connections, TLS, tokens, bounds, log and metrics, and of HTTP
//! what is the same for all answers ([`crate::http`]).

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use towpath_store::sys::processor;

/// What answers the requests of a server without files.
pub trait Application: Send + Sync + fmt::Debug {
    /// The answer to a request from a client at that address, who may read. It may take processor time, and must not wait for anything: it is called by a thread that
    /// does nothing else meanwhile. A tag that it gives its answer (`ETag`) lets clients that have it be told so without it.
    fn answer(&self, request: &Request<Vec<u8>>, client: IpAddr) -> Response<Vec<u8>>;
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

    /// The answer; none if it could not be made, which is a defect.
    pub(crate) async fn answer(&self, request: Request<Vec<u8>>, client: IpAddr) -> Option<Response<Vec<u8>>> {
        let application = Arc::clone(&self.application);
        tokio::task::spawn_blocking(move || application.answer(&request, client)).await.ok()
    }
}
