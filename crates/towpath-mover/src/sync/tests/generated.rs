//! A store with a generated tree of any size that takes no memory, and with one file behind all paths.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use towpath_proto::checksum::Digest;
use towpath_store::{
    Caller, Capabilities, CreateOptions, Entry, FileKind, Listing, Metadata, OpenOptions, Overwrite, ReadHandle, Space,
    StorePath, WriteHandle,
};

use super::*;

/// `/` contains directories, each of which contains files; all files have the same content.
#[derive(Debug)]
pub(super) struct Generated {
    pub(super) directories: usize,
    pub(super) files: usize,
    /// A directory whose listing takes longer than those of others.
    pub(super) slow: Option<&'static str>,
    inner: Arc<dyn Store>,
    /// Maximum number of concurrent clones of this store's `Arc`: each job in memory has some.
    pub(super) clones: AtomicU64,
    /// Entries that have been listed.
    pub(super) listed: Arc<AtomicU64>,
    this: std::sync::Weak<Self>,
}

const BATCH: usize = 1000;

impl Generated {
    pub(super) async fn new(directories: usize, files: usize) -> Arc<Self> {
        Self::with_slow(directories, files, None).await
    }

    pub(super) async fn with_slow(directories: usize, files: usize, slow: Option<&'static str>) -> Arc<Self> {
        let inner = memory();
        put(&inner, "/one", Bytes::from_static(b"x")).await;
        let clones = AtomicU64::new(0);
        Arc::new_cyclic(|this| Self {
            directories,
            files,
            slow,
            inner,
            clones,
            listed: Arc::default(),
            this: this.clone(),
        })
    }

    /// Returns the path of the one file.
    fn one(&self) -> StorePath {
        StorePath::parse(b"/one").unwrap()
    }

    fn metadata(&self, path: &StorePath) -> Metadata {
        match path.components().count() {
            0 | 1 => Metadata::new(FileKind::Directory, 0),
            _ => Metadata::new(FileKind::File, 1),
        }
    }
}

/// Yields to other tasks `yields` times.
async fn pause(yields: usize) {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Store for Generated {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn stat(&self, _: &Caller, path: &StorePath) -> Result<Metadata> {
        Ok(self.metadata(path))
    }

    fn list(&self, _: &Caller, path: &StorePath, _: ListOptions) -> Listing {
        let count = if path.is_root() { self.directories } else { self.files };
        let metadata = self.metadata(&path.join(b"entry").unwrap());
        let listed = Arc::clone(&self.listed);
        let batches = (0..count).step_by(BATCH).map(move |start| {
            listed.fetch_add(BATCH as u64, Relaxed);
            let entry = |number: usize| Entry { name: format!("{number}").into(), metadata: metadata.clone() };
            Ok((start..count.min(start + BATCH)).map(entry).collect())
        });
        self.clones.fetch_max(self.this.strong_count() as u64, Relaxed);
        let yields = if self.slow.is_some_and(|slow| path.to_string() == slow) { 100 } else { 0 };
        let begun = async move {
            pause(yields).await;
            stream::iter(batches)
        };
        stream::once(begun).flatten().boxed()
    }

    async fn open(&self, caller: &Caller, _: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.clones.fetch_max(self.this.strong_count() as u64, Relaxed);
        self.inner.open(caller, &self.one(), options).await
    }

    async fn create(&self, caller: &Caller, _: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..options };
        self.inner.create(caller, &self.one(), options).await
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        self.inner.update(caller, path).await
    }

    async fn make_directory(&self, _: &Caller, _: &StorePath, _: bool, _: Option<u32>) -> Result<()> {
        Ok(())
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
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

    async fn change(&self, _: &Caller, _: &StorePath, _: Changes) -> Result<()> {
        pause(10).await;
        Ok(())
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
