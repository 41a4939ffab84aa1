//! `towpath cp`: files and trees from any store to any store, verified in one pass.
//!
//! [`plan`] turns the arguments into [`Job`]s (one file each) as the trees are listed; jobs run side by side, bounded by their number
//! and by the bytes in flight ([`file::Window`]); [`file::copy`] moves one file. Errors of single files are printed and counted, the others go on.

mod clash;
mod existing;
mod file;
mod plan;
mod standard;

use std::io::Write as _;

use futures::{StreamExt as _, stream};
use rustix::fs::Mode;
use serde_json::{Value, json};
use towpath_proto::checksum::Algorithm;
use towpath_store::{Error, Overwrite, sys::clock};

use crate::{
    args::Copy,
    failure::{Failure, Tally, complain, print_error},
    location::{Place, Places},
    output,
    progress::Progress,
};

/// Files copied at once unless told otherwise: enough to hide a round trip of 100 ms behind others when files are small.
const FILES: usize = 192;

/// After so many generations of files of which none could be copied because a storage is out of reach, the rest is not tried: each file takes
/// a minute to fail then.
const LOST_GENERATIONS: usize = 2;

/// So many files make a generation, even if fewer are copied at once.
const LEAST_GENERATION: usize = 8;

/// One file to copy.
#[derive(Debug)]
struct Job {
    from: Place,
    to: Place,
}

impl Job {
    /// What `--json` prints of it if it failed.
    fn failed(&self, error: &Error) -> Value {
        let (fault, blame) = (error.fault().row().name, error.blame().to_string());
        json!({"from": self.from.to_string(), "to": self.to.to_string(), "error": fault, "at_fault": blame, "message": error.to_string()})
    }
}

/// What holds for all files of one command.
#[derive(Debug)]
struct Order<'a> {
    places: &'a Places,
    overwrite: Overwrite,
    skip_existing: bool,
    checksum: Option<Algorithm>,
    /// Permission bits that no file gets, whatever its source says.
    umask: u32,
    window: file::Window,
    progress: Progress,
}

#[derive(Debug, Default)]
struct Total {
    files: u64,
    bytes: u64,
    skipped: u64,
    failed: Tally,
}

/// Runs `towpath cp`.
pub(crate) async fn run(arguments: &Copy, places: &Places) -> Result<(), Failure> {
    let order = Order {
        places,
        overwrite: if arguments.force { Overwrite::Replace } else { Overwrite::Refuse },
        skip_existing: arguments.skip_existing,
        checksum: arguments.checksum,
        umask: umask(),
        window: file::Window::default(),
        progress: Progress::new(arguments.quiet),
    };
    let start = clock::now();
    let total = match plan::plan(arguments, places).await? {
        plan::Plan::Standard { from, to } => standard::copy(from, to, &order).await?,
        plan::Plan::Jobs(jobs) => run_jobs(arguments, jobs, &order).await?,
    };
    order.progress.finish();
    let seconds = start.elapsed().as_secs_f64();
    if arguments.json {
        let line = json!({"files": total.files, "bytes": total.bytes, "skipped": total.skipped, "failed": total.failed.count, "seconds": seconds});
        writeln!(std::io::stdout(), "{line}")?;
    } else if !arguments.quiet && total.files + total.skipped > 0 {
        let rate = output::size((total.bytes as f64 / seconds.max(1e-9)) as u64);
        let skipped = if total.skipped > 0 { format!("; {} were there already", total.skipped) } else { String::new() };
        let (files, bytes) = (total.files, output::size(total.bytes));
        // As all that is said on that stream: if nobody reads it, nothing is lost.
        let _ = writeln!(std::io::stderr(), "{files} files, {bytes} in {seconds:.2} s, {rate}/s{skipped}");
    }
    total.failed.outcome()
}

/// The user's file mode creation mask. To see it another one is set, which nobody has time to use: no file is made yet.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    mask.bits()
}

async fn run_jobs(arguments: &Copy, jobs: plan::Jobs<'_>, order: &Order<'_>) -> Result<Total, Failure> {
    let mut total = Total::default();
    let at_once = arguments.files.unwrap_or(FILES).max(1);
    let mut running = jobs
        .map(|job| async move {
            match job {
                Ok(job) => {
                    let outcome = copy_unless_there(&job, order).await.map_err(Failure::from);
                    (Some(job), outcome)
                }
                Err(failure) => (None, Err(failure)),
            }
        })
        .buffer_unordered(at_once);
    let mut out_of_reach = 0;
    while let Some((job, outcome)) = running.next().await {
        out_of_reach = if outcome.as_ref().is_err_and(Failure::is_out_of_reach) { out_of_reach + 1 } else { 0 };
        match outcome {
            Ok(None) => total.skipped += 1,
            Ok(Some(copied)) => {
                total.files += 1;
                total.bytes += copied.bytes;
                order.progress.file_done();
                if let (true, Some(job)) = (arguments.json, job) {
                    writeln!(std::io::stdout(), "{}", copied.json(&job))?;
                }
            }
            Err(failure) => {
                total.failed.add(failure.exit_code());
                order.progress.say(|| match (&failure, &job) {
                    (Failure::Store(error), Some(job)) => {
                        print_error(error);
                        complain(format_args!("{} was not copied to {}", job.from, job.to));
                    }
                    _ => failure.print(),
                });
                if let (true, Failure::Store(error), Some(job)) = (arguments.json, &failure, &job) {
                    writeln!(std::io::stdout(), "{}", job.failed(error))?;
                }
            }
        }
        if out_of_reach >= LOST_GENERATIONS * at_once.max(LEAST_GENERATION) {
            let message = "files in a row failed because a storage is out of reach: the rest is not tried";
            order.progress.say(|| complain(format_args!("{out_of_reach} {message}")));
            break;
        }
    }
    Ok(total)
}

/// Copies one file; none if that was not necessary.
async fn copy_unless_there(job: &Job, order: &Order<'_>) -> towpath_store::Result<Option<file::Copied>> {
    if order.skip_existing && existing::is_there(job, order.places).await? {
        return Ok(None);
    }
    file::copy(job, order).await.map(Some)
}

/// A stream of jobs that is one already made.
fn one(job: Job) -> plan::Jobs<'static> {
    stream::iter([Ok(job)]).boxed()
}
