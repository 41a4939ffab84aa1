//! One file of which several storages have copies, read from all of them at once.
//!
//! [`Replicas`] is a store that has just this file, so the mover copies it like any other. Its handle asks all sources what they have, takes
//! those that agree, and gives each piece to the source that will have it first ([`share`](self::share)). A source that fails, or has another
//! version, is left out from then on and its pieces go to the others; it is told afterwards ([`Replicas::shares`]). The copy fails when none is left.
//!
//! Which copy is right is not known before the end, when the whole is compared with every digest that is known of it, from the sources and
//! from whoever named them.

mod file;
mod share;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use towpath_proto::checksum::{Algorithm, Digest, Digests};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, ListOptions, Listing, Metadata, OpenOptions, Overwrite,
    ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use self::{file::ReplicaFile, share::Sharing};
use crate::{Job, Place};

/// What whoever named the sources knows of the file, as a Metalink does.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Its digests.
    pub digests: Digests,
}

/// What became of one source.
#[derive(Debug, Clone)]
pub struct Share {
    /// The source.
    pub from: Place,
    /// Bytes that came from it.
    pub bytes: u64,
    /// Why it was left out, if it was.
    pub error: Option<Error>,
}

/// The copies of one file.
pub struct Replicas {
    sources: Vec<Place>,
    known: Known,
    /// Of the handle that was opened last.
    sharing: Mutex<Option<Arc<Sharing>>>,
}

impl Replicas {
    /// The file that all `sources` have, the best first: what it says of size and version counts, if it answers.
    pub fn new(sources: Vec<Place>, known: Known) -> Arc<Self> {
        Arc::new(Self { sources, known, sharing: Mutex::default() })
    }

    /// The place to copy from, shown as the first source; none without sources.
    pub fn place(self: &Arc<Self>) -> Option<Place> {
        Some(self.sources.first()?.in_replicas(Arc::clone(self)))
    }

    /// The sources, the best first.
    pub fn sources(&self) -> &[Place] {
        &self.sources
    }

    /// What whoever named the sources knows of the file.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// What each source has given so far, in the order of the sources.
    pub fn shares(&self) -> Vec<Share> {
        let sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = sharing.map(|sharing| sharing.told()).unwrap_or_default();
        let each = |(index, from): (usize, &Place)| {
            let (bytes, error) = told.get(index).cloned().unwrap_or_default();
            Share { from: from.clone(), bytes, error }
        };
        self.sources.iter().enumerate().map(each).collect()
    }

    async fn start(&self, options: OpenOptions) -> Result<ReplicaFile> {
        let sharing = Arc::new(Sharing::new(self.sources.len(), self.known.clone()));
        *self.sharing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&sharing));
        Ok(ReplicaFile::open(&self.sources, &options, sharing))
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replicas").field(&self.sources).finish()
    }
}

/// Names the sources of `job` in `error`, if it says that what came from several of them together is not what one promised.
pub(crate) fn with_givers(job: &Job, error: Error) -> Error {
    let givers: Vec<_> =
        job.from.shares().iter().filter(|share| share.bytes > 0).map(|share| share.from.to_string()).collect();
    if error.fault() != Fault::ChecksumMismatch || givers.is_empty() {
        return error;
    }
    let message = format!("{}: its parts came from {}", error.message(), givers.join(" and "));
    Error::new(error.fault(), message).blamed_on(error.blame())
}

/// That a file in several places can only be read.
fn only_read(path: &StorePath) -> Error {
    Error::new(Fault::Unsupported, "several sources of one file can only be read").at(path)
}

#[async_trait]
impl Store for Replicas {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: false,
            write_any_order: false,
            update: false,
            remove_tree: false,
            rename: false,
            copy: false,
            attributes: false,
            set_mtime: false,
            read_bytes: towpath_store::READ_BYTES,
            vector_ranges: 1024,
            vector_range_bytes: 2 << 20,
            digests: Algorithm::ALL.into_iter().collect(),
            resume: false,
        }
    }

    async fn stat(&self, _caller: &Caller, _path: &StorePath) -> Result<Metadata> {
        self.start(OpenOptions::default()).await?.metadata().await
    }

    fn list(&self, _caller: &Caller, path: &StorePath, _options: ListOptions) -> Listing {
        let error = Error::new(Fault::NotDirectory, "it is not a directory").at(path);
        Box::pin(futures::stream::once(async { Err(error) }))
    }

    async fn open(&self, _caller: &Caller, _path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        Ok(Arc::new(self.start(options).await?))
    }

    async fn create(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _options: CreateOptions,
    ) -> Result<Arc<dyn WriteHandle>> {
        Err(only_read(path))
    }

    async fn update(&self, _caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Err(only_read(path))
    }

    async fn make_directory(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _parents: bool,
        _mode: Option<u32>,
    ) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_file(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_directory(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn remove_tree(&self, _caller: &Caller, path: &StorePath) -> Result<()> {
        Err(only_read(path))
    }

    async fn rename(&self, _caller: &Caller, from: &StorePath, _to: &StorePath, _overwrite: Overwrite) -> Result<()> {
        Err(only_read(from))
    }

    async fn copy(&self, _caller: &Caller, from: &StorePath, _to: &StorePath, _overwrite: Overwrite) -> Result<()> {
        Err(only_read(from))
    }

    async fn change(&self, _caller: &Caller, path: &StorePath, _changes: Changes) -> Result<()> {
        Err(only_read(path))
    }

    /// The one that is known, or else what each source says, all of which must be the same.
    async fn digest(
        &self,
        _caller: &Caller,
        _path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        if let Some(known) = self.known.digests.get(algorithm) {
            return Ok(known);
        }
        let good = self.shares().into_iter().filter(|share| share.error.is_none());
        let asked = good.map(|Share { from, .. }| async move {
            from.store.digest(&from.caller, &from.path, algorithm, progress).await
        });
        let (told, failed): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().partition(Result::is_ok);
        let mut told = told.into_iter().flatten();
        let Some(one) = told.next() else {
            let nobody = || Err(Error::new(Fault::Unavailable, "no source is left"));
            return failed.into_iter().next().unwrap_or_else(nobody);
        };
        let Some(other) = told.find(|other| *other != one) else { return Ok(one) };
        let message = format!("the sources have files with different {algorithm}: {one} and {other}");
        Err(Error::new(Fault::ChecksumMismatch, message))
    }

    async fn attributes(&self, _caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Err(only_read(path))
    }

    async fn set_attribute(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _name: &[u8],
        _value: Option<&[u8]>,
        _create: bool,
    ) -> Result<()> {
        Err(only_read(path))
    }

    async fn space(&self, _caller: &Caller, path: &StorePath) -> Result<Space> {
        Err(only_read(path))
    }
}

#[cfg(test)]
mod tests;
