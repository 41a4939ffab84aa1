//! The `fattr` request: extended attributes of a file.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, Reader};
use crate::xrootd::{DecodeError, FileHandle, PathAndCgi, RequestCode, Target};

/// `fattr`: read, set, list or remove extended attributes. Names are those of user attributes, without a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fattr {
    /// The file.
    pub target: Target,
    /// The operation.
    pub operation: FattrOperation,
}

/// Operation of a `fattr`, with at most [`Fattr::MAX_ATTRIBUTES`] names per request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FattrOperation {
    /// Remove the attributes with these names.
    Del(Vec<Bytes>),
    /// Read the attributes with these names.
    Get(Vec<Bytes>),
    /// List the names of all attributes.
    List {
        /// Whether to include the values.
        values: bool,
    },
    /// Set attributes.
    Set {
        /// Fail for existing attributes.
        new: bool,
        /// Names and values.
        attributes: Vec<(Bytes, Bytes)>,
    },
}

impl Fattr {
    /// Maximum number of names in a request.
    pub(crate) const MAX_ATTRIBUTES: u8 = 16;
    /// Maximum length of a name in bytes.
    pub const MAX_NAME_BYTES: usize = 248;
    /// Maximum length of a value in bytes.
    pub const MAX_VALUE_BYTES: usize = 65536;

    const DEL: u8 = 0;
    const GET: u8 = 1;
    const LIST: u8 = 2;
    const SET: u8 = 3;
    const OPTION_NEW: u8 = 0x01;
    const OPTION_VALUES: u8 = 0x10;
}

impl FattrOperation {
    /// Returns bytes 8-10: subcode, number of names and options.
    fn parameters(&self) -> [u8; 3] {
        let count = |names: usize| u8::try_from(names).unwrap_or(u8::MAX);
        match self {
            Self::Del(names) => [Fattr::DEL, count(names.len()), 0],
            Self::Get(names) => [Fattr::GET, count(names.len()), 0],
            Self::List { values } => [Fattr::LIST, 0, if *values { Fattr::OPTION_VALUES } else { 0 }],
            Self::Set { new, attributes } => {
                [Fattr::SET, count(attributes.len()), if *new { Fattr::OPTION_NEW } else { 0 }]
            }
        }
    }
}

/// Reads `count` names, each preceded by a uint16 that has no meaning in a request.
fn read_names(reader: &mut Reader, count: u8) -> Result<Vec<Bytes>, DecodeError> {
    if count == 0 {
        return Err(DecodeError::Missing { what: "attribute name" });
    }
    if count > Fattr::MAX_ATTRIBUTES {
        let limit = u64::from(Fattr::MAX_ATTRIBUTES);
        return Err(DecodeError::TooLong { what: "attribute list", bytes: u64::from(count), limit });
    }
    (0..count).map(|_| read_name(reader)).collect()
}

fn read_name(reader: &mut Reader) -> Result<Bytes, DecodeError> {
    reader.u16("attribute name")?;
    let name = reader.until_nul("attribute name")?;
    match name.len() {
        0 => Err(DecodeError::Missing { what: "attribute name" }),
        1..=Fattr::MAX_NAME_BYTES => Ok(name),
        length => Err(DecodeError::TooLong {
            what: "attribute name",
            bytes: length as u64,
            limit: Fattr::MAX_NAME_BYTES as u64,
        }),
    }
}

fn read_value(reader: &mut Reader) -> Result<Bytes, DecodeError> {
    let length = reader.length("attribute value")? as usize;
    if length > Fattr::MAX_VALUE_BYTES {
        let limit = Fattr::MAX_VALUE_BYTES as u64;
        return Err(DecodeError::TooLong { what: "attribute value", bytes: length as u64, limit });
    }
    reader.take(length, "attribute value")
}

fn put_name(payload: &mut BytesMut, name: &[u8]) {
    payload.put_u16(0);
    payload.put_slice(name);
    payload.put_u8(0);
}

impl Layout for Fattr {
    const CODE: RequestCode = RequestCode::fattr;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let [subcode, count, options] = header.parameters.bytes(8);
        let handle = header.parameters.handle(4);
        let mut reader = Reader::new(payload);
        let target = read_target(&mut reader, handle)?;
        let operation = match subcode {
            Self::DEL => FattrOperation::Del(read_names(&mut reader, count)?),
            Self::GET => FattrOperation::Get(read_names(&mut reader, count)?),
            Self::LIST => FattrOperation::List { values: options & Self::OPTION_VALUES != 0 },
            Self::SET => {
                let names = read_names(&mut reader, count)?;
                let attributes = names.into_iter().map(|name| Ok((name, read_value(&mut reader)?)));
                let attributes = attributes.collect::<Result<_, DecodeError>>()?;
                FattrOperation::Set { new: options & Self::OPTION_NEW != 0, attributes }
            }
            _ => return Err(DecodeError::Invalid { what: "fattr subcode" }),
        };
        Ok(Self { target, operation })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.target.handle().0).put(8, self.operation.parameters());
        self.target.encode(payload);
        payload.put_u8(0);
        match &self.operation {
            FattrOperation::Del(names) | FattrOperation::Get(names) => {
                names.iter().for_each(|name| put_name(payload, name));
            }
            FattrOperation::List { .. } => {}
            FattrOperation::Set { attributes, .. } => {
                attributes.iter().for_each(|(name, _)| put_name(payload, name));
                for (_, value) in attributes {
                    payload.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
                    payload.put_slice(value);
                }
            }
        }
    }
}

/// Reads the path at the start of the payload; the handle applies if it is missing or empty.
fn read_target(reader: &mut Reader, handle: FileHandle) -> Result<Target, DecodeError> {
    if reader.is_empty() {
        return Ok(Target::Handle(handle));
    }
    let path = reader.until_nul("path")?;
    if path.is_empty() { Ok(Target::Handle(handle)) } else { Ok(Target::Path(PathAndCgi::decode(path)?)) }
}
