//! Members of ZIP archives as files: `?xrdcl.unzip=NAME` in the URL of an archive, like `xrdcp --zip`.
//!
//! [`ZipStore`] wraps the store of the archive. In it the archive is a directory that contains the member as a file:
//! `/dir/s.zip/NAME`. The end of the archive and its directory are read when the member is opened. An uncompressed
//! member then is a range of the archive; a compressed member is a stream. Only reading is supported. The CRC-32 in the
//! directory is the digest of the member.

mod file;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest},
    zip::{self, DirectoryLocation, InvalidZip, Member},
};
use towpath_store::{
    Blame, Caller, Capabilities, Changes, CreateOptions, Entry, Error, Fault, ListOptions, Listing, Metadata,
    OpenOptions, Overwrite, ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use crate::digest::compute;
use file::{DeflatedFile, StoredFile};

/// A store with one member of one archive.
#[derive(Debug)]
pub(crate) struct ZipStore {
    inner: Arc<dyn Store>,
    archive: StorePath,
    name: Bytes,
    member: StorePath,
}

/// An open archive, with the directory entry of the member.
struct OpenArchive {
    archive: Arc<dyn ReadHandle>,
    metadata: Metadata,
    member: Member,
}

impl ZipStore {
    /// Creates the store of the member `name` of the archive at `archive` in `inner`. Returns the path in this store
    /// too.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not valid in a path.
    pub(crate) fn new(inner: Arc<dyn Store>, archive: StorePath, name: &[u8]) -> Result<(Self, StorePath)> {
        let member = member_path(&archive, name)?;
        let store = Self { inner, archive, name: Bytes::copy_from_slice(name), member: member.clone() };
        Ok((store, member))
    }

    async fn open_archive(&self, caller: &Caller) -> Result<OpenArchive> {
        let archive = self.inner.open(caller, &self.archive, OpenOptions::default()).await?;
        let mut metadata = archive.metadata().await?;
        let size = metadata.size;
        let tail_bytes = size.min(zip::TAIL_BYTES);
        let tail = read_exactly(&*archive, size - tail_bytes, tail_bytes).await?;
        let range = match zip::find(&tail, size).map_err(|error| self.unusable(error))? {
            DirectoryLocation::Directory(range) => range,
            DirectoryLocation::Record64(offset) => {
                let record = read_exactly(&*archive, offset, zip::END64_BYTES as u64).await?;
                zip::directory64(&record, size).map_err(|error| self.unusable(error))?
            }
        };
        if range.end - range.start > zip::MAX_DIRECTORY_BYTES {
            return Err(self.unusable(InvalidZip("its directory is too large")));
        }
        let directory = read_exactly(&*archive, range.start, range.end - range.start).await?;
        let member = zip::member(&directory, &self.name).map_err(|error| self.unusable(error))?;
        let member = member.ok_or_else(|| {
            let name = String::from_utf8_lossy(&self.name).into_owned();
            let message = format!("the archive has no member `{}`", crate::words::readable(&name));
            Error::new(Fault::NotFound, message).at(&self.archive)
        })?;
        metadata.size = member.bytes;
        metadata.digests = Digest::new(Algorithm::Crc32, &member.crc32.to_be_bytes()).into_iter().collect();
        metadata.version = None;
        Ok(OpenArchive { archive, metadata, member })
    }

    fn unusable(&self, error: InvalidZip) -> Error {
        Error::new(Fault::InvalidArgument, error.to_string()).blamed_on(Blame::Storage).at(&self.archive)
    }

    fn check(&self, path: &StorePath) -> Result<()> {
        if *path == self.member {
            return Ok(());
        }
        Err(Error::new(Fault::NotFound, "this is not the member that xrdcl.unzip names").at(path))
    }

    fn read_only(&self) -> Error {
        Error::new(Fault::Unsupported, "members of ZIP archives are read-only").at(&self.archive)
    }
}

/// Returns the path of the member `name` of `archive` in a [`ZipStore`].
///
/// # Errors
/// `InvalidArgument` for a name that is not valid in a path.
fn member_path(archive: &StorePath, name: &[u8]) -> Result<StorePath> {
    let joined = name.split(|byte| *byte == b'/').try_fold(archive.clone(), |path, component| path.join(component));
    joined.map_err(|error| Error::new(Fault::InvalidArgument, format!("xrdcl.unzip: {error}")).at(archive))
}

/// Reads exactly `bytes` of a file from `offset` on.
async fn read_exactly(file: &dyn ReadHandle, offset: u64, bytes: u64) -> Result<Bytes> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let read = file.read(offset, length).await?;
    if read.len() == length {
        return Ok(read);
    }
    Err(Error::new(Fault::Truncated, "the archive is shorter than its reported size").blamed_on(Blame::Storage))
}

#[async_trait]
impl Store for ZipStore {
    fn capabilities(&self) -> Capabilities {
        let digests = [Algorithm::Crc32].into_iter().collect::<Algorithms>();
        Capabilities {
            attributes: false,
            digests,
            queries: false,
            confirms: false,
            ..self.inner.capabilities().without_changes()
        }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.check(path)?;
        Ok(self.open_archive(caller).await?.metadata)
    }

    fn list(&self, _caller: &Caller, path: &StorePath, _options: ListOptions) -> Listing {
        let error = Error::new(Fault::NotDirectory, "a member of a ZIP archive is not a directory").at(path);
        Box::pin(futures::stream::iter([Err::<Vec<Entry>, _>(error)]))
    }

    async fn open(&self, caller: &Caller, path: &StorePath, _options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.check(path)?;
        let OpenArchive { archive, metadata, member } = self.open_archive(caller).await?;
        let header = read_exactly(&*archive, member.header_offset, zip::HEADER_BYTES as u64).await?;
        let behind = zip::content_offset(&header).map_err(|error| self.unusable(error))?;
        let start = member.header_offset.saturating_add(behind);
        Ok(match member.method {
            zip::Method::Stored => Arc::new(StoredFile { archive, start, metadata }),
            zip::Method::Deflated => Arc::new(DeflatedFile { archive, start, metadata, member }),
        })
    }

    async fn create(&self, _: &Caller, _: &StorePath, _: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        Err(self.read_only())
    }

    async fn update(&self, _: &Caller, _: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Err(self.read_only())
    }

    async fn make_directory(&self, _: &Caller, _: &StorePath, _: bool, _: Option<u32>) -> Result<()> {
        Err(self.read_only())
    }

    async fn remove_file(&self, _: &Caller, _: &StorePath) -> Result<()> {
        Err(self.read_only())
    }

    async fn remove_directory(&self, _: &Caller, _: &StorePath) -> Result<()> {
        Err(self.read_only())
    }

    async fn remove_tree(&self, _: &Caller, _: &StorePath) -> Result<()> {
        Err(self.read_only())
    }

    async fn rename(&self, _: &Caller, _: &StorePath, _: &StorePath, _: Overwrite) -> Result<()> {
        Err(self.read_only())
    }

    async fn copy(&self, _: &Caller, _: &StorePath, _: &StorePath, _: Overwrite) -> Result<()> {
        Err(self.read_only())
    }

    async fn change(&self, _: &Caller, _: &StorePath, changes: Changes) -> Result<()> {
        match changes {
            Changes { mode: None, mtime_ns: None, size: None } => Ok(()),
            _ => Err(self.read_only()),
        }
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let file = self.open(caller, path, OpenOptions::default()).await?;
        compute(&*file, algorithm, progress).await.map_err(|error| error.at(path))
    }

    async fn attributes(&self, _: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Err(Error::new(Fault::Unsupported, "members of ZIP archives have no attributes").at(path))
    }

    async fn set_attribute(&self, _: &Caller, _: &StorePath, _: &[u8], _: Option<&[u8]>, _: bool) -> Result<()> {
        Err(self.read_only())
    }

    async fn space(&self, caller: &Caller, _: &StorePath) -> Result<Space> {
        self.inner.space(caller, &self.archive).await
    }
}

#[cfg(test)]
mod tests;
