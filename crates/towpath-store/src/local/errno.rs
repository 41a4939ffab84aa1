//! From the kernel's answers to the errors of a store.

use rustix::io::Errno;

use crate::{Error, Fault, Result};

/// Adds the attempted operation to the error of a failed system call.
pub(super) trait Doing<T> {
    /// The store's error for a failed call, with `what` in words ("opening the file").
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|errno| error(errno, what))
    }
}

/// The store's error for `errno`.
pub(super) fn error(errno: Errno, what: &str) -> Error {
    Error::from_errno(errno.raw_os_error(), what)
}

/// As [`error`], for a call whose two paths may lie on different file systems: the caller can do it in another way.
pub(super) fn across_devices(errno: Errno, what: &str) -> Error {
    match errno {
        Errno::XDEV => Error::new(Fault::Unsupported, format!("{what}: the two lie on different file systems")),
        other => error(other, what),
    }
}
