//! What an operator does with a cache: list, explain, pin, evict, scrub, and spoil on purpose.

use std::{ops::Range, sync::Weak, time::Duration};

use towpath_store::{Error, Fault, Result, StorePath};

use super::Cache;
use crate::{
    accounts::AccessRecord,
    entry::{Damage, Entry, disk_error},
    index::EntryName,
    namespace::Selection,
    pins::Pin,
    target::Target,
    version::{Version, file_name},
};

/// Number of entries whose headers are read by one job of the disk pool.
const VISITED_TOGETHER: usize = 1000;
/// Number of bytes that are verified at once while scrubbing.
const SCRUB_BYTES: u64 = 4 << 20;

/// An entry of the cache: one version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDescription {
    /// URL of the origin, without credentials.
    pub origin: String,
    /// Target at the origin.
    pub target: Target,
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of bytes in the cache; of an entry that is not open approximately, from its space on the disk.
    pub present_bytes: u64,
    /// Modification time in nanoseconds since the Unix epoch, if the origin reports it.
    pub mtime_ns: Option<i64>,
    /// Whether it must not be evicted.
    pub is_pinned: bool,
}

/// Outcome of an eviction by an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Eviction {
    /// Number of entries at or below the path.
    pub entries: u64,
    /// Number of freed bytes.
    pub freed_bytes: u64,
    /// Number of entries with a part in use, which stayed.
    pub in_use: u64,
    /// Number of entries that are pinned and stayed.
    pub pinned: u64,
}

/// Outcome of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubOutcome {
    /// Number of entries that were read.
    pub entries: u64,
    /// Number of bytes that were compared.
    pub compared_bytes: u64,
    /// Number of bytes that did not match their checksum; they are absent now.
    pub damaged_bytes: u64,
    /// Number of entries that could not be read.
    pub failures: u64,
}

/// How [`Cache::spoil`] damages a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoiling {
    /// Flips a bit of the first present byte.
    Corrupt,
    /// Truncates the data file to half of its present bytes.
    Truncate,
}

/// Entries of the cache, in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryList {
    /// Number of all selected entries.
    pub total: u64,
    /// The first of them.
    pub entries: Vec<EntryDescription>,
}

/// The first versions in the order of their paths, out of any number.
#[derive(Debug)]
struct FirstVersions {
    max: usize,
    total: u64,
    /// At most twice `max`.
    versions: Vec<Version>,
}

impl FirstVersions {
    fn new(max: usize) -> Self {
        Self { max, total: 0, versions: Vec::new() }
    }

    fn add(&mut self, version: Version) {
        self.total += 1;
        self.versions.push(version);
        if self.versions.len() >= self.max.saturating_mul(2) {
            self.truncate();
        }
    }

    fn truncate(&mut self) {
        self.versions.sort_by(|one, other| (&one.target, &one.origin).cmp(&(&other.target, &other.origin)));
        self.versions.truncate(self.max);
    }
}

impl Cache {
    /// Calls `visit` with the version of each selected entry. Reads the header of the index of each entry of the cache,
    /// [`VISITED_TOGETHER`] at a time, and opens no entry.
    ///
    /// # Errors
    /// `Cancelled` if the process ends.
    async fn visit_selected(&self, selection: &Selection, mut visit: impl FnMut(EntryName, Version)) -> Result<()> {
        for names in self.0.inventory.names().chunks(VISITED_TOGETHER) {
            let (cache, selection, names) = (self.clone(), selection.clone(), names.to_vec());
            let job = move || {
                // An entry that was removed meanwhile, or is being created, is not there.
                let versions = names.into_iter().filter_map(|name| Some((name, cache.read_version(&name).ok()??)));
                let selected = versions.filter(|(_, version)| selection.contains(&version.origin, &version.target));
                Ok(selected.collect::<Vec<_>>())
            };
            let found = self.0.disk.pool.run(job).await?;
            found.into_iter().for_each(|(name, version)| visit(name, version));
        }
        Ok(())
    }

    /// Returns the versions of the selected entries.
    async fn selected(&self, selection: &Selection) -> Result<Vec<(EntryName, Version)>> {
        let mut found = Vec::new();
        self.visit_selected(selection, |name, version| found.push((name, version))).await?;
        Ok(found)
    }

    /// Describes the selected entries, as far as the walk has found them: the first `max` in the order of their paths.
    /// Opens none. One call is made at a time, because it reads a part of each entry of the cache.
    ///
    /// # Errors
    /// `Overloaded` while another call runs; `Cancelled` if the process ends.
    pub async fn describe(&self, selection: &Selection, max: usize) -> Result<EntryList> {
        let busy = || Error::new(Fault::Overloaded, "the entries are being listed for another client: try again");
        let _one = self.0.listing.try_lock().map_err(|_| busy())?;
        let mut first = FirstVersions::new(max);
        self.visit_selected(selection, |_, version| first.add(version)).await?;
        first.truncate();
        let entries = first.versions.into_iter().map(|version| self.describe_version(version)).collect();
        Ok(EntryList { total: first.total, entries })
    }

    fn describe_version(&self, version: Version) -> EntryDescription {
        let present_bytes = self.present_bytes(&version);
        let is_pinned = self.0.pins.contain(&version.origin, &version.target);
        let Version { origin, target, size, mtime_ns, .. } = version;
        EntryDescription { origin: origin.to_string(), target, size, present_bytes, mtime_ns, is_pinned }
    }

    /// Returns the recent accesses to the selected files, the latest last.
    pub fn accesses(&self, selection: &Selection) -> Vec<AccessRecord> {
        self.0.accounts.recent(selection)
    }

    /// Evicts the selected entries, except for pinned ones and parts in use.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn evict_selected(&self, selection: &Selection) -> Result<Eviction> {
        let mut eviction = Eviction::default();
        for (name, version) in self.selected(selection).await? {
            eviction.entries += 1;
            let slot = self.0.inventory.slot_of(&version, &name, 0);
            if slot.is_pinned() {
                eviction.pinned += 1;
                continue;
            }
            self.let_close(&name);
            if let Some(freed) = self.remove_entry(&name).await? {
                eviction.freed_bytes += freed;
                continue;
            }
            // A removal forgets it; an entry that is in use stays.
            self.forget_name(&version).await?;
            let entry = self.entry_unused(version).await?;
            let freed = (0..slot.segments()).map(|segment| slot.range(segment));
            for range in freed {
                eviction.freed_bytes += entry.free(&range).await?.unwrap_or(0);
            }
            eviction.in_use += u64::from(entry.present_bytes() > 0);
        }
        Ok(eviction)
    }

    /// Pins or unpins everything at or below `path` of `origin`, now and later. Returns the number of entries concerned.
    ///
    /// # Errors
    /// Errors of the disk; `NotFound` if a pin to be removed does not exist.
    pub async fn pin(&self, origin: &str, path: &StorePath, is_pinned: bool) -> Result<u64> {
        let pin = Pin { origin: origin.to_owned(), path: path.clone() };
        let cache = self.clone();
        self.0.disk.pool.run(move || cache.0.pins.set(&cache.0.disk, pin, is_pinned)).await?;
        let entries = self.selected(&Selection::Below(vec![(origin.into(), path.clone())])).await?;
        for (name, version) in &entries {
            let is_pinned = self.0.pins.contain(&version.origin, &version.target);
            self.0.inventory.slot_of(version, name, 0).set_pinned(is_pinned);
        }
        // One that was created meanwhile may have the old pins, and no index yet.
        let open: Vec<_> = self.entries().open.values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|entry| self.apply_pins(entry));
        Ok(entries.len() as u64)
    }

    /// Returns the pinned paths.
    pub fn pins(&self) -> Vec<Pin> {
        self.0.pins.list()
    }

    /// Compares all bytes in the cache with their checksums; damaged ones become absent. At most `bytes_per_s` are read.
    ///
    /// # Errors
    /// `Cancelled` if the process ends; failures of single entries are counted.
    pub async fn scrub(&self, bytes_per_s: u64) -> Result<ScrubOutcome> {
        let mut outcome = ScrubOutcome::default();
        for name in self.0.inventory.names() {
            let cache = self.clone();
            let version = self.0.disk.pool.run(move || Ok(cache.read_version(&name))).await?;
            let Ok(Some(version)) = version else { continue };
            outcome.entries += 1;
            match self.scrub_entry(version, bytes_per_s, &mut outcome).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot scrub an entry of the cache");
                    outcome.failures += 1;
                }
            }
        }
        Ok(outcome)
    }

    async fn scrub_entry(&self, version: Version, bytes_per_s: u64, outcome: &mut ScrubOutcome) -> Result<()> {
        let entry = self.entry_unused(version).await?;
        entry.distrust();
        for start in (0..entry.version.size).step_by(SCRUB_BYTES as usize) {
            let range = start..start + SCRUB_BYTES;
            let present = entry.version.size.min(range.end) - start - entry.missing_bytes(&range);
            if present == 0 {
                continue;
            }
            let Damage { bytes } = entry.verify(std::slice::from_ref(&range)).await?;
            outcome.compared_bytes += present;
            outcome.damaged_bytes += bytes;
            let pause = Duration::from_secs_f64(present as f64 / bytes_per_s.max(1) as f64);
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Damages the data of one selected file, so that an operator can see how damage is found and repaired. Returns the
    /// number of damaged entries: one for each version of the file, and for each origin that has it.
    ///
    /// # Errors
    /// `InvalidArgument` if a directory is selected, with the number of entries below it; `NotFound` if nothing of the
    /// file is in the cache; errors of the disk.
    pub async fn spoil(&self, selection: &Selection, how: Spoiling) -> Result<u64> {
        let mut spoiled = 0;
        let (of_file, below): (Vec<_>, Vec<_>) = self
            .selected(selection)
            .await?
            .into_iter()
            .partition(|(_, version)| selection.is_file(&version.origin, &version.target));
        if of_file.is_empty() && !below.is_empty() {
            let message = format!("a directory is not damaged: name one file (entries below it: {})", below.len());
            return Err(Error::new(Fault::InvalidArgument, message));
        }
        for (name, version) in of_file {
            let entry = self.entry_unused(version).await?;
            let Some(present) = entry.first_present() else { continue };
            let (cache, spoiling) = (self.clone(), present.clone());
            self.0.disk.pool.run(move || cache.damage(&name, &spoiling, how)).await?;
            entry.distrust();
            spoiled += 1;
        }
        if spoiled == 0 {
            return Err(Error::new(Fault::NotFound, "nothing of this file is in the cache"));
        }
        Ok(spoiled)
    }

    fn damage(&self, name: &EntryName, present: &Range<u64>, how: Spoiling) -> Result<()> {
        let file = self.0.disk.volume.open(&file_name(name, "data"));
        let damaged = file.and_then(|file| match how {
            Spoiling::Corrupt => {
                let mut byte = Vec::new();
                file.read_at(present.start, 1, &mut byte)?;
                byte.iter_mut().for_each(|byte| *byte ^= 1);
                file.write_at(present.start, &byte)
            }
            Spoiling::Truncate => file.set_size(present.start + (present.end - present.start) / 2),
        });
        damaged.map_err(|error| disk_error("damaging a file of the cache", &error))
    }

    /// Applies the pins to an entry that was found or created.
    pub(super) fn apply_pins(&self, entry: &Entry) {
        entry.slot.set_pinned(self.0.pins.contain(&entry.version.origin, &entry.version.target));
    }
}
