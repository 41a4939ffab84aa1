//! Vector reads from memory: ranges that follow each other closely are read together.
//!
//! A system call costs as much as copying some KiB out of the page cache. Ranges that follow each other closely in the
//! file therefore form a *run*: one call reads it, gaps included, and its parts are copied to their buffers. Ranges
//! keep their order, because fast clients send them in file order.

use crate::{ReadBuffer, Result};

/// Maximum gap between two ranges of a run, in bytes. A system call costs about as much as copying 4 KiB from the page
/// cache (measured, ext4 and tmpfs), and a disk reads whole pages of 4 KiB anyway.
pub(crate) const GAP_BYTES: u64 = 4096;

/// Maximum length of a run in bytes: it must fit into the CPU's second-level cache, from which it is copied again.
const RUN_BYTES: u64 = 64 << 10;

/// Fills `buffers` in order. `read` fills a buffer with the data at an offset, completely; `None` if that would block.
/// It may be called for bytes between two ranges; if it cannot read those, the ranges are read one by one.
///
/// Returns `None` if reading one of the ranges would block.
///
/// # Errors
/// The first error of `read`.
pub fn fill(
    buffers: &mut [ReadBuffer<'_>],
    mut read: impl FnMut(u64, &mut [u8]) -> Option<Result<()>>,
) -> Option<Result<()>> {
    let mut scratch = Vec::new();
    let mut rest = buffers;
    while let Some((count, length)) = next_run(rest) {
        let run = rest.split_off_mut(..count)?;
        if count > 1 && fill_run(run, length, &mut scratch, &mut read).is_some() {
            continue;
        }
        for range in run {
            if let Err(error) = read(range.offset, range.buffer)? {
                return Some(Err(error));
            }
        }
    }
    Some(Ok(()))
}

/// Returns the number of `buffers` in the first run, and its length in bytes; `None` if there are no buffers.
fn next_run(buffers: &[ReadBuffer<'_>]) -> Option<(usize, usize)> {
    let (first, others) = buffers.split_first()?;
    let mut end = first.end();
    let near = others.iter().take_while(|range| {
        let joined = end.max(range.end());
        let joins = range.offset >= first.offset
            && range.offset <= end.saturating_add(GAP_BYTES)
            && joined - first.offset <= RUN_BYTES;
        if joins {
            end = joined;
        }
        joins
    });
    let count = 1 + near.count();
    Some((count, usize::try_from(end - first.offset).unwrap_or(usize::MAX)))
}

/// Reads the run of `length` bytes that contains `buffers`, and copies its parts; `None` if it cannot be read.
fn fill_run(
    buffers: &mut [ReadBuffer<'_>],
    length: usize,
    scratch: &mut Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Option<Result<()>>,
) -> Option<()> {
    let start = buffers.first()?.offset;
    if scratch.len() < length {
        scratch.resize(RUN_BYTES as usize, 0);
    }
    let run = scratch.get_mut(..length)?;
    read(start, run)?.ok()?;
    for range in buffers {
        let at = (range.offset - start) as usize;
        range.buffer.copy_from_slice(run.get(at..at + range.buffer.len())?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first run of buffers with these offsets and lengths.
    fn run(ranges: &[(u64, usize)]) -> Option<(usize, usize)> {
        let mut memory = vec![0; ranges.iter().map(|(_, length)| length).sum()];
        let mut rest = &mut memory[..];
        let buffers: Vec<_> = ranges
            .iter()
            .map(|&(offset, length)| ReadBuffer { offset, buffer: rest.split_off_mut(..length).unwrap() })
            .collect();
        next_run(&buffers)
    }

    #[test]
    fn near_buffers_are_one_run() {
        assert_eq!(run(&[]), None);
        assert_eq!(run(&[(7, 5)]), Some((1, 5)));
        assert_eq!(run(&[(0, 10), (10, 10), (20 + GAP_BYTES, 10)]), Some((3, 30 + GAP_BYTES as usize)));
        assert_eq!(run(&[(0, 10), (11 + GAP_BYTES, 10)]), Some((1, 10)), "the gap is too long");
        assert_eq!(run(&[(0, 100), (10, 10), (5, 200)]), Some((3, 205)), "they may overlap");
        assert_eq!(run(&[(10, 10), (0, 10)]), Some((1, 10)), "a run does not go back");
        assert_eq!(run(&[(0, 60_000), (60_000, 10_000)]), Some((1, 60_000)), "it would be too long");
        assert_eq!(run(&[(0, 200_000), (10, 10)]), Some((1, 200_000)), "a long place stands alone");
    }

    #[test]
    fn a_gap_that_is_not_in_memory_does_not_hide_its_neighbours() {
        let content: Vec<u8> = (0..100).collect();
        let (mut first, mut second) = ([0; 10], [0; 10]);
        let mut buffers =
            [ReadBuffer { offset: 0, buffer: &mut first }, ReadBuffer { offset: 20, buffer: &mut second }];
        let read = |offset: u64, buffer: &mut [u8]| {
            let range = offset as usize..offset as usize + buffer.len();
            let has_gap = range.contains(&15);
            buffer.copy_from_slice(&content[range]);
            (!has_gap).then_some(Ok(()))
        };
        assert!(matches!(fill(&mut buffers, read), Some(Ok(()))));
        assert_eq!((&first[..], &second[..]), (&content[..10], &content[20..30]));
    }
}
