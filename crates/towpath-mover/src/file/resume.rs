//! Keys of resumable uploads.

use std::iter;

use towpath_proto::checksum::Digest;
use towpath_store::{Metadata, ResumeKey, sys::clock};

use crate::{Job, replicas::Identity};

/// Minimum size of a resumable file. Resuming a smaller one costs more than it saves: two additional files in the
/// staging area, and a request over the network.
pub(crate) const MIN_RESUMABLE_BYTES: u64 = 64 << 20;

/// Minimum age in nanoseconds at which a modification time in whole seconds identifies a version: the second itself,
/// and one for clock skew.
const MIN_VERSION_AGE_NS: i64 = 2_000_000_000;

/// How a later run finds the parts of an interrupted upload, and proves that they are of the same file.
///
/// Both belong together: the sources of a file may change from [`Identity::Proved`] to [`Identity::Alone`] while the
/// upload begins, and parts found by the key of the former may be of several sources.
pub(super) struct Resume {
    /// The key under which the parts are stored.
    pub(super) key: ResumeKey,
    /// The digest of the whole file that the key contains, if the parts may be of several sources.
    pub(super) proof: Option<Digest>,
}

impl Resume {
    /// Returns how to resume the upload of a source with `metadata`. `None` for small files, for destinations that
    /// cannot resume, and if nothing would prove that the parts are of the same file: the source has no version, or an
    /// ambiguous one.
    pub(super) fn of(job: &Job, metadata: &Metadata) -> Option<Self> {
        if metadata.size < MIN_RESUMABLE_BYTES || !job.to.store.capabilities().resume {
            return None;
        }
        let (size, to) = (metadata.size.to_le_bytes(), job.to.to_string());
        let from = match job.from.replicas() {
            None => job.from.to_string(),
            Some(replicas) => match replicas.identity(metadata)? {
                Identity::Alone(source) => source.to_string(),
                Identity::Proved(sources, digest) => {
                    let sources = sources.iter().map(ToString::to_string);
                    let parts: Vec<_> = [to, format!("{digest:#}")].into_iter().chain(sources).collect();
                    let parts = iter::once(size.as_slice()).chain(parts.iter().map(String::as_bytes));
                    let key = ResumeKey::of(&parts.collect::<Vec<_>>());
                    return Some(Self { key, proof: Some(digest) });
                }
            },
        };
        let version = match (&metadata.version, metadata.mtime_ns) {
            _ if is_ambiguous(metadata, clock::unix_ns()) => return None,
            (Some(version), _) => version.as_str().to_owned(),
            (None, Some(mtime_ns)) => mtime_ns.to_string(),
            (None, None) => return None,
        };
        Some(Self { key: ResumeKey::of(&[from.as_bytes(), &size, version.as_bytes(), to.as_bytes()]), proof: None })
    }
}

/// Returns whether the file may change without a new version, because its modification time has whole seconds and that
/// second may not be over. XRootD and most entity tags of web servers have no finer time. A time in the future is
/// ambiguous too.
fn is_ambiguous(metadata: &Metadata, now_ns: i64) -> bool {
    let is_whole = |mtime_ns: &i64| mtime_ns % 1_000_000_000 == 0;
    metadata.mtime_ns.filter(is_whole).is_some_and(|mtime_ns| mtime_ns > now_ns.saturating_sub(MIN_VERSION_AGE_NS))
}
