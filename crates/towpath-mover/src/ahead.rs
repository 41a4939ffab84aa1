//! What is still to be moved, as far as it is known: for whoever watches, and for the tuner, which tries nothing out that takes longer than the rest.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::Observer;

/// What a mover has before it.
#[derive(Debug)]
pub(crate) struct Ahead {
    observer: Arc<dyn Observer>,
    /// Bytes of files that have begun.
    bytes: AtomicU64,
    /// Bytes that have been written.
    moved: AtomicU64,
    /// Lists of jobs that have not come to their end.
    lists: AtomicUsize,
}

/// A file that has begun. What it has not moved when it is dropped is no longer ahead.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    ahead: &'a Ahead,
    left: AtomicU64,
}

/// A list of jobs of which more may come, until it is dropped.
#[derive(Debug)]
pub(crate) struct List(Arc<Ahead>);

impl Ahead {
    /// Nothing yet.
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { observer, bytes: AtomicU64::new(0), moved: AtomicU64::new(0), lists: AtomicUsize::new(0) })
    }

    /// A file of `size` bytes begins.
    pub(crate) fn begin(&self, size: u64) -> Begun<'_> {
        self.observer.expect(size);
        self.bytes.fetch_add(size, Relaxed);
        Begun { ahead: self, left: AtomicU64::new(size) }
    }

    /// A list of jobs begins.
    pub(crate) fn list(self: &Arc<Self>) -> List {
        self.lists.fetch_add(1, Relaxed);
        List(Arc::clone(self))
    }

    /// Bytes that have been written.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// Bytes that are ahead; none as long as nobody can know.
    pub(crate) fn bytes(&self) -> Option<u64> {
        (self.lists.load(Relaxed) == 0).then(|| self.bytes.load(Relaxed))
    }
}

impl Begun<'_> {
    /// `bytes` of it have been written.
    pub(crate) fn moved(&self, bytes: u64) {
        self.ahead.observer.moved(bytes);
        self.ahead.moved.fetch_add(bytes, Relaxed);
        self.ahead.bytes.fetch_sub(bytes, Relaxed);
        self.left.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.ahead.bytes.fetch_sub(self.left.load(Relaxed), Relaxed);
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.0.lists.fetch_sub(1, Relaxed);
    }
}
