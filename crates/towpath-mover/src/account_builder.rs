//! Derives the [`Account`] of a copy from periodic samples: each interval between two samples is attributed to causes.

use std::{collections::HashMap, time::Duration};

use towpath_client::Connection;
use towpath_proto::tcp::{CongestionControl, TcpInfo};
use towpath_store::sys::{clock::Instant, processor};

use crate::{
    account::{Account, IntervalSample, Leg, LegSample},
    stage::Occupancy,
};

/// Mean file size below which files are small: 4 MiB take 30 ms at 1 Gbit/s, as long as a few requests.
const SMALL_BYTES: u64 = 4 << 20;

/// Minimum fraction of its maximum at which a receive window counts as fully grown: the kernel keeps up to half of the
/// buffer for itself.
const OPENED: f64 = 0.4;

/// Minimum fraction of the receive window that is sent per round trip if the window is the limit. With less, the
/// receiver does not read the available data.
const TURNOVER: f64 = 0.5;

/// A sample of a copy. Counters start at the beginning of the copy.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Bytes written to the destination.
    pub(crate) transferred: u64,
    /// Completed files, including failures.
    pub(crate) files: u64,
    pub(crate) held: Occupancy,
    pub(crate) window: u64,
    /// Whether the rate limit delays a transfer.
    pub(crate) is_limited: bool,
    /// CPU time that each thread of this process has used or waited for.
    pub(crate) threads: HashMap<u32, Duration>,
    /// Whether the source and the destination are remote.
    pub(crate) is_remote: [bool; 2],
    pub(crate) connections: Vec<Connection>,
}

/// Accumulates the account of a copy.
#[derive(Debug)]
pub(crate) struct AccountBuilder {
    last: Sample,
    seen: HashMap<u64, LastConnectionSample>,
    account: Account,
}

/// The last sample of a connection.
#[derive(Debug, Clone, Copy)]
struct LastConnectionSample {
    near: TcpInfo,
    /// Last statistics of the sender, and their time; `None` before the first report.
    sender: Option<(TcpInfo, Instant)>,
    shares: LimitShares,
}

/// What limited the sender of one connection, as fractions of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct LimitShares {
    is_told: bool,
    idle: f64,
    unasked: f64,
    by_window: f64,
    by_receiver: f64,
    by_buffer: f64,
    opening: f64,
    resent: f64,
}

impl AccountBuilder {
    /// Creates a ledger whose first interval starts at `first`.
    pub(crate) fn new(first: Sample) -> Self {
        Self { last: first, seen: HashMap::new(), account: Account::default() }
    }

    /// Returns the account so far.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Adds the interval since the last sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        let seconds = (sample.at - self.last.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let [inbound, outbound] = self.carried(&sample);
        let last = &self.last;
        let (transferred, files) = (sample.transferred - last.transferred, sample.files - last.files);
        let interval = IntervalSample {
            seconds,
            transferred,
            held: sample.held.since(&last.held),
            is_of_small_files: transferred < files * SMALL_BYTES,
            processor: processor::share_wanted(&last.threads, &sample.threads, seconds),
            window: sample.window,
            is_limited: last.is_limited && sample.is_limited,
            inbound,
            outbound,
        };
        self.account.add(&interval);
        self.last = sample;
    }

    /// Returns the data carried on each leg since the last sample. A connection belongs to the leg in whose direction
    /// it carried more.
    fn carried(&mut self, sample: &Sample) -> [Option<LegSample>; 2] {
        let mut legs = sample.is_remote.map(|is_remote| is_remote.then(Sum::default));
        // A sample shows only whether a connection has work at that moment; averaged over samples and connections this
        // is a fraction of the time.
        let mut seen = HashMap::with_capacity(sample.connections.len());
        for connection in &sample.connections {
            let before = self.seen.get(&connection.number);
            let near = before.map_or_else(TcpInfo::default, |seen| seen.near);
            let received = connection.info.received.saturating_sub(near.received);
            let acknowledged = connection.info.acknowledged.saturating_sub(near.acknowledged);
            let leg = match sample.is_remote {
                [true, false] => Leg::In,
                [false, true] => Leg::Out,
                _ if received > acknowledged => Leg::In,
                _ => Leg::Out,
            };
            let now = LastConnectionSample::after(before, connection, leg, sample.at);
            let (bytes, sum) = match leg {
                Leg::In => (received, &mut legs[0]),
                Leg::Out => (acknowledged, &mut legs[1]),
            };
            if let Some(sum) = sum {
                let has_work = match leg {
                    Leg::In => connection.has_work && !connection.far.is_some_and(|far| far.is_unasked),
                    Leg::Out => connection.has_work,
                };
                sum.add(connection, leg, (bytes, has_work), &now.shares.asked(has_work));
            }
            seen.insert(connection.number, now);
        }
        self.seen = seen;
        let [inbound, outbound] = legs;
        [inbound.map(|sum| sum.mean(Leg::In)), outbound.map(|sum| sum.mean(Leg::Out))]
    }
}

impl LastConnectionSample {
    /// Returns the state after another sample. The last report of a remote sender stays valid until the next one; the
    /// local sender always reports the current state.
    fn after(before: Option<&Self>, connection: &Connection, leg: Leg, at: Instant) -> Self {
        let sender = match leg {
            Leg::In => connection.far,
            Leg::Out => Some(connection.info),
        };
        let receiver = match leg {
            Leg::In => Some(connection.info),
            Leg::Out => connection.far,
        };
        let last = before.and_then(|seen| seen.sender);
        let shares = before.map_or_else(LimitShares::default, |seen| seen.shares);
        let near = connection.info;
        let Some(said) = sender else { return Self { near, sender: last, shares } };
        match last {
            Some((info, _)) if leg == Leg::In && info == said => Self { near, sender: last, shares },
            Some((info, since)) => {
                let most = receiver.map_or(0, |receiver| receiver.most_receive_buffer);
                let shares = LimitShares::between(&info, &said, (at - since).as_secs_f64(), most);
                Self { near, sender: Some((said, at)), shares }
            }
            // The time of earlier data is unknown.
            None => {
                Self { near, sender: Some((said, at)), shares: LimitShares { opening: 1.0, is_told: true, ..shares } }
            }
        }
    }
}

impl LimitShares {
    /// Attributes idle time to missing requests if the connection has no work.
    fn asked(self, has_work: bool) -> Self {
        if has_work { self } else { Self { unasked: self.idle, idle: 0.0, ..self } }
    }

    /// Returns what limited a sender between two reports that are `seconds` apart. `most_receive_buffer` is the maximum
    /// receive buffer of its peer in bytes; zero if unknown.
    fn between(before: &TcpInfo, now: &TcpInfo, seconds: f64, most_receive_buffer: u64) -> Self {
        let share = |before: Duration, now: Duration| {
            (now.saturating_sub(before).as_secs_f64() / seconds.max(1e-9)).clamp(0.0, 1.0)
        };
        let busy = share(before.busy, now.busy);
        let by_peer = share(before.limited_by_peer, now.limited_by_peer).min(busy);
        let by_buffer = share(before.limited_by_buffer, now.limited_by_buffer).min(busy - by_peer);
        let sent = now.sent.saturating_sub(before.sent) as f64;
        let rate = sent / seconds.max(1e-9);
        let peer_window = now.peer_window as f64;
        let turns_over = rate * now.rtt.as_secs_f64() >= TURNOVER * peer_window;
        let is_opening = most_receive_buffer > 0 && peer_window < OPENED * most_receive_buffer as f64;
        let [mut by_window, mut by_receiver, mut opening] = [0.0; 3];
        match (turns_over, is_opening) {
            (true, true) => opening = by_peer,
            (true, false) => by_window = by_peer,
            (false, _) => by_receiver = by_peer,
        }
        let mut idle = 1.0 - busy;
        let rest = busy - by_peer - by_buffer;
        match (now.is_starved, now.is_in_slow_start) {
            // The data are in transit, which the kernel counts as busy.
            (true, _) => idle += rest,
            // Slow start after a loss is attributed to the loss.
            (false, true) if now.resent == 0 => opening += rest,
            _ => {}
        }
        let resent = now.resent.saturating_sub(before.resent) as f64 / sent.max(1.0);
        Self { is_told: true, idle, unasked: 0.0, by_window, by_receiver, by_buffer, opening, resent }
    }
}

/// Sums over the connections of a leg; shares are weighted by the bytes of each connection.
#[derive(Debug, Default)]
struct Sum {
    bytes: u64,
    weight: f64,
    told_weight: f64,
    connections: usize,
    round_trip: Option<Duration>,
    stretch: f64,
    shares: LimitShares,
    control: CongestionControl,
    most_send_buffer: u64,
    most_receive_buffer: u64,
    /// Weighted like the shares.
    far_processor: f64,
}

impl Sum {
    /// Adds a connection that carried `bytes` and may have more work.
    fn add(&mut self, connection: &Connection, leg: Leg, (bytes, has_work): (u64, bool), shares: &LimitShares) {
        let (near, far) = (connection.info, connection.far.unwrap_or_default());
        let (sender, receiver) = match leg {
            Leg::In => (far, near),
            Leg::Out => (near, far),
        };
        self.most_send_buffer = self.most_send_buffer.max(sender.most_send_buffer);
        self.most_receive_buffer = self.most_receive_buffer.max(receiver.most_receive_buffer);
        let round_trip = [near.min_rtt, sender.min_rtt].into_iter().filter(|rtt| !rtt.is_zero()).min();
        self.round_trip = self.round_trip.into_iter().chain(round_trip).min();
        // The local kernel knows why outgoing bytes are delayed, but not why incoming bytes are.
        let weight = if leg == Leg::Out && has_work { bytes.max(1) } else { bytes } as f64;
        if weight == 0.0 {
            return;
        }
        self.weight += weight;
        self.bytes += bytes;
        self.connections += usize::from(bytes > 0);
        let rtt = if sender.rtt.is_zero() { near.rtt } else { sender.rtt };
        self.stretch += weight * round_trip.map_or(1.0, |least| rtt.as_secs_f64() / least.as_secs_f64());
        if shares.is_told {
            self.told_weight += weight;
            self.control = sender.control;
            self.shares.idle += weight * shares.idle;
            self.shares.unasked += weight * shares.unasked;
            self.shares.by_window += weight * shares.by_window;
            self.shares.by_receiver += weight * shares.by_receiver;
            self.shares.by_buffer += weight * shares.by_buffer;
            self.shares.opening += weight * shares.opening;
            self.shares.resent += weight * shares.resent;
            self.far_processor += weight * far.processor_percent.min(100) as f64 / 100.0;
        }
    }

    fn mean(self, leg: Leg) -> LegSample {
        // No connection has data to send, so none delays outgoing data.
        let is_idle = leg == Leg::Out && self.weight == 0.0;
        let told = self.told_weight.max(1.0);
        LegSample {
            bytes: self.bytes,
            connections: self.connections,
            round_trip: self.round_trip.unwrap_or_default(),
            stretch: self.stretch / self.weight.max(1.0),
            is_told: is_idle || self.told_weight * 2.0 > self.weight,
            idle: if is_idle { 1.0 } else { self.shares.idle / told },
            unasked: self.shares.unasked / told,
            by_window: self.shares.by_window / told,
            by_receiver: self.shares.by_receiver / told,
            by_buffer: self.shares.by_buffer / told,
            opening: self.shares.opening / told,
            resent: self.shares.resent / told,
            control: self.control,
            most_send_buffer: self.most_send_buffer,
            most_receive_buffer: self.most_receive_buffer,
            far_processor: self.far_processor / told,
        }
    }
}

#[cfg(test)]
mod tests;
