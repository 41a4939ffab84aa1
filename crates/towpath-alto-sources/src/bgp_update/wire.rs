//! Reads BGP primitives from a byte slice: numbers, addresses and prefixes (RFC 4271 §4.3), encoded as the session
//! negotiated.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

use towpath_alto::address::AddressType;

/// Reason why a message cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BgpDecodeError(Cow<'static, str>);

impl From<&'static str> for BgpDecodeError {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

impl From<String> for BgpDecodeError {
    fn from(reason: String) -> Self {
        Self(reason.into())
    }
}

/// The supported address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// Returns the family for an address family identifier, if it is supported.
    pub(crate) fn of_afi(afi: u16) -> Option<Self> {
        match afi {
            1 => Some(Self::Ipv4),
            2 => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// Returns the corresponding address type.
    pub(crate) fn address_type(self) -> AddressType {
        match self {
            Self::Ipv4 => AddressType::Ipv4,
            Self::Ipv6 => AddressType::Ipv6,
        }
    }

    pub(super) fn octets(self) -> usize {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 => 16,
        }
    }

    /// Returns the address that starts with `octets`. Missing octets are zero, excess octets are ignored.
    pub(crate) fn address(self, octets: &[u8]) -> IpAddr {
        let mut padded = [0_u8; 16];
        padded.iter_mut().zip(octets).for_each(|(place, octet)| *place = *octet);
        let [a, b, c, d, ..] = padded;
        match self {
            Self::Ipv4 => Ipv4Addr::new(a, b, c, d).into(),
            Self::Ipv6 => Ipv6Addr::from(padded).into(),
        }
    }
}

/// Width of AS numbers (RFC 6793).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsWidth {
    Two,
    Four,
}

impl AsWidth {
    pub(super) fn octets(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Families whose prefixes carry path identifiers (ADD-PATH, RFC 7911 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AddPath {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
}

/// Session parameters negotiated by the speakers, needed to decode their updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionParameters {
    pub(crate) as_width: AsWidth,
    pub(crate) add_path: AddPath,
}

impl SessionParameters {
    pub(super) fn has_path_ids(self, family: Family) -> bool {
        match family {
            Family::Ipv4 => self.add_path.ipv4,
            Family::Ipv6 => self.add_path.ipv6,
        }
    }
}

/// A byte slice read from the front. The `what` argument of each method names the field in [`BgpDecodeError`].
#[derive(Debug)]
pub(crate) struct Wire<'a>(pub(crate) &'a [u8]);

impl<'a> Wire<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte without consuming it.
    pub(crate) fn first(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns all unread bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], BgpDecodeError> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else { return Err(cut(what)) };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], BgpDecodeError> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else { return Err(cut(what)) };
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, BgpDecodeError> {
        self.array(what).map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, BgpDecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, BgpDecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// Reads a two-octet length and returns that many bytes.
    pub(crate) fn length_prefixed(&mut self, what: &'static str) -> Result<&'a [u8], BgpDecodeError> {
        let length = self.u16(what)?;
        self.take(length.into(), what)
    }

    pub(crate) fn as_number(&mut self, width: AsWidth, what: &'static str) -> Result<u32, BgpDecodeError> {
        match width {
            AsWidth::Two => self.u16(what).map(u32::from),
            AsWidth::Four => self.u32(what),
        }
    }

    pub(crate) fn address(&mut self, family: Family, what: &'static str) -> Result<IpAddr, BgpDecodeError> {
        self.take(family.octets(), what).map(|octets| family.address(octets))
    }

    /// Reads a prefix in update encoding: its length in bits, then as many octets as needed.
    pub(crate) fn prefix(&mut self, family: Family) -> Result<IpNet, BgpDecodeError> {
        let length = self.u8("prefix")?;
        let octets = self.take(usize::from(length).div_ceil(8), "prefix")?;
        network(family.address(octets), length)
    }
}

fn cut(what: &'static str) -> BgpDecodeError {
    format!("it is truncated within its {what}").into()
}

/// Returns the prefix of the given length that contains `address`.
///
/// # Errors
/// If the length exceeds that of the address.
pub(crate) fn network(address: IpAddr, length: u8) -> Result<IpNet, BgpDecodeError> {
    match IpNet::new(address, length) {
        Ok(prefix) => Ok(prefix.trunc()),
        Err(_) => Err(format!("a prefix of {length} bits is longer than an address").into()),
    }
}
