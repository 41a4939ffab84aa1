//! A store with case-insensitive names.

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::checksum::Digest;
use towpath_store::{
    Caller, Capabilities, CreateOptions, Listing, Metadata, OpenOptions, Overwrite, ReadHandle, Space, StorePath,
    WriteHandle,
};

use super::*;

/// Files in memory under lowercase names.
#[derive(Debug)]
pub(super) struct Folding(pub(super) Arc<dyn Store>);

fn folded(path: &StorePath) -> StorePath {
    StorePath::parse(&path.as_bytes().to_ascii_lowercase()).unwrap()
}

#[async_trait]
impl Store for Folding {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.0.stat(caller, &folded(path)).await
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        self.0.list(caller, &folded(path), options)
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.0.open(caller, &folded(path), options).await
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        self.0.create(caller, &folded(path), options).await
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        self.0.update(caller, &folded(path)).await
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.0.make_directory(caller, &folded(path), parents, mode).await
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.0.remove_file(caller, &folded(path)).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.0.remove_directory(caller, &folded(path)).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.0.remove_tree(caller, &folded(path)).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.0.rename(caller, &folded(from), &folded(to), overwrite).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.0.copy(caller, &folded(from), &folded(to), overwrite).await
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        self.0.change(caller, &folded(path), changes).await
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + std::marker::Sync),
    ) -> Result<Digest> {
        self.0.digest(caller, &folded(path), algorithm, progress).await
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        self.0.attributes(caller, &folded(path)).await
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        self.0.set_attribute(caller, &folded(path), name, value, create).await
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        self.0.space(caller, &folded(path)).await
    }
}
