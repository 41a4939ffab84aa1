//! Holes: ranges of a sparse file that take no disk space and read as zeros.
//!
//! Whole blocks of zeros written to a new file become holes, so that a sparse file stays sparse over any protocol.
//! Reads of a sparse file skip its holes, so that they do not fill the page cache.

use std::{fs::File, iter};

use rustix::{
    fs::{self, SeekFrom},
    io::{self, Errno},
};

use crate::positional::{self, write_all};

/// Aligned blocks of zeros of this size in bytes become holes. File systems allocate 4 to 64 KiB at a time; smaller
/// blocks would split data into many small writes.
const BLOCK_BYTES: usize = 16 << 10;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Writes `data` to a file that is not extended concurrently; zeros where nothing was written before become holes.
pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let mut at = offset;
    for (is_zeros, run) in runs(offset, data) {
        let end = at + run.len() as u64;
        match is_zeros {
            true => write_zeros(file, at, run)?,
            false => write_all(file, at, run)?,
        }
        at = end;
    }
    Ok(())
}

/// Splits `data` at `offset` of a file into runs of all-zero blocks and runs of other blocks.
fn runs(offset: u64, data: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let (mut at, mut rest) = (offset, data);
    iter::from_fn(move || {
        let mut length = first_block(at, rest)?.len();
        let is_run_of_zeros = is_zeros(first_block(at, rest)?);
        while let Some(block) = first_block(at + length as u64, rest.get(length..)?)
            && is_zeros(block) == is_run_of_zeros
        {
            length += block.len();
        }
        let (run, behind) = rest.split_at(length);
        (at, rest) = (at + length as u64, behind);
        Some((is_run_of_zeros, run))
    })
}

/// Returns the part of `data` within the block that contains `at`; `None` if there are no data.
fn first_block(at: u64, data: &[u8]) -> Option<&[u8]> {
    let length = BLOCK_BYTES - (at % BLOCK_BYTES as u64) as usize;
    data.get(..length.min(data.len())).filter(|block| !block.is_empty())
}

/// Returns whether a block is all zeros. Stops at the first other byte.
fn is_zeros(block: &[u8]) -> bool {
    ZEROS.get(..block.len()) == Some(block)
}

/// Writes `zeros` over existing data, and extends the file to their end.
fn write_zeros(file: &File, offset: u64, zeros: &[u8]) -> io::Result<()> {
    let size = u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0);
    let end = offset + zeros.len() as u64;
    let mut at = offset;
    while let Some((start, data_end)) = next_data(file, at, size.min(end))? {
        // Both are after `offset` and within the zeros.
        write_all(file, start, zeros.get(..(data_end - start) as usize).unwrap_or_default())?;
        at = data_end;
    }
    if size < end {
        fs::ftruncate(file, end)?;
    }
    Ok(())
}

/// Returns the next data range at or after `offset`, up to `size`. A file system without holes reports everything as
/// data.
pub(super) fn next_data(file: &File, offset: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if offset >= size {
        return Ok(None);
    }
    match fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) if start >= size => Ok(None),
        Ok(start) => Ok(Some((start, fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size)))),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((offset, size))),
        Err(errno) => Err(errno),
    }
}

/// Like [`positional::append`], but holes are not read from a sparse file.
pub(super) fn append(file: &File, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let before = buffer.len();
    let size = u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0);
    let end = size.min(offset.saturating_add(length as u64));
    buffer.reserve_exact(length);
    let mut at = offset;
    while at < end {
        let (start, data_end) = next_data(file, at, end)?.unwrap_or((end, end));
        // Both are at most `length` bytes after `offset`.
        buffer.resize(buffer.len() + (start - at) as usize, 0);
        let wanted = (data_end - start) as usize;
        if positional::append(file, start, wanted, buffer)? < wanted {
            break;
        }
        at = data_end;
    }
    Ok(buffer.len() - before)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// Returns the lengths of the runs of `data` at `offset`.
    fn cut(offset: u64, data: &[u8]) -> Vec<(bool, usize)> {
        runs(offset, data).map(|(is_zeros, run)| (is_zeros, run.len())).collect()
    }

    #[test]
    fn data_are_cut_where_blocks_of_zeros_begin_and_end() {
        let mut data = vec![0; 4 * BLOCK_BYTES];
        assert_eq!(cut(0, &data), [(true, 4 * BLOCK_BYTES)]);
        data[BLOCK_BYTES] = 1;
        assert_eq!(cut(0, &data), [(true, BLOCK_BYTES), (false, BLOCK_BYTES), (true, 2 * BLOCK_BYTES)]);
        assert_eq!(cut(BLOCK - 1, &data), [(true, 1), (false, BLOCK_BYTES), (true, 3 * BLOCK_BYTES - 1)]);
        assert_eq!(cut(5, &[]), []);
        assert_eq!(cut(5, b"\0a"), [(false, 2)]);
    }

    #[test]
    fn zeros_replace_what_was_written_and_leave_holes_elsewhere() {
        let file = tempfile::tempfile().unwrap();
        let far = 64 * BLOCK;
        write(&file, far, &[7; BLOCK_BYTES]).unwrap();
        write(&file, 0, &vec![0; far as usize + BLOCK_BYTES / 2]).unwrap();
        write(&file, far + BLOCK, &[0; 10]).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), far + BLOCK + 10);
        assert!(metadata.blocks() * 512 <= 2 * BLOCK, "{} blocks", metadata.blocks());
        let mut found = vec![1; metadata.len() as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        let mut expected = vec![0; metadata.len() as usize];
        expected[far as usize + BLOCK_BYTES / 2..far as usize + BLOCK_BYTES].fill(7);
        assert!(found == expected);
        let mut by_parts = b"before".to_vec();
        assert_eq!(append(&file, 5, found.len(), &mut by_parts).unwrap(), found.len() - 5);
        assert!(by_parts[6..] == found[5..]);
    }
}
