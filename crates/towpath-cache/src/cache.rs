//! The directory of a cache: its entries, and the space that they take.
//!
//! A start reads one file. [`Cache::maintain`] then walks over the entries in the background, removes leftovers, and
//! evicts when the disk or the cache is too full.

pub(crate) mod administration;

use std::{
    collections::{HashMap, HashSet},
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use clru::CLruCache;
use tokio::sync::{Notify, Semaphore};
use towpath_store::{
    Result, Space,
    sys::{
        random,
        volume::{SystemVolume, Volume},
    },
};

use crate::{
    accounts::{AccessObserver, Accounts},
    columns::memory::DatasetMemory,
    disk::{CacheDisk, TRASH, absent_if_missing},
    entry::{Entry, disk_error, now_s},
    index::{EntryName, MAX_HEADER_BYTES, decode_header},
    inventory::{Inventory, Victim},
    known_versions::KnownVersions,
    opened_ahead,
    origin::Origin,
    origins::{Origins, TreeOptions},
    pins::Pins,
    quotas::{Quota, QuotaStatistics},
    results::ResultMemory,
    store::CacheStore,
    version::{Version, entry_name, file_name},
};

/// How often the space and the memory of open files are checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often changed columns of datasets are written to the disk.
const COLUMNS_INTERVAL: Duration = Duration::from_secs(10);
/// Number of victims in a row that could not be evicted, because they were in use, after which eviction pauses until
/// the next check.
pub(crate) const MAX_REFUSALS: u32 = 100;
/// Number of directories of entries.
const DIRECTORIES: u32 = 256;

/// Settings of a cache.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Maximum number of concurrent calls that wait for the disk.
    pub disk_jobs: usize,
    /// Maximum number of files that are kept open without a reader, those opened last.
    pub idle_files: NonZeroUsize,
    /// Maximum memory of the lists of present bytes of these files, approximately, in bytes.
    pub idle_memory_bytes: u64,
    /// Maximum space of the entries in bytes; `None` if only the disk limits it.
    pub max_bytes: Option<u64>,
    /// Share of the disk in use, by the cache and by others, at which eviction begins.
    pub high_watermark: f64,
    /// Share of the disk in use at which eviction ends; also of `max_bytes`, relative to `high_watermark`.
    pub low_watermark: f64,
    /// Limits of the space below single paths.
    pub quotas: Vec<Quota>,
    /// Whether the next blocks of the columns that a reader of a ROOT file reads are fetched ahead.
    pub columns: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            disk_jobs: 64,
            idle_files: const { NonZeroUsize::new(128).unwrap() },
            idle_memory_bytes: 128 << 20,
            max_bytes: None,
            high_watermark: 0.95,
            low_watermark: 0.90,
            quotas: Vec::new(),
            columns: false,
        }
    }
}

impl CacheOptions {
    /// Returns the number of bytes to free if the entries take `bytes`, and the disk has this space; 0 below the high
    /// watermark.
    pub(crate) fn excess(&self, bytes: u64, disk: Space) -> u64 {
        let used = disk.total.saturating_sub(disk.free);
        let of_disk = match used > share(disk.total, self.high_watermark) {
            true => used.saturating_sub(share(disk.total, self.low_watermark)),
            false => 0,
        };
        let of_limit = self.max_bytes.map_or(0, |limit| self.above(limit, bytes));
        of_disk.max(of_limit).min(bytes)
    }

    /// Returns the number of bytes to free if entries take `bytes`, and may take `limit`.
    fn above(&self, limit: u64, bytes: u64) -> u64 {
        match bytes > limit {
            true => bytes.saturating_sub(share(limit, self.low_watermark / self.high_watermark.max(0.01))),
            false => 0,
        }
    }
}

fn share(total: u64, share: f64) -> u64 {
    (total as f64 * share.clamp(0.0, 1.0)) as u64
}

/// A cache directory, which several origins may share.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Arc<CacheDisk>,
    options: CacheOptions,
    inventory: Arc<Inventory>,
    pins: Pins,
    names: KnownVersions,
    accounts: Arc<Accounts>,
    /// The columns that readers of datasets read, unless it is not recorded.
    columns: Option<Arc<DatasetMemory>>,
    /// Permits for files that are open without a reader.
    ahead: Arc<Semaphore>,
    results: ResultMemory,
    entries: Mutex<Entries>,
    /// Notified when an entry has been removed.
    removed: Notify,
    /// The entries opened last: kept open, so that they need not be verified again at each open.
    recent: Mutex<CLruCache<EntryName, Arc<Entry>>>,
    /// Locked while the entries are listed for an operator.
    listing: tokio::sync::Mutex<()>,
    /// When this cache was opened, in seconds since the Unix epoch.
    started_s: u32,
}

/// The entries with open files.
#[derive(Debug, Default)]
struct Entries {
    open: HashMap<EntryName, Weak<Entry>>,
    /// Those whose files are being removed. They cannot be opened meanwhile.
    being_removed: HashSet<EntryName>,
}

/// State of a cache directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Number of entries found so far.
    pub entries: u64,
    /// Space of these entries on the disk in bytes, approximately.
    pub bytes: u64,
    /// Number of failed calls on the disk since the start.
    pub disk_failures: u64,
}

impl Cache {
    /// Opens the cache in a directory, which is created if it is missing. Reads one file, however many entries there
    /// are.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn open(directory: &Path, options: CacheOptions) -> Result<Self> {
        let volume = SystemVolume::open(directory)
            .map_err(|error| disk_error(&format!("opening the cache {}", directory.display()), &error))?;
        Self::on(Arc::new(volume), options)
    }

    /// Opens the cache on a volume.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn on(volume: Arc<dyn Volume>, options: CacheOptions) -> Result<Self> {
        let disk = CacheDisk::open(volume, options.disk_jobs);
        let disk = Arc::new(disk.map_err(|error| disk_error("opening the cache", &error))?);
        let (pins, accounts) = (Pins::read(&disk)?, Arc::default());
        let columns = options.columns.then(|| Arc::new(DatasetMemory::read(&disk)));
        Ok(Self(Arc::new(Inner {
            disk,
            inventory: Arc::new(Inventory::new(options.quotas.clone())),
            pins,
            names: KnownVersions::default(),
            accounts,
            columns,
            ahead: Arc::new(Semaphore::new(opened_ahead::MAX_FILES)),
            results: ResultMemory::default(),
            entries: Mutex::default(),
            removed: Notify::new(),
            recent: Mutex::new(CLruCache::new(options.idle_files)),
            listing: tokio::sync::Mutex::default(),
            options,
            started_s: now_s(),
        })))
    }

    /// Returns origins with the same tree, in order of preference, as seen through this cache.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no origin.
    pub fn around(&self, tree: TreeOptions) -> Result<CacheStore> {
        let TreeOptions { origins, rules, deadline } = tree;
        let origins = Origins::new(origins.into_iter().map(Origin::new).collect(), deadline)?;
        Ok(CacheStore::new(self.clone(), origins, rules))
    }

    /// Returns the state of the directory.
    pub fn statistics(&self) -> CacheStatistics {
        let Inner { disk, inventory, .. } = &*self.0;
        CacheStatistics { entries: inventory.len() as u64, bytes: inventory.bytes(), disk_failures: disk.failures() }
    }

    /// Returns the state of the quotas, in the order of the options.
    pub fn quotas(&self) -> Vec<QuotaStatistics> {
        self.0.inventory.quotas()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `observer` for each access when its file is closed. Only the first observer is called.
    pub fn observe_accesses(&self, observer: AccessObserver) {
        self.0.accounts.observe(observer);
    }

    /// Returns the memory for content that is being collected.
    pub(crate) fn result_memory(&self) -> &ResultMemory {
        &self.0.results
    }

    /// Returns the columns that readers of datasets read; `None` if blocks of columns are not fetched ahead.
    pub(crate) fn columns(&self) -> Option<Arc<DatasetMemory>> {
        self.0.columns.clone()
    }

    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.0.accounts
    }

    /// Forgets that a version is the current one of its path: the next open queries the origin.
    ///
    /// # Errors
    /// `Cancelled` if the process ends.
    pub(crate) async fn forget_name(&self, version: &Version) -> Result<()> {
        let (cache, version) = (self.clone(), version.clone());
        let forget = move || {
            cache.0.names.forget_version(&cache.0.disk, &version);
            Ok(())
        };
        self.0.disk.pool.run(forget).await
    }

    /// Returns the bytes of a version in the cache: exact for an open entry, else the space that it takes, at most its
    /// size. Does not wait for the disk.
    pub(crate) fn present_bytes(&self, version: &Version) -> u64 {
        let name = version.name();
        match self.entries().open.get(&name).and_then(Weak::upgrade) {
            Some(entry) => entry.present_bytes(),
            None => self.0.inventory.bytes_of(&name).min(version.size),
        }
    }

    pub(crate) fn disk(&self) -> &Arc<CacheDisk> {
        &self.0.disk
    }

    /// Returns the permits for files that are open without a reader.
    pub(crate) fn ahead_permits(&self) -> &Arc<Semaphore> {
        &self.0.ahead
    }

    /// Returns the known versions of paths.
    pub(crate) fn names(&self) -> &KnownVersions {
        &self.0.names
    }

    /// Returns the entry of a version for a reader, open.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) async fn entry(&self, version: Version) -> Result<Arc<Entry>> {
        let entry = self.find_entry(version).await;
        entry.open(true).await?;
        self.count_use(&entry);
        Ok(entry)
    }

    /// Counts a use by a reader of an entry that was opened without one.
    pub(crate) async fn record_use(&self, entry: &Arc<Entry>) {
        if let Err(error) = entry.touch().await {
            self.disk().record_failure(&error);
        }
        self.count_use(entry);
    }

    fn count_use(&self, entry: &Arc<Entry>) {
        entry.slot.record_open();
        self.keep_open(entry);
    }

    /// Returns the entry of a version without a reader, open. It does not count as used.
    pub(crate) async fn entry_unused(&self, version: Version) -> Result<Arc<Entry>> {
        let entry = self.find_entry(version).await;
        entry.open(false).await?;
        Ok(entry)
    }

    /// Returns the entry of a version, once its files are not being removed.
    async fn find_entry(&self, version: Version) -> Arc<Entry> {
        let name = version.name();
        loop {
            let mut removed = std::pin::pin!(self.0.removed.notified());
            removed.as_mut().enable();
            {
                let mut entries = self.entries();
                if let Some(entry) = entries.open.get(&name).and_then(Weak::upgrade) {
                    return entry;
                }
                if !entries.being_removed.contains(&name) {
                    if entries.open.len() == entries.open.capacity() {
                        entries.open.retain(|_, entry| entry.strong_count() > 0);
                    }
                    let entry = Arc::new(Entry::new(version, name, &self.0.disk, &self.0.inventory));
                    self.apply_pins(&entry);
                    entries.open.insert(name, Arc::downgrade(&entry));
                    return entry;
                }
            }
            removed.await;
        }
    }

    fn recent(&self) -> MutexGuard<'_, CLruCache<EntryName, Arc<Entry>>> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an entry open for a while after its last reader has left.
    fn keep_open(&self, entry: &Arc<Entry>) {
        let name = &entry.slot.name;
        let mut recent = self.recent();
        let closed = if recent.is_full() && !recent.contains(name) { recent.pop_back() } else { None };
        recent.put(*name, Arc::clone(entry));
        drop(recent);
        // Closed without the lock.
        drop(closed);
    }

    /// No longer keeps an entry open.
    fn let_close(&self, name: &EntryName) {
        let closed = self.recent().pop(name);
        drop(closed);
    }

    /// Closes files without a reader that do not fit into [`CacheOptions::idle_memory_bytes`] beside those opened later.
    pub async fn close_excess(&self) {
        let cache = self.clone();
        let close = move || {
            // Not kept open meanwhile: an open entry is not removed.
            let recent: Vec<_> = cache.recent().iter().map(|(_, entry)| Arc::downgrade(entry)).collect();
            let mut rest = cache.0.options.idle_memory_bytes;
            let entries = recent.into_iter().filter_map(|entry| entry.upgrade());
            for entry in entries.filter(|entry| !entry.has_readers()) {
                match rest.checked_sub(entry.memory_bytes()) {
                    Some(less) => rest = less,
                    None => cache.let_close(&entry.slot.name),
                }
            }
            Ok(())
        };
        // It fails only if the process ends, which closes them too.
        let _ = self.0.disk.pool.run(close).await;
    }

    /// Walks over the entries, and keeps the space within its limits meanwhile and afterwards. Never returns.
    pub async fn maintain(&self) {
        let walk = async {
            match self.walk().await {
                Ok(0) => {}
                Ok(failures) => tracing::warn!(failures, "entries of the cache could not be read"),
                Err(error) => tracing::warn!(%error, "cannot list the cache: entries are found when they are used"),
            }
        };
        let evict = async {
            let mut tick = tokio::time::interval(CHECK_INTERVAL);
            loop {
                tick.tick().await;
                self.close_excess().await;
                if let Err(error) = self.evict_excess().await {
                    tracing::warn!(%error, "cannot free space of the cache");
                }
            }
        };
        let save = async {
            let mut tick = tokio::time::interval(COLUMNS_INTERVAL);
            loop {
                tick.tick().await;
                self.save_columns().await;
            }
        };
        futures::join!(walk, evict, save);
    }

    /// Writes the columns of datasets to the disk, if they have changed.
    async fn save_columns(&self) {
        let Some(columns) = self.columns() else { return };
        let disk = Arc::clone(&self.0.disk);
        if let Err(error) = self.0.disk.pool.run(move || columns.write(&disk)).await {
            tracing::warn!(%error, "the columns of datasets are not kept");
        }
    }

    /// Adds all entries in the directory to the inventory, and removes leftovers: files that an interrupted removal
    /// left, data without an index, and an index without data. Other files are left alone. Returns the number of entries
    /// that could not be read.
    ///
    /// # Errors
    /// Errors of the disk while listing directories.
    pub async fn walk(&self) -> Result<u64> {
        let cache = self.clone();
        self.0.disk.pool.run(move || cache.empty_trash().map_err(|error| listing_error(&error))).await?;
        let mut failures = 0;
        for directory in 0..DIRECTORIES {
            let cache = self.clone();
            let directory = PathBuf::from(format!("entries/{directory:02x}"));
            let job = move || cache.walk_directory(&directory).map_err(|error| listing_error(&error));
            failures += self.0.disk.pool.run(job).await?;
        }
        Ok(failures)
    }

    /// Removes what an earlier process left in the trash.
    fn empty_trash(&self) -> io::Result<()> {
        let disk = &self.0.disk;
        for file in entries_of(&*disk.volume, Path::new(TRASH))? {
            let file = Path::new(TRASH).join(file);
            // A younger one is being written or removed by this process.
            if disk.volume.usage(&file).is_ok_and(|usage| usage.changed_s < i64::from(self.0.started_s)) {
                remove_file(disk, &file);
            }
        }
        Ok(())
    }

    fn walk_directory(&self, directory: &Path) -> io::Result<u64> {
        let mut failures = 0;
        for file in entries_of(&*self.0.disk.volume, directory)? {
            let path = directory.join(file);
            let is_file = |extension| path.extension().is_some_and(|found| found == extension);
            let Some(name) = entry_name(&path).filter(|_| is_file("data") || is_file("index")) else { continue };
            if let Err(error) = self.add_to_inventory(&name) {
                tracing::debug!(%error, path = %path.display(), "cannot read an entry of the cache");
                failures += 1;
            }
        }
        Ok(failures)
    }

    /// Adds an entry to the inventory, or removes it if it is not complete.
    fn add_to_inventory(&self, name: &EntryName) -> io::Result<()> {
        if self.0.inventory.bytes_of(name) > 0 {
            return Ok(());
        }
        let version = absent_if_missing(self.read_version(name))?;
        let data = absent_if_missing(self.0.disk.volume.usage(&file_name(name, "data")).map(Some))?;
        let (Some(version), Some(data)) = (version, data) else {
            // Unless it is being created just now.
            return self.remove_closed(name).map(drop);
        };
        let index = self.0.disk.volume.usage(&file_name(name, "index"))?;
        let slot = self.0.inventory.slot_of(&version, name, u32::try_from(index.changed_s).unwrap_or(0));
        slot.set_pinned(self.0.pins.contain(&version.origin, &version.target));
        if slot.bytes() == 0 {
            self.0.inventory.set_bytes(&slot, data.allocated_bytes + index.allocated_bytes);
        }
        Ok(())
    }

    /// Reads the version of an entry; `None` if its index has no intact header of this cache.
    fn read_version(&self, name: &EntryName) -> io::Result<Option<Version>> {
        let index = self.0.disk.volume.open(&file_name(name, "index"))?;
        let mut bytes = Vec::new();
        index.read_at(0, MAX_HEADER_BYTES, &mut bytes)?;
        let header =
            decode_header(&bytes).filter(|(cache, version, _)| *cache == self.0.disk.id && version.name() == *name);
        Ok(header.map(|(_, version, _)| version))
    }

    /// Removes the files of an entry, unless it is open. Returns whether they were removed.
    fn remove_closed(&self, name: &EntryName) -> io::Result<bool> {
        {
            let mut entries = self.entries();
            let is_open = entries.open.get(name).is_some_and(|entry| entry.strong_count() > 0);
            if is_open || !entries.being_removed.insert(*name) {
                return Ok(false);
            }
        }
        let outcome = self.remove_files(name);
        if outcome.is_ok() {
            self.0.inventory.remove(name);
        }
        self.entries().being_removed.remove(name);
        self.0.removed.notify_waiters();
        outcome.map(|()| true)
    }

    fn remove_files(&self, name: &EntryName) -> io::Result<()> {
        let disk = &self.0.disk;
        if let Ok(Some(version)) = self.read_version(name) {
            self.0.names.forget_version(disk, &version);
        }
        // Without its index nothing of the data counts.
        for extension in ["index", "data"] {
            absent_if_missing(disk.volume.remove(&file_name(name, extension)).map(Some))?;
        }
        Ok(())
    }

    /// Returns the space of the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) async fn space(&self) -> Result<Space> {
        let disk = Arc::clone(&self.0.disk);
        let query = move || disk.volume.space().map_err(|error| disk_error("querying the space of the cache", &error));
        self.0.disk.pool.run(query).await
    }

    /// Frees space if a quota, the disk or the cache is above its high watermark, until it is below the low one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn evict_excess(&self) -> Result<()> {
        for (number, QuotaStatistics { quota, bytes, .. }) in self.quotas().into_iter().enumerate() {
            let excess = self.0.options.above(quota.max_bytes, bytes);
            if excess > 0 {
                let freed = self.free(excess, Some(number)).await?;
                tracing::info!(path = %quota.path, excess, freed, "evicted from the cache, above a quota");
            }
        }
        let excess = self.0.options.excess(self.0.inventory.bytes(), self.space().await?);
        if excess > 0 {
            let freed = self.free(excess, None).await?;
            tracing::info!(excess, freed, "evicted from the cache");
        }
        Ok(())
    }

    /// Frees `bytes` of all entries or of those of a quota, the least valuable first. Returns how many were freed: fewer
    /// if the rest is in use or pinned.
    async fn free(&self, bytes: u64, quota: Option<usize>) -> Result<u64> {
        let (mut freed, mut refusals) = (0, 0);
        while freed < bytes && refusals < MAX_REFUSALS {
            let Some(victim) = self.0.inventory.victim(now_s(), quota, random::number) else { break };
            match self.evict(&victim).await {
                Ok(Some(more @ 1..)) => (freed, refusals) = (freed + more, 0),
                Ok(_) => refusals += 1,
                Err(error) => {
                    // Others are to be chosen next.
                    victim.slot.touch(&(0..u64::MAX), now_s());
                    tracing::warn!(%error, "cannot evict an entry of the cache");
                    refusals += 1;
                }
            }
        }
        Ok(freed)
    }

    /// Evicts a segment, or the whole of a closed entry with one segment. If the segment is empty, evicts the next one
    /// of the entry that is not. Returns the freed bytes, or `None` if it is in use.
    async fn evict(&self, victim: &Victim) -> Result<Option<u64>> {
        let slot = &victim.slot;
        let name = slot.name;
        self.let_close(&name);
        let open = self.entries().open.get(&name).and_then(Weak::upgrade);
        let entry = match open {
            Some(entry) => {
                entry.open(false).await?;
                entry
            }
            None if slot.segments() == 1 => return self.remove_entry(&name).await,
            None => {
                let cache = self.clone();
                let read = move || {
                    absent_if_missing(cache.read_version(&name)).map_err(|error| disk_error("reading an index", &error))
                };
                match self.0.disk.pool.run(read).await? {
                    Some(version) => self.entry_unused(version).await?,
                    None => return self.remove_entry(&name).await,
                }
            }
        };
        let mut freed = None;
        for segment in victim.segments() {
            freed = entry.free(&slot.range(segment)).await?;
            // It is empty or in use now: others are to be chosen next.
            slot.touch(&slot.range(segment), now_s());
            if freed != Some(0) {
                break;
            }
        }
        let is_empty = entry.present_bytes() == 0;
        drop(entry);
        if is_empty {
            self.remove_entry(&name).await?;
        }
        Ok(freed)
    }

    /// Removes a closed entry. Returns the freed bytes, or `None` if it is open.
    async fn remove_entry(&self, name: &EntryName) -> Result<Option<u64>> {
        self.let_close(name);
        let (cache, name) = (self.clone(), *name);
        let bytes = self.0.inventory.bytes_of(&name);
        let job = move || cache.remove_closed(&name).map_err(|error| disk_error("removing an entry", &error));
        Ok(self.0.disk.pool.run(job).await?.then_some(bytes))
    }
}

/// Returns the names in a directory; none if it does not exist.
fn entries_of(volume: &dyn Volume, directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let entries = absent_if_missing(volume.entries(directory).map(Some))?.unwrap_or_default();
    Ok(entries.into_iter().filter(|entry| !entry.is_directory).map(|entry| entry.name).collect())
}

fn listing_error(error: &io::Error) -> towpath_store::Error {
    disk_error("listing the cache", error)
}

/// Removes a file; a failure is only reported, because the next walk removes it.
fn remove_file(disk: &CacheDisk, name: &Path) {
    if let Err(error) = absent_if_missing(disk.volume.remove(name).map(Some)) {
        disk.record_failure(&disk_error("removing a file of the cache", &error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_goes_from_the_high_to_the_low_watermark() {
        let options =
            CacheOptions { max_bytes: Some(1000), high_watermark: 0.8, low_watermark: 0.6, ..Default::default() };
        let space = |used: u64| Space { total: 10_000, free: 10_000 - used };
        assert_eq!(options.excess(900, space(8000)), 0);
        assert_eq!(options.excess(900, space(8001)), 900, "no more than there is");
        assert!((4250..=4251).contains(&options.excess(5000, space(8001))));
        assert_eq!(options.excess(1000, space(0)), 0);
        assert!((251..=252).contains(&options.excess(1001, space(0))));
        assert_eq!(CacheOptions { max_bytes: None, ..options }.excess(5000, space(8001)), 2001);
    }
}
