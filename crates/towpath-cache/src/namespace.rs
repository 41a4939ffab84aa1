//! Everything that a cache shows: the tree of its origins, and storages that clients name in the path.
//!
//! `/root://HOST//PATH` is `/PATH` at `root://HOST`, as in XRootD's forwarding mode; `/https://HOST/PATH` likewise.
//! Repeated slashes do not matter. A [`Forwarder`] decides which storages may be named. They are read-only.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest},
    url::{Scheme, Url},
};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, FileKind, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, READ_BYTES, ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use crate::{
    cache::Cache,
    origins::TreeOptions,
    store::{CacheStore, OriginStatistics},
    target::Target,
};

/// Maximum number of storages named by clients that stay connected. The one that was used least recently makes room.
const MAX_FORWARDED: usize = 256;

/// Connects storages that clients name.
pub trait Forwarder: fmt::Debug + Send + Sync {
    /// Returns the tree of the storage at `url`, which has no path.
    ///
    /// # Errors
    /// `PermissionDenied` if clients may not name this storage.
    fn connect(&self, url: &Url) -> Result<TreeOptions>;
}

/// Everything that a cache shows.
#[derive(Debug)]
pub struct CacheNamespace {
    cache: Cache,
    /// The tree of the configured origins.
    tree: Option<Arc<CacheStore>>,
    forwarder: Option<Arc<dyn Forwarder>>,
    forwarded: Mutex<Forwarded>,
}

/// The connected storages that clients named.
#[derive(Debug, Default)]
struct Forwarded {
    /// By URL; with the number of the last use.
    trees: HashMap<String, (Arc<CacheStore>, u64)>,
    uses: u64,
}

/// A place in the namespace.
#[derive(Debug, Clone)]
struct Location {
    tree: Arc<CacheStore>,
    /// Path in the tree.
    path: StorePath,
    is_forwarded: bool,
}

/// Selects entries of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Those of all origins.
    All,
    /// Those at or below one of these paths, each at the origin with this name.
    Below(Vec<(Arc<str>, StorePath)>),
}

impl Selection {
    /// Returns whether the file at `path` of `origin` is selected.
    pub(crate) fn contains(&self, origin: &str, path: &StorePath) -> bool {
        match self {
            Self::All => true,
            Self::Below(places) => places.iter().any(|(name, below)| **name == *origin && path.is_within(below)),
        }
    }

    /// Returns whether the file at `path` of `origin` is at a selected path, not below it.
    pub(crate) fn is_file(&self, origin: &str, path: &StorePath) -> bool {
        match self {
            Self::All => false,
            Self::Below(places) => places.iter().any(|(name, at)| **name == *origin && path == at),
        }
    }
}

impl CacheNamespace {
    /// Creates the namespace of a tree, and of the storages that `forwarder` connects.
    pub fn new(cache: Cache, tree: Option<CacheStore>, forwarder: Option<Arc<dyn Forwarder>>) -> Self {
        Self { cache, tree: tree.map(Arc::new), forwarder, forwarded: Mutex::default() }
    }

    /// Returns the counters of each origin that was used, with its URL without credentials.
    pub fn statistics(&self) -> Vec<(Arc<str>, OriginStatistics)> {
        let forwarded = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        let trees = self.tree.iter().chain(forwarded.trees.values().map(|(tree, _)| tree));
        let mut statistics: Vec<_> = trees.flat_map(|tree| tree.statistics()).collect();
        // A storage can be an origin and be named by clients.
        statistics.sort_by(|(one, _), (other, _)| one.cmp(other));
        statistics.dedup_by(|(name, more), (kept, sum)| {
            let is_same = name == kept;
            if is_same {
                sum.add(more);
            }
            is_same
        });
        statistics
    }

    /// Returns the selection of the entries at or below a path.
    ///
    /// # Errors
    /// Those of a path that cannot be read.
    pub fn select(&self, path: &StorePath) -> Result<Selection> {
        match path.is_root() {
            true => Ok(Selection::All),
            false => {
                let Location { tree, path, .. } = self.locate(path)?;
                Ok(Selection::Below(tree.origin_paths(&path)?))
            }
        }
    }

    /// Returns the places of a path at its origins: to pin them.
    ///
    /// # Errors
    /// Those of a path that cannot be read.
    pub fn origin_paths(&self, path: &StorePath) -> Result<Vec<(Arc<str>, StorePath)>> {
        let Location { tree, path, .. } = self.locate(path)?;
        tree.origin_paths(&path)
    }

    /// Returns the path in the namespace, in words, of a target at an origin, with its query.
    pub fn shown(&self, origin: &str, target: &Target) -> String {
        let in_tree = self.tree.as_ref().and_then(|tree| tree.cache_path(origin, target));
        match in_tree {
            Some(path) => Target::new(path, target.query().cloned()).to_string(),
            None => format!("/{origin}/{target}"),
        }
    }

    fn locate(&self, path: &StorePath) -> Result<Location> {
        if let Some(forwarder) = &self.forwarder
            && let Some(url) = storage_url(path)?
        {
            let storage = path.components().take(2).try_fold(StorePath::root(), |storage, name| storage.join(name));
            let inner = storage.ok().and_then(|storage| path.relative_to(&storage));
            let inner = inner.expect("the names of a path are valid, and begin it");
            let tree = self.forwarded(&**forwarder, &url).map_err(|error| error.at(path))?;
            return Ok(Location { tree, path: inner, is_forwarded: true });
        }
        let none = || {
            let message = "this cache has no storage of its own: name one in the path, as in /root://HOST//PATH";
            Error::new(Fault::NotFound, message).at(path)
        };
        let tree = Arc::clone(self.tree.as_ref().ok_or_else(none)?);
        Ok(Location { tree, path: path.clone(), is_forwarded: false })
    }

    /// Returns the tree of a storage that a client named.
    fn forwarded(&self, forwarder: &dyn Forwarder, url: &Url) -> Result<Arc<CacheStore>> {
        let mut forwarded = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        forwarded.uses += 1;
        let (name, uses) = (url.to_string(), forwarded.uses);
        if let Some((tree, used)) = forwarded.trees.get_mut(&name) {
            *used = uses;
            return Ok(Arc::clone(tree));
        }
        let tree = Arc::new(self.cache.around(forwarder.connect(url)?)?);
        if forwarded.trees.len() >= MAX_FORWARDED {
            let oldest = forwarded.trees.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            oldest.and_then(|name| forwarded.trees.remove(&name));
        }
        forwarded.trees.insert(name, (Arc::clone(&tree), uses));
        Ok(tree)
    }

    /// Returns the location of something that is to be changed.
    ///
    /// # Errors
    /// `ReadOnly` for a storage that a client named.
    fn changeable(&self, path: &StorePath) -> Result<Location> {
        let location = self.locate(path)?;
        match location.is_forwarded {
            true => Err(Error::new(Fault::ReadOnly, "a storage that is named in the path is read-only").at(path)),
            false => Ok(location),
        }
    }
}

/// Returns the URL of the storage that a path names in its first two components; `None` if it names none.
///
/// # Errors
/// `InvalidArgument` if the storage is not named correctly.
fn storage_url(path: &StorePath) -> Result<Option<Url>> {
    let mut components = path.components();
    let scheme = components.next().and_then(|name| std::str::from_utf8(name.strip_suffix(b":")?).ok());
    let Some(scheme) = scheme.filter(|scheme| Scheme::from_name(scheme).is_some()) else { return Ok(None) };
    let invalid =
        |problem: &str| Error::new(Fault::InvalidArgument, format!("the storage in the path: {problem}")).at(path);
    let authority = components.next().ok_or_else(|| invalid("its host is missing"))?;
    let authority = std::str::from_utf8(authority).map_err(|_| invalid("its host is not UTF-8"))?;
    let url: Url = format!("{scheme}://{authority}/").parse().map_err(|error| invalid(&format!("{error}")))?;
    match (url.user(), url.query()) {
        (None, None) => Ok(Some(url)),
        _ => Err(invalid("a user, a password or a query is not accepted here")),
    }
}

/// Calls a method of the tree that contains a path.
macro_rules! in_tree {
    ($location:expr, $caller:ident, $method:ident $(, $argument:expr)*) => {{
        let Location { tree, path, .. } = $location?;
        tree.$method($caller, &path $(, $argument)*).await
    }};
}

#[async_trait]
impl Store for CacheNamespace {
    fn capabilities(&self) -> Capabilities {
        match &self.tree {
            Some(tree) => {
                let capabilities = tree.capabilities();
                Capabilities { queries: capabilities.queries || self.forwarder.is_some(), ..capabilities }
            }
            None => FORWARDED,
        }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        if self.tree.is_none() && path.is_root() {
            return Ok(Metadata::new(FileKind::Directory, 0));
        }
        in_tree!(self.locate(path), caller, stat)
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        match self.locate(path) {
            // The storages that clients may name are not known before they are named.
            Err(_) if self.tree.is_none() && path.is_root() => stream::empty().boxed(),
            Ok(Location { tree, path, .. }) => tree.list(caller, &path, options),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        in_tree!(self.locate(path), caller, open, options)
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        in_tree!(self.changeable(path), caller, create, options)
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        in_tree!(self.changeable(path), caller, update)
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        in_tree!(self.changeable(path), caller, make_directory, parents, mode)
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        in_tree!(self.changeable(path), caller, remove_file)
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        in_tree!(self.changeable(path), caller, remove_directory)
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        in_tree!(self.changeable(path), caller, remove_tree)
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let to = self.changeable(to)?.path;
        in_tree!(self.changeable(from), caller, rename, &to, overwrite)
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let to = self.changeable(to)?.path;
        in_tree!(self.changeable(from), caller, copy, &to, overwrite)
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        in_tree!(self.changeable(path), caller, change, changes)
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        in_tree!(self.locate(path), caller, digest, algorithm, progress)
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        in_tree!(self.locate(path), caller, attributes)
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        in_tree!(self.changeable(path), caller, set_attribute, name, value, create)
    }

    /// Returns the space of the disk of the cache, whatever the path.
    async fn space(&self, _caller: &Caller, _path: &StorePath) -> Result<Space> {
        self.cache.space().await
    }
}

/// What a cache without a tree supports; single storages may support less.
const FORWARDED: Capabilities = Capabilities {
    create: false,
    write_any_order: false,
    update: false,
    remove: false,
    remove_tree: false,
    rename: false,
    copy: false,
    attributes: true,
    set_mtime: false,
    read_bytes: READ_BYTES,
    vector_ranges: 1024,
    vector_range_bytes: 2 << 20,
    digests: Algorithms::DEFAULT,
    resume: false,
    queries: true,
    confirms: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_named_by_the_first_two_components() {
        let url = |text: &str| {
            storage_url(&StorePath::parse(text.as_bytes()).unwrap()).map(|url| url.map(|url| url.to_string()))
        };
        for (path, expected) in [
            ("/root://host:1094//store/f", "root://host:1094//"),
            ("/root:/host/store/f", "root://host//"),
            ("//https://host.example.org/f", "https://host.example.org/"),
            ("/xroot://[::1]:1095//f", "root://[::1]:1095//"),
        ] {
            assert_eq!(url(path).unwrap().as_deref(), Some(expected), "{path}");
        }
        for path in ["/", "/store/root:/f", "/root/host/f", "/gopher://host/f", "/file:/etc/passwd"] {
            assert_eq!(url(path).unwrap(), None, "{path}");
        }
        for path in
            ["/root:", "/root://user@host//f", "/http://user:secret@host/f", "/http://host?x/f", "/root://ho st//"]
        {
            assert_eq!(url(path).unwrap_err().fault(), Fault::InvalidArgument, "{path}");
        }
    }
}
