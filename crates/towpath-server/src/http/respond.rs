//! Small parts of answers.

use std::fmt::Display;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use towpath_proto::http::{condition::EntityTag, condition::Validators, date};
use towpath_store::Metadata;

use super::body::Content;

/// The media type of WebDAV's answers.
pub(super) const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");

/// The media type of sentences.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer of that status, with its length if it is known.
pub(super) fn with_status(status: StatusCode, content: Content) -> Response<Content> {
    let length = content.length();
    let mut response = Response::new(content);
    *response.status_mut() = status;
    if let Some(length) = length.filter(|_| status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED) {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Content> {
    with_status(status, Content::Empty)
}

/// An answer 207.
pub(super) fn multistatus(content: Content) -> Response<Content> {
    let mut response = with_status(StatusCode::MULTI_STATUS, content);
    response.headers_mut().insert(header::CONTENT_TYPE, XML);
    response
}

/// A header value of visible ASCII; empty if it is none, which no caller gives.
pub(super) fn value(text: impl Display) -> HeaderValue {
    HeaderValue::try_from(text.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What conditions are compared with.
pub(super) fn validators(metadata: &Metadata) -> Validators {
    Validators {
        exists: true,
        etag: metadata.version.as_ref().and_then(|version| EntityTag::strong(version.as_str())),
        modified_s: metadata.mtime_ns.map(|_| metadata.mtime_s()),
    }
}

/// `ETag` and `Last-Modified`, as far as they are known.
pub(super) fn tell_version(headers: &mut HeaderMap, validators: &Validators) {
    if let Some(etag) = &validators.etag {
        headers.insert(header::ETAG, value(etag));
    }
    if let Some(modified_s) = validators.modified_s {
        headers.insert(header::LAST_MODIFIED, value(date::format(modified_s)));
    }
}

/// All values of a field, joined by commas as RFC 9110 §5.3 has it; none if it is absent. Bytes that are no UTF-8 become
/// replacement characters: the field stays there to be refused, rather than vanish.
pub(super) fn field(headers: &HeaderMap, name: impl Into<HeaderName>) -> Option<String> {
    let values: Vec<_> =
        headers.get_all(name.into()).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
