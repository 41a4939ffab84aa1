//! `towpath rm`: files and trees. What a symbolic link leads to is never removed.
//!
//! Listings of remote stores do not always tell a link to a directory from a directory. So each directory is first removed as if it were
//! empty: only what is refused because it has entries ([`Fault::NotEmpty`]) is a directory for sure, and is entered; of a link the system says
//! that it is none, and it is removed as a file is. A store that removes trees by itself (WebDAV) is asked to.

use futures::{StreamExt as _, stream};
use towpath_mover::{Batch, Place, Walk};
use towpath_store::{Error, Fault, ListOptions, Result, StorePath};

use crate::{
    args::Remove,
    commands::for_each,
    failure::{Failure, Tally, print_error},
    location::Places,
};

/// Names removed at once.
const REMOVALS: usize = 64;

/// Runs `towpath rm`.
pub(crate) async fn run(arguments: &Remove, places: &Places) -> Result<(), Failure> {
    for_each(&arguments.paths, places, async |_, place| {
        if place.path.is_root() {
            return Err(Failure::Usage(format!("{place}: the root of a storage is not removed")));
        }
        match place.store.remove_file(&place.caller, &place.path).await {
            Err(error) if error.fault() == Fault::IsDirectory && arguments.recursive => remove_tree(&place).await,
            Err(error) if error.fault() == Fault::IsDirectory => {
                Err(Error::new(Fault::IsDirectory, "it is a directory: use -r to remove it").at(&place.path).into())
            }
            outcome => Ok(outcome?),
        }
    })
    .await
}

async fn remove_tree(root: &Place) -> Result<(), Failure> {
    if root.store.capabilities().remove_tree {
        return Ok(root.store.remove_tree(&root.caller, &root.path).await?);
    }
    let mut removal = Removal { root, emptied: Vec::new(), failed: Tally::default() };
    if let Some(path) = removal.remove_unless_full(root.path.clone()).await? {
        removal.empty(path).await;
        removal.remove_emptied().await;
    }
    removal.failed.outcome()
}

/// A tree that is being removed. Errors are printed and counted; the rest goes on.
struct Removal<'a> {
    root: &'a Place,
    /// Directories whose entries are gone, as far as that was possible.
    emptied: Vec<StorePath>,
    failed: Tally,
}

impl Removal<'_> {
    /// Removes everything below `top`, but for the directories that had entries.
    async fn empty(&mut self, top: StorePath) {
        let mut walk = Walk::new(self.root, ListOptions::default());
        self.emptied.push(top);
        while let Some(batch) = walk.next().await {
            let outcomes = match batch {
                Ok(batch) => self.remove_entries(&batch).await,
                Err(error) => vec![Err(error)],
            };
            for outcome in outcomes {
                match outcome {
                    Ok(Some(full)) => {
                        walk.enter(full.clone());
                        self.emptied.push(full);
                    }
                    Ok(None) => {}
                    Err(error) => self.note(&error),
                }
            }
        }
    }

    /// Removes the entries of one batch; gives those that are directories with entries.
    async fn remove_entries(&self, batch: &Batch) -> Vec<Result<Option<StorePath>>> {
        let removals = batch.entries.iter().map(|entry| async move {
            let path = batch.path_of(entry)?;
            match entry.metadata.is_directory() {
                true => self.remove_unless_full(path).await,
                false => gone(self.remove_file(&path).await).map(|()| None),
            }
        });
        stream::iter(removals).buffer_unordered(REMOVALS).collect().await
    }

    /// Removes an empty directory, or a link to any directory; gives a directory with entries back.
    async fn remove_unless_full(&self, path: StorePath) -> Result<Option<StorePath>> {
        match gone(self.remove_directory(&path).await) {
            Ok(()) => Ok(None),
            Err(error) if error.fault() == Fault::NotEmpty => Ok(Some(path)),
            Err(error) => gone(self.remove_file(&path).await).map(|()| None).map_err(|_| error),
        }
    }

    /// Removes the directories that have been emptied, the deepest ones first, those of one depth side by side.
    async fn remove_emptied(&mut self) {
        let depth = |path: &StorePath| path.components().count();
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.sort_unstable_by_key(|path| std::cmp::Reverse(depth(path)));
        for level in emptied.chunk_by(|a, b| depth(a) == depth(b)) {
            let removals = level.iter().map(|path| self.remove_directory(path));
            let outcomes: Vec<_> = stream::iter(removals).buffer_unordered(REMOVALS).collect().await;
            for error in outcomes.into_iter().filter_map(|outcome| gone(outcome).err()) {
                // What keeps it from going has been told already.
                if error.fault() != Fault::NotEmpty || self.failed.count == 0 {
                    self.note(&error);
                }
            }
        }
    }

    fn note(&mut self, error: &Error) {
        print_error(error);
        self.failed.add(error.fault().exit_code());
    }

    async fn remove_file(&self, path: &StorePath) -> Result<()> {
        self.root.store.remove_file(&self.root.caller, path).await
    }

    async fn remove_directory(&self, path: &StorePath) -> Result<()> {
        self.root.store.remove_directory(&self.root.caller, path).await
    }
}

/// What has gone by itself is as good as removed.
fn gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.fault() == Fault::NotFound => Ok(()),
        outcome => outcome,
    }
}
