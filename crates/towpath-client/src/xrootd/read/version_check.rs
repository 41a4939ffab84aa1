//! Schedules the checks that an open file is still the version that was opened.
//!
//! Read requests of the protocol do not name the version, so a `stat` of the handle periodically accompanies a read in
//! the same flight. Times have whole seconds, so checks more frequent than [`INTERVAL`] would not detect more.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use towpath_store::sys::clock::Instant;

/// Validity of the last check.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last known state of a file, and its time.
#[derive(Debug, Default)]
pub(super) struct VersionCheck(Mutex<VersionState>);

#[derive(Debug, Default)]
struct VersionState {
    /// Time of the last check; `None` before the file has been opened.
    last: Option<Instant>,
    changed: bool,
}

impl VersionCheck {
    fn with<T>(&self, act: impl FnOnce(&mut VersionState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that the file has been opened and its version is known; only the first call has an effect.
    pub(super) fn start(&self, now: Instant) {
        self.with(|seen| {
            seen.last.get_or_insert(now);
        });
    }

    /// Records that the file was found to be another version.
    pub(super) fn changed(&self) {
        self.with(|seen| seen.changed = true);
    }

    /// Returns whether the file has ever been found to be another version.
    pub(super) fn has_changed(&self) -> bool {
        self.with(|seen| seen.changed)
    }

    /// Returns whether a check is due; only one caller gets true per interval.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.with(|seen| match seen.last {
            Some(last) if now - last >= INTERVAL => {
                seen.last = Some(now);
                true
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::clock;

    use super::*;

    #[test]
    fn one_looks_once_an_interval() {
        let (version_check, start) = (VersionCheck::default(), clock::now());
        assert!(!version_check.is_due(start), "it has not been opened");
        version_check.start(start);
        assert!(!version_check.is_due(start + INTERVAL / 2));
        assert!(version_check.is_due(start + INTERVAL));
        assert!(!version_check.is_due(start + INTERVAL), "somebody else looks");
        assert!(version_check.is_due(start + INTERVAL * 2));
    }
}
