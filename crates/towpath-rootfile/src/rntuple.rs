//! RNTuple, format 1.0: from the anchor to the header and footer, and to the lists of pages.
//!
//! Envelopes are little-endian, and consist of frames: records and lists with their length, so that a reader skips what a
//! later version of the format appends.

mod envelope;

use std::ops::Range;

pub(crate) use self::envelope::Envelope;
use self::envelope::{EnvelopeKind, Frame, Link};
use crate::{
    cursor::Cursor,
    error::{Result, check_limit, damaged, unsupported},
    tree_index::{Block, Column, MAX_BLOCKS, MAX_NAME_BYTES},
};

/// The epoch of the format that this crate reads.
const EPOCH: u16 = 1;
/// Flag of a cluster that is in several parts: reserved, readers must stop.
const IS_SHARDED: u64 = 1;
/// Length of the checksum behind a page in bytes.
const PAGE_CHECKSUM_BYTES: u64 = 8;
/// Maximum number of fields in fields.
const MAX_DEPTH: usize = 64;

/// Where header and footer are.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) header: Envelope,
    pub(crate) footer: Envelope,
}

impl Anchor {
    /// Parses the object of the key of an RNTuple.
    pub(crate) fn parse(object: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object);
        // Byte count and version of the class.
        cursor.skip(6)?;
        let start = cursor.at();
        let epoch = cursor.u16()?;
        let [_major, _minor, _patch] = [cursor.u16()?, cursor.u16()?, cursor.u16()?];
        if epoch != EPOCH {
            return Err(unsupported(format!("epoch {epoch} of RNTuple, expected {EPOCH}")));
        }
        let [seek_header, header_bytes, header_length] = [cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let [seek_footer, footer_bytes, footer_length] = [cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let max_key_bytes = cursor.u64()?;
        // uproot writes 0.
        if max_key_bytes != 0 && header_bytes.max(footer_bytes) > max_key_bytes {
            return Err(unsupported("metadata of RNTuple in several keys"));
        }
        // A later version has more fields, and the checksum is of all of them.
        let end = object.len().saturating_sub(8).max(start);
        let fields = object.get(start..end).unwrap_or_default();
        let checksum = Cursor::new(object.get(end..).unwrap_or_default()).u64()?;
        if !envelope::is_intact(fields, checksum) {
            return Err(damaged("the anchor of an RNTuple has another checksum"));
        }
        Ok(Self {
            header: Envelope::new(EnvelopeKind::Header, seek_header, header_bytes, header_length),
            footer: Envelope::new(EnvelopeKind::Footer, seek_footer, footer_bytes, footer_length),
        })
    }
}

/// The fields of an RNTuple, and where its pages are listed.
#[derive(Debug)]
pub(crate) struct Schema {
    /// Checksum of the header, which each page list repeats.
    header_checksum: u64,
    /// Parent and name of each field. A field without a parent has itself as parent.
    fields: Vec<(usize, String)>,
    /// Index of the field of each column.
    columns: Vec<usize>,
    /// The list of pages of each group of clusters.
    page_lists: Vec<Envelope>,
}

impl Schema {
    /// Parses the contents of the header and of the footer.
    pub(crate) fn parse(header: &[u8], footer: &[u8], limit: u64) -> Result<Self> {
        let header_checksum = envelope::checksum(header)?;
        let mut cursor = envelope::payload(header)?;
        check_features(&mut cursor)?;
        // Name, description, and program.
        for _ in 0..3 {
            envelope::string(&mut cursor)?;
        }
        let mut schema = Self { header_checksum, fields: Vec::new(), columns: Vec::new(), page_lists: Vec::new() };
        schema.add_description(&mut cursor)?;
        let mut cursor = envelope::payload(footer)?;
        check_features(&mut cursor)?;
        if cursor.u64_le()? != header_checksum {
            return Err(damaged("the footer of an RNTuple is of another header"));
        }
        let extension = Frame::record(&mut cursor)?;
        if extension.length(&cursor) > 0 {
            schema.add_description(&mut cursor.clone())?;
        }
        extension.end(&mut cursor)?;
        let groups = Frame::list(&mut cursor)?;
        let mut bytes = 0_u64;
        for _ in 0..groups.items {
            let frame = Frame::record(&mut cursor)?;
            // The first entry, the number of entries, and the number of clusters.
            cursor.skip(8 + 8 + 4)?;
            let list = Link::parse(&mut cursor)?.envelope(EnvelopeKind::PageList);
            // Several can be at the same place.
            bytes = bytes.saturating_add(list.length);
            check_limit("bytes of page lists", bytes, limit)?;
            schema.page_lists.push(list);
            frame.end(&mut cursor)?;
        }
        groups.end(&mut cursor)?;
        Ok(schema)
    }

    /// Adds fields and columns.
    fn add_description(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let fields = Frame::list(cursor)?;
        for _ in 0..fields.items {
            let frame = Frame::record(cursor)?;
            // The versions of the field and of its type.
            cursor.skip(4 + 4)?;
            let parent = cursor.u32_le()? as usize;
            // The structural role and the flags.
            cursor.skip(2 + 2)?;
            self.fields.push((parent, envelope::string(cursor)?));
            frame.end(cursor)?;
        }
        fields.end(cursor)?;
        let columns = Frame::list(cursor)?;
        for _ in 0..columns.items {
            let frame = Frame::record(cursor)?;
            // The type and its bits.
            cursor.skip(2 + 2)?;
            self.columns.push(cursor.u32_le()? as usize);
            frame.end(cursor)?;
        }
        columns.end(cursor)?;
        // Alias columns have no pages, and other descriptions of types are not needed.
        for _ in 0..2 {
            Frame::list(cursor)?.end(cursor)?;
        }
        Ok(())
    }

    /// Returns the lists of pages.
    pub(crate) fn page_lists(&self) -> &[Envelope] {
        &self.page_lists
    }

    /// Returns the columns, from the stored lists of pages.
    pub(crate) fn columns(&self, lists: &[impl AsRef<[u8]>], limit: u64) -> Result<Vec<Column>> {
        let mut columns = self.empty_columns()?;
        let (mut entries, mut blocks) = (0, 0);
        for (envelope, list) in self.page_lists.iter().zip(lists) {
            let content = envelope.open(list.as_ref(), limit)?;
            let mut cursor = envelope::payload(&content)?;
            if cursor.u64_le()? != self.header_checksum {
                return Err(damaged("a page list of an RNTuple is of another header"));
            }
            let clusters = cluster_summaries(&mut cursor)?;
            entries = clusters.iter().fold(entries, |entries: u64, cluster| entries.max(cluster.end));
            let frame = Frame::list(&mut cursor)?;
            if frame.items as usize != clusters.len() {
                return Err(damaged("a page list of an RNTuple has another number of clusters"));
            }
            for cluster in &clusters {
                self.add_pages(&mut cursor, cluster.start, &mut columns, &mut blocks)?;
            }
            frame.end(&mut cursor)?;
        }
        columns.iter_mut().for_each(|column| column.entries = entries);
        Ok(columns)
    }

    /// Adds the pages of one cluster. `blocks` is the number of pages so far.
    fn add_pages(
        &self,
        cursor: &mut Cursor<'_>,
        first_entry: u64,
        columns: &mut [Column],
        blocks: &mut u64,
    ) -> Result<()> {
        let frame = Frame::list(cursor)?;
        // Columns that were added later are not listed in earlier clusters.
        for index in 0..frame.items as usize {
            let field = self.columns.get(index).ok_or_else(|| damaged("pages of an unknown column of an RNTuple"))?;
            let column =
                columns.get_mut(*field).ok_or_else(|| damaged("a column of an unknown field of an RNTuple"))?;
            let pages = Frame::list(cursor)?;
            *blocks += u64::from(pages.items);
            check_limit("blocks of a tree", *blocks, MAX_BLOCKS)?;
            for _ in 0..pages.items {
                let has_checksum = cursor.i32_le()? < 0;
                let range = Link::locator(cursor)?;
                let checksum_bytes = if has_checksum { PAGE_CHECKSUM_BYTES } else { 0 };
                let length = u32::try_from((range.end - range.start).saturating_add(checksum_bytes));
                let length = length.map_err(|_| unsupported("a page of an RNTuple of 4 GiB or more"))?;
                column.blocks.push(Block { first_entry, offset: range.start, length });
            }
            pages.end(cursor)?;
        }
        frame.end(cursor)
    }

    /// Returns a column for each field, with its name after those of the fields that it is in.
    fn empty_columns(&self) -> Result<Vec<Column>> {
        let mut name_bytes = 0;
        let column = |index| {
            let name = self.name(index)?;
            name_bytes += name.len() as u64;
            check_limit("bytes of column names", name_bytes, MAX_NAME_BYTES)?;
            Ok(Column { name, blocks: Vec::new(), entries: 0 })
        };
        (0..self.fields.len()).map(column).collect()
    }

    fn name(&self, index: usize) -> Result<String> {
        let mut parts = Vec::new();
        let mut current = index;
        for _ in 0..MAX_DEPTH {
            let (parent, name) = self.fields.get(current).ok_or_else(|| damaged("an unknown field of an RNTuple"))?;
            parts.push(name.as_str());
            if *parent == current {
                parts.reverse();
                return Ok(parts.join("."));
            }
            current = *parent;
        }
        Err(damaged(format!("fields of an RNTuple are nested more than {MAX_DEPTH} times")))
    }
}

/// Returns the entries of each cluster of a page list.
fn cluster_summaries(cursor: &mut Cursor<'_>) -> Result<Vec<Range<u64>>> {
    let frame = Frame::list(cursor)?;
    let mut clusters = Vec::new();
    for _ in 0..frame.items {
        let record = Frame::record(cursor)?;
        let first = cursor.u64_le()?;
        let entries = cursor.u64_le()?;
        if entries >> 56 & IS_SHARDED != 0 {
            return Err(unsupported("an RNTuple with sharded clusters"));
        }
        clusters.push(first..first.saturating_add(entries & (u64::MAX >> 8)));
        record.end(cursor)?;
    }
    frame.end(cursor)?;
    Ok(clusters)
}

/// Fails if a feature is used that this crate does not know: none is defined.
fn check_features(cursor: &mut Cursor<'_>) -> Result<()> {
    match cursor.u64_le()? {
        0 => Ok(()),
        flags => Err(unsupported(format!("features {flags:#x} of RNTuple"))),
    }
}
