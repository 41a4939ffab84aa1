//! Requests about a path at a site, retried until they succeed or fail finally.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use towpath_proto::xrootd::{PathAndCgi, Request, request::Rm, response::Body};
use towpath_store::{
    Caller, Error, Fault, Result, StorePath,
    sys::{clock, random},
};

use super::{
    connection::{Failure, OutgoingRequest},
    retry_state::RetryState,
    server::{Server, join_cgi},
    session::Session,
    site::{Identity, Site},
    sites::Sites,
};

/// A server as named by the user, and everything required for requests to it.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) sites: Arc<Sites>,
    pub(super) server: Server,
    pub(super) user: String,
    /// Whether the opaque information contains a secret.
    pub(super) careful: bool,
}

/// The path of a request, and how to treat its response.
pub(super) struct RequestOptions<'a> {
    pub(super) path: &'a StorePath,
    /// Whether the request is idempotent.
    pub(super) repeatable: bool,
    /// Whether the response may take long by its nature.
    pub(super) patient: bool,
    /// Maximum length of the response, in bytes.
    pub(super) limit: usize,
}

impl<'a> RequestOptions<'a> {
    /// Options of an idempotent request with a short response.
    pub(super) fn new(path: &'a StorePath) -> Self {
        Self { path, repeatable: true, patient: false, limit: 64 << 10 }
    }

    /// Options of a change, which is not idempotent.
    pub(super) fn change(path: &'a StorePath) -> Self {
        Self { repeatable: false, ..Self::new(path) }
    }
}

impl Origin {
    /// Returns the identity for requests of `caller`.
    pub(super) fn identity(&self, caller: &Caller) -> Identity {
        let (token, is_nobody) = (caller.token.clone(), caller.is_nobody);
        Identity { user: self.user.clone(), token, is_nobody, careful: self.careful }
    }

    /// Returns whether the server is towpath, with a request if it is unknown; false if that fails.
    pub(super) async fn is_ours(&self, caller: &Caller) -> bool {
        let site = self.sites.at(&self.server, &self.identity(caller));
        site.may_be_ours().await && site.is_known_to_be_ours()
    }

    /// Returns whether the server is known to reject third-party copies, with a request if it is unknown.
    pub(super) async fn lacks_third_party(&self, caller: &Caller) -> bool {
        self.sites.at(&self.server, &self.identity(caller)).lacks_third_party().await
    }

    /// Creates the retry state of a request that starts now.
    pub(super) fn retry_state(&self, repeatable: bool) -> RetryState {
        RetryState::new(self.server.clone(), repeatable, &self.sites.options, clock::now())
    }

    /// Waits before the next attempt after `failure`, as `retry_state` decides.
    ///
    /// # Errors
    /// Those of [`RetryState::after_failure`].
    pub(super) async fn handle_failure(
        &self,
        retry_state: &mut RetryState,
        site: &Site,
        failure: Failure,
    ) -> Result<()> {
        tracing::debug!(server = retry_state.server().name(), "no final response: {failure}");
        let why = match &failure {
            Failure::Wait { .. } => "requested a wait".to_owned(),
            Failure::Refused(_) => "is overloaded".to_owned(),
            Failure::Lost(error) | Failure::NotSent(error) | Failure::EarlyLoss(error) => {
                format!("did not respond: {error}")
            }
            _ => "did not respond".to_owned(),
        };
        let pause = retry_state.after_failure(failure, site.is_known_good(), clock::now(), random::number());
        let pause = pause.map_err(|error| site.explain(error))?;
        if pause > Duration::ZERO {
            let name = retry_state.server().name();
            let elapsed = retry_state.elapsed(clock::now());
            self.sites.options.waits.pause(&name, elapsed, pause, format_args!("{name} {why}"));
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Removes a file. A missing file is no error.
    ///
    /// # Errors
    /// As [`Self::send_request`].
    pub(super) async fn clear_away(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        match self.send_request(caller, RequestOptions::change(path), |path| Rm { path }.into()).await {
            Err(error) if error.fault() != Fault::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends the request that `request` creates for the path, follows redirects, and returns the body of the response.
    ///
    /// # Errors
    /// The server's error response, or the reason why there is no response; with the path.
    pub(super) async fn send_request(
        &self,
        caller: &Caller,
        options: RequestOptions<'_>,
        request: impl Fn(PathAndCgi) -> Request + Send,
    ) -> Result<Bytes> {
        let identity = self.identity(caller);
        let wait_limit = self.sites.options.wait_limit(options.patient);
        let mut retry_state = self.retry_state(options.repeatable).with_wait_limit(wait_limit);
        loop {
            let site = self.sites.at(retry_state.server(), &identity);
            let path = site.path(retry_state.server().path_of(options.path), &retry_state.server().cgi).await?;
            let mut outgoing = OutgoingRequest::new(request(path), options.limit);
            outgoing.patient = options.patient;
            let session: Arc<Session> = site.session(0)?;
            if !options.repeatable {
                // A request sent before the response to the login may or may not have been processed if the connection
                // is lost then.
                session.settled().await;
            }
            let finished = session.submit(outgoing).finished().await;
            match finished.outcome {
                Ok(_) => {
                    site.warn_of_refusal();
                    return Ok(Bytes::from(finished.buffer));
                }
                Err(failure) => {
                    self.handle_failure(&mut retry_state, &site, failure)
                        .await
                        .map_err(|error| error.at(options.path))?;
                }
            }
        }
    }

    /// Like [`Self::send_request`], with a decoded body.
    pub(super) async fn ask_for<B: Body>(
        &self,
        caller: &Caller,
        options: RequestOptions<'_>,
        request: impl Fn(PathAndCgi) -> Request + Send,
    ) -> Result<B> {
        let path = options.path;
        let body = self.send_request(caller, options, request).await?;
        B::decode(body)
            .map_err(|error| Error::new(Fault::Protocol, format!("{}: {error}", self.server.name())).at(path))
    }
}

/// Returns the opaque information with an additional pair.
pub(super) fn with_pair(cgi: &Bytes, pair: &str) -> Bytes {
    join_cgi(cgi, pair.as_bytes())
}
