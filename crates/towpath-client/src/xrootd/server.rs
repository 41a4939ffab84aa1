//! The server of a request: the one of the URL, or the target of a redirect.

use std::fmt;

use bytes::Bytes;
use towpath_store::StorePath;

/// A server, with the opaque information that a redirect added for it. Debug output omits secrets in opaque
/// information.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// Path that replaces the path of the request, if a redirect to a URL contained one.
    pub path: Option<StorePath>,
    /// Appended to the opaque information of paths.
    pub cgi: Bytes,
    /// Appended to the opaque information of the login.
    pub login_cgi: Bytes,
    /// Whether the bearer token may be sent to the server, over TLS: it is the host that the user named, or one that
    /// such a host named over TLS. Anyone on the network path can send redirects without encryption.
    pub trusted: bool,
}

impl Server {
    /// Returns `host:port`, as in messages.
    pub(super) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the URL up to the path, for messages.
    pub(super) fn root(&self) -> String {
        root_url(self.tls, &self.name())
    }

    /// Returns the path to request at the server for `path`.
    pub(super) fn path_of<'a>(&'a self, path: &'a StorePath) -> &'a StorePath {
        self.path.as_ref().unwrap_or(path)
    }
}

/// Returns the URL of a server up to the path, for messages; `name` is `host:port`.
pub(super) fn root_url(is_encrypted: bool, name: &str) -> String {
    format!("{}://{name}/", if is_encrypted { "roots" } else { "root" })
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, trusted, .. } = self;
        f.debug_struct("Server").field("name", &self.name()).field("tls", tls).field("trusted", trusted).finish()
    }
}

/// Returns whether `text` can be the name or the address of a host. It is used in messages, and sent back to the
/// redirector.
pub(super) fn is_host(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(allowed)
}

/// Joins `first&second`; either may be empty.
pub(super) fn join_cgi(first: &[u8], second: &[u8]) -> Bytes {
    let second = second.strip_prefix(b"&").unwrap_or(second);
    match (first, second) {
        ([], only) | (only, []) => Bytes::copy_from_slice(only),
        (first, second) => [first, b"&", second].concat().into(),
    }
}
