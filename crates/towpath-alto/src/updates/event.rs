//! Events of update streams, as they are sent (RFC 8895 §5).

use std::time::Duration;

use serde_json::Value;

use super::{Content, UPDATE_STREAM_CONTROL, document::Patch, request::SubstreamId};

/// A comment, which keeps a connection alive (RFC 8895 §6.8).
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// How long a stream may say nothing: after that it sends [`KEEP_ALIVE`] (RFC 8895 §6.8).
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    content: Content,
    /// The substream, with the part that is changed; none if the stream speaks of itself.
    data_id: Option<String>,
}

impl Event {
    /// What a stream says of itself: an `UpdateStreamControlEvent` (RFC 8895 §5.3).
    pub(super) fn control(told: &Value) -> Self {
        let body = told.to_string().into_bytes().into();
        Self { content: Content { media_type: UPDATE_STREAM_CONTROL, body }, data_id: None }
    }

    /// All of an answer.
    pub(super) fn whole(substream: &SubstreamId, answer: &Content) -> Self {
        Self { content: answer.clone(), data_id: Some(substream.to_string()) }
    }

    /// A change of an answer, or of a part of it (RFC 8895 §5.2).
    pub(super) fn change(substream: &SubstreamId, patch: &Patch) -> Self {
        let data_id = match &patch.part {
            Some(part) => format!("{substream}.{part}"),
            None => substream.to_string(),
        };
        Self { content: patch.content.clone(), data_id: Some(data_id) }
    }

    /// Writes it behind what is in `text`: `event: MEDIA-TYPE,DATA-ID`, a `data:` for each line, and an empty line. The ends of lines
    /// within become `\n`, and the last one is lost: events have no others.
    pub fn write_to(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"event: ");
        text.extend_from_slice(self.content.media_type.as_bytes());
        if let Some(data_id) = &self.data_id {
            text.push(b',');
            text.extend_from_slice(data_id.as_bytes());
        }
        let body = &*self.content.body;
        for line in body.strip_suffix(b"\r\n").unwrap_or(body).split(|byte| *byte == b'\n') {
            text.extend_from_slice(b"\ndata: ");
            text.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        }
        text.extend_from_slice(b"\n\n");
    }
}
