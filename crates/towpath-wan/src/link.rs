//! One direction of a link in virtual time: which segments of a train pass, and when they arrive.
//!
//! [`Link::offer`] takes a train and returns the runs of it that arrive. Each segment passes, in this order, an outage,
//! the drop-tail queue, the serialization clock, loss, and finally delay, jitter and reordering. Packets are not
//! stored: the queue is represented by the time until which the link is busy.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    random::{GilbertModel, SplitMix64},
    segment::Train,
    units::{Queue, Rate},
};

/// Maximum time in which the link sends one run: data arrive in small pieces on a slow link, as on a real one, instead
/// of 64 KiB at a time. At 1 Gbit/s these are 16 segments.
const MAX_RUN_NS: u64 = 200_000;

/// The properties of one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSettings {
    /// Rate in bits per second on Ethernet; `None` for unlimited.
    pub rate: Option<Rate>,
    /// Propagation delay.
    #[serde(rename = "delay_ms", with = "crate::units::milliseconds")]
    pub delay: Duration,
    /// Queue of packets while the link is busy. Without a rate nothing is queued.
    pub queue: Queue,
    /// Fraction of segments lost, from 0 to 1.
    pub loss: f64,
    /// Mean number of consecutive losses; 1 or less for independent losses.
    pub loss_burst: f64,
    /// Maximum random addition to the delay, changed after each interval of this length. The order is preserved.
    #[serde(rename = "jitter_ms", with = "crate::units::milliseconds")]
    pub jitter: Duration,
    /// Fraction of reordered segments, from 0 to 1.
    pub reorder: f64,
    /// Additional delay of reordered segments.
    #[serde(rename = "reorder_by_ms", with = "crate::units::milliseconds")]
    pub reorder_by: Duration,
}

impl Default for LinkSettings {
    /// A transparent link.
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
    /// Maximum delay, jitter and reordering delay: a minute.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// Returns the error in the settings, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        for (name, share) in [("loss", self.loss), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&share) {
                return Some(format!("{name} is a fraction from 0 to 1, not {share}"));
            }
        }
        if !(0.0..=1e6).contains(&self.loss_burst) {
            return Some(format!("loss bursts have 1 to 1,000,000 segments, not {}", self.loss_burst));
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

/// Counters of the segments offered to a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Segments that reached the link.
    pub offered_segments: u64,
    /// Segments that passed it.
    pub passed_segments: u64,
    /// Their size on Ethernet in bytes.
    pub passed_wire_bytes: u64,
    /// Segments dropped because the queue was full.
    pub queue_dropped_segments: u64,
    /// Segments lost at random.
    pub lost_segments: u64,
    /// Segments dropped during an outage.
    pub outage_segments: u64,
    /// Segments delivered late by reordering.
    pub reordered_segments: u64,
    /// Maximum size of the queue in bytes on Ethernet.
    pub most_queued_bytes: u64,
}

/// Segments of one train that arrive together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentRun {
    pub(crate) segments: Range<u32>,
    /// Arrival time of the last bit of the last segment.
    pub(crate) at_ns: u64,
}

/// The decision about one segment.
enum SegmentOutcome {
    Dropped,
    /// Left the link at this time.
    Passed(u64),
    Late(u64),
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    settings: LinkSettings,
    loss: GilbertModel,
    random: SplitMix64,
    clock: SerialClock,
    queue_bytes: u64,
    outages: Vec<Range<u64>>,
    /// Earliest arrival time of a later packet, unless it is reordered.
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
            loss: GilbertModel::default(),
            random: SplitMix64::new(seed),
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
        self.loss = GilbertModel::new(settings.loss, settings.loss_burst);
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

    /// Drops packets that arrive within `outage`.
    pub(crate) fn add_outage(&mut self, outage: Range<u64>) {
        self.outages.push(outage);
    }

    /// Returns whether the link changes nothing, so that packets may bypass it.
    pub(crate) fn is_transparent(&self) -> bool {
        self.outages.is_empty() && self.settings == LinkSettings::default()
    }

    /// Processes a train that arrives at `now_ns`; appends the runs that pass to `runs`, in the order of their
    /// segments.
    pub(crate) fn offer(&mut self, now_ns: u64, train: &Train, runs: &mut Vec<SegmentRun>) {
        self.outages.retain(|outage| outage.end > now_ns);
        let is_down = self.outages.iter().any(|outage| outage.contains(&now_ns));
        // The current run, and the time at which the link began to send it.
        let mut open: Option<(SegmentRun, u64)> = None;
        for segment in 0..train.segments {
            let began_ns = self.clock.free_at_ns.max(now_ns);
            let outcome = self.outcome(is_down, now_ns, train.wire_bytes(segment));
            if let SegmentOutcome::Passed(left_ns) = outcome
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
            match outcome {
                SegmentOutcome::Dropped => {}
                SegmentOutcome::Passed(at_ns) => {
                    open = Some((SegmentRun { segments: segment..segment + 1, at_ns }, began_ns));
                }
                SegmentOutcome::Late(left_ns) => {
                    let at_ns = left_ns + nanoseconds(self.settings.delay) + nanoseconds(self.settings.reorder_by);
                    runs.push(SegmentRun { segments: segment..segment + 1, at_ns });
                }
            }
        }
        if let Some((run, _)) = open {
            runs.push(self.in_order(run));
        }
    }

    fn outcome(&mut self, is_down: bool, now_ns: u64, wire_bytes: u64) -> SegmentOutcome {
        let counters = &mut self.counters;
        counters.offered_segments += 1;
        if is_down {
            counters.outage_segments += 1;
            return SegmentOutcome::Dropped;
        }
        let queued_bytes = self.clock.queued_bytes(now_ns);
        // An idle link accepts a segment whatever the queue size, because it need not wait.
        if queued_bytes > 0 && queued_bytes + wire_bytes > self.queue_bytes {
            counters.queue_dropped_segments += 1;
            return SegmentOutcome::Dropped;
        }
        let left_ns = self.clock.send(now_ns, wire_bytes);
        counters.most_queued_bytes = counters.most_queued_bytes.max(self.clock.queued_bytes(now_ns));
        if self.loss.strikes(&mut self.random) {
            counters.lost_segments += 1;
            return SegmentOutcome::Dropped;
        }
        counters.passed_segments += 1;
        counters.passed_wire_bytes += wire_bytes;
        if self.random.strikes(self.settings.reorder) {
            counters.reordered_segments += 1;
            return SegmentOutcome::Late(left_ns);
        }
        SegmentOutcome::Passed(left_ns)
    }

    /// Adds delay and jitter to the departure time of a run.
    fn in_order(&mut self, mut run: SegmentRun) -> SegmentRun {
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
            self.jitter_ns = self.random.up_to(most_ns);
            self.jitter_until_ns = left_ns + most_ns;
        }
    }
}

/// Converts a duration whose maximum [`LinkSettings::fault`] has checked.
fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// The serialization clock: returns when the last bit leaves. Exact: fractions of a nanosecond are carried over, so
/// that a rate is exact to the byte.
#[derive(Debug, Default)]
struct SerialClock {
    rate: Option<Rate>,
    free_at_ns: u64,
    /// Fraction of a nanosecond, in units of the rate.
    fraction: u64,
    /// End times of queued data at earlier rates, in order.
    before: Vec<(u64, Rate)>,
}

impl SerialClock {
    /// Changes the rate; queued packets keep their times.
    fn set_rate(&mut self, rate: Option<Rate>) {
        if let Some(rate) = self.rate {
            self.before.push((self.free_at_ns, rate));
        }
        // The fraction is in units of the old rate.
        (self.rate, self.fraction) = (rate, 0);
    }

    /// Sends `wire_bytes` after all queued bytes; returns the time at which the last bit has left.
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
