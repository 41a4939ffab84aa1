//! Many files at once.

mod pipe;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use futures::{Stream, StreamExt as _};
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_client::Client;
use towpath_proto::checksum::Algorithm;
use towpath_store::{
    Overwrite, Result,
    sys::{clock, processor},
};

use crate::{
    Job, Jobs, Missed, existing,
    file::{self, Copied},
    ledger::Look,
    limit::Limit,
    pace::{self, Pace},
    paths,
    progress::{Observer, Part, Progress},
    retry,
    stage::{Stage, Stages},
    third_party::{self, ThirdParty},
    window::{Permit, Priority, Window},
};

/// What a file takes of the window beside its bytes: requests and answers are not free either.
pub(crate) const FILE_BYTES: u64 = 4 << 10;

/// What a copy that makes room for others has under way at once of files that are not small, to a destination that takes pieces in order: each may have
/// a connection.
const NICE_FILES: u64 = 8;

/// What holds for all files of one copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// What to do about existing files.
    pub overwrite: Overwrite,
    /// Leave files alone that have been copied before, as far as both ends tell.
    pub skip_existing: bool,
    /// Compare this digest at both ends too, even if one of them must read the file for it.
    pub checksum: Option<Algorithm>,
    /// Permission bits that no file gets, whatever its source says.
    pub umask: u32,
    /// Whether sites that can are asked to copy between themselves.
    pub third_party: ThirdParty,
    /// Files that may be open at once, at least one. Bytes in flight are the bound that counts; this one is for the descriptors of the process.
    pub max_files: usize,
    /// The most bytes in flight: [`crate::MOST_BYTES`], or less in a process that makes many copies apart from each other.
    pub window_bytes: u64,
    /// The most bytes per second that are copied; none for as many as there can be.
    pub limit_bytes_per_s: Option<u64>,
    /// Whether to make room for others: a connection more has to bring much.
    pub nice: bool,
    /// Where to remember what paths taught ([`Mover::remember`]), if anywhere.
    pub paths: Option<PathBuf>,
    /// Whose connections the remote ends use: they tell how far it is, and become as many as bring something. Without one it is as if
    /// there were no distance.
    pub client: Option<Arc<Client>>,
}

/// What became of one job.
#[derive(Debug)]
pub enum Outcome {
    /// It arrived.
    Copied(Job, Copied),
    /// It was there already.
    Skipped(Job),
    /// It did not arrive, or could not be listed.
    Failed(Missed),
}

/// That a file may begin.
#[derive(Debug)]
struct Admitted {
    /// For what its destination holds of it, until it has come to its end.
    gathered: Option<Permit>,
    /// For its first bytes.
    permit: Permit,
}

/// Copies files.
#[derive(Debug)]
pub struct Mover {
    pub(crate) options: Options,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stages: Stages,
    /// Files that ended, well or not.
    files: AtomicU64,
    /// Whether sources, and destinations, are at servers.
    is_remote: [AtomicBool; 2],
    window: Window,
    /// What files under way have written to destinations that gather it.
    gathered: Window,
    pub(crate) limit: Limit,
    pace: Pace,
    /// By what the path of the first file is known.
    ends: OnceCell<String>,
    pub(crate) third_party_places: Semaphore,
}

impl Mover {
    /// A mover with nothing in flight.
    pub fn new(options: Options, observer: Arc<dyn Observer>) -> Arc<Self> {
        let pace = Pace::new(options.client.clone(), options.window_bytes, options.nice);
        let limit = Limit::new(options.limit_bytes_per_s);
        let window = Window::new(pace::LEAST_BYTES.min(options.window_bytes));
        let gathered = Window::new(options.window_bytes);
        let third_party_places = Semaphore::new(third_party::COPIES);
        Arc::new(Self {
            options,
            progress: Progress::new(observer),
            stages: Stages::new(),
            files: AtomicU64::new(0),
            is_remote: Default::default(),
            window,
            gathered,
            limit,
            pace,
            ends: OnceCell::new(),
            third_party_places,
        })
    }

    /// How much may be in flight now, in bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window.limit()
    }

    /// Copies one file; nothing is visible at the destination unless all of it arrived and was checked. `None` if it was there already.
    /// Dropping the future ends the copy, and leaves nothing.
    ///
    /// # Errors
    /// Those of both stores; `ChecksumMismatch` and `Changed` if what arrived is not what the source has.
    pub async fn copy(&self, job: &Job) -> Result<Option<Copied>> {
        let Admitted { permit, gathered: _gathered } = self.admitted(job).await;
        self.copy_in(job, permit).await
    }

    /// Copies many files, as many at once as the window has room for, each in a task of its own. Outcomes come as files end.
    /// Dropping the stream ends what is under way, as with [`Self::copy`].
    pub fn run(self: Arc<Self>, jobs: Jobs) -> impl Stream<Item = Outcome> + Send {
        let max_files = self.options.max_files.max(1);
        let admitting = Arc::clone(&self);
        jobs.then(move |job| {
            let mover = Arc::clone(&admitting);
            async move {
                let job = job?;
                let admitted = mover.admitted(&job).await;
                Ok((job, admitted))
            }
        })
        .map(move |admitted| Arc::clone(&self).outcome(admitted))
        .buffer_unordered(max_files)
    }

    async fn outcome(self: Arc<Self>, admitted: Result<(Job, Admitted), Missed>) -> Outcome {
        let (mut job, Admitted { permit, gathered }) = match admitted {
            Ok(admitted) => admitted,
            Err(missed) => return Outcome::Failed(missed),
        };
        let copying = tokio::spawn(async move {
            let copied = self.copy_in(&job, permit).await;
            drop(gathered);
            // However long the outcome is kept: nothing more is put into its directory, and it has ended.
            (job.filling, job.part) = (None, None);
            match copied {
                Ok(Some(copied)) => Outcome::Copied(job, copied),
                Ok(None) => Outcome::Skipped(job),
                Err(error) => Outcome::Failed(Missed { job, error }),
            }
        });
        AbortOnDropHandle::new(copying).await.expect("a copy does not panic, and only its owner ends it")
    }

    /// How it gets on.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Lets a file begin. It waits for nothing that it holds a part of, so that no files wait for each other.
    async fn admitted(&self, job: &Job) -> Admitted {
        self.recall(job.from.at(), job.to.at()).await;
        let gathered = match job.to.store.capabilities().write_any_order {
            true => None,
            false => Some(self.gathered.acquire(self.gathered_bytes(job), Priority::File).await),
        };
        Admitted { gathered, permit: self.first_permit(job).await }
    }

    /// What a file takes of what may be gathered.
    fn gathered_bytes(&self, job: &Job) -> u64 {
        let is_small = job.size.is_some_and(|size| size <= file::FIRST_BYTES);
        let share = if self.options.nice && !is_small { self.options.window_bytes / NICE_FILES } else { 0 };
        file::gathered_bytes(job).max(share)
    }

    /// Waits for a permit for the first bytes of a file.
    pub(crate) async fn first_permit(&self, job: &Job) -> Permit {
        self.acquire(FILE_BYTES + file::first_bytes(job), Priority::File).await
    }

    /// Waits for a permit for `bytes` in flight.
    pub(crate) async fn acquire(&self, bytes: u64, priority: Priority) -> Permit {
        let permit = self.window.acquire(bytes, priority).await;
        self.pace.adapt(&self.window, self.progress.ahead());
        permit
    }

    async fn copy_in(&self, job: &Job, permit: Permit) -> Result<Option<Copied>> {
        if self.options.skip_existing {
            let _stay = self.stages.enter(Stage::Open, FILE_BYTES);
            if existing::is_there(job).await? {
                return Ok(None);
            }
        }
        let start = clock::now();
        let part = job.part.clone().unwrap_or_else(|| self.progress.find(job.size));
        let copied = match third_party::copy(job, &part, self).await? {
            Some(copied) => copied,
            None => self.stream(job, &part, permit).await?,
        };
        if !copied.verified.is_empty() {
            self.progress.verified(copied.bytes);
        }
        Ok(Some(Copied { took: start.elapsed(), ..copied }))
    }

    /// Copies a file through this machine.
    async fn stream(&self, job: &Job, part: &Part, permit: Permit) -> Result<Copied> {
        self.note_ends([job.from.is_remote(), job.to.is_remote()]);
        let copied = retry::copy(job, part, self, permit).await;
        self.note_end();
        copied
    }

    /// A file goes through this machine, from and to servers or not.
    fn note_ends(&self, are_remote: [bool; 2]) {
        for (seen, is_remote) in self.is_remote.iter().zip(are_remote) {
            seen.fetch_or(is_remote, Relaxed);
        }
    }

    /// A file has ended, well or not.
    fn note_end(&self) {
        self.files.fetch_add(1, Relaxed);
    }

    /// Begins with what is known of the path between these ends, each as [`crate::Place::at`] has it, unless another file did so before.
    async fn recall(&self, from: &str, to: &str) {
        let begin = async || {
            let ends = paths::ends(from, to);
            // One that makes room for others begins with little, whatever there is.
            if let Some(file) = self.options.paths.clone().filter(|_| !self.options.nice) {
                let name = ends.clone();
                let read = move || paths::recall(&file, &name, clock::unix_s());
                if let Ok(Some(lesson)) = spawn_blocking(read).await {
                    tracing::debug!(path = ends, ?lesson, "known from another copy");
                    self.pace.begin_with(lesson);
                }
            }
            ends
        };
        self.ends.get_or_init(begin).await;
    }

    /// Writes down what the path taught, for the next copy over it. One that was limited, or nice, has not seen what there is.
    pub async fn remember(&self) {
        let Options { paths: Some(file), limit_bytes_per_s: None, nice: false, .. } = &self.options else { return };
        let (Some(ends), Some(lesson)) = (self.ends.get().cloned(), self.pace.lesson()) else { return };
        let file = file.clone();
        let write = move || paths::note(&file, &ends, lesson, clock::unix_s());
        if let Ok(Err(error)) = spawn_blocking(write).await {
            tracing::debug!(%error, "what the path taught cannot be written down");
        }
    }

    /// What is seen of it now.
    pub(crate) fn look(&self) -> Look {
        Look {
            at: clock::now(),
            moved: self.progress.moved(),
            files: self.files.load(Relaxed),
            held: self.stages.area(),
            window: self.window.limit(),
            is_limited: self.limit.is_in_the_way(),
            threads: processor::time_wanted(),
            is_remote: self.is_remote.each_ref().map(|is_remote| is_remote.load(Relaxed)),
            connections: self.options.client.as_ref().map(|client| client.connections()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
