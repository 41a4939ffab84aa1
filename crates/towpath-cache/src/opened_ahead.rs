//! The next file of a dataset: it is opened, and its index read, while a reader reads the file before it. When a reader
//! opens it, the first blocks of its columns are fetched, and the origin is queried meanwhile as for any file.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

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
pub(crate) struct OpenedAhead(Mutex<HashMap<PathKey, Arc<Slot>>>);

impl OpenedAhead {
    fn slots(&self) -> MutexGuard<'_, HashMap<PathKey, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a file that is to be opened; `None` if it has one, or there are too many.
    fn begin(&self, key: PathKey, permits: &Arc<Semaphore>) -> Option<Arc<Slot>> {
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

    /// Returns the file of a target for a reader. One that is being opened is closed afterwards.
    pub(crate) fn take(&self, target: &Target) -> Option<AheadFile> {
        if self.slots().is_empty() {
            return None;
        }
        let slot = self.slots().remove(&target_key(target))?;
        slot.file.get().cloned()
    }
}

impl CacheStore {
    /// Opens the file that probably follows `target` in its dataset, in the background.
    pub(crate) fn open_successor(&self, caller: &Caller, target: &Target) {
        // Without a query, which selects a part of this file.
        if self.asks_for_each_caller() || target.query().is_some() {
            return;
        }
        let name = target.name().and_then(|name| names::successor(std::str::from_utf8(name).ok()?));
        let Some(path) = name.and_then(|name| target.parent()?.join(name.as_bytes()).ok()) else { return };
        let (store, caller, next) = (self.clone(), caller.clone(), Target::from(path));
        let key = target_key(&next);
        let Some(slot) = self.ahead.begin(key, self.cache.ahead_permits()) else { return };
        let end = Instant::now() + KEPT;
        tokio::spawn(async move {
            let opened = timeout_at(end, store.open_ahead(&caller, &next)).await;
            let (table, weak) = (Arc::downgrade(&store.ahead), Arc::downgrade(&slot));
            drop(store);
            match opened {
                Ok(Ok(Some(file))) => {
                    let _ = slot.file.set(file);
                    drop(slot);
                    sleep_until(end).await;
                }
                outcome => tracing::debug!(path = %next, ?outcome, "the next file of the dataset was not opened"),
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
