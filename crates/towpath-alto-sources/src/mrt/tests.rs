//! Dumps encoded by `bgpkit-parser`; malformed ones are patched by hand.

mod samples;

use std::time::Instant;

use bgpkit_parser::models::{
    AsPath, AsPathSegment, Asn, AttrFlags, Attribute, AttributeValue, Attributes, Bgp4MpEnum, Bgp4MpStateChange,
    Bgp4MpType, BgpState, BgpUpdateMessage, MrtMessage, NetworkPrefix, Nlri, TableDumpMessage,
};
use proptest::prelude::*;
use samples::{
    V4, V6, announced, attributes, ends, entries, event_lines, events, gzip, peer, prefixes, raw_path, received,
    record, sample, sorted, table, updates, withdrawn,
};

use super::*;
use crate::rib::RouteTables;

#[test]
fn tables_and_updates_are_told() {
    let (events, summary) = events(&sample());
    let routes = [
        "192.0.2.1 has 10.1.0.0/16 by 192.0.2.7: 64500 70000",
        "2001:db8::1 has 10.1.0.0/16 by 192.0.2.8: 64501",
        "2001:db8::1 has 2001:db8:1::/48 by 2001:db8::7: 64501 1",
    ];
    assert_eq!(sorted(&events[..3]), routes);
    let changes = [
        "192.0.2.1 has 10.2.0.0/15 by 192.0.2.7: 64500 3",
        "2001:db8::1 has 2001:db8:2::/48 by 2001:db8::7: 64501 3",
        "192.0.2.1 has no 10.1.0.0/16",
        "2001:db8::1 has no 2001:db8:1::/48",
    ];
    assert_eq!(event_lines(&events[3..]), changes);
    assert_eq!(summary, Summary { routes: 5, withdrawals: 2, ..Summary::default() });
}

#[test]
fn updates_are_of_the_peers_of_the_table() {
    let (events, _) = events(&sample());
    let of = |event: &Event| match event {
        Event::Route { router, .. }
        | Event::Withdraw { router, .. }
        | Event::Lost { router }
        | Event::EndOfRib { router, .. } => *router,
    };
    assert!(events.iter().map(of).all(|router| [peer(V4, 64500), peer(V6, 64501)].contains(&router)), "{events:?}");
}

#[test]
fn path_identifiers_are_told() {
    let mut route = announced(V4, "10.1.0.0/16", "192.0.2.7", &[64500]);
    route.prefix.path_id = Some(7);
    let (mut events, _) = events(&table(&[route]));
    let update = BgpUpdateMessage {
        attributes: attributes([AttributeValue::AsPath(AsPath::from_sequence([64500]))]),
        announced_prefixes: vec![NetworkPrefix::new("10.2.0.0/16".parse().unwrap(), Some(8))],
        ..BgpUpdateMessage::default()
    };
    events.extend(samples::events(&received(Bgp4MpType::MessageAddpath, update)).0);
    let lines = ["192.0.2.1 has 10.1.0.0/16#7 by 192.0.2.7: 64500", "192.0.2.1 has 10.2.0.0/16#8 by 192.0.2.1: 64500"];
    assert_eq!(event_lines(&events), lines);
}

#[test]
fn a_default_route_is_no_path_identifier() {
    let update = BgpUpdateMessage {
        attributes: attributes([AttributeValue::AsPath(AsPath::from_sequence([64500]))]),
        announced_prefixes: prefixes(&["0.0.0.0/0", "10.0.0.0/16", "11.0.0.0/8"]),
        withdrawn_prefixes: prefixes(&["0.0.0.0/0", "12.0.0.0/16", "13.0.0.0/8"]),
    };
    let (events, summary) = events(&received(Bgp4MpType::MessageAs4, update));
    assert_eq!((summary.routes, summary.withdrawals), (3, 3), "{events:?}");
}

#[test]
fn numbers_that_had_no_place_in_two_octets_are_put_back() {
    let two = [
        AsPathSegment::ConfedSequence([Asn::new_16bit(65001)].into_iter().collect()),
        AsPathSegment::sequence([64500, 64500, 23456, 23456]),
        AsPathSegment::set([9, 8]),
    ];
    let four = [AsPathSegment::sequence([70000, 70001]), AsPathSegment::set([9, 80000])];
    let paths = [
        AttributeValue::AsPath(AsPath::from_segments(two.to_vec())),
        AttributeValue::As4Path(AsPath::from_segments(four.to_vec())),
    ];
    let update = |values: Vec<AttributeValue>| BgpUpdateMessage {
        attributes: attributes(values),
        announced_prefixes: prefixes(&["10.0.0.0/8"]),
        ..BgpUpdateMessage::default()
    };
    let line = |path: &str| [format!("192.0.2.1 has 10.0.0.0/8 by 192.0.2.1: {path}")];
    let path_of = |kind, values| event_lines(&events(&received(kind, update(values))).0);
    assert_eq!(path_of(Bgp4MpType::Message, paths.to_vec()), line("64500 70000 70001 {9,80000}"));
    assert_eq!(path_of(Bgp4MpType::MessageAs4, paths.to_vec()), line("64500 23456 {8,9}"), "nobody needs it there");

    let longer = AttributeValue::As4Path(AsPath::from_sequence([1, 2, 3, 4, 5, 6]));
    assert_eq!(path_of(Bgp4MpType::Message, vec![paths[0].clone(), longer]), line("64500 23456 {8,9}"));

    let id = "192.0.2.3".parse().unwrap();
    let aggregated = [
        AttributeValue::Aggregator { asn: Asn::new_16bit(64500), id },
        AttributeValue::As4Aggregator { asn: Asn::new_32bit(70000), id },
    ];
    let values = [paths, aggregated].concat();
    assert_eq!(path_of(Bgp4MpType::Message, values), line("64500 23456 {8,9}"), "it is of another route");
}

#[test]
fn a_session_is_lost_when_it_is_established_no_more() {
    let change = |old_state, new_state| {
        let change = Bgp4MpStateChange {
            msg_type: Bgp4MpType::StateChangeAs4,
            peer_asn: Asn::new_32bit(70000),
            local_asn: Asn::new_32bit(64499),
            interface_index: 0,
            peer_ip: V6.parse().unwrap(),
            local_addr: "2001:db8::2".parse().unwrap(),
            old_state,
            new_state,
        };
        let message = MrtMessage::Bgp4Mp(Bgp4MpEnum::StateChange(change));
        record(EntryType::BGP4MP, Bgp4MpType::StateChangeAs4 as u16, message)
    };
    let ups = [change(BgpState::Idle, BgpState::Connect), change(BgpState::OpenConfirm, BgpState::Established)];
    assert_eq!(events(&ups.concat()), (vec![], Summary::default()));
    let (events, summary) = events(&change(BgpState::Established, BgpState::Idle));
    assert_eq!(events, [Event::Lost { router: peer(V6, 70000) }]);
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
}

#[test]
fn ends_of_tables_are_told() {
    let (events, summary) = events(&received(Bgp4MpType::MessageAs4, BgpUpdateMessage::default()));
    assert_eq!(event_lines(&events), ["192.0.2.1 has no more of ipv4"]);
    assert_eq!(summary, Summary { ends_of_rib: 1, ..Summary::default() });
}

#[test]
fn what_the_collector_sent_is_ignored() {
    let (events, summary) = events(&received(Bgp4MpType::MessageAs4Local, BgpUpdateMessage::default()));
    assert_eq!((events, summary.ignored, summary.skipped), (vec![], 1, 0));
}

#[test]
fn tables_of_the_first_version_are_told() {
    let entry = |prefix: &str, peer: &str, values: Vec<AttributeValue>| TableDumpMessage {
        view_number: 0,
        sequence_number: 0,
        prefix: prefix.parse().unwrap(),
        status: 1,
        originated_time: 1_000_000_000,
        peer_ip: peer.parse().unwrap(),
        peer_asn: Asn::new_16bit(64500),
        attributes: attributes(values),
    };
    let path = || AttributeValue::AsPath(AsPath::from_sequence([64500, 7]));
    let next_hop = Some("2001:db8::7".parse().unwrap());
    let reach = AttributeValue::MpReachNlri(Nlri::new_reachable("2001:db8:1::/48".parse().unwrap(), next_hop));
    let first = [entry("10.1.0.0/16", V4, vec![path()]), entry("10.2.0.0/16", V4, vec![path()])];
    let second = entry("2001:db8:1::/48", V6, vec![path(), reach]);
    let dump = [
        record(EntryType::TABLE_DUMP, 1, MrtMessage::TableDumpMessageBatch(first.to_vec())),
        record(EntryType::TABLE_DUMP, 2, MrtMessage::TableDumpMessage(second)),
    ];
    let lines = [
        "192.0.2.1 has 10.1.0.0/16 by 192.0.2.1: 64500 7",
        "192.0.2.1 has 10.2.0.0/16 by 192.0.2.1: 64500 7",
        "2001:db8::1 has 2001:db8:1::/48 by 2001:db8::7: 64500 7",
    ];
    assert_eq!(event_lines(&events(&dump.concat()).0), lines);
}

#[test]
fn damaged_entries_are_passed_over_alone() {
    let good = || vec![AttributeValue::AsPath(AsPath::from_sequence([64500]))];
    let first_skipped = |bad: Vec<AttributeValue>| {
        let (events, summary) = events(&entries(vec![bad, good()]));
        assert_eq!(event_lines(&events), ["2001:db8::1 has 10.0.0.0/8 by 192.0.2.1: 64500"]);
        assert_eq!((summary.routes, summary.skipped, summary.is_truncated), (1, 1, false));
        summary.first_skipped.unwrap()
    };
    assert_eq!(first_skipped(vec![]), "record 2: it has no AS_PATH");
    assert_eq!(first_skipped(vec![raw_path(&[2, 1, 0])]), "record 2: it is truncated within its AS path");
    assert_eq!(first_skipped(vec![raw_path(&[5, 0])]), "record 2: its AS path has a segment of unknown type 5");

    let (events, summary) = events(&entries(vec![good(), good(), good()]));
    assert_eq!((events.len(), summary.skipped), (2, 1), "there is no third peer");
}

#[test]
fn long_paths_are_passed_over() {
    let path = |hops: usize| {
        let segments = [AsPathSegment::sequence([1_u32; 200]), AsPathSegment::sequence(vec![2_u32; hops - 200])];
        let value = AttributeValue::AsPath(AsPath::from_segments(segments.to_vec()));
        // The attribute length does not fit into one octet.
        let flag = AttrFlags::EXTENDED | value.default_flags();
        Attributes::from(vec![Attribute { value, flag }])
    };
    let summary = |hops| {
        let attributes = path(hops);
        let announced_prefixes = prefixes(&["10.0.0.0/8"]);
        let update = BgpUpdateMessage { attributes, announced_prefixes, ..BgpUpdateMessage::default() };
        events(&received(Bgp4MpType::MessageAs4, update)).1
    };
    assert_eq!(summary(255).routes, 1);
    assert_eq!(summary(256).first_skipped.as_deref(), Some("record 1: its AS path has more than 255 hops"));
}

#[test]
fn what_is_announced_with_a_damaged_path_is_withdrawn() {
    let update = BgpUpdateMessage {
        withdrawn_prefixes: prefixes(&["12.0.0.0/8"]),
        attributes: attributes([raw_path(&[2])]),
        announced_prefixes: prefixes(&["10.0.0.0/8"]),
    };
    let (events, summary) = events(&received(Bgp4MpType::MessageAs4, update));
    assert_eq!(event_lines(&events), ["192.0.2.1 has no 12.0.0.0/8", "192.0.2.1 has no 10.0.0.0/8"]);
    assert_eq!((summary.withdrawals, summary.skipped), (2, 1));
}

#[test]
fn updates_are_told_as_a_whole_or_not_at_all() {
    let update = BgpUpdateMessage { withdrawn_prefixes: prefixes(&["12.0.0.0/8"]), ..BgpUpdateMessage::default() };
    let mut dump = received(Bgp4MpType::MessageAs4, update);
    // The withdrawn routes are followed by the attribute length, which is 0.
    *dump.last_mut().unwrap() = 1;
    let (events, summary) = events(&dump);
    assert_eq!((events, summary.skipped), (vec![], 1));
}

#[test]
fn records_behind_damaged_ones_are_told() {
    let mut unknown = updates(&[withdrawn(V4, "10.0.0.0/8", 1)]);
    unknown[4..6].copy_from_slice(&[0, 99]);
    let dump = [sample(), unknown, updates(&[withdrawn(V4, "10.0.0.0/8", 1)])].concat();
    let (events, summary) = events(&dump);
    assert_eq!((events.len(), summary.skipped, summary.is_truncated), (8, 1, false), "{summary:?}");
}

#[test]
fn no_memory_is_taken_for_a_length_that_cannot_be() {
    let endless = [&[0_u8, 0, 0, 0, 0, 13, 0, 2][..], &(32_u32 << 20).to_be_bytes(), &[0_u8; 100]].concat();
    let (events, summary) = events(&[sample(), endless.clone()].concat());
    assert_eq!((events.len(), summary.skipped, summary.is_truncated), (7, 1, true));
    assert!(matches!(read(&endless[..], drop), Err(MrtError::NotMrt(_))));
}

#[test]
fn what_came_before_the_end_of_a_file_is_told() {
    let dump = sample();
    let (all, _) = events(&dump);
    let ends = ends(&dump);
    assert_eq!(ends.last(), Some(&dump.len()));
    for length in 12..dump.len() {
        let (events, summary) = events(&dump[..length]);
        assert_eq!(events, all[..events.len()]);
        assert_eq!(summary.is_truncated, !ends.contains(&length), "{length}");
        assert_eq!(summary.skipped, 0);
    }
}

/// Returns the routes of [`V4`] that a feed holds after reading these dumps in order.
fn left(dumps: &[impl AsRef<[u8]>]) -> Vec<String> {
    let mut feed = RouteTables::default();
    for dump in dumps {
        read(dump.as_ref(), |event| feed.take_dumped(event, start())).unwrap();
    }
    let routers = feed.routers();
    let Some(router) = routers.get(V4) else { return Vec::new() };
    router.routes.iter().flat_map(|routes| routes.routes()).map(|(prefix, _)| prefix.to_string()).collect()
}

/// An arbitrary point in time.
#[expect(clippy::disallowed_methods, reason = "nothing waits for it")]
fn start() -> Instant {
    Instant::now()
}

#[test]
fn of_several_tables_in_one_file_the_last_holds() {
    let route = |peer: &str, prefix: &str| announced(peer, prefix, "192.0.2.7", &[64500, 7]);
    let first = table(&[route(V4, "10.1.0.0/16"), route(V4, "10.2.0.0/16"), route(V6, "10.1.0.0/16")]);
    let six = table(&[route(V4, "2001:db8::/32")]);
    let second = table(&[route(V4, "10.2.0.0/16"), route(V4, "10.3.0.0/16")]);
    assert_eq!(left(&[[&first[..], &second].concat()]), ["10.2.0.0/16", "10.3.0.0/16"]);
    assert_eq!(left(&[first.clone(), second.clone()]), ["10.2.0.0/16", "10.3.0.0/16"], "nor of several files");
    let families = [&first[..], &six, &second].concat();
    assert_eq!(left(&[families]), ["10.2.0.0/16", "10.3.0.0/16", "2001:db8::/32"], "each family has its own");
    let changes = updates(&[route(V4, "10.4.0.0/16"), withdrawn(V4, "10.3.0.0/16", 64500)]);
    let changed = [&first[..], &second, &changes].concat();
    assert_eq!(left(&[&changed]), ["10.2.0.0/16", "10.4.0.0/16"]);
    assert_eq!(left(&[&changed[..changed.len() - 1]]), ["10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"]);
    let gone = [&first[..], &table(&[route(V6, "10.1.0.0/16")])].concat();
    assert!(left(&[gone]).is_empty(), "a peer that is in no table any more has no routes");
    let cut = [&first[..], &second[..second.len() - 1]].concat();
    assert!(left(&[cut]).starts_with(&["10.1.0.0/16".into(), "10.2.0.0/16".into()]), "the old ones hold until the end");
}

#[test]
fn tables_of_several_views_stand_beside_each_other() {
    let mut view = table(&[announced(V4, "10.2.0.0/16", "192.0.2.7", &[64500, 7])]);
    // The name follows the header and the collector identifier.
    view[17] = 1;
    view.insert(18, b'x');
    view[11] += 1;
    let plain = table(&[announced(V4, "10.1.0.0/16", "192.0.2.7", &[64500, 7])]);
    let both = [&plain[..], &view].concat();
    assert_eq!(left(&[&both]), ["10.1.0.0/16", "10.2.0.0/16"]);
    assert_eq!(left(&[[&both[..], &plain].concat()]), ["10.1.0.0/16"]);
}

#[test]
fn where_a_file_is_cut_is_told() {
    let table = table(&[announced(V4, "10.1.0.0/16", "192.0.2.7", &[64500, 7])]);
    let whole = sample();
    let (cut_table, cut_updates) = (&table[..table.len() - 1], &whole[..whole.len() - 1]);
    for (dump, expected) in [(cut_table, (true, true)), (cut_updates, (true, false)), (&whole[..], (false, false))] {
        let (_, summary) = events(dump);
        assert_eq!((summary.is_truncated, summary.is_table_truncated), expected);
    }
}

#[test]
fn what_is_compressed_by_gzip_is_unpacked() {
    let dump = sample();
    assert_eq!(events(&gzip(&dump)), events(&dump));
    let (first, second) = dump.split_at(50);
    assert_eq!(events(&[gzip(first), gzip(second)].concat()), events(&dump), "in two members");
}

#[test]
fn a_compressed_file_that_is_cut_tells_so() {
    let packed = gzip(&sample());
    // The last eight bytes are the gzip trailer: all records are present, but completeness cannot be verified.
    let (all, summary) = events(&packed[..packed.len() - 1]);
    assert_eq!((all.len(), summary.is_truncated), (7, true));
}

#[test]
fn a_compressed_file_that_is_corrupt_is_an_error() {
    let mut packed = gzip(&sample());
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    let mut count = 0;
    let take = |event| count += u64::from(matches!(event, MrtEvent::Change(_)));
    assert!(matches!(read(&packed[..], take), Err(MrtError::Read(_))));
    assert_eq!(count, 7, "what came before is told");
}

#[test]
fn other_files_are_refused() {
    let refusal = |bytes: &[u8]| read(bytes, drop).unwrap_err().to_string();
    assert_eq!(refusal(b""), "this is not an MRT dump: it is empty");
    for other in [&b"10.0.0.0/8 by 192.0.2.1, as everybody knows"[..], &[0; 64], &sample()[..11]] {
        assert_eq!(refusal(other), "this is not an MRT dump: it does not start with a record header");
    }
    assert!(refusal(b"BZh91AY&SY and so on").contains("bzcat"));
    assert_eq!(refusal(&gzip(b"")), "this is not an MRT dump: it is empty");
}

#[test]
fn a_time_is_not_taken_for_a_compressed_file() {
    for time in [*b"BZh9", [0x1f, 0x8b, 8, 0]] {
        let mut dump = sample();
        let expected = events(&dump);
        dump[..4].copy_from_slice(&time);
        assert_eq!(events(&dump), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A damaged dump is always read to its end, and each record and entry is emitted or counted.
    #[test]
    fn no_dump_makes_it_panic(changes in prop::collection::vec((12..400_usize, any::<u8>()), 1..12)) {
        let mut dump = sample();
        for (place, byte) in changes {
            if let Some(changed) = dump.get_mut(place) {
                *changed = byte;
            }
        }
        let mut count = 0;
        let take = |event| count += u64::from(matches!(event, MrtEvent::Change(_)));
        let summary = read(&dump[..], take).unwrap();
        prop_assert_eq!(count, summary.routes + summary.withdrawals + summary.lost + summary.ends_of_rib);
        prop_assert_eq!(summary.skipped > 0, summary.first_skipped.is_some());
    }

    #[test]
    fn no_record_makes_it_panic(
        kind in 12..18_u16,
        subtype in 0..13_u16,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let length = u32::try_from(body.len()).unwrap();
        let header = [&[0_u8; 4][..], &kind.to_be_bytes(), &subtype.to_be_bytes(), &length.to_be_bytes()].concat();
        let _ = read(&[header, body].concat()[..], drop);
    }
}
