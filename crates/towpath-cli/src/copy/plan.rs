//! From the arguments of `cp` to jobs, as `cp` of Unix reads them: into a directory that exists, or under the name given.

use std::sync::Arc;

use futures::{StreamExt as _, stream, stream::BoxStream};
use towpath_store::{Error, Fault, ListOptions, Metadata};

use super::{Job, one};
use crate::{
    args::Copy,
    failure::Failure,
    location::{End, Place, Places},
    walk::Walk,
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
        (to, [from]) => return Ok(Plan::Standard { from: from.clone(), to }),
        _ => return Err(Failure::Usage("`-` stands alone: one source, one destination".into())),
    };
    let from: Vec<Place> =
        from.into_iter().filter_map(|end| if let End::Place(place) = end { Some(place) } else { None }).collect();
    let into = is_directory(&to, places).await?;
    if from.len() > 1 && !into {
        return Err(Error::new(Fault::NotDirectory, "several sources need a directory to go into").at(&to.path).into());
    }
    if !arguments.recursive {
        let jobs = from.into_iter().map(move |from| Ok(Job { to: target(&from, &to, into)?, from }));
        return Ok(Plan::Jobs(stream::iter(jobs.collect::<Vec<_>>()).boxed()));
    }
    let trees = stream::iter(from).then(move |from| {
        let to = to.clone();
        async move { tree(from, to, into, places).await.unwrap_or_else(|failure| stream::iter([Err(failure)]).boxed()) }
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
async fn tree<'a>(from: Place, to: Place, into: bool, places: &'a Places) -> Result<Jobs<'a>, Failure> {
    let target = target(&from, &to, into)?;
    let metadata: Metadata = from.store.stat(&places.caller, &from.path).await?;
    if !metadata.is_directory() {
        return Ok(one(Job { from, to: target }));
    }
    target.store.make_directory(&places.caller, &target.path, true, None).await?;
    let walk = Walk::new(&from, places, ListOptions::default());
    let ends = Arc::new((from, target));
    let batches = stream::unfold(walk, move |mut walk| {
        let ends = Arc::clone(&ends);
        async move {
            let batch = walk.next().await?;
            let jobs = match batch {
                Ok(batch) => jobs_of(&batch, &ends.0, &ends.1, places).await,
                Err(error) => vec![Err(error.into())],
            };
            Some((stream::iter(jobs), walk))
        }
    });
    Ok(batches.flatten().boxed())
}

async fn jobs_of(batch: &crate::walk::Batch, from: &Place, to: &Place, places: &Places) -> Vec<Result<Job, Failure>> {
    let mut jobs = Vec::new();
    let below: Vec<_> = batch.directory.components().skip(from.path.components().count()).collect();
    for entry in &batch.entries {
        let mut source = from.clone();
        let mut target = to.clone();
        let joined = below.iter().copied().chain([entry.name.as_ref()]).try_for_each(|name| {
            source = source.join(name)?;
            target = target.join(name)?;
            Ok::<_, Failure>(())
        });
        if let Err(failure) = joined {
            jobs.push(Err(failure));
        } else if !entry.metadata.is_directory() {
            jobs.push(Ok(Job { from: source, to: target }));
        } else if let Err(error) = to.store.make_directory(&places.caller, &target.path, true, None).await {
            jobs.push(Err(error.into()));
        }
    }
    jobs
}
