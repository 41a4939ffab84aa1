//! Who takes from a pool.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use towpath_store::Caller;

use crate::access::{Person, network_of};

/// Somebody who takes from a pool: a person at a network (IPv4: an address, IPv6: 64 bits). All anonymous callers at one network are one holder. Its leases count for its
/// network and, with IPv6, for its site, and the shares of both bound them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    person: Person,
    network: Option<IpAddr>,
    /// The same person in the whole site, of which the network is a part (IPv6: 48 bits, so 65,536 networks). None for IPv4.
    site: Option<Arc<Holder>>,
    pub(super) is_site: bool,
}

impl Holder {
    /// Returns the holder that a caller's requests count for.
    pub fn of(caller: &Caller) -> Arc<Self> {
        let (person, network) = (Person::of(caller), caller.address.map(network_of));
        let site = network
            .and_then(site_of)
            .map(|site| Arc::new(Self { person: person.clone(), network: Some(site), site: None, is_site: true }));
        Arc::new(Self { person, network, site, is_site: false })
    }

    /// Returns the holder of a connection whose client has not said who it is.
    pub fn at(address: IpAddr) -> Arc<Self> {
        Self::of(&Caller { address: Some(address), ..Caller::default() })
    }

    /// Returns what has a share that leases of this holder count for: itself, and the site that it is a part of.
    pub(super) fn accounts(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(&self.site)
    }

    /// Returns the largest of these.
    pub(super) fn outermost(&self) -> &Self {
        self.site.as_deref().unwrap_or(self)
    }

    /// Whether no token or password says who it is.
    pub fn is_anonymous(&self) -> bool {
        self.person.is_anonymous()
    }
}

/// Returns the site of a network of IPv6: the most that a provider assigns to one customer (RFC 6177).
fn site_of(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V6(network) => Some(Ipv6Addr::from_bits(network.to_bits() & (u128::MAX << 80)).into()),
        IpAddr::V4(_) => None,
    }
}
