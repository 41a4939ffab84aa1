//! A store with fewer capabilities than the wrapped one, for tests of faces, movers and the conformance suite.
//!
//! Limits apply to the methods of the store. Its handles are those of the wrapped store: limits of the order of pieces
//! and of modification times of uploads are reported but not enforced.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::checksum::{Algorithm, Digest};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, ListOptions, Listing, Metadata, OpenOptions, Overwrite,
    ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

/// A store that refuses the operations outside of its capabilities.
#[derive(Debug)]
pub struct LimitedStore {
    inner: Arc<dyn Store>,
    reported: Capabilities,
    enforced: Capabilities,
}

impl LimitedStore {
    /// Creates a store with those capabilities of `inner` that remain after `limit`.
    pub fn new(inner: Arc<dyn Store>, limit: impl FnOnce(&mut Capabilities)) -> Self {
        let mut limited = inner.capabilities();
        limit(&mut limited);
        let limited = limited.common(&inner.capabilities());
        Self { inner, reported: limited.clone(), enforced: limited }
    }

    /// Creates a store that reports the same as that of [`Self::new`] and still carries out all operations.
    pub fn reporting_only(inner: Arc<dyn Store>, limit: impl FnOnce(&mut Capabilities)) -> Self {
        let enforced = inner.capabilities();
        Self { enforced, ..Self::new(inner, limit) }
    }

    /// Creates a store that accepts new files and directories, and no other changes.
    pub fn create_only(inner: Arc<dyn Store>) -> Self {
        let Capabilities { write_any_order, .. } = inner.capabilities();
        Self::new(inner, |limited| {
            let reads = limited.clone().without_changes();
            *limited = Capabilities { create: true, write_any_order, attributes: false, ..reads };
        })
    }

    /// Returns the treatment of an existing file by the wrapped store.
    fn overwrite(&self, wanted: Overwrite) -> Overwrite {
        if self.enforced.remove { wanted } else { Overwrite::Refuse }
    }

    fn check(is_supported: bool, path: &StorePath) -> Result<()> {
        match is_supported {
            true => Ok(()),
            false => Err(Error::new(Fault::Unsupported, "this store is limited").at(path)),
        }
    }
}

#[async_trait]
impl Store for LimitedStore {
    fn capabilities(&self) -> Capabilities {
        self.reported.clone()
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.inner.stat(caller, path).await
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        self.inner.list(caller, path, options)
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.inner.open(caller, path, options).await
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        self.enforced.check_create(path)?;
        let overwrite = self.overwrite(options.overwrite);
        let resume = options.resume.filter(|_| self.enforced.resume);
        self.inner.create(caller, path, CreateOptions { overwrite, resume, ..options }).await
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Self::check(self.enforced.update, path)?;
        self.inner.update(caller, path).await
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.enforced.check_create(path)?;
        self.inner.make_directory(caller, path, parents, mode).await
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.enforced.check_remove(path)?;
        self.inner.remove_file(caller, path).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.enforced.check_remove(path)?;
        self.inner.remove_directory(caller, path).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        Self::check(self.enforced.remove_tree, path)?;
        self.inner.remove_tree(caller, path).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.enforced.check_rename(from)?;
        self.inner.rename(caller, from, to, self.overwrite(overwrite)).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        Self::check(self.enforced.copy, from)?;
        self.inner.copy(caller, from, to, self.overwrite(overwrite)).await
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        let Changes { mode, mtime_ns, size } = changes;
        Self::check(self.enforced.update || (mode.is_none() && size.is_none()), path)?;
        Self::check(self.enforced.set_mtime || mtime_ns.is_none(), path)?;
        self.inner.change(caller, path, changes).await
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        Self::check(self.enforced.digests.contains(algorithm), path)?;
        self.inner.digest(caller, path, algorithm, progress).await
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Self::check(self.enforced.attributes, path)?;
        self.inner.attributes(caller, path).await
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        Self::check(self.enforced.attributes && !self.enforced.is_read_only(), path)?;
        self.inner.set_attribute(caller, path, name, value, create).await
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        self.inner.space(caller, path).await
    }
}
