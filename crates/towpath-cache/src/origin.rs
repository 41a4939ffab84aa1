//! Requests to an origin: how flights become requests, and how many bytes are in flight.
//!
//! Each origin has a budget of bytes in flight, so that a slow one neither fills the memory nor delays the others.
//! Small ranges that were requested together leave in one vector request, which costs one round trip; large ones in
//! requests of their own, which a client can spread over its connections.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_store::{ByteRange, Caller, Error, Fault, Metadata, OpenOptions, ReadHandle, Result, Store, StorePath};

use crate::{
    breaker::Breaker,
    entry::{Entry, OpenFlight, WrittenFlight},
    flights::{Flight, Outcome},
    rules::{Recheck, Rules},
    source::{OpenFile, Source},
};

/// Unit of the budget in bytes.
const BUDGET_UNIT: usize = 1 << 10;
/// Maximum length of a range in a vector request, in bytes, if others are requested with it. Longer ranges have
/// requests of their own: their transfer takes longer than a round trip of most paths.
const VECTOR_RANGE_BYTES: usize = 256 << 10;
/// Maximum number of bytes in a vector request.
const VECTOR_BYTES: usize = 8 << 20;
/// Maximum number of arrived ranges that are written by one job.
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
    /// When the storage is queried for the version of a file.
    pub rules: Rules,
    /// Maximum number of bytes in flight from the storage.
    pub bytes_in_flight: usize,
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
    credential: Credential,
    rules: Rules,
    budget: Arc<Semaphore>,
    budget_units: u32,
    pub(crate) breaker: Breaker,
    pub(crate) counters: OriginCounters,
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
}

impl Origin {
    /// Creates an origin without requests in flight.
    pub(crate) fn new(options: OriginOptions) -> Self {
        let OriginOptions { name, store, root, credential, rules, bytes_in_flight } = options;
        let units = u32::try_from(bytes_in_flight / BUDGET_UNIT).unwrap_or(u32::MAX);
        let budget_units = units.clamp(1, u32::MAX >> 3);
        let budget = Arc::new(Semaphore::new(budget_units as usize));
        Self {
            name,
            store,
            root,
            credential,
            rules,
            budget,
            budget_units,
            breaker: Breaker::default(),
            counters: OriginCounters::default(),
        }
    }

    /// Returns the path at the origin of a path of the cache.
    pub(crate) fn path(&self, path: &StorePath) -> Result<StorePath> {
        self.root.concat(path).map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()).at(path))
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

    /// Opens a file at a path of the origin. The metadata, or their error, come with it: a store may open lazily, and only
    /// they say whether the origin can be reached.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        path: &StorePath,
        options: OpenOptions,
    ) -> Result<(Arc<dyn ReadHandle>, Result<Metadata>)> {
        self.breaker.admit()?;
        let opened = self.store.open(&self.identity(caller), path, options).await;
        let metadata = match &opened {
            Ok(opened) => opened.metadata().await,
            Err(error) => Err(error.clone()),
        };
        self.breaker.record(&metadata);
        Ok((opened?, metadata))
    }

    /// Returns when to query the origin for the version of `path`, a path of the cache. With the credential of the
    /// caller, at each open: only the origin knows the rights.
    pub(crate) fn recheck(&self, path: &StorePath) -> Recheck {
        match self.credential {
            Credential::Own => self.rules.of(path),
            Credential::Caller => Recheck::Always,
        }
    }

    /// Waits for a permit for `bytes` in flight. A request larger than the budget takes all of it.
    async fn permit(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT)).unwrap_or(u32::MAX).clamp(1, self.budget_units);
        let permit = Arc::clone(&self.budget).acquire_many_owned(units).await;
        permit.expect("the semaphore is never closed")
    }

    /// Starts fetching `flights` of `entry` from `source`, the file at this origin. Returns immediately. The requests
    /// continue when their reader leaves, because others may wait for them.
    pub(crate) fn fetch(self: &Arc<Self>, entry: &Arc<Entry>, source: &Arc<Source>, flights: Vec<OpenFlight>) {
        for flights in self.requests(flights) {
            let fetch = Fetch {
                origin: Arc::clone(self),
                entry: Arc::clone(entry),
                source: Arc::clone(source),
                failure: Mutex::default(),
            };
            tokio::spawn(fetch.run(flights));
        }
    }

    /// Groups flights into requests, in order.
    fn requests(&self, flights: Vec<OpenFlight>) -> Vec<Vec<OpenFlight>> {
        let max_ranges = self.store.capabilities().vector_ranges.max(1);
        let mut requests: Vec<Vec<OpenFlight>> = Vec::new();
        let mut bytes = 0;
        for open in flights {
            let length = open.flight.length();
            let is_small = |open: &OpenFlight| open.flight.length() <= VECTOR_RANGE_BYTES;
            match requests.last_mut() {
                Some(last)
                    if is_small(&open)
                        && last.iter().all(is_small)
                        && last.len() < max_ranges
                        && bytes + length <= VECTOR_BYTES =>
                {
                    bytes += length;
                    last.push(open);
                }
                _ => {
                    bytes = length;
                    requests.push(vec![open]);
                }
            }
        }
        requests
    }
}

/// A request to an origin.
struct Fetch {
    origin: Arc<Origin>,
    entry: Arc<Entry>,
    source: Arc<Source>,
    /// A failure of one of its ranges.
    failure: Mutex<Option<Error>>,
}

impl Fetch {
    async fn run(self, mut flights: Vec<OpenFlight>) {
        let bytes = flights.iter().map(|open| open.flight.length()).sum();
        let permit = self.origin.permit(bytes).await;
        self.origin.counters.requests.fetch_add(1, Relaxed);
        let file = match self.source.file().await {
            Ok(file) => file,
            Err(error) => {
                let error = self.failed(error);
                return flights.into_iter().for_each(|open| open.end(Outcome::Failed(error.clone())));
            }
        };
        let arrived = match flights.pop() {
            Some(single) if flights.is_empty() => self.read(file, single).await,
            Some(last) => {
                flights.push(last);
                self.read_vector(file, flights).await
            }
            None => return,
        };
        drop(permit);
        if let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Once for the request, however many ranges it had.
            self.origin.breaker.record(&Err::<(), _>(error));
        }
        match file.check().await {
            Ok(()) => self.entry.publish(arrived).await,
            Err(error) => {
                let error = self.failed(error);
                arrived.into_iter().for_each(|written| written.end(Outcome::Failed(error.clone())));
            }
        }
    }

    async fn read(&self, file: &OpenFile, open: OpenFlight) -> Vec<WrittenFlight> {
        let length = open.flight.length();
        let data = file.handle.read_into(open.flight.range.start, length, Vec::with_capacity(length)).await;
        match self.accept(&open.flight, data.map(Bytes::from)) {
            Ok(data) => self.entry.write(vec![(open, data)]).await,
            Err(error) => {
                open.end(Outcome::Failed(error));
                Vec::new()
            }
        }
    }

    async fn read_vector(&self, file: &OpenFile, flights: Vec<OpenFlight>) -> Vec<WrittenFlight> {
        let ranges = flights.iter().map(|open| range_of(&open.flight)).collect();
        let mut open: Vec<Option<OpenFlight>> = flights.into_iter().map(Some).collect();
        let mut reads = file.handle.read_vector(ranges).ready_chunks(WRITTEN_TOGETHER);
        let mut written = Vec::new();
        while let Some(results) = reads.next().await {
            let mut arrived = Vec::with_capacity(results.len());
            for (index, result) in results {
                let Some(open) = open.get_mut(index).and_then(Option::take) else { continue };
                match self.accept(&open.flight, result) {
                    Ok(data) => arrived.push((open, data)),
                    Err(error) => open.end(Outcome::Failed(error)),
                }
            }
            let arrived = self.entry.write(arrived).await;
            if file.is_strong() {
                self.entry.publish(arrived).await;
            } else {
                written.extend(arrived);
            }
        }
        for open in open.into_iter().flatten() {
            let error = Error::new(Fault::Truncated, "the response of the origin lacks a range");
            open.end(Outcome::Failed(self.failed(error)));
        }
        written
    }

    /// Checks and counts the result of a range.
    fn accept(&self, flight: &Flight, result: Result<Bytes>) -> Result<Bytes> {
        if result.is_ok() {
            self.origin.breaker.record(&result);
        }
        let data = result.map_err(|error| self.failed(error))?;
        if data.len() != flight.length() {
            let message = format!("the origin sent {} bytes in place of {}", data.len(), flight.length());
            return Err(self.failed(Error::new(Fault::Truncated, message)));
        }
        self.origin.counters.fetched_bytes.fetch_add(data.len() as u64, Relaxed);
        Ok(data)
    }

    fn failed(&self, error: Error) -> Error {
        self.origin.counters.failures.fetch_add(1, Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        error
    }
}

fn range_of(flight: &Flight) -> ByteRange {
    ByteRange { offset: flight.range.start, length: flight.length() }
}
