//! `towpath cp`: its arguments, and the report of the copies by [`towpath_mover`].

mod arguments;
mod dry_run;
mod streams;

use std::{
    io::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures::{StreamExt as _, TryStreamExt as _, future::ready};
use serde_json::{Value, json};
use towpath_mover::{
    Account, CopiedFile, FailedJob, Job, Jobs, Mover, Outcome, ProgressSnapshot, Sampler, SkipPolicy,
    SourceContribution, Trees, VerifiedDigest, jobs, jobs_of,
};
use towpath_proto::{
    checksum::{Algorithm, Algorithms},
    units::size_text,
};
use towpath_store::{Blame, Error, Fault, Overwrite, sys::clock};

use crate::{
    args::{Copy, CopyOptions},
    explain,
    failure::{Failure, complain, is_out_of_reach},
    failures::{FailureList, once_more},
    location::StoreResolver,
    output::count_text,
    reporter::Reporter,
    screen, umask,
};

/// Number of generations without a success on an unreachable storage after which the rest is not tried, because each
/// file then takes a minute to fail.
const LOST_GENERATIONS: usize = 2;

/// Number of files in a generation, unless `--files` sets it.
const GENERATION: usize = 192;

/// Minimum number of files in a generation, even if fewer are copied concurrently.
const MIN_GENERATION: usize = 8;

/// The remaining files, where known without a listing: they are reported as failures when the copy gives up.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemainingFiles {
    is_given_up: Arc<AtomicBool>,
}

impl RemainingFiles {
    /// Passes `jobs` on until the rest is given up.
    fn of(&self, jobs: Jobs) -> Jobs {
        let Self { is_given_up } = self.clone();
        let jobs = jobs.and_then(move |job| {
            ready(if is_given_up.load(Relaxed) {
                let error = Error::new(Fault::Unavailable, "it was not tried, because a storage is unreachable");
                Err(FailedJob { error: error.blamed_on(Blame::Network).at(&job.from.path), job })
            } else {
                Ok(job)
            })
        });
        jobs.boxed()
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Relaxed);
    }
}

/// The results of all files.
#[derive(Debug, Default)]
pub(crate) struct Total {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) verified: Verification,
    pub(crate) skipped: u64,
    /// Files that continued an interrupted upload, and the bytes that they already had.
    pub(crate) resumed: (u64, u64),
    pub(crate) failures: FailureList,
    /// How the time was spent; `None` before the copies have ended, and if it says nothing about copies
    /// ([`Self::explain`]).
    pub(crate) account: Option<Account>,
}

/// Number of files with the same digest at both ends.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    files: u64,
    bytes: u64,
    algorithms: Algorithms,
}

/// Runs `towpath cp`.
pub(crate) async fn run(arguments: &Copy, resolver: &StoreResolver, resumption: &Resumption) -> Result<(), Failure> {
    let options = &arguments.options;
    let mut reporter = Reporter::new(options, "cp")?;
    let overwrite = if arguments.force || arguments.update { Overwrite::Replace } else { Overwrite::Refuse };
    let start = clock::now();
    let request = arguments::read(arguments, resolver).await?;
    let mover = Mover::new(options.mover_options(overwrite, skip_policy(arguments), resolver), reporter.observer());
    let mut total = Total { failures: FailureList::new(options.failed_to.as_deref())?, ..Total::default() };
    match &request {
        arguments::Request::Files(_, is_exact) => resumption.set_files(arguments, *is_exact),
        arguments::Request::ToStream(..) | arguments::Request::FromStream(..) => resumption.set(Resume::Never),
    }
    match request {
        arguments::Request::ToStream(from, to) => {
            let copying = streams::to_stream(&mover, &from, &to, arguments.force);
            run_pipe(&mover, copying, &mut reporter, &mut total).await?;
        }
        arguments::Request::FromStream(from, to) => {
            run_pipe(&mover, streams::from_stream(&mover, &from, &to), &mut reporter, &mut total).await?;
        }
        arguments::Request::Files(source, _) => {
            let filter = arguments.filters.filter.clone();
            let trees = Trees { filter, umask: umask(), skip: skip_policy(arguments), dry_run: arguments.dry_run };
            if arguments.dry_run {
                return dry_run::run(arguments, (&mover, trees), source, (reporter, total)).await;
            }
            let trees = arguments.recursive.then_some(trees);
            let rest = RemainingFiles::default();
            let (jobs, is_walked) = match source {
                arguments::Source::Named(pairs) => (jobs(pairs, trees, mover.progress())?, arguments.recursive),
                arguments::Source::Listed(pairs) => (jobs_of(rest.of(pairs), trees, mover.progress()), false),
            };
            let rest = (!is_walked).then_some(rest);
            run_jobs(options, &mover, (jobs, rest), &mut reporter, &mut total).await?;
            total.skipped += mover.progress().now().skipped_files;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    total.failures.close_list();
    reporter.end(|| summary(&total, seconds))?;
    report(arguments, &total, seconds)?;
    total.failures.finish(total.files + total.skipped, |list| match list {
        Some(list) => Some(retry_command(arguments, resolver, list)),
        None => resumption.command(),
    })
}

/// Returns the existing files that the arguments skip.
fn skip_policy(arguments: &Copy) -> SkipPolicy {
    match (arguments.skip_existing, arguments.update) {
        (true, _) => SkipPolicy::Same,
        (_, true) => SkipPolicy::NotOlder,
        _ => SkipPolicy::SameIfRefused,
    }
}

/// The command that resumes an interrupted copy. Clones share information collected while the copy runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resumption(Arc<Mutex<Resume>>);

/// How an interrupted copy is resumed.
#[derive(Debug, Clone)]
enum Resume {
    /// By the same command with additional options.
    With(Vec<&'static str>),
    /// Not at all: streams cannot be read or written again.
    Never,
}

impl Default for Resume {
    /// Before the first copy: by the same command.
    fn default() -> Self {
        Self::With(Vec::new())
    }
}

impl Resumption {
    /// Records that the copy is one of files. If the destination `is_exact`, the name of the copy itself, it may exist
    /// by now, and must not be used as the parent directory.
    fn set_files(&self, arguments: &Copy, is_exact: bool) {
        let is_tree = arguments.recursive && is_exact;
        // -u excludes --skip-existing, and skips files that were copied too.
        let flags = [
            ("--skip-existing", !arguments.skip_existing && !arguments.update),
            ("-T", is_tree && !arguments.no_target_directory),
        ];
        let missing = flags.into_iter().filter(|(_, is_missing)| *is_missing).map(|(flag, _)| flag);
        self.set(Resume::With(missing.collect()));
    }

    fn set(&self, resume: Resume) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = resume;
    }

    /// Returns the command for a shell, or a description of it if it may contain a secret; `None` if there is none.
    pub(crate) fn command(&self) -> Option<String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Resume::With(flags) => Some(once_more(std::env::args_os(), flags)),
            Resume::Never => None,
        }
    }
}

/// Returns the summary in JSON.
fn summary(total: &Total, seconds: f64) -> Value {
    let mut line = json!({"files": total.files, "bytes": total.bytes, "skipped": total.skipped, "failed": total.failures.tally.count, "seconds": seconds});
    total.note_resumed(&mut line);
    total.verified.note(&mut line);
    if let Some(account) = &total.account {
        line["explained"] = explain::to_json(account);
    }
    line
}

/// Prints the summary, and the verdict.
fn report(arguments: &Copy, total: &Total, seconds: f64) -> Result<(), Failure> {
    let options = &arguments.options;
    if options.json {
        writeln!(std::io::stdout(), "{}", summary(total, seconds))?;
    } else if !options.quiet && total.files + total.skipped > 0 {
        let rate = size_text((total.bytes as f64 / seconds.max(1e-9)) as u64);
        let is_asked = skip_policy(arguments) != SkipPolicy::SameIfRefused;
        if total.skipped > 0 && !is_asked {
            let same = count_text(total.skipped, "file is", "files are");
            complain(format_args!("{same} the same already: skipped (-f replaces them, --skip-existing expects them)"));
        }
        let skipped = match total.skipped {
            0 => String::new(),
            skipped if arguments.update => format!("; {skipped} not older"),
            skipped => format!("; {skipped} already present"),
        };
        let (files, bytes) = (count_text(total.files, "file", "files"), size_text(total.bytes));
        // Write errors are ignored.
        let (verified, resumed) = (total.verified.text(total.files), total.resumed_text());
        let _ = writeln!(std::io::stderr(), "{files}, {bytes} in {seconds:.2} s, {rate}/s{verified}{resumed}{skipped}");
    }
    if let Some(account) = &total.account {
        explain::print(account, options.explain, options.quiet || options.json);
    }
    Ok(())
}

/// Returns the command that retries the failures in `list`.
fn retry_command(arguments: &Copy, resolver: &StoreResolver, list: &str) -> String {
    let skip = if arguments.update { "-u" } else { "--skip-existing" };
    let mut words = vec![format!("towpath cp {skip}")];
    let flags = [(arguments.recursive, "-r"), (arguments.force, "-f")];
    words.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
    words.extend(arguments.options.flags());
    words.extend(arguments.filters.words.iter().cloned());
    words.extend(resolver.flags().iter().cloned());
    words.push(format!("--retry-from {list} --failed-to {list}"));
    words.join(" ")
}

/// Runs the single copy from or to a stream.
async fn run_pipe(
    mover: &Arc<Mover>,
    copying: impl Future<Output = Result<CopiedFile, Failure>>,
    reporter: &mut Reporter,
    total: &mut Total,
) -> Result<(), Failure> {
    let sampler = Sampler::begin(mover);
    let outcome = reporter.during(mover.progress(), copying).await?;
    mover.remember().await;
    match outcome {
        Ok(copied) => {
            total.add_copied(&copied);
            total.explain(&sampler, false);
        }
        Err(failure) if failure.is_broken_pipe() => return Err(failure),
        Err(failure) => {
            failure.print();
            total.failures.tally.add(failure.exit_code());
        }
    }
    Ok(())
}

/// Copies files and reports each result. If a storage is unreachable, the rest is not tried, and is reported if a
/// [`RemainingFiles`] is given.
pub(crate) async fn run_jobs(
    options: &CopyOptions,
    mover: &Arc<Mover>,
    (jobs, rest): (Jobs, Option<RemainingFiles>),
    reporter: &mut Reporter,
    total: &mut Total,
) -> Result<(), Failure> {
    let generation = options.files.unwrap_or(GENERATION).max(MIN_GENERATION);
    let sampler = Sampler::begin(mover);
    let is_walked = rest.is_none();
    let jobs = if let Some(rest) = &rest { rest.of(jobs) } else { jobs };
    let mut outcomes = std::pin::pin!(Arc::clone(mover).run(jobs));
    let mut out_of_reach = 0;
    while let Some(outcome) = reporter.during(mover.progress(), outcomes.next()).await? {
        reporter.outcome(&outcome)?;
        match &outcome {
            Outcome::Failed(failed_job) if is_out_of_reach(&failed_job.error) => out_of_reach += 1,
            _ => out_of_reach = 0,
        }
        total.add(&outcome);
        print_digest(options, &outcome);
        if out_of_reach == LOST_GENERATIONS * generation {
            let message =
                format!("{out_of_reach} files in a row failed because a storage is unreachable: the rest is not tried");
            complain(&message);
            reporter.notice("out_of_reach", &message);
            let Some(rest) = &rest else {
                total.failures.cut_off();
                break;
            };
            rest.give_up();
        }
    }
    mover.remember().await;
    let ProgressSnapshot { resumed_files, resumed_bytes, .. } = mover.progress().now();
    total.resumed = (resumed_files, resumed_bytes);
    total.explain(&sampler, is_walked);
    Ok(())
}

/// Prints the digest of a copy if `--checksum` requests that.
fn print_digest(options: &CopyOptions, outcome: &Outcome) {
    let (Some(request), Outcome::Copied(job, copied)) = (options.checksum, outcome) else { return };
    let digests = copied.verified.iter().map(|by| by.digest);
    if let (true, Some(digest)) =
        (request.is_printed(), digests.into_iter().find(|digest| digest.algorithm() == request.algorithm))
    {
        // Write errors are ignored.
        screen::above(|| drop(writeln!(std::io::stderr(), "{digest:#} {}", job.to)));
    }
}

impl Total {
    /// Counts the result of a file, and prints a failure.
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Skipped(_) => self.skipped += 1,
            Outcome::Copied(_, copied) => self.add_copied(copied),
            Outcome::Failed(failed_job) => self.failures.add(failed_job),
        }
    }

    /// Sets how the time was spent if a file was copied, or if a listing of all files found none to copy. The time of
    /// failed attempts would be put down to causes that the user can do nothing about.
    fn explain(&mut self, sampler: &Sampler, is_walked: bool) {
        if self.files > 0 || (is_walked && self.failures.tally.count == 0) {
            // A sync reports the account of its copies, not of its deletions.
            self.account.get_or_insert_with(|| sampler.account());
        }
    }

    /// Returns the resumed files as text for the summary.
    pub(crate) fn resumed_text(&self) -> String {
        match self.resumed {
            (0, _) => String::new(),
            (files, bytes) => format!("; {} resumed at {}", count_text(files, "file", "files"), size_text(bytes)),
        }
    }

    /// Adds the resumed files to the JSON summary.
    pub(crate) fn note_resumed(&self, line: &mut Value) {
        let (files, bytes) = self.resumed;
        line["files_resumed"] = files.into();
        line["bytes_resumed"] = bytes.into();
    }

    fn add_copied(&mut self, copied: &CopiedFile) {
        self.files += 1;
        self.bytes += copied.bytes;
        if !copied.verified.is_empty() {
            self.verified.files += 1;
            self.verified.bytes += copied.bytes;
            let algorithms = copied.verified.iter().map(|by| by.digest.algorithm()).collect();
            self.verified.algorithms = self.verified.algorithms.union(algorithms);
        }
    }
}

impl Verification {
    /// Adds the verification to the JSON summary.
    pub(crate) fn note(&self, line: &mut Value) {
        line["files_verified"] = self.files.into();
        line["bytes_verified"] = self.bytes.into();
        line["verified_by"] = self.algorithms.iter().map(Algorithm::name).collect();
    }

    /// Returns the verification as text, for the summary of `files` files.
    pub(crate) fn text(&self, files: u64) -> String {
        let names: Vec<_> = self.algorithms.iter().map(Algorithm::name).collect();
        let names = names.join(", ");
        match self.files {
            _ if files == 0 => String::new(),
            0 => "; not verified".into(),
            verified if verified == files => format!("; verified by {names}"),
            verified => format!("; {verified} verified by {names}, {} not", files - verified),
        }
    }
}

/// Returns the shares of the sources of a file in JSON; `None` for a single source.
fn shares_of(job: &Job) -> Option<Value> {
    let each = |share: &SourceContribution| {
        let mut line = json!({"from": share.from.to_string(), "bytes": share.bytes});
        if share.is_spare {
            line["spare"] = true.into();
        }
        if let Some(error) = &share.error {
            line["error"] = error.fault().name().into();
            line["message"] = error.to_string().into();
        }
        line
    };
    let shares: Vec<_> = job.from.shares().iter().map(each).collect();
    (!shares.is_empty()).then(|| shares.into())
}

/// Returns the output of `--json` for a file; `None` for a skipped file.
pub(crate) fn line_of(outcome: &Outcome) -> Option<Value> {
    let (mut line, job) = line_without_shares(outcome)?;
    if let Some(shares) = shares_of(job) {
        line["sources"] = shares;
    }
    Some(line)
}

/// Returns the origins of the digests of both ends in JSON.
fn verified_by(by: &VerifiedDigest) -> Value {
    json!({"algorithm": by.digest.algorithm().name(), "source": by.source.name(), "destination": by.destination.name()})
}

fn line_without_shares(outcome: &Outcome) -> Option<(Value, &Job)> {
    match outcome {
        Outcome::Copied(job, copied) => {
            let verified: Vec<_> = copied.verified.iter().map(|by| format!("{:#}", by.digest)).collect();
            let verified_by: Vec<_> = copied.verified.iter().map(verified_by).collect();
            let line = json!({"from": job.from.to_string(), "to": job.to.to_string(), "bytes": copied.bytes, "verified": verified, "verified_by": verified_by, "route": copied.route.name(), "seconds": copied.took.as_secs_f64()});
            Some((line, job))
        }
        Outcome::Failed(FailedJob { job, error }) => {
            let (fault, blame) = (error.fault().name(), error.blame().to_string());
            let line = json!({"from": job.from.to_string(), "to": job.to.to_string(), "error": fault, "at_fault": blame, "message": error.to_string(), "retry_may_succeed": error.is_retryable()});
            Some((line, job))
        }
        Outcome::Skipped(_) => None,
    }
}
