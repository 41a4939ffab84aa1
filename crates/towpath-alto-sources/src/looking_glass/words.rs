//! Words of the tables that are addresses.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// The first word of `text`.
pub(super) fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next()
}

/// The prefix that `word` is. Bits behind its length are cleared.
pub(super) fn prefix(word: &str) -> Option<IpNet> {
    word.parse::<IpNet>().ok().map(|prefix| prefix.trunc())
}

/// The prefix that `word` is, which may lack a length: IOS leaves it out where the network's old class tells it.
pub(super) fn classful_prefix(word: &str) -> Option<IpNet> {
    match word.parse::<Ipv4Addr>() {
        Ok(network) => of_class(network),
        Err(_) => prefix(word),
    }
}

/// `network` with the length of its class (RFC 791 §3.2); 0.0.0.0 is the default route.
///
/// None for a network with bits behind that length: its own length must have been cut off.
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

/// The router that `word` names. None for an interface, and for `0.0.0.0` and `::`, which stand for the router itself.
///
/// FRR puts more behind an address: `(name)`, `@vrf`, `<`; link-local ones may end with `%interface`.
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
