//! Vector reads from the page cache: many ranges filled on the calling thread.
//!
//! A system call costs as much as copying some KiB out of the page cache. Ranges that follow each other closely in the
//! file therefore form a *run*: one call reads it, gaps included, and its parts are copied to their buffers. Ranges
//! keep their order, because fast clients send them in file order. The version is compared once, after the last read.

use super::{errno::ErrnoContext as _, read::LocalFile, vector::GAP_BYTES};
use crate::{Error, Fault, ReadBuffer, Result, positional::read_without_waiting};

/// Maximum number of bytes copied on a network thread, excluding gaps. 170 ranges of 1.5 KiB scattered over 2 GiB take
/// about 300 µs.
const READ_NOW_BYTES: usize = 256 << 10;

/// Maximum length of a run in bytes: it must fit into the CPU's second-level cache, from which it is copied again.
const RUN_BYTES: u64 = 64 << 10;

/// Fills `buffers` with cached data of `file`; `None` if not all are cached.
pub(super) fn fill_now(file: &LocalFile, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
    if buffers.iter().map(|range| range.buffer.len()).sum::<usize>() > READ_NOW_BYTES {
        return None;
    }
    let outcome = fill(file, buffers)?.and_then(|()| file.view.check(&file.file));
    Some(outcome.map_err(|error| error.at(&file.path)))
}

fn fill(file: &LocalFile, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
    let size = match file.view.size(&file.file) {
        Ok(size) => size,
        Err(error) => return Some(Err(error)),
    };
    if buffers.iter().any(|range| range.end() > size) {
        return Some(Err(Error::new(Fault::InvalidArgument, "the range passes the end of the file")));
    }
    let mut scratch = Vec::new();
    let mut rest = buffers;
    while let Some((count, length)) = next_run(rest) {
        let filled = match rest.split_off_mut(..count)? {
            [range] => fill_whole(file, range.offset, range.buffer),
            run => fill_run(file, run, length, &mut scratch),
        };
        if let Err(error) = filled? {
            return Some(Err(error));
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

/// Reads the run of `length` bytes that contains `buffers`, and copies its parts.
fn fill_run(
    file: &LocalFile,
    buffers: &mut [ReadBuffer<'_>],
    length: usize,
    scratch: &mut Vec<u8>,
) -> Option<Result<()>> {
    let start = buffers.first()?.offset;
    if scratch.len() < length {
        scratch.resize(RUN_BYTES as usize, 0);
    }
    let run = scratch.get_mut(..length)?;
    if let Err(error) = fill_whole(file, start, run)? {
        return Some(Err(error));
    }
    for range in buffers {
        let at = (range.offset - start) as usize;
        range.buffer.copy_from_slice(run.get(at..at + range.buffer.len())?);
    }
    Some(Ok(()))
}

/// Fills `buffer` completely; `None` if some of the data are not cached or were truncated.
fn fill_whole(file: &LocalFile, offset: u64, buffer: &mut [u8]) -> Option<Result<()>> {
    let whole = buffer.len();
    let read = read_without_waiting(&file.file, file.in_memory, offset, buffer).transpose()?.context("reading");
    match read {
        Ok(got) if got < whole => None,
        read => Some(read.map(drop)),
    }
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
}
