//! A tree, listed from its root down, several directories at once, in bounded memory but for the names of directories still to be listed.

use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use towpath_store::{Entry, Error, Fault, ListOptions, Result, StorePath};

use crate::Place;

/// Directories listed at once: enough to hide a round trip of 100 ms behind others, few enough to be polite.
const LISTINGS: usize = 32;

/// Some entries of one directory.
#[derive(Debug)]
pub struct Batch {
    /// The directory.
    pub directory: StorePath,
    /// Entries of it, in no order; more may follow in another batch.
    pub entries: Vec<Entry>,
}

/// A directory that could not be listed, or not to its end.
#[derive(Debug)]
pub struct Unlisted {
    /// The directory.
    pub directory: StorePath,
    /// Why not.
    pub error: Error,
}

impl Batch {
    /// The path of an entry.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no path can have.
    pub fn path_of(&self, entry: &Entry) -> Result<StorePath> {
        let path = self.directory.join(&entry.name);
        path.map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()).at(&self.directory))
    }
}

/// The listing of a tree under way. It descends only where it is told to [`Walk::enter`]: who removes a tree must not follow links.
pub struct Walk {
    root: Place,
    options: ListOptions,
    waiting: Vec<StorePath>,
    running: SelectAll<BoxStream<'static, (StorePath, Result<Vec<Entry>>)>>,
}

impl Walk {
    /// Starts at the directory `root`.
    pub fn new(root: &Place, options: ListOptions) -> Self {
        Self { root: root.clone(), options, waiting: vec![root.path.clone()], running: SelectAll::new() }
    }

    /// The entries of `directory` are wanted too.
    pub fn enter(&mut self, directory: StorePath) {
        self.waiting.push(directory);
    }

    /// The next batch, or a directory that could not be listed (the walk goes on with the others); none once all that was entered is listed.
    pub async fn next(&mut self) -> Option<Result<Batch, Unlisted>> {
        let (directory, batch) = loop {
            while self.running.len() < LISTINGS
                && let Some(directory) = self.waiting.pop()
            {
                let listing = self.root.store.list(&self.root.caller, &directory, self.options);
                self.running.push(listing.map(move |batch| (directory.clone(), batch)).boxed());
            }
            match self.running.next().await {
                Some(found) => break found,
                None if self.waiting.is_empty() => return None,
                // All that were running were empty.
                None => {}
            }
        };
        Some(match batch {
            Ok(entries) => Ok(Batch { directory, entries }),
            Err(error) => Err(Unlisted { error: error.at(&directory), directory }),
        })
    }
}
