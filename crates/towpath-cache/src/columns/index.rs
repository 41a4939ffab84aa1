//! The index of a file version: read once, when its metadata are present, for all its readers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;
use towpath_rootfile::{Error, ReadAt, RootFile, TreeIndex, TreeKey};

/// Maximum size of the metadata of one tree in bytes: that of a tree of 2,000 branches and 50,000 baskets is some MB.
const MAX_METADATA_BYTES: u64 = 32 << 20;

/// A tree; `None` inside if its metadata cannot be read.
type Tree = OnceCell<Option<Arc<TreeIndex>>>;

/// The index of a file version.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    /// `None` inside if the file is no ROOT file that can be read.
    file: OnceCell<Option<Arc<RootFile>>>,
    /// By the offset of the tree's record.
    trees: Mutex<BTreeMap<u64, Arc<Tree>>>,
}

impl FileIndex {
    fn trees(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Tree>>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directories of the file of `size` bytes; `None` if they cannot be read.
    pub(crate) async fn file(&self, source: &(impl ReadAt + Sync), size: u64) -> Option<Arc<RootFile>> {
        let read = || async { outcome(RootFile::open(source, size, MAX_METADATA_BYTES).await) };
        self.file.get_or_try_init(read).await.ok()?.clone()
    }

    /// Returns a tree of `file`; `None` if its metadata cannot be read.
    pub(crate) async fn tree(
        &self,
        source: &(impl ReadAt + Sync),
        file: &RootFile,
        key: &TreeKey,
    ) -> Option<Arc<TreeIndex>> {
        let tree = Arc::clone(self.trees().entry(key.range().start).or_default());
        let read = || async { outcome(file.read(source, key).await) };
        tree.get_or_try_init(read).await.ok()?.clone()
    }

    /// Returns the approximate memory of the trees in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = |tree: &Arc<Tree>| tree.get().and_then(Option::as_ref).map_or(0, |tree| tree.memory_bytes());
        self.trees().values().map(bytes).sum()
    }
}

/// Returns what to remember of a read: nothing if the bytes could not be read, which may succeed later.
fn outcome<T>(read: Result<T, Error>) -> Result<Option<Arc<T>>, ()> {
    match read {
        Ok(value) => Ok(Some(Arc::new(value))),
        Err(Error::Read(_)) => Err(()),
        Err(error) => {
            tracing::debug!(%error, "a file is read without an index of its columns");
            Ok(None)
        }
    }
}
