//! Third-party copies: two sites transfer a file between themselves. If the options permit it, this is tried before a
//! copy through this machine.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use towpath_client::third_party::{SiteCopy, TransferMode};
use towpath_proto::checksum::{Agreement, Digest};
use towpath_store::{Blame, Error, Fault, Metadata, Result};

use crate::{
    CopiedFile, DigestOrigin, Job,
    context::{CopyContext, FILE_BYTES},
    copied_file::Route,
    overlap,
    progress::FileProgress,
    stage::Stage,
    verified_digest::verified,
};

/// Whether to request third-party copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThirdParty {
    /// Never: all bytes pass through this machine.
    #[default]
    Never,
    /// If a site supports it: the destination pulls the file, else the source pushes it, else the bytes pass through
    /// this machine.
    Auto,
    /// As `Auto`, but fails if neither site supports it.
    Only,
}

/// Requests a third-party copy of `job`. Returns `None` if the sites do not support it and the caller has to move the
/// bytes.
///
/// # Errors
/// Errors that a copy through this machine would have too; with [`ThirdParty::Only`] all errors.
pub(crate) async fn copy(job: &Job, part: &FileProgress, context: &CopyContext) -> Result<Option<CopiedFile>> {
    let only = match context.options.third_party {
        ThirdParty::Never => return Ok(None),
        ThirdParty::Auto => false,
        ThirdParty::Only => true,
    };
    let (Some(from), Some(to), Some(client)) = (job.from.url(), job.to.url(), &context.options.client) else {
        let message = "a third-party copy needs two remote ends";
        return if only { Err(Error::new(Fault::Unsupported, message).at(&job.from.path)) } else { Ok(None) };
    };
    let source = job.from.store.stat(&job.from.caller, &job.from.path).await?;
    if source.is_directory() {
        return Err(Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&job.from.path));
    }
    overlap::refuse_same_file(job, &source).await?;
    let _permit = context.third_party_permits.acquire().await;
    let mut stage = context.stages.enter(Stage::Elsewhere, FILE_BYTES + source.size);
    part.begin(job, source.size, 0);
    let written = AtomicU64::new(0);
    let advance = |bytes: u64| advance(part, &written, bytes.min(source.size));
    let mut last = None;
    for mode in [TransferMode::Pull, TransferMode::Push] {
        let copy = SiteCopy { from: &from, to: &to, mode, overwrite: context.options.overwrite };
        match client.copy_between(&job.to.caller, copy, &advance).await {
            Ok(()) => {
                advance(source.size);
                let route = if mode == TransferMode::Pull { Route::Pulled } else { Route::Pushed };
                tracing::info!(from = %job.from, to = %job.to, way = %mode, "third-party copy");
                stage.pass(Stage::Check);
                return verify(job, context, &source, route).await.map(Some);
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                tracing::info!(from = %job.from, to = %job.to, way = %mode, %error, "third-party copy failed");
                last.get_or_insert(error);
            }
        }
    }
    match last {
        Some(error) if only => Err(error),
        _ => Ok(None),
    }
}

/// Reports progress up to `bytes`.
fn advance(part: &FileProgress, written: &AtomicU64, bytes: u64) {
    let before = written.fetch_max(bytes, Relaxed);
    if bytes > before {
        part.transferred(bytes - before);
    }
}

/// Returns whether a copy through this machine would fail as well.
fn is_final(error: &Error) -> bool {
    matches!(
        error.fault(),
        Fault::AlreadyExists | Fault::IsDirectory | Fault::NoSpace | Fault::QuotaExceeded | Fault::Cancelled
    )
}

/// Compares sizes and digests of both files. Sites may have compared them already, but need not report it.
async fn verify(job: &Job, context: &CopyContext, source: &Metadata, route: Route) -> Result<CopiedFile> {
    let Job { from, to, .. } = job;
    let arrived = to.store.stat(&to.caller, &to.path).await?;
    let mut pairs = (source.digests.clone(), arrived.digests.clone());
    if let Some(algorithm) = context.options.checksum {
        let (here, there) = (
            from.store.digest(&from.caller, &from.path, algorithm, &|_| {}),
            to.store.digest(&to.caller, &to.path, algorithm, &|_| {}),
        );
        let (here, there) = futures::try_join!(here, there)?;
        pairs.0.insert(here);
        pairs.1.insert(there);
    }
    let damage = match pairs.1.compare(&pairs.0) {
        _ if arrived.size != source.size => {
            Some(format!("the destination reports a size of {} bytes, expected {}", arrived.size, source.size))
        }
        Agreement::Different(algorithm) => Some(format!("it arrived with a different {algorithm}")),
        _ => None,
    };
    if let Some(message) = damage {
        if let Err(error) = to.store.remove_file(&to.caller, &to.path).await {
            tracing::warn!(path = %to, %error, "a corrupted copy could not be removed");
        }
        return Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage).at(&to.path));
    }
    let asked = context.options.checksum;
    let origin = |digest: &Digest| match asked == Some(digest.algorithm()) {
        true => DigestOrigin::Computed,
        false => DigestOrigin::Reported,
    };
    let verified = verified((&pairs.0, origin), (&pairs.1, origin));
    Ok(CopiedFile { bytes: source.size, verified, route, took: Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_client::{Client, ClientOptions};
    use towpath_store::Store;

    use super::*;
    use crate::{
        Mover, NoopObserver, Options, StoreLocation,
        mover::tests::{location, memory, options, put},
    };

    /// A location in memory with the third-party URL `url`.
    fn named(store: &Arc<dyn Store>, path: &str, url: &str) -> StoreLocation {
        location(store, path).named_by(url.parse().unwrap())
    }

    #[tokio::test]
    async fn what_sites_refuse_to_copy_is_not_counted_as_moved() {
        let store = memory();
        put(&store, "/file", vec![7; 1000].into()).await;
        // Two protocols: neither site supports the copy.
        let job = Job::new(named(&store, "/file", "http://a/"), named(&store, "/copy", "root://b/"));
        for (third_party, transferred) in [(ThirdParty::Only, 0), (ThirdParty::Auto, 1000)] {
            let client = Some(Arc::new(Client::new(Arc::new(ClientOptions::default()))));
            let mover = Mover::new(Options { third_party, client, ..options() }, Arc::new(NoopObserver));
            let copied = mover.copy(&job).await;
            assert_eq!(copied.is_ok(), transferred > 0, "{copied:?}");
            let now = mover.progress().now();
            assert_eq!((now.moved_bytes, now.ahead_bytes), (transferred, 0), "{third_party:?}");
        }
    }
}
