//! The current version of a followed response.

use std::sync::Arc;

use super::{MAX_ANSWER_BYTES, document::Document, error::ClientError};
use towpath_alto::patch::Change;

/// Reason why a change was not applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyError {
    /// It does not apply to the previous version, for the given reason.
    Other(String),
    /// The response would exceed [`MAX_ANSWER_BYTES`].
    TooLong,
}

impl ApplyError {
    /// Converts to the error for the response with the given name.
    pub(super) fn of(self, name: &str) -> ClientError {
        match self {
            Self::Other(problem) => ClientError::Unfit { name: name.to_owned(), problem },
            Self::TooLong => ClientError::TooMuch { most_bytes: MAX_ANSWER_BYTES },
        }
    }
}

impl From<String> for ApplyError {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

/// A followed response.
#[derive(Debug, Default)]
pub(super) struct FollowedResponse {
    document: Option<Arc<Document>>,
    bytes: usize,
}

impl FollowedResponse {
    /// Returns the response; `None` until it is received, and after [`Self::forget`].
    pub(super) fn document(&self) -> Option<&Arc<Document>> {
        self.document.as_ref()
    }

    /// Returns its version tag, if any.
    pub(super) fn tag(&self) -> Option<&str> {
        self.document.as_ref()?.tag()
    }

    /// Returns its size as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Discards the response.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Replaces the response; returns whether it differs from the previous one.
    pub(super) fn replace(&mut self, document: Document) -> bool {
        self.bytes = document.bytes();
        let is_other = self.document.as_ref().is_none_or(|held| held.parts != document.parts);
        self.document = Some(Arc::new(document));
        is_other
    }

    /// Applies a change to the part with the given id, or to the only part. Discards the response if the change does
    /// not apply.
    ///
    /// # Errors
    /// The reason why the change was not applied.
    pub(super) fn change(&mut self, part: Option<&str>, change: &Change) -> Result<(), ApplyError> {
        self.edit(|document| document.change(part, change))
    }

    /// Replaces the content of a part. Discards the response on failure.
    ///
    /// # Errors
    /// The reason why the part was not replaced.
    pub(super) fn replace_part(&mut self, part: &str, content: serde_json::Value) -> Result<(), ApplyError> {
        self.edit(|document| document.replace(part, content))
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Document) -> Result<(), String>) -> Result<(), ApplyError> {
        // Taken out, so that a partially applied change is not kept.
        let mut document =
            std::mem::take(self).document.ok_or_else(|| "no complete version was received".to_owned())?;
        edit(Arc::make_mut(&mut document))?;
        // Many small changes can add up to a large response.
        let bytes = document.bytes();
        if bytes > MAX_ANSWER_BYTES {
            return Err(ApplyError::TooLong);
        }
        *self = Self { document: Some(document), bytes };
        Ok(())
    }
}
