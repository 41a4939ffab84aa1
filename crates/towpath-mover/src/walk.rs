//! Lists a tree from its root down, several directories concurrently. Memory is bounded by [`MAX_WAITING_BYTES`], and
//! loops are detected ([`Ancestry`]).

use std::{
    collections::{HashMap, VecDeque},
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream, SelectAll},
};
use towpath_store::{Entry, Error, Fault, ListOptions, Metadata, Result, StorePath};

use crate::{
    StoreLocation,
    ancestry::{Ancestry, Fingerprint, loops},
};

/// Maximum number of concurrent listings: enough to hide a round trip of 100 ms, few enough not to load a server.
const LISTINGS: usize = 32;

/// Maximum memory for directories that wait to be listed, in bytes: 1.5 million directories with paths of typical
/// length.
pub(crate) const MAX_WAITING_BYTES: usize = 256 << 20;

/// Returns the memory that a waiting directory takes, in bytes.
pub(crate) fn waiting_bytes(path: &StorePath) -> usize {
    path.as_bytes().len() + 128
}

/// Returns the error for subdirectories of `directory` that are skipped for lack of memory.
pub(crate) fn too_many_directories(directory: &StorePath) -> Error {
    let message = "too many directories are waiting to be listed: some of its subdirectories are skipped";
    Error::new(Fault::TooLarge, message).at(directory)
}

/// Some entries of one directory.
#[derive(Debug)]
pub struct Batch {
    /// The directory.
    pub directory: StorePath,
    /// Entries in any order; more may follow in another batch.
    pub entries: Vec<Entry>,
    /// The listing that they are from.
    number: u64,
}

/// A directory that could not be listed, not completely, or was not entered.
#[derive(Debug)]
pub struct ListingFailure {
    /// The directory.
    pub directory: StorePath,
    /// The reason.
    pub error: Error,
}

impl Batch {
    /// Returns the path of an entry.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not valid in a path.
    pub fn path_of(&self, entry: &Entry) -> Result<StorePath> {
        let path = self.directory.join(&entry.name);
        path.map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()).at(&self.directory))
    }
}

/// A directory to be listed.
#[derive(Debug)]
struct PendingListing {
    path: StorePath,
    ancestry: Ancestry,
}

/// A directory that is being listed.
#[derive(Debug)]
struct ActiveListing {
    directory: PendingListing,
    listing: Fingerprint,
    /// Subdirectories that are entered once the directory is known not to be its own ancestor.
    held: Vec<PendingListing>,
    /// Set to cancel the listing.
    is_over: Arc<AtomicBool>,
}

/// A batch of a listing; `None` at its end.
type ListingEvent = (u64, Option<Result<Vec<Entry>>>);

/// The listing of a tree. It descends only into directories passed to [`Walk::enter`], because a removal must not
/// follow links.
pub struct Walk {
    root: StoreLocation,
    options: ListOptions,
    waiting: Vec<PendingListing>,
    waiting_bytes: usize,
    max_waiting_bytes: usize,
    numbers: u64,
    running: HashMap<u64, ActiveListing>,
    listings: SelectAll<BoxStream<'static, ListingEvent>>,
    unlisted: VecDeque<ListingFailure>,
}

impl Walk {
    /// Starts at the directory `root`.
    pub fn new(root: &StoreLocation, options: ListOptions) -> Self {
        Self {
            root: root.clone(),
            options,
            waiting: vec![PendingListing { path: root.path.clone(), ancestry: Ancestry::root(None) }],
            waiting_bytes: 0,
            max_waiting_bytes: MAX_WAITING_BYTES,
            numbers: 0,
            running: HashMap::new(),
            listings: SelectAll::new(),
            unlisted: VecDeque::new(),
        }
    }

    /// Sets the maximum memory for waiting directories in bytes.
    #[cfg(test)]
    pub(crate) fn with_room_for(self, max_waiting_bytes: usize) -> Self {
        Self { max_waiting_bytes, ..self }
    }

    /// Adds the directory `path`, an entry of `batch`, to the walk. A directory that equals one of its ancestors is
    /// returned as [`ListingFailure`] instead; so is one that exceeds the memory limit.
    pub fn enter(&mut self, batch: &Batch, path: StorePath, metadata: &Metadata) {
        let Some(running) = self.running.get_mut(&batch.number) else { return };
        let Some(ancestry) = running.directory.ancestry.enter(metadata.directory_id) else {
            self.unlisted.push_back(ListingFailure { error: loops(&path), directory: path });
            return;
        };
        if self.waiting_bytes + waiting_bytes(&path) > self.max_waiting_bytes {
            if !running.is_over.swap(true, Relaxed) {
                let directory = running.directory.path.clone();
                self.unlisted.push_back(ListingFailure { error: too_many_directories(&directory), directory });
            }
            return;
        }
        self.waiting_bytes += waiting_bytes(&path);
        let directory = PendingListing { path, ancestry };
        match running.directory.ancestry.is_identified() || !self.root.is_remote() {
            true => self.waiting.push(directory),
            false => running.held.push(directory),
        }
    }

    /// Returns the next batch, or a directory that could not be listed, which does not stop the others. `None` once all
    /// entered directories are listed.
    pub async fn next(&mut self) -> Option<Result<Batch, ListingFailure>> {
        loop {
            if let Some(unlisted) = self.unlisted.pop_front() {
                return Some(Err(unlisted));
            }
            while self.listings.len() < LISTINGS
                && let Some(directory) = self.waiting.pop()
            {
                self.list(directory);
            }
            let Some((number, batch)) = self.listings.next().await else {
                // Completed listings count until they are polled once more. All of them may be complete.
                if self.waiting.is_empty() {
                    return None;
                }
                continue;
            };
            match batch {
                Some(Ok(entries)) => {
                    let Some(running) = self.running.get_mut(&number) else { continue };
                    entries.iter().for_each(|entry| running.listing.add(entry));
                    let directory = running.directory.path.clone();
                    return Some(Ok(Batch { directory, entries, number }));
                }
                Some(Err(error)) => {
                    let Some(running) = self.running.get(&number) else { continue };
                    let directory = running.directory.path.clone();
                    return Some(Err(ListingFailure { error: error.at(&directory), directory }));
                }
                None => self.end(number).await,
            }
        }
    }

    fn list(&mut self, directory: PendingListing) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting_bytes(&directory.path));
        let number = self.numbers;
        self.numbers += 1;
        let is_over = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&is_over);
        let listing = self.root.store.list(&self.root.caller, &directory.path, self.options);
        let listing = listing.take_while(move |_| future::ready(!goes_on.load(Relaxed)));
        let batches = listing.map(move |batch| (number, Some(batch)));
        self.listings.push(batches.chain(stream::iter([(number, None)])).boxed());
        self.running
            .insert(number, ActiveListing { directory, listing: Fingerprint::default(), held: Vec::new(), is_over });
    }

    /// Enters the deferred directories of a completed listing.
    async fn end(&mut self, number: u64) {
        let Some(ActiveListing { directory, listing, held, .. }) = self.running.remove(&number) else { return };
        if held.is_empty() {
            return;
        }
        let location = self.root.with_path(directory.path);
        match directory.ancestry.refuse_loop(&location, listing, self.options).await {
            Ok(()) => self.waiting.extend(held),
            Err(error) => {
                let held_bytes: usize = held.iter().map(|held| waiting_bytes(&held.path)).sum();
                self.waiting_bytes = self.waiting_bytes.saturating_sub(held_bytes);
                self.unlisted.push_back(ListingFailure { directory: location.path, error });
            }
        }
    }
}
