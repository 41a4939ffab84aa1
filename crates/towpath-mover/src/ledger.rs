//! From looks at a copy to its [`Account`]: what happened between two looks is a stretch.

use std::{collections::HashMap, time::Duration};

use towpath_client::Connection;
use towpath_proto::tcp::{Control, TcpInfo};
use towpath_store::sys::{clock::Instant, processor};

use crate::{
    account::{Account, Carried, Leg, Stretch},
    stage::Occupancy,
};

/// Files that are on average smaller than this are small: 4 MiB take 30 ms at 1 Gbit/s, as long as a few requests.
const SMALL_BYTES: u64 = 4 << 20;

/// The least part of its largest size to which a receiver's window has opened when it no longer does: the kernel keeps up to half for itself.
const OPENED: f64 = 0.4;

/// Minimum fraction of a receiver's window that turns over with each round trip if the window is the limit; with less,
/// the receiver does not read available data.
const TURNOVER: f64 = 0.5;

/// A sample of a copy. Counters start at its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    /// Bytes written at the destination.
    pub(crate) moved: u64,
    /// Files that ended.
    pub(crate) files: u64,
    pub(crate) held: Occupancy,
    pub(crate) window: u64,
    /// Whether a limit was in the way.
    pub(crate) is_limited: bool,
    /// For how long each thread of this process has run or wanted to.
    pub(crate) threads: HashMap<u32, Duration>,
    /// Whether the source, and the destination, are at a server.
    pub(crate) is_remote: [bool; 2],
    pub(crate) connections: Vec<Connection>,
}

/// Keeps the account of a copy.
#[derive(Debug)]
pub(crate) struct Ledger {
    last: Look,
    seen: HashMap<u64, Seen>,
    account: Account,
}

/// The last sample of a connection.
#[derive(Debug, Clone, Copy)]
struct Seen {
    near: TcpInfo,
    /// What its sender said last, and when that was; none before it said anything.
    sender: Option<(TcpInfo, Instant)>,
    shares: Shares,
}

/// What held the sender of one connection up, as shares of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Shares {
    is_told: bool,
    idle: f64,
    unasked: f64,
    by_window: f64,
    by_receiver: f64,
    by_buffer: f64,
    opening: f64,
    resent: f64,
}

impl Ledger {
    /// An account that begins with `first`.
    pub(crate) fn new(first: Look) -> Self {
        Self { last: first, seen: HashMap::new(), account: Account::default() }
    }

    /// What the time was spent on so far.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Adds what happened since the last look.
    pub(crate) fn add(&mut self, look: Look) {
        let seconds = (look.at - self.last.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let [inbound, outbound] = self.carried(&look);
        let last = &self.last;
        let (moved, files) = (look.moved - last.moved, look.files - last.files);
        let stretch = Stretch {
            seconds,
            moved,
            held: look.held.since(&last.held),
            is_of_small_files: moved < files * SMALL_BYTES,
            processor: processor::share_wanted(&last.threads, &look.threads, seconds),
            window: look.window,
            is_limited: last.is_limited && look.is_limited,
            inbound,
            outbound,
        };
        self.account.add(&stretch);
        self.last = look;
    }

    /// What each leg carried since the last look. A connection belongs to the leg in whose direction it carried more.
    fn carried(&mut self, look: &Look) -> [Option<Carried>; 2] {
        let mut legs = look.is_remote.map(|is_remote| is_remote.then(Sum::default));
        // What a connection is without work for is known at this moment alone; over many moments and connections it adds up.
        let mut seen = HashMap::with_capacity(look.connections.len());
        for connection in &look.connections {
            let before = self.seen.get(&connection.number);
            let near = before.map_or_else(TcpInfo::default, |seen| seen.near);
            let received = connection.info.received.saturating_sub(near.received);
            let acknowledged = connection.info.acknowledged.saturating_sub(near.acknowledged);
            let leg = match look.is_remote {
                [true, false] => Leg::In,
                [false, true] => Leg::Out,
                _ if received > acknowledged => Leg::In,
                _ => Leg::Out,
            };
            let now = Seen::after(before, connection, leg, look.at);
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

impl Seen {
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
        let shares = before.map_or_else(Shares::default, |seen| seen.shares);
        let near = connection.info;
        let Some(said) = sender else { return Self { near, sender: last, shares } };
        match last {
            Some((info, _)) if leg == Leg::In && info == said => Self { near, sender: last, shares },
            Some((info, since)) => {
                let most = receiver.map_or(0, |receiver| receiver.most_receive_buffer);
                let shares = Shares::between(&info, &said, (at - since).as_secs_f64(), most);
                Self { near, sender: Some((said, at)), shares }
            }
            // The time of earlier data is unknown.
            None => Self { near, sender: Some((said, at)), shares: Shares { opening: 1.0, is_told: true, ..shares } },
        }
    }
}

impl Shares {
    /// An idle connection without requested data has this cause.
    fn asked(self, has_work: bool) -> Self {
        if has_work { self } else { Self { unasked: self.idle, idle: 0.0, ..self } }
    }

    /// What held a sender up between two looks at it, `seconds` apart. `most_receive_buffer` is the largest buffer of the receiver, in bytes; zero if it is not
    /// known.
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
            // Its data are in transit, which counts as busy.
            (true, _) => idle += rest,
            // After a loss it is the loss that makes windows open once more.
            (false, true) if now.resent == 0 => opening += rest,
            _ => {}
        }
        let resent = now.resent.saturating_sub(before.resent) as f64 / sent.max(1.0);
        Self { is_told: true, idle, unasked: 0.0, by_window, by_receiver, by_buffer, opening, resent }
    }
}

/// What the connections of a leg carried together, with the shares weighted by it.
#[derive(Debug, Default)]
struct Sum {
    bytes: u64,
    weight: f64,
    told_weight: f64,
    connections: usize,
    round_trip: Option<Duration>,
    stretch: f64,
    shares: Shares,
    control: Control,
    most_send_buffer: u64,
    most_receive_buffer: u64,
    /// As the shares are, weighted.
    far_processor: f64,
}

impl Sum {
    /// Adds a connection that carried `bytes` and may have more work.
    fn add(&mut self, connection: &Connection, leg: Leg, (bytes, has_work): (u64, bool), shares: &Shares) {
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

    fn mean(self, leg: Leg) -> Carried {
        // No connection has data to send, so none delays outgoing data.
        let is_idle = leg == Leg::Out && self.weight == 0.0;
        let told = self.told_weight.max(1.0);
        Carried {
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
