//! From columns and entries to ranges of a file.

use std::ops::Range;

use globset::{GlobBuilder, GlobSetBuilder};

use crate::tree_index::{Block, TreeIndex, TreeKind};

/// The ranges of a file with the values of some columns and entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The ranges in ascending order. They neither overlap nor adjoin.
    pub ranges: Vec<Range<u64>>,
    /// The selected columns, in the order of the file.
    pub columns: Vec<PlannedColumn>,
    /// Patterns that match no column.
    pub unmatched: Vec<String>,
}

/// A column in a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedColumn {
    /// Name of the column.
    pub name: String,
    /// Its blocks with values of the entries, by first entry and offset.
    pub blocks: Vec<Block>,
}

impl PlannedColumn {
    /// Returns the bytes of the blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.length)).sum()
    }
}

impl Plan {
    /// Plans a read of `entries` of the columns that match one of `patterns`, with the columns in them. A pattern is a
    /// glob, compared with the whole name and with the last part of it; `*` also matches the separators. Ranges with a
    /// gap of at most `gap_bytes` are merged, so reading the ranges also reads the gaps.
    ///
    /// # Errors
    /// A message for a pattern that is no glob.
    pub fn new(tree: &TreeIndex, patterns: &[String], entries: &Range<u64>, gap_bytes: u64) -> Result<Self, String> {
        let mut columns = Vec::new();
        let mut ranges = Vec::new();
        let mut is_matched = vec![false; patterns.len()];
        let selection = Selection::new(tree.kind, patterns)?;
        for column in tree.columns() {
            let matched = selection.matches(&column.name);
            if matched.is_empty() {
                continue;
            }
            matched.iter().for_each(|index| is_matched[*index] = true);
            let blocks = column.blocks.get(column.blocks_of(entries)).unwrap_or_default();
            ranges.extend(blocks.iter().map(|block| block.range()));
            columns.push(PlannedColumn { name: column.name.clone(), blocks: blocks.to_vec() });
        }
        let unmatched = patterns.iter().zip(is_matched).filter(|(_, is_matched)| !is_matched);
        let unmatched = unmatched.map(|(pattern, _)| pattern.clone()).collect();
        Ok(Self { ranges: merged(ranges, gap_bytes), columns, unmatched })
    }

    /// Returns the bytes of the ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

/// Sorts ranges, and merges those that overlap or have a gap of at most `gap_bytes`.
fn merged(mut ranges: Vec<Range<u64>>, gap_bytes: u64) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap_bytes) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Patterns of names.
struct Selection {
    globs: globset::GlobSet,
    separator: char,
}

impl Selection {
    fn new(kind: TreeKind, patterns: &[String]) -> Result<Self, String> {
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns {
            globs.add(GlobBuilder::new(pattern).build().map_err(|error| error.to_string())?);
        }
        let separator = match kind {
            TreeKind::Tree => '/',
            TreeKind::Ntuple => '.',
        };
        Ok(Self { globs: globs.build().map_err(|error| error.to_string())?, separator })
    }

    /// Returns the indices of the patterns that match a column, or one that it is in.
    fn matches(&self, name: &str) -> Vec<usize> {
        let ends = name.match_indices(self.separator).map(|(at, _)| at).chain([name.len()]);
        let mut found: Vec<usize> = Vec::new();
        for outer in ends.filter_map(|end| name.get(..end)) {
            let last = outer.rsplit(self.separator).next().unwrap_or(outer);
            found.extend(self.globs.matches(outer));
            found.extend(self.globs.matches(last));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}
