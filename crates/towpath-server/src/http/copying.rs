//! COPY inside the store; copies between servers are in [`super::third_party`]. Copies a file, a directory alone
//! (Depth 0), or a directory with its content.

use futures::StreamExt as _;
use http::{Response, StatusCode};
use towpath_proto::http::dav::Depth;
use towpath_store::{Error, Fault, FileKind, ListOptions, Overwrite, StorePath};

use super::{
    body::Content,
    exchange::Exchange,
    namespace::{self, Destination, Failures, member},
    refusal::Refusal,
    respond, third_party,
};
use crate::access::Activity;

/// Handles a COPY.
pub(super) async fn copy(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    if let Some(other) = namespace::remote_endpoint(exchange)? {
        return third_party::copy(exchange, &other).await;
    }
    let path = exchange.path();
    exchange.may_stat_before(Activity::Read, path)?;
    let source = exchange.store().stat(exchange.caller(), path).await?;
    exchange.refuse_slash_of_file(Some(&source))?;
    exchange.may(if source.is_directory() { Activity::List } else { Activity::Read })?;
    // Its members have rights of their own.
    if exchange.service.exports.is_above(path) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "the exports in this directory are copied one by one"));
    }
    let depth = namespace::depth(exchange)?;
    if depth == Depth::One {
        return Err(Refusal::bad_request("the Depth of a copy is 0 or infinity"));
    }
    exchange.check_conditions(Some(&source))?;
    let destination = Destination::of(exchange, &source).await?;
    // Before the destination is removed.
    exchange.store().capabilities().check_create(&destination.path)?;
    let mut failures = Failures::default();
    let overwrite = destination.clear(exchange, &source, &mut failures).await?;
    if !failures.is_empty() {
        return Ok(failures.answer(StatusCode::NO_CONTENT));
    }
    let copied = match source.kind {
        FileKind::Directory => copy_directory(exchange, path, &destination.path).await,
        _ => exchange.store().copy(exchange.caller(), path, &destination.path, overwrite).await,
    };
    // The source existed a moment ago, so the missing path is the destination's parent.
    copied.map_err(|error| Refusal::from(error).or_status(Fault::NotFound, StatusCode::CONFLICT))?;
    if source.is_directory() && depth == Depth::Infinity {
        copy_members(exchange, path, &destination.path, &mut failures).await?;
    }
    if failures.is_empty() {
        Ok(respond::empty(destination.success()))
    } else {
        Ok(failures.answer(StatusCode::CREATED))
    }
}

/// Creates a directory with the attributes of another one.
async fn copy_directory(exchange: &Exchange, from: &StorePath, to: &StorePath) -> Result<(), Error> {
    let (store, caller) = (exchange.store(), exchange.caller());
    store.make_directory(caller, to, false, None).await?;
    if store.capabilities().attributes {
        for (name, value) in store.attributes(caller, from).await? {
            store.set_attribute(caller, to, &name, Some(&value), false).await?;
        }
    }
    Ok(())
}

/// Copies the content of a directory. Memory grows with the number of directories found and not yet visited.
async fn copy_members(
    exchange: &Exchange,
    from: &StorePath,
    to: &StorePath,
    failures: &mut Failures,
) -> Result<(), Refusal> {
    let (store, caller) = (exchange.store(), exchange.caller());
    let mut to_do = vec![(from.clone(), to.clone())];
    while let Some((from, to)) = to_do.pop() {
        let mut listing = store.list(caller, &from, ListOptions::default());
        while let Some(batch) = listing.next().await {
            let entries = match batch {
                Ok(entries) => entries,
                Err(error) => {
                    failures.add(&from, error);
                    break;
                }
            };
            for entry in entries {
                let (source, copy) = (member(&from, &entry.name)?, member(&to, &entry.name)?);
                match entry.metadata.kind {
                    // The link may lead anywhere: above itself, or to files that the caller may not read.
                    FileKind::Directory if entry.metadata.is_link => {
                        failures.add(&copy, Error::new(Fault::Unsupported, "a link to a directory is not followed"));
                    }
                    FileKind::Directory => match copy_directory(exchange, &source, &copy).await {
                        Ok(()) => to_do.push((source, copy)),
                        Err(error) => failures.add(&copy, error),
                    },
                    FileKind::File => failures.note(&copy, store.copy(caller, &source, &copy, Overwrite::Refuse).await),
                    // A device, a socket or a dangling link.
                    FileKind::Other => failures.add(&copy, namespace::not_regular(&source)),
                }
            }
        }
    }
    Ok(())
}
