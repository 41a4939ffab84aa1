//! Turns pairs of locations into jobs: trees are listed while their files are copied.

use std::{future, sync::Arc, task::Poll};

use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use towpath_store::Result;

use crate::{FailedJob, Filter, Job, Progress, SkipPolicy, Sync, SyncAction, SyncActions, overlap};

/// Maximum number of sources processed concurrently: enough to hide a round trip of 100 ms.
const SOURCES: usize = 32;

/// Jobs in the order of discovery. A failure concerns one file or directory and does not stop the others.
pub type Jobs = BoxStream<'static, Result<Job, FailedJob>>;

/// The selection of files in trees.
#[derive(Debug, Clone, Default)]
pub struct Trees {
    /// Selects the entries to consider.
    pub filter: Filter,
    /// Permission bits cleared on every directory, independent of the source's mode.
    pub umask: u32,
    /// The files to skip according to the listings of both ends: for [`SkipPolicy::Same`] those with the size and time
    /// of their source (with a time that is not older, if the destination does not preserve times). They are only
    /// counted ([`crate::ProgressSnapshot::skipped_files`]). Combine with [`crate::Options::skip`], which checks single
    /// files that listings do not decide.
    pub skip: SkipPolicy,
    /// Whether nothing is changed ([`crate::actions`]).
    pub dry_run: bool,
}

/// Returns one job for each file of `pairs`. Directories are copied as selected by `trees`, including their times;
/// without `trees`, each directory yields an error.
///
/// # Errors
/// `InvalidArgument` if two sources have the same destination, or a destination is within its source.
pub fn jobs(pairs: Vec<Job>, trees: Option<Trees>, progress: &Arc<Progress>) -> Result<Jobs> {
    overlap::refuse_clashes(&pairs)?;
    Ok(jobs_of(stream::iter(pairs.into_iter().map(Ok)).boxed(), trees, progress))
}

/// Like [`jobs`], for a stream of pairs that are not compared with each other.
pub fn jobs_of(pairs: Jobs, trees: Option<Trees>, progress: &Arc<Progress>) -> Jobs {
    let progress = Arc::clone(progress);
    let mut list = Some(progress.list());
    let end = stream::poll_fn(move |_| {
        drop(list.take());
        Poll::Ready(None)
    });
    let pairs = pairs.chain(end);
    let Some(trees) = trees else {
        return pairs.map_ok(move |job| Job { part: Some(progress.find(job.size)), ..job }).boxed();
    };
    let skipping = Arc::clone(&progress);
    let jobs = actions_of(pairs.boxed(), trees, progress).filter_map(move |step| {
        future::ready(match step {
            Ok(SyncAction::Copy(job, _)) => Some(Ok(job)),
            Ok(SyncAction::Same(files)) => {
                skipping.skip(files);
                None
            }
            Ok(_) => None,
            Err(failed_job) => Some(Err(failed_job)),
        })
    });
    jobs.boxed()
}

/// Returns the actions that copy `pairs`, which are trees or files, without copying files.
///
/// # Errors
/// Those of [`jobs`].
pub fn actions(pairs: Vec<Job>, trees: Trees, progress: &Arc<Progress>) -> Result<SyncActions> {
    overlap::refuse_clashes(&pairs)?;
    Ok(actions_of(stream::iter(pairs.into_iter().map(Ok)).boxed(), trees, Arc::clone(progress)))
}

fn actions_of(pairs: Jobs, trees: Trees, progress: Arc<Progress>) -> SyncActions {
    let actions = pairs.map(move |ends| match ends {
        Ok(ends) => Sync::copy(ends, trees.clone()).copying(&progress),
        Err(failed_job) => stream::iter([Err(failed_job)]).boxed(),
    });
    actions.flatten_unordered(SOURCES).boxed()
}
