//! Path attributes (RFC 4271 §4.3). Only the attributes needed for a route or its preference are decoded.

use std::net::IpAddr;

use super::{
    Preference,
    wire::{AsWidth, BgpDecodeError, Family, Wire},
};
use towpath_alto::route::{AsPath, Hop};

/// Maximum length of an AS path, including prepended hops; a set counts as one hop. Equals the maximum for one path
/// segment (RFC 4271 §4.3).
const MAX_HOPS: usize = 255;

/// The undecoded values of the attributes in use.
#[derive(Default)]
pub(super) struct Attributes<'a> {
    origin: Option<&'a [u8]>,
    as_path: Option<&'a [u8]>,
    next_hop: Option<&'a [u8]>,
    med: Option<&'a [u8]>,
    local_pref: Option<&'a [u8]>,
    aggregator: Option<&'a [u8]>,
    reach: Option<&'a [u8]>,
    unreach: Option<&'a [u8]>,
    as4_path: Option<&'a [u8]>,
    as4_aggregator: Option<&'a [u8]>,
}

/// The prefixes announced by `MP_REACH_NLRI`.
pub(super) struct MpReach<'a> {
    pub(super) family: Family,
    pub(super) next_hop: Option<IpAddr>,
    pub(super) prefixes: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(super) fn read(attributes: &'a [u8]) -> Result<Self, BgpDecodeError> {
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
                1 => &mut found.origin,
                2 => &mut found.as_path,
                3 => &mut found.next_hop,
                4 => &mut found.med,
                5 => &mut found.local_pref,
                7 => &mut found.aggregator,
                14 => &mut found.reach,
                15 => &mut found.unreach,
                17 => &mut found.as4_path,
                18 => &mut found.as4_aggregator,
                _ => continue,
            };
            // If an attribute occurs twice, the first one is used (RFC 7606 §3 g).
            place.get_or_insert(value);
        }
        Ok(found)
    }

    /// Returns `NEXT_HOP`, which applies to IPv4 only.
    pub(super) fn next_hop(&self) -> Option<IpAddr> {
        self.next_hop.filter(|value| value.len() == Family::Ipv4.octets()).and_then(next_hop)
    }

    /// Returns the next hop from `MP_REACH_NLRI` in a RIB entry. RFC 6396 §4.3.4 keeps only the next hop and its
    /// length there. Some writers store the whole attribute, which starts with a zero, unlike any next hop length.
    pub(super) fn entry_next_hop(&self) -> Option<IpAddr> {
        let value = self.reach?;
        let value = if value.first() == Some(&0) { value.get(3..)? } else { value };
        let (length, rest) = value.split_first()?;
        next_hop(rest.get(..usize::from(*length))?)
    }

    pub(super) fn reach(&self) -> Result<Option<MpReach<'a>>, BgpDecodeError> {
        const WHAT: &str = "MP_REACH_NLRI";
        let Some(value) = self.reach else { return Ok(None) };
        let mut wire = Wire(value);
        let family = unicast(&mut wire, WHAT)?;
        let length = wire.u8(WHAT)?;
        let next_hop = next_hop(wire.take(length.into(), WHAT)?);
        wire.u8(WHAT)?; // Reserved.
        Ok(family.map(|family| MpReach { family, next_hop, prefixes: wire.rest() }))
    }

    pub(super) fn unreach(&self) -> Result<Option<(Family, &'a [u8])>, BgpDecodeError> {
        let Some(value) = self.unreach else { return Ok(None) };
        let mut wire = Wire(value);
        let family = unicast(&mut wire, "MP_UNREACH_NLRI")?;
        Ok(family.map(|family| (family, wire.rest())))
    }

    /// Returns the path, including AS numbers that do not fit in two octets (RFC 6793 §4.2.3), and the preference.
    pub(super) fn path(&self, width: AsWidth) -> Result<(AsPath, Preference), BgpDecodeError> {
        let mut path = hops(self.as_path.ok_or("it has no AS_PATH")?, width)?;
        // Only speakers with two-octet AS numbers send AS4_PATH; a malformed one is ignored (RFC 6793 §6).
        if let (AsWidth::Two, Some(as4_path)) = (width, self.as4_path)
            && self.as4_holds()
            && let Ok(wide) = hops(as4_path, AsWidth::Four)
            && let Some(leading) = path.len().checked_sub(wide.len())
        {
            path.truncate(leading);
            path.extend(wide);
        }
        let preference = self.preference(path.len());
        Ok((AsPath::new(path), preference))
    }

    /// Returns the preference of a route with `hops` hops. Attributes of the wrong length count as absent; the route
    /// stays valid.
    fn preference(&self, hops: usize) -> Preference {
        /// The default of all routers.
        const LOCAL_PREF: u32 = 100;
        const INCOMPLETE: u8 = 2;
        let number = |value: Option<&[u8]>| <[u8; 4]>::try_from(value?).ok().map(u32::from_be_bytes);
        Preference {
            local_pref: number(self.local_pref).unwrap_or(LOCAL_PREF),
            path_length: u16::try_from(hops).unwrap_or(u16::MAX),
            origin: match self.origin {
                Some([origin]) => *origin,
                _ => INCOMPLETE,
            },
            med: number(self.med).unwrap_or_default(),
        }
    }

    /// Returns whether `AS4_PATH` applies. It does not if a router that ignores it aggregated the route (RFC 6793
    /// §4.2.3).
    fn as4_holds(&self) -> bool {
        const AS_TRANS: [u8; 2] = 23456_u16.to_be_bytes();
        match (self.aggregator, self.as4_aggregator) {
            (Some(aggregator), Some(_)) => aggregator.starts_with(&AS_TRANS),
            _ => true,
        }
    }
}

/// Reads the family and subsequent family, and returns the family if it is unicast and supported.
fn unicast(wire: &mut Wire<'_>, what: &'static str) -> Result<Option<Family>, BgpDecodeError> {
    const UNICAST: u8 = 1;
    let family = Family::of_afi(wire.u16(what)?);
    Ok(if wire.u8(what)? == UNICAST { family } else { None })
}

/// Decodes a next hop; of two, the global one (RFC 2545 §3). Routes originated by the router itself have the
/// unspecified address, which is treated as no next hop.
fn next_hop(value: &[u8]) -> Option<IpAddr> {
    let family = match value.len() {
        4 => Family::Ipv4,
        16 | 32 => Family::Ipv6,
        _ => return None,
    };
    Some(family.address(value)).filter(|address| !address.is_unspecified())
}

/// Decodes a big-endian number of two or four octets.
fn number(octets: &[u8]) -> u32 {
    octets.iter().fold(0_u32, |number, octet| (number << 8) | u32::from(*octet))
}

/// Decodes the hops of an AS path, including repeated ones. Confederation segments lie inside one AS and are left
/// out.
fn hops(path: &[u8], width: AsWidth) -> Result<Vec<Hop>, BgpDecodeError> {
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
