//! What one directory holds at both ends, in the order of the names.

use std::cmp::Ordering;

use futures::{StreamExt as _, try_join};
use tokio::sync::{Semaphore, SemaphorePermit};
use towpath_store::{Error, Fault, FileKind, ListOptions, Result};

use crate::{Job, Place, compare::Known};

/// So many entries of each end are kept without asking. A directory with more is large, and waits for its turn: of large ones there is one at a time.
const SMALL: usize = 32 << 10;

/// The entries at one end: a hundred bytes each, at most, with a name of twenty.
type Entries = Vec<(Box<[u8]>, Known)>;

/// How the destination is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Not at all.
    Not,
    /// All of it.
    Whole,
    /// As far as that is cheaper than a question for each file of the source: what cannot be listed, or is much larger, is as if it had nothing.
    Cheap,
}

/// A destination so many times larger than the source is not cheap to list.
const CHEAP: usize = 4;

/// What one directory holds at both ends.
#[derive(Debug)]
pub(super) struct Names<'a> {
    source: Entries,
    found: Entries,
    /// Its turn, if it is large.
    _turn: Option<SemaphorePermit<'a>>,
}

/// An entry of the source, of the destination, or of both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Both<'a> {
    pub(super) name: &'a [u8],
    pub(super) source: Option<Known>,
    pub(super) found: Option<Known>,
    /// Whether the source, and the destination, have things of two kinds under this name, as a bucket can have an object and a prefix; of which only one is
    /// told.
    pub(super) are_ambiguous: [bool; 2],
}

impl<'a> Names<'a> {
    /// Lists the two directories of `ends`, or the source alone if the other one is not to be looked at; that one may have been listed `ahead`. They are listed
    /// to their ends before anybody sees an entry: so a listing never waits for files to be copied, and one that breaks off leads to nothing.
    ///
    /// # Errors
    /// Those of the listings.
    pub(super) async fn list(ends: &Job, ahead: Option<Ahead>, look: Look, large: &'a Semaphore) -> Result<Self> {
        let found = |most| async move {
            match look {
                Look::Not => Ok(Some(Entries::new())),
                Look::Whole => entries(&ends.to, most).await,
                Look::Cheap => Ok(Some(entries(&ends.to, most).await.ok().flatten().unwrap_or_default())),
            }
        };
        let list = |most| async move {
            Ok::<_, Error>(match try_join!(entries(&ends.from, most), found(most))? {
                (Some(source), Some(found)) => Some((source, found)),
                _ => None,
            })
        };
        let small = match ahead {
            Some(Ahead(Some(source))) => Some((source, Entries::new())),
            Some(Ahead(None)) => None,
            None => list(SMALL).await?,
        };
        if let Some((source, found)) = small {
            return Ok(Self { source, found, _turn: None });
        }
        // One turn for both ends: of two, each could be held by a directory that waits for the other. What is listed anew did not have to wait
        // half-way, with a server that loses its patience.
        let given_up = || Error::new(Fault::Cancelled, "the listing was given up");
        let turn = large.acquire().await.map_err(|_| given_up())?;
        let (source, found) = match look {
            Look::Cheap => {
                let source = entries(&ends.from, usize::MAX).await?.ok_or_else(given_up)?;
                let found = found(CHEAP * source.len()).await?.unwrap_or_default();
                (source, found)
            }
            Look::Not | Look::Whole => list(usize::MAX).await?.ok_or_else(given_up)?,
        };
        Ok(Self { source, found, _turn: Some(turn) })
    }

    /// The entries of both directories, those of one name together, in the order of their names.
    pub(super) fn beside(&self) -> impl Iterator<Item = Both<'_>> + Send {
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
            Some(Both { name, source: ours.map(|ours| ours.1), found: theirs.map(|theirs| theirs.1), are_ambiguous })
        })
    }
}

/// What was listed of a directory before anybody knew that it is one: all its entries, or none if it is large.
#[derive(Debug)]
pub(super) struct Ahead(Option<Entries>);

/// Lists a directory ahead; none if that fails, for a reason that the next one will tell.
pub(super) async fn list_ahead(place: &Place) -> Option<Ahead> {
    entries(place, SMALL).await.ok().map(Ahead)
}

/// All entries of a directory; none if it has more than `most`.
async fn entries(place: &Place, most: usize) -> Result<Option<Entries>> {
    let options = ListOptions { metadata: true, ..ListOptions::default() };
    let mut entries = Entries::new();
    let mut listing = place.store.list(&place.caller, &place.path, options);
    while let Some(batch) = listing.next().await {
        for entry in batch.map_err(|error| error.at(&place.path))? {
            entries.push((Box::from(&*entry.name), Known::of(&entry.metadata)));
        }
        if entries.len() > most {
            return Ok(None);
        }
    }
    entries.shrink_to_fit();
    let is_directory = |known: &Known| known.kind == FileKind::Directory;
    entries.sort_unstable_by(|(a, ours), (b, theirs)| (a, is_directory(ours)).cmp(&(b, is_directory(theirs))));
    // A server may say things twice.
    entries.dedup_by(|(a, ours), (b, theirs)| a == b && is_directory(ours) == is_directory(theirs));
    Ok(Some(entries))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use towpath_store::Metadata;

    use super::*;

    fn entries(of: &BTreeSet<Vec<u8>>, size: u64) -> Entries {
        let known = Known::of(&Metadata::new(FileKind::File, size));
        of.iter().map(|name| (name.clone().into(), known)).collect()
    }

    proptest! {
        #[test]
        fn each_name_comes_once_and_in_order(
            ours in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
            theirs in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
        ) {
            let names = Names { source: entries(&ours, 1), found: entries(&theirs, 2), _turn: None };
            let both: Vec<Both> = names.beside().collect();
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
        let known = |kind| Known::of(&Metadata::new(kind, 0));
        let [file, directory] = [FileKind::File, FileKind::Directory].map(|kind| (Box::from(*b"x"), known(kind)));
        let other = (Box::from(*b"y"), known(FileKind::File));
        let names = Names { source: vec![file.clone(), other], found: vec![file, directory], _turn: None };
        let told: Vec<_> = names.beside().map(|both| (both.name.to_vec(), both.are_ambiguous)).collect();
        assert_eq!(told, [(b"x".to_vec(), [false, true]), (b"y".to_vec(), [false, false])]);
    }
}
