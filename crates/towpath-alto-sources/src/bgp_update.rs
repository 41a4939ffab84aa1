//! BGP updates, and the attributes of table entries, read as routes (RFC 4271 §4.3, RFC 4760, RFC 6793, RFC 7911).
//!
//! `mrt` and `bmp` find the messages; both read them here. Only what a [`Route`] has is decoded, and its [`Preference`]:
//! prefixes, AS path, next hop, and three numbers. All other attributes are passed over, and no memory is taken for them. A
//! message is told as a whole or not at all; one whose AS path alone is damaged withdraws what it announces (RFC 7606 §2).
//!
//! `bgpkit-parser` reads updates too, but guesses whether prefixes come with path identifiers: of `0.0.0.0/0 10.0.0.0/16
//! 11.0.0.0/8` it tells the last alone, and takes what is before for an identifier. Here a `Session` says whether they do.
//! It also decodes each attribute into memory of its own, communities and all.
//!
//! Only unicast prefixes of IPv4 and IPv6 are told. Nothing here reads from anywhere, and no input makes it panic.

mod attributes;
mod wire;

use std::net::IpAddr;

use ipnet::IpNet;

use self::attributes::Attributes;
pub(crate) use self::wire::{AddPath, AsWidth, Damage, Family, Session, Wire, network};
use towpath_alto::{
    address::AddressType,
    route::{AsPath, Route},
};

/// Which of a router's tables of routes (routing information bases, RFC 4271 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rib {
    /// What a peer told, before any policy (Adj-RIB-In). All that MRT dumps tell.
    PrePolicy,
    /// What policy left of it (RFC 7854 §4.2, flag L).
    PostPolicy,
    /// What the monitored router itself has chosen (Loc-RIB, RFC 9069).
    Local,
}

/// Who told the routes, as a collector or a monitored router knows its peers. Peers that differ in anything have routes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its address. Of [`Rib::Local`], which has none, the BGP identifier of the monitored router.
    pub address: IpAddr,
    /// Its autonomous system.
    pub as_number: u32,
    /// Parts peers of one address in different VPNs (RFC 7854 §4.2); zero of all others, and in MRT.
    pub distinguisher: u64,
    /// Where the routes are.
    pub rib: Rib,
}

impl Peer {
    /// The peer of a collector.
    pub(crate) fn of_collector(address: IpAddr, as_number: u32) -> Self {
        Self { address, as_number, distinguisher: 0, rib: Rib::PrePolicy }
    }
}

/// What routers weigh routes to one prefix by, before they look at the next hop (RFC 4271 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preference {
    /// `LOCAL_PREF`, of which more is better. Peers of other systems tell none: then 100, as all routers take it.
    pub local_pref: u32,
    /// How many hops the AS path has, with what is prepended; a set is one.
    pub path_length: u16,
    /// `ORIGIN`: 0 of an interior protocol, 1 of an exterior one, 2 where it is not known or not told.
    pub origin: u8,
    /// `MULTI_EXIT_DISC`, which says something among routes of one neighbouring system; 0 if it is not told.
    pub med: u32,
}

/// What changed in the routes of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It has this route now, instead of an earlier one of the same prefix and path identifier.
    Route {
        /// Who has it.
        router: Peer,
        /// Tells several routes to one prefix apart, where the session has ADD-PATH (RFC 7911).
        path_id: Option<u32>,
        /// What it is chosen by among several.
        preference: Preference,
        /// The route. Its prefix has no bits behind its length.
        route: Route,
    },
    /// It has this route no more.
    Withdraw {
        /// Who had it.
        router: Peer,
        /// As of the route.
        path_id: Option<u32>,
        /// Whereto it led.
        prefix: IpNet,
    },
    /// Its session ended: it has no routes any more.
    Lost {
        /// Who had them.
        router: Peer,
    },
    /// It has told all its routes of a family once since its session began (End-of-RIB, RFC 4724 §2).
    EndOfRib {
        /// Who has told them.
        router: Peer,
        /// Which.
        family: AddressType,
    },
}

impl Event {
    /// Of whom it is.
    pub(crate) fn router_mut(&mut self) -> &mut Peer {
        match self {
            Self::Route { router, .. }
            | Self::Withdraw { router, .. }
            | Self::Lost { router }
            | Self::EndOfRib { router, .. } => router,
        }
    }
}

/// What a message tells.
#[derive(Debug, Default)]
pub(crate) struct Update {
    pub(crate) events: Vec<Event>,
    /// Why what it announces is withdrawn, if it is.
    pub(crate) damage: Option<Damage>,
}

/// What a whole BGP message tells of `router`. Messages other than updates tell nothing.
///
/// # Errors
/// If it is damaged; then none of it is told.
pub(crate) fn events(message: &[u8], router: Peer, session: Session) -> Result<Update, Damage> {
    const HEADER_BYTES: usize = 19;
    const UPDATE: u8 = 2;
    let mut wire = Wire(message);
    wire.take(16, "BGP header")?; // The marker tells nothing, and in old dumps it can be anything.
    let length = usize::from(wire.u16("BGP header")?);
    let kind = wire.u8("BGP header")?;
    let length = length.checked_sub(HEADER_BYTES).ok_or("its BGP message is shorter than a header")?;
    let body = wire.take(length, "BGP message")?;
    if kind == UPDATE { Telling { router, session, events: Vec::new() }.update(body) } else { Ok(Update::default()) }
}

/// The route that an entry of a table tells by its attributes, and what it is chosen by.
///
/// # Errors
/// If they are damaged, or have no AS path.
pub(crate) fn entry_route(attributes: &[u8], prefix: IpNet, width: AsWidth) -> Result<(Route, Preference), Damage> {
    let attributes = Attributes::read(attributes)?;
    let next_hop = match prefix {
        IpNet::V4(_) => attributes.next_hop().or_else(|| attributes.entry_next_hop()),
        IpNet::V6(_) => attributes.entry_next_hop(),
    };
    let (as_path, preference) = attributes.path(width)?;
    Ok((Route { prefix, next_hop, as_path }, preference))
}

/// An update on its way to events.
struct Telling {
    router: Peer,
    session: Session,
    events: Vec<Event>,
}

impl Telling {
    fn update(mut self, body: &[u8]) -> Result<Update, Damage> {
        let mut wire = Wire(body);
        let withdrawn = wire.sized("withdrawn routes")?;
        let told = wire.sized("path attributes")?;
        let attributes = Attributes::read(told)?;
        let announced = wire.rest();
        // First what goes: a prefix that is in both is announced (RFC 4271 §4.3).
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
            self.end_of_rib(told, unreach.map(|(family, _)| family));
        }
        Ok(Update { events: self.events, damage })
    }

    /// An update of no prefix, with these attributes: nothing at all is the mark of IPv4, that nothing is withdrawn the one of its family.
    fn end_of_rib(&mut self, attributes: &[u8], withdrawn: Option<Family>) {
        if let Some(family) = withdrawn.or_else(|| attributes.is_empty().then_some(Family::Ipv4)) {
            self.events.push(Event::EndOfRib { router: self.router, family: family.address_type() });
        }
    }

    fn withdraw(&mut self, family: Family, prefixes: &[u8]) -> Result<(), Damage> {
        let router = self.router;
        self.each(family, prefixes, |path_id, prefix| Event::Withdraw { router, path_id, prefix })
    }

    /// Announces prefixes, or withdraws them if there is no path.
    fn announce(
        &mut self,
        family: Family,
        prefixes: &[u8],
        next_hop: Option<IpAddr>,
        path: Option<&(AsPath, Preference)>,
    ) -> Result<(), Damage> {
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
    ) -> Result<(), Damage> {
        let mut wire = Wire(prefixes);
        while !wire.is_empty() {
            let path_id = if self.session.has_path_ids(family) { Some(wire.u32("path identifier")?) } else { None };
            self.events.push(event(path_id, wire.prefix(family)?));
        }
        Ok(())
    }
}
