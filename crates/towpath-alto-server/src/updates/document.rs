//! Splits responses into their JSON documents, and computes the changes between two versions.

use std::str;

use serde_json::Value;

use super::{Content, body::ByteCounter};
use towpath_alto::{
    multipart,
    patch::{AllowedChanges, Change, smallest},
};
use towpath_proto::http::media_type::MediaType;

/// One document of a response.
#[derive(Debug)]
pub(super) struct Part {
    /// The `Content-ID` without brackets, if the response is multipart.
    pub(super) id: Option<String>,
    /// Serialized document.
    pub(super) value: Value,
}

/// A change of one document.
#[derive(Debug)]
pub(super) struct Patch {
    /// `Content-ID` of the changed part, or `None` if the response is a single document.
    pub(super) part: Option<String>,
    /// The change.
    pub(super) content: Content,
}

impl Patch {
    fn of(part: &Part, change: &Change, byte_counter: &ByteCounter) -> Self {
        let body = byte_counter.body(change.value().to_string().into_bytes());
        Self { part: part.id.clone(), content: Content { media_type: change.media_type(), body } }
    }
}

/// Returns the documents of a response: one, or one per part. Empty if the response is not JSON, which can only be sent
/// whole.
pub(super) fn parts(media_type: &str, body: &[u8]) -> Vec<Part> {
    let media_type = MediaType::parse(media_type);
    let parts = match media_type.is("multipart/related") {
        true => str::from_utf8(body)
            .ok()
            .and_then(|text| multipart::parts(media_type.parameter("boundary"), text).iter().map(Part::read).collect()),
        false => serde_json::from_slice(body).ok().map(|value| vec![Part { id: None, value }]),
    };
    parts.unwrap_or_default()
}

impl Part {
    fn read(part: &multipart::Part<'_>) -> Option<Self> {
        Some(Self { id: Some(part.id()?.to_owned()), value: serde_json::from_str(part.document).ok()? })
    }
}

/// Returns the changes from the documents `old` to `new`, one per changed document. Returns `None` if nothing changed,
/// or if the response should be sent whole because the parts differ or a full document is smaller.
pub(super) fn patches(
    old: &[Part],
    new: &[Part],
    allowed: AllowedChanges,
    byte_counter: &ByteCounter,
) -> Option<Vec<Patch>> {
    if !old.iter().map(|part| &part.id).eq(new.iter().map(|part| &part.id)) {
        return None;
    }
    let changed = old.iter().zip(new).filter(|(old, new)| old.value != new.value);
    let patches =
        changed.map(|(old, new)| Some(Patch::of(new, &smallest(&old.value, &new.value, allowed)?, byte_counter)));
    let patches: Vec<Patch> = patches.collect::<Option<_>>()?;
    (!patches.is_empty()).then_some(patches)
}
