//! The response to a request: its header, and the body as it arrives.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use towpath_store::{Blame, Error, Fault, Result, sys::clock};

use super::{
    pool::{Connection, Pool, ResponseTime},
    retry_state::Failure,
    target::Target,
};
use crate::{ClientOptions, WaitReporter, options::MIN_PROGRESS_BYTES, proxy::Proxy, waits::FIRST_NOTICE};

/// Maximum number of bytes to read of an unneeded body, so that its connection can be reused.
const DISCARDED_BYTES: usize = 64 << 10;

/// A response. Dropping it before the end of its body closes the connection, so that the server stops sending.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The server that responded, after all redirects.
    pub(super) target: Target,
    /// The proxy that forwarded the response, and may be its author.
    pub(super) forwarder: Option<Arc<Proxy>>,
    body: Incoming,
    /// The connection; returned to the pool, if there is one, at the end of the body.
    connection: Option<(Connection, Option<Arc<Pool>>)>,
    permit: Option<OwnedSemaphorePermit>,
    stall: Duration,
    patience: Duration,
    recent_bytes: usize,
    /// Its time; `None` if that is not recorded, or no longer.
    time: Option<ResponseTime>,
    /// Time without substantial progress, and its listener.
    waited: Duration,
    waits: WaitReporter,
}

impl HttpResponse {
    /// Creates a response that came from `target` over `connection`, which is reused if it comes with a pool.
    pub(super) fn new(
        response: hyper::Response<Incoming>,
        target: Target,
        connection: (Connection, Option<Arc<Pool>>),
        permit: Option<OwnedSemaphorePermit>,
        options: &ClientOptions,
    ) -> Self {
        let (stall, waits) = (options.stall, options.waits.clone());
        let (parts, body) = response.into_parts();
        let forwarder = connection.0.forwarder(&target).cloned();
        let mut answer = Self {
            status: parts.status,
            headers: parts.headers,
            target,
            forwarder,
            body,
            connection: Some(connection),
            permit,
            stall,
            patience: stall,
            recent_bytes: 0,
            time: None,
            waited: Duration::ZERO,
            waits,
        };
        if answer.body.is_end_stream() {
            answer.finished();
        }
        answer
    }

    /// Adds its time, which is recorded at the end of the body.
    #[must_use]
    pub(super) fn with_time(mut self, time: Option<ResponseTime>) -> Self {
        self.time = time;
        self
    }

    /// Releases its permit, for a further request that must be answered before this response can be used: otherwise all
    /// permits could wait for each other.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Returns the value of a header field; `None` if it is absent or not text.
    pub(super) fn field(&self, name: impl Into<HeaderName>) -> Option<&str> {
        self.headers.get(name.into())?.to_str().ok().map(str::trim)
    }

    /// Returns the number of remaining bytes, if the server announced the length.
    pub(super) fn remaining_bytes(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Sets the time that may pass without substantial progress to `silence`, from now on.
    pub(super) fn allow(&mut self, silence: Duration) {
        (self.stall, self.patience, self.recent_bytes) = (silence, silence, 0);
    }

    /// Returns the next bytes of the body, never empty; `None` at its end.
    ///
    /// # Errors
    /// `Lost` if the connection breaks before the announced end, or if too few bytes arrive for too long.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if self.body.is_end_stream() {
                self.finished();
                return Ok(None);
            }
            let began = clock::now();
            let frame = timeout(self.patience.min(FIRST_NOTICE), self.body.frame()).await;
            let took = clock::now() - began;
            self.patience = self.patience.saturating_sub(took);
            self.waited += took;
            if let Some(time) = &mut self.time {
                time.add(took, frame.is_ok());
            }
            if self.waited >= FIRST_NOTICE {
                let (root, waited) = (self.target.root(), self.waited.as_secs());
                self.waits.say(&root, || format!("waiting for {root}: almost no data for {waited} s"));
            }
            let Ok(frame) = frame else {
                if self.patience.is_zero() {
                    return Err(self.stalled());
                }
                continue;
            };
            match frame {
                None => {
                    self.finished();
                    return Ok(None);
                }
                Some(Err(error)) => return Err(self.broke_off(&error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        self.count(data.len());
                        return Ok(Some(data));
                    }
                    // Trailers.
                    _ => {}
                },
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// Those of [`Self::next`]; `Fatal` with `TooLarge` if the body is longer than `limit_bytes`.
    pub(super) async fn whole(mut self, limit_bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut whole = Vec::new();
        while let Some(data) = self.next().await? {
            if whole.len() + data.len() > limit_bytes {
                let message = format!("the response from {} exceeds {limit_bytes} bytes", self.target.root());
                return Err(Failure::Fatal(Error::new(Fault::TooLarge, message).blamed_on(Blame::Storage)));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole)
    }

    /// Reads at most the first `limit_bytes` of the body; less if the connection is lost.
    pub(super) async fn beginning(mut self, limit_bytes: usize) -> Vec<u8> {
        let mut beginning = Vec::new();
        while beginning.len() < limit_bytes
            && let Ok(Some(data)) = self.next().await
        {
            beginning.extend_from_slice(&data);
        }
        beginning.truncate(limit_bytes);
        beginning
    }

    /// Reads a short body to its end, so that the connection can be reused.
    pub(super) async fn discard(self) {
        if self.remaining_bytes().is_some_and(|bytes| bytes <= DISCARDED_BYTES as u64) {
            self.beginning(DISCARDED_BYTES + 1).await;
        }
    }

    fn finished(&mut self) {
        self.time = None;
        if let Some((connection, Some(pool))) = self.connection.take() {
            pool.keep(connection);
        }
    }

    fn count(&mut self, bytes: usize) {
        self.recent_bytes += bytes;
        if self.recent_bytes >= MIN_PROGRESS_BYTES {
            self.recent_bytes = 0;
            self.patience = self.stall;
            self.waited = Duration::ZERO;
        }
    }

    fn stalled(&self) -> Failure {
        let message = format!("{} sent almost no data for {} s", self.target.root(), self.stall.as_secs());
        Failure::Lost(Error::new(Fault::TimedOut, message).blamed_on(Blame::Network))
    }

    fn broke_off(&self, error: &hyper::Error) -> Failure {
        let message = format!("the response from {} was interrupted: {error}", self.target.root());
        Failure::Lost(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network))
    }
}
