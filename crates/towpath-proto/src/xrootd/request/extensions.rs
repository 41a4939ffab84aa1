//! Requests that are decoded only so that they can be rejected: checkpoints, server-side copies of ranges, whole files.
//! The stream must remain in step, so their data are counted.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, Reader};
use crate::xrootd::{CheckpointCode, DecodeError, FileHandle, RequestCode};

/// `chkpoint`: updates of a file that can be rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chkpoint {
    /// The file.
    pub handle: FileHandle,
    /// The operation.
    pub operation: Checkpoint,
}

/// Operation of a `chkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// Begin, commit, query or roll back.
    Control(CheckpointCode),
    /// Execute the request with this header; its payload follows beyond `dlen`.
    Execute(RequestHeader),
}

impl Layout for Chkpoint {
    const CODE: RequestCode = RequestCode::chkpoint;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let handle = header.parameters.handle(4);
        let operation = match CheckpointCode(header.parameters.u8(19)) {
            CheckpointCode::ckpXeq => {
                let nested = RequestHeader::decode(&Reader::new(payload).array("checkpointed request")?)?;
                Checkpoint::Execute(nested)
            }
            code => Checkpoint::Control(code),
        };
        Ok(Self { handle, operation })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.handle.0);
        match &self.operation {
            Checkpoint::Control(code) => {
                parameters.put(19, [code.0]);
            }
            Checkpoint::Execute(nested) => {
                parameters.put(19, [CheckpointCode::ckpXeq.0]);
                nested.encode(payload);
            }
        }
    }

    fn trailing_len(&self) -> u64 {
        match &self.operation {
            Checkpoint::Control(_) => 0,
            Checkpoint::Execute(nested) => u64::from(nested.dlen),
        }
    }
}

/// `clone`: copy ranges between open files within the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloneRanges {
    /// The destination file.
    pub destination: FileHandle,
    /// The ranges.
    pub elements: Vec<CloneElement>,
}

/// One range of a `clone`: 32 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneElement {
    /// The source file.
    pub source: FileHandle,
    /// Start of the range in the source, in bytes.
    pub source_offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Start of the range in the destination, in bytes.
    pub destination_offset: u64,
}

impl CloneElement {
    /// Length of an element on the wire in bytes.
    pub const LEN: usize = 32;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let source = FileHandle(reader.array("clone element")?);
        reader.u32("clone element")?;
        Ok(Self {
            source,
            source_offset: reader.offset("source offset")?,
            length: reader.offset("clone length")?,
            destination_offset: reader.offset("destination offset")?,
        })
    }
}

impl Layout for CloneRanges {
    const CODE: RequestCode = RequestCode::clone;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let mut elements = Vec::with_capacity(payload.len() / CloneElement::LEN);
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            elements.push(CloneElement::read(&mut reader)?);
        }
        Ok(Self { destination: header.parameters.handle(4), elements })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.destination.0);
        for element in &self.elements {
            payload.put_slice(&element.source.0);
            payload.put_u32(0);
            payload.put_u64(element.source_offset);
            payload.put_u64(element.length);
            payload.put_u64(element.destination_offset);
        }
    }
}

/// `gpfile`: reserved by the protocol; kept undecoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpfile {
    /// Bytes 4-19.
    pub parameters: Parameters,
    /// The bytes after the header.
    pub payload: Bytes,
}

impl Layout for Gpfile {
    const CODE: RequestCode = RequestCode::gpfile;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { parameters: header.parameters, payload })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        *parameters = self.parameters;
        payload.put_slice(&self.payload);
    }
}
