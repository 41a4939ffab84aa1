//! The entries of one directory at both ends, in name order.

use std::{cmp::Ordering, sync::Arc};

use futures::{StreamExt as _, try_join};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::{Entry, Error, Fault, FileKind, ListOptions, Result};

use crate::{Job, StoreLocation, ancestry::Fingerprint, compare::EntrySummary};

/// Maximum number of entries per end that are kept without a permit. Only one larger directory is compared at a time.
pub(crate) const SMALL: usize = 32 << 10;

/// Maximum number of entries of a directory that is compared: half a gigabyte per end. An endless listing fails at this
/// limit.
const MAX_COMPARED: usize = 4 << 20;

/// Maximum number of entries listed ahead of their copies, for all directories together: 50 MB. Listings continue
/// during copies, because a server may abort a response that is not read.
pub(super) const READ_AHEAD: usize = 512 << 10;

/// The entries of one end: at most a hundred bytes each, for names of 20 bytes.
type Entries = Vec<(Box<[u8]>, EntrySummary)>;

/// How to list the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingMode {
    /// Completely.
    Complete,
    /// As far as this is cheaper than a request per file of the source. A directory that cannot be listed, or is much
    /// larger than the source, is treated as empty.
    Cheap,
}

/// Ratio of the entries of the destination to those of the source above which it is not cheap to list.
const CHEAP: usize = 4;

/// The entries of one directory at both ends.
#[derive(Debug)]
pub(super) struct DirectoryEntries<'a> {
    source: Entries,
    found: Entries,
    /// Fingerprint of the source's listing.
    pub(super) listing: Fingerprint,
    /// The permit for a large directory.
    _turn: Option<SemaphorePermit<'a>>,
}

/// An entry of the source, of the destination, or of both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryPair<'a> {
    pub(super) name: &'a [u8],
    pub(super) source: Option<EntrySummary>,
    pub(super) found: Option<EntrySummary>,
    /// Whether the source, and the destination, have two entries of different kinds with this name, like an object and
    /// a prefix of a bucket; only one of them is returned.
    pub(super) are_ambiguous: [bool; 2],
}

impl<'a> DirectoryEntries<'a> {
    /// Returns the entries of a source that is not compared.
    pub(super) fn of_source(Chunk { entries, listing }: Chunk) -> Self {
        Self { source: entries, found: Entries::new(), listing, _turn: None }
    }

    /// Lists the two directories of `ends` completely before an entry is used. A listing therefore never waits for
    /// files to be copied, and an incomplete listing has no effect.
    ///
    /// # Errors
    /// Errors of the listings; `TooLarge` for more than [`MAX_COMPARED`] entries.
    pub(super) async fn list(ends: &Job, mode: ListingMode, large: &'a Semaphore) -> Result<Self> {
        let found = |most| async move {
            match mode {
                ListingMode::Complete => entries(&ends.to, most).await,
                ListingMode::Cheap => Ok(Some(entries(&ends.to, most).await.ok().flatten().unwrap_or_default())),
            }
        };
        let list = |most| async move {
            Ok::<_, Error>(match try_join!(entries(&ends.from, most), found(most))? {
                (Some(source), Some(found)) => Some((source, found)),
                _ => None,
            })
        };
        if let Some((source, found)) = list(SMALL).await? {
            return Ok(Self { source: source.entries, found: found.entries, listing: source.listing, _turn: None });
        }
        // One permit for both ends: with one per end, two directories could each hold one and deadlock. The listings
        // are restarted, so that no server waits with a half-read response.
        let given_up = |_| Error::new(Fault::Cancelled, "the listing was cancelled");
        let turn = large.acquire().await.map_err(given_up)?;
        let (source, found) = match mode {
            ListingMode::Cheap => {
                let source = entries(&ends.from, MAX_COMPARED).await?.ok_or_else(|| too_large(&ends.from))?;
                let found = found(CHEAP * source.entries.len()).await?.unwrap_or_default();
                (source, found)
            }
            ListingMode::Complete => list(MAX_COMPARED).await?.ok_or_else(|| too_large(&ends.from))?,
        };
        Ok(Self { source: source.entries, found: found.entries, listing: source.listing, _turn: Some(turn) })
    }

    /// Returns the entries of both directories in name order, merged by name.
    pub(super) fn beside(&self) -> impl Iterator<Item = EntryPair<'_>> + Send {
        let mut source = self.source.iter().peekable();
        let mut found = self.found.iter().peekable();
        std::iter::from_fn(move || {
            let order = match (source.peek(), found.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            let ours = if order.is_le() { source.next() } else { None };
            let theirs = if order.is_ge() { found.next() } else { None };
            let (name, _) = ours.or(theirs)?;
            let are_ambiguous = [&mut source, &mut found].map(|end| end.next_if(|(next, _)| next == name).is_some());
            Some(EntryPair {
                name,
                source: ours.map(|ours| ours.1),
                found: theirs.map(|theirs| theirs.1),
                are_ambiguous,
            })
        })
    }
}

/// Some entries of a directory, in name order.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    entries: Entries,
    listing: Fingerprint,
}

impl Chunk {
    fn add(&mut self, batch: &[Entry]) {
        batch.iter().for_each(|entry| self.listing.add(entry));
        self.entries.extend(batch.iter().map(|entry| (Box::from(&*entry.name), EntrySummary::of(&entry.metadata))));
    }

    fn sort(&mut self) {
        self.entries.shrink_to_fit();
        let is_directory = |known: &EntrySummary| known.kind == FileKind::Directory;
        self.entries.sort_unstable_by(|(a, ours), (b, theirs)| (a, is_directory(ours)).cmp(&(b, is_directory(theirs))));
        // A server may list an entry twice.
        self.entries.dedup_by(|(a, ours), (b, theirs)| a == b && is_directory(ours) == is_directory(theirs));
    }
}

/// The listing of a directory whose entries are all copied, in chunks of [`SMALL`] entries that are listed while
/// earlier ones are copied. This bounds memory for a listing of any length.
#[derive(Debug)]
pub(super) struct Chunks {
    batches: mpsc::UnboundedReceiver<Result<Option<Ahead>>>,
    /// Signals that the consumer waits for a batch.
    demand: Arc<Notify>,
    /// The first batch of the next chunk.
    next: Option<Vec<Entry>>,
    _reader: AbortOnDropHandle<()>,
}

/// A batch with the permit for its entries; without a permit if the consumer waited for it. `None` marks the end of the
/// listing.
type Ahead = (Vec<Entry>, Option<OwnedSemaphorePermit>);

impl Chunks {
    /// Starts listing `location`, as far ahead as the permits of `room` allow.
    pub(super) fn begin(location: &StoreLocation, room: &Arc<Semaphore>) -> Self {
        let (sender, batches) = mpsc::unbounded_channel();
        let (demand, room) = (Arc::new(Notify::new()), Arc::clone(room));
        let wanted = Arc::clone(&demand);
        let path = location.path.clone();
        let mut listing = location.store.list(&location.caller, &path, LISTED);
        let reader = tokio::spawn(async move {
            while let Some(batch) = listing.next().await {
                let batch = batch.map_err(|error| error.at(&path));
                let (is_over, entries) = (batch.is_err(), batch.as_ref().map_or(0, Vec::len));
                let entries = u32::try_from(entries.min(READ_AHEAD)).unwrap_or(u32::MAX);
                let location = tokio::select! {
                    location = Arc::clone(&room).acquire_many_owned(entries) => location.ok(),
                    () = wanted.notified() => None,
                };
                if sender.send(batch.map(|batch| Some((batch, location)))).is_err() || is_over {
                    return;
                }
            }
            // Without a receiver there is no waiting task.
            let _ = sender.send(Ok(None));
        });
        Self { batches, demand, next: None, _reader: AbortOnDropHandle::new(reader) }
    }

    /// Returns the next entries, and whether there are more after them.
    ///
    /// # Errors
    /// Errors of the listing.
    pub(super) async fn next(&mut self) -> Result<(Chunk, bool)> {
        let mut chunk = Chunk::default();
        while let Some(mut batch) = self.batch().await? {
            let rest = batch.split_off(batch.len().min(SMALL - chunk.entries.len()));
            chunk.add(&batch);
            if !rest.is_empty() {
                self.next = Some(rest);
                break;
            }
        }
        chunk.sort();
        Ok((chunk, self.next.is_some()))
    }

    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        if let Some(batch) = self.next.take() {
            return Ok(Some(batch));
        }
        let ahead = match self.batches.try_recv() {
            Ok(ahead) => Some(ahead),
            Err(_) => {
                self.demand.notify_one();
                self.batches.recv().await
            }
        };
        // A listing that stops without an end must not look complete.
        let ahead = ahead.ok_or_else(|| Error::new(Fault::Internal, "the listing stopped before its end"))??;
        Ok(ahead.map(|(batch, _)| batch))
    }
}

/// Metadata to request in listings.
pub(super) const LISTED: ListOptions = ListOptions { metadata: true, digests: false };

/// Returns all entries of a directory; `None` if it has more than `most`.
async fn entries(location: &StoreLocation, most: usize) -> Result<Option<Chunk>> {
    let mut chunk = Chunk::default();
    let mut listing = location.store.list(&location.caller, &location.path, LISTED);
    while let Some(batch) = listing.next().await {
        chunk.add(&batch.map_err(|error| error.at(&location.path))?);
        if chunk.entries.len() > most {
            return Ok(None);
        }
    }
    chunk.sort();
    Ok(Some(chunk))
}

fn too_large(location: &StoreLocation) -> Error {
    let message = format!("it, or its counterpart, has more than {MAX_COMPARED} entries: too many to be compared");
    Error::new(Fault::TooLarge, message).at(&location.path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use towpath_store::Metadata;

    use super::*;

    fn entries(of: &BTreeSet<Vec<u8>>, size: u64) -> Entries {
        let known = EntrySummary::of(&Metadata::new(FileKind::File, size));
        of.iter().map(|name| (name.clone().into(), known)).collect()
    }

    proptest! {
        #[test]
        fn each_name_comes_once_and_in_order(
            ours in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
            theirs in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
        ) {
            let names = DirectoryEntries { source: entries(&ours, 1), found: entries(&theirs, 2), listing: Fingerprint::default(), _turn: None };
            let both: Vec<EntryPair> = names.beside().collect();
            let all: Vec<_> = ours.union(&theirs).cloned().collect();
            prop_assert_eq!(both.iter().map(|both| both.name.to_vec()).collect::<Vec<_>>(), all);
            for both in both {
                prop_assert_eq!(both.source.map(|known| known.size), ours.contains(both.name).then_some(1));
                prop_assert_eq!(both.found.map(|known| known.size), theirs.contains(both.name).then_some(2));
            }
        }
    }

    #[test]
    fn a_name_of_two_kinds_comes_once() {
        let known = |kind| EntrySummary::of(&Metadata::new(kind, 0));
        let [file, directory] = [FileKind::File, FileKind::Directory].map(|kind| (Box::from(*b"x"), known(kind)));
        let other = (Box::from(*b"y"), known(FileKind::File));
        let names = DirectoryEntries {
            source: vec![file.clone(), other],
            found: vec![file, directory],
            listing: Fingerprint::default(),
            _turn: None,
        };
        let told: Vec<_> = names.beside().map(|both| (both.name.to_vec(), both.are_ambiguous)).collect();
        assert_eq!(told, [(b"x".to_vec(), [false, true]), (b"y".to_vec(), [false, false])]);
    }
}
