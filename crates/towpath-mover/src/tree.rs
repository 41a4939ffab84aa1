//! From pairs of places to jobs: trees are listed as their files are copied.

use std::sync::Arc;

use futures::{StreamExt as _, stream, stream::BoxStream};
use towpath_store::{Entry, ListOptions, Metadata, Result, StorePath};

use crate::{Batch, Job, Place, Walk, clash};

/// Directories made at once: enough to hide a round trip of 100 ms behind others.
const DIRECTORIES: usize = 32;

/// Jobs as they are found. An error is about one file or directory; the rest goes on.
pub type Jobs = BoxStream<'static, Result<Job>>;

/// One job for each of `pairs`. A pair of directories is copied with everything below if `recursive`; otherwise it is an error of
/// its own when its turn comes.
///
/// # Errors
/// `InvalidArgument` if two of the sources would get one name, or one lies in its own destination.
pub fn jobs(pairs: Vec<Job>, recursive: bool) -> Result<Jobs> {
    clash::refuse_clashes(&pairs)?;
    if !recursive {
        return Ok(stream::iter(pairs.into_iter().map(Ok)).boxed());
    }
    let trees = stream::iter(pairs)
        .then(|ends| async move { tree(ends).await.unwrap_or_else(|error| stream::iter([Err(error)]).boxed()) });
    Ok(trees.flatten().boxed())
}

/// The jobs of one source, which may be a file. Directories are made as they are met, so that empty ones arrive too.
async fn tree(ends: Job) -> Result<Jobs> {
    let Job { from, to, .. } = &ends;
    let metadata: Metadata = from.store.stat(&from.caller, &from.path).await?;
    if !metadata.is_directory() {
        return Ok(stream::iter([Ok(Job { size: Some(metadata.size), ..ends })]).boxed());
    }
    clash::refuse_copy_into_itself(&ends, &metadata).await?;
    make_directory(to).await?;
    let walk = Walk::new(from, ListOptions { metadata: true, ..ListOptions::default() });
    let ends = Arc::new(ends);
    let batches = stream::unfold(walk, move |mut walk| {
        let ends = Arc::clone(&ends);
        async move {
            let jobs = match walk.next().await? {
                Ok(batch) => jobs_of(&batch, &ends, &mut walk).await,
                Err(error) => vec![Err(error)],
            };
            Some((stream::iter(jobs), walk))
        }
    });
    Ok(batches.flatten().boxed())
}

/// The files of one batch. Its directories are made at the destination, and entered.
async fn jobs_of(batch: &Batch, ends: &Job, walk: &mut Walk) -> Vec<Result<Job>> {
    let (directories, files): (Vec<_>, Vec<_>) = batch.entries.iter().partition(|entry| entry.metadata.is_directory());
    let mut jobs: Vec<_> = files.into_iter().map(|entry| counterpart(batch, entry, ends)).collect();
    let making: Vec<_> = directories.into_iter().map(|entry| make(batch, entry, ends)).collect();
    let made = stream::iter(making).buffer_unordered(DIRECTORIES);
    for directory in made.collect::<Vec<_>>().await {
        match directory {
            Ok(directory) => walk.enter(directory),
            Err(error) => jobs.push(Err(error)),
        }
    }
    jobs
}

/// An entry of the source tree, and the place that it is copied to.
fn counterpart(batch: &Batch, entry: &Entry, ends: &Job) -> Result<Job> {
    let path = batch.path_of(entry)?;
    let below = path.components().skip(ends.from.path.components().count());
    let to = below.into_iter().try_fold(ends.to.clone(), |to, name| to.join(name))?;
    Ok(Job { from: ends.from.with_path(path), to, size: Some(entry.metadata.size) })
}

/// Makes the counterpart of a directory; gives the directory's own path, to be listed.
async fn make(batch: &Batch, entry: &Entry, ends: &Job) -> Result<StorePath> {
    let directory = counterpart(batch, entry, ends)?;
    if entry.metadata.is_link {
        clash::refuse_endless_link(&directory, ends).await?;
    }
    make_directory(&directory.to).await?;
    Ok(directory.from.path)
}

async fn make_directory(place: &Place) -> Result<()> {
    place.store.make_directory(&place.caller, &place.path, true, None).await
}
