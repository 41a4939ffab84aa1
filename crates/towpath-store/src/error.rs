//! The error of every store: what happened, whose fault it is, on which path.

use std::{fmt, sync::Arc};

pub use towpath_proto::fault::{Fault, Kind};

use crate::StorePath;

/// The result of a store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The outcome of a removal: what has gone by itself is as good as removed.
///
/// # Errors
/// All but `NotFound`.
pub fn gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.fault() == Fault::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Whose fault an error is: the person who reads it wants to know where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The one who asked: a wrong path, a missing right, a wrong argument.
    Caller,
    /// The storage that was asked.
    Storage,
    /// What lies between.
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

/// An error of a store. It is cheap to clone, so that one failed fetch can fail many waiting readers.
#[derive(Clone, thiserror::Error)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    fault: Fault,
    blame: Blame,
    message: String,
    path: Option<StorePath>,
}

impl Error {
    /// An error of `fault` with what is known of it in words; the blame follows from the fault until [`Self::blamed_on`] says more.
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { fault, blame: usual_blame(fault), message: message.into(), path: None }))
    }

    /// The error of a failed system call on a local disk.
    pub fn from_errno(errno: i32, doing: &str) -> Self {
        let cause = std::io::Error::from_raw_os_error(errno);
        Self::new(Fault::from_errno(errno), format!("{doing}: {cause}"))
    }

    /// Names the path that the call was about, unless one is named already.
    #[must_use]
    pub fn at(self, path: &StorePath) -> Self {
        self.change(|inner| {
            inner.path.get_or_insert_with(|| path.clone());
        })
    }

    /// Says whose fault it is.
    #[must_use]
    pub fn blamed_on(self, blame: Blame) -> Self {
        self.change(|inner| inner.blame = blame)
    }

    /// Replaces the message; fault, blame and path stay.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        self.change(|inner| inner.message = message.into())
    }

    fn change(self, how: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        how(&mut inner);
        Self(Arc::new(inner))
    }

    /// What happened.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.0.fault.kind()
    }

    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// What is known of it, in words, without the path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The path it is about, where there is one.
    pub fn path(&self) -> Option<&StorePath> {
        self.0.path.as_ref()
    }
}

/// Whom to blame when the store that failed did not say.
fn usual_blame(fault: Fault) -> Blame {
    match fault.kind() {
        // Conflicts that the caller has no part in.
        Kind::Conflict if matches!(fault, Fault::NoSpace | Fault::QuotaExceeded | Fault::Changed) => Blame::Storage,
        Kind::NotFound | Kind::Denied | Kind::Invalid | Kind::Conflict => Blame::Caller,
        Kind::Corrupt => Blame::Storage,
        Kind::Unavailable => Blame::Storage,
        Kind::Internal => Blame::Towpath,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(f, "{path}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?}): {self}", self.0.fault, self.0.blame)
    }
}
