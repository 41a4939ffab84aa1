//! Read-ahead by columns: which columns of the trees of an open ROOT file a reader reads, and which of their blocks to
//! fetch next. No I/O, no clock.
//!
//! A read makes the columns of its blocks active. The next blocks of all active columns are fetched together, in the order
//! of their entries, up to a window of bytes ahead of the reader.

pub(crate) mod index;
pub(crate) mod memory;
pub(crate) mod names;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashSet},
    ops::Range,
    sync::Arc,
};

use towpath_rootfile::{Block, Position, TreeIndex};

use self::memory::{KnownTree, KnownTrees};

/// Bytes fetched ahead for each column after its first read: a few baskets, because the reader may not go on.
const FIRST_WINDOW_BYTES: u64 = 256 << 10;
/// Minimum number of bytes fetched ahead of a reader that goes on with its columns.
const MIN_WINDOW_BYTES: u64 = 8 << 20;
/// Maximum number of bytes ahead of a reader, as for a sequential one.
const MAX_WINDOW_BYTES: u64 = 64 << 20;
/// Blocks are fetched in portions of at least this part of the window, unless they are the last ones.
const PORTIONS: u64 = 4;
/// Minimum number of columns in a vector that can be of all columns.
const MIN_COLUMNS_OF_ALL: usize = 8;
/// Maximum number of bytes ahead of a reader that has read nothing yet: it may have opened the file for its metadata.
const MAX_EARLY_WINDOW_BYTES: u64 = 16 << 20;
/// Maximum number of bytes of the first blocks of all columns that are fetched for a reader that is expected to read them.
const MAX_FIRST_BLOCKS_BYTES: u64 = 8 << 20;
/// Number of blocks that a reader may skip in a column, beyond twice those that it read, before nothing is fetched ahead:
/// it reads few entries, or has finished with the column.
const SKIPPED_BLOCKS: u32 = 8;

/// The columns that a reader of an open file reads.
#[derive(Debug, Default)]
pub(crate) struct ColumnReads {
    trees: Vec<TreeReads>,
}

impl ColumnReads {
    /// Adds the reads of a tree. Returns the ranges to fetch.
    pub(crate) fn add(&mut self, mut reads: TreeReads, early: &[Vec<Range<u64>>]) -> Vec<Range<u64>> {
        reads.record_all(early);
        let ahead = reads.fetch_ahead();
        self.trees.push(reads);
        ahead
    }

    /// Records the reads of one request. Returns the ranges to fetch in addition; `None` if the request is not of columns.
    pub(crate) fn next(&mut self, ranges: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
        let recorded = self.trees.iter_mut().filter_map(|tree| tree.record(ranges).then_some(tree));
        recorded.map(TreeReads::fetch_ahead).reduce(|mut all, more| {
            all.extend(more);
            all
        })
    }

    /// Adds the reads of a tree of a file without a reader. Nothing is to be fetched until [`Self::expect`].
    pub(crate) fn add_early(&mut self, reads: TreeReads) {
        self.trees.push(reads);
    }

    /// Expects reads of columns from their first entry on, in the trees that were added. Returns the ranges to fetch.
    pub(crate) fn expect(&mut self, known: &KnownTrees) -> Vec<Range<u64>> {
        let mut ahead = Vec::new();
        for tree in &mut self.trees {
            if let Some(known) = known.get(&tree.tree.path) {
                tree.expect(known);
            }
            ahead.extend(tree.fetch_ahead());
        }
        ahead
    }

    /// Returns each tree of which columns were read.
    pub(crate) fn active(&self) -> KnownTrees {
        let trees = self.trees.iter().map(|tree| (tree.tree.path.clone(), tree.active()));
        trees.filter(|(_, known)| !known.columns.is_empty()).collect()
    }
}

/// The columns of a tree that a reader reads.
#[derive(Debug)]
pub(crate) struct TreeReads {
    tree: Arc<TreeIndex>,
    active: BTreeMap<u32, ActiveColumn>,
    /// Number of columns with blocks.
    columns: usize,
    /// Bytes of the blocks that were read.
    read_bytes: u64,
    /// Bytes of the blocks that were requested and not read, also of abandoned columns.
    ahead_bytes: u64,
    /// Whether a block was read behind one that was read before, or reads are expected.
    is_continued: bool,
    /// Whether the last requested block of a column was read.
    has_new: bool,
    /// Minimum window in bytes: what the last reader of the dataset has read of a file; 0 if this one reads others.
    expected_bytes: u64,
    /// Whether the reader has read the first blocks of most columns together.
    reads_first_blocks: bool,
    /// Whether the first blocks of all columns are to be fetched.
    are_first_blocks_due: bool,
}

/// A column that a reader reads.
#[derive(Debug, Clone, Copy, Default)]
struct ActiveColumn {
    /// Index of the first block behind those that were read.
    read_end: u32,
    /// Index of the first block behind those that were requested.
    requested_end: u32,
    /// Number of blocks that were read.
    read: u32,
    /// Number of blocks that were not read, before one that was.
    skipped: u32,
    /// Bytes of the blocks that were requested, from `read_end` on.
    ahead_bytes: u64,
}

impl TreeReads {
    /// Creates the state of a reader that is expected to read `expected` from the first entry on.
    pub(crate) fn new(tree: Arc<TreeIndex>, expected: &KnownTree) -> Self {
        let columns = tree.columns().iter().filter(|column| !column.blocks.is_empty()).count();
        let mut reads = Self {
            tree,
            active: BTreeMap::new(),
            columns,
            read_bytes: 0,
            ahead_bytes: 0,
            is_continued: false,
            has_new: false,
            expected_bytes: 0,
            reads_first_blocks: false,
            are_first_blocks_due: false,
        };
        reads.expect(expected);
        reads
    }

    /// Records the reads of several requests.
    pub(crate) fn record_all(&mut self, requests: &[Vec<Range<u64>>]) {
        requests.iter().for_each(|ranges| _ = self.record(ranges));
    }

    /// Records the reads of one request. Returns whether there are blocks among them to learn from.
    fn record(&mut self, ranges: &[Range<u64>]) -> bool {
        let read = self.blocks(ranges);
        if read.is_empty() {
            return false;
        }
        if self.is_of_all_columns(&read) {
            self.reads_first_blocks |= read.iter().all(|position| position.block == 0);
            return false;
        }
        read.iter().for_each(|position| self.record_block(*position));
        true
    }

    /// Returns the blocks of ranges that begin with a block: others are reads of something else, such as a copy of the
    /// file.
    fn blocks(&self, ranges: &[Range<u64>]) -> Vec<Position> {
        let mut found = Vec::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let mut blocks = self.tree.beginning_in(range).peekable();
            let first = blocks.peek().and_then(|position| self.tree.block(*position));
            if first.is_some_and(|first| first.offset == range.start) {
                found.extend(blocks);
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns whether the blocks are of most columns. ROOT requests the first block of each column before it knows which
    /// columns a job reads.
    fn is_of_all_columns(&self, read: &[Position]) -> bool {
        let columns = read.chunk_by(|one, other| one.column == other.column).count();
        columns >= MIN_COLUMNS_OF_ALL && 2 * columns > self.columns
    }

    fn record_block(&mut self, position: Position) {
        let Position { column, block: index } = position;
        let blocks = self.tree.blocks(column);
        if !self.active.contains_key(&column) {
            self.expected_bytes = 0;
        }
        let active = self.active.entry(column).or_default();
        if index < active.read_end {
            return;
        }
        if active.read > 0 {
            active.skipped = active.skipped.saturating_add(index - active.read_end);
            self.is_continued = true;
        }
        let passed_end = active.requested_end.min(index + 1);
        let passed_bytes = bytes_of(blocks, active.read_end, passed_end);
        active.ahead_bytes -= passed_bytes;
        self.ahead_bytes -= passed_bytes;
        active.read += 1;
        active.read_end = index + 1;
        active.requested_end = active.requested_end.max(index + 1);
        self.has_new |= active.requested_end == active.read_end;
        self.read_bytes = self.read_bytes.saturating_add(bytes_of(blocks, index, index + 1));
    }

    /// Expects reads of columns from their first entry on.
    fn expect(&mut self, known: &KnownTree) {
        let names: HashSet<_> = known.columns.iter().collect();
        for (number, column) in self.tree.columns().iter().enumerate() {
            if names.contains(&column.name) {
                self.active.entry(number as u32).or_default();
                (self.is_continued, self.has_new) = (true, true);
            }
        }
        if self.is_continued {
            self.expected_bytes = self.expected_bytes.max(known.bytes);
            self.are_first_blocks_due |= known.reads_first_blocks && !self.reads_first_blocks;
        }
    }

    /// Returns the first block of each column; nothing if they are too large.
    fn first_blocks(&self) -> Vec<Range<u64>> {
        let first = self.tree.columns().iter().filter_map(|column| column.blocks.first());
        let ranges: Vec<_> = first.map(Block::range).collect();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > MAX_FIRST_BLOCKS_BYTES { Vec::new() } else { ranges }
    }

    fn window_bytes(&self) -> u64 {
        let max = if self.read_bytes == 0 { MAX_EARLY_WINDOW_BYTES } else { MAX_WINDOW_BYTES };
        match self.is_continued {
            true => self.read_bytes.max(self.expected_bytes).clamp(MIN_WINDOW_BYTES, max),
            false => FIRST_WINDOW_BYTES.saturating_mul(self.active.len() as u64).min(MIN_WINDOW_BYTES),
        }
    }

    fn max_window_bytes(&self) -> u64 {
        if self.is_continued { MAX_WINDOW_BYTES } else { MIN_WINDOW_BYTES }
    }

    /// Returns the ranges to fetch: the first blocks of all columns if they are due, and the next ones of the active columns
    /// in the order of their entries, as many as the window permits. The latter count as requested.
    fn fetch_ahead(&mut self) -> Vec<Range<u64>> {
        let mut ranges = self.next_blocks();
        if std::mem::take(&mut self.are_first_blocks_due) {
            ranges.extend(self.first_blocks());
        }
        ranges
    }

    fn next_blocks(&mut self) -> Vec<Range<u64>> {
        let window = self.window_bytes();
        if self.ahead_bytes > window - window / PORTIONS && !self.has_new {
            return Vec::new();
        }
        let entry = self.entry();
        let (mut ahead, mut waiting) = (0, BinaryHeap::new());
        for (column, active) in &mut self.active {
            let blocks = self.tree.blocks(*column);
            if active.is_abandoned(blocks, entry) {
                self.ahead_bytes -= active.forget_ahead();
                continue;
            }
            ahead += active.ahead_bytes;
            waiting
                .extend(blocks.get(active.requested_end as usize).map(|block| Reverse((block.first_entry, *column))));
        }
        // A column without a block ahead gets some even if others fill the window.
        let more = if std::mem::take(&mut self.has_new) { ahead + FIRST_WINDOW_BYTES } else { 0 };
        let window = window.max(more.min(self.max_window_bytes()));
        let mut ranges = Vec::new();
        while ahead < window
            && let Some(Reverse((_, column))) = waiting.pop()
            && let Some(active) = self.active.get_mut(&column)
        {
            let blocks = self.tree.blocks(column);
            let mut rest = blocks.iter().skip(active.requested_end as usize);
            if let Some(block) = rest.next() {
                if u64::from(block.length) > MAX_WINDOW_BYTES {
                    continue;
                }
                ahead += u64::from(block.length);
                active.ahead_bytes += u64::from(block.length);
                self.ahead_bytes += u64::from(block.length);
                active.requested_end += 1;
                ranges.push(block.range());
            }
            waiting.extend(rest.next().map(|block| Reverse((block.first_entry, column))));
        }
        ranges
    }

    /// Returns the first entry of the last block that was read, of all columns.
    fn entry(&self) -> u64 {
        let last = |(column, active): (&u32, &ActiveColumn)| {
            let index = (active.read_end as usize).checked_sub(1)?;
            self.tree.blocks(*column).get(index).map(|block| block.first_entry)
        };
        self.active.iter().filter_map(last).max().unwrap_or_default()
    }

    fn active(&self) -> KnownTree {
        let entry = self.entry();
        let is_active = |(column, active): &(&u32, &ActiveColumn)| {
            active.read > 0 && !active.is_abandoned(self.tree.blocks(**column), entry)
        };
        let columns = self.active.iter().filter(is_active);
        let name = |(column, _): (&u32, _)| Some(self.tree.columns().get(*column as usize)?.name.clone());
        KnownTree {
            columns: columns.filter_map(name).collect(),
            bytes: self.read_bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
            reads_first_blocks: self.reads_first_blocks,
        }
    }
}

/// Returns the bytes of some blocks.
fn bytes_of(blocks: &[Block], start: u32, end: u32) -> u64 {
    let blocks = blocks.get(start as usize..end as usize).unwrap_or_default();
    blocks.iter().map(|block| u64::from(block.length)).sum()
}

impl ActiveColumn {
    /// Counts the blocks ahead as not requested. Returns their bytes.
    fn forget_ahead(&mut self) -> u64 {
        self.requested_end = self.read_end;
        std::mem::take(&mut self.ahead_bytes)
    }

    /// Returns whether the reader, which is at `entry`, has stopped to read the column, or reads few of its blocks.
    fn is_abandoned(&self, blocks: &[Block], entry: u64) -> bool {
        let unread = blocks.get(self.read_end as usize..).unwrap_or_default();
        // The last one of them can have later entries too.
        let passed = (unread.partition_point(|block| block.first_entry < entry) as u32).saturating_sub(1);
        self.skipped.saturating_add(passed) > 2 * self.read + SKIPPED_BLOCKS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_rootfile::{Column, TreeKind};

    use super::*;

    const BLOCK_BYTES: u32 = 10_000;
    const ENTRIES: u64 = 100_000;

    /// Returns a tree whose columns have as many blocks of equal length each, in the order of their entries in the file.
    fn tree(blocks: &[u64]) -> Arc<TreeIndex> {
        let mut starts: Vec<_> = blocks
            .iter()
            .enumerate()
            .flat_map(|(column, count)| (0..*count).map(move |index| (index * ENTRIES / count, column)))
            .collect();
        starts.sort_unstable();
        let name = |column| Column { name: format!("c{column}"), blocks: Vec::new(), entries: ENTRIES };
        let mut columns: Vec<_> = (0..blocks.len()).map(name).collect();
        for (place, (first_entry, column)) in starts.iter().enumerate() {
            let offset = 1000 + place as u64 * u64::from(BLOCK_BYTES);
            columns[*column].blocks.push(Block { first_entry: *first_entry, offset, length: BLOCK_BYTES });
        }
        Arc::new(TreeIndex::new("tree".into(), TreeKind::Tree, columns, u64::MAX).unwrap())
    }

    fn columns(names: &[&str]) -> KnownTree {
        KnownTree { columns: names.iter().map(ToString::to_string).collect(), ..KnownTree::default() }
    }

    fn reads_of(dataset: &Arc<TreeIndex>) -> ColumnReads {
        let mut reads = ColumnReads::default();
        assert_eq!(reads.add(TreeReads::new(Arc::clone(dataset), &KnownTree::default()), &[]), []);
        reads
    }

    fn block(dataset: &TreeIndex, column: usize, index: usize) -> Range<u64> {
        dataset.columns()[column].blocks[index].range()
    }

    /// Reads a block. Returns column and index of the blocks fetched in addition.
    fn read(reads: &mut ColumnReads, dataset: &TreeIndex, column: usize, index: usize) -> Vec<(u32, u32)> {
        let ahead = reads.next(&[block(dataset, column, index)]).expect("a read of a column");
        positions(dataset, &ahead)
    }

    fn positions(dataset: &TreeIndex, ranges: &[Range<u64>]) -> Vec<(u32, u32)> {
        let of = |range: &Range<u64>| {
            let found: Vec<_> = dataset.beginning_in(range).collect();
            assert_eq!(found.len(), 1);
            (found[0].column, found[0].block)
        };
        ranges.iter().map(of).collect()
    }

    #[test]
    fn the_blocks_of_read_columns_are_fetched_in_the_order_of_their_entries() {
        let dataset = tree(&[3000, 300, 5000]);
        let mut reads = reads_of(&dataset);
        let first = read(&mut reads, &dataset, 0, 0);
        // 27 blocks are the first window.
        assert_eq!(first, (1..28).map(|index| (0, index)).collect::<Vec<_>>());
        assert!(read(&mut reads, &dataset, 1, 0).contains(&(1, 1)));
        let next = read(&mut reads, &dataset, 0, 1);
        let all: u64 = next.len() as u64 * u64::from(BLOCK_BYTES);
        assert!((MIN_WINDOW_BYTES - (600 << 10)..MIN_WINDOW_BYTES).contains(&all), "{all}");
        assert!(next.iter().all(|(column, _)| *column < 2));
        let entry =
            |(column, index): &(u32, u32)| dataset.columns()[*column as usize].blocks[*index as usize].first_entry;
        assert!(next.is_sorted_by_key(entry));
        let ten_to_one = next.iter().filter(|(column, _)| *column == 1).count();
        assert!((next.len() / 12..next.len() / 8).contains(&ten_to_one), "{ten_to_one} of {}", next.len());
    }

    #[test]
    fn a_reader_of_few_blocks_gets_nothing_ahead() {
        let dataset = tree(&[1000]);
        let mut reads = reads_of(&dataset);
        read(&mut reads, &dataset, 0, 0);
        let fetched: usize = (1..10).map(|index| read(&mut reads, &dataset, 0, 100 * index).len()).sum();
        assert_eq!(fetched, 0);
    }

    #[test]
    fn a_column_that_is_no_longer_read_is_dropped() {
        let dataset = tree(&[1000, 1000]);
        let mut reads = reads_of(&dataset);
        for index in 0..3 {
            read(&mut reads, &dataset, 0, index);
            read(&mut reads, &dataset, 1, index);
        }
        let mut later = (3..1000).flat_map(|index| read(&mut reads, &dataset, 0, index)).collect::<Vec<_>>();
        later.retain(|(column, _)| *column == 1);
        assert!(later.len() <= 1, "{later:?}");
        assert_eq!(reads.active()["tree"].columns, ["c0"]);
    }

    #[test]
    fn the_first_block_of_each_column_is_not_learnt_from() {
        let dataset = tree(&[10; 20]);
        let mut reads = reads_of(&dataset);
        let firsts: Vec<_> = (0..20).map(|column| block(&dataset, column, 0)).collect();
        assert_eq!(reads.next(&firsts), None);
        assert!(reads.active().is_empty());
        assert_ne!(reads.next(&[block(&dataset, 3, 0), block(&dataset, 7, 0)]).unwrap(), []);
    }

    #[test]
    fn the_next_reader_gets_as_much_at_once_as_the_last_one_has_read() {
        let dataset = tree(&[2000; 20]);
        let mut reads = reads_of(&dataset);
        let firsts: Vec<_> = (0..20).map(|column| block(&dataset, column, 0)).collect();
        reads.next(&firsts);
        for index in 0..2000 {
            read(&mut reads, &dataset, 3, index);
        }
        let known = reads.active().remove("tree").unwrap();
        // 20 MB.
        assert_eq!(known, KnownTree { bytes: 32 << 20, reads_first_blocks: true, ..columns(&["c3"]) });
        let mut reads = ColumnReads::default();
        let ahead = reads.add(TreeReads::new(Arc::clone(&dataset), &known), &[]);
        assert!(firsts.iter().all(|first| ahead.contains(first)));
        // Those of the window, and 20 first blocks.
        let window = |bytes: u64| bytes.div_ceil(u64::from(BLOCK_BYTES)) as usize;
        assert_eq!(ahead.len(), window(MAX_EARLY_WINDOW_BYTES) + firsts.len());
        assert_eq!(reads.next(&firsts), None);
        assert_eq!(read(&mut reads, &dataset, 3, 0).len(), 2000 - window(MAX_EARLY_WINDOW_BYTES));
        assert!(reads.active()["tree"].reads_first_blocks);
        // A reader that does not read the first blocks, or reads another column, is not like the last one.
        let mut reads = ColumnReads::default();
        reads.add(TreeReads::new(Arc::clone(&dataset), &known), &[]);
        let fetched: usize = (0..40).map(|index| read(&mut reads, &dataset, 7, index).len()).sum();
        assert!(fetched > 800, "{fetched}: those of the other column do not fill its window");
        assert_eq!(reads.active()["tree"], KnownTree { bytes: 512 << 10, ..columns(&["c7"]) });
        // First blocks that are too large are not fetched.
        let wide = tree(&[2; 1000]);
        let known = KnownTree { reads_first_blocks: true, ..columns(&["c3"]) };
        assert_eq!(ColumnReads::default().add(TreeReads::new(Arc::clone(&wide), &known), &[]).len(), 2);
    }

    #[test]
    fn copies_are_not_learnt_from() {
        let dataset = tree(&[1000, 1000]);
        let mut reads = reads_of(&dataset);
        for start in (0..20_000_000_u64).step_by(1 << 18) {
            let range = start..start + (1 << 18);
            assert_eq!(reads.next(&[range]), None);
        }
        assert!(reads.active().is_empty());
    }

    #[test]
    fn expected_columns_are_fetched_from_the_first_entry_on() {
        let dataset = tree(&[3000, 300, 5000]);
        let mut reads = ColumnReads::default();
        let ahead = reads.add(TreeReads::new(Arc::clone(&dataset), &columns(&["c1", "c2"])), &[]);
        let ahead = positions(&dataset, &ahead);
        assert!(ahead.contains(&(1, 0)) && ahead.contains(&(2, 0)) && ahead.iter().all(|(column, _)| *column > 0));
        assert_eq!(read(&mut reads, &dataset, 1, 0), []);
        // A column without reads is not recorded.
        assert_eq!(reads.active()["tree"].columns, ["c1"]);
    }

    #[test]
    fn a_file_without_a_reader_waits_for_one() {
        let dataset = tree(&[3000, 300, 5000]);
        let mut reads = ColumnReads::default();
        reads.add_early(TreeReads::new(Arc::clone(&dataset), &columns(&["c1"])));
        let known = KnownTrees::from([("tree".into(), columns(&["c1", "c2"])), ("other".into(), columns(&["c0"]))]);
        let ahead = positions(&dataset, &reads.expect(&known));
        // As if all columns had been known at once.
        let mut at_once = ColumnReads::default();
        let expected = at_once.add(TreeReads::new(Arc::clone(&dataset), &columns(&["c1", "c2"])), &[]);
        assert_eq!(ahead, positions(&dataset, &expected));
        assert_eq!(read(&mut reads, &dataset, 2, 0), []);
    }

    #[test]
    fn the_window_bounds_what_many_columns_fetch() {
        let dataset = tree(&[1000; 300]);
        let mut reads = reads_of(&dataset);
        let fetched = (0..300).map(|column| read(&mut reads, &dataset, column, 0).len()).sum::<usize>();
        assert!(fetched as u64 * u64::from(BLOCK_BYTES) <= MIN_WINDOW_BYTES + u64::from(BLOCK_BYTES), "{fetched}");
        let more = (0..300).map(|column| read(&mut reads, &dataset, column, 1).len()).sum::<usize>();
        let ahead = (fetched + more) as u64 * u64::from(BLOCK_BYTES);
        assert!((MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES + 300 * u64::from(BLOCK_BYTES)).contains(&ahead), "{ahead}");
    }

    #[test]
    fn requests_before_the_index_count() {
        let dataset = tree(&[1000, 1000]);
        let mut reads = ColumnReads::default();
        let early = [vec![block(&dataset, 1, 0)], vec![block(&dataset, 1, 1)]];
        let ahead = reads.add(TreeReads::new(Arc::clone(&dataset), &KnownTree::default()), &early);
        assert!(positions(&dataset, &ahead).iter().all(|(column, index)| *column == 1 && *index > 1));
        assert!(ahead.len() > 100);
    }

    proptest! {
        #[test]
        fn each_block_is_fetched_once_and_soon_enough(
            blocks in proptest::collection::vec(1..400_u64, 1..6),
            chosen in 0..64_u32,
        ) {
            let dataset = tree(&blocks);
            let columns: Vec<_> = (0..blocks.len()).filter(|column| chosen >> column & 1 == 1).collect();
            let mut reads = reads_of(&dataset);
            let mut fetched = std::collections::BTreeSet::new();
            let mut order: Vec<_> = columns
                .iter()
                .flat_map(|column| (0..blocks[*column] as usize).map(|index| (*column, index)))
                .collect();
            order.sort_by_key(|(column, index)| dataset.columns()[*column].blocks[*index].first_entry);
            let mut waited = 0;
            for (column, index) in &order {
                waited += u32::from(!fetched.contains(&(*column as u32, *index as u32)));
                for position in read(&mut reads, &dataset, *column, *index) {
                    prop_assert!(columns.contains(&(position.0 as usize)), "{position:?} is of another column");
                    prop_assert!(fetched.insert(position), "{position:?} twice");
                }
            }
            // The first block of each column.
            prop_assert!(waited as usize <= columns.len(), "{waited} of {columns:?}");
        }
    }
}
