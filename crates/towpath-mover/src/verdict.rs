//! The verdict on a copy: a sentence about its main limit, and advice.
//!
//! The terms for users are defined in docs/concepts/verdict.md; a test compares its table with this module.

use std::fmt;

use towpath_proto::{
    tcp::Control,
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
    let path = Path(total);
    match cause {
        Cause::Limit => ("the rate stayed below --limit".into(), Some("raise it".into())),
        Cause::Listing => (
            "there was nothing to copy: the source was still being listed".into(),
            Some("name the directories that matter".into()),
        ),
        Cause::FileOverhead => (
            "files were being opened, made and shown: those are requests, whatever the size of the files".into(),
            Some("pack small files together; look at how busy the servers' disks and name spaces are".into()),
        ),
        Cause::EarlierUpload => {
            ("the destination held an earlier upload of a file until it noticed that its client was gone".into(), None)
        }
        Cause::SourceRead => (
            "the storage of the source gave no more, while the network had room".into(),
            Some("look at the source's disks".into()),
        ),
        Cause::DestinationWrite => (
            "the storage of the destination took no more, while the network had room".into(),
            Some("look at the destination's disks".into()),
        ),
        Cause::Checksum => (
            "a digest was computed by reading a file once more".into(),
            Some("ask for a digest that both ends keep (`towpath sum` tells), or leave --checksum out".into()),
        ),
        Cause::ThirdParty => (
            "the sites copied between themselves; nothing of that crosses this machine".into(),
            Some("look at their logs, or let the bytes come through this machine to see what holds them up".into()),
        ),
        Cause::Processor => (
            "this program wanted more processor time than it could have".into(),
            Some("look for other programs on this machine; TLS and slow digests (MD5, SHA-256) cost most".into()),
        ),
        Cause::FarProcessor => {
            let server = if leg == Some(Leg::In) { sender } else { receiver };
            (
                format!("{server} wanted more processor time than it could have"),
                Some("look at what else it does; TLS and slow digests (MD5, SHA-256) cost most".into()),
            )
        }
        Cause::SlowStart => (
            format!("the windows of {path} were opening"),
            Some("copy more at once: the next seconds are faster".into()),
        ),
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
            format!("towpath did not ask for more; it has at most {} in flight", size_text(crate::MAX_BYTES)),
            Some("several copies side by side go further; if the path holds less than that, please report it".into()),
        ),
        Cause::Loss => {
            let share = 100.0 * total.resent_bytes / (total.bytes as f64).max(1.0);
            let remedy = match total.control {
                Control::Bbr => "have the path looked at".into(),
                _ => format!(
                    "permit BBR at {sender} (net.ipv4.tcp_allowed_congestion_control), or have the path looked at"
                ),
            };
            (format!("{share:.2} % of the bytes on {path} had to be sent again"), Some(remedy))
        }
        Cause::Bandwidth => {
            let (bytes, seconds) = total.at_full_rate;
            (format!("{path} carried {}, and no more", rate_text(bytes / seconds.max(1e-9))), None)
        }
        Cause::FarEnd => (
            format!("{path}: the other end gave or took no more, and did not say why"),
            Some("look at its load and at net.ipv4.tcp_wmem there; a towpath server says why with each answer".into()),
        ),
    }
}

/// Displays a leg.
struct Path<'a>(&'a LegTotal);

impl fmt::Display for Path<'_> {
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
            "3 connections over 100.0 ms carried 1.00 Gbit/s, and no more"
        );
        let (finding, remedy) = words(Cause::Loss, Some(Leg::Out), &total);
        assert!(finding.starts_with("0.10 %") && remedy.unwrap().contains("BBR at this machine"));
    }

    #[test]
    fn nothing_done_is_nothing_to_judge() {
        assert_eq!(Verdict::on(&Account::default()), None);
    }
}
