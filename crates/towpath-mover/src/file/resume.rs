//! Keys of resumable uploads.

use std::iter;

use towpath_proto::checksum::Digest;
use towpath_store::{Metadata, ResumeKey, VersionTag, is_settled, sys::clock};

use crate::{Job, replicas::Identity};

/// Minimum size of a resumable file. Resuming a smaller one costs more than it saves: two additional files in the
/// staging area, and a request over the network.
pub(crate) const MIN_RESUMABLE_BYTES: u64 = 64 << 20;

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
/// second may not be over. Tags of XRootD and many strong entity tags of web servers have no finer time. A time in the
/// future is ambiguous too.
fn is_ambiguous(metadata: &Metadata, now_ns: i64) -> bool {
    let is_whole = |mtime_ns: &i64| mtime_ns % 1_000_000_000 == 0;
    let is_weak = metadata.version.as_ref().is_some_and(VersionTag::is_weak);
    let is_recent = metadata.mtime_ns.filter(is_whole).is_some_and(|mtime_ns| !is_settled(mtime_ns, now_ns));
    is_recent || (is_weak && !metadata.identifies_content(now_ns))
}

#[cfg(test)]
mod tests {
    use towpath_store::FileKind;

    use super::*;

    #[test]
    fn a_recent_time_in_whole_seconds_is_ambiguous() {
        let now = 1_700_000_000_000_000_000;
        let strong = VersionTag::new("tag");
        let weak = strong.clone().map(VersionTag::into_weak);
        for (version, mtime_ns, expected) in [
            (&strong, Some(now - 2_000_000_000), false),
            (&strong, Some(now - 1_000_000_000), true),
            (&strong, Some(now - 1_000_000_001), false),
            (&strong, Some(now + 1_000_000_000), true),
            (&strong, None, false),
            (&weak, Some(now - 2_000_000_000), false),
            (&weak, Some(now - 1_000_000_000), true),
            (&weak, None, true),
        ] {
            let metadata = Metadata { version: version.clone(), mtime_ns, ..Metadata::new(FileKind::File, 1) };
            assert_eq!(is_ambiguous(&metadata, now), expected, "{mtime_ns:?}");
        }
    }
}
