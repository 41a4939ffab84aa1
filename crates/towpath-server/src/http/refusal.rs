//! Error responses: status, reason, and fault.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use towpath_proto::{fault::FAULT_FIELD, http::challenge::BearerError};
use towpath_store::{Error, Fault};

use super::{
    body::Content,
    respond::{self, value},
};
use crate::access::Denial;

/// Why a request was rejected.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    fault: Fault,
    /// Name of the cause of a denial, for metrics and logs.
    reason: Option<&'static str>,
    text: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// XML of the violated WebDAV condition (RFC 4918 §16).
    condition: Option<String>,
    /// Whether the password was right and only the nonce was stale (RFC 7616 §3.3).
    has_stale_nonce: bool,
    /// Error code of the request's bearer token (RFC 6750 §3.1).
    token_error: Option<&'static str>,
}

impl Refusal {
    /// Creates a refusal with a status and a message.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let fault = Fault::from_http(status.as_u16());
        let (reason, headers, condition, has_stale_nonce, token_error) = Default::default();
        Self { status, fault, reason, text: text.into(), headers, condition, has_stale_nonce, token_error }
    }

    /// Creates a 400.
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self { fault: Fault::MalformedRequest, ..Self::new(StatusCode::BAD_REQUEST, text) }
    }

    /// Creates a 405; its response gets the methods of files, unless it has others.
    pub(super) fn method_not_allowed(text: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// Creates a 503: the client has exhausted its share of a resource.
    pub(super) fn overloaded(text: impl Into<String>) -> Self {
        Self { fault: Fault::Overloaded, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    /// Creates a 412.
    pub(super) fn precondition_failed() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "a precondition of the request failed")
    }

    /// Creates a 412: the request forbids overwriting.
    pub(super) fn destination_exists() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "the destination already exists").of(Fault::AlreadyExists)
    }

    /// Creates a refusal for a violated WebDAV condition, as written by [`towpath_proto::http::dav::error_body`].
    pub(super) fn condition(status: StatusCode, xml: String) -> Self {
        Self { condition: Some(xml), ..Self::new(status, "") }
    }

    /// Sets the fault for logs and metrics.
    #[must_use]
    pub(super) fn of(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// Adds a header field.
    #[must_use]
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets another status for a fault whose meaning depends on the method (a missing parent is 409 for MKCOL).
    #[must_use]
    pub(super) fn or_status(mut self, fault: Fault, status: StatusCode) -> Self {
        if self.fault == fault {
            self.status = status;
        }
        self
    }

    /// Marks the nonce as stale, so that the client does not prompt its user again.
    #[must_use]
    pub(super) fn of_stale_nonce(self) -> Self {
        Self { has_stale_nonce: true, ..self }
    }

    /// Marks the bearer token as unusable: `error` is a [`BearerError`] code for the challenge.
    #[must_use]
    pub(super) fn of_token(self, error: &'static str) -> Self {
        Self { token_error: Some(error), ..self }
    }

    /// Returns the error of the request's bearer token.
    pub(super) fn token_error(&self) -> Option<BearerError> {
        let description = self.text.lines().next().map(str::to_owned);
        self.token_error.map(|code| BearerError { code: code.into(), description })
    }

    /// Sets 412 if the file was created meanwhile, because `If-None-Match` does not hold.
    #[must_use]
    pub(super) fn of_refused_overwrite(self) -> Self {
        self.or_status(Fault::AlreadyExists, StatusCode::PRECONDITION_FAILED)
    }

    /// Returns the fault for logs and metrics.
    pub(super) fn fault(&self) -> Fault {
        self.fault
    }

    /// Returns the denial to log if the caller lacks a right.
    pub(super) fn denial(&self) -> Option<Denial> {
        Denial::of(self.fault, self.reason, &self.text)
    }

    /// Returns the message.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the password was right and only the nonce was stale.
    pub(super) fn has_stale_nonce(&self) -> bool {
        self.has_stale_nonce
    }

    /// Builds the response, without challenges.
    pub(super) fn into_response(self) -> Response<Content> {
        let (media_type, body) = match self.condition {
            Some(xml) => (respond::XML, xml),
            None => (respond::TEXT, format!("{}\n", self.text)),
        };
        let mut response = respond::with_status(self.status, Content::text(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, media_type);
        headers.insert(FAULT_FIELD, HeaderValue::from_static(self.fault.name()));
        match self.status {
            StatusCode::UPGRADE_REQUIRED => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("TLS/1.2, HTTP/1.1"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, value("5"));
            }
            _ => {}
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let fault = error.fault();
        let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = format!("{error}\nAt fault: {}.", error.blame());
        Self { fault, reason: error.reason(), ..Self::new(status, text) }
    }
}
