//! Differences between two versions of a JSON document, as sent by RFC 8895 (SSE) and RFC 9569 (TIPS).
//!
//! There are two kinds of patches. A merge patch ([`merge_patch`], RFC 7396) has the shape of the document, reduced to
//! its new members, with `null` for removed ones; it replaces whole arrays and cannot set a value to `null`. A JSON
//! patch ([`json_patch()`], RFC 6902) is a list of operations, which adds a prefix to a long list in one line. A server
//! sends the [`smallest`] [`Change`] that its client accepts; the client applies it ([`Change::apply`]).
//!
//! Streams, sequence numbers and the resources behind the documents are handled elsewhere.

mod apply;
mod operations;

use std::{fmt, io};

use serde_json::{Map, Value};

pub use self::apply::PatchError;
use self::{
    apply::{apply_json, apply_merge},
    operations::json_patch,
};

/// Media type of merge patches (RFC 7396 §4).
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// Media type of JSON patches (RFC 6902 §6).
pub const JSON_PATCH: &str = "application/json-patch+json";

/// A patch from one version of a document to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A merge patch.
    Merge(Value),
    /// A JSON patch: an array of operations.
    Json(Value),
}

impl Change {
    /// Creates a change from a received value and its media type. Returns `None` if the type is not that of a patch.
    pub fn of(media_type: &str, value: Value) -> Option<Self> {
        match media_type {
            MERGE_PATCH => Some(Self::Merge(value)),
            JSON_PATCH => Some(Self::Json(value)),
            _ => None,
        }
    }

    /// Returns the media type.
    pub fn media_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => MERGE_PATCH,
            Self::Json(_) => JSON_PATCH,
        }
    }

    /// Returns the patch itself.
    pub fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::Json(value) => value,
        }
    }

    /// Applies the change to `document`, which is lost on failure.
    ///
    /// # Errors
    /// As [`apply_json`]. A merge patch always succeeds.
    pub fn apply(&self, document: Value) -> Result<Value, PatchError> {
        match self {
            Self::Merge(patch) => Ok(apply_merge(document, patch)),
            Self::Json(patch) => apply_json(document, patch),
        }
    }
}

/// Kinds of changes that may be sent, from `incremental-change-media-types` (RFC 8895 §6.3). None by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllowedChanges {
    /// Merge patches.
    pub merge: bool,
    /// JSON patches.
    pub json: bool,
}

impl AllowedChanges {
    /// Both kinds.
    pub const BOTH: Self = Self { merge: true, json: true };
}

/// Writes the media types as a comma-separated list.
impl fmt::Display for AllowedChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.merge, self.json) {
            (true, true) => "application/merge-patch+json,application/json-patch+json",
            (true, false) => MERGE_PATCH,
            (false, true) => JSON_PATCH,
            (false, false) => "",
        })
    }
}

/// Returns the merge patch from `old` to `new` (RFC 7396); `{}` for equal objects. Returns `None` if the patch would
/// contain a `null` value, which would mean a removal. Takes time linear in the size of the documents.
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
            // Recurse without comparing first, which would read the members again at each level.
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

/// Returns whether merging `value` into nothing reproduces it. Arrays are not merged, so a `null` inside one is
/// preserved.
fn is_mergeable(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().all(|member| !member.is_null() && is_mergeable(member)),
        _ => true,
    }
}

/// Returns the allowed change with the shortest JSON; on a tie the merge patch. Returns `None` if `new` itself is not
/// longer. For equal documents it is a change without effect.
pub fn smallest(old: &Value, new: &Value, allowed: AllowedChanges) -> Option<Change> {
    let merge = allowed.merge.then(|| merge_patch(old, new)).flatten().map(Change::Merge);
    let json = allowed.json.then(|| Change::Json(json_patch(old, new)));
    let changes = [merge, json].into_iter().flatten();
    let measured = changes.map(|change| (serialized_bytes(change.value()), change));
    let (bytes, change) = measured.min_by_key(|(bytes, _)| *bytes)?;
    (bytes < serialized_bytes(new)).then_some(change)
}

/// Returns the length of `value` as compact JSON.
fn serialized_bytes(value: &Value) -> usize {
    let mut counted = CountingWriter(0);
    serde_json::to_writer(&mut counted, value).expect("keys are strings, and counting does not fail");
    counted.0
}

/// Counts written bytes and discards them.
struct CountingWriter(usize);

impl io::Write for CountingWriter {
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
