//! Converts errors of system calls to store errors.

use rustix::io::Errno;

use crate::{Error, Fault, Result};

/// Adds the attempted operation to the error of a failed system call.
pub(super) trait ErrnoContext<T> {
    /// Converts the error; `what` is the operation, such as "opening the file".
    fn context(self, what: &str) -> Result<T>;
}

impl<T> ErrnoContext<T> for rustix::io::Result<T> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|errno| error(errno, what))
    }
}

/// Returns the store error for `errno`.
pub(super) fn error(errno: Errno, what: &str) -> Error {
    Error::from_errno(errno.raw_os_error(), what)
}

/// Like [`error`], for a call whose paths may be on different file systems. Returns `Unsupported` then, so that the
/// caller can fall back.
pub(super) fn across_devices(errno: Errno, what: &str) -> Error {
    match errno {
        Errno::XDEV => Error::new(Fault::Unsupported, format!("{what}: the two are on different file systems")),
        other => error(other, what),
    }
}
