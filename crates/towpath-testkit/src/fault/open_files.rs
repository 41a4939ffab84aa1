//! Files that are open, for a store that shares them among all opens of their path.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use towpath_store::{ReadHandle, Result, StorePath};

/// The open files by the path of their first open.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<HashMap<StorePath, Weak<dyn ReadHandle>>>);

impl OpenFiles {
    /// Returns the open file of a path, or opens it.
    pub(super) async fn open(
        &self,
        path: &StorePath,
        open: impl AsyncFnOnce() -> Result<Arc<dyn ReadHandle>>,
    ) -> Result<Arc<dyn ReadHandle>> {
        let files = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = files().get(path).and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let file = open().await?;
        files().insert(path.clone(), Arc::downgrade(&file));
        Ok(file)
    }
}
