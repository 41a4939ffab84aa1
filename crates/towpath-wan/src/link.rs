//! One direction of a link in virtual time: which segments of a train pass, and when they are at the other end.
//!
//! [`Link::offer`] takes a train and gives the runs of it that arrive. Each segment meets, in this order, an outage, the drop-tail queue, the
//! clock that says when its last bit has left, loss, and then delay, jitter and reordering. Nothing is kept of a packet: the queue is the time
//! until which the link is busy.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    chance::{Chance, Loss},
    segment::Train,
    units::{Queue, Rate},
};

/// A run is closed when the link has been busy with it for so long: what a slow link carries arrives in small pieces, as it does on a
/// real one, instead of 64 KiB at a stroke. At 1 Gbit/s these are 16 segments.
const MAX_RUN_NS: u64 = 200_000;

/// What one direction of a link is like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSettings {
    /// Bits per second on Ethernet; unlimited if none.
    pub rate: Option<Rate>,
    /// How long a bit travels.
    #[serde(rename = "delay_ms", with = "crate::units::milliseconds")]
    pub delay: Duration,
    /// Queue of packets while the link is busy. Without a rate nothing is queued.
    pub queue: Queue,
    /// The share of segments that is lost, from 0 to 1.
    pub loss: f64,
    /// Segments lost in a row, on average; 1 and less mean independent losses.
    pub loss_burst: f64,
    /// Up to so much is added to the delay, at random, and another time after each span of this length. Order is kept.
    #[serde(rename = "jitter_ms", with = "crate::units::milliseconds")]
    pub jitter: Duration,
    /// The share of segments that come late, from 0 to 1.
    pub reorder: f64,
    /// How much later those come.
    #[serde(rename = "reorder_by_ms", with = "crate::units::milliseconds")]
    pub reorder_by: Duration,
}

impl Default for LinkSettings {
    /// A link that changes nothing.
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            queue: Queue::Bdp,
            loss: 0.0,
            loss_burst: 1.0,
            jitter: Duration::ZERO,
            reorder: 0.0,
            reorder_by: Duration::from_millis(1),
        }
    }
}

impl LinkSettings {
    /// The longest delay, jitter and lateness: a minute.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// Returns the error in the settings, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        for (name, share) in [("loss", self.loss), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&share) {
                return Some(format!("{name} is a share from 0 to 1, not {share}"));
            }
        }
        if !(0.0..=1e6).contains(&self.loss_burst) {
            return Some(format!("loss comes in rows of 1 to 1,000,000 segments, not {}", self.loss_burst));
        }
        for (name, span) in [("delay", self.delay), ("jitter", self.jitter), ("reorder_by", self.reorder_by)] {
            if span > Self::LONGEST {
                return Some(format!("{name} is at most {:?}, not {span:?}", Self::LONGEST));
            }
        }
        None
    }

    fn queue_bytes(&self) -> u64 {
        match (self.queue, self.rate) {
            (Queue::Bytes(bytes), _) => bytes,
            (Queue::Bdp, None) => Queue::MIN_BDP_BYTES,
            (Queue::Bdp, Some(rate)) => {
                // At most 10¹² bit/s times two minutes.
                let bits = u128::from(rate.bits_per_s()) * self.delay.as_nanos() * 2 / 1_000_000_000;
                ((bits / 8) as u64).max(Queue::MIN_BDP_BYTES)
            }
        }
    }
}

/// What became of the segments that were offered to a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Segments that reached the link.
    pub offered_segments: u64,
    /// Segments that passed it.
    pub passed_segments: u64,
    /// Their bytes on Ethernet.
    pub passed_wire_bytes: u64,
    /// Segments for which the queue had no place.
    pub queue_dropped_segments: u64,
    /// Segments lost at random.
    pub lost_segments: u64,
    /// Segments that came during an outage.
    pub outage_segments: u64,
    /// Segments that came late.
    pub reordered_segments: u64,
    /// The most that the queue held, in bytes on Ethernet.
    pub most_queued_bytes: u64,
}

/// Segments of one train that arrive together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) segments: Range<u32>,
    /// When the last bit of the last one is at the other end.
    pub(crate) at_ns: u64,
}

/// The decision about one segment.
enum Fate {
    Dropped,
    /// Left the link at this time.
    Passed(u64),
    Late(u64),
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    settings: LinkSettings,
    loss: Loss,
    chance: Chance,
    clock: SerialClock,
    queue_bytes: u64,
    outages: Vec<Range<u64>>,
    /// No later packet arrives before this, unless it was reordered.
    in_order_ns: u64,
    /// Addition to the delay of segments that leave before `jitter_until_ns`.
    jitter_ns: u64,
    jitter_until_ns: u64,
    counters: LinkCounters,
}

impl Link {
    pub(crate) fn new(settings: LinkSettings, seed: u64) -> Self {
        let mut link = Self {
            settings: LinkSettings::default(),
            loss: Loss::default(),
            chance: Chance::new(seed),
            clock: SerialClock::default(),
            queue_bytes: 0,
            outages: Vec::new(),
            in_order_ns: 0,
            jitter_ns: 0,
            jitter_until_ns: 0,
            counters: LinkCounters::default(),
        };
        link.set(settings);
        link
    }

    /// Changes the settings for later packets.
    pub(crate) fn set(&mut self, settings: LinkSettings) {
        self.loss = Loss::new(settings.loss, settings.loss_burst);
        self.clock.set_rate(settings.rate);
        self.queue_bytes = settings.queue_bytes();
        // A shorter delay applies immediately, although packets in flight then arrive after later ones.
        (self.in_order_ns, self.jitter_until_ns) = (0, 0);
        self.settings = settings;
    }

    pub(crate) fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    pub(crate) fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Drops packets that arrive in that time.
    pub(crate) fn add_outage(&mut self, outage: Range<u64>) {
        self.outages.push(outage);
    }

    /// Whether it does nothing at all, so that packets may pass it by.
    pub(crate) fn is_transparent(&self) -> bool {
        self.outages.is_empty() && self.settings == LinkSettings::default()
    }

    /// Sends what passes of a train that comes at `now_ns`, and adds the runs that arrive to `runs`, in the order of their segments.
    pub(crate) fn offer(&mut self, now_ns: u64, train: &Train, runs: &mut Vec<Run>) {
        self.outages.retain(|outage| outage.end > now_ns);
        let is_down = self.outages.iter().any(|outage| outage.contains(&now_ns));
        // The run in the making, and when the link began with it.
        let mut open: Option<(Run, u64)> = None;
        for segment in 0..train.segments {
            let began_ns = self.clock.free_at_ns.max(now_ns);
            let fate = self.fate(is_down, now_ns, train.wire_bytes(segment));
            if let Fate::Passed(left_ns) = fate
                && let Some((run, run_began_ns)) = &mut open
                && left_ns.saturating_sub(*run_began_ns) <= MAX_RUN_NS
            {
                run.segments.end = segment + 1;
                run.at_ns = left_ns;
                continue;
            }
            if let Some((run, _)) = open.take() {
                runs.push(self.in_order(run));
            }
            match fate {
                Fate::Dropped => {}
                Fate::Passed(at_ns) => open = Some((Run { segments: segment..segment + 1, at_ns }, began_ns)),
                Fate::Late(left_ns) => {
                    let at_ns = left_ns + nanoseconds(self.settings.delay) + nanoseconds(self.settings.reorder_by);
                    runs.push(Run { segments: segment..segment + 1, at_ns });
                }
            }
        }
        if let Some((run, _)) = open {
            runs.push(self.in_order(run));
        }
    }

    fn fate(&mut self, is_down: bool, now_ns: u64, wire_bytes: u64) -> Fate {
        let counters = &mut self.counters;
        counters.offered_segments += 1;
        if is_down {
            counters.outage_segments += 1;
            return Fate::Dropped;
        }
        let queued_bytes = self.clock.queued_bytes(now_ns);
        // An idle link takes a segment however small the queue is: it need not wait.
        if queued_bytes > 0 && queued_bytes + wire_bytes > self.queue_bytes {
            counters.queue_dropped_segments += 1;
            return Fate::Dropped;
        }
        let left_ns = self.clock.send(now_ns, wire_bytes);
        counters.most_queued_bytes = counters.most_queued_bytes.max(self.clock.queued_bytes(now_ns));
        if self.loss.strikes(&mut self.chance) {
            counters.lost_segments += 1;
            return Fate::Dropped;
        }
        counters.passed_segments += 1;
        counters.passed_wire_bytes += wire_bytes;
        if self.chance.strikes(self.settings.reorder) {
            counters.reordered_segments += 1;
            return Fate::Late(left_ns);
        }
        Fate::Passed(left_ns)
    }

    /// Adds the way to the time at which a run left.
    fn in_order(&mut self, mut run: Run) -> Run {
        self.draw_jitter(run.at_ns);
        run.at_ns = (run.at_ns + nanoseconds(self.settings.delay) + self.jitter_ns).max(self.in_order_ns);
        self.in_order_ns = run.at_ns;
        run
    }

    /// With a random delay per run and preserved order, the maximum would soon apply to all: no run arrives before the
    /// latest of the preceding ones.
    fn draw_jitter(&mut self, left_ns: u64) {
        let most_ns = nanoseconds(self.settings.jitter);
        if left_ns >= self.jitter_until_ns {
            self.jitter_ns = self.chance.up_to(most_ns);
            self.jitter_until_ns = left_ns + most_ns;
        }
    }
}

/// Nanoseconds of a span that [`LinkSettings::fault`] has bounded.
fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// The time at which the last bit leaves. Exact: fractions of a nanosecond are carried over, so that a rate is exact
/// to the byte.
#[derive(Debug, Default)]
struct SerialClock {
    rate: Option<Rate>,
    free_at_ns: u64,
    /// Fraction of a nanosecond, in units of the rate.
    fraction: u64,
    /// Until when what still waits leaves at rates of before, in their order.
    before: Vec<(u64, Rate)>,
}

impl SerialClock {
    /// Queued packets keep their times.
    fn set_rate(&mut self, rate: Option<Rate>) {
        if let Some(rate) = self.rate {
            self.before.push((self.free_at_ns, rate));
        }
        // A fraction counts in parts of the old rate.
        (self.rate, self.fraction) = (rate, 0);
    }

    /// Sends that many bytes when all before them have left; gives the time at which the last bit has left.
    fn send(&mut self, now_ns: u64, wire_bytes: u64) -> u64 {
        self.before.retain(|(until_ns, _)| *until_ns > now_ns);
        if self.free_at_ns < now_ns {
            (self.free_at_ns, self.fraction) = (now_ns, 0);
        }
        if let Some(rate) = self.rate {
            let parts = u128::from(wire_bytes) * 8 * 1_000_000_000 + u128::from(self.fraction);
            // At the minimum rate a queue of the maximum size takes 280 years, half of the range of nanoseconds.
            self.free_at_ns += (parts / u128::from(rate.bits_per_s())) as u64;
            self.fraction = (parts % u128::from(rate.bits_per_s())) as u64;
        }
        self.free_at_ns
    }

    /// Returns the queued bytes; a partial byte counts as a whole one.
    fn queued_bytes(&self, now_ns: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let (mut from_ns, mut parts) = (now_ns, 0);
        for (until_ns, rate) in self.before.iter().chain([&(self.free_at_ns, rate)]) {
            parts += u128::from(until_ns.saturating_sub(from_ns)) * u128::from(rate.bits_per_s());
            from_ns = from_ns.max(*until_ns);
        }
        parts.div_ceil(8 * 1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests;
