//! Security protocols: the list that a server offers in its response to `login`, and the credentials of the protocols
//! that need no cryptography of their own (`ztn`, `unix`, `host`).
//!
//! A protocol with several rounds uses the same two messages: the credentials of each round are sent in `auth`, the
//! server's tokens in `authmore`. This module makes no authorization decisions.

use bytes::{BufMut, Bytes, BytesMut};

use super::DecodeError;
use super::wire::{Reader, text};

/// One protocol of the list `&P=name,args&P=name,args`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityProtocol {
    /// `ztn`, `unix`, `sss`, `gsi`, ...: one to four characters without `,` and `&`.
    pub name: String,
    /// Text after the name, such as `0:4096:` for ztn; may be empty.
    pub arguments: String,
}

impl SecurityProtocol {
    /// Returns the offer of `ztn` for tokens of at most `max_token_bytes`.
    #[must_use]
    pub fn ztn(max_token_bytes: usize) -> Self {
        Self { name: "ztn".into(), arguments: format!("0:{max_token_bytes}:") }
    }

    /// Returns the offer of `unix`.
    #[must_use]
    pub fn unix() -> Self {
        Self { name: "unix".into(), arguments: String::new() }
    }

    /// Returns the name in the encoding of `auth`, padded with NULs.
    #[must_use]
    pub fn credential_type(&self) -> [u8; 4] {
        let mut bytes = self.name.bytes();
        std::array::from_fn(|_| bytes.next().unwrap_or(0))
    }

    fn parse(entry: &str) -> Result<Self, DecodeError> {
        let (name, arguments) = entry.split_once(',').unwrap_or((entry, ""));
        if name.is_empty() || name.len() > 4 {
            return Err(DecodeError::Invalid { what: "name of a security protocol" });
        }
        Ok(Self { name: name.into(), arguments: arguments.into() })
    }
}

/// Returns the text of `offers`, in order of preference; empty if there are none. It is the value of
/// [`LoginReply::security`](super::response::LoginReply::security).
#[must_use]
pub fn write_security_protocols(offers: &[SecurityProtocol]) -> Bytes {
    let mut out = BytesMut::new();
    for SecurityProtocol { name, arguments } in offers {
        out.put_slice(b"&P=");
        out.put_slice(name.as_bytes());
        if !arguments.is_empty() {
            out.put_u8(b',');
            out.put_slice(arguments.as_bytes());
        }
    }
    out.freeze()
}

/// Parses the offers in the text of a login response; elements that are not offers are ignored.
///
/// # Errors
/// [`DecodeError::Invalid`] if the text is not UTF-8 or a name does not fit into `auth`.
pub fn parse_security_protocols(list: &[u8]) -> Result<Vec<SecurityProtocol>, DecodeError> {
    let list = std::str::from_utf8(list).map_err(|_| DecodeError::Invalid { what: "security list" })?;
    list.trim_matches('\0')
        .split('&')
        .filter_map(|element| element.strip_prefix("P="))
        .map(SecurityProtocol::parse)
        .collect()
}

/// Credentials of `ztn`: a bearer token. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ZtnCredentials {
    /// The token, without NULs.
    pub token: Bytes,
}

impl std::fmt::Debug for ZtnCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ZtnCredentials({} bytes)", self.token.len())
    }
}

impl ZtnCredentials {
    /// Name of the protocol in `auth`.
    pub const TYPE: [u8; 4] = *b"ztn\0";
    const VERSION: u8 = 0;
    const KIND_TOKEN: u8 = b'T';

    /// Returns the encoded credentials for `auth`; `None` if the token has more than 65534 bytes.
    #[must_use]
    pub fn encode(&self) -> Option<Bytes> {
        let length = u16::try_from(self.token.len().checked_add(1)?).ok()?;
        let mut out = BytesMut::new();
        out.put_slice(&Self::TYPE);
        out.put_slice(&[Self::VERSION, Self::KIND_TOKEN, 0, 0]);
        out.put_u16(length);
        out.put_slice(&self.token);
        out.put_u8(0);
        Some(out.freeze())
    }

    /// Decodes credentials with a token of at most `max_token_bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] if they are malformed, empty or too long.
    pub fn decode(credentials: Bytes, max_token_bytes: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(credentials);
        let [name @ .., version, kind, _, _] = reader.array::<8>("ztn credentials")?;
        if name != Self::TYPE || version != Self::VERSION || kind != Self::KIND_TOKEN {
            return Err(DecodeError::Invalid { what: "ztn credentials" });
        }
        let length = usize::from(reader.u16("ztn token")?);
        if length.saturating_sub(1) > max_token_bytes {
            let (bytes, limit) = (length.saturating_sub(1) as u64, max_token_bytes as u64);
            return Err(DecodeError::TooLong { what: "ztn token", bytes, limit });
        }
        let token = text(reader.take(length, "ztn token")?, "ztn token")?;
        if token.is_empty() { Err(DecodeError::Missing { what: "ztn token" }) } else { Ok(Self { token }) }
    }
}

/// Credentials of `unix`: an unverified user and group name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixCredentials {
    /// User name, without blanks.
    pub user: String,
    /// Group name, without blanks; may be empty.
    pub group: String,
}

impl UnixCredentials {
    /// Name of the protocol in `auth`.
    pub const TYPE: [u8; 4] = *b"unix";
    const TAG: &[u8] = b"unix\0";

    /// Returns the encoded credentials for `auth`: `unix`, NUL, user, blank, group, NUL.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::from(Self::TAG);
        out.put_slice(self.user.as_bytes());
        if !self.group.is_empty() {
            out.put_u8(b' ');
            out.put_slice(self.group.as_bytes());
        }
        out.put_u8(0);
        out.freeze()
    }

    /// Decodes credentials.
    ///
    /// # Errors
    /// [`DecodeError`] if they are malformed or the user name is empty.
    pub fn decode(credentials: Bytes) -> Result<Self, DecodeError> {
        const INVALID: DecodeError = DecodeError::Invalid { what: "unix credentials" };
        let mut reader = Reader::new(credentials);
        if reader.take(Self::TAG.len(), "unix credentials")? != Self::TAG {
            return Err(INVALID);
        }
        let names = text(reader.rest(), "unix credentials")?;
        let names = std::str::from_utf8(&names).map_err(|_| INVALID)?;
        let (user, group) = names.split_once(' ').unwrap_or((names, ""));
        if user.is_empty() {
            return Err(DecodeError::Missing { what: "user name" });
        }
        Ok(Self { user: user.into(), group: group.into() })
    }
}
