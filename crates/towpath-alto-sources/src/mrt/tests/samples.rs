//! Dumps encoded by `bgpkit-parser`, and the events they contain.

use std::io::Write as _;

use bgpkit_parser::{
    BgpElem, MrtRecord,
    encoder::{MrtRibEncoder, MrtUpdatesEncoder},
    models::{
        AsPath, Asn, AttrRaw, AttributeValue, Attributes, Bgp4MpEnum, Bgp4MpMessage, Bgp4MpType, BgpMessage,
        BgpUpdateMessage, CommonHeader, ElemType, EntryType, MrtMessage, NetworkPrefix, Origin, Peer as SentPeer,
        PeerIndexTable, RibAfiEntries, RibEntry, TableDumpV2Message, TableDumpV2Type,
    },
};
use flate2::{Compression, write::GzEncoder};

use crate::mrt::{Event, MrtEvent, Peer, Summary, read};
use towpath_alto::route::Route;

pub(super) const V4: &str = "192.0.2.1";
pub(super) const V6: &str = "2001:db8::1";

/// Announcement by `peer`, whose AS is the first of `path`.
pub(super) fn announced(peer: &str, prefix: &str, next_hop: &str, path: &[u32]) -> BgpElem {
    BgpElem {
        timestamp: 1_700_000_000.0,
        peer_ip: peer.parse().unwrap(),
        peer_asn: Asn::new_32bit(path[0]),
        prefix: prefix.parse().unwrap(),
        next_hop: Some(next_hop.parse().unwrap()),
        as_path: Some(AsPath::from_sequence(path)),
        origin: Some(Origin::IGP),
        ..BgpElem::default()
    }
}

pub(super) fn withdrawn(peer: &str, prefix: &str, as_number: u32) -> BgpElem {
    BgpElem { elem_type: ElemType::WITHDRAW, ..announced(peer, prefix, "192.0.2.9", &[as_number]) }
}

pub(super) fn table(elements: &[BgpElem]) -> Vec<u8> {
    let mut encoder = MrtRibEncoder::new();
    elements.iter().for_each(|element| encoder.process_elem(element).unwrap());
    encoder.export_bytes().unwrap().to_vec()
}

pub(super) fn updates(elements: &[BgpElem]) -> Vec<u8> {
    let mut encoder = MrtUpdatesEncoder::new();
    elements.iter().for_each(|element| encoder.process_elem(element));
    encoder.export_bytes().unwrap().to_vec()
}

pub(super) fn record(entry_type: EntryType, entry_subtype: u16, message: MrtMessage) -> Vec<u8> {
    let common_header =
        CommonHeader { timestamp: 1_700_000_000, microsecond_timestamp: None, entry_type, entry_subtype, length: 0 };
    MrtRecord { common_header, message }.encode().unwrap().to_vec()
}

/// Encodes an update as written by a collector.
pub(super) fn received(msg_type: Bgp4MpType, update: BgpUpdateMessage) -> Vec<u8> {
    let message = Bgp4MpMessage {
        msg_type,
        peer_asn: Asn::new_16bit(64500),
        local_asn: Asn::new_16bit(64499),
        interface_index: 0,
        peer_ip: V4.parse().unwrap(),
        local_ip: "192.0.2.2".parse().unwrap(),
        bgp_message: BgpMessage::Update(update),
    };
    record(EntryType::BGP4MP, msg_type as u16, MrtMessage::Bgp4Mp(Bgp4MpEnum::Message(message)))
}

pub(super) fn attributes(values: impl IntoIterator<Item = AttributeValue>) -> Attributes {
    let next_hop = AttributeValue::NextHop("192.0.2.1".parse().unwrap());
    [AttributeValue::Origin(Origin::IGP), next_hop].into_iter().chain(values).collect()
}

pub(super) fn prefixes(texts: &[&str]) -> Vec<NetworkPrefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(super) fn events(dump: &[u8]) -> (Vec<Event>, Summary) {
    let mut events = Vec::new();
    let take = |change| {
        if let MrtEvent::Change(event) = change {
            events.push(event);
        }
    };
    let summary = read(dump, take).unwrap();
    (events, summary)
}

pub(super) fn peer(address: &str, as_number: u32) -> Peer {
    Peer::of_collector(address.parse().unwrap(), as_number)
}

/// Returns one line per event.
pub(super) fn event_lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Route { router, path_id, route: Route { prefix, next_hop, as_path }, .. } => {
            let next_hop = next_hop.map_or_else(|| "nobody".to_owned(), |next_hop| next_hop.to_string());
            let path_id = path_id.map_or_else(String::new, |path_id| format!("#{path_id}"));
            format!("{} has {prefix}{path_id} by {next_hop}: {as_path}", router.address)
        }
        Event::Withdraw { router, prefix, .. } => format!("{} has no {prefix}", router.address),
        Event::Lost { router } => format!("{} has nothing", router.address),
        Event::EndOfRib { router, family } => format!("{} has no more of {}", router.address, family.name()),
    };
    events.iter().map(line).collect()
}

/// Like [`event_lines`], but sorted, because the table encoder has no fixed order.
pub(super) fn sorted(events: &[Event]) -> Vec<String> {
    let mut lines = event_lines(events);
    lines.sort();
    lines
}

/// A table of two peers, followed by some updates.
pub(super) fn sample() -> Vec<u8> {
    let routes = [
        announced(V4, "10.1.0.0/16", "192.0.2.7", &[64500, 64500, 70000]),
        announced(V6, "10.1.0.0/16", "192.0.2.8", &[64501]),
        announced(V6, "2001:db8:1::/48", "2001:db8::7", &[64501, 1]),
    ];
    let changes = [
        announced(V4, "10.2.0.0/15", "192.0.2.7", &[64500, 3]),
        announced(V6, "2001:db8:2::/48", "2001:db8::7", &[64501, 3]),
        withdrawn(V4, "10.1.0.0/16", 64500),
        withdrawn(V6, "2001:db8:1::/48", 64501),
    ];
    [table(&routes), updates(&changes)].concat()
}

/// A table with one prefix and two peers with these attributes.
pub(super) fn entries(values: Vec<Vec<AttributeValue>>) -> Vec<u8> {
    let mut peers = PeerIndexTable::default();
    for address in [V4, V6] {
        let peer = SentPeer::new("192.0.2.1".parse().unwrap(), address.parse().unwrap(), Asn::new_32bit(64500));
        peers.add_peer(peer).unwrap();
    }
    let entry = |(peer_index, values): (u16, Vec<AttributeValue>)| RibEntry {
        peer_index,
        originated_time: 0,
        path_id: None,
        attributes: attributes(values),
    };
    let rib = RibAfiEntries {
        rib_type: TableDumpV2Type::RibIpv4Unicast,
        sequence_number: 0,
        prefix: "10.0.0.0/8".parse().unwrap(),
        rib_entries: (0..).zip(values).map(entry).collect(),
    };
    let message = |kind: TableDumpV2Type, message| {
        record(EntryType::TABLE_DUMP_V2, kind as u16, MrtMessage::TableDumpV2Message(message))
    };
    let table = message(TableDumpV2Type::PeerIndexTable, TableDumpV2Message::PeerIndexTable(peers));
    [table, message(TableDumpV2Type::RibIpv4Unicast, TableDumpV2Message::RibAfi(rib))].concat()
}

/// An AS path of these octets.
pub(super) fn raw_path(octets: &[u8]) -> AttributeValue {
    AttributeValue::Raw(AttrRaw { code: 2, bytes: octets.to_vec().into() })
}

/// Returns the offsets at which records end.
pub(super) fn ends(dump: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = 0;
    while let Some(length) = dump.get(end + 8..).and_then(|rest| rest.first_chunk::<4>()) {
        end += 12 + u32::from_be_bytes(*length) as usize;
        ends.push(end);
    }
    ends
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
