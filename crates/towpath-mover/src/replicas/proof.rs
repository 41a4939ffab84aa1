//! A digest for a file without a known one: one of its sources computes it while the lead is read.

use std::time::Duration;

use tokio::sync::Notify;
use towpath_proto::checksum::{Algorithm, Digest};
use towpath_store::Result;

use super::share::Sharing;
use crate::Place;

/// From this size on a digest is worth having computed: a smaller file is copied from one source before the others could help.
pub(super) const MIN_BYTES: u64 = 16 << 20;

/// Algorithms to request, in this order: every destination computes these from pieces in any order. XRootD servers
/// support the second one, towpath both.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Crc32c, Algorithm::Adler32];

/// Has a source compute the digest of its file, unless one is known: the lead if it can, else another one. Without any only the lead is read.
pub(super) async fn find(sources: &[Place], sharing: &Sharing, grace: Duration) {
    let Ok(agreed) = sharing.agreed(grace).await else { return };
    if agreed.size < MIN_BYTES {
        return;
    }
    while let Some(index) = sharing.next_to_compute().await {
        match compute(&sources[index]).await {
            Some(digest) => return sharing.computed(index, digest),
            None => sharing.computes_none(index),
        }
    }
    sharing.stay_alone();
}

/// The digest of the file as its storage computes it; none if its storage does not, or fails.
async fn compute(place: &Place) -> Option<Digest> {
    for algorithm in ALGORITHMS {
        match by_storage(place, algorithm).await {
            Some(Ok(digest)) => return Some(digest),
            Some(Err(error)) => tracing::debug!(%place, %error, "no {algorithm}"),
            None => tracing::debug!(%place, "the storage computes no {algorithm}"),
        }
    }
    None
}

/// The digest as the storage computes it. None if the file would have to be read over the network for it: that takes as long as the copy. A store says so by
/// reporting progress.
async fn by_storage(place: &Place, algorithm: Algorithm) -> Option<Result<Digest>> {
    let reads = Notify::new();
    let notice = |_| {
        if place.is_remote() {
            reads.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = reads.notified() => None,
        digest = place.store.digest(&place.caller, &place.path, algorithm, &notice) => Some(digest),
    }
}
