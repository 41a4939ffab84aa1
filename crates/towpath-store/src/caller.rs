//! The identity and credential of a request. They travel with each call, because one store serves many users.

use std::{fmt, net::IpAddr, sync::Arc};

/// A credential. It prints as `<redacted>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The credential itself, for the one place that sends or verifies it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Who makes a call. A face fills it in once it has verified the peer; remote stores pass the credential on.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The verified subject, as the issuer names it; none for an anonymous caller.
    pub subject: Option<Arc<str>>,
    /// The issuer that vouches for the subject; none for an anonymous caller.
    pub issuer: Option<Arc<str>>,
    /// The bearer token of the request, for stores that forward it to another service.
    pub token: Option<Secret>,
    /// The address the call came from; none for a call of this process.
    pub address: Option<IpAddr>,
    /// No credential is sent, not even that of this process for calls without one.
    pub is_nobody: bool,
}

impl Caller {
    /// This process itself, without a credential.
    pub fn local() -> Self {
        Self::default()
    }

    /// Nobody: this process, where it must not show who it is.
    pub fn nobody() -> Self {
        Self { is_nobody: true, ..Self::default() }
    }
}
