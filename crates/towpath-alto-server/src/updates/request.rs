//! What clients ask to follow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use super::MOST_SUBSTREAMS;
use towpath_alto::{fields::Fields, names::ResourceId, problem::Problem};

/// One answer that is to be followed: an `AddUpdateReq` (RFC 8895 §6.5) or a `TIPSReq` (RFC 9569 §6.1).
#[derive(Debug)]
pub(super) struct Asked {
    /// The name of the resource, as it was given.
    pub(super) resource: String,
    /// The version that the client has.
    pub(super) tag: Option<String>,
    /// Whether the client takes changes; means nothing in a `TIPSReq`.
    pub(super) takes_changes: bool,
    /// What would be posted to the resource: an object.
    pub(super) input: Option<Value>,
}

impl Asked {
    /// Reads one.
    ///
    /// # Errors
    /// If `resource-id` is missing, or a field has another type than it must.
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

/// The name that a client gives to an answer in its stream. It has the form of a resource id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubstreamId(ResourceId);

impl fmt::Display for SubstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl SubstreamId {
    fn new(name: &str) -> Result<Self, String> {
        let id = ResourceId::new(name).map_err(|error| format!("name the substream otherwise: {}", error.form))?;
        Ok(Self(id))
    }
}

/// An `UpdateStreamReq` (RFC 8895 §6.5).
#[derive(Debug)]
pub(super) struct Updates {
    /// What is to be followed; at most [`MOST_SUBSTREAMS`].
    pub(super) add: BTreeMap<SubstreamId, Asked>,
    /// What is no longer to be followed. An empty set: everything.
    pub(super) remove: Option<BTreeSet<SubstreamId>>,
}

impl Updates {
    /// Reads one.
    ///
    /// # Errors
    /// If a field has another type than it must, a name has not the form of one, or too much is added.
    pub(super) fn read(request: &Value) -> Result<Self, Problem> {
        let fields = Fields::of(request)?;
        fields.object("add")?;
        let added = request.get("add").and_then(Value::as_object);
        let count = added.map_or(0, |added| added.len());
        if count > MOST_SUBSTREAMS {
            let most = format!("a stream follows at most {MOST_SUBSTREAMS} answers: open another for the rest");
            return Err(fields.refuse_present("add", &most));
        }
        let add = added.into_iter().flatten().map(|(name, asked)| {
            let id = SubstreamId::new(name).map_err(|reason| fields.refuse("add", name, &reason))?;
            Ok((id, Asked::of_substream(name, asked)?))
        });
        let add = add.collect::<Result<_, Problem>>()?;
        let remove = fields.texts("remove", SubstreamId::new)?;
        Ok(Self { add, remove: remove.map(|names| names.into_iter().collect()) })
    }
}
