//! Content codings: text is compressed for clients that accept it (RFC 9110 §8.4.1.3, §12.5.3).

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use towpath_proto::http::{condition::EntityTag, media_type};

use super::tag_of;
use crate::{
    application::Body,
    http::respond::{self, value},
};

/// Minimum size of a compressed body, in bytes; a shorter one fits into one packet anyway.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// Text media types in addition to `text/*`, `*+json` and `*+xml`. The parts of multipart ALTO responses are JSON
/// (RFC 9275).
const TEXT_TYPES: [&str; 3] = ["application/json", "application/xml", "multipart/related"];

/// Whether to send the response as [`gzip`] to a client with these request fields. Adds `Vary` where that depends on
/// the client.
pub(super) fn choose_gzip(answer: &mut Response<Body>, asked: &HeaderMap) -> bool {
    let is_long = matches!(answer.body(), Body::Whole(body) if body.len() >= MIN_COMPRESSED_BYTES);
    let headers = answer.headers_mut();
    if !is_long || !is_text(headers) || headers.contains_key(header::CONTENT_ENCODING) {
        return false;
    }
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    respond::field(asked, header::ACCEPT_ENCODING).is_some_and(|accepted| takes_gzip(&accepted))
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type::essence(content_type).to_ascii_lowercase();
    let is_based_on_text = essence.ends_with("+json") || essence.ends_with("+xml");
    is_based_on_text || essence.starts_with("text/") || TEXT_TYPES.contains(&essence.as_str())
}

/// Whether `Accept-Encoding` prefers gzip over identity. Codings that are not listed have the weight of `*`.
fn takes_gzip(accepted: &str) -> bool {
    let weight = |names: &[&str]| {
        accepted.split(',').find_map(|item| {
            let (name, parameter) = item.split_once(';').unwrap_or((item, ""));
            names.iter().any(|known| name.trim().eq_ignore_ascii_case(known)).then(|| weight_of(parameter))
        })
    };
    let others = weight(&["*"]);
    let gzip = weight(&["gzip", "x-gzip"]).or(others).unwrap_or(0.0);
    let nothing = weight(&["identity"]).or(others).unwrap_or(0.0);
    gzip > 0.0 && gzip >= nothing
}

/// Parses a weight parameter (RFC 9110 §12.4.2): 1 if absent, 0 if malformed.
fn weight_of(parameter: &str) -> f32 {
    let parameter = parameter.trim();
    if parameter.is_empty() {
        return 1.0;
    }
    let said = parameter.strip_prefix(['q', 'Q']).and_then(|rest| rest.strip_prefix('='));
    let weight = said.and_then(|weight| weight.parse::<f32>().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0)
}

/// Compresses a response with a body. Both forms have the same tag, so that a client with either gets 304; because
/// their bytes differ, the tag of this form is weak (RFC 9110 §8.8.3.3).
pub(super) fn gzip(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    if let Some(tag) = tag_of(&parts.headers).and_then(|tag| EntityTag::weak(tag.opaque())) {
        parts.headers.insert(header::ETAG, value(tag));
    }
    let body = match body {
        Body::Whole(text) if !text.is_empty() => {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Body::Whole(compressed(&text))
        }
        body => body,
    };
    Response::from_parts(parts, body)
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    let mut bytes = written.expect("memory takes all that is written to it");
    bytes.shrink_to_fit();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide() {
        for list in ["gzip", "br, GZIP", "x-gzip", "*", "gzip;q=0.001", "br, gzip; Q=1.0", "identity;q=0.5, *;q=0.5"] {
            assert!(takes_gzip(list), "{list}");
        }
        for list in [
            "",
            "br",
            "gzip;q=0",
            "gzip;q=0.000, *",
            "*;q=0",
            "gzip;q=0.5, identity",
            "gzip;q=0.4, *;q=0.5",
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=-1",
            "gzip;q=NaN",
            "gzip;level=1",
            "gzipped",
        ] {
            assert!(!takes_gzip(list), "{list}");
        }
    }

    #[test]
    fn text_is_told_from_bytes() {
        let is_text = |media_type| {
            let value = HeaderValue::from_static(media_type);
            is_text(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        for media_type in [
            "text/plain; charset=utf-8",
            "Application/JSON",
            "application/alto-costmap+json",
            "multipart/related;type=application/alto-endpointcost+json",
        ] {
            assert!(is_text(media_type), "{media_type}");
        }
        for media_type in ["application/octet-stream", "application/gzip", "image/png", ""] {
            assert!(!is_text(media_type), "{media_type}");
        }
    }
}
