//! Resolves references to resources relative to the address of their directory (RFC 3986 §5).

/// The components of a URI or reference (RFC 3986 §3), without the fragment, which is never sent to servers.
struct UriComponents<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> UriComponents<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.trim().split('#').next().unwrap_or_default();
        let (rest, query) = text.split_once('?').map_or((text, None), |(rest, query)| (rest, Some(query)));
        let (scheme, rest) = match rest.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, rest),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, rest),
        };
        Self { scheme, authority, path, query }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
}

/// Resolves `reference` in a document from `base`, without its fragment (RFC 3986 §5.2). Returns `None` if the result
/// has no host.
pub(super) fn resolve(base: &str, reference: &str) -> Option<String> {
    let (base, reference) = (UriComponents::of(base), UriComponents::of(reference));
    let has_authority = reference.scheme.is_some() || reference.authority.is_some();
    let scheme = reference.scheme.or(base.scheme)?;
    let authority = if has_authority { reference.authority } else { base.authority }?;
    let (path, query) = match reference.path {
        path if has_authority || path.starts_with('/') => (without_dots(path), reference.query),
        "" => (base.path.to_owned(), reference.query.or(base.query)),
        path => {
            let directory = base.path.rsplit_once('/').map_or("", |(directory, _)| directory);
            (without_dots(&format!("{directory}/{path}")), reference.query)
        }
    };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{authority}{path}{query}"))
}

/// Returns whether `address` is an http or https URI with a host, in characters allowed in URIs.
pub(super) fn is_http(address: &str) -> bool {
    let UriComponents { scheme, authority, .. } = UriComponents::of(address);
    let is_known = |scheme: &str| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let names_host = authority.is_some_and(|authority| !authority.is_empty());
    scheme.is_some_and(is_known) && names_host && address.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Removes `.` and `..` from a path that is absolute or empty (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let Some(inside) = path.strip_prefix('/') else { return path.to_owned() };
    let mut kept = Vec::new();
    let mut segments = inside.split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if segments.peek().is_none() {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_rfc_3986_shows() {
        for (reference, address) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g?y#s", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("https://h:1/./x", "https://h:1/x"),
        ] {
            assert_eq!(resolve("http://a/b/c/d;p?q", reference).as_deref(), Some(address), "{reference}");
        }
        assert_eq!(resolve("http://a", "g").as_deref(), Some("http://a/g"));
        assert_eq!(resolve("http://a/b", "mailto:x"), None);
        assert_eq!(resolve("a/b", "g"), None);
    }

    #[test]
    fn what_http_cannot_ask_is_told_apart() {
        for address in ["http://h", "HTTPS://h:1/a%20b?c={d}"] {
            assert!(is_http(address), "{address}");
        }
        for address in ["ftp://h/a", "http:///a", "//h/a", "http://h/a b", "http://h/\x1b", "http://h/\u{e4}", ""] {
            assert!(!is_http(address), "{address}");
        }
    }
}
