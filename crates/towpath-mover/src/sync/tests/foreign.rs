//! A third-party server: it follows links, and reports neither links nor ids nor times.

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::checksum::Digest;
use towpath_store::{
    Caller, Capabilities, CreateOptions, Entry, Error, Listing, Metadata, OpenOptions, Overwrite, ReadHandle, Space,
    StorePath, WriteHandle,
};

use super::*;

#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) inner: Arc<dyn Store>,
    /// An entry that is listed but not found on request.
    pub(super) unfound: Option<&'static str>,
}

impl Foreign {
    pub(super) fn of(inner: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self { inner: Arc::clone(inner), unfound: None })
    }

    fn find(&self, path: &StorePath) -> Result<()> {
        match self.unfound.is_some_and(|unfound| path.to_string() == unfound) {
            true => Err(Error::new(Fault::NotFound, "it leads nowhere").at(path)),
            false => Ok(()),
        }
    }
}

fn untold(metadata: &Metadata) -> Metadata {
    Metadata::new(metadata.kind, metadata.size)
}

#[async_trait]
impl Store for Foreign {
    fn capabilities(&self) -> Capabilities {
        Capabilities { set_mtime: false, ..self.inner.capabilities() }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.find(path)?;
        Ok(untold(&self.inner.stat(caller, path).await?))
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        let batches = self.inner.list(caller, path, options);
        let batches = batches.map(|batch| {
            let told = |Entry { name, metadata }| Entry { name, metadata: untold(&metadata) };
            Ok(batch?.into_iter().map(told).collect())
        });
        batches.boxed()
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.inner.open(caller, path, options).await
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        self.inner.create(caller, path, options).await
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        self.inner.update(caller, path).await
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.inner.make_directory(caller, path, parents, mode).await
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.find(path)?;
        self.inner.remove_file(caller, path).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.inner.remove_directory(caller, path).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.inner.remove_tree(caller, path).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.inner.rename(caller, from, to, overwrite).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.inner.copy(caller, from, to, overwrite).await
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        self.inner.change(caller, path, changes).await
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + std::marker::Sync),
    ) -> Result<Digest> {
        self.inner.digest(caller, path, algorithm, progress).await
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
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
        self.inner.set_attribute(caller, path, name, value, create).await
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        self.inner.space(caller, path).await
    }
}
