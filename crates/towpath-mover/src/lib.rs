//! The mover: copies from any store to any store, verified in one pass.
//!
//! [`jobs`] lists trees and yields one [`Job`] per file; [`Sync`] yields jobs for the differences of two trees. A
//! [`Mover`] runs jobs concurrently, limited only by the bytes in flight ([`window`]). Each job is copied by
//! [`file::copy`] in pieces, and the digests of both ends are compared at the end. A failure is returned as
//! [`FailedJob`] and does not stop other files.

mod account;
mod account_builder;
mod ancestry;
mod compare;
mod comparison;
mod context;
mod copied_file;
mod existing;
mod extents;
mod file;
mod filter;
mod flow_control;
mod location;
mod mover;
mod options;
mod overlap;
mod paths;
mod pending_directory;
pub mod probe;
mod progress;
mod rate_limiter;
mod remote_stores;
mod removal;
mod replicas;
mod retry;
mod sampler;
mod stage;
mod sync;
mod third_party;
mod tree;
mod tuner;
mod unsized_source;
mod verdict;
mod verified_digest;
mod walk;
mod window;

pub use account::{Account, Cause, Leg, LegTotal};
pub use compare::{Compare, CopyReason};
pub use copied_file::{CopiedFile, Route};
pub use filter::{Filter, PatternError};
pub use flow_control::MAX_BYTES;
pub use location::{Server, StoreLocation};
pub use mover::{Mover, Outcome};
pub use options::{Options, SkipPolicy};
pub use progress::{ActiveFile, FileProgress, NoopObserver, Observer, Progress, ProgressSnapshot};
pub use remote_stores::RemoteStores;
pub use removal::Removal;
pub use replicas::{FileProperties, Replicas, SourceContribution};
pub use retry::RetryNotice;
pub use sampler::Sampler;
pub use sync::{Extra, Sync, SyncAction, SyncActions, SyncOptions};
pub use third_party::ThirdParty;
pub use tree::{Jobs, Trees, actions, jobs, jobs_of};
pub use verdict::Verdict;
pub use verified_digest::{DigestOrigin, VerifiedDigest};
pub use walk::{Batch, ListingFailure, Walk};

use pending_directory::PendingDirectory;
use towpath_store::{Error, Result, StorePath};

/// A copy of one file or one tree.
#[derive(Debug, Clone)]
pub struct Job {
    /// The source.
    pub from: StoreLocation,
    /// The destination: the full target path, not its parent directory.
    pub to: StoreLocation,
    /// File size in bytes according to a listing, if known. Used only for the initial permit and the length of the
    /// first read.
    pub size: Option<u64>,
    /// Root of the tree that contains the source, unless the source is the root itself. Filter patterns apply to paths
    /// below it.
    pub root: Option<StorePath>,
    /// Keeps the destination directory open for entries; its time is set after the last clone is dropped.
    pending_directory: Option<PendingDirectory>,
    /// Progress of the file, set when the file is found.
    part: Option<FileProgress>,
}

/// A file, or a whole directory, that could not be copied.
#[derive(Debug)]
pub struct FailedJob {
    /// The failed job; it can be retried.
    pub job: Job,
    /// The reason.
    pub error: Error,
}

impl Job {
    /// Creates a job of unknown size.
    pub fn new(from: StoreLocation, to: StoreLocation) -> Self {
        Self { from, to, size: None, root: None, pending_directory: None, part: None }
    }

    /// Adds the failed end of the copy to `error`, as its user wrote it.
    pub fn locate(&self, error: Error) -> Error {
        let is_destination = error.path().is_some_and(|path| *path == self.to.path && *path != self.from.path);
        if is_destination { self.to.locate(error) } else { self.from.locate(error) }
    }

    /// Returns the path that filter patterns are relative to.
    pub(crate) fn root(&self) -> &StorePath {
        self.root.as_ref().unwrap_or(&self.from.path)
    }

    /// Returns the job for `path`, a descendant of this job's source, with the corresponding destination path.
    ///
    /// # Errors
    /// `InvalidArgument` if the destination path would be too long.
    pub(crate) fn counterpart(&self, path: StorePath) -> Result<Self> {
        let below = path.components().skip(self.from.path.components().count());
        let to = below.into_iter().try_fold(self.to.clone(), |to, name| to.join(name))?;
        Ok(Self::new(self.from.with_path(path), to))
    }
}
