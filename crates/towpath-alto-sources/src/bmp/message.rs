//! Decodes the individual messages of a router (RFC 7854 §4).

use std::{
    collections::{HashMap, VecDeque},
    net::Ipv4Addr,
};

use super::{BmpEvent, Event, Message, Peer, Rib, open::negotiate};
use crate::bgp_update::{AddPath, AsWidth, BgpDecodeError, Family, SessionParameters, Wire, events};

/// State of one router, and events not yet taken.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Only sessions with ADD-PATH, keyed by [`session_of`].
    add_path: HashMap<Peer, AddPath>,
    events: VecDeque<BmpEvent>,
    skipped: u64,
    first_skipped: Option<String>,
}

impl Decoder {
    pub(super) fn take(&mut self) -> Option<BmpEvent> {
        self.events.pop_front()
    }

    pub(super) fn add_path_sessions(&self) -> usize {
        self.add_path.len()
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(super) fn first_skipped(&self) -> Option<&str> {
        self.first_skipped.as_deref()
    }

    pub(super) fn decode(&mut self, message: Message<'_>) {
        let wire = Wire(message.body);
        let (name, decoded) = match message.kind {
            0 => ("route monitoring", self.route_monitoring(wire)),
            2 => ("peer down", self.peer_down(wire)),
            3 => ("peer up", self.peer_up(wire)),
            4 => ("initiation", self.initiation(wire)),
            5 => ("termination", self.termination(wire)),
            // Statistics, mirrored messages, and unknown types, which RFC 7854 §4.1 requires to be ignored.
            _ => return,
        };
        if let Err(damage) = decoded {
            self.skipped += 1;
            self.first_skipped.get_or_insert_with(|| format!("{name}: {damage}"));
        }
    }

    fn route_monitoring(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        let Some(PeerHeader { peer, as_width, is_adj_rib_out: false }) = PeerHeader::read(&mut wire)? else {
            return Ok(());
        };
        let add_path = self.add_path.get(&session_of(peer)).copied().unwrap_or_default();
        let update = events(wire.rest(), peer, SessionParameters { as_width, add_path })?;
        self.events.extend(update.events.into_iter().map(BmpEvent::Change));
        update.damage.map_or(Ok(()), Err)
    }

    fn peer_up(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        let Some(PeerHeader { peer, .. }) = PeerHeader::read(&mut wire)? else { return Ok(()) };
        self.add_path.remove(&session_of(peer));
        wire.take(20, "local address and ports")?;
        let add_path = negotiate(&mut wire, peer.rib)?;
        if add_path != AddPath::default() {
            self.add_path.insert(session_of(peer), add_path);
        }
        self.events.extend(tables_of(peer).map(|router| BmpEvent::Up { router }));
        Ok(())
    }

    fn peer_down(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        let Some(PeerHeader { peer, .. }) = PeerHeader::read(&mut wire)? else { return Ok(()) };
        self.add_path.remove(&session_of(peer));
        self.events.extend(tables_of(peer).map(|router| BmpEvent::Change(Event::Lost { router })));
        Ok(())
    }

    fn initiation(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const DESCRIPTION: u16 = 1;
        const NAME: u16 = 2;
        let [mut name, mut description] = [None, None];
        while let Some((kind, value)) = information(&mut wire)? {
            match kind {
                NAME => name = Some(text(value)),
                DESCRIPTION => description = Some(text(value)),
                _ => {}
            }
        }
        self.events.push_back(BmpEvent::Session { name, description });
        Ok(())
    }

    fn termination(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const TEXT: u16 = 0;
        const REASON: u16 = 1;
        let [mut reason, mut detail] = [None, None];
        while let Some((kind, value)) = information(&mut wire)? {
            match kind {
                TEXT => detail = Some(text(value)),
                REASON => reason = Some(termination_reason(Wire(value).u16("reason")?)),
                _ => {}
            }
        }
        let reason = match (reason, detail) {
            (Some(reason), Some(detail)) => format!("{reason}: {detail}"),
            (Some(known), None) | (None, Some(known)) => known,
            (None, None) => termination_reason(1),
        };
        self.events.push_back(BmpEvent::End { reason });
        Ok(())
    }
}

/// Returns the session that carries the routes of `peer`. Pre-policy and post-policy routes share one session.
fn session_of(peer: Peer) -> Peer {
    let rib = if peer.rib == Rib::Local { Rib::Local } else { Rib::PrePolicy };
    Peer { rib, ..peer }
}

/// Returns the tables that start and end with a session. Flag L is irrelevant here: both tables contain only this
/// peer's routes.
fn tables_of(peer: Peer) -> impl Iterator<Item = Peer> {
    let ribs: &[Rib] = match peer.rib {
        Rib::Local => &[Rib::Local],
        Rib::PrePolicy | Rib::PostPolicy => &[Rib::PrePolicy, Rib::PostPolicy],
    };
    ribs.iter().map(move |rib| Peer { rib: *rib, ..peer })
}

/// Reads the next information TLV (RFC 7854 §4.4).
fn information<'a>(wire: &mut Wire<'a>) -> Result<Option<(u16, &'a [u8])>, BgpDecodeError> {
    if wire.is_empty() {
        return Ok(None);
    }
    let kind = wire.u16("information")?;
    Ok(Some((kind, wire.length_prefixed("information")?)))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Returns the text for a termination reason code (RFC 7854 §4.5).
fn termination_reason(code: u16) -> String {
    match code {
        0 => "administratively closed".into(),
        1 => "unspecified reason".into(),
        2 => "out of resources".into(),
        3 => "redundant connection".into(),
        4 => "permanently administratively closed".into(),
        _ => format!("reason {code}"),
    }
}

/// The per-peer header (RFC 7854 §4.2, RFC 8671 §4, RFC 9069 §4 and §5.1).
struct PeerHeader {
    peer: Peer,
    as_width: AsWidth,
    is_adj_rib_out: bool,
}

impl PeerHeader {
    /// Reads the header; returns `None` for an unknown peer type.
    fn read(wire: &mut Wire<'_>) -> Result<Option<Self>, BgpDecodeError> {
        const WHAT: &str = "per-peer header";
        const LOC_RIB: u8 = 3;
        let [kind, flags] = wire.array::<2>(WHAT)?;
        let distinguisher = u64::from_be_bytes(wire.array(WHAT)?);
        let address = wire.array::<16>(WHAT)?;
        let as_number = wire.u32(WHAT)?;
        let identifier = Ipv4Addr::from(wire.array::<4>(WHAT)?);
        wire.take(8, WHAT)?; // The timestamp.
        Ok(match kind {
            0..LOC_RIB => Some(Self::of_peer(flags, distinguisher, address, as_number)),
            LOC_RIB => Some(Self {
                peer: Peer { address: identifier.into(), as_number, distinguisher, rib: Rib::Local },
                as_width: AsWidth::Four,
                is_adj_rib_out: false,
            }),
            _ => None,
        })
    }

    fn of_peer(flags: u8, distinguisher: u64, address: [u8; 16], as_number: u32) -> Self {
        const IS_IPV6: u8 = 0x80;
        const IS_POST_POLICY: u8 = 0x40;
        const HAS_TWO_OCTET_AS: u8 = 0x20;
        const IS_ADJ_RIB_OUT: u8 = 0x10;
        let has = |flag: u8| flags & flag != 0;
        let [.., a, b, c, d] = address;
        let address = if has(IS_IPV6) { Family::Ipv6.address(&address) } else { Family::Ipv4.address(&[a, b, c, d]) };
        let rib = if has(IS_POST_POLICY) { Rib::PostPolicy } else { Rib::PrePolicy };
        Self {
            peer: Peer { address, as_number, distinguisher, rib },
            as_width: if has(HAS_TWO_OCTET_AS) { AsWidth::Two } else { AsWidth::Four },
            is_adj_rib_out: has(IS_ADJ_RIB_OUT),
        }
    }
}
