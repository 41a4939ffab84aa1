//! Services that answer requests by themselves, in the place of a store: what is asked for is no file.
//!
//! An [`Application`] turns a request into an answer; everything else is the server's: connections, TLS, tokens, bounds, log and metrics, and of HTTP
//! what is the same for all answers ([`crate::http`]).

use std::{fmt, net::IpAddr, sync::Arc};

use http::{Request, Response};
use tokio::sync::Semaphore;
use towpath_store::sys::processor;

/// What answers the requests of a server without files.
pub trait Application: Send + Sync + fmt::Debug {
    /// The answer to a request from a client at that address, who may read. It may take processor time, and must not wait for anything: it is called by a thread that
    /// does nothing else meanwhile. A tag that it gives its answer (`ETag`) lets clients that have it be told so without it.
    fn answer(&self, request: &Request<Vec<u8>>, client: IpAddr) -> Response<Vec<u8>>;
}

/// An application with the places for requests that it answers at once.
#[derive(Debug, Clone)]
pub(crate) struct Hosted {
    application: Arc<dyn Application>,
    places: Arc<Semaphore>,
}

impl Hosted {
    pub(crate) fn new(application: Arc<dyn Application>) -> Self {
        // More would only share the processors, each with the memory of its answer.
        Self { application, places: Arc::new(Semaphore::new(processor::processors())) }
    }

    /// The answer, once there is a place for its making.
    pub(crate) async fn answer(&self, request: Request<Vec<u8>>, client: IpAddr) -> Option<Response<Vec<u8>>> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let application = Arc::clone(&self.application);
        let answering = tokio::task::spawn_blocking(move || {
            let answer = application.answer(&request, client);
            drop(place);
            answer
        });
        answering.await.ok()
    }
}
