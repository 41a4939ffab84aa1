//! The first bytes of a connection in each direction.

use bytes::{BufMut, Bytes, BytesMut};

use super::DecodeError;
use super::response::Body;
use super::wire::Reader;

/// First bytes sent by a client: int32 0, 0, 0, 4, 2012.
pub const HANDSHAKE: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

/// Protocol detected from the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sniff {
    /// A complete handshake: consume 20 bytes; requests follow.
    Handshake,
    /// A prefix of a handshake; more bytes are needed.
    NeedMore,
    /// Another protocol, such as HTTP or TLS.
    Other,
}

/// Distinguishes the XRootD handshake from other protocols by the first bytes of a connection; one byte excludes HTTP
/// and TLS.
#[must_use]
pub fn sniff(received: &[u8]) -> Sniff {
    let matches = received.iter().zip(&HANDSHAKE).all(|(got, wanted)| got == wanted);
    match (matches, received.len() >= HANDSHAKE.len()) {
        (false, _) => Sniff::Other,
        (true, true) => Sniff::Handshake,
        (true, false) => Sniff::NeedMore,
    }
}

/// The server's response to the handshake, on stream id 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeReply {
    /// Protocol version: 0x520 is 5.2.0.
    pub protocol_version: u32,
    /// 1 for a data server, 0 for a redirector.
    pub server_type: u32,
}

impl HandshakeReply {
    /// [`server_type`](Self::server_type) of a data server.
    pub const DATA_SERVER: u32 = 1;
    /// [`server_type`](Self::server_type) of a redirector.
    pub const REDIRECTOR: u32 = 0;
}

impl Body for HandshakeReply {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.protocol_version);
        out.put_u32(self.server_type);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        Ok(Self { protocol_version: reader.u32("protocol version")?, server_type: reader.u32("server type")? })
    }
}
