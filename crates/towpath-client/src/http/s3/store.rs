//! The store behind an `s3://` URL.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest},
    s3::MAX_OBJECT_BYTES,
    url::Url,
};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, Kind, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use super::{
    Sites,
    bucket::{Bucket, key_of, prefix_of},
    budget::Budget,
    file::ObjectFile,
    listing,
    parts::UploadTarget,
    upload::Upload,
};
use crate::{
    digest::compute,
    http::{read, vector},
};

/// A bucket as a store. Directories are prefixes of keys; `docs/guides/s3.md` describes the consequences.
#[derive(Clone)]
pub struct S3Store {
    bucket: Bucket,
    budget: Arc<Budget>,
    /// The path of a URL with a trailing slash: a directory, even if an object has the name without the slash.
    directory: Option<StorePath>,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Store").field(&self.bucket.target("", "")).finish()
    }
}

impl S3Store {
    /// Creates the store of the bucket in `url`, without a request. The path of a URL with a trailing slash is a
    /// directory in this store.
    ///
    /// # Errors
    /// `InvalidArgument` if the settings are invalid.
    pub(crate) fn new(sites: &Arc<Sites>, url: &Url) -> Result<Self> {
        let directory = url.path().ends_with(b"/").then(|| StorePath::parse(url.path()).ok()).flatten();
        Ok(Self { bucket: sites.bucket(url.host())?, budget: Arc::clone(&sites.budget), directory })
    }

    /// Checks whether an object may be created at `path`, as far as this can be observed now.
    async fn check_new(&self, caller: &Caller, path: &StorePath, options: &CreateOptions) -> Result<()> {
        let (key, prefix) = (key_of(path)?, prefix_of(path)?);
        let (object, below) = futures::join!(self.bucket.head(caller, key), self.bucket.has_keys(caller, &prefix));
        match below {
            Ok(true) => return Err(Error::new(Fault::IsDirectory, "it is a directory")),
            // A caller with permission to write may lack permission to read.
            Err(error) if error.kind() != Kind::Denied => return Err(error),
            _ => {}
        }
        match object {
            Ok(_) if options.overwrite == Overwrite::Refuse => {
                Err(Error::new(Fault::AlreadyExists, "it exists already"))
            }
            Err(error) if error.fault() == Fault::NotFound && !options.parents => {
                self.bucket.check_parent(caller, path).await
            }
            _ => Ok(()),
        }
    }
}

/// Returns the error for an operation that S3 does not have.
fn unsupported(what: &str, path: &StorePath) -> Error {
    Error::new(Fault::Unsupported, format!("S3 cannot {what}")).at(path)
}

#[async_trait]
impl Store for S3Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            write_any_order: false,
            update: false,
            remove: true,
            remove_tree: true,
            rename: true,
            copy: true,
            attributes: false,
            set_mtime: false,
            read_bytes: read::MAX_BYTES,
            vector_ranges: vector::MAX_RANGES,
            vector_range_bytes: vector::MAX_RANGE_BYTES,
            digests: Algorithm::ALL.into_iter().collect::<Algorithms>(),
            resume: false,
            queries: false,
            confirms: false,
        }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        match &self.directory {
            Some(directory) if directory == path => self.bucket.stat_directory(caller, path).await,
            _ => self.bucket.stat(caller, path).await,
        }
    }

    fn list(&self, caller: &Caller, path: &StorePath, _options: ListOptions) -> Listing {
        listing::list(self.bucket.clone(), caller.clone(), path.clone())
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        if path.is_root() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path));
        }
        Ok(Arc::new(ObjectFile::new(self.bucket.clone(), caller.clone(), path.clone(), options)?))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        if path.is_root() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path));
        }
        if options.size_hint.is_some_and(|size| size > MAX_OBJECT_BYTES) {
            return Err(Error::new(Fault::TooLarge, "an S3 object has at most 5 TiB").at(path));
        }
        self.check_new(caller, path, &options).await.map_err(|error| error.at(path))?;
        let (bucket, caller, key) = (self.bucket.clone(), caller.clone(), key_of(path)?.into());
        let target = UploadTarget { bucket, caller, key, budget: Arc::clone(&self.budget) };
        Ok(Arc::new(Upload::new(target, path.clone(), options)))
    }

    async fn update(&self, _caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Err(unsupported("change a file in place", path))
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, _mode: Option<u32>) -> Result<()> {
        self.bucket.make_directory(caller, path, parents).await
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.bucket.remove_file(caller, path).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.bucket.remove_directory(caller, path).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.bucket.remove_tree(caller, path).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.bucket.rename(caller, from, to, overwrite).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.bucket.copy_file(caller, from, to, overwrite).await
    }

    async fn change(&self, _caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        match changes {
            Changes { mode: None, mtime_ns: None, size: None } => Ok(()),
            _ => Err(unsupported("change mode, time or size of a file", path)),
        }
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let metadata = self.bucket.stat(caller, path).await?;
        if metadata.is_directory() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path));
        }
        if let Some(known) = metadata.digests.get(algorithm) {
            return Ok(known);
        }
        let options = OpenOptions { version: metadata.version, ..OpenOptions::default() };
        let file = ObjectFile::new(self.bucket.clone(), caller.clone(), path.clone(), options)?;
        compute(&file, algorithm, progress).await.map_err(|error| error.at(path))
    }

    async fn attributes(&self, _caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Err(unsupported("read attributes", path))
    }

    async fn set_attribute(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _name: &[u8],
        _value: Option<&[u8]>,
        _create: bool,
    ) -> Result<()> {
        Err(unsupported("set attributes", path))
    }

    async fn space(&self, _caller: &Caller, path: &StorePath) -> Result<Space> {
        Err(unsupported("report free space", path))
    }
}
