//! An answer that is followed, as it was told last.

use std::sync::Arc;

use super::{MAX_ANSWER_BYTES, document::Document, error::ClientError};
use towpath_alto::patch::Change;

/// Why a change of an answer is not applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It does not fit what the answer was before, for that reason.
    Other(String),
    /// The answer would have more than [`MAX_ANSWER_BYTES`].
    TooLong,
}

impl Misfit {
    /// The same of the answer of that name.
    pub(super) fn of(self, name: &str) -> ClientError {
        match self {
            Self::Other(problem) => ClientError::Unfit { name: name.to_owned(), problem },
            Self::TooLong => ClientError::TooMuch { most_bytes: MAX_ANSWER_BYTES },
        }
    }
}

impl From<String> for Misfit {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

/// What is known of an answer.
#[derive(Debug, Default)]
pub(super) struct Held {
    document: Option<Arc<Document>>,
    bytes: usize,
}

impl Held {
    /// The answer; none before it was told, and after [`Self::forget`].
    pub(super) fn document(&self) -> Option<&Arc<Document>> {
        self.document.as_ref()
    }

    /// Its version, if that is known.
    pub(super) fn tag(&self) -> Option<&str> {
        self.document.as_ref()?.tag()
    }

    /// How long it is as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Takes all of the answer anew; tells whether it is another one.
    pub(super) fn replace(&mut self, document: Document) -> bool {
        self.bytes = document.bytes();
        let is_other = self.document.as_ref().is_none_or(|held| held.parts != document.parts);
        self.document = Some(Arc::new(document));
        is_other
    }

    /// Applies a change of the part with that id, or of the only one; forgets what does not fit.
    ///
    /// # Errors
    /// Why the change is not applied.
    pub(super) fn change(&mut self, part: Option<&str>, change: &Change) -> Result<(), Misfit> {
        self.edit(|document| document.change(part, change))
    }

    /// Puts something else into a part; forgets what that does not fit.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn replace_part(&mut self, part: &str, content: serde_json::Value) -> Result<(), Misfit> {
        self.edit(|document| document.replace(part, content))
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Document) -> Result<(), String>) -> Result<(), Misfit> {
        // Taken out, so that half a change is not kept.
        let mut document = std::mem::take(self).document.ok_or_else(|| "it was never told whole".to_owned())?;
        edit(Arc::make_mut(&mut document))?;
        // Many short changes make a long answer.
        let bytes = document.bytes();
        if bytes > MAX_ANSWER_BYTES {
            return Err(Misfit::TooLong);
        }
        *self = Self { document: Some(document), bytes };
        Ok(())
    }
}
