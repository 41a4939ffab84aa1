//! The way through two trees at once, from their roots down. What is to be done about an entry is told by [`super::task`].

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use futures::{StreamExt as _, future, join, stream, stream::FuturesUnordered};
use tokio::sync::{Semaphore, mpsc};
use towpath_store::{Changes, Error, Fault, Metadata, Result, StorePath, gone};

use super::{
    Extra, Pass, Purpose, Step, Sync,
    names::{Ahead, Look, Names, list_ahead},
    task::{Below, Task},
};
use crate::{
    Compare, Job, Missed, Place, Progress, Why, clash,
    compare::{self, Finding, Known},
    filling::{self, Filling, Fillings, Full},
    progress::List,
    removal::Removal,
};

/// Directories listed at once at each end: enough to hide a round trip of 100 ms behind others, few enough to be polite.
const DIRECTORIES: usize = 32;

/// Questions, removals and changes under way at once.
const QUESTIONS: usize = 64;

/// Why nothing is deleted in a directory.
const HIDDEN: &str =
    "the destination has it, perhaps under another spelling, but does not list it: nothing beside it is deleted";

/// The two trees, and where steps go.
pub(super) struct Descent {
    pub(super) sync: Arc<Sync>,
    pub(super) pass: Pass,
    steps: mpsc::Sender<Result<Step, Missed>>,
    progress: Arc<Progress>,
    /// The turn of large directories.
    large: Semaphore,
}

/// A directory of the source that is to be gone through.
pub(super) struct Directory {
    path: StorePath,
    pub(super) source: Known,
    /// What it holds, if it has been listed already; then nobody looks at the destination.
    ahead: Option<Ahead>,
    /// What the destination has.
    pub(super) found: Option<Known>,
    /// Itself, and not only what may be in it.
    pub(super) is_taken: bool,
    /// What the destination has in it beyond the source may go. What a link leads to is somebody else's.
    pub(super) may_lose: bool,
    fillings: Fillings,
}

/// Nobody takes the steps any more.
pub(super) struct Unwanted;

impl Descent {
    pub(super) fn new(
        sync: Arc<Sync>,
        pass: Pass,
        steps: mpsc::Sender<Result<Step, Missed>>,
        progress: Arc<Progress>,
    ) -> Self {
        Self { sync, pass, steps, progress, large: Semaphore::new(1) }
    }

    /// Goes through all, or as far as somebody takes the steps; ends when all directories are full. The `list` of files ends when all are found.
    pub(super) async fn run(self, list: List) {
        let (fillings, mut full) = filling::channel();
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
            let _ = self.walk(fillings).await;
            drop(list);
        };
        future::join(walking, finishing).await;
    }

    async fn walk(&self, fillings: Fillings) -> Result<(), Unwanted> {
        let top = match self.top(fillings).await {
            Ok(top) => top,
            Err(error) => return self.tell(Err(Missed { job: self.sync.ends.clone(), error })).await,
        };
        let mut waiting = Vec::from_iter(top);
        let mut running = pin!(FuturesUnordered::new());
        loop {
            while running.len() < DIRECTORIES
                && let Some(directory) = waiting.pop()
            {
                running.push(self.directory(directory));
            }
            match running.next().await {
                // Depth first, in the order of the names: what waits stays little.
                Some(below) => waiting.extend(below?.into_iter().rev()),
                None => return Ok(()),
            }
        }
    }

    /// The root of both trees; none if it is a file.
    async fn top(&self, fillings: Fillings) -> Result<Option<Directory>> {
        let Sync { ends, options, purpose, .. } = &*self.sync;
        let Job { from, to, .. } = ends;
        let found = async {
            match purpose {
                Purpose::Alike => found(to).await,
                Purpose::CopyMissing => Ok(found(to).await.unwrap_or(None)),
                Purpose::CopyAll => Ok(None),
            }
        };
        // Whether it keeps times must be known; if it cannot be asked, it is as if it did not.
        let asked = to.store.change(&to.caller, &to.path, Changes::default());
        // What is there most likely is a tree: a server far away is asked at once.
        let is_far = *purpose == Purpose::CopyAll && from.is_remote();
        let ahead = async { if is_far { list_ahead(from).await } else { None } };
        let (source, found, _, ahead) = join!(from.store.stat(&from.caller, &from.path), found, asked, ahead);
        let (source, found): (Metadata, _) = (source?, found?);
        if options.compare == Compare::Time && !to.store.capabilities().set_mtime {
            let message = "it does not keep the times of its sources: compare by size or by digest";
            return Err(Error::new(Fault::Unsupported, message).at(&to.path));
        }
        let is_directory = found.as_ref().map(|found| found.is_directory());
        let known = Known::of(&source);
        if !source.is_directory() {
            self.sync.entries.fetch_add(1, Relaxed);
            let task = match &found {
                _ if self.pass == Pass::Deleting => None,
                Some(_) if is_directory == Some(true) => {
                    let message = "the source is a file and this is a directory";
                    return Err(Error::new(Fault::IsDirectory, message).at(&to.path));
                }
                Some(found) => Some(self.file(ends.clone(), &known, &Known::of(found))),
                None => Some(Task::copy(ends.clone(), &known, Why::Missing)),
            };
            // If nobody wants to hear of it, nothing follows either.
            let _ = self.carry_out(Vec::from_iter(task)).await;
            return Ok(None);
        }
        clash::refuse_copy_into_itself(ends, &source).await?;
        if is_directory == Some(false) {
            return Err(Error::new(Fault::NotDirectory, "the source is a directory and this is a file").at(&to.path));
        }
        if let Some(found) = &found
            && *purpose == Purpose::Alike
        {
            clash::refuse_source_in(ends, found).await?;
        }
        let found = found.as_ref().map(Known::of);
        let is_taken = ends.root() == &from.path || options.filter.judge(&from.path, ends.root(), true).is_taken;
        let is_new = is_taken && found.is_none();
        if is_new && !options.dry_run {
            make_directory(to).await?;
        }
        if is_new {
            let _ = self.tell(Ok(Step::MakeDirectory(to.clone()))).await;
        }
        let path = from.path.clone();
        Ok(Some(Directory { path, source: known, ahead, found, is_taken, may_lose: true, fillings }))
    }

    /// Goes through one directory; gives those in it.
    async fn directory(&self, mut directory: Directory) -> Result<Vec<Directory>, Unwanted> {
        let mut below = Vec::new();
        let look = match self.sync.purpose {
            _ if directory.found.is_none() => Look::Not,
            // Each file that is not found this way is asked for before it is copied.
            Purpose::CopyMissing => Look::Cheap,
            Purpose::Alike | Purpose::CopyAll => Look::Whole,
        };
        let listed = match self.sync.ends.counterpart(directory.path.clone()) {
            Ok(job) => {
                let ahead = directory.ahead.take();
                Names::list(&job, ahead, look, &self.large).await.map(|names| (job, names))
            }
            Err(error) => Err(error),
        };
        let (job, names) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                let job = self.sync.ends.counterpart(directory.path.clone()).unwrap_or_else(|_| self.sync.ends.clone());
                self.tell(Err(Missed { job, error })).await?;
                return Ok(below);
            }
        };
        if self.pass == Pass::Deleting
            && let Some(missed) = self.hidden(&job, &names).await
        {
            self.tell(Err(missed)).await?;
            return Ok(below);
        }
        let filling = directory.fillings.begin().await;
        self.set_when_full(&directory, &job, &filling);
        let job = Job { filling: Some(filling), ..job };
        let mut same = 0;
        let mut tasks = Vec::new();
        for entry in names.beside() {
            if entry.source.is_some() {
                self.sync.entries.fetch_add(1, Relaxed);
            }
            match self.entry(&job, &directory, &entry) {
                Some(Task::Tell(Step::Same(count))) => same += count,
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
            self.tell(Ok(Step::Same(same))).await?;
        }
        Ok(below)
    }

    /// A name of the source that the destination has and its listing does not show: one of those that it shows instead, and that seem to be nobody's, may
    /// mean the same file. So it is where names that differ in case or in the spelling of their letters are one.
    async fn hidden(&self, job: &Job, names: &Names<'_>) -> Option<Missed> {
        let asked = self.unseen(job, names).into_iter().map(|job| async move {
            let error = match found(&job.to).await {
                Ok(None) => return None,
                Ok(Some(_)) => Error::new(Fault::Changed, HIDDEN).at(&job.to.path),
                Err(error) => error,
            };
            Some(Missed { job, error })
        });
        let asked: Vec<_> = asked.collect();
        pin!(stream::iter(asked).buffer_unordered(QUESTIONS).filter_map(future::ready)).next().await
    }

    /// What is wanted of the source and not listed at the destination, if that has something else.
    fn unseen(&self, job: &Job, names: &Names<'_>) -> Vec<Job> {
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

    /// Does what `tasks` say, many at once; gives directories that are to be gone through.
    async fn carry_out(&self, tasks: Vec<Task>) -> Result<Vec<Directory>, Unwanted> {
        let tasks: Vec<_> = tasks.into_iter().map(|task| self.one(task)).collect();
        let mut done = stream::iter(tasks).buffered(QUESTIONS);
        let mut below = Vec::new();
        while let Some(outcome) = done.next().await {
            below.extend(outcome?);
        }
        Ok(below)
    }

    /// Does one thing; gives the directory that is to be gone through then.
    async fn one(&self, task: Task) -> Result<Option<Directory>, Unwanted> {
        let outcome = match task {
            Task::Tell(step) => Ok(step),
            Task::Miss(missed) => Err(missed),
            Task::Ask(ends, source, otherwise) => self.ask(ends, &source, otherwise).await,
            Task::Touch(ends, changes) => self.touch(ends, changes).await,
            Task::Make(below) => return self.make(below).await,
            Task::Remove { ends, is_directory, then } => return self.take_away(ends, is_directory, then).await,
        };
        self.tell(outcome).await?;
        Ok(None)
    }

    async fn ask(&self, ends: Job, source: &Known, otherwise: Option<Why>) -> Result<Step, Missed> {
        let options = &self.sync.options;
        match compare::ask(&ends, options.compare, options.checksum, otherwise).await {
            Ok(Finding::Differs(why)) => Ok(Step::Copy(Job { size: Some(source.size), ..ends }, why)),
            Ok(Finding::Touched) => self.touch(ends, self.changes(source)).await,
            Ok(Finding::Same | Finding::Unclear(_)) => Ok(Step::Same(1)),
            Err(error) => Err(Missed { job: ends, error }),
        }
    }

    async fn touch(&self, ends: Job, changes: Changes) -> Result<Step, Missed> {
        if !self.sync.options.dry_run
            && let Err(error) = filling::set(&ends.to, changes).await
        {
            return Err(Missed { job: ends, error });
        }
        Ok(Step::Touch(ends.to, changes))
    }

    /// Makes a directory if it is not there, and is taken itself. Else it is made when there is something to put into it.
    async fn make(&self, below: Below) -> Result<Option<Directory>, Unwanted> {
        let Below { ends, source, found, is_taken, may_lose } = below;
        let is_new = is_taken && found.is_none();
        let made = async {
            if source.is_link || (ends.from.is_remote() && clash::repeats_a_name(&ends.from.path)) {
                clash::refuse_endless_link(&ends, &self.sync.ends).await?;
            }
            if is_new && !self.sync.options.dry_run { make_directory(&ends.to).await } else { Ok(()) }
        };
        if let Err(error) = made.await {
            self.tell(Err(Missed { job: ends, error })).await?;
            return Ok(None);
        }
        let Some(fillings) = ends.filling.as_ref().map(Filling::others) else { return Ok(None) };
        if is_new {
            ends.filling.iter().for_each(Filling::changes);
            self.tell(Ok(Step::MakeDirectory(ends.to))).await?;
        }
        Ok(Some(Directory { path: ends.from.path, source, ahead: None, found, is_taken, may_lose, fillings }))
    }

    /// Removes something in the pass that deletes, if the first one found it too, and says so in either; `then` follows when it is out of the way.
    async fn take_away(
        &self,
        ends: Job,
        is_directory: bool,
        then: Option<Box<Task>>,
    ) -> Result<Option<Directory>, Unwanted> {
        let extra = Extra { place: ends.to.clone(), is_directory };
        match self.pass {
            Pass::Copying => self.sync.note(&extra),
            Pass::Deleting => {
                ends.filling.iter().for_each(Filling::changes);
                if let Err(error) = self.erase(&extra).await {
                    self.tell(Err(Missed { job: ends, error })).await?;
                    return Ok(None);
                }
            }
        }
        self.tell(Ok(Step::Extra(extra))).await?;
        match then {
            Some(then) if self.pass == Pass::Deleting || self.sync.options.dry_run => Box::pin(self.one(*then)).await,
            _ => Ok(None),
        }
    }

    async fn erase(&self, extra: &Extra) -> Result<()> {
        let Place { store, caller, path, .. } = &extra.place;
        if !self.sync.is_noted(extra) {
            let message = "the source had it a while ago, or this was not there: it is not deleted";
            return Err(Error::new(Fault::Changed, message).at(path));
        }
        if !extra.is_directory {
            return gone(store.remove_file(caller, path).await);
        }
        let mut first = None;
        let filter = (&self.sync.options.filter, &self.sync.ends.to.path);
        Removal::new(&extra.place, filter, |error| {
            first.get_or_insert(error);
        })
        .run()
        .await;
        first.map_or(Ok(()), Err)
    }

    /// Sets the time and mode of a directory that is full.
    async fn finish(&self, full: Full) {
        match full.finish().await {
            // Who may put files into somebody else's directory may not give it times; and some storages give times to files only.
            Err(error) if matches!(error.fault(), Fault::PermissionDenied | Fault::Unsupported) => {
                tracing::info!(place = %full.ends.to, %error, "a directory keeps its own time");
            }
            Err(error) => drop(self.tell(Err(Missed { job: full.ends, error })).await),
            Ok(()) => {}
        }
    }

    /// Tells what is found. Of what is missed nobody waits for another attempt, which judges it as this one did.
    async fn tell(&self, step: Result<Step, Missed>) -> Result<(), Unwanted> {
        let step = match step {
            Ok(Step::Copy(job, why)) => {
                job.filling.iter().for_each(Filling::changes);
                let part = Some(self.progress.find(job.size));
                Ok(Step::Copy(Job { part, ..job }, why))
            }
            Err(Missed { job, error }) => {
                let root = Some(self.sync.ends.root().clone());
                Err(Missed { job: Job { root, filling: None, ..job }, error })
            }
            step => step,
        };
        self.steps.send(step).await.map_err(|_| Unwanted)
    }
}

/// What is at `place`, if anything is.
async fn found(place: &Place) -> Result<Option<Metadata>> {
    match place.store.stat(&place.caller, &place.path).await {
        Err(error) if error.fault() == Fault::NotFound => Ok(None),
        found => found.map(Some),
    }
}

async fn make_directory(place: &Place) -> Result<()> {
    place.store.make_directory(&place.caller, &place.path, true, None).await
}
