//! Parses words that contain addresses.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// Returns the first word of `text`.
pub(super) fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next()
}

/// Parses a prefix and clears its host bits.
pub(super) fn prefix(word: &str) -> Option<IpNet> {
    word.parse::<IpNet>().ok().map(|prefix| prefix.trunc())
}

/// Parses a prefix with optional length: IOS omits the length if it is that of the network's class.
pub(super) fn classful_prefix(word: &str) -> Option<IpNet> {
    match word.parse::<Ipv4Addr>() {
        Ok(network) => of_class(network),
        Err(_) => prefix(word),
    }
}

/// Returns `network` with the length of its class (RFC 791 §3.2); 0.0.0.0 is the default route.
///
/// Returns `None` if host bits are set: the explicit length must have been truncated.
fn of_class(network: Ipv4Addr) -> Option<IpNet> {
    let length = match network.octets()[0] {
        0 => 0,
        1..=127 => 8,
        128..=191 => 16,
        192..=223 => 24,
        224.. => return None,
    };
    let prefix = IpNet::new(IpAddr::V4(network), length).ok()?;
    (prefix.addr() == prefix.network()).then_some(prefix)
}

/// Parses a next hop. Returns `None` for an interface, and for `0.0.0.0` and `::`, which denote the router itself.
///
/// FRR appends text to an address: `(name)`, `@vrf`, `<`; link-local addresses can end with `%interface`.
pub(super) fn next_hop(word: &str) -> Option<IpAddr> {
    let address = word.split(['%', '(', '@', '<', ',']).next()?;
    address.parse::<IpAddr>().ok().filter(|hop| !hop.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classful(word: &str) -> Option<String> {
        classful_prefix(word).map(|prefix| prefix.to_string())
    }

    #[test]
    fn a_class_tells_the_length() {
        for (word, prefix) in [
            ("10.0.0.0", "10.0.0.0/8"),
            ("172.16.0.0", "172.16.0.0/16"),
            ("192.0.2.0", "192.0.2.0/24"),
            ("0.0.0.0", "0.0.0.0/0"),
            ("10.0.0.0/9", "10.0.0.0/9"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            assert_eq!(classful(word).as_deref(), Some(prefix), "{word}");
        }
        for word in ["10.1.0.0", "192.0.2.1", "224.0.0.0", "0.0.0.1", "2001:db8::", "10.0.0", "", "10.0.0.0/33"] {
            assert_eq!(classful(word), None, "{word}");
        }
    }

    #[test]
    fn a_prefix_has_no_host() {
        assert_eq!(prefix("192.0.2.1/24").unwrap().to_string(), "192.0.2.0/24");
    }

    #[test]
    fn next_hops_are_routers() {
        for (word, hop) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1(x1)", "192.0.2.1"),
            ("192.0.2.1@117<", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
        ] {
            assert_eq!(next_hop(word), Some(hop.parse().unwrap()), "{word}");
        }
        for word in ["0.0.0.0", "::", "swp1", "", "0.0.0.0@117<"] {
            assert_eq!(next_hop(word), None, "{word}");
        }
    }
}
