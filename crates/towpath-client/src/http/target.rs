//! The target of a request: the server, and the target in the request line.

use std::{fmt, net::IpAddr};

use http::{HeaderValue, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use towpath_proto::{
    http::location,
    url::{Endpoint, Family, redact, without_zone},
};
use towpath_store::{Blame, Error, Fault, Result, StorePath};

/// Characters of a name that are not percent-encoded (RFC 3986 §2.3), and the slash.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A server and a request target. Its output format omits the query, which may contain secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// Path and query, encoded.
    pub(super) path_and_query: String,
    /// Whether the query is that of a file, which WebDAV does not know; that of the user's URL counts as a credential.
    pub(super) is_query: bool,
}

impl Target {
    /// Creates the target of `path` at a server, with the query of the user's URL.
    pub(super) fn new(endpoint: &Endpoint, path: &StorePath, query: Option<&str>) -> Self {
        let mut path_and_query = percent_encode(path.as_bytes(), ENCODED).to_string();
        if let Some(query) = query {
            path_and_query.push('?');
            path_and_query.push_str(query);
        }
        Self::encoded(endpoint.clone(), path_and_query)
    }

    /// Creates a target of an encoded path and query.
    pub(super) fn encoded(endpoint: Endpoint, path_and_query: String) -> Self {
        Self { endpoint, path_and_query, is_query: false }
    }

    /// Adds what selects the content: a query, or a last name that is too long for a path
    /// ([`towpath_store::OpenOptions::query`]).
    pub(super) fn with_query(self, content: Option<&str>) -> Self {
        let Some(content) = content else { return self };
        let parts = |text: &str| match text.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (text.to_owned(), None),
        };
        let ((path, own), (name, query)) = (parts(&self.path_and_query), parts(content));
        let directory = if name.is_empty() { &path } else { path.trim_end_matches('/') };
        let mut path_and_query = format!("{directory}{name}");
        for (separator, query) in ['?', '&'].into_iter().zip([own, query].into_iter().flatten()) {
            path_and_query.push(separator);
            path_and_query.push_str(&query);
        }
        Self { path_and_query, is_query: true, ..self }
    }

    /// Returns the target of a `Location` field, relative to this one (RFC 3986 §5.2). Bytes that no URL can have are
    /// percent-encoded, as browsers and curl do.
    ///
    /// # Errors
    /// `Protocol` if the field has no valid target, `TlsRequired` if it leads from https to http.
    pub(super) fn redirected(&self, location: &[u8]) -> Result<Self> {
        let absolute = location::resolve(&self.root(), &self.path_and_query, location);
        let unusable = || {
            let message = format!("{} redirects to a location that is not an http or https URL", self.root());
            Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
        };
        let uri: Uri = absolute.parse().map_err(|_| unusable())?;
        let tls = match uri.scheme_str() {
            Some("http" | "dav") => false,
            Some("https" | "davs") => true,
            _ => return Err(unusable()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(unusable)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // For an invalid port, `http` reports no port.
        let port_text = uri.authority().and_then(|authority| authority.as_str().rsplit_once(uri.host()?));
        let port = match port_text {
            None | Some((_, "" | ":")) => default_port(tls),
            Some(_) => uri.port_u16().filter(|port| *port != 0).ok_or_else(unusable)?,
        };
        let path_and_query = uri.path_and_query().map_or("/", |path_and_query| path_and_query.as_str()).to_owned();
        if self.endpoint.tls && !tls {
            let message = format!(
                "{} redirects to {host}:{port} without encryption, which is not followed: \
                 use an http:// URL if the data need no protection",
                self.root()
            );
            return Err(Error::new(Fault::TlsRequired, message).blamed_on(Blame::Storage));
        }
        let endpoint = Endpoint { family: Family::Http, tls, host, port };
        Ok(Self { endpoint, path_and_query, is_query: self.is_query })
    }

    /// Returns the path of the target, without the query.
    pub(super) fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }

    /// Returns whether a name in the path has a question mark.
    pub(super) fn has_question_mark(&self) -> bool {
        self.path().as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(b"%3f"))
    }

    /// Returns whether `other` is this target with a trailing slash: the redirect for a directory named without it.
    pub(super) fn is_directory_form(&self, other: &Target) -> bool {
        other.path().strip_suffix('/').is_some_and(|path| path == self.path())
    }

    /// Returns `https://host:port` for messages; a default port is omitted.
    pub(super) fn root(&self) -> String {
        format!("{}://{}", self.scheme(), authority(&self.endpoint))
    }

    /// Returns the URL without its query.
    pub(super) fn without_query(&self) -> String {
        format!("{}{}", self.root(), self.path())
    }

    /// Returns the value of `Host`.
    pub(super) fn host_field(&self) -> Result<HeaderValue> {
        let host = without_zone(&self.endpoint.host).to_owned();
        HeaderValue::try_from(authority(&Endpoint { host, ..self.endpoint.clone() }))
            .map_err(|_| Error::new(Fault::InvalidArgument, "the host name has invalid characters"))
    }

    fn scheme(&self) -> &'static str {
        if self.endpoint.tls { "https" } else { "http" }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path_and_query.split_once('?') {
            Some((path, query)) => write!(f, "{}{path}?{}", self.root(), redact(query)),
            None => write!(f, "{}{}", self.root(), self.path_and_query),
        }
    }
}

/// Returns whether data sent to `host` stay on this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

fn authority(endpoint: &Endpoint) -> String {
    let Endpoint { host, port, tls, .. } = endpoint;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    if *port == default_port(*tls) { host } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        let url: towpath_proto::url::Url = url.parse().unwrap();
        Target::new(&url.endpoint(), &StorePath::parse(url.path()).unwrap(), url.query())
    }

    #[test]
    fn names_of_any_bytes_are_encoded() {
        let path = StorePath::parse(b"/a b/%2F/\xff?x#~").unwrap();
        let target = Target::new(&target("http://h/").endpoint, &path, Some("authz=secret"));
        assert_eq!(target.path_and_query, "/a%20b/%252F/%FF%3Fx%23~?authz=secret");
        assert!(target.has_question_mark());
        assert_eq!(format!("{target:?}"), "http://h/a%20b/%252F/%FF%3Fx%23~?authz=***");
    }

    #[test]
    fn redirects_are_resolved() {
        let from = target("https://Host/a/b?x=1");
        for (location, to) in [
            ("/c?y", "https://host/c?y"),
            ("c", "https://host/a/c"),
            ("//other:8443/c", "https://other:8443/c"),
            ("https://other/%2f#part", "https://other/%2f"),
            ("https://[::1]:1094", "https://[::1]:1094/"),
            ("../c d", "https://host/c%20d"),
            ("?y", "https://host/a/b?y"),
        ] {
            let target = from.redirected(location.as_bytes()).unwrap();
            assert_eq!(format!("{}{}", target.root(), target.path_and_query), to);
        }
        for location in ["ftp://host/", "https:///c", "https://h:99999/"] {
            assert_eq!(from.redirected(location.as_bytes()).unwrap_err().fault(), Fault::Protocol, "{location}");
        }
        assert_eq!(from.redirected(b"http://host/a/b").unwrap_err().fault(), Fault::TlsRequired);
    }

    #[test]
    fn a_slash_at_the_end_tells_a_directory() {
        let from = target("http://host/a?x");
        assert!(from.is_directory_form(&from.redirected(b"/a/").unwrap()));
        assert!(!from.is_directory_form(&from.redirected(b"/b/").unwrap()));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        assert!(["localhost", "127.0.0.1", "127.8.8.8", "::1"].iter().all(|host| is_loopback(host)));
        assert!(["localhost.example.org", "128.0.0.1", "::2"].iter().all(|host| !is_loopback(host)));
    }
}
