//! Panic-free access to fixed fields and payloads.

use bytes::{Buf, Bytes};

use super::{DecodeError, FileHandle};

/// Bytes 4-19 of a request header, addressed by offset in the header, as in the protocol's tables.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parameters(pub [u8; 16]);

impl Parameters {
    /// Offset of the first parameter byte in the header.
    const START: usize = 4;

    /// Returns the `N` bytes at header offset `at`; offsets outside of 4..20 read as zero.
    pub(super) fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let start = at.wrapping_sub(Self::START);
        std::array::from_fn(|i| self.0.get(start.wrapping_add(i)).copied().unwrap_or(0))
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        u8::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    pub(super) fn handle(&self, at: usize) -> FileHandle {
        FileHandle(self.bytes(at))
    }

    /// Returns a length: int32 on the wire, never negative.
    pub(super) fn length(&self, at: usize, what: &'static str) -> Result<u32, DecodeError> {
        non_negative_i32(self.u32(at), what)
    }

    /// Returns an offset or size: int64 on the wire, never negative.
    pub(super) fn offset(&self, at: usize, what: &'static str) -> Result<u64, DecodeError> {
        non_negative_i64(self.u64(at), what)
    }

    /// Writes `value` at header offset `at`; bytes outside of 4..20 are dropped.
    pub(super) fn put<const N: usize>(&mut self, at: usize, value: [u8; N]) -> &mut Self {
        let start = at.wrapping_sub(Self::START);
        for (place, byte) in self.0.iter_mut().skip(start).zip(value) {
            *place = byte;
        }
        self
    }
}

/// Rejects numbers that are negative as int32.
pub(super) fn non_negative_i32(value: u32, what: &'static str) -> Result<u32, DecodeError> {
    if value > i32::MAX as u32 { Err(DecodeError::Invalid { what }) } else { Ok(value) }
}

/// Rejects numbers that are negative as int64.
pub(super) fn non_negative_i64(value: u64, what: &'static str) -> Result<u64, DecodeError> {
    if value > i64::MAX as u64 { Err(DecodeError::Invalid { what }) } else { Ok(value) }
}

/// Reads a payload from front to back; the returned values share its memory.
#[derive(Debug)]
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(super) const fn new(payload: Bytes) -> Self {
        Self { rest: payload }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next byte without consuming it.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Returns all remaining bytes.
    pub(super) fn rest(self) -> Bytes {
        self.rest
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        let available = self.rest.len();
        if available < len {
            return Err(DecodeError::Truncated { what, needed: len, available });
        }
        Ok(self.rest.split_to(len))
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let available = self.rest.len();
        let Some(array) = self.rest.first_chunk::<N>().copied() else {
            return Err(DecodeError::Truncated { what, needed: N, available });
        };
        self.rest.advance(N);
        Ok(array)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(super) fn length(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        non_negative_i32(self.u32(what)?, what)
    }

    pub(super) fn offset(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        non_negative_i64(self.u64(what)?, what)
    }

    /// Returns the text up to the next NUL, which is consumed but not returned.
    pub(super) fn until_nul(&mut self, what: &'static str) -> Result<Bytes, DecodeError> {
        let available = self.rest.len();
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(DecodeError::Truncated { what, needed: available.saturating_add(1), available });
        };
        let text = self.rest.split_to(end);
        self.rest.advance(1);
        Ok(text)
    }
}

/// Returns the text of a response, up to the first NUL. The reference server sends meaningless bytes after it.
pub(super) fn until_nul(mut body: Bytes) -> Bytes {
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    body.truncate(end);
    body
}

/// Returns the text of a request, without the NULs that some clients append; a NUL inside is an error.
pub(super) fn text(mut payload: Bytes, what: &'static str) -> Result<Bytes, DecodeError> {
    let end = payload.iter().rposition(|&byte| byte != 0).map_or(0, |last| last.saturating_add(1));
    payload.truncate(end);
    if payload.contains(&0) { Err(DecodeError::Invalid { what }) } else { Ok(payload) }
}
