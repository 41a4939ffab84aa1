//! Copies many files concurrently.

mod pipe;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use futures::{Stream, StreamExt as _};
use tokio::{sync::OnceCell, task::spawn_blocking};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::{
    Fault, Result,
    sys::{clock, processor},
};

use crate::{
    FailedJob, Job, Jobs, Options, SkipPolicy,
    account_builder::Sample,
    context::{CopyContext, FILE_BYTES, FIRST_BYTES},
    copied_file::CopiedFile,
    existing, paths,
    progress::{FileProgress, Observer, Progress},
    retry,
    stage::Stage,
    third_party,
    window::{Permit, Priority, Window},
};

/// Maximum number of large files in flight of a `nice` copy to a destination with ordered writes, where each may need a
/// connection.
const NICE_FILES: u64 = 8;

/// Maximum number of bytes that a destination with ordered writes buffers per file in addition to the bytes in flight:
/// pieces that wait for a connection.
const MAX_GATHERED_BYTES: u64 = 4 << 20;

/// The outcome of one job.
#[derive(Debug)]
pub enum Outcome {
    /// The file was copied.
    Copied(Job, CopiedFile),
    /// The destination already had the file: [`Options::skip`] selects it, or it may not be replaced and is the same.
    Skipped(Job),
    /// The file could not be copied, or its directory could not be listed.
    Failed(FailedJob),
}

/// The permits with which a file may begin.
#[derive(Debug)]
struct FilePermits {
    /// Permit for the bytes that the destination buffers of it, held until the file ends.
    gathered: Option<Permit>,
    /// Permit for its first bytes.
    permit: Permit,
}

/// Copies files between stores.
#[derive(Debug)]
pub struct Mover {
    pub(crate) context: CopyContext,
    /// Number of files that ended, with or without success.
    files: AtomicU64,
    /// Whether any source, and any destination, is remote.
    is_remote: [AtomicBool; 2],
    /// Permits for bytes that destinations buffer before they can write them.
    gathered: Window,
    /// Name of the path between the ends of the first file.
    ends: OnceCell<String>,
}

impl Mover {
    /// Creates a mover with nothing in flight.
    pub fn new(options: Options, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            files: AtomicU64::new(0),
            is_remote: Default::default(),
            gathered: Window::new(options.window_bytes),
            ends: OnceCell::new(),
            context: CopyContext::new(options, observer),
        })
    }

    /// Copies one file. Nothing is visible at the destination unless all of it arrived and was verified. Returns `None`
    /// if the destination already had it ([`Outcome::Skipped`]). Dropping the future aborts the copy and removes its data.
    ///
    /// # Errors
    /// Errors of both stores; `ChecksumMismatch` and `Changed` if the arrived data differ from the source.
    pub async fn copy(&self, job: &Job) -> Result<Option<CopiedFile>> {
        let FilePermits { permit, gathered: _gathered } = self.file_permits(job).await;
        self.copy_in(job, permit).await
    }

    /// Copies files concurrently, as many as the window permits, each in its own task. Outcomes are returned in order
    /// of completion. Dropping the stream aborts the files in flight, as with [`Self::copy`].
    pub fn run(self: Arc<Self>, jobs: Jobs) -> impl Stream<Item = Outcome> + Send {
        let max_files = self.context.options.max_files.max(1);
        let admitting = Arc::clone(&self);
        jobs.then(move |job| {
            let mover = Arc::clone(&admitting);
            async move {
                let job = job?;
                let admitted = mover.file_permits(&job).await;
                Ok((job, admitted))
            }
        })
        .map(move |admitted| Arc::clone(&self).outcome(admitted))
        .buffer_unordered(max_files)
    }

    async fn outcome(self: Arc<Self>, admitted: Result<(Job, FilePermits), FailedJob>) -> Outcome {
        let (mut job, FilePermits { permit, gathered }) = match admitted {
            Ok(admitted) => admitted,
            Err(failed_job) => return Outcome::Failed(failed_job),
        };
        let copying = tokio::spawn(async move {
            let copied = self.copy_in(&job, permit).await;
            drop(gathered);
            // The file has ended and adds nothing more to its directory, even if the caller keeps the outcome.
            (job.pending_directory, job.part) = (None, None);
            match copied {
                Ok(Some(copied)) => Outcome::Copied(job, copied),
                Ok(None) => Outcome::Skipped(job),
                Err(error) => Outcome::Failed(FailedJob { job, error }),
            }
        });
        AbortOnDropHandle::new(copying).await.expect("a copy does not panic, and only its owner aborts it")
    }

    /// Returns the progress of this mover.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.context.progress
    }

    /// Waits for the permits of a file. Each is from a separate window and all files acquire them in the same order, so
    /// that they cannot deadlock.
    async fn file_permits(&self, job: &Job) -> FilePermits {
        self.load_path_metrics(job.from.at(), job.to.at()).await;
        let gathered = match job.to.store.capabilities().write_any_order {
            true => None,
            false => Some(self.gathered.acquire(self.gathered_bytes(job), Priority::File).await),
        };
        FilePermits { gathered, permit: self.context.first_permit(job).await }
    }

    /// Returns the number of bytes that a destination with ordered writes buffers of `job`, as counted against the
    /// limit of all files.
    fn gathered_bytes(&self, job: &Job) -> u64 {
        let is_small = job.size.is_some_and(|size| size <= FIRST_BYTES);
        let Options { nice, window_bytes, .. } = &self.context.options;
        let share = if *nice && !is_small { window_bytes / NICE_FILES } else { 0 };
        (FILE_BYTES + job.size.unwrap_or(MAX_GATHERED_BYTES).min(MAX_GATHERED_BYTES)).max(share)
    }

    /// Returns whether a copy would skip the file ([`Options::skip`]) without an attempt.
    ///
    /// # Errors
    /// Those of both stores.
    pub async fn is_skipped(&self, job: &Job) -> Result<bool> {
        let policy = self.context.options.skip;
        if !matches!(policy, SkipPolicy::Same | SkipPolicy::NotOlder) {
            return Ok(false);
        }
        let _stay = self.context.stages.enter(Stage::Open, FILE_BYTES);
        existing::is_skipped(job, policy).await
    }

    /// Returns whether a file that the destination refused to replace is skipped.
    pub async fn is_skipped_if_refused(&self, job: &Job) -> bool {
        self.context.options.skip == SkipPolicy::SameIfRefused && existing::is_same(job).await.unwrap_or(false)
    }

    async fn copy_in(&self, job: &Job, permit: Permit) -> Result<Option<CopiedFile>> {
        if self.is_skipped(job).await? {
            return Ok(None);
        }
        match self.copy_new(job, permit).await {
            Err(error) if error.fault() == Fault::AlreadyExists && self.is_skipped_if_refused(job).await => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    async fn copy_new(&self, job: &Job, permit: Permit) -> Result<CopiedFile> {
        let start = clock::now();
        let part = job.part.clone().unwrap_or_else(|| self.context.progress.find(job.size));
        let copied = match third_party::copy(job, &part, &self.context).await? {
            Some(copied) => copied,
            None => self.stream(job, &part, permit).await?,
        };
        if !copied.verified.is_empty() {
            self.context.progress.verified(copied.bytes);
        }
        Ok(CopiedFile { took: start.elapsed(), ..copied })
    }

    /// Copies a file through this machine.
    async fn stream(&self, job: &Job, part: &FileProgress, permit: Permit) -> Result<CopiedFile> {
        self.note_ends([job.from.is_remote(), job.to.is_remote()]);
        let copied = retry::copy(job, part, &self.context, permit).await;
        self.note_end();
        copied
    }

    /// Records whether a file passing through this machine has remote ends.
    fn note_ends(&self, are_remote: [bool; 2]) {
        for (seen, is_remote) in self.is_remote.iter().zip(are_remote) {
            seen.fetch_or(is_remote, Relaxed);
        }
    }

    /// Counts a file that ended, with or without success.
    fn note_end(&self) {
        self.files.fetch_add(1, Relaxed);
    }

    /// Applies the stored properties of the path between these ends ([`crate::StoreLocation::at`]), once per mover.
    async fn load_path_metrics(&self, from: &str, to: &str) {
        let begin = async || {
            let ends = paths::ends(from, to);
            // A nice copy starts with few connections, whatever was stored.
            if let Some(file) = self.context.options.paths.clone().filter(|_| !self.context.options.nice) {
                let name = ends.clone();
                let read = move || paths::load(&file, &name, clock::unix_s());
                if let Ok(Some(metrics)) = spawn_blocking(read).await {
                    let paths::PathMetrics { connections, bytes_per_s } = metrics;
                    tracing::debug!(
                        path = ends,
                        connections,
                        bytes_per_s,
                        "starting with stored properties of the path"
                    );
                    self.context.flow_control.start_from(metrics);
                }
            }
            ends
        };
        self.ends.get_or_init(begin).await;
    }

    /// Stores the measured properties of the path for later copies. A limited or nice copy stores nothing, because it
    /// has not used the capacity of the path.
    pub async fn remember(&self) {
        let Options { paths: Some(file), limit_bytes_per_s: None, nice: false, .. } = &self.context.options else {
            return;
        };
        let (Some(ends), Some(metrics)) = (self.ends.get().cloned(), self.context.flow_control.path_metrics()) else {
            return;
        };
        let file = file.clone();
        let write = move || paths::note(&file, &ends, metrics, clock::unix_s());
        if let Ok(Err(error)) = spawn_blocking(write).await {
            tracing::debug!(%error, "cannot store the properties of the path");
        }
    }

    /// Returns a sample of the current state.
    pub(crate) fn sample(&self) -> Sample {
        Sample {
            at: clock::now(),
            transferred: self.context.progress.transferred(),
            files: self.files.load(Relaxed),
            held: self.context.stages.area(),
            window: self.context.window.limit(),
            is_limited: self.context.limit.is_in_the_way(),
            threads: processor::time_wanted(),
            is_remote: self.is_remote.each_ref().map(|is_remote| is_remote.load(Relaxed)),
            connections: self.context.options.client.as_ref().map(|client| client.connections()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
