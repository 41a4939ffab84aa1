//! Cross-origin requests of web pages (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>): ROOT files in
//! JSROOT, maps of an application.
//!
//! Only pages from configured origins may read responses. Browser credentials are never allowed
//! (`Access-Control-Allow-Credentials` is never sent): a page that needs rights sends its own token.

use http::{HeaderMap, HeaderValue, header};

use super::verb::Verb;
use crate::Service;

/// TTL of a preflight result, in seconds; browsers cap it at two hours or less.
const PREFLIGHT_S: HeaderValue = HeaderValue::from_static("7200");

/// Permissions of pages from other origins.
struct Policy<'a> {
    /// The origins (`*`: all).
    origins: &'a [String],
    methods: &'static str,
    /// Request fields that they may send.
    fields: &'static str,
    /// Response fields that they may read, in addition to the safelisted ones.
    exposed: &'static str,
}

impl<'a> Policy<'a> {
    fn of(service: &'a Service) -> Self {
        match &service.application {
            Some(hosted) => Self {
                origins: &hosted.origins,
                methods: "GET, HEAD, POST, DELETE, OPTIONS",
                fields: "accept, authorization, content-type, if-none-match",
                exposed: "etag",
            },
            None => Self {
                origins: &service.http.settings.cors_origins,
                methods: "GET, HEAD, OPTIONS, PROPFIND",
                fields: "accept, authorization, cache-control, content-type, depth, if-match, if-modified-since, if-none-match, \
                         if-range, if-unmodified-since, range, want-digest, want-repr-digest",
                exposed: "accept-ranges, content-length, content-range, digest, etag, repr-digest, retry-after, www-authenticate",
            },
        }
    }

    fn permits(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|permitted| permitted == "*" || permitted.as_bytes() == origin.as_bytes())
    }
}

/// Adds the CORS fields for the page at `origin` to a response.
pub(super) fn permit(service: &Service, verb: Verb, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    let policy = Policy::of(service);
    if policy.origins.is_empty() {
        return;
    }
    // On every response: a cache must not serve a response for one origin, or for none, to another.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let Some(origin) = origin.filter(|origin| policy.permits(origin)) else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(policy.exposed));
    if verb == Verb::Options {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(policy.methods));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(policy.fields));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_S);
    }
}
