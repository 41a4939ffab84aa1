//! Super-packets: TCP packets larger than the MTU as the kernel passes them, and the segments that they represent.
//!
//! A [`Packet`] is the result of one `read` of a TUN device: a virtio-net header (`struct virtio_net_hdr`, VIRTIO 1.2
//! §5.1.6) followed by the IP packet. Its [`Train`] has the number and size of its segments. [`Packet::take`] returns a
//! run of them as a separate packet, with the headers that a sender would have used: total length, IPv4 identification
//! and checksum, sequence number, FIN and PSH only on the last segment, CWR only on the first. The TCP checksum stays
//! partial, as the kernel left it to the hardware: it is the sum of the pseudo-header, which a receiver behind another
//! TUN device does not complete.
//!
//! Everything except TCP is a train of one segment. This module uses no clock and no descriptors; every offset is
//! checked, because programs in a host may send anything.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

/// Length of the virtio-net header before each packet: ten bytes in the form without the number of buffers.
pub(crate) const VNET_BYTES: usize = 10;

/// Maximum length of a read in bytes: the kernel limits a super-packet to 64 KiB of IP by default.
pub(crate) const MAX_BYTES: usize = VNET_BYTES + (64 << 10);

/// Overhead per packet: preamble and delimiter 8, header 14, checksum 4, gap 12.
const ETHERNET_BYTES: u64 = 38;

/// Minimum length of a packet in bytes, to which Ethernet pads it, without its header and checksum.
const MIN_IP_BYTES: u64 = 46;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;

const TCP_CHECKSUM_OFFSET: usize = 16;
const TCP: u8 = 6;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// How a packet divides into segments. Every segment has the same headers, and all but the last the same payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Train {
    /// At least one.
    pub(crate) segments: u32,
    header_bytes: u32,
    /// Payload of each segment except the last; at least one if there are several segments.
    segment_bytes: u32,
    payload_bytes: u32,
}

impl Train {
    /// Returns the payload range of the segments within the train.
    fn payload(&self, segments: &Range<u32>) -> Range<usize> {
        let at = |segment: u32| segment.saturating_mul(self.segment_bytes).min(self.payload_bytes) as usize;
        // The last segment ends with the payload, also if there is only one, whose length is not limited.
        let end = if segments.end >= self.segments { self.payload_bytes as usize } else { at(segments.end) };
        at(segments.start)..end
    }

    /// Returns the length of a segment on Ethernet, from the preamble to the gap.
    pub(crate) fn wire_bytes(&self, segment: u32) -> u64 {
        let payload = self.payload(&(segment..segment + 1));
        (u64::from(self.header_bytes) + payload.len() as u64).max(MIN_IP_BYTES) + ETHERNET_BYTES
    }

    /// Creates a packet that cannot be divided.
    #[cfg(test)]
    pub(crate) fn single(ip_bytes: u32) -> Self {
        Self { segments: 1, header_bytes: 0, segment_bytes: ip_bytes, payload_bytes: ip_bytes }
    }

    /// Creates a train of `segments` with 52 bytes of headers and 1448 of payload each.
    #[cfg(test)]
    pub(crate) fn of(segments: u32) -> Self {
        Self { segments, header_bytes: 52, segment_bytes: 1448, payload_bytes: 1448 * segments }
    }
}

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketError {
    /// Shorter than its headers, or of an unknown IP version.
    Truncated,
    /// Segmentation offload that was not offered to the kernel.
    Segmentation,
    /// Contradictory headers.
    Headers,
}

/// A packet between two hosts, with its virtio-net header.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: Vec<u8>,
    train: Train,
    /// Bytes of the IP header with its extensions.
    ip_header_bytes: usize,
    destination: IpAddr,
}

impl Packet {
    /// Parses a packet read from a TUN device.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, PacketError> {
        let (vnet, ip) = bytes.split_at_checked(VNET_BYTES).ok_or(PacketError::Truncated)?;
        let destination = destination(ip).ok_or(PacketError::Truncated)?;
        let kind = vnet[1];
        if kind == GSO_NONE {
            let payload_bytes = u32::try_from(ip.len()).map_err(|_| PacketError::Headers)?;
            let train = Train { segments: 1, header_bytes: 0, segment_bytes: payload_bytes, payload_bytes };
            return Ok(Self { bytes, train, ip_header_bytes: 0, destination });
        }
        let version = if destination.is_ipv4() { GSO_TCP4 } else { GSO_TCP6 };
        if kind != version || vnet[0] & NEEDS_CHECKSUM == 0 {
            return Err(PacketError::Segmentation);
        }
        let (ip_header_bytes, header_bytes) =
            tcp_headers(ip, native_u16(vnet, 6).into()).ok_or(PacketError::Headers)?;
        let segment_bytes = u32::from(native_u16(vnet, 4));
        let payload_bytes = ip.len().checked_sub(header_bytes).and_then(|bytes| u32::try_from(bytes).ok());
        let payload_bytes = payload_bytes.ok_or(PacketError::Headers)?;
        if segment_bytes == 0 {
            return Err(PacketError::Segmentation);
        }
        let segments = payload_bytes.div_ceil(segment_bytes).max(1);
        // The headers are within the packet, whose length was checked to fit.
        let train = Train { segments, header_bytes: header_bytes as u32, segment_bytes, payload_bytes };
        Ok(Self { bytes, train, ip_header_bytes, destination })
    }

    pub(crate) fn train(&self) -> &Train {
        &self.train
    }

    pub(crate) fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Returns the packet with its virtio-net header, as written to a TUN device.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the segments of `run` as a packet. The whole packet is passed on unchanged; for a part, headers and
    /// payload are copied.
    ///
    /// `run` is not empty and within the train.
    pub(crate) fn take(&self, run: &Range<u32>) -> Packet {
        debug_assert!(run.start < run.end && run.end <= self.train.segments, "{run:?} of {:?}", self.train);
        let header_end = VNET_BYTES + self.train.header_bytes as usize;
        let payload = self.train.payload(run);
        let mut bytes = Vec::with_capacity(header_end + payload.len());
        bytes.extend_from_slice(&self.bytes[..header_end]);
        bytes.extend_from_slice(&self.bytes[header_end + payload.start..header_end + payload.end]);
        let train = Train { segments: run.end - run.start, payload_bytes: payload.len() as u32, ..self.train };
        let mut taken = Packet { bytes, train, ip_header_bytes: self.ip_header_bytes, destination: self.destination };
        taken.renumber(run.start, payload.start as u32, run.end == self.train.segments);
        taken
    }

    /// Adapts headers copied from a longer train to a run that starts with its segment `first`, `skipped_bytes` into
    /// its payload.
    fn renumber(&mut self, first: u32, skipped_bytes: u32, is_last: bool) {
        let (vnet, ip) = self.bytes.split_at_mut(VNET_BYTES);
        if self.train.segments == 1 {
            vnet[1] = GSO_NONE;
            // Header length and segment payload, which no longer apply.
            vnet[2..6].fill(0);
        }
        // The part is shorter than the original, whose length fits.
        let ip_bytes = ip.len() as u16;
        if self.destination.is_ipv4() {
            set_u16(ip, 2, ip_bytes);
            // One identification per segment, as the kernel assigns them when it segments.
            set_u16(ip, 4, get_u16(ip, 4).wrapping_add(first as u16));
            set_u16(ip, 10, 0);
            let sum = fold(sum_words(&ip[..self.ip_header_bytes]));
            set_u16(ip, 10, !sum);
        } else {
            set_u16(ip, 4, ip_bytes - IPV6_HEADER_BYTES as u16);
        }
        let pseudo = pseudo_header_sum(ip, self.ip_header_bytes);
        let tcp = &mut ip[self.ip_header_bytes..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(skipped_bytes);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            tcp[13] &= !FIN_PSH;
        }
        if first > 0 {
            tcp[13] &= !CWR;
        }
        set_u16(tcp, TCP_CHECKSUM_OFFSET, pseudo);
    }
}

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;

/// Returns the destination of an IP packet; `None` if it is shorter than its header.
fn destination(ip: &[u8]) -> Option<IpAddr> {
    match ip.first()? >> 4 {
        4 => {
            let address: [u8; 4] = ip.get(16..IPV4_HEADER_BYTES)?.try_into().ok()?;
            Some(Ipv4Addr::from(address).into())
        }
        6 => {
            let address: [u8; 16] = ip.get(24..IPV6_HEADER_BYTES)?.try_into().ok()?;
            Some(Ipv6Addr::from(address).into())
        }
        _ => None,
    }
}

/// Returns the start and end of the TCP header, if the one at the offset given by the kernel is valid.
fn tcp_headers(ip: &[u8], start: usize) -> Option<(usize, usize)> {
    let (least, is_tcp) = match ip.first()? >> 4 {
        4 => (usize::from(ip.first()? & 0x0f) * 4, *ip.get(9)? == TCP),
        // There may be extension headers, which the kernel has skipped.
        _ => (IPV6_HEADER_BYTES, true),
    };
    let is_in_place = if ip.first()? >> 4 == 4 { start == least && start >= IPV4_HEADER_BYTES } else { start >= least };
    let tcp = ip.get(start..)?;
    let tcp_bytes = usize::from(tcp.get(12)? >> 4) * 4;
    (is_tcp && is_in_place && tcp_bytes >= 20 && tcp_bytes <= tcp.len()).then_some((start, start + tcp_bytes))
}

/// Returns the folded sum of TCP's pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
fn pseudo_header_sum(ip: &[u8], ip_header_bytes: usize) -> u16 {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    // At most 64 KiB each.
    let tcp_bytes = (ip.len() - ip_header_bytes) as u32;
    fold(sum_words(addresses) + tcp_bytes + u32::from(TCP))
}

/// Returns the sum of the big-endian words; an odd byte counts as the upper half of one. At most 64 KiB, so that it
/// cannot overflow.
fn sum_words(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let rest = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum::<u32>() + rest
}

/// Adds the carries (RFC 1071).
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Reads a field of the virtio-net header, which has the native byte order of the machine.
fn native_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests;
