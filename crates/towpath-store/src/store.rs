//! The trait that all stores implement, and its read and write handles.
//!
//! Rules that hold for every method, and that the conformance suite (`towpath-testkit`) checks:
//! - No method has a default body: a wrapper that forgets one does not compile.
//! - Cancellation is dropping the future. No handle, lock or temporary file is left behind. A modifying call may have
//!   begun, and may still take effect a little later: completely or not at all; a [`WriteHandle::write`] also
//!   partially.
//! - Reads, listings and queries may be repeated; every other method documents the effect of a repetition.
//! - An error states what happened ([`crate::Fault`]) and who has to act ([`crate::Blame`]).

use std::{fmt, fs::File, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Digests, Extent};

use crate::{CacheDirectives, Caller, Error, Fault, Metadata, Result, ResumeKey, Space, StorePath, VersionTag};

/// A tree of files and directories under a root.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns what this store supports; known before a transfer starts.
    fn capabilities(&self) -> Capabilities;

    /// Returns the metadata of a path. Digests are included only if they are known without computation.
    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata>;

    /// Returns the entries of one directory, in any order, as a stream of batches. The stream holds at most a few
    /// batches, however large the directory is, and reads on only when polled.
    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing;

    /// Opens a file for reading. A remote store may open lazily: an error about the path is then returned by the first
    /// use of the handle.
    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>>;

    /// Starts a new file, which is not visible until [`WriteHandle::commit`]. A repetition starts another file; of two
    /// commits to one path the later wins or, with [`Overwrite::Refuse`], fails. Needs [`Capabilities::create`].
    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>>;

    /// Opens an existing file for updates in place, which are visible immediately. Needs [`Capabilities::update`].
    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>>;

    /// Creates a directory. With `parents`, missing parents are created too, and an existing directory is not an error.
    /// Needs [`Capabilities::create`].
    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()>;

    /// Removes a file (or anything that is not a directory). A repetition fails with `NotFound`. Needs
    /// [`Capabilities::remove`].
    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Removes an empty directory. A repetition fails with `NotFound`. Needs [`Capabilities::remove`].
    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Removes a directory with its contents, as far as possible; links in it are removed, not followed. A repetition
    /// fails with `NotFound`. Needs [`Capabilities::remove_tree`].
    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Renames a file or directory within the store, in one step. A repetition fails with `NotFound`. Needs
    /// [`Capabilities::rename`].
    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()>;

    /// Copies one file within the store, with its mode, known digests and user attributes; the copy becomes visible
    /// only when it is complete. Needs [`Capabilities::copy`].
    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()>;

    /// Changes mode, time or size of a path. Idempotent. A new size invalidates the known digests; a new time alone
    /// does not, unless it is so recent that a change of the content could leave it the same. Without changes it has
    /// no effect, but a remote store may probe the server's capabilities ([`Self::capabilities`]).
    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()>;

    /// Returns the digest of a whole file: the known one, or one computed by reading the file, which is then stored if
    /// the store can. `progress` is called from time to time with the bytes read so far, but not if a concurrent call
    /// already computes the digest. A store that reads the file over a network first calls it with 0, so that the
    /// caller can drop the future in time; one whose server computes the digest does not call it.
    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest>;

    /// Returns the names and values of the user attributes of a path. Needs [`Capabilities::attributes`]. A store that
    /// does not limit their number fails with `TooLarge` beyond 2 MiB.
    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>>;

    /// Sets a user attribute, or removes it (`None`; `AttributeNotFound` if it does not exist). With `create` an
    /// existing one is an error. Names have at most 248 bytes and values 64 KiB, as in XRootD.
    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()>;

    /// Returns the space of the file system that contains `path`.
    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space>;
}

/// An open file for reading, pinned to one version. All methods may be called concurrently.
///
/// A read that finds another version than the opened one fails with `Changed`; it never mixes two, unless the handle
/// was opened to follow the file ([`OpenOptions::follows`]).
#[async_trait]
pub trait ReadHandle: Send + Sync + fmt::Debug {
    /// Returns the metadata of the opened version.
    async fn metadata(&self) -> Result<Metadata>;

    /// Reads `length` bytes at `offset`; less only at the end of the file, empty at or past it. A read past the end
    /// checks, as far as the storage can, that the file is still the opened version; then everything read before was
    /// of that version. The caller bounds `length`, which is the memory that the read takes.
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Like [`Self::read`], appended to the caller's buffer.
    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>>;

    /// Like [`Self::read_into`], if possible without waiting (page cache, memory). Returns the number of bytes
    /// appended, or `None` with an unchanged buffer. A store may also decline a length that would occupy the calling
    /// thread for too long.
    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>>;

    /// Fills many buffers from the opened version, if possible without waiting; `None` if not, or if it would occupy
    /// the calling thread for too long. If any range exceeds the end of the file, the call fails with
    /// `InvalidArgument`. The buffers are valid only after complete success.
    fn read_vector_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>>;

    /// Reads many ranges, which may overlap and be in any order. Each result comes with the index of its range, in any
    /// order, and succeeds or fails on its own; a range beyond the end of the file fails with `InvalidArgument`. The
    /// caller limits the ranges: a result takes the memory of its range, and a store reads only a few results ahead.
    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_>;

    /// Returns the content of a file of unknown length from start to end; [`Self::metadata`] and all reads of such a
    /// file fail with `Unsupported`. `None` for any other file, except that the result of a query
    /// ([`OpenOptions::query`]) is always returned if the storage sends it whole.
    async fn stream(&self) -> Result<Option<ContentStream>>;

    /// Announces reads of `ranges`, which may overlap, be in any order, and pass the end of the file, so that a store
    /// can fetch them from afar with few requests. `None` if announcing has no effect: all of them are at hand, or the
    /// store has no place for data in advance. Returns immediately.
    fn prepare(&self, ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>>;

    /// Returns a part of a local file that holds the `length` bytes at `offset`, as far as they are within the file, for
    /// `sendfile` and the like; `None` if they are not, or not intact, in a local file at the same offset. It stays the
    /// opened version. Returns immediately.
    fn local_part(&self, offset: u64, length: u64) -> Option<LocalPart>;

    /// Returns `Changed` if the file no longer has the opened version. For users of [`Self::local_part`]; the reads
    /// above check it themselves. Never waits for the network.
    fn check_version(&self) -> Result<()>;

    /// Closes the file, and returns when the storage has closed it: some do not let others write a file that is open. A
    /// handle that is dropped closes it some time later. A read opens it again.
    async fn close(&self) {}
}

/// Announced reads of a file ([`ReadHandle::prepare`]). Dropping it withdraws the announcement.
#[async_trait]
pub trait Preparation: Send + Sync + fmt::Debug {
    /// Waits until `part`, a part of the announced ranges, can be read without waiting for a network. The data are
    /// in the store, not in memory of the caller. They may be lost again before they are read; the read then waits.
    ///
    /// Fails if fetching them failed. Cancellation has no effect on other callers.
    async fn ready(&self, part: ByteRange) -> Result<()>;
}

/// A part of a local file whose data stay in place while this exists: the store does not overwrite, truncate or punch
/// it meanwhile. (Other programs can: see [`ReadHandle::check_version`].)
#[derive(Clone)]
pub struct LocalPart {
    /// The file. Bytes outside of the part are undefined.
    pub file: Arc<File>,
    /// Held by the store while the part is in use.
    lease: Option<Arc<dyn PartLease>>,
}

/// Keeps the data of a [`LocalPart`] in place until it is dropped.
pub trait PartLease: Send + Sync {
    /// Records that `bytes` of the file from `offset` were sent to a client.
    fn record_sent(&self, offset: u64, bytes: u64);
}

impl LocalPart {
    /// Creates a part of a file whose data the store never moves.
    pub fn new(file: Arc<File>) -> Self {
        Self { file, lease: None }
    }

    /// Creates a part of a file whose data the store may move once `lease` is dropped.
    pub fn leased(file: Arc<File>, lease: Arc<dyn PartLease>) -> Self {
        Self { file, lease: Some(lease) }
    }

    /// Records that `bytes` of the file from `offset` were sent to a client. A store that counts what its readers get
    /// cannot see it otherwise.
    pub fn record_sent(&self, offset: u64, bytes: u64) {
        if let Some(lease) = &self.lease {
            lease.record_sent(offset, bytes);
        }
    }
}

impl fmt::Debug for LocalPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPart").field("file", &self.file).finish_non_exhaustive()
    }
}

/// An open file for writing. All methods may be called concurrently, with pieces in any order.
///
/// Dropping the handle without [`Self::commit`] leaves nothing visible, and no data unless the upload has a
/// [`CreateOptions::resume`] (for [`Store::update`]: written data stay).
#[async_trait]
pub trait WriteHandle: Send + Sync + fmt::Debug {
    /// Writes `data` at `offset`; a gap before it reads as zeros. Idempotent.
    async fn write(&self, offset: u64, data: Bytes) -> Result<()>;

    /// Returns the extents that an earlier upload with the same [`CreateOptions::resume`] stored and that were
    /// verified when this handle was created: by offset, without touching each other, at most
    /// [`crate::MAX_PRESENT_EXTENTS`], each with its CRC32C and Adler32, so that digests of the whole file need no
    /// second read. They count as written by this handle; later writes do not change the result. Empty without a key.
    /// After the end of the upload it may fail with `HandleNotOpen`.
    async fn present(&self) -> Result<Vec<Extent>>;

    /// Reads written data, like [`ReadHandle::read`].
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Truncates or extends the file to `size` bytes. Idempotent.
    async fn set_size(&self, size: u64) -> Result<()>;

    /// Flushes written data to stable storage, according to the store's policy.
    async fn sync(&self) -> Result<()>;

    /// Returns the metadata of the file as written so far.
    async fn metadata(&self) -> Result<Metadata>;

    /// Verifies the file against `expected`, makes it durable and visible under its name in one step, and returns its
    /// metadata. After a failure nothing is visible and the handle is finished; later calls fail with `HandleNotOpen`.
    /// (One failure can come later: that of a disk to which the store's policy writes the new name before this
    /// returns.) Written data of an upload with a [`CreateOptions::resume`] then stay as if the handle had been
    /// dropped, but not after `ChecksumMismatch`, nor if the storage could not make them durable.
    async fn commit(&self, expected: Expectation) -> Result<Metadata>;

    /// Aborts the upload and removes written data, even of a resumable upload. Has no effect after `commit` or a
    /// second time.
    async fn abort(&self) -> Result<()>;
}

/// Batches of a listing.
pub type Listing = BoxStream<'static, Result<Vec<Entry>>>;

/// Results of a vector read: the index of the requested range, and its bytes.
pub type VectorReads<'a> = BoxStream<'a, (usize, Result<Bytes>)>;

/// The content of a file of unknown length, or of the result of a query, which can be read once.
pub struct ContentStream {
    /// Non-empty pieces in order. Fails if the connection is lost.
    pub pieces: BoxStream<'static, Result<Bytes>>,
    /// What the storage announced at the start: digests of the whole file, time, version, freshness. The size is 0 if it
    /// is unknown.
    pub metadata: Metadata,
    /// Whether the storage marks the end. If it does not, and there is no digest, a lost connection may have truncated
    /// the content undetectably.
    pub is_framed: bool,
}

impl ContentStream {
    /// Returns the content of `file` as a stream, after its metadata or first read failed with `error`.
    ///
    /// # Errors
    /// `error` itself, unless it is `Unsupported` and the file has unknown length; errors of [`ReadHandle::stream`].
    pub async fn instead_of(error: Error, file: &dyn ReadHandle) -> Result<Self> {
        match error.fault() {
            Fault::Unsupported => file.stream().await?.ok_or(error),
            _ => Err(error),
        }
    }

    /// Returns whether truncation is detectable: the storage marks the end, or there is a digest.
    pub fn has_proven_end(&self) -> bool {
        self.is_framed || !self.metadata.digests.is_empty()
    }
}

impl fmt::Debug for ContentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metadata, is_framed, .. } = self;
        f.debug_struct("ContentStream")
            .field("metadata", metadata)
            .field("is_framed", is_framed)
            .finish_non_exhaustive()
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A single path component. A bucket may have names that [`StorePath::join`] rejects (empty, `.`, `..`, too long):
    /// they are listed but cannot be used.
    pub name: Bytes,
    /// Its metadata as requested by [`ListOptions`]; the kind is always valid.
    pub metadata: Metadata,
}

/// The metadata to return in a listing.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions {
    /// Size, times and mode of each entry, in addition to name and kind.
    pub metadata: bool,
    /// Known digests of each entry.
    pub digests: bool,
}

/// Options for opening a file for reading.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The required version; any other fails with `Changed`.
    pub version: Option<VersionTag>,
    /// The caller reads the whole file and compares it with the known digests itself. If there are any, a remote store
    /// may then omit the checksums of single ranges.
    pub verifies_digests: bool,
    /// Reads return the current content of the file instead of the opened version: they reach appended data, and do
    /// not fail with `Changed`. Ignored by stores without support.
    pub follows: bool,
    /// The metadata of the file, as this store returned them for this path a moment ago (from a stat, or from a
    /// listing with [`ListOptions::metadata`]). A remote store then does not request them again. The handle is pinned
    /// to the version that they describe; any other fails with `Changed`, at the latest when the file is read.
    pub known: Option<Metadata>,
    /// Directives of the client to a cache. Ignored by stores without one.
    pub cache: CacheDirectives,
    /// Each result of a read is certainly of the opened version: a store whose servers may answer a read after a change
    /// without noticing compares the version once more before it returns the result. Ignored by stores without
    /// [`Capabilities::confirms`].
    pub confirms: bool,
    /// What selects the content together with the path, as the client encoded it in its URL, without tokens: `?` and a
    /// query; or `/` and a last name of more than [`crate::MAX_NAME_BYTES`], perhaps with a query. Ignored by stores
    /// without [`Capabilities::queries`].
    pub query: Option<Arc<str>>,
    /// Metadata of a version that the caller has. [`ReadHandle::stream`] of that version fails with 304 as its
    /// [`Error::code`], if the store can tell (RFC 9110 §13.1.2, §13.1.3). Other methods ignore it.
    pub held: Option<Metadata>,
}

impl OpenOptions {
    /// Returns whether a file with the metadata `found` is the required version.
    pub fn accept(&self, found: &Metadata) -> bool {
        let is_known = |known: &Metadata| match &known.version {
            Some(_) => known.version == found.version,
            None => known.size == found.size && known.mtime_ns.is_none_or(|time| found.mtime_ns == Some(time)),
        };
        let is_required = self.version.is_none() || self.version == found.version;
        is_required && self.known.as_ref().is_none_or(is_known)
    }
}

/// The treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Fail with `AlreadyExists`.
    #[default]
    Refuse,
    /// Replace it atomically. Needs [`Capabilities::remove`]; otherwise fail with `AlreadyExists`.
    Replace,
}

/// Options for a new file.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Treatment of an existing file.
    pub overwrite: Overwrite,
    /// Whether to create missing parent directories.
    pub parents: bool,
    /// Permission bits; `None` for the store's default.
    pub mode: Option<u32>,
    /// Expected size, if known: a store can then report lack of space before the first byte. A store may reject a file
    /// that ends up shorter, or a large one that ends up longer.
    pub size_hint: Option<u64>,
    /// The modification time of the later [`Expectation::mtime_ns`], if it is known already: some stores need it
    /// first.
    pub mtime_ns: Option<i64>,
    /// Digests to compute in addition to those that the store always stores. Those that cannot be combined from parts
    /// (MD5, SHA-256) are available only if pieces arrive in order.
    pub digests: Algorithms,
    /// The upload is resumable: written data stay, invisible, when its handle is dropped, for instance because the
    /// network was lost or the process was killed. The next upload by the same caller with the same key and
    /// `size_hint` continues it; see [`WriteHandle::present`]. Creating it then takes as long as reading the stored
    /// data. Requires `size_hint` (`InvalidArgument`). Only one handle at a time may hold the key (`Overloaded`).
    /// Ignored by a store without [`Capabilities::resume`].
    pub resume: Option<ResumeKey>,
}

/// The expected properties of a finished upload. An upload that differs does not become visible.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// Exact size in bytes; `Truncated` otherwise.
    pub size: Option<u64>,
    /// Digests; `ChecksumMismatch` otherwise. A digest that was not computed during the upload is computed by reading
    /// the file.
    pub digests: Digests,
    /// Modification time to set, in nanoseconds since the Unix epoch; ignored without [`Capabilities::set_mtime`].
    pub mtime_ns: Option<i64>,
}

impl Expectation {
    /// Compares the size with the expected one, if any.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn check_size(&self, size: u64) -> Result<()> {
        match self.size {
            Some(promised) if promised != size => {
                let message = format!("{promised} bytes were promised, but {size} were written");
                Err(Error::new(Fault::Truncated, message))
            }
            _ => Ok(()),
        }
    }

    /// Compares `digests` with the expected ones.
    ///
    /// # Errors
    /// `ChecksumMismatch`.
    pub fn check_digests(&self, digests: &Digests) -> Result<()> {
        for promised in self.digests.iter() {
            if let Some(actual) = digests.get(promised.algorithm()).filter(|actual| actual != promised) {
                let message = format!("the data have {actual:#}, but {promised:#} was expected");
                return Err(Error::new(Fault::ChecksumMismatch, message));
            }
        }
        Ok(())
    }
}

/// Changes to the metadata of a path; `None` keeps a property.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since the Unix epoch.
    pub mtime_ns: Option<i64>,
    /// Size in bytes, for files: truncated, or extended with zeros.
    pub size: Option<u64>,
}

/// A range of a file: `length` bytes at `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: usize,
}

impl ByteRange {
    /// Returns the end of the range, exclusive; saturates at the maximum.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }
}

/// A buffer to fill with the bytes of a file at `offset`; its length is the number of bytes.
#[derive(Debug)]
pub struct ReadBuffer<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// The buffer.
    pub buffer: &'a mut [u8],
}

impl ReadBuffer<'_> {
    /// Returns the end of the range in the file, exclusive; saturates at the maximum.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.buffer.len() as u64)
    }
}

/// Length of a read in bytes at which the overhead per call is negligible, and the data still fit into the CPU cache.
pub const READ_BYTES: usize = 2 << 20;

/// What a store supports. A face reports other operations as unsupported, and a mover plans accordingly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// New files and directories can be created.
    pub create: bool,
    /// Pieces of a new file may arrive in any order; otherwise strictly from the start.
    pub write_any_order: bool,
    /// Existing files can be changed in place, and so can sizes and modes ([`Changes`]).
    pub update: bool,
    /// Files and directories can be removed, and new files can replace existing ones. Without it,
    /// [`Overwrite::Replace`] has the effect of [`Overwrite::Refuse`].
    pub remove: bool,
    /// Directories can be removed with their contents in one request.
    pub remove_tree: bool,
    /// Files and directories can be renamed in one step.
    pub rename: bool,
    /// Files can be copied within the store without transferring their data.
    pub copy: bool,
    /// User attributes are supported.
    pub attributes: bool,
    /// Modification times can be set, as far as known: a remote store may find out only with its first request.
    pub set_mtime: bool,
    /// Maximum useful length in bytes of each of many concurrent reads: [`READ_BYTES`], or more if each has its own
    /// connection.
    pub read_bytes: usize,
    /// Maximum useful number of ranges in one vector read.
    pub vector_ranges: usize,
    /// Maximum length of a range in a vector read in bytes.
    pub vector_range_bytes: usize,
    /// Digests that the store can compute for a whole file.
    pub digests: Algorithms,
    /// Interrupted uploads can be resumed ([`CreateOptions::resume`]).
    pub resume: bool,
    /// Files may differ by the query of their URL ([`OpenOptions::query`]).
    pub queries: bool,
    /// Reads can be confirmed to be of the opened version ([`OpenOptions::confirms`]), with fewer round trips than a
    /// read past the end takes.
    pub confirms: bool,
}

impl Capabilities {
    /// Returns what both stores support.
    pub fn common(&self, other: &Self) -> Self {
        Self {
            create: self.create && other.create,
            write_any_order: self.write_any_order && other.write_any_order,
            update: self.update && other.update,
            remove: self.remove && other.remove,
            remove_tree: self.remove_tree && other.remove_tree,
            rename: self.rename && other.rename,
            copy: self.copy && other.copy,
            attributes: self.attributes && other.attributes,
            set_mtime: self.set_mtime && other.set_mtime,
            read_bytes: self.read_bytes.min(other.read_bytes),
            vector_ranges: self.vector_ranges.min(other.vector_ranges),
            vector_range_bytes: self.vector_range_bytes.min(other.vector_range_bytes),
            digests: self.digests.intersection(other.digests),
            resume: self.resume && other.resume,
            queries: self.queries && other.queries,
            confirms: self.confirms && other.confirms,
        }
    }

    /// Returns the capabilities of a store that serves the same files read-only.
    #[must_use]
    pub fn without_changes(self) -> Self {
        Self {
            create: false,
            write_any_order: false,
            update: false,
            remove: false,
            remove_tree: false,
            rename: false,
            copy: false,
            set_mtime: false,
            resume: false,
            ..self
        }
    }

    /// Returns whether nothing can be created, changed, renamed or removed.
    pub fn is_read_only(&self) -> bool {
        !(self.create || self.update || self.rename || self.remove)
    }

    /// Checks that `path` can be created.
    ///
    /// # Errors
    /// `ReadOnly` if nothing can be changed, otherwise `Unsupported`.
    pub fn check_create(&self, path: &StorePath) -> Result<()> {
        self.check(self.create, "create files and directories", path)
    }

    /// Checks that `path` can be removed.
    ///
    /// # Errors
    /// As [`Self::check_create`].
    pub fn check_remove(&self, path: &StorePath) -> Result<()> {
        self.check(self.remove, "remove files and directories", path)
    }

    /// Checks that `path` can be renamed.
    ///
    /// # Errors
    /// As [`Self::check_create`].
    pub fn check_rename(&self, path: &StorePath) -> Result<()> {
        self.check(self.rename, "rename files and directories", path)
    }

    /// Checks that a new file can replace the existing one at `path`.
    ///
    /// # Errors
    /// `AlreadyExists`, as from the store.
    pub fn check_replace(&self, path: &StorePath) -> Result<()> {
        if self.remove {
            return Ok(());
        }
        Err(Error::new(Fault::AlreadyExists, "it exists already, and this store replaces no files").at(path))
    }

    fn check(&self, is_supported: bool, operation: &str, path: &StorePath) -> Result<()> {
        if is_supported {
            return Ok(());
        }
        let fault = if self.is_read_only() { Fault::ReadOnly } else { Fault::Unsupported };
        Err(Error::new(fault, format!("this store cannot {operation}")).at(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileKind;

    #[test]
    fn known_metadata_identify_a_version_by_its_tag_or_else_by_size_and_time() {
        let metadata = |size, mtime_ns, tag: Option<&str>| Metadata {
            mtime_ns,
            version: tag.and_then(VersionTag::new),
            ..Metadata::new(FileKind::File, size)
        };
        let found = metadata(5, Some(7), Some("a"));
        for (known, is_accepted) in [
            (metadata(5, Some(7), Some("a")), true),
            (metadata(5, Some(7), Some("b")), false),
            (metadata(5, Some(7), None), true),
            (metadata(5, None, None), true),
            (metadata(6, None, None), false),
            (metadata(5, Some(8), None), false),
        ] {
            let options = OpenOptions { known: Some(known.clone()), ..OpenOptions::default() };
            assert_eq!(options.accept(&found), is_accepted, "{known:?}");
            let other = OpenOptions { version: VersionTag::new("b"), ..options };
            assert!(!other.accept(&found));
        }
        assert!(OpenOptions::default().accept(&found));
    }
}
