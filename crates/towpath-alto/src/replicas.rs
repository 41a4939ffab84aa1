//! Reads replica lists in the formats that other programs exchange, and writes them back in a different order.
//!
//! A list names the replicas of one or more files. Supported formats are Metalink 4 (RFC 5854) with Rucio's extensions,
//! the JSON of Rucio's `list_replicas` and simpler forms of it, and plain lines. The first character determines the
//! format: `<`; `[` or `{`; anything else.
//!
//! [`Replicas`] keeps the document and the position of each replica in it. When written in another order, the replicas
//! of a file swap positions, and priorities are renumbered from 1; all other bytes are preserved, including unknown
//! extensions. A dropped replica is removed with its comma, its line or the whitespace before its element.
//!
//! This module does not compute costs and fetches nothing. To copy the files of a Metalink, `towpath_proto::metalink`
//! parses it with stricter rules.

mod json;
mod lines;
mod metalink;

use std::ops::Range;

/// Maximum size of a list, in bytes.
pub const MAX_BYTES: usize = 256 << 20;

/// Maximum number of replicas in a list, over all its files.
pub(crate) const MAX_REPLICAS: usize = 10_000_000;

/// Lowest priority (RFC 5854 §4.2.16.1). Replicas after the 999,999th share it.
const WORST_PRIORITY: usize = 999_999;

/// A replica list. Memory: the document, and for each replica its URL and up to 300 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    document: String,
    /// Length of the byte order mark. All positions are relative to its end.
    head: usize,
    files: Vec<ReplicatedFile>,
}

/// A file and its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicatedFile {
    /// Name of the file, with its scope if known: `scope:name`. `None` in lines and arrays of URLs.
    pub name: Option<String>,
    /// Its replicas, in list order.
    pub replicas: Vec<Replica>,
    /// Position of each replica in the document, ascending.
    slots: Vec<Slot>,
}

/// One replica of a file, with the data from its list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    /// URL exactly as listed, not validated.
    pub url: String,
    /// Site: Rucio's RSE, or the `location` of a Metalink.
    pub site: Option<String>,
    /// Priority from 1; lower is better.
    pub priority: Option<u32>,
    /// Rucio's network domain: `lan` or `wan`.
    pub domain: Option<String>,
}

/// Why a list cannot be read. The list itself is always at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// The list is longer than [`MAX_BYTES`].
    #[error("the list of replicas has {0} bytes, more than the limit of {MAX_BYTES}: split it")]
    TooLarge(usize),
    /// The list has more than [`MAX_REPLICAS`].
    #[error("the list has more than {MAX_REPLICAS} replicas: split it")]
    TooMany,
    /// The list is malformed or of unknown format.
    #[error("the list of replicas is invalid in line {line}: {problem}")]
    Invalid {
        /// Line, from 1.
        line: usize,
        /// Description of the problem, one line of at most 200 characters.
        problem: String,
    },
}

impl Replicas {
    /// Parses a list in UTF-8, with or without a byte order mark.
    ///
    /// - Metalink 4: each `file` with its `url` elements and their attributes `location`, `domain` and `priority`.
    ///   `metaurl` is ignored. A document type is rejected, and only the five entities of XML are known. An `&` that
    ///   starts no reference stands for itself, because some programs do not escape names and URLs.
    /// - JSON: one or more values, each an array of URLs, an array of objects with `url`, `pfn` or `name` (the first
    ///   that is present), or an object of `list_replicas`, with `pfns`; or an array of the latter. Objects, and the
    ///   members of `pfns`, may have `rse`, `location` or `site`, `domain` and `priority`.
    /// - Lines: one URL per line, all of one file. Empty lines and those that start with `#` stay in place.
    ///
    /// # Errors
    /// Returns [`ReplicaError`]. A list without files, or a file without replicas, is valid.
    pub fn read(document: Vec<u8>) -> Result<Self, ReplicaError> {
        Self::read_within(document, MAX_BYTES, MAX_REPLICAS)
    }

    fn read_within(document: Vec<u8>, max_bytes: usize, max_replicas: usize) -> Result<Self, ReplicaError> {
        if document.len() > max_bytes {
            return Err(ReplicaError::TooLarge(document.len()));
        }
        let document = String::from_utf8(document).map_err(|error| {
            ReplicaError::invalid(error.as_bytes(), error.utf8_error().valid_up_to(), "it is not UTF-8")
        })?;
        // Strip all of them: the XML reader would skip one without counting its bytes.
        let body = document.trim_start_matches('\u{feff}');
        let head = document.len() - body.len();
        let mut listing = Listing { files: Vec::new(), left: max_replicas };
        match body.trim_start().as_bytes().first() {
            Some(b'<') => metalink::read(body, &mut listing)?,
            Some(b'[' | b'{') => json::read(body, &mut listing)?,
            _ => lines::read(body, &mut listing)?,
        }
        Ok(Self { document, head, files: listing.files })
    }

    /// Returns the files in list order.
    pub fn files(&self) -> &[ReplicatedFile] {
        &self.files
    }

    /// Returns the document with the replicas of each file in the order given by `orders`: indices into
    /// [`ReplicatedFile::replicas`], best first.
    ///
    /// Replicas missing from an order are dropped; invalid and repeated indices are ignored. Files beyond the last of
    /// `orders` are unchanged. Existing priorities are renumbered 1, 2, ... in that order, at most 999999; in a
    /// Metalink each `url` gets one. Other references to a dropped replica, such as `rses` in Rucio's JSON, remain.
    pub fn write(&self, orders: &[Vec<usize>]) -> Vec<u8> {
        let body = &self.document[self.head..];
        let mut output = String::with_capacity(self.document.len() + 64);
        output.push_str(&self.document[..self.head]);
        let mut written = 0;
        for (file, order) in self.files.iter().zip(orders) {
            let order = file.possible(order);
            for (place, slot) in file.slots.iter().enumerate() {
                let replica = order.get(place).map(|index| &file.slots[*index]);
                let replaced = if replica.is_some() { &slot.span } else { &slot.dropped };
                output.push_str(&body[written..replaced.start]);
                if let Some(replica) = replica {
                    replica.write(body, place + 1, &mut output);
                }
                written = replaced.end;
            }
        }
        output.push_str(&body[written..]);
        output.into_bytes()
    }
}

impl ReplicatedFile {
    /// Returns `order` without invalid and repeated indices.
    fn possible(&self, order: &[usize]) -> Vec<usize> {
        let mut is_free = vec![true; self.slots.len()];
        let takes = |index: &usize| is_free.get_mut(*index).is_some_and(std::mem::take);
        order.iter().copied().filter(takes).collect()
    }
}

impl ReplicaError {
    /// Creates the error for `problem` at the byte `at` of the document.
    fn invalid(document: impl AsRef<[u8]>, at: usize, problem: impl AsRef<str>) -> Self {
        let before = document.as_ref().iter().take(at);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        let printable = problem.as_ref().chars().map(|character| if character.is_control() { ' ' } else { character });
        Self::Invalid { line, problem: printable.take(200).collect() }
    }
}

/// Position of a replica in its document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    /// Bytes that swap places with those of other replicas of the file.
    span: Range<usize>,
    /// Bytes removed if no replica remains for this slot. Contains `span` and overlaps no other slot.
    dropped: Range<usize>,
    priority: PriorityAt,
}

/// Position at which a replica's priority is written, always within its span.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PriorityAt {
    /// The format has no priority, or the replica has none and needs none.
    Nowhere,
    /// Replaces this number.
    Number(Range<usize>),
    /// A new attribute inserted here.
    NewAttribute(usize),
}

impl Slot {
    /// Writes the replica with this priority.
    fn write(&self, body: &str, priority: usize, output: &mut String) {
        let priority = priority.min(WORST_PRIORITY);
        let (at, text) = match &self.priority {
            PriorityAt::Nowhere => (self.span.end..self.span.end, String::new()),
            PriorityAt::Number(at) => (at.clone(), priority.to_string()),
            PriorityAt::NewAttribute(at) => (*at..*at, format!(" priority=\"{priority}\"")),
        };
        output.push_str(&body[self.span.start..at.start]);
        output.push_str(&text);
        output.push_str(&body[at.end..self.span.end]);
    }
}

/// State of a list being parsed.
struct Listing {
    files: Vec<ReplicatedFile>,
    /// Number of replicas still allowed.
    left: usize,
}

impl Listing {
    /// Starts another file.
    fn begin(&mut self, name: Option<String>) {
        self.files.push(ReplicatedFile { name, ..ReplicatedFile::default() });
    }

    /// Adds a replica to the last file.
    fn add(&mut self, replica: Replica, slot: Slot) -> Result<(), ReplicaError> {
        self.left = self.left.checked_sub(1).ok_or(ReplicaError::TooMany)?;
        let file = self.files.last_mut().expect("a file is begun before its replicas are added");
        file.replicas.push(replica);
        file.slots.push(slot);
        Ok(())
    }

    /// Returns the last replica of the last file.
    fn last_mut(&mut self) -> Option<(&mut Replica, &mut Slot)> {
        let file = self.files.last_mut()?;
        file.replicas.last_mut().zip(file.slots.last_mut())
    }
}

#[cfg(test)]
mod tests;
