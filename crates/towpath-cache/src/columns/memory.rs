//! What readers of a dataset read: the columns of its trees, and how much of them.
//!
//! A dataset is the files of an origin whose paths differ only in their digits, such as `/run_1/data_07.root`. The columns
//! are kept in memory, and in one small file, which is replaced as a whole. It may be missing, old or damaged: then some
//! columns are learnt once more.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use clru::CLruCache;
use serde::{Deserialize, Serialize};
use towpath_store::Result;

use crate::{
    disk::{CacheDisk, absent_if_missing},
    entry::disk_error,
};

/// Name of the file.
const FILE: &str = "columns.json";
/// Maximum length of the file in bytes: that of all datasets, with twice their names as recorded.
const MAX_BYTES: usize = 2 * MAX_DATASETS.get() * (MAX_NAME_BYTES + 4096);
/// Maximum number of datasets; the one that was used least recently makes room.
const MAX_DATASETS: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// Bytes of a tree in the file beside its names.
const TREE_BYTES: usize = 96;
/// Maximum number of bytes of the names of a dataset, with those of each tree; one with more is not remembered.
const MAX_NAME_BYTES: usize = 24 << 10;

/// What was read of each tree, by its path in the file.
pub(crate) type KnownTrees = BTreeMap<String, KnownTree>;

/// What a reader reads of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KnownTree {
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    /// Bytes of the blocks of the columns in one file, rounded up to a power of two.
    pub(crate) bytes: u64,
    /// Whether the first blocks of most columns are read before those of these columns.
    pub(crate) reads_first_blocks: bool,
}

/// The columns that the last reader of each dataset has read. Those of the one that reads it now are added before it ends,
/// when the next file is opened.
#[derive(Debug)]
pub(crate) struct DatasetMemory {
    datasets: Mutex<CLruCache<String, KnownTrees>>,
    is_changed: AtomicBool,
}

/// A dataset in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    dataset: String,
    trees: KnownTrees,
}

impl Default for DatasetMemory {
    fn default() -> Self {
        Self { datasets: Mutex::new(CLruCache::new(MAX_DATASETS)), is_changed: AtomicBool::new(false) }
    }
}

impl DatasetMemory {
    fn datasets(&self) -> MutexGuard<'_, CLruCache<String, KnownTrees>> {
        self.datasets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file of a cache. One that cannot be read counts as empty. May wait for the disk.
    pub(crate) fn read(disk: &CacheDisk) -> Self {
        let memory = Self::default();
        let read = || {
            let Some(file) = absent_if_missing(disk.volume.open(Path::new(FILE)).map(Some))? else {
                return Ok(Vec::new());
            };
            let mut bytes = Vec::new();
            file.read_at(0, MAX_BYTES, &mut bytes)?;
            serde_json::from_slice(&bytes).map_err(std::io::Error::other)
        };
        let lines: Vec<Line> = read().unwrap_or_else(|error: std::io::Error| {
            tracing::warn!(%error, "the file `{FILE}` of the cache cannot be read: the columns of datasets are learnt again");
            Vec::new()
        });
        lines.into_iter().for_each(|line| memory.record(line.dataset, line.trees));
        memory.is_changed.store(false, Relaxed);
        memory
    }

    /// Writes the file, if something has changed since the last time. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn write(&self, disk: &CacheDisk) -> Result<()> {
        if !self.is_changed.swap(false, Relaxed) {
            return Ok(());
        }
        let line = |(dataset, trees): (&String, &KnownTrees)| Line { dataset: dataset.clone(), trees: trees.clone() };
        let mut lines: Vec<_> = self.datasets().iter().map(line).collect();
        // The most recently used dataset is read last.
        lines.reverse();
        let bytes = serde_json::to_vec(&lines).unwrap_or_default();
        let written = disk.replace(Path::new(FILE), &bytes, false);
        written.map_err(|error| {
            self.is_changed.store(true, Relaxed);
            disk_error("writing the columns of datasets", &error)
        })
    }

    /// Returns what is read of a dataset; nothing if it is not known.
    pub(crate) fn trees(&self, dataset: &str) -> KnownTrees {
        self.datasets().get(dataset).cloned().unwrap_or_default()
    }

    /// Adds columns that a reader of a dataset has read so far.
    pub(crate) fn add(&self, dataset: String, trees: KnownTrees) {
        let mut all = self.trees(&dataset);
        for (tree, more) in trees {
            let known = all.entry(tree).or_default();
            known.columns.extend(more.columns);
            known.columns.sort_unstable();
            known.columns.dedup();
            known.bytes = known.bytes.max(more.bytes);
            known.reads_first_blocks |= more.reads_first_blocks;
        }
        self.record(dataset, all);
    }

    /// Records the columns that a reader of a dataset has read.
    pub(crate) fn record(&self, dataset: String, trees: KnownTrees) {
        let names = trees.iter().flat_map(|(tree, known)| known.columns.iter().chain([tree]));
        let bytes: usize = names.map(|name| name.len() + 1).sum();
        if trees.values().all(|known| known.columns.is_empty()) || bytes + trees.len() * TREE_BYTES > MAX_NAME_BYTES {
            return;
        }
        let mut datasets = self.datasets();
        if datasets.get(&dataset) != Some(&trees) {
            datasets.put(dataset, trees);
            self.is_changed.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_store::sys::{disk as files, volume::SystemVolume};

    use super::*;

    fn columns(names: &[&str]) -> KnownTrees {
        let columns = names.iter().map(ToString::to_string).collect();
        BTreeMap::from([("tree".to_owned(), KnownTree { columns, ..KnownTree::default() })])
    }

    #[test]
    fn the_last_reader_counts_unless_it_read_nothing() {
        let memory = DatasetMemory::default();
        assert_eq!(memory.trees("a"), KnownTrees::new());
        memory.record("a".into(), columns(&["x", "y"]));
        memory.record("a".into(), columns(&[]));
        assert_eq!(memory.trees("a"), columns(&["x", "y"]));
        memory.add("a".into(), columns(&["z", "x"]));
        assert_eq!(memory.trees("a"), columns(&["x", "y", "z"]));
        for (bytes, reads_first_blocks) in [(4, true), (2, false)] {
            let more = KnownTree { bytes, reads_first_blocks, ..KnownTree::default() };
            memory.add("a".into(), BTreeMap::from([("tree".to_owned(), more)]));
            assert_eq!((memory.trees("a")["tree"].bytes, memory.trees("a")["tree"].reads_first_blocks), (4, true));
        }
        memory.record("a".into(), columns(&["z"]));
        assert_eq!(memory.trees("a"), columns(&["z"]));
    }

    #[test]
    fn the_file_has_all_datasets_and_a_damaged_one_counts_as_empty() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let memory = DatasetMemory::read(&disk);
        memory.write(&disk).unwrap();
        let file = directory.path().join(FILE);
        assert!(!file.exists(), "nothing has changed");
        for number in 0..MAX_DATASETS.get() + 1 {
            memory.record(number.to_string(), columns(&["x"]));
        }
        memory.write(&disk).unwrap();
        let again = DatasetMemory::read(&disk);
        assert_eq!(again.trees("0"), KnownTrees::new());
        assert_eq!(again.trees("1"), columns(&["x"]));
        files::write(&file, &files::read(&file, 1 << 20).unwrap()[1..]).unwrap();
        assert_eq!(DatasetMemory::read(&disk).trees("1"), KnownTrees::new());
    }
}
