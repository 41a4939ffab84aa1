//! Messages received by the collector and state changes of its sessions: `BGP4MP` (RFC 6396 §4.4, RFC 8050 §3).

use bgpkit_parser::models::Bgp4MpType;

use super::{Dump, Event, MrtEvent, Peer};
use crate::bgp_update::{AddPath, AsWidth, BgpDecodeError, Family, SessionParameters, Wire, events};

impl<F: FnMut(MrtEvent)> Dump<F> {
    pub(super) fn bgp4mp(&mut self, subtype: u16, body: &[u8]) -> Result<(), BgpDecodeError> {
        let wire = Wire(body);
        match Bgp4MpType::try_from(subtype) {
            Ok(Bgp4MpType::StateChange) => self.state_change(AsWidth::Two, wire),
            Ok(Bgp4MpType::StateChangeAs4) => self.state_change(AsWidth::Four, wire),
            Ok(Bgp4MpType::Message) => self.message(AsWidth::Two, false, wire),
            Ok(Bgp4MpType::MessageAs4) => self.message(AsWidth::Four, false, wire),
            Ok(Bgp4MpType::MessageAddpath) => self.message(AsWidth::Two, true, wire),
            Ok(Bgp4MpType::MessageAs4Addpath) => self.message(AsWidth::Four, true, wire),
            // `_LOCAL` messages were sent by the collector and carry no routes of the named peer.
            _ => {
                self.ignore();
                Ok(())
            }
        }
    }

    fn message(&mut self, as_width: AsWidth, has_path_ids: bool, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        let router = envelope(as_width, &mut wire)?;
        let session = SessionParameters { as_width, add_path: AddPath { ipv4: has_path_ids, ipv6: has_path_ids } };
        let update = events(wire.rest(), router, session)?;
        update.events.into_iter().for_each(|event| self.emit(event));
        update.damage.map_or(Ok(()), Err)
    }

    fn state_change(&mut self, as_width: AsWidth, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        /// The session state for exchanging routes (RFC 4271 §8.2.2).
        const ESTABLISHED: u16 = 6;
        let router = envelope(as_width, &mut wire)?;
        let [old, new] = [wire.u16("old state")?, wire.u16("new state")?];
        if old == ESTABLISHED && new != ESTABLISHED {
            self.emit(Event::Lost { router });
        }
        Ok(())
    }
}

/// Reads the header of a message and returns the peer that sent it.
fn envelope(as_width: AsWidth, wire: &mut Wire<'_>) -> Result<Peer, BgpDecodeError> {
    let peer_as = wire.as_number(as_width, "peer AS")?;
    wire.as_number(as_width, "local AS")?;
    wire.u16("interface index")?;
    let family = Family::of_afi(wire.u16("address family")?).ok_or("its peer has an address of an unknown family")?;
    let peer = wire.address(family, "peer address")?;
    wire.address(family, "local address")?;
    Ok(Peer::of_collector(peer, peer_as))
}
