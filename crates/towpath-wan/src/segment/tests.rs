use proptest::prelude::*;

use super::*;

/// A TCP super-packet as the kernel passes it.
#[derive(Debug, Clone)]
pub(crate) struct SuperPacket {
    pub(crate) is_v6: bool,
    pub(crate) option_words: u8,
    pub(crate) flags: u8,
    pub(crate) identification: u16,
    pub(crate) sequence: u32,
    pub(crate) segment_bytes: u16,
    pub(crate) payload: Vec<u8>,
}

impl SuperPacket {
    fn tcp_start(&self) -> usize {
        if self.is_v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let tcp_bytes = 20 + 4 * usize::from(self.option_words);
        let start = self.tcp_start();
        let mut ip = vec![0; start + tcp_bytes];
        ip.extend_from_slice(&self.payload);
        let ip_bytes = u16::try_from(ip.len()).unwrap();
        if self.is_v6 {
            ip[0] = 0x60;
            set_u16(&mut ip, 4, ip_bytes - 40);
            (ip[6], ip[7]) = (TCP, 64);
            ip[8..40].copy_from_slice(&[0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
        } else {
            ip[0] = 0x45;
            set_u16(&mut ip, 2, ip_bytes);
            set_u16(&mut ip, 4, self.identification);
            (ip[8], ip[9]) = (64, TCP);
            ip[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
            let sum = !fold(sum_words(&ip[..20]));
            set_u16(&mut ip, 10, sum);
        }
        let pseudo = pseudo_header_sum(&ip, start);
        let tcp = &mut ip[start..];
        set_u16(tcp, 0, 40_000);
        set_u16(tcp, 2, 1094);
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[12] = u8::try_from(tcp_bytes / 4).unwrap() << 4;
        tcp[13] = self.flags;
        tcp[20..tcp_bytes].fill(1);
        set_u16(tcp, TCP_CHECKSUM_OFFSET, pseudo);

        let mut vnet = [0; VNET_BYTES];
        vnet[0] = NEEDS_CHECKSUM;
        vnet[1] = if self.is_v6 { GSO_TCP6 } else { GSO_TCP4 };
        vnet[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        vnet[6..8].copy_from_slice(&u16::try_from(start).unwrap().to_ne_bytes());
        vnet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let mut bytes = vnet.to_vec();
        bytes.extend_from_slice(&ip);
        bytes
    }

    fn packet(&self) -> Packet {
        Packet::parse(self.bytes()).unwrap()
    }
}

fn sent() -> impl Strategy<Value = SuperPacket> {
    let payload = prop::collection::vec(any::<u8>(), 1..20_000);
    (any::<bool>(), 0..=10_u8, any::<u8>(), any::<u16>(), any::<u32>(), 500..1460_u16, payload).prop_map(
        |(is_v6, option_words, flags, identification, sequence, segment_bytes, payload)| SuperPacket {
            is_v6,
            option_words,
            flags,
            identification,
            sequence,
            segment_bytes,
            payload,
        },
    )
}

/// A super-packet, and its segments divided into runs that each survive or not.
fn cuts() -> impl Strategy<Value = (SuperPacket, Vec<(Range<u32>, bool)>)> {
    (sent(), prop::collection::vec((1..6_u32, any::<bool>()), 40)).prop_map(|(sent, parts)| {
        let segments = sent.packet().train.segments;
        let (mut runs, mut start) = (Vec::new(), 0);
        for (length, survives) in parts {
            let end = (start + length).min(segments);
            if start < end {
                runs.push((start..end, survives));
            }
            start = end;
        }
        (sent, runs)
    })
}

/// Returns the sum over a TCP segment whose checksum was completed as in hardware: all ones if it is correct.
fn completed_sum(ip: &[u8], tcp_start: usize) -> u16 {
    let mut ip = ip.to_vec();
    // The field holds the pseudo-header's sum, so that the sum over all of TCP is that of both.
    let checksum = !fold(sum_words(&ip[tcp_start..]));
    set_u16(&mut ip, tcp_start + TCP_CHECKSUM_OFFSET, checksum);
    fold(u32::from(pseudo_header_sum(&ip, tcp_start)) + sum_words(&ip[tcp_start..]))
}

proptest! {
    #[test]
    fn every_byte_of_the_runs_arrives_once_and_where_it_belongs((sent, runs) in cuts()) {
        let packet = sent.packet();
        let segment_bytes = usize::from(sent.segment_bytes);
        for (run, survives) in runs {
            if !survives {
                continue;
            }
            let taken = packet.take(&run);
            let ip = &taken.bytes()[VNET_BYTES..];
            let tcp = &ip[sent.tcp_start()..];
            let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            let at = sequence.wrapping_sub(sent.sequence) as usize;
            prop_assert_eq!(at, run.start as usize * segment_bytes);
            let payload = &tcp[20 + 4 * usize::from(sent.option_words)..];
            let end = (run.end as usize * segment_bytes).min(sent.payload.len());
            prop_assert_eq!(payload, &sent.payload[at..end]);
        }
    }

    #[test]
    fn headers_of_a_run_are_those_of_a_packet_sent_alone((sent, runs) in cuts()) {
        let packet = sent.packet();
        for (run, _) in runs {
            let taken = packet.take(&run);
            let bytes = taken.bytes();
            let (vnet, ip) = bytes.split_at(VNET_BYTES);
            let tcp = &ip[sent.tcp_start()..];
            let is_last = run.end == packet.train.segments;
            prop_assert_eq!(vnet[1] == GSO_NONE, run.len() == 1);
            prop_assert_eq!(vnet[0], NEEDS_CHECKSUM);
            let dropped = if is_last { 0 } else { FIN_PSH } | if run.start == 0 { 0 } else { CWR };
            prop_assert_eq!(tcp[13], sent.flags & !dropped);
            prop_assert_eq!(completed_sum(ip, sent.tcp_start()), 0xffff);
            if sent.is_v6 {
                prop_assert_eq!(usize::from(get_u16(ip, 4)), ip.len() - 40);
            } else {
                prop_assert_eq!(usize::from(get_u16(ip, 2)), ip.len());
                prop_assert_eq!(fold(sum_words(&ip[..20])), 0xffff);
                prop_assert_eq!(get_u16(ip, 4), sent.identification.wrapping_add(run.start as u16));
            }
            // The kernel would parse it as a train of that length.
            let again = Packet::parse(bytes.to_vec());
            prop_assert_eq!(again.map(|packet| packet.train.segments), Ok(run.end - run.start));
        }
    }

    #[test]
    fn a_run_of_a_run_is_the_same_run((sent, at, length) in (sent(), 0..20_u32, 1..20_u32)) {
        let packet = sent.packet();
        let segments = packet.train.segments;
        let outer = (at % segments)..segments;
        let inner = 0..length.min(outer.end - outer.start);
        let twice = packet.take(&outer).take(&inner);
        let once = packet.take(&(outer.start..outer.start + inner.end));
        prop_assert_eq!(&twice.bytes()[2..], &once.bytes()[2..]);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..6_u8, version in 0..16_u8) {
        let mut bytes = bytes;
        if let [_, gso, _, _, _, _, low, high, _, _, first, ..] = bytes.as_mut_slice() {
            (*gso, *first) = (kind, version << 4 | 5);
            [*low, *high] = u16::from(*low & 63).to_ne_bytes();
        }
        if let Ok(packet) = Packet::parse(bytes.to_vec()) {
            for segment in 0..packet.train.segments {
                prop_assert!(packet.train.wire_bytes(segment) >= 84);
            }
            if packet.train.segments > 1 {
                prop_assert!(packet.take(&(1..2)).bytes().len() <= bytes.len());
            }
        }
    }
}

#[test]
fn a_segment_takes_what_ethernet_takes() {
    let sent = SuperPacket {
        is_v6: false,
        option_words: 3,
        flags: 0x10,
        identification: 1,
        sequence: 1,
        segment_bytes: 1448,
        payload: vec![0; 1448 * 2 + 10],
    };
    let train = *sent.packet().train();
    assert_eq!(train.segments, 3);
    assert_eq!([0, 1, 2].map(|segment| train.wire_bytes(segment)), [1538, 1538, 100]);
    assert_eq!(Train::single(40).wire_bytes(0), 84);
    assert_eq!(Train::single(1500).wire_bytes(0), 1538);
    // Packets without segmentation are one segment, whatever their size.
    assert_eq!(Train::single(9000).wire_bytes(0), 9038);
}

#[test]
fn segmentation_that_was_not_offered_is_refused() {
    let sent = SuperPacket {
        is_v6: false,
        option_words: 0,
        flags: 0x10,
        identification: 1,
        sequence: 1,
        segment_bytes: 1000,
        payload: vec![0; 3000],
    };
    let edited = |at: usize, value: u8| {
        let mut bytes = sent.bytes();
        bytes[at] = value;
        Packet::parse(bytes).map(|packet| packet.train.segments)
    };
    assert_eq!(edited(1, GSO_TCP4), Ok(3));
    assert_eq!(edited(1, GSO_TCP6), Err(PacketError::Segmentation));
    assert_eq!(edited(1, 5), Err(PacketError::Segmentation));
    assert_eq!(edited(0, 0), Err(PacketError::Segmentation));
    assert_eq!(edited(6, 24), Err(PacketError::Headers));
    assert_eq!(edited(VNET_BYTES, 0x95), Err(PacketError::Truncated));
    assert_eq!(Packet::parse(vec![0; 12]).map(|_| ()), Err(PacketError::Truncated));
}
