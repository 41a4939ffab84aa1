//! Directories, and what can be done to names. A directory is a prefix of keys; one made by hand has a marker, an empty object whose key ends in
//! a slash. Nothing here is done in one step: what is told before each method.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use towpath_store::{Caller, Error, Fault, Metadata, Overwrite, Result, StorePath};

use super::{
    bucket::{Bucket, key_of, prefix_of},
    listing,
};

/// Requests side by side about the objects of a tree.
const AT_ONCE: usize = 32;

fn fault(fault: Fault, message: &str, path: &StorePath) -> Error {
    Error::new(fault, message).at(path)
}

impl Bucket {
    /// What is at `path`, if anything.
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

    /// Fails if one of the directories above `path` is a file.
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

    /// Makes a marker, or at the root the bucket itself. Missing parents need no markers: their names are in its key.
    pub(super) async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool) -> Result<()> {
        match self.look(caller, path).await? {
            Some(metadata) if metadata.is_directory() && parents => return Ok(()),
            Some(_) => return Err(fault(Fault::AlreadyExists, "it exists already", path)),
            None if path.is_root() => return self.make(caller).await.map_err(|error| error.at(path)),
            None if parents => self.check_ancestors(caller, path).await?,
            None => self.check_parent(caller, path).await?,
        }
        let marker = prefix_of(path)?;
        self.put(caller, &marker, bytes::Bytes::new(), None, false).await.map(drop).map_err(|error| error.at(path))
    }

    /// Removes an object. S3 says of one that is not there too that it is done, so it is looked for before.
    pub(super) async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if self.stat(caller, path).await?.is_directory() {
            return Err(fault(Fault::IsDirectory, "it is a directory", path));
        }
        self.delete(caller, key_of(path)?).await.map_err(|error| error.at(path))
    }

    /// Removes the marker of a directory without keys.
    pub(super) async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket is not removed", path));
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
            _ => Err(fault(Fault::NotEmpty, "it is not empty", path)),
        }
    }

    /// Removes all keys of a directory. What fails is left, with what was not reached.
    pub(super) async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket is not emptied by one request", path));
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

    /// Gives a file or a directory another name: each object is copied inside the store, and then the old ones are removed. The new file appears
    /// whole; a directory object by object. What breaks off leaves the old names, or both.
    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: &StorePath,
        to: &StorePath,
        overwrite: Overwrite,
    ) -> Result<()> {
        let metadata = self.stat(caller, from).await?;
        if from.is_root() || to.is_root() {
            return Err(fault(Fault::PermissionDenied, "a bucket keeps its name", from));
        }
        if from == to {
            return Ok(());
        }
        if !metadata.is_directory() {
            self.check_destination(caller, to, false, overwrite).await?;
            self.copy(caller, key_of(from)?, &metadata, key_of(to)?).await.map_err(|error| error.at(from))?;
            return self.delete(caller, key_of(from)?).await.map_err(|error| error.at(from));
        }
        if to.is_within(from) {
            return Err(fault(Fault::InvalidArgument, "a directory cannot be moved into itself", to));
        }
        self.check_destination(caller, to, true, overwrite).await?;
        let (old, new) = (prefix_of(from)?, prefix_of(to)?);
        let mut pages = std::pin::pin!(listing::keys(self, caller, &old));
        while let Some(page) = pages.try_next().await.map_err(|error| error.at(from))? {
            let copied = stream::iter(page).map(|object| {
                let rest = object.key.strip_prefix(old.as_bytes()).map(|rest| [new.as_bytes(), rest].concat());
                async move {
                    let to = rest.unwrap_or_default();
                    if object.size == 0 && to.ends_with(b"/") {
                        // A marker. SeaweedFS (seen with 4.48) does not copy one.
                        return self.put(caller, text(&to)?, bytes::Bytes::new(), None, false).await.map(drop);
                    }
                    let metadata = Metadata::new(towpath_store::FileKind::File, object.size);
                    self.copy(caller, text(&object.key)?, &metadata, text(&to)?).await
                }
            });
            copied.buffer_unordered(AT_ONCE).try_collect::<()>().await.map_err(|error| error.at(from))?;
        }
        self.remove_tree(caller, from).await
    }

    /// Whether something may get the name `to`.
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
                if is_empty { Ok(()) } else { Err(fault(Fault::NotEmpty, "it is not empty", to)) }
            }
            (false, false) => Ok(()),
        }
    }
}

fn text(key: &[u8]) -> Result<&str> {
    str::from_utf8(key).map_err(|_| Error::new(Fault::InvalidArgument, "a key of S3 is UTF-8"))
}
