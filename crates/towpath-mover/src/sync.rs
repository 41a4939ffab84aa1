//! Synchronization of a destination with a source, directory by directory.
//!
//! [`Sync::copying`] walks both trees and returns a [`SyncAction`] for each difference. It creates directories and sets
//! times and modes itself; the caller passes files to a [`crate::Mover`]. Extra entries of the destination are only
//! reported. [`Sync::deleting`] walks both trees once more and removes entries that were reported and are still extra:
//! each is checked twice before its removal.
//!
//! Memory holds the names of the directories in progress (up to 32 with 32,768 names each at both ends, and one with
//! all its names), of the directories still to be entered ([`names`]), and 64 bits per reported extra entry.

mod descent;
mod names;
mod task;

use std::{
    collections::HashSet,
    hash::BuildHasher as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures::{StreamExt as _, stream, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::checksum::Algorithm;
use towpath_store::{Changes, Result};

pub(crate) use self::names::SMALL;

use self::descent::Descent;
use crate::{Compare, CopyReason, FailedJob, Filter, Job, Progress, SkipPolicy, StoreLocation, Trees, overlap};

/// Maximum number of steps prepared ahead of the caller, so that many files and sizes are known in advance. A thousand
/// take a megabyte.
const STEPS: usize = 16 << 10;

/// Options of a synchronization.
#[derive(Debug, Clone, Default)]
pub struct SyncOptions {
    /// How files are compared.
    pub compare: Compare,
    /// Digest to compare, if any; Adler32 if none is selected and none is known at both ends.
    pub checksum: Option<Algorithm>,
    /// Selects the entries to consider, at both ends.
    pub filter: Filter,
    /// Whether entries that the source does not have are to be deleted.
    pub delete: bool,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// Permission bits cleared on every file, independent of the source's mode.
    pub umask: u32,
}

impl From<Trees> for SyncOptions {
    fn from(Trees { filter, umask, dry_run, .. }: Trees) -> Self {
        Self { filter, umask, dry_run, ..Self::default() }
    }
}

/// The treatment of existing entries of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// They are made equal to the source.
    Alike,
    /// They are not examined: everything in the source is copied.
    CopyAll,
    /// Existing entries that the policy skips stay; all others are copied.
    CopyUnless(SkipPolicy),
}

/// A source and a destination, each a tree or a file.
#[derive(Debug)]
pub struct Sync {
    ends: Job,
    options: SyncOptions,
    purpose: Purpose,
    /// Number of entries of the source, including those that the filter rejects.
    entries: AtomicU64,
    /// Hashes of the reported extra entries; no other entry is removed.
    extras: Mutex<HashSet<u64>>,
}

/// An action to do, or already done.
#[derive(Debug)]
pub enum SyncAction {
    /// This number of files is unchanged.
    Same(u64),
    /// A file has to be copied. The time of its directory is set after the job was dropped, and the steps end after
    /// that.
    Copy(Job, CopyReason),
    /// A directory was created, or would be in a dry run.
    MakeDirectory(StoreLocation),
    /// Time and mode were set, or would be in a dry run.
    Touch(StoreLocation, Changes),
    /// An entry that the source does not have; [`Sync::deleting`] has removed it.
    Extra(Extra),
}

/// An entry that only the destination has, or that conflicts with an entry of the source.
#[derive(Debug)]
pub struct Extra {
    /// Its location.
    pub location: StoreLocation,
    /// Whether it is a directory; its contents are removed with it.
    pub is_directory: bool,
}

impl Extra {
    /// Returns its hash in `extras`.
    fn hash(&self, extras: &HashSet<u64>) -> u64 {
        extras.hasher().hash_one((self.location.path.as_bytes(), self.is_directory))
    }
}

/// Steps in the order of discovery. A failure concerns one file or directory and does not stop the others.
pub type SyncActions = BoxStream<'static, Result<SyncAction, FailedJob>>;

/// The two passes through the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Copying,
    Deleting,
}

impl Sync {
    /// Creates a synchronization that makes `ends.to` equal to `ends.from` (not an entry within it).
    ///
    /// # Errors
    /// `InvalidArgument` if one end is within the other.
    pub fn new(ends: Job, options: SyncOptions) -> Result<Arc<Self>> {
        overlap::refuse_clashes(std::slice::from_ref(&ends))?;
        overlap::refuse_source_within(&ends)?;
        Ok(Self::of(ends, options, Purpose::Alike))
    }

    /// Creates a copy of `ends.from` as selected by `trees`.
    pub(crate) fn copy(ends: Job, trees: Trees) -> Arc<Self> {
        let purpose = match trees.skip {
            SkipPolicy::Nothing | SkipPolicy::SameIfRefused if !trees.dry_run => Purpose::CopyAll,
            policy => Purpose::CopyUnless(policy),
        };
        Self::of(ends, trees.into(), purpose)
    }

    fn of(ends: Job, options: SyncOptions, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self { ends, options, purpose, entries: AtomicU64::new(0), extras: Mutex::default() })
    }

    /// Walks both trees and reports to `progress`. Directories are created, times and modes set; files are returned to
    /// be copied, and may replace others.
    pub fn copying(self: &Arc<Self>, progress: &Arc<Progress>) -> SyncActions {
        self.steps(Pass::Copying, progress)
    }

    /// Walks both trees once more and removes entries that the source does not have, if [`Self::copying`] reported them
    /// and no listing of the source fails. Files whose copy was blocked by such an entry are returned to be copied now.
    /// Must be called only after [`Self::copying`] succeeded completely.
    pub fn deleting(self: &Arc<Self>, progress: &Arc<Progress>) -> SyncActions {
        self.steps(Pass::Deleting, progress)
    }

    /// Returns the number of source entries found by [`Self::copying`], including those that the filter rejects.
    pub fn source_entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Records an extra entry of the destination.
    fn note(&self, extra: &Extra) {
        let mut extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = extra.hash(&extras);
        extras.insert(hash);
    }

    /// Returns whether [`Sync::copying`] reported the entry.
    fn is_noted(&self, extra: &Extra) -> bool {
        let extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        extras.contains(&extra.hash(&extras))
    }

    fn steps(self: &Arc<Self>, pass: Pass, progress: &Arc<Progress>) -> SyncActions {
        let (sender, steps) = mpsc::channel(STEPS);
        let descent = Descent::new(Arc::clone(self), pass, sender, Arc::clone(progress));
        let list = progress.list();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { descent.run(list).await }));
        stream::unfold((steps, task), |(mut steps, task)| async move {
            let Some(step) = steps.recv().await else {
                // A panic must not look like the end of the walk.
                task.await.expect("the walk does not panic, and only its owner aborts it");
                return None;
            };
            Some((step, (steps, task)))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
