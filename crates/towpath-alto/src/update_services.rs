//! Announcement of the services that send updates of resources: update streams (RFC 8895) and TIPS views (RFC 9569).
//!
//! A directory lists both with the media types and capabilities defined here. Streams and views themselves are the server's.

use serde_json::{Map, Value, json};

use crate::{media, names::ResourceId, patch::Allowed, resource::Resource};

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

/// The kinds of changes that are sent of a resource. Of costs a merge patch is the shorter one, and clients need not know
/// the other; it cannot tell that a property is `null`, and tells lists of prefixes anew.
pub fn allowed(resource: &Resource) -> Allowed {
    match resource.media_type() {
        media::COST_MAP | media::ENDPOINT_COST => Allowed { merge: true, json: false },
        _ => Allowed::BOTH,
    }
}

/// The `capabilities` of the update stream service for these resources (RFC 8895 §6.3).
pub fn stream_capabilities<'a>(resources: impl Iterator<Item = &'a Resource>) -> Value {
    json!({ "incremental-change-media-types": media_types(resources), "support-stream-control": true })
}

/// The `capabilities` of TIPS (RFC 9569 §5.2). An edge is one document, so answers that have parts are told whole.
pub fn view_capabilities<'a>(resources: impl Iterator<Item = &'a Resource>) -> Value {
    let whole = resources.filter(|resource| !resource.media_type().starts_with("multipart/"));
    json!({ "incremental-change-media-types": media_types(whole) })
}

fn media_types<'a>(resources: impl Iterator<Item = &'a Resource>) -> Map<String, Value> {
    resources.map(|resource| (resource.id.to_string(), allowed(resource).to_string().into())).collect()
}

/// The names of all that can be followed: the `uses` of both services (RFC 8895 §6.4, RFC 9569 §5.3).
pub fn uses<'a>(resources: impl Iterator<Item = &'a Resource>) -> Vec<ResourceId> {
    resources.map(|resource| resource.id.clone()).collect()
}
