//! The congestion control of connections over long paths.
//!
//! The machine's own, mostly CUBIC (RFC 9438), fills a path, holds it, and shares it with others. But it takes every loss for congestion: over 90 ms and with
//! 2 % of losses it moves 1 Mbit/s of 100. BBR (draft-ietf-ccwg-bbr) goes by what arrives. Several connections with BBR, though, keep a queue full
//! among them, and a tenth or more of what they send is dropped there, theirs and others'. So BBR is for connections that lose segments although
//! nothing waits on the path.

use std::{os::fd::AsRawFd, time::Duration};

use tokio::time::sleep;
use towpath_proto::tcp::{Control, TcpInfo};

use super::info::{set_control, tcp_info};

/// From this round trip on a path is long.
const LONG: Duration = Duration::from_millis(10);

/// How often to look, in round trips, and bounds of that. A queue that overflowed is seen at one of two looks: it takes longer to drain.
const LOOK: u32 = 2;
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// A connection that sends nothing is looked at ever more seldom, down to this.
const IDLE_LOOK: Duration = Duration::from_secs(4);

/// Watches what is sent over `socket`, and gives it BBR once its losses are no congestion. Ends then, and at once where there is nothing to be done: the path is
/// short, or the machine uses BBR for everything.
pub async fn suit_to_path(socket: impl AsRawFd) {
    let Ok(mut before) = tcp_info(&socket) else { return };
    let mut pause = Duration::ZERO;
    while before.min_rtt >= LONG && before.control != Control::Bbr {
        let usual = (before.min_rtt * LOOK).clamp(SHORTEST_LOOK, LONGEST_LOOK);
        sleep(pause.max(usual)).await;
        let Ok(now) = tcp_info(&socket) else { return };
        pause = if now.sent > before.sent { usual } else { (pause * 2).clamp(usual, IDLE_LOOK) };
        if lost_without_queue(&before, &now) {
            match set_control(&socket, Control::Bbr) {
                Ok(()) => tracing::debug!(?now, "losses without a queue: BBR from now on"),
                Err(error) => tracing::debug!(%error, "losses without a queue, but no BBR"),
            }
            return;
        }
        before = now;
    }
}

/// Whether segments were lost on a long path between two looks, and nothing waited on it at either.
fn lost_without_queue(before: &TcpInfo, now: &TcpInfo) -> bool {
    let has_queue = |info: &TcpInfo| info.rtt > info.min_rtt * 5 / 4 + Duration::from_millis(1);
    now.resent > before.resent && now.min_rtt >= LONG && !has_queue(before) && !has_queue(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(rtt_ms: u64, resent: u64) -> TcpInfo {
        let (min_rtt, rtt) = (Duration::from_millis(100), Duration::from_millis(rtt_ms));
        TcpInfo { min_rtt, rtt, resent, ..TcpInfo::default() }
    }

    #[test]
    fn a_path_is_long_by_its_least_round_trip() {
        let min_rtt = Duration::from_micros(10);
        let [before, now] = [0, 1448].map(|resent| TcpInfo { min_rtt, rtt: min_rtt, ..look(10, resent) });
        assert!(!lost_without_queue(&before, &now));
    }

    #[test]
    fn losses_are_congestion_where_there_is_or_was_a_queue() {
        for (before, now, expected) in [
            (look(100, 0), look(120, 1448), true),
            (look(100, 0), look(195, 1448), false),
            (look(195, 0), look(100, 1448), false),
            (look(100, 1448), look(100, 1448), false),
        ] {
            assert_eq!(lost_without_queue(&before, &now), expected, "{before:?} {now:?}");
        }
    }
}
