//! The branches of a TTree and their baskets, read by the streamer information of the file.
//!
//! Objects other than branches are skipped by their byte counts.

use std::collections::{HashMap, HashSet};

use crate::{
    directory::joined,
    error::{Result, check_limit, damaged, unsupported},
    objects::{Frame, Objects, Pointer},
    streamers::{Element, Member, Number, Streamers},
    tree_index::{Block, Column, MAX_BLOCKS, MAX_NAME_BYTES},
};

/// Maximum number of branches in branches.
const MAX_DEPTH: usize = 32;
/// Maximum number of objects in objects, and of base classes of base classes.
const MAX_CLASS_DEPTH: usize = 4 * MAX_DEPTH;
/// Byte before the positions of baskets that have 64 bits, whatever the member's type is: ROOT wrote it for files of more
/// than 2 GB before the type changed.
const LONG_SEEKS: u8 = 2;
/// Members that hold only objects without branches, and are skipped whole.
const SKIPPED: [&str; 2] = ["fLeaves", "fBaskets"];

/// Returns the columns of a tree of class `class`, from its object and the length of its key.
pub(crate) fn read(object: &[u8], key_bytes: u16, class: &str, streamers: &Streamers) -> Result<Vec<Column>> {
    let mut reader = TreeReader {
        objects: Objects::new(object, key_bytes),
        streamers,
        branch_classes: streamers.derived("TBranch"),
        branches: Vec::new(),
        ids: HashMap::new(),
        depth: 0,
        blocks: 0,
        name_bytes: 0,
    };
    let mut tree = Members::default();
    reader.class(class, &mut tree)?;
    let top = tree.branches.ok_or_else(|| damaged("a tree without a list of branches"))?;
    let mut columns = Vec::new();
    reader.columns("", &top, 0, &mut columns)?;
    Ok(columns)
}

/// The members of an object that are used. Those of base classes are among them.
#[derive(Debug, Default)]
struct Members<'a> {
    name: String,
    integers: HashMap<&'a str, i64>,
    arrays: HashMap<&'a str, Vec<i64>>,
    file_name: String,
    /// Ids of the objects in `fBranches`.
    branches: Option<Vec<usize>>,
}

/// A branch.
#[derive(Debug)]
struct Branch {
    name: String,
    blocks: Vec<Block>,
    entries: u64,
    /// Ids of the branches in it.
    branches: Vec<usize>,
}

struct TreeReader<'a> {
    objects: Objects<'a>,
    streamers: &'a Streamers,
    branch_classes: HashSet<String>,
    /// Those that are not among the columns yet.
    branches: Vec<Option<Branch>>,
    /// Index of each branch by its id.
    ids: HashMap<usize, usize>,
    /// Number of classes that are being read.
    depth: usize,
    /// Number of blocks so far.
    blocks: u64,
    /// Bytes of the names of the columns so far.
    name_bytes: u64,
}

impl<'a> TreeReader<'a> {
    /// Reads an object of a class with its byte count, and adds its members.
    fn class(&mut self, class: &str, members: &mut Members<'a>) -> Result<()> {
        if self.depth == MAX_CLASS_DEPTH {
            return Err(damaged(format!("its objects are nested more than {MAX_CLASS_DEPTH} times")));
        }
        self.depth += 1;
        let read = self.class_here(class, members);
        self.depth -= 1;
        read
    }

    fn class_here(&mut self, class: &str, members: &mut Members<'a>) -> Result<()> {
        let frame = self.objects.frame()?;
        let streamers: &'a Streamers = self.streamers;
        let Some(elements) = streamers.elements(class, frame.version) else {
            return self.unknown_class(class, frame);
        };
        for element in elements {
            self.element(element, members)?;
            // All branches were read: what follows is not used.
            if class == "TTree" && members.branches.is_some() {
                break;
            }
        }
        self.objects.end(frame)
    }

    fn unknown_class(&mut self, class: &str, frame: Frame) -> Result<()> {
        let is_needed = class == "TTree" || self.branch_classes.contains(class);
        match frame.end {
            Some(_) if !is_needed => self.objects.end(frame),
            _ => Err(unsupported(format!("version {} of {class}, which the file does not describe", frame.version))),
        }
    }

    fn element(&mut self, element: &'a Element, members: &mut Members<'a>) -> Result<()> {
        let name = &element.name;
        match &element.member {
            Member::Object => self.objects.tobject(),
            Member::Base if name == "TObject" => self.objects.tobject(),
            Member::Base if name != "TNamed" => self.class(name, members),
            Member::Base | Member::Named => {
                members.name = self.objects.named()?;
                Ok(())
            }
            Member::Text => {
                let text = self.objects.cursor.string()?;
                if name == "fFileName" {
                    members.file_name = text;
                }
                Ok(())
            }
            Member::Number(number) => {
                let integer = self.number(*number)?;
                members.integers.insert(name, integer);
                Ok(())
            }
            Member::Numbers(number, count) => {
                self.objects.cursor.skip(usize::from(number.bytes).saturating_mul(*count))
            }
            Member::Counted(number, count) => self.counted(name, *number, count, members),
            Member::Class(class) => self.member_class(name, class, members),
            Member::Pointer => {
                let pointer = self.objects.pointer()?;
                self.pointed(pointer).map(drop)
            }
            Member::Other(kind) => Err(unsupported(format!("the member {name} of type {kind}"))),
        }
    }

    /// Reads a number; of one with a fraction the integer part.
    fn number(&mut self, number: Number) -> Result<i64> {
        let bytes = self.objects.cursor.take(usize::from(number.bytes))?;
        let is_negative = number.is_signed && bytes.first().is_some_and(|byte| byte & 0x80 != 0);
        let start = if is_negative && !number.is_float { -1 } else { 0 };
        let value = bytes.iter().fold(start, |value, byte| value << 8 | i64::from(*byte));
        Ok(match (number.is_float, number.bytes) {
            (true, 4) => f32::from_bits(value as u32) as i64,
            (true, _) => f64::from_bits(value as u64) as i64,
            (false, _) => value,
        })
    }

    /// Reads an array whose length another member says.
    fn counted(&mut self, name: &'a str, number: Number, count: &str, members: &mut Members<'a>) -> Result<()> {
        let count = members.integers.get(count).copied().unwrap_or_default();
        let (number, count) = match self.objects.cursor.u8()? {
            0 => (number, 0),
            LONG_SEEKS if name == "fBasketSeek" => (Number { bytes: 8, ..number }, count),
            _ => (number, count),
        };
        let count = usize::try_from(count).unwrap_or_default();
        if !name.starts_with("fBasket") {
            return self.objects.cursor.skip(count.saturating_mul(usize::from(number.bytes)));
        }
        if count.saturating_mul(usize::from(number.bytes)) > self.objects.cursor.remaining() {
            return Err(damaged(format!("the array {name} is longer than its object")));
        }
        let values = (0..count).map(|_| self.number(number));
        let values = values.collect::<Result<_>>()?;
        members.arrays.insert(name, values);
        Ok(())
    }

    fn member_class(&mut self, name: &str, class: &str, members: &mut Members<'a>) -> Result<()> {
        match class {
            _ if SKIPPED.contains(&name) => self.objects.skip(),
            "TObjArray" if name == "fBranches" => {
                members.branches = Some(self.branch_list()?);
                Ok(())
            }
            "TString" => self.objects.cursor.string().map(drop),
            "TArrayC" => self.array_of(1),
            "TArrayS" => self.array_of(2),
            "TArrayI" | "TArrayF" => self.array_of(4),
            "TArrayL" | "TArrayL64" | "TArrayD" => self.array_of(8),
            _ => self.objects.skip(),
        }
    }

    /// Skips an array that begins with its length.
    fn array_of(&mut self, bytes: usize) -> Result<()> {
        let count = self.objects.cursor.u32()? as usize;
        self.objects.cursor.skip(count.saturating_mul(bytes))
    }

    /// Reads a list of branches, and returns their ids.
    fn branch_list(&mut self) -> Result<Vec<usize>> {
        let (frame, count) = self.objects.array()?;
        let mut found = Vec::new();
        for _ in 0..count {
            let pointer = self.objects.pointer()?;
            found.extend(self.pointed(pointer)?);
        }
        self.objects.end(frame)?;
        Ok(found)
    }

    /// Reads the object of a pointer, if it is a branch. Returns its id.
    fn pointed(&mut self, pointer: Pointer) -> Result<Option<usize>> {
        let (class, id, end) = match pointer {
            Pointer::Null => return Ok(None),
            Pointer::Reference(id) => return Ok(Some(id)),
            Pointer::Object { class, id, end } => (class, id, end),
        };
        if let Some(class) = class.filter(|class| self.branch_classes.contains(&**class)) {
            // References to it can come before its end.
            let index = self.branches.len();
            self.branches.push(None);
            self.ids.insert(id, index);
            let mut members = Members::default();
            self.class(&class, &mut members)?;
            let branch = branch(members)?;
            self.blocks += branch.blocks.len() as u64;
            check_limit("blocks of a tree", self.blocks, MAX_BLOCKS)?;
            if let Some(place) = self.branches.get_mut(index) {
                *place = Some(branch);
            }
        }
        self.objects.cursor.skip_to(end)?;
        Ok(Some(id))
    }

    /// Appends the columns of branches, and of the branches in them.
    fn columns(&mut self, outer: &str, branches: &[usize], depth: usize, columns: &mut Vec<Column>) -> Result<()> {
        if depth == MAX_DEPTH {
            return Err(damaged(format!("branches are nested more than {MAX_DEPTH} times")));
        }
        for id in branches {
            let place = self.ids.get(id).and_then(|index| self.branches.get_mut(*index));
            let place = place.ok_or_else(|| unsupported("a branch of an unknown class"))?;
            let branch = place.take().ok_or_else(|| damaged("a branch in two places"))?;
            let name = joined(outer, &branch.name);
            self.name_bytes += name.len() as u64;
            check_limit("bytes of column names", self.name_bytes, MAX_NAME_BYTES)?;
            columns.push(Column { name: name.clone(), blocks: branch.blocks, entries: branch.entries });
            self.columns(&name, &branch.branches, depth + 1, columns)?;
        }
        Ok(())
    }
}

/// Returns a branch with its baskets in the file. Baskets in the object of the tree have no position.
fn branch(members: Members<'_>) -> Result<Branch> {
    let Members { name, integers, arrays, file_name, branches } = members;
    let entries = integers.get("fEntries").copied().unwrap_or_default();
    let last = integers.get("fWriteBasket").copied().unwrap_or_default();
    let of = |name: &str| arrays.get(name).map(Vec::as_slice).unwrap_or_default();
    let baskets = of("fBasketSeek").iter().zip(of("fBasketBytes")).zip(of("fBasketEntry"));
    let mut blocks = Vec::new();
    for ((seek, bytes), entry) in baskets.take(usize::try_from(last).unwrap_or_default().saturating_add(1)) {
        // Baskets of another file are not in this one.
        if *seek != 0 && *bytes != 0 && file_name.is_empty() {
            let numbers = (u64::try_from(*entry), u64::try_from(*seek), u32::try_from(*bytes));
            let (Ok(first_entry), Ok(offset), Ok(length)) = numbers else {
                return Err(damaged(format!("a basket of {name} has a negative position")));
            };
            blocks.push(Block { first_entry, offset, length });
        }
    }
    Ok(Branch {
        name,
        blocks,
        entries: u64::try_from(entries).unwrap_or_default(),
        branches: branches.unwrap_or_default(),
    })
}
