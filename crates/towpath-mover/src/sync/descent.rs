//! The way through two trees at once, from their roots down.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use futures::{StreamExt as _, stream, stream::FuturesUnordered, try_join};
use tokio::sync::{Semaphore, mpsc};
use towpath_store::{Changes, Error, Fault, FileKind, ListOptions, Metadata, Result, StorePath};

use super::{
    Extra, Pass, Step, Sync,
    names::{Both, Names},
};
use crate::{
    Compare, Job, Missed, Place, Why, clash,
    compare::{self, Finding, Known},
    removal::{Removal, gone},
    tree::make_directory,
};

/// Directories listed at once at each end: enough to hide a round trip of 100 ms behind others, few enough to be polite.
const DIRECTORIES: usize = 32;

/// Questions and removals under way at once in one directory.
const QUESTIONS: usize = 64;

/// The two trees, and where steps go.
pub(super) struct Descent {
    sync: Arc<Sync>,
    pass: Pass,
    steps: mpsc::Sender<Result<Step, Missed>>,
    /// The turns of large directories, of the source and of the destination.
    large: [Semaphore; 2],
}

/// A directory of the source that is to be gone through.
struct Directory {
    path: StorePath,
    /// The destination has it too.
    is_there: bool,
    /// What the destination has in it beyond the source may go. What a link leads to is somebody else's.
    may_lose: bool,
}

/// Nobody takes the steps any more.
struct Unwanted;

/// What is to be done about one entry.
enum Task {
    /// Tell this.
    Tell(Step),
    /// Ask both ends whether the file is the same; if they do not know it is copied for this reason.
    Ask(Job, Known, Option<Why>),
    /// Set time and mode.
    Touch(Job, Changes),
    /// Make a directory, and go through it.
    Make(Below),
    /// Remove what has only the destination, and do this after that.
    Remove { ends: Job, is_directory: bool, then: Option<Box<Task>> },
    /// Say that this cannot be done.
    Miss(Missed),
}

/// A directory found in another one.
struct Below {
    ends: Job,
    /// The source's is a link.
    is_link: bool,
    /// Itself, and not only what may be in it.
    is_taken: bool,
    is_there: bool,
    may_lose: bool,
}

impl Descent {
    pub(super) fn new(sync: Arc<Sync>, pass: Pass, steps: mpsc::Sender<Result<Step, Missed>>) -> Self {
        Self { sync, pass, steps, large: [Semaphore::new(1), Semaphore::new(1)] }
    }

    /// Goes through all, or as far as somebody takes the steps.
    pub(super) async fn run(&self) {
        let top = match self.top().await {
            Ok(top) => top,
            Err(error) => {
                let _ = self.tell(Err(Missed { job: self.sync.ends.clone(), error })).await;
                return;
            }
        };
        let mut waiting = Vec::from_iter(top);
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < DIRECTORIES
                && let Some(directory) = waiting.pop()
            {
                running.push(self.directory(directory));
            }
            match running.next().await {
                // Depth first, in the order of the names: what waits stays little.
                Some(Ok(below)) => waiting.extend(below.into_iter().rev()),
                Some(Err(Unwanted)) | None => return,
            }
        }
    }

    /// The root of both trees; none if it is a file.
    async fn top(&self) -> Result<Option<Directory>> {
        let ends @ Job { from, to, .. } = &self.sync.ends;
        let source: Metadata = from.store.stat(&from.caller, &from.path).await?;
        let found = match to.store.stat(&to.caller, &to.path).await {
            Err(error) if error.fault() == Fault::NotFound => None,
            found => Some(found?),
        };
        if self.sync.options.compare == Compare::Time && !to.store.capabilities().set_mtime {
            let message = "it does not keep the times of its sources: compare by size or by digest";
            return Err(Error::new(Fault::Unsupported, message).at(&to.path));
        }
        let is_there = found.as_ref().is_some_and(|found| found.is_directory());
        if !source.is_directory() {
            self.sync.entries.fetch_add(1, Relaxed);
            if is_there {
                return Err(Error::new(Fault::IsDirectory, "the source is a file and this is a directory").at(&to.path));
            }
            let known = Known::of(&source);
            let task = match found {
                _ if self.pass == Pass::Deleting => return Ok(None),
                Some(found) => self.file(ends.clone(), &known, &Known::of(&found)),
                None => Some(copy(ends.clone(), &known, Why::Missing)),
            };
            self.carry_out(Vec::from_iter(task), &mut Vec::new()).await.ok();
            return Ok(None);
        }
        clash::refuse_copy_into_itself(ends, &source).await?;
        if found.is_some() && !is_there {
            return Err(Error::new(Fault::NotDirectory, "the source is a directory and this is a file").at(&to.path));
        }
        if !is_there && !self.sync.options.dry_run {
            make_directory(to).await?;
        }
        if !is_there {
            self.tell(Ok(Step::MakeDirectory(to.clone()))).await.ok();
        }
        Ok(Some(Directory { path: from.path.clone(), is_there, may_lose: true }))
    }

    /// Goes through one directory; gives those in it.
    async fn directory(&self, directory: Directory) -> Result<Vec<Directory>, Unwanted> {
        let mut below = Vec::new();
        let job = match self.sync.ends.counterpart(directory.path.clone()) {
            Ok(job) => job,
            Err(error) => {
                self.tell(Err(Missed { job: self.sync.ends.clone(), error })).await?;
                return Ok(below);
            }
        };
        let (source, found) = match self.list(&job, directory.is_there).await {
            Ok(listed) => listed,
            Err(error) => {
                self.tell(Err(Missed { job, error })).await?;
                return Ok(below);
            }
        };
        let mut same = 0;
        let mut tasks = Vec::new();
        for entry in source.beside(found) {
            match self.entry(&job, &directory, &entry) {
                Some(Task::Tell(Step::Same(count))) => same += count,
                Some(Task::Tell(step)) => self.tell(Ok(step)).await?,
                Some(task) => tasks.push(task),
                None => {}
            }
            if tasks.len() >= QUESTIONS {
                self.carry_out(std::mem::take(&mut tasks), &mut below).await?;
            }
        }
        self.carry_out(tasks, &mut below).await?;
        if same > 0 {
            self.tell(Ok(Step::Same(same))).await?;
        }
        Ok(below)
    }

    /// Lists a directory at both ends.
    async fn list<'a>(&'a self, job: &Job, is_there: bool) -> Result<(Names<'a>, Names<'a>)> {
        let options = ListOptions { metadata: true, ..ListOptions::default() };
        let [ours, theirs] = &self.large;
        let found = async { if is_there { Names::list(&job.to, options, theirs).await } else { Ok(Names::default()) } };
        try_join!(Names::list(&job.from, options, ours), found)
    }

    /// What is to be done about one entry of `directory`, whose two ends are `job`.
    fn entry(&self, job: &Job, directory: &Directory, entry: &Both) -> Option<Task> {
        if entry.source.is_some() {
            self.sync.entries.fetch_add(1, Relaxed);
        }
        let ends = job.from.join(&entry.name).and_then(|from| Ok(Job::new(from, job.to.join(&entry.name)?)));
        let ends = match ends {
            Ok(ends) => ends,
            Err(error) => return Some(Task::Miss(Missed { job: job.clone(), error })),
        };
        let Some(source) = entry.source else { return self.extra(&ends, directory, &entry.found?) };
        let options = &self.sync.options;
        let is_directory = source.kind == FileKind::Directory;
        let judgement = options.filter.judge(&ends.from.path, &self.sync.ends.from.path, is_directory);
        let is_wanted =
            if is_directory { judgement.may_hold } else { judgement.is_taken && options.filter.takes(source.size) };
        if !is_wanted {
            return None;
        }
        let found = entry.found;
        let is_there = found.is_some_and(|found| found.kind == FileKind::Directory);
        let may_lose = directory.may_lose && !(is_there && found.is_some_and(|found| found.is_link));
        let below = |is_there| {
            let ends = ends.clone();
            Below { ends, is_link: source.is_link, is_taken: judgement.is_taken, is_there, may_lose }
        };
        match (is_directory, found) {
            (true, Some(_)) if is_there => Some(Task::Make(below(true))),
            (true, None) => Some(Task::Make(below(false))),
            (true, Some(found)) => Some(self.clash(ends.clone(), directory, &found, Task::Make(below(false)))),
            (false, None) => Some(copy(ends, &source, Why::Missing)),
            (false, Some(found)) if is_there => {
                let then = copy(ends.clone(), &source, Why::Kind);
                Some(self.clash(ends, directory, &found, then))
            }
            (false, Some(found)) if self.pass == Pass::Copying => self.file(ends, &source, &found),
            (false, Some(_)) => None,
        }
    }

    /// What is to be done about a file that is there at both ends.
    fn file(&self, ends: Job, source: &Known, found: &Known) -> Option<Task> {
        let keeps_times = ends.to.store.capabilities().set_mtime;
        let finding = compare::compare(source, found, self.sync.options.compare, keeps_times);
        Some(match finding {
            Finding::Differs(why) => copy(ends, source, why),
            Finding::Unclear(otherwise) => Task::Ask(ends, *source, otherwise),
            Finding::Touched => Task::Touch(ends, self.changes(source)),
            Finding::Same if keeps_times && self.has_other_mode(source, found) => {
                Task::Touch(ends, self.changes(source))
            }
            Finding::Same => Task::Tell(Step::Same(1)),
        })
    }

    /// Something of which only the destination knows.
    fn extra(&self, ends: &Job, directory: &Directory, found: &Known) -> Option<Task> {
        let options = &self.sync.options;
        let is_directory = found.kind == FileKind::Directory && !found.is_link;
        let judgement = options.filter.judge(&ends.from.path, &self.sync.ends.from.path, is_directory);
        let is_wanted = judgement.is_taken && (is_directory || options.filter.takes(found.size));
        // In the xroot protocol listings cannot say such a name: that the source has it not is not known.
        let is_unsayable = ends.from.is_remote() && ends.from.path.as_bytes().contains(&b'\n');
        if !options.delete || !directory.may_lose || !is_wanted || is_unsayable {
            return None;
        }
        Some(Task::Remove { ends: ends.clone(), is_directory, then: None })
    }

    /// A file where a directory should be, or the other way round; `then` is what was to be done.
    fn clash(&self, ends: Job, directory: &Directory, found: &Known, then: Task) -> Task {
        if self.sync.options.delete && directory.may_lose {
            let is_directory = found.kind == FileKind::Directory && !found.is_link;
            return Task::Remove { ends, is_directory, then: Some(Box::new(then)) };
        }
        let (fault, what) = match found.kind {
            FileKind::Directory => (Fault::IsDirectory, "a directory"),
            _ => (Fault::NotDirectory, "a file"),
        };
        let message = format!("{what} is in the way: --delete removes it");
        let error = Error::new(fault, message).at(&ends.to.path);
        Task::Miss(Missed { job: ends, error })
    }

    /// Does what `tasks` say, many at once; adds directories that are to be gone through.
    async fn carry_out(&self, tasks: Vec<Task>, below: &mut Vec<Directory>) -> Result<(), Unwanted> {
        let tasks: Vec<_> = tasks.into_iter().map(|task| self.one(task)).collect();
        let mut done = stream::iter(tasks).buffered(QUESTIONS);
        while let Some(outcome) = done.next().await {
            below.extend(outcome?);
        }
        Ok(())
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
        let to = &ends.to;
        if !self.sync.options.dry_run
            && let Err(error) = to.store.change(&to.caller, &to.path, changes).await
        {
            return Err(Missed { job: ends, error });
        }
        Ok(Step::Touch(ends.to, changes))
    }

    /// Makes a directory if it is not there, and is taken itself. Else it is made when there is something to put into it.
    async fn make(&self, below: Below) -> Result<Option<Directory>, Unwanted> {
        let Below { ends, is_link, is_taken, is_there, may_lose } = below;
        let is_new = is_taken && !is_there;
        let made = async {
            if is_link {
                clash::refuse_endless_link(&ends, &self.sync.ends).await?;
            }
            if is_new && !self.sync.options.dry_run { make_directory(&ends.to).await } else { Ok(()) }
        };
        if let Err(error) = made.await {
            self.tell(Err(Missed { job: ends, error })).await?;
            return Ok(None);
        }
        if is_new {
            self.tell(Ok(Step::MakeDirectory(ends.to))).await?;
        }
        Ok(Some(Directory { path: ends.from.path, is_there, may_lose }))
    }

    /// Removes something in the pass that deletes, and says so in either; `then` follows when it is out of the way.
    async fn take_away(
        &self,
        ends: Job,
        is_directory: bool,
        then: Option<Box<Task>>,
    ) -> Result<Option<Directory>, Unwanted> {
        let extra = Extra { place: ends.to.clone(), is_directory };
        if self.pass == Pass::Deleting
            && let Err(error) = self.erase(&extra).await
        {
            self.tell(Err(Missed { job: ends, error })).await?;
            return Ok(None);
        }
        self.tell(Ok(Step::Extra(extra))).await?;
        match then {
            Some(then) if self.pass == Pass::Deleting || self.sync.options.dry_run => Box::pin(self.one(*then)).await,
            _ => Ok(None),
        }
    }

    async fn erase(&self, extra: &Extra) -> Result<()> {
        let Place { store, caller, path, .. } = &extra.place;
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

    fn changes(&self, source: &Known) -> Changes {
        let mode = source.mode.map(|mode| mode & 0o777 & !self.sync.options.umask);
        Changes { mode, mtime_ns: source.mtime_ns, size: None }
    }

    fn has_other_mode(&self, source: &Known, found: &Known) -> bool {
        let wanted = self.changes(source).mode;
        wanted.zip(found.mode).is_some_and(|(wanted, mode)| wanted != mode & 0o777)
    }

    async fn tell(&self, step: Result<Step, Missed>) -> Result<(), Unwanted> {
        self.steps.send(step).await.map_err(|_| Unwanted)
    }
}

fn copy(ends: Job, source: &Known, why: Why) -> Task {
    Task::Tell(Step::Copy(Job { size: Some(source.size), ..ends }, why))
}
