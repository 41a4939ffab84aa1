//! Vector reads of a local file: many ranges, few system calls, little memory.
//!
//! Ranges are sorted; neighbours join into *runs*, each read by one call into one shared buffer, gaps included, and
//! the results are slices of that buffer. Runs form *batches* that bound the memory; at most [`BATCHES_AT_ONCE`] are
//! in flight, independently of the number of ranges.
//!
//! A batch first copies cached pages (`RWF_NOWAIT`; for a small batch on the calling thread), then announces all
//! missing ranges to the kernel so that the disk works on them concurrently, then reads them.

use std::{fs::File, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use rustix::fs::{self, Advice};

use super::{errno, read::LocalFile};
use crate::{
    ByteRange, Error, Fault, Result, VectorReads,
    near_ranges::GAP_BYTES,
    positional::{fill, read_without_waiting},
};

/// Maximum length of a run made of several ranges; a longer single range is a run of its own.
const RUN_BYTES: usize = 1 << 20;

/// Maximum memory of a batch in bytes, unless a single range is longer.
pub(super) const BATCH_BYTES: usize = 8 << 20;

/// Maximum number of ranges in one vector: XRootD's limit. More would keep the disk busier, but delay the first
/// result.
pub(super) const RANGES: usize = 1024;

/// Maximum number of batches in flight: one is read while the caller consumes the other.
const BATCHES_AT_ONCE: usize = 2;

/// Maximum cost of a batch that is tried on the calling thread, in bytes; each call counts as [`GAP_BYTES`].
const READ_NOW_BYTES: usize = 64 * 1024;

/// Returns the results of reading `ranges` of `file`, which has `size` bytes.
pub(super) fn read<'a>(file: &'a LocalFile, ranges: &[ByteRange], size: u64) -> VectorReads<'a> {
    let (refused, batches) = plan(ranges, size);
    let refused = refused.into_iter().map(|index| {
        let error = Error::new(Fault::InvalidArgument, "the range passes the end of the file");
        (index, Err(error.at(&file.path)))
    });
    let results = stream::iter(batches).map(|batch| read_batch(file, batch)).buffered(BATCHES_AT_ONCE);
    stream::iter(refused).chain(results.flat_map(stream::iter)).boxed()
}

/// Ranges that are read into one buffer of `bytes` bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Batch {
    bytes: usize,
    runs: Vec<CoalescedRead>,
    pieces: Vec<RequestedRange>,
}

/// One read call: `length` bytes at `offset` of the file, to `position` of the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CoalescedRead {
    offset: u64,
    length: usize,
    position: usize,
}

/// One requested range: its position in the buffer, and the run that reads it.
#[derive(Debug, PartialEq, Eq)]
struct RequestedRange {
    index: usize,
    run: usize,
    position: usize,
    length: usize,
}

/// Divides sorted `ranges` into batches; also returns the indices of ranges beyond the end of a file of `size` bytes.
fn plan(ranges: &[ByteRange], size: u64) -> (Vec<usize>, Vec<Batch>) {
    let fits = |range: &ByteRange| range.offset.checked_add(range.length as u64).is_some_and(|end| end <= size);
    let (mut inside, refused): (Vec<_>, Vec<_>) = ranges.iter().enumerate().partition(|(_, range)| fits(range));
    inside.sort_unstable_by_key(|(_, range)| range.offset);
    let mut batches = Vec::new();
    let mut batch = Batch::default();
    for (index, range) in inside {
        if !batch.join(index, range) {
            if !batch.runs.is_empty() && batch.bytes.saturating_add(range.length) > BATCH_BYTES {
                batches.push(std::mem::take(&mut batch));
            }
            batch.begin(index, range);
        }
    }
    if !batch.runs.is_empty() {
        batches.push(batch);
    }
    (refused.into_iter().map(|(index, _)| index).collect(), batches)
}

impl Batch {
    /// Adds `range`, which starts at or after all previous ones, to the last run if it is close enough.
    fn join(&mut self, index: usize, range: &ByteRange) -> bool {
        let run_index = self.runs.len().wrapping_sub(1);
        let Some(run) = self.runs.last_mut() else { return false };
        let run_end = run.offset + run.length as u64;
        let joined = (range.end().max(run_end) - run.offset) as usize;
        let is_inside = joined == run.length;
        let is_near = range.offset <= run_end.saturating_add(GAP_BYTES) && joined <= RUN_BYTES;
        if !is_inside && !is_near {
            return false;
        }
        self.bytes += joined - run.length;
        run.length = joined;
        let position = run.position + (range.offset - run.offset) as usize;
        self.pieces.push(RequestedRange { index, run: run_index, position, length: range.length });
        true
    }

    /// Starts a new run with `range`.
    fn begin(&mut self, index: usize, range: &ByteRange) {
        let position = self.bytes;
        self.pieces.push(RequestedRange { index, run: self.runs.len(), position, length: range.length });
        self.runs.push(CoalescedRead { offset: range.offset, length: range.length, position });
        self.bytes += range.length;
    }

    /// Returns the cost of copying the batch from the page cache, in bytes.
    fn cost_bytes(&self) -> usize {
        self.bytes.saturating_add(self.runs.len().saturating_mul(GAP_BYTES as usize))
    }
}

async fn read_batch(file: &LocalFile, batch: Batch) -> Vec<(usize, Result<Bytes>)> {
    let batch = Arc::new(batch);
    let outcome = fill_batch(file, Arc::clone(&batch)).await.map_err(|error| error.at(&file.path));
    let results = batch.pieces.iter().map(|piece| {
        let result = outcome.as_ref().map_err(Clone::clone).and_then(|(buffer, runs)| {
            let missing = || Err(Error::new(Fault::Internal, "a range was not read"));
            runs.get(piece.run).cloned().unwrap_or_else(missing).map_err(|error| error.at(&file.path))?;
            Ok(buffer.slice(piece.position..piece.position + piece.length))
        });
        (piece.index, result)
    });
    results.collect()
}

/// Returns the buffer of a batch after reading it, and the result of each run.
async fn fill_batch(file: &LocalFile, batch: Arc<Batch>) -> Result<(Bytes, Vec<Result<usize>>)> {
    let mut reading = BatchRead::new(file, Arc::clone(&batch));
    let is_small = batch.cost_bytes() <= READ_NOW_BYTES;
    if is_small {
        reading.copy_what_is_cached();
    }
    if reading.is_incomplete() {
        reading = file.local.pool.run(move || Ok(reading.complete(!is_small))).await?;
    }
    file.view.check(&file.file)?;
    Ok((reading.buffer.into(), reading.runs))
}

/// A batch that is being read.
struct BatchRead {
    file: Arc<File>,
    in_memory: bool,
    batch: Arc<Batch>,
    buffer: Vec<u8>,
    /// Number of bytes read so far of each run.
    runs: Vec<Result<usize>>,
}

impl BatchRead {
    fn new(file: &LocalFile, batch: Arc<Batch>) -> Self {
        Self {
            file: Arc::clone(&file.file),
            in_memory: file.in_memory,
            buffer: vec![0; batch.bytes],
            runs: vec![Ok(0); batch.runs.len()],
            batch,
        }
    }

    fn is_incomplete(&self) -> bool {
        self.missing().next().is_some()
    }

    /// Returns the incomplete runs that have not failed, with their index and the number of bytes they have.
    fn missing(&self) -> impl Iterator<Item = (usize, &CoalescedRead, usize)> {
        let runs = self.batch.runs.iter().zip(&self.runs).enumerate();
        runs.filter_map(|(index, (run, state))| match state {
            Ok(filled) if *filled < run.length => Some((index, run, *filled)),
            _ => None,
        })
    }

    fn copy_what_is_cached(&mut self) {
        let (file, in_memory) = (Arc::clone(&self.file), self.in_memory);
        self.read_missing(|offset, buffer| {
            read_without_waiting(&file, in_memory, offset, buffer).map(|got| got.unwrap_or(0))
        });
    }

    /// Reads everything that is missing; may wait for the disk.
    fn complete(mut self, nothing_tried_yet: bool) -> Self {
        if nothing_tried_yet {
            self.copy_what_is_cached();
        }
        for (_, run, filled) in self.missing() {
            let length = std::num::NonZeroU64::new((run.length - filled) as u64);
            // Only advice: the following read gets the data in any case.
            let _ = fs::fadvise(&self.file, run.offset + filled as u64, length, Advice::WillNeed);
        }
        let file = Arc::clone(&self.file);
        self.read_missing(|offset, buffer| fill(&file, offset, buffer));
        self.fail_missing();
        self
    }

    fn read_missing(&mut self, read: impl Fn(u64, &mut [u8]) -> rustix::io::Result<usize>) {
        let batch = Arc::clone(&self.batch);
        for (run, state) in batch.runs.iter().zip(&mut self.runs) {
            let Ok(filled) = *state else { continue };
            let place = self.buffer.get_mut(run.position + filled..run.position + run.length).unwrap_or_default();
            if !place.is_empty() {
                *state = read(run.offset + filled as u64, place)
                    .map(|got| filled + got)
                    .map_err(|errno| errno::error(errno, "reading"));
            }
        }
    }

    /// Marks missing data as failed: the file ended before its size. Unless it was changed, which is checked next, the
    /// file system is broken.
    fn fail_missing(&mut self) {
        let missing: Vec<usize> = self.missing().map(|(index, ..)| index).collect();
        for index in missing {
            if let Some(state) = self.runs.get_mut(index) {
                *state = Err(Error::new(Fault::Io, "the file ended before its size"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(offset: u64, length: usize) -> ByteRange {
        ByteRange { offset, length }
    }

    #[test]
    fn near_ranges_join_and_far_ones_do_not() {
        let ranges = [range(100_000, 10), range(0, 10), range(10, 10), range(20 + GAP_BYTES, 5), range(5, 3)];
        let (refused, batches) = plan(&ranges, 200_000);
        assert!(refused.is_empty());
        let [batch] = &batches[..] else { panic!("{batches:?}") };
        let runs: Vec<_> = batch.runs.iter().map(|run| (run.offset, run.length)).collect();
        assert_eq!(runs, [(0, 25 + GAP_BYTES as usize), (100_000, 10)]);
    }

    #[test]
    fn ranges_past_the_end_are_refused_by_index() {
        let ranges = [range(0, 10), range(5, 6), range(u64::MAX, 1), range(10, 0), range(11, 0)];
        let (refused, batches) = plan(&ranges, 10);
        assert_eq!(refused, [1, 2, 4]);
        assert_eq!(batches.iter().map(|batch| batch.pieces.len()).sum::<usize>(), 2);
    }

    proptest! {
        #[test]
        fn every_range_lies_in_its_run_and_batches_are_bounded(
            ranges in proptest::collection::vec((0..100_000_000_u64, 0..3_000_000_usize), 0..200),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(offset, length)| range(offset, length)).collect();
            let (refused, batches) = plan(&ranges, 100_000_000);
            let mut seen: Vec<usize> = refused;
            for batch in &batches {
                let longest = batch.runs.iter().map(|run| run.length).max().unwrap_or(0);
                prop_assert!(batch.bytes <= BATCH_BYTES + RUN_BYTES || batch.bytes == longest);
                prop_assert_eq!(batch.bytes, batch.runs.iter().map(|run| run.length).sum::<usize>());
                for piece in &batch.pieces {
                    let (asked, run) = (&ranges[piece.index], &batch.runs[piece.run]);
                    prop_assert_eq!(piece.length, asked.length);
                    prop_assert_eq!(run.offset + (piece.position - run.position) as u64, asked.offset);
                    prop_assert!(piece.position + piece.length <= run.position + run.length);
                    seen.push(piece.index);
                }
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ranges.len()).collect::<Vec<_>>());
        }
    }
}
