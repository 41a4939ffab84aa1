//! A request to a site: method, header, body, and the treatment of a missing response.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use towpath_store::{Error, Fault};

use super::{payload::Payload, site::Site};

/// One request to a site.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
    /// Timeout until the response begins.
    pub(super) wait: Duration,
    /// Whether the request is idempotent.
    pub(super) repeatable: bool,
    /// Whether its response is read at once, so that it may hold one of the site's permits. A request that waits for
    /// others (an upload for its writer, a listing for its reader) must not, or all permits could wait for each other.
    pub(super) prompt: bool,
    /// Whether the target is a file: a redirect to the same path with a trailing slash means that it is not.
    pub(super) of_file: bool,
    /// Error of an invalid header field. The request would have another meaning without the field, so it is not sent.
    pub(super) flaw: Option<Error>,
}

impl Request {
    /// Creates a request that is repeatable, prompt, and subject to the stall timeout.
    pub(super) fn new(site: &Site, method: Method) -> Self {
        Self {
            method,
            headers: HeaderMap::new(),
            payload: Payload::Empty,
            wait: site.options.stall,
            repeatable: true,
            prompt: true,
            of_file: false,
            flaw: None,
        }
    }

    /// Adds a header field. An invalid value makes the request fail.
    #[must_use]
    pub(super) fn with(mut self, name: impl Into<http::HeaderName>, value: impl AsRef<str>) -> Self {
        let name = name.into();
        match HeaderValue::try_from(value.as_ref()) {
            Ok(value) => drop(self.headers.insert(name, value)),
            Err(_) => {
                let message = format!("the value of the header `{name}` has invalid characters");
                self.flaw = Some(Error::new(Fault::InvalidArgument, message));
            }
        }
        self
    }

    /// Like [`Self::with`], for a value that is never printed.
    #[must_use]
    pub(super) fn with_secret(self, name: http::HeaderName, value: &str) -> Self {
        let mut request = self.with(name.clone(), value);
        request.headers.get_mut(name).into_iter().for_each(|value| value.set_sensitive(true));
        request
    }

    /// Returns whether the request names a second target, which must be at the same server. Then a redirect to another
    /// server cannot be followed, and a 502 of a gateway means that the second target is at another server.
    pub(super) fn has_second_target(&self) -> bool {
        matches!(self.method.as_str(), "COPY" | "MOVE")
    }
}
