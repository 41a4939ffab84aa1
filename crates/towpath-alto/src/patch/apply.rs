//! Applies patches from a server, which are untrusted.

use std::slice;

use json_patch::{Patch, PatchOperation, merge, patch_unsafe};
use serde::Deserialize;
use serde_json::Value;

/// Maximum nesting of a patched document: the limit of `serde_json`. A deeper document could neither be parsed again
/// nor be dropped without a large stack.
const MAX_DEPTH: usize = 127;

/// Maximum memory, in bytes, that the `copy` and `move` operations of one patch may copy: half a million numbers.
/// Without a limit, 40 short operations could produce a terabyte. ALTO servers send no such operations at all.
const MAX_COPIED_BYTES: usize = 16 << 20;

/// Why a patch cannot be applied: it is invalid, or does not match this version of the document. The server is at
/// fault, or a change was missed; the client must fetch the whole document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not an array of RFC 6902 operations.
    #[error("the server's patch is not a JSON Patch (RFC 6902): {0}")]
    Malformed(String),
    /// An operation does not match the document, or a `test` failed.
    #[error("operation {position} of the server's patch, at '{path}', does not fit the document: {problem}")]
    Unfit {
        /// Index of the operation, from 0.
        position: usize,
        /// Its `path`, truncated to 200 characters.
        path: String,
        /// What does not match.
        problem: String,
    },
    /// An operation makes the document deeper than 127 levels, or the operations so far copy more than 16 MiB within
    /// it.
    #[error("operation {position} of the server's patch makes the document too deep or too large")]
    TooLarge {
        /// Index of the operation, from 0.
        position: usize,
    },
}

/// Applies the merge patch `patch` to `document` (RFC 7396).
pub(crate) fn apply_merge(mut document: Value, patch: &Value) -> Value {
    merge(&mut document, patch);
    document
}

/// Applies the JSON patch `patch` to `document` (RFC 6902). The document is lost on failure, because a half-applied
/// patch does not yield a valid version.
///
/// # Errors
/// Returns [`PatchError`].
pub(crate) fn apply_json(mut document: Value, patch: &Value) -> Result<Value, PatchError> {
    let patch = Patch::deserialize(patch).map_err(|error| PatchError::Malformed(cut(&error.to_string())))?;
    let mut budget = MAX_COPIED_BYTES;
    for (position, operation) in patch.iter().enumerate() {
        budget = spend(&document, operation, budget).ok_or(PatchError::TooLarge { position })?;
        // Not `json_patch::patch`, which rolls back on failure and panics where it cannot: after a `move` of a member
        // onto its parent.
        patch_unsafe(&mut document, slice::from_ref(operation)).map_err(|error| PatchError::Unfit {
            position,
            path: cut(error.path.as_str()),
            problem: error.kind.to_string(),
        })?;
    }
    Ok(document)
}

/// Returns the budget left after `operation`, or `None` if it does not suffice or the document becomes too deep.
fn spend(document: &Value, operation: &PatchOperation, budget: usize) -> Option<usize> {
    let (value, is_copied) = match operation {
        PatchOperation::Add(add) => (Some(&add.value), false),
        PatchOperation::Replace(replace) => (Some(&replace.value), false),
        PatchOperation::Move(from) => (document.pointer(from.from.as_str()), true),
        PatchOperation::Copy(from) => (document.pointer(from.from.as_str()), true),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, false),
    };
    // If the source is missing, the operation itself fails.
    let Some(value) = value else { return Some(budget) };
    // A slash within a token is escaped.
    let depth = operation.path().as_str().matches('/').count();
    let levels = MAX_DEPTH.checked_sub(depth)?;
    // Values contained in the patch are bounded by its size and need no budget.
    if is_copied { weigh(value, levels, budget) } else { weigh(value, levels, usize::MAX).map(|_| budget) }
}

/// Returns `budget` minus the bytes of `value`, or `None` if it needs more, or more than `levels` levels.
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

/// Returns the first 200 characters.
fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}
