//! TIPS views (RFC 9569).

use std::{net::IpAddr, sync::Arc};

use serde_json::{Value, json};

use super::{Content, Edge, Followed, Present, Refusal, graph::Graph, item::Key, request::Asked};
use towpath_alto::{names::ResourceId, patch::MERGE_PATCH, problem::Problem};

/// The updates graph of an answer, as one client sees it. Views of one answer share the graph and its numbers.
#[derive(Debug)]
pub struct View {
    key: Arc<Key>,
}

/// The two versions in `ug/I/J`, the path of an edge within a view (RFC 9569 §4.2). None if it is something else.
pub fn edge_numbers(path: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (from, to) = path.strip_prefix("ug/")?.split_once('/')?;
    Some((number(from)?, number(to)?))
}

impl View {
    /// Opens a view for a client at `client`: the answer to a POST of `request` (RFC 9569 §6), and the document that tells the client, of type [`super::TIPS`].
    /// It says that the view is at `uri`, which must be absolute; whoever can guess it can read the view.
    ///
    /// # Errors
    /// If the request is malformed, or the resource refuses its input; [`Refusal::TooMany`].
    pub fn open(
        request: &Value,
        uri: &str,
        client: IpAddr,
        present: Present<'_>,
        followed: &mut Followed,
    ) -> Result<(Self, Value), Refusal> {
        let asked = Asked::read(request)?;
        let key = followed.follow(&asked, client, present)?;
        let graph = &followed.item(&key).expect("it is followed by this key").graph;
        let told = json!({ "tips-view-uri": uri, "tips-view-summary": graph.summary(asked.tag.as_deref()) });
        Ok((Self { key }, told))
    }

    /// Whose answer it is.
    pub fn resource(&self) -> &ResourceId {
        self.key.resource()
    }

    /// What is on the edge from one version to another, if `accepts` says so of its media type (RFC 9569 §7.2).
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::Unknown`] also if what is followed ended.
    pub fn edge(
        &self,
        from: u64,
        to: u64,
        accepts: impl Fn(&str) -> bool,
        followed: &Followed,
    ) -> Result<Edge, Refusal> {
        match self.graph(followed)?.edge(from, to)? {
            Edge::Document(content) if !accepts(content.media_type) => Err(Refusal::NotAccepted(content.media_type)),
            edge => Ok(edge),
        }
    }

    /// Which edge to take next: the answer to a POST of `request` to `ug` (RFC 9569 §7.4), a merge patch of what [`Self::open`] told.
    ///
    /// # Errors
    /// [`Refusal::Problem`] if the request is malformed, names another resource or has an input; [`Refusal::Unknown`] if what is followed ended.
    pub fn recommend(&self, request: &Value, followed: &Followed) -> Result<Content, Refusal> {
        let asked = Asked::read(request)?;
        if asked.resource != self.resource().as_str() {
            let reason = format!("this view is of {}", self.resource());
            return Err(Problem::bad_value("resource-id", &asked.resource, &reason).into());
        }
        if asked.input.is_some() {
            return Err(Problem::bad_value("input", "{}", "a view has the input that it was opened with").into());
        }
        let summary = self.graph(followed)?.summary(asked.tag.as_deref());
        let body = json!({ "tips-view-summary": summary }).to_string().into_bytes().into();
        Ok(Content { media_type: MERGE_PATCH, body })
    }

    fn graph<'a>(&self, followed: &'a Followed) -> Result<&'a Graph, Refusal> {
        followed.item(&self.key).map(|item| &item.graph).ok_or(Refusal::Unknown)
    }
}
