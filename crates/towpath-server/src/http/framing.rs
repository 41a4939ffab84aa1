//! Rejects requests with ambiguous host or framing and closes their connection: behind a proxy that interprets them
//! differently, the rest of the connection could be taken for another client's request (request smuggling).
//!
//! hyper itself rejects other such forms: conflicting or invalid lengths, `Transfer-Encoding` in HTTP/1.0 or without
//! final `chunked`, folded lines, whitespace before a colon. A request with both a length and `chunked` is read as
//! chunked and closes its connection (RFC 9112 §6.1).

use std::net::Ipv6Addr;

use http::{HeaderMap, HeaderValue, StatusCode, Version, header, uri::Authority};

use super::refusal::Refusal;

/// Checks the host and the framing of a request.
///
/// # Errors
/// 400 for a `Host` that is missing (from HTTP/1.1), duplicate or invalid (RFC 9112 §3.2), and for repeated `chunked`
/// (§6.1); 501 for other transfer codings (§6.1).
pub(super) fn check(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let checked = check_host(version, headers).and_then(|()| check_codings(headers));
    checked.map_err(|refusal| match version {
        Version::HTTP_2 => refusal,
        _ => refusal.with(header::CONNECTION, HeaderValue::from_static("close")),
    })
}

fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 => Err(Refusal::bad_request("the request has no Host field")),
        (None, _) => Ok(()),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        (Some(_), None) => Err(Refusal::bad_request("the Host field is not HOST or HOST:PORT")),
        (Some(_), Some(_)) => Err(Refusal::bad_request("the request has several Host fields")),
    }
}

/// Whether `value` is `uri-host [ ":" port ]` (RFC 9110 §7.2). Empty is valid: the host of a target without an
/// authority.
fn is_host(value: &[u8]) -> bool {
    if value.is_empty() {
        return true;
    }
    let Ok(authority) = Authority::try_from(value) else { return false };
    let text = authority.as_str();
    let port = text.strip_prefix(authority.host()).map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    let is_port = port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let address = authority.host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    is_port && !text.contains('@') && address.is_none_or(|address| address.parse::<Ipv6Addr>().is_ok())
}

fn check_codings(headers: &HeaderMap) -> Result<(), Refusal> {
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter().map(|line| line.to_str().unwrap_or_default());
    let codings: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    let is_chunked = |coding: &&&str| coding.eq_ignore_ascii_case("chunked");
    match (codings.len(), codings.iter().filter(is_chunked).count()) {
        (0, _) | (1, 1) => Ok(()),
        (_, 2..) => Err(Refusal::bad_request("the request body is chunked more than once")),
        _ => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "transfer codings other than chunked are not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_hosts() {
        for host in ["", "x", "se.example.org", "x:80", "x:", "127.0.0.1:1094", "[::1]", "[2001:db8::1]:443", "a_b"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["a b", "x:y", "a@x", "x/", "x:80:90", "[::1", "[x]", "x, y", "x?y", "x#y", "http://x", "\u{e9}"] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
