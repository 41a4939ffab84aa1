//! The limit of open file descriptors: each connection and each open file needs one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process to the permitted maximum, and returns the limit.
pub(crate) fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.current,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            before
        }
    }
    .unwrap_or(u64::MAX)
}
