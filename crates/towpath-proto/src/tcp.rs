//! Kernel statistics of a TCP connection, and their text form: `query config towpath.tcp` over XRootD, the field
//! `Towpath-Tcp` of HTTP responses.
//!
//! Only the sender's kernel knows why a connection is slow: its congestion window, the receiver's window, its own send
//! buffer, or losses. The client of a download therefore queries the server. The text is one line of `key=value` pairs
//! in any order; unknown keys are ignored, and missing ones are zero.

use std::{fmt, str::FromStr, time::Duration};

/// Field of HTTP requests and responses; its value in a request is ignored.
pub const TCP_INFO_FIELD: &str = "towpath-tcp";

/// Key of `query config`.
pub const TCP_INFO_WORD: &[u8] = b"towpath.tcp";

/// Maximum length of a parsed line in bytes.
pub const MAX_TCP_INFO_BYTES: usize = 1024;

/// Snapshot of a TCP connection. Counters start with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Minimum round-trip time of the last minutes; zero if none was measured.
    pub min_rtt: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Receive window of the peer in bytes.
    pub peer_window: u64,
    /// Bytes received, in order.
    pub received: u64,
    /// Segments received before an earlier one, mostly after a loss.
    pub out_of_order: u64,
    /// Acknowledged bytes.
    pub acknowledged: u64,
    /// Bytes sent, including retransmissions.
    pub sent: u64,
    /// Retransmitted bytes.
    pub resent: u64,
    /// Delivery rate of the most recent bytes, in bytes per second.
    pub delivery_rate: u64,
    /// Time with data to send.
    pub busy: Duration,
    /// Part of this time limited by the receive window of the peer.
    pub limited_by_peer: Duration,
    /// Part of this time limited by the local send buffer (`net.ipv4.tcp_wmem`).
    pub limited_by_buffer: Duration,
    /// Slow-start threshold in bytes: up to it the window doubles with each round trip. Larger than any window until
    /// the first loss.
    pub slow_start_threshold: u64,
    /// True if the congestion window is below that threshold.
    pub is_in_slow_start: bool,
    /// True if there is currently nothing to send, although the congestion window would permit it.
    pub is_starved: bool,
    /// True if the server reports that no request is in progress on the connection.
    pub is_unasked: bool,
    /// Recent processor demand of the program at that end, in per cent of the time available to it: of all processors
    /// together, or of the one available to its busiest thread.
    pub processor_percent: u64,
    /// Congestion control.
    pub control: CongestionControl,
    /// Maximum automatic send buffer of a connection in bytes (third value of `net.ipv4.tcp_wmem`).
    pub most_send_buffer: u64,
    /// Maximum automatic receive buffer of a connection in bytes (third value of `net.ipv4.tcp_rmem`).
    pub most_receive_buffer: u64,
}

/// A path has a queue if its smoothed round trip exceeds the minimum by this factor plus [`MIN_QUEUE`].
pub const QUEUE: f64 = 1.25;

/// Variation of the round-trip time that is not attributed to a queue.
const MIN_QUEUE: Duration = Duration::from_millis(1);

/// A congestion control, distinguished by its reaction to losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438): treats a loss as congestion.
    Cubic,
    /// BBR (draft-ietf-ccwg-bbr): tolerates losses of up to some per cent.
    Bbr,
    /// Another or unknown one; most treat losses as congestion.
    #[default]
    Other,
}

impl CongestionControl {
    /// Returns the congestion control with the Linux name `name`.
    pub fn of_name(name: &str) -> Self {
        match name {
            "cubic" => Self::Cubic,
            "bbr" => Self::Bbr,
            _ => Self::Other,
        }
    }

    /// Returns its name in Linux; `other` for another one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for TcpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "min_rtt_us={} rtt_us={} cwnd={} peer_window={} received={} out_of_order={} acked={} sent={} resent={} rate={} \
             busy_us={} peer_limited_us={} buffer_limited_us={} ssthresh={} slow_start={} starved={} unasked={} processor={} control={} \
             wmem={} rmem={}",
            self.min_rtt.as_micros(),
            self.rtt.as_micros(),
            self.congestion_window,
            self.peer_window,
            self.received,
            self.out_of_order,
            self.acknowledged,
            self.sent,
            self.resent,
            self.delivery_rate,
            self.busy.as_micros(),
            self.limited_by_peer.as_micros(),
            self.limited_by_buffer.as_micros(),
            self.slow_start_threshold,
            u8::from(self.is_in_slow_start),
            u8::from(self.is_starved),
            u8::from(self.is_unasked),
            self.processor_percent,
            self.control.name(),
            self.most_send_buffer,
            self.most_receive_buffer,
        )
    }
}

/// Error for a line without connection statistics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it has no statistics of a TCP connection")]
pub struct NoTcpInfo;

impl FromStr for TcpInfo {
    type Err = NoTcpInfo;

    /// Ignores unknown keys. The response of a server that does not support the query is an error.
    fn from_str(line: &str) -> Result<Self, NoTcpInfo> {
        let mut info = Self::default();
        if line.len() > MAX_TCP_INFO_BYTES {
            return Err(NoTcpInfo);
        }
        for (key, value) in line.split_ascii_whitespace().filter_map(|pair| pair.split_once('=')) {
            if key == "control" {
                info.control = CongestionControl::of_name(value);
            } else if let Ok(number) = value.parse() {
                info.take(key, number);
            }
        }
        // The request itself was received, so the counter is positive.
        if info.received == 0 { Err(NoTcpInfo) } else { Ok(info) }
    }
}

impl TcpInfo {
    /// Returns whether data wait in a queue on the path, judged by the smoothed round trip.
    pub fn has_queue(&self) -> bool {
        self.rtt > self.min_rtt.mul_f64(QUEUE) + MIN_QUEUE
    }

    fn take(&mut self, key: &str, number: u64) {
        let micros = Duration::from_micros(number);
        match key {
            "min_rtt_us" => self.min_rtt = micros,
            "rtt_us" => self.rtt = micros,
            "cwnd" => self.congestion_window = number,
            "peer_window" => self.peer_window = number,
            "received" => self.received = number,
            "out_of_order" => self.out_of_order = number,
            "acked" => self.acknowledged = number,
            "sent" => self.sent = number,
            "resent" => self.resent = number,
            "rate" => self.delivery_rate = number,
            "busy_us" => self.busy = micros,
            "peer_limited_us" => self.limited_by_peer = micros,
            "buffer_limited_us" => self.limited_by_buffer = micros,
            "ssthresh" => self.slow_start_threshold = number,
            "slow_start" => self.is_in_slow_start = number != 0,
            "starved" => self.is_starved = number != 0,
            "unasked" => self.is_unasked = number != 0,
            "processor" => self.processor_percent = number,
            "wmem" => self.most_send_buffer = number,
            "rmem" => self.most_receive_buffer = number,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info() -> impl Strategy<Value = TcpInfo> {
        let micros = || (0..1_u64 << 60).prop_map(Duration::from_micros);
        let control =
            prop_oneof![Just(CongestionControl::Cubic), Just(CongestionControl::Bbr), Just(CongestionControl::Other)];
        (prop::array::uniform12(any::<u64>()), prop::array::uniform5(micros()), any::<[bool; 3]>(), control).prop_map(
            |(
                numbers,
                [min_rtt, rtt, busy, limited_by_peer, limited_by_buffer],
                [is_in_slow_start, is_starved, is_unasked],
                control,
            )| TcpInfo {
                min_rtt,
                rtt,
                congestion_window: numbers[0],
                peer_window: numbers[1],
                received: numbers[2].max(1),
                out_of_order: numbers[3],
                acknowledged: numbers[4],
                sent: numbers[5],
                resent: numbers[6],
                delivery_rate: numbers[7],
                busy,
                limited_by_peer,
                limited_by_buffer,
                is_in_slow_start,
                is_starved,
                is_unasked,
                control,
                most_send_buffer: numbers[8],
                most_receive_buffer: numbers[9],
                slow_start_threshold: numbers[10],
                processor_percent: numbers[11],
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_told_is_understood(info in info()) {
            let line = info.to_string();
            prop_assert!(line.len() <= MAX_TCP_INFO_BYTES);
            prop_assert_eq!(line.parse(), Ok(info));
        }

        #[test]
        fn anything_may_come(line in ".{0,200}") {
            let _ = line.parse::<TcpInfo>();
        }
    }

    #[test]
    fn a_queue_exceeds_both_the_factor_and_the_variation() {
        for (min_rtt_ms, rtt_ms, expected) in
            [(100, 100, false), (100, 126, false), (100, 127, true), (0, 1, false), (0, 2, true)]
        {
            let ms = Duration::from_millis;
            let info = TcpInfo { min_rtt: ms(min_rtt_ms), rtt: ms(rtt_ms), ..TcpInfo::default() };
            assert_eq!(info.has_queue(), expected, "{min_rtt_ms} ms, {rtt_ms} ms");
        }
    }

    #[test]
    fn a_server_that_echoes_the_question_told_nothing() {
        assert_eq!("towpath.tcp".parse::<TcpInfo>(), Err(NoTcpInfo));
        assert_eq!("".parse::<TcpInfo>(), Err(NoTcpInfo));
        assert_eq!("received=1 news=2 rtt_us=x".parse(), Ok(TcpInfo { received: 1, ..TcpInfo::default() }));
    }
}
