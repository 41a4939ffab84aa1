//! Answers of resources.

use serde::Serialize;

use crate::names::Tag;

/// What a client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its media type.
    pub media_type: &'static str,
    /// Its version: equal as long as its bytes are.
    pub tag: Tag,
    /// The document.
    pub body: Vec<u8>,
}

impl Answer {
    /// A document as an answer.
    pub(crate) fn of(media_type: &'static str, document: &impl Serialize) -> Self {
        let body = serde_json::to_vec(document).expect("what resources are made of can be written");
        Self { media_type, tag: Tag::of(&body), body }
    }
}
