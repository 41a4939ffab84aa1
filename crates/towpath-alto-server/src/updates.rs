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

use towpath_alto::{directory::Directory, problem::Problem, world::World};

pub use self::{
    body::Body,
    event::{Event, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, Piece},
    followed::{Followed, MOST_BYTES, MOST_TIME},
    graph::{Edge, Limits},
    stream::{MOST_NAMES, MOST_SUBSTREAMS, Stream},
    view::{View, edge_numbers},
};
pub use towpath_alto::update_services::{
    EVENT_STREAM, TIPS, TIPS_PARAMS, UPDATE_STREAM_CONTROL, UPDATE_STREAM_PARAMS, allowed, stream_capabilities, uses,
    view_capabilities,
};

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

#[cfg(test)]
mod tests;
