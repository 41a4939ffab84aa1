use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    segment::{VNET_BYTES, tests::SuperPacket},
    units::{Queue, Rate},
};

const MS: u64 = 1_000_000;

fn host(number: u8) -> HostIndex {
    HostIndex::from_number(number).unwrap()
}

/// An IPv4 packet of 1500 bytes with a number.
fn packet(to: Ipv4Addr, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; VNET_BYTES + 1500];
    let ip = &mut bytes[VNET_BYTES..];
    ip[0] = 0x45;
    ip[16..20].copy_from_slice(&to.octets());
    ip[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns everything that arrives by `until_ns`: time, host and number.
fn deliveries(network: &mut Network, until_ns: u64) -> Vec<(u64, u8, u32)> {
    std::iter::from_fn(|| network.next_due(until_ns))
        .map(|delivery| {
            let number = delivery.packet.bytes()[VNET_BYTES + 20..VNET_BYTES + 24].try_into().unwrap();
            (delivery.at_ns, delivery.host.number(), u32::from_be_bytes(number))
        })
        .collect()
}

fn gigabit() -> LinkSettings {
    LinkSettings { rate: Some(Rate::from_mbit_per_s(1000)), ..LinkSettings::default() }
}

#[test]
fn a_packet_takes_the_delay_of_its_pair() {
    let delay = Duration::from_millis(10);
    let mut network = Network::new(3, &LinkSettings { delay, ..LinkSettings::default() }, 1);
    let slow = LinkSettings { delay: delay * 2, ..LinkSettings::default() };
    network.link_mut(LinkName::Pair(host(1), host(3))).unwrap().set(slow);
    network.arrive(0, host(1), packet(address_v4(host(3)), 13));
    network.arrive(MS, host(1), packet(address_v4(host(2)), 12));
    network.arrive(2 * MS, host(3), packet(address_v4(host(1)), 31));
    assert_eq!(network.next_ns(), Some(11 * MS));
    assert!(network.next_due(11 * MS - 1).is_none());
    assert_eq!(deliveries(&mut network, 100 * MS), [(11 * MS, 2, 12), (12 * MS, 1, 31), (20 * MS, 3, 13)]);
    assert_eq!(network.held_bytes, 0);
}

#[test]
fn an_access_link_is_shared_by_all_pairs() {
    let mut network = Network::new(3, &LinkSettings::default(), 1);
    network.link_mut(LinkName::Down(host(3))).unwrap().set(gigabit());
    for number in 0..500 {
        network.arrive(0, host(1), packet(address_v4(host(3)), number));
        network.arrive(0, host(2), packet(address_v4(host(3)), 1000 + number));
    }
    let arrived = deliveries(&mut network, 1000 * MS);
    assert_eq!(arrived.last().unwrap().0, 1538 * 8 * arrived.len() as u64, "one after the other");
    assert_eq!(arrived.len() as u64, 1 + (Queue::MIN_BDP_BYTES - 1538) / 1538, "the shared queue bounds both");
    let dropped: u64 = network.links().map(|(_, _, counters)| counters.queue_dropped_segments).sum();
    assert_eq!(dropped + arrived.len() as u64, 1000);
}

#[test]
fn a_late_caller_changes_no_time() {
    let mut network = Network::new(2, &LinkSettings { delay: Duration::from_millis(5), ..gigabit() }, 1);
    network.link_mut(LinkName::Up(host(1))).unwrap().set(gigabit());
    network.link_mut(LinkName::Down(host(2))).unwrap().set(gigabit());
    for number in 0..3 {
        network.arrive(0, host(1), packet(address_v4(host(2)), number));
    }
    // The network was not polled for a second; each link still processed its packets at the right time.
    let segment_ns = 1538 * 8;
    let expected = [0, 1, 2].map(|number| (5 * MS + (3 + u64::from(number)) * segment_ns, 2, number));
    assert_eq!(deliveries(&mut network, 1000 * MS), expected);
}

#[test]
fn order_is_kept_on_a_path_without_reordering() {
    let jitter = Duration::from_millis(3);
    let mut network = Network::new(2, &LinkSettings { jitter, delay: jitter, ..gigabit() }, 1);
    for number in 0..1000 {
        network.arrive(u64::from(number) * MS / 10, host(1), packet(address_v4(host(2)), number));
    }
    let numbers: Vec<u32> = deliveries(&mut network, 10_000 * MS).into_iter().map(|(_, _, number)| number).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u32>>());
}

#[test]
fn what_has_no_host_to_go_to_is_counted() {
    let mut network = Network::new(2, &LinkSettings::default(), 1);
    for to in [[224, 0, 0, 22], [198, 18, 0, 3], [198, 18, 1, 2], [198, 18, 0, 1], [198, 18, 0, 0]] {
        network.arrive(0, host(1), packet(to.into(), 0));
    }
    network.arrive(0, host(1), vec![0; 11]);
    let counters = NetworkCounters { unroutable_packets: 5, malformed_packets: 1, overflow_packets: 0 };
    assert_eq!((network.counters(), network.next_ns()), (counters, None));
}

#[test]
fn an_outage_of_an_access_link_is_told_when_it_is_over() {
    let mut network = Network::new(2, &LinkSettings::default(), 1);
    network.link_mut(LinkName::Up(host(1))).unwrap().add_outage(0..MS);
    network.arrive(0, host(1), packet(address_v4(host(2)), 1));
    network.arrive(2 * MS, host(1), packet(address_v4(host(2)), 2));
    network.arrive(3 * MS, host(1), packet(address_v4(host(2)), 3));
    assert_eq!(deliveries(&mut network, 10 * MS).len(), 2);
    let (_, _, counters) = network.links().find(|(name, ..)| *name == LinkName::Up(host(1))).unwrap();
    assert_eq!(counters.outage_segments, 1);
}

#[test]
fn links_that_are_not_there_have_no_settings() {
    let mut network = Network::new(2, &LinkSettings::default(), 1);
    for name in [
        LinkName::Pair(host(1), host(1)),
        LinkName::Pair(host(1), host(3)),
        LinkName::Pair(host(3), host(1)),
        LinkName::Up(host(3)),
    ] {
        assert!(network.link_mut(name).is_none(), "{name:?}");
    }
    let names: Vec<LinkName> = network.links().map(|(name, ..)| name).collect();
    assert_eq!(names, [LinkName::Pair(host(1), host(2)), LinkName::Pair(host(2), host(1))]);
}

/// A TCP stream with one byte value per segment, in super-packets of the given numbers of segments, sent every 100 µs
/// from host 1 to host 2.
fn stream(super_packets: &[u8]) -> Vec<SuperPacket> {
    let mut segment = 0_u32;
    let packets = super_packets.iter().map(|segments| {
        let numbers = segment..segment + u32::from(*segments);
        segment = numbers.end;
        SuperPacket {
            is_v6: false,
            option_words: 3,
            flags: 0x10,
            identification: 0,
            sequence: numbers.start * 1000,
            segment_bytes: 1000,
            payload: numbers.flat_map(|number| [number as u8; 1000]).collect(),
        }
    });
    packets.collect()
}

/// Sends the stream through the network; returns the numbers of its segments in order of arrival.
fn arrived(network: &mut Network, stream: &[SuperPacket]) -> Vec<u32> {
    for (sent, index) in stream.iter().zip(0..) {
        network.arrive(index * MS / 10, host(1), sent.bytes());
    }
    let mut numbers = Vec::new();
    while let Some(delivery) = network.next_due(u64::MAX) {
        let tcp = &delivery.packet.bytes()[VNET_BYTES + 20..];
        let first = u32::from_be_bytes(tcp[4..8].try_into().unwrap()) / 1000;
        for (payload, number) in tcp[32..].chunks(1000).zip(first..) {
            assert_eq!(payload, [number as u8; 1000], "segment {number} holds what was sent in it");
            numbers.push(number);
        }
    }
    numbers
}

proptest! {
    #[test]
    fn every_byte_crosses_three_links_once_and_in_order(
        super_packets in prop::collection::vec(1..60_u8, 1..20),
        rates in [10..3000_u32, 10..3000, 10..3000],
    ) {
        let [pair, up, down] = rates.map(|mbit_per_s| LinkSettings {
            rate: Some(Rate::from_mbit_per_s(mbit_per_s)),
            queue: Queue::Bytes(1 << 30),
            delay: Duration::from_millis(1),
            ..LinkSettings::default()
        });
        let mut network = Network::new(2, &pair, 1);
        network.link_mut(LinkName::Up(host(1))).unwrap().set(up);
        network.link_mut(LinkName::Down(host(2))).unwrap().set(down);
        let stream = stream(&super_packets);
        let segments = super_packets.iter().map(|segments| u32::from(*segments)).sum();
        prop_assert_eq!(arrived(&mut network, &stream), (0..segments).collect::<Vec<u32>>());
        prop_assert_eq!(network.held_bytes, 0);
    }

    #[test]
    fn exactly_what_a_link_dropped_is_missing(
        super_packets in prop::collection::vec(1..60_u8, 1..20),
        loss in 0.0..0.5,
        queue_bytes in 0..300_000_u64,
        seed in any::<u64>(),
    ) {
        let settings = LinkSettings { loss, queue: Queue::Bytes(queue_bytes), ..gigabit() };
        let mut network = Network::new(2, &settings, seed);
        let stream = stream(&super_packets);
        let numbers = arrived(&mut network, &stream);
        prop_assert!(numbers.is_sorted_by(|first, second| first < second), "none twice, and in order");
        let counters = *network.link_mut(LinkName::Pair(host(1), host(2))).unwrap().counters();
        let segments: u64 = super_packets.iter().map(|segments| u64::from(*segments)).sum();
        prop_assert_eq!(counters.offered_segments, segments);
        prop_assert_eq!(counters.passed_segments, numbers.len() as u64);
        prop_assert_eq!(segments - counters.passed_segments, counters.lost_segments + counters.queue_dropped_segments);
    }
}
