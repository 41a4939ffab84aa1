//! The response to `locate`.

use bytes::{BufMut, Bytes, BytesMut};

use super::Body;
use crate::xrootd::DecodeError;
use crate::xrootd::wire::until_nul;

/// One server that has the path: `XYhost:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationInfo {
    /// A manager, which must be queried itself, rather than a data server.
    pub manager: bool,
    /// The file is not online there yet.
    pub pending: bool,
    /// The file can be written there.
    pub writable: bool,
    /// `host:port`; an IPv6 address is in brackets.
    pub address: String,
}

/// All servers that have the path; empty if there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locations(pub Vec<LocationInfo>);

impl LocationInfo {
    fn letters(&self) -> [u8; 2] {
        let kind = match (self.manager, self.pending) {
            (false, false) => b'S',
            (false, true) => b's',
            (true, false) => b'M',
            (true, true) => b'm',
        };
        [kind, if self.writable { b'w' } else { b'r' }]
    }

    fn parse(token: &[u8]) -> Result<Self, DecodeError> {
        const INVALID: DecodeError = DecodeError::Invalid { what: "location" };
        let [kind, access, address @ ..] = token else {
            return Err(INVALID);
        };
        let (manager, pending) = match kind {
            b'S' => (false, false),
            b's' => (false, true),
            b'M' => (true, false),
            b'm' => (true, true),
            _ => return Err(INVALID),
        };
        let writable = match access {
            b'r' => false,
            b'w' => true,
            _ => return Err(INVALID),
        };
        let address = String::from_utf8(address.to_vec()).map_err(|_| INVALID)?;
        Ok(Self { manager, pending, writable, address })
    }
}

impl Body for Locations {
    fn encode(&self, out: &mut BytesMut) {
        for (index, location) in self.0.iter().enumerate() {
            if index > 0 {
                out.put_u8(b' ');
            }
            out.put_slice(&location.letters());
            out.put_slice(location.address.as_bytes());
        }
        out.put_u8(0);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let body = until_nul(body);
        let tokens = body.split(|&byte| byte == b' ').filter(|token| !token.is_empty());
        tokens.map(LocationInfo::parse).collect::<Result<_, _>>().map(Self)
    }
}
