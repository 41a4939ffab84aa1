//! The verdict on a copy: a sentence about its main limit, and advice.
//!
//! The terms for users are defined in docs/concepts/verdict.md; a test compares its table with this module.

use std::fmt;

use towpath_proto::{
    tcp::CongestionControl,
    units::{rate_text, size_text},
};

use crate::account::{Account, Cause, Leg, LegTotal};

/// The main limit of a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// The leg, for network causes.
    pub leg: Option<Leg>,
    /// Fraction of the time, between 0 and 1.
    pub share: f64,
    /// The observation.
    pub finding: String,
    /// Advice; `None` if there is nothing to gain.
    pub remedy: Option<String>,
}

impl Verdict {
    /// Returns the verdict on `account`; `None` if it is empty.
    pub fn on(account: &Account) -> Option<Self> {
        let (cause, leg, seconds) = account.spent().into_iter().next()?;
        let total = leg.and_then(|leg| account.leg(leg)).cloned().unwrap_or_default();
        let (finding, remedy) = words(cause, leg, &total);
        Some(Self { cause, leg, share: seconds / account.seconds.max(1e-9), finding, remedy })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.0} % of the time): {}", self.cause.name(), self.share * 100.0, self.finding)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

/// Returns the observation and the advice for a cause.
fn words(cause: Cause, leg: Option<Leg>, total: &LegTotal) -> (String, Option<String>) {
    let (sender, receiver) = match leg {
        Some(Leg::In) => ("the source's server", "this machine"),
        _ => ("this machine", "the destination's server"),
    };
    let path = LegDisplay(total);
    match cause {
        Cause::Limit => ("the rate stayed below --limit".into(), Some("raise it".into())),
        Cause::Listing => (
            "there was nothing to copy: the source was still being listed".into(),
            Some("name the directories that matter".into()),
        ),
        Cause::FileOverhead => (
            "files were being opened, created and committed: requests that do not depend on the size of the files"
                .into(),
            Some("pack small files together; check the load of the servers' disks and name spaces".into()),
        ),
        Cause::EarlierUpload => (
            "the destination held an earlier upload of a file until it detected that its client had disconnected"
                .into(),
            None,
        ),
        Cause::Retry => (
            "copies broke off, and paused before their retries".into(),
            Some("check the messages above for the reason".into()),
        ),
        Cause::SourceRead => {
            ("the storage of the source was slower than the network".into(), Some("check the source's disks".into()))
        }
        Cause::DestinationWrite => (
            "the storage of the destination was slower than the network".into(),
            Some("check the destination's disks".into()),
        ),
        Cause::Checksum => (
            "a file was read again to compute a digest".into(),
            Some("use a digest that both ends store (see `towpath sum`), or omit --checksum".into()),
        ),
        Cause::ThirdParty => (
            "the servers copied directly; no data crossed this machine".into(),
            Some("check their logs, or copy through this machine to find the bottleneck".into()),
        ),
        Cause::Processor => (
            "this program needed more processor time than was available".into(),
            Some("check for other programs on this machine; TLS and slow digests (MD5, SHA-256) cost most".into()),
        ),
        Cause::FarProcessor => {
            let server = if leg == Some(Leg::In) { sender } else { receiver };
            (
                format!("{server} needed more processor time than was available"),
                Some("check what else it runs; TLS and slow digests (MD5, SHA-256) cost most".into()),
            )
        }
        Cause::SlowStart => {
            (format!("slow start on {path}"), Some("copy more data at once: the rate rises after slow start".into()))
        }
        Cause::SenderWindow => {
            let most = total.most_send_buffer;
            let cap = rate_text(most as f64 / total.round_trip.as_secs_f64().max(1e-6));
            (
                format!(
                    "{sender} keeps at most {} unacknowledged for each connection: at most {cap} each, on {path}",
                    size_text(most)
                ),
                Some(format!("raise the maximum (third value) of net.ipv4.tcp_wmem at {sender}")),
            )
        }
        Cause::ReceiverWindow => (
            format!("{receiver} permits too little in flight to each connection of {path}"),
            Some(format!(
                "raise the maximum (third value) of net.ipv4.tcp_rmem at {receiver}, now {}",
                size_text(total.most_receive_buffer)
            )),
        ),
        Cause::MoverWindow => (
            format!("towpath requested no more: it has at most {} in flight", size_text(crate::MAX_BYTES)),
            Some("run several copies in parallel; if the path holds less than that, please report it".into()),
        ),
        Cause::Loss => {
            let share = 100.0 * total.resent_bytes / (total.bytes as f64).max(1.0);
            let remedy = match total.control {
                CongestionControl::Bbr => "have the path checked".into(),
                _ => format!(
                    "enable BBR at {sender} (net.ipv4.tcp_allowed_congestion_control), or have the path checked"
                ),
            };
            (format!("{share:.2} % of the bytes on {path} were retransmitted"), Some(remedy))
        }
        Cause::Bandwidth => {
            let (bytes, seconds) = total.at_full_rate;
            (format!("{path} carried at most {}", rate_text(bytes / seconds.max(1e-9))), None)
        }
        Cause::FarEnd => (
            format!("{path}: the other end limited the rate and did not report why"),
            Some(
                "check its load and net.ipv4.tcp_wmem there; a towpath server reports the reason with each response"
                    .into(),
            ),
        ),
    }
}

/// Displays a leg.
struct LegDisplay<'a>(&'a LegTotal);

impl fmt::Display for LegDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.0.connections;
        let plural = if connections == 1 { "" } else { "s" };
        write!(f, "{connections} connection{plural} over {:.1} ms", self.0.round_trip.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_page_for_users_has_every_word_in_order() {
        let page = include_str!("../../../docs/concepts/verdict.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let words: Vec<_> = rows.filter(|word| !matches!(*word, "cause" | "---")).collect();
        assert_eq!(words, Cause::ALL.map(Cause::name));
    }

    #[test]
    fn a_sentence_says_what_was_seen_and_what_to_do() {
        let total = LegTotal {
            bytes: 1 << 30,
            connections: 3,
            round_trip: Duration::from_millis(100),
            resent_bytes: f64::from(1 << 20),
            most_send_buffer: 4 << 20,
            at_full_rate: (1e9, 8.0),
            ..LegTotal::default()
        };
        let (finding, remedy) = words(Cause::SenderWindow, Some(Leg::In), &total);
        assert!(finding.ends_with("at most 335.5 Mbit/s each, on 3 connections over 100.0 ms"), "{finding}");
        assert!(remedy.unwrap().ends_with("at the source's server"));
        assert_eq!(
            words(Cause::Bandwidth, Some(Leg::Out), &total).0,
            "3 connections over 100.0 ms carried at most 1.00 Gbit/s"
        );
        let (finding, remedy) = words(Cause::Loss, Some(Leg::Out), &total);
        assert!(finding.starts_with("0.10 %") && remedy.unwrap().contains("BBR at this machine"));
    }

    #[test]
    fn nothing_done_is_nothing_to_judge() {
        assert_eq!(Verdict::on(&Account::default()), None);
    }
}
