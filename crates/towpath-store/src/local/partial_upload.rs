//! Resuming uploads: data of the previous upload with the same key are read back, and anything that does not match the
//! journal is discarded.
//!
//! [`PartialUpload::find`] finds and locks the staging file of the key and the caller (the part file of other tools);
//! [`PartialUpload::verify`] reads the blocks named by its journal; [`PartialUpload::resume`] truncates and punches
//! the rest of the file, and begins a new journal with the verified extents.

use std::{
    fs::File,
    iter,
    panic::resume_unwind,
    sync::{Mutex, PoisonError},
    thread,
};

use rustix::{
    fs::{self, FallocateFlags},
    io::Errno,
};
use towpath_proto::checksum::{Algorithm, Algorithms, Extent, Hasher};

use super::{
    Local, digests,
    errno::ErrnoContext as _,
    inode::{self, Inode},
    journal::{self, Header, Journal, Record},
    root::Parent,
    staging::StagingFile,
};
use crate::{
    Caller, MAX_PRESENT_EXTENTS, Result, ResumeKey, disk_pool::CancellationCheck, positional,
    sys::processor::processors,
};

/// Length of one read in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes per thread that reads back stored data.
const THREAD_BYTES: u64 = 16 << 20;

/// Maximum number of threads that read back the data of one upload; other copies need the disk too.
const MAX_THREADS: usize = 4;

/// The locked leftovers of a resumable upload, possibly none.
#[derive(Debug)]
pub(super) struct PartialUpload {
    staging_file: StagingFile,
    header: Header,
    records: Vec<Record>,
}

/// A resumable upload that is ready to begin.
#[derive(Debug)]
pub(super) struct ResumedUpload {
    pub(super) journal: Journal,
    pub(super) staging_file: StagingFile,
    /// Extents that are already stored and verified; they may touch.
    pub(super) verified: Vec<Extent>,
}

impl PartialUpload {
    /// Finds the staging file of an upload of `size` bytes to `parent`. `None` where the file system has no locks,
    /// because a running upload could not be detected.
    ///
    /// # Errors
    /// `Overloaded` if that upload is in flight.
    pub(super) fn find(
        local: &Local,
        parent: &Parent<'_>,
        caller: &Caller,
        key: ResumeKey,
        size: u64,
    ) -> Result<Option<Self>> {
        let Some(staging_file) =
            local.staging.open_resumable(&local.root, &parent.directory, key_of_caller(caller, key))?
        else {
            return Ok(None);
        };
        // The limit on leftovers does not apply to uploads of this process itself.
        if caller.issuer.is_some() || caller.address.is_some() {
            staging_file.bound_others()?;
        }
        let header = Header::new(key, size);
        let journal = staging_file.journal().context("opening the journal")?;
        let records = journal.map_or(Ok(Vec::new()), |journal| journal::records(&journal, &header))?;
        Ok(Some(Self { staging_file, header, records }))
    }

    /// Returns whether there are no data to verify.
    pub(super) fn is_nothing(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the disk space that the file already takes in bytes.
    pub(super) fn allocated_bytes(&self) -> Result<u64> {
        Ok(inode::allocated_bytes(Inode::of(&**self.staging_file.file())?.status()))
    }

    /// Returns the blocks that match the journal, with digests by `algorithms`; unreadable ones do not match. Large
    /// files are read by several threads, because the upload cannot begin before. Memory: the records of the journal,
    /// and one piece per thread.
    pub(super) fn verify(&self, algorithms: Algorithms, cancelled: &CancellationCheck) -> Result<Vec<Extent>> {
        let bytes: u64 = self.records.iter().map(|record| u64::from(record.length)).sum();
        let threads =
            usize::try_from(bytes / THREAD_BYTES).unwrap_or(usize::MAX).clamp(1, processors().min(MAX_THREADS));
        // One thread reads each group of overlapping ranges, which are mostly a block and a part of it recorded
        // earlier.
        let ranges = Mutex::new(self.records.chunk_by(|one, next| next.offset < one.end()));
        let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).next();
        let read = || -> Result<Vec<Extent>> {
            let mut verified = Vec::new();
            while let Some(range) = next() {
                self.verify_range(range, algorithms, cancelled, &mut verified)?;
            }
            Ok(verified)
        };
        let parts = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(read)).collect();
            let own = read();
            let joined = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            iter::once(own).chain(joined).collect::<Result<Vec<_>>>()
        })?;
        let mut verified = parts.concat();
        verified.sort_unstable_by_key(Extent::offset);
        keep_the_first(&mut verified);
        Ok(verified)
    }

    /// Adds the matching blocks of `range`, except those that overlap an earlier one.
    fn verify_range(
        &self,
        range: &[Record],
        algorithms: Algorithms,
        cancelled: &CancellationCheck,
        verified: &mut Vec<Extent>,
    ) -> Result<()> {
        let mut end = 0;
        for record in range {
            if record.offset < end {
                continue;
            }
            if let Some(extent) = read_back(self.staging_file.file(), record, algorithms, cancelled)? {
                end = extent.end();
                verified.push(extent);
            }
        }
        Ok(())
    }

    /// Continues with the `verified` extents: the file then contains these, zeros between them, and nothing after.
    pub(super) fn resume(self, mut verified: Vec<Extent>) -> Result<ResumedUpload> {
        let file = self.staging_file.file();
        // An interrupted commit may have stored digests.
        digests::forget(&Inode::of(&**file)?)?;
        empty_the_rest(file, &mut verified).context("removing the remains of an upload")?;
        let (content, records) = self.header.journal(&verified);
        let file = self.staging_file.replace_journal(&content).context("writing the journal")?;
        Ok(ResumedUpload {
            journal: Journal::new(file, self.header, records),
            staging_file: self.staging_file,
            verified,
        })
    }
}

/// Returns the private key of `caller` for `key`, so that other callers cannot find the upload. Without a token it
/// depends on the address only. Its first four bytes are the same for all uploads of a caller, so that they can be
/// counted.
fn key_of_caller(caller: &Caller, key: ResumeKey) -> ResumeKey {
    let text = |part: &Option<std::sync::Arc<str>>| part.as_deref().unwrap_or_default().to_owned();
    let (issuer, subject) = (text(&caller.issuer), text(&caller.subject));
    let address =
        caller.address.filter(|_| caller.issuer.is_none()).map(|address| address.to_string()).unwrap_or_default();
    let who = [issuer.as_bytes(), subject.as_bytes(), address.as_bytes()];
    let mut bytes = ResumeKey::of(&[who[0], who[1], who[2], &key.bytes()]).bytes();
    for (byte, of_user) in bytes.iter_mut().zip(ResumeKey::of(&who).bytes()).take(4) {
        *byte = of_user;
    }
    ResumeKey::new(bytes)
}

/// Reads the bytes of `record`; returns them as an extent if they match.
fn read_back(
    file: &File,
    record: &Record,
    algorithms: Algorithms,
    cancelled: &CancellationCheck,
) -> Result<Option<Extent>> {
    let mut hasher = Hasher::new(algorithms.union(Algorithms::of(&[Algorithm::Crc32c])));
    let mut piece = vec![0; PIECE_BYTES.min(record.length as usize)];
    while record.offset + hasher.bytes() < record.end() {
        cancelled.check()?;
        let at = record.offset + hasher.bytes();
        let wanted = usize::try_from(record.end() - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let buffer = piece.get_mut(..wanted).unwrap_or_default();
        match positional::fill(file, at, buffer) {
            Ok(filled) if filled == wanted => hasher.update(buffer),
            Ok(_) => return Ok(None),
            Err(errno) => {
                tracing::warn!(%errno, offset = at, "cannot read a part of an interrupted upload");
                return Ok(None);
            }
        }
    }
    let digests = hasher.finish();
    let is_right = digests.get(Algorithm::Crc32c).is_some_and(|found| found.to_integer() == u64::from(record.crc32c));
    Ok(Extent::from_digests(record.offset, record.length.into(), &digests).filter(|_| is_right))
}

/// Removes extents that overlap an earlier one, and those beyond the maximum number of separate extents. `extents` are
/// in order.
fn keep_the_first(extents: &mut Vec<Extent>) {
    let (mut end, mut separate) = (0, 0);
    extents.retain(|extent| {
        let follows = separate > 0 && extent.offset() == end;
        let is_kept = extent.offset() >= end && (follows || separate < MAX_PRESENT_EXTENTS);
        if is_kept {
            separate += usize::from(!follows);
            end = extent.end();
        }
        is_kept
    });
}

/// Truncates `file` after the last extent and punches holes between extents. If holes are not supported, extents after
/// the first gap are dropped.
fn empty_the_rest(file: &File, extents: &mut Vec<Extent>) -> rustix::io::Result<()> {
    let mut end = 0;
    for index in 0..extents.len() {
        let Some(extent) = extents.get(index).copied() else { break };
        if extent.offset() > end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fs::fallocate(file, flags, end, extent.offset() - end) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    extents.truncate(index);
                    break;
                }
                outcome => outcome?,
            }
        }
        end = extent.end();
    }
    fs::ftruncate(file, end)
}
