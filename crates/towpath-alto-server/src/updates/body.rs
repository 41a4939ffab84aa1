//! Content bytes of responses and changes, with accounting.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Content to send. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct Body(Arc<CountedBytes>);

#[derive(Debug)]
struct CountedBytes {
    bytes: Box<[u8]>,
    byte_counter: ByteCounter,
}

/// Counts the bytes of the bodies it created, each until its last clone is dropped. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteCounter(Arc<AtomicUsize>);

impl ByteCounter {
    /// Creates a body that is counted.
    pub(super) fn body(&self, bytes: Vec<u8>) -> Body {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Body(Arc::new(CountedBytes { bytes: bytes.into(), byte_counter: self.clone() }))
    }

    /// Returns the current number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.byte_counter.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// For short bodies, which are not counted.
impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        ByteCounter::default().body(bytes)
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Body {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_nobody_has_them() {
        let byte_counter = ByteCounter::default();
        let (one, other) = (byte_counter.body(vec![0; 7]), byte_counter.body(vec![0; 100]));
        let copy = one.clone();
        assert_eq!(byte_counter.bytes(), 107);
        drop((one, other));
        assert_eq!(byte_counter.bytes(), 7);
        drop(copy);
        assert_eq!(byte_counter.bytes(), 0);
    }
}
