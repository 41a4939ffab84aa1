//! Digests stored with a file as extended attributes in XRootD's layout, and their computation.
//!
//! A stored digest is valid while the file has the recorded modification time: to the nanosecond in towpath's
//! attribute, in whole seconds, and only if it was computed later, in XRootD's. These rules keep it correct:
//! - An upload stores its digests before the file becomes reachable, with a time from the precise clock. The kernel's
//!   clock ticks every few milliseconds, so that a later change could get the same time.
//! - A digest of a file that others can change is stored only if the file had settled before it was read: each later
//!   change then gives it another time.
//! - An update in place removes the digests before its first change, and again when it ends.
//! - Setting the time carries valid digests over and removes invalid ones, which might become valid again.
//! - Digests are written to disk after the data they describe, and removed before those data are replaced.
//!
//! Not covered: another program that resets the time of a file to the nanosecond, or that changes a file more than two
//! seconds after the kernel recorded the change (through a mapping, or in one very long call).

use std::{fs::File, os::fd::AsFd};

use rustix::{
    fs::{self, Advice, XattrFlags},
    io::Errno,
};
use towpath_proto::checksum::{
    Algorithm, Algorithms, Digest, Digests, Hasher,
    xattr::{self, StoredDigest},
};

use super::{
    Local,
    errno::ErrnoContext as _,
    inode::{self, Inode, Stamp},
};
use crate::{Error, Fault, Result, disk_pool::CancellationCheck, positional, sys::clock};

/// Length of one read for a digest in bytes: large enough for negligible overhead per call, small enough to stay in the
/// second-level cache between the kernel's copy and the computation.
const PIECE_BYTES: usize = 256 * 1024;

/// Returns the stored digests that are valid. Unreadable ones count as unknown.
pub(super) fn known<Fd: AsFd>(inode: &Inode<Fd>) -> Digests {
    let Ok(names) = inode.attribute_names(xattr::NAME_PREFIX.as_bytes()) else { return Digests::new() };
    names.iter().filter_map(|name| known_one(inode, name)).collect()
}

fn known_one<Fd: AsFd>(inode: &Inode<Fd>, name: &[u8]) -> Option<Digest> {
    let algorithm = xattr::algorithm_of(std::str::from_utf8(name).ok()?)?;
    let value = inode.attribute(name, xattr::ENCODED_BYTES).ok()?;
    let stored = StoredDigest::decode(algorithm, &value).ok()?;
    stored.is_current(mtime(inode)).then_some(stored.digest)
}

/// Stores `digests` with the file for its current modification time. Failures, such as missing support or space for
/// attributes, are ignored, because a digest can be recomputed.
pub(super) fn keep<Fd: AsFd>(inode: &Inode<Fd>, digests: &Digests) {
    for digest in digests.iter() {
        let stored = StoredDigest::new(*digest, mtime(inode), clock::unix_s());
        let name = xattr::attribute_name(digest.algorithm());
        if let Err(errno) = inode.set_attribute(name.as_bytes(), &stored.encode(), XattrFlags::empty()) {
            tracing::debug!(%name, %errno, "cannot store a digest");
            return;
        }
    }
}

/// Removes all stored digests, because the content is about to change. Unlike in [`keep`], a failure is an error,
/// because a remaining digest would be wrong. Returns whether there were any.
pub(super) fn forget<Fd: AsFd>(inode: &Inode<Fd>) -> Result<bool> {
    forget_all_but(inode, Algorithms::NONE)
}

/// Sets the modification time of the file. Known digests stay valid, unless the file may have been changed
/// concurrently, or may still change without getting another time.
pub(super) fn set_mtime<Fd: AsFd>(inode: &mut Inode<Fd>, mtime_ns: i64) -> Result<()> {
    let known = known(inode);
    let is_unchanged = Stamp::of(inode.status()).check(&*inode).is_ok();
    let known = if is_unchanged { known } else { Digests::new() };
    forget_all_but(inode, known.algorithms())?;
    inode.set_mtime(mtime_ns)?;
    inode.refresh()?;
    if has_settled(inode) {
        keep(inode, &known);
    }
    Ok(())
}

fn forget_all_but<Fd: AsFd>(inode: &Inode<Fd>, spared: Algorithms) -> Result<bool> {
    let mut is_any = false;
    let names = inode.attribute_names(xattr::NAME_PREFIX.as_bytes()).context("listing the stored digests")?;
    let is_spared = |name: &Vec<u8>| {
        let algorithm = std::str::from_utf8(name).ok().and_then(xattr::algorithm_of);
        algorithm.is_some_and(|algorithm| spared.contains(algorithm))
    };
    for name in names.into_iter().filter(|name| !is_spared(name)) {
        match inode.remove_attribute(&name) {
            Ok(()) => is_any = true,
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno).context("removing a stored digest"),
        }
    }
    Ok(is_any)
}

/// Computes a digest by reading the file, which must not change meanwhile, and stores it if the file had settled
/// before.
pub(super) fn compute_and_keep(
    local: &Local,
    file: &File,
    algorithm: Algorithm,
    cancelled: &CancellationCheck,
    progress: impl FnMut(u64),
) -> Result<Digest> {
    let inode = Inode::of(file.as_fd())?;
    let has_settled = has_settled(&inode);
    let digests = compute(file, [algorithm].into_iter().collect(), cancelled, progress)?;
    // The writer need not have synced the file: after a power failure the digest might survive without the data.
    let is_kept = has_settled && local.sync_file(file).is_ok();
    Stamp::of(inode.status()).check(file)?;
    if is_kept {
        keep(&inode, &digests);
    }
    digests.get(algorithm).ok_or_else(|| Error::new(Fault::Internal, "the digest was not computed"))
}

/// Computes digests by reading the file from start to end. `progress` is called after each piece with the total bytes
/// read.
pub(super) fn compute(
    file: &File,
    algorithms: Algorithms,
    cancelled: &CancellationCheck,
    mut progress: impl FnMut(u64),
) -> Result<Digests> {
    // Only advice: without it the kernel reads ahead less.
    let _ = fs::fadvise(file, 0, None, Advice::Sequential);
    let mut hasher = Hasher::new(algorithms);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        cancelled.check()?;
        let length =
            positional::retry(|| rustix::io::pread(file, &mut piece[..], hasher.bytes())).context("reading")?;
        if length == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(piece.get(..length).unwrap_or_default());
        progress(hasher.bytes());
    }
}

fn has_settled<Fd: AsFd>(inode: &Inode<Fd>) -> bool {
    inode::is_settled(inode::mtime_ns(inode.status()))
}

fn mtime<Fd: AsFd>(inode: &Inode<Fd>) -> (i64, u32) {
    let status = inode.status();
    // At most 999,999,999.
    (status.st_mtime, status.st_mtime_nsec as u32)
}
