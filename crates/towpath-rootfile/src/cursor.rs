//! Reader of values from bytes, within their bounds.

use crate::error::{Result, damaged};

/// A position in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Defines methods that read a number of one type.
macro_rules! numbers {
    ($($name:ident $type:ty, $from:ident;)*) => {$(
        pub(crate) fn $name(&mut self) -> Result<$type> {
            let bytes = self.take(size_of::<$type>())?;
            Ok(<$type>::$from(bytes.try_into().unwrap_or_default()))
        }
    )*};
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    // Big-endian, as in all of a ROOT file but the envelopes of RNTuple.
    numbers! {
        u8 u8, from_be_bytes;
        u16 u16, from_be_bytes;
        i32 i32, from_be_bytes;
        u32 u32, from_be_bytes;
        u64 u64, from_be_bytes;
        u16_le u16, from_le_bytes;
        i32_le i32, from_le_bytes;
        u32_le u32, from_le_bytes;
        i64_le i64, from_le_bytes;
        u64_le u64, from_le_bytes;
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or_else(ends_early)?;
        let bytes = self.bytes.get(self.at..end).ok_or_else(ends_early)?;
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn skip(&mut self, length: usize) -> Result<()> {
        self.take(length).map(drop)
    }

    /// Moves forward to a position.
    pub(crate) fn skip_to(&mut self, position: usize) -> Result<()> {
        let length = position.checked_sub(self.at).ok_or_else(|| damaged("an object is longer than its byte count"))?;
        self.skip(length)
    }

    /// Reads a seek position of 32 or 64 bits.
    pub(crate) fn seek(&mut self, is_long: bool) -> Result<u64> {
        if is_long { self.u64() } else { self.u32().map(u64::from) }
    }

    /// Reads a `TString`: its length in one byte, or 255 and then in four.
    pub(crate) fn string(&mut self) -> Result<String> {
        let length = match self.u8()? {
            u8::MAX => self.u32()? as usize,
            short => usize::from(short),
        };
        self.take(length).map(text)
    }

    /// Reads a string that ends with a zero byte.
    pub(crate) fn c_string(&mut self) -> Result<String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == 0).ok_or_else(ends_early)?;
        let bytes = self.take(length)?;
        self.skip(1)?;
        Ok(text(bytes))
    }
}

fn ends_early() -> crate::Error {
    damaged("its metadata end too early")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
