//! Change notifications for clients that follow resources: update streams (RFC 8895) and TIPS views (RFC 9569).
//!
//! [`FollowedResponses`] holds, for each followed resource and input, the versions of its response and the changes
//! between them. It receives each new network state once ([`FollowedResponses::advance`]); changes are computed once,
//! whatever the number of followers. A [`Stream`] pushes updates to its client as [`Event`]s. A [`View`] serves the
//! edges of the version graph on request. Both keep their resources alive: when the last follower is dropped, the
//! versions are dropped too.
//!
//! The life of a stream: after [`Stream::open`], and after each new network state, [`Stream::next`] returns one event
//! after another; [`Stream::control`] adds and removes resources. A slow client receives the changes it missed, or the
//! full document if they are no longer available.
//!
//! Memory and time are bounded for all followed resources together, whatever the number of followers ([`MAX_BYTES`],
//! [`MAX_TIME`]); content being sent takes additional memory.
//!
//! Connections, waiting, stream and view addresses, and limits on their number are handled elsewhere. [`UpdateError`]
//! maps each failure to a status.

mod body;
mod document;
mod event;
mod followed_responses;
mod graph;
mod item;
mod request;
mod stream;
mod view;

use towpath_alto::{directory::Directory, network_state::NetworkState, problem::Problem};

pub use self::{
    body::Body,
    event::{Event, EventChunk, KEEP_ALIVE, KEEP_ALIVE_INTERVAL},
    followed_responses::{FollowedResponses, MAX_BYTES, MAX_TIME},
    graph::{Edge, Limits},
    stream::{MAX_NAMES, MAX_SUBSTREAMS, Stream},
    view::{View, edge_numbers},
};
pub use towpath_alto::update_services::{
    EVENT_STREAM, TIPS, TIPS_PARAMS, UPDATE_STREAM_CONTROL, UPDATE_STREAM_PARAMS, allowed_changes, stream_capabilities,
    uses, view_capabilities,
};

/// The current network state and its directory.
#[derive(Debug, Clone, Copy)]
pub struct CurrentNetwork<'a> {
    /// Network state.
    pub network_state: &'a NetworkState,
    /// Its directory.
    pub directory: &'a Directory,
}

/// Content sent to a client: a full response, or a change. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Media type, including the boundary of multipart content.
    pub media_type: &'static str,
    /// Content bytes.
    pub body: Body,
}

/// Why a request cannot be satisfied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The client's request is invalid.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The stream or view is closed, its resource no longer exists, or the graph never has this edge.
    #[error("this update does not exist or is no longer available: open another stream or view")]
    Unknown,
    /// The update existed and was dropped to save memory.
    #[error("this update was dropped: POST to the view's ug for another edge")]
    Gone,
    /// The request does not accept the media type of the update; the client is at fault.
    #[error("this update has media type {0}: accept it")]
    NotAccepted(&'static str),
    /// The update is later than the next one.
    #[error("this update is too far ahead: request the edge from the last version to the next")]
    TooEarly,
    /// The server is computing the changes of a new network state and cannot predict when it will be done.
    #[error("followed responses are being updated: retry shortly")]
    Busy,
    /// The limit on followed content, streams, views or waiting requests is reached.
    #[error("too much is being followed: retry later")]
    TooMany,
}

impl UpdateError {
    /// Returns the HTTP status (RFC 9569 §7.2).
    pub fn status(&self) -> u16 {
        match self {
            UpdateError::Problem(_) => 400,
            UpdateError::Unknown => 404,
            UpdateError::Gone => 410,
            UpdateError::NotAccepted(_) => 415,
            UpdateError::TooEarly => 425,
            UpdateError::TooMany => 429,
            UpdateError::Busy => 503,
        }
    }

    /// Prefixes the field path of a problem with `parent`.
    fn within(self, parent: &str) -> Self {
        match self {
            UpdateError::Problem(problem) => UpdateError::Problem(problem.within(parent)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
