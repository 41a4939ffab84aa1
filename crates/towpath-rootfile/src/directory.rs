//! The header of a file, its keys, and its directories.

use std::{collections::HashMap, ops::Range};

use crate::{
    compression::decompress,
    cursor::Cursor,
    error::{Error, Result, check_limit, damaged},
    tree_index::TreeKind,
};

/// Number of bytes at the start of a file that contain the header and, unless its name is very long, the root directory.
pub(crate) const HEADER_BYTES: u64 = 512;
/// From this version of a file, positions in its header have 64 bits.
const LONG_FILE_VERSION: u32 = 1_000_000;
/// Above this version of a key or directory, its positions have 64 bits.
const LONG_VERSION: u16 = 1000;
/// Length of the record of a directory with 64-bit positions in bytes, without its UUID.
const DIRECTORY_BYTES: u64 = 42;
/// Classes of directories.
const DIRECTORY_CLASSES: [&str; 2] = ["TDirectory", "TDirectoryFile"];
/// Classes of trees. Those that derive from TTree have its members first.
const TREE_CLASSES: [&str; 3] = ["TTree", "TNtuple", "TNtupleD"];
/// Class of the anchor of an RNTuple.
const ANCHOR_CLASS: &str = "ROOT::RNTuple";

/// The header of a file.
#[derive(Debug)]
pub(crate) struct Header {
    /// Range of the record of the root directory.
    pub(crate) root: Range<u64>,
    /// Range of the streamer information; empty if there is none.
    pub(crate) streamers: Range<u64>,
}

impl Header {
    pub(crate) fn parse(head: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(head);
        if cursor.take(4).ok() != Some(b"root".as_slice()) {
            return Err(Error::NotRoot);
        }
        let version = cursor.u32()?;
        let is_long = version >= LONG_FILE_VERSION;
        let begin = u64::from(cursor.u32()?);
        let _end = cursor.seek(is_long)?;
        let _free = cursor.seek(is_long)?;
        // Bytes and number of the free segments.
        cursor.skip(8)?;
        let name_bytes = u64::from(cursor.u32()?);
        // Bytes of a position, and the compression.
        cursor.skip(5)?;
        let seek_info = cursor.seek(is_long)?;
        let info_bytes = u64::from(cursor.u32()?);
        let root = begin.saturating_add(name_bytes);
        Ok(Self {
            root: root..root.saturating_add(DIRECTORY_BYTES),
            streamers: seek_info..seek_info.saturating_add(info_bytes),
        })
    }
}

/// Returns the range of the list of keys of a directory, from its record.
pub(crate) fn key_list(record: &[u8]) -> Result<Range<u64>> {
    let mut cursor = Cursor::new(record);
    let is_long = cursor.u16()? > LONG_VERSION;
    // Two times.
    cursor.skip(8)?;
    let bytes = u64::from(cursor.u32()?);
    let _name_bytes = cursor.u32()?;
    let _directory = cursor.seek(is_long)?;
    let _parent = cursor.seek(is_long)?;
    let keys = cursor.seek(is_long)?;
    Ok(keys..keys.saturating_add(bytes))
}

/// A key: where an object is.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Range of the key and its object.
    pub(crate) range: Range<u64>,
    /// Length of the key in bytes.
    pub(crate) key_bytes: u16,
    /// Length of the object in bytes, uncompressed.
    pub(crate) object_bytes: u32,
    pub(crate) cycle: u16,
    pub(crate) class: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let bytes = cursor.u32()?;
        let is_long = cursor.u16()? > LONG_VERSION;
        let object_bytes = cursor.u32()?;
        let _time = cursor.u32()?;
        let key_bytes = cursor.u16()?;
        let cycle = cursor.u16()?;
        let seek = cursor.seek(is_long)?;
        let _parent = cursor.seek(is_long)?;
        let [class, name, _title] = [cursor.string()?, cursor.string()?, cursor.string()?];
        if u64::from(bytes) < u64::from(key_bytes) {
            return Err(damaged(format!("the key {name} is longer than its record")));
        }
        Ok(Self { range: seek..seek.saturating_add(u64::from(bytes)), key_bytes, object_bytes, cycle, class, name })
    }

    /// Returns the object of a key of at most `limit` bytes, from the bytes of its range.
    pub(crate) fn object(&self, bytes: &[u8], limit: u64) -> Result<Vec<u8>> {
        let stored = bytes.get(usize::from(self.key_bytes)..).unwrap_or_default();
        decompress(stored, u64::from(self.object_bytes), limit)
    }

    /// Returns the range of the record of a directory that this key is of.
    pub(crate) fn directory_record(&self) -> Option<Range<u64>> {
        let start = self.range.start.saturating_add(u64::from(self.key_bytes));
        let is_directory = DIRECTORY_CLASSES.contains(&&*self.class);
        is_directory.then(|| start..self.range.end.min(start.saturating_add(DIRECTORY_BYTES)))
    }

    fn tree_kind(&self) -> Option<TreeKind> {
        match &*self.class {
            ANCHOR_CLASS => Some(TreeKind::Ntuple),
            class if TREE_CLASSES.contains(&class) => Some(TreeKind::Tree),
            _ => None,
        }
    }
}

/// Returns the keys of a directory, from the bytes of its list; none without a list.
pub(crate) fn parse_keys(list: &[u8]) -> Result<Vec<Key>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let own = Key::parse(&mut Cursor::new(list))?;
    let mut cursor = Cursor::new(list);
    cursor.skip(usize::from(own.key_bytes))?;
    let count = cursor.u32()?;
    // A key has more bytes than 1, so the number is bounded by the list.
    check_limit("keys of a directory", u64::from(count), list.len() as u64)?;
    (0..count).map(|_| Key::parse(&mut cursor)).collect()
}

/// A tree in a file, whose metadata were not read.
#[derive(Debug, Clone)]
pub struct TreeKey {
    /// Directories and name, joined by `/`.
    pub path: String,
    /// What it is.
    pub kind: TreeKind,
    pub(crate) key: Key,
}

impl TreeKey {
    /// Returns the range of the object: the metadata of a TTree, or the anchor of an RNTuple.
    pub fn range(&self) -> Range<u64> {
        self.key.range.clone()
    }
}

/// Returns the trees of a directory at `path`.
pub(crate) fn trees(path: &str, keys: &[Key]) -> Vec<TreeKey> {
    let trees = newest(keys.iter().filter(|key| key.tree_kind().is_some()));
    let tree = |key: &Key| Some(TreeKey { path: joined(path, &key.name), kind: key.tree_kind()?, key: key.clone() });
    trees.into_iter().filter_map(tree).collect()
}

/// Returns path and record of the directories in a directory at `path`.
pub(crate) fn directories(path: &str, keys: &[Key]) -> Vec<(String, Range<u64>)> {
    let directories = newest(keys.iter().filter(|key| key.directory_record().is_some()));
    directories.into_iter().filter_map(|key| Some((joined(path, &key.name), key.directory_record()?))).collect()
}

/// Returns the key with the highest cycle of each name, in the order of the first ones: the others are copies from before
/// the end of writing.
fn newest<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<&'a Key> {
    let mut found: Vec<&Key> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for key in keys {
        let place = *places.entry(&key.name).or_insert(found.len());
        match found.get_mut(place) {
            Some(other) if other.cycle >= key.cycle => {}
            Some(other) => *other = key,
            None => found.push(key),
        }
    }
    found
}

/// Returns the path of a name in a directory.
pub(crate) fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
