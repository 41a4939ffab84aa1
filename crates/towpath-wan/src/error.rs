//! Errors of the emulator.

use std::io;

/// Error of starting the emulator or of processing a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Network namespaces and TUN devices require root. Nothing was created.
    #[error("a WAN emulator needs root: it makes network namespaces and TUN devices of its own; run it with sudo")]
    NeedsRoot,
    /// A system call failed, or the kernel lacks a feature.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// The attempted operation, as in "cannot …".
        doing: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A setting is out of bounds, or a host or link does not exist.
    #[error("{0}")]
    Invalid(String),
    /// The emulator has ended, or the thread of a host has panicked.
    #[error("the WAN emulator has ended")]
    Ended,
}

impl Error {
    /// Returns a function for `map_err` that wraps a kernel error.
    pub(crate) fn kernel<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Error::Kernel { doing: doing.into(), source: source.into() }
    }
}
