//! Hosts and the links between them in virtual time: the path of each packet, and its arrival time.
//!
//! A path consists of three links: the sender's access link upwards, the pair's link, the receiver's access link
//! downwards. [`Network::arrive`] sends a packet from a host; each link splits it into the runs that pass; packets in
//! flight wait in one heap ordered by time. [`Network::next_due`] takes arrived packets out. A packet enters its next
//! link at the time at which it left the one before, independently of the delay of the caller.
//!
//! It uses neither descriptors nor the time of day.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use crate::{
    link::{Link, LinkCounters, LinkSettings, SegmentRun},
    segment::Packet,
};

/// Maximum memory for packets in flight: 8 Gbit/s for 2 s. Further packets are dropped and counted separately from
/// those dropped by links.
const MAX_HELD_BYTES: usize = 2 << 30;

/// Maximum number of hosts: the number of a host is the last byte of its address.
pub(crate) const MAX_HOSTS: usize = 64;

/// Returns the IPv4 address of a host, from the range for benchmarks (RFC 2544 §C.2.2, RFC 6890).
pub(crate) fn address_v4(host: HostIndex) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, host.number())
}

/// Returns the IPv6 address of a host, from the range for benchmarks (RFC 5180 §8).
pub(crate) fn address_v6(host: HostIndex) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, u16::from(host.number()))
}

/// Index of a host, from zero. Users count from one: [`HostIndex::number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct HostIndex(u8);

impl HostIndex {
    /// Returns the host with the user-visible `number`, from 1 to 64; `None` for other numbers.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (1..=MAX_HOSTS).contains(&usize::from(number)).then(|| Self(number - 1))
    }

    /// Returns the number on command lines and at the end of its addresses, from 1.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0 + 1
    }

    pub(crate) fn at(self) -> usize {
        self.0.into()
    }
}

impl TryFrom<u8> for HostIndex {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, &'static str> {
        Self::from_number(number).ok_or("hosts are numbered from 1 to 64")
    }
}

impl From<HostIndex> for u8 {
    fn from(host: HostIndex) -> u8 {
        host.number()
    }
}

/// A link and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkName {
    /// Shared by everything that a host sends.
    Up(HostIndex),
    /// From the first host to the second.
    Pair(HostIndex, HostIndex),
    /// Shared by everything that a host receives.
    Down(HostIndex),
}

/// Counters of packets that did not reach a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCounters {
    /// Packets to addresses of no other host, mostly multicast.
    pub unroutable_packets: u64,
    /// Packets with invalid headers.
    pub malformed_packets: u64,
    /// Packets dropped because the packets in flight exceeded the emulator's memory limit.
    pub overflow_packets: u64,
}

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) host: HostIndex,
    pub(crate) packet: Packet,
    pub(crate) at_ns: u64,
}

/// Hosts and links.
#[derive(Debug)]
pub(crate) struct Network {
    hosts: Vec<HostIndex>,
    up: Vec<Link>,
    down: Vec<Link>,
    /// Indexed by sender, then receiver. A host's link to itself is never used.
    pairs: Vec<Link>,
    in_flight: BinaryHeap<PacketInFlight>,
    entered: u64,
    held_bytes: usize,
    counters: NetworkCounters,
    /// Reused to avoid allocation.
    runs: Vec<SegmentRun>,
}

impl Network {
    /// Creates a network whose pairs all have the same link in each direction, with transparent access links.
    pub(crate) fn new(hosts: usize, pair: &LinkSettings, seed: u64) -> Self {
        let hosts: Vec<HostIndex> =
            (1..=hosts.min(MAX_HOSTS)).filter_map(|number| HostIndex::from_number(number as u8)).collect();
        let count = hosts.len();
        // Each link has its own random sequence, independent of other links.
        let links = |settings: &LinkSettings, first: usize, count: usize| {
            (first..first + count).map(|link| Link::new(settings.clone(), seed ^ (link as u64) << 32)).collect()
        };
        Self {
            up: links(&LinkSettings::default(), 0, count),
            down: links(&LinkSettings::default(), count, count),
            pairs: links(pair, 2 * count, count * count),
            hosts,
            in_flight: BinaryHeap::new(),
            entered: 0,
            held_bytes: 0,
            counters: NetworkCounters::default(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn hosts(&self) -> &[HostIndex] {
        &self.hosts
    }

    pub(crate) fn counters(&self) -> NetworkCounters {
        self.counters
    }

    /// Returns a link, if both hosts exist and differ.
    pub(crate) fn link_mut(&mut self, name: LinkName) -> Option<&mut Link> {
        let count = self.hosts.len();
        match name {
            LinkName::Up(host) => self.up.get_mut(host.at()),
            LinkName::Down(host) => self.down.get_mut(host.at()),
            LinkName::Pair(from, to) if from == to || to.at() >= count => None,
            LinkName::Pair(from, to) => self.pairs.get_mut(from.at() * count + to.at()),
        }
    }

    /// Returns each link that is not transparent or has counted segments, with its settings and counters.
    pub(crate) fn links(&self) -> impl Iterator<Item = (LinkName, &LinkSettings, &LinkCounters)> {
        let pairs = self.hosts.iter().flat_map(|from| self.hosts.iter().map(|to| (*from, *to)));
        let pairs = pairs.zip(&self.pairs).filter(|((from, to), _)| from != to);
        let pairs = pairs.map(|((from, to), link)| (LinkName::Pair(from, to), link));
        let up = self.hosts.iter().map(|host| LinkName::Up(*host)).zip(&self.up);
        let down = self.hosts.iter().map(|host| LinkName::Down(*host)).zip(&self.down);
        let access = up.chain(down).filter(|(_, link)| !link.is_transparent() || link.counters().offered_segments > 0);
        pairs.chain(access).map(|(name, link)| (name, link.settings(), link.counters()))
    }

    /// Sends the packet that the host `from` sent at `now_ns`.
    pub(crate) fn arrive(&mut self, now_ns: u64, from: HostIndex, bytes: Vec<u8>) {
        let Ok(packet) = Packet::parse(bytes) else {
            self.counters.malformed_packets += 1;
            return;
        };
        let Some(to) = self.host_at(packet.destination()).filter(|to| *to != from) else {
            self.counters.unroutable_packets += 1;
            return;
        };
        self.enter(PacketInFlight { at_ns: now_ns, order: 0, next: Hop::Up, from, to, packet });
    }

    /// Returns the time of the next event, if a packet is in flight.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.in_flight.peek().map(|packet| packet.at_ns)
    }

    /// Returns the next packet that has arrived at its host by `now_ns`.
    pub(crate) fn next_due(&mut self, now_ns: u64) -> Option<Delivery> {
        while self.next_ns()? <= now_ns {
            let packet = self.in_flight.pop()?;
            self.held_bytes -= packet.packet.bytes().len();
            match packet.next {
                Hop::Host => return Some(Delivery { host: packet.to, packet: packet.packet, at_ns: packet.at_ns }),
                _ => self.enter(packet),
            }
        }
        None
    }

    fn host_at(&self, address: IpAddr) -> Option<HostIndex> {
        // The last byte is the number; comparing with the constructed address checks the rest.
        let number = match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let host = HostIndex::from_number(number).filter(|host| host.at() < self.hosts.len())?;
        (address == IpAddr::V4(address_v4(host)) || address == IpAddr::V6(address_v6(host))).then_some(host)
    }

    /// Passes a packet to its next link, skipping transparent ones.
    fn enter(&mut self, mut packet: PacketInFlight) {
        let name = loop {
            let (name, after) = match packet.next {
                Hop::Up => (LinkName::Up(packet.from), Hop::Pair),
                Hop::Pair => (LinkName::Pair(packet.from, packet.to), Hop::Down),
                Hop::Down => (LinkName::Down(packet.to), Hop::Host),
                Hop::Host => return self.hold(packet),
            };
            packet.next = after;
            // Pairs are counted even if they are transparent, because users read these counters.
            if let Some(link) = self.link_mut(name)
                && (matches!(name, LinkName::Pair(..)) || !link.is_transparent())
            {
                break name;
            }
        };
        let mut runs = std::mem::take(&mut self.runs);
        // The loop above ended at an existing link.
        if let Some(link) = self.link_mut(name) {
            link.offer(packet.at_ns, packet.packet.train(), &mut runs);
        }
        self.go_on(packet, &mut runs);
        self.runs = runs;
    }

    /// Passes the runs of a packet to its next hop, and clears the list.
    fn go_on(&mut self, packet: PacketInFlight, runs: &mut Vec<SegmentRun>) {
        let whole = 0..packet.packet.train().segments;
        if let [run] = runs.as_slice()
            && run.segments == whole
        {
            let at_ns = run.at_ns;
            runs.clear();
            return self.hold(PacketInFlight { at_ns, ..packet });
        }
        let PacketInFlight { next, from, to, packet, .. } = packet;
        for run in runs.drain(..) {
            self.hold(PacketInFlight {
                at_ns: run.at_ns,
                order: 0,
                next,
                from,
                to,
                packet: packet.take(&run.segments),
            });
        }
    }

    fn hold(&mut self, mut packet: PacketInFlight) {
        let bytes = packet.packet.bytes().len();
        if self.held_bytes + bytes > MAX_HELD_BYTES {
            self.counters.overflow_packets += 1;
            return;
        }
        self.held_bytes += bytes;
        packet.order = self.entered;
        self.entered += 1;
        self.in_flight.push(packet);
    }
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Up,
    Pair,
    Down,
    Host,
}

/// A packet with its arrival time at the next hop. The heap returns the earliest; at equal times the first that was
/// added.
#[derive(Debug)]
struct PacketInFlight {
    at_ns: u64,
    order: u64,
    next: Hop,
    from: HostIndex,
    to: HostIndex,
    packet: Packet,
}

impl Ord for PacketInFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, because the heap returns the greatest.
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl PartialOrd for PacketInFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PacketInFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PacketInFlight {}

#[cfg(test)]
mod tests;
