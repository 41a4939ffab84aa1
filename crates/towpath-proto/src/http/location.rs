//! Resolution of `Location` fields (RFC 9110 §10.2.2): references may be relative, contain dot segments, and contain
//! bytes that are not allowed in URLs.

/// Characters allowed in a URL besides letters and digits (RFC 3986 §2.2, §2.3).
const IN_URL: &[u8] = b"-._~:/?#[]@!$&'()*+,;=";

/// Returns the absolute URL of a `location` in the response of `root` (`https://host:port`) to a request for `target`:
/// resolved and without dot segments (RFC 3986 §5.2), without its fragment, and with characters that are not allowed in
/// a URL percent-encoded, as curl and browsers do.
pub fn resolve(root: &str, target: &str, location: &[u8]) -> String {
    let location = encoded(location.trim_ascii());
    let location = location.split('#').next().unwrap_or_default();
    let (path, _) = parts(target);
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let is_whole = location.split(['/', '?']).next().is_some_and(|start| start.ends_with(':'));
    let (scheme, _) = root.split_once("://").unwrap_or((root, ""));
    let absolute = match location.chars().next() {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if is_whole => location.to_owned(),
        Some('/') => format!("{root}{location}"),
        Some('?') => format!("{root}{path}{location}"),
        Some(_) => format!("{root}{directory}/{location}"),
        None => format!("{root}{target}"),
    };
    without_dots(&absolute)
}

/// Splits a target into its path, and its query with the question mark.
fn parts(target: &str) -> (&str, &str) {
    target.split_at(target.find('?').unwrap_or(target.len()))
}

/// Percent-encodes the bytes of a reference that are not allowed in a URL; existing escapes are kept.
fn encoded(location: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in location.iter().enumerate() {
        let is_escape = || location.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        match byte {
            b'%' if is_escape() => text.push('%'),
            byte if IN_URL.contains(byte) || byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Removes the `.` and `..` segments from the path of an absolute URL (RFC 3986 §5.2.4).
fn without_dots(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = parts(target);
    let mut kept = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => {
                kept.push(other);
                continue;
            }
        }
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    format!("{scheme}://{authority}/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_resolved_and_encoded() {
        for (location, to) in [
            ("/c?y", "https://host/c?y"),
            ("c", "https://host/a/c"),
            ("../../x/./c", "https://host/x/c"),
            ("/x/../a/b/..", "https://host/a/"),
            ("?y=/..", "https://host/a/b?y=/.."),
            ("", "https://host/a/b?x=1"),
            ("c/d?e=f://g", "https://host/a/c/d?e=f://g"),
            ("//other:8443/c#part", "https://other:8443/c"),
            ("https://other/a b?n=/CN=A B", "https://other/a%20b?n=/CN=A%20B"),
            ("http://other?q", "http://other/?q"),
            ("/100%/%41{}\u{e9}", "https://host/100%25/%41%7B%7D%C3%A9"),
        ] {
            assert_eq!(resolve("https://host", "/a/b?x=1", location.as_bytes()), to, "{location}");
        }
        assert_eq!(resolve("https://host", "/", b"/\xe9"), "https://host/%E9", "Latin-1 stays what it is");
    }

    proptest! {
        #[test]
        fn anything_becomes_text_that_a_url_can_have(location: Vec<u8>) {
            let url = resolve("https://host", "/a/b", &location);
            prop_assert!(url.bytes().all(|byte| byte == b'%' || IN_URL.contains(&byte) || byte.is_ascii_alphanumeric()), "{}", url);
        }
    }
}
