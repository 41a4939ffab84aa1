//! Uploads in pieces: `PUT` with `Content-Range`, so that an interrupted upload goes on where it stopped.
//!
//! | request | answer |
//! | --- | --- |
//! | `PUT`, `Content-Range: bytes 0-99/300`, the bytes | 308, `Range: bytes=0-99`: stored, more is missing |
//! | `PUT`, `Content-Range: bytes */300`, no body | 308, `Range: bytes=0-99`: what is there; no `Range` if nothing is |
//! | `PUT`, `Content-Range: bytes 100-299/300`, the bytes | 201 or 204: the file is whole, verified and visible |
//!
//! Pieces may come in any order and at once if the store can write so. What arrived of a piece that broke off counts. `Digest`,
//! `Repr-Digest` and `OC-Checksum` are of the whole file and may come with any piece; `Content-Digest` and `Content-MD5` are of the
//! piece. An upload belongs to the one who sends it, its path and its size; it is given up when nothing comes for
//! [`IDLE`], and when the server stops. At most [`UPLOADS`] are open at once.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_proto::checksum::Digests;
use towpath_store::{
    Caller, Error, Fault, Result, StorePath, WriteHandle,
    sys::clock::{self, Instant},
};

/// How long an upload waits for its next piece.
const IDLE: Duration = Duration::from_secs(900);

/// Uploads that may be open at once: each holds a descriptor.
const UPLOADS: usize = 1024;

/// Pieces with gaps between them that one upload may have.
const EXTENTS: usize = 1024;

/// Whose upload it is, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    issuer: Option<Arc<str>>,
    subject: Option<Arc<str>>,
    path: StorePath,
    size: u64,
}

impl Key {
    /// The key of an upload of `size` bytes by `caller`.
    pub(super) fn new(caller: &Caller, path: &StorePath, size: u64) -> Self {
        Self { issuer: caller.issuer.clone(), subject: caller.subject.clone(), path: path.clone(), size }
    }
}

/// All uploads in pieces.
#[derive(Debug, Default, Clone)]
pub(super) struct Uploads(Arc<Mutex<HashMap<Key, Arc<Upload>>>>);

/// One upload.
#[derive(Debug)]
pub(super) struct Upload {
    /// Where its bytes go.
    pub(super) handle: Arc<dyn WriteHandle>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What has been written: sorted, none empty, no two touching.
    extents: Vec<Range<u64>>,
    promised: Digests,
    touched: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploads {
    /// The upload of that key, if it is open.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Upload>> {
        lock(&self.0).get(key).map(Arc::clone)
    }

    /// Opens the upload of that key with a new `handle`; if another request was faster, its upload, and `handle` is dropped.
    ///
    /// # Errors
    /// `Overloaded` if too many are open.
    pub(super) fn open(&self, key: Key, handle: Arc<dyn WriteHandle>) -> Result<Arc<Upload>> {
        let mut uploads = lock(&self.0);
        if uploads.len() >= UPLOADS && !uploads.contains_key(&key) {
            return Err(Error::new(Fault::Overloaded, "too many uploads in pieces are open"));
        }
        match uploads.entry(key.clone()) {
            Entry::Occupied(open) => Ok(Arc::clone(open.get())),
            Entry::Vacant(place) => {
                let state = State { extents: Vec::new(), promised: Digests::new(), touched: clock::now() };
                let upload = Arc::clone(place.insert(Arc::new(Upload { handle, state: Mutex::new(state) })));
                tokio::spawn(self.clone().give_up_when_idle(key));
                Ok(upload)
            }
        }
    }

    /// Takes the upload out; none if another request did so before.
    pub(super) fn close(&self, key: &Key) -> Option<Arc<Upload>> {
        lock(&self.0).remove(key)
    }

    async fn give_up_when_idle(self, key: Key) {
        loop {
            let Some(upload) = self.get(&key) else { return };
            let idle_at = lock(&upload.state).touched + IDLE;
            if idle_at <= clock::now() {
                self.close(&key);
                return;
            }
            drop(upload);
            tokio::time::sleep_until(idle_at).await;
        }
    }
}

impl Upload {
    /// Digests that the whole file must have.
    pub(super) fn promise(&self, digests: &Digests) {
        let mut state = lock(&self.state);
        digests.iter().for_each(|digest| state.promised.insert(*digest));
    }

    /// All that was promised so far.
    pub(super) fn promised(&self) -> Digests {
        lock(&self.state).promised.clone()
    }

    /// A piece has been written.
    ///
    /// # Errors
    /// `InvalidArgument` if that leaves more gaps than are kept.
    pub(super) fn wrote(&self, piece: Range<u64>) -> Result<()> {
        let mut state = lock(&self.state);
        state.touched = clock::now();
        insert(&mut state.extents, piece);
        if state.extents.len() > EXTENTS {
            return Err(Error::new(Fault::InvalidArgument, "the pieces of the upload leave too many gaps"));
        }
        Ok(())
    }

    /// What has been written.
    pub(super) fn extents(&self) -> Vec<Range<u64>> {
        lock(&self.state).extents.clone()
    }

    /// Whether all of `size` bytes have been written.
    pub(super) fn is_whole(&self, size: u64) -> bool {
        let state = lock(&self.state);
        size == 0 || state.extents.first() == Some(&(0..size))
    }

    /// Where the next piece must begin if the store writes only from the start on.
    pub(super) fn end_of_first(&self) -> u64 {
        lock(&self.state).extents.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }
}

/// Adds a range to sorted ones, and joins those that touch.
fn insert(extents: &mut Vec<Range<u64>>, mut piece: Range<u64>) {
    if piece.is_empty() {
        return;
    }
    extents.retain(|known| {
        let touches = known.start <= piece.end && piece.start <= known.end;
        if touches {
            piece = piece.start.min(known.start)..piece.end.max(known.end);
        }
        !touches
    });
    let place = extents.partition_point(|known| known.start < piece.start);
    extents.insert(place, piece);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extents_are_what_a_map_of_bytes_says(pieces in proptest::collection::vec((0..40u64, 0..10u64), 0..20)) {
            let (mut extents, mut map) = (Vec::new(), [false; 64]);
            for (start, length) in pieces {
                insert(&mut extents, start..start + length);
                map[start as usize..(start + length) as usize].fill(true);
                prop_assert!(extents.is_sorted_by(|a: &Range<u64>, b| a.end < b.start), "{extents:?}");
            }
            for (at, there) in map.iter().enumerate() {
                prop_assert_eq!(extents.iter().any(|range| range.contains(&(at as u64))), *there);
            }
        }
    }
}
