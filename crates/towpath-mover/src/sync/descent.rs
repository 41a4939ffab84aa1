//! Walks two trees concurrently from their roots down. [`super::task`] decides about each entry.

use std::{
    pin::pin,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};

use futures::{StreamExt as _, future, join, stream, stream::FuturesUnordered};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_store::{Changes, DirectoryId, Error, Fault, Metadata, Result, StorePath};

use super::{
    Extra, Pass, Purpose, Sync, SyncAction,
    names::{Chunks, DirectoryEntries, LISTED, ListingMode, READ_AHEAD, SMALL},
    task::{Subdirectory, Task, is_tree},
};
use crate::{
    Compare, CopyReason, FailedJob, Job, Progress, StoreLocation,
    ancestry::{Ancestry, loops},
    compare::{self, EntrySummary, Finding},
    overlap::{self, EndIds},
    pending_directory::{self, CompleteDirectory, PendingDirectories, PendingDirectory},
    progress::ListingGuard,
    removal::{self, Removal},
    walk::{MAX_WAITING_BYTES, too_many_directories, waiting_bytes},
};

/// Maximum number of concurrent listings per end: enough to hide a round trip of 100 ms, few enough not to load a
/// server.
const DIRECTORIES: usize = 32;

/// Maximum number of large directories whose listing is suspended while the first part is copied. Each holds a response
/// of its server open.
const MAX_UNFINISHED: usize = 64;

/// Maximum number of `stat` requests, removals and changes in flight.
const QUESTIONS: usize = 64;

/// The error if a listing of the destination may be incomplete.
const HIDDEN: &str =
    "the destination has it, perhaps under another spelling, but does not list it: its siblings are not deleted";

/// The state of one pass over both trees.
pub(super) struct Descent {
    pub(super) sync: Arc<Sync>,
    pub(super) pass: Pass,
    steps: mpsc::Sender<Result<SyncAction, FailedJob>>,
    progress: Arc<Progress>,
    /// Permits to compare a large directory.
    large: Semaphore,
    /// Permits for entries that are listed ahead of their copies.
    ahead: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
    /// The identities of both ends, once known.
    pub(super) ends: OnceLock<EndIds>,
}

/// A directory of the source to be processed.
pub(super) struct Directory {
    path: StorePath,
    pub(super) source: EntrySummary,
    pub(super) ancestry: Ancestry,
    /// The counterpart at the destination, if it exists.
    pub(super) found: Option<EntrySummary>,
    /// Whether the filter accepts the directory itself, and not only its contents.
    pub(super) is_taken: bool,
    pending_directories: PendingDirectories,
    /// The listing, once started.
    chunks: Option<Chunks>,
    rest: Option<Rest>,
}

/// The rest of a partly processed directory.
struct Rest {
    pending_directory: PendingDirectory,
    _turn: OwnedSemaphorePermit,
}

/// The receiver of the steps was dropped.
pub(super) struct ReceiverDropped;

impl Descent {
    pub(super) fn new(
        sync: Arc<Sync>,
        pass: Pass,
        steps: mpsc::Sender<Result<SyncAction, FailedJob>>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            sync,
            pass,
            steps,
            progress,
            large: Semaphore::new(1),
            ahead: Arc::new(Semaphore::new(READ_AHEAD)),
            unfinished: Arc::new(Semaphore::new(MAX_UNFINISHED)),
            ends: OnceLock::new(),
        }
    }

    /// Walks both trees until the caller drops the steps; returns when all directories are complete. The `list` of
    /// files ends when all are found.
    pub(super) async fn run(self, list: ListingGuard) {
        let (pending_directories, mut full) = pending_directory::channel();
        let finishing = async {
            let mut finishing = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some((full, turn)) = full.recv(), if finishing.len() < QUESTIONS => finishing.push(async {
                        self.finish(full).await;
                        drop(turn);
                    }),
                    Some(()) = finishing.next() => {}
                    else => break,
                }
            }
        };
        let walking = async {
            let _ = self.walk(pending_directories).await;
            drop(list);
        };
        future::join(walking, finishing).await;
    }

    async fn walk(&self, pending_directories: PendingDirectories) -> Result<(), ReceiverDropped> {
        let top = match self.top(pending_directories).await {
            Ok(top) => top,
            Err(error) => return self.tell(Err(FailedJob { job: self.sync.ends.clone(), error })).await,
        };
        let mut waiting = Vec::from_iter(top);
        let mut bytes: usize = waiting.iter().map(Directory::bytes).sum();
        let mut running = pin!(FuturesUnordered::new());
        loop {
            while running.len() < DIRECTORIES
                && let Some(directory) = waiting.pop()
            {
                bytes -= directory.bytes();
                running.push(self.directory(directory));
            }
            let Some(below) = running.next().await else { return Ok(()) };
            let mut below = below?;
            let room = below.iter().scan(bytes, |bytes, directory| {
                *bytes += directory.bytes();
                Some(*bytes)
            });
            let fitting = room.take_while(|bytes| *bytes <= MAX_WAITING_BYTES).count();
            if let Some(directory) = below.drain(fitting..).next() {
                let job = self.ends_of(&directory.path);
                let error = too_many_directories(&directory.path.parent().unwrap_or(directory.path));
                self.tell(Err(FailedJob { job, error })).await?;
            }
            bytes += below.iter().map(Directory::bytes).sum::<usize>();
            // Depth first, in name order: this keeps the queue short.
            waiting.extend(below.into_iter().rev());
        }
    }

    /// Returns both ends of `path`, for an error about one of them.
    fn ends_of(&self, path: &StorePath) -> Job {
        self.sync.ends.counterpart(path.clone()).unwrap_or_else(|_| self.sync.ends.clone())
    }

    /// Returns the root of both trees; `None` if the source is a file, which is processed here.
    async fn top(&self, pending_directories: PendingDirectories) -> Result<Option<Directory>> {
        let Sync { ends, options, purpose, .. } = &*self.sync;
        let Job { from, to, .. } = ends;
        let found = async {
            match purpose {
                Purpose::Alike => found(to).await,
                Purpose::CopyUnless(_) => Ok(found(to).await.unwrap_or(None)),
                Purpose::CopyAll => Ok(None),
            }
        };
        // This determines whether the destination preserves times; on failure it counts as not preserving them.
        let asked = to.store.change(&to.caller, &to.path, Changes::default());
        // The source is most likely a tree, so a remote listing is started in parallel.
        let is_far = *purpose == Purpose::CopyAll && from.is_remote();
        let chunks = is_far.then(|| Chunks::begin(from, &self.ahead));
        let (source, found, _) = join!(from.store.stat(&from.caller, &from.path), found, asked);
        let (source, found): (Metadata, _) = (source?, found?);
        if options.compare == Compare::Time && !to.store.capabilities().set_mtime {
            let message = "it does not preserve modification times: compare by size or by digest";
            return Err(Error::new(Fault::Unsupported, message).at(&to.path));
        }
        if options.delete {
            to.store.capabilities().check_remove(&to.path)?;
        }
        let is_directory = found.as_ref().map(|found| found.is_directory());
        let known = EntrySummary::of(&source);
        if !source.is_directory() {
            if [from, to].into_iter().any(|end| end.is_directory) {
                let message = "the source is a file, but the source or destination path has a trailing slash";
                return Err(Error::new(Fault::NotDirectory, message).at(&from.path));
            }
            self.sync.entries.fetch_add(1, Relaxed);
            let task = match &found {
                _ if self.pass == Pass::Deleting => None,
                Some(_) if is_directory == Some(true) => {
                    let message = "the source is a file, but this is a directory";
                    return Err(Error::new(Fault::IsDirectory, message).at(&to.path));
                }
                Some(found) => Some(self.file(ends.clone(), &known, &EntrySummary::of(found))),
                None => Some(Task::copy(ends.clone(), &known, CopyReason::Missing)),
            };
            // If the receiver was dropped, there is nothing further to do.
            let _ = self.carry_out(Vec::from_iter(task)).await;
            return Ok(None);
        }
        if is_directory == Some(false) {
            return Err(Error::new(Fault::NotDirectory, "the source is a directory, but this is a file").at(&to.path));
        }
        let alike = found.as_ref().filter(|_| *purpose == Purpose::Alike);
        let mut known_ends = overlap::refuse_same_tree(ends, &source, alike).await?;
        let found = found.as_ref().map(EntrySummary::of);
        let is_taken = ends.root() == &from.path || options.filter.apply(&from.path, ends.root(), true).is_taken;
        let is_new = is_taken && found.is_none();
        if is_new && !options.dry_run {
            make_directory(to).await?;
        }
        if is_new {
            let _ = self.tell(Ok(SyncAction::MakeDirectory(to.clone()))).await;
        }
        if is_new && !options.dry_run {
            known_ends.add_destination(to).await;
        }
        if self.pass == Pass::Deleting {
            overlap::refuse_by_marker(ends, &known_ends).await?;
        }
        let _ = self.ends.set(known_ends);
        let (path, ancestry) = (from.path.clone(), Ancestry::root(source.directory_id));
        Ok(Some(Directory { path, source: known, ancestry, found, is_taken, pending_directories, chunks, rest: None }))
    }

    /// Processes one directory, or the next part of a large one. Returns its subdirectories, and the directory itself
    /// if it has more entries.
    async fn directory(&self, mut directory: Directory) -> Result<Vec<Directory>, ReceiverDropped> {
        let mut below = Vec::new();
        let (job, names, has_more) = match self.list(&mut directory).await {
            Ok(listed) => listed,
            Err(error) => {
                self.tell(Err(FailedJob { job: self.ends_of(&directory.path), error })).await?;
                return Ok(below);
            }
        };
        if self.pass == Pass::Deleting
            && let Some(failed_job) = self.hidden(&job, &names).await
        {
            self.tell(Err(failed_job)).await?;
            return Ok(below);
        }
        let pending_directory = match directory.rest.take() {
            Some(rest) => rest.pending_directory,
            None => {
                let pending_directory = directory.pending_directories.begin().await;
                self.set_when_full(&directory, &job, &pending_directory);
                pending_directory
            }
        };
        let job = Job { pending_directory: Some(pending_directory.clone()), ..job };
        let mut same = 0;
        let mut tasks = Vec::new();
        for entry in names.beside() {
            if entry.source.is_some() {
                self.sync.entries.fetch_add(1, Relaxed);
            }
            match self.entry(&job, &directory, &entry) {
                Some(Task::Tell(SyncAction::Same(count))) => same += count,
                Some(Task::Tell(step)) => self.tell(Ok(step)).await?,
                Some(task) => tasks.push(task),
                None => {}
            }
            if tasks.len() >= QUESTIONS {
                below.extend(self.carry_out(std::mem::take(&mut tasks)).await?);
            }
        }
        below.extend(self.carry_out(tasks).await?);
        if same > 0 {
            self.tell(Ok(SyncAction::Same(same))).await?;
        }
        if has_more {
            below.extend(self.postpone_rest(directory, pending_directory).await?);
        }
        Ok(below)
    }

    /// Lists a directory at both ends, or its next entries, and returns whether there are more.
    async fn list(&self, directory: &mut Directory) -> Result<(Job, DirectoryEntries<'_>, bool)> {
        let job = self.sync.ends.counterpart(directory.path.clone())?;
        let is_begun = directory.rest.is_some();
        let (names, has_more) = if directory.found.is_none() || self.sync.purpose == Purpose::CopyAll {
            let begin = || Chunks::begin(&job.from, &self.ahead);
            let (chunk, has_more) = directory.chunks.get_or_insert_with(begin).next().await?;
            (DirectoryEntries::of_source(chunk), has_more)
        } else {
            // A file that [`ListingMode::Cheap`] does not find is checked again before it is copied.
            let mode = if matches!(self.sync.purpose, Purpose::CopyUnless(_)) {
                ListingMode::Cheap
            } else {
                ListingMode::Complete
            };
            (DirectoryEntries::list(&job, mode, &self.large).await?, false)
        };
        if !is_begun {
            directory.ancestry.refuse_loop(&job.from, names.listing, LISTED).await?;
        }
        Ok((job, names, has_more))
    }

    /// Returns the rest of a large directory, to be processed after its subdirectories.
    async fn postpone_rest(
        &self,
        directory: Directory,
        pending_directory: PendingDirectory,
    ) -> Result<Option<Directory>, ReceiverDropped> {
        let Ok(turn) = Arc::clone(&self.unfinished).try_acquire_owned() else {
            let message = format!(
                "more than {MAX_UNFINISHED} nested directories have more than {SMALL} entries each: the rest of this one is skipped"
            );
            let error = Error::new(Fault::TooLarge, message).at(&directory.path);
            self.tell(Err(FailedJob { job: self.ends_of(&directory.path), error })).await?;
            return Ok(None);
        };
        Ok(Some(Directory { rest: Some(Rest { pending_directory, _turn: turn }), ..directory }))
    }

    /// Detects a name of the source that the listing of the destination does not show, although it exists there under
    /// another spelling: some listed name without a counterpart may be the same file. This happens where names that
    /// differ in case or normalization are equal.
    async fn hidden(&self, job: &Job, names: &DirectoryEntries<'_>) -> Option<FailedJob> {
        let asked = self.unseen(job, names).into_iter().map(|job| async move {
            let error = match found(&job.to).await {
                Ok(None) => return None,
                Ok(Some(_)) => Error::new(Fault::Changed, HIDDEN).at(&job.to.path),
                Err(error) => error,
            };
            Some(FailedJob { job, error })
        });
        let asked: Vec<_> = asked.collect();
        pin!(stream::iter(asked).buffer_unordered(QUESTIONS).filter_map(future::ready)).next().await
    }

    /// Returns the entries to copy that are not listed at the destination, if that has other entries.
    fn unseen(&self, job: &Job, names: &DirectoryEntries<'_>) -> Vec<Job> {
        if names.beside().all(|entry| entry.source.is_some()) {
            return Vec::new();
        }
        let unseen = names.beside().filter(|entry| entry.found.is_none()).filter_map(|entry| {
            let from = job.from.join(entry.name).ok()?;
            self.wanted(&from.path, &entry.source?)?;
            Some(Job::new(from, job.to.join(entry.name).ok()?))
        });
        unseen.collect()
    }

    /// Runs `tasks` concurrently; returns the directories to be processed next.
    async fn carry_out(&self, tasks: Vec<Task>) -> Result<Vec<Directory>, ReceiverDropped> {
        let tasks: Vec<_> = tasks.into_iter().map(|task| self.one(task)).collect();
        let mut done = stream::iter(tasks).buffered(QUESTIONS);
        let mut below = Vec::new();
        while let Some(outcome) = done.next().await {
            below.extend(outcome?);
        }
        Ok(below)
    }

    /// Runs one task; returns the directory to be processed next, if any.
    async fn one(&self, task: Task) -> Result<Option<Directory>, ReceiverDropped> {
        let outcome = match task {
            Task::Tell(step) => Ok(step),
            Task::Miss(failed_job) => Err(failed_job),
            Task::Ask(ends, source) => self.compare_one(ends, &source).await,
            Task::Touch(ends, changes) => self.touch(ends, changes).await,
            Task::Make(below) => return self.make(below).await,
            Task::Remove { ends, found, then } => return self.take_away(ends, &found, then).await,
        };
        self.tell(outcome).await?;
        Ok(None)
    }

    async fn compare_one(&self, ends: Job, source: &EntrySummary) -> Result<SyncAction, FailedJob> {
        let options = &self.sync.options;
        match compare::compare_digests(&ends, options.compare, options.checksum).await {
            Ok(Finding::Differs(why)) => Ok(SyncAction::Copy(Job { size: Some(source.size), ..ends }, why)),
            Ok(Finding::Touched) => self.touch(ends, self.changes(source)).await,
            Ok(Finding::Same | Finding::Unclear(_)) => Ok(SyncAction::Same(1)),
            Err(error) => Err(FailedJob { job: ends, error }),
        }
    }

    async fn touch(&self, ends: Job, changes: Changes) -> Result<SyncAction, FailedJob> {
        if !self.sync.options.dry_run
            && let Err(error) = pending_directory::set(&ends.to, changes).await
        {
            return Err(FailedJob { job: ends, error });
        }
        Ok(SyncAction::Touch(ends.to, changes))
    }

    /// Creates a directory if it is missing and itself selected. Otherwise it is created with its first entry.
    async fn make(&self, below: Subdirectory) -> Result<Option<Directory>, ReceiverDropped> {
        let Subdirectory { ends, source, ancestry, found, is_taken } = below;
        let is_new = is_taken && found.is_none();
        let mut below = None;
        let made = async {
            self.ends.get().map_or(Ok(()), |known| known.refuse_destination(&ends.from.path, &source))?;
            below = Some(ancestry.enter(source.directory_id).ok_or_else(|| loops(&ends.from.path))?);
            if is_new && !self.sync.options.dry_run { make_directory(&ends.to).await } else { Ok(()) }
        };
        if let Err(error) = made.await {
            self.tell(Err(FailedJob { job: ends, error })).await?;
            return Ok(None);
        }
        let Some((pending_directories, ancestry)) =
            ends.pending_directory.as_ref().map(PendingDirectory::others).zip(below)
        else {
            return Ok(None);
        };
        if is_new {
            ends.pending_directory.iter().for_each(PendingDirectory::changes);
            self.tell(Ok(SyncAction::MakeDirectory(ends.to))).await?;
        }
        let path = ends.from.path;
        Ok(Some(Directory { path, source, ancestry, found, is_taken, pending_directories, chunks: None, rest: None }))
    }

    /// Reports an entry that the source does not have. The deleting pass removes it, if the copying pass reported it
    /// too. `then` runs once it is removed.
    async fn take_away(
        &self,
        ends: Job,
        found: &EntrySummary,
        then: Option<Box<Task>>,
    ) -> Result<Option<Directory>, ReceiverDropped> {
        let extra = Extra { location: ends.to.clone(), is_directory: is_tree(found) };
        match self.pass {
            Pass::Copying => self.sync.note(&extra),
            Pass::Deleting => {
                ends.pending_directory.iter().for_each(PendingDirectory::changes);
                if let Err(error) = self.erase(&extra, found.directory_id).await {
                    self.tell(Err(FailedJob { job: ends, error })).await?;
                    return Ok(None);
                }
            }
        }
        self.tell(Ok(SyncAction::Extra(extra))).await?;
        match then {
            Some(then) if self.pass == Pass::Deleting || self.sync.options.dry_run => Box::pin(self.one(*then)).await,
            _ => Ok(None),
        }
    }

    /// Removes an entry; `id` is that of a directory.
    async fn erase(&self, extra: &Extra, id: Option<DirectoryId>) -> Result<()> {
        let StoreLocation { path, .. } = &extra.location;
        if !self.sync.is_noted(extra) {
            let message = "it is not deleted: it was not among the extra entries of the first pass";
            return Err(Error::new(Fault::Changed, message).at(path));
        }
        if !extra.is_directory {
            return removal::remove_listed(&extra.location).await;
        }
        let mut first = None;
        let filter = (&self.sync.options.filter, &self.sync.ends.to.path);
        let kept = self.ends.get().map(EndIds::source).unwrap_or_default();
        Removal::new(&extra.location, filter, |error| {
            first.get_or_insert(error);
        })
        .keeping(id, kept)
        .run()
        .await;
        first.map_or(Ok(()), Err)
    }

    /// Sets the time and mode of a complete directory.
    async fn finish(&self, full: CompleteDirectory) {
        match full.finish().await {
            // A user may be allowed to create files in a directory of another user but not to set its times; and some
            // storages set times of files only.
            Err(error) if matches!(error.fault(), Fault::PermissionDenied | Fault::Unsupported) => {
                tracing::info!(location = %full.ends.to, %error, "cannot set the time of a directory");
            }
            Err(error) => drop(self.tell(Err(FailedJob { job: full.ends, error })).await),
            Ok(()) => {}
        }
    }

    /// Sends a step. A failure is final: a retry would have the same result.
    async fn tell(&self, step: Result<SyncAction, FailedJob>) -> Result<(), ReceiverDropped> {
        let step = match step {
            Ok(SyncAction::Copy(job, why)) => {
                job.pending_directory.iter().for_each(PendingDirectory::changes);
                let part = Some(self.progress.find(job.size));
                Ok(SyncAction::Copy(Job { part, ..job }, why))
            }
            Err(FailedJob { job, error }) => {
                let root = Some(self.sync.ends.root().clone());
                Err(FailedJob { job: Job { root, pending_directory: None, ..job }, error })
            }
            step => step,
        };
        self.steps.send(step).await.map_err(|_| ReceiverDropped)
    }
}

impl Directory {
    /// Returns the memory that it takes while queued, in bytes.
    fn bytes(&self) -> usize {
        waiting_bytes(&self.path)
    }
}

/// Returns the metadata of `location`, if it exists.
async fn found(location: &StoreLocation) -> Result<Option<Metadata>> {
    match location.store.stat(&location.caller, &location.path).await {
        Err(error) if error.fault() == Fault::NotFound => Ok(None),
        found => found.map(Some),
    }
}

async fn make_directory(location: &StoreLocation) -> Result<()> {
    location.store.make_directory(&location.caller, &location.path, true, None).await
}
