//! Answers of resources.

use serde::Serialize;

use crate::names::Tag;

/// Response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AltoResponse {
    /// Media type.
    pub media_type: &'static str,
    /// Version tag. Equal bodies have equal tags.
    pub tag: Tag,
    /// The document.
    pub body: Vec<u8>,
}

impl AltoResponse {
    /// Serializes a document as a response.
    pub(crate) fn of(media_type: &'static str, document: &impl Serialize) -> Self {
        let body = serde_json::to_vec(document).expect("resource documents are serializable");
        Self { media_type, tag: Tag::of(&body), body }
    }
}
