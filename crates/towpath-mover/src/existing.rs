//! Detects files that were copied before. A visible file is complete, so little has to be compared.

use towpath_store::{Fault, FileKind, Metadata, Result};

use crate::Job;

/// Returns whether the destination already has a copy of the file.
pub(crate) async fn is_there(job: &Job) -> Result<bool> {
    let found = job.to.store.stat(&job.to.caller, &job.to.path).await;
    let found = match found {
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => return Ok(false),
        outcome => outcome?,
    };
    let source = job.from.store.stat(&job.from.caller, &job.from.path).await?;
    Ok(are_same(&source, &found, job.to.store.capabilities().set_mtime))
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
