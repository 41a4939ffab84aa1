//! All entries of a cache, open or not: how much space each takes, and what to evict next. No I/O, no clock.
//!
//! A large file is divided into segments with a time of last use each, so that the cold parts of a hot file go first.
//! A victim is the best of a random sample, as in Redis: no order of all entries has to be kept.
//!
//! Memory: about 170 bytes per entry, and 4 per segment.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use hashbrown::HashTable;

use crate::{
    index::EntryName,
    quotas::{Quota, QuotaStatistics, Quotas},
    version::Version,
};

/// Length of a segment in bytes, a whole number of chunks.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;
/// Maximum number of segments whose use is known separately; those of larger files are longer. 4,096 are 64 GiB.
const MAX_SEGMENTS: u64 = 4096;
/// Number of random segments that a victim is chosen from.
const SAMPLE: usize = 64;
/// What a request to an origin costs, expressed in bytes: a round trip of 10 ms at 100 MB/s. It makes many small files
/// more valuable than one large file of the same size.
const REQUEST_COST_BYTES: f64 = 1e6;

/// An entry in the inventory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: EntryName,
    /// Space on the disk in bytes, approximately.
    bytes: AtomicU64,
    /// Number of times that the entry was opened.
    uses: AtomicU32,
    /// Length of each of its segments in bytes.
    segment_bytes: u64,
    /// When each segment was last used, in seconds since the Unix epoch.
    used_s: Box<[AtomicU32]>,
    is_pinned: AtomicBool,
    /// Number of the quota that the entry counts for.
    quota: Option<u32>,
}

impl Slot {
    fn new(name: EntryName, size: u64, now_s: u32, quota: Option<usize>) -> Self {
        let segment_bytes = segment_bytes(size);
        let segments = size.div_ceil(segment_bytes).max(1);
        Self {
            name,
            bytes: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            segment_bytes,
            used_s: (0..segments).map(|_| AtomicU32::new(now_s)).collect(),
            is_pinned: AtomicBool::new(false),
            quota: quota.and_then(|number| u32::try_from(number).ok()),
        }
    }

    /// Returns the space on the disk in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Records the use of a range.
    pub(crate) fn touch(&self, range: &Range<u64>, now_s: u32) {
        let first = (range.start / self.segment_bytes) as usize;
        let last = (range.end.saturating_sub(1).max(range.start) / self.segment_bytes) as usize;
        for segment in first..=last.min(self.used_s.len()) {
            if let Some(used_s) = self.used_s.get(segment)
                && used_s.load(Relaxed) != now_s
            {
                used_s.store(now_s, Relaxed);
            }
        }
    }

    /// Records that the entry was opened.
    pub(crate) fn record_open(&self) {
        let _ = self.uses.fetch_update(Relaxed, Relaxed, |uses| uses.checked_add(1));
    }

    /// Whether the entry must not be evicted.
    pub(crate) fn is_pinned(&self) -> bool {
        self.is_pinned.load(Relaxed)
    }

    /// Sets whether the entry must not be evicted.
    pub(crate) fn set_pinned(&self, is_pinned: bool) {
        self.is_pinned.store(is_pinned, Relaxed);
    }

    /// Returns the number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.used_s.len()
    }

    /// Returns the bytes of a segment.
    pub(crate) fn range(&self, segment: usize) -> Range<u64> {
        let start = segment as u64 * self.segment_bytes;
        start..start + self.segment_bytes
    }

    /// Returns the value of keeping a segment: the cost of fetching a byte of it again, weighted by the uses and divided
    /// by the time since the last one.
    fn value(&self, segment: usize, now_s: u32) -> f64 {
        // A time in the future, left by a clock that was set back, counts as now: the segment ages from here on.
        let age = self.used_s.get(segment).map_or(1, |used_s| now_s.saturating_sub(used_s.fetch_min(now_s, Relaxed)));
        let age = age.max(1);
        let bytes = (self.bytes() / self.segments() as u64).max(4096) as f64;
        let uses = f64::from(self.uses.load(Relaxed));
        (1.0 + (1.0 + uses).ln()) * (1.0 + REQUEST_COST_BYTES / bytes) / f64::from(age)
    }
}

/// Returns the length of the segments of a file of `size` bytes.
pub(crate) fn segment_bytes(size: u64) -> u64 {
    size.div_ceil(MAX_SEGMENTS).max(1).next_multiple_of(SEGMENT_BYTES)
}

/// What to evict.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub(crate) slot: Arc<Slot>,
    pub(crate) segment: usize,
}

impl Victim {
    /// Returns the segments of the entry, the victim first, in the order of a search for data.
    pub(crate) fn segments(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.segment, self.slot.segments());
        (first..count).chain(0..first)
    }
}

/// All entries of a cache.
#[derive(Debug)]
pub(crate) struct Inventory {
    slots: Mutex<Slots>,
    bytes: AtomicU64,
    quotas: Quotas,
}

#[derive(Debug)]
struct Slots {
    /// Where each entry is. The names are in the slots only, for their memory.
    by_name: HashTable<Place>,
    /// One list for each quota, and a last one of the entries without.
    lists: Vec<Vec<Arc<Slot>>>,
}

/// The place of an entry: its list, and its index there.
#[derive(Debug, Clone, Copy)]
struct Place {
    list: u32,
    index: u32,
}

impl Place {
    fn slot(self, lists: &[Vec<Arc<Slot>>]) -> Option<&Arc<Slot>> {
        lists.get(self.list as usize)?.get(self.index as usize)
    }
}

/// Returns the hash of a name, which is one itself.
fn hash(name: &EntryName) -> u64 {
    name.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Slots {
    fn get(&self, name: &EntryName) -> Option<&Arc<Slot>> {
        let place = self.by_name.find(hash(name), |place| is_at(*place, name, &self.lists))?;
        place.slot(&self.lists)
    }

    /// Adds an entry that is not in the list.
    fn add(&mut self, list: usize, slot: Arc<Slot>) {
        let Self { by_name, lists } = self;
        let Some(slots) = lists.get_mut(list) else { return };
        let (hash_of_slot, index) = (hash(&slot.name), slots.len());
        slots.push(slot);
        if let (Ok(list), Ok(index)) = (u32::try_from(list), u32::try_from(index)) {
            let hash_at = |place: &Place| place.slot(lists).map_or(0, |slot| hash(&slot.name));
            by_name.insert_unique(hash_of_slot, Place { list, index }, hash_at);
        }
    }

    /// Removes an entry. The last one of its list takes its place.
    fn remove(&mut self, name: &EntryName) -> Option<Arc<Slot>> {
        let Self { by_name, lists } = self;
        let found = by_name.find_entry(hash(name), |place| is_at(*place, name, lists)).ok()?;
        let (place, _) = found.remove();
        let list = lists.get(place.list as usize)?;
        if let Some(last) = list.last().filter(|last| last.name != *name)
            && let Some(moved) = by_name.find_mut(hash(&last.name), |other| is_at(*other, &last.name, lists))
        {
            *moved = place;
        }
        Some(lists.get_mut(place.list as usize)?.swap_remove(place.index as usize))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.lists.iter().flatten()
    }
}

fn is_at(place: Place, name: &EntryName, lists: &[Vec<Arc<Slot>>]) -> bool {
    place.slot(lists).is_some_and(|slot| slot.name == *name)
}

impl Default for Inventory {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Inventory {
    /// Creates an inventory without entries.
    pub(crate) fn new(quotas: Vec<Quota>) -> Self {
        let slots = Slots { by_name: HashTable::new(), lists: vec![Vec::new(); quotas.len() + 1] };
        Self { slots: Mutex::new(slots), bytes: AtomicU64::new(0), quotas: Quotas::new(quotas) }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot of the entry of a version, which is added if it is missing.
    pub(crate) fn slot_of(&self, version: &Version, name: &EntryName, now_s: u32) -> Arc<Slot> {
        self.slot(name, version.size, now_s, self.quotas.of(version))
    }

    /// Returns the slot of an entry of a file of `size` bytes, which is added if it is missing, and counts for a quota.
    pub(crate) fn slot(&self, name: &EntryName, size: u64, now_s: u32, quota: Option<usize>) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot::new(*name, size, now_s, quota));
        slots.add(quota.unwrap_or(self.quotas.len()), Arc::clone(&slot));
        slot
    }

    /// Returns the space that an entry takes in bytes; 0 if it is unknown.
    pub(crate) fn bytes_of(&self, name: &EntryName) -> u64 {
        let slots = self.slots();
        slots.get(name).map_or(0, |slot| slot.bytes())
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, name: &EntryName) {
        let removed = self.slots().remove(name);
        if let Some(slot) = removed {
            self.set_bytes(&slot, 0);
        }
    }

    /// Sets the space that an entry takes.
    pub(crate) fn set_bytes(&self, slot: &Slot, bytes: u64) {
        let before = slot.bytes.swap(bytes, Relaxed);
        self.add(slot, bytes.wrapping_sub(before));
    }

    /// Adds to the sums; they wrap, so that a difference can be added.
    fn add(&self, slot: &Slot, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.quotas.add(slot.quota.map(|number| number as usize), bytes);
    }

    /// Records that the space of an entry changed by the difference between `before` and `after`.
    pub(crate) fn change_bytes(&self, slot: &Slot, before: u64, after: u64) {
        match after.checked_sub(before) {
            Some(more) => self.add_bytes(slot, more),
            None => self.subtract_bytes(slot, before - after),
        }
    }

    /// Adds to the space that an entry takes.
    pub(crate) fn add_bytes(&self, slot: &Slot, bytes: u64) {
        slot.bytes.fetch_add(bytes, Relaxed);
        self.add(slot, bytes);
    }

    /// Subtracts from the space that an entry takes.
    pub(crate) fn subtract_bytes(&self, slot: &Slot, bytes: u64) {
        let before = slot.bytes.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(bytes)));
        self.add(slot, bytes.min(before.unwrap_or(0)).wrapping_neg());
    }

    /// Returns the space of all entries in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.slots().by_name.len()
    }

    /// Returns the names of all entries.
    pub(crate) fn names(&self) -> Vec<EntryName> {
        self.slots().all().map(|slot| slot.name).collect()
    }

    /// Returns the quotas, and the space of each.
    pub(crate) fn quotas(&self) -> Vec<QuotaStatistics> {
        let slots = self.slots();
        let lists = slots.lists.iter().enumerate();
        let quotas = lists.filter_map(|(number, list)| {
            let (quota, bytes) = self.quotas.get(number)?;
            Some(QuotaStatistics { quota: quota.clone(), bytes, entries: list.len() as u64 })
        });
        quotas.collect()
    }

    /// Returns what to evict next, the least valuable of a random sample of segments; `None` if the sample has nothing
    /// that may be evicted. The sample is of all entries, or of those of a quota. `random` returns random numbers.
    pub(crate) fn victim(&self, now_s: u32, quota: Option<usize>, random: impl Fn() -> u64) -> Option<Victim> {
        let slots = self.slots();
        let lists = match quota {
            Some(number) => slots.lists.get(number..=number)?,
            None => &slots.lists,
        };
        let count = lists.iter().map(Vec::len).sum();
        let mut best: Option<(f64, Victim)> = None;
        for _ in 0..SAMPLE {
            let slot = nth(lists, (random() as usize).checked_rem(count)?)?;
            if slot.is_pinned() || slot.bytes() == 0 {
                continue;
            }
            let segment = random() as usize % slot.segments();
            let value = slot.value(segment, now_s);
            if best.as_ref().is_none_or(|(least, _)| value < *least) {
                best = Some((value, Victim { slot: Arc::clone(slot), segment }));
            }
        }
        best.map(|(_, victim)| victim)
    }
}

/// Returns the slot at a position in the lists, one after the other.
fn nth(lists: &[Vec<Arc<Slot>>], mut position: usize) -> Option<&Arc<Slot>> {
    for list in lists {
        match position.checked_sub(list.len()) {
            Some(behind) => position = behind,
            None => return list.get(position),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Maximum memory of an entry in bytes: with 10⁶ entries 344 MiB are left of 512 for readers.
    const MAX_ENTRY_BYTES: usize = 176;

    fn numbers() -> impl Fn() -> u64 {
        let state = Cell::new(1_u64);
        move || {
            state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
            state.get() >> 33
        }
    }

    fn name(number: u8) -> EntryName {
        [number; 32]
    }

    #[test]
    fn the_space_is_the_sum_of_the_entries() {
        let inventory = Inventory::default();
        let [first, second] = [1, 2].map(|number| inventory.slot(&name(number), 100, 0, None));
        inventory.set_bytes(&first, 1000);
        inventory.add_bytes(&second, 500);
        inventory.set_bytes(&first, 600);
        inventory.subtract_bytes(&second, 700);
        assert_eq!((inventory.bytes(), second.bytes(), inventory.len()), (600, 0, 2));
        inventory.remove(&name(1));
        inventory.remove(&name(1));
        assert_eq!((inventory.bytes(), inventory.len()), (0, 1));
        assert!(Arc::ptr_eq(&second, &inventory.slot(&name(2), 100, 0, None)));
    }

    #[test]
    fn what_was_not_used_for_long_goes_first_and_what_is_pinned_stays() {
        let inventory = Inventory::default();
        for number in 0..50 {
            let slot = inventory.slot(&name(number), 1000, 1000 + u32::from(number) * 10, None);
            inventory.set_bytes(&slot, 4096);
        }
        let random = numbers();
        let victims: Vec<_> = (0..20).filter_map(|_| inventory.victim(2000, None, &random)).collect();
        assert!(victims.iter().all(|victim| victim.slot.name[0] < 15), "{victims:?}");
        (0..50).for_each(|number| inventory.slot(&name(number), 1000, 0, None).set_pinned(number != 49));
        let others = (0..100).filter_map(|_| inventory.victim(2000, None, &random)).map(|victim| victim.slot.name[0]);
        assert!(others.into_iter().all(|number| number == 49));
    }

    #[test]
    fn the_cold_parts_of_a_hot_file_go_first() {
        let inventory = Inventory::default();
        let slot = inventory.slot(&name(1), 4 * SEGMENT_BYTES, 100, None);
        inventory.set_bytes(&slot, 4 * SEGMENT_BYTES);
        for segment in [0, 1, 3] {
            slot.touch(&slot.range(segment), 900);
        }
        let random = numbers();
        assert!((0..10).all(|_| inventory.victim(1000, None, &random).unwrap().segment == 2));
    }

    #[test]
    fn small_files_are_worth_more_than_large_ones_of_the_same_age() {
        let inventory = Inventory::default();
        for number in 0..40 {
            let bytes = if number < 20 { 20_000 } else { 10_000_000 };
            inventory.set_bytes(&inventory.slot(&name(number), bytes, 100, None), bytes);
        }
        let random = numbers();
        assert!((0..10).all(|_| inventory.victim(1000, None, &random).unwrap().slot.name[0] >= 20));
    }

    #[test]
    fn a_clock_that_was_set_back_or_forward_leaves_an_order() {
        const YEAR_S: u32 = 365 * 24 * 3600;
        let inventory = Inventory::default();
        for number in 0..40 {
            let used_s = if number < 20 { 10 * YEAR_S } else { 4 * YEAR_S };
            inventory.set_bytes(&inventory.slot(&name(number), 1000, used_s, None), 4096);
        }
        let random = numbers();
        let victims = |now_s| (0..40).filter_map(|_| inventory.victim(now_s, None, &random)).collect::<Vec<_>>();
        assert!(victims(12 * YEAR_S).iter().all(|victim| victim.slot.name[0] >= 20));
        // Set back by seven years: the times in the future begin to age when they are noticed.
        drop(victims(5 * YEAR_S));
        (20..40).for_each(|number| inventory.slot(&name(number), 1000, 0, None).touch(&(0..1), 5 * YEAR_S + 500));
        let victims = victims(5 * YEAR_S + 1000);
        assert!(victims.iter().all(|victim| victim.slot.name[0] < 20), "they are older than what was used since");
    }

    #[test]
    fn a_million_entries_fit_into_their_memory() {
        let inventory = Inventory::default();
        for number in 0..1_000_000_u64 {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            inventory.set_bytes(&inventory.slot(&name, 1 << 20, 0, None), 1 << 20);
        }
        let slots = inventory.slots();
        let in_map = slots.by_name.allocation_size();
        let in_lists = slots.lists.iter().map(Vec::capacity).sum::<usize>() * size_of::<Arc<Slot>>();
        // With the two counts of the `Arc`, the times of one segment, and what the allocator adds to both.
        let in_slots = slots.by_name.len() * ((size_of::<Slot>() + 16).next_multiple_of(16) + 16 + 32);
        let bytes = (in_map + in_lists + in_slots) / 1_000_000;
        assert!(bytes <= MAX_ENTRY_BYTES, "{bytes} bytes per entry");
        drop(slots);
        assert!(inventory.victim(1, None, numbers()).is_some());
    }

    #[test]
    fn entries_are_found_after_others_were_removed() {
        let inventory =
            Inventory::new(vec![Quota { path: towpath_store::StorePath::root(), places: Vec::new(), max_bytes: 100 }]);
        let random = numbers();
        let mut there = std::collections::BTreeMap::new();
        for step in 0..20_000_u64 {
            let number = random() % 500;
            // Equal first bytes, as of equal hashes.
            let mut entry = [7; 32];
            entry[16..24].copy_from_slice(&number.to_le_bytes());
            entry[0] = (number % 3) as u8;
            if random().is_multiple_of(2) {
                inventory.remove(&entry);
                there.remove(&number);
            } else {
                let slot = inventory.slot(&entry, 1, 0, number.is_multiple_of(2).then_some(0));
                inventory.set_bytes(&slot, step + 1);
                there.insert(number, step + 1);
            }
            assert_eq!(inventory.bytes_of(&entry), there.get(&number).copied().unwrap_or(0));
        }
        assert_eq!((inventory.len(), inventory.bytes()), (there.len(), there.values().sum()));
    }

    #[test]
    fn even_the_largest_file_has_a_bounded_number_of_segments() {
        let slot = Slot::new(name(1), u64::MAX >> 1, 0, None);
        assert!(slot.segments() as u64 <= MAX_SEGMENTS);
        slot.touch(&(u64::MAX / 4..u64::MAX / 4 + 1), 7);
    }

    #[test]
    fn the_victims_of_a_quota_are_its_own_entries() {
        let quota = Quota { path: towpath_store::StorePath::root(), places: Vec::new(), max_bytes: 100 };
        let inventory = Inventory::new(vec![quota]);
        for number in 0..100 {
            let slot = inventory.slot(&name(number), 1000, 1000, (number >= 98).then_some(0));
            inventory.set_bytes(&slot, 4096);
        }
        let random = numbers();
        assert!((0..50).all(|_| inventory.victim(2000, Some(0), &random).unwrap().slot.name[0] >= 98));
        let used = |inventory: &Inventory| {
            inventory.quotas().iter().map(|used| (used.bytes, used.entries)).collect::<Vec<_>>()
        };
        assert_eq!(used(&inventory), [(8192, 2)]);
        inventory.remove(&name(98));
        inventory.remove(&name(3));
        inventory.subtract_bytes(&inventory.slot(&name(99), 1000, 0, None), 96);
        assert_eq!((used(&inventory), inventory.bytes()), (vec![(4000, 1)], 98 * 4096 - 96));
        inventory.remove(&name(99));
        assert!(inventory.victim(2000, Some(0), &random).is_none() && inventory.victim(2000, None, &random).is_some());
    }
}
