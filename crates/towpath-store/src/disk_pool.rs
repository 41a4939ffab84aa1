//! The disk pool: runs system calls that may wait for a disk, so that they do not block network threads.
//!
//! Most jobs take a few microseconds and do not access the disk, and waking a thread takes longer than that. Jobs are
//! therefore queued and run by few threads, one after the other. If jobs wait for longer than [`PATIENCE`], because
//! earlier ones do wait for a disk, the number of threads doubles, up to the limit of the pool (more concurrent calls
//! than a disk can queue only cost memory). New jobs start that many threads directly for [`MEMORY`]. Threads are
//! tokio's blocking threads and are released when the queue is empty.
//!
//! Jobs that read whole files (digests, including those for a commit, and copies) bypass the queue. They have their own
//! threads, a fraction of the limit.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::{MissedTickBehavior, interval},
};

use crate::{
    Error, Fault, Result,
    sys::{
        clock::{self, Instant},
        processor::processors,
    },
};

/// One long job may run per this number of threads in the pool's limit.
const LONG_JOB_SHARE: usize = 4;

/// Time that a job waits, at most twice, before threads are added: longer than the scheduling delay of a busy CPU.
const PATIENCE: Duration = Duration::from_millis(5);

/// How long an increased number of threads is considered necessary.
const MEMORY: Duration = Duration::from_secs(1);

/// A bounded set of threads for blocking calls.
#[derive(Debug, Clone)]
pub struct DiskPool {
    queue: Arc<JobQueue>,
    long_jobs: Arc<Semaphore>,
}

/// Tells a long job whether its caller has gone.
#[derive(Debug)]
pub struct CancellationCheck(Weak<()>);

impl CancellationCheck {
    /// Returns `CancellationCheck` once the future that waits for this job is dropped.
    pub fn check(&self) -> Result<()> {
        if self.0.strong_count() == 0 {
            return Err(Error::new(Fault::Cancelled, "the request was cancelled"));
        }
        Ok(())
    }
}

impl DiskPool {
    /// Creates a pool that runs at most `jobs` calls concurrently, at least one.
    pub fn new(jobs: usize) -> Self {
        let most = jobs.max(1);
        let few = processors().min(most);
        let state = State { jobs: VecDeque::new(), taken: 0, threads: 0, needed: None, is_watched: false };
        Self {
            queue: Arc::new(JobQueue { state: Mutex::new(state), few, most }),
            long_jobs: Arc::new(Semaphore::new(most.div_ceil(LONG_JOB_SHARE))),
        }
    }

    /// Runs `job` on a thread that may block. If the future is dropped, the job still runs to its end and its result
    /// is dropped.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (job, outcome) = told(job);
        self.queue.join(Box::new(job));
        outcome.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Like [`Self::run`], for a long job that periodically checks for cancellation.
    pub async fn run_long<T: Send + 'static>(
        &self,
        job: impl FnOnce(&CancellationCheck) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _share = self.long_jobs.acquire().await.expect("the semaphore is never closed");
        let wanted = Arc::new(());
        let cancelled = CancellationCheck(Arc::downgrade(&wanted));
        let (job, outcome) = told(move || job(&cancelled));
        tokio::task::spawn_blocking(job);
        outcome.await.unwrap_or_else(|_| Err(shutting_down()))
    }
}

/// Wraps a job so that its outcome is sent to the returned receiver.
fn told<T>(job: impl FnOnce() -> Result<T>) -> (impl FnOnce(), oneshot::Receiver<Result<T>>) {
    let (tell, outcome) = oneshot::channel();
    let job = move || {
        let panicked = |_| Err(Error::new(Fault::Internal, "a disk job panicked: see the output of the process"));
        // The caller may have dropped the receiver.
        let _ = tell.send(catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(panicked));
    };
    (job, outcome)
}

fn shutting_down() -> Error {
    Error::new(Fault::Cancelled, "the process is shutting down")
}

type Job = Box<dyn FnOnce() + Send>;

/// The queue of jobs, and its threads.
struct JobQueue {
    state: Mutex<State>,
    /// Number of threads started as soon as there are jobs.
    few: usize,
    /// Maximum number of threads.
    most: usize,
}

struct State {
    jobs: VecDeque<Job>,
    /// Number of jobs taken from the queue so far.
    taken: u64,
    threads: usize,
    /// Number of threads considered necessary, and the expiry of that.
    needed: Option<(usize, Instant)>,
    is_watched: bool,
}

/// A thread that runs queued jobs.
struct Thread {
    queue: Arc<JobQueue>,
    /// Whether it is counted in [`State::threads`].
    is_counted: bool,
}

impl JobQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, job: Job) {
        let (thread, is_to_watch) = {
            let mut state = self.state();
            state.jobs.push_back(job);
            state.needed = state.needed.filter(|(_, until)| clock::now() < *until);
            let starts = state.threads < state.needed.map_or(self.few, |(threads, _)| threads);
            let thread = starts.then(|| self.add_thread(&mut state));
            let is_to_watch = !starts && state.threads < self.most && !std::mem::replace(&mut state.is_watched, true);
            (thread, is_to_watch)
        };
        if let Some(thread) = thread {
            thread.start();
        } else if is_to_watch {
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    /// Counts a thread, which is to be started without the lock: a runtime that is shutting down drops it at once.
    fn add_thread(self: &Arc<Self>, state: &mut State) -> Thread {
        state.threads += 1;
        Thread { queue: Arc::clone(self), is_counted: true }
    }

    /// Adds threads while jobs have to wait.
    async fn watch(self: Arc<Self>) {
        let mut tick = interval(PATIENCE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Number of jobs queued up to the previous tick.
        let mut come_before = 0_u64;
        loop {
            tick.tick().await;
            let threads: Vec<Thread> = {
                let mut state = self.state();
                if state.jobs.is_empty() {
                    state.is_watched = false;
                    return;
                }
                let mut needed = state.threads;
                if come_before > state.taken {
                    // Doubled rather than one per waiting job: on busy CPUs jobs wait too, and more threads would not
                    // help.
                    needed = (state.threads * 2).clamp(self.few, self.most);
                    state.needed = Some((needed, clock::now() + MEMORY));
                }
                come_before = state.taken + state.jobs.len() as u64;
                (state.threads..needed).map(|_| self.add_thread(&mut state)).collect()
            };
            threads.into_iter().for_each(Thread::start);
        }
    }
}

impl Thread {
    /// Starts the thread.
    fn start(mut self) {
        tokio::task::spawn_blocking(move || {
            while let Some(job) = self.next() {
                job();
            }
        });
    }

    /// Takes the next job. If the queue is empty, returns `None` and no longer counts the thread.
    fn next(&mut self) -> Option<Job> {
        let mut state = self.queue.state();
        let Some(job) = state.jobs.pop_front() else {
            state.threads -= 1;
            self.is_counted = false;
            return None;
        };
        state.taken += 1;
        Some(job)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The thread never ran, because the process is shutting down.
        if self.is_counted {
            self.queue.state().threads -= 1;
        }
    }
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue").field("few", &self.few).field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::{FutureExt as _, future::join_all};

    use super::*;

    #[tokio::test]
    async fn a_job_learns_that_nobody_waits_for_it() {
        let pool = DiskPool::new(4);
        let (to_test, from_job) = mpsc::channel();
        let (to_job, from_test) = mpsc::channel();
        let mut job = Box::pin(pool.run_long(move |cancelled| {
            to_test.send(cancelled.check().is_ok()).unwrap();
            from_test.recv().unwrap();
            to_test.send(cancelled.check().is_ok()).unwrap();
            Ok(())
        }));
        assert!((&mut job).now_or_never().is_none());
        assert!(from_job.recv().unwrap(), "somebody waits still");
        drop(job);
        to_job.send(()).unwrap();
        assert!(!from_job.recv().unwrap(), "nobody waits any more");
    }

    #[tokio::test]
    async fn long_jobs_leave_room_for_short_ones() {
        let pool = DiskPool::new(4);
        let (to_jobs, from_test) = mpsc::channel::<()>();
        let from_test = Arc::new(Mutex::new(from_test));
        let long = (0..8).map(|_| {
            let from_test = Arc::clone(&from_test);
            pool.run_long(move |_| Ok(from_test.lock().unwrap().recv().is_err()))
        });
        let mut long = Box::pin(join_all(long));
        assert!((&mut long).now_or_never().is_none());
        let short = join_all((0..100).map(|number| pool.run(move || Ok(number)))).await;
        assert_eq!(short.into_iter().collect::<Result<Vec<_>>>().unwrap(), (0..100).collect::<Vec<_>>());
        drop(to_jobs);
        assert!(long.await.into_iter().all(|outcome| outcome.unwrap()));
    }

    #[tokio::test]
    async fn jobs_that_wait_for_a_disk_do_not_hold_up_others_for_long() {
        let pool = DiskPool::new(64);
        let slow_ones = || {
            let (to_jobs, from_test) = mpsc::channel::<()>();
            let from_test = Arc::new(Mutex::new(from_test));
            let job = || {
                let from_test = Arc::clone(&from_test);
                pool.run(move || Ok(from_test.lock().unwrap().recv().is_err()))
            };
            (Box::pin(join_all((0..63).map(|_| job()))), to_jobs)
        };
        let (mut slow, to_jobs) = slow_ones();
        assert!((&mut slow).now_or_never().is_none());
        assert_eq!(pool.run(|| Ok(7)).await.unwrap(), 7);
        drop(to_jobs);
        assert!(slow.await.into_iter().all(|outcome| outcome.unwrap()));
        let (mut slow, to_jobs) = slow_ones();
        assert!((&mut slow).now_or_never().is_none());
        assert!(pool.queue.state().threads > pool.queue.few, "the next ones need not wait");
        drop(to_jobs);
        slow.await;
    }

    #[test]
    fn a_runtime_that_shuts_down_and_a_new_job_do_not_wait_for_each_other() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _entered = handle.enter();
        let pool = DiskPool::new(4);
        assert!(pool.run(|| Ok(7)).now_or_never().is_none());
        assert_eq!(pool.queue.state().threads, 0);
    }

    #[tokio::test]
    async fn a_job_that_panics_is_an_error_and_gives_its_place_back() {
        let pool = DiskPool::new(1);
        for _ in 0..3 {
            let outcome: Result<()> = pool.run(|| panic!("on purpose")).await;
            assert_eq!(outcome.unwrap_err().fault(), Fault::Internal);
        }
        assert_eq!(pool.run(|| Ok(7)).await.unwrap(), 7);
    }
}
