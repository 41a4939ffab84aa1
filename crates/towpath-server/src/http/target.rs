//! Converts between store paths and URLs. Names are bytes and survive the round trip.

use http::{StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode};
use towpath_proto::url::without_keys;
use towpath_store::{Secret, StorePath};

use super::refusal::Refusal;
use crate::access::bearer;

/// Characters that are not encoded in a path: unreserved characters (RFC 3986 §2.3) and the slash.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Characters that are not encoded in a name: like in a path, without the slash.
const NAME: &AsciiSet = &PATH.add(b'/');

/// The target of a request.
#[derive(Debug)]
pub(super) struct Target {
    /// The path in the store.
    pub(super) path: StorePath,
    /// Whether it has a trailing slash, like a directory.
    pub(super) slash: bool,
    /// The last name with its slash, as the client encoded it, if it is too long for a path; `path` is its directory then.
    pub(super) long_name: Option<String>,
    /// The token in `?authz=`, if any: `Bearer%20...`, as XRootD clients send it, or the bare token.
    pub(super) token: Option<Secret>,
}

impl Target {
    /// Parses the target of a request.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        // `OPTIONS *` refers to the server as a whole.
        let text = if uri.path() == "*" { "/" } else { uri.path() };
        let (slash, token) = (text.ends_with('/'), uri.query().and_then(token_in));
        let refusal = match decode(text) {
            Ok(path) => return Ok(Self { path, slash, long_name: None, token }),
            Err(refusal) => refusal,
        };
        let (directory, long_name) = text.split_at(text.rfind('/').unwrap_or(0));
        // The origin gets the name as it is: it must not lead to another directory there.
        let is_name = !percent_decode(long_name.as_bytes()).skip(1).any(|byte| matches!(byte, b'/' | b'\\' | 0));
        match decode(if directory.is_empty() { "/" } else { directory }) {
            Ok(path) if refusal.status() == StatusCode::URI_TOO_LONG && is_name && !slash => {
                Ok(Self { path, slash, long_name: Some(long_name.to_owned()), token })
            }
            _ => Err(refusal),
        }
    }
}

/// Decodes the path component of a URL.
pub(super) fn decode(text: &str) -> Result<StorePath, Refusal> {
    let bytes: Vec<u8> = percent_decode(text.as_bytes()).collect();
    StorePath::parse(&bytes).map_err(|error| match error {
        towpath_store::PathError::TooLong => Refusal::new(StatusCode::URI_TOO_LONG, error.to_string()),
        _ => Refusal::bad_request(error.to_string()),
    })
}

/// Returns the path of a full URL or an absolute path, ignoring the host; `None` if it is invalid.
pub(super) fn of_url(url: &str) -> Option<StorePath> {
    decode(url.parse::<Uri>().ok()?.path()).ok()
}

/// Encodes a path as a URL path; a directory gets a trailing slash.
pub(super) fn encode(path: &StorePath, directory: bool) -> String {
    let mut text = percent_encoding::percent_encode(path.as_bytes(), PATH).to_string();
    if directory && !path.is_root() {
        text.push('/');
    }
    text
}

/// Encodes the URL path of a directory entry, also for names that a [`StorePath`] cannot hold.
pub(super) fn encode_name(directory: &StorePath, name: &[u8]) -> String {
    let directory = encode(directory, true);
    let separator = if directory.ends_with('/') { "" } else { "/" };
    format!("{directory}{separator}{}", encode_relative(name))
}

/// Encodes a name as a URL relative to its directory. Colons are encoded, so that no name is taken for a scheme.
pub(super) fn encode_relative(name: &[u8]) -> impl std::fmt::Display {
    percent_encoding::percent_encode(name, NAME)
}

/// Returns a query without `authz` and `access_token` (RFC 6750 §2.3), the tokens of callers; `None` if nothing is left.
pub(super) fn without_token(query: &str) -> Option<String> {
    let kept = without_keys(query, &["authz", "access_token"]);
    (!kept.is_empty()).then_some(kept)
}

fn token_in(query: &str) -> Option<Secret> {
    bearer::in_authz(query.split('&').find_map(|pair| pair.strip_prefix("authz="))?.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(uri: &str) -> Result<Target, Refusal> {
        Target::of(&uri.parse().unwrap())
    }

    #[test]
    fn odd_bytes_survive() {
        let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let path = StorePath::root().join(&name).unwrap();
        assert_eq!(target(&encode(&path, false)).unwrap().path, path);
        assert_eq!(encode(&path.join(b"a b").unwrap(), true).rsplit('/').nth(1), Some("a%20b"));
    }

    #[test]
    fn a_last_name_that_is_too_long_is_kept_apart() {
        let long = "a%20".repeat(256);
        for (directory, path) in [("", "/"), ("/d", "/d"), ("/d/", "/d")] {
            let found = target(&format!("{directory}/{long}?x=1")).unwrap();
            assert_eq!((found.path.to_string(), found.long_name), (path.to_owned(), Some(format!("/{long}"))));
        }
        for behind in ["/", "/f", "/..", "%00", "%2f..%2ff", "%2F..%2F..%2Fsecret%2Ff", "%5c..%5cf"] {
            assert!(target(&format!("/d/{long}{behind}")).is_err(), "{behind}");
        }
        for before in ["/../", "/..%2f/", "/d%2f", "/d/..%2f", "/d%5c"] {
            assert!(target(&format!("{before}{long}")).is_err(), "{before}");
        }
        assert_eq!(target("/d/f").unwrap().long_name, None);
    }

    #[test]
    fn what_leaves_the_root_is_refused() {
        for uri in ["/a/../b", "/%2e%2e/etc", "/a/..%2fb", "/a%00"] {
            assert!(target(uri).is_err(), "{uri}");
        }
        assert_eq!(target("//a%2fb/").unwrap().path.as_bytes(), b"/a/b");
        assert!(target("/a/").unwrap().slash && !target("/a").unwrap().slash);
    }

    #[test]
    fn the_query_is_passed_on_without_the_token() {
        for (query, kept) in [
            ("", None),
            ("authz=Bearer%20abc", None),
            ("path=/a&authz=abc&all", Some("path=/a&all")),
            ("%61uthz=abc&AUTHZ=b&access_token=c", None),
            ("xauthz=abc", Some("xauthz=abc")),
        ] {
            assert_eq!(without_token(query).as_deref(), kept, "{query}");
        }
    }

    #[test]
    fn a_token_may_come_in_the_query() {
        for (uri, token) in [
            ("/f?authz=Bearer%20abc.d", Some("abc.d")),
            ("/f?x=1&authz=abc", Some("abc")),
            ("/f?authz=", None),
            ("/f?xauthz=abc", None),
        ] {
            assert_eq!(target(uri).unwrap().token.as_ref().map(Secret::expose), token, "{uri}");
        }
    }

    proptest! {
        #[test]
        fn paths_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(path) = StorePath::parse(&[b"/", bytes.as_slice()].concat()) {
                prop_assert_eq!(target(&encode(&path, true)).unwrap().path, path);
            }
        }
    }
}
