//! Passwords for HTTP and WebDAV servers: that of the URL, or of `.netrc`. They are sent as Basic credentials (RFC
//! 7617) under the rules of tokens, and only where there is no token.

mod netrc;

use std::{fmt, io, path::PathBuf, sync::OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use towpath_proto::url::Url;
use towpath_store::{
    Error, Fault, Result,
    sys::{
        disk::{self, RequiredOwner},
        environment,
    },
};

use netrc::Netrc;

/// Maximum size of a `.netrc` file in bytes: more than 10,000 entries.
const MAX_NETRC_BYTES: u64 = 1 << 20;

/// The source of passwords for URLs without one.
#[derive(Debug, Clone, Default)]
pub enum PasswordSource {
    /// The file named by `NETRC`, else `~/.netrc`.
    #[default]
    Discover,
    /// A file in the format of `.netrc`.
    File(PathBuf),
    /// No passwords.
    Nothing,
}

impl PasswordSource {
    /// Returns the file, and whether the user named it.
    fn file(&self) -> Option<(PathBuf, bool)> {
        let of_home = || Some(PathBuf::from(environment::variable("HOME")?).join(".netrc"));
        match self {
            Self::Discover => match environment::variable("NETRC") {
                Some(path) => Some((path.into(), true)),
                None => of_home().map(|path| (path, false)),
            },
            Self::File(path) => Some((path.clone(), true)),
            Self::Nothing => None,
        }
    }
}

/// The user of a URL, with or without a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    user: String,
    password: Option<String>,
}

impl Login {
    /// Returns whether there is a password.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Returns the user in `url`, if there is one.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let password = url.password().map(|password| decoded(password.expose()));
        Some(Self { user: decoded(url.user()?), password })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// The passwords of one client. The file is read on first use.
#[derive(Debug)]
pub(crate) struct Passwords {
    source: PasswordSource,
    netrc: OnceLock<Result<Netrc>>,
}

impl Passwords {
    /// Creates the passwords of a client, without reading a file.
    pub(crate) fn new(source: PasswordSource) -> Self {
        Self { source, netrc: OnceLock::new() }
    }

    /// Returns the value of `Authorization` for `host`: the password of `login`, else one of the file; `None` if there
    /// is none.
    ///
    /// # Errors
    /// `AuthenticationFailed` for a file that exists and cannot be used; `InvalidArgument` for a user name that Basic
    /// credentials cannot have.
    pub(crate) fn authorization(&self, host: &str, login: Option<&Login>) -> Result<Option<HeaderValue>> {
        if let Some(Login { user, password: Some(password) }) = login {
            return basic(user, password).map(Some);
        }
        let netrc = self.netrc.get_or_init(|| self.read()).as_ref().map_err(Clone::clone)?;
        let found = netrc.login(host, login.map(|login| login.user.as_str()));
        found.map(|(user, password)| basic(user, password)).transpose()
    }

    fn read(&self) -> Result<Netrc> {
        let Some((path, is_named)) = self.source.file() else { return Ok(Netrc::default()) };
        let unusable = |why: &str| {
            let message = format!("the passwords in {} cannot be used: {why}", path.display());
            Error::new(Fault::AuthenticationFailed, message)
        };
        match disk::read_regular(&path, MAX_NETRC_BYTES, RequiredOwner::Any) {
            Ok(text) => Netrc::parse(&String::from_utf8_lossy(&text)).map_err(|why| unusable(&why)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Netrc::default()),
            // The home directory may be that of another user, as after `su`.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_named => {
                tracing::warn!("no passwords are used: {}: {error}", path.display());
                Ok(Netrc::default())
            }
            Err(error) => Err(unusable(&error.to_string())),
        }
    }
}

/// Returns the Basic credentials of a user.
///
/// # Errors
/// `InvalidArgument` if the user name contains a colon, which separates it from the password.
pub(crate) fn basic(user: &str, password: &str) -> Result<HeaderValue> {
    if user.contains(':') {
        return Err(Error::new(Fault::InvalidArgument, "the user name for a password contains a colon"));
    }
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
    let mut value = value.map_err(|_| Error::new(Fault::Internal, "the password cannot be encoded"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(url: &str, source: PasswordSource) -> Result<Option<String>> {
        let url: Url = url.parse().unwrap();
        let found = Passwords::new(source).authorization(url.host(), Login::of(&url).as_ref())?;
        Ok(found.map(|value| {
            let encoded = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
            String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
        }))
    }

    #[test]
    fn the_password_of_a_url_comes_before_that_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("netrc");
        disk::write(&path, b"machine host login alice password of-alice\nmachine host login bob password of-bob\n")
            .unwrap();
        let source = || PasswordSource::File(path.clone());
        for (url, found) in [
            ("https://alice:p%40ss:w%C3%B6rd@host/", Some("alice:p@ss:wörd")),
            ("https://host/", Some("alice:of-alice")),
            ("https://bob@host/", Some("bob:of-bob")),
            ("https://carol@host/", None),
            ("https://other/", None),
        ] {
            assert_eq!(authorization(url, source()).unwrap().as_deref(), found, "{url}");
        }
        assert_eq!(authorization("https://a%3Ab:c@host/", source()).unwrap_err().fault(), Fault::InvalidArgument);
        assert_eq!(authorization("https://host/", PasswordSource::Nothing).unwrap(), None);
    }

    #[test]
    fn a_missing_file_has_no_passwords_and_an_unreadable_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("netrc");
        let find = || authorization("https://host/", PasswordSource::File(path.clone()));
        assert_eq!(find().unwrap(), None);
        let is_named = |error: &Error| error.to_string().contains(path.to_str().unwrap());
        for content in [&b"machine"[..], b"password hush", b"machine host hush", &[b' '; MAX_NETRC_BYTES as usize + 1]]
        {
            disk::write(&path, content).unwrap();
            let error = find().unwrap_err();
            assert!(error.fault() == Fault::AuthenticationFailed && is_named(&error), "{error}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
        disk::remove(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(is_named(&find().unwrap_err()));
    }
}
