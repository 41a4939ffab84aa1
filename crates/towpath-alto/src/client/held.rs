//! An answer that is followed, as it was told last.

use std::sync::Arc;

use super::{MAX_ANSWER_BYTES, document::Document};
use crate::patch::Change;

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
    /// Why the change does not fit.
    pub(super) fn change(&mut self, part: Option<&str>, change: &Change) -> Result<(), String> {
        self.edit(|document| document.change(part, change))
    }

    /// Puts something else into a part; forgets what that does not fit.
    ///
    /// # Errors
    /// Why it does not fit.
    pub(super) fn replace_part(&mut self, part: &str, content: serde_json::Value) -> Result<(), String> {
        self.edit(|document| document.replace(part, content))
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Document) -> Result<(), String>) -> Result<(), String> {
        // Taken out, so that half a change is not kept.
        let mut document = std::mem::take(self).document.ok_or("it was never told whole")?;
        edit(Arc::make_mut(&mut document))?;
        // Many short changes make a long answer.
        let bytes = document.bytes();
        if bytes > MAX_ANSWER_BYTES {
            return Err(format!("it would have more than {MAX_ANSWER_BYTES} bytes"));
        }
        *self = Self { document: Some(document), bytes };
        Ok(())
    }
}
