//! Detects files that are not copied again. A visible file is complete, so little has to be compared.

use futures::try_join;
use towpath_proto::checksum::Agreement;
use towpath_store::{Fault, FileKind, Metadata, Result, is_settled, sys::clock};

use crate::{
    Job, SkipPolicy,
    compare::{self, EntrySummary},
};

/// Returns whether the policy skips the file, because the destination already has it.
pub(crate) async fn is_skipped(job: &Job, policy: SkipPolicy) -> Result<bool> {
    let found = job.to.store.stat(&job.to.caller, &job.to.path).await;
    let found = match found {
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => return Ok(false),
        outcome => outcome?,
    };
    let source = job.from.store.stat(&job.from.caller, &job.from.path).await?;
    Ok(match policy {
        SkipPolicy::NotOlder => compare::is_not_older(&EntrySummary::of(&source), &EntrySummary::of(&found)),
        _ => are_same(&source, &found, job.to.store.capabilities().set_mtime),
    })
}

/// Returns whether a digest, or the time that the destination preserves, shows that the destination has a copy of the
/// file.
pub(crate) async fn is_same(job: &Job) -> Result<bool> {
    let Job { from, to, .. } = job;
    let (source, found) = try_join!(from.store.stat(&from.caller, &from.path), to.store.stat(&to.caller, &to.path))?;
    if source.kind != FileKind::File || (found.kind, found.size) != (FileKind::File, source.size) {
        return Ok(false);
    }
    // The clocks of file systems and protocols are coarse, so that files of the same moment may have the same time.
    let now_ns = clock::unix_ns();
    let is_old = |(ours, _): &(i64, i64)| is_settled(*ours, now_ns);
    let times = source.mtime_ns.zip(found.mtime_ns).filter(|_| to.store.capabilities().set_mtime).filter(is_old);
    Ok(match source.digests.compare(&found.digests) {
        Agreement::Same => true,
        Agreement::Different(_) => false,
        Agreement::Incomparable => times.is_some_and(|(ours, theirs)| compare::is_same_time(ours, theirs)),
    })
}

/// Returns whether `found` is a copy of `source` as far as their metadata show; `keeps_times` states whether the
/// destination preserves modification times.
fn are_same(source: &Metadata, found: &Metadata, keeps_times: bool) -> bool {
    if source.kind != FileKind::File || (found.kind, found.size) != (FileKind::File, source.size) {
        return false;
    }
    let mut known = source.digests.iter().filter_map(|digest| Some((digest, found.digests.get(digest.algorithm())?)));
    if let Some((digest, other)) = known.next() {
        return *digest == other;
    }
    // In whole seconds, because some protocols have no finer times.
    !keeps_times || source.mtime_ns.is_none() || source.mtime_s() == found.mtime_s()
}
