//! Read-ahead by columns of an open ROOT file.
//!
//! The head and the end of the file are requested when it is opened. The index of a tree is read when a reader has read
//! its record, so that it needs no bytes of its own, or at once if the columns of the dataset are known. Requests until
//! then are kept, and learnt from afterwards.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use towpath_rootfile::{ReadAt, RootFile, TreeIndex, TreeKey};

use super::{CachedFile, Location, OpenedFile};
use crate::{
    columns::{
        ColumnReads, TreeReads,
        memory::{KnownTree, KnownTrees},
        names::{dataset_of, is_root},
    },
    extents::CHUNK_BYTES,
    origin::VECTOR_RANGE_BYTES,
};

/// Number of bytes at the start that are requested: header, first directory, and small trees.
const HEAD_BYTES: u64 = 64 << 10;
/// The same at the end, where keys and trees are: the size of the file divided by this,
const TAIL_SHARE: u64 = 512;
/// at least this,
const MIN_TAIL_BYTES: u64 = 64 << 10;
/// and at most this.
const MAX_TAIL_BYTES: u64 = 512 << 10;
/// Maximum number of ranges that are kept until an index has been read.
const MAX_EARLY_RANGES: usize = 8192;

/// Read-ahead by columns of one reader.
#[derive(Debug, Default)]
pub(super) struct ColumnAhead(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    reads: ColumnReads,
    /// Requests while an index is being read.
    early: Vec<Vec<Range<u64>>>,
    early_ranges: usize,
    /// Whether a reader is yet to come. Then no blocks are fetched; that it opens the file is enough, before the origin
    /// has confirmed the version.
    is_early: bool,
    /// Whether the next file of the dataset was requested.
    has_successor: bool,
    /// Whether columns of this reader were added to those of the dataset.
    has_added: bool,
}

#[derive(Debug, Default)]
enum Phase {
    /// Not a ROOT file.
    #[default]
    Off,
    /// The directories are being read.
    Opening,
    /// The directories are known.
    Open {
        file: Arc<RootFile>,
        /// Trees whose index was not requested.
        waiting: Vec<TreeKey>,
        /// Number of trees whose index is being read.
        reading: usize,
    },
}

impl ColumnAhead {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps a request until an index has been read.
    fn keep(&mut self, ranges: &[Range<u64>]) {
        if self.early_ranges + ranges.len() <= MAX_EARLY_RANGES {
            self.early_ranges += ranges.len();
            self.early.push(ranges.to_vec());
        }
    }

    fn forget_early(&mut self) {
        self.early = Vec::new();
        self.early_ranges = 0;
    }
}

impl CachedFile {
    /// Begins read-ahead by columns, if the name is that of a ROOT file.
    pub(crate) fn begin_columns(&self) {
        let OpenedFile { entry, metadata, memory, .. } = &*self.0;
        let target = &entry.version.target;
        let name = target.name().filter(|_| target.query().is_none());
        let is_learnt = memory.is_some() && name.and_then(|name| std::str::from_utf8(name).ok()).is_some_and(is_root);
        if !is_learnt || metadata.size < HEAD_BYTES || !self.0.may_request() {
            return;
        }
        let size = metadata.size;
        let tail = (size / TAIL_SHARE).clamp(MIN_TAIL_BYTES, MAX_TAIL_BYTES);
        self.0.fetch_together(&[0..HEAD_BYTES, size.saturating_sub(tail)..size]);
        let has_reader = self.0.account.has_reader();
        let mut state = self.0.columns.state();
        (state.phase, state.is_early) = (Phase::Opening, !has_reader);
        drop(state);
        if has_reader && !self.0.known_trees().is_empty() {
            self.0.open_successor();
        }
        let opened = Arc::clone(&self.0);
        tokio::spawn(async move {
            let file = opened.entry.column_index.file(&IndexSource(&opened), size).await;
            opened.begin_trees(file);
        });
    }

    /// Fetches the first blocks for a reader that opens the file, which was opened before it had one.
    pub(crate) fn expect_reader(&self) {
        let known = self.0.known_trees();
        let mut state = self.0.columns.state();
        state.is_early = false;
        let is_root = !matches!(state.phase, Phase::Off);
        let ahead = state.reads.expect(&known);
        drop(state);
        self.0.fetch_together(&ahead);
        if is_root {
            self.0.open_successor();
        }
    }

    /// Records the reads of a request, and fetches what their columns need next. Returns whether they are of columns.
    pub(super) fn read_columns(&self, ranges: &[Range<u64>]) -> bool {
        if self.0.memory.is_none() {
            return false;
        }
        let mut state = self.0.columns.state();
        let State { phase, reads, has_added, .. } = &mut *state;
        let (mut due, mut ahead) = (Vec::new(), None);
        let is_reading = match phase {
            Phase::Off => return false,
            Phase::Opening => true,
            Phase::Open { file, waiting, reading } => {
                let is_read = |key: &mut TreeKey| overlaps(&key.range(), ranges.iter());
                due = waiting.extract_if(.., is_read).map(|key| (Arc::clone(file), key)).collect();
                *reading += due.len();
                ahead = reads.next(ranges);
                *reading > 0
            }
        };
        let read = (!*has_added && ahead.is_some()).then(|| reads.active());
        *has_added |= read.is_some();
        if is_reading {
            state.keep(ranges);
        }
        drop(state);
        due.into_iter().for_each(|(file, key)| self.0.read_tree(file, key, KnownTree::default()));
        self.0.fetch_ahead(ahead.as_deref().unwrap_or_default());
        if let Some(read) = read {
            self.0.add_read(read);
        }
        ahead.is_some()
    }
}

impl OpenedFile {
    /// Requests ranges that a reader has not requested.
    pub(super) fn fetch_ahead(&self, ranges: &[Range<u64>]) {
        self.fetch_parts(ranges, CHUNK_BYTES);
    }

    fn fetch_parts(&self, ranges: &[Range<u64>], part_bytes: u64) {
        if !ranges.is_empty() {
            let flights = self.request_with(ranges, part_bytes, None);
            flights.iter().for_each(|flight| self.account.record_ahead(flight.range.clone()));
        }
    }

    /// Requests ranges for which a reader waits: of the index, or the first ones of expected columns. Over one connection they
    /// are all small enough for vectors, which saves a round trip if the versions of the origin are weak, and costs the
    /// checksums of pages.
    fn fetch_together(&self, ranges: &[Range<u64>]) {
        let is_one_connection = !self.source.has_separate_connections();
        self.fetch_parts(ranges, if is_one_connection { VECTOR_RANGE_BYTES as u64 } else { CHUNK_BYTES });
    }

    /// Adds what was read so far to the memory of the dataset, and opens its next file.
    fn add_read(&self, read: KnownTrees) {
        if let Some(memory) = &self.memory {
            memory.add(self.dataset(), read);
        }
        self.open_successor();
    }

    /// Opens the next file of the dataset in the background, once.
    fn open_successor(&self) {
        if !std::mem::replace(&mut self.columns.state().has_successor, true) {
            self.source.open_successor();
        }
    }

    /// Returns the name of the dataset.
    fn dataset(&self) -> String {
        dataset_of(&self.entry.version.origin, &self.entry.version.target.to_string())
    }

    /// Returns what the last reader of the dataset read.
    fn known_trees(&self) -> KnownTrees {
        self.memory.as_ref().map(|memory| memory.trees(&self.dataset())).unwrap_or_default()
    }

    /// Continues with the directories of the file: reads the trees whose columns are known, and those that were read.
    fn begin_trees(self: &Arc<Self>, file: Option<Arc<RootFile>>) {
        let known = self.known_trees();
        let mut state = self.columns.state();
        let Some(file) = file else {
            state.phase = Phase::Off;
            state.forget_early();
            return;
        };
        let mut waiting = file.trees().to_vec();
        let columns = |key: &TreeKey| known.get(&key.path).cloned();
        let is_read = |key: &TreeKey| overlaps(&key.range(), state.early.iter().flatten());
        let due = waiting.extract_if(.., |key| columns(key).is_some() || is_read(key));
        let due: Vec<_> = due.map(|key| (columns(&key).unwrap_or_default(), key)).collect();
        if due.is_empty() {
            state.forget_early();
        }
        state.phase = Phase::Open { file: Arc::clone(&file), waiting, reading: due.len() };
        drop(state);
        due.into_iter().for_each(|(known, key)| self.read_tree(Arc::clone(&file), key, known));
    }

    /// Reads the index of a tree in the background. Its reader is expected to read `expected`.
    fn read_tree(self: &Arc<Self>, file: Arc<RootFile>, key: TreeKey, expected: KnownTree) {
        let opened = Arc::clone(self);
        tokio::spawn(async move {
            let tree = opened.entry.column_index.tree(&IndexSource(&opened), &file, &key).await;
            opened.add_tree(tree, &expected);
        });
    }

    fn add_tree(&self, tree: Option<Arc<TreeIndex>>, expected: &KnownTree) {
        // Without the lock, which each read takes.
        let early = self.columns.state().early.clone();
        let reads = tree.map(|tree| {
            let mut reads = TreeReads::new(tree, expected);
            reads.record_all(&early);
            reads
        });
        let mut state = self.columns.state();
        let State { phase, reads: all, early: now, is_early, has_added, .. } = &mut *state;
        let later = now.get(early.len()..).unwrap_or_default();
        let ahead = match reads {
            Some(reads) if *is_early => {
                all.add_early(reads);
                Vec::new()
            }
            Some(reads) => all.add(reads, later),
            None => Vec::new(),
        };
        let read = (!*has_added && !*is_early).then(|| all.active()).filter(|read| !read.is_empty());
        *has_added |= read.is_some();
        if let Phase::Open { reading, .. } = phase {
            *reading -= 1;
            if *reading == 0 {
                state.forget_early();
            }
        }
        drop(state);
        self.fetch_together(&ahead);
        if let Some(read) = read {
            self.add_read(read);
        }
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        let Some(memory) = &self.memory else { return };
        let columns = self.columns.state().reads.active();
        if !columns.is_empty() {
            memory.record(self.dataset(), columns);
        }
    }
}

/// Returns whether one of `ranges` overlaps `record`.
fn overlaps<'a>(record: &Range<u64>, mut ranges: impl Iterator<Item = &'a Range<u64>>) -> bool {
    ranges.any(|range| range.start < record.end && record.start < range.end)
}

/// Reads metadata through the cache. They do not count as read by the reader.
struct IndexSource<'a>(&'a OpenedFile);

impl ReadAt for IndexSource<'_> {
    async fn read(&self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
        self.0.fetch_together(&ranges);
        let mut read = Vec::with_capacity(ranges.len());
        for range in &ranges {
            let Location::Disk(_lease) = self.0.locate(range, Vec::new).await? else {
                return Err("the bytes are not on the disk of the cache".into());
            };
            let (bytes, outcome) = self.0.entry.read(range, Vec::new()).await?;
            outcome?;
            read.push(bytes.into());
        }
        Ok(read)
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.entry.disk().pool.run(move || Ok(job())).await?)
    }
}
