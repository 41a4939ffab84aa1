//! Helpers for responses.

use std::fmt::Display;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use towpath_proto::http::{condition::EntityTag, condition::Validators, date};
use towpath_store::Metadata;

use super::body::Content;

/// Media type of WebDAV responses.
pub(super) const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");

/// Media type of messages.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Builds a response with that status, and its length if known.
pub(super) fn with_status(status: StatusCode, content: Content) -> Response<Content> {
    let length = content.length();
    let mut response = Response::new(content);
    *response.status_mut() = status;
    if let Some(length) = length.filter(|_| status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED) {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}

/// Builds a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<Content> {
    with_status(status, Content::Empty)
}

/// Builds a 207 response.
pub(super) fn multistatus(content: Content) -> Response<Content> {
    let mut response = with_status(StatusCode::MULTI_STATUS, content);
    response.headers_mut().insert(header::CONTENT_TYPE, XML);
    response
}

/// Creates a header value from visible ASCII; empty for other text, which no caller passes.
pub(super) fn value(text: impl Display) -> HeaderValue {
    HeaderValue::try_from(text.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the validators for conditional requests.
pub(super) fn validators(metadata: &Metadata) -> Validators {
    Validators {
        exists: true,
        etag: metadata.version.as_ref().and_then(|version| EntityTag::strong(version.as_str())),
        modified_s: metadata.mtime_ns.map(|_| metadata.mtime_s()),
    }
}

/// Adds `ETag` and `Last-Modified` as far as they are known.
pub(super) fn insert_validators(headers: &mut HeaderMap, validators: &Validators) {
    if let Some(etag) = &validators.etag {
        headers.insert(header::ETAG, value(etag));
    }
    if let Some(modified_s) = validators.modified_s {
        headers.insert(header::LAST_MODIFIED, value(date::format(modified_s)));
    }
}

/// Returns all values of a field, joined by commas (RFC 9110 §5.3); `None` if it is absent. Invalid UTF-8 becomes
/// replacement characters, so that the field is rejected rather than ignored.
pub(super) fn field(headers: &HeaderMap, name: impl Into<HeaderName>) -> Option<String> {
    let values: Vec<_> =
        headers.get_all(name.into()).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
