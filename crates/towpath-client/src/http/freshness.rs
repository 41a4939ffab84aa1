//! The statement in the header of a response about its use by caches (RFC 9111 §4.2).

use http::{HeaderMap, HeaderName, header};
use towpath_proto::http::{
    cache_control::{CacheControl, MAX_SECONDS},
    date,
};
use towpath_store::Freshness;

/// Returns the statement in the header of a response that arrived at `now_s`, in seconds since the Unix epoch; `None`
/// if it has neither `Cache-Control` nor `Expires` nor `Vary: *`.
///
/// - `Expires` counts only without `max-age` and `s-maxage` (RFC 9111 §5.3), and becomes a `max-age`. An invalid date,
///   such as `0`, has passed.
/// - A response that varies with everything is never used again without a request (RFC 9111 §4.1). Other variations do
///   not matter: this client always sends the same fields.
/// - The age is that of RFC 9111 §4.2.3, without the time that the response took.
pub(super) fn of_headers(headers: &HeaderMap, now_s: i64) -> Option<Freshness> {
    let mut text = joined(headers, header::CACHE_CONTROL).unwrap_or_default();
    let date_s = joined(headers, header::DATE).and_then(|text| date::parse(&text));
    let control = CacheControl::parse(&text);
    if control.max_age_s.or(control.s_maxage_s).is_none()
        && let Some(expires) = joined(headers, header::EXPIRES)
    {
        let lifetime_s = date::parse(&expires).map_or(0, |expires_s| expires_s - date_s.unwrap_or(now_s));
        add(&mut text, &format!("max-age={}", lifetime_s.clamp(0, i64::from(MAX_SECONDS))));
    }
    if joined(headers, header::VARY).is_some_and(|fields| fields.split(',').any(|field| field.trim() == "*")) {
        add(&mut text, "no-cache");
    }
    (!text.is_empty()).then(|| Freshness::new(&text, now_s.saturating_sub(age_s(headers, date_s, now_s))))
}

/// Returns the age of a response at its arrival in seconds: the larger of `Age` and the time since `Date`.
fn age_s(headers: &HeaderMap, date_s: Option<i64>, now_s: i64) -> i64 {
    // The first of several values counts; an invalid one is ignored (RFC 9111 §5.1).
    let field = joined(headers, header::AGE).unwrap_or_default();
    let first = field.split(',').next().unwrap_or_default().trim();
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    let stated_s = if is_number { first.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS) } else { 0 };
    let apparent_s = date_s.map_or(0, |date_s| now_s.saturating_sub(date_s));
    apparent_s.clamp(i64::from(stated_s), i64::from(MAX_SECONDS))
}

fn add(text: &mut String, directive: &str) {
    if !text.is_empty() {
        text.push_str(", ");
    }
    text.push_str(directive);
}

/// Returns all lines of a field, joined by commas (RFC 9110 §5.3). Bytes that are not text make a value invalid.
fn joined(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines: Vec<_> =
        headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()).trim().to_owned()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW_S: i64 = 784_111_777;
    const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    const LATER: (&str, &str) = ("expires", "Sun, 06 Nov 1994 08:50:37 GMT");

    fn freshness(fields: &[(&'static str, &str)]) -> Option<Freshness> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        of_headers(&headers, NOW_S)
    }

    #[test]
    fn the_lifetime_follows_the_precedence_of_rfc_9111() {
        let control = |text| ("cache-control", text);
        for (fields, remaining_s, text) in [
            (vec![DATE, control("max-age=10")], Some(10), "max-age=10"),
            (vec![DATE, control("max-age=10"), control("s-maxage=5")], Some(5), "max-age=10, s-maxage=5"),
            (vec![DATE, control("max-age=10"), LATER], Some(10), "max-age=10"),
            (vec![DATE, control("public"), LATER], Some(60), "public, max-age=60"),
            (vec![DATE, LATER], Some(60), "max-age=60"),
            (vec![LATER], Some(60), "max-age=60"),
            (vec![DATE, ("expires", "0")], Some(0), "max-age=0"),
            (vec![DATE, ("expires", DATE.1)], Some(0), "max-age=0"),
            (vec![("expires", "Thu, 01 Jan 1970 00:00:00 GMT")], Some(0), "max-age=0"),
            (vec![DATE, control("no-cache"), LATER], Some(0), "no-cache, max-age=60"),
            (vec![DATE, control("max-age=10"), ("vary", "accept, *")], Some(0), "max-age=10, no-cache"),
            (vec![DATE, control("max-age=10"), ("vary", "accept-encoding")], Some(10), "max-age=10"),
            (vec![DATE, control("private")], None, "private"),
        ] {
            let found = freshness(&fields).unwrap();
            assert_eq!((found.remaining_s(NOW_S), found.cache_control()), (remaining_s, text), "{fields:?}");
        }
        for fields in [vec![], vec![DATE], vec![DATE, ("age", "5")], vec![("cache-control", "")]] {
            assert_eq!(freshness(&fields), None, "{fields:?}");
        }
    }

    #[test]
    fn the_age_is_the_larger_of_age_and_date() {
        let earlier = ("date", "Sun, 06 Nov 1994 08:49:30 GMT");
        let later = ("date", "Sun, 06 Nov 1994 08:59:30 GMT");
        for (fields, age_s) in [
            (vec![], 0),
            (vec![DATE], 0),
            (vec![earlier], 7),
            (vec![earlier, ("age", "3")], 7),
            (vec![earlier, ("age", "30")], 30),
            (vec![later, ("age", "3")], 3),
            (vec![("age", "3, 9")], 3),
            (vec![("age", "-3")], 0),
            (vec![("age", "99999999999")], u64::from(MAX_SECONDS)),
            (vec![("date", "yesterday"), ("age", "x")], 0),
        ] {
            let fields = [vec![("cache-control", "max-age=1")], fields].concat();
            assert_eq!(freshness(&fields).unwrap().age_s(NOW_S), age_s, "{fields:?}");
        }
    }
}
