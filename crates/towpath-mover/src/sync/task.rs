//! The decision about one entry of two directories, according to their listings.

use towpath_store::{Changes, Error, Fault, FileKind, StorePath};

use super::{
    Pass, Purpose, Sync, SyncAction,
    descent::{Descent, Directory},
    names::EntryPair,
};
use crate::{
    CopyReason, FailedJob, Job, SkipPolicy,
    ancestry::Ancestry,
    compare::{self, EntrySummary, Finding, is_same_time},
    filter::Selection,
    pending_directory::{CompleteDirectory, PendingDirectory},
};

/// The mode of directories created by remote storages.
const USUAL_MODE: u32 = 0o755;

/// The action for one entry.
pub(super) enum Task {
    /// Report the step.
    Tell(SyncAction),
    /// Query both ends whether the file is unchanged.
    Ask(Job, EntrySummary),
    /// Set time and mode.
    Touch(Job, Changes),
    /// Create a directory and process its entries.
    Make(Subdirectory),
    /// Remove an entry that only the destination has, then run the other task.
    Remove { ends: Job, found: EntrySummary, then: Option<Box<Task>> },
    /// Report a failure.
    Miss(FailedJob),
}

/// A subdirectory.
pub(super) struct Subdirectory {
    pub(super) ends: Job,
    pub(super) source: EntrySummary,
    /// The trail of its parent directory.
    pub(super) ancestry: Ancestry,
    /// The counterpart at the destination, if it is a directory too.
    pub(super) found: Option<EntrySummary>,
    /// Whether the filter accepts the entry itself, and not only its contents.
    pub(super) is_taken: bool,
}

impl Task {
    pub(super) fn copy(ends: Job, source: &EntrySummary, why: CopyReason) -> Self {
        Task::Tell(SyncAction::Copy(Job { size: Some(source.size), ..ends }, why))
    }
}

impl Descent {
    /// Decides about one entry of `directory`, whose two ends are `job`.
    pub(super) fn entry(&self, job: &Job, directory: &Directory, entry: &EntryPair<'_>) -> Option<Task> {
        let ends = job.from.join(entry.name).and_then(|from| Ok(Job::new(from, job.to.join(entry.name)?)));
        let ends = match ends {
            Ok(ends) => Job { pending_directory: job.pending_directory.clone(), ..ends },
            Err(_) if entry.source.is_none() && !self.tells_what_stays() => return None,
            Err(error) => return Some(Task::Miss(FailedJob { job: job.clone(), error })),
        };
        let is_copy = self.sync.purpose != Purpose::Alike;
        if is_copy && entry.source.is_none() {
            return None;
        }
        let [is_ambiguous, is_found_ambiguous] = entry.are_ambiguous;
        if is_ambiguous || (is_found_ambiguous && !is_copy) {
            let error = Error::new(Fault::InvalidArgument, "a file and a directory have this name: both are skipped");
            return Some(Task::Miss(FailedJob { error: error.at(&ends.from.path), job: ends }));
        }
        let Some(source) = entry.source else { return self.extra(&ends, directory, &entry.found?) };
        let judgement = self.wanted(&ends.from.path, &source)?;
        let is_directory = source.kind == FileKind::Directory;
        // A conflict with a copy is reported by the copy itself.
        let is_compared = |found: &EntrySummary| {
            !is_copy || ((found.kind == FileKind::Directory) == is_directory && !is_found_ambiguous)
        };
        let found = entry.found.filter(is_compared);
        let is_there = found.is_some_and(|found| found.kind == FileKind::Directory);
        // The target of a link at the destination is not part of the destination and may itself be about to be
        // deleted: it is not modified.
        let is_same_kind = found.is_some_and(|found| is_tree(&found) || (is_copy && is_there));
        let below = |found| {
            let (ends, ancestry) = (ends.clone(), directory.ancestry.clone());
            Subdirectory { ends, source, ancestry, found, is_taken: judgement.is_taken }
        };
        match (is_directory, found) {
            (false, Some(_)) if is_there && source.kind == FileKind::Other => {
                // The source may be an unreachable directory: a link to an unmounted file system, or a directory that a
                // server does not describe.
                let error = Error::new(Fault::NotRegular, "it is not a file, and the directory with this name is kept");
                Some(Task::Miss(FailedJob { error: error.at(&ends.from.path), job: ends }))
            }
            (true, Some(_)) if is_same_kind => Some(Task::Make(below(found))),
            (true, None) => Some(Task::Make(below(None))),
            (true, Some(found)) => Some(self.resolve_conflict(ends.clone(), &found, Task::Make(below(None)))),
            (false, None) => Some(Task::copy(ends, &source, CopyReason::Missing)),
            (false, Some(found)) if is_there => {
                let then = Task::copy(ends.clone(), &source, CopyReason::Kind);
                Some(self.resolve_conflict(ends, &found, then))
            }
            (false, Some(found)) if self.pass == Pass::Copying => Some(self.file(ends, &source, &found)),
            (false, Some(_)) => None,
        }
    }

    /// Applies the filter to an entry of the source; `None` if neither the entry nor its contents are selected.
    pub(super) fn wanted(&self, path: &StorePath, source: &EntrySummary) -> Option<Selection> {
        let filter = &self.sync.options.filter;
        let is_directory = source.kind == FileKind::Directory;
        let judgement = filter.apply(path, self.sync.ends.root(), is_directory);
        let is_wanted = if is_directory { judgement.may_hold } else { judgement.is_taken && filter.takes(source.size) };
        is_wanted.then_some(judgement)
    }

    /// Decides about a file that exists at both ends.
    pub(super) fn file(&self, ends: Job, source: &EntrySummary, found: &EntrySummary) -> Task {
        let keeps_times = ends.to.store.capabilities().set_mtime;
        let finding = compare::compare(source, found, self.sync.options.compare, keeps_times);
        if let Purpose::CopyUnless(policy) = self.sync.purpose {
            let is_skipped = match policy {
                SkipPolicy::Nothing | SkipPolicy::SameIfRefused => false,
                SkipPolicy::Same => finding == Finding::Same && source.kind == FileKind::File,
                SkipPolicy::NotOlder => compare::is_not_older(source, found),
            };
            return match is_skipped {
                true => Task::Tell(SyncAction::Same(1)),
                // The copy queries both ends itself before it begins.
                false => Task::copy(ends, source, CopyReason::Missing),
            };
        }
        match finding {
            Finding::Differs(why) => Task::copy(ends, source, why),
            Finding::Unclear(_) => Task::Ask(ends, *source),
            Finding::Touched => Task::Touch(ends, self.changes(source)),
            Finding::Same if keeps_times && self.has_other_mode(source, found) => {
                Task::Touch(ends, self.changes(source))
            }
            Finding::Same => Task::Tell(SyncAction::Same(1)),
        }
    }

    /// Decides about an entry that only the destination has.
    fn extra(&self, ends: &Job, directory: &Directory, found: &EntrySummary) -> Option<Task> {
        // Listings of other xroot servers cannot represent such a name, so it may exist at the source.
        let says_all = !ends.from.is_remote() || directory.ancestry.is_identified();
        let is_unsayable = !says_all && ends.from.path.as_bytes().contains(&b'\n');
        if !self.sync.options.delete || !self.is_taken(ends, found) {
            return None;
        }
        if is_unsayable {
            let message =
                "it is not deleted: the source's listings omit names with a line break, so it may exist there";
            let error = Error::new(Fault::InvalidArgument, message).at(&ends.to.path);
            return self.tells_what_stays().then(|| Task::Miss(FailedJob { job: ends.clone(), error }));
        }
        Some(Task::Remove { ends: ends.clone(), found: *found, then: None })
    }

    /// Returns whether to report an extra entry that cannot be deleted: only once, and where the report does not
    /// prevent other deletions.
    fn tells_what_stays(&self) -> bool {
        let Sync { options, purpose, .. } = &*self.sync;
        options.delete && *purpose == Purpose::Alike && (self.pass == Pass::Deleting || options.dry_run)
    }

    /// Returns whether the filter selects an entry of the destination.
    fn is_taken(&self, ends: &Job, found: &EntrySummary) -> bool {
        let filter = &self.sync.options.filter;
        let is_directory = is_tree(found);
        let judgement = filter.apply(&ends.from.path, self.sync.ends.root(), is_directory);
        judgement.is_taken && (is_directory || filter.takes(found.size))
    }

    /// Decides about a file in place of a directory, or the reverse; `then` is the task once the conflict is removed.
    fn resolve_conflict(&self, ends: Job, found: &EntrySummary, then: Task) -> Task {
        let is_taken = self.is_taken(&ends, found);
        if self.sync.options.delete && is_taken {
            return Task::Remove { ends, found: *found, then: Some(Box::new(then)) };
        }
        let (fault, what) = match found.kind {
            FileKind::Directory if found.is_link => (Fault::NotDirectory, "a link to a directory"),
            FileKind::Directory => (Fault::IsDirectory, "a directory"),
            _ => (Fault::NotDirectory, "a file"),
        };
        let remedy = if is_taken { "--delete removes it" } else { "the filter excludes it, so it is kept" };
        let message = format!("{what} is in the way: {remedy}");
        let error = Error::new(fault, message).at(&ends.to.path);
        Task::Miss(FailedJob { job: ends, error })
    }

    /// Sets the metadata to apply to `directory`, whose two ends are `ends`, when it is complete; none where the
    /// storage does not keep them.
    pub(super) fn set_when_full(&self, directory: &Directory, ends: &Job, pending_directory: &PendingDirectory) {
        let Directory { source, found, .. } = directory;
        if self.sync.options.dry_run || !directory.is_taken || !ends.to.store.capabilities().set_mtime {
            return;
        }
        let wanted = self.changes(source);
        // A created directory has the default mode, and possibly inherited bits that must be kept.
        let usual = if ends.to.is_remote() { USUAL_MODE } else { 0o777 & !self.sync.options.umask };
        let before = found.map_or(Some(usual), |found| found.mode.map(|mode| mode & 0o777));
        let mode = wanted.mode.filter(|wanted| before.is_some_and(|before| before != *wanted));
        let times = wanted.mtime_ns.zip(found.and_then(|found| found.mtime_ns));
        let is_timely = times.is_some_and(|(wanted, found)| is_same_time(wanted, found));
        let changes = Changes { mode, mtime_ns: wanted.mtime_ns, size: None };
        let is_due = found.is_none() || mode.is_some() || !is_timely;
        pending_directory.set(CompleteDirectory { ends: ends.clone(), changes }, is_due);
    }

    /// Returns the time and mode that the destination of a file or directory should have.
    pub(super) fn changes(&self, source: &EntrySummary) -> Changes {
        let mode = source.mode.map(|mode| mode & 0o777 & !self.sync.options.umask);
        Changes { mode, mtime_ns: source.mtime_ns, size: None }
    }

    fn has_other_mode(&self, source: &EntrySummary, found: &EntrySummary) -> bool {
        let wanted = self.changes(source).mode;
        wanted.zip(found.mode).is_some_and(|(wanted, mode)| wanted != mode & 0o777)
    }
}

/// Returns whether it is a directory and not a link to one.
pub(super) fn is_tree(found: &EntrySummary) -> bool {
    found.kind == FileKind::Directory && !found.is_link
}
