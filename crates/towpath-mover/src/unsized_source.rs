//! Copies of sources of unknown length: in order, with as many bytes in flight as the window permits.

use std::io;

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;
use towpath_proto::checksum::{Agreement, Algorithm, Digest, Digests, Hasher};
use towpath_store::{
    Blame, ContentStream, CreateOptions, Error, Expectation, Fault, Metadata, Result, WriteHandle, sys::clock,
};

use crate::{
    DigestOrigin, FileProgress, Job, StoreLocation,
    comparison::{read_back, request_digest},
    context::{CopyContext, FILE_BYTES},
    copied_file::{CopiedFile, Route},
    file::PIECE_BYTES,
    stage::Stage,
    verified_digest::verified,
    window::Priority,
};

/// Digest to compute of data whose source provides none.
pub(crate) const COMPUTED: Algorithm = Algorithm::Crc32c;

/// Copies a source of unknown length. Nothing is visible unless the source reached its end and matches its digests. A
/// digest selected with `--checksum` is computed by reading the source once more; this fails for a source whose end
/// cannot be proven.
///
/// # Errors
/// Errors of both stores; `ChecksumMismatch`.
pub(crate) async fn copy(
    job: &Job,
    part: &FileProgress,
    context: &CopyContext,
    content: ContentStream,
) -> Result<CopiedFile> {
    let Job { from, to, .. } = job;
    let start = clock::now();
    let opening = context.stages.enter(Stage::Open, FILE_BYTES);
    let has_proven_end = content.has_proven_end();
    let ContentStream { pieces, metadata: Metadata { digests: mut promised, .. }, .. } = content;
    // The destination computes them as pieces arrive, so that it need not read the file for them.
    let wanted = [COMPUTED].into_iter().chain(context.options.checksum);
    let digests = wanted.chain(promised.algorithms().iter()).collect();
    let options =
        CreateOptions { overwrite: context.options.overwrite, parents: true, digests, ..CreateOptions::default() };
    let target = to.store.create(&to.caller, &to.path, options).await?;
    drop(opening);
    let mut passed = Hasher::new(digests);
    let input = StreamReader::new(pieces.map_err(io::Error::other));
    if let Err(error) = write_all(context, input, &*target, &mut passed, part).await {
        let _ = target.abort().await;
        return Err(error);
    }
    let (bytes, computed) = (passed.bytes(), passed.finish());
    let requested = request_digest(job, context, FILE_BYTES, &mut promised).await;
    let requested = match requested.and_then(|requested| verify(&computed, &promised, from).map(|()| requested)) {
        Ok(requested) => requested,
        Err(error) => {
            let _ = target.abort().await;
            return Err(error);
        }
    };
    warn_unless_proven(from, has_proven_end);
    let committing = context.stages.enter(Stage::Commit, FILE_BYTES);
    let arrives = if to.checks_on_the_way() { computed.clone() } else { Digests::default() };
    let expected = Expectation { size: Some(bytes), digests: arrives, mtime_ns: None };
    let mut arrived = target.commit(expected).await.map_err(|error| error.at(&to.path))?.digests;
    drop(committing);
    let recomputed = read_back(job, context, FILE_BYTES, &promised, &mut arrived).await?;
    // Without a digest of the source, data are not verified, even if they were written correctly.
    let source =
        |digest: &Digest| if requested == Some(*digest) { DigestOrigin::Computed } else { DigestOrigin::Reported };
    let destination = |digest: &Digest| match recomputed {
        Some(recomputed) if recomputed == *digest => DigestOrigin::Computed,
        _ if to.checks_on_the_way() => DigestOrigin::Written,
        _ => DigestOrigin::Streamed,
    };
    let verified = verified((&promised, source), (&computed, destination));
    Ok(CopiedFile { bytes, verified, route: Route::Streamed, took: start.elapsed() })
}

/// Writes all of `input` in order, with as many pieces in flight as the window permits.
pub(crate) async fn write_all(
    context: &CopyContext,
    input: impl AsyncRead + Unpin,
    target: &dyn WriteHandle,
    passed: &mut Hasher,
    part: &FileProgress,
) -> Result<()> {
    stream::try_unfold(input, |mut input| async move {
        let permit = context.acquire(PIECE_BYTES, Priority::Piece).await;
        let stage = context.stages.enter(Stage::Read, PIECE_BYTES);
        let piece = read_piece(&mut input).await.map_err(unreadable)?;
        context.limit.pass(piece.len() as u64).await;
        Ok((!piece.is_empty()).then_some(((piece, permit, stage), input)))
    })
    .try_for_each_concurrent(None, |(piece, permit, mut stage)| {
        let (offset, length) = (passed.bytes(), piece.len() as u64);
        passed.update(&piece);
        async move {
            stage.pass(Stage::Write);
            target.write(offset, piece).await?;
            part.expect(length);
            part.transferred(length);
            permit.complete();
            Ok(())
        }
    })
    .await
}

/// Reads the next piece, which is full unless the input ends; empty at its end.
async fn read_piece(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
    while (piece.len() as u64) < PIECE_BYTES && input.read_buf(&mut piece).await? > 0 {}
    Ok(piece.into())
}

fn unreadable(error: io::Error) -> Error {
    // An error of a store is passed through unchanged.
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new(Fault::Io, format!("cannot read the input: {error}")),
    }
}

/// Compares the digests of the received data with those `promised` by the source.
pub(crate) fn verify(computed: &Digests, promised: &Digests, from: &StoreLocation) -> Result<()> {
    let Agreement::Different(algorithm) = computed.compare(promised) else { return Ok(()) };
    let message = format!("its data do not match its digest: the {algorithm} differs");
    Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(blame(from)).at(&from.path))
}

/// Warns of a source that may have been truncated undetectably.
pub(crate) fn warn_unless_proven(from: &StoreLocation, has_proven_end: bool) {
    if !has_proven_end {
        tracing::warn!(
            path = %from,
            "the server reports no size and ends the file by closing the connection: whether it is complete cannot be verified"
        );
    }
}

fn blame(from: &StoreLocation) -> Blame {
    if from.is_remote() { Blame::Network } else { Blame::Storage }
}
