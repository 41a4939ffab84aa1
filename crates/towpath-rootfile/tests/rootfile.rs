//! Small files of ROOT and uproot, whose blocks are known, and damaged forms of them.
//!
//! `tree.root` was written by ROOT 6.40: a tree with a branch `inside`, and a branch `elsewhere` in another
//! file. `ntuple.root` was written by uproot 5.7.7: an RNTuple of two clusters.

use std::{ops::Range, sync::Mutex};

use bytes::Bytes;
use futures::FutureExt as _;
use proptest::prelude::*;
use towpath_rootfile::{Block, Error, Plan, ReadAt, RootFile, TreeIndex, TreeKind};

const TREE: &[u8] = include_bytes!("data/tree.root");
const NTUPLE: &[u8] = include_bytes!("data/ntuple.root");

/// Limit of metadata in bytes.
const LIMIT: u64 = 1 << 20;
/// First entry, offset and length of the blocks of `inside` in the tree, and of `n`, `j` and `j._0` in the RNTuple, as
/// uproot finds them.
const TREE_BLOCKS: [(u64, u64, u32); 3] = [(0, 218, 1769), (981, 1987, 1228), (1962, 3215, 1187)];
const NTUPLE_BLOCKS: [[(u64, u64, u32); 2]; 3] =
    [[(0, 2585, 184), (100, 3451, 184)], [(0, 2306, 162), (100, 3247, 162)], [(0, 2510, 33), (100, 2032, 33)]];

/// A file in memory, which records the calls.
struct Memory {
    content: Bytes,
    calls: Mutex<Vec<Vec<Range<u64>>>>,
}

impl Memory {
    fn new(content: &[u8]) -> Self {
        Self { content: Bytes::copy_from_slice(content), calls: Mutex::default() }
    }

    fn calls(&self) -> usize {
        self.calls.lock().expect("no test panics with it").len()
    }
}

impl ReadAt for Memory {
    async fn read(&self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
        let parts = ranges.iter().map(|range| self.content.slice(range.start as usize..range.end as usize)).collect();
        self.calls.lock().expect("no test panics with it").push(ranges);
        Ok(parts)
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
        Ok(job())
    }
}

/// Reads all trees of a file.
fn read(memory: &Memory) -> Result<Vec<TreeIndex>, Error> {
    let read = async {
        let file = RootFile::open(memory, memory.content.len() as u64, LIMIT).await?;
        let mut found = Vec::new();
        for key in file.trees() {
            found.push(file.read(memory, key).await?);
        }
        Ok(found)
    };
    read.now_or_never().expect("the source never waits")
}

fn blocks(tree: &TreeIndex, column: &str) -> Vec<(u64, u64, u32)> {
    let column = tree.columns().iter().find(|other| other.name == column).expect("a column of the file");
    column.blocks.iter().map(|block| (block.first_entry, block.offset, block.length)).collect()
}

#[test]
fn baskets_of_a_tree() {
    let memory = Memory::new(TREE);
    let trees = read(&memory).unwrap();
    let [tree] = &*trees else { panic!("{trees:?}") };
    assert_eq!((&*tree.path, tree.kind, tree.entries()), ("tree", TreeKind::Tree, 3000));
    assert_eq!(blocks(tree, "inside"), TREE_BLOCKS);
    assert_eq!(blocks(tree, "elsewhere"), []);
    // The header, the keys, and the tree with the streamer information.
    assert_eq!(memory.calls(), 3);
}

#[test]
fn pages_of_an_ntuple() {
    let memory = Memory::new(NTUPLE);
    let ntuples = read(&memory).unwrap();
    let [ntuple] = &*ntuples else { panic!("{ntuples:?}") };
    assert_eq!((&*ntuple.path, ntuple.kind, ntuple.entries()), ("ntuple", TreeKind::Ntuple, 200));
    let names: Vec<_> = ntuple.columns().iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["j", "j._0", "n"]);
    assert_eq!(blocks(ntuple, "n"), NTUPLE_BLOCKS[0]);
    assert_eq!(blocks(ntuple, "j"), NTUPLE_BLOCKS[1]);
    assert_eq!(blocks(ntuple, "j._0"), NTUPLE_BLOCKS[2]);
    // The header, the keys, the anchor, header and footer, and the list of pages.
    assert_eq!(memory.calls(), 5);
}

#[test]
fn a_plan_has_the_blocks_of_its_entries() {
    let trees = read(&Memory::new(TREE)).unwrap();
    let plan = |entries: Range<u64>, gap| Plan::new(&trees[0], &["in*".into(), "none".into()], &entries, gap).unwrap();
    let [first, second, third] = TREE_BLOCKS.map(|(first_entry, offset, length)| Block { first_entry, offset, length });
    for (entries, expected) in [
        (0..1, vec![first]),
        (0..981, vec![first]),
        (0..982, vec![first, second]),
        (981..982, vec![second]),
        (2999..u64::MAX, vec![third]),
        (5..5, vec![]),
    ] {
        assert_eq!(plan(entries.clone(), 0).columns[0].blocks, expected, "{entries:?}");
    }
    let all = plan(0..3000, 0);
    assert_eq!(all.bytes(), all.columns[0].bytes());
    assert_eq!((all.columns.len(), all.unmatched), (1, vec!["none".to_owned()]));
    let all = first.offset..third.range().end;
    assert_eq!(plan(0..3000, u64::MAX).ranges, [all]);
}

#[test]
fn a_column_is_selected_with_those_in_it() {
    let ntuples = read(&Memory::new(NTUPLE)).unwrap();
    let names = |pattern: &str| -> Vec<String> {
        let plan = Plan::new(&ntuples[0], &[pattern.to_owned()], &(0..200), 0).unwrap();
        plan.columns.into_iter().map(|column| column.name).collect()
    };
    assert_eq!(names("j"), ["j", "j._0"]);
    assert_eq!(names("_0"), ["j._0"]);
    assert_eq!(names("[nj]"), ["j", "j._0", "n"]);
    assert_eq!(names("N"), [""; 0]);
    assert!(Plan::new(&ntuples[0], &["[".to_owned()], &(0..200), 0).is_err());
}

#[test]
fn metadata_beyond_the_limit_are_not_read() {
    let memory = Memory::new(TREE);
    let open = |limit| RootFile::open(&memory, TREE.len() as u64, limit).now_or_never().unwrap();
    assert!(matches!(open(100), Err(Error::TooLarge { .. })));
    let file = open(2000).unwrap();
    let read = file.read(&memory, &file.trees()[0]).now_or_never().unwrap();
    assert!(matches!(read, Err(Error::TooLarge { .. })), "{read:?}");
}

#[test]
fn other_files_are_not_read() {
    assert!(matches!(read(&Memory::new(b"")), Err(Error::NotRoot)));
    assert!(matches!(read(&Memory::new(b"PAR1 and more")), Err(Error::NotRoot)));
    assert!(matches!(read(&Memory::new(b"root")), Err(Error::Damaged(_))));
}

proptest! {
    #[test]
    fn damaged_files_are_read_without_a_panic(
        is_tree: bool,
        changes in proptest::collection::vec((0..12_000_usize, any::<u8>()), 0..6),
        length in 0..12_000_usize,
    ) {
        let mut content = if is_tree { TREE } else { NTUPLE }.to_vec();
        content.truncate(content.len().min(length.max(300)));
        for (at, byte) in changes {
            let at = at % content.len();
            content[at] = byte;
        }
        let size = content.len() as u64;
        for tree in read(&Memory::new(&content)).unwrap_or_default() {
            let mut blocks = tree.columns().iter().flat_map(|column| &column.blocks);
            prop_assert!(blocks.all(|block| block.range().end <= size));
        }
    }

    #[test]
    fn blocks_are_found_by_their_offset(offset in 0..5_000_u64, length in 1..3_000_u64) {
        let range = offset..offset + length;
        for tree in [TREE, NTUPLE].into_iter().flat_map(|file| read(&Memory::new(file)).unwrap()) {
            let found: Vec<_> = tree.beginning_in(&range).filter_map(|position| tree.block(position)).collect();
            let all = tree.columns().iter().flat_map(|column| &column.blocks);
            let mut expected: Vec<_> = all.filter(|block| range.contains(&block.offset)).copied().collect();
            expected.sort_by_key(|block| block.offset);
            prop_assert_eq!(found, expected);
        }
    }
}
