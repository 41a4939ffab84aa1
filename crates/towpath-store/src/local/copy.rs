//! Copies a file within a local store. The copy is staged like an upload, but its data do not pass through this
//! process.
//!
//! Uses shared blocks (`FICLONE`) if the file system supports them, else `copy_file_range` for the parts that contain
//! data, so that holes are preserved, else reads and writes.

use std::{fs::File, os::fd::AsFd as _, sync::Arc};

use rustix::{
    fs::{self, Mode, XattrFlags},
    io::Errno,
};

use super::{
    Local, attributes, digests,
    errno::ErrnoContext as _,
    holes,
    inode::{self, Inode, Stamp},
    read, root, write,
};
use crate::{Error, Fault, Overwrite, Result, StorePath, disk_pool::CancellationCheck, positional, sys::clock};

/// Bytes to copy between checks for cancellation.
const STEP_BYTES: u64 = 64 << 20;

/// Buffer size if the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 1 << 20;

/// Copies the file at `from` to `to`, with mode, known digests and user attributes.
pub(super) fn copy(
    local: &Arc<Local>,
    from: &StorePath,
    to: &StorePath,
    overwrite: Overwrite,
    cancelled: &CancellationCheck,
) -> Result<()> {
    let source = File::from(local.root.open_at(from, root::READ)?);
    let source_inode = Inode::of(source.as_fd())?;
    inode::expect_regular(source_inode.status())?;
    read::expect_length(&source, &source_inode, root::file_system_of(&source)?)?;
    let stamp = Stamp::of(source_inode.status());
    let parent = write::parent_of(local, to, overwrite)?;
    let staging_file = local.staging.create(&local.root, &parent.directory)?;
    let copy = Arc::clone(staging_file.file());
    copy_data(&source, &copy, stamp.size, cancelled)?;
    let known = digests::known(&source_inode);
    stamp.check(&source)?;
    let mut copy_inode = Inode::of(copy.as_fd())?;
    copy_inode.set_mtime(clock::unix_ns())?;
    copy_inode.refresh()?;
    for attribute in attributes::each(&source_inode)? {
        let (name, value) = attribute?;
        attributes::set(&copy_inode, &name, Some(&value), XattrFlags::empty())?;
    }
    digests::keep(&copy_inode, &known);
    // Last, because some modes prevent setting attributes.
    fs::fchmod(&*copy, Mode::from_raw_mode(source_inode.status().st_mode & 0o7777)).context("setting the mode")?;
    local.publish(&staging_file, &parent, overwrite)
}

fn copy_data(source: &File, copy: &File, size: u64, cancelled: &CancellationCheck) -> Result<()> {
    if fs::ioctl_ficlone(copy, source).is_ok() {
        return Ok(());
    }
    fs::ftruncate(copy, size).context("setting the size")?;
    let mut offset = 0;
    while let Some((start, end)) = holes::next_data(source, offset, size).context("looking for holes")? {
        offset = start;
        while offset < end {
            cancelled.check()?;
            match copy_some(source, copy, offset, (end - offset).min(STEP_BYTES)).context("copying")? {
                0 => return Err(Error::new(Fault::Changed, "the source was truncated during the copy")),
                copied => offset += copied,
            }
        }
    }
    Ok(())
}

fn copy_some(source: &File, copy: &File, offset: u64, length: u64) -> rustix::io::Result<u64> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (mut from, mut to) = (offset, offset);
    match positional::retry(|| fs::copy_file_range(source, Some(&mut from), copy, Some(&mut to), length)) {
        Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let mut buffer = vec![0; length.min(BUFFER_BYTES)];
            let got = positional::fill(source, offset, &mut buffer)?;
            positional::write_all(copy, offset, buffer.get(..got).unwrap_or_default())?;
            Ok(got as u64)
        }
        outcome => outcome.map(|copied| copied as u64),
    }
}
