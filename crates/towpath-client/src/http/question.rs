//! A request to a site: method, header, body, and the treatment of a missing response.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use towpath_store::{Error, Fault};

use super::{payload::Payload, site::Site};

/// One question to a site.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
    /// How long the answer may take to begin.
    pub(super) wait: Duration,
    /// Whether the request is idempotent.
    pub(super) repeatable: bool,
    /// Whether its response is read at once, so that it may hold one of the site's permits. A request that waits for others (an upload for
    /// its writer, a listing for its reader) must not, or all permits could wait for each other.
    pub(super) prompt: bool,
    /// Whether the target is a file: a redirect to the same path with a slash means that it is not.
    pub(super) of_file: bool,
    /// A header field that cannot be sent: the request would have another meaning without it and is not sent.
    pub(super) flaw: Option<Error>,
}

impl Question {
    /// A question that is repeatable, prompt, and answered soon.
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
                let message = format!("what was to be sent as `{name}` has characters that no header can have");
                self.flaw = Some(Error::new(Fault::InvalidArgument, message));
            }
        }
        self
    }

    /// As [`Self::with`], for a value that is never printed.
    #[must_use]
    pub(super) fn with_secret(self, name: http::HeaderName, value: &str) -> Self {
        let mut question = self.with(name.clone(), value);
        question.headers.get_mut(name).into_iter().for_each(|value| value.set_sensitive(true));
        question
    }

    /// Whether it names a second place, which is to be at the same server: so a redirect to another cannot be followed, and a gateway's
    /// trouble means that the second place is elsewhere.
    pub(super) fn names_two(&self) -> bool {
        matches!(self.method.as_str(), "COPY" | "MOVE")
    }
}
