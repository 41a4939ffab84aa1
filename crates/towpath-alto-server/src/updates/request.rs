//! Requests to follow resources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use super::MAX_SUBSTREAMS;
use towpath_alto::{fields::Fields, names::ResourceId, problem::Problem};

/// A request to follow one response: an `AddUpdateReq` (RFC 8895 §6.5) or a `TIPSReq` (RFC 9569 §6.1).
#[derive(Debug)]
pub(super) struct FollowRequest {
    /// Resource ID as given by the client.
    pub(super) resource: String,
    /// Version that the client has.
    pub(super) tag: Option<String>,
    /// Whether the client accepts incremental changes; ignored in a `TIPSReq`.
    pub(super) takes_changes: bool,
    /// Input to post to the resource: an object.
    pub(super) input: Option<Value>,
}

impl FollowRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// Returns an error if `resource-id` is missing or a field has the wrong type.
    pub(super) fn read(request: &Value) -> Result<Self, Problem> {
        let fields = Fields::of(request)?;
        let resource = fields.text("resource-id")?.ok_or_else(|| fields.missing("resource-id"))?.to_owned();
        let tag = fields.text("tag")?.map(str::to_owned);
        let takes_changes = fields.truth("incremental-changes")?.unwrap_or(true);
        let input = fields.object("input")?.and(request.get("input")).cloned();
        Ok(Self { resource, tag, takes_changes, input })
    }

    fn of_substream(name: &str, request: &Value) -> Result<Self, Problem> {
        let field = format!("add/{name}");
        if !request.is_object() {
            return Err(Problem::wrong_type(field, "an object"));
        }
        Self::read(request).map_err(|problem| problem.within(&field))
    }
}

/// A client's name for a response in its stream. Has the syntax of a resource ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubstreamId(ResourceId);

impl fmt::Display for SubstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl SubstreamId {
    fn new(name: &str) -> Result<Self, String> {
        let id = ResourceId::new(name).map_err(|error| format!("invalid substream name: expected {}", error.form))?;
        Ok(Self(id))
    }
}

/// An `UpdateStreamReq` (RFC 8895 §6.5).
#[derive(Debug)]
pub(super) struct UpdateRequest {
    /// Responses to follow; at most [`MAX_SUBSTREAMS`].
    pub(super) add: BTreeMap<SubstreamId, FollowRequest>,
    /// Responses to stop following. An empty set stands for all.
    pub(super) remove: Option<BTreeSet<SubstreamId>>,
}

impl UpdateRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// Returns an error if a field has the wrong type, a name is malformed, or too many responses are added.
    pub(super) fn read(request: &Value) -> Result<Self, Problem> {
        let fields = Fields::of(request)?;
        fields.object("add")?;
        let added = request.get("add").and_then(Value::as_object);
        let count = added.map_or(0, |added| added.len());
        if count > MAX_SUBSTREAMS {
            let most = format!("a stream follows at most {MAX_SUBSTREAMS} responses: open another for the rest");
            return Err(fields.refuse_present("add", &most));
        }
        let add = added.into_iter().flatten().map(|(name, value)| {
            let id = SubstreamId::new(name).map_err(|reason| fields.refuse("add", name, &reason))?;
            Ok((id, FollowRequest::of_substream(name, value)?))
        });
        let add = add.collect::<Result<_, Problem>>()?;
        let remove = fields.texts("remove", SubstreamId::new)?;
        Ok(Self { add, remove: remove.map(|names| names.into_iter().collect()) })
    }
}
