//! Several stores in one namespace, each below a prefix of its own.
//!
//! [`CombinedStore`] passes a call to the store whose prefix contains the path, with the prefix removed; errors carry
//! the full path. The directories above the prefixes exist only as names: they can be queried and listed, and not
//! changed. Nothing is renamed from one store to another; the data of a copy pass through this process. `docs/rfcs/0007-exports.md` explains the design.

mod handles;

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::checksum::{Algorithm, Digest};

use self::handles::{CombinedReadHandle, CombinedWriteHandle};
use crate::{
    Caller, Capabilities, Changes, CreateOptions, Entry, Error, Expectation, Fault, FileKind, ListOptions, Listing,
    Metadata, OpenOptions, Overwrite, READ_BYTES, ReadHandle, Result, Space, Store, StorePath, WriteHandle, sys::clock,
};

/// Permission bits of the directories above the prefixes.
const READ_ONLY_DIRECTORY: u32 = 0o555;

/// Several stores in one namespace.
#[derive(Debug)]
pub struct CombinedStore {
    members: Vec<Arc<Member>>,
    /// What all members that can be changed support; if there are none, what all members support for reading.
    capabilities: Capabilities,
    /// Creation of this store, in nanoseconds since the Unix epoch: the time of the directories above the prefixes.
    created_ns: i64,
}

/// A store and its place in the namespace.
#[derive(Debug)]
struct Member {
    prefix: StorePath,
    store: Arc<dyn Store>,
}

impl Member {
    /// Returns the path in this store of a path in the namespace; `None` if it is elsewhere.
    fn inner(&self, path: &StorePath) -> Option<StorePath> {
        path.relative_to(&self.prefix)
    }

    /// Returns `error` with its path in the namespace.
    fn locate(&self, error: Error) -> Error {
        locate(&self.prefix, error)
    }
}

/// Returns the error of a store at `prefix` with its path in the namespace. A path that would be too long is kept.
fn locate(prefix: &StorePath, error: Error) -> Error {
    match error.path().and_then(|path| prefix.concat(path).ok()) {
        Some(path) => error.moved_to(path),
        None => error,
    }
}

fn not_found(path: &StorePath) -> Error {
    Error::new(Fault::NotFound, Fault::NotFound.phrase()).at(path)
}

/// Returns the first two paths of which one contains the other.
pub fn nested_pair(paths: &[StorePath]) -> Option<(&StorePath, &StorePath)> {
    let nested = |a: &StorePath, b: &StorePath| a.is_within(b) || b.is_within(a);
    let mut pairs = paths.iter().enumerate().flat_map(|(index, a)| paths[..index].iter().map(move |b| (b, a)));
    pairs.find(|(a, b)| nested(a, b))
}

impl CombinedStore {
    /// Combines stores, each below its prefix.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no store, or if a prefix contains another.
    pub fn new(members: Vec<(StorePath, Arc<dyn Store>)>) -> Result<Self> {
        Self::with_read_only(members, &[])
    }

    /// Like [`Self::new`]; nothing is changed at the prefixes in `read_only`, so the capabilities are those of the other
    /// members.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_read_only(members: Vec<(StorePath, Arc<dyn Store>)>, read_only: &[StorePath]) -> Result<Self> {
        let prefixes: Vec<_> = members.iter().map(|(prefix, _)| prefix.clone()).collect();
        if let Some((a, b)) = nested_pair(&prefixes) {
            return Err(Error::new(Fault::InvalidArgument, format!("one of {a} and {b} contains the other")));
        }
        let common = |is_included: &dyn Fn(&StorePath, &Capabilities) -> bool| {
            let all = members.iter().map(|(prefix, store)| (prefix, store.capabilities()));
            let included = all.filter(|(prefix, capabilities)| is_included(prefix, capabilities));
            included.map(|(_, capabilities)| capabilities).reduce(|a, b| a.common(&b))
        };
        let capabilities = common(&|prefix, store| !store.is_read_only() && !read_only.contains(prefix));
        let read = || common(&|_, _| true).map(Capabilities::without_changes);
        let capabilities = capabilities.or_else(read);
        let capabilities =
            capabilities.ok_or_else(|| Error::new(Fault::InvalidArgument, "there is no store to combine"))?;
        let members = members.into_iter().map(|(prefix, store)| Arc::new(Member { prefix, store })).collect();
        Ok(Self { members, capabilities, created_ns: clock::unix_s().saturating_mul(1_000_000_000) })
    }

    /// Returns the store that contains `path`, and the path in it.
    fn find(&self, path: &StorePath) -> Option<(&Arc<Member>, StorePath)> {
        self.members.iter().find_map(|member| Some((member, member.inner(path)?)))
    }

    /// Like [`Self::find`], for a file.
    ///
    /// # Errors
    /// `IsDirectory` or `NotFound`.
    fn file(&self, path: &StorePath) -> Result<(&Arc<Member>, StorePath)> {
        self.find(path).ok_or_else(|| {
            let fault = if self.is_above(path) { Fault::IsDirectory } else { Fault::NotFound };
            Error::new(fault, fault.phrase()).at(path)
        })
    }

    /// Like [`Self::find`], for something that is changed or removed.
    ///
    /// # Errors
    /// `ReadOnly` or `NotFound`.
    fn changeable(&self, path: &StorePath) -> Result<(&Arc<Member>, StorePath)> {
        self.find(path).ok_or_else(|| if self.is_above(path) { self.read_only(path) } else { not_found(path) })
    }

    /// Like [`Self::find`], for something that is created.
    ///
    /// # Errors
    /// `ReadOnly`.
    fn creatable(&self, path: &StorePath) -> Result<(&Arc<Member>, StorePath)> {
        self.find(path).ok_or_else(|| self.read_only(path))
    }

    fn read_only(&self, path: &StorePath) -> Error {
        let prefixes: Vec<_> = self.members.iter().map(|member| member.prefix.to_string()).collect();
        let message = format!("only the exports can be changed: {}", prefixes.join(", "));
        Error::new(Fault::ReadOnly, message).at(path)
    }

    /// Whether `path` is a directory above a prefix.
    fn is_above(&self, path: &StorePath) -> bool {
        self.members.iter().any(|member| member.prefix.is_within(path))
    }

    /// Copies a file with its mode, known digests and user attributes from one store to another. The copy becomes
    /// visible when its size and digests are those of the source; its attributes are set right after that. Takes memory
    /// for [`READ_BYTES`].
    async fn copy_across(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let source = self.open(caller, from, OpenOptions::default()).await?;
        let Metadata { size, mode, digests, .. } = source.metadata().await?;
        let attributes = if self.capabilities.attributes { self.attributes(caller, from).await? } else { Vec::new() };
        let (size_hint, wanted) = (Some(size), digests.algorithms());
        let options = CreateOptions { overwrite, mode, size_hint, digests: wanted, ..CreateOptions::default() };
        let target = self.create(caller, to, options).await?;
        let mut offset = 0;
        while offset < size {
            let piece = source.read(offset, READ_BYTES).await?;
            if piece.is_empty() {
                return Err(Error::new(Fault::Changed, "the source was truncated during the copy").at(from));
            }
            let end = offset + piece.len() as u64;
            target.write(offset, piece).await?;
            offset = end;
        }
        target.commit(Expectation { size: Some(size), digests, mtime_ns: None }).await?;
        for (name, value) in attributes {
            self.set_attribute(caller, to, &name, Some(&value), false).await?;
        }
        Ok(())
    }

    /// Returns the metadata of a directory above the prefixes.
    fn directory(&self) -> Metadata {
        Metadata {
            mtime_ns: Some(self.created_ns),
            mode: Some(READ_ONLY_DIRECTORY),
            ..Metadata::new(FileKind::Directory, 0)
        }
    }

    /// Returns the entries of a directory above the prefixes. They are not queried: a store that does not respond must
    /// not delay the others.
    fn list_above(&self, path: &StorePath) -> Listing {
        let depth = path.components().count();
        let below = self.members.iter().filter(|member| member.prefix.is_within(path));
        let names: BTreeSet<_> = below.filter_map(|member| member.prefix.components().nth(depth)).collect();
        let entry = |name| Entry { name: Bytes::copy_from_slice(name), metadata: self.directory() };
        let batch = names.into_iter().map(entry).collect();
        stream::once(async { Ok(batch) }).boxed()
    }
}

#[async_trait]
impl Store for CombinedStore {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        match self.find(path) {
            Some((member, inner)) => member.store.stat(caller, &inner).await.map_err(|error| member.locate(error)),
            None if self.is_above(path) => Ok(self.directory()),
            None => Err(not_found(path)),
        }
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        match self.find(path) {
            Some((member, inner)) => {
                let listing = member.store.list(caller, &inner, options);
                let member = Arc::clone(member);
                listing.map(move |batch| batch.map_err(|error| member.locate(error))).boxed()
            }
            None if self.is_above(path) => self.list_above(path),
            None => {
                let error = not_found(path);
                stream::once(async { Err(error) }).boxed()
            }
        }
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let (member, inner) = self.file(path)?;
        let handle = member.store.open(caller, &inner, options).await.map_err(|error| member.locate(error))?;
        Ok(Arc::new(CombinedReadHandle { handle, prefix: member.prefix.clone() }))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        let (member, inner) = self.creatable(path)?;
        let options = CreateOptions { resume: options.resume.filter(|_| self.capabilities.resume), ..options };
        let handle = member.store.create(caller, &inner, options).await.map_err(|error| member.locate(error))?;
        Ok(Arc::new(CombinedWriteHandle { handle, prefix: member.prefix.clone() }))
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        let (member, inner) = self.file(path)?;
        let handle = member.store.update(caller, &inner).await.map_err(|error| member.locate(error))?;
        Ok(Arc::new(CombinedWriteHandle { handle, prefix: member.prefix.clone() }))
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        if self.find(path).is_none() && self.is_above(path) {
            let error = Error::new(Fault::AlreadyExists, "it exists already").at(path);
            return if parents { Ok(()) } else { Err(error) };
        }
        let (member, inner) = self.creatable(path)?;
        let made = member.store.make_directory(caller, &inner, parents, mode).await;
        made.map_err(|error| member.locate(error))
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let (member, inner) = self.file(path)?;
        member.store.remove_file(caller, &inner).await.map_err(|error| member.locate(error))
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let (member, inner) = self.changeable(path)?;
        member.store.remove_directory(caller, &inner).await.map_err(|error| member.locate(error))
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let (member, inner) = self.changeable(path)?;
        member.store.remove_tree(caller, &inner).await.map_err(|error| member.locate(error))
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let ((source, inner_from), (target, inner_to)) = (self.changeable(from)?, self.creatable(to)?);
        if !Arc::ptr_eq(source, target) {
            let (here, there) = (&source.prefix, &target.prefix);
            let message = format!("{here} and {there} are different exports: copy the data, then remove the source");
            return Err(Error::new(Fault::Unsupported, message).at(from));
        }
        let renamed = source.store.rename(caller, &inner_from, &inner_to, overwrite).await;
        renamed.map_err(|error| source.locate(error))
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        let ((source, inner_from), (target, inner_to)) = (self.file(from)?, self.creatable(to)?);
        if !Arc::ptr_eq(source, target) {
            return self.copy_across(caller, from, to, overwrite).await;
        }
        let copied = source.store.copy(caller, &inner_from, &inner_to, overwrite).await;
        copied.map_err(|error| source.locate(error))
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        let (member, inner) = self.changeable(path)?;
        member.store.change(caller, &inner, changes).await.map_err(|error| member.locate(error))
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let (member, inner) = self.file(path)?;
        let digest = member.store.digest(caller, &inner, algorithm, progress).await;
        digest.map_err(|error| member.locate(error))
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        match self.find(path) {
            Some((member, inner)) => {
                member.store.attributes(caller, &inner).await.map_err(|error| member.locate(error))
            }
            None => self.stat(caller, path).await.map(|_| Vec::new()),
        }
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        let (member, inner) = self.changeable(path)?;
        let set = member.store.set_attribute(caller, &inner, name, value, create).await;
        set.map_err(|error| member.locate(error))
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        match self.find(path) {
            Some((member, inner)) => member.store.space(caller, &inner).await.map_err(|error| member.locate(error)),
            None => {
                self.stat(caller, path).await?;
                let below = self.members.iter().filter(|member| member.prefix.is_within(path));
                let prefixes: Vec<_> = below.map(|member| member.prefix.to_string()).collect();
                let message = format!("the exports have separate spaces: query one of {}", prefixes.join(", "));
                Err(Error::new(Fault::Unsupported, message).at(path))
            }
        }
    }
}
