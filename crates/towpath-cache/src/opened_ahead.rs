//! The next files of a dataset: they are opened, and their indexes read, while a reader reads the file before them. When a
//! reader opens one, the first blocks of its columns are fetched, and the origin is queried meanwhile as for any file.
//!
//! A reader of columns gets one file more. A reader that opens the files of a dataset one after the other gets several, as
//! many as it takes for the next one to be open in time.

use std::{
    collections::{HashMap, hash_map::Entry},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use clru::CLruCache;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};
use towpath_store::{Caller, Metadata};

use crate::{
    columns::names,
    file::CachedFile,
    missing::{PathKey, target_key},
    store::CacheStore,
    target::Target,
};

/// Maximum number of files of a cache that are open, or being opened, without a reader.
pub(crate) const MAX_FILES: usize = 64;
/// How long a file stays open without a reader, with its open.
const KEPT: Duration = Duration::from_secs(60);
/// Number of files that are opened ahead of a reader that goes through a dataset. It is doubled when a file is requested
/// while it is being opened.
const FIRST_FILES: usize = 2;
/// Maximum of that number.
const MOST_FILES: usize = 8;
/// How long a file is not opened ahead after a reader has opened it, and so fetched its ends, or after that failed.
const SKIPPED: Duration = Duration::from_secs(5);
/// Maximum number of opens that are remembered.
const MAX_OPENS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// A file that was opened without a reader.
#[derive(Debug, Clone)]
pub(crate) struct AheadFile {
    pub(crate) file: CachedFile,
    /// Name of the origin where its path was queried, and the answer.
    pub(crate) origin: Arc<str>,
    pub(crate) found: Metadata,
}

/// A place for a file.
#[derive(Debug)]
struct Slot {
    /// Empty while it is being opened.
    file: OnceLock<AheadFile>,
    _permit: OwnedSemaphorePermit,
}

/// The files of a store that were opened without a reader. Each keeps the store, and so this table, until a reader takes it
/// or its time is over.
#[derive(Debug, Default)]
pub(crate) struct OpenedAhead {
    slots: Mutex<HashMap<PathKey, Arc<Slot>>>,
    readers: Mutex<Readers>,
}

/// The last opens by readers.
#[derive(Debug)]
struct Readers {
    /// Files that are not opened ahead, each until an instant.
    skipped: CLruCache<PathKey, Instant>,
    /// The files behind those that readers opened, each with how many are opened ahead if a reader opens it before an
    /// instant.
    expected: CLruCache<PathKey, (usize, Instant)>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { skipped: CLruCache::new(MAX_OPENS), expected: CLruCache::new(MAX_OPENS) }
    }
}

impl Readers {
    /// Records an open. Returns the number of following files to open, beginning with `next`. `is_late` means that the file
    /// is still being opened ahead.
    fn open(&mut self, key: PathKey, next: PathKey, is_late: bool) -> usize {
        let now = Instant::now();
        let expected = self.expected.get(&key).filter(|(_, until)| *until > now).map(|(files, _)| *files);
        let files = expected.map(|files| if is_late { (2 * files).min(MOST_FILES) } else { files });
        self.skip(key);
        self.expected.put(next, (files.unwrap_or(FIRST_FILES), now + KEPT));
        files.unwrap_or(0)
    }

    /// Lets no file with this key be opened ahead for a time.
    fn skip(&mut self, key: PathKey) {
        self.skipped.put(key, Instant::now() + SKIPPED);
    }

    fn skips(&self, key: &PathKey) -> bool {
        self.skipped.peek(key).is_some_and(|until| *until > Instant::now())
    }
}

impl OpenedAhead {
    fn slots(&self) -> MutexGuard<'_, HashMap<PathKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a file that is to be opened; `None` if it has one, a reader has just opened it, or there are too
    /// many.
    fn begin(&self, key: PathKey, permits: &Arc<Semaphore>) -> Option<Arc<Slot>> {
        if self.readers().skips(&key) {
            return None;
        }
        let mut slots = self.slots();
        let Entry::Vacant(place) = slots.entry(key) else { return None };
        let _permit = Arc::clone(permits).try_acquire_owned().ok()?;
        let slot = Arc::new(Slot { file: OnceLock::new(), _permit });
        place.insert(Arc::clone(&slot));
        Some(slot)
    }

    /// Closes a file, but not one that was begun after it for the same target.
    fn end(&self, key: PathKey, slot: &Weak<Slot>) {
        let mut slots = self.slots();
        let is_current = slots.get(&key).is_some_and(|current| Weak::ptr_eq(&Arc::downgrade(current), slot));
        let removed = if is_current { slots.remove(&key) } else { None };
        drop(slots);
        drop(removed);
    }

    /// Closes all files.
    pub(crate) fn clear(&self) {
        let removed = std::mem::take(&mut *self.slots());
        drop(removed);
    }

    /// Takes the slot of a file for a reader. A file that is being opened is closed afterwards.
    fn take(&self, key: &PathKey) -> Option<Arc<Slot>> {
        self.slots().remove(key)
    }
}

impl CacheStore {
    /// Returns the file of a target for a reader, if it was opened ahead, and opens files behind it if the reader goes
    /// through the dataset.
    pub(crate) fn take_ahead(&self, caller: &Caller, target: &Target) -> Option<AheadFile> {
        // Most caches open nothing ahead.
        self.cache.columns()?;
        let key = target_key(target);
        let slot = self.ahead.take(&key);
        let file = slot.as_ref().and_then(|slot| slot.file.get().cloned());
        let Some(following) = self.following(target) else { return file };
        let is_late = slot.is_some() && file.is_none();
        let files = self.ahead.readers().open(key, target_key(&following), is_late);
        let targets = std::iter::successors(Some(following), |target| self.following(target));
        // Over HTTP it is not known whether a file is on tape.
        let files = if self.origins.primary().store.capabilities().confirms { files } else { files.min(1) };
        targets.take(files).for_each(|target| self.begin_ahead(caller, target));
        file
    }

    /// Opens the file that probably follows `target` in its dataset, in the background.
    pub(crate) fn open_successor(&self, caller: &Caller, target: &Target) {
        if let Some(next) = self.following(target) {
            self.begin_ahead(caller, next);
        }
    }

    /// Returns the file that probably follows `target` in its dataset; `None` if there is none, or it must not be opened.
    fn following(&self, target: &Target) -> Option<Target> {
        // Without a query, which selects a part of this file.
        let may_follow = self.cache.columns().is_some() && !self.asks_for_each_caller() && target.query().is_none();
        if !may_follow || !self.cache.disk().accepts_data() {
            return None;
        }
        let next = names::successor(std::str::from_utf8(target.name()?).ok()?)?;
        Some(target.parent()?.join(next.as_bytes()).ok()?.into())
    }

    /// Opens a file in the background, and keeps it for a reader.
    fn begin_ahead(&self, caller: &Caller, target: Target) {
        let key = target_key(&target);
        let Some(slot) = self.ahead.begin(key, self.cache.ahead_permits()) else { return };
        let (store, caller) = (self.clone(), caller.clone());
        let end = Instant::now() + KEPT;
        tokio::spawn(async move {
            let opened = timeout_at(end, store.open_ahead(&caller, &target)).await;
            let (table, weak) = (Arc::downgrade(&store.ahead), Arc::downgrade(&slot));
            drop(store);
            match opened {
                Ok(Ok(Some(file))) => {
                    let _ = slot.file.set(file);
                    drop(slot);
                    sleep_until(end).await;
                }
                outcome => {
                    tracing::debug!(path = %target, ?outcome, "the next file of the dataset was not opened");
                    if let Some(table) = table.upgrade() {
                        table.readers().skip(key);
                    }
                }
            }
            if let Some(table) = table.upgrade() {
                table.end(key, &weak);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PathKey = [1; 16];

    fn table() -> (OpenedAhead, Arc<Semaphore>) {
        (OpenedAhead::default(), Arc::new(Semaphore::new(MAX_FILES)))
    }

    #[test]
    fn a_file_is_opened_once_at_a_time() {
        let (table, permits) = table();
        let first = Arc::downgrade(&table.begin(KEY, &permits).unwrap());
        assert!(table.begin(KEY, &permits).is_none());
        table.end(KEY, &first);
        assert!(table.begin(KEY, &permits).is_some());
    }

    #[test]
    fn the_end_of_an_open_leaves_a_later_one() {
        let (table, permits) = table();
        let first = Arc::downgrade(&table.begin(KEY, &permits).unwrap());
        // A reader came before it was open.
        table.clear();
        let second = Arc::downgrade(&table.begin(KEY, &permits).unwrap());
        table.end(KEY, &first);
        assert!(table.begin(KEY, &permits).is_none());
        table.end(KEY, &second);
        assert!(table.slots().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_through_a_dataset_gets_more_files_until_they_are_open_in_time() {
        let mut readers = Readers::default();
        let mut open = |number: u8, is_late| readers.open([number; 16], [number + 1; 16], is_late);
        assert_eq!([open(1, false), open(2, false), open(3, true), open(4, false)], [0, 2, 4, 4]);
        assert_eq!([open(5, true), open(6, true), open(7, false)], [8, 8, 8]);
        // Opens of one file, and of others without order, are no run.
        assert_eq!([open(20, false), open(20, false), open(30, false), open(10, false)], [0; 4]);
        tokio::time::advance(KEPT).await;
        assert_eq!(open(8, false), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_a_reader_has_just_opened_is_not_opened_ahead() {
        let (table, permits) = table();
        table.readers().open(KEY, [2; 16], false);
        assert!(table.begin(KEY, &permits).is_none());
        tokio::time::advance(SKIPPED).await;
        assert!(table.begin(KEY, &permits).is_some());
    }

    #[test]
    fn there_is_a_limit() {
        let (table, permits) = table();
        let slots: Vec<_> = (0..MAX_FILES as u8).map(|number| table.begin([number; 16], &permits).unwrap()).collect();
        assert!(table.begin([255; 16], &permits).is_none());
        drop(slots);
        table.clear();
        assert!(table.begin([255; 16], &permits).is_some());
    }
}
