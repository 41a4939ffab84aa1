//! Progress of a copy: counters to be polled at any time. The tuner reads them too, because an experiment that takes
//! longer than the rest of the copy is not worthwhile.
//!
//! A file is *found* when its path is known, *begins* when it is open at both ends, and *ends*, with or without
//! success. Its [`Part`] travels with its job.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use towpath_store::sys::clock::{self, Instant};

use crate::{Job, Place};

/// Receives events of a copy immediately. It is called from many tasks and must not block. For polling see
/// [`Progress::now`].
pub trait Observer: Send + Sync + fmt::Debug {
    /// `bytes` more are to be moved.
    fn expect(&self, _bytes: u64) {}

    /// `bytes` more have been written at the destination.
    fn moved(&self, _bytes: u64) {}

    /// The destination looks for what an earlier copy left of a file, and reads it back, before [`Self::expect`] says how much is to be moved.
    fn proves(&self) {}

    /// Whether to track and report single files.
    fn follows_files(&self) -> bool {
        false
    }

    /// A file begins.
    fn begins(&self, _file: &Arc<Active>) {}

    /// The destination still holds an earlier upload of the file, and is waited for.
    fn waits(&self, _job: &Job) {}
}

/// An observer that ignores all events.
#[derive(Debug)]
pub struct Nobody;

impl Observer for Nobody {}

/// Progress of a copy.
#[derive(Debug)]
pub struct Progress {
    observer: Arc<dyn Observer>,
    /// Lists of files that have not come to their end.
    lists: AtomicUsize,
    found: AtomicU64,
    ended: AtomicU64,
    skipped: AtomicU64,
    /// Bytes of found files, as far as known, and of begun files, minus the bytes moved.
    ahead_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    verified_bytes: AtomicU64,
    begun: AtomicU64,
    active: Mutex<BTreeMap<u64, Arc<Active>>>,
}

/// How far a copy has come at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Advance {
    /// Files that were found.
    pub found_files: u64,
    /// Whether those are all.
    pub is_all_found: bool,
    /// Files of those that have ended: arrived, failed, or left alone.
    pub ended_files: u64,
    /// Files that listings show as already copied ([`crate::Trees::skip_existing`]); they have no jobs.
    pub skipped_files: u64,
    /// Bytes that have been written at the destination.
    pub moved_bytes: u64,
    /// Bytes that are still to be moved, as far as that is known.
    pub ahead_bytes: u64,
    /// Bytes of files whose digest is the same at both ends.
    pub verified_bytes: u64,
}

/// A file that has begun and not ended.
#[derive(Debug)]
pub struct Active {
    /// Where it comes from.
    pub from: Place,
    /// Where it goes.
    pub to: Place,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of it that the destination had already, from an earlier copy that broke off.
    pub present_bytes: u64,
    /// When it began.
    pub since: Instant,
    moved_bytes: AtomicU64,
}

/// A list that may add files until it is dropped.
#[derive(Debug)]
pub(crate) struct List(Arc<Progress>);

/// The progress of one file. When its last clone is dropped the file has ended, and its remaining bytes are no longer
/// ahead.
#[derive(Debug, Clone)]
pub struct Part(Arc<Share>);

#[derive(Debug)]
struct Share {
    progress: Arc<Progress>,
    left_bytes: AtomicU64,
    /// The file, and the key under which it is kept in mind.
    active: Mutex<Option<(u64, Arc<Active>)>>,
}

impl Progress {
    /// Nothing yet.
    pub fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            observer,
            lists: AtomicUsize::new(0),
            found: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            ahead_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            verified_bytes: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            active: Mutex::default(),
        })
    }

    /// A list of files begins.
    pub(crate) fn list(self: &Arc<Self>) -> List {
        self.lists.fetch_add(1, Relaxed);
        List(Arc::clone(self))
    }

    /// Adds a file of `bytes`, if known.
    pub fn find(self: &Arc<Self>, bytes: Option<u64>) -> Part {
        let bytes = bytes.unwrap_or(0);
        self.found.fetch_add(1, Relaxed);
        self.ahead_bytes.fetch_add(bytes, Relaxed);
        let share = Share { progress: Arc::clone(self), left_bytes: AtomicU64::new(bytes), active: Mutex::default() };
        Part(Arc::new(share))
    }

    /// `files` were found that are there already.
    pub(crate) fn skip(&self, files: u64) {
        for counter in [&self.found, &self.ended, &self.skipped] {
            counter.fetch_add(files, Relaxed);
        }
    }

    /// How far it has come. The numbers are looked at one after the other, so that they need not be of quite the same moment.
    pub fn now(&self) -> Advance {
        Advance {
            found_files: self.found.load(Relaxed),
            is_all_found: self.lists.load(Relaxed) == 0,
            ended_files: self.ended.load(Relaxed),
            skipped_files: self.skipped.load(Relaxed),
            moved_bytes: self.moved_bytes.load(Relaxed),
            ahead_bytes: self.ahead_bytes.load(Relaxed),
            verified_bytes: self.verified_bytes.load(Relaxed),
        }
    }

    /// Returns at most `most` of the files in flight, the oldest first, and their number; none without an observer of
    /// files.
    pub fn active(&self, most: usize) -> (Vec<Arc<Active>>, usize) {
        let active = locked(&self.active);
        (active.values().take(most).cloned().collect(), active.len())
    }

    /// Returns the number of remaining bytes; `None` while it is unknown.
    pub(crate) fn ahead(&self) -> Option<u64> {
        let Advance { is_all_found, ahead_bytes, .. } = self.now();
        is_all_found.then_some(ahead_bytes)
    }

    /// Bytes that have been written.
    pub(crate) fn moved(&self) -> u64 {
        self.moved_bytes.load(Relaxed)
    }

    /// Counts `bytes` of a file whose digest is the same at both ends.
    pub(crate) fn verified(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Relaxed);
    }

    /// Reports that the destination looks for stored parts of a file.
    pub(crate) fn proves(&self) {
        self.observer.proves();
    }

    /// The destination still holds an earlier upload of `job`.
    pub(crate) fn waits(&self, job: &Job) {
        self.observer.waits(job);
    }
}

impl Part {
    /// The file of `job`, of `bytes`, begins, or does so once more another way; `present_bytes` of it are there already.
    pub(crate) fn begin(&self, job: &Job, bytes: u64, present_bytes: u64) {
        self.expect(bytes.saturating_sub(present_bytes));
        let progress = &self.0.progress;
        if !progress.observer.follows_files() {
            return;
        }
        let (from, to, since) = (job.from.clone(), job.to.clone(), clock::now());
        let file = Arc::new(Active { from, to, bytes, present_bytes, since, moved_bytes: AtomicU64::new(0) });
        self.0.forget();
        let key = progress.begun.fetch_add(1, Relaxed);
        locked(&progress.active).insert(key, Arc::clone(&file));
        progress.observer.begins(&file);
        *locked(&self.0.active) = Some((key, file));
    }

    /// `bytes` are to be moved, whatever was known before.
    pub fn expect(&self, bytes: u64) {
        let Share { progress, left_bytes, .. } = &*self.0;
        progress.observer.expect(bytes);
        progress.ahead_bytes.fetch_add(bytes, Relaxed);
        progress.ahead_bytes.fetch_sub(left_bytes.swap(bytes, Relaxed), Relaxed);
    }

    /// Bytes of those that have not been written.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.0.left_bytes.load(Relaxed)
    }

    /// `bytes` of those have been written.
    pub fn moved(&self, bytes: u64) {
        let Share { progress, left_bytes, active } = &*self.0;
        progress.observer.moved(bytes);
        progress.moved_bytes.fetch_add(bytes, Relaxed);
        progress.ahead_bytes.fetch_sub(bytes, Relaxed);
        left_bytes.fetch_sub(bytes, Relaxed);
        if let Some((_, file)) = &*locked(active) {
            file.moved_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

impl Share {
    /// The file no longer is under way.
    fn forget(&self) {
        if let Some((key, _)) = locked(&self.active).take() {
            locked(&self.progress.active).remove(&key);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.forget();
        self.progress.ended.fetch_add(1, Relaxed);
        self.progress.ahead_bytes.fetch_sub(self.left_bytes.load(Relaxed), Relaxed);
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.0.lists.fetch_sub(1, Relaxed);
    }
}

impl Active {
    /// Bytes of it that are at the destination.
    pub fn arrived_bytes(&self) -> u64 {
        self.present_bytes + self.moved_bytes.load(Relaxed)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
