//! The directories from the root of a walk down to one directory, used to detect loops caused by links to a parent
//! directory.
//!
//! On a server that identifies directories ([`DirectoryId`]), a directory that is its own ancestor is detected before
//! it is listed. Elsewhere listings are compared: a directory with the same listing as an ancestor may be that
//! ancestor. The relative path from the ancestor is then followed [`REPEATS`] more times; if it still leads to the same
//! listing, the directory is treated as a loop.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    iter,
    sync::{Arc, OnceLock},
};

use futures::StreamExt as _;
use towpath_store::{DirectoryId, Entry, Error, Fault, ListOptions, Result, StorePath};

use crate::{StoreLocation, sync::SMALL};

/// Number of repetitions of a relative path with the same listing that proves a loop. Trees that repeat themselves
/// intentionally, like those of OME-Zarr (`0/0/0/0/0/0`), do so six or seven times.
const REPEATS: usize = 8;

/// The same for a listing without times: in a bucket all directories look alike. A file system follows at most 40
/// links.
const UNDATED_REPEATS: usize = 32;

/// Maximum number of entries in a fingerprint: a larger directory need not be listed completely.
const MAX_ENTRIES: u64 = SMALL as u64;

/// Fingerprint of the names, kinds, sizes, times and versions of a directory's entries, independent of their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint {
    sum: u64,
    entries: u64,
    /// Whether times or versions distinguish the entries from others with the same names.
    is_dated: bool,
}

impl Fingerprint {
    /// Adds an entry; only the first [`MAX_ENTRIES`] count.
    pub(crate) fn add(&mut self, Entry { name, metadata }: &Entry) {
        if self.entries == MAX_ENTRIES {
            return;
        }
        let mut hasher = DefaultHasher::new();
        (name, metadata.kind, metadata.size, metadata.mtime_ns, &metadata.version).hash(&mut hasher);
        self.sum = self.sum.wrapping_add(hasher.finish());
        self.entries += 1;
        self.is_dated |= metadata.mtime_ns.is_some() || metadata.version.is_some();
    }
}

/// A directory and its ancestors up to the root of the walk. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Ancestry(Arc<AncestryNode>);

#[derive(Debug)]
struct AncestryNode {
    id: Option<DirectoryId>,
    /// Empty before the directory is listed.
    listing: OnceLock<Fingerprint>,
    above: Option<Ancestry>,
}

impl Ancestry {
    /// Creates the trail of the root of a walk.
    pub(crate) fn root(id: Option<DirectoryId>) -> Self {
        Self(Arc::new(AncestryNode { id, listing: OnceLock::new(), above: None }))
    }

    /// Returns the trail of a subdirectory; `None` if it is this directory or one of its ancestors.
    pub(crate) fn enter(&self, id: Option<DirectoryId>) -> Option<Self> {
        let is_above = id.is_some() && self.upwards().any(|ancestry| ancestry.0.id == id);
        (!is_above).then(|| Self(Arc::new(AncestryNode { id, listing: OnceLock::new(), above: Some(self.clone()) })))
    }

    /// Returns whether the directory is identified by its id alone, without its listing.
    pub(crate) fn is_identified(&self) -> bool {
        self.0.id.is_some()
    }

    /// Rejects the directory at `location`, which was listed with these `options`, if it is one of its ancestors. Local
    /// directories are not checked here: they are identified by id.
    ///
    /// # Errors
    /// `InvalidArgument` if it is.
    pub(crate) async fn refuse_loop(
        &self,
        location: &StoreLocation,
        listing: Fingerprint,
        options: ListOptions,
    ) -> Result<()> {
        if self.is_identified() || !location.is_remote() || listing.entries == 0 {
            return Ok(());
        }
        let _ = self.0.listing.set(listing);
        let above = self.upwards().skip(1);
        let levels =
            above.zip(1..).filter(|(ancestry, _)| ancestry.0.listing.get() == Some(&listing)).map(|(_, levels)| levels);
        for levels in levels {
            let repeats = if listing.is_dated { REPEATS } else { UNDATED_REPEATS };
            let Some(path) = repeated(&location.path, levels, repeats) else { continue };
            if fingerprint(&location.with_path(path), listing.entries, options).await == Some(listing) {
                return Err(loops(&location.path));
            }
        }
        Ok(())
    }

    fn upwards(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |ancestry| ancestry.0.above.as_ref())
    }
}

/// Returns the error for a directory that is its own ancestor.
pub(crate) fn loops(path: &StorePath) -> Error {
    let message = "it is skipped: it is a link to one of its parent directories";
    Error::new(Fault::InvalidArgument, message).at(path)
}

/// Returns `path` with its last `levels` names repeated `repeats` times; `None` if that is too long for a path.
fn repeated(path: &StorePath, levels: usize, repeats: usize) -> Option<StorePath> {
    let mut last: Vec<_> = path.components().rev().take(levels).collect();
    last.reverse();
    iter::repeat_n(last, repeats).flatten().try_fold(path.clone(), |path, name| path.join(name).ok())
}

/// Returns the fingerprint of a directory; `None` if it cannot be listed, or has more than `most` entries.
async fn fingerprint(location: &StoreLocation, most: u64, options: ListOptions) -> Option<Fingerprint> {
    let mut listing = location.store.list(&location.caller, &location.path, options);
    let mut found = Fingerprint::default();
    while let Some(batch) = listing.next().await {
        batch.ok()?.iter().for_each(|entry| found.add(entry));
        if found.entries > most || found.entries == MAX_ENTRIES {
            break;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Option<DirectoryId> {
        DirectoryId::from_number(number)
    }

    #[test]
    fn a_directory_is_not_entered_below_itself() {
        let root = Ancestry::root(id(1));
        let below = root.enter(id(2)).unwrap();
        assert!(below.enter(id(2)).is_none() && below.enter(id(1)).is_none());
        assert!(below.enter(id(3)).is_some() && root.enter(id(3)).is_some());
        assert!(below.enter(None).is_some(), "nothing is known of it");
    }

    #[test]
    fn a_way_down_is_repeated() {
        let path = |text: &str| StorePath::parse(text.as_bytes()).unwrap();
        assert_eq!(repeated(&path("/a/b/c"), 2, REPEATS).unwrap(), path(&format!("/a/b/c{}", "/b/c".repeat(REPEATS))));
        assert_eq!(
            repeated(&path(&format!("/{}", "x".repeat(255))), 1, REPEATS).unwrap().components().count(),
            1 + REPEATS
        );
        assert_eq!(repeated(&path(&format!("/{0}/{0}/{0}", "x".repeat(255))), 3, REPEATS), None);
    }
}
