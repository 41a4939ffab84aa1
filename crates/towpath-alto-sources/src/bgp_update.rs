//! Decodes BGP updates and the attributes of RIB entries into routes (RFC 4271 §4.3, RFC 4760, RFC 6793, RFC 7911).
//!
//! `mrt` and `bmp` locate the messages; both decode them here. Only the fields of [`Route`] and [`Preference`] are
//! decoded: prefixes, AS path, next hop and three numbers. All other attributes are skipped without allocating
//! memory. A message is decoded completely or not at all; if only its AS path is damaged, the announced prefixes are
//! treated as withdrawn (RFC 7606 §2).
//!
//! `bgpkit-parser` also parses updates, but guesses whether prefixes carry path identifiers: of `0.0.0.0/0
//! 10.0.0.0/16 11.0.0.0/8` it returns only the last prefix and takes the preceding bytes for an identifier. Here
//! `SessionParameters` states whether identifiers are present. It also allocates memory for every attribute, including
//! communities.
//!
//! Only unicast prefixes of IPv4 and IPv6 are decoded. This module does no I/O, and no input makes it panic.

mod attributes;
mod wire;

use std::net::IpAddr;

use ipnet::IpNet;

use self::attributes::Attributes;
pub(crate) use self::wire::{AddPath, AsWidth, BgpDecodeError, Family, SessionParameters, Wire, network};
use towpath_alto::{
    address::AddressType,
    route::{AsPath, Route},
};

/// A routing information base of a router (RFC 4271 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rib {
    /// Routes as received from a peer, before policy (Adj-RIB-In). MRT dumps contain only this table.
    PrePolicy,
    /// Routes that remain after policy (RFC 7854 §4.2, flag L).
    PostPolicy,
    /// Routes selected by the monitored router itself (Loc-RIB, RFC 9069).
    Local,
}

/// The source of routes, as identified by a collector or a monitored router. Peers that differ in any field have
/// separate route tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Address of the peer. [`Rib::Local`] has no peer; there it is the BGP identifier of the monitored router.
    pub address: IpAddr,
    /// Autonomous system number of the peer.
    pub as_number: u32,
    /// Distinguishes peers with the same address in different VPNs (RFC 7854 §4.2). Zero otherwise, and always zero
    /// in MRT.
    pub distinguisher: u64,
    /// The table that contains the routes.
    pub rib: Rib,
}

impl Peer {
    /// Returns a peer of a collector.
    pub(crate) fn of_collector(address: IpAddr, as_number: u32) -> Self {
        Self { address, as_number, distinguisher: 0, rib: Rib::PrePolicy }
    }
}

/// Attributes used by routers to compare routes to the same prefix before they consider the next hop (RFC 4271 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preference {
    /// `LOCAL_PREF`; higher is better. External peers do not send it; the default is then 100, as in all routers.
    pub local_pref: u32,
    /// Number of hops in the AS path, including prepended ones. A set counts as one hop.
    pub path_length: u16,
    /// `ORIGIN`: 0 for an interior protocol, 1 for an exterior one, 2 if unknown or absent.
    pub origin: u8,
    /// `MULTI_EXIT_DISC`, comparable only between routes from the same neighboring system; 0 if absent.
    pub med: u32,
}

/// A change in a router's routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The router announced this route, replacing any earlier route with the same prefix and path identifier.
    Route {
        /// The router that announced the route.
        router: Peer,
        /// Distinguishes several routes to one prefix if the session uses ADD-PATH (RFC 7911).
        path_id: Option<u32>,
        /// Attributes for choosing between several routes.
        preference: Preference,
        /// The route. Its prefix has no host bits set.
        route: Route,
    },
    /// The router withdrew this route.
    Withdraw {
        /// The router that withdrew the route.
        router: Peer,
        /// Path identifier of the withdrawn route.
        path_id: Option<u32>,
        /// Prefix of the withdrawn route.
        prefix: IpNet,
    },
    /// The router's session ended; all its routes are invalid.
    Lost {
        /// The router whose routes are invalid.
        router: Peer,
    },
    /// The router has sent all routes of a family once since its session began (End-of-RIB, RFC 4724 §2).
    EndOfRib {
        /// The router that sent the marker.
        router: Peer,
        /// The address family that is complete.
        family: AddressType,
    },
}

impl Event {
    /// Returns the router that this event belongs to.
    pub(crate) fn router_mut(&mut self) -> &mut Peer {
        match self {
            Self::Route { router, .. }
            | Self::Withdraw { router, .. }
            | Self::Lost { router }
            | Self::EndOfRib { router, .. } => router,
        }
    }
}

/// The decoded content of one message.
#[derive(Debug, Default)]
pub(crate) struct Update {
    pub(crate) events: Vec<Event>,
    /// Reason why the announced prefixes are withdrawn, if they are.
    pub(crate) damage: Option<BgpDecodeError>,
}

/// Decodes a complete BGP message from `router`. Messages other than updates have no events.
///
/// # Errors
/// If the message is damaged; then it has no events.
pub(crate) fn events(message: &[u8], router: Peer, session: SessionParameters) -> Result<Update, BgpDecodeError> {
    const HEADER_BYTES: usize = 19;
    const UPDATE: u8 = 2;
    let mut wire = Wire(message);
    wire.take(16, "BGP header")?; // The marker is ignored: in old dumps it can have any value.
    let length = usize::from(wire.u16("BGP header")?);
    let kind = wire.u8("BGP header")?;
    let length = length.checked_sub(HEADER_BYTES).ok_or("its BGP message is shorter than a header")?;
    let body = wire.take(length, "BGP message")?;
    if kind == UPDATE {
        UpdateConverter { router, session, events: Vec::new() }.update(body)
    } else {
        Ok(Update::default())
    }
}

/// Decodes the route and preference from the attributes of a RIB entry.
///
/// # Errors
/// If the attributes are damaged or contain no AS path.
pub(crate) fn entry_route(
    attributes: &[u8],
    prefix: IpNet,
    width: AsWidth,
) -> Result<(Route, Preference), BgpDecodeError> {
    let attributes = Attributes::read(attributes)?;
    let next_hop = match prefix {
        IpNet::V4(_) => attributes.next_hop().or_else(|| attributes.entry_next_hop()),
        IpNet::V6(_) => attributes.entry_next_hop(),
    };
    let (as_path, preference) = attributes.path(width)?;
    Ok((Route { prefix, next_hop, as_path }, preference))
}

/// Converts one update to events.
struct UpdateConverter {
    router: Peer,
    session: SessionParameters,
    events: Vec<Event>,
}

impl UpdateConverter {
    fn update(mut self, body: &[u8]) -> Result<Update, BgpDecodeError> {
        let mut wire = Wire(body);
        let withdrawn = wire.length_prefixed("withdrawn routes")?;
        let raw_attributes = wire.length_prefixed("path attributes")?;
        let attributes = Attributes::read(raw_attributes)?;
        let announced = wire.rest();
        // Withdrawals come first: a prefix in both lists is announced (RFC 4271 §4.3).
        self.withdraw(Family::Ipv4, withdrawn)?;
        let unreach = attributes.unreach()?;
        if let Some((family, prefixes)) = unreach {
            self.withdraw(family, prefixes)?;
        }
        let reach = attributes.reach()?;
        let mut damage = None;
        if reach.is_some() || !announced.is_empty() {
            let path = attributes.path(self.session.as_width);
            self.announce(Family::Ipv4, announced, attributes.next_hop(), path.as_ref().ok())?;
            if let Some(reach) = reach {
                self.announce(reach.family, reach.prefixes, reach.next_hop, path.as_ref().ok())?;
            }
            damage = path.err();
        } else if self.events.is_empty() {
            self.end_of_rib(raw_attributes, unreach.map(|(family, _)| family));
        }
        Ok(Update { events: self.events, damage })
    }

    /// Handles an update without prefixes: no attributes at all mark the end of IPv4, an empty `MP_UNREACH_NLRI` the
    /// end of its family.
    fn end_of_rib(&mut self, attributes: &[u8], withdrawn: Option<Family>) {
        if let Some(family) = withdrawn.or_else(|| attributes.is_empty().then_some(Family::Ipv4)) {
            self.events.push(Event::EndOfRib { router: self.router, family: family.address_type() });
        }
    }

    fn withdraw(&mut self, family: Family, prefixes: &[u8]) -> Result<(), BgpDecodeError> {
        let router = self.router;
        self.each(family, prefixes, |path_id, prefix| Event::Withdraw { router, path_id, prefix })
    }

    /// Announces the prefixes, or withdraws them if there is no path.
    fn announce(
        &mut self,
        family: Family,
        prefixes: &[u8],
        next_hop: Option<IpAddr>,
        path: Option<&(AsPath, Preference)>,
    ) -> Result<(), BgpDecodeError> {
        let Some((as_path, preference)) = path else { return self.withdraw(family, prefixes) };
        let (router, preference) = (self.router, *preference);
        self.each(family, prefixes, |path_id, prefix| {
            let route = Route { prefix, next_hop, as_path: as_path.clone() };
            Event::Route { router, path_id, preference, route }
        })
    }

    fn each(
        &mut self,
        family: Family,
        prefixes: &[u8],
        event: impl Fn(Option<u32>, IpNet) -> Event,
    ) -> Result<(), BgpDecodeError> {
        let mut wire = Wire(prefixes);
        while !wire.is_empty() {
            let path_id = if self.session.has_path_ids(family) { Some(wire.u32("path identifier")?) } else { None };
            self.events.push(event(path_id, wire.prefix(family)?));
        }
        Ok(())
    }
}
