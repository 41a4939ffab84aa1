//! The checksums of an upload, combined from those of its pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use towpath_proto::checksum::{Algorithms, CombineError, Digests, Extent, ExtentDigests, Holes};

use super::sequential_hasher::{ReorderMemory, SequentialHasher};

/// The checksums of the data written so far.
#[derive(Debug)]
pub(super) struct UploadDigests {
    extents: ExtentDigests,
    sequential_hasher: Option<SequentialHasher>,
}

impl UploadDigests {
    /// Creates checksums of no data, for `wanted` and the algorithms that the store always keeps.
    pub(super) fn new(wanted: Algorithms, room: &ReorderMemory) -> Self {
        let sequential: Algorithms = wanted.iter().filter(|algorithm| !algorithm.is_combinable()).collect();
        Self {
            extents: ExtentDigests::new(wanted.union(Algorithms::DEFAULT)),
            sequential_hasher: (!sequential.is_empty()).then(|| SequentialHasher::new(sequential, room)),
        }
    }

    /// Adds extents that are stored already. Algorithms that need the bytes in order cannot use them.
    pub(super) fn found(&mut self, parts: &[Extent]) {
        parts.iter().for_each(|part| self.extents.insert(*part));
        self.sequential_hasher = self.sequential_hasher.take().filter(|_| parts.is_empty());
    }

    /// Adds a piece and returns its checksums. They are computed without the lock, so that pieces are processed in
    /// parallel.
    pub(super) fn add(upload_digests: &Mutex<Self>, offset: u64, data: &Bytes) -> Option<Extent> {
        let algorithms = lock(upload_digests).extents.algorithms();
        let extent = Extent::of(algorithms, offset, data);
        let mut upload_digests = lock(upload_digests);
        if let Some(extent) = extent {
            upload_digests.extents.insert(extent);
        }
        upload_digests.sequential_hasher = upload_digests
            .sequential_hasher
            .take()
            .and_then(|mut sequential_hasher| sequential_hasher.add(offset, data).ok().map(|()| sequential_hasher));
        extent
    }

    /// Adjusts to a truncation or extension to `size`: checksums of truncated data are invalid.
    pub(super) fn truncate(&mut self, size: u64) {
        // Each may cover bytes that the other has given up.
        let ends =
            self.extents.extents().map(Extent::end).chain(self.sequential_hasher.as_ref().map(SequentialHasher::end));
        if ends.max().is_some_and(|end| end > size) {
            self.give_up(size);
        }
    }

    /// Marks the content from `offset` on as unknown.
    pub(super) fn give_up(&mut self, offset: u64) {
        self.extents.give_up(CombineError::Rewritten { offset });
        self.sequential_hasher = None;
    }

    /// Returns the known digests of the file of `size` bytes; ranges that were never written count as zeros.
    pub(super) fn finish(&mut self, size: u64) -> Digests {
        let mut digests = self.extents.finish(size, Holes::AreZeros).unwrap_or_default();
        let sequential_hasher = self
            .sequential_hasher
            .take()
            .and_then(|sequential_hasher| sequential_hasher.finish(size))
            .unwrap_or_default();
        sequential_hasher.iter().for_each(|digest| digests.insert(*digest));
        digests
    }

    /// Returns the checksums of the written parts, joined.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.extents.extents().copied().collect()
    }
}

fn lock(upload_digests: &Mutex<UploadDigests>) -> MutexGuard<'_, UploadDigests> {
    upload_digests.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::{Algorithm, DEFAULT_EXTENT_LIMIT};

    use super::*;

    #[test]
    fn bytes_that_were_cut_off_are_in_no_digest() {
        let upload_digests =
            Mutex::new(UploadDigests::new(Algorithms::of(&[Algorithm::Md5]), &ReorderMemory::default()));
        // Too many separate extents for the combinable checksums; later writes fill the gaps.
        let pairs = DEFAULT_EXTENT_LIMIT as u64 + 1;
        let offsets = (0..pairs).map(|pair| 2 * pair + 1).chain((0..pairs).map(|pair| 2 * pair));
        offsets.for_each(|offset| {
            UploadDigests::add(&upload_digests, offset, &Bytes::from_static(b"x"));
        });
        let mut upload_digests = lock(&upload_digests);
        upload_digests.truncate(2 * pairs);
        assert!(upload_digests.sequential_hasher.is_some(), "nothing is cut off");
        upload_digests.truncate(1);
        upload_digests.truncate(2 * pairs);
        assert!(upload_digests.finish(2 * pairs).is_empty());
    }
}
