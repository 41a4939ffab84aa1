//! An object open for reading: an HTTP file with S3's own metadata.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;
use towpath_store::{
    ByteRange, Caller, ContentStream, Error, Fault, LocalPart, Metadata, OpenOptions, Preparation, ReadBuffer,
    ReadHandle, Result, StorePath, VectorReads,
};

use super::bucket::{Bucket, key_of, prefix_of};
use crate::http::{describe::Version, read::RemoteFile};

/// One version of an object.
#[derive(Debug)]
pub(super) struct ObjectFile {
    file: RemoteFile,
    bucket: Bucket,
    caller: Caller,
    path: StorePath,
    /// Whether to request the digest of the whole object, which responses to range requests lack.
    wants_digests: bool,
    head: OnceCell<Metadata>,
}

impl ObjectFile {
    /// Creates a handle of the object at `path`, without a request.
    ///
    /// # Errors
    /// Fails if the path cannot be a key.
    pub(super) fn new(bucket: Bucket, caller: Caller, path: StorePath, options: OpenOptions) -> Result<Self> {
        let target = bucket.target(key_of(&path)?, "");
        let mut file = RemoteFile::new(Arc::clone(&bucket.site), caller.clone(), path.clone(), target, options.version);
        let has_digests = options.known.as_ref().is_some_and(|known| !known.digests.is_empty());
        if let Some(known) = options.known {
            file.pin_known(known).map_err(|error| error.at(&path))?;
        }
        let wants_digests = options.verifies_digests && !has_digests;
        Ok(Self { file, bucket, caller, path, wants_digests, head: OnceCell::new() })
    }

    /// Explains the error of a missing key: there may be a directory with this name.
    async fn explain(&self, error: Error) -> Error {
        if error.fault() != Fault::NotFound {
            return error;
        }
        let prefix = prefix_of(&self.path).unwrap_or_default();
        match self.bucket.has_keys(&self.caller, &prefix).await {
            Ok(true) => Error::new(Fault::IsDirectory, "it is a directory").at(&self.path),
            Ok(false) => error,
            // This error shows whether the bucket exists.
            Err(why) => why.at(&self.path),
        }
    }

    async fn describe(&self) -> Result<Metadata> {
        if !self.wants_digests {
            return self.file.metadata().await;
        }
        let head = self.head.get_or_try_init(|| async {
            let key = key_of(&self.path)?;
            self.bucket.head(&self.caller, key).await.map_err(|error| error.at(&self.path))
        });
        let metadata = head.await?.clone();
        let version = Version::of_metadata(&metadata);
        self.file.settle(metadata.clone(), version).map_err(|error| error.at(&self.path))?;
        Ok(metadata)
    }
}

#[async_trait]
impl ReadHandle for ObjectFile {
    async fn metadata(&self) -> Result<Metadata> {
        match self.describe().await {
            Ok(metadata) => Ok(metadata),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_into(offset, length, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        match self.file.read_into(offset, length, buffer).await {
            Ok(buffer) => Ok(buffer),
            Err(error) => Err(self.explain(error).await),
        }
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        self.file.read_vector(ranges)
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        self.file.stream().await
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        None
    }

    fn check_version(&self) -> Result<()> {
        Ok(())
    }
}
