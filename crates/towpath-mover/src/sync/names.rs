//! What one directory holds, in the order of the names.

use std::cmp::Ordering;

use futures::StreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use towpath_store::{Error, Fault, ListOptions, Result};

use crate::{Place, compare::Known};

/// So many entries of a directory are kept without asking. With more it is large, and waits for its turn: of large ones there is one at a time.
const SMALL: usize = 32 << 10;

/// The entries of one directory: a hundred bytes each, at most, with a name of twenty.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    entries: Vec<(Box<[u8]>, Known)>,
    /// Its turn, if it is large.
    _turn: Option<SemaphorePermit<'a>>,
}

/// An entry of the source, of the destination, or of both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Both {
    pub(super) name: Box<[u8]>,
    pub(super) source: Option<Known>,
    pub(super) found: Option<Known>,
}

impl<'a> Names<'a> {
    /// Lists the directory at `place`. It is listed to its end before anybody sees an entry: so a listing never waits for files to be copied, and one
    /// that breaks off leads to nothing.
    ///
    /// # Errors
    /// Those of the listing.
    pub(super) async fn list(place: &Place, options: ListOptions, large: &'a Semaphore) -> Result<Self> {
        let entries = match entries(place, options, SMALL).await? {
            Some(entries) => return Ok(Self { entries, _turn: None }),
            // What is listed anew did not have to wait half-way, with a server that loses its patience.
            None => large.acquire().await,
        };
        let turn = entries.map_err(|_| Error::new(Fault::Cancelled, "the listing was given up"))?;
        let entries = entries_of_any(place, options).await?;
        Ok(Self { entries, _turn: Some(turn) })
    }

    /// The entries of two directories, those of one name together, in the order of their names.
    pub(super) fn beside<'b>(self, other: Names<'b>) -> impl Iterator<Item = Both> + Send + use<'a, 'b> {
        let turns = (self._turn, other._turn);
        let mut source = self.entries.into_iter().peekable();
        let mut found = other.entries.into_iter().peekable();
        std::iter::from_fn(move || {
            let _ = &turns;
            let order = match (source.peek(), found.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            let ours = if order.is_le() { source.next() } else { None };
            let theirs = if order.is_ge() { found.next() } else { None };
            let (source, found) = (ours.as_ref().map(|ours| ours.1), theirs.as_ref().map(|theirs| theirs.1));
            let (name, _) = ours.or(theirs)?;
            Some(Both { name, source, found })
        })
    }
}

/// All entries of a directory; none if it has more than `most`.
async fn entries(place: &Place, options: ListOptions, most: usize) -> Result<Option<Vec<(Box<[u8]>, Known)>>> {
    let mut entries: Vec<(Box<[u8]>, Known)> = Vec::new();
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
    entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    // A server may say things twice.
    entries.dedup_by(|(a, _), (b, _)| a == b);
    Ok(Some(entries))
}

async fn entries_of_any(place: &Place, options: ListOptions) -> Result<Vec<(Box<[u8]>, Known)>> {
    Ok(entries(place, options, usize::MAX).await?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use towpath_store::{FileKind, Metadata};

    use super::*;

    fn names(of: &BTreeSet<Vec<u8>>, size: u64) -> Names<'static> {
        let known = Known::of(&Metadata::new(FileKind::File, size));
        Names { entries: of.iter().map(|name| (name.clone().into(), known)).collect(), _turn: None }
    }

    proptest! {
        #[test]
        fn each_name_comes_once_and_in_order(
            ours in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
            theirs in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..3), 0..20),
        ) {
            let both: Vec<Both> = names(&ours, 1).beside(names(&theirs, 2)).collect();
            let all: Vec<_> = ours.union(&theirs).cloned().collect();
            prop_assert_eq!(both.iter().map(|both| both.name.to_vec()).collect::<Vec<_>>(), all);
            for both in both {
                prop_assert_eq!(both.source.map(|known| known.size), ours.contains(&*both.name).then_some(1));
                prop_assert_eq!(both.found.map(|known| known.size), theirs.contains(&*both.name).then_some(2));
            }
        }
    }
}
