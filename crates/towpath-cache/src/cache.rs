//! The directory of a cache: its entries, and the space that they take.
//!
//! A start reads one file. [`Cache::maintain`] then walks over the entries in the background, removes leftovers, and
//! evicts when the disk or the cache is too full.

pub(crate) mod administration;

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use towpath_store::{
    Result, Space,
    sys::{
        random,
        volume::{SystemVolume, Volume},
    },
};

use crate::{
    accounts::Accounts,
    disk::CacheDisk,
    entry::{Entry, disk_error, now_s},
    index::{EntryName, MAX_HEADER_BYTES, decode_header},
    inventory::{Inventory, Victim},
    origin::{Origin, OriginOptions},
    pins::Pins,
    store::CacheStore,
    version::{Version, entry_name, file_name},
};

/// How often the space is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of victims in a row that could not be evicted, because they were in use, after which eviction pauses until
/// the next check.
const MAX_REFUSALS: u32 = 100;
/// Name of the directory of files to be removed.
const TRASH: &str = "trash";
/// Number of directories of entries.
const DIRECTORIES: u32 = 256;

/// Settings of a cache.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Maximum number of concurrent calls that wait for the disk.
    pub disk_jobs: usize,
    /// Maximum number of files that are kept open without a reader.
    pub idle_files: usize,
    /// Maximum space of the entries in bytes; `None` if only the disk limits it.
    pub max_bytes: Option<u64>,
    /// Share of the disk in use, by the cache and by others, at which eviction begins.
    pub high_watermark: f64,
    /// Share of the disk in use at which eviction ends; also of `max_bytes`, relative to `high_watermark`.
    pub low_watermark: f64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { disk_jobs: 64, idle_files: 128, max_bytes: None, high_watermark: 0.95, low_watermark: 0.90 }
    }
}

impl CacheOptions {
    /// Returns the number of bytes to free if the entries take `bytes`, and the disk has this space; 0 below the high
    /// watermark.
    fn excess(&self, bytes: u64, disk: Space) -> u64 {
        let share = |total: u64, share: f64| (total as f64 * share.clamp(0.0, 1.0)) as u64;
        let used = disk.total.saturating_sub(disk.free);
        let of_disk = match used > share(disk.total, self.high_watermark) {
            true => used.saturating_sub(share(disk.total, self.low_watermark)),
            false => 0,
        };
        let of_limit = match self.max_bytes {
            Some(limit) if bytes > limit => {
                bytes.saturating_sub(share(limit, self.low_watermark / self.high_watermark.max(0.01)))
            }
            _ => 0,
        };
        of_disk.max(of_limit).min(bytes)
    }
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
    accounts: Arc<Accounts>,
    /// The entries that are open.
    entries: Mutex<HashMap<EntryName, Weak<Entry>>>,
    /// The entries opened last, in order: kept open, so that they need not be verified again at each open.
    recent: Mutex<VecDeque<Arc<Entry>>>,
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
        let (pins, inventory, accounts) = (Pins::read(&disk)?, Arc::default(), Arc::default());
        let (entries, recent) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { disk, options, inventory, pins, accounts, entries, recent })))
    }

    /// Returns an origin as seen through this cache.
    pub fn around(&self, origin: OriginOptions) -> CacheStore {
        CacheStore::new(self.clone(), Origin::new(origin))
    }

    /// Returns the state of the directory.
    pub fn statistics(&self) -> CacheStatistics {
        let Inner { disk, inventory, .. } = &*self.0;
        CacheStatistics { entries: inventory.len() as u64, bytes: inventory.bytes(), disk_failures: disk.failures() }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<EntryName, Weak<Entry>>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.0.accounts
    }

    /// Returns the bytes of a version in the cache: exact for an open entry, else the space that it takes, at most its
    /// size. Does not wait for the disk.
    pub(crate) fn present_bytes(&self, version: &Version) -> u64 {
        let name = version.name();
        match self.entries().get(&name).and_then(Weak::upgrade) {
            Some(entry) => entry.present_bytes(),
            None => self.0.inventory.bytes_of(&name).min(version.size),
        }
    }

    pub(crate) fn disk(&self) -> &CacheDisk {
        &self.0.disk
    }

    /// Returns the entry of a version, open.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) async fn entry(&self, version: Version) -> Result<Arc<Entry>> {
        let name = version.name();
        let entry = {
            let mut entries = self.entries();
            match entries.get(&name).and_then(Weak::upgrade) {
                Some(entry) => entry,
                None => {
                    if entries.len() == entries.capacity() {
                        entries.retain(|_, entry| entry.strong_count() > 0);
                    }
                    let entry = Arc::new(Entry::new(version, name, &self.0.disk, &self.0.inventory));
                    self.apply_pins(&entry);
                    entries.insert(name, Arc::downgrade(&entry));
                    entry
                }
            }
        };
        entry.open().await?;
        entry.slot.record_open();
        self.keep_open(&entry);
        Ok(entry)
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Arc<Entry>>> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an entry open for a while after its last reader has left.
    fn keep_open(&self, entry: &Arc<Entry>) {
        let mut recent = self.recent();
        match recent.iter().position(|other| Arc::ptr_eq(other, entry)) {
            Some(index) => drop(recent.remove(index)),
            None if recent.len() >= self.0.options.idle_files => drop(recent.pop_front()),
            None => {}
        }
        recent.push_back(Arc::clone(entry));
    }

    /// No longer keeps an entry open.
    fn let_close(&self, name: &EntryName) {
        self.recent().retain(|entry| entry.slot.name != *name);
    }

    /// Walks over the entries, then keeps the space within its limits. Never returns.
    pub async fn maintain(&self) {
        if let Err(error) = self.walk().await {
            tracing::warn!(%error, "cannot list the cache: entries are found when they are used");
        }
        let mut tick = tokio::time::interval(CHECK_INTERVAL);
        loop {
            tick.tick().await;
            if let Err(error) = self.evict_excess().await {
                tracing::warn!(%error, "cannot free space of the cache");
            }
        }
    }

    /// Adds all entries in the directory to the inventory, and removes leftovers: files that an interrupted removal
    /// left, and data without an index. Other files are left alone.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn walk(&self) -> Result<()> {
        let cache = self.clone();
        let empty_trash = move || {
            let disk = &cache.0.disk;
            for entry in entries_of(&*disk.volume, Path::new(TRASH)).map_err(listing_error)? {
                remove_file(disk, &Path::new(TRASH).join(entry));
            }
            Ok(())
        };
        self.0.disk.pool.run(empty_trash).await?;
        for directory in 0..DIRECTORIES {
            let cache = self.clone();
            let directory = PathBuf::from(format!("entries/{directory:02x}"));
            self.0.disk.pool.run(move || cache.walk_directory(&directory).map_err(listing_error)).await?;
        }
        Ok(())
    }

    fn walk_directory(&self, directory: &Path) -> io::Result<()> {
        let volume = &*self.0.disk.volume;
        for file in entries_of(volume, directory)? {
            let path = directory.join(file);
            let Some(name) = entry_name(&path) else { continue };
            if path.extension().is_some_and(|extension| extension == "data") {
                self.add_to_inventory(&name)?;
            }
        }
        Ok(())
    }

    /// Adds the entry `name`, which has a data file, to the inventory.
    fn add_to_inventory(&self, name: &EntryName) -> io::Result<()> {
        let volume = &*self.0.disk.volume;
        match self.read_version(name) {
            Ok(Some(version)) => {
                let usage = volume.usage(&file_name(name, "data"))?;
                let used_s = volume.usage(&file_name(name, "index"))?.changed_s;
                let slot = self.0.inventory.slot(name, version.size, u32::try_from(used_s).unwrap_or(0));
                slot.set_pinned(self.0.pins.contain(&version.origin, &version.path));
                if slot.bytes() == 0 {
                    self.0.inventory.set_bytes(&slot, usage.allocated_bytes);
                }
                Ok(())
            }
            // Unless it is being created just now.
            Ok(None) => self.remove_closed(name).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.remove_closed(name).map(drop),
            Err(error) => Err(error),
        }
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
        let disk = &self.0.disk;
        let trash = format!("{TRASH}/{}", random::key());
        // The entry cannot be opened while its files are renamed.
        let entries = self.entries();
        if entries.get(name).is_some_and(|entry| entry.strong_count() > 0) {
            return Ok(false);
        }
        remove_file(disk, &file_name(name, "index"));
        let renamed = disk.volume.rename(&file_name(name, "data"), Path::new(&trash));
        drop(entries);
        self.0.inventory.remove(name);
        match renamed {
            Ok(()) => remove_file(disk, Path::new(&trash)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Frees space if the disk or the cache is above its high watermark, until it is below the low one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn evict_excess(&self) -> Result<()> {
        let disk = Arc::clone(&self.0.disk);
        let space = self.0.disk.pool.run(move || disk.volume.space().map_err(|error| disk_error("statvfs", &error)));
        let excess = self.0.options.excess(self.0.inventory.bytes(), space.await?);
        if excess > 0 {
            let freed = self.free(excess).await?;
            tracing::info!(excess, freed, "evicted from the cache");
        }
        Ok(())
    }

    /// Frees `bytes`, the least valuable first. Returns how many were freed: fewer if the rest is in use or pinned.
    async fn free(&self, bytes: u64) -> Result<u64> {
        let (mut freed, mut refusals) = (0, 0);
        while freed < bytes && refusals < MAX_REFUSALS {
            let Some(victim) = self.0.inventory.victim(now_s(), random::number) else { break };
            match self.evict(&victim).await? {
                Some(more @ 1..) => (freed, refusals) = (freed + more, 0),
                _ => refusals += 1,
            }
        }
        Ok(freed)
    }

    /// Evicts a segment, or the whole of a closed entry with one segment. Returns the freed bytes, or `None` if it is in
    /// use.
    async fn evict(&self, victim: &Victim) -> Result<Option<u64>> {
        let Victim { slot, segment } = victim;
        let name = slot.name;
        self.let_close(&name);
        let open = self.entries().get(&name).and_then(Weak::upgrade);
        let entry = match open {
            Some(entry) => entry,
            None if slot.segments() == 1 => return self.remove_entry(&name).await,
            None => {
                let cache = self.clone();
                let read = move || cache.read_version(&name).map_err(|error| disk_error("reading an index", &error));
                match self.0.disk.pool.run(read).await? {
                    Some(version) => self.entry(version).await?,
                    None => return self.remove_entry(&name).await,
                }
            }
        };
        let range = slot.range(*segment);
        let freed = entry.free(&range).await?;
        // It is empty or in use now: others are to be chosen next.
        slot.touch(&range, now_s());
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
        let bytes = self.0.inventory.slot(&name, 0, now_s()).bytes();
        let job = move || cache.remove_closed(&name).map_err(|error| disk_error("removing an entry", &error));
        Ok(self.0.disk.pool.run(job).await?.then_some(bytes))
    }
}

/// Returns the names in a directory; none if it does not exist.
fn entries_of(volume: &dyn Volume, directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    match volume.entries(directory) {
        Ok(entries) => Ok(entries.into_iter().filter(|entry| !entry.is_directory).map(|entry| entry.name).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn listing_error(error: io::Error) -> towpath_store::Error {
    disk_error("listing the cache", &error)
}

/// Removes a file; a failure is only reported, because the next walk removes it.
fn remove_file(disk: &CacheDisk, name: &Path) {
    match disk.volume.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            disk.record_failure(&disk_error("removing a file of the cache", &error));
        }
        _ => {}
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
        assert_eq!(CacheOptions { max_bytes: None, ..options.clone() }.excess(5000, space(8001)), 2001);
        assert_eq!(options.excess(1000, space(0)), 0);
        assert!((251..=252).contains(&options.excess(1001, space(0))));
    }
}
