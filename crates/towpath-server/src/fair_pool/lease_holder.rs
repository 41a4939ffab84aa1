//! The owner of a share of a pool.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use towpath_store::Caller;

use crate::access::{Person, network_of};

/// The owner of a share of a pool: a person at a network (IPv4: an address, IPv6: 64 bits). All anonymous callers at
/// one network are one holder. Its leases also count for its network and, with IPv6, for its site, and are limited by
/// the shares of both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseHolder {
    person: Person,
    network: Option<IpAddr>,
    /// The same person in the whole site (IPv6: 48 bits, 65,536 networks) that contains the network. `None` for IPv4.
    site: Option<Arc<LeaseHolder>>,
    pub(super) is_site: bool,
}

impl LeaseHolder {
    /// Returns the holder that a caller's requests are counted for.
    pub fn of(caller: &Caller) -> Arc<Self> {
        let (person, network) = (Person::of(caller), caller.address.map(network_of));
        let site = network
            .and_then(site_of)
            .map(|site| Arc::new(Self { person: person.clone(), network: Some(site), site: None, is_site: true }));
        Arc::new(Self { person, network, site, is_site: false })
    }

    /// Returns the holder of a connection whose client is not authenticated.
    pub fn at(address: IpAddr) -> Arc<Self> {
        Self::of(&Caller { address: Some(address), ..Caller::default() })
    }

    /// Returns the accounts that leases of this holder are counted for: the holder itself and its site.
    pub(super) fn accounts(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(&self.site)
    }

    /// Returns the outermost of these accounts.
    pub(super) fn outermost(&self) -> &Self {
        self.site.as_deref().unwrap_or(self)
    }

    /// Whether the holder is unauthenticated.
    pub fn is_anonymous(&self) -> bool {
        self.person.is_anonymous()
    }
}

/// Returns the site of an IPv6 network: the largest prefix that a provider assigns to one customer (RFC 6177).
fn site_of(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V6(network) => Some(Ipv6Addr::from_bits(network.to_bits() & (u128::MAX << 80)).into()),
        IpAddr::V4(_) => None,
    }
}
