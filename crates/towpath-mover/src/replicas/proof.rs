//! Obtains a digest for a file without a known one: a source computes it while the lead is read.

use std::time::Duration;

use tokio::sync::Notify;
use towpath_proto::checksum::{Algorithm, Digest};
use towpath_store::Result;

use super::share::SourcePool;
use crate::StoreLocation;

/// Minimum size in bytes for which a digest is computed: a smaller file is copied from one source before others could
/// contribute.
pub(super) const MIN_BYTES: u64 = 16 << 20;

/// Algorithms to request, in this order: every destination computes these from pieces in any order. XRootD servers
/// support the second one, towpath both.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Crc32c, Algorithm::Adler32];

/// Requests the digest from the sources, starting with the lead, unless one is known. If no source can compute it, only
/// the lead is read.
pub(super) async fn find(sources: &[StoreLocation], pool: &SourcePool, grace: Duration) {
    let Ok(agreed) = pool.agreed(grace).await else { return };
    if agreed.size < MIN_BYTES {
        return;
    }
    while let Some(index) = pool.next_to_compute().await {
        match compute(&sources[index]).await {
            Some(digest) => return pool.computed(index, digest),
            None => pool.computes_none(index),
        }
    }
    pool.stay_alone();
}

/// Returns the digest computed by the storage; `None` if it does not support it, or fails.
async fn compute(location: &StoreLocation) -> Option<Digest> {
    for algorithm in ALGORITHMS {
        match by_storage(location, algorithm).await {
            Some(Ok(digest)) => return Some(digest),
            Some(Err(error)) => tracing::debug!(%location, %error, "cannot compute {algorithm}"),
            None => tracing::debug!(%location, "the storage does not support {algorithm}"),
        }
    }
    None
}

/// Returns the digest computed by the storage; `None` if the client would have to read the file over the network, which
/// takes as long as the copy. A store indicates that by reporting progress.
async fn by_storage(location: &StoreLocation, algorithm: Algorithm) -> Option<Result<Digest>> {
    let reads = Notify::new();
    let notice = |_| {
        if location.is_remote() {
            reads.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = reads.notified() => None,
        digest = location.store.digest(&location.caller, &location.path, algorithm, &notice) => Some(digest),
    }
}
