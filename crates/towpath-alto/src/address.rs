//! Endpoint addresses and prefixes (RFC 7285 §10.4), and maps keyed by prefix.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::names::ParseError;

/// A map from prefixes to values. Lookups use the longest prefix that covers an address.
pub type PrefixMap<T> = JointPrefixMap<IpNet, T>;

/// The address types defined by RFC 7285 §10.4.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressType {
    /// All address types.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            AddressType::Ipv4 => "ipv4",
            AddressType::Ipv6 => "ipv6",
        }
    }

    /// Returns the address type with the given name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the type of `address`.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { AddressType::Ipv4 } else { AddressType::Ipv6 }
    }

    /// Returns the type of the addresses in `prefix`.
    pub fn of_prefix(prefix: IpNet) -> Self {
        Self::of(prefix.addr())
    }

    /// Returns the prefix that covers all addresses of this type.
    pub fn full_range(self) -> IpNet {
        match self {
            AddressType::Ipv4 => IpNet::V4(ipnet::Ipv4Net::default()),
            AddressType::Ipv6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }
}

/// An address in ALTO notation: `ipv4:192.0.2.1`, `ipv6:2001:db8::1` (RFC 7285 §10.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(pub IpAddr);

impl Endpoint {
    /// Parses a typed address.
    ///
    /// # Errors
    /// If the text is malformed, or the type does not match the address.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError::new("endpoint address", text, "ipv4:192.0.2.1 or ipv6:2001:db8::1");
        let (kind, address) = text.split_once(':').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        if AddressType::from_name(kind) != Some(AddressType::of(address)) {
            return Err(malformed());
        }
        Ok(Self(address))
    }

    /// Returns the prefix that covers only this address.
    pub fn prefix(self) -> IpNet {
        self.0.into()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", AddressType::of(self.0).name(), self.0)
    }
}

/// Parses a prefix such as `192.0.2.0/24`, or a single address.
///
/// # Errors
/// If the text is malformed or has host bits set. RFC 7285 §10.4.3 does not use host bits, so they are probably a
/// mistake.
pub fn prefix(text: &str) -> Result<IpNet, ParseError> {
    let malformed = || ParseError::new("prefix", text, "192.0.2.0/24 or 2001:db8::/32, without host bits");
    let prefix = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse::<IpNet>().map_err(|_| malformed())?,
    };
    if prefix.trunc() == prefix { Ok(prefix) } else { Err(malformed()) }
}

/// A prefix in text form, without host bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Prefix(pub IpNet);

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        prefix(&String::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
towpath_proto::text_schema!(
    Prefix,
    "an address, or a prefix without host bits, such as `192.0.2.0/24` or `2001:db8::/32`",
    "192.0.2.0/24"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_types() {
        for text in ["ipv4:192.0.2.1", "ipv6:2001:db8::1"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("ipv6:2001:DB8:0::1").unwrap().to_string(), "ipv6:2001:db8::1");
        for text in
            ["192.0.2.1", "ipv4:2001:db8::1", "ipv6:192.0.2.1", "ipv4:192.0.2.256", "ipv4:192.0.2.0/24", "", ":"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_have_no_bits_behind_their_length() {
        assert_eq!(prefix("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(prefix("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        for text in ["192.0.2.1/24", "192.0.2.0/33", "192.0.2", "x", ""] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }
}
