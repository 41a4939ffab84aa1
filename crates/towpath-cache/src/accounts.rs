//! What each access took, and where its time went: so that an operator can say which part is slow.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use towpath_store::{
    StorePath,
    sys::clock::{self, Instant},
};

use crate::namespace::Selection;

/// Number of recent accesses that are kept.
const RECENT: usize = 4096;

/// An access to a file, from open to close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRecord {
    /// URL of the origin, without credentials.
    pub origin: Arc<str>,
    /// Path at the origin.
    pub path: StorePath,
    /// When the file was closed, in seconds since the Unix epoch.
    pub closed_s: i64,
    /// Time from open to close.
    pub duration: Duration,
    /// Bytes sent through the disk of the cache.
    pub served_bytes: u64,
    /// Bytes that were absent when they were requested.
    pub missed_bytes: u64,
    /// Bytes passed through without being stored.
    pub bypass_bytes: u64,
    /// Time that reads waited for the origin; reads at the same time add up.
    pub origin_wait: Duration,
    /// Time that reads waited for the disk of the cache, for data that were not in memory or had to be verified.
    pub disk_wait: Duration,
}

/// The recent accesses of a cache.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<VecDeque<AccessRecord>>);

impl Accounts {
    fn record(&self, record: AccessRecord) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() == RECENT {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Returns the records of the selected files, the latest last.
    pub(crate) fn recent(&self, selection: &Selection) -> Vec<AccessRecord> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().filter(|record| selection.contains(&record.origin, &record.path)).cloned().collect()
    }
}

/// The account of an open file. It becomes a record when it is dropped.
#[derive(Debug)]
pub(crate) struct Account {
    accounts: Arc<Accounts>,
    origin: Arc<str>,
    path: StorePath,
    opened: Instant,
    pub(crate) served_bytes: AtomicU64,
    pub(crate) missed_bytes: AtomicU64,
    pub(crate) bypass_bytes: AtomicU64,
    origin_us: AtomicU64,
    disk_us: AtomicU64,
}

impl Account {
    /// Opens the account of a file.
    pub(crate) fn open(accounts: &Arc<Accounts>, origin: &Arc<str>, path: &StorePath) -> Self {
        Self {
            accounts: Arc::clone(accounts),
            origin: Arc::clone(origin),
            path: path.clone(),
            opened: clock::now(),
            served_bytes: AtomicU64::new(0),
            missed_bytes: AtomicU64::new(0),
            bypass_bytes: AtomicU64::new(0),
            origin_us: AtomicU64::new(0),
            disk_us: AtomicU64::new(0),
        }
    }

    /// Awaits a future, and adds its time to that of the origin.
    pub(crate) async fn origin<T>(&self, waiting: impl Future<Output = T>) -> T {
        timed(&self.origin_us, waiting).await
    }

    /// Awaits a future, and adds its time to that of the disk.
    pub(crate) async fn disk<T>(&self, waiting: impl Future<Output = T>) -> T {
        timed(&self.disk_us, waiting).await
    }
}

async fn timed<T>(account_us: &AtomicU64, waiting: impl Future<Output = T>) -> T {
    let start = clock::now();
    let outcome = waiting.await;
    account_us.fetch_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), Relaxed);
    outcome
}

impl Drop for Account {
    fn drop(&mut self) {
        let bytes = |count: &AtomicU64| count.load(Relaxed);
        let time = |account_us: &AtomicU64| Duration::from_micros(account_us.load(Relaxed));
        self.accounts.record(AccessRecord {
            origin: Arc::clone(&self.origin),
            path: self.path.clone(),
            closed_s: clock::unix_s(),
            duration: self.opened.elapsed(),
            served_bytes: bytes(&self.served_bytes),
            missed_bytes: bytes(&self.missed_bytes),
            bypass_bytes: bytes(&self.bypass_bytes),
            origin_wait: time(&self.origin_us),
            disk_wait: time(&self.disk_us),
        });
    }
}
