//! The extended response: a body with a checksum, followed by data beyond `dlen`.

use bytes::{BufMut, Bytes, BytesMut};

use super::ResponseHeader;
use crate::xrootd::page::{Page, crc32c};
use crate::xrootd::wire::{Reader, non_negative_i32};
use crate::xrootd::{DecodeError, RequestCode, Status, StreamId};

/// Whether more responses follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusKind {
    /// The last response to the request.
    Final,
    /// More responses to the request follow.
    Partial,
    /// A keep-alive without content.
    Progress,
}

impl StatusKind {
    const fn number(self) -> u8 {
        match self {
            Self::Final => 0,
            Self::Partial => 1,
            Self::Progress => 2,
        }
    }

    const fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Final),
            1 => Ok(Self::Partial),
            2 => Ok(Self::Progress),
            _ => Err(DecodeError::Invalid { what: "response type" }),
        }
    }
}

/// Verified body of a [`Status::status`] response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusBody {
    /// Code of the request.
    pub request: RequestCode,
    /// Whether more responses follow.
    pub kind: StatusKind,
    /// Bytes of data that follow the body, beyond `dlen`; at most `i32::MAX`.
    pub data_len: u32,
    /// Request-specific information: for pgread and pgwrite the offset.
    pub info: Bytes,
}

/// Code of the first request; the body contains the difference from it.
const FIRST_REQUEST: u16 = RequestCode::auth.0;

/// Length of the body before the request-specific information, in bytes.
const FIXED_LEN: usize = 16;

/// Length of the request-specific information of `pgread` and `pgwrite` in bytes: the offset.
const OFFSET_LEN: usize = 8;

/// Length of a response to `pgread` before its data, in bytes.
const PG_LEN: usize = ResponseHeader::LEN + FIXED_LEN + OFFSET_LEN;

impl StatusBody {
    /// Appends the body, which repeats `stream_id`.
    pub(super) fn encode(&self, stream_id: StreamId, out: &mut BytesMut) {
        let mut covered = BytesMut::with_capacity(FIXED_LEN.saturating_add(self.info.len()));
        covered.put_slice(&stream_id.0);
        covered.put_u8(u8::try_from(self.request.0.wrapping_sub(FIRST_REQUEST)).unwrap_or(u8::MAX));
        covered.put_u8(self.kind.number());
        covered.put_u32(0);
        covered.put_u32(self.data_len);
        covered.put_slice(&self.info);
        out.put_u32(crc32c(&covered));
        out.put_slice(&covered);
    }

    /// Decodes and verifies the body of a response with `stream_id` in its header.
    pub(in crate::xrootd) fn decode(stream_id: StreamId, body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let announced = reader.u32("status checksum")?;
        let covered = reader.rest();
        let computed = crc32c(&covered);
        if computed != announced {
            return Err(DecodeError::Checksum { what: "status response", announced, computed });
        }
        let mut reader = Reader::new(covered);
        let [s0, s1, request, kind] = reader.array("status response")?;
        if StreamId([s0, s1]) != stream_id {
            return Err(DecodeError::Invalid { what: "stream id in the status response" });
        }
        reader.u32("status response")?;
        Ok(Self {
            request: RequestCode(FIRST_REQUEST.wrapping_add(u16::from(request))),
            kind: StatusKind::from_number(kind)?,
            data_len: non_negative_i32(reader.u32("status data length")?, "status data length")?,
            info: reader.rest(),
        })
    }

    /// Returns the offset of a response to `pgread` or `pgwrite`; an error if this is a response to another request.
    fn offset(&self, request: RequestCode) -> Result<u64, DecodeError> {
        if self.request != request {
            return Err(DecodeError::Invalid { what: "request code in the status response" });
        }
        Reader::new(self.info.clone()).offset("offset in the status response")
    }
}

/// A piece of the response to `pgread`: [`data_len`](Self::data_len) bytes in the layout of the
/// [`page`](crate::xrootd::page) module follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgReadStatus {
    /// Whether more responses follow.
    pub kind: StatusKind,
    /// Start of the piece in the file, in bytes.
    pub offset: u64,
    /// Number of bytes that follow, including checksums; 0 at the end of the file.
    pub data_len: u32,
}

impl PgReadStatus {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = PG_LEN;

    /// Returns the response's header and body, after which the data are sent.
    #[must_use]
    pub fn to_bytes(&self, stream_id: StreamId) -> [u8; Self::LEN] {
        pg_head(stream_id, RequestCode::pgread, self.kind, self.data_len, self.offset)
    }

    /// Decodes a verified status response to a pgread.
    ///
    /// # Errors
    /// [`DecodeError`] if it is a response to another request or lacks the offset.
    pub fn from_body(body: &StatusBody) -> Result<Self, DecodeError> {
        Ok(Self { kind: body.kind, offset: body.offset(RequestCode::pgread)?, data_len: body.data_len })
    }
}

/// Returns header and body of a status response whose request-specific information is an offset.
fn pg_head(stream_id: StreamId, request: RequestCode, kind: StatusKind, data_len: u32, offset: u64) -> [u8; PG_LEN] {
    let dlen = (FIXED_LEN + OFFSET_LEN) as u32;
    let header = ResponseHeader { stream_id, status: Status::status, dlen }.to_bytes();
    let [s0, s1] = stream_id.0;
    let distance = u8::try_from(request.0.wrapping_sub(FIRST_REQUEST)).unwrap_or(u8::MAX);
    let mut covered = [0; FIXED_LEN - 4 + OFFSET_LEN];
    let fields = [s0, s1, distance, kind.number(), 0, 0, 0, 0].into_iter();
    let fields = fields.chain(data_len.to_be_bytes()).chain(offset.to_be_bytes());
    covered.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);

    let mut head = [0; PG_LEN];
    let bytes = header.into_iter().chain(crc32c(&covered).to_be_bytes()).chain(covered);
    head.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    head
}

/// The response to `pgwrite`: the pages that arrived damaged and were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgWriteStatus {
    /// Start of the write in the file, in bytes.
    pub offset: u64,
    /// The damaged pages, in ascending order; the client sends each again. Only the first and the last may be short.
    pub bad_pages: Vec<Page>,
}

impl PgWriteStatus {
    /// Maximum number of damaged pages that the protocol permits in one response; a server rejects a request with more.
    pub const MAX_BAD_PAGES: usize = 128;

    /// Appends the whole response: header, body and the list of damaged pages.
    pub fn encode(&self, stream_id: StreamId, out: &mut BytesMut) {
        let list = self.encode_list();
        let data_len = u32::try_from(list.len()).unwrap_or(u32::MAX);
        out.put_slice(&pg_head(stream_id, RequestCode::pgwrite, StatusKind::Final, data_len, self.offset));
        out.put_slice(&list);
    }

    fn encode_list(&self) -> BytesMut {
        let mut list = BytesMut::new();
        if let (Some(first), Some(last)) = (self.bad_pages.first(), self.bad_pages.last()) {
            let mut covered = BytesMut::with_capacity(self.bad_pages.len().saturating_mul(OFFSET_LEN));
            covered.put_u16(first.length as u16);
            covered.put_u16(last.length as u16);
            self.bad_pages.iter().for_each(|page| covered.put_u64(page.offset));
            list.put_u32(crc32c(&covered));
            list.unsplit(covered);
        }
        list
    }

    /// Decodes a verified status response to a pgwrite; `data` is the [`StatusBody::data_len`] bytes after it.
    ///
    /// # Errors
    /// [`DecodeError`] if it is a response to another request, or the list is malformed or fails its checksum.
    pub fn from_body(body: &StatusBody, data: Bytes) -> Result<Self, DecodeError> {
        let offset = body.offset(RequestCode::pgwrite)?;
        let bad_pages = if data.is_empty() { Vec::new() } else { Self::decode_list(data)? };
        Ok(Self { offset, bad_pages })
    }

    fn decode_list(data: Bytes) -> Result<Vec<Page>, DecodeError> {
        const WHAT: &str = "list of bad pages";
        let mut reader = Reader::new(data);
        let announced = reader.u32(WHAT)?;
        let covered = reader.rest();
        let computed = crc32c(&covered);
        if computed != announced {
            return Err(DecodeError::Checksum { what: WHAT, announced, computed });
        }
        let mut reader = Reader::new(covered);
        let first_len = usize::from(reader.u16(WHAT)?);
        let last_len = usize::from(reader.u16(WHAT)?);
        let mut pages = Vec::new();
        while !reader.is_empty() {
            pages.push(Page { offset: reader.offset(WHAT)?, length: crate::xrootd::page::PAGE_BYTES });
        }
        if let Some(last) = pages.last_mut() {
            last.length = last_len;
        }
        if let Some(first) = pages.first_mut() {
            first.length = first_len;
        }
        Ok(pages)
    }
}
