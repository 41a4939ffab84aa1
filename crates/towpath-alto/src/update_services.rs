//! Announcement of the services that send updates of resources: update streams (RFC 8895) and TIPS views (RFC 9569).
//!
//! A directory lists both with the media types and capabilities defined here. Streams and views themselves are the
//! server's.

use serde_json::{Map, Value, json};

use crate::{media, names::ResourceId, patch::AllowedChanges, resource::Resource};

/// Media type of an update stream (RFC 8895 §6.1).
pub const EVENT_STREAM: &str = "text/event-stream";
/// Media type of a request to add or remove resources of a stream (RFC 8895 §6.5).
pub const UPDATE_STREAM_PARAMS: &str = "application/alto-updatestreamparams+json";
/// Media type of control messages of a stream (RFC 8895 §5.3).
pub const UPDATE_STREAM_CONTROL: &str = "application/alto-updatestreamcontrol+json";
/// Media type of a TIPS view (RFC 9569 §5.1).
pub const TIPS: &str = "application/alto-tips+json";
/// Media type of a request for a view (RFC 9569 §6.1).
pub const TIPS_PARAMS: &str = "application/alto-tipsparams+json";

/// Returns the kinds of changes sent for a resource. For costs merge patches are shorter, and their clients need not
/// support JSON patches; but a merge patch cannot set a property to `null`, and repeats whole lists of prefixes.
pub fn allowed_changes(resource: &Resource) -> AllowedChanges {
    match resource.media_type() {
        media::COST_MAP | media::ENDPOINT_COST => AllowedChanges { merge: true, json: false },
        _ => AllowedChanges::BOTH,
    }
}

/// Returns the `capabilities` of the update stream service for these resources (RFC 8895 §6.3).
pub fn stream_capabilities<'a>(resources: impl Iterator<Item = &'a Resource>) -> Value {
    json!({ "incremental-change-media-types": media_types(resources), "support-stream-control": true })
}

/// Returns the `capabilities` of TIPS (RFC 9569 §5.2). An edge is a single document, so multipart responses are always
/// sent whole.
pub fn view_capabilities<'a>(resources: impl Iterator<Item = &'a Resource>) -> Value {
    let whole = resources.filter(|resource| !resource.media_type().starts_with("multipart/"));
    json!({ "incremental-change-media-types": media_types(whole) })
}

fn media_types<'a>(resources: impl Iterator<Item = &'a Resource>) -> Map<String, Value> {
    resources.map(|resource| (resource.id.to_string(), allowed_changes(resource).to_string().into())).collect()
}

/// Returns the IDs of all resources that can be followed: the `uses` of both services (RFC 8895 §6.4, RFC 9569 §5.3).
pub fn uses<'a>(resources: impl Iterator<Item = &'a Resource>) -> Vec<ResourceId> {
    resources.map(|resource| resource.id.clone()).collect()
}
