//! A temporary directory with a local store in it, and helpers for tests of local stores.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tempfile::TempDir;
use towpath_store::{
    Caller, CreateOptions, Expectation, Metadata, OpenOptions, Overwrite, Result, Store as _, StorePath, WriteHandle,
    local::{LocalOptions, LocalStore},
};

/// An in-memory file system that every Linux has.
pub(crate) const MEMORY: &str = "/dev/shm";

/// A local store in a temporary directory, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) store: LocalStore,
    directory: TempDir,
}

pub(crate) fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

impl Directory {
    /// Creates one in memory.
    pub(crate) fn new() -> Self {
        Self::below(Path::new(MEMORY))
    }

    /// Creates one in the directory for temporary files, which is on a disk on most machines.
    pub(crate) fn on_disk() -> Self {
        Self::below(&std::env::temp_dir())
    }

    pub(crate) fn below(base: &Path) -> Self {
        let directory = tempfile::tempdir_in(base).unwrap();
        Self { store: LocalStore::open(directory.path(), LocalOptions::default()).unwrap(), directory }
    }

    /// Opens a store in the subdirectory `name`.
    pub(crate) fn store_in(&self, name: &str) -> LocalStore {
        LocalStore::open(&self.host(name), LocalOptions::default()).unwrap()
    }

    /// Returns the path of `name` on the host.
    pub(crate) fn host(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the names in the staging directory.
    pub(crate) fn staged(&self) -> Vec<String> {
        let Ok(entries) = self.host(".towpath").read_dir() else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub(crate) async fn create(&self, name: &str) -> Result<Arc<dyn WriteHandle>> {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        self.store.create(&Caller::local(), &path(name), options).await
    }

    pub(crate) async fn put(&self, name: &str, content: impl Into<Bytes>) -> Result<Metadata> {
        let file = self.create(name).await?;
        file.write(0, content.into()).await?;
        file.commit(Expectation::default()).await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Bytes> {
        let file = self.store.open(&Caller::local(), &path(name), OpenOptions::default()).await?;
        let size = file.metadata().await?.size;
        file.read(0, usize::try_from(size).unwrap()).await
    }

    pub(crate) async fn stat(&self, name: &str) -> Result<Metadata> {
        self.store.stat(&Caller::local(), &path(name)).await
    }
}
