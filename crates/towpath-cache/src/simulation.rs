//! Replays the accesses of a log through the eviction of a cache, for several sizes at once: without a disk, and with the
//! clock of the log.
//!
//! The life of a line: [`Simulator::read_line`] collects accesses; each full batch is replayed by one thread per size.
//! Eviction is that of the cache: the same inventory, watermarks and choice of victims.
//!
//! A log says which blocks of a segment were read, and how many bytes ([`crate::SegmentUse`]), so the result is an
//! estimate where several accesses read few bytes of the same block: the fewer bytes are taken as a part of the more.
//! Pins, quotas, and evictions by an operator are not simulated. The space of an entry is its bytes, not its blocks.
//!
//! Memory: at most 4 GiB per size, and 200 bytes for each entry of the log that the size can hold.

use std::{cell::Cell, collections::HashMap, sync::Arc, time::Duration};

use serde::Deserialize;
use towpath_store::Space;

use crate::{
    access_line::{ACCESS_KIND, AccessLine},
    cache::{CHECK_INTERVAL, CacheOptions, MAX_REFUSALS},
    index::EntryName,
    inventory::{Inventory, Slot, Victim},
    segments::{SegmentUse, block_bytes},
};

/// Number of accesses that are replayed together.
const BATCH: usize = 1 << 14;
/// Number of uses of segments after which a batch ends, 24 bytes each.
const BATCH_USES: usize = 1 << 20;
/// Maximum memory of the entries of one size in bytes.
const MAX_MEMORY_BYTES: u64 = 4 << 30;
/// Memory of an entry, and of each of its segments, in bytes.
const ENTRY_MEMORY_BYTES: u64 = 400;
const SEGMENT_MEMORY_BYTES: u64 = 24;

/// Settings common to all sizes of a simulation.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// Share of the size at which eviction begins, as [`CacheOptions::high_watermark`]; only its relation to
    /// `low_watermark` counts.
    pub high_watermark: f64,
    /// Share at which eviction ends.
    pub low_watermark: f64,
    /// How often the space is checked, by the clock of the log; zero for a check before each access.
    pub check_interval: Duration,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        let CacheOptions { high_watermark, low_watermark, .. } = CacheOptions::default();
        Self { high_watermark, low_watermark, check_interval: CHECK_INTERVAL }
    }
}

/// What a log consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogContent {
    /// Number of accesses to files through the cache.
    pub accesses: u64,
    /// Number of lines of requests, and of empty lines.
    pub other_lines: u64,
    /// Number of lines that are neither.
    pub invalid_lines: u64,
    /// Bytes that the accesses read.
    pub requested_bytes: u64,
    /// Bytes that the cache which wrote the log served without its origin.
    pub recorded_hit_bytes: u64,
    /// Close of the first access, in milliseconds since the Unix epoch.
    pub first_ms: Option<i64>,
    /// Close of the last access.
    pub last_ms: Option<i64>,
}

/// The outcome for one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SizeOutcome {
    /// Maximum space in bytes; `None` for an unlimited one.
    pub max_bytes: Option<u64>,
    /// Bytes served without the origin.
    pub hit_bytes: u64,
    /// Bytes from the origin.
    pub origin_bytes: u64,
    /// Number of accesses that did not need the origin.
    pub hit_accesses: u64,
    /// Bytes in the cache at the end; for an unlimited one all that was ever read.
    pub bytes: u64,
    /// Number of accesses to entries that did not fit into the memory of the simulation; they count as misses.
    pub omitted_accesses: u64,
}

/// An access to be replayed.
#[derive(Debug, Clone)]
struct Access {
    entry: EntryName,
    size: u64,
    closed_ms: i64,
    segment_bytes: u64,
    uses: Vec<SegmentUse>,
    rest_bytes: u64,
}

/// Replays a log for several sizes.
#[derive(Debug)]
pub struct Simulator {
    sizes: Vec<SizeSimulation>,
    batch: Vec<Access>,
    /// Number of uses of segments in the batch.
    batch_uses: usize,
    content: LogContent,
}

impl Simulator {
    /// Creates a simulation of caches of at most `sizes` bytes, and of an unlimited one.
    pub fn new(sizes: &[u64], options: &SimulationOptions) -> Self {
        let limits = sizes.iter().copied().map(Some).chain([None]);
        let sizes = limits.map(|limit| SizeSimulation::new(limit, options)).collect();
        Self { sizes, batch: Vec::with_capacity(BATCH), batch_uses: 0, content: LogContent::default() }
    }

    /// Reads a line of a log. Lines of requests are skipped; those that are no lines of a log are counted.
    pub fn read_line(&mut self, line: &[u8]) {
        match parse(line.trim_ascii()) {
            ParsedLine::Access(access, hit_bytes) => {
                let requested: u64 =
                    access.uses.iter().map(|used| used.bytes).fold(access.rest_bytes, u64::saturating_add);
                let content = &mut self.content;
                content.accesses += 1;
                content.requested_bytes = content.requested_bytes.saturating_add(requested);
                content.recorded_hit_bytes = content.recorded_hit_bytes.saturating_add(hit_bytes);
                content.first_ms = Some(content.first_ms.unwrap_or(i64::MAX).min(access.closed_ms));
                content.last_ms = content.last_ms.max(Some(access.closed_ms));
                self.batch_uses += access.uses.len();
                self.batch.push(access);
                if self.batch.len() == BATCH || self.batch_uses >= BATCH_USES {
                    self.replay();
                }
            }
            ParsedLine::Other => self.content.other_lines += 1,
            ParsedLine::Invalid => self.content.invalid_lines += 1,
        }
    }

    /// Records that a line is too long to be one of a log.
    pub fn skip_line(&mut self) {
        self.content.invalid_lines += 1;
    }

    fn replay(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.batch_uses = 0;
        std::thread::scope(|scope| {
            for size in &mut self.sizes {
                scope.spawn(|| batch.iter().for_each(|access| size.replay(access)));
            }
        });
    }

    /// Returns the outcomes in the order of the sizes, that of the unlimited cache, and the content of the log.
    pub fn finish(mut self) -> (Vec<SizeOutcome>, SizeOutcome, LogContent) {
        self.replay();
        let mut outcomes: Vec<_> = self.sizes.iter().map(SizeSimulation::outcome).collect();
        let unlimited = outcomes.pop().unwrap_or_default();
        (outcomes, unlimited, self.content)
    }
}

/// A cache of one size.
#[derive(Debug)]
struct SizeSimulation {
    options: CacheOptions,
    check_interval_ms: i64,
    inventory: Inventory,
    entries: HashMap<EntryName, SimulatedEntry>,
    memory_bytes: u64,
    clock_ms: i64,
    checked_ms: i64,
    random: Cell<u64>,
    outcome: SizeOutcome,
}

#[derive(Debug)]
struct SimulatedEntry {
    slot: Arc<Slot>,
    segments: Vec<SimulatedSegment>,
}

/// The present bytes of a segment.
#[derive(Debug, Clone, Copy, Default)]
struct SimulatedSegment {
    bytes: u64,
    blocks: u64,
}

impl SimulatedSegment {
    /// Reads a part of the segment. Returns the number of bytes that were absent; they are present now.
    fn read(&mut self, used: &SegmentUse, block_bytes: u64) -> u64 {
        let length = |blocks: u64| (u64::from(blocks.count_ones()) * block_bytes) as f64;
        // Repetitions read what the first read has fetched.
        let distinct = (used.bytes as f64).min(length(used.blocks));
        let [present, wanted] = [(self.bytes, self.blocks), (distinct as u64, used.blocks)]
            .map(|(bytes, blocks)| bytes as f64 / length(blocks).max(1.0));
        let hit = (length(used.blocks & self.blocks) * present.min(wanted)).min(distinct);
        let missed = (distinct - hit).round() as u64;
        self.blocks |= used.blocks;
        self.bytes = (self.bytes + missed).min(length(self.blocks) as u64);
        missed
    }
}

impl SizeSimulation {
    fn new(limit: Option<u64>, options: &SimulationOptions) -> Self {
        let SimulationOptions { high_watermark, low_watermark, check_interval } = *options;
        Self {
            options: CacheOptions { max_bytes: limit, high_watermark, low_watermark, ..CacheOptions::default() },
            check_interval_ms: i64::try_from(check_interval.as_millis()).unwrap_or(i64::MAX),
            inventory: Inventory::default(),
            entries: HashMap::new(),
            memory_bytes: 0,
            clock_ms: i64::MIN,
            checked_ms: i64::MIN,
            random: Cell::new(0x9e37_79b9_7f4a_7c15),
            outcome: SizeOutcome { max_bytes: limit, ..SizeOutcome::default() },
        }
    }

    fn outcome(&self) -> SizeOutcome {
        SizeOutcome { bytes: self.inventory.bytes(), ..self.outcome }
    }

    fn now_s(&self) -> u32 {
        u32::try_from(self.clock_ms.div_euclid(1000)).unwrap_or(0)
    }

    fn replay(&mut self, access: &Access) {
        // Accesses are logged when they end, so their order is that of the clock but for a few milliseconds.
        self.clock_ms = self.clock_ms.max(access.closed_ms);
        if self.clock_ms.saturating_sub(self.checked_ms) >= self.check_interval_ms {
            self.checked_ms = self.clock_ms;
            self.evict_excess();
        }
        let requested = access.uses.iter().map(|used| used.bytes).fold(access.rest_bytes, u64::saturating_add);
        let missed = self.read(access).unwrap_or_else(|| {
            self.outcome.omitted_accesses += 1;
            requested
        });
        self.outcome.hit_accesses += u64::from(missed == 0);
        self.outcome.hit_bytes = self.outcome.hit_bytes.saturating_add(requested.saturating_sub(missed));
        self.outcome.origin_bytes = self.outcome.origin_bytes.saturating_add(missed);
    }

    /// Reads a file. Returns the number of absent bytes; `None` if there is no memory for another entry.
    fn read(&mut self, access: &Access) -> Option<u64> {
        let now_s = self.now_s();
        if !self.entries.contains_key(&access.entry) {
            let memory_bytes = self.memory_bytes + memory_of(access.size.div_ceil(access.segment_bytes));
            if memory_bytes > MAX_MEMORY_BYTES {
                return None;
            }
            self.memory_bytes = memory_bytes;
            let slot = self.inventory.slot(&access.entry, access.size, now_s, None);
            let segments = vec![SimulatedSegment::default(); slot.segments()];
            self.entries.insert(access.entry, SimulatedEntry { slot, segments });
        }
        let entry = self.entries.get_mut(&access.entry)?;
        entry.slot.record_open();
        let mut missed = access.rest_bytes;
        for used in &access.uses {
            let Some(segment) = entry.segments.get_mut(used.index as usize) else { continue };
            let absent = segment.read(used, block_bytes(access.segment_bytes));
            entry.slot.touch(&entry.slot.range(used.index as usize), now_s);
            self.inventory.add_bytes(&entry.slot, absent);
            missed = missed.saturating_add(absent);
        }
        Some(missed)
    }

    /// Frees space as [`crate::Cache::evict_excess`].
    fn evict_excess(&mut self) {
        let unused_disk = Space { total: u64::MAX, free: u64::MAX };
        let excess = self.options.excess(self.inventory.bytes(), unused_disk);
        let (mut freed, mut refusals) = (0, 0);
        while freed < excess && refusals < MAX_REFUSALS {
            let Some(victim) = self.inventory.victim(self.now_s(), None, || self.random()) else { return };
            match self.evict(&victim) {
                0 => refusals += 1,
                bytes => (freed, refusals) = (u64::saturating_add(freed, bytes), 0),
            }
        }
    }

    fn evict(&mut self, victim: &Victim) -> u64 {
        let (name, now_s) = (victim.slot.name, self.now_s());
        let Some(entry) = self.entries.get_mut(&name) else {
            self.inventory.remove(&name);
            return 0;
        };
        let is_present = |segment: &usize| entry.segments.get(*segment).is_some_and(|part| part.bytes > 0);
        let touch = |segment: &usize| entry.slot.touch(&entry.slot.range(*segment), now_s);
        let present = victim.segments().inspect(touch).find(is_present);
        let mut freed = 0;
        if let Some(segment) = present
            && let Some(part) = entry.segments.get_mut(segment)
        {
            freed = std::mem::take(part).bytes;
            self.inventory.subtract_bytes(&entry.slot, freed);
        }
        if entry.segments.iter().all(|part| part.bytes == 0) {
            self.memory_bytes = self.memory_bytes.saturating_sub(memory_of(entry.segments.len() as u64));
            self.entries.remove(&name);
            self.inventory.remove(&name);
        }
        freed
    }

    /// Returns the next number of a fixed sequence (splitmix64), so that a simulation can be repeated.
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn memory_of(segments: u64) -> u64 {
    ENTRY_MEMORY_BYTES + segments.max(1) * SEGMENT_MEMORY_BYTES
}

enum ParsedLine {
    /// An access, and the bytes that the cache had.
    Access(Access, u64),
    Other,
    Invalid,
}

/// A line of a request in the format `json`, as far as it is checked.
#[derive(Deserialize)]
struct RequestLine {
    #[serde(rename = "face")]
    _face: String,
    #[serde(rename = "verb")]
    _verb: String,
}

fn parse(line: &[u8]) -> ParsedLine {
    if line.first() != Some(&b'{') {
        return match line.is_empty() || is_text_of_request(line) {
            true => ParsedLine::Other,
            false => ParsedLine::Invalid,
        };
    }
    match serde_json::from_slice::<AccessLine>(line) {
        Ok(line) => match access(&line) {
            Some(access) => ParsedLine::Access(access, line.hit_bytes),
            None => ParsedLine::Invalid,
        },
        Err(_) if serde_json::from_slice::<RequestLine>(line).is_ok() => ParsedLine::Other,
        Err(_) => ParsedLine::Invalid,
    }
}

/// Returns whether a line is one of a request in the format `text`: the time with milliseconds, then the protocol.
fn is_text_of_request(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let is_time = |word: &[u8]| {
        word.iter().rposition(|byte| *byte == b'.').is_some_and(|point| word.len() == point + 4)
            && word.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-'))
    };
    words.next().is_some_and(is_time) && matches!(words.next(), Some(b"http" | b"xrootd"))
}

fn access(line: &AccessLine) -> Option<Access> {
    if line.kind != ACCESS_KIND || line.entry.len() != 16 {
        return None;
    }
    let mut entry = EntryName::default();
    entry.get_mut(..8)?.copy_from_slice(&u64::from_str_radix(&line.entry, 16).ok()?.to_be_bytes());
    Some(Access {
        entry,
        size: line.size,
        closed_ms: line.unix_ms,
        segment_bytes: line.segment_bytes,
        uses: line.uses()?,
        rest_bytes: line.rest_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::SEGMENT_BYTES;

    /// A line of an access that reads the first `bytes` of a file of `size` bytes.
    fn line(entry: u64, size: u64, bytes: u64, closed_ms: i64) -> String {
        let mut segments = crate::segments::Segments::new(size);
        segments.add(&(0..bytes));
        let record = crate::AccessRecord {
            origin: "memory".into(),
            target: towpath_store::StorePath::root().into(),
            entry: format!("{entry:016x}"),
            size,
            mtime_ns: None,
            opened_ms: closed_ms,
            closed_s: closed_ms / 1000,
            duration: Duration::ZERO,
            served_bytes: bytes,
            missed_bytes: bytes,
            bypass_bytes: 0,
            origin_wait: Duration::ZERO,
            storage_wait: None,
            disk_wait: Duration::ZERO,
            segments: segments.list(),
        };
        AccessLine::from(&record).to_json()
    }

    fn simulate(sizes: &[u64], lines: impl IntoIterator<Item = String>) -> (Vec<SizeOutcome>, SizeOutcome, LogContent) {
        let mut simulator = Simulator::new(sizes, &SimulationOptions::default());
        lines.into_iter().for_each(|line| simulator.read_line(line.as_bytes()));
        simulator.finish()
    }

    #[test]
    fn the_smallest_size_with_everything_is_what_was_ever_read() {
        let lines = (0..30).map(|access| line(access % 3, 20 << 20, 1000 + access % 3, 1000 * access as i64));
        let (_, unlimited, content) = simulate(&[], lines);
        assert_eq!((content.accesses, content.requested_bytes), (30, 30_030));
        assert_eq!((unlimited.bytes, unlimited.origin_bytes, unlimited.hit_accesses), (3003, 3003, 27));
    }

    #[test]
    fn a_size_that_holds_everything_has_all_hits_and_none_takes_more_than_its_size() {
        let (file, files) = (1_000_000, 100);
        let lines = (0..2000).map(|access| line(access % files, file, file, 60_000 * access as i64));
        let (sizes, unlimited, _) = simulate(&[10 * file, 50 * file, 100 * file], lines);
        assert!(sizes[1].hit_bytes < sizes[2].hit_bytes / 2, "a loop is the worst case: {sizes:?}");
        assert_eq!(sizes[2].hit_bytes, unlimited.hit_bytes, "everything fits");
        assert!(sizes.iter().all(|size| size.bytes <= size.max_bytes.unwrap() + file), "{sizes:?}");
        assert!(sizes.iter().all(|size| size.hit_bytes + size.origin_bytes == 2000 * file));
    }

    #[test]
    fn parts_of_a_large_file_are_evicted_separately() {
        let size = 10 * SEGMENT_BYTES;
        let lines = [line(1, size, size, 0), line(1, size, SEGMENT_BYTES, 50_000), line(2, 10, 10, 100_000)];
        let (sizes, ..) = simulate(&[5 * SEGMENT_BYTES], lines);
        assert!((4 * SEGMENT_BYTES..=5 * SEGMENT_BYTES).contains(&sizes[0].bytes), "{sizes:?}");
    }

    #[test]
    fn a_denser_read_of_the_same_blocks_misses_the_difference() {
        let mut segment = SimulatedSegment::default();
        let read = |bytes| SegmentUse { index: 0, bytes, blocks: 0b11 };
        assert_eq!(segment.read(&read(100), 1000), 100);
        assert_eq!(segment.read(&read(100), 1000), 0);
        assert_eq!(segment.read(&read(2000), 1000), 1900);
        assert_eq!(segment.read(&read(5000), 1000), 0);
        assert_eq!(segment.bytes, 2000);
    }

    #[test]
    fn lines_that_are_none_of_a_log_are_counted() {
        let request = r#"{"unix_ms":1,"face":"http","peer":"192.0.2.7:1","subject":null,"verb":"GET","path":"/f","outcome":"ok","bytes":1,"took_us":5}"#;
        let text = r#"1785312000.125 http 192.0.2.7:50312 - GET "/f" ok 1B 5us"#;
        let good = line(1, 10, 10, 5);
        let invalid = [
            "{",
            "garbage",
            "{}",
            &good.replace("\"cache\"", "\"cached\""),
            &good.replace("\"size\":10", "\"size\":-1"),
        ];
        let lines = [request, text, "", &good].into_iter().chain(invalid).map(str::to_owned);
        let (_, _, content) = simulate(&[], lines);
        assert_eq!((content.accesses, content.other_lines, content.invalid_lines), (1, 3, 5));
        assert_eq!((content.first_ms, content.last_ms), (Some(5), Some(5)));
    }
}
