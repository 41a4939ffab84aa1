//! Streamer information: the members of each class, as the file describes them. It makes the reader of trees independent
//! of the versions of their classes.

use std::collections::{HashMap, HashSet};

use crate::{
    error::{Result, check_limit, unsupported},
    objects::{Objects, Pointer},
};

/// Maximum number of members of a class. TTree has 34.
const MAX_MEMBERS: u64 = 10_000;

/// What follows in the bytes for a member of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Member {
    /// A base class.
    Base,
    /// A scalar.
    Number(Number),
    /// An array of fixed length.
    Numbers(Number, usize),
    /// A byte, and an array whose length is the member of this name.
    Counted(Number, String),
    /// A string.
    Text,
    /// A TObject.
    Object,
    /// A TNamed.
    Named,
    /// An object of a class.
    Class(String),
    /// A pointer to an object.
    Pointer,
    /// Another member, which this crate does not read.
    Other(i32),
}

/// Type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) bytes: u8,
    pub(crate) is_signed: bool,
    pub(crate) is_float: bool,
}

/// A member of a class.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) member: Member,
}

/// The members of the classes of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streamers(HashMap<String, HashMap<u16, Vec<Element>>>);

impl Streamers {
    /// Parses the streamer information, a TList of TStreamerInfo, from its object and the length of its key.
    pub(crate) fn parse(object: &[u8], key_bytes: u16) -> Result<Self> {
        let mut streamers = Self::default();
        let mut objects = Objects::new(object, key_bytes);
        let (_, count) = objects.list()?;
        for _ in 0..count {
            if let Pointer::Object { class, end, .. } = objects.pointer()? {
                if class.as_deref() == Some("TStreamerInfo") {
                    streamers.add(&mut objects)?;
                }
                objects.cursor.skip_to(end)?;
            }
            let _option = objects.cursor.string()?;
        }
        Ok(streamers)
    }

    fn add(&mut self, objects: &mut Objects<'_>) -> Result<()> {
        let frame = objects.frame()?;
        let name = objects.named()?;
        let _checksum = objects.cursor.u32()?;
        let version = objects.cursor.i32()?;
        let mut elements = Vec::new();
        if let Pointer::Object { end, .. } = objects.pointer()? {
            let (_, count) = objects.array()?;
            check_limit("members of a class", u64::from(count), MAX_MEMBERS)?;
            for _ in 0..count {
                if let Pointer::Object { class, end, .. } = objects.pointer()? {
                    let class = class.ok_or_else(|| unsupported("an element of an unknown class"))?;
                    elements.push(element(objects, &class)?);
                    objects.cursor.skip_to(end)?;
                }
            }
            objects.cursor.skip_to(end)?;
        }
        self.0.entry(name).or_default().insert(u16::try_from(version).unwrap_or_default(), elements);
        objects.end(frame)
    }

    /// Returns the members of a class.
    pub(crate) fn elements(&self, class: &str, version: u16) -> Option<&[Element]> {
        self.0.get(class)?.get(&version).map(Vec::as_slice)
    }

    /// Returns `base` and all classes that derive from it.
    pub(crate) fn derived(&self, base: &str) -> HashSet<String> {
        let mut derived: HashMap<&str, Vec<&str>> = HashMap::new();
        for (class, versions) in &self.0 {
            let elements = versions.values().flatten().filter(|element| element.member == Member::Base);
            elements.for_each(|element| derived.entry(&element.name).or_default().push(class));
        }
        let mut found = HashSet::from([base.to_owned()]);
        let mut waiting = vec![base];
        while let Some(class) = waiting.pop() {
            let classes = derived.get(class).into_iter().flatten();
            waiting.extend(classes.filter(|class| found.insert((**class).to_owned())));
        }
        found
    }
}

/// Reads an element of a class.
fn element(objects: &mut Objects<'_>, class: &str) -> Result<Element> {
    let own = objects.frame()?;
    if class == "TStreamerSTLstring" {
        // Its base class is TStreamerSTL, that of the others TStreamerElement.
        let _stl = objects.frame()?;
    }
    let base = objects.frame()?;
    let name = objects.named()?;
    let kind = objects.cursor.i32()?;
    let _size = objects.cursor.i32()?;
    let length = objects.cursor.i32()?;
    let _dimensions = objects.cursor.i32()?;
    let bounds = if base.version == 1 { objects.cursor.u32()? } else { 5 };
    objects.cursor.skip(4 * bounds as usize)?;
    let type_name = objects.cursor.string()?;
    objects.end(base)?;
    let count = match class {
        "TStreamerBasicPointer" | "TStreamerLoop" => {
            let _version = objects.cursor.i32()?;
            objects.cursor.string()?
        }
        _ => String::new(),
    };
    objects.end(own)?;
    Ok(Element { name, member: member(kind, length, type_name, count) })
}

/// Returns what a member of type `kind` is (the values of `TVirtualStreamerInfo::EReadWrite`).
fn member(kind: i32, length: i32, type_name: String, count: String) -> Member {
    let other = Member::Other(kind);
    match kind {
        0 => Member::Base,
        1..=19 => number(kind).map_or(other, Member::Number),
        21..=39 => {
            number(kind - 20).map_or(other, |number| Member::Numbers(number, usize::try_from(length).unwrap_or(0)))
        }
        41..=59 => number(kind - 40).map_or(other, |number| Member::Counted(number, count)),
        61 | 62 => Member::Class(type_name),
        64 => Member::Pointer,
        65 => Member::Text,
        66 => Member::Object,
        67 => Member::Named,
        _ => other,
    }
}

/// Returns the number of a basic type.
fn number(kind: i32) -> Option<Number> {
    let (bytes, is_signed, is_float) = match kind {
        1 => (1, true, false),
        2 => (2, true, false),
        3 | 6 => (4, true, false),
        4 | 16 => (8, true, false),
        5 => (4, true, true),
        8 => (8, true, true),
        11 | 18 => (1, false, false),
        12 => (2, false, false),
        13 | 15 => (4, false, false),
        14 | 17 => (8, false, false),
        _ => return None,
    };
    Some(Number { bytes, is_signed, is_float })
}
