//! What each access took, and where its time went: so that an operator can say which part is slow, and replay the
//! accesses for other sizes of the cache ([`crate::simulation`]).

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use towpath_store::{
    RequestTime,
    sys::clock::{self, Instant},
};

use crate::{
    namespace::Selection,
    origin::Origin,
    segments::{SegmentUse, Segments},
    target::Target,
    version::{Version, hex},
};

/// Number of recent accesses that are kept.
const RECENT: usize = 4096;
/// Maximum number of ranges of read-ahead that a reader has not reached. The oldest are forgotten.
const MAX_AHEAD: usize = 128;
/// Number of bytes of the name of an entry in a record: two of 10^7 entries share them with a probability of 10^-5.
const ENTRY_BYTES: usize = 8;

/// An access to a file, from open to close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRecord {
    /// URL of the origin, without credentials.
    pub origin: Arc<str>,
    /// Target at the origin.
    pub target: Target,
    /// The first 16 hexadecimal digits of the entry: the same for accesses to the same version of the file.
    pub entry: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since the Unix epoch, if the origin reports it.
    pub mtime_ns: Option<i64>,
    /// When the file was opened, in milliseconds since the Unix epoch.
    pub opened_ms: i64,
    /// When the file was closed, in seconds since the Unix epoch.
    pub closed_s: i64,
    /// Time from open to close.
    pub duration: Duration,
    /// Bytes sent through the disk of the cache.
    pub served_bytes: u64,
    /// Bytes that were absent when they were requested, or that this reader's read-ahead fetched.
    pub missed_bytes: u64,
    /// Bytes passed through without being stored.
    pub bypass_bytes: u64,
    /// Time that reads waited for the origin; reads at the same time add up.
    pub origin_wait: Duration,
    /// Part of `origin_wait` before the storage of the origin began to respond, an estimate from all requests to the
    /// origin between open and close. `None` without a response.
    pub storage_wait: Option<Duration>,
    /// Time that reads waited for the disk of the cache, for data that were not in memory or had to be verified.
    pub disk_wait: Duration,
    /// The parts of the file that were read, in order.
    pub segments: Vec<SegmentUse>,
}

impl AccessRecord {
    /// Returns the number of bytes that came from the disk of the cache without the origin.
    pub fn hit_bytes(&self) -> u64 {
        self.served_bytes.saturating_sub(self.missed_bytes)
    }

    /// Returns the time without a waiting read: that of the client and its network. `None` if reads overlapped so much that
    /// their waits add up to more than the duration.
    pub fn client_time(&self) -> Option<Duration> {
        self.duration.checked_sub(self.origin_wait + self.disk_wait)
    }
}

/// Receives each access when its file is closed. It must not block.
pub type AccessObserver = Box<dyn Fn(&AccessRecord) + Send + Sync>;

/// The recent accesses of a cache.
#[derive(Default)]
pub(crate) struct Accounts {
    recent: Mutex<VecDeque<AccessRecord>>,
    observer: OnceLock<AccessObserver>,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

impl Accounts {
    /// Sets the observer of accesses, unless there is one.
    pub(crate) fn observe(&self, observer: AccessObserver) {
        // The first one stays.
        let _ = self.observer.set(observer);
    }

    fn record(&self, record: AccessRecord) {
        if let Some(observer) = self.observer.get() {
            observer(&record);
        }
        let mut records = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() == RECENT {
            records.pop_front();
        }
        // The segments are for the observer: 4,096 records of large files would take too much memory.
        records.push_back(AccessRecord { segments: Vec::new(), ..record });
    }

    /// Returns the records of the selected files, the latest last, without their segments.
    pub(crate) fn recent(&self, selection: &Selection) -> Vec<AccessRecord> {
        let records = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().filter(|record| selection.contains(&record.origin, &record.target)).cloned().collect()
    }
}

/// The account of an open file. It becomes a record when it is dropped.
#[derive(Debug)]
pub(crate) struct Account {
    accounts: Arc<Accounts>,
    version: Version,
    /// When a reader opened the file; empty without a reader.
    opened: OnceLock<Opened>,
    served_bytes: AtomicU64,
    missed_bytes: AtomicU64,
    bypass_bytes: AtomicU64,
    origin_us: AtomicU64,
    disk_us: AtomicU64,
    reads: Mutex<Reads>,
    origin: Arc<Origin>,
}

/// The open of a reader.
#[derive(Debug)]
struct Opened {
    at: Instant,
    /// In milliseconds since the Unix epoch.
    at_ms: i64,
    /// The times of the origin's requests until then.
    request_time: RequestTime,
}

/// The reads of an open file.
#[derive(Debug, Default)]
struct Reads {
    segments: Segments,
    /// What its read-ahead has fetched, and it has not read.
    ahead: VecDeque<Range<u64>>,
    /// Parts that are being sent by the kernel.
    parts: Vec<Range<u64>>,
}

impl Reads {
    /// Counts a read. Returns the number of its bytes, and of those that read-ahead had fetched.
    fn count(&mut self, range: &Range<u64>) -> (u64, u64) {
        self.segments.add(range);
        let ahead = take(&mut self.ahead, range).iter().map(|part| part.end - part.start).sum();
        (range.end - range.start, ahead)
    }

    /// As [`Self::count`]; 0 if the kernel is sending the range.
    fn count_unless_sent(&mut self, range: &Range<u64>) -> (u64, u64) {
        match self.parts.iter().any(|part| part.start <= range.start && range.end <= part.end) {
            true => (0, 0),
            false => self.count(range),
        }
    }
}

impl Account {
    /// Opens the account of a reader of a file of an origin.
    pub(crate) fn open(accounts: &Arc<Accounts>, origin: &Arc<Origin>, version: &Version) -> Self {
        let account = Self::without_reader(accounts, origin, version);
        account.begin();
        account
    }

    /// Opens the account of a file that has no reader yet. It becomes a record only if one begins.
    pub(crate) fn without_reader(accounts: &Arc<Accounts>, origin: &Arc<Origin>, version: &Version) -> Self {
        Self {
            accounts: Arc::clone(accounts),
            version: version.clone(),
            opened: OnceLock::new(),
            served_bytes: AtomicU64::new(0),
            missed_bytes: AtomicU64::new(0),
            bypass_bytes: AtomicU64::new(0),
            origin_us: AtomicU64::new(0),
            disk_us: AtomicU64::new(0),
            reads: Mutex::new(Reads { segments: Segments::new(version.size), ..Reads::default() }),
            origin: Arc::clone(origin),
        }
    }

    /// Begins the access of a reader. Waits before it do not count.
    pub(crate) fn begin(&self) {
        self.opened.get_or_init(|| {
            self.origin_us.store(0, Relaxed);
            self.disk_us.store(0, Relaxed);
            let at_ms = clock::unix_ns().div_euclid(1_000_000);
            Opened { at: clock::now(), at_ms, request_time: self.origin.request_times.sums() }
        });
    }

    /// Returns whether the file has, or had, a reader.
    pub(crate) fn has_reader(&self) -> bool {
        self.opened.get().is_some()
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a read of `range` from the disk of the cache. Returns the number of its bytes, and of those that this
    /// reader's read-ahead had fetched; 0 if the kernel is sending the range: then [`Self::record_sent`] counts it.
    pub(crate) fn record_served(&self, range: &Range<u64>) -> (u64, u64) {
        let counts = self.reads().count_unless_sent(range);
        self.add(counts)
    }

    /// Counts reads of `ranges`, as [`Self::record_served`]. Returns the sums.
    pub(crate) fn record_vector(&self, ranges: impl Iterator<Item = Range<u64>>) -> (u64, u64) {
        let mut reads = self.reads();
        let counts = ranges.map(|range| reads.count_unless_sent(&range));
        let sums = counts.fold((0, 0), |(bytes, ahead), (more, more_ahead)| (bytes + more, ahead + more_ahead));
        drop(reads);
        self.add(sums)
    }

    /// Counts bytes of a part that the kernel has sent, as [`Self::record_served`].
    pub(crate) fn record_sent(&self, range: &Range<u64>) -> (u64, u64) {
        let counts = self.reads().count(range);
        self.add(counts)
    }

    fn add(&self, (served, ahead): (u64, u64)) -> (u64, u64) {
        self.served_bytes.fetch_add(served, Relaxed);
        self.missed_bytes.fetch_add(ahead, Relaxed);
        (served, ahead)
    }

    /// Counts a request for `range`. `missing` returns how many bytes of a range are absent. Returns the number of bytes
    /// that are absent, or were so before this reader's read-ahead.
    pub(crate) fn record_request(&self, range: &Range<u64>, missing: impl Fn(&Range<u64>) -> u64) -> u64 {
        let ahead = take(&mut self.reads().ahead, range);
        let (mut missed, mut next) = (0, range.start);
        for part in ahead {
            missed += missing(&(next..part.start)) + (part.end - part.start);
            next = part.end;
        }
        missed += missing(&(next..range.end));
        self.missed_bytes.fetch_add(missed, Relaxed);
        missed
    }

    /// Counts a read of `range` from the origin, without storing it.
    pub(crate) fn record_bypass(&self, range: &Range<u64>) {
        self.reads().segments.add(range);
        self.bypass_bytes.fetch_add(range.end - range.start, Relaxed);
    }

    /// Remembers that read-ahead fetches `range`.
    pub(crate) fn record_ahead(&self, range: Range<u64>) {
        let ahead = &mut self.reads().ahead;
        match ahead.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                if ahead.len() == MAX_AHEAD {
                    ahead.pop_front();
                }
                ahead.push_back(range);
            }
        }
    }

    /// Returns whether read-ahead has fetched bytes of `range` that were not read.
    pub(crate) fn is_ahead(&self, range: &Range<u64>) -> bool {
        self.reads().ahead.iter().any(|part| part.start < range.end && range.start < part.end)
    }

    /// Begins sending a part by the kernel. Until [`Self::end_part`], reads of it are those that the server makes to
    /// send it, and do not count.
    pub(crate) fn begin_part(&self, part: &Range<u64>) {
        self.reads().parts.push(part.clone());
    }

    /// Ends a part that was begun.
    pub(crate) fn end_part(&self, part: &Range<u64>) {
        let parts = &mut self.reads().parts;
        if let Some(index) = parts.iter().position(|other| other == part) {
            parts.swap_remove(index);
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

/// Removes `range` from a list of ranges. Returns the removed parts, in order.
fn take(list: &mut VecDeque<Range<u64>>, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut taken = Vec::new();
    if list.iter().all(|part| part.end <= range.start || range.end <= part.start) {
        return taken;
    }
    let mut left = VecDeque::with_capacity(list.len() + 1);
    for part in list.drain(..) {
        let (start, end) = (part.start.max(range.start), part.end.min(range.end));
        if start >= end {
            left.push_back(part);
            continue;
        }
        left.extend([part.start..start, end..part.end].into_iter().filter(|rest| !rest.is_empty()));
        taken.push(start..end);
    }
    *list = left;
    taken.sort_unstable_by_key(|part| part.start);
    taken
}

async fn timed<T>(account_us: &AtomicU64, waiting: impl Future<Output = T>) -> T {
    let start = clock::now();
    let outcome = waiting.await;
    account_us.fetch_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), Relaxed);
    outcome
}

impl Drop for Account {
    fn drop(&mut self) {
        let Some(Opened { at, at_ms, request_time }) = self.opened.get() else { return };
        let bytes = |count: &AtomicU64| count.load(Relaxed);
        let time = |account_us: &AtomicU64| Duration::from_micros(account_us.load(Relaxed));
        let name = self.version.name();
        let segments = self.reads().segments.list();
        let origin_wait = time(&self.origin_us);
        let share = self.origin.request_times.sums().server_share_since(request_time);
        self.accounts.record(AccessRecord {
            origin: Arc::clone(&self.version.origin),
            target: self.version.target.clone(),
            entry: hex(name.get(..ENTRY_BYTES).unwrap_or_default()),
            size: self.version.size,
            mtime_ns: self.version.mtime_ns,
            opened_ms: *at_ms,
            closed_s: clock::unix_s(),
            duration: at.elapsed(),
            served_bytes: bytes(&self.served_bytes),
            missed_bytes: bytes(&self.missed_bytes),
            bypass_bytes: bytes(&self.bypass_bytes),
            origin_wait,
            storage_wait: share.map(|share| origin_wait.mul_f64(share)),
            disk_wait: time(&self.disk_us),
            segments,
        });
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::{StorePath, memory::MemoryStore};

    use super::*;
    use crate::origin::{Credential, OriginOptions};

    fn account(size: u64) -> (Arc<Accounts>, Account) {
        let version = Version {
            origin: "memory".into(),
            target: Target::parse(b"/f").unwrap(),
            size,
            mtime_ns: Some(1),
            tag: None,
        };
        let accounts = Arc::<Accounts>::default();
        let account = Account::open(&accounts, &origin(), &version);
        (accounts, account)
    }

    fn origin() -> Arc<Origin> {
        Arc::new(Origin::new(OriginOptions {
            name: "memory".into(),
            store: Arc::new(MemoryStore::new(0)),
            root: StorePath::root(),
            credential: Credential::Own,
            bytes_in_flight: 1,
            request_times: Arc::default(),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_origin_is_divided_as_the_times_of_its_requests() {
        let (accounts, account) = account(1000);
        let second = Duration::from_secs(1);
        account.origin(tokio::time::sleep(second * 8)).await;
        account.origin.request_times.record(RequestTime { total: second * 4, server: second });
        drop(account);
        let [record] = &accounts.recent(&Selection::All)[..] else { panic!() };
        assert_eq!((record.origin_wait, record.storage_wait), (second * 8, Some(second * 2)));
    }

    #[test]
    fn bytes_that_read_ahead_fetched_for_this_reader_are_missed_once() {
        let (accounts, account) = account(1000);
        assert_eq!(account.record_request(&(0..100), |range| range.end - range.start), 100);
        account.record_served(&(0..100));
        account.record_ahead(100..200);
        account.record_ahead(200..300);
        assert_eq!(account.record_served(&(100..150)), (50, 50));
        assert_eq!(account.record_request(&(150..400), |_| 0), 150, "present now, because of the read-ahead");
        account.record_served(&(150..400));
        account.record_served(&(0..400));
        drop(account);
        let [record] = &accounts.recent(&Selection::All)[..] else { panic!() };
        assert_eq!((record.served_bytes, record.missed_bytes, record.hit_bytes()), (800, 300, 500));
    }

    #[test]
    fn a_part_that_the_kernel_sends_counts_when_it_is_sent() {
        let (accounts, account) = account(1000);
        account.begin_part(&(0..500));
        assert_eq!(account.record_served(&(10..11)), (0, 0), "a read of the server to send it");
        account.record_sent(&(0..200));
        account.end_part(&(0..500));
        account.record_served(&(200..500));
        drop(account);
        assert_eq!(accounts.recent(&Selection::All)[0].served_bytes, 500);
    }

    #[test]
    fn the_observer_gets_the_segments_and_the_memory_does_not_keep_them() {
        let (accounts, account) = account(100);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observed = Arc::clone(&seen);
        accounts.observe(Box::new(move |record| observed.lock().unwrap().push(record.clone())));
        account.record_bypass(&(0..100));
        drop(account);
        assert_eq!(seen.lock().unwrap()[0].segments.len(), 1);
        assert_eq!(seen.lock().unwrap()[0].entry.len(), 16);
        assert!(accounts.recent(&Selection::All)[0].segments.is_empty());
    }
}
