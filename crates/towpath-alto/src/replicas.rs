//! Lists of replicas as programs hand them around: read, put into another order, and written again as they were.
//!
//! A list tells of one or more files where their replicas are. Known are Metalink 4 (RFC 5854) with what Rucio adds to it,
//! JSON as Rucio's `list_replicas` gives it and simpler forms of it, and plain lines. Which of these a document is, its
//! first character tells: `<`, `[` or `{`, anything else.
//!
//! [`Replicas`] keeps the document and where in it each replica is. To write another order, the replicas of a file change
//! places with each other, and their priorities are counted anew from 1; every other byte stays, and so does what nobody
//! here understands. A replica that is left out goes with its comma, its line or the blanks before its element.
//!
//! What a replica costs is not known here, and nothing is fetched. To copy what a Metalink names,
//! `towpath_proto::metalink` reads it with stricter rules.

mod json;
mod lines;
mod metalink;

use std::ops::Range;

/// The longest list that is read, in bytes.
pub const MAX_BYTES: usize = 256 << 20;

/// The most replicas of one list, of all its files.
pub const MAX_REPLICAS: usize = 10_000_000;

/// The worst priority that there is (RFC 5854 §4.2.16.1). Those behind the 999,999th have the same.
const WORST_PRIORITY: usize = 999_999;

/// A list of replicas. In memory it is its document, and for each replica its URL again and at most 300 bytes more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    document: String,
    /// The length of a byte order mark. All places are counted from behind it.
    head: usize,
    files: Vec<ReplicatedFile>,
}

/// A file and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicatedFile {
    /// What the list calls it, with its scope if that is told: `scope:name`. Lines and arrays of URLs call it nothing.
    pub name: Option<String>,
    /// Its replicas, in the order of the list.
    pub replicas: Vec<Replica>,
    /// Where each of them is in the document, ascending.
    slots: Vec<Slot>,
}

/// One replica of a file, as far as its list tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    /// Where it is; as it stands there, so perhaps no valid URL.
    pub url: String,
    /// At which site: Rucio's RSE, or what a Metalink has as `location`.
    pub site: Option<String>,
    /// The lower, the better; from 1.
    pub priority: Option<u32>,
    /// What Rucio says of the way to it: `lan` or `wan`.
    pub domain: Option<String>,
}

/// Why a list cannot be read: always the fault of whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// It is longer than [`MAX_BYTES`].
    #[error("the list of replicas has {0} bytes, and at most {MAX_BYTES} are read: split it")]
    TooLarge(usize),
    /// It has more than [`MAX_REPLICAS`].
    #[error("the list has more than {MAX_REPLICAS} replicas: split it")]
    TooMany,
    /// It is of no known form.
    #[error("the list of replicas is wrong in line {line}: {problem}")]
    Invalid {
        /// Where, from 1.
        line: usize,
        /// What is wrong, at most 200 characters in one line.
        problem: String,
    },
}

impl Replicas {
    /// Reads a list: UTF-8, with or without a byte order mark.
    ///
    /// - Metalink 4: each `file` with its `url` elements, whose attributes `location`, `domain` and `priority` count.
    ///   `metaurl` is none of them. A document type is refused, entities are none but the five of XML. `&` without a name
    ///   and `;` stands for itself, since some write names and URLs unescaped.
    /// - JSON: one or more values, each an array of URLs, an array of objects with `url`, `pfn` or `name` (the first of
    ///   these that is there), or an object of `list_replicas`, with `pfns`; or an array of the latter. `rse`, `location`
    ///   or `site`, `domain` and `priority` count in objects, and in the members of `pfns`.
    /// - Lines: one URL in each, all of one file. Empty lines and those that start with `#` stay where they are.
    ///
    /// # Errors
    /// [`ReplicaError`]. A list may have no files, and a file no replicas.
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
        // All of them: the reader of XML passes one over without counting it.
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

    /// The files in the order of the list.
    pub fn files(&self) -> &[ReplicatedFile] {
        &self.files
    }

    /// The same document with the replicas of each file in the order that `orders` has for it: indices of
    /// [`ReplicatedFile::replicas`], the best first.
    ///
    /// Replicas that are not in it are dropped; an index that there is not, or that was there before, is passed over.
    /// Files behind the last of `orders` stay as they are. Where the document had priorities, they become 1, 2, ... in
    /// that order, at most 999999; in a Metalink each `url` gets one. What else tells of a dropped replica, as `rses`
    /// does in Rucio's JSON, stays.
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
    /// Of an order what there is: each replica once at most.
    fn possible(&self, order: &[usize]) -> Vec<usize> {
        let mut is_free = vec![true; self.slots.len()];
        let takes = |index: &usize| is_free.get_mut(*index).is_some_and(std::mem::take);
        order.iter().copied().filter(takes).collect()
    }
}

impl ReplicaError {
    /// `problem` is at the byte `at` of the document.
    fn invalid(document: impl AsRef<[u8]>, at: usize, problem: impl AsRef<str>) -> Self {
        let before = document.as_ref().iter().take(at);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        let printable = problem.as_ref().chars().map(|character| if character.is_control() { ' ' } else { character });
        Self::Invalid { line, problem: printable.take(200).collect() }
    }
}

/// Where a replica is in its document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    /// What changes places with others of the file.
    span: Range<usize>,
    /// What goes if there is no replica for this place; `span` is in it, and nothing of other slots.
    dropped: Range<usize>,
    priority: PriorityAt,
}

/// Where the priority of a replica is written. All within its span.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PriorityAt {
    /// This form has none, or the replica has none and needs none.
    Nowhere,
    /// In place of this number.
    Number(Range<usize>),
    /// In a new attribute that is put here.
    NewAttribute(usize),
}

impl Slot {
    /// Writes what is in it, with that priority.
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

/// What was read of a list so far.
struct Listing {
    files: Vec<ReplicatedFile>,
    /// How many replicas it may still have.
    left: usize,
}

impl Listing {
    /// The replicas from here on are of another file.
    fn begin(&mut self, name: Option<String>) {
        self.files.push(ReplicatedFile { name, ..ReplicatedFile::default() });
    }

    /// The last file has this replica too.
    fn add(&mut self, replica: Replica, slot: Slot) -> Result<(), ReplicaError> {
        self.left = self.left.checked_sub(1).ok_or(ReplicaError::TooMany)?;
        let file = self.files.last_mut().expect("a file is begun before its replicas are added");
        file.replicas.push(replica);
        file.slots.push(slot);
        Ok(())
    }

    /// The last replica of the last file.
    fn last_mut(&mut self) -> Option<(&mut Replica, &mut Slot)> {
        let file = self.files.last_mut()?;
        file.replicas.last_mut().zip(file.slots.last_mut())
    }
}

#[cfg(test)]
mod tests;
