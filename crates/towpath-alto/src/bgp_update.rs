//! BGP updates, and the attributes of table entries, read as routes (RFC 4271 §4.3, RFC 4760, RFC 6793, RFC 7911).
//!
//! `mrt` and `bmp` find the messages; both read them here. Only what a [`Route`] has is decoded: prefixes, AS path, next hop.
//! All other attributes are passed over, and no memory is taken for them. A message is told as a whole or not at all.
//!
//! `bgpkit-parser` reads updates too, but guesses whether prefixes come with path identifiers: of `0.0.0.0/0 10.0.0.0/16
//! 11.0.0.0/8` it tells the last alone, and takes what is before for an identifier. Here a `Session` says whether they do.
//! It also decodes each attribute into memory of its own, communities and all.
//!
//! Only unicast prefixes of IPv4 and IPv6 are told. Nothing here reads from anywhere, and no input makes it panic.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

use crate::route::{AsPath, Hop, Route};

/// The longest AS path that is read, with what is prepended; a set is one hop. A segment of a path has no more (RFC 4271 §4.3).
const MAX_HOPS: usize = 255;

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

/// What changed in the routes of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It has this route now, instead of an earlier one of the same prefix and path identifier.
    Route {
        /// Who has it.
        router: Peer,
        /// Tells several routes to one prefix apart, where the session has ADD-PATH (RFC 7911).
        path_id: Option<u32>,
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
}

/// Why something cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damage(Cow<'static, str>);

impl From<&'static str> for Damage {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

impl From<String> for Damage {
    fn from(reason: String) -> Self {
        Self(reason.into())
    }
}

/// The families of addresses that are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// That of an address family identifier, if it is told.
    pub(crate) fn of_afi(afi: u16) -> Option<Self> {
        match afi {
            1 => Some(Self::Ipv4),
            2 => Some(Self::Ipv6),
            _ => None,
        }
    }

    fn octets(self) -> usize {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 => 16,
        }
    }

    /// The address that begins with `octets`; those that it lacks are zero, those that are too many are left out.
    pub(crate) fn address(self, octets: &[u8]) -> IpAddr {
        let mut padded = [0_u8; 16];
        padded.iter_mut().zip(octets).for_each(|(place, octet)| *place = *octet);
        let [a, b, c, d, ..] = padded;
        match self {
            Self::Ipv4 => Ipv4Addr::new(a, b, c, d).into(),
            Self::Ipv6 => Ipv6Addr::from(padded).into(),
        }
    }
}

/// How many octets an AS number has (RFC 6793).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsWidth {
    Two,
    Four,
}

impl AsWidth {
    fn octets(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Of which families prefixes come with path identifiers (ADD-PATH, RFC 7911 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AddPath {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
}

/// What the speakers of a session agreed on, without which their updates cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) as_width: AsWidth,
    pub(crate) add_path: AddPath,
}

impl Session {
    fn has_path_ids(self, family: Family) -> bool {
        match family {
            Family::Ipv4 => self.add_path.ipv4,
            Family::Ipv6 => self.add_path.ipv6,
        }
    }
}

/// Bytes that are read from the front. Each reading names, for [`Damage`], `what` it reads.
#[derive(Debug)]
pub(crate) struct Wire<'a>(pub(crate) &'a [u8]);

impl<'a> Wire<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, not read.
    pub(crate) fn first(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// All that is not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Damage> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else { return Err(cut(what)) };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Damage> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else { return Err(cut(what)) };
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Damage> {
        self.array(what).map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Damage> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Damage> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// What follows a length of two octets.
    pub(crate) fn sized(&mut self, what: &'static str) -> Result<&'a [u8], Damage> {
        let length = self.u16(what)?;
        self.take(length.into(), what)
    }

    pub(crate) fn as_number(&mut self, width: AsWidth, what: &'static str) -> Result<u32, Damage> {
        match width {
            AsWidth::Two => self.u16(what).map(u32::from),
            AsWidth::Four => self.u32(what),
        }
    }

    pub(crate) fn address(&mut self, family: Family, what: &'static str) -> Result<IpAddr, Damage> {
        self.take(family.octets(), what).map(|octets| family.address(octets))
    }

    /// A prefix as updates have it: its length in bits, and as many octets as these need.
    pub(crate) fn prefix(&mut self, family: Family) -> Result<IpNet, Damage> {
        let length = self.u8("prefix")?;
        let octets = self.take(usize::from(length).div_ceil(8), "prefix")?;
        network(family.address(octets), length)
    }
}

fn cut(what: &'static str) -> Damage {
    format!("it ends within its {what}").into()
}

/// The prefix of that length that `address` is in.
///
/// # Errors
/// If it is longer than the address.
pub(crate) fn network(address: IpAddr, length: u8) -> Result<IpNet, Damage> {
    match IpNet::new(address, length) {
        Ok(prefix) => Ok(prefix.trunc()),
        Err(_) => Err(format!("a prefix of {length} bits is longer than an address").into()),
    }
}

/// What a whole BGP message tells of `router`. Messages other than updates tell nothing.
///
/// # Errors
/// If it is damaged; then none of it is told.
pub(crate) fn events(message: &[u8], router: Peer, session: Session) -> Result<Vec<Event>, Damage> {
    const HEADER_BYTES: usize = 19;
    const UPDATE: u8 = 2;
    let mut wire = Wire(message);
    wire.take(16, "BGP header")?; // The marker tells nothing, and in old dumps it can be anything.
    let length = usize::from(wire.u16("BGP header")?);
    let kind = wire.u8("BGP header")?;
    let length = length.checked_sub(HEADER_BYTES).ok_or("its BGP message is shorter than a header")?;
    let body = wire.take(length, "BGP message")?;
    if kind == UPDATE { Telling { router, session, events: Vec::new() }.update(body) } else { Ok(Vec::new()) }
}

/// The route that an entry of a table tells by its attributes.
///
/// # Errors
/// If they are damaged, or have no AS path.
pub(crate) fn entry_route(attributes: &[u8], prefix: IpNet, width: AsWidth) -> Result<Route, Damage> {
    let attributes = Attributes::read(attributes)?;
    let next_hop = match prefix {
        IpNet::V4(_) => attributes.next_hop().or_else(|| attributes.entry_next_hop()),
        IpNet::V6(_) => attributes.entry_next_hop(),
    };
    Ok(Route { prefix, next_hop, as_path: attributes.as_path(width)? })
}

/// An update on its way to events.
struct Telling {
    router: Peer,
    session: Session,
    events: Vec<Event>,
}

impl Telling {
    fn update(mut self, body: &[u8]) -> Result<Vec<Event>, Damage> {
        let mut wire = Wire(body);
        let withdrawn = wire.sized("withdrawn routes")?;
        let attributes = Attributes::read(wire.sized("path attributes")?)?;
        let announced = wire.rest();
        // First what goes: a prefix that is in both is announced (RFC 4271 §4.3).
        self.withdraw(Family::Ipv4, withdrawn)?;
        if let Some((family, prefixes)) = attributes.unreach()? {
            self.withdraw(family, prefixes)?;
        }
        let reach = attributes.reach()?;
        if reach.is_some() || !announced.is_empty() {
            let as_path = attributes.as_path(self.session.as_width)?;
            self.announce(Family::Ipv4, announced, attributes.next_hop(), &as_path)?;
            if let Some(reach) = reach {
                self.announce(reach.family, reach.prefixes, reach.next_hop, &as_path)?;
            }
        }
        Ok(self.events)
    }

    fn withdraw(&mut self, family: Family, prefixes: &[u8]) -> Result<(), Damage> {
        let router = self.router;
        self.each(family, prefixes, |path_id, prefix| Event::Withdraw { router, path_id, prefix })
    }

    fn announce(
        &mut self,
        family: Family,
        prefixes: &[u8],
        next_hop: Option<IpAddr>,
        as_path: &AsPath,
    ) -> Result<(), Damage> {
        let router = self.router;
        self.each(family, prefixes, |path_id, prefix| {
            let route = Route { prefix, next_hop, as_path: as_path.clone() };
            Event::Route { router, path_id, route }
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

/// The values of the attributes that are read, each as it came.
#[derive(Default)]
struct Attributes<'a> {
    as_path: Option<&'a [u8]>,
    next_hop: Option<&'a [u8]>,
    aggregator: Option<&'a [u8]>,
    reach: Option<&'a [u8]>,
    unreach: Option<&'a [u8]>,
    as4_path: Option<&'a [u8]>,
    as4_aggregator: Option<&'a [u8]>,
}

/// The prefixes that an attribute announces (`MP_REACH_NLRI`).
struct Reach<'a> {
    family: Family,
    next_hop: Option<IpAddr>,
    prefixes: &'a [u8],
}

impl<'a> Attributes<'a> {
    fn read(attributes: &'a [u8]) -> Result<Self, Damage> {
        const WHAT: &str = "path attributes";
        const EXTENDED_LENGTH: u8 = 0x10;
        let mut wire = Wire(attributes);
        let mut found = Self::default();
        while !wire.is_empty() {
            let [flags, code] = wire.array::<2>(WHAT)?;
            let is_long = flags & EXTENDED_LENGTH != 0;
            let length = if is_long { wire.u16(WHAT)? } else { wire.u8(WHAT)?.into() };
            let value = wire.take(length.into(), WHAT)?;
            let place = match code {
                2 => &mut found.as_path,
                3 => &mut found.next_hop,
                7 => &mut found.aggregator,
                14 => &mut found.reach,
                15 => &mut found.unreach,
                17 => &mut found.as4_path,
                18 => &mut found.as4_aggregator,
                _ => continue,
            };
            // Of what is there twice, the first holds (RFC 7606 §3 g).
            place.get_or_insert(value);
        }
        Ok(found)
    }

    /// `NEXT_HOP`, which is of IPv4 alone.
    fn next_hop(&self) -> Option<IpAddr> {
        self.next_hop.filter(|value| value.len() == Family::Ipv4.octets()).and_then(next_hop)
    }

    /// The next hop that `MP_REACH_NLRI` tells in a table. RFC 6396 §4.3.4 leaves nothing there but it and its length; some
    /// write the whole attribute all the same, which begins with a zero, as no length of a next hop does.
    fn entry_next_hop(&self) -> Option<IpAddr> {
        let value = self.reach?;
        let value = if value.first() == Some(&0) { value.get(3..)? } else { value };
        let (length, rest) = value.split_first()?;
        next_hop(rest.get(..usize::from(*length))?)
    }

    fn reach(&self) -> Result<Option<Reach<'a>>, Damage> {
        const WHAT: &str = "MP_REACH_NLRI";
        let Some(value) = self.reach else { return Ok(None) };
        let mut wire = Wire(value);
        let family = unicast(&mut wire, WHAT)?;
        let length = wire.u8(WHAT)?;
        let next_hop = next_hop(wire.take(length.into(), WHAT)?);
        wire.u8(WHAT)?; // Reserved.
        Ok(family.map(|family| Reach { family, next_hop, prefixes: wire.rest() }))
    }

    fn unreach(&self) -> Result<Option<(Family, &'a [u8])>, Damage> {
        let Some(value) = self.unreach else { return Ok(None) };
        let mut wire = Wire(value);
        let family = unicast(&mut wire, "MP_UNREACH_NLRI")?;
        Ok(family.map(|family| (family, wire.rest())))
    }

    /// The path, with the numbers that had no place in two octets (RFC 6793 §4.2.3).
    fn as_path(&self, width: AsWidth) -> Result<AsPath, Damage> {
        let mut path = hops(self.as_path.ok_or("it has no AS_PATH")?, width)?;
        // Only speakers that know no more than two octets send AS4_PATH, and a broken one is passed over (RFC 6793 §6).
        if let (AsWidth::Two, Some(as4_path)) = (width, self.as4_path)
            && self.as4_holds()
            && let Ok(wide) = hops(as4_path, AsWidth::Four)
            && let Some(leading) = path.len().checked_sub(wide.len())
        {
            path.truncate(leading);
            path.extend(wide);
        }
        Ok(AsPath::new(path))
    }

    /// Whether nobody aggregated the route without minding `AS4_PATH`, which would be of another route then (RFC 6793 §4.2.3).
    fn as4_holds(&self) -> bool {
        const AS_TRANS: [u8; 2] = 23456_u16.to_be_bytes();
        match (self.aggregator, self.as4_aggregator) {
            (Some(aggregator), Some(_)) => aggregator.starts_with(&AS_TRANS),
            _ => true,
        }
    }
}

/// The family of what follows, if it is unicast and of a family that is told.
fn unicast(wire: &mut Wire<'_>, what: &'static str) -> Result<Option<Family>, Damage> {
    const UNICAST: u8 = 1;
    let family = Family::of_afi(wire.u16(what)?);
    Ok(if wire.u8(what)? == UNICAST { family } else { None })
}

/// A next hop; of two, the global one (RFC 2545 §3). What a router originates itself has a zero, which is none.
fn next_hop(value: &[u8]) -> Option<IpAddr> {
    let family = match value.len() {
        4 => Family::Ipv4,
        16 | 32 => Family::Ipv6,
        _ => return None,
    };
    Some(family.address(value)).filter(|address| !address.is_unspecified())
}

/// The number that two or four octets are.
fn number(octets: &[u8]) -> u32 {
    octets.iter().fold(0_u32, |number, octet| (number << 8) | u32::from(*octet))
}

/// The hops of an AS path, repetitions and all. Confederations are inside of one AS, so theirs are left out.
fn hops(path: &[u8], width: AsWidth) -> Result<Vec<Hop>, Damage> {
    const WHAT: &str = "AS path";
    const SET: u8 = 1;
    const SEQUENCE: u8 = 2;
    const CONFED_SEQUENCE: u8 = 3;
    const CONFED_SET: u8 = 4;
    let mut wire = Wire(path);
    let mut hops = Vec::with_capacity((path.len() / width.octets()).min(MAX_HOPS));
    while !wire.is_empty() {
        let [kind, count] = wire.array::<2>(WHAT)?;
        let members = wire.take(usize::from(count) * width.octets(), WHAT)?.chunks_exact(width.octets());
        match kind {
            SEQUENCE => hops.extend(members.map(number).map(Hop::As)),
            SET if count > 0 => hops.push(Hop::Set(members.map(number).collect())),
            SET | CONFED_SEQUENCE | CONFED_SET => {}
            _ => return Err(format!("its AS path has a segment of unknown type {kind}").into()),
        }
        if hops.len() > MAX_HOPS {
            return Err(format!("its AS path has more than {MAX_HOPS} hops").into());
        }
    }
    Ok(hops)
}
