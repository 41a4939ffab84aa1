//! Copies between two sites that make them themselves: asked for before bytes are moved through this machine, if the options say so.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use towpath_client::third_party::{SiteCopy, Way};
use towpath_proto::checksum::{Agreement, Digest};
use towpath_store::{Blame, Error, Fault, Metadata, Result};

use crate::{
    Copied, DigestOrigin, Job, Mover, clash, file::Route, mover::FILE_BYTES, progress::Part, stage::Stage,
    verified::verified,
};

/// Third-party copies under way at once. Their sites make 9 (XRootD) to 32 (towpath) at a time.
pub(crate) const COPIES: usize = 16;

/// Whether sites are asked to copy between themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThirdParty {
    /// No: all bytes come through this machine.
    #[default]
    Never,
    /// If they can: first the destination is asked to fetch the file, then the source to send it; else the bytes come through this machine.
    Auto,
    /// As with `Auto`, but nothing comes through this machine.
    Only,
}

/// Has the sites of `job` copy it. `None` if they do not, and the bytes are to be moved here.
///
/// # Errors
/// Those that moving the bytes here would meet too; all of them with [`ThirdParty::Only`].
pub(crate) async fn copy(job: &Job, part: &Part, mover: &Mover) -> Result<Option<Copied>> {
    let only = match mover.options.third_party {
        ThirdParty::Never => return Ok(None),
        ThirdParty::Auto => false,
        ThirdParty::Only => true,
    };
    let (Some(from), Some(to), Some(client)) = (job.from.url(), job.to.url(), &mover.options.client) else {
        let message = "a third-party copy needs two remote ends";
        return if only { Err(Error::new(Fault::Unsupported, message).at(&job.from.path)) } else { Ok(None) };
    };
    let source = job.from.store.stat(&job.from.caller, &job.from.path).await?;
    if source.is_directory() {
        return Err(Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&job.from.path));
    }
    clash::refuse_itself(job, &source).await?;
    let _place = mover.third_party_places.acquire().await;
    let mut stage = mover.stages.enter(Stage::Elsewhere, FILE_BYTES + source.size);
    part.begin(job, source.size, 0);
    let written = AtomicU64::new(0);
    let advance = |bytes: u64| advance(part, &written, bytes.min(source.size));
    let mut last = None;
    for way in [Way::Pull, Way::Push] {
        let copy = SiteCopy { from: &from, to: &to, way, overwrite: mover.options.overwrite };
        let asked = client.copy_between(&job.to.caller, copy, &advance).await;
        match asked {
            Ok(()) => {
                advance(source.size);
                let route = if way == Way::Pull { Route::Pulled } else { Route::Pushed };
                tracing::info!(from = %job.from, to = %job.to, %way, "third-party copy");
                stage.pass(Stage::Check);
                return verify(job, mover, &source, route).await.map(Some);
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                tracing::info!(from = %job.from, to = %job.to, %way, %error, "no third-party copy");
                last.get_or_insert(error);
            }
        }
    }
    match last {
        Some(error) if only => Err(error),
        _ => Ok(None),
    }
}

/// Counts up to `bytes`.
fn advance(part: &Part, written: &AtomicU64, bytes: u64) {
    let before = written.fetch_max(bytes, Relaxed);
    if bytes > before {
        part.moved(bytes - before);
    }
}

/// Whether moving the bytes here would fail as well.
fn is_final(error: &Error) -> bool {
    matches!(
        error.fault(),
        Fault::AlreadyExists | Fault::IsDirectory | Fault::NoSpace | Fault::QuotaExceeded | Fault::Cancelled
    )
}

/// Compares what both sites say of their files now. They have compared them themselves, but need not say so.
async fn verify(job: &Job, mover: &Mover, source: &Metadata, route: Route) -> Result<Copied> {
    let Job { from, to, .. } = job;
    let arrived = to.store.stat(&to.caller, &to.path).await?;
    let mut pairs = (source.digests.clone(), arrived.digests.clone());
    if let Some(algorithm) = mover.options.checksum {
        let (here, there) = (
            from.store.digest(&from.caller, &from.path, algorithm, &|_| {}),
            to.store.digest(&to.caller, &to.path, algorithm, &|_| {}),
        );
        let (here, there) = futures::try_join!(here, there)?;
        pairs.0.insert(here);
        pairs.1.insert(there);
    }
    let damage = match pairs.1.compare(&pairs.0) {
        _ if arrived.size != source.size => Some(format!("{} bytes arrived of {}", arrived.size, source.size)),
        Agreement::Different(algorithm) => Some(format!("it arrived with another {algorithm}")),
        _ => None,
    };
    if let Some(message) = damage {
        if let Err(error) = to.store.remove_file(&to.caller, &to.path).await {
            tracing::warn!(path = %to, %error, "a file that is not what its source is could not be removed");
        }
        return Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage).at(&to.path));
    }
    let asked = mover.options.checksum;
    let origin = |digest: &Digest| match asked == Some(digest.algorithm()) {
        true => DigestOrigin::Computed,
        false => DigestOrigin::Reported,
    };
    let verified = verified((&pairs.0, origin), (&pairs.1, origin));
    Ok(Copied { bytes: source.size, verified, route, took: Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_client::{Client, ClientOptions};
    use towpath_store::Store;

    use super::*;
    use crate::{
        Nobody, Options, Place,
        mover::tests::{memory, options, place, put},
    };

    /// A place in memory that others are told of by `url`.
    fn named(store: &Arc<dyn Store>, path: &str, url: &str) -> Place {
        place(store, path).named_by(url.parse().unwrap())
    }

    #[tokio::test]
    async fn what_sites_refuse_to_copy_is_not_counted_as_moved() {
        let store = memory();
        put(&store, "/file", vec![7; 1000].into()).await;
        // Two protocols: neither site can ask the other.
        let job = Job::new(named(&store, "/file", "http://a/"), named(&store, "/copy", "root://b/"));
        for (third_party, moved) in [(ThirdParty::Only, 0), (ThirdParty::Auto, 1000)] {
            let client = Some(Arc::new(Client::new(Arc::new(ClientOptions::default()))));
            let mover = Mover::new(Options { third_party, client, ..options() }, Arc::new(Nobody));
            let copied = mover.copy(&job).await;
            assert_eq!(copied.is_ok(), moved > 0, "{copied:?}");
            let now = mover.progress().now();
            assert_eq!((now.moved_bytes, now.ahead_bytes), (moved, 0), "{third_party:?}");
        }
    }
}
