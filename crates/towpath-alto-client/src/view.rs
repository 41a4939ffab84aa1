//! Client side of TIPS views (RFC 9569).
//!
//! [`ViewFollower::next_request`] returns the next request: to open the view, to fetch the next edge of its updates
//! graph, or for a recommended edge. The response is passed to [`ViewFollower::take`]. After a rejected request,
//! [`ViewFollower::note_refusal`] selects another one: a recommended edge if the edge is gone, a new view if the view
//! is closed. The server responds to a request for the next edge once that version exists.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{
    directory::Entry,
    document::Document,
    error::{ClientError, printable_address},
    follow::{CHANGES, FollowTarget},
    followed_response::{ApplyError, FollowedResponse},
    query_plan::Request,
    uri,
};
use towpath_alto::{
    media,
    patch::{Change, MERGE_PATCH},
    update_services::{TIPS, TIPS_PARAMS},
};
use towpath_proto::http::media_type::MediaType;

/// A view and the response followed through it.
#[derive(Debug)]
pub struct ViewFollower {
    name: String,
    target: FollowTarget,
    /// URI of the TIPS service.
    service: String,
    /// The media type of the response.
    media_type: String,
    step: NextRequest,
    held: FollowedResponse,
}

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NextRequest {
    /// Open a view.
    Open,
    /// Fetch the edge between two versions of this view.
    Edge(String, u64, u64),
    /// Request a recommended edge of this view.
    Recommend(String),
}

impl ViewFollower {
    /// Follows a response of `resource` under `name`; nothing has been received yet. `service` opens views.
    pub(super) fn new(name: &str, target: FollowTarget, resource: &Entry, service: &Entry) -> Self {
        Self {
            name: name.to_owned(),
            target,
            service: service.uri.clone(),
            media_type: resource.media_type.clone(),
            step: NextRequest::Open,
            held: FollowedResponse::default(),
        }
    }

    /// Returns the caller's name for the response.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next request.
    pub fn next_request(&self) -> Request {
        let post = |uri: String, accept: &str, document: Json| Request {
            uri,
            accept: format!("{accept}, {}", media::ERROR),
            document: Some((TIPS_PARAMS, document.to_string().into_bytes())),
        };
        match &self.step {
            NextRequest::Open => post(self.service.clone(), TIPS, self.target.request(self.held.tag())),
            NextRequest::Edge(view, from, to) => Request {
                uri: format!("{view}/ug/{from}/{to}"),
                accept: format!("{}, {}, {}", self.media_type, CHANGES.join(", "), media::ERROR),
                document: None,
            },
            NextRequest::Recommend(view) => {
                let accept = format!("{TIPS}, {MERGE_PATCH}");
                // The view keeps the input it was opened with.
                let target = FollowTarget { input: None, ..self.target.clone() };
                post(format!("{view}/ug"), &accept, target.request(self.held.tag()))
            }
        }
    }

    /// Returns whether the server delays its response until there is a change, for any length of time.
    pub fn waits(&self) -> bool {
        matches!(self.step, NextRequest::Edge(_, from, _) if from > 0)
    }

    /// Returns the URI of the view, once it is open.
    pub fn view(&self) -> Option<&str> {
        match &self.step {
            NextRequest::Open => None,
            NextRequest::Edge(view, ..) | NextRequest::Recommend(view) => Some(view),
        }
    }

    /// Processes the response to the last request, from `address`; returns the followed response if it changed.
    ///
    /// # Errors
    /// [`ClientError::Unfit`] if a change does not apply, and [`ClientError::Malformed`] if a response is malformed;
    /// the next request recovers from both. [`ClientError::TooMuch`]: further requests do not help.
    pub fn take(&mut self, address: &str, media_type: &str, body: &[u8]) -> Result<Option<Arc<Document>>, ClientError> {
        match self.step.clone() {
            NextRequest::Open => self.take_opened(address, body).map(|()| None),
            NextRequest::Recommend(view) => {
                // If the recommendation is unusable, open a new view.
                self.step = NextRequest::Open;
                self.take_recommendation(address, view, body).map(|()| None)
            }
            NextRequest::Edge(view, from, to) => {
                let taken = self.read(address, media_type, from, body);
                self.step = match &taken {
                    Ok(_) => NextRequest::Edge(view, to, to.saturating_add(1)),
                    Err(_) => NextRequest::Recommend(view),
                };
                let has_changed = taken.inspect_err(|_| self.held.forget())?;
                Ok(self.held.document().filter(|_| has_changed).map(Arc::clone))
            }
        }
    }

    /// Handles a rejected request. Returns whether the next request is a different one.
    pub(crate) fn note_refusal(&mut self) -> bool {
        let next = match &self.step {
            NextRequest::Open => return false,
            NextRequest::Edge(view, ..) => NextRequest::Recommend(view.clone()),
            NextRequest::Recommend(_) => NextRequest::Open,
        };
        self.step = next;
        true
    }

    /// Processes the response to opening a view (RFC 9569 §6.2).
    fn take_opened(&mut self, address: &str, body: &[u8]) -> Result<(), ClientError> {
        let answer: Json = serde_json::from_slice(body).unwrap_or_default();
        let view = answer.get("tips-view-uri").and_then(Json::as_str).and_then(|view| uri::resolve(address, view));
        let view = view.filter(|view| uri::is_http(view));
        let view = view.ok_or_else(|| malformed(address, "it has no valid URI"))?;
        self.take_recommendation(address, view.trim_end_matches('/').to_owned(), body)
    }

    /// Processes a recommended edge (RFC 9569 §6.2, §7.4).
    fn take_recommendation(&mut self, address: &str, view: String, body: &[u8]) -> Result<(), ClientError> {
        let answer: Json = serde_json::from_slice(body).unwrap_or_default();
        let number = |name: &str| {
            let edge = answer.get("tips-view-summary")?.get("updates-graph-summary")?.get("start-edge-rec")?;
            edge.get(name)?.as_u64()
        };
        let edge = number("seq-i").zip(number("seq-j")).filter(|(from, to)| from < to);
        let (from, to) = edge.ok_or_else(|| malformed(address, "it recommends no valid start edge"))?;
        if from > 0 && self.held.document().is_none() {
            return Err(malformed(address, "it recommends an incremental edge before a complete version"));
        }
        self.step = NextRequest::Edge(view, from, to);
        Ok(())
    }

    /// Processes the content of an edge (RFC 9569 §7.2); returns whether the response changed.
    fn read(&mut self, address: &str, media_type: &str, from: u64, body: &[u8]) -> Result<bool, ClientError> {
        let kind = MediaType::parse(media_type);
        let Some(change) = CHANGES.into_iter().find(|change| kind.is(change)) else {
            let document = Document::parse(&self.target.resource, address, media_type, body)?;
            return Ok(self.held.replace(document));
        };
        if from == 0 {
            return Err(malformed(address, "it sent a change instead of a complete version"));
        }
        let value = serde_json::from_slice(body).map_err(|error| ApplyError::from(error.to_string()));
        let changed = value.and_then(|value| {
            let change = Change::of(change, value).expect("one of these kinds");
            self.held.change(None, &change)
        });
        changed.map(|()| true).map_err(|misfit| misfit.of(&self.name))
    }
}

fn malformed(address: &str, problem: &str) -> ClientError {
    ClientError::Malformed { address: printable_address(address), what: "view", problem: problem.to_owned() }
}

#[cfg(test)]
mod tests;
