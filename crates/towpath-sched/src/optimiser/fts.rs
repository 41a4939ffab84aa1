//! The rule of FTS (`Optimizer::optimizeConnectionsForPair`), from its success rate and the trend of its throughput.
//!
//! Once per period, for each link (the pipes with the same source and destination) with files:
//!
//! 1. Success below 97 %: one connection less, unless it rises, is at least 96 %, and retries did not grow.
//! 2. Fewer files than connections: no change.
//! 3. The moving average of the throughput fell: more connections if the mean file size fell by an order of magnitude,
//!    one less if the average itself did, else no change.
//! 4. Otherwise: more connections.
//!
//! Only a throughput that crosses a boundary between two orders of magnitude causes a decrease, and there is no term
//! for other pipes on the same link.
//!
//! FTS sums the mean rate of each file times its time within the window. Here the window has the received bytes of its
//! periods, which is the same for files of constant rate.

use std::collections::VecDeque;

use super::{Assignment, Optimiser};
use crate::period::{Decision, EndedFiles, Period, PipeMeasurement, PipeTerms, Reason, link_count};

/// Time over which the mean duration of files is computed, and the longest window, in seconds.
const LONGEST_WINDOW_S: f64 = 1800.0;

/// Success in percent below which connections are removed.
const SUCCESS: u8 = 97;

/// Minimum success in percent to wait for a rising success.
const RISING_SUCCESS: u8 = 96;

/// Part of the newest value in the moving average of the throughput.
const NEWEST: f64 = 0.1;

/// Time in seconds after a decision before the next one, if nothing has changed.
const SAME_S: f64 = 300.0;

/// Maximum number of streams of a transfer: the queue counts so often in the modes that set streams.
const STREAMS: u64 = 16;

/// Whether the last throughput and success of a link are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// As in FTS 3.13: one object per link lives on.
    Kept,
    /// As in FTS 3.14 (read from its source, not seen in production): each cycle creates a new object, whose last values
    /// are the current ones.
    Lost,
}

/// Minimum and maximum number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FtsRange {
    /// Minimum.
    pub min: u32,
    /// Maximum.
    pub max: u32,
}

/// Settings of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FtsSettings {
    /// The first number of connections.
    pub start: u32,
    /// The range of the link.
    pub range: FtsRange,
    /// `optimizer_mode`, 0 to 3: from 2 on, two connections are added at a time, and streams count.
    pub mode: u8,
    /// Whether it remembers.
    pub memory: Memory,
    /// How the connections of a link are given to its activities.
    pub assignment: Assignment,
}

impl Default for FtsSettings {
    /// The settings as shipped: half of the range, two connections more at a time.
    fn default() -> Self {
        Self {
            start: 66,
            range: FtsRange { min: 2, max: 130 },
            mode: 2,
            memory: Memory::Kept,
            assignment: Assignment::Draw,
        }
    }
}

/// The rule of FTS.
#[derive(Debug)]
pub struct Fts {
    settings: FtsSettings,
    links: Vec<LinkState>,
}

impl Fts {
    /// Creates the optimiser.
    pub fn new(settings: FtsSettings) -> Self {
        Self { settings, links: Vec::new() }
    }
}

impl Optimiser for Fts {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        let links = measured_links(period);
        self.links.resize_with(links.len(), LinkState::default);
        let decide = |(state, link): (&mut LinkState, &Link)| state.decide(&self.settings, period, &link.measured);
        let decided: Vec<_> = self.links.iter_mut().zip(&links).map(decide).collect();
        let mut rests: Vec<_> = decided.iter().map(|decision| decision.connections).collect();
        let mut weights: Vec<_> = links.iter().map(|link| link.live_weight).collect();
        let mut part = |(terms, measured): (&PipeTerms, &PipeMeasurement)| {
            let link = terms.link as usize;
            let Decision { reason, .. } = decided[link];
            if !measured.is_live() {
                // A link without files keeps its number for the next ones.
                let connections = if links[link].live_weight == 0.0 { std::mem::take(&mut rests[link]) } else { 0 };
                return Decision { connections, reason };
            }
            let connections = (f64::from(rests[link]) * terms.activity_weight / weights[link]).round() as u32;
            rests[link] -= connections;
            weights[link] -= terms.activity_weight;
            Decision { connections, reason }
        };
        period.terms.iter().zip(period.pipes).map(&mut part).collect()
    }

    fn assignment(&self) -> Assignment {
        self.settings.assignment
    }
}

/// A link in a period.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// The sums over its pipes.
    measured: PipeMeasurement,
    /// The sum of the weights of the pipes with files.
    live_weight: f64,
}

fn measured_links(period: &Period<'_>) -> Vec<Link> {
    let mut links = vec![Link::default(); link_count(period.terms.iter())];
    for (terms, measured) in period.terms.iter().zip(period.pipes) {
        let link = &mut links[terms.link as usize];
        link.measured.add(measured);
        if measured.is_live() {
            link.live_weight += terms.activity_weight;
        }
    }
    links
}

/// What FTS computes from the window of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Trend {
    success: u8,
    /// Moving average of the throughput in bytes per second.
    average: f64,
    retried: u64,
    mean_file_bytes: f64,
}

/// A period of a window.
#[derive(Debug, Clone, Copy)]
struct Sample {
    end_s: f64,
    received_bytes: f64,
    ended: EndedFiles,
}

#[derive(Debug, Default)]
struct LinkState {
    /// The number of connections; `None` before the first decision.
    connections: Option<u32>,
    /// The last half hour.
    samples: VecDeque<Sample>,
    last: Trend,
    decided_s: f64,
}

impl LinkState {
    fn decide(&mut self, settings: &FtsSettings, period: &Period<'_>, measured: &PipeMeasurement) -> Decision {
        self.remember(period, measured);
        if !measured.is_live() {
            return Decision { connections: self.connections.unwrap_or(settings.start), reason: Reason::Idle };
        }
        let FtsRange { min, max } = settings.range;
        if min == max {
            return self.set(min, Reason::Configured);
        }
        let Some(now) = self.connections else { return self.set(settings.start.clamp(min, max), Reason::Started) };
        if measured.exceeds_storage_limit {
            return self.set(now.saturating_sub(1).clamp(min, max), Reason::StorageLimit);
        }
        let trend = self.trend(period.end_s);
        let before = match settings.memory {
            Memory::Kept => self.last,
            Memory::Lost => trend,
        };
        let is_same = settings.memory == Memory::Kept
            && (trend.success, trend.average) == (before.success, before.average)
            && period.end_s - self.decided_s < SAME_S;
        self.last = trend;
        if is_same {
            return self.set(now, Reason::Unchanged);
        }
        self.decided_s = period.end_s;
        let (change, reason) = judge(&trend, &before, now, measured.queued_files, settings.mode);
        let wanted = now.saturating_add_signed(change);
        self.set(bounded(wanted, now, measured, settings), reason)
    }

    fn set(&mut self, connections: u32, reason: Reason) -> Decision {
        self.connections = Some(connections);
        Decision { connections, reason }
    }

    fn remember(&mut self, period: &Period<'_>, measured: &PipeMeasurement) {
        let &PipeMeasurement { received_bytes, ended, .. } = measured;
        self.samples.push_back(Sample { end_s: period.end_s, received_bytes, ended });
        while self.samples.front().is_some_and(|sample| period.end_s - sample.end_s >= LONGEST_WINDOW_S) {
            self.samples.pop_front();
        }
    }

    /// Returns the values of the window, whose length follows the mean duration of a file.
    fn trend(&self, now_s: f64) -> Trend {
        let in_half_hour = self.ended_since(now_s - LONGEST_WINDOW_S);
        let window_s = match in_half_hour.duration_s / (in_half_hour.finished as f64).max(1.0) {
            mean_s if mean_s < 30.0 => 300.0,
            mean_s if mean_s <= 900.0 => 900.0,
            _ => LONGEST_WINDOW_S,
        };
        let start_s = now_s - window_s;
        let received: f64 = self.since(start_s).map(|sample| sample.received_bytes).sum();
        let throughput = received / window_s;
        let average = match throughput > 0.0 {
            true => NEWEST * throughput + (1.0 - NEWEST) * self.last.average,
            false => self.last.average,
        };
        let ended = self.ended_since(start_s);
        let mean_file_bytes = ended.bytes / (ended.finished as f64).max(1.0);
        Trend { success: success(&ended), average, retried: ended.retried, mean_file_bytes }
    }

    fn since(&self, start_s: f64) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.end_s > start_s)
    }

    fn ended_since(&self, start_s: f64) -> EndedFiles {
        let mut ended = EndedFiles::default();
        self.since(start_s).for_each(|sample| ended.add(&sample.ended));
        ended
    }
}

/// Returns the success in percent, rounded up; 100 if no file finished.
fn success(ended: &EndedFiles) -> u8 {
    if ended.finished == 0 {
        return 100;
    }
    u8::try_from((100 * ended.finished).div_ceil(ended.attempts())).expect("a share is at most 100 %")
}

/// Returns the change of the number of connections, before the limits.
fn judge(trend: &Trend, before: &Trend, now: u32, queued_files: u64, mode: u8) -> (i32, Reason) {
    let step = if mode >= 2 { 2 } else { 1 };
    if trend.success < SUCCESS {
        let rises = trend.success > before.success && trend.success >= RISING_SUCCESS;
        return match rises && trend.retried <= before.retried {
            true => (0, Reason::SuccessRises(trend.success)),
            false => (-1, Reason::SuccessTooLow(trend.success)),
        };
    }
    let magnitude = |value: f64| value.max(1.0).log10().round();
    match () {
        () if trend.average == 0.0 => (0, Reason::NoThroughput),
        () if queued_files < u64::from(now) => (0, Reason::QueueIsShort),
        () if trend.average >= before.average => (step, Reason::ThroughputHolds),
        () if magnitude(trend.mean_file_bytes) < magnitude(before.mean_file_bytes) => (step, Reason::FilesAreSmaller),
        () if magnitude(trend.average) < magnitude(before.average) => (-1, Reason::ThroughputFellFar),
        () => (0, Reason::ThroughputFell),
    }
}

/// Returns `wanted` within the range, and not increased beyond the queue, if the mode limits it so.
fn bounded(wanted: u32, now: u32, measured: &PipeMeasurement, settings: &FtsSettings) -> u32 {
    let FtsRange { min, max } = settings.range;
    let queue = match settings.mode {
        0 => u64::MAX,
        1 => measured.queued_files,
        _ => measured.queued_files.saturating_mul(STREAMS),
    };
    let limit = u32::try_from(queue).unwrap_or(u32::MAX).max(now);
    wanted.min(limit).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        network::{Paths, Resources},
        period::NetworkView,
    };

    /// A pipe with enough files; each takes 10 s.
    fn measured(rate: f64, finished: u64, retried: u64) -> PipeMeasurement {
        let bytes = rate * 60.0;
        let ended = EndedFiles { finished, retried, recoverable: 0, duration_s: 10.0 * finished as f64, bytes };
        PipeMeasurement {
            connections: 10,
            received_bytes: bytes,
            queued_files: 1_000,
            ended,
            ..PipeMeasurement::default()
        }
    }

    fn run(settings: FtsSettings, periods: &[PipeMeasurement]) -> Vec<(u32, Reason)> {
        let mut fts = Fts::new(settings);
        let decide = |(index, measured): (usize, &PipeMeasurement)| {
            let end_s = 60.0 * (index + 1) as f64;
            let terms = &[PipeTerms::of_link(0)];
            let (resources, paths) = (Resources::default(), Paths::unknown(1));
            let network = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: false };
            let period = Period { end_s, length_s: 60.0, pipes: &[*measured], terms, network };
            let decision = fts.decide(&period)[0];
            (decision.connections, decision.reason)
        };
        periods.iter().enumerate().map(decide).collect()
    }

    /// Worked by hand. The window is 300 s: the first throughput is 1/5 of the rate, and the average 1/10 of that. Both
    /// rise from period to period.
    #[test]
    fn connections_follow_the_table() {
        let steady = measured(1e8, 60, 0);
        let expected = [
            (66, Reason::Started),
            (68, Reason::ThroughputHolds),
            (70, Reason::ThroughputHolds),
            (72, Reason::ThroughputHolds),
        ];
        assert_eq!(run(FtsSettings::default(), &[steady; 4]), expected);
        let slow = FtsSettings { start: 2, mode: 1, ..FtsSettings::default() };
        let decided: Vec<_> = run(slow, &[steady; 4]).into_iter().map(|(connections, _)| connections).collect();
        assert_eq!(decided, [2, 3, 4, 5]);
    }

    #[test]
    fn failures_remove_connections() {
        let half = measured(1e8, 30, 30);
        let decided = run(FtsSettings::default(), &[half; 3]);
        assert_eq!(decided[1..], [(65, Reason::SuccessTooLow(50)), (64, Reason::SuccessTooLow(50))]);
        // 96.7 % are rounded up to 97.
        let few = measured(1e8, 290, 10);
        assert_eq!(run(FtsSettings::default(), &[few; 2])[1], (68, Reason::ThroughputHolds));
        // 9,060 of 9,120 are 99.3 %.
        let better = measured(1e8, 9_000, 0);
        assert_eq!(run(FtsSettings::default(), &[half, half, better])[2].1, Reason::ThroughputHolds);
    }

    #[test]
    fn a_success_that_rises_is_waited_for_if_it_is_remembered() {
        let (worse, better) = (measured(1e8, 950, 50), measured(1e8, 2_000, 0));
        let decided = |memory| run(FtsSettings { memory, ..FtsSettings::default() }, &[worse, worse, better])[2];
        // 3,900 of 4,000 are 97.5 %.
        assert_eq!(decided(Memory::Kept), (67, Reason::ThroughputHolds));
        let better = measured(1e8, 500, 0);
        let decided = |memory| run(FtsSettings { memory, ..FtsSettings::default() }, &[worse, worse, better])[2];
        // 2,400 of 2,500 are 96 %, after 95 %.
        assert_eq!(decided(Memory::Kept), (65, Reason::SuccessRises(96)));
        assert_eq!(decided(Memory::Lost), (64, Reason::SuccessTooLow(96)));
    }

    #[test]
    fn a_throughput_that_falls_within_its_magnitude_changes_nothing() {
        let mut periods = vec![measured(1e8, 60, 0); 30];
        periods.extend([measured(6e7, 36, 0); 10]);
        let kept = run(FtsSettings::default(), &periods);
        assert_eq!(kept[39], (kept[29].0, Reason::ThroughputFell));
        let lost = run(FtsSettings { memory: Memory::Lost, ..FtsSettings::default() }, &periods);
        assert_eq!(lost[39], (130, Reason::ThroughputHolds));
    }

    #[test]
    fn limits_hold() {
        let settings = FtsSettings { range: FtsRange { min: 2, max: 67 }, ..FtsSettings::default() };
        assert_eq!(run(settings, &[measured(1e8, 60, 0); 3])[2].0, 67);
        let settings = FtsSettings { range: FtsRange { min: 7, max: 7 }, ..FtsSettings::default() };
        assert_eq!(run(settings, &[measured(1e8, 60, 0)]), [(7, Reason::Configured)]);
        let few = PipeMeasurement { queued_files: 3, ..measured(1e8, 60, 0) };
        assert_eq!(run(FtsSettings::default(), &[few; 2])[1], (66, Reason::QueueIsShort));
        let over = PipeMeasurement { exceeds_storage_limit: true, ..measured(1e8, 60, 0) };
        assert_eq!(run(FtsSettings::default(), &[over; 2])[1], (65, Reason::StorageLimit));
        let idle = PipeMeasurement::default();
        assert_eq!(run(FtsSettings::default(), &[idle]), [(66, Reason::Idle)]);
    }

    proptest! {
        /// The conservation theorem of the talk (IETF 116): if all throughputs are within a factor K with
        /// B > 1 − α + α K², then n − round(log_B E) never decreases. Here B = 10 and α = 0.1, so K may be 9.5. So a
        /// pipe has more connections in the end than it needs, whatever they did to the throughput.
        #[test]
        fn connections_only_fall_with_the_magnitude_of_the_throughput(
            least in 1.0..1e9_f64,
            factors in prop::collection::vec(1.0..9.5_f64, 2..200),
        ) {
            let trend = |average| Trend { success: 100, average, retried: 0, mean_file_bytes: 1e8 };
            let conserved = |n: i32, average: f64| n - average.log10().round() as i32;
            let (mut n, mut average) = (1_000_i32, least * factors[0]);
            for factor in factors {
                let next = NEWEST * least * factor + (1.0 - NEWEST) * average;
                let (change, _) = judge(&trend(next), &trend(average), n as u32, u64::MAX, 1);
                prop_assert!(conserved(n + change, next) >= conserved(n, average));
                (n, average) = (n + change, next);
            }
        }
    }
}
