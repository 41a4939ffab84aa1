//! Descriptors: each connection and each open file is one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Takes as many as the system lets this process have, and says how many.
pub(crate) fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.current,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is");
            before
        }
    }
    .unwrap_or(u64::MAX)
}
