//! A copy of one file from a store to a store.
//!
//! [`copy`] makes one attempt: it opens the source and requests its first bytes ([`source`]), begins the upload
//! ([`target`]), moves the missing pieces concurrently, and commits ([`commit`]), which compares the digests of both
//! ends. [`crate::retry`] repeats the attempt depending on its [`Failure`]. [`resume`] computes the key under which a
//! later run finds an interrupted upload.

mod commit;
mod resume;
mod source;
mod target;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{Error, Fault, Overwrite, READ_BYTES, ReadHandle, Result, WriteHandle};

use self::{
    commit::commit,
    resume::Resume,
    source::{OpenedSource, SourceFile},
};
pub(crate) use self::{resume::MIN_RESUMABLE_BYTES, source::resized};
use crate::{
    Job,
    context::{CopyContext, FILE_BYTES, first_bytes},
    copied_file::CopiedFile,
    extents, overlap,
    progress::FileProgress,
    stage::{Stage, StageGuard},
    unsized_source,
    window::{Permit, Priority},
};

/// Default length of a piece in bytes; a source may have a larger preferred length.
pub(crate) const PIECE_BYTES: u64 = READ_BYTES as u64;

/// Minimum number of pieces that fill the window.
const MIN_PIECES: u64 = 32;

/// Maximum size of a file whose bytes count as in flight until its commit, because a server may receive them only with
/// the commit.
const SMALL_BYTES: u64 = 64 << 10;

/// Why an attempt failed, classified by the possible retry.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No byte was moved.
    NotBegun(Error),
    /// The version of the source changed; nothing is left at the destination.
    Changed(Error),
    /// The connection to the destination was lost, or the source failed while the upload is resumable. `missing_bytes`
    /// were missing at the destination when the attempt began to move bytes.
    BrokenOff { error: Error, missing_bytes: u64 },
    /// The data do not match the digests `promised` by the source.
    Unlike { error: Error, promised: Digests },
    /// A retry would fail the same way.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::NotBegun(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (Failure::NotBegun(error)
        | Failure::Changed(error)
        | Failure::BrokenOff { error, .. }
        | Failure::Unlike { error, .. }
        | Failure::Final(error)) = failure;
        error
    }
}

impl Failure {
    /// Returns whether `error` is a loss of the network or the storage that may be temporary.
    pub(crate) fn is_loss(error: &Error) -> bool {
        matches!(error.fault(), Fault::Unavailable | Fault::TimedOut)
    }
}

/// An error while bytes were moved.
struct TransferError {
    error: Error,
    /// Whether the destination failed. Sources reconnect on their own.
    is_destinations: bool,
}

impl From<Error> for TransferError {
    fn from(error: Error) -> Self {
        Self { error, is_destinations: false }
    }
}

/// Copies one file. Nothing is visible at the destination unless all of it arrived and was verified. `promised` are the
/// source's digests of data that arrived corrupted in an earlier attempt: the file is then read with all checksums in
/// transit and compared again.
pub(crate) async fn copy(
    job: &Job,
    part: &FileProgress,
    context: &CopyContext,
    permit: Permit,
    promised: &Digests,
) -> Result<CopiedFile, Failure> {
    // Before the source is read.
    job.to.store.capabilities().check_create(&job.to.path)?;
    let held = FILE_BYTES + first_bytes(job);
    // Bytes of a file of unknown size are counted once the size is known.
    context.limit.pass(if job.size.is_some() { held } else { FILE_BYTES }).await;
    let mut stage = context.stages.enter(Stage::Open, held);
    let mut source = match SourceFile::open(job, promised).await? {
        OpenedSource::File(source) => source,
        OpenedSource::Unsized(content) => {
            drop((permit, stage));
            return unsized_source::copy(job, part, context, content).await.map_err(Failure::Final);
        }
    };
    let size = source.metadata.size;
    if job.size.is_none() {
        source.first.beside(context.limit.pass(size.min(first_bytes(job)))).await;
    }
    if context.options.overwrite == Overwrite::Replace {
        source.first.beside(overlap::refuse_same_file(job, &source.metadata)).await?;
    }
    let (resume, proof) = Resume::of(job, &source.metadata).map(|resume| (resume.key, resume.proof)).unzip();
    let options = target::create_options(context, &source.metadata, resume);
    let is_resumable = options.resume.is_some();
    let target = match source.first.beside(target::begin(job, context, &mut stage, options)).await {
        // The number of missing bytes of a resumable upload is unknown until it has begun.
        Err(error) if !is_resumable => return Err(target::explain_no_space(job, size, error).await.into()),
        outcome => outcome?,
    };
    let proof = proof.flatten();
    let mut transfer = Transfer { job, part, context, source, target, is_resumable, missing_bytes: size, proof };
    let held_permit = match transfer.run(stage, permit).await {
        Ok(permit) => permit,
        Err(broken) => return Err(transfer.abort(broken).await),
    };
    let Transfer { source, target, proof, .. } = transfer;
    let copied = commit(job, context, &*source.handle, promised, proof, &*target).await?;
    if let Some(permit) = held_permit {
        part.transferred(copied.bytes);
        permit.complete();
    }
    Ok(copied)
}

/// An open source and a begun upload.
struct Transfer<'a> {
    job: &'a Job,
    part: &'a FileProgress,
    context: &'a CopyContext,
    source: SourceFile,
    target: Arc<dyn WriteHandle>,
    is_resumable: bool,
    /// Bytes that were missing at the destination when the transfer began.
    missing_bytes: u64,
    /// The digest that identified the parts of an earlier run, if there may be any.
    proof: Option<Digest>,
}

impl Transfer<'_> {
    /// Moves all missing bytes. Returns the permit of a small file, whose bytes are in flight until its commit.
    async fn run(&mut self, stage: StageGuard<'_>, permit: Permit) -> Result<Option<Permit>, TransferError> {
        let Self { job, part, context, source: SourceFile { handle, metadata, first }, target, .. } = self;
        let present = if self.is_resumable { first.beside(target.present()).await? } else { Vec::new() };
        let missing = extents::missing(metadata.size, &present);
        self.missing_bytes = missing.iter().map(|range| range.end - range.start).sum();
        if present.is_empty() {
            self.proof = None;
        }
        part.begin(job, metadata.size, metadata.size - self.missing_bytes);
        let first_length = if present.is_empty() { metadata.size.min(first_bytes(job)) } else { 0 };
        let is_small = metadata.size <= first_bytes(job).min(SMALL_BYTES) && job.to.is_remote();
        let head = async {
            let mut stage = stage;
            stage.pass(Stage::Read);
            let data = first.take().await.map_err(|error| source::explain(job, error))?;
            stage.pass(Stage::Write);
            if present.is_empty() {
                put(job, &**target, 0, data, first_length).await?;
            }
            drop(stage);
            if is_small {
                return Ok(Some(permit));
            }
            part.transferred(first_length);
            permit.complete();
            Ok(None)
        };
        let pieces = extents::pieces(missing, first_length, || piece_bytes(job, context));
        let rest = move_pieces(job, &**handle, &**target, pieces, context, part);
        let (held_permit, ()) = future::try_join(head, rest).await?;
        source::check_unchanged(job, context, &**handle, metadata).await?;
        Ok(held_permit)
    }

    /// Aborts the upload, unless it is resumable, and returns the failure of this attempt.
    async fn abort(self, TransferError { error, is_destinations }: TransferError) -> Failure {
        let Self { job, part, source, target, missing_bytes, .. } = self;
        // Whether the server can resume uploads may have been unknown before this upload.
        let is_kept = self.is_resumable && job.to.store.capabilities().resume && error.fault() != Fault::Changed;
        if !is_kept {
            // Only the first error is reported; a staging file that remains is removed when the store is opened again.
            let _ = target.abort().await;
        }
        let needed_bytes = if is_kept { part.left_bytes() } else { source.metadata.size };
        match target::explain_no_space(job, needed_bytes, error).await {
            error if error.fault() == Fault::Changed => Failure::Changed(error),
            error if (is_kept || is_destinations) && Failure::is_loss(&error) => {
                Failure::BrokenOff { error, missing_bytes }
            }
            error => Failure::Final(error),
        }
    }
}

/// Returns the length of the next piece in bytes.
fn piece_bytes(job: &Job, context: &CopyContext) -> u64 {
    let preferred = job.from.store.capabilities().read_bytes as u64;
    (context.window_bytes() / MIN_PIECES).min(preferred).max(PIECE_BYTES)
}

/// Moves pieces, with as many in flight as the window permits.
async fn move_pieces(
    job: &Job,
    source: &dyn ReadHandle,
    target: &dyn WriteHandle,
    pieces: impl Iterator<Item = Range<u64>> + Send,
    context: &CopyContext,
    part: &FileProgress,
) -> Result<(), TransferError> {
    stream::iter(pieces)
        .then(|piece| async move {
            let length = piece.end - piece.start;
            let permit = context.acquire(length, Priority::Piece).await;
            context.limit.pass(length).await;
            Ok((piece, permit))
        })
        .try_for_each_concurrent(None, |(piece, permit)| async move {
            let length = piece.end - piece.start;
            let mut stage = context.stages.enter(Stage::Read, length);
            let data = source.read_into(piece.start, length as usize, Vec::with_capacity(length as usize)).await?;
            stage.pass(Stage::Write);
            put(job, target, piece.start, data, length).await?;
            part.transferred(length);
            permit.complete();
            drop(stage);
            Ok(())
        })
        .await
}

/// Writes a piece, which must have `length` bytes.
async fn put(
    job: &Job,
    target: &dyn WriteHandle,
    offset: u64,
    piece: Vec<u8>,
    length: u64,
) -> Result<(), TransferError> {
    if piece.len() as u64 != length {
        return Err(source::resized().at(&job.from.path).into());
    }
    if length == 0 {
        return Ok(());
    }
    target.write(offset, Bytes::from(piece)).await.map_err(|error| TransferError { error, is_destinations: true })
}
