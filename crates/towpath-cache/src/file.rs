//! A cached file open for reading.
//!
//! A read: the absent bytes are requested from the origin, unless they are in flight already; the reader waits for the
//! flights of its range; the bytes are leased, verified, and read from the disk. If the disk of the cache fails, the
//! read is passed to the origin.

mod announced;
mod columns;
mod sent_part;

use std::{
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering::Relaxed},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_store::{
    ByteRange, ContentStream, Error, Fault, LocalPart, Metadata, Preparation, ReadBuffer, ReadHandle, Residency,
    Result, VectorReads,
};

use self::{announced::AnnouncedReads, columns::ColumnAhead, sent_part::SentPart};
use crate::{
    accounts::Account,
    breaker::is_unreachable,
    columns::memory::DatasetMemory,
    entry::{Entry, ExtentLease, Presence, RangeState, VectorLease},
    extents::CHUNK_BYTES,
    flights::{Flight, Outcome},
    freshness::not_cached,
    origin::{Origin, RangesPermit, fetch},
    read_ahead::ReadAhead,
    source::Source,
    version::Version,
};

/// How often a read fetches bytes that were damaged or evicted before it got them; then it reads from the origin.
const ATTEMPTS: u32 = 3;
/// How often a read of verified bytes is tried on the disk; then it reads from the origin.
const DISK_READS: u32 = 2;
/// Maximum number of bytes read on a network thread, as in the local store.
const READ_NOW_BYTES: usize = 256 << 10;
/// Maximum memory of a group of ranges read from the disk for a vector, in bytes, unless one range is longer.
const VECTOR_GROUP_BYTES: usize = 2 << 20;

/// A cached file.
#[derive(Debug, Clone)]
pub(crate) struct CachedFile(Arc<OpenedFile>);

#[derive(Debug)]
struct OpenedFile {
    /// The origin of the entry, which counts what readers get.
    origin: Arc<Origin>,
    entry: Arc<Entry>,
    /// The file at an origin, pinned to the version of the entry.
    source: Arc<Source>,
    metadata: Metadata,
    /// The metadata at the open of the reader, if the file was opened before it.
    confirmed: OnceLock<Metadata>,
    account: Account,
    read_ahead: Mutex<ReadAhead>,
    columns: ColumnAhead,
    /// Records the columns that the reader reads; `None` if blocks of columns are not fetched ahead.
    memory: Option<Arc<DatasetMemory>>,
    _presence: Presence,
}

/// Where bytes can be read.
enum Location {
    /// On the disk of the cache, verified, and kept there by the lease.
    Disk(ExtentLease),
    /// Only at the origin.
    Origin,
}

impl CachedFile {
    /// Creates the handle of an open entry.
    pub(crate) fn new(
        origin: Arc<Origin>,
        entry: Arc<Entry>,
        source: Source,
        metadata: Metadata,
        account: Account,
        memory: Option<Arc<DatasetMemory>>,
    ) -> Self {
        Self::open(origin, entry, Arc::new(source), metadata, account, memory)
    }

    /// Returns a handle of the same file for another reader.
    pub(crate) fn reopened(&self, account: Account) -> Self {
        let OpenedFile { origin, entry, source, memory, .. } = &*self.0;
        let (origin, entry, source) = (Arc::clone(origin), Arc::clone(entry), Arc::clone(source));
        Self::open(origin, entry, source, self.0.metadata().clone(), account, memory.clone())
    }

    fn open(
        origin: Arc<Origin>,
        entry: Arc<Entry>,
        source: Arc<Source>,
        metadata: Metadata,
        account: Account,
        memory: Option<Arc<DatasetMemory>>,
    ) -> Self {
        let _presence = entry.enter();
        let (read_ahead, columns) = (Mutex::default(), ColumnAhead::default());
        let file = Self(Arc::new(OpenedFile {
            origin,
            entry,
            source,
            metadata,
            confirmed: OnceLock::new(),
            account,
            read_ahead,
            columns,
            memory,
            _presence,
        }));
        file.begin_columns();
        file
    }

    /// Requests what a reader of columns, or a sequential or strided reader, will need after `range`.
    fn request_ahead(&self, range: &Range<u64>, is_missed: bool) {
        if self.read_columns(std::slice::from_ref(range)) {
            return;
        }
        let mut read_ahead = self.0.read_ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = read_ahead.next(range, self.0.metadata.size, is_missed);
        drop(read_ahead);
        self.0.fetch_ahead(&ahead);
    }

    /// Begins the access of a reader of a file that was opened before it had one. `metadata` are those of its open.
    pub(crate) fn for_reader(self, metadata: Metadata) -> Self {
        self.0.account.begin();
        let _ = self.0.confirmed.set(metadata);
        self
    }

    /// Returns the entry of the file.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    /// Returns the origin of the file.
    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.0.origin
    }

    /// Returns the version of the file.
    pub(crate) fn version(&self) -> &Version {
        &self.0.entry.version
    }

    /// Stores `content`, all of the file. Returns whether all of it is present then: not if the disk of the cache fails,
    /// or if a part is in flight for another reader.
    pub(crate) async fn store(&self, content: &Bytes) -> bool {
        let (entry, whole) = (&self.0.entry, 0..content.len() as u64);
        self.0.demand(std::slice::from_ref(&whole));
        if !entry.disk().accepts_data() {
            return false;
        }
        let open = entry.start_flights(std::slice::from_ref(&whole), CHUNK_BYTES).into_iter();
        let parts = open.map(|open| {
            let part = content.slice(open.flight.range.start as usize..open.flight.range.end as usize);
            (open, part)
        });
        let written = entry.write(parts.collect()).await;
        entry.publish(written).await;
        entry.covers(&whole)
    }
}

impl OpenedFile {
    /// Returns the metadata at the open of the reader.
    fn metadata(&self) -> &Metadata {
        self.confirmed.get().unwrap_or(&self.metadata)
    }

    /// Returns the part of a range within the file.
    fn range(&self, offset: u64, length: usize) -> Range<u64> {
        let end = offset.saturating_add(length as u64).min(self.metadata.size);
        offset.min(end)..end
    }

    /// Counts the absent bytes that a reader requests. Returns whether there are some, or were before read-ahead.
    fn demand(&self, ranges: &[Range<u64>]) -> bool {
        let missing = |range: &Range<u64>| self.entry.missing_bytes(range);
        let missed: u64 = ranges.iter().map(|range| self.account.record_request(range, missing)).sum();
        self.origin.counters.missed_bytes.fetch_add(missed, Relaxed);
        missed > 0
    }

    /// Counts bytes that a reader gets through the disk of the cache. Returns whether read-ahead had fetched some.
    fn count_served(&self, range: &Range<u64>) -> bool {
        self.count(self.account.record_served(range))
    }

    fn count(&self, (served, ahead): (u64, u64)) -> bool {
        self.origin.counters.served_bytes.fetch_add(served, Relaxed);
        self.origin.counters.missed_bytes.fetch_add(ahead, Relaxed);
        ahead > 0
    }

    /// Returns the number of `ranges` for which [`Self::request`] would start flights.
    fn count_absent(&self, ranges: &[Range<u64>]) -> usize {
        match self.may_request() {
            true => self.entry.count_absent(ranges),
            false => 0,
        }
    }

    /// Whether absent bytes are requested to be stored.
    fn may_request(&self) -> bool {
        self.entry.disk().accepts_data() && !self.source.is_absent()
    }

    /// Requests the absent bytes of `ranges` from the origin, and returns the flights that this starts. Returns
    /// immediately.
    fn request(&self, ranges: &[Range<u64>]) -> Vec<Arc<Flight>> {
        self.request_with(ranges, CHUNK_BYTES, None)
    }

    /// As [`Self::request`], in parts of `part_bytes`. The `permit` is held until the flights have ended.
    fn request_with(&self, ranges: &[Range<u64>], part_bytes: u64, permit: Option<RangesPermit>) -> Vec<Arc<Flight>> {
        if !self.may_request() {
            return Vec::new();
        }
        let open = self.entry.start_flights(ranges, part_bytes);
        let flights = open.iter().map(|open| Arc::clone(&open.flight)).collect();
        if !open.is_empty() {
            fetch(&self.entry, &self.source, open, permit);
        }
        flights
    }

    /// Waits until the bytes of `range` are on the disk of the cache and verified, and returns where they are. The
    /// present bytes of the ranges that `next` returns, which will be read soon, are verified with them.
    async fn locate(&self, range: &Range<u64>, next: impl Fn() -> Vec<Range<u64>>) -> Result<Location> {
        for attempt in 0..ATTEMPTS {
            if !self.await_flights(range, attempt + 1 == ATTEMPTS).await? {
                return Ok(Location::Origin);
            }
            if let Some(lease) = self.entry.lease_verified(range) {
                return Ok(Location::Disk(lease));
            }
            let lease = self.entry.lease(range);
            let mut ranges = next();
            ranges.push(range.clone());
            match self.account.disk(self.entry.verify(&ranges)).await {
                Ok(damage) => self.record_damage(damage.bytes),
                Err(_) => return Ok(Location::Origin),
            }
            // Not only present: a unit that changed during its comparison was not compared.
            if self.entry.are_verified(std::slice::from_ref(range)) {
                return Ok(Location::Disk(lease));
            }
        }
        Ok(Location::Origin)
    }

    /// Requests the absent bytes of `range`, and waits for all of them that are in flight. Returns whether they were
    /// stored; if not, they must be read from the origin.
    async fn await_flights(&self, range: &Range<u64>, is_last: bool) -> Result<bool> {
        let flights = match self.entry.range_state(range) {
            RangeState::Verified | RangeState::Present => return Ok(true),
            _ if self.source.is_absent() => return Err(not_cached()),
            RangeState::InFlight(flights) => flights,
            RangeState::Absent => {
                // One that ends at once is no longer in flight, but its outcome counts.
                let mut flights = self.request(std::slice::from_ref(range));
                flights.extend(self.entry.flights(range));
                if flights.is_empty() && !self.entry.covers(range) {
                    return Ok(false);
                }
                flights
            }
        };
        for flight in flights {
            match self.account.origin(flight.wait()).await {
                Outcome::Stored | Outcome::Freed => {}
                // Perhaps the request of another caller, with other rights or a lost connection.
                Outcome::Failed(error) if !is_last && error.fault() != Fault::Changed => break,
                Outcome::Failed(error) => return Err(error),
                Outcome::NotStored => return Ok(false),
            }
        }
        Ok(true)
    }

    fn record_damage(&self, bytes: u64) {
        if bytes > 0 {
            self.origin.counters.damaged_bytes.fetch_add(bytes, Relaxed);
            let version = &self.entry.version;
            tracing::warn!(origin = &*version.origin, path = %version.target, bytes, "damaged bytes on the disk of the cache");
        }
    }

    /// Appends the bytes of `range`, which lies within the file, to `buffer`.
    async fn read(&self, range: &Range<u64>, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        for _ in 0..DISK_READS {
            let Location::Disk(_lease) = self.locate(range, Vec::new).await? else { break };
            let (returned, read) = self.account.disk(self.entry.read(range, buffer)).await?;
            buffer = returned;
            match read {
                Ok(()) => {
                    self.count_served(range);
                    return Ok(buffer);
                }
                Err(error) => {
                    self.entry.disk().record_unreadable(&error);
                    // The next comparison finds what cannot be read.
                    self.entry.distrust();
                }
            }
        }
        self.read_source(range, buffer).await
    }

    /// Reads from the origin without storing the bytes.
    async fn read_source(&self, range: &Range<u64>, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let length = (range.end - range.start) as usize;
        self.origin.counters.bypass_bytes.fetch_add(length as u64, Relaxed);
        self.account.record_bypass(range);
        let read = async {
            let spare = self.source.has_alternative().then(|| buffer.clone());
            match (self.read_source_once(range, buffer).await, spare) {
                // The file is opened again, perhaps at another origin.
                (Err(error), Some(spare)) if is_unreachable(&error) => self.read_source_once(range, spare).await,
                (outcome, _) => outcome,
            }
        };
        self.account.origin(read).await
    }

    async fn read_source_once(&self, range: &Range<u64>, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let file = self.source.file().await?;
        let length = (range.end - range.start) as usize;
        let read = async {
            let buffer = file.handle.read_into(range.start, length, buffer).await?;
            file.check().await.map(|()| buffer)
        };
        let outcome = read.await;
        if let Err(error) = &outcome {
            self.source.record_failure(&file, error);
        }
        outcome
    }

    /// Reads the `group` of `ranges`: together if all are at hand, else one after the other.
    async fn read_group(&self, ranges: &[ByteRange], group: Range<usize>) -> Vec<(usize, Result<Bytes>)> {
        let wanted = ranges.get(group.clone()).unwrap_or_default();
        if let Some(results) = self.read_together(wanted).await {
            return group.zip(results).collect();
        }
        let mut results = Vec::with_capacity(group.len());
        for (index, range) in group.zip(wanted) {
            results.push((index, self.read_one(range).await));
        }
        results
    }

    /// Reads ranges with one job of the disk pool; `None` if one of them is not on the disk, or passes the end.
    async fn read_together(&self, wanted: &[ByteRange]) -> Option<Vec<Result<Bytes>>> {
        if wanted.iter().any(|range| range.end() > self.metadata.size) {
            return None;
        }
        let ranges: Arc<[_]> = wanted.iter().map(|range| self.range(range.offset, range.length)).collect();
        let _lease = match self.entry.lease_all_verified(&ranges) {
            Some(lease) => lease,
            None => self.locate_all(&ranges).await?,
        };
        let all = self.account.disk(self.entry.read_all(&ranges)).await.ok()??;
        self.count(self.account.record_vector(ranges.iter().cloned()));
        let mut rest = all;
        Some(wanted.iter().map(|range| Ok(rest.split_to(range.length))).collect())
    }

    /// Waits until the bytes of all `ranges` are on the disk of the cache and verified; `None` if one of them cannot be.
    async fn locate_all(&self, ranges: &Arc<[Range<u64>]>) -> Option<VectorLease> {
        let mut leases = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            let next = || ranges.get(index + 1..).unwrap_or_default().to_vec();
            let Ok(Location::Disk(lease)) = self.locate(range, next).await else { return None };
            leases.push(lease);
        }
        // The first ones may have been verified long ago, if others had to be fetched.
        self.entry.lease_all_verified(ranges)
    }

    /// Reads one range of a vector.
    async fn read_one(&self, range: &ByteRange) -> Result<Bytes> {
        if range.end() > self.metadata.size {
            return Err(past_the_end());
        }
        let whole = self.range(range.offset, range.length);
        let mut buffer = vec![0; range.length];
        match self.entry.read_now(&mut [ReadBuffer { offset: range.offset, buffer: &mut buffer }]) {
            Some(()) => {
                self.count_served(&whole);
                Ok(buffer.into())
            }
            None => self.read(&whole, Vec::with_capacity(range.length)).await.map(Bytes::from),
        }
    }
}

#[async_trait]
impl ReadHandle for CachedFile {
    async fn metadata(&self) -> Result<Metadata> {
        let metadata = self.0.metadata();
        let residency = match metadata.residency {
            Residency::Offline => Residency::Offline,
            _ => Residency::of_cached(self.0.entry.present_bytes(), metadata.size),
        };
        Ok(Metadata { residency, ..metadata.clone() })
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let length = self.0.range(offset, length);
        let length = (length.end - length.start) as usize;
        self.read_into(offset, length, Vec::with_capacity(length)).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        if let Some(outcome) = self.read_now(offset, length, &mut buffer) {
            return outcome.map(|_| buffer);
        }
        let range = self.0.range(offset, length);
        if range.is_empty() {
            return Ok(buffer);
        }
        let is_missed = self.0.demand(std::slice::from_ref(&range));
        self.0.request(std::slice::from_ref(&range));
        self.request_ahead(&range, is_missed);
        self.0.read(&range, buffer).await
    }

    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        let range = self.0.range(offset, length);
        let length = (range.end - range.start) as usize;
        if length == 0 {
            return Some(Ok(0));
        }
        if length > READ_NOW_BYTES {
            return None;
        }
        let before = buffer.len();
        buffer.resize(before + length, 0);
        let place = ReadBuffer { offset: range.start, buffer: buffer.get_mut(before..)? };
        if self.0.entry.read_now(&mut [place]).is_none() {
            buffer.truncate(before);
            return None;
        }
        let is_missed = self.0.count_served(&range);
        self.request_ahead(&range, is_missed);
        Some(Ok(length))
    }

    fn read_vector_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        let bytes: usize = buffers.iter().map(|range| range.buffer.len()).sum();
        if bytes > READ_NOW_BYTES {
            return None;
        }
        if buffers.iter().any(|range| range.end() > self.0.metadata.size) {
            return Some(Err(past_the_end()));
        }
        self.0.entry.read_now(buffers)?;
        let ranges = || buffers.iter().map(|range| self.0.range(range.offset, range.buffer.len()));
        if self.0.memory.is_some() {
            self.read_columns(&ranges().collect::<Vec<_>>());
        }
        self.0.count(self.0.account.record_vector(ranges()));
        Some(Ok(()))
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let inside = ranges.iter().filter(|range| range.end() <= self.0.metadata.size);
        let wanted: Vec<_> = inside.map(|range| self.0.range(range.offset, range.length)).collect();
        if !self.0.entry.are_verified(&wanted) {
            self.0.demand(&wanted);
            self.0.request(&wanted);
        }
        self.read_columns(&wanted);
        let groups = groups(&ranges);
        let ranges = Arc::new(ranges);
        let results = stream::iter(groups).then(move |group| {
            let ranges = Arc::clone(&ranges);
            async move { stream::iter(self.0.read_group(&ranges, group).await) }
        });
        results.flatten().boxed()
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        Ok(None)
    }

    fn prepare(&self, ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        let mut whole: Vec<_> = ranges.iter().map(|range| self.0.range(range.offset, range.length)).collect();
        whole.retain(|range| !range.is_empty());
        if self.0.entry.are_verified_now(&whole) {
            return None;
        }
        let is_missed = self.0.demand(&whole);
        let announced = AnnouncedReads::new(Arc::clone(&self.0), whole);
        announced.request(0);
        match announced.ranges() {
            [single] => self.request_ahead(single, is_missed),
            ranges => _ = self.read_columns(ranges),
        }
        Some(Arc::new(announced))
    }

    fn local_part(&self, offset: u64, length: u64) -> Option<LocalPart> {
        let range = self.0.range(offset, usize::try_from(length).ok()?);
        let file = self.0.entry.system_file()?;
        let lease = self.0.entry.lease_verified(&range)?;
        self.request_ahead(&range, self.0.account.is_ahead(&range));
        Some(LocalPart::leased(file, Arc::new(SentPart::new(Arc::clone(&self.0), lease, range))))
    }

    fn check_version(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn past_the_end() -> Error {
    Error::new(Fault::InvalidArgument, "the range passes the end of the file")
}

/// Divides the ranges of a vector into groups of bounded memory, in order.
fn groups(ranges: &[ByteRange]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (index, range) in ranges.iter().enumerate() {
        if index > start && bytes.saturating_add(range.length) > VECTOR_GROUP_BYTES {
            groups.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes = bytes.saturating_add(range.length);
    }
    if start < ranges.len() {
        groups.push(start..ranges.len());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_read_in_groups_of_bounded_memory() {
        let range = |length| ByteRange { offset: 0, length };
        assert!(groups(&[]).is_empty());
        assert_eq!(groups(&[range(VECTOR_GROUP_BYTES * 2), range(1), range(VECTOR_GROUP_BYTES)]), [0..1, 1..2, 2..3]);
        assert_eq!(groups(&[range(10), range(0), range(10)]), vec![0_usize..3]);
    }
}
