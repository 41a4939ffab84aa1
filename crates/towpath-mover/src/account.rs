//! What a copy spent its time on: each stretch of it is put down to what held it up, and the largest share is the verdict.
//!
//! Two questions, for each stretch of a fraction of a second:
//!
//! 1. *Which stage do the others wait for?* Work gathers there: the stage with the most bytes beyond those that its way takes anyway (rate
//!    times round trip).
//! 2. *If that stage crosses the network: what held the sender up?* Its kernel says how long it had nothing to send, was held up by the
//!    receiver's window, or by its own buffer ([`towpath_proto::tcp`]); the rest is its congestion window's doing: slow start, loss, or bandwidth.
//!
//! docs/concepts/verdict.md has the vocabulary for users.

use std::{collections::BTreeMap, time::Duration};

use towpath_proto::tcp::Control;

use crate::stage::{Occupancy, Stage};

/// What held a copy up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The rate that the user permits.
    Limit,
    /// Nothing was there to copy: the listing of the source was not that fast.
    Listing,
    /// Files were opened, made and shown under their names; each costs requests, whatever its size.
    FileOverhead,
    /// The destination still held an earlier upload of a file.
    EarlierUpload,
    /// The storage of the source did not give more.
    SourceRead,
    /// The storage of the destination did not take more.
    DestinationWrite,
    /// A digest was computed.
    Checksum,
    /// Sites copied between themselves.
    ThirdParty,
    /// This program wanted more processor time than it could have.
    Processor,
    /// The server did.
    FarProcessor,
    /// The windows of connections were opening.
    SlowStart,
    /// The buffer of the sender (`net.ipv4.tcp_wmem`) holds no more than that for each round trip.
    SenderWindow,
    /// The window of the receiver (`net.ipv4.tcp_rmem`).
    ReceiverWindow,
    /// The mover requested no more data: its window was full, or it assigned too little to a connection.
    MoverWindow,
    /// Segments were lost, and the congestion control took it for congestion.
    Loss,
    /// The path carried no more.
    Bandwidth,
    /// The network or the storage at the other end, which does not say what holds it up.
    FarEnd,
}

impl Cause {
    /// All there are.
    pub const ALL: [Self; 17] = [
        Self::Limit,
        Self::Listing,
        Self::FileOverhead,
        Self::EarlierUpload,
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

    /// Its name in tables and for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Listing => "listing",
            Self::FileOverhead => "file overhead",
            Self::EarlierUpload => "earlier upload",
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

/// One way that bytes take over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// From the source to this machine.
    In,
    /// From this machine to the destination.
    Out,
}

/// What one leg did over a stretch of time. Shares are of that time, and averages over connections by the bytes that each carried.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Carried {
    /// Bytes that went over it.
    pub(crate) bytes: u64,
    /// Connections that carried some.
    pub(crate) connections: usize,
    /// The least round trip.
    pub(crate) round_trip: Duration,
    /// Round trips now, to the least: above one, there is a queue.
    pub(crate) stretch: f64,
    /// Whether the sender said what held it up. If not, the shares are zero.
    pub(crate) is_told: bool,
    /// Fraction of time with an idle sender although data were requested.
    pub(crate) idle: f64,
    /// Fraction of time without requested data on a connection.
    pub(crate) unasked: f64,
    /// Fraction of time limited by the receiver's window, although it turned over with each round trip.
    pub(crate) by_window: f64,
    /// Fraction of time limited by the receiver's window because the receiver did not read available data.
    pub(crate) by_receiver: f64,
    /// Fraction of time limited by the sender's buffer.
    pub(crate) by_buffer: f64,
    /// Fraction of time with a congestion window or receiver's window that was still opening.
    pub(crate) opening: f64,
    /// Bytes sent again, as a share of all.
    pub(crate) resent: f64,
    /// What the senders' congestion control is.
    pub(crate) control: Control,
    /// The largest buffer that a sender's kernel gives, in bytes; zero if it is not known.
    pub(crate) most_send_buffer: u64,
    /// The same for the receiver's.
    pub(crate) most_receive_buffer: u64,
    /// Share of the processor time that it could have which the program at the other end wanted.
    pub(crate) far_processor: f64,
}

/// A stretch of a copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stretch {
    /// How long it took.
    pub(crate) seconds: f64,
    /// Bytes that were written at the destination.
    pub(crate) moved: u64,
    /// Byte seconds in each stage.
    pub(crate) held: Occupancy,
    /// Whether files are small: then what each costs by itself counts.
    pub(crate) is_of_small_files: bool,
    /// Share of the processor time that it could have which it used or waited for.
    pub(crate) processor: f64,
    /// Size of the window in bytes.
    pub(crate) window: u64,
    /// Whether the rate that the user permits was in the way, at its beginning and at its end.
    pub(crate) is_limited: bool,
    /// The leg from the source, if that is remote.
    pub(crate) inbound: Option<Carried>,
    /// The leg to the destination, if that is remote.
    pub(crate) outbound: Option<Carried>,
}

/// What a leg did over all of a copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LegTotal {
    /// Bytes that went over it.
    pub bytes: u64,
    /// The most connections that carried something at the same time.
    pub connections: usize,
    /// The least round trip.
    pub round_trip: Duration,
    /// The best rate of a stretch, in bytes per second.
    pub best_rate: f64,
    /// Bytes that went over it, and seconds that passed, while its bandwidth was what held the copy up.
    pub at_full_rate: (f64, f64),
    /// Bytes sent again.
    pub resent_bytes: f64,
    /// The congestion control of the senders.
    pub control: Control,
    /// The largest buffer that the sender's kernel gives, in bytes; zero if it is not known.
    pub most_send_buffer: u64,
    /// The same for the receiver's.
    pub most_receive_buffer: u64,
}

/// What a copy spent its time on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// All of its time, in seconds.
    pub seconds: f64,
    /// Bytes that were written at the destination.
    pub bytes: u64,
    spent: BTreeMap<(Cause, Option<Leg>), f64>,
    inbound: Option<LegTotal>,
    outbound: Option<LegTotal>,
}

/// Above this share of the processor time the rest waits for it.
const BUSY: f64 = 0.92;

/// Above this mean stretch of the round trip there is a queue on the path that keeps it full through losses: CUBIC (RFC 9438) goes back to 0.7 of its window at each, so
/// the least queue that does makes round trips 1.43 times as long before and adds nothing after.
const QUEUE: f64 = 1.2;

/// Losses above this share slow down a control that takes them for congestion: at 10⁻⁴ Reno has 100 segments in flight (Mathis et al., 1997).
const LOSS: f64 = 1e-4;

/// Losses above this share slow down BBR as well.
const BBR_LOSS: f64 = 0.15;

/// A rate that exceeds all before by this factor is one that grows.
const GROWTH: f64 = 1.1;

/// The mover's window is what holds a copy up if so much of it turns over with each round trip.
const TURNOVER: f64 = 0.6;

impl Account {
    /// The shares of the time, largest first: what held the copy up, on which leg if it was the network, for how many seconds.
    pub fn spent(&self) -> Vec<(Cause, Option<Leg>, f64)> {
        let mut spent: Vec<_> = self.spent.iter().map(|((cause, leg), seconds)| (*cause, *leg, *seconds)).collect();
        spent.sort_by(|a, b| b.2.total_cmp(&a.2));
        spent
    }

    /// What a leg did; none if that end is on this machine.
    pub fn leg(&self, leg: Leg) -> Option<&LegTotal> {
        match leg {
            Leg::In => self.inbound.as_ref(),
            Leg::Out => self.outbound.as_ref(),
        }
    }

    /// Adds a stretch.
    pub(crate) fn add(&mut self, stretch: &Stretch) {
        let shares = causes(stretch, self);
        self.seconds += stretch.seconds;
        self.bytes += stretch.moved;
        for leg in [Leg::In, Leg::Out] {
            let (carried, total) = match leg {
                Leg::In => (&stretch.inbound, &mut self.inbound),
                Leg::Out => (&stretch.outbound, &mut self.outbound),
            };
            let Some(carried) = carried else { continue };
            let is_full = |share: &&Share| (share.0, share.1) == (Cause::Bandwidth, Some(leg));
            let full = shares.iter().find(is_full).map_or(0.0, |(_, _, share)| *share);
            total.get_or_insert_default().add(carried, stretch.seconds, full);
        }
        for (cause, leg, share) in shares.into_iter().filter(|(_, _, share)| *share > 0.0) {
            *self.spent.entry((cause, leg)).or_default() += share * stretch.seconds;
        }
    }
}

impl LegTotal {
    /// Adds the data carried in `seconds`; the leg was full during the fraction `full` of that time.
    fn add(&mut self, carried: &Carried, seconds: f64, full: f64) {
        self.bytes += carried.bytes;
        self.connections = self.connections.max(carried.connections);
        let measured = [self.round_trip, carried.round_trip].into_iter().filter(|round_trip| !round_trip.is_zero());
        self.round_trip = measured.min().unwrap_or_default();
        self.best_rate = self.best_rate.max(carried.bytes as f64 / seconds.max(1e-9));
        self.at_full_rate.0 += carried.bytes as f64 * full;
        self.at_full_rate.1 += seconds * full;
        self.resent_bytes += carried.resent * carried.bytes as f64;
        if carried.control != Control::Other {
            self.control = carried.control;
        }
        self.most_send_buffer = self.most_send_buffer.max(carried.most_send_buffer);
        self.most_receive_buffer = self.most_receive_buffer.max(carried.most_receive_buffer);
    }
}

/// A cause, the leg on which it is, and its share of a stretch.
type Share = (Cause, Option<Leg>, f64);

/// What held a stretch up. The shares add up to one.
fn causes(stretch: &Stretch, before: &Account) -> Vec<Share> {
    if stretch.is_limited {
        return vec![(Cause::Limit, None, 1.0)];
    }
    if stretch.processor > BUSY {
        return vec![(Cause::Processor, None, 1.0)];
    }
    let seconds = stretch.seconds.max(1e-9);
    let held = |stages: &[Stage]| stages.iter().map(|stage| stretch.held.of(*stage)).sum::<f64>() / seconds;
    let travels = |carried: &Option<Carried>| {
        carried.as_ref().map_or(0.0, |leg| leg.bytes as f64 / seconds * leg.round_trip.as_secs_f64())
    };
    let [reading, writing] = [held(&[Stage::Open, Stage::Read]), held(&[Stage::Write, Stage::Commit])];
    let aside =
        [(Stage::Check, Cause::Checksum), (Stage::Wait, Cause::EarlierUpload), (Stage::Elsewhere, Cause::ThirdParty)];
    let aside = aside.map(|(stage, cause)| (held(&[stage]), cause));
    if reading + writing + aside.iter().map(|(held, _)| held).sum::<f64>() <= 0.0 {
        return vec![(Cause::Listing, None, 1.0)];
    }
    let [read_excess, write_excess] = [reading - travels(&stretch.inbound), writing - travels(&stretch.outbound)];
    let most = read_excess.max(write_excess).max(0.0);
    if let Some((_, cause)) = aside.into_iter().filter(|(held, _)| *held > most).max_by(|a, b| a.0.total_cmp(&b.0)) {
        return vec![(cause, None, 1.0)];
    }
    let is_reading = read_excess >= write_excess;
    let (leg, carried, storage) = if is_reading {
        let is_opening = stretch.held.of(Stage::Open) > stretch.held.of(Stage::Read);
        (Leg::In, &stretch.inbound, if is_opening { Cause::FileOverhead } else { Cause::SourceRead })
    } else {
        let is_committing = stretch.held.of(Stage::Commit) > stretch.held.of(Stage::Write);
        let is_overhead = is_committing && stretch.is_of_small_files;
        (Leg::Out, &stretch.outbound, if is_overhead { Cause::FileOverhead } else { Cause::DestinationWrite })
    };
    match carried {
        None => vec![(storage, None, 1.0)],
        Some(carried) if carried.is_told => {
            let is_own_window = travels(&stretch.inbound) + travels(&stretch.outbound)
                > TURNOVER * stretch.window as f64
                && reading + writing > 0.9 * stretch.window as f64;
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

/// Returns the causes that limited the sender of a leg; `idle` is the cause of an idle sender, `storage` the cause of
/// a receiver that does not read. If that is the storage of the remote end, its processor may be the cause as well.
fn network(carried: &Carried, leg: Leg, idle: Cause, storage: Cause) -> Vec<Share> {
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
        Control::Bbr => carried.resent > BBR_LOSS,
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
