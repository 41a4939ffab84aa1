//! Compares a file with its copy: by listings, and by requests to both ends where listings are not sufficient.

use futures::try_join;
use towpath_proto::checksum::{Agreement, Algorithm};
use towpath_store::{DirectoryId, FileKind, Metadata, Result};

use crate::Job;

const NS_PER_S: i64 = 1_000_000_000;
const NS_PER_US: i64 = 1_000;

/// How existing files are compared. Files of different sizes always differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// By modification time if the destination preserves times, and by known digests if the times differ. Otherwise a
    /// file differs if it is older than its source and the known digests do not match. If an end reports no time, only
    /// digests can show equality.
    #[default]
    Auto,
    /// By size only.
    Size,
    /// By modification time, which the destination must preserve.
    Time,
    /// By digest, even if the files must be read to compute it.
    Digest,
}

/// The metadata kept of a listing entry: less than a hundred bytes including the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntrySummary {
    pub(crate) kind: FileKind,
    pub(crate) is_link: bool,
    pub(crate) size: u64,
    pub(crate) mtime_ns: Option<i64>,
    pub(crate) mode: Option<u32>,
    pub(crate) directory_id: Option<DirectoryId>,
}

/// Why a file has to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// The destination has no such file.
    Missing,
    /// The sizes differ.
    Size,
    /// The modification times differ, or the source is newer.
    Time,
    /// The digests differ.
    Digest,
    /// The sizes are equal, but neither times nor digests can be compared.
    Unproven,
    /// The destination has another kind of entry: a directory or a dangling link.
    Kind,
}

impl CopyReason {
    /// Returns the name shown to users and in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            CopyReason::Missing => "missing",
            CopyReason::Size => "size",
            CopyReason::Time => "time",
            CopyReason::Digest => "digest",
            CopyReason::Unproven => "unproven",
            CopyReason::Kind => "kind",
        }
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The files are equal.
    Same,
    /// The contents are equal; time or mode differ.
    Touched,
    /// The contents differ.
    Differs(CopyReason),
    /// Only digests can decide. If they cannot be compared, the files count as different for this reason.
    Unclear(CopyReason),
}

impl EntrySummary {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let Metadata { kind, is_link, size, mtime_ns, mode, directory_id, .. } = *metadata;
        Self { kind, is_link, size, mtime_ns, mode, directory_id }
    }
}

/// Compares two files by their listings; `keeps_times` states whether the destination preserves modification times.
pub(crate) fn compare(source: &EntrySummary, found: &EntrySummary, by: Compare, keeps_times: bool) -> Finding {
    // A source that is not a file fails when it is opened.
    if source.kind != FileKind::File || found.kind != FileKind::File {
        return Finding::Differs(CopyReason::Kind);
    }
    if source.size != found.size {
        return Finding::Differs(CopyReason::Size);
    }
    let times = source.mtime_ns.zip(found.mtime_ns);
    match (by, times) {
        (Compare::Size, _) => Finding::Same,
        (Compare::Digest, _) if source.size > 0 => Finding::Unclear(CopyReason::Digest),
        (_, Some((ours, theirs))) if is_same_time(ours, theirs) => Finding::Same,
        (Compare::Digest, Some(_)) if keeps_times => Finding::Touched,
        (Compare::Digest, _) => Finding::Same,
        (Compare::Time, Some(_)) => Finding::Differs(CopyReason::Time),
        (_, None) => Finding::Unclear(CopyReason::Unproven),
        (_, Some(_)) if keeps_times => Finding::Unclear(CopyReason::Time),
        (_, Some((ours, theirs))) if theirs < ours => Finding::Unclear(CopyReason::Time),
        (_, Some(_)) => Finding::Same,
    }
}

/// Requests digests from both ends after [`Finding::Unclear`]. If no digest can be compared, the metadata decide.
///
/// # Errors
/// Errors of both stores.
pub(crate) async fn compare_digests(job: &Job, by: Compare, algorithm: Option<Algorithm>) -> Result<Finding> {
    let Job { from, to, .. } = job;
    let (source, found) = try_join!(from.store.stat(&from.caller, &from.path), to.store.stat(&to.caller, &to.path))?;
    let mut agreement = found.digests.compare(&source.digests);
    let is_told = match algorithm {
        Some(algorithm) => source.digests.get(algorithm).is_some() && found.digests.get(algorithm).is_some(),
        None => agreement != Agreement::Incomparable,
    };
    if by == Compare::Digest && !is_told {
        let algorithm = algorithm.unwrap_or(Algorithm::Adler32);
        let (ours, theirs) = try_join!(
            from.store.digest(&from.caller, &from.path, algorithm, &|_| {}),
            to.store.digest(&to.caller, &to.path, algorithm, &|_| {}),
        )?;
        agreement = if ours == theirs { Agreement::Same } else { Agreement::Different(algorithm) };
    }
    let keeps_times = to.store.capabilities().set_mtime;
    let is_timely = source.mtime_ns.zip(found.mtime_ns).is_none_or(|(ours, theirs)| is_same_time(ours, theirs));
    Ok(match agreement {
        _ if (found.kind, found.size) != (FileKind::File, source.size) => Finding::Differs(CopyReason::Size),
        Agreement::Different(_) => Finding::Differs(CopyReason::Digest),
        Agreement::Same if keeps_times && !is_timely => Finding::Touched,
        Agreement::Same => Finding::Same,
        Agreement::Incomparable => {
            match compare(&EntrySummary::of(&source), &EntrySummary::of(&found), by, keeps_times) {
                Finding::Unclear(why) => Finding::Differs(why),
                finding => finding,
            }
        }
    })
}

/// Returns whether `found` is a file with a time that is not older than that of `source`.
pub(crate) fn is_not_older(source: &EntrySummary, found: &EntrySummary) -> bool {
    let are_files = (source.kind, found.kind) == (FileKind::File, FileKind::File);
    let times = source.mtime_ns.zip(found.mtime_ns);
    are_files && times.is_some_and(|(ours, theirs)| theirs >= ours || is_same_time(ours, theirs))
}

/// Returns whether two times are equal at the lower of both precisions: some protocols have whole seconds only, and
/// some file systems microseconds.
pub(crate) fn is_same_time(a_ns: i64, b_ns: i64) -> bool {
    let [a_has_fraction, b_has_fraction] = [a_ns, b_ns].map(|ns| ns.rem_euclid(NS_PER_S) != 0);
    let unit = if a_has_fraction && b_has_fraction { NS_PER_US } else { NS_PER_S };
    a_ns.div_euclid(unit) == b_ns.div_euclid(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, mtime_ns: impl Into<Option<i64>>) -> EntrySummary {
        EntrySummary {
            kind: FileKind::File,
            is_link: false,
            size,
            mtime_ns: mtime_ns.into(),
            mode: None,
            directory_id: None,
        }
    }

    #[test]
    fn what_listings_tell() {
        use {Compare::*, Finding::*};
        let directory = EntrySummary { kind: FileKind::Directory, ..file(0, 1) };
        for (source, found, by, keeps_times, finding) in [
            (file(1, 5), file(2, 5), Auto, true, Differs(CopyReason::Size)),
            (file(0, 5), directory, Auto, true, Differs(CopyReason::Kind)),
            (EntrySummary { kind: FileKind::Other, ..file(0, 5) }, file(0, 5), Auto, true, Differs(CopyReason::Kind)),
            (file(1, 5), file(1, 5), Auto, true, Same),
            (file(1, NS_PER_S), file(1, 3 * NS_PER_S), Auto, true, Unclear(CopyReason::Time)),
            (file(1, NS_PER_S), file(1, 3 * NS_PER_S), Time, true, Differs(CopyReason::Time)),
            (file(1, NS_PER_S), file(1, 3 * NS_PER_S), Size, true, Same),
            (file(1, NS_PER_S), file(1, 3 * NS_PER_S), Auto, false, Same),
            (file(1, 3 * NS_PER_S), file(1, NS_PER_S), Auto, false, Unclear(CopyReason::Time)),
            (file(1, None), file(1, 1), Auto, false, Unclear(CopyReason::Unproven)),
            (file(1, 5), file(1, None), Time, true, Unclear(CopyReason::Unproven)),
            (file(0, 5), file(0, None), Auto, true, Unclear(CopyReason::Unproven)),
            (file(1, None), file(1, None), Size, true, Same),
            (file(1, 5), file(1, 5), Digest, true, Unclear(CopyReason::Digest)),
            (file(0, 5), file(0, 5), Digest, true, Same),
        ] {
            assert_eq!(compare(&source, &found, by, keeps_times), finding, "{source:?} {found:?} {by:?}");
        }
    }

    #[test]
    fn times_are_compared_as_far_as_both_are_told() {
        assert!(is_same_time(5 * NS_PER_S + 123, 5 * NS_PER_S));
        assert!(is_same_time(5 * NS_PER_S + 1_234, 5 * NS_PER_S + 1_999));
        assert!(!is_same_time(5 * NS_PER_S + 1_234, 5 * NS_PER_S + 2_345));
        assert!(!is_same_time(5 * NS_PER_S, 6 * NS_PER_S));
        assert!(is_same_time(-1, -NS_PER_S));
    }

    #[test]
    fn a_file_without_a_time_is_older() {
        assert!(is_not_older(&file(1, 5), &file(2, 5)) && is_not_older(&file(1, 5), &file(2, 7)));
        assert!(is_not_older(&file(1, 5 * NS_PER_S + 7), &file(2, 5 * NS_PER_S)));
        assert!(!is_not_older(&file(1, 2 * NS_PER_S), &file(1, NS_PER_S)));
        assert!(!is_not_older(&file(1, None), &file(1, 5)) && !is_not_older(&file(1, 5), &file(1, None)));
    }

    #[test]
    fn an_entry_takes_little() {
        assert!(size_of::<EntrySummary>() <= 48);
    }
}
