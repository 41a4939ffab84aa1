//! Requests about the connection and the session.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, text};
use crate::xrootd::{
    DecodeError, Expect, LoginAbility, LoginAbility2, ProtocolRequestFlags, RequestCode, SessionId, SigverFlags,
};

/// `protocol`: query the version and capabilities of the server, and optionally start TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protocol {
    /// The client's protocol version.
    pub client_version: u32,
    /// Requested information and abilities of the client.
    pub flags: ProtocolRequestFlags,
    /// The client's next request.
    pub expect: Expect,
}

impl Layout for Protocol {
    const CODE: RequestCode = RequestCode::protocol;

    fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self { client_version: p.u32(4), flags: ProtocolRequestFlags(p.u8(8)), expect: Expect(p.u8(9)) })
    }

    fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
        parameters.put(4, self.client_version.to_be_bytes()).put(8, [self.flags.0]).put(9, [self.expect.0]);
    }
}

/// `login`: start a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// The client's process id.
    pub pid: u32,
    /// The client's user name, padded with NULs; see [`Login::user_name`].
    pub user: [u8; 8],
    /// Further abilities.
    pub ability2: LoginAbility2,
    /// Abilities.
    pub ability: LoginAbility,
    /// Version of the client's capabilities in the low six bits; [`Login::ASYNCRESP`] above.
    pub capver: u8,
    /// `xrd.cc=..&xrd.tz=..&xrd.appname=..`, and optionally a token.
    pub cgi: Bytes,
}

impl Login {
    /// Bit of [`capver`](Self::capver): the client supports `waitresp`, and `attn` with `asynresp`.
    pub const ASYNCRESP: u8 = 0x80;
    /// Mask of the version in [`capver`](Self::capver).
    pub const VERSION_MASK: u8 = 0x3f;
    /// Version that indicates support of TLS.
    pub const VERSION_TLS: u8 = 5;

    /// Returns whether the server may respond with `waitresp`.
    #[must_use]
    pub const fn understands_asynresp(&self) -> bool {
        self.capver & Self::ASYNCRESP != 0
    }

    /// Returns the user name without padding. It is the client's unverified claim.
    #[must_use]
    pub fn user_name(&self) -> &[u8] {
        self.user.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the first eight bytes of `name`, padded with NULs: the form of [`user`](Self::user).
    #[must_use]
    pub fn pad_user(name: &str) -> [u8; 8] {
        let mut bytes = name.bytes();
        std::array::from_fn(|_| bytes.next().unwrap_or(0))
    }
}

impl Layout for Login {
    const CODE: RequestCode = RequestCode::login;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            pid: p.u32(4),
            user: p.bytes(8),
            ability2: LoginAbility2(p.u8(16)),
            ability: LoginAbility(p.u8(17)),
            capver: p.u8(18),
            cgi: text(payload, "login information")?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.pid.to_be_bytes()).put(8, self.user);
        parameters.put(16, [self.ability2.0, self.ability.0, self.capver]);
        payload.put_slice(&self.cgi);
    }
}

/// `auth`: credentials of one security protocol; see the `auth` module for their content.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Auth {
    /// Name of the security protocol, padded with NULs.
    pub credential_type: [u8; 4],
    /// Credentials in the format of the security protocol.
    pub credentials: Bytes,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({}, {} bytes)", self.credential_type.escape_ascii(), self.credentials.len())
    }
}

impl Layout for Auth {
    const CODE: RequestCode = RequestCode::auth;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { credential_type: header.parameters.bytes(16), credentials: payload })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(16, self.credential_type);
        payload.put_slice(&self.credentials);
    }
}

/// Declares a request that consists of a single session id.
macro_rules! session_request {
    ($(#[$doc:meta])* $name:ident, $code:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            /// The session, as returned by its `login`.
            pub session_id: SessionId,
        }

        impl Layout for $name {
            const CODE: RequestCode = $code;

            fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
                Ok(Self { session_id: SessionId(header.parameters.bytes(4)) })
            }

            fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
                parameters.put(4, self.session_id.0);
            }
        }
    };
}

session_request! {
    /// `bind`: make this connection a data path of a session that was started on another connection.
    Bind, RequestCode::bind
}

session_request! {
    /// `endsess`: end an earlier session of this client and close the files that it left open.
    Endsess, RequestCode::endsess
}

/// `ping`: check that the server is alive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ping;

impl Layout for Ping {
    const CODE: RequestCode = RequestCode::ping;

    fn decode(_header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self)
    }

    fn encode(&self, _parameters: &mut Parameters, _payload: &mut BytesMut) {}
}

/// `set`: set a property of the session, such as `appid x`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Qualifies the property; 0 in practice.
    pub modifier: u8,
    /// The property and its value.
    pub text: Bytes,
}

impl Layout for Set {
    const CODE: RequestCode = RequestCode::set;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { modifier: header.parameters.u8(19), text: text(payload, "property")? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(19, [self.modifier]);
        payload.put_slice(&self.text);
    }
}

/// `sigver`: the signature of the request that follows. It has no response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sigver {
    /// Code of the request that follows.
    pub expected: RequestCode,
    /// Version of the signature format.
    pub version: u8,
    /// Scope of the signature.
    pub flags: SigverFlags,
    /// Sequence number, which increases with every signed request.
    pub seqno: u64,
    /// Hash and cipher.
    pub crypto: u8,
    /// The signature.
    pub signature: Bytes,
}

impl Layout for Sigver {
    const CODE: RequestCode = RequestCode::sigver;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            expected: RequestCode(p.u16(4)),
            version: p.u8(6),
            flags: SigverFlags(p.u8(7)),
            seqno: p.u64(8),
            crypto: p.u8(16),
            signature: payload,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.expected.0.to_be_bytes()).put(6, [self.version, self.flags.0]);
        parameters.put(8, self.seqno.to_be_bytes()).put(16, [self.crypto]);
        payload.put_slice(&self.signature);
    }
}
