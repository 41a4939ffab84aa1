//! Servers that are reached without a proxy (`no_proxy`).

use std::net::IpAddr;

use towpath_proto::{destination_policy::Network, url::without_zone};

/// The parsed list.
#[derive(Debug)]
pub(super) struct Exceptions(Vec<Exception>);

/// One entry.
#[derive(Debug)]
struct Exception {
    hosts: Hosts,
    /// `None` for all ports.
    port: Option<u16>,
}

/// The hosts of an entry.
#[derive(Debug)]
enum Hosts {
    All,
    Network(Network),
    /// The name, and all names below it.
    Domain(String),
}

impl Exceptions {
    /// Parses entries separated by commas or white space.
    pub(super) fn parse(text: &str) -> Self {
        let entries = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
        Self(entries.map(Exception::parse).collect())
    }

    /// Returns whether a server is in the list. Link-local addresses always are: a proxy cannot reach those of this
    /// machine, and the service for credentials of cloud machines, which has one, would respond to another machine.
    pub(super) fn contain(&self, host: &str, port: u16) -> bool {
        let host = without_zone(host).trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        address.is_some_and(is_link_local) || self.0.iter().any(|entry| entry.contains(&host, address, port))
    }
}

impl Exception {
    fn parse(entry: &str) -> Self {
        let entry = entry.to_ascii_lowercase();
        if let Ok(network) = entry.parse() {
            return Self { hosts: Hosts::Network(network), port: None };
        }
        let (host, port) = match entry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => (host, Some(port)),
            _ => (entry.as_str(), None),
        };
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let hosts = match address.parse() {
            Ok(network) => Hosts::Network(network),
            Err(_) if host == "*" => Hosts::All,
            Err(_) => Hosts::Domain(host.trim_start_matches("*.").trim_matches('.').to_owned()),
        };
        Self { hosts, port }
    }

    fn contains(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let has_host = match &self.hosts {
            Hosts::All => true,
            Hosts::Network(network) => address.is_some_and(|address| network.contains(address)),
            Hosts::Domain(name) => {
                host.strip_suffix(name.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
            }
        };
        has_host && self.port.is_none_or(|own| own == port)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
