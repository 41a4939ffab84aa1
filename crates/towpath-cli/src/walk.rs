//! A tree, listed from its root down, several directories at once, in bounded memory but for the names of directories still to be listed.

use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use towpath_store::{Entry, ListOptions, Result, StorePath};

use crate::location::{Place, Places};

/// Directories listed at once: enough to hide a round trip of 100 ms behind others, few enough to be polite.
const LISTINGS: usize = 32;

/// Some entries of one directory.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The directory.
    pub directory: StorePath,
    /// Entries of it, in no order; more may follow in another batch.
    pub entries: Vec<Entry>,
}

/// The listing of a tree under way.
pub(crate) struct Walk {
    places: Place,
    caller: towpath_store::Caller,
    options: ListOptions,
    waiting: Vec<StorePath>,
    running: SelectAll<BoxStream<'static, (StorePath, Result<Vec<Entry>>)>>,
}

impl Walk {
    /// Starts at the directory `root`.
    pub(crate) fn new(root: &Place, places: &Places, options: ListOptions) -> Self {
        Self {
            places: root.clone(),
            caller: places.caller.clone(),
            options,
            waiting: vec![root.path.clone()],
            running: SelectAll::new(),
        }
    }

    /// The next batch, or the error of one directory (the walk goes on with the others); none at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Batch>> {
        while self.running.len() < LISTINGS
            && let Some(directory) = self.waiting.pop()
        {
            let listing = self.places.store.list(&self.caller, &directory, self.options);
            self.running.push(listing.map(move |batch| (directory.clone(), batch)).boxed());
        }
        let (directory, batch) = self.running.next().await?;
        let entries = match batch {
            Ok(entries) => entries,
            Err(error) => return Some(Err(error.at(&directory))),
        };
        for entry in entries.iter().filter(|entry| entry.metadata.is_directory()) {
            match directory.join(&entry.name) {
                Ok(path) => self.waiting.push(path),
                Err(error) => tracing::warn!(%directory, name = ?entry.name, %error, "left out"),
            }
        }
        Some(Ok(Batch { directory, entries }))
    }
}
