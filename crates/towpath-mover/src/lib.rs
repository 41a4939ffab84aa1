//! The mover: copies from any store to any store, verified in one pass.
//!
//! [`jobs`] turns pairs of places into [`Job`]s (one file each) as trees are listed; [`Sync`] does so for what two trees differ in. A [`Mover`] copies them side by side, bounded by nothing but
//! the bytes in flight ([`window`]), each by [`file::copy`]: read and written in pieces, compared at the end with what the source knows of itself.
//! What was not copied comes as [`Missed`], with its error; the others go on.

mod account;
mod clash;
mod compare;
mod comparison;
mod context;
mod copied;
mod existing;
mod extents;
mod file;
mod filling;
mod filter;
mod ledger;
mod limit;
mod mover;
mod options;
mod pace;
mod paths;
mod place;
pub mod probe;
mod progress;
mod removal;
mod replicas;
mod retry;
mod stage;
mod sync;
mod third_party;
mod trail;
mod tree;
mod tuner;
mod unsized_source;
mod verdict;
mod verified;
mod walk;
mod watch;
mod window;

pub use account::{Account, Cause, Leg, LegTotal};
pub use compare::{Compare, Why};
pub use copied::{Copied, Route};
pub use filter::{Filter, PatternError};
pub use mover::{Mover, Outcome};
pub use options::Options;
pub use pace::MOST_BYTES;
pub use place::{Place, Server};
pub use progress::{Active, Advance, Nobody, Observer, Part, Progress};
pub use removal::Removal;
pub use replicas::{Known, Replicas, Share};
pub use sync::{Extra, Step, Steps, Sync, SyncOptions};
pub use third_party::ThirdParty;
pub use tree::{Jobs, Trees, jobs, jobs_of};
pub use verdict::{Verdict, rate_text};
pub use verified::{DigestOrigin, Verified};
pub use walk::{Batch, Unlisted, Walk};
pub use watch::Watch;

use filling::Filling;
use towpath_store::{Error, Result, StorePath};

/// One file to copy, or a tree.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where it is.
    pub from: Place,
    /// Where it goes: its new name, not the directory above.
    pub to: Place,
    /// Its size in bytes as a listing told it; none if nobody has asked yet. Only what is reserved for it, and read at once, depends on it.
    pub size: Option<u64>,
    /// The root of the tree that the source was found in, if it is not the source itself: filters judge by what stands below it.
    pub root: Option<StorePath>,
    /// The directory that it goes into, which waits for it.
    filling: Option<Filling>,
    /// Its part in the progress, once it is found.
    part: Option<Part>,
}

/// A file, or a directory with what lies below it, that was not copied.
#[derive(Debug)]
pub struct Missed {
    /// What it was to be copied to; it can be tried again.
    pub job: Job,
    /// Why not.
    pub error: Error,
}

impl Job {
    /// A job of which nothing is known yet.
    pub fn new(from: Place, to: Place) -> Self {
        Self { from, to, size: None, root: None, filling: None, part: None }
    }

    /// From where filters judge.
    pub(crate) fn root(&self) -> &StorePath {
        self.root.as_ref().unwrap_or(&self.from.path)
    }

    /// The pair of `path`, which lies below the source of this pair of directories, with its counterpart below the destination.
    ///
    /// # Errors
    /// `InvalidArgument` if no path there is so long.
    pub(crate) fn counterpart(&self, path: StorePath) -> Result<Self> {
        let below = path.components().skip(self.from.path.components().count());
        let to = below.into_iter().try_fold(self.to.clone(), |to, name| to.join(name))?;
        Ok(Self::new(self.from.with_path(path), to))
    }
}
