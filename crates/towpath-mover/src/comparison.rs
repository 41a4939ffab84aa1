//! Comparison of the digest that the user selects (`--checksum`) at both ends of a copy.

use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{Error, Fault, Result};

use crate::{Job, context::CopyContext, stage::Stage};

/// Requests the digest selected with `--checksum` from the source and adds it to `digests`, unless it is there already.
/// The request counts as work on `bytes`.
///
/// # Errors
/// Those of the source.
pub(crate) async fn request_digest(
    job: &Job,
    context: &CopyContext,
    bytes: u64,
    digests: &mut Digests,
) -> Result<Option<Digest>> {
    let Some(algorithm) = context.options.checksum.filter(|algorithm| digests.get(*algorithm).is_none()) else {
        return Ok(None);
    };
    let _stage = context.stages.enter(Stage::Check, bytes);
    let from = &job.from;
    let promised = from.store.digest(&from.caller, &from.path, algorithm, &|_| {}).await?;
    digests.insert(promised);
    Ok(Some(promised))
}

/// Requests the digest selected with `--checksum` from the destination, compares it with `promised`, and adds it to
/// `arrived`. Does nothing if `arrived` already has the digest: the commit compared it.
///
/// # Errors
/// `ChecksumMismatch` if they differ; the file is then removed. Those of the destination.
pub(crate) async fn read_back(
    job: &Job,
    context: &CopyContext,
    bytes: u64,
    promised: &Digests,
    arrived: &mut Digests,
) -> Result<Option<Digest>> {
    let promised = context.options.checksum.and_then(|algorithm| promised.get(algorithm));
    let Some(promised) = promised.filter(|promised| arrived.get(promised.algorithm()).is_none()) else {
        return Ok(None);
    };
    let _stage = context.stages.enter(Stage::Check, bytes);
    let found = recompute(job, &promised).await?;
    arrived.insert(found);
    Ok(Some(found))
}

/// Requests a digest of the stored file from the storage and compares it with `promised`. A file that does not match is
/// removed.
async fn recompute(job: &Job, promised: &Digest) -> Result<Digest> {
    let to = &job.to;
    let found = to.store.digest(&to.caller, &to.path, promised.algorithm(), &|_| {}).await;
    let found = found.map_err(|error| {
        let message = format!("it arrived, but could not be verified: {}", error.message());
        error.with_message(message).at(&to.path)
    })?;
    if found == *promised {
        return Ok(found);
    }
    let error = Error::new(Fault::ChecksumMismatch, format!("it arrived with {found:#}, expected {promised:#}"));
    if let Err(error) = to.store.remove_file(&to.caller, &to.path).await {
        tracing::warn!(path = %to, %error, "a corrupted copy could not be removed");
    }
    Err(error.at(&to.path))
}
