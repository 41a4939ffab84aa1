//! Where the blocks of the columns of a tree lie.

use std::ops::Range;

use crate::error::{Result, check_limit, damaged};

/// Maximum number of blocks of one tree, in 80 MiB of memory.
pub(crate) const MAX_BLOCKS: u64 = 2 << 20;
/// Maximum number of bytes of the names of all columns of a tree, or of all trees of a file: a name includes those that it
/// is in.
pub(crate) const MAX_NAME_BYTES: u64 = 64 << 20;

/// What a [`TreeIndex`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// A TTree, or a class that derives from it.
    Tree,
    /// An RNTuple.
    Ntuple,
}

/// A basket of a TTree, or a page of an RNTuple with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// The first entry with values in it; of an RNTuple the first entry of its cluster.
    pub first_entry: u64,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Length in the file in bytes.
    pub length: u32,
}

impl Block {
    /// Returns the bytes of the block in the file.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }
}

/// A branch of a TTree, or a field of an RNTuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, after those of the branches that it is in, joined by `/`, or of fields, joined by `.`.
    pub name: String,
    /// Its blocks, by first entry and offset. Those that are in the metadata, or in another file, are missing.
    pub blocks: Vec<Block>,
    /// Number of entries.
    pub entries: u64,
}

impl Column {
    /// Returns the number of bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.length)).sum()
    }

    /// Returns the indices of the blocks with values of `entries`.
    pub fn blocks_of(&self, entries: &Range<u64>) -> Range<usize> {
        if entries.is_empty() {
            return 0..0;
        }
        let started = self.blocks.partition_point(|block| block.first_entry <= entries.start);
        // All blocks with the same first entry as the last that began before.
        let first = self.blocks.get(started.saturating_sub(1)).map_or(0, |block| block.first_entry);
        let start = self.blocks.partition_point(|block| block.first_entry < first);
        let end = self.blocks.partition_point(|block| block.first_entry < entries.end);
        start..end.max(start)
    }
}

/// A block of a tree: indices of its column, and of the block in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Index of the column.
    pub column: u32,
    /// Index of the block in the column.
    pub block: u32,
}

/// The columns of a TTree or RNTuple.
#[derive(Debug, Clone)]
pub struct TreeIndex {
    /// Directories and name, joined by `/`.
    pub path: String,
    /// What it is.
    pub kind: TreeKind,
    columns: Vec<Column>,
    /// All blocks by their offset.
    by_offset: Vec<(u64, Position)>,
    memory_bytes: u64,
}

impl TreeIndex {
    /// Creates the index of a tree in a file of `size` bytes.
    ///
    /// # Errors
    /// `Damaged` if a block lies outside of the file; `TooLarge` for too many blocks.
    pub fn new(path: String, kind: TreeKind, mut columns: Vec<Column>, size: u64) -> Result<Self> {
        let count: u64 = columns.iter().map(|column| column.blocks.len() as u64).sum();
        check_limit("blocks of a tree", count, MAX_BLOCKS)?;
        let mut by_offset = Vec::with_capacity(count as usize);
        let mut memory_bytes = count * (size_of::<Block>() + size_of::<(u64, Position)>()) as u64;
        for (number, column) in columns.iter_mut().enumerate() {
            column.blocks.sort_unstable();
            memory_bytes += (size_of::<Column>() + column.name.len()) as u64;
            for (index, block) in column.blocks.iter().enumerate() {
                if block.offset.checked_add(u64::from(block.length)).is_none_or(|end| end > size) {
                    return Err(damaged(format!("a block of {} ends after the file", column.name)));
                }
                by_offset.push((block.offset, Position { column: number as u32, block: index as u32 }));
            }
        }
        by_offset.sort_unstable();
        Ok(Self { path, kind, columns, by_offset, memory_bytes })
    }

    /// Returns the columns, in the order of the file.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the blocks of a column by its index; none of an unknown one.
    pub fn blocks(&self, column: u32) -> &[Block] {
        self.columns.get(column as usize).map(|column| &*column.blocks).unwrap_or_default()
    }

    /// Returns the block at a position.
    pub fn block(&self, position: Position) -> Option<Block> {
        self.blocks(position.column).get(position.block as usize).copied()
    }

    /// Returns the number of entries: the most of all columns.
    pub fn entries(&self) -> u64 {
        self.columns.iter().map(|column| column.entries).max().unwrap_or_default()
    }

    /// Yields the blocks that begin in a range of the file, by offset.
    pub fn beginning_in(&self, range: &Range<u64>) -> impl Iterator<Item = Position> {
        let (start, end) = (range.start, range.end);
        let first = self.by_offset.partition_point(|(offset, _)| *offset < start);
        let after = self.by_offset.get(first..).unwrap_or_default();
        after.iter().take_while(move |(offset, _)| *offset < end).map(|(_, position)| *position)
    }

    /// Returns the approximate memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
