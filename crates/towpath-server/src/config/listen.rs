//! Addresses to listen on, as people write them: `192.0.2.1:1094`, `[::1]:1094`, `1094` or `:1094` for all addresses
//! of this machine, and host names with or without a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Deserializer, de::Error as _};

/// Deserializes one address or a list of them. An address without a port gets `PORT`; if that is 0, a port is required.
///
/// # Errors
/// The text is not an address, or the host is unknown.
pub fn addresses<'de, const PORT: u16, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = match ListenTexts::deserialize(deserializer)? {
        ListenTexts::One(text) => vec![text],
        ListenTexts::Several(texts) => texts,
    };
    let each = texts.into_iter().map(|text| match text {
        ListenText::Port(port) => Ok(vec![everywhere(port)]),
        ListenText::Text(text) => parse(&text, PORT).map_err(D::Error::custom),
    });
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    Ok(all)
}

/// Addresses in the settings.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an address is a port, or text as in \"192.0.2.1:1094\"; several are a list")]
enum ListenTexts {
    One(ListenText),
    Several(Vec<ListenText>),
}

/// An address in the settings.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListenText {
    Port(u16),
    Text(String),
}

fn parse(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let invalid = |what: &str| format!("`{text}` {what}: write it as in 192.0.2.1:1094, :1094 or host:1094");
    let port_of = |port: &str| port.parse::<u16>().map_err(|_| invalid("has no valid port"));
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(vec![everywhere(port_of(text)?)]);
    }
    let is_address = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let (host, port) = match (is_address, text.rsplit_once(':')) {
        (Ok(_), _) | (_, None) => (text, default_port),
        (_, Some(("", port))) => return Ok(vec![everywhere(port_of(port)?)]),
        (_, Some((host, port))) => (host, port_of(port)?),
    };
    if port == 0 && default_port == 0 && !text.ends_with(":0") {
        return Err(invalid("has no port"));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = (host, port).to_socket_addrs().map_err(|error| invalid(&format!("is not a known host ({error})")))?;
    Ok(found.collect())
}

/// Returns the address that stands for all addresses of this machine: the one of IPv6 includes IPv4.
fn everywhere(port: u16) -> SocketAddr {
    let host: IpAddr = match socket(AddressFamily::INET6, SocketType::STREAM, None) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(host, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Settings {
        #[serde(deserialize_with = "addresses::<8096, _>")]
        listen: Vec<SocketAddr>,
    }

    #[test]
    fn one_address_needs_no_list() {
        for (text, expected) in [
            ("'127.0.0.1:1'", &["127.0.0.1:1"][..]),
            ("'127.0.0.1'", &["127.0.0.1:8096"]),
            ("['127.0.0.1:1', '127.0.0.1:1', '127.0.0.1:2']", &["127.0.0.1:1", "127.0.0.1:2"]),
            ("[]", &[]),
        ] {
            let Settings { listen } = toml::from_str(&format!("listen = {text}")).unwrap();
            assert_eq!(listen, expected.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>(), "{text}");
        }
        let Settings { listen } = toml::from_str("listen = 1094").unwrap();
        assert_eq!(listen[0].port(), 1094);
        for text in ["[[1]]", "true", "{}"] {
            let error = toml::from_str::<Settings>(&format!("listen = {text}")).err().unwrap();
            assert!(error.message().starts_with("an address is a port, or text"), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_written_in_many_ways() {
        for (text, expected) in [
            ("192.0.2.1:1094", "192.0.2.1:1094"),
            ("192.0.2.1", "192.0.2.1:8096"),
            ("[::1]:1094", "[::1]:1094"),
            ("::1", "[::1]:8096"),
            ("[::1]", "[::1]:8096"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert_eq!(parse(text, 8096).unwrap(), [expected.parse().unwrap()], "{text}");
        }
        for text in ["1094", ":1094"] {
            let all = parse(text, 8096).unwrap();
            assert!(all[0].ip().is_unspecified() && all[0].port() == 1094 && all.len() == 1, "{text}: {all:?}");
        }
        for (text, port) in [("localhost:1094", 1094), ("localhost", 8096)] {
            let all = parse(text, 8096).unwrap();
            assert!(all.iter().all(|address| address.ip().is_loopback() && address.port() == port), "{text}: {all:?}");
        }
        for text in ["", "host:", "99999", ":x", "192.0.2.1:99999", "no.such.host.invalid:1"] {
            assert!(parse(text, 8096).is_err(), "{text}");
        }
        assert!(parse("localhost", 0).is_err(), "a port is required");
    }
}
