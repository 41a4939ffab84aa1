//! The response to `readv`.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::xrootd::wire::Reader;
use crate::xrootd::{DecodeError, VectorElement};

/// Some bytes of one element of a `readv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadvChunk {
    /// The element: its handle, offset and length, as in the response.
    pub element: VectorElement,
    /// Start of `data` within the element, in bytes.
    pub position: u32,
    /// The bytes; fewer than the element's if it was split between responses.
    pub data: Bytes,
}

impl ReadvChunk {
    /// Returns whether this is the last piece of its element.
    #[must_use]
    pub fn completes_element(&self) -> bool {
        u64::from(self.position).saturating_add(self.data.len() as u64) >= u64::from(self.element.length)
    }
}

/// Parses the response to `readv`: the caller pushes bodies, split at any byte, and pops pieces of elements, which
/// share the memory of the pushed bytes.
///
/// The parser does not compare the elements with the request; it buffers at most the pushed bytes.
#[derive(Debug, Default)]
pub struct ReadvParser {
    /// An incomplete element header.
    partial: BytesMut,
    /// The current element, and the number of its bytes that have arrived.
    current: Option<(VectorElement, u32)>,
    pushed: VecDeque<Bytes>,
}

impl ReadvParser {
    /// Adds bytes of the response.
    pub fn push(&mut self, body: Bytes) {
        if !body.is_empty() {
            self.pushed.push_back(body);
        }
    }

    /// Returns the next piece, or `None` if more bytes are needed. An element of length 0 yields one empty piece.
    ///
    /// # Errors
    /// [`DecodeError`] if an element has a negative length or offset.
    pub fn pop(&mut self) -> Result<Option<ReadvChunk>, DecodeError> {
        let (element, position) = match self.current {
            Some(current) => current,
            None => match self.next_element()? {
                Some(element) => (element, 0),
                None => return Ok(None),
            },
        };
        let left = element.length.saturating_sub(position);
        let data = self.take(left as usize);
        let came = u32::try_from(data.len()).unwrap_or(left);
        self.current = (came < left).then_some((element, position.saturating_add(came)));
        if came == 0 && left > 0 {
            return Ok(None);
        }
        Ok(Some(ReadvChunk { element, position, data }))
    }

    /// Returns whether the response ended between two elements.
    #[must_use]
    pub fn is_between_elements(&self) -> bool {
        self.partial.is_empty() && self.current.is_none() && self.pushed.is_empty()
    }

    /// Takes at most `wanted` bytes from the first buffer.
    fn take(&mut self, wanted: usize) -> Bytes {
        let Some(first) = self.pushed.front_mut() else {
            return Bytes::new();
        };
        let data = first.split_to(wanted.min(first.len()));
        if !first.has_remaining() {
            self.pushed.pop_front();
        }
        data
    }

    fn next_element(&mut self) -> Result<Option<VectorElement>, DecodeError> {
        while self.partial.len() < VectorElement::LEN {
            let part = self.take(VectorElement::LEN.saturating_sub(self.partial.len()));
            if part.is_empty() {
                return Ok(None);
            }
            self.partial.put_slice(&part);
        }
        let header = self.partial.split().freeze();
        VectorElement::read(&mut Reader::new(header)).map(Some)
    }
}
