//! The arguments of `cp`, read as `cp` of Unix reads them: into a directory that exists, or under the name given.

use towpath_mover::{Job, Place};
use towpath_store::{Error, Fault};

use crate::{
    args::Copy,
    failure::Failure,
    location::{End, Places},
};

/// What `cp` was asked to do.
pub(super) enum Request {
    /// This file goes to the standard output.
    ToOutput(Place),
    /// The standard input becomes this file.
    FromInput(Place),
    /// Files or trees, and the names they get.
    Pairs(Vec<Job>),
}

/// Reads the arguments. Only what decides the destination's names is asked of the stores here; sources are opened when their turn comes.
pub(super) async fn read(arguments: &Copy, places: &Places) -> Result<Request, Failure> {
    let Some((destination, sources)) = arguments.paths.split_last() else {
        return Err(Failure::Usage("name a source and a destination".into()));
    };
    if !arguments.filters.0.is_empty() && !arguments.recursive {
        return Err(Failure::Usage(
            "--include, --exclude, --min-size and --max-size choose from a tree: add -r".into(),
        ));
    }
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
        (End::Standard, [End::Place(from)]) => return Ok(Request::ToOutput(from.clone())),
        (End::Place(to), [End::Standard]) => return Ok(Request::FromInput(to)),
        (End::Standard, [End::Standard]) => {
            return Err(Failure::Usage("one of source and destination must be a path or URL".into()));
        }
        _ => return Err(Failure::Usage("`-` stands alone: one source, one destination".into())),
    };
    let from: Vec<Place> =
        from.into_iter().filter_map(|end| if let End::Place(place) = end { Some(place) } else { None }).collect();
    let into = is_directory(&to).await?;
    if from.len() > 1 && !into {
        return Err(Error::new(Fault::NotDirectory, "several sources need a directory to go into").at(&to.path).into());
    }
    let pairs = from.into_iter().map(|from| Ok(Job::new(from.clone(), target(&from, &to, into)?)));
    Ok(Request::Pairs(pairs.collect::<Result<_, Failure>>()?))
}

async fn is_directory(place: &Place) -> Result<bool, Failure> {
    if place.path.is_root() {
        return Ok(true);
    }
    match place.store.stat(&place.caller, &place.path).await {
        Ok(metadata) => Ok(metadata.is_directory()),
        Err(error) if error.fault() == Fault::NotFound => Ok(place.is_directory),
        Err(error) => Err(error.into()),
    }
}

fn target(from: &Place, to: &Place, into: bool) -> Result<Place, Failure> {
    match from.path.name() {
        Some(name) if into => Ok(to.join(name)?),
        _ => Ok(to.clone()),
    }
}
