//! Where the bytes of a column lie in a ROOT file.
//!
//! [`RootFile::open`] reads the directories of a file, [`RootFile::read`] the metadata of one TTree or RNTuple. The result,
//! a [`TreeIndex`], has the [`Block`]s (baskets or pages) of each column: offset, length and first entry. [`Plan`] selects
//! the blocks of columns and entries, and merges them to ranges.
//!
//! The caller provides the bytes ([`ReadAt`]), and each step reads all its ranges in one call. No payload is decompressed,
//! only metadata, within a limit of the caller. No I/O, no clock.
//!
//! Sources: the class documentation of TFile, TKey, TDirectory, TTree, TBranch and TStreamerInfo of ROOT; for RNTuple the
//! [binary format specification 1.0](https://github.com/root-project/root/blob/master/tree/ntuple/doc/BinaryFormatSpecification.md).
//!
//! Not included: values of columns, and files whose metadata ROOT wrote before version 4.

mod compression;
mod cursor;
mod directory;
mod error;
mod file;
mod objects;
mod plan;
mod rntuple;
mod streamers;
mod tree;
mod tree_index;

pub use directory::TreeKey;
pub use error::{Error, Result};
pub use file::{ReadAt, RootFile};
pub use plan::{Plan, PlannedColumn};
pub use tree_index::{Block, Column, Position, TreeIndex, TreeKind};
