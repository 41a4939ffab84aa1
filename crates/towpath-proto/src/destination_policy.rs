//! Addresses that a server may connect to on behalf of a client.
//!
//! A server that connects to URLs chosen by its clients could be abused to reach services of its own machine, its
//! neighbours, or the metadata of a cloud (server-side request forgery). A [`DestinationPolicy`] checks the address of
//! each connection after name resolution, because a name can resolve to different addresses in two lookups, and because
//! `0x7f.1` is an address too.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Permitted destinations of connections: public addresses, and the listed exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationPolicy {
    everywhere: bool,
    networks: Vec<Network>,
    /// Lower case; an entry that begins with a dot matches all names with that suffix.
    hosts: Vec<String>,
}

/// Error for text that is not a network, an address or a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network (10.0.0.0/8, fd00::/8), address, host name, domain (.example.org) or `*`")]
pub struct InvalidDestination(String);

impl DestinationPolicy {
    /// Permits any address: for programs whose destinations are chosen only by their own user.
    pub fn everywhere() -> Self {
        Self { everywhere: true, ..Self::public() }
    }

    /// Permits public addresses only.
    pub fn public() -> Self {
        Self { everywhere: false, networks: Vec::new(), hosts: Vec::new() }
    }

    /// Permits public addresses and `entries`: networks, addresses, host names, domains (a dot before the name), or `*`
    /// for any address. A name permits every address that it resolves to.
    ///
    /// # Errors
    /// Returns the first invalid entry.
    pub fn beyond_public<T: AsRef<str>>(entries: &[T]) -> Result<Self, InvalidDestination> {
        let mut policy = Self::public();
        for entry in entries.iter().map(|entry| entry.as_ref().trim()) {
            if entry == "*" {
                policy.everywhere = true;
            } else if let Ok(network) = entry.parse() {
                policy.networks.push(network);
            } else if is_host_name(entry) {
                policy.hosts.push(entry.to_ascii_lowercase());
            } else {
                return Err(InvalidDestination(entry.to_owned()));
            }
        }
        Ok(policy)
    }

    /// Returns whether any address is permitted.
    pub fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// Returns whether a connection to `address`, to which `host` resolved, is permitted.
    pub fn permits(&self, host: &str, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        self.everywhere
            || is_public(address)
            || self.networks.iter().any(|network| network.contains(canonical))
            || self.names(host)
    }

    fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.hosts.iter().any(|known| match known.starts_with('.') {
            true => host.ends_with(known.as_str()),
            false => host == *known,
        })
    }
}

/// Returns whether text is a host name: letters, digits, hyphens and underscores between dots. Text whose last part is
/// a number is an unusual spelling of an address (RFC 3696 §2).
fn is_host_name(text: &str) -> bool {
    let name = text.strip_prefix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let ends_in_letters = name.rsplit('.').next().is_some_and(|last| !last.starts_with(|c: char| c.is_ascii_digit()));
    text.len() <= 253 && ends_in_letters && name.split('.').all(is_label)
}

/// A network in CIDR notation, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u32,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, prefix_bits: u32) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), prefix_bits }
    }

    const fn v6(a: u16, b: u16, prefix_bits: u32) -> Self {
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), prefix_bits }
    }

    /// Returns whether the network contains `address`. An IPv4 address is in no IPv6 network, and vice versa.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix_bits).unwrap_or(0);
                (first.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix_bits).unwrap_or(0);
                (first.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        let invalid = || InvalidDestination(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| invalid())?
            }
            Some(_) => return Err(invalid()),
            None => longest,
        };
        if prefix_bits > longest { Err(invalid()) } else { Ok(Self { first, prefix_bits }) }
    }
}

/// IPv4 networks that are not public (IANA IPv4 Special-Purpose Address Registry, RFC 6890 and its successors),
/// multicast and reserved.
const SPECIAL_V4: [Network; 15] = [
    Network::v4(0, 0, 0, 8),
    Network::v4(10, 0, 0, 8),
    Network::v4(100, 64, 0, 10),
    Network::v4(127, 0, 0, 8),
    Network::v4(169, 254, 0, 16),
    Network::v4(172, 16, 0, 12),
    Network::v4(192, 0, 0, 24),
    Network::v4(192, 0, 2, 24),
    Network::v4(192, 88, 99, 24),
    Network::v4(192, 168, 0, 16),
    Network::v4(198, 18, 0, 15),
    Network::v4(198, 51, 100, 24),
    Network::v4(203, 0, 113, 24),
    Network::v4(224, 0, 0, 4),
    Network::v4(240, 0, 0, 4),
];

/// The range of public IPv6 addresses (RFC 4291 §2.4): all others are local, multicast, reserved, or represent IPv4
/// addresses.
const GLOBAL_V6: Network = Network::v6(0x2000, 0, 3);

/// IPv6 networks within [`GLOBAL_V6`] that are not public (IANA IPv6 Special-Purpose Address Registry): protocol
/// assignments with Teredo, documentation.
const SPECIAL_V6: [Network; 3] =
    [Network::v6(0x2001, 0, 23), Network::v6(0x2001, 0xdb8, 32), Network::v6(0x3fff, 0, 20)];

/// 6to4 (RFC 3056): the IPv4 address follows the prefix.
const SIX_TO_FOUR: Network = Network::v6(0x2002, 0, 16);

/// The well-known prefix of NAT64 (RFC 6052): the IPv4 address is at the end.
const NAT64: Network = Network { first: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), prefix_bits: 96 };

/// Returns whether `address` is public: neither it nor the IPv4 address that it represents is in a private, shared,
/// loopback, link-local, multicast, unspecified, documentation or reserved range.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(_) => !SPECIAL_V4.iter().any(|network| network.contains(address.to_canonical())),
        IpAddr::V6(six) => match () {
            () if SIX_TO_FOUR.contains(address) => is_public(IpAddr::V4(((six.to_bits() >> 80) as u32).into())),
            () if NAT64.contains(address) => is_public(IpAddr::V4((six.to_bits() as u32).into())),
            () => GLOBAL_V6.contains(address) && !SPECIAL_V6.iter().any(|network| network.contains(address)),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_public(address: &str) -> bool {
        super::is_public(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_permitted() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "188.184.9.234",
            "223.255.255.255",
            "2001:200::1",
            "2001:1458:201::1",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(is_public(address), "{address}");
        }
    }

    #[test]
    fn all_others_are_not() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::1.1.1.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:c0a8:101::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(!is_public(address), "{address}");
        }
    }

    #[test]
    fn what_is_listed_is_permitted_too() {
        let policy =
            DestinationPolicy::beyond_public(&["10.1.0.0/16", "fd00::/8", "127.0.0.1", "SE.example.org", ".grid.test"])
                .unwrap();
        let permits = |host: &str, address: &str| policy.permits(host, address.parse().unwrap());
        for (host, address, is_permitted) in [
            ("a", "10.1.2.3", true),
            ("a", "::ffff:10.1.2.3", true),
            ("a", "10.2.0.1", false),
            ("a", "fdff::1", true),
            ("a", "127.0.0.1", true),
            ("a", "127.0.0.2", false),
            ("se.Example.org.", "192.168.0.1", true),
            ("xse.example.org", "192.168.0.1", false),
            ("se.example.org.evil.test", "192.168.0.1", false),
            ("n1.grid.test", "192.168.0.1", true),
            ("grid.test", "192.168.0.1", false),
            ("evilgrid.test", "192.168.0.1", false),
            ("a", "1.1.1.1", true),
        ] {
            assert_eq!(permits(host, address), is_permitted, "{host} {address}");
        }
        assert!(DestinationPolicy::everywhere().permits("a", IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(DestinationPolicy::beyond_public(&["*"]).unwrap().permits("a", IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(!DestinationPolicy::public().permits("localhost", IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn entries_must_mean_something() {
        for entry in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "0x7f.1",
            "127.1",
            "a b",
            "a..b",
            "http://a",
            ".",
        ] {
            assert_eq!(DestinationPolicy::beyond_public(&[entry]), Err(InvalidDestination(entry.into())), "{entry}");
        }
        assert!(DestinationPolicy::beyond_public(&["0.0.0.0/0", "::/0", "host", "a-b.c_d"]).is_ok());
    }

    proptest! {
        #[test]
        fn no_spelling_of_an_ipv4_address_makes_it_public(bits in any::<u32>()) {
            let four = Ipv4Addr::from_bits(bits);
            let judged = super::is_public(IpAddr::V4(four));
            prop_assert_eq!(super::is_public(IpAddr::V6(four.to_ipv6_mapped())), judged);
            let nat64 = Ipv6Addr::from_bits((0x64_ff9b_u128 << 96) | u128::from(bits));
            prop_assert_eq!(super::is_public(IpAddr::V6(nat64)), judged);
            let six_to_four = Ipv6Addr::from_bits((0x2002_u128 << 112) | (u128::from(bits) << 80));
            prop_assert_eq!(super::is_public(IpAddr::V6(six_to_four)), judged);
        }

        #[test]
        fn a_network_has_what_begins_as_it_does(bits in any::<u32>(), other in any::<u32>(), prefix_bits in 0_u32..=32) {
            let network = Network { first: IpAddr::V4(Ipv4Addr::from_bits(bits)), prefix_bits };
            let common = (bits ^ other).leading_zeros();
            prop_assert_eq!(network.contains(IpAddr::V4(Ipv4Addr::from_bits(other))), common >= prefix_bits);
        }
    }
}
