//! The end of a copy: what arrived is compared with what the source promises, and shown.

use std::time::Duration;

use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{Blame, Error, Expectation, Fault, Metadata, ReadHandle, Result, WriteHandle};

use super::{Copied, Failure, Route, first_bytes, keep_promise};
use crate::{DigestOrigin, Job, Mover, mover::FILE_BYTES, replicas, retry, stage::Stage, verified::verified};

/// Has the destination check and show what was written. If an earlier run left a part of it, `proof` is the digest by which that part was found.
///
/// # Errors
/// Those of both ends; `ChecksumMismatch` at the path of the source if it is that which breaks its promise.
pub(super) async fn commit(
    job: &Job,
    mover: &Mover,
    source: &dyn ReadHandle,
    promised: &Digests,
    proof: Option<Digest>,
    target: &dyn WriteHandle,
) -> Result<Copied, Failure> {
    let from = &job.from;
    let held = FILE_BYTES + first_bytes(job);
    // Of several sources some may have told their digests only after the first bytes came.
    let told = source.metadata().await.map_err(|error| Failure::Final(error.at(&from.path)))?;
    let Metadata { size, mtime_ns, mut digests, .. } = told;
    keep_promise(&mut digests, promised);
    let asked = ask_source(job, mover, held, &mut digests).await.map_err(Failure::Final)?;
    if let Err(failure) = refuse_unproved(job, proof, &digests) {
        let _ = target.abort().await;
        return Err(failure);
    }
    let expected = Expectation { size: Some(size), digests: digests.clone(), mtime_ns };
    let stage = mover.stages.enter(Stage::Commit, held);
    let mut arrived = target.commit(expected).await.map_err(|error| match retry::is_loss(&error) {
        // Whether it is shown nobody knows; who begins anew finds out.
        true => Failure::BrokenOff { error: error.at(&job.to.path), missing_bytes: size },
        false => judged(job, error, digests.clone()),
    })?;
    drop(stage);
    let read_back = ask_destination(job, mover, held, &digests, &mut arrived.digests).await.map_err(Failure::Final)?;
    let source_origin = |digest: &Digest| match from.replicas() {
        Some(replicas) => replicas.origin(digest),
        None if asked == Some(*digest) => DigestOrigin::Computed,
        None => DigestOrigin::Reported,
    };
    let verified = verified(
        (&digests, source_origin),
        (&arrived.digests, |digest| match read_back {
            Some(read_back) if read_back == *digest => DigestOrigin::Computed,
            _ if job.to.checks_on_the_way() => DigestOrigin::Written,
            _ => DigestOrigin::Reported,
        }),
    );
    Ok(Copied { bytes: size, verified, route: Route::Streamed, took: Duration::ZERO })
}

/// Asks the source for the digest that the user wants to be compared, and adds it to `digests`; not if they have it. It counts as work on `bytes`.
///
/// # Errors
/// Those of the source.
pub(crate) async fn ask_source(job: &Job, mover: &Mover, bytes: u64, digests: &mut Digests) -> Result<Option<Digest>> {
    let Some(algorithm) = mover.options.checksum.filter(|algorithm| digests.get(*algorithm).is_none()) else {
        return Ok(None);
    };
    let _stage = mover.stages.enter(Stage::Check, bytes);
    let from = &job.from;
    let promised = from.store.digest(&from.caller, &from.path, algorithm, &|_| {}).await?;
    digests.insert(promised);
    Ok(Some(promised))
}

/// Asks the destination for the digest that the user wants to be compared, which `promised` has, and adds it to `arrived`; not if that has it, because then it has been compared.
///
/// # Errors
/// `ChecksumMismatch` if it is another one: then the file is removed. Those of the destination.
pub(crate) async fn ask_destination(
    job: &Job,
    mover: &Mover,
    bytes: u64,
    promised: &Digests,
    arrived: &mut Digests,
) -> Result<Option<Digest>> {
    let promised = mover.options.checksum.and_then(|algorithm| promised.get(algorithm));
    let Some(promised) = promised.filter(|promised| arrived.get(promised.algorithm()).is_none()) else {
        return Ok(None);
    };
    let _stage = mover.stages.enter(Stage::Check, bytes);
    let found = insist(job, &promised).await?;
    arrived.insert(found);
    Ok(Some(found))
}

/// Refuses what came from several sources, in this run or an earlier one, if no digest of the whole is left that would show a mixture: a source that told it
/// may have turned out to have another file.
fn refuse_unproved(job: &Job, proof: Option<Digest>, digests: &Digests) -> Result<(), Failure> {
    let givers = job.from.shares().iter().filter(|share| share.bytes > 0).count();
    let is_proved = proof.map_or(!digests.is_empty(), |proof| digests.get(proof.algorithm()) == Some(proof));
    if is_proved || (proof.is_none() && givers < 2) {
        return Ok(());
    }
    let message = "its parts came from several sources, and no digest shows any more that they are of one file";
    let error = Error::new(Fault::Changed, message).blamed_on(Blame::Storage).at(&job.from.path);
    Err(Failure::Unlike { error, promised: Digests::default() })
}

/// What failed in a commit. What this machine and our own servers take is checked on its way, so that a wrong digest is that of what was read.
fn judged(job: &Job, error: Error, promised: Digests) -> Failure {
    let Job { from, to, .. } = job;
    let error = replicas::with_givers(job, error);
    if error.fault() == Fault::ChecksumMismatch && error.blame() == Blame::Network {
        return Failure::Unlike { error: error.at(&to.path), promised };
    }
    if error.fault() != Fault::ChecksumMismatch || !to.checks_on_the_way() {
        return Failure::Final(error.at(&to.path));
    }
    let message = format!("what came from there is not what it promises: {}", error.message());
    let error = Error::new(Fault::ChecksumMismatch, message);
    match from.is_remote() || from.replicas().is_some() {
        true => Failure::Unlike { error: error.blamed_on(Blame::Network).at(&from.path), promised },
        false => Failure::Final(error.blamed_on(Blame::Storage).at(&from.path)),
    }
}

/// Compares a digest that the storage did not compare when it took the file: the file is read for it. Unless it is the right one, the file
/// goes away.
async fn insist(job: &Job, promised: &Digest) -> Result<Digest> {
    let to = &job.to;
    let found = to.store.digest(&to.caller, &to.path, promised.algorithm(), &|_| {}).await;
    let found = found.map_err(|error| {
        let message = format!("it arrived, but could not be compared: {}", error.message());
        Error::new(error.fault(), message).blamed_on(error.blame()).at(&to.path)
    })?;
    if found == *promised {
        return Ok(found);
    }
    let error = Error::new(Fault::ChecksumMismatch, format!("it arrived with {found:#}, {promised:#} was promised"));
    if let Err(error) = to.store.remove_file(&to.caller, &to.path).await {
        tracing::warn!(path = %to, %error, "a file that is not what was promised could not be removed");
    }
    Err(error.at(&to.path))
}
