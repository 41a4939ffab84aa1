//! Responses about the connection and the session.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Body;
use crate::xrootd::wire::{Reader, until_nul};
use crate::xrootd::{DecodeError, ServerFlags, SessionId};

/// The response to `protocol`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProtocolReply {
    /// The server's protocol version.
    pub version: u32,
    /// Role and capabilities of the server.
    pub flags: ServerFlags,
    /// Interfaces for `bind`, in the server's format; only if requested with `bifreqs`.
    pub bind_interfaces: Option<Bytes>,
    /// Requests that must be signed; only if requested with `secreqs`. Absent means none.
    pub security: Option<SecurityRequirements>,
}

/// Level that determines which kinds of request need a signature (`kXR_sec...`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SecurityLevel(pub u8);

impl SecurityLevel {
    /// No request is signed.
    pub const NONE: Self = Self(0);
    /// `kXR_secCompatible`: only requests that older clients could sign.
    pub const COMPATIBLE: Self = Self(1);
    /// `kXR_secStandard`.
    pub const STANDARD: Self = Self(2);
    /// `kXR_secIntense`.
    pub const INTENSE: Self = Self(3);
    /// `kXR_secPedantic`: every request.
    pub const PEDANTIC: Self = Self(4);
}

/// The `S` block of the response to `protocol`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityRequirements {
    /// Version of the block.
    pub version: u8,
    /// 1: signatures cover data too (`kXR_secOData`). 2: sign even if nothing is encrypted (`kXR_secOFrce`).
    pub options: u8,
    /// Determines which requests need a signature, except for `overrides`.
    pub level: SecurityLevel,
    /// Exceptions for single requests: request code - 3000, and 0 (never), 1 (likely) or 2 (needed). At most 255 are
    /// written.
    pub overrides: Vec<[u8; 2]>,
}

impl ProtocolReply {
    const BIND_TAG: u8 = b'B';
    const SECURITY_TAG: u8 = b'S';
    /// Length of the tag, reserved byte and length of a `B` block, in bytes.
    const BIND_HEAD: usize = 4;
    /// A `B` block is padded with NULs to a multiple of this; its length includes them.
    const BIND_ALIGN: usize = 8;

    fn encode_bind_interfaces(text: &Bytes, out: &mut BytesMut) {
        let block = text.len().saturating_add(1).saturating_add(Self::BIND_HEAD).next_multiple_of(Self::BIND_ALIGN);
        let padded = block.saturating_sub(Self::BIND_HEAD);
        out.put_slice(&[Self::BIND_TAG, 0]);
        out.put_u16(u16::try_from(padded).unwrap_or(u16::MAX));
        out.put_slice(text);
        out.put_bytes(0, padded.saturating_sub(text.len()));
    }

    fn decode_bind_interfaces(reader: &mut Reader) -> Result<Bytes, DecodeError> {
        reader.u16("bind interfaces")?;
        let length = reader.u16("bind interfaces")?;
        Ok(until_nul(reader.take(usize::from(length), "bind interfaces")?))
    }
}

impl SecurityRequirements {
    fn encode(&self, out: &mut BytesMut) {
        let count = u8::try_from(self.overrides.len()).unwrap_or(u8::MAX);
        out.put_slice(&[ProtocolReply::SECURITY_TAG, 0, self.version, self.options, self.level.0, count]);
        self.overrides.iter().take(usize::from(count)).for_each(|pair| out.put_slice(pair));
    }

    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let [_tag, _reserved, version, options, level, count] = reader.array("security requirements")?;
        let overrides = (0..count).map(|_| reader.array("security override")).collect::<Result<_, _>>()?;
        Ok(Self { version, options, level: SecurityLevel(level), overrides })
    }
}

impl Body for ProtocolReply {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.version);
        out.put_u32(self.flags.0);
        if let Some(text) = &self.bind_interfaces {
            Self::encode_bind_interfaces(text, out);
        }
        if let Some(security) = &self.security {
            security.encode(out);
        }
    }

    /// An unknown block is ignored, with everything after it.
    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let version = reader.u32("protocol version")?;
        let flags = ServerFlags(reader.u32("server flags")?);
        let mut reply = Self { version, flags, ..Self::default() };
        loop {
            match reader.peek() {
                Some(Self::BIND_TAG) => reply.bind_interfaces = Some(Self::decode_bind_interfaces(&mut reader)?),
                // Padding of a text whose length does not include it.
                Some(0) => drop(reader.take(1, "padding")?),
                Some(Self::SECURITY_TAG) => reply.security = Some(SecurityRequirements::decode(&mut reader)?),
                _ => return Ok(reply),
            }
        }
    }
}

/// The response to `login`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoginReply {
    /// Id of the session.
    pub session_id: SessionId,
    /// The available security protocols, as text (see the `auth` module); empty if the client is logged in.
    pub security: Bytes,
}

impl Body for LoginReply {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.session_id.0);
        if !self.security.is_empty() {
            out.put_slice(&self.security);
            out.put_u8(0);
        }
    }

    fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let available = body.len();
        let session_id =
            *body.first_chunk().ok_or(DecodeError::Truncated { what: "session id", needed: 16, available })?;
        body.advance(16);
        Ok(Self { session_id: SessionId(session_id), security: until_nul(body) })
    }
}
