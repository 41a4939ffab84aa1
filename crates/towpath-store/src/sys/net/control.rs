//! Selection of the congestion control for connections over long paths.
//!
//! The default algorithm, mostly CUBIC (RFC 9438), fills a path and shares it fairly. But it treats every loss as
//! congestion: at 90 ms and 2 % loss it reaches 1 Mbit/s of 100. BBR (draft-ietf-ccwg-bbr) uses the delivery rate
//! instead. Several BBR connections, however, keep a queue full, and a tenth or more of their segments, and of
//! others', is dropped there. BBR is therefore used for connections that lose segments although the path has no queue.

use std::{os::fd::AsRawFd, time::Duration};

use tokio::time::sleep;
use towpath_proto::tcp::{CongestionControl, QUEUE, TcpInfo};

use super::info::{set_control, tcp_info};

/// Minimum round trip of a long path.
const LONG: Duration = Duration::from_millis(10);

/// Sampling interval in round trips, and its bounds.
const LOOK: u32 = 2;
const MIN_LOOK: Duration = Duration::from_millis(100);
const MAX_LOOK: Duration = Duration::from_secs(1);

/// Maximum sampling interval of an idle connection, which increases gradually.
const IDLE_LOOK: Duration = Duration::from_secs(4);

/// Factor by which CUBIC reduces its window at a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// Minimum window in bytes from which a queue can be inferred.
const SMALL_WINDOW: f64 = 16384.0;

/// Monitors `socket` and switches it to BBR once its losses are not caused by congestion. Returns then, and
/// immediately if there is nothing to do: the path is short, or the system uses BBR for everything.
pub async fn suit_to_path(socket: impl AsRawFd) {
    let Ok(mut before) = tcp_info(&socket) else { return };
    let mut pause = Duration::ZERO;
    while before.min_rtt >= LONG && before.control != CongestionControl::Bbr {
        let usual = (before.min_rtt * LOOK).clamp(MIN_LOOK, MAX_LOOK);
        sleep(pause.max(usual)).await;
        let Ok(now) = tcp_info(&socket) else { return };
        pause = if now.sent > before.sent { usual } else { (pause * 2).clamp(usual, IDLE_LOOK) };
        if lost_without_queue(&before, &now) {
            match set_control(&socket, CongestionControl::Bbr) {
                Ok(()) => tracing::debug!(?now, "losses without a queue: switched to BBR"),
                Err(error) => tracing::debug!(%error, "losses without a queue, but cannot switch to BBR"),
            }
            return;
        }
        before = now;
    }
}

/// Returns whether segments were lost on a long path between two samples without a queue, both at the samples and at
/// the loss.
fn lost_without_queue(before: &TcpInfo, now: &TcpInfo) -> bool {
    let waits = before.has_queue() || now.has_queue() || waited(before, now);
    now.resent > before.resent && now.min_rtt >= LONG && !waits
}

/// Returns whether there was a queue at the last loss. The queue may have come and gone between two samples, but the
/// window at the loss, from which CUBIC derived its threshold, equals the data delivered in one round trip, which
/// reveals that round trip. In slow start the window is ahead of the delivered data: one such loss is not sufficient.
fn waited(before: &TcpInfo, now: &TcpInfo) -> bool {
    let window = now.slow_start_threshold as f64 / CUBIC_BETA;
    let delivered = before.delivery_rate.max(now.delivery_rate) as f64 * now.min_rtt.as_secs_f64();
    window > delivered * QUEUE + SMALL_WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 10_000_000;

    /// A sample at 10 MB/s over 100 ms, where the bandwidth-delay product is 1 MB.
    fn look(rtt_ms: u64, resent: u64, window: u64) -> TcpInfo {
        let [min_rtt, rtt] = [100, rtt_ms].map(Duration::from_millis);
        TcpInfo {
            min_rtt,
            rtt,
            resent,
            slow_start_threshold: window * 7 / 10,
            delivery_rate: RATE,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_path_is_long_by_its_least_round_trip() {
        let min_rtt = Duration::from_micros(10);
        let [before, now] = [0, 1448].map(|resent| TcpInfo { min_rtt, rtt: min_rtt, ..look(10, resent, 0) });
        assert!(!lost_without_queue(&before, &now));
    }

    #[test]
    fn losses_are_congestion_where_there_is_or_was_a_queue() {
        for (before, now, expected) in [
            (look(100, 0, u64::MAX / 7), look(120, 1448, 1_000_000), true),
            (look(100, 0, u64::MAX / 7), look(120, 1448, 1_300_000), false),
            (look(100, 0, u64::MAX / 7), look(120, 1448, u64::MAX / 7), false),
            (look(100, 0, u64::MAX / 7), look(195, 1448, 1_000_000), false),
            (look(195, 0, u64::MAX / 7), look(100, 1448, 1_000_000), false),
            (look(100, 1448, 1_000_000), look(100, 1448, 1_000_000), false),
        ] {
            assert_eq!(lost_without_queue(&before, &now), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn what_was_lost_from_a_small_window_waited_for_nothing() {
        let slow = |info: TcpInfo| TcpInfo { delivery_rate: 10_000, ..info };
        assert!(lost_without_queue(&slow(look(100, 0, u64::MAX / 7)), &slow(look(100, 1448, 14480))));
    }
}
