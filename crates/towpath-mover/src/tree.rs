//! From pairs of places to jobs: trees are listed as their files are copied.

use std::{future, sync::Arc, task::Poll};

use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use towpath_store::Result;

use crate::{Filter, Job, Missed, Progress, Step, Sync, clash};

/// Sources gone through at once: enough to hide a round trip of 100 ms behind others.
const SOURCES: usize = 32;

/// Jobs as they are found. A failure concerns one file or directory; the others continue.
pub type Jobs = BoxStream<'static, Result<Job, Missed>>;

/// The selection of files in trees.
#[derive(Debug, Clone, Default)]
pub struct Trees {
    /// What of them is looked at.
    pub filter: Filter,
    /// Permission bits that no directory gets, whatever its source says.
    pub umask: u32,
    /// Skips files that the destination lists with the size and time of their source (where it does not keep times:
    /// with a time that is not older), and only counts them ([`crate::Advance::skipped_files`]). To be combined with
    /// [`crate::Options::skip_existing`], which checks single files that listings do not decide.
    pub skip_existing: bool,
}

/// One job for each of `pairs`. A pair of directories is copied as `trees` say, directories with their times; without them it is an error of its own when
/// its turn comes.
///
/// # Errors
/// `InvalidArgument` if two of the sources would get one name, or one lies in its own destination.
pub fn jobs(pairs: Vec<Job>, trees: Option<Trees>, progress: &Arc<Progress>) -> Result<Jobs> {
    clash::refuse_clashes(&pairs)?;
    Ok(jobs_of(stream::iter(pairs.into_iter().map(Ok)).boxed(), trees, progress))
}

/// As [`jobs`], of pairs that come one after the other, and are not compared with each other.
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
    let steps = pairs.map(move |ends| match ends {
        Ok(ends) => Sync::copy(ends, trees.clone()).copying(&progress),
        Err(missed) => stream::iter([Err(missed)]).boxed(),
    });
    let steps = steps.flatten_unordered(SOURCES);
    let jobs = steps.filter_map(move |step| {
        future::ready(match step {
            Ok(Step::Copy(job, _)) => Some(Ok(job)),
            Ok(Step::Same(files)) => {
                skipping.skip(files);
                None
            }
            Ok(_) => None,
            Err(missed) => Some(Err(missed)),
        })
    });
    jobs.boxed()
}
