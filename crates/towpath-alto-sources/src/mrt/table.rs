//! Tables: `TABLE_DUMP` and `TABLE_DUMP_V2` (RFC 6396 §4.2 and §4.3, RFC 8050 §4).

use bgpkit_parser::models::TableDumpV2Type;

use super::{Dump, Event, MrtEvent, Peer};
use crate::bgp_update::{AsWidth, BgpDecodeError, Family, Wire, entry_route, network};

impl<F: FnMut(MrtEvent)> Dump<F> {
    pub(super) fn table_dump_v2(&mut self, subtype: u16, body: &[u8]) -> Result<(), BgpDecodeError> {
        match TableDumpV2Type::try_from(subtype) {
            Ok(TableDumpV2Type::PeerIndexTable) => self.peer_index_table(Wire(body))?,
            Ok(TableDumpV2Type::RibIpv4Unicast) => self.rib(Family::Ipv4, false, Wire(body))?,
            Ok(TableDumpV2Type::RibIpv6Unicast) => self.rib(Family::Ipv6, false, Wire(body))?,
            Ok(TableDumpV2Type::RibIpv4UnicastAddPath) => self.rib(Family::Ipv4, true, Wire(body))?,
            Ok(TableDumpV2Type::RibIpv6UnicastAddPath) => self.rib(Family::Ipv6, true, Wire(body))?,
            _ => self.ignore(),
        }
        Ok(())
    }

    /// Reads the peers to which the entries of the following records refer by index.
    fn peer_index_table(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const WHAT: &str = "peer index table";
        // Earlier tables have other indices.
        self.peers.clear();
        wire.u32(WHAT)?; // BGP identifier of the collector.
        let view = wire.length_prefixed(WHAT)?;
        let count = wire.u16(WHAT)?;
        let peers = (0..count).map(|_| peer_entry(&mut wire, WHAT)).collect::<Result<_, _>>()?;
        self.begin_table(view, peers);
        Ok(())
    }

    /// Reads the routes of all peers to one prefix.
    fn rib(&mut self, family: Family, has_path_ids: bool, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        wire.u32("sequence number")?;
        let prefix = wire.prefix(family)?;
        self.tables.families.insert(family.address_type());
        for _ in 0..wire.u16("entry count")? {
            let peer = wire.u16("RIB entry")?;
            wire.u32("RIB entry")?; // Originated time.
            let path_id = if has_path_ids { Some(wire.u32("RIB entry")?) } else { None };
            let attributes = wire.length_prefixed("RIB entry")?;
            let Some(router) = self.peers.get(usize::from(peer)).copied() else {
                self.skip(&format!("no preceding peer index table has peer {peer}").into());
                continue;
            };
            match entry_route(attributes, prefix, AsWidth::Four) {
                Ok((route, preference)) => self.emit(Event::Route { router, path_id, preference, route }),
                Err(damage) => self.skip(&damage),
            }
        }
        Ok(())
    }

    /// Reads one record, which has several entries if an early writer produced it.
    pub(super) fn table_dump(&mut self, subtype: u16, body: &[u8]) -> Result<(), BgpDecodeError> {
        let Some(family) = Family::of_afi(subtype) else {
            self.ignore();
            return Ok(());
        };
        let mut wire = Wire(body);
        wire.u32("view and sequence number")?;
        while !wire.is_empty() {
            let address = wire.address(family, "prefix")?;
            let length = wire.u8("prefix")?;
            wire.take(5, "table entry")?; // Status, which is constant, and originated time.
            let peer = wire.address(family, "peer address")?;
            let router = Peer::of_collector(peer, wire.as_number(AsWidth::Two, "peer AS")?);
            let attributes = wire.length_prefixed("path attributes")?;
            let route = network(address, length).and_then(|prefix| entry_route(attributes, prefix, AsWidth::Two));
            match route {
                Ok((route, preference)) => self.emit(Event::Route { router, path_id: None, preference, route }),
                Err(damage) => self.skip(&damage),
            }
        }
        Ok(())
    }
}

fn peer_entry(wire: &mut Wire<'_>, what: &'static str) -> Result<Peer, BgpDecodeError> {
    const IS_IPV6: u8 = 1;
    const HAS_FOUR_OCTET_AS: u8 = 2;
    let kind = wire.u8(what)?;
    wire.u32(what)?; // BGP identifier. Updates lack it, so that it cannot identify the peer.
    let address = wire.address(if kind & IS_IPV6 == 0 { Family::Ipv4 } else { Family::Ipv6 }, what)?;
    let width = if kind & HAS_FOUR_OCTET_AS == 0 { AsWidth::Two } else { AsWidth::Four };
    Ok(Peer::of_collector(address, wire.as_number(width, what)?))
}
