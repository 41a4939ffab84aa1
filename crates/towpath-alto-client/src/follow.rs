//! Client side of update streams (RFC 8895).
//!
//! [`StreamFollower::next_request`] returns the request that opens the stream. Each event is passed to
//! [`StreamFollower::take`], which keeps the responses up to date. After a lost connection or a change that does not
//! apply, the caller opens a new stream with the then current request. It contains the versions held, and complete
//! responses replace them, so that no change is missed.

use std::{collections::BTreeMap, mem, sync::Arc};

use serde_json::{Map, Value as Json, json};

use super::{
    MAX_ANSWER_BYTES,
    directory::Entry,
    document::Document,
    error::{ClientError, ErrorResponse, printable},
    followed_response::{ApplyError, FollowedResponse},
    query_plan::Request,
    sse::Event,
};
use towpath_alto::{
    media,
    patch::{Change, JSON_PATCH, MERGE_PATCH},
    update_services::{EVENT_STREAM, UPDATE_STREAM_CONTROL, UPDATE_STREAM_PARAMS},
};
use towpath_proto::http::media_type::MediaType;

/// Maximum total size in bytes of the responses held for one stream, as JSON. In memory they take up to 30 times as
/// much.
const MAX_BYTES: usize = 4 * MAX_ANSWER_BYTES;

/// The supported kinds of incremental changes.
pub(super) const CHANGES: [&str; 2] = [MERGE_PATCH, JSON_PATCH];

/// A response to follow.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowTarget {
    /// The id of the resource in the directory.
    pub resource: String,
    /// The request body; `None` for resources requested by GET.
    pub input: Option<Json>,
}

impl FollowTarget {
    /// Returns the request to follow it, starting from the version with the given tag (RFC 8895 §6.5, RFC 9569 §6.1).
    pub(super) fn request(&self, tag: Option<&str>) -> Json {
        let mut request = Map::from_iter([("resource-id".to_owned(), json!(self.resource))]);
        request.extend(self.input.clone().map(|input| ("input".to_owned(), input)));
        request.extend(tag.map(|tag| ("tag".to_owned(), json!(tag))));
        request.into()
    }
}

/// The effect of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowEvent {
    /// A response changed.
    Changed {
        /// The caller's name for the response.
        name: String,
        /// The complete new response.
        document: Arc<Document>,
    },
    /// The server stopped sending updates of a response.
    Stopped {
        /// The caller's name for the response.
        name: String,
        /// The reason sent by the server.
        reason: String,
    },
}

/// The responses followed through one stream.
#[derive(Debug)]
pub struct StreamFollower {
    /// URI of the update stream service.
    service: String,
    /// Their indices serve as substream ids, so that a dot in an id always introduces a part, whatever names the
    /// caller chose.
    substreams: Vec<Substream>,
}

/// One followed response.
#[derive(Debug)]
struct Substream {
    name: String,
    target: FollowTarget,
    held: FollowedResponse,
    is_stopped: bool,
}

impl StreamFollower {
    /// Follows these responses, keyed by the caller's names; none has been received yet. `service` opens streams.
    pub(super) fn new(service: &Entry, targets: BTreeMap<String, FollowTarget>) -> Self {
        let substream =
            |(name, target)| Substream { name, target, held: FollowedResponse::default(), is_stopped: false };
        Self { service: service.uri.clone(), substreams: targets.into_iter().map(substream).collect() }
    }

    /// Returns the request that opens a stream of all responses not stopped; `None` if all are stopped.
    pub fn next_request(&self) -> Option<Request> {
        Some(Request {
            uri: self.service.clone(),
            accept: format!("{EVENT_STREAM}, {}", media::ERROR),
            document: Some((UPDATE_STREAM_PARAMS, self.request()?.to_string().into_bytes())),
        })
    }

    /// Returns whether all responses are stopped.
    pub fn is_over(&self) -> bool {
        self.substreams.iter().all(|substream| substream.is_stopped)
    }

    /// Handles a rejected request. If one of several responses caused the rejection, removes it and returns it for a
    /// stream of its own; this stream can continue without it.
    pub fn without(&mut self, refusal: &ErrorResponse) -> Option<Self> {
        let field = refusal.field.as_deref()?.strip_prefix("add/")?;
        let number: usize = field.split('/').next()?.parse().ok()?;
        let going = self.substreams.iter().filter(|substream| !substream.is_stopped).count();
        let substream = self.substreams.get_mut(number).filter(|substream| going > 1 && !substream.is_stopped)?;
        let (name, target) = (substream.name.clone(), substream.target.clone());
        let held = mem::take(&mut substream.held);
        substream.is_stopped = true;
        let refused = Substream { name, target, held, is_stopped: false };
        Some(Self { service: self.service.clone(), substreams: vec![refused] })
    }

    /// Returns an `UpdateStreamReq` (RFC 8895 §6.5).
    fn request(&self) -> Option<Json> {
        let going = self.substreams.iter().enumerate().filter(|(_, substream)| !substream.is_stopped);
        let add = going.map(|(number, substream)| {
            let request = substream.target.request(substream.held.tag());
            (number.to_string(), request)
        });
        let add: Map<String, Json> = add.collect();
        (!add.is_empty()).then(|| json!({ "add": add }))
    }

    /// Processes the next event. Events for unknown substreams are ignored.
    ///
    /// # Errors
    /// [`ClientError::Unfit`] if a change does not apply, and [`ClientError::Malformed`] if a response is malformed:
    /// open a new stream. [`ClientError::TooMuch`]: a new stream does not help.
    pub fn take(&mut self, event: &Event) -> Result<Vec<FollowEvent>, ClientError> {
        let (kind, data_id) = event.event.rsplit_once(',').map_or((&*event.event, ""), |(kind, id)| (kind, id.trim()));
        let media_type = MediaType::parse(kind);
        if media_type.is(UPDATE_STREAM_CONTROL) {
            return Ok(self.control(&event.data));
        }
        let (number, part) = data_id.split_once('.').map_or((data_id, None), |(number, part)| (number, Some(part)));
        let number = number.parse::<usize>().ok();
        let Some(substream) = number.and_then(|number| self.substreams.get_mut(number)) else { return Ok(Vec::new()) };
        let taken = match CHANGES.into_iter().find(|change| media_type.is(change)) {
            None if part.is_none() => substream.replace(&self.service, kind, &event.data),
            change => substream.change(change, part, &event.data),
        };
        let has_changed = taken.inspect_err(|_| substream.held.forget())?;
        let document = substream.held.document().filter(|_| has_changed);
        let news = document
            .map(|document| FollowEvent::Changed { name: substream.name.clone(), document: Arc::clone(document) });
        let bytes: usize = self.substreams.iter().map(|substream| substream.held.bytes()).sum();
        if bytes > MAX_BYTES {
            return Err(ClientError::TooMuch { most_bytes: MAX_BYTES });
        }
        Ok(news.into_iter().collect())
    }

    /// Processes a control event (RFC 8895 §5.3).
    fn control(&mut self, data: &str) -> Vec<FollowEvent> {
        let message: Json = serde_json::from_str(data).unwrap_or_default();
        let reason = message.get("description").and_then(Json::as_str).map_or("no reason given".into(), printable);
        let stopped = message.get("stopped").and_then(Json::as_array).into_iter().flatten();
        let numbers = stopped.filter_map(|id| id.as_str()?.parse::<usize>().ok());
        let mut news = Vec::new();
        for number in numbers {
            if let Some(substream) = self.substreams.get_mut(number)
                && substream.stop()
            {
                news.push(FollowEvent::Stopped { name: substream.name.clone(), reason: reason.clone() });
            }
        }
        news
    }
}

impl Substream {
    /// Stops the substream; returns whether it was active.
    fn stop(&mut self) -> bool {
        self.held.forget();
        !mem::replace(&mut self.is_stopped, true)
    }

    /// Stores a complete response; returns whether it differs from the previous one.
    fn replace(&mut self, address: &str, media_type: &str, data: &str) -> Result<bool, ClientError> {
        let document = Document::parse(&self.target.resource, address, media_type, data.as_bytes())?;
        Ok(self.held.replace(document))
    }

    /// Applies a change of the given kind, or replaces a part if there is no kind. Returns whether the response is
    /// complete again after the change.
    fn change(&mut self, kind: Option<&str>, part: Option<&str>, data: &str) -> Result<bool, ClientError> {
        let unfit = |misfit: ApplyError| misfit.of(&self.name);
        let value: Json = serde_json::from_str(data).map_err(|error| unfit(error.to_string().into()))?;
        let changed = match (kind, part) {
            (None, Some(part)) => self.held.replace_part(part, value),
            (kind, part) => {
                let change =
                    kind.and_then(|kind| Change::of(kind, value)).ok_or_else(|| "it is not a valid change".to_owned());
                change.map_err(ApplyError::from).and_then(|change| self.held.change(part, &change))
            }
        };
        changed.map_err(unfit)?;
        Ok(self.held.document().is_some_and(|document| !document.is_incomplete()))
    }
}

#[cfg(test)]
pub(super) mod tests;
