//! What changed between two versions of a JSON document, as RFC 8895 (SSE) and RFC 9569 (TIPS) send it.
//!
//! Two kinds of patches are known. A merge patch ([`merge_patch`], RFC 7396) looks like the document with only what is
//! new in it, and `null` for what is gone; it replaces arrays whole and cannot set anything to `null`. A JSON patch
//! ([`json_patch()`], RFC 6902) is a list of operations, and adds one prefix to a long list in one line. A server sends
//! the [`smallest`] [`Change`] that its client takes; a client applies what it was sent ([`Change::apply`]).
//!
//! Nothing here knows streams, sequence numbers or the resources that the documents are of.

mod apply;
mod operations;

use std::{fmt, io};

use serde_json::{Map, Value};

pub use self::{
    apply::{PatchError, apply_json, apply_merge},
    operations::json_patch,
};

/// The media type of merge patches (RFC 7396 §4).
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// The media type of JSON patches (RFC 6902 §6).
pub const JSON_PATCH: &str = "application/json-patch+json";

/// What makes one version of a document of another.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A merge patch.
    Merge(Value),
    /// A JSON patch: an array of operations.
    Json(Value),
}

impl Change {
    /// The change that was sent as `value` with that media type; none if the type is of no patch.
    pub fn of(media_type: &str, value: Value) -> Option<Self> {
        match media_type {
            MERGE_PATCH => Some(Self::Merge(value)),
            JSON_PATCH => Some(Self::Json(value)),
            _ => None,
        }
    }

    /// How it is labelled on the wire.
    pub fn media_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => MERGE_PATCH,
            Self::Json(_) => JSON_PATCH,
        }
    }

    /// What is sent.
    pub fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::Json(value) => value,
        }
    }

    /// The document that it makes of `document`, which is lost if that fails.
    ///
    /// # Errors
    /// As [`apply_json`]. A merge patch can always be applied.
    pub fn apply(&self, document: Value) -> Result<Value, PatchError> {
        match self {
            Self::Merge(patch) => Ok(apply_merge(document, patch)),
            Self::Json(patch) => apply_json(document, patch),
        }
    }
}

/// The kinds of changes that may be sent, as `incremental-change-media-types` names them (RFC 8895 §6.3). By default none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// Merge patches.
    pub merge: bool,
    /// JSON patches.
    pub json: bool,
}

impl Allowed {
    /// Both kinds.
    pub const BOTH: Self = Self { merge: true, json: true };

    /// Those kinds that are in a list of media types, parted by commas. Other types are passed over.
    pub fn listed(media_types: &str) -> Self {
        let has = |wanted: &str| media_types.split(',').any(|media_type| media_type.trim() == wanted);
        Self { merge: has(MERGE_PATCH), json: has(JSON_PATCH) }
    }
}

/// The list that [`Allowed::listed`] reads.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.merge, self.json) {
            (true, true) => "application/merge-patch+json,application/json-patch+json",
            (true, false) => MERGE_PATCH,
            (false, true) => JSON_PATCH,
            (false, false) => "",
        })
    }
}

/// The merge patch that makes `new` of `old` (RFC 7396); `{}` for two equal objects. None if it had to contain a `null`
/// as a value, which would mean that something is gone. Takes time linear in the size of the documents.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => merge_objects(old, new).map(Value::Object),
        (_, new) => is_mergeable(new).then(|| new.clone()),
    }
}

fn merge_objects(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<Map<String, Value>> {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<_, _> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        let member = match (old.get(name), value) {
            // Compared by going in: to ask first whether they are equal would read them again at each level.
            (Some(Value::Object(old)), Value::Object(new)) => match merge_objects(old, new)? {
                inner if inner.is_empty() => continue,
                inner => Value::Object(inner),
            },
            (Some(old), new) if old == new => continue,
            (_, new) if !new.is_null() && is_mergeable(new) => new.clone(),
            _ => return None,
        };
        patch.insert(name.clone(), member);
    }
    Some(patch)
}

/// Whether `value` stays what it is if it is merged into nothing. Arrays are not merged, so a `null` in one stays.
fn is_mergeable(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().all(|member| !member.is_null() && is_mergeable(member)),
        _ => true,
    }
}

/// The change of an allowed kind that is shortest as JSON, of two equally short ones the merge patch. None if `new` itself
/// is as short. Of equal documents it is a change that does nothing.
pub fn smallest(old: &Value, new: &Value, allowed: Allowed) -> Option<Change> {
    let merge = allowed.merge.then(|| merge_patch(old, new)).flatten().map(Change::Merge);
    let json = allowed.json.then(|| Change::Json(json_patch(old, new)));
    let changes = [merge, json].into_iter().flatten();
    let measured = changes.map(|change| (serialized_bytes(change.value()), change));
    let (bytes, change) = measured.min_by_key(|(bytes, _)| *bytes)?;
    (bytes < serialized_bytes(new)).then_some(change)
}

/// The length of `value` as JSON without blanks.
fn serialized_bytes(value: &Value) -> usize {
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, value).expect("keys are strings, and counting does not fail");
    counted.0
}

/// Bytes that were written to nowhere.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
