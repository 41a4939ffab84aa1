//! Progress of a copy: counters that can be polled at any time. The tuner reads them too, to skip experiments that
//! would take longer than the rest of the copy.
//!
//! A file is *found* when its path is known, *begins* when it is open at both ends, and *ends*, with or without
//! success. Its [`FileProgress`] travels with its job.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use towpath_store::sys::clock::{self, Instant};

use crate::{Job, StoreLocation, retry::RetryNotice};

/// Receives events of a copy as they happen. Called from many tasks; must not block. For polling see [`Progress::now`].
pub trait Observer: Send + Sync + fmt::Debug {
    /// `bytes` more have to be moved.
    fn expect(&self, _bytes: u64) {}

    /// `bytes` more have been written to the destination.
    fn transferred(&self, _bytes: u64) {}

    /// The destination reads back stored parts of an interrupted upload. [`Self::expect`] follows with the number of
    /// missing bytes.
    fn proves(&self) {}

    /// Returns whether to track and report single files.
    fn follows_files(&self) -> bool {
        false
    }

    /// A file has begun.
    fn begins(&self, _file: &Arc<ActiveFile>) {}

    /// The copy waits because the destination has not yet released an earlier upload of the file.
    fn waits(&self, _job: &Job) {}

    /// The copy of a file failed, and is retried.
    fn retries(&self, job: &Job, notice: &RetryNotice) {
        tracing::warn!(from = %job.from, to = %job.to, "{notice}");
    }
}

/// An observer that ignores all events.
#[derive(Debug)]
pub struct NoopObserver;

impl Observer for NoopObserver {}

/// Progress of a copy.
#[derive(Debug)]
pub struct Progress {
    observer: Arc<dyn Observer>,
    /// Number of listings that have not ended.
    lists: AtomicUsize,
    found: AtomicU64,
    ended: AtomicU64,
    skipped: AtomicU64,
    /// Bytes of found files of known size and of files in flight, minus the bytes moved.
    ahead_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    verified_bytes: AtomicU64,
    begun: AtomicU64,
    resumed: AtomicU64,
    resumed_bytes: AtomicU64,
    active: Mutex<BTreeMap<u64, Arc<ActiveFile>>>,
}

/// Snapshot of the progress of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Number of files found.
    pub found_files: u64,
    /// Whether all files have been found.
    pub is_all_found: bool,
    /// Number of found files that have ended: copied, failed, or skipped.
    pub ended_files: u64,
    /// Number of files that were skipped because listings show them as already copied
    /// ([`crate::Trees::skip`]). They have no jobs.
    pub skipped_files: u64,
    /// Bytes written to the destination.
    pub moved_bytes: u64,
    /// Bytes still to be moved, as far as known.
    pub ahead_bytes: u64,
    /// Bytes of files whose digest is the same at both ends.
    pub verified_bytes: u64,
    /// Number of files that continue an interrupted upload of an earlier command.
    pub resumed_files: u64,
    /// Bytes that the destination already had of them.
    pub resumed_bytes: u64,
}

/// A file in flight.
#[derive(Debug)]
pub struct ActiveFile {
    /// The source.
    pub from: StoreLocation,
    /// The destination.
    pub to: StoreLocation,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that the destination already had from an interrupted upload.
    pub present_bytes: u64,
    /// When the file began.
    pub since: Instant,
    moved_bytes: AtomicU64,
}

/// A listing, which may find files until it is dropped.
#[derive(Debug)]
pub(crate) struct ListingGuard(Arc<Progress>);

/// The progress of one file. The file ends when the last clone is dropped; its remaining bytes are then no longer
/// expected.
#[derive(Debug, Clone)]
pub struct FileProgress(Arc<FileState>);

#[derive(Debug)]
struct FileState {
    progress: Arc<Progress>,
    left_bytes: AtomicU64,
    /// Whether the file has begun; it begins again after a lost connection.
    is_begun: AtomicBool,
    /// The file and its key in [`Progress::active`], once it has begun.
    active: Mutex<Option<(u64, Arc<ActiveFile>)>>,
}

impl Progress {
    /// Creates the progress of a copy without files.
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
            resumed: AtomicU64::new(0),
            resumed_bytes: AtomicU64::new(0),
            active: Mutex::default(),
        })
    }

    /// Starts a listing.
    pub(crate) fn list(self: &Arc<Self>) -> ListingGuard {
        self.lists.fetch_add(1, Relaxed);
        ListingGuard(Arc::clone(self))
    }

    /// Adds a file of `bytes`, if known.
    pub fn find(self: &Arc<Self>, bytes: Option<u64>) -> FileProgress {
        let bytes = bytes.unwrap_or(0);
        self.found.fetch_add(1, Relaxed);
        self.ahead_bytes.fetch_add(bytes, Relaxed);
        let state = FileState {
            progress: Arc::clone(self),
            left_bytes: AtomicU64::new(bytes),
            is_begun: AtomicBool::new(false),
            active: Mutex::default(),
        };
        FileProgress(Arc::new(state))
    }

    /// Counts `files` that the destination already has.
    pub(crate) fn skip(&self, files: u64) {
        for counter in [&self.found, &self.ended, &self.skipped] {
            counter.fetch_add(files, Relaxed);
        }
    }

    /// Returns a snapshot. The counters are read one by one, so they may be of slightly different moments.
    pub fn now(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            found_files: self.found.load(Relaxed),
            is_all_found: self.lists.load(Relaxed) == 0,
            ended_files: self.ended.load(Relaxed),
            skipped_files: self.skipped.load(Relaxed),
            moved_bytes: self.moved_bytes.load(Relaxed),
            ahead_bytes: self.ahead_bytes.load(Relaxed),
            verified_bytes: self.verified_bytes.load(Relaxed),
            resumed_files: self.resumed.load(Relaxed),
            resumed_bytes: self.resumed_bytes.load(Relaxed),
        }
    }

    /// Returns at most `most` files in flight, the oldest first, and their total number. Empty if the observer does not
    /// follow files.
    pub fn active(&self, most: usize) -> (Vec<Arc<ActiveFile>>, usize) {
        let active = locked(&self.active);
        (active.values().take(most).cloned().collect(), active.len())
    }

    /// Returns the number of remaining bytes; `None` while it is unknown.
    pub(crate) fn ahead(&self) -> Option<u64> {
        let ProgressSnapshot { is_all_found, ahead_bytes, .. } = self.now();
        is_all_found.then_some(ahead_bytes)
    }

    /// Returns the bytes written to the destination.
    pub(crate) fn transferred(&self) -> u64 {
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

    /// Reports that the destination has not yet released an earlier upload of `job`.
    pub(crate) fn waits(&self, job: &Job) {
        self.observer.waits(job);
    }

    /// Reports a retry of `job`.
    pub(crate) fn retries(&self, job: &Job, notice: &RetryNotice) {
        self.observer.retries(job, notice);
    }
}

impl FileProgress {
    /// Reports that the file of `job` has begun, or was restarted by another route. The destination already has
    /// `present_bytes` of its `bytes`.
    pub(crate) fn begin(&self, job: &Job, bytes: u64, present_bytes: u64) {
        self.expect(bytes.saturating_sub(present_bytes));
        let progress = &self.0.progress;
        if !self.0.is_begun.swap(true, Relaxed) && present_bytes > 0 {
            progress.resumed.fetch_add(1, Relaxed);
            progress.resumed_bytes.fetch_add(present_bytes, Relaxed);
        }
        if !progress.observer.follows_files() {
            return;
        }
        let (from, to, since) = (job.from.clone(), job.to.clone(), clock::now());
        let file = Arc::new(ActiveFile { from, to, bytes, present_bytes, since, moved_bytes: AtomicU64::new(0) });
        self.0.forget();
        let key = progress.begun.fetch_add(1, Relaxed);
        locked(&progress.active).insert(key, Arc::clone(&file));
        progress.observer.begins(&file);
        *locked(&self.0.active) = Some((key, file));
    }

    /// Sets the number of bytes to be moved, replacing the earlier number.
    pub fn expect(&self, bytes: u64) {
        let FileState { progress, left_bytes, .. } = &*self.0;
        progress.observer.expect(bytes);
        progress.ahead_bytes.fetch_add(bytes, Relaxed);
        progress.ahead_bytes.fetch_sub(left_bytes.swap(bytes, Relaxed), Relaxed);
    }

    /// Returns the number of expected bytes that have not been written.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.0.left_bytes.load(Relaxed)
    }

    /// Records that `bytes` have been written.
    pub fn transferred(&self, bytes: u64) {
        let FileState { progress, left_bytes, active, .. } = &*self.0;
        progress.observer.transferred(bytes);
        progress.moved_bytes.fetch_add(bytes, Relaxed);
        progress.ahead_bytes.fetch_sub(bytes, Relaxed);
        left_bytes.fetch_sub(bytes, Relaxed);
        if let Some((_, file)) = &*locked(active) {
            file.moved_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

impl FileState {
    /// Removes the file from the files in flight.
    fn forget(&self) {
        if let Some((key, _)) = locked(&self.active).take() {
            locked(&self.progress.active).remove(&key);
        }
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        self.forget();
        self.progress.ended.fetch_add(1, Relaxed);
        self.progress.ahead_bytes.fetch_sub(self.left_bytes.load(Relaxed), Relaxed);
    }
}

impl Drop for ListingGuard {
    fn drop(&mut self) {
        self.0.lists.fetch_sub(1, Relaxed);
    }
}

impl ActiveFile {
    /// Returns the number of its bytes at the destination.
    pub fn arrived_bytes(&self) -> u64 {
        self.present_bytes + self.moved_bytes.load(Relaxed)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
