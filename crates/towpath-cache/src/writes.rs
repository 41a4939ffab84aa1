//! Writes through the cache. A version that the origin reported before a write to its path has ended is not remembered,
//! so that no later open uses it.
//!
//! A write first forgets the version of its path, and none is remembered until it has ended. So a crash at any time
//! leaves no older version.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_store::{
    Kind, Result, StorePath,
    sys::clock::{self, Instant},
};

use crate::missing::{PathKey, path_key, path_keys};

/// Maximum number of ended writes that are kept. One more, and nothing requested before it is remembered.
const MAX_ENDED: usize = 10_000;
/// Time after a write without an outcome, cancelled or failed, during which it may still take effect.
const UNCERTAIN: Duration = Duration::from_secs(60);

/// The writes through a cache.
#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of writes in progress, by path.
    begun: HashMap<PathKey, u32>,
    /// Number of writes in progress that concern any path.
    all_begun: u32,
    /// Ends of writes.
    ended: HashMap<PathKey, Instant>,
    /// End of the last write that concerns any path.
    all_ended: Option<Instant>,
}

/// A write in progress. Dropped without [`Self::complete`], it may take effect later.
#[derive(Debug)]
pub(crate) struct Write {
    writes: Arc<Writes>,
    /// Keys of the paths; `None` for any path.
    pub(crate) keys: Option<Vec<PathKey>>,
    is_complete: bool,
}

impl Writes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a write to `paths`, which may also create the directories above them; with `None` to any path.
    pub(crate) fn begin(self: &Arc<Self>, paths: Option<&[&StorePath]>) -> Write {
        let keys = paths.map(|paths| paths.iter().flat_map(|path| path_keys(path)).collect::<Vec<_>>());
        let mut state = self.state();
        match &keys {
            Some(keys) => keys.iter().for_each(|key| *state.begun.entry(*key).or_default() += 1),
            None => state.all_begun += 1,
        }
        Write { writes: Arc::clone(self), keys, is_complete: false }
    }

    /// Returns whether no write has changed `path` since a request to the origin at `requested`.
    pub(crate) fn is_current(&self, path: &StorePath, requested: Instant) -> bool {
        let state = self.state();
        let is_after = |ended: Option<&Instant>| ended.is_none_or(|ended| *ended < requested);
        if state.all_begun > 0 || !is_after(state.all_ended.as_ref()) {
            return false;
        }
        if state.begun.is_empty() && state.ended.is_empty() {
            return true;
        }
        let key = path_key(path);
        !state.begun.contains_key(&key) && is_after(state.ended.get(&key))
    }
}

impl Write {
    /// Ends the write: it has taken effect, or will never do.
    pub(crate) fn complete(mut self) {
        self.is_complete = true;
    }

    /// Ends the write with the outcome of a request. If the origin did not respond, it may still take effect.
    pub(crate) fn end<T>(self, outcome: Result<T>) -> Result<T> {
        if !matches!(&outcome, Err(error) if error.kind() == Kind::Unavailable) {
            self.complete();
        }
        outcome
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let ended = clock::now() + if self.is_complete { Duration::ZERO } else { UNCERTAIN };
        let mut state = self.writes.state();
        let State { begun, all_begun, ended: ends, all_ended } = &mut *state;
        let Some(keys) = &self.keys else {
            *all_begun -= 1;
            *all_ended = (*all_ended).max(Some(ended));
            return;
        };
        for key in keys {
            if let Some(count) = begun.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    begun.remove(key);
                }
            }
            let last = ends.entry(*key).or_insert(ended);
            *last = (*last).max(ended);
        }
        if ends.len() > MAX_ENDED {
            *all_ended = (*all_ended).max(mem::take(ends).into_values().max());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_was_requested_after_a_write_is_current() {
        let writes = Arc::new(Writes::default());
        let step = || tokio::time::advance(Duration::from_secs(1));
        let before = clock::now();
        let write = writes.begin(Some(&[&path("/a/f")]));
        for (text, expected) in [("/a/f", false), ("/a", false), ("/a/g", true), ("/b", true)] {
            assert_eq!(writes.is_current(&path(text), clock::now()), expected, "{text}");
        }
        step().await;
        let during = clock::now();
        let second = writes.begin(Some(&[&path("/a/f")]));
        write.complete();
        assert!(!writes.is_current(&path("/a/f"), clock::now()), "another write is in progress");
        second.complete();
        step().await;
        for (requested, expected) in [(before, false), (during, false), (clock::now(), true)] {
            assert_eq!(writes.is_current(&path("/a/f"), requested), expected);
        }
        drop(writes.begin(None));
        step().await;
        assert!(!writes.is_current(&path("/b"), clock::now()), "it may still take effect");
        tokio::time::advance(UNCERTAIN).await;
        assert!(writes.is_current(&path("/b"), clock::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_ended_writes_is_bounded() {
        let writes = Arc::new(Writes::default());
        let before = clock::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        for index in 0..=MAX_ENDED {
            writes.begin(Some(&[&path(&format!("/{index}"))])).complete();
        }
        assert!(writes.state().ended.len() <= MAX_ENDED);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!writes.is_current(&path("/0"), before) && writes.is_current(&path("/0"), clock::now()));
    }
}
