//! Wire format of update stream events (RFC 8895 §5).

use std::{ops::Range, time::Duration};

use serde_json::Value;

use super::{Body, Content, UPDATE_STREAM_CONTROL, document::Patch, request::SubstreamId};

/// A comment that keeps the connection alive (RFC 8895 §6.8).
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// Maximum idle time of a stream, after which [`KEEP_ALIVE`] is sent (RFC 8895 §6.8).
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    content: Content,
    /// The substream, with the changed part if any; `None` for control events.
    data_id: Option<String>,
}

impl Event {
    /// Creates an `UpdateStreamControlEvent` (RFC 8895 §5.3).
    pub(super) fn control(message: &Value) -> Self {
        let body = message.to_string().into_bytes().into();
        Self { content: Content { media_type: UPDATE_STREAM_CONTROL, body }, data_id: None }
    }

    /// Creates an event with a full response.
    pub(super) fn whole(substream: &SubstreamId, answer: &Content) -> Self {
        Self { content: answer.clone(), data_id: Some(substream.to_string()) }
    }

    /// Creates an event with a change of a response or of one of its parts (RFC 8895 §5.2).
    pub(super) fn change(substream: &SubstreamId, patch: &Patch) -> Self {
        let data_id = match &patch.part {
            Some(part) => format!("{substream}.{part}"),
            None => substream.to_string(),
        };
        Self { content: patch.content.clone(), data_id: Some(data_id) }
    }

    /// Returns the document. Clones share the bytes.
    pub fn document(&self) -> &Body {
        &self.content.body
    }

    /// Returns the text of the event: `event: MEDIA-TYPE,DATA-ID`, a `data:` line per line of the document, and an
    /// empty line. Line ends become `\n` and the last one is dropped, because the format has no others.
    pub fn pieces(&self) -> Vec<EventChunk> {
        let data_id = self.data_id.as_ref().map(|data_id| format!(",{data_id}")).unwrap_or_default();
        let mut pieces = vec![EventChunk::Words(format!("event: {}{data_id}", self.content.media_type))];
        let body: &[u8] = self.document();
        let mut at = 0;
        for line in body.strip_suffix(b"\r\n").unwrap_or(body).split(|byte| *byte == b'\n') {
            let shown = line.strip_suffix(b"\r").unwrap_or(line);
            pieces.push(EventChunk::Words("\ndata: ".into()));
            pieces.push(EventChunk::Document(at..at + shown.len()));
            at += line.len() + 1;
        }
        pieces.push(EventChunk::Words("\n\n".into()));
        pieces
    }
}

/// A piece of an event's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventChunk {
    /// Text around the document.
    Words(String),
    /// A range of the document.
    Document(Range<usize>),
}
