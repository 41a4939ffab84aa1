//! TIPS views (RFC 9569).

use std::{net::IpAddr, sync::Arc};

use serde_json::{Value, json};

use super::{
    Content, CurrentNetwork, Edge, FollowedResponses, UpdateError, graph::Graph, item::Key, request::FollowRequest,
};
use towpath_alto::{names::ResourceId, patch::MERGE_PATCH, problem::Problem};

/// One client's view of the updates graph of a response. Views of the same response share the graph and its numbers.
#[derive(Debug)]
pub struct View {
    key: Arc<Key>,
}

/// Parses `ug/I/J`, the path of an edge within a view (RFC 9569 §4.2), to its two versions. Returns `None` for anything
/// else.
pub fn edge_numbers(path: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (from, to) = path.strip_prefix("ug/")?.split_once('/')?;
    Some((number(from)?, number(to)?))
}

impl View {
    /// Opens a view for a client at `client` in response to a POST of `request` (RFC 9569 §6), and returns the response
    /// document, of type [`super::TIPS`]. It names `uri`, which must be absolute, and hard to guess because it
    /// authorizes access to the view.
    ///
    /// # Errors
    /// Returns an error if the request is malformed or the resource rejects its input; [`UpdateError::TooMany`].
    pub fn open(
        request: &Value,
        uri: &str,
        client: IpAddr,
        present: CurrentNetwork<'_>,
        followed: &mut FollowedResponses,
    ) -> Result<(Self, Value), UpdateError> {
        let follow_request = FollowRequest::read(request)?;
        let key = followed.follow(&follow_request, client, present)?;
        let graph = &followed.item(&key).expect("it is followed by this key").graph;
        let answer = json!({ "tips-view-uri": uri, "tips-view-summary": graph.summary(follow_request.tag.as_deref()) });
        Ok((Self { key }, answer))
    }

    /// Returns the ID of the resource.
    pub fn resource(&self) -> &ResourceId {
        self.key.resource()
    }

    /// Returns the content of an edge between two versions, if `accepts` accepts its media type (RFC 9569 §7.2).
    ///
    /// # Errors
    /// Returns [`UpdateError`]; [`UpdateError::Unknown`] also if the response can no longer be computed.
    pub fn edge(
        &self,
        from: u64,
        to: u64,
        accepts: impl Fn(&str) -> bool,
        followed: &FollowedResponses,
    ) -> Result<Edge, UpdateError> {
        match self.graph(followed)?.edge(from, to)? {
            Edge::Document(content) if !accepts(content.media_type) => {
                Err(UpdateError::NotAccepted(content.media_type))
            }
            edge => Ok(edge),
        }
    }

    /// Returns the recommended next edge in response to a POST of `request` to `ug` (RFC 9569 §7.4), as a merge patch
    /// of the document returned by [`Self::open`].
    ///
    /// # Errors
    /// Returns [`UpdateError::Problem`] if the request is malformed, names another resource or has an input;
    /// [`UpdateError::Unknown`] if the response can no longer be computed.
    pub fn recommend(&self, request: &Value, followed: &FollowedResponses) -> Result<Content, UpdateError> {
        let follow_request = FollowRequest::read(request)?;
        if follow_request.resource != self.resource().as_str() {
            let reason = format!("this view is of {}", self.resource());
            return Err(Problem::bad_value("resource-id", &follow_request.resource, &reason).into());
        }
        if follow_request.input.is_some() {
            return Err(Problem::bad_value("input", "{}", "the input of a view cannot change").into());
        }
        let summary = self.graph(followed)?.summary(follow_request.tag.as_deref());
        let body = json!({ "tips-view-summary": summary }).to_string().into_bytes().into();
        Ok(Content { media_type: MERGE_PATCH, body })
    }

    fn graph<'a>(&self, followed: &'a FollowedResponses) -> Result<&'a Graph, UpdateError> {
        followed.item(&self.key).map(|item| &item.graph).ok_or(UpdateError::Unknown)
    }
}
