//! The password file: one line `NAME:sha-256$HEX` per user, where HEX is the SHA-256 of `NAME:REALM:PASSWORD`. Empty
//! lines and lines that begin with `#` are ignored.
//!
//! Anyone who can read the file can log in as any of its users by Digest, so only its owner may have access. A login
//! checks the file for changes at most once per [`CHECK_INTERVAL`]. A file without users is rejected: it may be half
//! written, and would lock out everyone.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_store::{
    Secret,
    sys::{
        clock::{self, Instant},
        disk,
    },
};

use super::LoginError;
use crate::file_stamp::FileStamp;

/// Maximum size of the file, in bytes, and maximum number of lines.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_LINES: usize = 10_000;

/// Minimum time between two checks of the file for changes.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Hash that a password is compared with if the user does not exist, so that the response time is the same.
const UNKNOWN_USER_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The password file and its parsed content.
#[derive(Debug)]
pub(super) struct PasswordFile {
    path: PathBuf,
    loaded: Mutex<LoadedUsers>,
}

#[derive(Debug)]
struct LoadedUsers {
    users: Arc<Users>,
    stamp: FileStamp,
    checked: Instant,
    /// Why the current file was rejected; kept so that each error is logged once.
    last_error: Option<FileError>,
}

/// Users by name, each with the hash of the password in lowercase.
#[derive(Debug)]
pub(super) struct Users(HashMap<Arc<str>, Secret>);

/// Why a file was rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0}")]
    Unreadable(String),
    #[error("it is not a regular file")]
    Kind,
    #[error("users other than its owner have access: chmod 600")]
    Public,
    #[error("it is not UTF-8")]
    Text,
    #[error("it has more than {MAX_LINES} lines")]
    TooLong,
    #[error("line {0}: it is not NAME:sha-256$HEX, with 64 hexadecimal digits")]
    Line(usize),
    #[error("line {0}: duplicate name")]
    Twice(usize),
    #[error("it has no users: add one in a new file and rename that over it")]
    Empty,
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl Users {
    /// Returns the user of that name if the hash of its password `fits`.
    pub(super) fn find(&self, name: &str, fits: impl FnOnce(&str) -> bool) -> Result<Arc<str>, LoginError> {
        let known = self.0.get_key_value(name);
        let is_right = fits(known.map_or(UNKNOWN_USER_HASH, |(_, kept)| kept.expose()));
        known.filter(|_| is_right).map(|(name, _)| Arc::clone(name)).ok_or(LoginError::Wrong)
    }

    fn parse(text: &str) -> Result<Self, FileError> {
        let mut users: HashMap<Arc<str>, Secret> = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if number > MAX_LINES {
                return Err(FileError::TooLong);
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, kept) = user(line).ok_or(FileError::Line(number))?;
            match users.entry(Arc::from(name)) {
                Entry::Occupied(_) => return Err(FileError::Twice(number)),
                Entry::Vacant(entry) => entry.insert(kept),
            };
        }
        if users.is_empty() { Err(FileError::Empty) } else { Ok(Self(users)) }
    }
}

fn user(line: &str) -> Option<(&str, Secret)> {
    let (name, kept) = line.split_once(':')?;
    let hex = kept.strip_prefix("sha-256$")?;
    let is_name = !name.is_empty() && !name.chars().any(char::is_control);
    let is_hash = hex.len() == UNKNOWN_USER_HASH.len() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_name && is_hash).then(|| (name, Secret::new(hex.to_ascii_lowercase())))
}

/// Reads the file at `path` unless it is the `known` version.
fn read(path: &Path, known: Option<&FileStamp>) -> Result<Option<(Users, FileStamp)>, FileError> {
    let file = disk::open(path)?;
    let metadata = file.metadata()?;
    let stamp = FileStamp::of(&metadata);
    if !metadata.is_file() {
        return Err(FileError::Kind);
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(FileError::Public);
    }
    if known == Some(&stamp) {
        return Ok(None);
    }
    let text = String::from_utf8(disk::read_bounded(file, MAX_FILE_BYTES)?).map_err(|_| FileError::Text)?;
    Ok(Some((Users::parse(&text)?, stamp)))
}

impl PasswordFile {
    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens and reads the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let checked = clock::now();
        let (users, stamp) = read(path, None)?.ok_or(FileError::Kind)?;
        let loaded = LoadedUsers { users: Arc::new(users), stamp, checked, last_error: None };
        Ok(Self { path: path.to_owned(), loaded: Mutex::new(loaded) })
    }

    /// Returns the users in the file, at most [`CHECK_INTERVAL`] old.
    pub(super) async fn users(self: &Arc<Self>) -> Arc<Users> {
        if self.is_due() {
            let password_file = Arc::clone(self);
            // If the task is cancelled at process exit, the previous users stay valid.
            let _ = tokio::task::spawn_blocking(move || password_file.reload()).await;
        }
        Arc::clone(&self.loaded().users)
    }

    /// Whether the file must be checked now. Only one caller gets `true`; the others use the current users meanwhile.
    fn is_due(&self) -> bool {
        let now = clock::now();
        let mut loaded = self.loaded();
        let is_due = now.saturating_duration_since(loaded.checked) >= CHECK_INTERVAL;
        if is_due {
            loaded.checked = now;
        }
        is_due
    }

    /// Loads the current file. If it is invalid, logs the error and keeps the previous users.
    fn reload(&self) {
        // Reads outside the lock: only one caller gets here, and the file system may be slow.
        let known = self.loaded().stamp;
        let found = read(&self.path, Some(&known));
        let mut loaded = self.loaded();
        match found {
            Ok(None) => loaded.last_error = None,
            Ok(Some((users, stamp))) => {
                tracing::info!("{}: reloaded the passwords", self.path.display());
                *loaded = LoadedUsers { users: Arc::new(users), stamp, checked: loaded.checked, last_error: None };
            }
            Err(last_error) if loaded.last_error.as_ref() != Some(&last_error) => {
                tracing::error!("{}: {last_error}; keeping the previous passwords", self.path.display());
                loaded.last_error = Some(last_error);
            }
            Err(_) => {}
        }
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedUsers> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    const HEX: &str = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

    #[test]
    fn a_line_for_each_user() {
        let text = format!("# who\n\nalice:sha-256${HEX}\r\nJäsøn Doe:sha-256${HEX}\n");
        let users = Users::parse(&text).unwrap();
        for (name, outcome) in
            [("alice", Ok("alice".into())), ("Jäsøn Doe", Ok("Jäsøn Doe".into())), ("bob", Err(LoginError::Wrong))]
        {
            assert_eq!(
                users.find(name, |kept| kept == HEX.to_lowercase() || kept == UNKNOWN_USER_HASH),
                outcome,
                "{name}"
            );
        }
        assert_eq!(users.find("alice", |_| false), Err(LoginError::Wrong));
        assert!(!format!("{users:?}").contains("0123"), "hashes are not printed");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_the_hash() {
        for (line, error) in [
            (format!("bob:sha-256${}", &HEX[1..]), FileError::Line(2)),
            (format!("bob:sha-256${HEX}0"), FileError::Line(2)),
            (format!("bob:sha-256$g{}", &HEX[1..]), FileError::Line(2)),
            (format!("bob:{HEX}"), FileError::Line(2)),
            (format!(":sha-256${HEX}"), FileError::Line(2)),
            (format!("b\tb:sha-256${HEX}"), FileError::Line(2)),
            (format!("bob:realm:sha-256${HEX}"), FileError::Line(2)),
            ("bob".into(), FileError::Line(2)),
            (format!("alice:sha-256${HEX}"), FileError::Twice(2)),
        ] {
            let found = Users::parse(&format!("alice:sha-256${HEX}\n{line}\n")).unwrap_err();
            assert!(!found.to_string().contains("0123"), "{found}");
            assert_eq!(found, error, "{line}");
        }
        assert_eq!(Users::parse(&"\n".repeat(MAX_LINES + 1)).unwrap_err(), FileError::TooLong);
        assert!(Users::parse(&format!("{}alice:sha-256${HEX}", "\n".repeat(MAX_LINES - 1))).is_ok());
        for text in ["", "\n", "# alice\n"] {
            assert_eq!(Users::parse(text).unwrap_err(), FileError::Empty, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_and_what_was_known_holds() {
        let directory = tempfile::tempdir().unwrap();
        let (path, next) = (directory.path().join("passwords"), directory.path().join("next"));
        let put = |bytes: &[u8], mode| {
            disk::write(&next, bytes).unwrap();
            fs::set_permissions(&next, Permissions::from_mode(mode)).unwrap();
            disk::rename(&next, &path).unwrap();
        };
        let line = |name: &str| format!("{name}:sha-256${HEX}\n");
        assert!(matches!(PasswordFile::open(&path), Err(FileError::Unreadable(_))));
        assert_eq!(PasswordFile::open(directory.path()).unwrap_err(), FileError::Kind);
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610] {
            put(line("alice").as_bytes(), mode);
            assert_eq!(PasswordFile::open(&path).unwrap_err(), FileError::Public, "{mode:o}");
        }
        put(line("alice").as_bytes(), 0o400);
        let password_file = PasswordFile::open(&path).unwrap();
        let knows = |name: &str| password_file.loaded().users.find(name, |_| true).is_ok();
        let last_error = || password_file.loaded().last_error.as_ref().map(ToString::to_string);
        let long = vec![b'\n'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        for bytes in [&b"\xff"[..], b"bob", &long] {
            put(bytes, 0o600);
            password_file.reload();
            assert!(knows("alice") && last_error().is_some());
        }
        disk::write(&path, b"").unwrap();
        password_file.reload();
        assert!(knows("alice"), "it is emptied in its place, to be written anew");
        assert_eq!(last_error(), Some(FileError::Empty.to_string()));
        assert_eq!(PasswordFile::open(&path).unwrap_err(), FileError::Empty);
        put(line("bob").as_bytes(), 0o600);
        password_file.reload();
        assert!(knows("bob") && !knows("alice") && last_error().is_none());
        password_file.reload();
        assert!(knows("bob"));
        disk::remove(&path).unwrap();
        password_file.reload();
        assert!(knows("bob") && last_error().is_some());
    }
}
