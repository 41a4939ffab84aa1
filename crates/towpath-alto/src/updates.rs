//! Answers that change, for clients that follow them: update streams (RFC 8895) and TIPS views (RFC 9569).
//!
//! [`Followed`] holds all that anybody follows: for each resource, with each input, the versions of its answer and what leads from one to the next. It is given each
//! new world once ([`Followed::advance`]); what changed is found once, however many follow it. A [`Stream`] tells its client what is new as [`Event`]s. A [`View`] waits to be
//! asked for an edge of the graph of versions. Both hold what they follow: when the last of them is dropped, its versions go too.
//!
//! The life of a stream: after [`Stream::open`], and after each new world, [`Stream::next`] gives one event after another; [`Stream::control`] starts and stops
//! parts of it. Who was slow is told what it missed, or all anew if that is no longer known.
//!
//! Memory and time are bounded by what is followed, however many follow it ([`MOST_BYTES`], [`MOST_TIME`]), and memory by what is being sent.
//!
//! What is not here: connections, waiting, addresses of streams and views, and how many there may be. [`Refusal`] knows the status for each.

mod body;
mod document;
mod event;
mod followed;
mod graph;
mod item;
mod request;
mod stream;
mod view;

use serde_json::{Map, Value, json};

use crate::{
    directory::Directory, media, names::ResourceId, patch::Allowed, problem::Problem, resource::Resource, world::World,
};

pub use self::{
    body::Body,
    event::{Event, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, Piece},
    followed::{Followed, MOST_BYTES, MOST_TIME},
    graph::{Edge, Limits},
    stream::{MOST_NAMES, MOST_SUBSTREAMS, Stream},
    view::{View, edge_numbers},
};

/// An update stream (RFC 8895 §6.1).
pub const EVENT_STREAM: &str = "text/event-stream";
/// What is to be followed by a stream, or no longer (RFC 8895 §6.5).
pub const UPDATE_STREAM_PARAMS: &str = "application/alto-updatestreamparams+json";
/// What a stream tells of itself (RFC 8895 §5.3).
pub const UPDATE_STREAM_CONTROL: &str = "application/alto-updatestreamcontrol+json";
/// A TIPS view (RFC 9569 §5.1).
pub const TIPS: &str = "application/alto-tips+json";
/// What is to be followed by a view (RFC 9569 §6.1).
pub const TIPS_PARAMS: &str = "application/alto-tipsparams+json";

/// The world as it is now, with its directory.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// The world.
    pub world: &'a World,
    /// Its directory.
    pub directory: &'a Directory,
}

/// What is sent: an answer, or a change of one. A copy shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Its media type, with the boundary of one that has parts.
    pub media_type: &'static str,
    /// Its bytes.
    pub body: Body,
}

/// Why a client does not get what it asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is wrong; its client's fault.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The stream or view is closed, what it followed is no longer there, or the graph never has such an edge.
    #[error("there is no such update here, or no longer: open another stream or view")]
    Unknown,
    /// The update was there, and was dropped to save memory.
    #[error("this update was dropped: POST to the view's ug for the edge to take instead")]
    Gone,
    /// The update is of this media type, which the request does not accept; its client's fault.
    #[error("this update is {0}: accept it")]
    NotAccepted(&'static str),
    /// The update comes after the next one.
    #[error("this update is too far ahead: ask for the one that leads from the last version to the next")]
    TooEarly,
    /// The server looks at what a new world changes, which may take its time. Only the server knows when.
    #[error("what is followed is being made anew: come again in a moment")]
    Busy,
    /// More is followed, or there are more streams, views or waiting requests, than the server has room for.
    #[error("too much is followed at once: come again later")]
    TooMany,
}

impl Refusal {
    /// The status of HTTP that tells it (RFC 9569 §7.2).
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Problem(_) => 400,
            Refusal::Unknown => 404,
            Refusal::Gone => 410,
            Refusal::NotAccepted(_) => 415,
            Refusal::TooEarly => 425,
            Refusal::TooMany => 429,
            Refusal::Busy => 503,
        }
    }

    /// The same refusal of what is within the field `parent`.
    fn within(self, parent: &str) -> Self {
        match self {
            Refusal::Problem(problem) => Refusal::Problem(problem.within(parent)),
            other => other,
        }
    }
}

/// The kinds of changes that are sent of a resource. Of costs a merge patch is the shorter one, and clients need not know
/// the other; it cannot tell that a property is `null`, and tells lists of prefixes anew.
pub fn allowed(resource: &Resource) -> Allowed {
    match resource.media_type() {
        media::COST_MAP | media::ENDPOINT_COST => Allowed { merge: true, json: false },
        _ => Allowed::BOTH,
    }
}

/// The `capabilities` of the update stream service (RFC 8895 §6.3).
pub fn stream_capabilities(directory: &Directory) -> Value {
    json!({ "incremental-change-media-types": media_types(directory.resources()), "support-stream-control": true })
}

/// The `capabilities` of TIPS (RFC 9569 §5.2). An edge is one document, so answers that have parts are told whole.
pub fn view_capabilities(directory: &Directory) -> Value {
    let whole = directory.resources().filter(|resource| !resource.media_type().starts_with("multipart/"));
    json!({ "incremental-change-media-types": media_types(whole) })
}

fn media_types<'a>(resources: impl Iterator<Item = &'a Resource>) -> Map<String, Value> {
    resources.map(|resource| (resource.id.to_string(), allowed(resource).to_string().into())).collect()
}

/// The names of all that can be followed: the `uses` of both services (RFC 8895 §6.4, RFC 9569 §5.3).
pub fn uses(directory: &Directory) -> Vec<ResourceId> {
    directory.resources().map(|resource| resource.id.clone()).collect()
}

#[cfg(test)]
mod tests;
