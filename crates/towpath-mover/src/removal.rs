//! Removal of a tree. Targets of symbolic links are never removed.
//!
//! Listings of remote stores do not always distinguish a link to a directory from a directory. Each directory is
//! therefore first removed as if it were empty: only one that is refused because it has entries ([`Fault::NotEmpty`])
//! is certainly a directory, and is entered; a link is reported as not a directory and removed like a file. A store
//! with recursive deletion (WebDAV) is used for whole trees.

use futures::{StreamExt as _, stream};
use towpath_store::{DirectoryId, Error, Fault, ListOptions, Metadata, Result, StorePath, gone};

use crate::{Batch, Filter, StoreLocation, Walk};

/// Maximum number of removals in flight.
const REMOVALS: usize = 64;

/// The removal of a directory with all entries that a filter accepts. Paths of directories are kept until their
/// contents are gone.
pub struct Removal<'a, F> {
    root: &'a StoreLocation,
    filter: (&'a Filter, &'a StorePath),
    on_error: F,
    /// Directories whose entries have been removed, as far as possible.
    emptied: Vec<StorePath>,
    failures: u64,
    /// Whether some entries are kept.
    has_left: bool,
    /// The id of the root, if known.
    id: Option<DirectoryId>,
    /// Directories that are not entered.
    kept: &'a [DirectoryId],
}

/// Removes a listed entry that is not a directory. `NotFound` counts as success only if the entry is no longer listed:
/// some servers list links that they then cannot find.
///
/// # Errors
/// Errors of the store; `Changed` if the entry is still listed.
pub(crate) async fn remove_listed(location: &StoreLocation) -> Result<()> {
    let StoreLocation { store, caller, path, .. } = location;
    let missing = match store.remove_file(caller, path).await {
        Err(error) if error.fault() == Fault::NotFound => error,
        outcome => return outcome,
    };
    let Some((above, name)) = path.parent().zip(path.name()) else { return Err(missing) };
    let mut listing = store.list(caller, &above, ListOptions::default());
    while let Some(batch) = listing.next().await {
        let batch = match batch {
            Err(error) if error.fault() == Fault::NotFound => return Ok(()),
            batch => batch?,
        };
        if batch.iter().any(|entry| *entry.name == *name) {
            let message =
                format!("it is not deleted: the server lists it, but does not find it ({})", missing.message());
            return Err(Error::new(Fault::Changed, message).at(path));
        }
    }
    Ok(())
}

impl<'a, F: FnMut(Error) + Send> Removal<'a, F> {
    /// Creates a removal of the directory `root` and its contents, as far as the filter accepts them; patterns apply
    /// below the path next to the filter. `on_error` receives failures, which do not stop the removal.
    pub fn new(root: &'a StoreLocation, filter: (&'a Filter, &'a StorePath), on_error: F) -> Self {
        Self { root, filter, on_error, emptied: Vec::new(), failures: 0, has_left: false, id: None, kept: &[] }
    }

    /// Sets the `id` of the directory. Directories whose id is among `kept` are not entered, because they contain
    /// files to keep.
    pub fn keeping(self, id: Option<DirectoryId>, kept: &'a [DirectoryId]) -> Self {
        Self { id, kept, ..self }
    }

    /// Runs the removal.
    pub async fn run(mut self) {
        let StoreLocation { store, caller, path, .. } = self.root;
        if let Err(error) = self.refuse_kept(path, self.id) {
            return self.note(error);
        }
        let may_hold_kept = self.id.is_some_and(|id| self.kept.iter().any(|kept| kept.may_share_machine(id)));
        if store.capabilities().remove_tree && self.filter.0.is_empty() && !may_hold_kept {
            if let Err(error) = gone(store.remove_tree(caller, path).await) {
                self.note(error);
            }
            return;
        }
        match self.remove_unless_full(path.clone()).await {
            Ok(Some(path)) => {
                self.empty(path).await;
                self.remove_emptied().await;
            }
            Ok(None) => {}
            Err(error) => self.note(error),
        }
    }

    /// Removes everything below `top`, except the directories themselves.
    async fn empty(&mut self, top: StorePath) {
        // Only sizes and ids are needed, for filters and kept directories.
        let metadata = !self.filter.0.is_empty() || !self.kept.is_empty();
        let mut walk = Walk::new(self.root, ListOptions { metadata, ..ListOptions::default() });
        self.emptied.push(top);
        while let Some(batch) = walk.next().await {
            let mut batch = match batch {
                Ok(batch) => batch,
                Err(unlisted) => {
                    self.note(unlisted.error);
                    continue;
                }
            };
            for outcome in self.remove_entries(&mut batch).await {
                match outcome {
                    Ok(Some((full, metadata))) => {
                        walk.enter(&batch, full.clone(), &metadata);
                        self.emptied.push(full);
                    }
                    Ok(None) => {}
                    Err(error) => self.note(error),
                }
            }
        }
    }

    /// Removes the entries of one batch; returns the directories that have entries.
    async fn remove_entries(&mut self, batch: &mut Batch) -> Vec<Result<Option<(StorePath, Metadata)>>> {
        let entries = std::mem::take(&mut batch.entries);
        let all = entries.len();
        let (filter, root) = self.filter;
        let taken: Vec<_> = entries
            .into_iter()
            .map(|entry| (batch.path_of(&entry), entry.metadata))
            .filter(|(path, metadata)| {
                let is_directory = metadata.is_directory();
                let is_taken = |path| filter.apply(path, root, is_directory).is_taken;
                path.as_ref().map_or(true, is_taken) && (is_directory || filter.takes(metadata.size))
            })
            .collect();
        self.has_left |= taken.len() < all;
        let this = &*self;
        let removal = |(path, metadata): (Result<_>, Metadata)| async move {
            let path = path?;
            match metadata.is_directory() {
                true => {
                    this.refuse_kept(&path, metadata.directory_id.filter(|_| !metadata.is_link))?;
                    Ok(this.remove_unless_full(path).await?.map(|path| (path, metadata)))
                }
                false => remove_listed(&this.root.with_path(path)).await.map(|()| None),
            }
        };
        let removals: Vec<_> = taken.into_iter().map(removal).collect();
        stream::iter(removals).buffer_unordered(REMOVALS).collect().await
    }

    /// Removes an empty directory, or a link to any directory; returns the path of a directory with entries.
    async fn remove_unless_full(&self, path: StorePath) -> Result<Option<StorePath>> {
        match gone(self.remove_directory(&path).await) {
            Ok(()) => Ok(None),
            Err(error) if error.fault() == Fault::NotEmpty => Ok(Some(path)),
            Err(error) => gone(self.remove_file(&path).await).map(|()| None).map_err(|_| error),
        }
    }

    /// Removes the emptied directories, the deepest first, and those of equal depth concurrently.
    async fn remove_emptied(&mut self) {
        let depth = |path: &StorePath| path.components().count();
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.sort_unstable_by_key(|path| std::cmp::Reverse(depth(path)));
        for level in emptied.chunk_by(|a, b| depth(a) == depth(b)) {
            let removals: Vec<_> = level.iter().map(|path| self.remove_directory(path)).collect();
            let outcomes: Vec<_> = stream::iter(removals).buffer_unordered(REMOVALS).collect().await;
            for error in outcomes.into_iter().filter_map(|outcome| gone(outcome).err()) {
                // The entry that prevents the removal was already reported, or is kept.
                if error.fault() != Fault::NotEmpty || (self.failures == 0 && !self.has_left) {
                    self.note(error);
                }
            }
        }
    }

    fn refuse_kept(&self, path: &StorePath, id: Option<DirectoryId>) -> Result<()> {
        match id.is_some_and(|id| self.kept.contains(&id)) {
            true => Err(Error::new(Fault::InvalidArgument, "it is not removed: the source is inside it").at(path)),
            false => Ok(()),
        }
    }

    fn note(&mut self, error: Error) {
        self.failures += 1;
        (self.on_error)(error);
    }

    async fn remove_file(&self, path: &StorePath) -> Result<()> {
        self.root.store.remove_file(&self.root.caller, path).await
    }

    async fn remove_directory(&self, path: &StorePath) -> Result<()> {
        self.root.store.remove_directory(&self.root.caller, path).await
    }
}
