//! How the emulator fails.

use std::io;

/// Why the emulator could not start, or could not process a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces and TUN devices are for root alone. Nothing was made.
    #[error("a WAN emulator needs root: it makes network namespaces and TUN devices of its own; run it with sudo")]
    NeedsRoot,
    /// The kernel refused, or lacks something.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// The attempted operation, as in "cannot …".
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A setting out of its bounds, or a host or link that is not there.
    #[error("{0}")]
    Invalid(String),
    /// The emulator has ended, or the thread of a host has, because its work panicked.
    #[error("the WAN emulator has ended")]
    Ended,
}

impl Error {
    /// For `map_err`: what the kernel refused.
    pub(crate) fn kernel<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Error::Kernel { doing: doing.into(), source: source.into() }
    }
}
