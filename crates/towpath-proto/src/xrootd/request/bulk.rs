//! Requests that transfer file data.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, Reader};
use crate::xrootd::{DecodeError, FileHandle, PageFlags, PathId, RequestCode, WritevOptions};

/// `read`: one range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// The file.
    pub handle: FileHandle,
    /// Start of the range, in bytes; at most `i64::MAX`.
    pub offset: u64,
    /// Length in bytes; at most `i32::MAX`.
    pub length: u32,
    /// Connection of the session for the response.
    pub path_id: PathId,
}

impl Read {
    /// Length of the payload that contains a path id, in bytes: the id and seven reserved bytes.
    const ARGS_LEN: usize = 8;
}

impl Layout for Read {
    const CODE: RequestCode = RequestCode::read;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            handle: p.handle(4),
            offset: p.offset(8, "offset")?,
            length: p.length(16, "length")?,
            path_id: PathId(payload.first().copied().unwrap_or(0)),
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.handle.0).put(8, self.offset.to_be_bytes()).put(16, self.length.to_be_bytes());
        if self.path_id != PathId::MAIN {
            payload.put_u8(self.path_id.0);
            payload.put_bytes(0, Self::ARGS_LEN - 1);
        }
    }
}

/// `pgread`: one range of a file, each page preceded by its CRC32C.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgRead {
    /// The file.
    pub handle: FileHandle,
    /// Start of the range, in bytes; at most `i64::MAX`.
    pub offset: u64,
    /// Length in bytes of the file, without checksums; 1 to `i32::MAX`.
    pub length: u32,
    /// Connection of the session for the response.
    pub path_id: PathId,
    /// Whether this is a retry.
    pub flags: PageFlags,
}

impl Layout for PgRead {
    const CODE: RequestCode = RequestCode::pgread;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        let length = p.length(16, "length")?;
        if length == 0 {
            return Err(DecodeError::Invalid { what: "length" });
        }
        Ok(Self {
            handle: p.handle(4),
            offset: p.offset(8, "offset")?,
            length,
            path_id: PathId(payload.first().copied().unwrap_or(0)),
            flags: PageFlags(payload.get(1).copied().unwrap_or(0)),
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.handle.0).put(8, self.offset.to_be_bytes()).put(16, self.length.to_be_bytes());
        if self.path_id != PathId::MAIN || self.flags != PageFlags::NONE {
            payload.put_slice(&[self.path_id.0, self.flags.0]);
        }
    }
}

/// `write`: one range of a file. `length` bytes of data follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Write {
    /// The file.
    pub handle: FileHandle,
    /// Start of the range, in bytes; at most `i64::MAX`.
    pub offset: u64,
    /// Connection of the session that carries the data.
    pub path_id: PathId,
    /// Number of data bytes that follow: `dlen`.
    pub length: u32,
}

impl Layout for Write {
    const CODE: RequestCode = RequestCode::write;

    fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self { handle: p.handle(4), offset: p.offset(8, "offset")?, path_id: PathId(p.u8(16)), length: header.dlen })
    }

    fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
        parameters.put(4, self.handle.0).put(8, self.offset.to_be_bytes()).put(16, [self.path_id.0]);
    }

    fn data_len(&self) -> u32 {
        self.length
    }
}

/// `pgwrite`: one range of a file, each page preceded by its CRC32C. `length` bytes follow, in the layout of the
/// [`page`](crate::xrootd::page) module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgWrite {
    /// The file.
    pub handle: FileHandle,
    /// Start of the range, in bytes; at most `i64::MAX`.
    pub offset: u64,
    /// Connection of the session that carries the data.
    pub path_id: PathId,
    /// Whether this is a retry of a bad page.
    pub flags: PageFlags,
    /// Number of bytes that follow, including checksums: `dlen`.
    pub length: u32,
}

impl Layout for PgWrite {
    const CODE: RequestCode = RequestCode::pgwrite;

    fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            handle: p.handle(4),
            offset: p.offset(8, "offset")?,
            path_id: PathId(p.u8(16)),
            flags: PageFlags(p.u8(17)),
            length: header.dlen,
        })
    }

    fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
        parameters.put(4, self.handle.0).put(8, self.offset.to_be_bytes()).put(16, [self.path_id.0, self.flags.0]);
    }

    fn data_len(&self) -> u32 {
        self.length
    }
}

/// One range of a vector: 16 bytes on the wire, in requests and in the response to `readv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VectorElement {
    /// The file.
    pub handle: FileHandle,
    /// Length in bytes; at most `i32::MAX`.
    pub length: u32,
    /// Start of the range, in bytes; at most `i64::MAX`.
    pub offset: u64,
}

impl VectorElement {
    /// Length of an element on the wire in bytes.
    pub const LEN: usize = 16;

    pub(in crate::xrootd) fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            handle: FileHandle(reader.array("element")?),
            length: reader.length("element length")?,
            offset: reader.offset("element offset")?,
        })
    }

    /// Returns the encoded element, which precedes its data in the response to `readv`.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [h0, h1, h2, h3] = self.handle.0;
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let [o0, o1, o2, o3, o4, o5, o6, o7] = self.offset.to_be_bytes();
        [h0, h1, h2, h3, l0, l1, l2, l3, o0, o1, o2, o3, o4, o5, o6, o7]
    }

    /// Appends the element's 16 bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.to_bytes());
    }

    fn decode_all(payload: Bytes) -> Result<Vec<Self>, DecodeError> {
        if !payload.len().is_multiple_of(Self::LEN) {
            return Err(DecodeError::Invalid { what: "vector length" });
        }
        let mut elements = Vec::with_capacity(payload.len() / Self::LEN);
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            elements.push(Self::read(&mut reader)?);
        }
        if elements.is_empty() { Err(DecodeError::Missing { what: "vector" }) } else { Ok(elements) }
    }
}

/// A range of a `readv`, as opposed to one of a `writev`.
pub type ReadElement = VectorElement;

/// Returns the total length of all elements in bytes.
#[must_use]
pub fn vector_bytes(elements: &[VectorElement]) -> u64 {
    elements.iter().fold(0, |sum, element| sum.saturating_add(u64::from(element.length)))
}

/// `readv`: many ranges, of one or several files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readv {
    /// Connection of the session for the response.
    pub path_id: PathId,
    /// The ranges, in the order of the response. The server limits their number; in practice to 1024.
    pub elements: Vec<VectorElement>,
}

impl Layout for Readv {
    const CODE: RequestCode = RequestCode::readv;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { path_id: PathId(header.parameters.u8(19)), elements: VectorElement::decode_all(payload)? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(19, [self.path_id.0]);
        payload.reserve(self.elements.len().saturating_mul(VectorElement::LEN));
        self.elements.iter().for_each(|element| element.encode(payload));
    }
}

/// `writev`: many ranges. The data of all elements follow back to back, beyond `dlen`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writev {
    /// Whether to flush to stable storage afterwards.
    pub options: WritevOptions,
    /// The ranges, in the order of their data.
    pub elements: Vec<VectorElement>,
}

impl Layout for Writev {
    const CODE: RequestCode = RequestCode::writev;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { options: WritevOptions(header.parameters.u8(4)), elements: VectorElement::decode_all(payload)? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, [self.options.0]);
        payload.reserve(self.elements.len().saturating_mul(VectorElement::LEN));
        self.elements.iter().for_each(|element| element.encode(payload));
    }

    fn trailing_len(&self) -> u64 {
        vector_bytes(&self.elements)
    }
}
