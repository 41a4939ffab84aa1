//! Requests to an origin: how flights become requests, and how many bytes are in flight.
//!
//! Each origin has a budget of bytes in flight, so that a slow one neither fills the memory nor delays the others.
//! Small ranges that were requested together leave in one vector request, which costs one round trip; large ones in
//! requests of their own, which a client can spread over its connections. If each request has its own connection,
//! adjoining large ones leave together ([`crate::runs`]).

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{Either, select, select_ok},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError},
    task::JoinHandle,
};
use towpath_proto::units::HumanDuration;
use towpath_store::{
    ByteRange, Caller, ContentStream, Error, Fault, Freshness, Metadata, OpenOptions, ReadHandle, RequestTimes, Result,
    Store, StorePath, sys::clock,
};

use crate::{
    breaker::Breaker,
    entry::{Entry, OpenFlight, WrittenFlight},
    flights::{Flight, Outcome},
    runs::{Progress, RUN_BYTES, RunPermit, Runs, shared_part},
    source::{OpenFile, Source},
    store::OriginStatistics,
    target::Target,
};

/// Unit of the budget in bytes.
const BUDGET_UNIT: usize = 1 << 10;
/// Maximum length of a range in a vector request, in bytes, if others are requested with it. Longer ranges have
/// requests of their own: their transfer takes longer than a round trip of most paths.
pub(crate) const VECTOR_RANGE_BYTES: usize = 256 << 10;
/// Maximum number of bytes in a vector request.
const VECTOR_BYTES: usize = 8 << 20;
/// Bytes of a request for adjoining ranges that count as in flight: those in memory. Others wait in the connection.
const RUN_MEMORY_BYTES: usize = 4 << 20;
/// Time after which an open is sent again: some storages need a minute for one of a hundred, and answer the next at once.
const SLOW_OPEN: Duration = Duration::from_secs(2);
/// The status of a response that says that a file is unchanged (RFC 9110 §15.4.5).
const NOT_MODIFIED: u32 = 304;
/// Maximum number of ranges in flight that belong to announcements of more than [`FEW_RANGES`]. Each takes about 1 KiB of
/// memory until it has arrived. Ranges of 1.5 KB fill a path of 1 Gbit/s and 250 ms.
const MAX_VECTOR_RANGES: u32 = 32 << 10;
/// Maximum number of ranges of an announcement that needs no permit.
const FEW_RANGES: usize = 16;
/// Maximum number of small arrived ranges that are written by one job.
const WRITTEN_TOGETHER: usize = 64;

/// A storage whose files are to be cached.
#[derive(Debug)]
pub struct OriginOptions {
    /// URL of the storage without credentials, up to the path. Entries of different names are never shared.
    pub name: Arc<str>,
    /// The storage.
    pub store: Arc<dyn Store>,
    /// The directory that is visible through the cache; the root of the cache's tree.
    pub root: StorePath,
    /// The credential of requests to the storage.
    pub credential: Credential,
    /// Maximum number of bytes in flight from the storage.
    pub bytes_in_flight: usize,
    /// Times of the requests to the storage.
    pub request_times: Arc<RequestTimes>,
}

/// The credential of requests to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Credential {
    /// That of the cache, for all callers. Only the access rules of the cache decide about rights.
    #[default]
    Own,
    /// The token of the caller; none for a caller without one. Each open queries the origin, which checks the rights of
    /// the caller.
    Caller,
}

/// An origin, its budget and its counters.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    root: StorePath,
    pub(crate) credential: Credential,
    budget: Arc<Semaphore>,
    budget_units: u32,
    vector_ranges: Arc<Semaphore>,
    runs: Runs,
    pub(crate) breaker: Breaker,
    pub(crate) counters: OriginCounters,
    pub(crate) request_times: Arc<RequestTimes>,
}

/// The right to have many ranges in flight at an origin.
pub(crate) type RangesPermit = Arc<OwnedSemaphorePermit>;

/// The outcome of an open at an origin.
#[derive(Debug)]
pub(crate) enum OriginFile {
    /// The file is open.
    Open(Arc<dyn ReadHandle>, Metadata),
    /// It can only be read once.
    Stream(ContentStream),
    /// It is still the version that the caller has ([`OpenOptions::held`]). It is not open.
    Unchanged(Metadata),
}

/// Counters of an origin. Bytes are those of file contents.
#[derive(Debug, Default)]
pub(crate) struct OriginCounters {
    /// Bytes that readers got through the disk of the cache.
    pub(crate) served_bytes: AtomicU64,
    /// Bytes that readers requested while they were absent.
    pub(crate) missed_bytes: AtomicU64,
    /// Bytes that readers got from the origin because the disk of the cache failed.
    pub(crate) bypass_bytes: AtomicU64,
    /// Bytes fetched from the origin to be stored.
    pub(crate) fetched_bytes: AtomicU64,
    /// Requests to the origin for data.
    pub(crate) requests: AtomicU64,
    /// Failed requests to the origin for data.
    pub(crate) failures: AtomicU64,
    /// Stored bytes that were damaged, and fetched again.
    pub(crate) damaged_bytes: AtomicU64,
    /// Opens and queries that were answered with a stale version because the origin failed.
    pub(crate) stale: AtomicU64,
    /// Opens and queries of paths that were known to be missing.
    pub(crate) missing: AtomicU64,
}

impl OriginCounters {
    /// Returns the current values, with those of `times`.
    fn statistics(&self, times: &RequestTimes) -> OriginStatistics {
        OriginStatistics {
            request_time: times.sums(),
            served_bytes: self.served_bytes.load(Relaxed),
            missed_bytes: self.missed_bytes.load(Relaxed),
            bypass_bytes: self.bypass_bytes.load(Relaxed),
            fetched_bytes: self.fetched_bytes.load(Relaxed),
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            damaged_bytes: self.damaged_bytes.load(Relaxed),
            stale: self.stale.load(Relaxed),
            missing: self.missing.load(Relaxed),
        }
    }
}

impl Origin {
    /// Creates an origin without requests in flight.
    pub(crate) fn new(options: OriginOptions) -> Self {
        let OriginOptions { name, store, root, credential, bytes_in_flight, request_times } = options;
        let units = u32::try_from(bytes_in_flight / BUDGET_UNIT).unwrap_or(u32::MAX);
        let budget_units = units.clamp(1, u32::MAX >> 3);
        let budget = Arc::new(Semaphore::new(budget_units as usize));
        Self {
            name,
            store,
            root,
            credential,
            budget,
            budget_units,
            vector_ranges: Arc::new(Semaphore::new(MAX_VECTOR_RANGES as usize)),
            runs: Runs::default(),
            breaker: Breaker::default(),
            counters: OriginCounters::default(),
            request_times,
        }
    }

    /// Returns its counters.
    pub(crate) fn statistics(&self) -> OriginStatistics {
        self.counters.statistics(&self.request_times)
    }

    /// Returns the path at the origin of a path of the cache.
    pub(crate) fn path(&self, path: &StorePath) -> Result<StorePath> {
        self.root.concat(path).map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()).at(path))
    }

    /// Returns the target at the origin of a target in the cache.
    pub(crate) fn target(&self, target: &Target) -> Result<Target> {
        Ok(Target::new(self.path(target)?, target.query().cloned()))
    }

    /// Returns the path of the cache of a path at the origin; `None` if the cache does not show it.
    pub(crate) fn cache_path(&self, path: &StorePath) -> Option<StorePath> {
        path.relative_to(&self.root)
    }

    /// Returns the identity for requests to the origin on behalf of `caller`.
    pub(crate) fn identity(&self, caller: &Caller) -> Caller {
        match self.credential {
            Credential::Own => Caller { address: caller.address, ..Caller::local() },
            Credential::Caller => Caller { is_nobody: caller.is_nobody || caller.token.is_none(), ..caller.clone() },
        }
    }

    /// Sends a request, unless the origin counts as unreachable, and records its outcome. `deadline` limits its duration.
    ///
    /// # Errors
    /// Errors of the request; `TimedOut` after the deadline.
    pub(crate) async fn call<T>(
        &self,
        deadline: Option<Duration>,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.breaker.admit()?;
        let outcome = match deadline {
            None => request.await,
            Some(deadline) => tokio::time::timeout(deadline, request).await.unwrap_or_else(|_| {
                let message = format!("no response within {}", HumanDuration(deadline));
                Err(Error::new(Fault::TimedOut, message).in_store(&*self.name))
            }),
        };
        self.breaker.record(&outcome);
        outcome
    }

    /// Checks in the background whether an unreachable origin can be reached again, unless that was done a moment ago.
    pub(crate) fn probe(self: &Arc<Self>) {
        if self.breaker.admit().is_ok() {
            let origin = Arc::clone(self);
            tokio::spawn(async move {
                let outcome = origin.store.stat(&origin.identity(&Caller::local()), &origin.root).await;
                origin.breaker.record(&outcome);
            });
        }
    }

    /// Opens a file, a target in the cache. An open without a response for [`SLOW_OPEN`] is sent again, and the first
    /// success counts.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn open(&self, caller: &Caller, target: &Target, options: OpenOptions) -> Result<OriginFile> {
        let open = || self.open_once(caller, target, options.clone()).boxed();
        // A query may be executed by each open.
        if target.query().is_some() {
            return open().await;
        }
        match select(open(), Box::pin(tokio::time::sleep(SLOW_OPEN))).await {
            Either::Left((opened, _)) => opened,
            Either::Right(((), first)) => select_ok([first, open()]).await.map(|(opened, _)| opened),
        }
    }

    /// The metadata come with the file: a store may open lazily, and only they say whether the origin can be reached.
    async fn open_once(&self, caller: &Caller, target: &Target, options: OpenOptions) -> Result<OriginFile> {
        if target.query().is_some() && !self.store.capabilities().queries {
            let error = Error::new(Fault::Unsupported, "files of this origin have no queries");
            return Err(error.in_store(&*self.name).at(target));
        }
        let options = OpenOptions { query: target.query().cloned(), confirms: true, ..options };
        let held = options.held.clone();
        let handle = self.store.open(&self.identity(caller), &self.path(target)?, options).await?;
        if target.query().is_some()
            && let Some(file) = stream_of(&*handle, held.as_ref()).await?
        {
            return Ok(file);
        }
        match handle.metadata().await {
            Ok(metadata) => Ok(OriginFile::Open(handle, metadata)),
            Err(error) if error.fault() == Fault::Unsupported => stream_of(&*handle, held.as_ref()).await?.ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Waits for a permit for the memory of a request for adjoining ranges. It takes at most an eighth of the budget, so
    /// that other requests are not kept waiting.
    async fn run_memory_permit(&self) -> OwnedSemaphorePermit {
        self.permit(RUN_MEMORY_BYTES.min(self.budget_units as usize * BUDGET_UNIT / 8)).await
    }

    /// Waits for a permit for a number of ranges in flight, in the order of the calls; `None` for few, which do not wait.
    pub(crate) async fn ranges_permit(&self, ranges: usize) -> Option<RangesPermit> {
        let count = counted_ranges(ranges)?;
        let permit = Arc::clone(&self.vector_ranges).acquire_many_owned(count).await;
        Some(Arc::new(permit.expect("the semaphore is never closed")))
    }

    /// As [`Self::ranges_permit`], without waiting.
    ///
    /// # Errors
    /// There is no permit now.
    pub(crate) fn ranges_permit_now(&self, ranges: usize) -> Result<Option<RangesPermit>, TryAcquireError> {
        let Some(count) = counted_ranges(ranges) else { return Ok(None) };
        let permit = Arc::clone(&self.vector_ranges).try_acquire_many_owned(count)?;
        Ok(Some(Arc::new(permit)))
    }

    /// Waits for a permit for `bytes` in flight. A request larger than the budget takes all of it.
    async fn permit(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT)).unwrap_or(u32::MAX).clamp(1, self.budget_units);
        let permit = Arc::clone(&self.budget).acquire_many_owned(units).await;
        permit.expect("the semaphore is never closed")
    }
}

/// Returns the number of ranges that a permit is for; `None` for few.
fn counted_ranges(ranges: usize) -> Option<u32> {
    (ranges > FEW_RANGES).then(|| u32::try_from(ranges).unwrap_or(u32::MAX).min(MAX_VECTOR_RANGES))
}

/// Returns the content of a file that is a stream, unless it is the version that is `held`; `None` for other files.
async fn stream_of(file: &dyn ReadHandle, held: Option<&Metadata>) -> Result<Option<OriginFile>> {
    match (file.stream().await, held) {
        (Err(error), Some(held)) if error.code() == Some(NOT_MODIFIED) => {
            Ok(Some(OriginFile::Unchanged(renewed(held, error.freshness()))))
        }
        (stream, _) => Ok(stream?.map(OriginFile::Stream)),
    }
}

/// Returns the metadata of an unchanged file after a response that states `freshness`; without it, the earlier statement
/// applies from now on (RFC 9111 §4.3.4).
fn renewed(held: &Metadata, freshness: Option<&Freshness>) -> Metadata {
    let earlier = || {
        let mut earlier = held.freshness.as_deref()?.clone();
        earlier.generated_s = clock::unix_s();
        Some(earlier)
    };
    Metadata { freshness: freshness.cloned().or_else(earlier).map(Arc::new), ..held.clone() }
}

/// Starts fetching `flights` of `entry` from `source`. Returns immediately. The requests continue when their reader
/// leaves, because others may wait for them; except that a request for adjoining large ranges ends without readers. The
/// `permit` is held until the requests have ended; what is divided from a request for adjoining ranges does not count.
pub(crate) fn fetch(entry: &Arc<Entry>, source: &Arc<Source>, flights: Vec<OpenFlight>, permit: Option<RangesPermit>) {
    for (flights, permit) in requests(Limits::of(source), flights).into_iter().zip(std::iter::repeat(permit)) {
        start(Arc::clone(entry), Arc::clone(source), flights, permit);
    }
}

/// Starts fetching `flights`, which are one request, or several if others wait.
fn start(entry: Arc<Entry>, source: Arc<Source>, mut flights: Vec<OpenFlight>, permit: Option<RangesPermit>) {
    tokio::spawn(async move {
        let _permit = permit;
        while !flights.is_empty() {
            let run = run_permit(&source, &flights).await;
            if run.is_some() && !entry.has_readers() {
                flights.into_iter().for_each(|open| open.end(Outcome::Freed));
                return;
            }
            // After the wait: the file may have been opened at another origin meanwhile.
            let file = match source.file().await {
                Ok(file) => file,
                Err(error) => {
                    source.origins().primary().counters.failures.fetch_add(1, Relaxed);
                    flights.into_iter().for_each(|open| open.end(Outcome::Failed(error.clone())));
                    return;
                }
            };
            let later = match &run {
                Some(run) if run.is_contended() => flights.split_off(shared_part(&flights)),
                _ => Vec::new(),
            };
            let (entry, source) = (Arc::clone(&entry), Arc::clone(&source));
            let fetch = Fetch { file, entry, source, run, failure: Mutex::default() };
            flights = Arc::new(fetch).run(flights).await;
            flights.extend(later);
        }
    });
}

/// Limits of requests to the origins of a file.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Maximum number of small ranges.
    ranges: usize,
    /// Maximum number of bytes of adjoining large ranges; 0 if they are not joined.
    run_bytes: usize,
}

impl Limits {
    fn of(source: &Source) -> Self {
        let run_bytes = if source.has_separate_connections() { RUN_BYTES as usize } else { 0 };
        Self { ranges: source.vector_ranges(), run_bytes }
    }
}

/// Groups flights into requests, in order.
fn requests(limits: Limits, flights: Vec<OpenFlight>) -> Vec<Vec<OpenFlight>> {
    let is_small = |open: &OpenFlight| open.flight.length() <= VECTOR_RANGE_BYTES;
    let mut requests: Vec<Vec<OpenFlight>> = Vec::new();
    let mut bytes = 0;
    for open in flights {
        let length = open.flight.length();
        let fits = |last: &Vec<OpenFlight>| match last.as_slice() {
            // After a small one there are only small ones.
            [first, ..] if is_small(first) => {
                is_small(&open) && last.len() < limits.ranges && bytes + length <= VECTOR_BYTES
            }
            [.., last] => last.flight.range.end == open.flight.range.start && bytes + length <= limits.run_bytes,
            [] => false,
        };
        match requests.last_mut().filter(|last| fits(last)) {
            Some(last) => {
                bytes += length;
                last.push(open);
            }
            None => {
                bytes = length;
                requests.push(vec![open]);
            }
        }
    }
    requests
}

/// Waits for the permit of a request for adjoining large ranges; `None` for others.
async fn run_permit(source: &Source, flights: &[OpenFlight]) -> Option<RunPermit> {
    let is_run = flights.len() > 1 && flights.first().is_some_and(|open| open.flight.length() > VECTOR_RANGE_BYTES);
    if !is_run {
        return None;
    }
    let file = source.file().await.ok()?;
    Some(file.origin.runs.permit().await)
}

/// A request to an origin.
struct Fetch {
    file: Arc<OpenFile>,
    entry: Arc<Entry>,
    source: Arc<Source>,
    /// The permit of a request for adjoining large ranges.
    run: Option<RunPermit>,
    /// A failure of one of its ranges.
    failure: Mutex<Option<Error>>,
}

impl Fetch {
    /// Fetches `flights`. Returns those that are left because others wait.
    async fn run(self: Arc<Self>, mut flights: Vec<OpenFlight>) -> Vec<OpenFlight> {
        let bytes: usize = flights.iter().map(|open| open.flight.length()).sum();
        let origin = &self.file.origin;
        let permit = match self.run {
            Some(_) => origin.run_memory_permit().await,
            None => origin.permit(bytes).await,
        };
        origin.counters.requests.fetch_add(1, Relaxed);
        let (arrived, left) = match flights.pop() {
            Some(single) if flights.is_empty() => (self.read(single).await, Vec::new()),
            Some(last) => {
                flights.push(last);
                match &self.run {
                    Some(run) => self.read_run(run, flights).await,
                    None => (self.read_vector(flights).await, Vec::new()),
                }
            }
            None => return Vec::new(),
        };
        drop(permit);
        if let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Once for the request, however many ranges it had.
            origin.breaker.record(&Err::<(), _>(error));
        }
        // Its error has ended the flights.
        let _ = self.show(arrived).await;
        left
    }

    /// Makes written bytes visible, if they are certainly of the opened version.
    ///
    /// # Errors
    /// `Changed` and errors of the origin; the flights have ended with it.
    async fn show(&self, written: Vec<WrittenFlight>) -> Result<()> {
        let checked = match self.run {
            _ if written.is_empty() => return Ok(()),
            Some(_) => self.file.check_long_response().await,
            None => self.file.check().await,
        };
        match checked {
            Ok(()) => {
                self.entry.publish(written).await;
                Ok(())
            }
            Err(error) => {
                let error = self.failed(error);
                written.into_iter().for_each(|written| written.end(Outcome::Failed(error.clone())));
                Err(error)
            }
        }
    }

    async fn read(&self, open: OpenFlight) -> Vec<WrittenFlight> {
        let length = open.flight.length();
        let data = self.file.handle.read_into(open.flight.range.start, length, Vec::with_capacity(length)).await;
        match self.accept(&open.flight, data.map(Bytes::from)) {
            Ok(data) => self.entry.write(vec![(open, data)]).await,
            Err(error) => {
                open.end(Outcome::Failed(error));
                Vec::new()
            }
        }
    }

    /// Reads several flights with one request. Returns those that are written and have to be checked.
    async fn read_vector(&self, flights: Vec<OpenFlight>) -> Vec<WrittenFlight> {
        let mut rest = Rest::of(flights);
        let mut reads = self.file.handle.read_vector(rest.ranges()).ready_chunks(WRITTEN_TOGETHER);
        let mut written = Vec::new();
        while let Some(results) = reads.next().await {
            let arrived = results.into_iter().filter_map(|result| self.take(&mut rest, result)).collect();
            let arrived = self.entry.write(arrived).await;
            match self.file.is_strong() {
                true => self.entry.publish(arrived).await,
                false => written.extend(arrived),
            }
        }
        self.end_missing(rest);
        written
    }

    /// Reads the flights of a run with one request. Returns those that are written and have to be checked, and those that
    /// are left because others wait.
    async fn read_run(
        self: &Arc<Self>,
        run: &RunPermit,
        flights: Vec<OpenFlight>,
    ) -> (Vec<WrittenFlight>, Vec<OpenFlight>) {
        let mut rest = Rest::of(flights);
        let mut reads = self.file.handle.read_vector(rest.ranges());
        let (mut written, mut received, mut check) = (Vec::new(), 0, None::<JoinHandle<Result<()>>>);
        let mut is_divided = false;
        while let Some(result) = reads.next().await {
            let arrived = self.take(&mut rest, result);
            received += arrived.as_ref().map_or(0, |(_, data)| data.len() as u64);
            written.extend(self.entry.write(arrived.into_iter().collect()).await);
            // One check at a time: what arrives meanwhile is checked together.
            if check.as_ref().is_none_or(JoinHandle::is_finished) {
                if let Some(ended) = check.take()
                    && let Ok(Err(error)) = ended.await
                {
                    rest.end(&Outcome::Failed(error));
                    break;
                }
                let (fetch, written) = (Arc::clone(self), std::mem::take(&mut written));
                check = Some(tokio::spawn(async move { fetch.show(written).await }));
            }
            if !self.entry.disk().accepts_data() {
                rest.end(&Outcome::NotStored);
                break;
            }
            match run.progress(received, self.entry.has_readers(), rest.flights()) {
                Progress::Continue => {}
                Progress::GiveWay => return (written, rest.split_off(0)),
                Progress::Stop => {
                    rest.end(&Outcome::Freed);
                    break;
                }
                Progress::Split(index) => {
                    is_divided = true;
                    // They are few, so they do not count.
                    start(Arc::clone(&self.entry), Arc::clone(&self.source), rest.split_off(index), None);
                }
            }
            // The end of an undivided response leaves its connection to the next request.
            if is_divided && rest.is_empty() {
                break;
            }
        }
        self.end_missing(rest);
        (written, Vec::new())
    }

    /// Takes the flight of a result from `rest`; ends it if the result is an error.
    fn take(&self, rest: &mut Rest, (index, result): (usize, Result<Bytes>)) -> Option<(OpenFlight, Bytes)> {
        let open = rest.take(index)?;
        match self.accept(&open.flight, result) {
            Ok(data) => Some((open, data)),
            Err(error) => {
                open.end(Outcome::Failed(error));
                None
            }
        }
    }

    /// Ends flights for which there was no result.
    fn end_missing(&self, mut rest: Rest) {
        if !rest.is_empty() {
            let error = Error::new(Fault::Truncated, "the response of the origin lacks a range");
            rest.end(&Outcome::Failed(self.failed(error)));
        }
    }

    /// Checks and counts the result of a range.
    fn accept(&self, flight: &Flight, result: Result<Bytes>) -> Result<Bytes> {
        if result.is_ok() {
            self.file.origin.breaker.record(&result);
        }
        let data = result.map_err(|error| self.failed(error))?;
        if data.len() != flight.length() {
            let message = format!("the origin sent {} bytes in place of {}", data.len(), flight.length());
            return Err(self.failed(Error::new(Fault::Truncated, message)));
        }
        self.file.origin.counters.fetched_bytes.fetch_add(data.len() as u64, Relaxed);
        Ok(data)
    }

    /// Records a failure, before the flights end: their readers try again at once.
    fn failed(&self, error: Error) -> Error {
        self.source.record_failure(&self.file, &error);
        self.file.origin.counters.failures.fetch_add(1, Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        error
    }
}

/// The flights of a request that have not arrived, in order.
struct Rest(Vec<Option<OpenFlight>>);

impl Rest {
    fn of(flights: Vec<OpenFlight>) -> Self {
        Self(flights.into_iter().map(Some).collect())
    }

    /// Returns the ranges; the index of each is that of its result.
    fn ranges(&self) -> Vec<ByteRange> {
        self.flights().map(|open| range_of(&open.flight)).collect()
    }

    fn flights(&self) -> impl Iterator<Item = &OpenFlight> {
        self.0.iter().flatten()
    }

    fn is_empty(&self) -> bool {
        self.flights().next().is_none()
    }

    fn take(&mut self, index: usize) -> Option<OpenFlight> {
        self.0.get_mut(index)?.take()
    }

    /// Takes the flights from the one with this index in [`Self::flights`] on.
    fn split_off(&mut self, index: usize) -> Vec<OpenFlight> {
        let rest = self.0.iter_mut().filter(|open| open.is_some()).skip(index);
        rest.filter_map(Option::take).collect()
    }

    /// Ends all flights.
    fn end(&mut self, outcome: &Outcome) {
        self.split_off(0).into_iter().for_each(|open| open.end(outcome.clone()));
    }
}

fn range_of(flight: &Flight) -> ByteRange {
    ByteRange { offset: flight.range.start, length: flight.length() }
}
