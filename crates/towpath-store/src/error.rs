//! The error type of all stores: the fault, the party to blame, and the path.

use std::{fmt, sync::Arc, time::Duration};

use towpath_proto::fault::{Exit, Retry};
pub use towpath_proto::fault::{Fault, Kind};

use crate::{Freshness, StorePath};

/// Result of a store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Treats `NotFound` as success, for removals.
///
/// # Errors
/// All errors except `NotFound`.
pub fn gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.fault() == Fault::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// The party that has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The caller: a wrong path, a missing permission, an invalid argument.
    Caller,
    /// The storage.
    Storage,
    /// The network between them.
    Network,
    /// towpath itself.
    Towpath,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blame::Caller => "the request",
            Blame::Storage => "the storage",
            Blame::Network => "the network",
            Blame::Towpath => "towpath",
        })
    }
}

/// An error of a store. Cheap to clone, because one failed fetch may have many waiting readers.
#[derive(Clone, thiserror::Error)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    fault: Fault,
    blame: Blame,
    message: String,
    path: Option<StorePath>,
    /// URL of the remote store up to the path.
    origin: Option<String>,
    code: Option<u32>,
    attempts: Option<Attempts>,
    reason: Option<&'static str>,
    /// Overrides the fault's row of the error table.
    is_retryable: Option<bool>,
    /// Whether an option or an environment variable is invalid, not the request.
    concerns_setting: bool,
    freshness: Option<Arc<Freshness>>,
}

/// Failed attempts of an operation.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    count: u32,
    elapsed: Duration,
}

impl Error {
    /// Creates an error of `fault` with a message. The blame follows from the fault unless [`Self::blamed_on`] sets
    /// it.
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            fault,
            blame: usual_blame(fault),
            message: message.into(),
            path: None,
            origin: None,
            code: None,
            attempts: None,
            reason: None,
            is_retryable: None,
            concerns_setting: false,
            freshness: None,
        }))
    }

    /// Creates the error of an invalid option or environment variable, which `message` names. It is found by the first
    /// request that needs the setting, but concerns none of the stores.
    pub fn invalid_setting(message: impl Into<String>) -> Self {
        Self::new(Fault::InvalidArgument, message).change(|inner| inner.concerns_setting = true)
    }

    /// Creates the error of a failed system call on a local disk.
    pub fn from_errno(errno: i32, doing: &str) -> Self {
        let cause = os_message(&std::io::Error::from_raw_os_error(errno));
        Self::new(Fault::from_errno(errno), format!("{doing}: {cause}"))
    }

    /// Sets the path of the call, unless a path is set already. A path that a server put in front of its message is
    /// removed.
    #[must_use]
    pub fn at(self, path: &StorePath) -> Self {
        self.change(|inner| {
            if inner.path.is_none() {
                if let Some(message) = inner.message.strip_prefix(&format!("{path}: ")) {
                    inner.message = message.to_owned();
                }
                inner.path = Some(path.clone());
            }
        })
    }

    /// Replaces the path, which was that of the same object in another namespace.
    #[must_use]
    pub fn moved_to(self, path: StorePath) -> Self {
        self.change(|inner| inner.path = Some(path))
    }

    /// Sets the remote store: `origin` is its URL up to the path, such as `root://host:1094/`. The last call counts, so
    /// that a command can name the store as its user did.
    #[must_use]
    pub fn in_store(self, origin: impl Into<String>) -> Self {
        self.change(|inner| inner.origin = Some(origin.into()))
    }

    /// Records the protocol's error code sent by a server: an HTTP status, or an XRootD error code.
    #[must_use]
    pub fn with_code(self, code: u32) -> Self {
        self.change(|inner| inner.code = Some(code))
    }

    /// Records that this error ended a series of `count` attempts, which took `elapsed`; single attempts are not
    /// recorded. The last call counts, because the outermost series includes the others.
    #[must_use]
    pub fn after_attempts(self, count: u32, elapsed: Duration) -> Self {
        if count < 2 { self } else { self.change(|inner| inner.attempts = Some(Attempts { count, elapsed })) }
    }

    /// Sets the name of the cause, more precise than the fault; for metrics and logs.
    #[must_use]
    pub fn with_reason(self, reason: &'static str) -> Self {
        self.change(|inner| inner.reason = Some(reason))
    }

    /// Sets whether the same request may succeed later, if the fault alone does not decide that: damaged data may
    /// arrive intact the next time, but not data that differ from the digest that the user expects.
    #[must_use]
    pub fn with_retryable(self, is_retryable: bool) -> Self {
        self.change(|inner| inner.is_retryable = Some(is_retryable))
    }

    /// Sets how long the origin lets caches use this error in place of another request.
    #[must_use]
    pub fn with_freshness(self, freshness: Option<Freshness>) -> Self {
        if freshness.is_none() { self } else { self.change(|inner| inner.freshness = freshness.map(Arc::new)) }
    }

    /// Sets the party to blame.
    #[must_use]
    pub fn blamed_on(self, blame: Blame) -> Self {
        self.change(|inner| inner.blame = blame)
    }

    /// Replaces the message and keeps fault, blame and path.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        self.change(|inner| inner.message = message.into())
    }

    fn change(self, how: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        how(&mut inner);
        Self(Arc::new(inner))
    }

    /// Returns the kind of failure.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// Returns the exit code of a process whose main task failed with this error: that of a wrong command line for
    /// [`Self::invalid_setting`], and else that of the fault.
    pub fn exit_code(&self) -> u8 {
        if self.0.concerns_setting { Exit::Usage as u8 } else { self.0.fault.exit_code() }
    }

    /// Returns what the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.0.fault.kind()
    }

    /// Returns the party that has to act.
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// Returns the message without the path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the error code sent by a server: an HTTP status, or an XRootD error code.
    pub fn code(&self) -> Option<u32> {
        self.0.code
    }

    /// Returns the URL or path of the object for messages, as far as it is known.
    pub fn object(&self) -> Option<String> {
        match (&self.0.origin, &self.0.path) {
            (Some(origin), Some(path)) => Some(format!("{origin}{path}")),
            (Some(origin), None) => Some(origin.clone()),
            (None, path) => path.as_ref().map(ToString::to_string),
        }
    }

    /// Returns the path of the failed call, if there is one.
    pub fn path(&self) -> Option<&StorePath> {
        self.0.path.as_ref()
    }

    /// Returns how long the origin lets caches use this error; `None` if it states nothing.
    pub fn freshness(&self) -> Option<&Freshness> {
        self.0.freshness.as_deref()
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable.unwrap_or(self.0.fault.retry() != Retry::No)
    }

    /// Returns the name of the cause, if one was set.
    pub fn reason(&self) -> Option<&'static str> {
        self.0.reason
    }

    /// Returns the error in one line for people.
    pub fn describe(&self) -> Description<'_> {
        Description(self)
    }
}

/// An error in one line for people: `OBJECT: WHAT HAPPENED (CODE): DETAILS; tried 6 times in 12 s; at fault: WHO; a
/// retry may succeed`. The caller is not named as the party at fault.
#[derive(Debug)]
pub struct Description<'a>(&'a Error);

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        let phrase = error.fault().phrase();
        let is_of_object = |message: &&str| message.starts_with(phrase);
        let message = error.message().strip_prefix("it ").filter(is_of_object).unwrap_or(error.message());
        if let Some(object) = error.object() {
            write!(f, "{object}: ")?;
        }
        let code = error.code().map(|code| format!(" ({code})")).unwrap_or_default();
        // `opening: No such file or directory` and `it is a directory` say no more than the phrase.
        let cause = message.rsplit_once(": ").map_or(message, |(_, cause)| cause);
        let is_system_message = || {
            let system_error = std::io::Error::from_raw_os_error(error.fault().errno());
            let is_conclusive = matches!(error.kind(), Kind::NotFound | Kind::Conflict);
            (is_conclusive || error.fault() == Fault::NotDirectory) && cause == os_message(&system_error)
        };
        let is_phrase = cause.trim_start_matches("it ").eq_ignore_ascii_case(phrase);
        let is_redundant = error.path().is_some() && (is_phrase || is_system_message());
        match error.fault() {
            _ if is_redundant => write!(f, "{phrase}{code}")?,
            // Such as the phrase and advice.
            _ if message.starts_with(phrase) => write!(f, "{phrase}{code}{}", &message[phrase.len()..])?,
            // The message says which argument and why.
            Fault::InvalidArgument => write!(f, "{message}{code}")?,
            _ => write!(f, "{phrase}{code}: {message}")?,
        }
        if let Some(attempts) = error.0.attempts {
            write!(f, "; {attempts}")?;
        }
        if error.blame() != Blame::Caller {
            write!(f, "; at fault: {}", error.blame())?;
        }
        if error.is_retryable() {
            f.write_str("; a retry may succeed")?;
        }
        Ok(())
    }
}

/// Returns the message of an error of the operating system without its number.
pub fn os_message(error: &std::io::Error) -> String {
    let message = error.to_string();
    match message.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => message,
    }
}

/// Returns the party to blame if the failed store did not report one.
fn usual_blame(fault: Fault) -> Blame {
    match fault.kind() {
        // Conflicts that the caller has not caused.
        Kind::Conflict if matches!(fault, Fault::NoSpace | Fault::QuotaExceeded | Fault::Changed) => Blame::Storage,
        Kind::NotFound | Kind::Denied | Kind::Invalid | Kind::Conflict => Blame::Caller,
        Kind::Corrupt => Blame::Storage,
        Kind::Unavailable => Blame::Storage,
        Kind::Internal => Blame::Towpath,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = self.object() {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(code) = self.0.code {
            write!(f, " ({code})")?;
        }
        self.0.attempts.map_or(Ok(()), |attempts| write!(f, " ({attempts})"))
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tried {} times", self.count)?;
        match self.elapsed.as_secs() {
            0 => Ok(()),
            seconds => write!(f, " in {seconds} s"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?}): {self}", self.0.fault, self.0.blame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phrase_of_a_fault_is_not_repeated() {
        let path = StorePath::parse(b"/a").unwrap();
        let error = Error::new(Fault::Unavailable, Fault::Unavailable.phrase()).with_code(503).at(&path);
        let end = "; at fault: the storage; a retry may succeed";
        assert_eq!(error.describe().to_string(), format!("/a: the service cannot be reached (503){end}"));
        let advised = error.clone().with_message(format!("{}; use --wait", error.message()));
        assert_eq!(advised.describe().to_string(), format!("/a: the service cannot be reached (503); use --wait{end}"));
        for (fault, message, described) in [
            (Fault::IsDirectory, "it is a directory: use -r to copy it", "/a: is a directory: use -r to copy it"),
            (Fault::NotDirectory, "opening: Not a directory", "/a: is not a directory"),
            (Fault::NotEmpty, "removing: Directory not empty", "/a: the directory is not empty"),
            (Fault::AlreadyExists, "creating: File exists", "/a: exists already"),
            (Fault::Io, "reading: Input/output error", "/a: the storage failed: reading: Input/output error"),
        ] {
            let text = Error::new(fault, message).at(&path).describe().to_string();
            assert!(text.starts_with(described), "{text}");
            assert!(fault == Fault::Io || text == described, "{text}");
        }
    }

    #[test]
    fn an_error_reports_the_attempts_of_its_outermost_series() {
        let error = Error::new(Fault::Unavailable, "connection refused").with_code(503);
        let once = error.clone().after_attempts(1, Duration::from_secs(5));
        assert_eq!(once.to_string(), "connection refused (503)");
        let quick = error.after_attempts(6, Duration::from_millis(999));
        assert_eq!(quick.to_string(), "connection refused (503) (tried 6 times)");
        let slow = quick.after_attempts(7, Duration::from_secs(63)).at(&StorePath::parse(b"/a").unwrap());
        assert_eq!(slow.to_string(), "/a: connection refused (503) (tried 7 times in 63 s)");
        let described = slow.describe().to_string();
        assert!(described.contains("connection refused; tried 7 times in 63 s; at fault: "), "{described}");
    }
}
