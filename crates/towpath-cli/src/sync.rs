//! `towpath sync`: performs the steps of [`towpath_mover::Sync`], or prints them in a dry run.

use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures::{Stream, StreamExt as _, future};
use serde_json::{Value, json};
use towpath_mover::{Extra, FailedJob, Job, Jobs, Mover, SkipPolicy, SyncAction, SyncActions, SyncOptions};
use towpath_proto::units::size_text;
use towpath_store::{Error, Fault, Overwrite, StorePath, sys::clock};

use crate::{
    args::{CopyOptions, Sync},
    copy::{Total, run_jobs},
    events::Events,
    explain,
    failure::{Failure, complain},
    failures::{FailureList, once_more},
    location::StoreResolver,
    output::{count_text, relative},
    reporter::Reporter,
    screen, umask,
};

/// Counts of actions besides copies.
#[derive(Debug, Default)]
struct Counts {
    same: AtomicU64,
    touched: AtomicU64,
    directories: AtomicU64,
    extras: AtomicU64,
}

/// Reports steps.
#[derive(Debug, Clone)]
pub(crate) struct StepOutput {
    counts: Arc<Counts>,
    /// The destination, whose entries are printed relative to it; `None` prints both ends of each copy.
    root: Option<StorePath>,
    json: bool,
    /// Whether the actions of a dry run are printed as text on the standard output.
    prints: bool,
    events: Option<Arc<Events>>,
    is_dry: bool,
    /// Whether entries that exist only at the destination are being deleted.
    deletes: bool,
}

/// Runs `towpath sync`.
pub(crate) async fn run(arguments: &Sync, resolver: &StoreResolver) -> Result<(), Failure> {
    let options = &arguments.options;
    if options.checksum.is_some_and(|request| request.expected().is_some()) {
        return Err(Failure::Usage("--checksum with a digest requires one file: use cp".into()));
    }
    let ends = Job::new(resolver.location(&arguments.source)?, resolver.location(&arguments.destination)?);
    let mut reporter = Reporter::new(options, "sync")?;
    let start = clock::now();
    let output = StepOutput {
        counts: Arc::default(),
        root: Some(ends.to.path.clone()),
        json: options.json,
        prints: arguments.dry_run && !options.prints_events(),
        events: reporter.events().cloned(),
        is_dry: arguments.dry_run,
        deletes: arguments.dry_run,
    };
    let sync_options = SyncOptions {
        compare: arguments.compare.into(),
        checksum: options.algorithm(),
        filter: arguments.filters.filter.clone(),
        delete: arguments.delete,
        dry_run: arguments.dry_run,
        umask: umask(),
    };
    let sync = towpath_mover::Sync::new(ends, sync_options)?;
    let mover =
        Mover::new(options.mover_options(Overwrite::Replace, SkipPolicy::Nothing, resolver), reporter.observer());
    let mut total = Total { failures: FailureList::new(options.failed_to.as_deref())?, ..Total::default() };
    match arguments.dry_run {
        true => output.report_all(sync.copying(mover.progress()), &mut total).await?,
        false => {
            let jobs = output.jobs(sync.copying(mover.progress()));
            run_jobs(options, &mover, (jobs, None), &mut reporter, &mut total).await?;
        }
    }
    let extras = output.counts.extras.load(Relaxed);
    let may_delete = if extras > 0 { check_deletion(arguments, extras, sync.source_entries(), &total) } else { Ok(()) };
    if !arguments.dry_run {
        output.counts.extras.store(0, Relaxed);
    }
    if extras > 0 && may_delete.is_ok() && !arguments.dry_run {
        let deleting = StepOutput { deletes: true, ..output.clone() };
        let jobs = deleting.jobs(sync.deleting(mover.progress()));
        total.failures.begin_deleting();
        run_jobs(options, &mover, (jobs, None), &mut reporter, &mut total).await?;
    }
    let seconds = start.elapsed().as_secs_f64();
    total.failures.close_list();
    reporter.end(|| output.summary(&total, seconds))?;
    output.report_total(&total, seconds, options.quiet)?;
    if let Some(account) = &total.account {
        explain::print(account, options.explain, options.quiet || options.json);
    }
    let others = total.files + output.counts.same.load(Relaxed);
    // The retry skips files that are the same by then.
    total.failures.finish(others, |_| Some(once_more(std::env::args_os(), &[]))).and(may_delete)
}

/// Checks whether `extras` entries may be deleted.
fn check_deletion(arguments: &Sync, extras: u64, source_entries: u64, total: &Total) -> Result<(), Failure> {
    let refused = |message: String| Err(Error::new(Fault::InvalidArgument, message).into());
    if total.failures.tally.count > 0 {
        complain("nothing is deleted, because of the errors above");
        return total.failures.tally.outcome();
    }
    if source_entries == 0 && !arguments.allow_empty_source {
        return refused(
            "nothing is deleted, because the source is empty; use --allow-empty-source to delete anyway".into(),
        );
    }
    match arguments.max_delete {
        Some(most) if extras > most => {
            let deletions = count_text(extras, "deletion is", "deletions are");
            refused(format!("nothing is deleted, because {deletions} more than --max-delete permits"))
        }
        _ => Ok(()),
    }
}

impl StepOutput {
    /// Creates the output of `cp --dry-run`.
    pub(crate) fn of_copy(options: &CopyOptions, reporter: &Reporter) -> Self {
        Self {
            counts: Arc::default(),
            root: None,
            json: options.json,
            prints: !options.prints_events(),
            events: reporter.events().cloned(),
            is_dry: true,
            deletes: false,
        }
    }

    /// Returns the files to copy; all other steps are reported as they arrive.
    fn jobs(&self, steps: SyncActions) -> Jobs {
        let output = self.clone();
        let jobs = steps.filter_map(move |step| {
            future::ready(match step {
                Ok(SyncAction::Copy(job, _)) => Some(Ok(job)),
                Ok(step) => {
                    // A closed output does not stop the copies; the next report detects it.
                    let _ = output.report(&step);
                    None
                }
                Err(failed_job) => Some(Err(failed_job)),
            })
        });
        jobs.boxed()
    }

    /// Prints the actions of a dry run.
    pub(crate) async fn report_all(
        &self,
        steps: impl Stream<Item = Result<SyncAction, FailedJob>>,
        total: &mut Total,
    ) -> Result<(), Failure> {
        let mut steps = std::pin::pin!(steps);
        while let Some(step) = steps.next().await {
            match step {
                Ok(step) => {
                    if let SyncAction::Copy(job, _) = &step {
                        total.files += 1;
                        total.bytes += job.size.unwrap_or(0);
                    }
                    self.report(&step)?;
                }
                Err(failed_job) => total.failures.add(&failed_job),
            }
            if let Some(events) = &self.events {
                events.deliver()?;
            }
        }
        Ok(())
    }

    /// Counts a step, and prints it if requested.
    fn report(&self, step: &SyncAction) -> io::Result<()> {
        let counts = &self.counts;
        let (counter, by) = match step {
            SyncAction::Same(files) => (&counts.same, *files),
            SyncAction::Touch(..) => (&counts.touched, 1),
            SyncAction::MakeDirectory(_) => (&counts.directories, 1),
            SyncAction::Extra(_) => (&counts.extras, 1),
            SyncAction::Copy(..) => return self.print(step),
        };
        counter.fetch_add(by, Relaxed);
        if matches!(step, SyncAction::Extra(_)) && !self.deletes { Ok(()) } else { self.print(step) }
    }

    fn print(&self, step: &SyncAction) -> io::Result<()> {
        // Copies are reported when they end.
        let is_reported = self.is_dry || !matches!(step, SyncAction::Copy(..));
        if let (Some(events), Some(fields)) = (&self.events, object(step).filter(|_| is_reported)) {
            events.note("action", fields);
        }
        screen::above(|| self.print_line(step))
    }

    fn print_line(&self, step: &SyncAction) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match (self.json, self.prints) {
            (true, _) => match object(step) {
                Some(line) => writeln!(out, "{line}"),
                None => Ok(()),
            },
            (false, true) => {
                let path = |path: &StorePath| match self.root.as_ref().map(|root| relative(path, root)) {
                    Some(path) if path.is_empty() => ".".to_owned(),
                    Some(path) => path,
                    None => path.to_string(),
                };
                match step {
                    SyncAction::Same(_) => Ok(()),
                    SyncAction::Copy(Job { from, to, .. }, _) if self.root.is_none() => {
                        writeln!(out, "copy {from} to {to}")
                    }
                    SyncAction::MakeDirectory(to) if self.root.is_none() => writeln!(out, "mkdir {to}/"),
                    SyncAction::Copy(job, why) => writeln!(out, "copy {} ({})", path(&job.to.path), why.name()),
                    SyncAction::MakeDirectory(location) => writeln!(out, "mkdir {}/", path(&location.path)),
                    SyncAction::Touch(location, _) => writeln!(out, "touch {}", path(&location.path)),
                    SyncAction::Extra(Extra { location, is_directory }) => {
                        writeln!(out, "delete {}{}", path(&location.path), if *is_directory { "/" } else { "" })
                    }
                }
            }
            (false, false) => Ok(()),
        }
    }

    /// Returns the numbers of unchanged files, touched files, created directories, and deletions.
    fn counts(&self) -> [u64; 4] {
        let Counts { same, touched, directories, extras } = &*self.counts;
        [same, touched, directories, extras].map(|count| count.load(Relaxed))
    }

    /// Returns the summary in JSON.
    pub(crate) fn summary(&self, total: &Total, seconds: f64) -> Value {
        let [same, touched, directories, deleted] = self.counts();
        let mut line = json!({
            "files": total.files, "bytes": total.bytes, "same": same, "touched": touched, "directories": directories,
            "deleted": deleted, "failed": total.failures.tally.count, "seconds": seconds, "dry_run": self.is_dry,
        });
        total.note_resumed(&mut line);
        total.verified.note(&mut line);
        if let Some(account) = &total.account {
            line["explained"] = explain::to_json(account);
        }
        line
    }

    /// Prints the summary.
    pub(crate) fn report_total(&self, total: &Total, seconds: f64, is_quiet: bool) -> Result<(), Failure> {
        if self.json {
            return Ok(writeln!(io::stdout(), "{}", self.summary(total, seconds))?);
        }
        let [same, touched, directories, deleted] = self.counts();
        if !is_quiet {
            let (files, size) = (count_text(total.files, "file", "files"), size_text(total.bytes));
            let how = if self.is_dry { " to be" } else { "" };
            let made = count_text(directories, "directory", "directories");
            let same = count_text(same, "is the same", "are the same");
            // A copy neither sets the times of existing files nor deletes.
            let others = match self.root {
                Some(_) => format!(", {} touched, {deleted} deleted", count_text(touched, "file", "files")),
                None => String::new(),
            };
            let rest = format!("{made} made{others}, {same}");
            let verified = if self.is_dry { String::new() } else { total.verified.text(total.files) };
            let resumed = total.resumed_text();
            let _ = writeln!(io::stderr(), "{files}{how} copied, {size}{verified}{resumed}; {rest}; {seconds:.2} s");
        }
        Ok(())
    }
}

/// Returns the JSON of a step; `None` for unchanged files. A copy is printed with more details when it ends.
fn object(step: &SyncAction) -> Option<Value> {
    Some(match step {
        SyncAction::Same(_) => return None,
        SyncAction::Copy(job, why) => {
            json!({"action": "copy", "from": job.from.to_string(), "to": job.to.to_string(), "bytes": job.size, "why": why.name()})
        }
        SyncAction::MakeDirectory(location) => json!({"action": "mkdir", "to": location.to_string()}),
        SyncAction::Touch(location, _) => json!({"action": "touch", "to": location.to_string()}),
        SyncAction::Extra(extra) => {
            json!({"action": "delete", "to": extra.location.to_string(), "directory": extra.is_directory})
        }
    })
}
