//! The end of a copy: the destination verifies the upload against the digests of the source and makes it visible.

use std::time::Duration;

use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{Blame, Error, Expectation, Fault, Metadata, ReadHandle, Result, WriteHandle};

use super::{Failure, source::add_promised};
use crate::{
    DigestOrigin, Job,
    comparison::{read_back, request_digest},
    context::{CopyContext, FILE_BYTES, first_bytes},
    copied_file::{CopiedFile, Route},
    replicas,
    stage::Stage,
    verified_digest::verified,
};

/// Commits the upload. If a part of it is from an earlier run, `proof` is the digest that identified that part.
///
/// # Errors
/// Those of both ends; `ChecksumMismatch` at the path of the source if its data do not match its digests.
pub(super) async fn commit(
    job: &Job,
    context: &CopyContext,
    source: &dyn ReadHandle,
    promised: &Digests,
    proof: Option<Digest>,
    target: &dyn WriteHandle,
) -> Result<CopiedFile, Failure> {
    let from = &job.from;
    let held = FILE_BYTES + first_bytes(job);
    // With several sources, some digests may have arrived after the first bytes.
    let current = source.metadata().await.map_err(|error| Failure::Final(error.at(&from.path)))?;
    let Metadata { size, mtime_ns, mut digests, .. } = current;
    add_promised(&mut digests, promised);
    let requested = request_digest(job, context, held, &mut digests).await.map_err(Failure::Final)?;
    if let Err(failure) = refuse_unproved(job, proof, &digests) {
        let _ = target.abort().await;
        return Err(failure);
    }
    let expected = Expectation { size: Some(size), digests: digests.clone(), mtime_ns };
    let stage = context.stages.enter(Stage::Commit, held);
    let mut arrived = target.commit(expected).await.map_err(|error| match Failure::is_loss(&error) {
        // Whether the commit was carried out is unknown; a retry finds out.
        true => Failure::BrokenOff { error: error.at(&job.to.path), missing_bytes: size },
        false => commit_failure(job, error, digests.clone()),
    })?;
    drop(stage);
    let recomputed = read_back(job, context, held, &digests, &mut arrived.digests).await.map_err(Failure::Final)?;
    let source_origin = |digest: &Digest| match from.replicas() {
        Some(replicas) => replicas.origin(digest),
        None if requested == Some(*digest) => DigestOrigin::Computed,
        None => DigestOrigin::Reported,
    };
    let verified = verified(
        (&digests, source_origin),
        (&arrived.digests, |digest| match recomputed {
            Some(recomputed) if recomputed == *digest => DigestOrigin::Computed,
            _ if job.to.checks_on_the_way() => DigestOrigin::Written,
            _ => DigestOrigin::Reported,
        }),
    );
    Ok(CopiedFile { bytes: size, verified, route: Route::Streamed, took: Duration::ZERO })
}

/// Rejects data from several sources, in this or an earlier run, if no digest of the whole file would reveal a mixture.
/// The source that provided the digest may have been rejected since.
fn refuse_unproved(job: &Job, proof: Option<Digest>, digests: &Digests) -> Result<(), Failure> {
    let givers = job.from.shares().iter().filter(|share| share.bytes > 0).count();
    let is_proved = proof.map_or(!digests.is_empty(), |proof| digests.get(proof.algorithm()) == Some(proof));
    if is_proved || (proof.is_none() && givers < 2) {
        return Ok(());
    }
    let message = "its parts came from several sources, and no digest proves that they belong to one file";
    let error = Error::new(Fault::Changed, message).blamed_on(Blame::Storage).at(&job.from.path);
    Err(Failure::Unlike { error, promised: Digests::default() })
}

/// Returns the failure for an error of a commit. Uploads to this machine and to towpath servers are verified in
/// transit, so that a mismatch there means that the data read from the source are wrong.
fn commit_failure(job: &Job, error: Error, promised: Digests) -> Failure {
    let Job { from, to, .. } = job;
    let error = replicas::with_givers(job, error);
    if error.fault() == Fault::ChecksumMismatch && error.blame() == Blame::Network {
        return Failure::Unlike { error: error.at(&to.path), promised };
    }
    if error.fault() != Fault::ChecksumMismatch || !to.checks_on_the_way() {
        return Failure::Final(error.at(&to.path));
    }
    let mismatch = |digest: &str| {
        let message = format!("its data do not match {digest} digest: {}", error.message());
        Error::new(Fault::ChecksumMismatch, message).at(&from.path)
    };
    match from.replicas() {
        // Either the data or the expectation may be wrong.
        Some(replicas) if !replicas.known().digests.is_empty() => {
            let error = mismatch("the expected").blamed_on(Blame::Caller).with_retryable(false);
            Failure::Unlike { error, promised }
        }
        None if !from.is_remote() => Failure::Final(mismatch("its").blamed_on(Blame::Storage)),
        _ => Failure::Unlike { error: mismatch("its").blamed_on(Blame::Network), promised },
    }
}
