//! The fields about caches: directives of clients, and the age of a response (RFC 9111, RFC 9211).

use http::{HeaderMap, HeaderName, header};
use towpath_proto::http::cache_control::CacheControl;
use towpath_store::{CacheDirectives, Metadata, Residency, Reuse};

use super::respond::{field, value};

/// Returns the directives of a client. `Pragma: no-cache` counts only without `Cache-Control` (RFC 9111 §5.4).
pub(super) fn directives(headers: &HeaderMap) -> CacheDirectives {
    match (field(headers, header::CACHE_CONTROL), field(headers, header::PRAGMA)) {
        (Some(text), _) => {
            let CacheControl { only_if_cached, no_cache, max_age_s, .. } = CacheControl::parse(&text);
            CacheDirectives { only_if_cached, no_cache, max_age_s }
        }
        (None, Some(pragma)) => {
            CacheDirectives { no_cache: CacheControl::parse(&pragma).no_cache, ..CacheDirectives::default() }
        }
        (None, None) => CacheDirectives::default(),
    }
}

/// Adds `Age`, `Cache-Control` and `Cache-Status` to a response about a file, as far as its origin or a cache stated
/// something.
pub(super) fn insert(headers: &mut HeaderMap, metadata: &Metadata, now_s: i64) {
    let Some(freshness) = &metadata.freshness else { return };
    let age_s = freshness.age_s(now_s);
    // RFC 9111 §5.1: an age says that the response was generated before this request.
    if freshness.reuse != Reuse::None || age_s > 0 {
        headers.insert(header::AGE, age_s.into());
    }
    if !freshness.cache_control().is_empty() {
        headers.insert(header::CACHE_CONTROL, value(freshness.cache_control()));
    }
    if freshness.reuse == Reuse::None {
        return;
    }
    let is_whole = metadata.residency == Residency::Online;
    let mut status = format!("towpath; {}", if is_whole { "hit" } else { "fwd=partial" });
    if let Some(remaining_s) = freshness.remaining_s(now_s) {
        status.push_str(&format!("; ttl={remaining_s}"));
    }
    if freshness.reuse == Reuse::Error {
        status.push_str("; detail=stale-if-error");
    }
    headers.insert(HeaderName::from_static("cache-status"), value(status));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;
    use towpath_store::{FileKind, Freshness};

    use super::*;

    #[test]
    fn clients_say_what_a_cache_may_do() {
        let none = CacheDirectives::default();
        for (name, text, expected) in [
            ("accept", "no-cache", none),
            ("cache-control", "only-if-cached", CacheDirectives { only_if_cached: true, ..none }),
            ("cache-control", "max-age=0", CacheDirectives { max_age_s: Some(0), ..none }),
            ("cache-control", "no-cache, max-age=5", {
                CacheDirectives { no_cache: true, max_age_s: Some(5), ..none }
            }),
            ("pragma", "no-cache", CacheDirectives { no_cache: true, ..none }),
            ("pragma", "max-age=0", none),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(text));
            assert_eq!(directives(&headers), expected, "{name}: {text}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("pragma", HeaderValue::from_static("no-cache"));
        headers.insert("cache-control", HeaderValue::from_static("max-age=5"));
        assert_eq!(directives(&headers), CacheDirectives { max_age_s: Some(5), ..none });
    }

    #[test]
    fn a_response_says_how_old_it_is_and_whether_the_origin_was_asked() {
        let fields = |text: &str, reuse, residency| {
            let freshness = Some(Arc::new(Freshness::new(text, 900).reused(reuse)));
            let mut headers = HeaderMap::new();
            let metadata = Metadata { freshness, residency, ..Metadata::new(FileKind::File, 9) };
            insert(&mut headers, &metadata, 1000);
            ["age", "cache-control", "cache-status"].map(|name| field(&headers, HeaderName::from_static(name)))
        };
        let some = |text: &str| Some(text.to_owned());
        let (whole, part) = (Residency::Online, Residency::Partial { present_bytes: 3 });
        assert_eq!(fields("max-age=200", Reuse::None, part), [some("100"), some("max-age=200"), None]);
        let hit = [some("100"), some("max-age=200"), some("towpath; hit; ttl=100")];
        assert_eq!(fields("max-age=200", Reuse::Cache, whole), hit);
        assert_eq!(fields("", Reuse::Cache, part), [some("100"), None, some("towpath; fwd=partial")]);
        let stale = [some("100"), some("max-age=60"), some("towpath; hit; ttl=-40; detail=stale-if-error")];
        assert_eq!(fields("max-age=60", Reuse::Error, whole), stale);
        let mut headers = HeaderMap::new();
        insert(&mut headers, &Metadata::new(FileKind::File, 9), 1000);
        assert!(headers.is_empty());
    }
}
