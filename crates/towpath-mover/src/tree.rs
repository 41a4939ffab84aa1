//! From pairs of places to jobs: trees are listed as their files are copied.

use std::sync::Arc;

use futures::{StreamExt as _, stream, stream::BoxStream};
use towpath_store::{Entry, ListOptions, Metadata, Result, StorePath};

use crate::{Batch, Filter, Job, Missed, Place, Unlisted, Walk, clash};

/// Directories made at once: enough to hide a round trip of 100 ms behind others.
const DIRECTORIES: usize = 32;

/// Jobs as they are found. What is missed is one file or directory; the rest goes on.
pub type Jobs = BoxStream<'static, Result<Job, Missed>>;

/// One job for each of `pairs`. A pair of directories is copied with what `below` takes of it; without one it is an error of its own when
/// its turn comes.
///
/// # Errors
/// `InvalidArgument` if two of the sources would get one name, or one lies in its own destination.
pub fn jobs(pairs: Vec<Job>, below: Option<Filter>) -> Result<Jobs> {
    clash::refuse_clashes(&pairs)?;
    let Some(filter) = below else { return Ok(stream::iter(pairs.into_iter().map(Ok)).boxed()) };
    let filter = Arc::new(filter);
    let trees = stream::iter(pairs).then(move |ends| {
        let filter = Arc::clone(&filter);
        async move {
            let missed = |error| stream::iter([Err(Missed { job: ends.clone(), error })]).boxed();
            tree(&ends, filter).await.unwrap_or_else(missed)
        }
    });
    Ok(trees.flatten().boxed())
}

/// The jobs of one source, which may be a file. Directories are made as they are met, so that empty ones arrive too.
async fn tree(ends: &Job, filter: Arc<Filter>) -> Result<Jobs> {
    let Job { from, to, .. } = ends;
    let metadata: Metadata = from.store.stat(&from.caller, &from.path).await?;
    if !metadata.is_directory() {
        return Ok(stream::iter([Ok(Job { size: Some(metadata.size), ..ends.clone() })]).boxed());
    }
    clash::refuse_copy_into_itself(ends, &metadata).await?;
    make_directory(to).await?;
    let walk = Walk::new(from, ListOptions { metadata: true, ..ListOptions::default() });
    let tree = Arc::new(Tree { ends: ends.clone(), filter });
    let batches = stream::unfold(walk, move |mut walk| {
        let tree = Arc::clone(&tree);
        async move {
            let jobs = match walk.next().await? {
                Ok(batch) => tree.jobs_of(&batch, &mut walk).await,
                Err(Unlisted { directory, error }) => {
                    vec![Err(Missed { job: tree.ends.counterpart(directory).unwrap_or(tree.ends.clone()), error })]
                }
            };
            Some((stream::iter(jobs), walk))
        }
    });
    Ok(batches.flatten().boxed())
}

/// A tree that is copied.
#[derive(Debug)]
struct Tree {
    ends: Job,
    filter: Arc<Filter>,
}

impl Tree {
    /// The files of one batch. Its directories are made at the destination, and entered.
    async fn jobs_of(&self, batch: &Batch, walk: &mut Walk) -> Vec<Result<Job, Missed>> {
        let mut jobs = Vec::new();
        let mut directories = Vec::new();
        for entry in &batch.entries {
            let job = match batch.path_of(entry).and_then(|path| self.ends.counterpart(path)) {
                Ok(job) => job,
                Err(error) => {
                    let job = self.ends.counterpart(batch.directory.clone()).unwrap_or_else(|_| self.ends.clone());
                    jobs.push(Err(Missed { job, error }));
                    continue;
                }
            };
            let is_directory = entry.metadata.is_directory();
            let judgement = self.filter.judge(&job.from.path, &self.ends.from.path, is_directory);
            if is_directory && judgement.may_hold {
                directories.push(self.make(entry, job, judgement.is_taken));
            } else if !is_directory && judgement.is_taken && self.filter.takes(entry.metadata.size) {
                jobs.push(Ok(Job { size: Some(entry.metadata.size), ..job }));
            }
        }
        let made = stream::iter(directories).buffer_unordered(DIRECTORIES);
        for directory in made.collect::<Vec<_>>().await {
            match directory {
                Ok(directory) => walk.enter(directory),
                Err(missed) => jobs.push(Err(missed)),
            }
        }
        jobs
    }

    /// Makes the counterpart of a directory, if it `is_taken` itself; gives the directory's own path, to be listed.
    async fn make(&self, entry: &Entry, directory: Job, is_taken: bool) -> Result<StorePath, Missed> {
        let made = async {
            if entry.metadata.is_link {
                clash::refuse_endless_link(&directory, &self.ends).await?;
            }
            // Else it is made when there is something to put into it.
            if is_taken { make_directory(&directory.to).await } else { Ok(()) }
        };
        match made.await {
            Ok(()) => Ok(directory.from.path),
            Err(error) => Err(Missed { job: directory, error }),
        }
    }
}

pub(crate) async fn make_directory(place: &Place) -> Result<()> {
    place.store.make_directory(&place.caller, &place.path, true, None).await
}
