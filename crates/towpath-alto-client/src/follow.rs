//! Answers that are followed by one update stream (RFC 8895): the client's side of it.
//!
//! [`Following::question`] is what opens the stream; each event of it is given to [`Following::take`], which keeps the answers as they are now. When the connection was
//! lost, or a change does not fit, a stream is opened anew by the question that there is then: it names the versions at hand, and what comes whole
//! takes the place of what was there, so that no change is missed.

use std::{collections::BTreeMap, mem, sync::Arc};

use serde_json::{Map, Value as Json, json};

use super::{
    MAX_ANSWER_BYTES,
    directory::Entry,
    document::Document,
    error::{ClientError, Refusal, printable},
    held::{Held, Misfit},
    media_type::MediaType,
    sse::Event,
    survey::Question,
};
use towpath_alto::{
    media,
    patch::{Change, JSON_PATCH, MERGE_PATCH},
    update_services::{EVENT_STREAM, UPDATE_STREAM_CONTROL, UPDATE_STREAM_PARAMS},
};

/// The most bytes of answers that one stream may keep, as JSON. In memory it is up to 30 times as much.
const MOST_BYTES: usize = 4 * MAX_ANSWER_BYTES;

/// The kinds of changes that are understood.
pub(super) const CHANGES: [&str; 2] = [MERGE_PATCH, JSON_PATCH];

/// An answer that is to be followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The resource, by its id in the directory.
    pub resource: String,
    /// What would be posted to it; none of what is asked for by GET.
    pub input: Option<Json>,
}

impl Wanted {
    /// What asks to follow it for who has the version with that tag (RFC 8895 §6.5, RFC 9569 §6.1).
    pub(super) fn request(&self, tag: Option<&str>) -> Json {
        let mut request = Map::from_iter([("resource-id".to_owned(), json!(self.resource))]);
        request.extend(self.input.clone().map(|input| ("input".to_owned(), input)));
        request.extend(tag.map(|tag| ("tag".to_owned(), json!(tag))));
        request.into()
    }
}

/// What an event told.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// An answer is something else now.
    Changed {
        /// What its follower calls it.
        name: String,
        /// All of it.
        document: Arc<Document>,
    },
    /// The server tells no more of an answer.
    Stopped {
        /// What its follower calls it.
        name: String,
        /// What the server says of it.
        reason: String,
    },
}

/// The answers of one stream.
#[derive(Debug)]
pub struct Following {
    /// Where streams are opened.
    service: String,
    /// By their numbers, which are their names in the stream: so dots stand only before parts, whatever their follower calls them.
    substreams: Vec<Substream>,
}

/// One answer.
#[derive(Debug)]
struct Substream {
    name: String,
    wanted: Wanted,
    held: Held,
    is_stopped: bool,
}

impl Following {
    /// Answers, of which nothing is known yet, by the names that their follower has for them; `service` opens streams.
    pub(super) fn new(service: &Entry, wanted: BTreeMap<String, Wanted>) -> Self {
        let substream = |(name, wanted)| Substream { name, wanted, held: Held::default(), is_stopped: false };
        Self { service: service.uri.clone(), substreams: wanted.into_iter().map(substream).collect() }
    }

    /// What opens a stream of all that did not stop; none if all did.
    pub fn question(&self) -> Option<Question> {
        Some(Question {
            uri: self.service.clone(),
            accept: format!("{EVENT_STREAM}, {}", media::ERROR),
            document: Some((UPDATE_STREAM_PARAMS, self.request()?.to_string().into_bytes())),
        })
    }

    /// Whether all of it stopped.
    pub fn is_over(&self) -> bool {
        self.substreams.iter().all(|substream| substream.is_stopped)
    }

    /// The server refuses the last question. If that is because of one answer of several, that one, to be followed by a stream of its own: this one can go on without it.
    pub fn without(&mut self, refusal: &Refusal) -> Option<Self> {
        let field = refusal.field.as_deref()?.strip_prefix("add/")?;
        let number: usize = field.split('/').next()?.parse().ok()?;
        let going = self.substreams.iter().filter(|substream| !substream.is_stopped).count();
        let substream = self.substreams.get_mut(number).filter(|substream| going > 1 && !substream.is_stopped)?;
        let (name, wanted) = (substream.name.clone(), substream.wanted.clone());
        let held = mem::take(&mut substream.held);
        substream.is_stopped = true;
        let refused = Substream { name, wanted, held, is_stopped: false };
        Some(Self { service: self.service.clone(), substreams: vec![refused] })
    }

    /// An `UpdateStreamReq` (RFC 8895 §6.5).
    fn request(&self) -> Option<Json> {
        let going = self.substreams.iter().enumerate().filter(|(_, substream)| !substream.is_stopped);
        let add = going.map(|(number, substream)| {
            let request = substream.wanted.request(substream.held.tag());
            (number.to_string(), request)
        });
        let add: Map<String, Json> = add.collect();
        (!add.is_empty()).then(|| json!({ "add": add }))
    }

    /// Takes the next event. What is about nothing that is followed is passed over.
    ///
    /// # Errors
    /// [`ClientError::Unfit`] if a change does not fit, and [`ClientError::Malformed`] if an answer is none: then a stream has to be opened anew.
    /// [`ClientError::TooMuch`], after which that is of no use.
    pub fn take(&mut self, event: &Event) -> Result<Vec<News>, ClientError> {
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
        let news =
            document.map(|document| News::Changed { name: substream.name.clone(), document: Arc::clone(document) });
        let bytes: usize = self.substreams.iter().map(|substream| substream.held.bytes()).sum();
        if bytes > MOST_BYTES {
            return Err(ClientError::TooMuch { most_bytes: MOST_BYTES });
        }
        Ok(news.into_iter().collect())
    }

    /// Takes what the stream says of itself (RFC 8895 §5.3).
    fn control(&mut self, data: &str) -> Vec<News> {
        let told: Json = serde_json::from_str(data).unwrap_or_default();
        let reason = told.get("description").and_then(Json::as_str).map_or("it does not say why".into(), printable);
        let stopped = told.get("stopped").and_then(Json::as_array).into_iter().flatten();
        let numbers = stopped.filter_map(|id| id.as_str()?.parse::<usize>().ok());
        let mut news = Vec::new();
        for number in numbers {
            if let Some(substream) = self.substreams.get_mut(number)
                && substream.stop()
            {
                news.push(News::Stopped { name: substream.name.clone(), reason: reason.clone() });
            }
        }
        news
    }
}

impl Substream {
    /// Follows it no longer; tells whether it was followed before.
    fn stop(&mut self) -> bool {
        self.held.forget();
        !mem::replace(&mut self.is_stopped, true)
    }

    /// Takes all of the answer; tells whether it is another one.
    fn replace(&mut self, address: &str, media_type: &str, data: &str) -> Result<bool, ClientError> {
        let document = Document::parse(&self.wanted.resource, address, media_type, data.as_bytes())?;
        Ok(self.held.replace(document))
    }

    /// Takes a change of that kind; without a kind, all of a part. Tells whether the answer is another one now, and not half of one.
    fn change(&mut self, kind: Option<&str>, part: Option<&str>, data: &str) -> Result<bool, ClientError> {
        let unfit = |misfit: Misfit| misfit.of(&self.name);
        let value: Json = serde_json::from_str(data).map_err(|error| unfit(error.to_string().into()))?;
        let changed = match (kind, part) {
            (None, Some(part)) => self.held.replace_part(part, value),
            (kind, part) => {
                let change = kind.and_then(|kind| Change::of(kind, value)).ok_or_else(|| "it is no change".to_owned());
                change.map_err(Misfit::from).and_then(|change| self.held.change(part, &change))
            }
        };
        changed.map_err(unfit)?;
        Ok(self.held.document().is_some_and(|document| !document.is_half_told()))
    }
}

#[cfg(test)]
pub(super) mod tests;
