//! Streams assembled byte by byte after RFC 7854 §4.

use std::net::{IpAddr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use towpath_alto::{address::AddressType, route::Route};

const V4: &str = "192.0.2.1";
const V6: &str = "2001:db8::1";

/// Peer flags (RFC 7854 §4.2, RFC 8671 §4).
const IS_IPV6: u8 = 0x80;
const IS_POST_POLICY: u8 = 0x40;
const HAS_TWO_OCTET_AS: u8 = 0x20;
const IS_ADJ_RIB_OUT: u8 = 0x10;

const ROUTE_MONITORING: u8 = 0;
const PEER_DOWN: u8 = 2;
const PEER_UP: u8 = 3;
const INITIATION: u8 = 4;
const TERMINATION: u8 = 5;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
    [&[3_u8][..], &length.to_be_bytes(), &[kind], body].concat()
}

/// The per-peer header of a peer in AS 64500; VPN peers have distinguisher 5.
fn peer_of(kind: u8, flags: u8, address: &str) -> Vec<u8> {
    let octets = match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(address) => [&[0_u8; 12][..], &address.octets()].concat(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let distinguisher = if kind == 0 { 0_u64 } else { 5 };
    let [as_number, identifier] = [64500_u32.to_be_bytes(), [192, 0, 2, 200]];
    [&[kind, flags][..], &distinguisher.to_be_bytes(), &octets[..], &as_number, &identifier, &[0_u8; 8]].concat()
}

/// A message with the given per-peer header.
fn of_peer(kind: u8, peer: &[u8], body: &[u8]) -> Vec<u8> {
    message(kind, &[peer, body].concat())
}

fn with_length(value: &[u8]) -> Vec<u8> {
    [&u16::try_from(value.len()).unwrap().to_be_bytes()[..], value].concat()
}

fn bgp(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).unwrap();
    [&[0xff_u8; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

fn update(withdrawn: &[u8], attributes: &[&[u8]], announced: &[u8]) -> Vec<u8> {
    bgp(2, &[with_length(withdrawn), with_length(&attributes.concat()), announced.to_vec()].concat())
}

fn attribute(code: u8, value: &[u8]) -> Vec<u8> {
    [&[0x40, code, u8::try_from(value.len()).unwrap()][..], value].concat()
}

/// `AS_PATH` with four-octet AS numbers.
fn as_path(numbers: &[u8]) -> Vec<u8> {
    let octets: Vec<u8> = numbers.iter().flat_map(|number| u32::from(*number).to_be_bytes()).collect();
    attribute(2, &[&[2, u8::try_from(numbers.len()).unwrap()][..], &octets[..]].concat())
}

/// Announces 10.1.0.0/16 with AS path 7 8 and next hop 192.0.2.7.
fn announcement() -> Vec<u8> {
    update(&[], &[&as_path(&[7, 8]), &attribute(3, &[192, 0, 2, 7])], &[16, 10, 1])
}

/// Announces 2001:db8:1::/48 with next hop 2001:db8::7 and an additional link-local next hop.
fn announcement_of_ipv6() -> Vec<u8> {
    let [global, local]: [Ipv6Addr; 2] = ["2001:db8::7".parse().unwrap(), "fe80::7".parse().unwrap()];
    let prefix = [48_u8, 0x20, 0x01, 0x0d, 0xb8, 0, 1];
    let reach = [&[0_u8, 2, 1, 32][..], &global.octets(), &local.octets(), &[0_u8], &prefix].concat();
    update(&[], &[&as_path(&[7]), &attribute(14, &reach)], &[])
}

/// A peer up notification whose `OPEN` messages have these optional parameters.
fn peer_up(peer: &[u8], sent: &[u8], received: &[u8]) -> Vec<u8> {
    let open = |parameters: &[u8]| bgp(1, &[&[4_u8, 0, 1, 0, 90, 192, 0, 2, 200][..], parameters].concat());
    of_peer(PEER_UP, peer, &[vec![0_u8; 20], open(sent), open(received)].concat())
}

/// One optional parameter: ADD-PATH for IPv4 unicast in the given direction.
fn add_path(direction: u8) -> Vec<u8> {
    vec![8, 2, 6, 69, 4, 0, 1, 1, direction]
}

fn information(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length(value)[..]].concat()
}

/// A short session with one message of each type.
fn sample() -> Vec<u8> {
    let [first, second] = [peer_of(0, 0, V4), peer_of(0, IS_IPV6, V6)];
    let unreach = attribute(15, &[0, 2, 1, 48, 0x20, 0x01, 0x0d, 0xb8, 0, 1]);
    [
        message(INITIATION, &[information(2, b"r1"), information(1, b"a router"), information(9, b"?")].concat()),
        peer_up(&first, &[0], &[0]),
        peer_up(&second, &[0], &[0]),
        of_peer(ROUTE_MONITORING, &first, &announcement()),
        of_peer(ROUTE_MONITORING, &second, &announcement_of_ipv6()),
        of_peer(1, &first, &[0; 4]),
        of_peer(ROUTE_MONITORING, &first, &update(&[16, 10, 1, 8, 11], &[], &[])),
        of_peer(ROUTE_MONITORING, &second, &update(&[], &[&unreach], &[])),
        of_peer(PEER_DOWN, &first, &[4]),
        message(TERMINATION, &[information(1, &[0, 2]), information(0, b"bye")].concat()),
    ]
    .concat()
}

fn drain(stream: &mut Stream, events: &mut Vec<BmpEvent>) {
    while let Some(event) = stream.next().unwrap() {
        events.push(event);
    }
}

fn events(bytes: &[u8]) -> Vec<BmpEvent> {
    let mut stream = Stream::default();
    let mut events = Vec::new();
    stream.feed(bytes);
    drain(&mut stream, &mut events);
    assert_eq!((stream.skipped(), stream.first_skipped()), (0, None));
    events
}

/// Returns why the only damaged message in `bytes` was skipped, and the number of events decoded from the others.
fn skipped(bytes: &[u8]) -> (String, usize) {
    let mut stream = Stream::default();
    let mut events = Vec::new();
    stream.feed(bytes);
    drain(&mut stream, &mut events);
    assert_eq!(stream.skipped(), 1);
    (stream.first_skipped().unwrap().to_owned(), events.len())
}

fn router(address: &str, rib: Rib) -> Peer {
    Peer { address: address.parse().unwrap(), as_number: 64500, distinguisher: 0, rib }
}

fn route(router: Peer, prefix: &str, next_hop: &str, as_path: &str) -> BmpEvent {
    let next_hop = Some(next_hop.parse().unwrap());
    let route = Route { prefix: prefix.parse().unwrap(), next_hop, as_path: as_path.parse().unwrap() };
    let path_length = u16::try_from(route.as_path.hops().len()).unwrap();
    let preference = Preference { local_pref: 100, path_length, origin: 2, med: 0 };
    BmpEvent::Change(Event::Route { router, path_id: None, preference, route })
}

fn withdraw(router: Peer, prefix: &str) -> BmpEvent {
    BmpEvent::Change(Event::Withdraw { router, path_id: None, prefix: prefix.parse().unwrap() })
}

fn lost(router: Peer) -> BmpEvent {
    BmpEvent::Change(Event::Lost { router })
}

/// The `Up` events of these peers, for their pre-policy and post-policy tables.
fn up(routers: &[Peer]) -> Vec<BmpEvent> {
    let ribs =
        |router: &Peer| [Rib::PrePolicy, Rib::PostPolicy].map(|rib| BmpEvent::Up { router: Peer { rib, ..*router } });
    routers.iter().flat_map(ribs).collect()
}

#[test]
fn the_life_of_a_session_is_told() {
    let [first, second] = [router(V4, Rib::PrePolicy), router(V6, Rib::PrePolicy)];
    let begin = BmpEvent::Session { name: Some("r1".into()), description: Some("a router".into()) };
    let then = [
        route(first, "10.1.0.0/16", "192.0.2.7", "7 8"),
        route(second, "2001:db8:1::/48", "2001:db8::7", "7"),
        withdraw(first, "10.1.0.0/16"),
        withdraw(first, "11.0.0.0/8"),
        withdraw(second, "2001:db8:1::/48"),
        lost(first),
        lost(router(V4, Rib::PostPolicy)),
        BmpEvent::End { reason: "out of resources: bye".into() },
    ];
    let expected = [vec![begin], up(&[first, second]), then.to_vec()].concat();
    assert_eq!(events(&sample()), expected);
}

#[test]
fn it_does_not_matter_how_the_stream_is_cut() {
    let bytes = sample();
    let expected = events(&bytes);
    for length in 0..=bytes.len() {
        let mut stream = Stream::default();
        let mut events = Vec::new();
        let (first, second) = bytes.split_at(length);
        for part in [first, second] {
            stream.feed(part);
            drain(&mut stream, &mut events);
        }
        assert_eq!(events, expected, "cut at {length}");
    }
    let mut stream = Stream::default();
    let mut events = Vec::new();
    for byte in &bytes {
        stream.feed(&[*byte]);
        drain(&mut stream, &mut events);
    }
    assert_eq!(events, expected, "octet by octet");
}

#[test]
fn what_is_no_bmp_ends_the_session() {
    let error = |bytes: &[u8]| {
        let mut stream = Stream::default();
        stream.feed(&[&sample()[..], bytes].concat());
        let error = (0..100).find_map(|_| stream.next().err()).unwrap();
        assert_eq!(stream.next(), Err(error.clone()), "and it stays so");
        error
    };
    assert_eq!(error(b"G"), BmpError::Version(b'G'));
    assert_eq!(error(&[4, 0, 0, 0, 6, 4]), BmpError::Version(4));
    assert_eq!(error(&[3, 0, 0, 0, 5, 4]), BmpError::Length(5));
    assert_eq!(error(&[3, 1, 0, 0, 1, 4]), BmpError::Length(MAX_MESSAGE_BYTES + 1));
}

#[test]
fn a_message_may_be_as_long_as_the_bound() {
    let mut stream = Stream::default();
    stream.feed(&[3, 1, 0, 0, 0, 6]);
    assert_eq!(stream.next(), Ok(None));
}

#[test]
fn tables_of_a_router_do_not_mix() {
    let peers = [
        peer_of(0, 0, V4),
        peer_of(0, IS_POST_POLICY, V4),
        peer_of(0, IS_ADJ_RIB_OUT, V4),
        peer_of(3, IS_IPV6, "::"),
        peer_of(1, 0, V4),
        peer_of(9, 0, V4),
    ];
    let bytes: Vec<u8> = peers.iter().flat_map(|peer| of_peer(ROUTE_MONITORING, peer, &announcement())).collect();
    let routers = [
        router(V4, Rib::PrePolicy),
        router(V4, Rib::PostPolicy),
        Peer { distinguisher: 5, ..router("192.0.2.200", Rib::Local) },
        Peer { distinguisher: 5, ..router(V4, Rib::PrePolicy) },
    ];
    assert_eq!(events(&bytes), routers.map(|router| route(router, "10.1.0.0/16", "192.0.2.7", "7 8")));
}

#[test]
fn a_table_of_the_router_itself_is_lost_alone() {
    let local = Peer { distinguisher: 5, ..router("192.0.2.200", Rib::Local) };
    assert_eq!(events(&of_peer(PEER_DOWN, &peer_of(3, 0, "::"), &[6])), [lost(local)]);
}

/// End-of-RIB markers of RFC 4724 §2: an empty update for IPv4, an empty withdrawal for IPv6.
const END_OF_IPV4: [u8; 23] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 23, 2, 0, 0, 0,
    0,
];
const END_OF_IPV6: [u8; 29] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 29, 2, 0, 0, 0,
    6, 0x80, 15, 3, 0, 2, 1,
];

#[test]
fn the_end_of_a_table_is_told_by_family() {
    let ends = |peer: &[u8], update: &[u8]| events(&of_peer(ROUTE_MONITORING, peer, update));
    let end = |router: Peer, family| [BmpEvent::Change(Event::EndOfRib { router, family })];
    let before = router(V4, Rib::PrePolicy);
    assert_eq!(ends(&peer_of(0, 0, V4), &END_OF_IPV4), end(before, AddressType::Ipv4));
    assert_eq!(
        ends(&peer_of(0, 0, V4), &END_OF_IPV6),
        end(before, AddressType::Ipv6),
        "whatever the peer's address is"
    );
    let after = router(V4, Rib::PostPolicy);
    assert_eq!(ends(&peer_of(0, IS_POST_POLICY, V4), &END_OF_IPV4), end(after, AddressType::Ipv4));
    // Variants seen in practice: IPv4 with an explicit attribute, and an attribute with a two-octet length.
    let unreach = attribute(15, &[0, 1, 1]);
    assert_eq!(ends(&peer_of(0, 0, V4), &update(&[], &[&unreach], &[])), end(before, AddressType::Ipv4));
    let extended = [0x90, 15, 0, 3, 0, 2, 1];
    assert_eq!(ends(&peer_of(0, 0, V4), &update(&[], &[&extended], &[])), end(before, AddressType::Ipv6));
}

#[test]
fn the_end_of_something_else_is_none() {
    let events_of = |update: &[u8]| events(&of_peer(ROUTE_MONITORING, &peer_of(0, 0, V4), update));
    let end_of_vpns = attribute(15, &[0, 1, 128]);
    assert!(events_of(&update(&[], &[&end_of_vpns], &[])).is_empty());
    let attributes_alone = as_path(&[7]);
    assert!(events_of(&update(&[], &[&attributes_alone], &[])).is_empty());
    assert_eq!(events_of(&update(&[16, 10, 1], &[], &[])), [withdraw(router(V4, Rib::PrePolicy), "10.1.0.0/16")]);
}

#[test]
fn what_a_route_is_chosen_by_is_told() {
    let preference = |attributes: &[&[u8]]| {
        let path = as_path(&[7, 7, 8]);
        let update = update(&[], &[&[&path[..]][..], attributes].concat(), &[16, 10, 1]);
        match &events(&of_peer(ROUTE_MONITORING, &peer_of(0, 0, V4), &update))[..] {
            [BmpEvent::Change(Event::Route { preference, .. })] => *preference,
            events => panic!("{events:?}"),
        }
    };
    let untold = Preference { local_pref: 100, path_length: 3, origin: 2, med: 0 };
    assert_eq!(preference(&[]), untold);
    let [origin, med, local_pref] = [attribute(1, &[1]), attribute(4, &[0, 0, 1, 0]), attribute(5, &[0, 0, 0, 200])];
    let expected = Preference { local_pref: 200, path_length: 3, origin: 1, med: 256 };
    assert_eq!(preference(&[&origin, &med, &local_pref]), expected);
    let [origin, med, local_pref] = [attribute(1, &[1, 1]), attribute(4, &[1]), attribute(5, &[0; 5])];
    assert_eq!(preference(&[&origin, &med, &local_pref]), untold, "they are broken, and the route is not");
}

#[test]
fn a_session_of_the_router_itself_comes_up_alone() {
    let local = Peer { distinguisher: 5, ..router("192.0.2.200", Rib::Local) };
    assert_eq!(events(&peer_up(&peer_of(3, 0, "::"), &[0], &[0])), [BmpEvent::Up { router: local }]);
}

#[test]
fn numbers_may_have_two_octets() {
    let [path, as4_path] = [attribute(2, &[2, 2, 0, 7, 0x5b, 0xa0]), attribute(17, &[2, 1, 0, 1, 0x11, 0x70])];
    let update = update(&[], &[&path, &as4_path, &attribute(3, &[192, 0, 2, 7])], &[16, 10, 1]);
    let bytes = of_peer(ROUTE_MONITORING, &peer_of(0, HAS_TWO_OCTET_AS, V4), &update);
    assert_eq!(events(&bytes), [route(router(V4, Rib::PrePolicy), "10.1.0.0/16", "192.0.2.7", "7 70000")]);
}

/// Returns the path identifier decoded for 10.1.0.0/16 after the given peer up notification.
fn path_id(up: &[u8], peer: &[u8]) -> Option<u32> {
    // Without ADD-PATH, these bytes are four default routes and 10.1.0.0/16.
    let prefix = [0, 0, 0, 0, 16, 10, 1];
    let update = update(&[], &[&as_path(&[7]), &attribute(3, &[192, 0, 2, 7])], &prefix);
    let events = events(&[up.to_vec(), of_peer(ROUTE_MONITORING, peer, &update)].concat());
    let mut routes = events.iter().filter(|event| !matches!(event, BmpEvent::Up { .. }));
    match (routes.next(), routes.next()) {
        (Some(BmpEvent::Change(Event::Route { path_id, .. })), None) => *path_id,
        _ => None,
    }
}

#[test]
fn path_identifiers_are_there_if_both_sides_agreed() {
    const RECEIVES: u8 = 1;
    const SENDS: u8 = 2;
    let [before, after, local] = [peer_of(0, 0, V4), peer_of(0, IS_POST_POLICY, V4), peer_of(3, 0, "::")];
    let up = peer_up(&before, &add_path(RECEIVES), &add_path(SENDS));
    assert_eq!([path_id(&up, &before), path_id(&up, &after)], [Some(0); 2], "policy changes nothing");
    assert_eq!(path_id(&peer_up(&before, &add_path(SENDS), &add_path(RECEIVES)), &before), None);
    assert_eq!(path_id(&peer_up(&before, &add_path(RECEIVES), &[0]), &before), None);
    assert_eq!(path_id(&peer_up(&local, &add_path(SENDS), &add_path(SENDS)), &local), Some(0));

    let extended = |direction| vec![255, 255, 0, 9, 2, 0, 6, 69, 4, 0, 1, 1, direction];
    assert_eq!(path_id(&peer_up(&before, &extended(RECEIVES), &extended(SENDS)), &before), Some(0));

    let down = of_peer(PEER_DOWN, &before, &[4]);
    let bytes = [up, down, of_peer(ROUTE_MONITORING, &before, &announcement())].concat();
    assert_eq!(events(&bytes).last(), Some(&route(router(V4, Rib::PrePolicy), "10.1.0.0/16", "192.0.2.7", "7 8")));
}

#[test]
fn a_router_has_no_more_sessions_than_it_may() {
    let mut up = peer_up(&peer_of(0, 0, V4), &add_path(1), &add_path(2));
    let mut stream = Stream::default();
    let mut next = Ok(None);
    for as_number in 0..=u32::try_from(MAX_ADD_PATH_SESSIONS).unwrap() {
        assert_eq!(next, Ok(None));
        up[32..36].copy_from_slice(&as_number.to_be_bytes());
        stream.feed(&up);
        for _ in [Rib::PrePolicy, Rib::PostPolicy] {
            assert!(matches!(stream.next(), Ok(Some(BmpEvent::Up { .. }))));
        }
        next = stream.next();
    }
    assert_eq!(next, Err(BmpError::Sessions));
}

#[test]
fn damaged_messages_are_passed_over() {
    let peer = peer_of(0, 0, V4);
    let good = of_peer(ROUTE_MONITORING, &peer, &announcement());
    let damaged = |message: Vec<u8>| skipped(&[good.clone(), message, good.clone()].concat());
    let monitoring = |update: &[u8]| of_peer(ROUTE_MONITORING, &peer, update);
    let damage = |reason: &str| (reason.to_owned(), 2);

    let bytes = announcement();
    let cut = damage("route monitoring: it is truncated within its BGP message");
    assert_eq!(damaged(monitoring(&bytes[..bytes.len() - 1])), cut);
    let long = update(&[33, 1, 2, 3, 4, 5], &[], &[]);
    assert_eq!(damaged(monitoring(&long)), damage("route monitoring: a prefix of 33 bits is longer than an address"));
    let pathless = update(&[16, 10, 1], &[&attribute(3, &[192, 0, 2, 7])], &[16, 10, 1]);
    let (reason, count) = damaged(monitoring(&pathless));
    assert_eq!((&*reason, count), ("route monitoring: it has no AS_PATH", 4), "what it announces is withdrawn");
    assert_eq!(damaged(message(PEER_DOWN, &[0; 41])), damage("peer down: it is truncated within its per-peer header"));
    let open = peer_up(&peer, &[8, 2, 6, 69], &[0]);
    assert_eq!(damaged(open), damage("peer up: it is truncated within its OPEN message"));
    assert_eq!(damaged(message(INITIATION, &[0, 1, 0])), damage("initiation: it is truncated within its information"));
}

#[test]
fn the_end_has_a_reason() {
    let reason = |body: &[u8]| match &events(&message(TERMINATION, body))[..] {
        [BmpEvent::End { reason }] => reason.clone(),
        events => panic!("{events:?}"),
    };
    assert_eq!(reason(&[]), "unspecified reason");
    assert_eq!(reason(&information(1, &[0, 0])), "administratively closed");
    assert_eq!(reason(&information(1, &[1, 0])), "reason 256");
    assert_eq!(reason(&information(0, b"\xffbye")), "\u{fffd}bye");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A damaged stream yields events and then `None` or an error, for any chunking.
    #[test]
    fn no_stream_makes_it_panic(
        changes in prop::collection::vec((0..1000_usize, any::<u8>()), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..100),
        length in 1..200_usize,
    ) {
        let mut bytes = [sample(), noise].concat();
        for (place, byte) in changes {
            if let Some(changed) = bytes.get_mut(place) {
                *changed = byte;
            }
        }
        let mut stream = Stream::default();
        for part in bytes.chunks(length) {
            stream.feed(part);
            while let Ok(Some(_)) = stream.next() {}
        }
        prop_assert_eq!(stream.skipped() > 0, stream.first_skipped().is_some());
    }
}
