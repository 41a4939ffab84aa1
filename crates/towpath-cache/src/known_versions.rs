//! The known versions of the paths used last, in memory: an open under a rule then needs no system call and no other
//! thread. The files of [`KnownVersion`] have all of them, also after a restart. That a path has none is remembered too:
//! only this process changes the files.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clru::CLruCache;
use towpath_store::{Result, sys::clock};

use crate::{
    disk::CacheDisk,
    names::{self, KnownVersion, NameKey, key_of},
    target::Target,
    version::Version,
};

/// Maximum number of versions in memory. With paths of 100 bytes they take about 30 MB.
const MAX_VERSIONS: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Known versions by path. What memory has is at least as new as the file on the disk.
#[derive(Debug)]
pub(crate) struct KnownVersions {
    state: Mutex<State>,
    /// Held while a file is written, so that disk and memory get versions in the same order.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// `None` is a path without a known version.
    recent: CLruCache<NameKey, Option<Arc<KnownVersion>>>,
    /// Number of changes, so that a version read from the disk before a change is not added after it.
    changes: u64,
}

impl Default for KnownVersions {
    fn default() -> Self {
        let state = State { recent: CLruCache::new(MAX_VERSIONS), changes: 0 };
        Self { state: Mutex::new(state), writing: Mutex::default() }
    }
}

impl KnownVersions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the known version of a path at an origin, or that there is none, if that is in memory.
    #[expect(clippy::option_option, reason = "what is not in memory is not the same as what is not known")]
    pub(crate) fn get(&self, origin: &str, target: &Target) -> Option<Option<Arc<KnownVersion>>> {
        let key = key_of(origin, target);
        self.state().recent.get(&key).cloned()
    }

    /// Returns the known version of a path at an origin from memory, or from the disk, and keeps it in memory. May wait for
    /// the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn read(&self, disk: &CacheDisk, origin: &str, target: &Target) -> Result<Option<Arc<KnownVersion>>> {
        let changes = self.state().changes;
        if let Some(known) = self.get(origin, target) {
            return Ok(known);
        }
        let known = KnownVersion::read(disk, origin, target)?.map(Arc::new);
        let key = key_of(origin, target);
        let mut state = self.state();
        // A version that the origin reported meanwhile is newer.
        if state.changes == changes {
            state.recent.put(key, known.clone());
        }
        Ok(known)
    }

    /// Replaces the known version of its path in memory, unless that was requested later.
    pub(crate) fn insert(&self, known: KnownVersion) {
        let key = key_of(&known.version.origin, &known.version.target);
        let mut state = self.state();
        let later = state.recent.get(&key).and_then(Option::as_ref).is_some_and(|found| is_later(found, &known));
        if !later {
            state.changes += 1;
            state.recent.put(key, Some(Arc::new(known)));
        }
    }

    /// Replaces the known version of its path on the disk, then in memory, also if the disk fails; unless the known one
    /// was requested later. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn write(&self, disk: &CacheDisk, known: KnownVersion) -> Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let later = self.get(&known.version.origin, &known.version.target).flatten();
        if later.is_some_and(|later| is_later(&later, &known)) {
            return Ok(());
        }
        let written = known.write(disk);
        self.insert(known);
        written
    }

    /// Forgets the path of a version, unless a different version is known. May wait for the disk.
    pub(crate) fn forget_version(&self, disk: &CacheDisk, version: &Version) {
        let known = self.read(disk, &version.origin, &version.target);
        if known.is_ok_and(|known| known.is_none_or(|known| known.version == *version)) {
            self.forget(disk, &version.origin, &version.target);
        }
    }

    /// Forgets a path. May wait for the disk.
    pub(crate) fn forget(&self, disk: &CacheDisk, origin: &str, target: &Target) {
        KnownVersion::forget(disk, origin, target);
        let key = key_of(origin, target);
        let mut state = self.state();
        state.changes += 1;
        state.recent.pop(&key);
    }

    /// Forgets all paths. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the disk; the names are then forgotten until a restart.
    pub(crate) fn forget_all(&self, disk: &CacheDisk) -> Result<()> {
        let outcome = names::forget_all(disk);
        let mut state = self.state();
        state.changes += 1;
        let retired = std::mem::replace(&mut state.recent, CLruCache::new(MAX_VERSIONS));
        drop(state);
        drop(retired);
        outcome
    }
}

/// Returns whether `known` was requested later than `new`. A date in the future was left by a clock that was set back.
fn is_later(known: &KnownVersion, new: &KnownVersion) -> bool {
    known.asked_s > new.asked_s && known.asked_s <= clock::unix_s()
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::volume::SystemVolume;

    use super::*;

    const ORIGIN: &str = "http://host";

    fn known(target: &Target, size: u64) -> KnownVersion {
        let version = Version { origin: ORIGIN.into(), target: target.clone(), size, mtime_ns: Some(7), tag: None };
        KnownVersion { version, asked_s: 1000, freshness: towpath_store::Freshness::new("", 1000) }
    }

    #[test]
    fn memory_and_disk_have_the_same_versions() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let (path, names) = (Target::parse(b"/f").unwrap(), KnownVersions::default());
        assert_eq!(names.get(ORIGIN, &path), None);
        assert_eq!(names.read(&disk, ORIGIN, &path).unwrap(), None);
        assert_eq!(names.get(ORIGIN, &path), Some(None), "that there is none is in memory too");
        names.write(&disk, known(&path, 5)).unwrap();
        assert_eq!(names.get(ORIGIN, &path).unwrap().as_deref(), Some(&known(&path, 5)));
        assert_eq!(names.get("http://other", &path), None);

        let restarted = KnownVersions::default();
        assert_eq!(restarted.get(ORIGIN, &path), None);
        assert_eq!(*restarted.read(&disk, ORIGIN, &path).unwrap().unwrap(), known(&path, 5));
        assert_eq!(restarted.get(ORIGIN, &path).unwrap().as_deref(), Some(&known(&path, 5)));

        restarted.forget(&disk, ORIGIN, &path);
        assert_eq!(restarted.get(ORIGIN, &path), None);
        assert_eq!(restarted.read(&disk, ORIGIN, &path).unwrap(), None);
        names.forget_all(&disk).unwrap();
        assert_eq!(names.get(ORIGIN, &path), None);
    }

    #[test]
    fn a_late_response_does_not_replace_a_newer_one() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let (path, names) = (Target::parse(b"/f").unwrap(), KnownVersions::default());
        names.write(&disk, KnownVersion { asked_s: 1001, ..known(&path, 6) }).unwrap();
        names.write(&disk, known(&path, 5)).unwrap();
        names.insert(known(&path, 5));
        for names in [names, KnownVersions::default()] {
            assert_eq!(names.read(&disk, ORIGIN, &path).unwrap().unwrap().version.size, 6);
        }
    }

    #[test]
    fn a_version_of_the_future_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let (path, names) = (Target::parse(b"/f").unwrap(), KnownVersions::default());
        names.write(&disk, KnownVersion { asked_s: clock::unix_s() + 1000, ..known(&path, 5) }).unwrap();
        names.write(&disk, known(&path, 6)).unwrap();
        for names in [names, KnownVersions::default()] {
            assert_eq!(names.read(&disk, ORIGIN, &path).unwrap().unwrap().version.size, 6);
        }
    }

    #[test]
    fn the_removal_of_an_old_version_does_not_forget_the_current_one() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let (path, names) = (Target::parse(b"/f").unwrap(), KnownVersions::default());
        names.write(&disk, known(&path, 6)).unwrap();
        names.forget_version(&disk, &known(&path, 5).version);
        assert!(names.read(&disk, ORIGIN, &path).unwrap().is_some());
        names.forget_version(&disk, &known(&path, 6).version);
        assert!(names.read(&disk, ORIGIN, &path).unwrap().is_none());
    }

    #[test]
    fn an_old_file_does_not_replace_a_newer_version_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let (path, names) = (Target::parse(b"/f").unwrap(), KnownVersions::default());
        known(&path, 5).write(&disk).unwrap();
        // As if the disk had refused to store it.
        names.insert(known(&path, 6));
        assert_eq!(names.read(&disk, ORIGIN, &path).unwrap().unwrap().version.size, 6);
        assert_eq!(names.get(ORIGIN, &path).unwrap().unwrap().version.size, 6);
    }
}
