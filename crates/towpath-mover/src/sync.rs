//! Synchronization of a destination with a source, directory by directory.
//!
//! [`Sync::copying`] walks both trees and returns a [`Step`] for each difference. It creates directories and sets
//! times and modes itself; the caller passes files to a [`crate::Mover`]. Extra entries of the destination are only
//! reported. [`Sync::deleting`] walks both trees once more and removes entries that were reported and are still extra:
//! each is checked twice before its removal.
//!
//! In memory are the names of the directories under way and of those still to be entered: of at most 32 directories up to 32,768 names at each end,
//! and of one at a time all that it has ([`names`]); and of each thing that is to be deleted 64 bits.

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
use crate::{Compare, Filter, Job, Missed, Place, Progress, Trees, Why, clash};

/// Maximum number of steps prepared ahead of the caller, so that many files and sizes are known in advance. A thousand
/// take a megabyte.
const STEPS: usize = 16 << 10;

/// What holds for all of one synchronisation.
#[derive(Debug, Clone, Default)]
pub struct SyncOptions {
    /// By what files are compared.
    pub compare: Compare,
    /// Which digest is compared, if any is; Adler32 if nothing is said and none is known at both ends.
    pub checksum: Option<Algorithm>,
    /// What of the trees is looked at, at both ends.
    pub filter: Filter,
    /// What the source does not have is wanted to go.
    pub delete: bool,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Permission bits that no file gets, whatever its source says.
    pub umask: u32,
}

impl From<Trees> for SyncOptions {
    fn from(Trees { filter, umask, .. }: Trees) -> Self {
        Self { filter, umask, ..Self::default() }
    }
}

/// The treatment of existing entries of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It becomes as the source is.
    Alike,
    /// Nobody looks at it: all of the source is to be copied.
    CopyAll,
    /// Existing entries stay; missing ones are copied.
    CopyMissing,
}

/// A source and a destination, each a tree or a file.
#[derive(Debug)]
pub struct Sync {
    ends: Job,
    options: SyncOptions,
    purpose: Purpose,
    /// Entries of the source that were seen, also those that the filter does not take.
    entries: AtomicU64,
    /// Hashes of reported extra entries; no other entry is removed.
    extras: Mutex<HashSet<u64>>,
}

/// What there is to do, or was done.
#[derive(Debug)]
pub enum Step {
    /// So many files are as they should be.
    Same(u64),
    /// A file is to be copied. The time of its directory is set when the job has gone, and the steps end after that.
    Copy(Job, Why),
    /// A directory was made (is to be, in a dry run).
    MakeDirectory(Place),
    /// Time and mode were set (are to be, in a dry run).
    Touch(Place, Changes),
    /// The source does not have it. It was removed by [`Sync::deleting`].
    Extra(Extra),
}

/// An entry that only the destination has, or that conflicts with an entry of the source.
#[derive(Debug)]
pub struct Extra {
    /// Where it is.
    pub place: Place,
    /// It is a directory, and all in it goes with it.
    pub is_directory: bool,
}

impl Extra {
    /// What stands for it in `extras`.
    fn hash(&self, extras: &HashSet<u64>) -> u64 {
        extras.hasher().hash_one((self.place.path.as_bytes(), self.is_directory))
    }
}

/// The steps, as they are found. A failure concerns one file or directory; the others continue.
pub type Steps = BoxStream<'static, Result<Step, Missed>>;

/// Which of the two ways through the trees it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Copying,
    Deleting,
}

impl Sync {
    /// `ends.to` shall hold what `ends.from` holds, under its own name: nothing is put beside it.
    ///
    /// # Errors
    /// `InvalidArgument` if one lies in the other.
    pub fn new(ends: Job, options: SyncOptions) -> Result<Arc<Self>> {
        clash::refuse_clashes(std::slice::from_ref(&ends))?;
        clash::refuse_source_within(&ends)?;
        Ok(Self::of(ends, options, Purpose::Alike))
    }

    /// `ends.from` is to be copied as `trees` say.
    pub(crate) fn copy(ends: Job, trees: Trees) -> Arc<Self> {
        let purpose = if trees.skip_existing { Purpose::CopyMissing } else { Purpose::CopyAll };
        Self::of(ends, trees.into(), purpose)
    }

    fn of(ends: Job, options: SyncOptions, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self { ends, options, purpose, entries: AtomicU64::new(0), extras: Mutex::default() })
    }

    /// Walks both trees and reports to `progress`. Directories are created, times and modes set; files are returned to
    /// be copied, and may replace others.
    pub fn copying(self: &Arc<Self>, progress: &Arc<Progress>) -> Steps {
        self.steps(Pass::Copying, progress)
    }

    /// Walks both trees once more and removes entries that the source does not have, if [`Self::copying`] reported
    /// them and no listing of the source fails. Files whose copy was blocked by such an entry are returned to be
    /// copied now. To be called after [`Self::copying`] succeeded completely.
    pub fn deleting(self: &Arc<Self>, progress: &Arc<Progress>) -> Steps {
        self.steps(Pass::Deleting, progress)
    }

    /// Entries of the source that [`Self::copying`] saw, also those that the filter does not take.
    pub fn source_entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Takes note of something that only the destination has.
    fn note(&self, extra: &Extra) {
        let mut extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = extra.hash(&extras);
        extras.insert(hash);
    }

    /// Returns whether [`Sync::copying`] reported it.
    fn is_noted(&self, extra: &Extra) -> bool {
        let extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        extras.contains(&extra.hash(&extras))
    }

    fn steps(self: &Arc<Self>, pass: Pass, progress: &Arc<Progress>) -> Steps {
        let (sender, steps) = mpsc::channel(STEPS);
        let descent = Descent::new(Arc::clone(self), pass, sender, Arc::clone(progress));
        let list = progress.list();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { descent.run(list).await }));
        stream::unfold((steps, task), |(mut steps, task)| async move {
            let Some(step) = steps.recv().await else {
                // It must not look as if all had been gone through.
                task.await.expect("going through trees does not panic, and only its owner ends it");
                return None;
            };
            Some((step, (steps, task)))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
