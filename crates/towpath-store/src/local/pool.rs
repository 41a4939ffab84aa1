//! The disk pool: where system calls that may wait for a disk run, so that no network thread ever does.
//!
//! It is tokio's blocking threads behind a semaphore: more calls at once than a disk can queue only cost memory and
//! context switches, and one store must not take all threads of the process. Jobs that read whole files (digests,
//! also those a commit needs, and copies) may take only a part of it, so that short reads always find a thread.

use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

use crate::{Error, Fault, Result};

/// The part of the pool that long jobs may take.
const LONG_JOB_SHARE: usize = 4;

/// A bounded set of threads for blocking calls.
#[derive(Debug, Clone)]
pub(super) struct DiskPool {
    jobs: Arc<Semaphore>,
    long_jobs: Arc<Semaphore>,
}

/// Tells a long job that nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Cancelled(Weak<()>);

impl Cancelled {
    /// Fails with `Cancelled` once the future that waits for this job is gone.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.strong_count() == 0 {
            return Err(Error::new(Fault::Cancelled, "the request was cancelled"));
        }
        Ok(())
    }
}

impl DiskPool {
    /// A pool that runs `jobs` calls at once, at least one.
    pub(super) fn new(jobs: usize) -> Self {
        let jobs = jobs.max(1);
        Self {
            jobs: Arc::new(Semaphore::new(jobs)),
            long_jobs: Arc::new(Semaphore::new(jobs.div_ceil(LONG_JOB_SHARE))),
        }
    }

    /// Runs `job` on a thread that may block. If the future is dropped the job still ends, and what it made is dropped.
    pub(super) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let permit = Arc::clone(&self.jobs).acquire_owned().await.expect("the semaphore is never closed");
        let task = tokio::task::spawn_blocking(move || {
            let outcome = job();
            drop(permit);
            outcome
        });
        task.await.unwrap_or_else(|failed| {
            Err(match failed.is_panic() {
                true => Error::new(Fault::Internal, format!("a disk job failed: {failed}")),
                false => Error::new(Fault::Cancelled, "the process is shutting down"),
            })
        })
    }

    /// As [`Self::run`], for a job that takes long and asks now and then whether it is still wanted.
    pub(super) async fn run_long<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Cancelled) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _share = self.long_jobs.acquire().await.expect("the semaphore is never closed");
        let wanted = Arc::new(());
        let cancelled = Cancelled(Arc::downgrade(&wanted));
        self.run(move || job(&cancelled)).await
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
        let from_test = Arc::new(std::sync::Mutex::new(from_test));
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
    async fn a_job_that_panics_is_an_error_and_gives_its_place_back() {
        let pool = DiskPool::new(1);
        for _ in 0..3 {
            let outcome: Result<()> = pool.run(|| panic!("on purpose")).await;
            assert_eq!(outcome.unwrap_err().fault(), Fault::Internal);
        }
        assert_eq!(pool.run(|| Ok(7)).await.unwrap(), 7);
    }
}
