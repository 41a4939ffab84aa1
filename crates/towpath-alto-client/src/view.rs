//! An answer that is followed by a TIPS view (RFC 9569): the client's side of it.
//!
//! [`Viewing::question`] is what to ask next: to open the view, for the edge of its graph of versions that comes next, or which edge that is. The
//! answer is given to [`Viewing::take`]. A question that is refused is followed by another one ([`Viewing::refused`]): which edge to take of one that
//! is gone, another view for one that is closed. The edge from the version at hand to the next one is answered once there is one.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{
    directory::Entry,
    document::Document,
    error::{ClientError, shown},
    follow::{CHANGES, Wanted},
    held::{Held, Misfit},
    media_type::MediaType,
    survey::Question,
    uri,
};
use towpath_alto::{
    media,
    patch::{Change, MERGE_PATCH},
    update_services::{TIPS, TIPS_PARAMS},
};

/// A view, and what it told.
#[derive(Debug)]
pub struct Viewing {
    name: String,
    wanted: Wanted,
    /// Where views are opened.
    service: String,
    /// The media type of the answer.
    media_type: String,
    step: Step,
    held: Held,
}

/// What is asked next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A view.
    Open,
    /// Of the view there, what leads from a version to another.
    Edge(String, u64, u64),
    /// Of the view there, which edge to take.
    Recommend(String),
}

impl Viewing {
    /// An answer of `resource`, called `name`, of which nothing is known yet; `service` opens views.
    pub(super) fn new(name: &str, wanted: Wanted, resource: &Entry, service: &Entry) -> Self {
        Self {
            name: name.to_owned(),
            wanted,
            service: service.uri.clone(),
            media_type: resource.media_type.clone(),
            step: Step::Open,
            held: Held::default(),
        }
    }

    /// What its follower calls the answer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next question.
    pub fn question(&self) -> Question {
        let post = |uri: String, accept: &str, document: Json| Question {
            uri,
            accept: format!("{accept}, {}", media::ERROR),
            document: Some((TIPS_PARAMS, document.to_string().into_bytes())),
        };
        match &self.step {
            Step::Open => post(self.service.clone(), TIPS, self.wanted.request(self.held.tag())),
            Step::Edge(view, from, to) => Question {
                uri: format!("{view}/ug/{from}/{to}"),
                accept: format!("{}, {}, {}", self.media_type, CHANGES.join(", "), media::ERROR),
                document: None,
            },
            Step::Recommend(view) => {
                let accept = format!("{TIPS}, {MERGE_PATCH}");
                // A view has the input that it was opened with.
                let wanted = Wanted { input: None, ..self.wanted.clone() };
                post(format!("{view}/ug"), &accept, wanted.request(self.held.tag()))
            }
        }
    }

    /// Whether the answer comes once there is a change, which may take any time.
    pub fn waits(&self) -> bool {
        matches!(self.step, Step::Edge(_, from, _) if from > 0)
    }

    /// Where the view is, once it is open.
    pub fn view(&self) -> Option<&str> {
        match &self.step {
            Step::Open => None,
            Step::Edge(view, ..) | Step::Recommend(view) => Some(view),
        }
    }

    /// Takes the answer to the last question, which came from `address`; gives what is followed if it is something else now.
    ///
    /// # Errors
    /// [`ClientError::Unfit`] if a change does not fit, and [`ClientError::Malformed`] if an answer is none. The next question leads on.
    /// [`ClientError::TooMuch`], after which that is of no use.
    pub fn take(&mut self, address: &str, media_type: &str, body: &[u8]) -> Result<Option<Arc<Document>>, ClientError> {
        match self.step.clone() {
            Step::Open => self.opened(address, body).map(|()| None),
            Step::Recommend(view) => {
                // If it is of no use, another view is opened.
                self.step = Step::Open;
                self.go_on(address, view, body).map(|()| None)
            }
            Step::Edge(view, from, to) => {
                let taken = self.read(address, media_type, from, body);
                self.step = match &taken {
                    Ok(_) => Step::Edge(view, to, to.saturating_add(1)),
                    Err(_) => Step::Recommend(view),
                };
                let has_changed = taken.inspect_err(|_| self.held.forget())?;
                Ok(self.held.document().filter(|_| has_changed).map(Arc::clone))
            }
        }
    }

    /// The last question is refused. Whether the next one is another, which may help.
    pub fn refused(&mut self) -> bool {
        let next = match &self.step {
            Step::Open => return false,
            Step::Edge(view, ..) => Step::Recommend(view.clone()),
            Step::Recommend(_) => Step::Open,
        };
        self.step = next;
        true
    }

    /// Takes what tells of a new view (RFC 9569 §6.2).
    fn opened(&mut self, address: &str, body: &[u8]) -> Result<(), ClientError> {
        let told: Json = serde_json::from_slice(body).unwrap_or_default();
        let view = told.get("tips-view-uri").and_then(Json::as_str).and_then(|view| uri::resolve(address, view));
        let view = view.filter(|view| uri::is_http(view));
        let view = view.ok_or_else(|| malformed(address, "it does not say where it is"))?;
        self.go_on(address, view.trim_end_matches('/').to_owned(), body)
    }

    /// Takes what recommends the next edge (RFC 9569 §6.2, §7.4).
    fn go_on(&mut self, address: &str, view: String, body: &[u8]) -> Result<(), ClientError> {
        let told: Json = serde_json::from_slice(body).unwrap_or_default();
        let number = |name: &str| {
            let edge = told.get("tips-view-summary")?.get("updates-graph-summary")?.get("start-edge-rec")?;
            edge.get(name)?.as_u64()
        };
        let edge = number("seq-i").zip(number("seq-j")).filter(|(from, to)| from < to);
        let (from, to) = edge.ok_or_else(|| malformed(address, "it recommends no edge to begin with"))?;
        if from > 0 && self.held.document().is_none() {
            return Err(malformed(address, "it recommends a change of what it never told"));
        }
        self.step = Step::Edge(view, from, to);
        Ok(())
    }

    /// Takes what is on an edge (RFC 9569 §7.2); tells whether the answer is something else now.
    fn read(&mut self, address: &str, media_type: &str, from: u64, body: &[u8]) -> Result<bool, ClientError> {
        let kind = MediaType::parse(media_type);
        let Some(change) = CHANGES.into_iter().find(|change| kind.is(change)) else {
            let document = Document::parse(&self.wanted.resource, address, media_type, body)?;
            return Ok(self.held.replace(document));
        };
        if from == 0 {
            return Err(malformed(address, "it sent a change in place of an answer"));
        }
        let value = serde_json::from_slice(body).map_err(|error| Misfit::from(error.to_string()));
        let changed = value.and_then(|value| {
            let change = Change::of(change, value).expect("it is one of those kinds");
            self.held.change(None, &change)
        });
        changed.map(|()| true).map_err(|misfit| misfit.of(&self.name))
    }
}

fn malformed(address: &str, problem: &str) -> ClientError {
    ClientError::Malformed { address: shown(address), what: "view", problem: problem.to_owned() }
}

#[cfg(test)]
mod tests;
