//! `towpath rm`: removes files and trees. Targets of symbolic links are never removed.

use towpath_mover::{Filter, Removal, StoreLocation};
use towpath_store::{Error, Fault};

use crate::{
    args::Remove,
    commands::{for_each, refuse_root, refuse_slash_of_file},
    failure::{Failure, Tally},
    location::StoreResolver,
    patterns::{Place, expanded_unless},
};

/// Runs `towpath rm`.
pub(crate) async fn run(arguments: &Remove, resolver: &StoreResolver) -> Result<(), Failure> {
    let mut places = expanded_unless(arguments.no_glob, &arguments.paths, resolver).await;
    places.retain(|place| !arguments.force || !is_missing(place));
    for_each(places, resolver, async |_, location| {
        refuse_root(&location)?;
        refuse_slash_of_file(&location).await?;
        match location.store.remove_file(&location.caller, &location.path).await {
            Err(error) if error.fault() == Fault::IsDirectory && arguments.recursive => remove_tree(&location).await,
            Err(error) if error.fault() == Fault::IsDirectory => {
                Err(Error::new(Fault::IsDirectory, "it is a directory: use -r to remove it").at(&location.path).into())
            }
            Err(error) if error.fault() == Fault::NotFound && arguments.force => Ok(()),
            outcome => Ok(outcome?),
        }
    })
    .await
}

/// Returns whether a pattern matches no path.
fn is_missing(place: &Place) -> bool {
    matches!(place, Err(Failure::Store(error)) if error.fault() == Fault::NotFound)
}

async fn remove_tree(root: &StoreLocation) -> Result<(), Failure> {
    let mut failed = Tally::default();
    Removal::new(root, (&Filter::default(), &root.path), |error| failed.print(&error)).run().await;
    failed.outcome()
}
