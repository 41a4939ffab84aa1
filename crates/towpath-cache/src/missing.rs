//! Paths that do not exist at the origin, remembered for a time, so that clients that look for them repeatedly do
//! not reach the origin. Only in memory.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clru::CLruCache;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{
    StorePath,
    sys::clock::{self, Instant},
};

use crate::target::Target;

/// Maximum number of paths, which take about 8 MB.
const MAX_PATHS: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Maximum time that a path is remembered. An origin may state a year by mistake, which users of the cache could not
/// correct.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// The first half of the SHA-256 of a path: its size does not depend on the path, and no two paths with the same key can
/// be found.
pub(crate) type PathKey = [u8; 16];

fn key_of(bytes: &[u8]) -> PathKey {
    let digest = Hasher::digest_of(Algorithm::Sha256, bytes);
    *digest.bytes().first_chunk().expect("a SHA-256 has 32 bytes")
}

/// Returns the key of a path.
pub(crate) fn path_key(path: &StorePath) -> PathKey {
    key_of(path.as_bytes())
}

/// Returns the key of a target; without a query, that of its path.
pub(crate) fn target_key(target: &Target) -> PathKey {
    key_of(&target.key_bytes())
}

/// Returns the keys of a path and of all directories above it.
pub(crate) fn path_keys(path: &StorePath) -> Vec<PathKey> {
    std::iter::successors(Some(path.clone()), StorePath::parent).map(|path| path_key(&path)).collect()
}

/// The missing paths, with the ends of their times. Those added last stay.
#[derive(Debug)]
pub(crate) struct MissingPaths(Mutex<CLruCache<PathKey, Instant>>);

impl Default for MissingPaths {
    fn default() -> Self {
        Self(Mutex::new(CLruCache::new(MAX_PATHS)))
    }
}

impl MissingPaths {
    fn paths(&self) -> MutexGuard<'_, CLruCache<PathKey, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a target is known to be missing.
    pub(crate) fn contains(&self, target: &Target) -> bool {
        let paths = self.paths();
        !paths.is_empty() && paths.peek(&target_key(target)).is_some_and(|until| *until > clock::now())
    }

    /// Remembers that a target is missing, for `time` from now on.
    pub(crate) fn insert(&self, target: &Target, time: Duration) {
        let key = target_key(target);
        self.paths().put(key, clock::now() + time.min(MAX_TIME));
    }

    /// Forgets paths.
    pub(crate) fn remove(&self, keys: &[PathKey]) {
        let mut paths = self.paths();
        for key in keys {
            paths.pop(key);
        }
    }

    /// Forgets all paths.
    pub(crate) fn clear(&self) {
        self.paths().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text.as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_is_missing_for_its_time_and_until_it_is_written() {
        let missing = MissingPaths::default();
        for text in ["/a", "/a/b", "/a/b/c", "/x"] {
            missing.insert(&target(text), Duration::from_secs(10));
        }
        missing.remove(&path_keys(&target("/a/b")));
        for (text, expected) in [("/a", false), ("/a/b", false), ("/a/b/c", true), ("/x", true), ("/y", false)] {
            assert_eq!(missing.contains(&target(text)), expected, "{text}");
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!missing.contains(&target("/x")));
        missing.insert(&target("/x"), Duration::MAX);
        tokio::time::advance(MAX_TIME - Duration::from_secs(1)).await;
        assert!(missing.contains(&target("/x")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!missing.contains(&target("/x")));
    }

    #[test]
    fn the_number_of_paths_is_bounded_and_the_latest_stay() {
        let missing = MissingPaths::default();
        for index in 0..MAX_PATHS.get() + 1000 {
            missing.insert(&target(&format!("/{index}")), Duration::from_secs(60));
        }
        assert_eq!(missing.paths().len(), MAX_PATHS.get());
        assert!(missing.contains(&target("/1000")) && !missing.contains(&target("/999")));
    }
}
