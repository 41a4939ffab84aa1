//! PROPPATCH and 'dead' properties, which clients set and the server does not interpret (RFC 4918 §4).
//!
//! One writable property is not dead: `lastmodified` in `DAV:` (ownCloud; rclone sends it) sets the modification
//! time, in seconds since 1970.
//!
//! Dead properties are user attributes of the store: the attribute `dav:NAMESPACE NAME` holds the property's element
//! as an XML document. They are moved and copied with their file, and visible to XRootD clients. A PROPPATCH is
//! atomic.

use http::Response;
use hyper::body::Incoming;
use towpath_proto::http::dav::{
    Action, DAV, Element, LCGDM, Limits, Multistatus, Name, OWNCLOUD, Property, PropertyChange, Proppatch, TOWPATH,
};
use towpath_store::{
    Caller, Changes, Error, Fault, MAX_ATTRIBUTE_NAME_BYTES, MAX_ATTRIBUTE_VALUE_BYTES, Result, Store, StorePath,
};

use super::{body::Content, exchange::Exchange, locking, put::mtime_ns, refusal::Refusal, respond, target, upload};
use crate::access::Activity;

/// Prefix of the attribute names.
const PREFIX: &str = "dav:";

/// Whether a property is reserved for the server: those of WebDAV and of the other supported vocabularies.
pub(super) fn is_protected(name: &Name) -> bool {
    [DAV, OWNCLOUD, LCGDM, TOWPATH].contains(&name.namespace.as_ref())
}

/// Whether a property is the modification time that clients may set.
fn is_time(name: &Name) -> bool {
    name.is_dav("lastmodified")
}

/// Returns the name of the attribute for a property. It is unique, because names contain no blanks.
fn attribute(name: &Name) -> String {
    format!("{PREFIX}{} {}", name.namespace, name.local)
}

/// Returns the dead properties of a path.
pub(super) async fn dead(store: &dyn Store, caller: &Caller, path: &StorePath) -> Result<Vec<Property>> {
    let attributes = store.attributes(caller, path).await?;
    let ours = attributes.iter().filter(|(name, _)| name.starts_with(PREFIX.as_bytes()));
    // Unparsable values were not written by this server.
    Ok(ours.filter_map(|(_, value)| Element::parse(value, Limits::REQUEST).ok().map(Property::Other)).collect())
}

/// Handles a PROPPATCH.
pub(super) async fn answer(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::Modify)?;
    let text = upload::text(exchange, body).await?;
    let Proppatch(changes) = Proppatch::parse(&text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    exchange.check_conditions(Some(&metadata))?;
    locking::may_change(exchange, exchange.path()).await?;
    let outcomes = carry_out(exchange, changes, metadata.mtime_ns).await?;
    let mut multistatus = Multistatus::new();
    multistatus.outcomes(&target::encode(exchange.path(), metadata.is_directory()), &outcomes);
    Ok(respond::multistatus(Content::text(multistatus.finish())))
}

/// Returns the status of each property: all 200, or one failure and 424 for the others.
async fn carry_out(
    exchange: &Exchange,
    changes: Vec<PropertyChange>,
    mtime_ns: Option<i64>,
) -> Result<Vec<(Name, u16)>, Refusal> {
    let mut refused: Option<(usize, u16)> =
        changes.iter().enumerate().find_map(|(at, change)| Some((at, objection(change)?)));
    if refused.is_none() {
        let before = exchange.store().attributes(exchange.caller(), exchange.path()).await;
        let before = match before {
            Err(error) if error.fault() == Fault::Unsupported => Vec::new(),
            before => before?,
        };
        let mut done = 0;
        for change in &changes {
            if let Err(error) = apply(exchange, change).await {
                refused = Some((done, status_of(&error)));
                break;
            }
            done += 1;
        }
        if refused.is_some() {
            undo(exchange, &changes[..done], &before, mtime_ns).await;
        }
    }
    let status = |at| match refused {
        None => 200,
        Some((bad, status)) if bad == at => status,
        Some(_) => 424,
    };
    Ok(changes.into_iter().enumerate().map(|(at, change)| (change.name, status(at))).collect())
}

/// Returns the status of a change that is invalid independently of the store.
fn objection(change: &PropertyChange) -> Option<u16> {
    if is_time(&change.name) {
        return if time_of(change).is_some() { None } else { Some(409) };
    }
    if is_protected(&change.name) {
        return Some(403);
    }
    let too_long = match &change.action {
        Action::Set(element) => element.to_document().len() > MAX_ATTRIBUTE_VALUE_BYTES,
        Action::Remove => false,
    };
    (too_long || attribute(&change.name).len() > MAX_ATTRIBUTE_NAME_BYTES).then_some(507)
}

fn status_of(error: &Error) -> u16 {
    match error.fault() {
        // The store does not support properties (RFC 4918 §9.2.1).
        Fault::Unsupported => 403,
        // Exceeds the file system's limit for one file.
        Fault::TooLarge | Fault::NameTooLong => 507,
        fault => fault.http_status(),
    }
}

/// Returns the time that a change sets, in nanoseconds since the Unix epoch.
fn time_of(change: &PropertyChange) -> Option<i64> {
    match &change.action {
        Action::Set(element) => mtime_ns(&element.text),
        Action::Remove => None,
    }
}

async fn set_time(exchange: &Exchange, mtime_ns: Option<i64>) -> Result<()> {
    let changes = Changes { mtime_ns, ..Changes::default() };
    exchange.store().change(exchange.caller(), exchange.path(), changes).await
}

async fn apply(exchange: &Exchange, change: &PropertyChange) -> Result<()> {
    if is_time(&change.name) {
        return set_time(exchange, time_of(change)).await;
    }
    let document = match &change.action {
        Action::Set(element) => Some(element.to_document()),
        Action::Remove => None,
    };
    match set(exchange, attribute(&change.name).as_bytes(), document.as_ref().map(String::as_bytes)).await {
        // Removing a missing property is not an error (RFC 4918 §14.23).
        Err(error) if error.fault() == Fault::AttributeNotFound => Ok(()),
        outcome => outcome,
    }
}

async fn set(exchange: &Exchange, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    exchange.store().set_attribute(exchange.caller(), exchange.path(), name, value, false).await
}

/// Restores the values from before the changes made so far.
async fn undo(
    exchange: &Exchange,
    made: &[PropertyChange],
    before: &[(bytes::Bytes, bytes::Bytes)],
    mtime_ns: Option<i64>,
) {
    for change in made {
        let name = attribute(&change.name);
        let value = before.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_ref());
        let undone = match is_time(&change.name) {
            true => set_time(exchange, mtime_ns).await,
            false => set(exchange, name.as_bytes(), value).await,
        };
        if let Err(error) = undone
            && error.fault() != Fault::AttributeNotFound
        {
            tracing::warn!(%error, "failed to restore a property after a failed PROPPATCH");
        }
    }
}
