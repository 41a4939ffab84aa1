//! The checksums of an upload, combined from those of its pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use towpath_proto::checksum::{Algorithms, Digests, Extent, ExtentDigests, Holes, Unknown};

use super::in_order::{EarlyRoom, InOrder};

/// The checksums of the data written so far.
#[derive(Debug)]
pub(super) struct Sums {
    extents: ExtentDigests,
    in_order: Option<InOrder>,
}

impl Sums {
    /// Creates checksums of no data, for `wanted` and the algorithms that the store always keeps.
    pub(super) fn new(wanted: Algorithms, room: &EarlyRoom) -> Self {
        let sequential: Algorithms = wanted.iter().filter(|algorithm| !algorithm.is_combinable()).collect();
        Self {
            extents: ExtentDigests::new(wanted.union(Algorithms::DEFAULT)),
            in_order: (!sequential.is_empty()).then(|| InOrder::new(sequential, room)),
        }
    }

    /// Adds extents that are stored already. Algorithms that need the bytes in order cannot use them.
    pub(super) fn found(&mut self, parts: &[Extent]) {
        parts.iter().for_each(|part| self.extents.insert(*part));
        self.in_order = self.in_order.take().filter(|_| parts.is_empty());
    }

    /// Adds a piece and returns its checksums. They are computed without the lock, so that pieces are processed in
    /// parallel.
    pub(super) fn add(sums: &Mutex<Self>, offset: u64, data: &Bytes) -> Option<Extent> {
        let algorithms = lock(sums).extents.algorithms();
        let extent = Extent::of(algorithms, offset, data);
        let mut sums = lock(sums);
        if let Some(extent) = extent {
            sums.extents.insert(extent);
        }
        sums.in_order =
            sums.in_order.take().and_then(|mut in_order| in_order.add(offset, data).ok().map(|()| in_order));
        extent
    }

    /// Adjusts to a truncation or extension to `size`: checksums of truncated data are invalid.
    pub(super) fn truncate(&mut self, size: u64) {
        // Each may cover bytes that the other has given up.
        let ends = self.extents.extents().map(Extent::end).chain(self.in_order.as_ref().map(InOrder::end));
        if ends.max().is_some_and(|end| end > size) {
            self.give_up(size);
        }
    }

    /// Marks the content from `offset` on as unknown.
    pub(super) fn give_up(&mut self, offset: u64) {
        self.extents.give_up(Unknown::Rewritten { offset });
        self.in_order = None;
    }

    /// Returns the known digests of the file of `size` bytes; ranges that were never written count as zeros.
    pub(super) fn finish(&mut self, size: u64) -> Digests {
        let mut digests = self.extents.finish(size, Holes::AreZeros).unwrap_or_default();
        let in_order = self.in_order.take().and_then(|in_order| in_order.finish(size)).unwrap_or_default();
        in_order.iter().for_each(|digest| digests.insert(*digest));
        digests
    }

    /// Returns the checksums of the written parts, joined.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.extents.extents().copied().collect()
    }
}

fn lock(sums: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::{Algorithm, DEFAULT_EXTENT_LIMIT};

    use super::*;

    #[test]
    fn bytes_that_were_cut_off_are_in_no_digest() {
        let sums = Mutex::new(Sums::new(Algorithms::of(&[Algorithm::Md5]), &EarlyRoom::default()));
        // Too many separate extents for the combinable checksums; later writes fill the gaps.
        let pairs = DEFAULT_EXTENT_LIMIT as u64 + 1;
        let offsets = (0..pairs).map(|pair| 2 * pair + 1).chain((0..pairs).map(|pair| 2 * pair));
        offsets.for_each(|offset| {
            Sums::add(&sums, offset, &Bytes::from_static(b"x"));
        });
        let mut sums = lock(&sums);
        sums.truncate(2 * pairs);
        assert!(sums.in_order.is_some(), "nothing is cut off");
        sums.truncate(1);
        sums.truncate(2 * pairs);
        assert!(sums.finish(2 * pairs).is_empty());
    }
}
