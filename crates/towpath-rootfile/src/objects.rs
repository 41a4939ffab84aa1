//! Framing of ROOT's serialized objects: byte counts, versions, class tags, and references to earlier objects.

use std::{collections::HashMap, sync::Arc};

use crate::{
    cursor::Cursor,
    error::{Result, damaged, unsupported},
};

/// Marks a byte count.
const BYTE_COUNT: u32 = 0x4000_0000;
/// The tag of an object whose class name follows.
const NEW_CLASS: u32 = 0xffff_ffff;
/// Marks a tag that refers to the class of an earlier object.
const CLASS_REFERENCE: u32 = 0x8000_0000;
/// Offset of positions in tags.
const MAP_OFFSET: usize = 2;
/// In the version of a TObject: a byte count follows.
const VERSION_HAS_BYTE_COUNT: u16 = 0x4000;
/// In the bits of a TObject: the number of a process follows.
const IS_REFERENCED: u32 = 1 << 4;

/// The version of a serialized class, and where its bytes end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) version: u16,
    /// Missing if the writer recorded no byte count.
    pub(crate) end: Option<usize>,
}

/// A pointer to an object, or an object in a collection.
#[derive(Debug)]
pub(crate) enum Pointer {
    Null,
    /// An object that begins here.
    Object {
        /// Its class; missing if it is that of an object that was skipped.
        class: Option<Arc<str>>,
        /// Position to which later references refer.
        id: usize,
        end: usize,
    },
    /// An earlier object.
    Reference(usize),
}

/// Reads serialized objects.
#[derive(Debug)]
pub(crate) struct Objects<'a> {
    pub(crate) cursor: Cursor<'a>,
    /// Number of bytes before these: positions count from the start of the key.
    key_bytes: usize,
    /// Names of classes by position of their first object.
    classes: HashMap<usize, Arc<str>>,
}

impl<'a> Objects<'a> {
    /// Reads the object of a key with `key_bytes`.
    pub(crate) fn new(object: &'a [u8], key_bytes: u16) -> Self {
        Self { cursor: Cursor::new(object), key_bytes: usize::from(key_bytes), classes: HashMap::new() }
    }

    /// Reads the byte count and the version of a class.
    pub(crate) fn frame(&mut self) -> Result<Frame> {
        let mut ahead = self.cursor.clone();
        let word = ahead.u32().unwrap_or_default();
        if word & BYTE_COUNT == 0 {
            return Ok(Frame { version: self.cursor.u16()?, end: None });
        }
        self.cursor = ahead;
        let end = self.cursor.at().checked_add((word & !BYTE_COUNT) as usize);
        Ok(Frame { version: self.cursor.u16()?, end })
    }

    /// Moves behind a class.
    pub(crate) fn end(&mut self, frame: Frame) -> Result<()> {
        frame.end.map_or(Ok(()), |end| self.cursor.skip_to(end))
    }

    /// Reads and skips a class with a byte count.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let frame = self.frame()?;
        match frame.end {
            Some(_) => self.end(frame),
            None => Err(unsupported("an object without a byte count, as ROOT before version 3 wrote it")),
        }
    }

    /// Reads a TObject.
    pub(crate) fn tobject(&mut self) -> Result<()> {
        if self.cursor.u16()? & VERSION_HAS_BYTE_COUNT != 0 {
            self.cursor.skip(4)?;
        }
        let _id = self.cursor.u32()?;
        if self.cursor.u32()? & IS_REFERENCED != 0 {
            self.cursor.skip(2)?;
        }
        Ok(())
    }

    /// Reads a TNamed, and returns its name.
    pub(crate) fn named(&mut self) -> Result<String> {
        let frame = self.frame()?;
        self.tobject()?;
        let name = self.cursor.string()?;
        let _title = self.cursor.string()?;
        self.end(frame)?;
        Ok(name)
    }

    /// Reads the tag of a pointer. The object of [`Pointer::Object`] follows, and the caller reads or skips it.
    pub(crate) fn pointer(&mut self) -> Result<Pointer> {
        let id = self.position();
        let word = self.cursor.u32()?;
        if word & BYTE_COUNT == 0 || word == NEW_CLASS {
            return match word {
                0 => Ok(Pointer::Null),
                reference if reference & CLASS_REFERENCE == 0 => Ok(Pointer::Reference(reference as usize)),
                _ => Err(unsupported("an object without a byte count, as ROOT before version 3 wrote it")),
            };
        }
        let end = self.cursor.at().checked_add((word & !BYTE_COUNT) as usize).ok_or_else(|| damaged("a byte count"))?;
        let class_id = self.position();
        let class = match self.cursor.u32()? {
            NEW_CLASS => {
                let class: Arc<str> = self.cursor.c_string()?.into();
                self.classes.insert(class_id, Arc::clone(&class));
                Some(class)
            }
            tag if tag & CLASS_REFERENCE != 0 => self.classes.get(&((tag & !CLASS_REFERENCE) as usize)).cloned(),
            // A reference with a byte count.
            reference => {
                self.cursor.skip_to(end)?;
                return Ok(Pointer::Reference(reference as usize));
            }
        };
        Ok(Pointer::Object { class, id, end })
    }

    /// Reads the start of a TObjArray. Returns its frame, and the number of pointers that follow.
    pub(crate) fn array(&mut self) -> Result<(Frame, u32)> {
        let frame = self.frame()?;
        if frame.version > 2 {
            self.tobject()?;
        }
        if frame.version > 1 {
            let _name = self.cursor.string()?;
        }
        let count = self.cursor.u32()?;
        let _lower_bound = self.cursor.i32()?;
        Ok((frame, count))
    }

    /// Reads the start of a TList. Returns its frame, and the number of pointers that follow, each with a string behind
    /// its object.
    pub(crate) fn list(&mut self) -> Result<(Frame, u32)> {
        let frame = self.frame()?;
        self.tobject()?;
        let _name = self.cursor.string()?;
        Ok((frame, self.cursor.u32()?))
    }

    fn position(&self) -> usize {
        self.cursor.at() + self.key_bytes + MAP_OFFSET
    }
}
