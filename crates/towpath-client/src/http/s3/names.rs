//! Directories and operations on names. A directory is a prefix of keys; an explicitly created one has a marker, an
//! empty object whose key ends in a slash. No operation here is atomic: see each method.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use towpath_proto::s3::Object;
use towpath_store::{Blame, Caller, Error, Fault, Metadata, Overwrite, Result, StorePath};

use super::{
    bucket::{Bucket, key_of, prefix_of},
    listing,
};

/// Maximum number of concurrent requests about the objects of a tree.
const AT_ONCE: usize = 32;

fn fault(fault: Fault, message: &str, path: &StorePath) -> Error {
    Error::new(fault, message).at(path)
}

/// The copied objects: a number for each, because a tree may have millions of them.
#[derive(Debug, Default)]
struct CopiedObjects {
    numbers: HashSet<u64>,
    hasher: RandomState,
}

impl CopiedObjects {
    /// Returns a number that is equal for the same version of the same object.
    fn number(&self, object: &Object) -> u64 {
        let tag = object.etag.as_ref().map(|etag| etag.opaque());
        let time = object.modified_s.filter(|_| tag.is_none());
        // All markers are equivalent, regardless of their metadata.
        let version = (!is_marker(object)).then_some((tag, time));
        self.hasher.hash_one((&object.key, object.size, version))
    }

    fn add(&mut self, object: &Object) {
        self.numbers.insert(self.number(object));
    }

    fn has(&self, object: &Object) -> bool {
        self.numbers.contains(&self.number(object))
    }
}

impl Bucket {
    /// Returns the metadata of `path`, if it exists.
    async fn look(&self, caller: &Caller, path: &StorePath) -> Result<Option<Metadata>> {
        match self.stat(caller, path).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.fault() == Fault::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fails unless the parent of `path` is a directory.
    pub(super) async fn check_parent(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        match self.stat(caller, &parent).await {
            Ok(metadata) if metadata.is_directory() => Ok(()),
            Ok(_) => Err(fault(Fault::NotDirectory, "its parent is not a directory", path)),
            Err(error) if error.fault() == Fault::NotFound => {
                self.check_ancestors(caller, &parent).await?;
                Err(fault(Fault::NotFound, "its parent directory is missing", path))
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if a directory above `path` is a file.
    async fn check_ancestors(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let mut above = path.parent();
        while let Some(path) = above.filter(|path| !path.is_root()) {
            match self.look(caller, &path).await? {
                Some(metadata) if metadata.is_directory() => return Ok(()),
                Some(_) => return Err(fault(Fault::NotDirectory, "it is not a directory", &path)),
                None => above = path.parent(),
            }
        }
        Ok(())
    }

    /// Creates a marker, or at the root the bucket itself. Missing parents need no markers, because the key contains
    /// their names.
    pub(super) async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool) -> Result<()> {
        match self.look(caller, path).await? {
            Some(metadata) if metadata.is_directory() && parents => return Ok(()),
            Some(_) => return Err(fault(Fault::AlreadyExists, "it exists already", path)),
            None if path.is_root() => return self.make(caller).await.map_err(|error| error.at(path)),
            None if parents => self.check_ancestors(caller, path).await?,
            None => self.check_parent(caller, path).await?,
        }
        let marker = prefix_of(path)?;
        self.put(caller, &marker, Bytes::new(), None, false).await.map(drop).map_err(|error| error.at(path))
    }

    /// Removes an object. S3 also reports success for an object that does not exist, so this is checked first.
    pub(super) async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if self.stat(caller, path).await?.is_directory() {
            return Err(fault(Fault::IsDirectory, "it is a directory", path));
        }
        self.delete(caller, key_of(path)?).await.map_err(|error| error.at(path))
    }

    /// Removes the marker of an empty directory.
    pub(super) async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket cannot be removed", path));
        }
        let marker = prefix_of(path)?;
        let page = self.page(caller, &marker, false, 2, None).await.map_err(|error| error.at(path))?;
        match page.objects.as_slice() {
            [] => {
                self.stat(caller, path).await?;
                Err(fault(Fault::NotDirectory, "it is not a directory", path))
            }
            [only] if only.key == marker.as_bytes() => {
                self.delete(caller, &marker).await.map_err(|error| error.at(path))
            }
            _ => Err(fault(Fault::NotEmpty, Fault::NotEmpty.phrase(), path)),
        }
    }

    /// Removes all keys of a directory. On failure, the failed and the remaining keys are kept.
    pub(super) async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket cannot be emptied by one request", path));
        }
        let prefix = prefix_of(path)?;
        if !self.has_keys(caller, &prefix).await.map_err(|error| error.at(path))? {
            self.stat(caller, path).await?;
            return Err(fault(Fault::NotDirectory, "it is not a directory", path));
        }
        let mut pages = std::pin::pin!(listing::keys(self, caller, &prefix));
        while let Some(page) = pages.try_next().await.map_err(|error| error.at(path))? {
            let deleted = stream::iter(page).map(|object| async move { self.delete(caller, text(&object.key)?).await });
            deleted.buffer_unordered(AT_ONCE).try_collect::<()>().await.map_err(|error| error.at(path))?;
        }
        Ok(())
    }

    /// Copies an object to another key.
    pub(super) async fn copy_file(
        &self,
        caller: &Caller,
        from: &StorePath,
        to: &StorePath,
        overwrite: Overwrite,
    ) -> Result<()> {
        let metadata = self.stat(caller, from).await?;
        if metadata.is_directory() {
            return Err(fault(Fault::IsDirectory, "it is a directory", from));
        }
        self.check_destination(caller, to, false, overwrite).await?;
        if from == to {
            return Ok(());
        }
        self.copy(caller, key_of(from)?, &metadata, key_of(to)?).await.map_err(|error| error.at(from))
    }

    /// Renames a file or a directory: each object is copied inside the store, and after all copies the originals are
    /// removed. A new file appears whole; a directory object by object. An interruption leaves the old names, or both.
    /// Objects created meanwhile keep the old name.
    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: &StorePath,
        to: &StorePath,
        overwrite: Overwrite,
    ) -> Result<()> {
        let metadata = self.stat(caller, from).await?;
        if from.is_root() || to.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket cannot be renamed", from));
        }
        if from == to {
            return Ok(());
        }
        if !metadata.is_directory() {
            self.check_destination(caller, to, false, overwrite).await?;
            self.copy(caller, key_of(from)?, &metadata, key_of(to)?).await.map_err(|error| error.at(from))?;
            let removed = self.delete_version(caller, key_of(from)?, metadata.version.as_ref()).await;
            return removed.map_err(|error| error.at(from));
        }
        if to.is_within(from) {
            return Err(fault(Fault::InvalidArgument, "a directory cannot be moved into itself", to));
        }
        self.check_destination(caller, to, true, overwrite).await?;
        let old = prefix_of(from)?;
        let copied = self.copy_all(caller, &old, &prefix_of(to)?).await.map_err(|error| error.at(from))?;
        self.remove_copied(caller, &old, &copied).await.map_err(|error| error.at(from))
    }

    /// Copies all objects whose keys begin with `old` to keys that begin with `new`.
    async fn copy_all(&self, caller: &Caller, old: &str, new: &str) -> Result<CopiedObjects> {
        let mut copied = CopiedObjects::default();
        let mut pages = std::pin::pin!(listing::keys(self, caller, old));
        while let Some(page) = pages.try_next().await? {
            page.iter().for_each(|object| copied.add(object));
            let copies = stream::iter(page).map(|object| async move { self.copy_one(caller, &object, old, new).await });
            copies.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
        Ok(copied)
    }

    /// Copies an object of a listing.
    ///
    /// # Errors
    /// `Changed` if the object is another version now.
    async fn copy_one(&self, caller: &Caller, object: &Object, old: &str, new: &str) -> Result<()> {
        let key = text(&object.key)?;
        let Some(rest) = key.strip_prefix(old) else {
            let message = "the listing has keys outside the requested prefix";
            return Err(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage));
        };
        let to = format!("{new}{rest}");
        if is_marker(object) {
            // SeaweedFS (seen with 4.48) does not copy markers.
            return self.put(caller, &to, Bytes::new(), None, false).await.map(drop);
        }
        self.copy(caller, key, &listing::metadata_of(object), &to).await
    }

    /// Removes the objects whose keys begin with `prefix` and that were copied.
    async fn remove_copied(&self, caller: &Caller, prefix: &str, copied: &CopiedObjects) -> Result<()> {
        let mut staying = 0;
        let mut pages = std::pin::pin!(listing::keys(self, caller, prefix));
        while let Some(mut page) = pages.try_next().await? {
            let all = page.len();
            page.retain(|object| copied.has(object));
            staying += all - page.len();
            let removals = stream::iter(page).map(|object| async move {
                // Markers have no content to lose, and servers differ in their versions.
                let version = listing::metadata_of(&object).version.filter(|_| !is_marker(&object));
                self.delete_version(caller, text(&object.key)?, version.as_ref()).await
            });
            removals.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
        if staying > 0 {
            tracing::warn!(prefix, "{staying} objects were added or replaced during the move and keep their old names");
        }
        Ok(())
    }

    /// Checks whether `to` may be the destination.
    async fn check_destination(
        &self,
        caller: &Caller,
        to: &StorePath,
        is_directory: bool,
        overwrite: Overwrite,
    ) -> Result<()> {
        let Some(there) = self.look(caller, to).await? else { return self.check_parent(caller, to).await };
        if overwrite == Overwrite::Refuse {
            return Err(fault(Fault::AlreadyExists, "it exists already", to));
        }
        match (is_directory, there.is_directory()) {
            (false, true) => Err(fault(Fault::IsDirectory, "it is a directory", to)),
            (true, false) => Err(fault(Fault::NotDirectory, "it is not a directory", to)),
            (true, true) => {
                let marker = prefix_of(to)?;
                let page = self.page(caller, &marker, false, 2, None).await?;
                let is_empty = page.objects.iter().all(|object| object.key == marker.as_bytes());
                if is_empty { Ok(()) } else { Err(fault(Fault::NotEmpty, Fault::NotEmpty.phrase(), to)) }
            }
            (false, false) => Ok(()),
        }
    }
}

/// Returns whether an object is the marker of a directory.
fn is_marker(object: &Object) -> bool {
    object.size == 0 && object.key.ends_with(b"/")
}

fn text(key: &[u8]) -> Result<&str> {
    str::from_utf8(key).map_err(|_| Error::new(Fault::InvalidArgument, "an S3 key must be UTF-8"))
}
