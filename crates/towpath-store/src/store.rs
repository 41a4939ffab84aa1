//! The trait that everything which holds bytes implements, and the two handles it gives out.
//!
//! Rules that hold for every method, and that the conformance suite (`towpath-testkit`) checks:
//! - No method has a default body: a wrapper that forgets one does not compile.
//! - Cancellation is dropping the future. After it no handle, lock or temporary file is left behind. A call that changes something
//!   may have begun, and still take effect a little later: wholly or not at all, a [`WriteHandle::write`] also in part.
//! - Reads, listings and questions may be repeated at will; each other method says what a repetition does.
//! - An error says what happened ([`crate::Fault`]) and whose fault it is ([`crate::Blame`]).

use std::{fmt, fs::File, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Digests, Extent};

use crate::{Caller, Error, Fault, Metadata, Result, ResumeKey, Space, StorePath, VersionTag};

/// Something that holds files and directories under a root.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// What this store can do at all, known before a transfer starts.
    fn capabilities(&self) -> Capabilities;

    /// Returns the metadata of a path. Digests are included only if they are at hand; none is computed.
    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata>;

    /// The entries of one directory, in no order, as a stream of batches. The stream holds at most a few batches at once,
    /// however large the directory; it reads on only as it is polled.
    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing;

    /// Opens a file for reading. A store far away may open lazily: then an error about the path comes with the handle's first use.
    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>>;

    /// Starts a new file, invisible under its name until [`WriteHandle::commit`].
    /// Repeating it starts another one; of two commits of one name the later wins or, with [`Overwrite::Refuse`], fails.
    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>>;

    /// Opens an existing file for changes in place, visible at once. Needs [`Capabilities::update`].
    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>>;

    /// Makes a directory. With `parents`, missing parents too, and an existing directory is no error.
    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()>;

    /// Removes a file (or anything that is no directory). Repeated, it fails with `NotFound`.
    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Removes an empty directory. Repeated, it fails with `NotFound`.
    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Removes a directory with all that it holds, as far as possible; links in it are removed, not followed. Repeated, it fails
    /// with `NotFound`. Needs [`Capabilities::remove_tree`].
    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()>;

    /// Gives a file or directory another name in the same store, in one step. Repeated, it fails with `NotFound`.
    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()>;

    /// Copies one file inside the store, with its mode, known digests and user attributes; the copy becomes visible whole.
    /// Needs [`Capabilities::copy`].
    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()>;

    /// Changes mode, time or size of a path. Idempotent. A new size invalidates the known digests; a new time alone
    /// does not, unless it is so recent that a change of the content could leave it the same. Without changes it has
    /// no effect, but a remote store may probe the server's capabilities ([`Self::capabilities`]).
    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()>;

    /// The digest of a whole file: the known one, or one computed by reading the file, which is then kept where the store can.
    /// `progress` is called now and then with the bytes read so far; not if the digest comes from another call that computes it already. A store that
    /// reads the file over a network for it calls it with 0 before, so that the caller can drop the future in time; one whose server computes it does not call it.
    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest>;

    /// The user attributes of a path, names and values. Needs [`Capabilities::attributes`]. A store that cannot bound what a path has
    /// fails with `TooLarge` beyond 2 MiB.
    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>>;

    /// Sets one user attribute, or removes it (`None`; `AttributeNotFound` if there is none). With `create` an existing one is refused.
    /// Names are at most 248 bytes and values 64 KiB, as XRootD has it.
    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()>;

    /// Room where `path` lies.
    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space>;
}

/// One version of a file, open for reading. All methods may be used from many tasks at once.
///
/// A read that meets another version than the one that was opened fails with `Changed`; it never mixes two. Unless it was opened to
/// follow the file ([`OpenOptions::follows`]).
#[async_trait]
pub trait ReadHandle: Send + Sync + fmt::Debug {
    /// Metadata of the version that is open.
    async fn metadata(&self) -> Result<Metadata>;

    /// Reads `length` bytes at `offset`; less only at the end of the file, empty at or past it. A read past the end
    /// checks, as far as the storage can, that the file is still the opened version; then everything read before was
    /// of that version. The caller bounds `length`, which is the memory that the read takes.
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// As [`Self::read`], appended to the caller's buffer.
    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>>;

    /// As [`Self::read_into`], but only if it can be done without waiting (page cache, memory): `None` if it cannot, and then
    /// the buffer is as it was. The number of bytes appended otherwise. A store may also decline a length that would keep the
    /// calling thread too long.
    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>>;

    /// Fills many places, all from the version that was opened, if it can be done without waiting: `None` if it cannot, or would
    /// keep the calling thread too long. If any range passes the end of the file all fails with `InvalidArgument`. Unless all went
    /// well, the content of the places means nothing.
    fn read_vector_now(&self, places: &mut [Place<'_>]) -> Option<Result<()>>;

    /// Reads many ranges; they may lie anywhere and overlap. Each result comes with the index of its range, in any order, and has its
    /// own fate; a range that passes the end of the file fails with `InvalidArgument`. The caller bounds the ranges: a result takes
    /// the memory of its range, and a store reads few results ahead of those that were taken.
    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_>;

    /// Returns the content of a file of unknown length from start to end; [`Self::metadata`] and all reads of such a
    /// file fail with `Unsupported`. `None` for any other file.
    async fn stream(&self) -> Result<Option<ContentStream>>;

    /// The open local file, where there is one, for `sendfile` and its like. It stays the version that was opened.
    fn local_file(&self) -> Option<Arc<File>>;

    /// Fails with `Changed` if the file is no longer the version that was opened. For users of [`Self::local_file`]; the
    /// reads above check by themselves. Never waits on the network.
    fn check_version(&self) -> Result<()>;
}

/// A file being written. All methods may be used from many tasks at once, pieces in any order.
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

    /// Reads written data back, like [`ReadHandle::read`].
    async fn read(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Cuts or extends the file to `size` bytes. Idempotent.
    async fn set_size(&self, size: u64) -> Result<()>;

    /// Flushes written data to stable storage, according to the store's policy.
    async fn sync(&self) -> Result<()>;

    /// Metadata of the file as written so far.
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

/// The batches of a listing.
pub type Listing = BoxStream<'static, Result<Vec<Entry>>>;

/// Results of a vector read: the index of the requested range, and its bytes.
pub type VectorReads<'a> = BoxStream<'a, (usize, Result<Bytes>)>;

/// The content of a file of unknown length, which comes once.
pub struct ContentStream {
    /// Pieces in order, none empty. It fails if the connection is lost.
    pub pieces: BoxStream<'static, Result<Bytes>>,
    /// Digests of the whole file that the storage announced at the start.
    pub digests: Digests,
    /// Whether the storage marks the end. If it does not, and there is no digest, a lost connection may have truncated
    /// the content undetectably.
    pub is_framed: bool,
}

impl ContentStream {
    /// Returns the content of `file`, whose metadata or first read failed with `error`, as a stream.
    ///
    /// # Errors
    /// `error` itself, unless it is `Unsupported` and the file is one of unknown length; those of [`ReadHandle::stream`].
    pub async fn instead_of(error: Error, file: &dyn ReadHandle) -> Result<Self> {
        match error.fault() {
            Fault::Unsupported => file.stream().await?.ok_or(error),
            _ => Err(error),
        }
    }

    /// Returns whether truncation is detectable: the storage marks the end, or there is a digest.
    pub fn has_proven_end(&self) -> bool {
        self.is_framed || !self.digests.is_empty()
    }
}

impl fmt::Debug for ContentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digests, is_framed, .. } = self;
        f.debug_struct("ContentStream").field("digests", digests).field("is_framed", is_framed).finish_non_exhaustive()
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name: one component, without slashes. A bucket may have names that [`StorePath::join`] refuses (empty, `.`, `..`, too long): they
    /// are there, and cannot be used.
    pub name: Bytes,
    /// Its metadata as requested by [`ListOptions`]; the kind is always valid.
    pub metadata: Metadata,
}

/// The metadata to return in a listing.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions {
    /// Size, times and mode of each entry, not only name and kind.
    pub metadata: bool,
    /// Known digests of each entry too.
    pub digests: bool,
}

/// How to open a file for reading.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The only version that will do; another fails with `Changed`.
    pub version: Option<VersionTag>,
    /// The caller reads all of the file and compares it with the known digests itself. If there are any, a store far away may then
    /// leave out the checksums of the single ranges.
    pub verifies_digests: bool,
    /// Reads return the current content of the file instead of the opened version: they reach appended data, and do
    /// not fail with `Changed`. Ignored by stores without support.
    pub follows: bool,
}

/// What to do about an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Fail with `AlreadyExists`.
    #[default]
    Refuse,
    /// Take its place, in one step.
    Replace,
}

/// How to start a new file.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// What to do about an existing file.
    pub overwrite: Overwrite,
    /// Make missing parent directories.
    pub parents: bool,
    /// Permission bits; the store's default if none.
    pub mode: Option<u32>,
    /// How large the file will be, if that is known: lets a store refuse for lack of space before the first byte. A file that is shorter in the end, or
    /// a large one that is longer, may be refused.
    pub size_hint: Option<u64>,
    /// The modification time of the later [`Expectation::mtime_ns`], if it is known already: some stores need it
    /// first.
    pub mtime_ns: Option<i64>,
    /// Digests wanted beyond those that the store keeps by itself. Ones that cannot be combined from parts (MD5, SHA-256)
    /// come out only if the pieces arrive in order.
    pub digests: Algorithms,
    /// The upload is resumable: written data stay, invisible, when its handle is dropped, for instance because the
    /// network was lost or the process was killed. The next upload by the same caller with the same key and
    /// `size_hint` continues it; see [`WriteHandle::present`]. Creating it then takes as long as reading the stored
    /// data. Requires `size_hint` (`InvalidArgument`). Only one handle at a time may hold the key (`Overloaded`).
    /// Ignored by a store without [`Capabilities::resume`].
    pub resume: Option<ResumeKey>,
}

/// What a finished upload must be, or it does not become visible.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// Its exact size in bytes (`Truncated` otherwise).
    pub size: Option<u64>,
    /// Its digests (`ChecksumMismatch` otherwise). One that was not computed while writing is computed by reading the file.
    pub digests: Digests,
    /// The modification time to give it, in nanoseconds since the Unix epoch; of no effect without [`Capabilities::set_mtime`].
    pub mtime_ns: Option<i64>,
}

impl Expectation {
    /// Compares the size with the one promised, if one was.
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

    /// Compares those of `digests` that were promised.
    ///
    /// # Errors
    /// `ChecksumMismatch`.
    pub fn check_digests(&self, digests: &Digests) -> Result<()> {
        for promised in self.digests.iter() {
            if let Some(actual) = digests.get(promised.algorithm()).filter(|actual| actual != promised) {
                let message = format!("the data have {actual:#}, but {promised:#} was promised");
                return Err(Error::new(Fault::ChecksumMismatch, message));
            }
        }
        Ok(())
    }
}

/// Changes to the metadata of a path; `None` leaves a thing as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since the Unix epoch.
    pub mtime_ns: Option<i64>,
    /// Size in bytes, for files: cut or extended with zeros.
    pub size: Option<u64>,
}

/// A piece of a file: `length` bytes from `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: usize,
}

impl ByteRange {
    /// The first byte after it; saturates at the end of the number range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }
}

/// A place in memory for the bytes of a file from `offset` on, as many as the buffer is long.
#[derive(Debug)]
pub struct Place<'a> {
    /// First byte of the file.
    pub offset: u64,
    /// Where the bytes go.
    pub buffer: &'a mut [u8],
}

impl Place<'_> {
    /// The first byte of the file after it; saturates at the end of the number range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.buffer.len() as u64)
    }
}

/// The bytes of one read that cost nothing beside them, and still stay in a processor's cache.
pub const READ_BYTES: usize = 2 << 20;

/// What a store can do. A face answers 'unsupported' from this, and a mover plans by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Files can be created, renamed and removed.
    pub write: bool,
    /// Pieces of a new file may arrive in any order; otherwise strictly from the start.
    pub write_any_order: bool,
    /// Existing files can be changed in place.
    pub update: bool,
    /// Directories can be removed with all that they hold in one request.
    pub remove_tree: bool,
    /// Files can be renamed in one step.
    pub rename: bool,
    /// Files can be copied inside the store without their bytes coming out.
    pub copy: bool,
    /// User attributes are kept.
    pub attributes: bool,
    /// Modification times can be set, as far as is known: a remote store may find out only with its first request.
    pub set_mtime: bool,
    /// Maximum useful length in bytes of each of many concurrent reads: [`READ_BYTES`], or more if each has its own
    /// connection.
    pub read_bytes: usize,
    /// The most ranges worth sending in one vector read.
    pub vector_ranges: usize,
    /// The longest range in a vector read, in bytes.
    pub vector_range_bytes: usize,
    /// Digests the store can answer for a whole file.
    pub digests: Algorithms,
    /// Uploads that broke off can be taken up again ([`CreateOptions::resume`]).
    pub resume: bool,
}
