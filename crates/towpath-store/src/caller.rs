//! The identity and credential of a request. They travel with each call, because one store serves many users.

use std::{fmt, net::IpAddr, sync::Arc};

/// A secret credential. It prints as `<redacted>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the credential in plain text. To be called only where it is sent or verified.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// The identity of a client. A face fills it in after it has verified the peer; remote stores forward the credential.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Verified subject as named by the issuer; `None` for an anonymous caller.
    pub subject: Option<Arc<str>>,
    /// Issuer that vouches for the subject; `None` for an anonymous caller.
    pub issuer: Option<Arc<str>>,
    /// Bearer token of the request, for stores that forward it to another service.
    pub token: Option<Secret>,
    /// Address of the peer; `None` for a call of this process.
    pub address: Option<IpAddr>,
    /// Whether no credential may be sent, not even the one that this process uses for calls without a token.
    pub is_nobody: bool,
}

impl Caller {
    /// Returns the identity of this process, without a credential.
    pub fn local() -> Self {
        Self::default()
    }

    /// Returns an anonymous identity, for calls in which this process must not identify itself.
    pub fn nobody() -> Self {
        Self { is_nobody: true, ..Self::default() }
    }
}
