//! Attributes the time of a copy to causes. The cause with the largest share is the verdict.
//!
//! Each interval of a fraction of a second is attributed in two steps:
//!
//! 1. *Which stage is the bottleneck?* Bytes queue in front of it, so it is the stage with the most bytes beyond its
//!    bandwidth-delay product (rate times round trip).
//! 2. *If that stage crosses the network, what limited the sender?* The sender's kernel reports how long it was idle,
//!    limited by the receiver's window, or limited by its own buffer ([`towpath_proto::tcp`]). The rest of the time it
//!    was limited by its congestion window: slow start, loss, or bandwidth.
//!
//! The terms for users are defined in docs/concepts/verdict.md.

use std::{collections::BTreeMap, time::Duration};

use towpath_proto::tcp::CongestionControl;

use crate::stage::{Occupancy, Stage};

/// The factor that limited a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The configured rate limit.
    Limit,
    /// The listing of the source did not find files fast enough.
    Listing,
    /// Opening, creating and committing files: a fixed number of requests per file, independent of its size.
    FileOverhead,
    /// The destination had not yet released an earlier upload of the same file.
    EarlierUpload,
    /// Pauses before retries of files whose copy broke off.
    Retry,
    /// The read rate of the source storage.
    SourceRead,
    /// The write rate of the destination storage.
    DestinationWrite,
    /// Computing a digest at one end.
    Checksum,
    /// A third-party copy between two sites.
    ThirdParty,
    /// CPU time of this process.
    Processor,
    /// CPU time of the server process at the other end.
    FarProcessor,
    /// Connections whose windows were still growing.
    SlowStart,
    /// The send buffer (`net.ipv4.tcp_wmem`): a sender cannot have more in flight per round trip.
    SenderWindow,
    /// The receive window (`net.ipv4.tcp_rmem`).
    ReceiverWindow,
    /// The mover's window was full, or it requested too little on a connection.
    MoverWindow,
    /// Packet loss that the congestion control interpreted as congestion.
    Loss,
    /// The bandwidth of the path.
    Bandwidth,
    /// The network or the storage at the other end, without statistics that distinguish them.
    FarEnd,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 18] = [
        Self::Limit,
        Self::Listing,
        Self::FileOverhead,
        Self::EarlierUpload,
        Self::Retry,
        Self::SourceRead,
        Self::DestinationWrite,
        Self::Checksum,
        Self::ThirdParty,
        Self::Processor,
        Self::FarProcessor,
        Self::SlowStart,
        Self::SenderWindow,
        Self::ReceiverWindow,
        Self::MoverWindow,
        Self::Loss,
        Self::Bandwidth,
        Self::FarEnd,
    ];

    /// Returns the name used in tables and JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Listing => "listing",
            Self::FileOverhead => "file overhead",
            Self::EarlierUpload => "earlier upload",
            Self::Retry => "retry",
            Self::SourceRead => "source read",
            Self::DestinationWrite => "destination write",
            Self::Checksum => "checksum",
            Self::ThirdParty => "third party",
            Self::Processor => "processor",
            Self::FarProcessor => "far processor",
            Self::SlowStart => "slow start",
            Self::SenderWindow => "sender's window",
            Self::ReceiverWindow => "receiver's window",
            Self::MoverWindow => "mover's window",
            Self::Loss => "loss",
            Self::Bandwidth => "bandwidth",
            Self::FarEnd => "far end",
        }
    }
}

/// One network leg of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// From the source to this machine.
    In,
    /// From this machine to the destination.
    Out,
}

/// Statistics of one leg in one interval. Shares are fractions of the interval, averaged over connections weighted by
/// the bytes that each carried.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LegSample {
    /// Bytes carried.
    pub(crate) bytes: u64,
    /// Connections that carried data.
    pub(crate) connections: usize,
    /// Minimum round trip.
    pub(crate) round_trip: Duration,
    /// Ratio of the current to the minimum round trip; above one, packets are queued on the path.
    pub(crate) stretch: f64,
    /// Whether the sender reported its limits; if not, the shares are zero.
    pub(crate) is_told: bool,
    /// Fraction of time with an idle sender although data were requested.
    pub(crate) idle: f64,
    /// Fraction of time without requested data on a connection.
    pub(crate) unasked: f64,
    /// Fraction of time limited by the receiver's window while a full window was sent per round trip.
    pub(crate) by_window: f64,
    /// Fraction of time limited by the receiver's window because the receiver did not read available data.
    pub(crate) by_receiver: f64,
    /// Fraction of time limited by the sender's buffer.
    pub(crate) by_buffer: f64,
    /// Fraction of time in which the congestion window or receive window was still growing.
    pub(crate) opening: f64,
    /// Retransmitted bytes as a fraction of all sent bytes.
    pub(crate) resent: f64,
    /// Congestion control of the senders.
    pub(crate) control: CongestionControl,
    /// Maximum send buffer of the sender's kernel in bytes; zero if unknown.
    pub(crate) most_send_buffer: u64,
    /// Maximum receive buffer of the receiver's kernel in bytes; zero if unknown.
    pub(crate) most_receive_buffer: u64,
    /// CPU time that the remote process used or waited for, as a fraction of the available CPU time.
    pub(crate) far_processor: f64,
}

/// Statistics of a copy over one interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IntervalSample {
    /// Length of the interval.
    pub(crate) seconds: f64,
    /// Bytes written to the destination.
    pub(crate) transferred: u64,
    /// Byte-seconds in each stage.
    pub(crate) held: Occupancy,
    /// Whether the average file is small, so that the fixed cost per file dominates.
    pub(crate) is_of_small_files: bool,
    /// CPU time that this process used or waited for, as a fraction of the available CPU time.
    pub(crate) processor: f64,
    /// Window size in bytes.
    pub(crate) window: u64,
    /// Whether the rate limit delayed the copy both at the start and at the end of the interval.
    pub(crate) is_limited: bool,
    /// The leg from the source, if that is remote.
    pub(crate) inbound: Option<LegSample>,
    /// The leg to the destination, if that is remote.
    pub(crate) outbound: Option<LegSample>,
}

/// Totals of one leg over a whole copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LegTotal {
    /// Bytes carried.
    pub bytes: u64,
    /// Maximum number of connections that carried data in the same interval.
    pub connections: usize,
    /// Minimum round trip.
    pub round_trip: Duration,
    /// Highest rate of any interval in bytes per second.
    pub best_rate: f64,
    /// Bytes carried, and seconds elapsed, while the bandwidth of the leg was the limit.
    pub at_full_rate: (f64, f64),
    /// Retransmitted bytes.
    pub resent_bytes: f64,
    /// Congestion control of the senders.
    pub control: CongestionControl,
    /// Maximum send buffer of the sender's kernel in bytes; zero if unknown.
    pub most_send_buffer: u64,
    /// Maximum receive buffer of the receiver's kernel in bytes; zero if unknown.
    pub most_receive_buffer: u64,
}

/// How the time of a copy divides among causes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Total time in seconds.
    pub seconds: f64,
    /// Bytes written to the destination.
    pub bytes: u64,
    spent: BTreeMap<(Cause, Option<Leg>), f64>,
    inbound: Option<LegTotal>,
    outbound: Option<LegTotal>,
}

/// CPU share above which the CPU is the bottleneck.
const BUSY: f64 = 0.92;

/// Mean round-trip ratio above which a queue keeps the path full even after losses. CUBIC (RFC 9438) reduces its window
/// to 0.7 on a loss, so the smallest such queue stretches the round trip by 1.43 before the loss and by nothing after
/// it.
const QUEUE: f64 = 1.2;

/// Loss rate above which a loss-based congestion control is slowed down: at 10⁻⁴ Reno has 100 segments in flight
/// (Mathis et al., 1997).
const LOSS: f64 = 1e-4;

/// Loss rate above which BBR is slowed down.
const BBR_LOSS: f64 = 0.15;

/// Factor over the best earlier rate above which the rate counts as still growing.
const GROWTH: f64 = 1.1;

/// Fraction of the mover's window in transit above which that window is the limit.
const TURNOVER: f64 = 0.6;

impl Account {
    /// Returns each cause with its leg, for network causes, and its time in seconds, in descending order of time.
    pub fn spent(&self) -> Vec<(Cause, Option<Leg>, f64)> {
        let mut spent: Vec<_> = self.spent.iter().map(|((cause, leg), seconds)| (*cause, *leg, *seconds)).collect();
        spent.sort_by(|a, b| b.2.total_cmp(&a.2));
        spent
    }

    /// Returns the totals of a leg; `None` if that end is local.
    pub fn leg(&self, leg: Leg) -> Option<&LegTotal> {
        match leg {
            Leg::In => self.inbound.as_ref(),
            Leg::Out => self.outbound.as_ref(),
        }
    }

    /// Adds an interval.
    pub(crate) fn add(&mut self, interval: &IntervalSample) {
        let shares = causes(interval, self);
        self.seconds += interval.seconds;
        self.bytes += interval.transferred;
        for leg in [Leg::In, Leg::Out] {
            let (carried, total) = match leg {
                Leg::In => (&interval.inbound, &mut self.inbound),
                Leg::Out => (&interval.outbound, &mut self.outbound),
            };
            let Some(carried) = carried else { continue };
            let is_full = |share: &&CauseShare| (share.0, share.1) == (Cause::Bandwidth, Some(leg));
            let full = shares.iter().find(is_full).map_or(0.0, |(_, _, share)| *share);
            total.get_or_insert_default().add(carried, interval.seconds, full);
        }
        for (cause, leg, share) in shares.into_iter().filter(|(_, _, share)| *share > 0.0) {
            *self.spent.entry((cause, leg)).or_default() += share * interval.seconds;
        }
    }
}

impl LegTotal {
    /// Adds the data carried in `seconds`; the leg was full during the fraction `full` of that time.
    fn add(&mut self, carried: &LegSample, seconds: f64, full: f64) {
        self.bytes += carried.bytes;
        self.connections = self.connections.max(carried.connections);
        let measured = [self.round_trip, carried.round_trip].into_iter().filter(|round_trip| !round_trip.is_zero());
        self.round_trip = measured.min().unwrap_or_default();
        self.best_rate = self.best_rate.max(carried.bytes as f64 / seconds.max(1e-9));
        self.at_full_rate.0 += carried.bytes as f64 * full;
        self.at_full_rate.1 += seconds * full;
        self.resent_bytes += carried.resent * carried.bytes as f64;
        if carried.control != CongestionControl::Other {
            self.control = carried.control;
        }
        self.most_send_buffer = self.most_send_buffer.max(carried.most_send_buffer);
        self.most_receive_buffer = self.most_receive_buffer.max(carried.most_receive_buffer);
    }
}

/// A cause, its leg, and its fraction of an interval.
type CauseShare = (Cause, Option<Leg>, f64);

/// Returns the causes that limited an interval. Their shares add up to one.
fn causes(interval: &IntervalSample, before: &Account) -> Vec<CauseShare> {
    if interval.is_limited {
        return vec![(Cause::Limit, None, 1.0)];
    }
    if interval.processor > BUSY {
        return vec![(Cause::Processor, None, 1.0)];
    }
    let seconds = interval.seconds.max(1e-9);
    let held = |stages: &[Stage]| stages.iter().map(|stage| interval.held.of(*stage)).sum::<f64>() / seconds;
    let travels = |carried: &Option<LegSample>| {
        carried.as_ref().map_or(0.0, |leg| leg.bytes as f64 / seconds * leg.round_trip.as_secs_f64())
    };
    let [reading, writing] = [held(&[Stage::Open, Stage::Read]), held(&[Stage::Write, Stage::Commit])];
    let aside = [
        (Stage::Check, Cause::Checksum),
        (Stage::Wait, Cause::EarlierUpload),
        (Stage::Elsewhere, Cause::ThirdParty),
        (Stage::Retry, Cause::Retry),
    ];
    let aside = aside.map(|(stage, cause)| (held(&[stage]), cause));
    if reading + writing + aside.iter().map(|(held, _)| held).sum::<f64>() <= 0.0 {
        return vec![(Cause::Listing, None, 1.0)];
    }
    let [read_excess, write_excess] = [reading - travels(&interval.inbound), writing - travels(&interval.outbound)];
    let most = read_excess.max(write_excess).max(0.0);
    if let Some((_, cause)) = aside.into_iter().filter(|(held, _)| *held > most).max_by(|a, b| a.0.total_cmp(&b.0)) {
        return vec![(cause, None, 1.0)];
    }
    let is_reading = read_excess >= write_excess;
    let (leg, carried, storage) = if is_reading {
        let is_opening = interval.held.of(Stage::Open) > interval.held.of(Stage::Read);
        (Leg::In, &interval.inbound, if is_opening { Cause::FileOverhead } else { Cause::SourceRead })
    } else {
        let is_committing = interval.held.of(Stage::Commit) > interval.held.of(Stage::Write);
        let is_overhead = is_committing && interval.is_of_small_files;
        (Leg::Out, &interval.outbound, if is_overhead { Cause::FileOverhead } else { Cause::DestinationWrite })
    };
    match carried {
        None => vec![(storage, None, 1.0)],
        Some(carried) if carried.is_told => {
            let is_own_window = travels(&interval.inbound) + travels(&interval.outbound)
                > TURNOVER * interval.window as f64
                && reading + writing > 0.9 * interval.window as f64;
            let idle = if is_own_window { Cause::MoverWindow } else { storage };
            network(carried, leg, idle, storage)
        }
        Some(carried) => {
            let best = before.leg(leg).map_or(0.0, |total| total.best_rate);
            let grows = carried.bytes as f64 / seconds > best * GROWTH;
            vec![(if grows { Cause::SlowStart } else { Cause::FarEnd }, Some(leg), 1.0)]
        }
    }
}

/// Returns the causes that limited the sender of a leg. `idle` is the cause of an idle sender, `storage` that of a
/// receiver that does not read. If the remote storage is the cause, the remote CPU may be the actual one.
fn network(carried: &LegSample, leg: Leg, idle: Cause, storage: Cause) -> Vec<CauseShare> {
    let far = |cause| match cause {
        Cause::MoverWindow => (cause, None),
        _ if carried.far_processor > BUSY => (Cause::FarProcessor, Some(leg)),
        _ => (cause, None),
    };
    let [(idle, idle_leg), (storage, storage_leg)] = [far(idle), far(storage)];
    let busy =
        (1.0 - carried.idle - carried.unasked - carried.by_window - carried.by_receiver - carried.by_buffer).max(0.0);
    let opening = carried.opening.min(busy);
    let slows_down = match carried.control {
        CongestionControl::Bbr => carried.resent > BBR_LOSS,
        _ => carried.resent > LOSS && carried.stretch < QUEUE,
    };
    let full = if slows_down { Cause::Loss } else { Cause::Bandwidth };
    vec![
        (idle, idle_leg, carried.idle),
        (Cause::MoverWindow, None, carried.unasked),
        (storage, storage_leg, carried.by_receiver),
        (Cause::ReceiverWindow, Some(leg), carried.by_window),
        (Cause::SenderWindow, Some(leg), carried.by_buffer),
        (Cause::SlowStart, Some(leg), opening),
        (full, Some(leg), busy - opening),
    ]
}

#[cfg(test)]
mod tests;
