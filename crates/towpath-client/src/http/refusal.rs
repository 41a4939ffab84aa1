//! Conversion of HTTP error responses to errors: fault, the server's message, and blame.

use http::{HeaderMap, Method, StatusCode, header};
use towpath_proto::{fault::FAULT_FIELD, http::challenge::BearerError, s3};
use towpath_store::{Blame, Error, Fault, sys::clock};

use super::{freshness, response::HttpResponse, site::Credentials};
use crate::{
    token::{NO_PASSWORD, NO_TOKEN, WithholdReason, are_credentials_useless},
    words::readable,
};

/// Maximum number of bytes to read of an error text.
const TEXT_BYTES: usize = 8 << 10;

/// Faults of statuses that depend on the method.
const MEANINGS: &[(&str, u16, Fault)] = &[
    // RFC 4918 §9.3.1: the name exists; a parent is missing; the request body is not supported.
    ("MKCOL", 405, Fault::AlreadyExists),
    ("MKCOL", 409, Fault::NotFound),
    ("MKCOL", 415, Fault::Unsupported),
    // RFC 4918 §9.7: a parent is missing; the condition `If-None-Match: *` is false.
    ("PUT", 409, Fault::NotFound),
    ("PUT", 412, Fault::AlreadyExists),
    // S3: a multipart upload to a key that exists.
    ("POST", 412, Fault::AlreadyExists),
    // RFC 4918 §9.8.5, §9.9.4: the destination's parent is missing; the destination exists; it is at another server.
    ("COPY", 409, Fault::NotFound),
    ("COPY", 412, Fault::AlreadyExists),
    ("COPY", 502, Fault::Unsupported),
    ("MOVE", 409, Fault::NotFound),
    ("MOVE", 412, Fault::AlreadyExists),
    ("MOVE", 502, Fault::Unsupported),
    // These create nothing, so nothing can exist already: the state or the kind of the resource does not permit the
    // request.
    ("GET", 409, Fault::InvalidArgument),
    ("HEAD", 409, Fault::InvalidArgument),
    ("PROPFIND", 409, Fault::InvalidArgument),
    ("DELETE", 409, Fault::NotEmpty),
];

/// Returns the error for `answer`, the response to a request with `method`.
pub(super) async fn of(answer: HttpResponse, method: &Method, credentials: &Credentials) -> Error {
    let (status, root, headers) = (answer.status, answer.target.root(), answer.headers.clone());
    let forwarder = answer
        .forwarder
        .clone()
        .filter(|_| matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) || status.is_server_error());
    let text = if *method == Method::HEAD { Vec::new() } else { answer.beginning(TEXT_BYTES).await };
    if let Some(refusal) = s3::S3Error::parse(&text).or_else(|| elsewhere(status, &headers)) {
        return of_s3(&root, status, method, &refusal);
    }
    let mut message = words(&headers, &text);
    let bearer = bearer_error(&headers);
    if let Some(bearer) = &bearer {
        message = with_bearer_error(&message, bearer);
    }
    let named = headers.get(FAULT_FIELD).and_then(|name| Fault::from_name(name.to_str().ok()?));
    let fault = named.or_else(|| fault_of_token(&bearer?.code)).unwrap_or_else(|| fault(method, status));
    if message.is_empty() {
        message = fault.phrase().to_owned();
    }
    if let Some(advice) = advice(status, &headers, credentials, &message) {
        message = format!("{message} ({advice})");
    }
    if let Some(proxy) = forwarder {
        message = format!("{message} (from the server, or from {proxy})");
    }
    // Responses to other methods are not to be used again (RFC 9110 §9.2.3).
    let is_lasting = fault == Fault::NotFound || status == StatusCode::NOT_MODIFIED;
    let may_be_cached = is_lasting && matches!(*method, Method::GET | Method::HEAD);
    let freshness = freshness::of_headers(&headers, clock::unix_s()).filter(|_| may_be_cached);
    let error = Error::new(fault, message).in_store(root).with_code(status.as_u16().into()).with_freshness(freshness);
    if fault == Fault::Internal { error.blamed_on(Blame::Storage) } else { error }
}

/// Adds the error of the bearer token to the message in a response. Responses to HEAD have no message.
fn with_bearer_error(message: &str, BearerError { code, description }: &BearerError) -> String {
    let code = readable(code);
    // Servers repeat the body's words in the challenge.
    let new = description.as_ref().map(|text| readable(text)).filter(|text| !message.contains(text));
    match (message.is_empty(), new) {
        (true, Some(text)) => format!("{text} ({code})"),
        (true, None) => code,
        (false, Some(text)) => format!("{message} ({code}: {text})"),
        (false, None) => format!("{message} ({code})"),
    }
}

/// Returns the reason why a denied request had no credentials, and what to do about it.
fn advice(status: StatusCode, headers: &HeaderMap, credentials: &Credentials, message: &str) -> Option<&'static str> {
    let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if !is_denied || are_credentials_useless(message) {
        return None;
    }
    match credentials.withheld()? {
        WithholdReason::Unencrypted => Some("credentials are not sent without encryption: use https://"),
        WithholdReason::Unverified => Some("credentials are not sent with --insecure: use --ca-file"),
        WithholdReason::Nobody => Some("no credentials were sent"),
        WithholdReason::Missing if status != StatusCode::UNAUTHORIZED => None,
        WithholdReason::Missing => missing_credentials(headers),
    }
}

/// Returns what to do about a request without the credentials that the server accepts.
fn missing_credentials(headers: &HeaderMap) -> Option<&'static str> {
    let remedies = [("bearer", NO_TOKEN), ("digest", NO_PASSWORD), ("basic", NO_PASSWORD)];
    remedies.into_iter().find(|(scheme, _)| accepts(headers, scheme)).map(|(_, remedy)| remedy)
}

/// Returns whether the server accepts credentials of `scheme`, according to the challenges in its response.
fn accepts(headers: &HeaderMap, scheme: &str) -> bool {
    let is_of_scheme = |field: &str| field.get(..scheme.len()).is_some_and(|found| found.eq_ignore_ascii_case(scheme));
    headers.get_all(header::WWW_AUTHENTICATE).iter().any(|field| field.to_str().is_ok_and(is_of_scheme))
}

/// Returns the error for a response 202 whose effect has not happened, or cannot be observed because of `unseen`. The
/// request is not retried: it could be carried out twice.
pub(super) fn not_done(root: &str, method: &Method, unseen: Option<&str>) -> Error {
    let state = unseen.map_or_else(
        || "it is not complete yet".to_owned(),
        |why| format!("its completion cannot be verified ({why})"),
    );
    let message = format!("{root} accepted {method} (202), but {state}: check later whether it was carried out");
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

/// Returns the error of the bearer token in the challenge of a response (RFC 6750 §3).
fn bearer_error(headers: &HeaderMap) -> Option<BearerError> {
    headers.get_all(header::WWW_AUTHENTICATE).iter().find_map(|field| BearerError::parse(field.to_str().ok()?))
}

/// Returns the fault for an error code of RFC 6750, regardless of the status.
fn fault_of_token(code: &str) -> Option<Fault> {
    match code {
        BearerError::INVALID_TOKEN => Some(Fault::AuthenticationFailed),
        BearerError::INSUFFICIENT_SCOPE => Some(Fault::PermissionDenied),
        _ => None,
    }
}

/// Detects from the header of any response that the bucket is in another region.
fn elsewhere(status: StatusCode, headers: &HeaderMap) -> Option<s3::S3Error> {
    let region = headers.get("x-amz-bucket-region")?.to_str().ok()?;
    let code = "PermanentRedirect".to_owned();
    (status == StatusCode::MOVED_PERMANENTLY).then(|| s3::S3Error {
        code,
        message: String::new(),
        region: Some(region.into()),
    })
}

/// Returns the error for an S3 error response, whose code is more specific than the status.
pub(super) fn of_s3(root: &str, status: StatusCode, method: &Method, refusal: &s3::S3Error) -> Error {
    let s3::S3Error { code, message, .. } = refusal;
    let mut text = readable(&format!("{code}: {message}"));
    if let Some(advice) = refusal.advice() {
        text = format!("{text} ({})", readable(&advice));
    }
    let meant = match status {
        _ if code == "PreconditionFailed" => StatusCode::PRECONDITION_FAILED,
        _ if status.is_success() => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    let fault = refusal.fault().unwrap_or_else(|| fault(method, meant));
    let error = Error::new(fault, text).in_store(root).with_code(status.as_u16().into());
    if fault == Fault::Internal { error.blamed_on(Blame::Storage) } else { error }
}

/// Returns the fault for `status` in the response to a request with `method`.
pub(super) fn fault(method: &Method, status: StatusCode) -> Fault {
    let special = MEANINGS.iter().find(|(name, number, _)| *name == method.as_str() && *number == status.as_u16());
    match special {
        Some((_, _, fault)) => *fault,
        None if status == StatusCode::PRECONDITION_FAILED => Fault::Changed,
        // The file is in preparation, for instance recalled from tape.
        None if status == StatusCode::ACCEPTED => Fault::Unavailable,
        None if matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) => Fault::Unsupported,
        None => Fault::from_http(status.as_u16()),
    }
}

/// Returns the server's error message, without markup.
fn words(headers: &HeaderMap, text: &[u8]) -> String {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    // The text of a towpath server ends with a line about blame; the fault itself is in a header field.
    let text = text.rsplit_once("\nAt fault: ").map_or(&*text, |(text, _)| text);
    let is_markup = media_type.contains("html") || media_type.contains("xml") || text.trim_start().starts_with('<');
    if is_markup { readable(&without_markup(text)) } else { readable(text) }
}

fn without_markup(text: &str) -> String {
    let mut plain = String::new();
    let mut in_tag = false;
    for c in text.chars() {
        match c {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                plain.push(' ');
            }
            _ if !in_tag => plain.push(c),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_means_what_the_method_makes_of_it() {
        let of = |method: &str, status| {
            fault(&Method::from_bytes(method.as_bytes()).unwrap(), StatusCode::from_u16(status).unwrap())
        };
        assert_eq!(of("MKCOL", 405), Fault::AlreadyExists);
        assert_eq!(of("GET", 405), Fault::Unsupported);
        assert_eq!(of("GET", 412), Fault::Changed);
        assert_eq!(of("PUT", 412), Fault::AlreadyExists);
        assert_eq!(of("GET", 404), Fault::NotFound);
        assert_eq!(of("PUT", 507), Fault::NoSpace);
        assert_eq!(of("GET", 401), Fault::AuthenticationFailed);
        assert_eq!(of("GET", 202), Fault::Unavailable);
    }

    #[test]
    fn the_missing_credentials_are_those_that_the_server_accepts() {
        for (challenge, remedy) in [
            ("Bearer realm=\"x\"", Some(NO_TOKEN)),
            ("Basic realm=\"x\"", Some(NO_PASSWORD)),
            ("digest realm=\"x\"", Some(NO_PASSWORD)),
            ("Negotiate", None),
        ] {
            let headers = HeaderMap::from_iter([(header::WWW_AUTHENTICATE, challenge.parse().unwrap())]);
            assert_eq!(missing_credentials(&headers), remedy, "{challenge}");
        }
    }

    #[test]
    fn the_error_of_a_token_is_added_to_the_message_once() {
        let error = |description: Option<&str>| BearerError {
            code: "invalid_token".into(),
            description: description.map(str::to_owned),
        };
        let with = |message, description| with_bearer_error(message, &error(description));
        // As in the response to HEAD, and to GET of a towpath server.
        assert_eq!(with("", Some("/a: it expired")), "/a: it expired (invalid_token)");
        assert_eq!(with("/a: it expired", Some("/a: it expired")), "/a: it expired (invalid_token)");
        assert_eq!(with("refused", Some("it expired")), "refused (invalid_token: it expired)");
        assert_eq!(with("", None), "invalid_token");
    }

    #[test]
    fn the_servers_words_are_shown_without_markup() {
        let html = HeaderMap::from_iter([(header::CONTENT_TYPE, "text/html".parse().unwrap())]);
        assert_eq!(words(&html, b"<h1>No\x1b[31m</h1>\r\n<p>way</p>"), "No [31m way");
        assert_eq!(words(&HeaderMap::new(), b"1 < 2\n"), "1 < 2");
    }
}
