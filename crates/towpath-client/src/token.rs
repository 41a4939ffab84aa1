//! Bearer token discovery by WLCG bearer token discovery 1.0: the variable `BEARER_TOKEN`, the file named by
//! `BEARER_TOKEN_FILE`, `$XDG_RUNTIME_DIR/bt_u<uid>`, `/tmp/bt_u<uid>`. The first existing source is used, even if it
//! holds no valid token. The two default files are used only if they belong to the user, because any user may create a
//! file in `/tmp`.
//!
//! Tokens are valid for an hour and are renewed in place, so [`Tokens`] repeats the lookup periodically.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_store::{
    Error, Fault, Result, Secret,
    sys::{
        clock::{self, Instant},
        disk::{self, RequiredOwner},
        environment,
    },
};

/// Maximum length of a token in bytes: issuers create tokens of 1 to 16 KiB, and no server accepts more than 64 KiB.
pub const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Time for which a found token is used before the lookup is repeated. Tokens are renewed minutes before they expire.
const KEPT: Duration = Duration::from_secs(60);

/// The source of the bearer token.
#[derive(Debug, Clone, Default)]
pub enum TokenSource {
    /// WLCG bearer token discovery.
    #[default]
    Discover,
    /// A file.
    File(PathBuf),
    /// The given token.
    Fixed(Secret),
    /// No token is sent, except the token of a call.
    Nothing,
}

impl TokenSource {
    /// Returns the current token; `None` if there is none.
    ///
    /// # Errors
    /// `AuthenticationFailed` for an explicitly named token file that cannot be read, and for text that is not a token.
    pub fn find(&self) -> Result<Option<Secret>> {
        match self {
            Self::Discover => discover(environment::text),
            Self::File(path) => read_file(path).and_then(|text| parse(&text, &path.display().to_string())),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::Nothing => Ok(None),
        }
    }
}

/// The reason why no credentials are sent to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithholdReason {
    /// There is a token, but the server was named without encryption: anyone could read the token, or impersonate the
    /// server.
    Unencrypted,
    /// There is a token, but the certificate of the server is not verified ([`crate::ClientOptions::insecure`]).
    Unverified,
    /// The caller is [anonymous](towpath_store::Caller::nobody).
    Nobody,
    /// No credentials were found.
    Missing,
}

/// Advice for a caller without credentials, where a server accepts tokens.
pub(crate) const NO_TOKEN: &str = "no bearer token was found: set BEARER_TOKEN_FILE";

/// Advice for a denied caller without a password, if the server accepts passwords only.
pub(crate) const NO_PASSWORD: &str = "no password was found: add the user and the password to ~/.netrc";

/// Returns whether the message of a towpath server says that no credentials would help, or over the XRootD protocol
/// only those of another protocol.
pub(crate) fn are_credentials_useless(message: &str) -> bool {
    ["accepts neither tokens nor passwords", "log in with a password over https://"]
        .iter()
        .any(|text| message.contains(text))
}

/// The token of one client, with periodic lookups.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: TokenSource,
    found: Mutex<Option<(Instant, Result<Option<Secret>>)>>,
}

impl Tokens {
    /// Creates the tokens of a client, without a lookup.
    pub(crate) fn new(source: TokenSource) -> Self {
        Self { source, found: Mutex::default() }
    }

    /// Returns the token found within the last minute, or looks it up now.
    ///
    /// # Errors
    /// As [`TokenSource::find`].
    pub(crate) fn current(&self) -> Result<Option<Secret>> {
        let now = clock::now();
        let mut found = self.found();
        match &*found {
            Some((when, token)) if now - *when < KEPT => token.clone(),
            _ => found.insert((now, self.source.find())).1.clone(),
        }
    }

    /// Returns whether tokens are looked up at all.
    pub(crate) fn are_used(&self) -> bool {
        !matches!(self.source, TokenSource::Nothing)
    }

    /// Drops a rejected token, so that the next request repeats the lookup.
    pub(crate) fn forget(&self) {
        *self.found() = None;
    }

    fn found(&self) -> MutexGuard<'_, Option<(Instant, Result<Option<Secret>>)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Discovers a token; `variable` returns the value of an environment variable that is not empty.
fn discover(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>> {
    if let Some(text) = variable("BEARER_TOKEN") {
        return parse(&text, "BEARER_TOKEN");
    }
    if let Some(path) = variable("BEARER_TOKEN_FILE") {
        return read_file(Path::new(&path)).and_then(|text| parse(&text, &path));
    }
    let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
    let directories = [variable("XDG_RUNTIME_DIR"), Some("/tmp".to_owned())];
    for path in directories.into_iter().flatten().map(|directory| Path::new(&directory).join(&name)) {
        let shown = path.display().to_string();
        match disk::read_regular(&path, MAX_TOKEN_BYTES, RequiredOwner::CurrentUser) {
            Ok(text) => return parse(&String::from_utf8_lossy(&text), &shown),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // With an error, a file planted by another user could block all work.
            Err(error) => tracing::warn!(path = shown, %error, "ignoring a bearer token file"),
        }
    }
    Ok(None)
}

fn read_file(path: &Path) -> Result<String> {
    let text = disk::read_regular(path, MAX_TOKEN_BYTES, RequiredOwner::Any)
        .map_err(|error| unusable(&path.display().to_string(), &error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the token in `text` without surrounding white space; `None` if `text` has nothing else.
fn parse(text: &str, origin: &str) -> Result<Option<Secret>> {
    let token = text.trim();
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() as u64 > MAX_TOKEN_BYTES {
        return Err(unusable(origin, "it is too long"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable(origin, "it has invalid characters"));
    }
    Ok(Some(Secret::new(token)))
}

fn unusable(origin: &str, why: &str) -> Error {
    Error::new(Fault::AuthenticationFailed, format!("the bearer token in {origin} cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Secret>> {
        let directory = tempfile::tempdir().unwrap();
        let runtime = directory.path().to_str().unwrap().to_owned();
        discover(|name| {
            let given = variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            given.or_else(|| (name == "XDG_RUNTIME_DIR").then(|| runtime.clone()))
        })
    }

    #[test]
    fn no_token_is_recommended_where_only_passwords_help() {
        assert!(are_credentials_useless("anonymous callers may not create this: log in with a password over https://"));
        assert!(!are_credentials_useless("anonymous callers may not create this: log in with a password"));
    }

    #[test]
    fn the_variable_comes_first_and_is_trimmed() {
        let token = found(&[("BEARER_TOKEN", " a.b.c\n"), ("BEARER_TOKEN_FILE", "/nonexistent")]).unwrap();
        assert_eq!(token.unwrap().expose(), "a.b.c");
    }

    #[test]
    fn a_named_file_must_be_readable() {
        assert_eq!(found(&[("BEARER_TOKEN_FILE", "/nonexistent")]).unwrap_err().fault(), Fault::AuthenticationFailed);
    }

    /// Returns the path of a discovered token in a runtime directory.
    fn place(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().join(format!("bt_u{}", rustix::process::geteuid().as_raw()))
    }

    fn put(path: &Path, token: &str) {
        disk::write(path, token.as_bytes()).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_file_in_the_runtime_directory_counts() {
        let directory = tempfile::tempdir().unwrap();
        put(&place(&directory), "from-file\n\n");
        let token = found(&[("XDG_RUNTIME_DIR", directory.path().to_str().unwrap())]).unwrap();
        assert_eq!(token.unwrap().expose(), "from-file");
    }

    #[test]
    fn what_others_may_have_put_there_does_not_count() {
        let spoil: [fn(&Path); 4] = [
            |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).unwrap(),
            |path| std::fs::create_dir(path).unwrap(),
            |path| {
                put(&path.with_extension("real"), "planted");
                std::os::unix::fs::symlink(path.with_extension("real"), path).unwrap();
            },
            |path| {
                put(path, "planted");
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o622)).unwrap();
            },
        ];
        for spoil in spoil {
            let directory = tempfile::tempdir().unwrap();
            spoil(&place(&directory));
            let token = found(&[("XDG_RUNTIME_DIR", directory.path().to_str().unwrap())]).unwrap();
            assert!(token.is_none_or(|token| token.expose() != "planted"));
        }
    }

    #[test]
    fn a_named_file_may_be_a_link_and_must_not_be_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        put(&directory.path().join("real"), "token");
        let (link, fifo) = (directory.path().join("link"), directory.path().join("fifo"));
        std::os::unix::fs::symlink("real", &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(TokenSource::File(link).find().unwrap().unwrap().expose(), "token");
        let error = TokenSource::File(fifo).find().unwrap_err();
        assert!(error.message().contains("not a regular file"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_looked_for_again_after_a_while_or_when_it_was_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let tokens = Tokens::new(TokenSource::File(path.clone()));
        let current = || tokens.current().unwrap().unwrap().expose().to_owned();
        put(&path, "first");
        assert_eq!(current(), "first");
        put(&path, "second");
        assert_eq!(current(), "first");
        tokio::time::advance(KEPT).await;
        assert_eq!(current(), "second");
        put(&path, "third");
        tokens.forget();
        assert_eq!(current(), "third");
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        let error = found(&[("BEARER_TOKEN", "top secret")]).unwrap_err();
        assert!(!error.to_string().contains("top"), "{error}");
        let long = "x".repeat(MAX_TOKEN_BYTES as usize + 1);
        assert_eq!(found(&[("BEARER_TOKEN", &long)]).unwrap_err().fault(), Fault::AuthenticationFailed);
        assert!(found(&[("BEARER_TOKEN", "")]).unwrap().is_none());
    }
}
