//! From the arguments of `cp` to jobs, as `cp` of Unix reads them: into a directory that exists, or under the name given.

use std::sync::Arc;

use futures::{StreamExt as _, stream, stream::BoxStream};
use towpath_store::{Entry, Error, Fault, ListOptions, Metadata};

use super::{Job, clash, one};
use crate::{
    args::Copy,
    failure::Failure,
    location::{End, Place, Places},
    walk::{Batch, Walk},
};

/// Jobs as they are found.
pub(super) type Jobs<'a> = BoxStream<'a, Result<Job, Failure>>;

/// What `cp` was asked to do.
pub(super) enum Plan<'a> {
    /// From or to a standard stream.
    Standard {
        /// Where the bytes come from.
        from: End,
        /// Where they go.
        to: End,
    },
    /// Files.
    Jobs(Jobs<'a>),
}

/// Reads the arguments. Only what decides the destination's names is asked of the stores here; sources are opened when their turn comes.
pub(super) async fn plan<'a>(arguments: &'a Copy, places: &'a Places) -> Result<Plan<'a>, Failure> {
    let Some((destination, sources)) = arguments.paths.split_last() else {
        return Err(Failure::Usage("name a source and a destination".into()));
    };
    let to = places.end(destination)?;
    let from = sources.iter().map(|source| places.end(source)).collect::<Result<Vec<_>, _>>()?;
    let to = match (to, from.as_slice()) {
        (End::Place(to), sources) if sources.iter().all(|source| matches!(source, End::Place(_))) => to,
        (End::Standard, _) if arguments.json => {
            return Err(Failure::Usage("--json would end up among the data: both go to the standard output".into()));
        }
        _ if arguments.checksum.is_some() || arguments.skip_existing => {
            return Err(Failure::Usage(
                "`-` has nothing to compare with: --checksum and --skip-existing need two files".into(),
            ));
        }
        (to, [from]) => return Ok(Plan::Standard { from: from.clone(), to }),
        _ => return Err(Failure::Usage("`-` stands alone: one source, one destination".into())),
    };
    let from: Vec<Place> =
        from.into_iter().filter_map(|end| if let End::Place(place) = end { Some(place) } else { None }).collect();
    let into = is_directory(&to, places).await?;
    if from.len() > 1 && !into {
        return Err(Error::new(Fault::NotDirectory, "several sources need a directory to go into").at(&to.path).into());
    }
    let pairs = from.into_iter().map(|from| Ok(Job { to: target(&from, &to, into)?, from }));
    let pairs = pairs.collect::<Result<Vec<_>, Failure>>()?;
    clash::refuse_clashes(&pairs)?;
    if !arguments.recursive {
        return Ok(Plan::Jobs(stream::iter(pairs.into_iter().map(Ok)).boxed()));
    }
    let trees = stream::iter(pairs).then(move |ends| async move {
        tree(ends, places).await.unwrap_or_else(|failure| stream::iter([Err(failure)]).boxed())
    });
    Ok(Plan::Jobs(trees.flatten().boxed()))
}

async fn is_directory(place: &Place, places: &Places) -> Result<bool, Failure> {
    if place.path.is_root() {
        return Ok(true);
    }
    match place.store.stat(&places.caller, &place.path).await {
        Ok(metadata) => Ok(metadata.is_directory()),
        Err(error) if error.fault() == Fault::NotFound => Ok(place.is_directory),
        Err(error) => Err(error.into()),
    }
}

fn target(from: &Place, to: &Place, into: bool) -> Result<Place, Failure> {
    match from.path.name() {
        Some(name) if into => to.join(name),
        _ => Ok(to.clone()),
    }
}

/// The jobs of one source, which may be a file. Directories are made as they are met, so that empty ones arrive too.
async fn tree(ends: Job, places: &Places) -> Result<Jobs<'_>, Failure> {
    let Job { from, to } = &ends;
    let metadata: Metadata = from.store.stat(&places.caller, &from.path).await?;
    if !metadata.is_directory() {
        return Ok(one(ends));
    }
    clash::refuse_copy_into_itself(&ends, &metadata, places).await?;
    to.store.make_directory(&places.caller, &to.path, true, None).await?;
    let walk = Walk::new(from, places, ListOptions::default());
    let ends = Arc::new(ends);
    let batches = stream::unfold(walk, move |mut walk| {
        let ends = Arc::clone(&ends);
        async move {
            let batch = walk.next().await?;
            let jobs = match batch {
                Ok(batch) => jobs_of(&batch, &ends, places, &mut walk).await,
                Err(error) => vec![Err(error.into())],
            };
            Some((stream::iter(jobs), walk))
        }
    });
    Ok(batches.flatten().boxed())
}

/// The files of one batch. Its directories are made at the destination, and entered.
async fn jobs_of(batch: &Batch, ends: &Job, places: &Places, walk: &mut Walk) -> Vec<Result<Job, Failure>> {
    let mut jobs = Vec::new();
    for entry in &batch.entries {
        let job = match counterpart(batch, entry, ends) {
            Ok(job) if entry.metadata.is_directory() => enter(job, entry, ends, places, walk).await.err().map(Err),
            outcome => Some(outcome),
        };
        jobs.extend(job);
    }
    jobs
}

/// An entry of the source tree, and the place that it is copied to.
fn counterpart(batch: &Batch, entry: &Entry, ends: &Job) -> Result<Job, Failure> {
    let path = batch.path_of(entry)?;
    let below = path.components().skip(ends.from.path.components().count());
    let to = below.into_iter().try_fold(ends.to.clone(), |to, name| to.join(name))?;
    Ok(Job { from: ends.from.with_path(path), to })
}

async fn enter(directory: Job, entry: &Entry, ends: &Job, places: &Places, walk: &mut Walk) -> Result<(), Failure> {
    if entry.metadata.is_link {
        clash::refuse_endless_link(&directory, ends, places).await?;
    }
    directory.to.store.make_directory(&places.caller, &directory.to.path, true, None).await?;
    walk.enter(directory.from.path);
    Ok(())
}
