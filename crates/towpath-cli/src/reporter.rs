//! Reports of the progress of a copy: on a terminal, as events for programs, as occasional lines elsewhere, or not at
//! all.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use towpath_mover::{
    ActiveFile, FailedJob, Job, Observer, Outcome, Progress, ProgressSnapshot, RetryNotice, SourceContribution,
};
use towpath_store::{Kind, sys::clock};

use crate::{
    args::CopyOptions,
    copy,
    events::Events,
    failure::{Failure, complain},
    output,
    progress::{self, FileLine, Meter},
    screen,
};

/// Interval between updates of the terminal.
const TICK: Duration = Duration::from_millis(200);

/// Number of ticks per progress event: one event per second.
const TICKS_PER_EVENT: u64 = 5;

/// Number of ticks per line on a standard error stream that is not a terminal: one every 30 seconds, so that the log of
/// a batch job shows the rate, and stays short.
const TICKS_PER_LINE: u64 = 150;

/// Maximum number of files in flight that a progress event names.
const NAMED_FILES: usize = 8;

/// Reports the progress and the results of a copy.
#[derive(Debug)]
pub(crate) struct Reporter {
    is_watched: bool,
    /// Whether lines are printed on a standard error stream that is not a terminal.
    is_logged: bool,
    prints_json: bool,
    events: Option<Arc<Events>>,
    ticks: Option<Interval>,
    tick_count: u64,
    meter: Meter,
}

impl Reporter {
    /// Creates the reporter for `options`, and writes the first event, with the name of the `command`.
    ///
    /// # Errors
    /// The event file cannot be created, or the options conflict.
    pub(crate) fn new(options: &CopyOptions, command: &str) -> Result<Self, Failure> {
        if options.json && options.prints_events() {
            return Err(Failure::Usage("--json and --events - conflict: both write to the standard output".into()));
        }
        let events = options.events.as_deref().map(Events::open).transpose()?.map(Arc::new);
        if let Some(events) = &events {
            let (version, time) = (env!("CARGO_PKG_VERSION"), output::time(clock::unix_ns()));
            events.note("begin", json!({"command": command, "towpath": version, "time": time}));
        }
        let is_watched = !options.quiet && screen::is_there();
        let is_logged = !options.quiet && !is_watched;
        let ticks = (is_watched || is_logged || events.is_some()).then(|| {
            let mut ticks = interval_at(clock::now() + TICK, TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Ok(Self {
            is_watched,
            is_logged,
            prints_json: options.json,
            events,
            ticks,
            tick_count: 0,
            meter: Meter::new(clock::now()),
        })
    }

    /// Returns the observer for a mover.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(FileObserver { follows_files: self.is_watched || self.events.is_some(), events: self.events.clone() })
    }

    /// Returns the event writer, if events were requested.
    pub(crate) fn events(&self) -> Option<&Arc<Events>> {
        self.events.as_ref()
    }

    /// Returns the result of `work`, and reports `progress` until then.
    pub(crate) async fn during<T>(&mut self, progress: &Progress, work: impl Future<Output = T>) -> io::Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                outcome = &mut work => return Ok(outcome),
                () = self.tick() => self.report_progress(progress)?,
            }
        }
    }

    /// Reports the result of a file.
    pub(crate) fn outcome(&self, outcome: &Outcome) -> io::Result<()> {
        let (Outcome::Copied(job, _) | Outcome::Skipped(job) | Outcome::Failed(FailedJob { job, .. })) = outcome;
        self.report_shares(job);
        let is_needed = self.prints_json || self.events.is_some();
        let Some(line) = is_needed.then(|| copy::line_of(outcome)).flatten() else { return Ok(()) };
        if self.prints_json {
            screen::above(|| writeln!(io::stdout(), "{line}"))?;
        }
        let Some(events) = &self.events else { return Ok(()) };
        events.note(if matches!(outcome, Outcome::Failed(_)) { "file_failed" } else { "file_done" }, line);
        events.deliver()
    }

    /// Reports which of several sources were left out or not read, and why.
    fn report_shares(&self, job: &Job) {
        let shares = job.from.shares();
        for SourceContribution { from, bytes, error, .. } in &shares {
            tracing::info!(%from, bytes, "bytes read from this source");
            let Some(error) = error else { continue };
            // Some servers report NotFound to clients without permission.
            let is_stranger = from.caller.is_nobody && matches!(error.kind(), Kind::Denied | Kind::NotFound);
            // The error of the only source is reported as that of the copy.
            let message = match (shares.len(), is_stranger) {
                (1, false) => continue,
                (1, true) => format!("use --trust-metalink to send your credentials to {from}"),
                (_, false) => format!("source {from} was left out: {error}"),
                (_, true) => {
                    format!("source {from} was left out: {error}; use --trust-metalink to send it your credentials")
                }
            };
            complain(&message);
            self.notice("source_left_out", &message);
        }
        let spare: Vec<_> = shares.iter().filter(|share| share.is_spare).map(|share| share.from.to_string()).collect();
        if let (Some(read), false) = (shares.iter().find(|share| share.bytes > 0), spare.is_empty()) {
            let others = spare.join(", ");
            let message = format!("only {} was read: no digest shows that the file at {others} is the same", read.from);
            complain(&message);
            self.notice("one_source", &message);
        }
    }

    /// Repeats a message of the standard error stream as an event.
    pub(crate) fn notice(&self, kind: &str, message: &str) {
        if let Some(events) = &self.events {
            events.note("notice", json!({"kind": kind, "message": message}));
        }
    }

    /// Clears the terminal, and reports the summary as an event.
    pub(crate) fn end(&self, summary: impl FnOnce() -> Value) -> io::Result<()> {
        screen::clear();
        let Some(events) = &self.events else { return Ok(()) };
        events.note("end", summary());
        events.deliver()
    }

    /// Waits until the next report is due; forever without reports.
    pub(crate) async fn tick(&mut self) {
        match &mut self.ticks {
            Some(ticks) => drop(ticks.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Returns whether a log gets a line at this tick.
    fn is_line_due(&self) -> bool {
        self.is_logged && self.tick_count.is_multiple_of(TICKS_PER_LINE)
    }

    /// Reports the progress of a copy.
    pub(crate) fn report_progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.tick_count += 1;
        let advance = progress.now();
        let bytes_per_s = self.meter.rate(clock::now(), advance.moved_bytes);
        if self.is_watched {
            let (active, count) = progress.active(progress::MAX_FILES);
            let files: Vec<_> = active.iter().map(|file| FileLine::from(&**file)).collect();
            screen::show(&progress::lines(&advance, bytes_per_s, (&files, count), screen::size()));
        }
        if self.is_line_due() {
            complain(progress::line(&advance, bytes_per_s));
        }
        if let Some(events) = &self.events {
            if self.tick_count.is_multiple_of(TICKS_PER_EVENT) {
                events.note("progress", fields(&advance, bytes_per_s, progress));
            }
            events.deliver()?;
        }
        Ok(())
    }
}

fn fields(advance: &ProgressSnapshot, bytes_per_s: f64, progress: &Progress) -> Value {
    let (active, count) = progress.active(NAMED_FILES);
    let named = active.iter().map(
        |file| json!({"to": file.to.to_string(), "bytes": file.bytes, "arrived_bytes": file.arrived_bytes(), "seconds": file.since.elapsed().as_secs_f64()}),
    );
    json!({
        "files_found": advance.found_files,
        "all_found": advance.is_all_found,
        "files_ended": advance.ended_files,
        "bytes_moved": advance.moved_bytes,
        "bytes_ahead": advance.ahead_bytes,
        "bytes_verified": advance.verified_bytes,
        "bytes_per_s": bytes_per_s.round(),
        "eta_s": progress::eta_s(advance, bytes_per_s).map(f64::ceil),
        "files_active": count,
        "active": named.collect::<Vec<_>>(),
    })
}

/// Records events of single files as they occur.
#[derive(Debug)]
struct FileObserver {
    follows_files: bool,
    events: Option<Arc<Events>>,
}

impl Observer for FileObserver {
    fn follows_files(&self) -> bool {
        self.follows_files
    }

    fn begins(&self, file: &Arc<ActiveFile>) {
        if let Some(events) = &self.events {
            let (from, to) = (file.from.to_string(), file.to.to_string());
            let fields = json!({"from": from, "to": to, "bytes": file.bytes, "present_bytes": file.present_bytes});
            events.note("file_begin", fields);
        }
    }

    fn waits(&self, job: &Job) {
        if let Some(events) = &self.events {
            let message = format!("{}: waiting for an earlier upload of this file to end at the destination", job.to);
            events.note("notice", json!({"kind": "waiting", "message": message}));
        }
    }

    fn retries(&self, _job: &Job, notice: &RetryNotice) {
        complain(notice);
        if let Some(events) = &self.events {
            events.note("notice", json!({"kind": "retrying", "message": notice.to_string()}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch job has a line every 30 s, and no other work for it.
    #[tokio::test(start_paused = true)]
    async fn without_a_terminal_a_line_is_due_every_30_seconds() {
        let mut reporter = Reporter::new(&CopyOptions::default(), "cp").unwrap();
        // The tests may run on a terminal.
        (reporter.is_watched, reporter.is_logged) = (false, true);
        assert!(!reporter.observer().follows_files());
        let start = clock::now();
        let mut due = 0;
        for _ in 0..2 * TICKS_PER_LINE {
            reporter.tick().await;
            reporter.tick_count += 1;
            due += u64::from(reporter.is_line_due());
        }
        assert_eq!((due, start.elapsed().as_secs()), (2, 60));
        let quiet = Reporter::new(&CopyOptions { quiet: true, ..CopyOptions::default() }, "cp").unwrap();
        assert!(!quiet.is_logged && quiet.ticks.is_none());
    }
}
