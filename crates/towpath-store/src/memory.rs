//! An in-memory store with the same guarantees as a local directory, for tests and for temporary data.
//!
//! [`MemoryStore`] has a sorted map from paths to inodes behind one mutex. The content of a file is one shared buffer:
//! reads return slices without a copy, an upload replaces it as a whole, and only an update in place copies it.
//! Versions are counted.
//!
//! It is simple rather than fast: a listing walks everything below the directory, and an update rewrites the file.

mod handle;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::checksum::{Algorithm, Digest, Digests, Hasher};

use self::handle::{MemoryFile, MemoryWriter};
use crate::{
    Caller, Capabilities, Changes, CreateOptions, Entry, Error, Fault, FileKind, ListOptions, Listing, Metadata,
    OpenOptions, Overwrite, READ_BYTES, ReadHandle, Result, Space, Store, StorePath, VersionTag, WriteHandle,
    attribute::check_attribute, sys::clock,
};

/// Maximum number of entries in one batch of a listing.
const BATCH_ENTRIES: usize = 1000;

/// Default permission bits of directories.
const DIRECTORY_MODE: u32 = 0o755;
/// Default permission bits of files.
const FILE_MODE: u32 = 0o644;

/// An in-memory store. Clones share their content.
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    capacity_bytes: u64,
    next_id: AtomicU64,
    tree: Mutex<Tree>,
}

type Tree = BTreeMap<StorePath, Arc<Mutex<Inode>>>;

/// A file or directory without its name.
#[derive(Debug)]
struct Inode {
    id: u64,
    version: u64,
    /// `None` for a directory.
    content: Option<Bytes>,
    mtime_ns: i64,
    ctime_ns: i64,
    mode: u32,
    digests: Digests,
    attributes: BTreeMap<Bytes, Bytes>,
}

impl MemoryStore {
    /// Creates an empty store for at most `capacity_bytes` of content.
    pub fn new(capacity_bytes: u64) -> Self {
        let inner = Inner { capacity_bytes, next_id: AtomicU64::new(1), tree: Mutex::default() };
        let root = inner.inode(None, DIRECTORY_MODE);
        inner.lock().insert(StorePath::root(), root);
        Self(Arc::new(inner))
    }

    /// Runs `job` on the tree.
    fn at<T>(&self, path: &StorePath, job: impl FnOnce(&Inner, &mut Tree) -> Result<T>) -> Result<T> {
        job(&self.0, &mut self.0.lock()).map_err(|error| error.at(path))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    fn inode(&self, content: Option<Bytes>, mode: u32) -> Arc<Mutex<Inode>> {
        let now = clock::unix_ns();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (digests, attributes) = (Digests::new(), BTreeMap::new());
        Arc::new(Mutex::new(Inode { id, version: 1, content, mtime_ns: now, ctime_ns: now, mode, digests, attributes }))
    }

    /// Returns the free space in bytes.
    fn free_bytes(&self, tree: &Tree) -> u64 {
        let used = tree.values().map(|inode| lock(inode).size()).sum();
        self.capacity_bytes.saturating_sub(used)
    }

    /// Makes a complete file visible at `path`.
    fn publish(&self, tree: &mut Tree, path: &StorePath, file: Arc<Mutex<Inode>>, overwrite: Overwrite) -> Result<()> {
        expect_replaceable(tree, path, overwrite)?;
        let given_back = tree.get(path).map_or(0, |replaced| lock(replaced).size());
        if lock(&file).size() > self.free_bytes(tree).saturating_add(given_back) {
            return Err(Error::new(Fault::NoSpace, "the store is full"));
        }
        tree.insert(path.clone(), file);
        Ok(())
    }

    fn make_directory(&self, tree: &mut Tree, path: &StorePath, mode: Option<u32>) -> Result<()> {
        if tree.contains_key(path) {
            return Err(Error::new(Fault::AlreadyExists, "it exists already"));
        }
        expect_parent(tree, path)?;
        tree.insert(path.clone(), self.inode(None, mode.unwrap_or(DIRECTORY_MODE) & 0o7777));
        Ok(())
    }

    fn make_directories(&self, tree: &mut Tree, path: &StorePath) -> Result<()> {
        if tree.contains_key(path) {
            return expect_directory(tree, path);
        }
        if let Some(above) = path.parent() {
            self.make_directories(tree, &above)?;
        }
        self.make_directory(tree, path, None)
    }
}

impl Inode {
    fn size(&self) -> u64 {
        self.content.as_ref().map_or(0, |content| content.len() as u64)
    }

    fn tag(&self) -> Option<VersionTag> {
        VersionTag::new(&format!("{:x}-{:x}", self.id, self.version))
    }

    fn metadata(&self) -> Metadata {
        let kind = if self.content.is_some() { FileKind::File } else { FileKind::Directory };
        Metadata {
            mtime_ns: Some(self.mtime_ns),
            ctime_ns: Some(self.ctime_ns),
            mode: Some(self.mode),
            version: self.tag().filter(|_| kind == FileKind::File),
            file_id: Some(self.id),
            digests: self.digests.clone(),
            ..Metadata::new(kind, self.size())
        }
    }

    /// Returns the content of a file, or `IsDirectory`.
    fn expect_file(&self) -> Result<&Bytes> {
        self.content.as_ref().ok_or_else(|| Error::new(Fault::IsDirectory, "it is a directory"))
    }

    /// Replaces the content and the version, sets the time, and clears the known digests.
    fn set_content(&mut self, content: Bytes) {
        self.content = Some(content);
        self.version += 1;
        self.mtime_ns = clock::unix_ns();
        self.ctime_ns = self.mtime_ns;
        self.digests = Digests::new();
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            write_any_order: true,
            update: true,
            remove: true,
            remove_tree: false,
            rename: true,
            copy: true,
            attributes: true,
            set_mtime: true,
            read_bytes: READ_BYTES,
            vector_ranges: 1024,
            vector_range_bytes: usize::MAX,
            digests: Algorithm::ALL.into_iter().collect(),
            resume: false,
            queries: false,
            confirms: false,
        }
    }

    async fn stat(&self, _: &Caller, path: &StorePath) -> Result<Metadata> {
        self.at(path, |_, tree| Ok(lock(find(tree, path)?).metadata()))
    }

    fn list(&self, _: &Caller, path: &StorePath, _: ListOptions) -> Listing {
        let (store, path) = (self.clone(), path.clone());
        let batches = stream::try_unfold(path.clone(), move |last| {
            let batch = store.at(&path, |_, tree| batch_after(tree, &path, &last));
            async move { batch }
        });
        batches.boxed()
    }

    async fn open(&self, _: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let file = self.at(path, |_, tree| MemoryFile::open(find(tree, path)?, path, &options))?;
        Ok(Arc::new(file))
    }

    async fn create(&self, _: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        self.at(path, |inner, tree| {
            if let Some(above) = path.parent().filter(|_| options.parents) {
                inner.make_directories(tree, &above)?;
            }
            expect_replaceable(tree, path, options.overwrite)?;
            match options.size_hint {
                Some(size) if size > inner.free_bytes(tree) => {
                    Err(Error::new(Fault::NoSpace, "it exceeds the free space"))
                }
                _ => Ok(()),
            }
        })?;
        Ok(Arc::new(MemoryWriter::create(Arc::clone(&self.0), path, &options)))
    }

    async fn update(&self, _: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        let inode = self.at(path, |_, tree| {
            let inode = find(tree, path)?;
            lock(inode).expect_file()?;
            Ok(Arc::clone(inode))
        })?;
        Ok(Arc::new(MemoryWriter::update(Arc::clone(&self.0), path, inode)))
    }

    async fn make_directory(&self, _: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.at(path, |inner, tree| {
            if let Some(above) = path.parent().filter(|_| parents) {
                inner.make_directories(tree, &above)?;
            }
            match inner.make_directory(tree, path, mode) {
                Err(error) if parents => expect_directory(tree, path).map_err(|_| error),
                outcome => outcome,
            }
        })
    }

    async fn remove_file(&self, _: &Caller, path: &StorePath) -> Result<()> {
        self.at(path, |_, tree| {
            lock(find(tree, path)?).expect_file()?;
            tree.remove(path);
            Ok(())
        })
    }

    async fn remove_directory(&self, _: &Caller, path: &StorePath) -> Result<()> {
        self.at(path, |_, tree| {
            expect_name(path)?;
            expect_empty(tree, path)?;
            tree.remove(path);
            Ok(())
        })
    }

    async fn remove_tree(&self, _: &Caller, path: &StorePath) -> Result<()> {
        Err(Error::new(Fault::Unsupported, "a tree is removed entry by entry").at(path))
    }

    async fn rename(&self, _: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.at(from, |_, tree| rename(tree, from, to, overwrite))
    }

    async fn copy(&self, _: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.at(from, |inner, tree| {
            let copy = {
                let source = lock(find(tree, from)?);
                let copy = inner.inode(Some(source.expect_file()?.clone()), source.mode);
                lock(&copy).digests = source.digests.clone();
                lock(&copy).attributes = source.attributes.clone();
                copy
            };
            inner.publish(tree, to, copy, overwrite)
        })
    }

    async fn change(&self, _: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        self.at(path, |inner, tree| {
            let free = inner.free_bytes(tree);
            let mut inode = lock(find(tree, path)?);
            if let Some(size) = changes.size {
                let mut content = Vec::from(inode.expect_file()?.clone());
                handle::resize(&mut content, size, free.saturating_add(inode.size()))?;
                inode.set_content(content.into());
            }
            inode.mode = changes.mode.map_or(inode.mode, |mode| mode & 0o7777);
            inode.mtime_ns = changes.mtime_ns.unwrap_or(inode.mtime_ns);
            inode.ctime_ns = clock::unix_ns();
            Ok(())
        })
    }

    async fn digest(
        &self,
        _: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        self.at(path, |_, tree| {
            let mut inode = lock(find(tree, path)?);
            let content = inode.expect_file()?;
            if let Some(known) = inode.digests.get(algorithm) {
                return Ok(known);
            }
            let digest = Hasher::digest_of(algorithm, content);
            progress(content.len() as u64);
            inode.digests.insert(digest);
            Ok(digest)
        })
    }

    async fn attributes(&self, _: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        let copied = |(name, value): (&Bytes, &Bytes)| (name.clone(), value.clone());
        self.at(path, |_, tree| Ok(lock(find(tree, path)?).attributes.iter().map(copied).collect()))
    }

    async fn set_attribute(
        &self,
        _: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        self.at(path, |_, tree| {
            check_attribute(name, value)?;
            let mut inode = lock(find(tree, path)?);
            inode.ctime_ns = clock::unix_ns();
            let Some(value) = value else {
                let missing = || Error::new(Fault::AttributeNotFound, "there is no such attribute");
                return inode.attributes.remove(name).map(drop).ok_or_else(missing);
            };
            if create && inode.attributes.contains_key(name) {
                return Err(Error::new(Fault::AlreadyExists, "the attribute exists already"));
            }
            inode.attributes.insert(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            Ok(())
        })
    }

    async fn space(&self, _: &Caller, path: &StorePath) -> Result<Space> {
        self.at(path, |inner, tree| {
            find(tree, path)?;
            Ok(Space { total: inner.capacity_bytes, free: inner.free_bytes(tree) })
        })
    }
}

/// Finds the inode at `path`; fails with `NotDirectory` if a component is a file, else with `NotFound`.
fn find<'a>(tree: &'a Tree, path: &StorePath) -> Result<&'a Arc<Mutex<Inode>>> {
    if let Some(inode) = tree.get(path) {
        return Ok(inode);
    }
    let above = std::iter::successors(path.parent(), StorePath::parent).find_map(|above| tree.get(&above));
    Err(match above {
        Some(above) if lock(above).content.is_some() => Error::new(Fault::NotDirectory, "a parent is not a directory"),
        _ => Error::new(Fault::NotFound, "there is no such file or directory"),
    })
}

fn expect_directory(tree: &Tree, path: &StorePath) -> Result<()> {
    match lock(find(tree, path)?).content {
        Some(_) => Err(Error::new(Fault::NotDirectory, "it is not a directory")),
        None => Ok(()),
    }
}

fn expect_empty(tree: &Tree, path: &StorePath) -> Result<()> {
    expect_directory(tree, path)?;
    match tree.keys().any(|other| other != path && other.is_within(path)) {
        true => Err(Error::new(Fault::NotEmpty, "the directory is not empty")),
        false => Ok(()),
    }
}

fn expect_parent(tree: &Tree, path: &StorePath) -> Result<()> {
    path.parent().map_or(Ok(()), |parent| expect_directory(tree, &parent))
}

fn expect_name(path: &StorePath) -> Result<()> {
    match path.is_root() {
        true => Err(Error::new(Fault::InvalidArgument, "this operation is not allowed on the root directory")),
        false => Ok(()),
    }
}

/// Returns an error unless a new file may be put at `path`.
fn expect_replaceable(tree: &Tree, path: &StorePath, overwrite: Overwrite) -> Result<()> {
    expect_parent(tree, path)?;
    let Some(existing) = tree.get(path) else { return Ok(()) };
    lock(existing).expect_file()?;
    match overwrite {
        Overwrite::Refuse => Err(Error::new(Fault::AlreadyExists, "it exists already")),
        Overwrite::Replace => Ok(()),
    }
}

/// Errors have the precedence of Linux (`rename(2)`).
fn rename(tree: &mut Tree, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
    for path in [from, to] {
        expect_name(path)?;
        expect_parent(tree, path)?;
    }
    let is_directory = lock(find(tree, from)?).content.is_none();
    let is_taken = tree.contains_key(to);
    if is_taken && overwrite == Overwrite::Refuse {
        return Err(Error::new(Fault::AlreadyExists, "it exists already"));
    }
    if from == to {
        return Ok(());
    }
    if to.is_within(from) {
        return Err(Error::new(Fault::InvalidArgument, "a directory cannot be moved into itself"));
    }
    if from.is_within(to) || (is_taken && is_directory) {
        expect_empty(tree, to)?;
    } else if is_taken {
        expect_replaceable(tree, to, overwrite)?;
    }
    let moved: Vec<StorePath> = tree.keys().filter(|path| path.is_within(from)).cloned().collect();
    for old in moved {
        let tail = old.as_bytes().get(from.as_bytes().len()..).unwrap_or_default();
        let new = StorePath::parse(&[to.as_bytes(), tail].concat())
            .map_err(|error| Error::new(Fault::NameTooLong, error.to_string()))?;
        if let Some(inode) = tree.remove(&old) {
            tree.insert(new, inode);
        }
    }
    Ok(())
}

/// Returns the next entries of `path` after `last`, and the last of them.
fn batch_after(tree: &Tree, path: &StorePath, last: &StorePath) -> Result<Option<(Vec<Entry>, StorePath)>> {
    expect_directory(tree, path)?;
    let after =
        tree.range((Bound::Excluded(last), Bound::Unbounded)).filter(|(key, _)| key.parent().as_ref() == Some(path));
    let mut last = None;
    let mut entries = Vec::new();
    for (key, inode) in after.take(BATCH_ENTRIES) {
        let name = Bytes::copy_from_slice(key.name().unwrap_or_default());
        entries.push(Entry { name, metadata: lock(inode).metadata() });
        last = Some(key.clone());
    }
    Ok(last.map(|last| (entries, last)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
