//! The mover: copies from any store to any store, verified in one pass.
//!
//! [`jobs`] turns pairs of places into [`Job`]s (one file each) while trees are listed; [`Sync`] does so for the
//! differences of two trees. A [`Mover`] copies them concurrently, limited only by the bytes in flight ([`window`]),
//! each with [`file::copy`]: in pieces, with digests compared at the end. Failures are returned as [`Missed`] with
//! their error; other files continue.

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
pub use pace::MAX_BYTES;
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
    /// Its size in bytes according to a listing; `None` if unknown. It only determines the reserved bytes and the
    /// length of the first read.
    pub size: Option<u64>,
    /// Root of the tree that contains the source, if that is not the source itself; filters apply to paths below it.
    pub root: Option<StorePath>,
    /// The directory that it goes into, which waits for it.
    filling: Option<Filling>,
    /// Its part in the progress, once it is found.
    part: Option<Part>,
}

/// A file, or a directory with everything below it, that was not copied.
#[derive(Debug)]
pub struct Missed {
    /// The job, which can be retried.
    pub job: Job,
    /// Why not.
    pub error: Error,
}

impl Job {
    /// Creates a job without further information.
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
