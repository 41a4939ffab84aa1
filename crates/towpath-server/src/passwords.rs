//! Password authentication over HTTP: Digest ([RFC 7616](https://www.rfc-editor.org/rfc/rfc7616)) and Basic ([RFC
//! 7617](https://www.rfc-editor.org/rfc/rfc7617)), against one file. RFC 7285 §8.3.5 requires Digest of a server that
//! authenticates clients by HTTP.
//!
//! The life of a login: the `Authorization` header is parsed ([`digest`]; Basic here) and compared with
//! the user's entry in the [`file`]: the SHA-256 of `name:realm:password`, which Digest calls H(A1). A digest is
//! valid once, for its nonce and its count ([`nonces`]). Password guessing is throttled ([`attempts`]).
//!
//! Not here: rights (`access`), statuses and header fields (`http`). The caller must accept passwords over TLS only.

mod attempts;
mod digest;
mod file;
mod nonces;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, path::Path, sync::Arc};

use aws_lc_rs::constant_time;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use sha2::{Digest as _, Sha256};
use towpath_store::{
    Blame, Error, Fault,
    sys::clock::{self, Instant},
};

use self::{
    attempts::Attempts,
    digest::Credentials,
    file::{PasswordFile, Users},
    nonces::Nonces,
};
use crate::StartError;

/// Maximum size of credentials, in bytes; those of real clients have a few hundred.
const MAX_CREDENTIALS_BYTES: usize = 8 << 10;

/// Maximum length of a realm, in bytes.
const MAX_REALM_BYTES: usize = 128;

/// Authenticates users by password.
#[derive(Debug)]
pub(crate) struct Passwords {
    realm: String,
    password_file: Arc<PasswordFile>,
    nonces: Nonces,
    attempts: Attempts,
}

/// The authentication scheme of a login.
#[derive(Clone, Copy)]
enum Scheme {
    Digest,
    Basic,
}

const SCHEMES: [(&str, Scheme); 2] = [("Digest", Scheme::Digest), ("Basic", Scheme::Basic)];

/// The credentials of a request. Not `Debug`, because they may contain a password.
pub(crate) struct Authorization<'a> {
    scheme: Scheme,
    credentials: &'a [u8],
}

/// The request that carries the credentials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoginRequest<'a> {
    /// The method.
    pub(crate) method: &'a str,
    /// The request target.
    pub(crate) uri: &'a Uri,
    /// Address of the client.
    pub(crate) address: IpAddr,
}

/// Why a login was rejected, worded for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginError {
    /// The credentials violate the RFCs.
    #[error("the credentials are malformed: {0}")]
    Malformed(&'static str),
    /// A required field is missing.
    #[error("the credentials are malformed: `{0}` is missing")]
    Missing(&'static str),
    /// The credentials are well-formed but not for this server.
    #[error("the credentials do not match this server's challenge: {0}")]
    Unsuited(&'static str),
    /// Unknown user or wrong password; the message does not distinguish them.
    #[error("the name or the password is wrong")]
    Wrong,
    /// The password is right, but the nonce is stale, unknown, or was used with this count before.
    #[error("the nonce is stale: use the new one")]
    Stale,
    /// Too many failed attempts.
    #[error("{} wrong passwords from this network within a minute: wait a minute", attempts::MAX_FAILURES)]
    TooMany,
}

impl From<LoginError> for Error {
    fn from(denial: LoginError) -> Self {
        let fault = match denial {
            LoginError::Malformed(_) | LoginError::Missing(_) => Fault::MalformedRequest,
            LoginError::Unsuited(_) | LoginError::Wrong | LoginError::Stale => Fault::AuthenticationFailed,
            LoginError::TooMany => Fault::Overloaded,
        };
        Error::new(fault, denial.to_string()).blamed_on(Blame::Caller)
    }
}

impl<'a> Authorization<'a> {
    /// Parses the value of `Authorization`. Returns `None` for another scheme.
    pub(crate) fn of(authorization: &'a [u8]) -> Option<Self> {
        let authorization = authorization.trim_ascii();
        let end = authorization.iter().position(|byte| *byte == b' ').unwrap_or(authorization.len());
        let (name, credentials) = authorization.split_at(end);
        let (_, scheme) = SCHEMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))?;
        Some(Self { scheme: *scheme, credentials })
    }

    fn text(&self) -> Result<&'a str, LoginError> {
        if self.credentials.len() > MAX_CREDENTIALS_BYTES {
            return Err(LoginError::Malformed("they are too long"));
        }
        str::from_utf8(self.credentials).map(str::trim).map_err(|_| LoginError::Malformed("they are not UTF-8"))
    }
}

impl Passwords {
    /// Loads the users in the file at `path` for `realm`. The file is read immediately, so that an invalid one
    /// prevents the start.
    ///
    /// # Errors
    /// [`StartError::Access`] if the file is invalid.
    pub(crate) fn new(path: &Path, realm: &str) -> Result<Self, StartError> {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if realm.is_empty() || realm.len() > MAX_REALM_BYTES || !realm.bytes().all(is_plain) {
            return Err(StartError::Access(format!(
                "realm `{}`: it must have 1 to {MAX_REALM_BYTES} characters of ASCII, no quotes and no backslash",
                realm.escape_debug()
            )));
        }
        let password_file = PasswordFile::open(path)
            .map_err(|error| StartError::Access(format!("passwords {}: {error}", path.display())))?;
        Ok(Self {
            realm: realm.into(),
            password_file: Arc::new(password_file),
            nonces: Nonces::new(clock::now()),
            attempts: Attempts::default(),
        })
    }

    /// Whether these are the users in the file at `path` for `realm`.
    pub(crate) fn is_for(&self, path: &Path, realm: &str) -> bool {
        self.realm == realm && self.password_file.path() == path
    }

    /// Returns the realm that clients show in their password prompt.
    pub(crate) fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns the values of `WWW-Authenticate`, the stronger scheme first. `is_stale` signals that the password was
    /// right, so that the client does not prompt its user again.
    pub(crate) fn challenges(&self, is_stale: bool) -> [String; 2] {
        let (realm, nonce) = (&self.realm, self.nonces.make(clock::now()));
        let stale = if is_stale { ", stale=true" } else { "" };
        [
            format!(
                r#"Digest realm="{realm}", qop="auth", algorithm=SHA-256, nonce="{nonce}", charset=UTF-8, userhash=false{stale}"#
            ),
            format!(r#"Basic realm="{realm}", charset="UTF-8""#),
        ]
    }

    /// Authenticates a login and returns the user's name.
    ///
    /// # Errors
    /// [`LoginError`].
    pub(crate) async fn verify(
        &self,
        authorization: &Authorization<'_>,
        request: LoginRequest<'_>,
    ) -> Result<Arc<str>, LoginError> {
        let text = authorization.text()?;
        let users = self.password_file.users().await;
        let now = clock::now();
        if !self.attempts.is_allowed(request.address, now) {
            return Err(LoginError::TooMany);
        }
        let outcome = match authorization.scheme {
            Scheme::Digest => self.by_digest(text, &users, request, now),
            Scheme::Basic => self.by_password(text, &users),
        };
        if matches!(outcome, Err(LoginError::Wrong)) && self.attempts.record_failure(request.address, now) {
            tracing::warn!(address = %request.address, "too many wrong passwords: rejecting logins from this network for a minute");
        }
        outcome
    }

    fn by_digest(
        &self,
        text: &str,
        users: &Users,
        request: LoginRequest<'_>,
        now: Instant,
    ) -> Result<Arc<str>, LoginError> {
        let credentials = Credentials::parse(text)?;
        if credentials.realm != self.realm {
            return Err(LoginError::Unsuited("`realm` is not that of this server"));
        }
        if !credentials.is_about(request.uri) {
            return Err(LoginError::Malformed("`uri` is not the target of the request"));
        }
        let user = users.find(&credentials.username, |kept| credentials.is_of(kept, request.method))?;
        // Checked last: a client without the password cannot probe for nonces or use them up.
        self.nonces.take(&credentials.nonce, credentials.count, now)?;
        Ok(user)
    }

    fn by_password(&self, text: &str, users: &Users) -> Result<Arc<str>, LoginError> {
        const MALFORMED: LoginError = LoginError::Malformed("`Basic` takes the base64 of NAME:PASSWORD");
        let bytes = STANDARD.decode(text).map_err(|_| MALFORMED)?;
        let pair = str::from_utf8(&bytes).map_err(|_| MALFORMED)?;
        let (name, password) = pair.split_once(':').ok_or(MALFORMED)?;
        let sent = hash(&[name, &self.realm, password]);
        users.find(name, |kept| are_equal(kept, &sent))
    }
}

/// Returns the SHA-256 of the parts joined with colons, in hex: `H(a ":" b)` in RFC 7616.
fn hash(parts: &[&str]) -> String {
    Sha256::digest(parts.join(":")).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares two hashes in constant time.
fn are_equal(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}
