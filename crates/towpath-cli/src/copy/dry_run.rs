//! `cp --dry-run`: prints the actions of a copy, and the failures that are known before it.

use futures::StreamExt as _;
use towpath_mover::{FailedJob, Job, Mover, SyncAction, Trees, actions};
use towpath_store::{Error, Fault, sys::clock};

use super::{Total, arguments::Source};
use crate::{args::Copy, failure::Failure, reporter::Reporter, sync::StepOutput};

/// Maximum number of files whose ends are examined concurrently.
const MAX_REQUESTS: usize = 64;

/// Prints the actions of copying `source`; changes nothing.
pub(super) async fn run(
    arguments: &Copy,
    (mover, trees): (&Mover, Trees),
    source: Source,
    (reporter, mut total): (Reporter, Total),
) -> Result<(), Failure> {
    let Source::Named(pairs) = source else {
        return Err(Failure::Usage("--dry-run does not support --retry-from".into()));
    };
    let start = clock::now();
    let output = StepOutput::of_copy(&arguments.options, &reporter);
    let mut files = Vec::new();
    for job in pairs {
        match refuse_directory(arguments, &job).await {
            Ok(()) => files.push(job),
            Err(error) => total.failures.add(&FailedJob { job, error }),
        }
    }
    let steps = actions(files, trees, mover.progress())?;
    let steps = steps.map(|step| async move {
        match step? {
            SyncAction::Copy(job, why) => Ok(match is_skipped(arguments, mover, &job).await {
                Ok(true) => SyncAction::Same(1),
                Ok(false) => SyncAction::Copy(job, why),
                Err(error) => return Err(FailedJob { job, error }),
            }),
            step => Ok(step),
        }
    });
    output.report_all(steps.buffered(MAX_REQUESTS), &mut total).await?;
    total.failures.close_list();
    let seconds = start.elapsed().as_secs_f64();
    reporter.end(|| output.summary(&total, seconds))?;
    output.report_total(&total, seconds, arguments.options.quiet)?;
    total.failures.tally.outcome()
}

/// Refuses a source that only a recursive copy accepts.
async fn refuse_directory(arguments: &Copy, Job { from, .. }: &Job) -> Result<(), Error> {
    if arguments.recursive || !from.store.stat(&from.caller, &from.path).await?.is_directory() {
        return Ok(());
    }
    Err(Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&from.path))
}

/// Returns whether an existing file would be skipped.
///
/// # Errors
/// The failure of the copy, as far as it is known before.
async fn is_skipped(arguments: &Copy, mover: &Mover, job: &Job) -> Result<bool, Error> {
    if mover.is_skipped(job).await? {
        return Ok(true);
    }
    let to = &job.to;
    match to.store.stat(&to.caller, &to.path).await {
        Ok(found) if found.is_directory() => Err(Error::new(Fault::IsDirectory, "it is a directory").at(&to.path)),
        Ok(_) if arguments.force || arguments.update => Ok(false),
        Ok(_) if mover.is_skipped_if_refused(job).await => Ok(true),
        Ok(_) => Err(Error::new(Fault::AlreadyExists, "it exists already").at(&to.path)),
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => Ok(false),
        Err(error) => Err(error),
    }
}
