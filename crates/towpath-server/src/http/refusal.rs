//! Answers that say no: which status, why, and whose fault it is.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use towpath_proto::{fault::FAULT_FIELD, http::challenge::BearerError};
use towpath_store::{Error, Fault};

use super::{
    body::Content,
    respond::{self, value},
    verb::ALLOW,
};

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    fault: Fault,
    text: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The XML that names the WebDAV condition which does not hold (RFC 4918 §16).
    condition: Option<String>,
    /// Whether the password was right, and only the nonce too old (RFC 7616 §3.3).
    has_stale_nonce: bool,
    /// What was wrong with the bearer token of the request, as RFC 6750 §3.1 calls it.
    token_error: Option<&'static str>,
}

impl Refusal {
    /// A refusal with a status of one's own and a sentence for people.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let fault = Fault::from_http(status.as_u16());
        let (headers, condition, has_stale_nonce, token_error) = Default::default();
        Self { status, fault, text: text.into(), headers, condition, has_stale_nonce, token_error }
    }

    /// 400.
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self { fault: Fault::MalformedRequest, ..Self::new(StatusCode::BAD_REQUEST, text) }
    }

    /// 405 with what is allowed.
    pub(super) fn method_not_allowed(text: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text).with(header::ALLOW, HeaderValue::from_static(ALLOW))
    }

    /// 503: the client has used up its share of something.
    pub(super) fn overloaded(text: impl Into<String>) -> Self {
        Self { fault: Fault::Overloaded, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    /// 412.
    pub(super) fn precondition_failed() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "a condition of the request does not hold")
    }

    /// 412: the request forbids to replace what is there.
    pub(super) fn destination_exists() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "the destination exists already").of(Fault::AlreadyExists)
    }

    /// A WebDAV condition that does not hold, as [`towpath_proto::http::dav::error_body`] writes it.
    pub(super) fn condition(status: StatusCode, xml: String) -> Self {
        Self { condition: Some(xml), ..Self::new(status, "") }
    }

    /// The same, called by another name in logs and metrics.
    #[must_use]
    pub(super) fn of(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// The same with another header field.
    #[must_use]
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same with another status: what a fault means depends on the method (a missing parent is 409 to MKCOL).
    #[must_use]
    pub(super) fn or_status(mut self, fault: Fault, status: StatusCode) -> Self {
        if self.fault == fault {
            self.status = status;
        }
        self
    }

    /// The same for a client whose password was right: it does not ask its user again.
    #[must_use]
    pub(super) fn of_stale_nonce(self) -> Self {
        Self { has_stale_nonce: true, ..self }
    }

    /// The same for a request whose bearer token was of no use: `error` is the code of a [`BearerError`], which its challenge says.
    #[must_use]
    pub(super) fn of_token(self, error: &'static str) -> Self {
        Self { token_error: Some(error), ..self }
    }

    /// What was wrong with the bearer token of the request.
    pub(super) fn token_error(&self) -> Option<BearerError> {
        let description = self.text.lines().next().map(str::to_owned);
        self.token_error.map(|code| BearerError { code: code.into(), description })
    }

    /// The file was created meanwhile: `If-None-Match` does not hold.
    #[must_use]
    pub(super) fn of_refused_overwrite(self) -> Self {
        self.or_status(Fault::AlreadyExists, StatusCode::PRECONDITION_FAILED)
    }

    /// What it is called in logs and metrics.
    pub(super) fn fault(&self) -> Fault {
        self.fault
    }

    /// The sentence for people.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the password was right, and only the nonce too old.
    pub(super) fn has_stale_nonce(&self) -> bool {
        self.has_stale_nonce
    }

    /// The answer, still without challenges.
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
        Self { fault, ..Self::new(status, text) }
    }
}
