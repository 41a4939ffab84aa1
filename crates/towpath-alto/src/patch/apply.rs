//! Applies patches that a server sent, which nobody vouches for.

use std::slice;

use json_patch::{Patch, PatchOperation, merge, patch_unsafe};
use serde::Deserialize;
use serde_json::Value;

/// The deepest a document may become, in containers within each other: what `serde_json` reads. Deeper ones could neither
/// be read again nor be dropped without a large stack.
const MAX_DEPTH: usize = 127;

/// How much the operations `copy` and `move` of one patch may copy, in bytes of memory: half a million numbers. Without a
/// bound, a patch of 40 short operations makes a terabyte of nothing. Servers of ALTO send none at all.
const MAX_COPIED_BYTES: usize = 16 << 20;

/// Why a patch cannot be applied: it is wrong, or is of another version of the document. That is the server's fault, or a
/// change was missed; the whole document must be read anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is no array of the operations that RFC 6902 has.
    #[error("the server's patch is no JSON patch (RFC 6902): {0}")]
    Malformed(String),
    /// An operation has no place in the document, or a `test` failed.
    #[error("operation {position} of the server's patch, at '{path}', does not fit the document: {problem}")]
    Unfit {
        /// Which operation, from 0.
        position: usize,
        /// Its `path`, cut to 200 characters.
        path: String,
        /// What does not fit.
        problem: String,
    },
    /// An operation makes the document deeper than 127 levels, or the operations so far copy more than 16 MiB within it.
    #[error("operation {position} of the server's patch makes the document too deep or too large")]
    TooLarge {
        /// Which operation, from 0.
        position: usize,
    },
}

/// The document that the merge patch `patch` makes of `document` (RFC 7396).
pub fn apply_merge(mut document: Value, patch: &Value) -> Value {
    merge(&mut document, patch);
    document
}

/// The document that the JSON patch `patch` makes of `document` (RFC 6902). The document is lost if that fails: half a
/// patch makes no version of it.
///
/// # Errors
/// [`PatchError`].
pub fn apply_json(mut document: Value, patch: &Value) -> Result<Value, PatchError> {
    let patch = Patch::deserialize(patch).map_err(|error| PatchError::Malformed(cut(&error.to_string())))?;
    let mut budget = MAX_COPIED_BYTES;
    for (position, operation) in patch.iter().enumerate() {
        budget = spend(&document, operation, budget).ok_or(PatchError::TooLarge { position })?;
        // Not `json_patch::patch`, which undoes what it did and panics where it cannot: after a `move` of a member to
        // the place of its parent.
        patch_unsafe(&mut document, slice::from_ref(operation)).map_err(|error| PatchError::Unfit {
            position,
            path: cut(error.path.as_str()),
            problem: error.kind.to_string(),
        })?;
    }
    Ok(document)
}

/// What `operation` leaves of the budget; none if that is too little, or it makes the document too deep.
fn spend(document: &Value, operation: &PatchOperation, budget: usize) -> Option<usize> {
    let (value, is_copied) = match operation {
        PatchOperation::Add(add) => (Some(&add.value), false),
        PatchOperation::Replace(replace) => (Some(&replace.value), false),
        PatchOperation::Move(from) => (document.pointer(from.from.as_str()), true),
        PatchOperation::Copy(from) => (document.pointer(from.from.as_str()), true),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, false),
    };
    // Where the source is missing, the operation itself fails.
    let Some(value) = value else { return Some(budget) };
    // A slash within a token is escaped.
    let depth = operation.path().as_str().matches('/').count();
    let levels = MAX_DEPTH.checked_sub(depth)?;
    // What is in the patch is paid for by having been sent.
    if is_copied { weigh(value, levels, budget) } else { weigh(value, levels, usize::MAX).map(|_| budget) }
}

/// What is left of `budget` bytes beside `value`; none if it needs more, or more than that many levels.
fn weigh(value: &Value, levels: usize, budget: usize) -> Option<usize> {
    let left = budget.checked_sub(size_of::<Value>())?;
    match value {
        Value::String(text) => left.checked_sub(text.len()),
        Value::Array(elements) => {
            let levels = levels.checked_sub(1)?;
            elements.iter().try_fold(left, |left, element| weigh(element, levels, left))
        }
        Value::Object(members) => {
            let levels = levels.checked_sub(1)?;
            let mut members = members.iter();
            members.try_fold(left, |left, (name, value)| weigh(value, levels, left.checked_sub(name.len())?))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(left),
    }
}

/// The first 200 characters.
fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}
