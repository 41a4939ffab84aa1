//! `knee`: the shares of pipes from the network, and the number of connections from the knee of each bottleneck.
//!
//! The target rate of a pipe is its weighted max-min share of the capacities in the path vector. It needs target / rate
//! of one connection. If many connections lower the goodput of a link, that is too many or too few, so each bottleneck
//! has a correction for all its pipes: it grows while more connections bring more goodput, and shrinks otherwise. The
//! measure is the elasticity: the relative change of goodput per relative change of connections, by regression over the
//! last periods. To measure it, the numbers of all bottlenecks are varied a little in each period, at the same time:
//! one scalar per bottleneck is learned, not one per pipe.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Fts, FtsSettings, Optimiser};
use crate::{
    network::ResourceIndex,
    period::{Decision, NetworkView, Period, PipeMeasurement, Reason},
    shares::{Demand, Shares, max_min},
};

/// Number of first periods to learn the rate of a connection. Later ones may be contended: a lower rate then leads to
/// more connections, and these to a lower rate.
const LEARNING_PERIODS: u32 = 3;

/// Elasticity at the knee. With a full path vector it can be low; otherwise hidden links could be overloaded.
const KNEE_ELASTICITY: f64 = 0.15;

/// Weight in the regression of the assumption that a bottleneck is at its knee, as the square of a relative change of
/// connections. With a higher assumed elasticity, bottlenecks without usable measurements would be given more and more
/// connections: up to 15 times the bound was seen.
const PRIOR_WEIGHT: f64 = 0.004;

/// Part of its weight that a measurement keeps in each period.
const FORGETTING: f64 = 0.8;

/// Change of the correction per difference of elasticity, and its limits down and up.
const GAIN: f64 = 0.35;
const LARGEST_DECREASE: f64 = -0.5;
const LARGEST_INCREASE: f64 = 0.4;

/// Limits of the correction. In the model, target / rate of one connection is the lowest number that fills a link, so that
/// more of them can only make up for errors of that rate.
const LOWEST_CORRECTION: f64 = -1.0;
const HIGHEST_CORRECTION: f64 = 0.3;

/// A bottleneck with this part of its target gets no further connections.
const FULFILLED: f64 = 0.97;

/// Part of a trim that remains in each period, and its change per error of a share.
const TRIM_MEMORY: f64 = 0.98;
const TRIM_GAIN: f64 = 0.3;

/// Limit of a trim. Round-trip times of 1 : 3 need half of the logarithm of 3.
const LARGEST_TRIM: f64 = 0.6;

/// Amplitude of the variation, as the logarithm of the number of connections: of a bottleneck that has its target, and of
/// others.
const SMALL_VARIATION: f64 = 0.03;
const LARGE_VARIATION: f64 = 0.12;

/// Maximum factor between two numbers of connections of a pipe.
const LARGEST_FACTOR: f64 = 3.0;

/// Success below which the connections of a pipe are not increased.
const SUCCESS: f64 = 0.97;

/// What the shares are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// All pipes get equal shares.
    Fair,
    /// Pipes get shares by their remaining bytes, so that all are done at the same time.
    Makespan,
}

/// Settings of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KneeSettings {
    /// What the shares are for.
    pub goal: Goal,
    /// Maximum number of connections of a pipe.
    pub max_connections: u32,
}

impl Default for KneeSettings {
    fn default() -> Self {
        Self { goal: Goal::Makespan, max_connections: 1_000 }
    }
}

/// The optimiser.
#[derive(Debug)]
pub struct Knee {
    settings: KneeSettings,
    pipes: Vec<PipeState>,
    bottlenecks: Vec<Bottleneck>,
    /// The rule for pipes without a path.
    fallback: Fts,
    random: Pcg64Mcg,
}

/// The knowledge about a pipe.
#[derive(Debug, Clone, Copy, Default)]
struct PipeState {
    /// Bytes per second of a connection without contention; 0 if unknown.
    connection_rate: f64,
    learned_periods: u32,
    /// Logarithm of the correction within its bottleneck, against unequal shares of connections.
    trim: f64,
    bottleneck: Option<ResourceIndex>,
    connections: u32,
}

/// The knowledge about a resource as a bottleneck.
#[derive(Debug, Clone, Copy)]
struct Bottleneck {
    /// Logarithm of the correction of the number of connections.
    correction: f64,
    /// Sums of the regression: of changes of both logarithms, and of the square of that of connections.
    covariance: f64,
    variance: f64,
    last: Load,
    sign: f64,
}

impl Default for Bottleneck {
    fn default() -> Self {
        Self { correction: 0.0, covariance: 0.0, variance: 0.0, last: Load::default(), sign: 1.0 }
    }
}

/// The load of a bottleneck in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Load {
    rate: f64,
    target: f64,
    connections: f64,
    /// Of the pipes that have their bottleneck here.
    bottleneck_rate: f64,
    bottleneck_target: f64,
    pipes: u32,
    /// Depends on which pipes these are.
    members: u64,
    /// Sums over the pipes: of their trims, and of the corrections of their last bottlenecks.
    trim: f64,
    correction: f64,
}

impl Load {
    fn is_fulfilled(&self) -> bool {
        self.rate >= FULFILLED * self.target
    }
}

impl Bottleneck {
    fn elasticity(&self) -> f64 {
        (self.covariance + KNEE_ELASTICITY * PRIOR_WEIGHT) / (self.variance + PRIOR_WEIGHT)
    }

    fn variation(&self) -> f64 {
        if self.last.is_fulfilled() { SMALL_VARIATION } else { LARGE_VARIATION }
    }

    /// Learns from the load of a period.
    fn learn(&mut self, load: Load) {
        let is_same = self.last.members == load.members;
        if self.last.pipes == 0 && load.pipes > 0 {
            self.correction = load.correction / f64::from(load.pipes);
        }
        self.covariance *= FORGETTING;
        self.variance *= FORGETTING;
        if is_same && load.rate > 0.0 && self.last.rate > 0.0 && load.connections > 0.0 && self.last.connections > 0.0 {
            let connections = (load.connections / self.last.connections).ln();
            self.covariance += connections * (load.rate / self.last.rate).ln();
            self.variance += connections * connections;
        }
        let change = (GAIN * (self.elasticity() - KNEE_ELASTICITY)).clamp(LARGEST_DECREASE, LARGEST_INCREASE);
        self.correction += if load.is_fulfilled() { change.min(0.0) } else { change };
        self.correction = self.correction.clamp(LOWEST_CORRECTION, HIGHEST_CORRECTION);
        self.last = load;
    }
}

impl Knee {
    /// Creates the optimiser. `seed` decides about the variation and the rounding.
    pub fn new(settings: KneeSettings, seed: u64) -> Self {
        let random = Pcg64Mcg::seed_from_u64(seed);
        Self {
            settings,
            pipes: Vec::new(),
            bottlenecks: Vec::new(),
            fallback: Fts::new(FtsSettings::default()),
            random,
        }
    }

    fn shares(&self, period: &Period<'_>, network: &NetworkView<'_>) -> Shares {
        let demand = |measured: &PipeMeasurement| {
            let weight = match self.settings.goal {
                _ if !is_live(measured) => 0.0,
                Goal::Fair => 1.0,
                Goal::Makespan => measured.remaining_bytes.max(1.0),
            };
            Demand { weight, limit: f64::INFINITY }
        };
        let demands: Vec<_> = period.pipes.iter().map(demand).collect();
        max_min(network.capacities, network.paths, &demands)
    }

    /// Learns from the measurements of a period.
    fn learn(&mut self, period: &Period<'_>, network: &NetworkView<'_>, shares: &Shares) {
        let mut loads = vec![Load::default(); self.bottlenecks.len()];
        for (pipe, state) in self.pipes.iter_mut().enumerate() {
            let measured = &period.pipes[pipe];
            let rate = measured.received_bytes / period.length_s;
            if measured.connections > 0 && rate > 0.0 && state.learned_periods < LEARNING_PERIODS {
                state.connection_rate = state.connection_rate.max(rate / f64::from(measured.connections));
                state.learned_periods += 1;
            }
            let inherited = state.bottleneck.map_or(0.0, |last| self.bottlenecks[last as usize].correction);
            state.bottleneck = shares.bottlenecks[pipe].filter(|_| is_live(measured));
            if !is_live(measured) {
                continue;
            }
            for resource in network.paths.resources_of(pipe) {
                let load = &mut loads[*resource as usize];
                load.rate += rate;
                load.target += shares.rates[pipe];
                load.connections += f64::from(measured.connections);
                load.members = load.members.wrapping_add((pipe as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let Some(bottleneck) = state.bottleneck else { continue };
            let load = &mut loads[bottleneck as usize];
            load.bottleneck_rate += rate;
            load.bottleneck_target += shares.rates[pipe];
            load.pipes += 1;
            load.correction += inherited;
        }
        for (pipe, state) in self.pipes.iter_mut().enumerate() {
            let Some(bottleneck) = state.bottleneck else { continue };
            let load = &mut loads[bottleneck as usize];
            let rate = period.pipes[pipe].received_bytes / period.length_s;
            if rate > 0.0 && load.bottleneck_rate > 0.0 {
                let wanted = shares.rates[pipe] / load.bottleneck_target;
                state.trim = TRIM_MEMORY * state.trim + TRIM_GAIN * (wanted / (rate / load.bottleneck_rate)).ln();
            }
            load.trim += state.trim;
        }
        for state in &mut self.pipes {
            let Some(bottleneck) = state.bottleneck else { continue };
            let load = &loads[bottleneck as usize];
            state.trim = (state.trim - load.trim / f64::from(load.pipes)).clamp(-LARGEST_TRIM, LARGEST_TRIM);
        }
        for (bottleneck, load) in self.bottlenecks.iter_mut().zip(loads) {
            bottleneck.learn(load);
            if self.random.random_bool(0.5) {
                bottleneck.sign = -bottleneck.sign;
            }
        }
    }

    fn decide_pipe(&mut self, pipe: usize, measured: &PipeMeasurement, target: f64) -> Option<Decision> {
        let state = &mut self.pipes[pipe];
        let resource = state.bottleneck?;
        let bottleneck = &self.bottlenecks[resource as usize];
        let now = f64::from(state.connections.max(1));
        let wanted = match state.connection_rate > 0.0 {
            true => {
                target / state.connection_rate
                    * (state.trim + bottleneck.correction + bottleneck.variation() * bottleneck.sign).exp()
            }
            false => 1.0,
        };
        let bounded = wanted
            .clamp(now / LARGEST_FACTOR, now * LARGEST_FACTOR)
            .clamp(1.0, f64::from(self.settings.max_connections));
        let rounded = bounded.floor() + f64::from(u8::from(self.random.random_bool(bounded.fract())));
        let ended = measured.ended;
        let attempts = ended.finished + ended.retried + ended.recoverable;
        let is_failing = attempts > 0 && (ended.finished as f64) < SUCCESS * attempts as f64;
        let connections = rounded as u32;
        let percent = (100 * ended.finished).checked_div(attempts).unwrap_or(100);
        let decision = match is_failing && connections >= state.connections {
            true => {
                let reason = Reason::SuccessTooLow(u8::try_from(percent).unwrap_or(100));
                Decision { connections: state.connections.saturating_sub(1).max(1), reason }
            }
            false if state.connection_rate == 0.0 => Decision { connections, reason: Reason::Started },
            false => {
                let elasticity = bottleneck.elasticity();
                Decision { connections, reason: Reason::ShareOfLink { resource, target, elasticity } }
            }
        };
        state.connections = decision.connections;
        Some(decision)
    }
}

/// Returns whether a pipe has something to transfer.
fn is_live(measured: &PipeMeasurement) -> bool {
    measured.queued_files > 0 || measured.connections > 0
}

impl Optimiser for Knee {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        let mut decisions = self.fallback.decide(period);
        let Some(network) = &period.network else { return decisions };
        self.pipes.resize_with(period.pipes.len(), PipeState::default);
        self.bottlenecks.resize_with(network.capacities.len(), Bottleneck::default);
        let shares = self.shares(period, network);
        self.learn(period, network, &shares);
        for (pipe, decision) in decisions.iter_mut().enumerate() {
            if let Some(decided) = self.decide_pipe(pipe, &period.pipes[pipe], shares.rates[pipe]) {
                *decision = decided;
            } else if !is_live(&period.pipes[pipe]) {
                *decision = Decision { connections: 1, reason: Reason::Idle };
            }
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        network::{Incidences, Paths},
        period::EndedFiles,
        simulation::{Scenario, Summary, World, simulate},
    };

    fn world(seed: u64, text: &str) -> World {
        let text = format!(
            "seed = {seed}\nnoise = 0.05\n{text}\n[network]\ncapacity_bits_per_s = 10e9\ndeterioration = 1\n
             [connections]\nspread = 0.3\n[[requests]]\npipes = 8\nfiles = 10_000\nfile_bytes = 100e6"
        );
        Scenario::parse(&text).unwrap().world(None).unwrap()
    }

    fn run(world: &World, optimiser: &mut dyn Optimiser) -> Summary {
        simulate(world, 1, optimiser, &mut |_| {}).summary()
    }

    #[test]
    fn a_link_that_many_connections_slow_down_is_used_well() {
        for seed in 0..8 {
            let world = world(seed, "");
            let knee = run(&world, &mut Knee::new(KneeSettings::default(), seed)).makespan_to_bound;
            let fts = run(&world, &mut Fts::new(FtsSettings::default())).makespan_to_bound;
            assert!(knee < 1.08 && fts > 3.0, "seed {seed}: {knee} and {fts}");
        }
    }

    #[test]
    fn shares_are_fair_whatever_the_round_trips_are() {
        let mut world = world(1, "");
        world.pipes.iter_mut().take(4).for_each(|plan| plan.rtt_weight = 3.0);
        let settings = KneeSettings { goal: Goal::Fair, ..KneeSettings::default() };
        let mut received = [0.0; 2];
        simulate(&world, 1, &mut Knee::new(settings, 1), &mut |period| {
            // After the start, and before the first request is complete.
            if (1_200.0..4_800.0).contains(&period.end_s) {
                for (pipe, measured) in period.pipes.iter().enumerate() {
                    received[pipe / 4] += measured.received_bytes;
                }
            }
        });
        assert!((received[0] / received[1] - 1.0).abs() < 0.05, "{received:?}");
    }

    fn pipe(failed: u64) -> PipeMeasurement {
        PipeMeasurement {
            connections: 10,
            received_bytes: 12e9,
            queued_files: 1_000,
            remaining_bytes: 100e9,
            ended: EndedFiles { finished: 100, retried: failed, ..EndedFiles::default() },
            ..PipeMeasurement::default()
        }
    }

    fn decide(knee: &mut Knee, end_s: f64, pipes: &[PipeMeasurement], path: Option<&[u32]>) -> Vec<Decision> {
        let mut of_pipes = Incidences::default();
        pipes.iter().for_each(|_| of_pipes.push(path.unwrap_or_default()));
        let paths = Paths::new(of_pipes, 1);
        let network = path.map(|_| NetworkView { capacities: &[1e9], paths: &paths });
        knee.decide(&Period { end_s, length_s: 60.0, pipes, network })
    }

    #[test]
    fn a_pipe_without_a_path_is_decided_by_the_rule_of_fts() {
        for path in [None, Some(&[][..])] {
            let mut knee = Knee::new(KneeSettings::default(), 1);
            let decided: Vec<_> = (1..4)
                .map(|period| decide(&mut knee, 60.0 * f64::from(period), &[pipe(0)], path)[0].connections)
                .collect();
            assert_eq!(decided, [66, 68, 70], "{path:?}");
        }
    }

    #[test]
    fn a_pipe_that_fails_gets_no_more_connections() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let mut last = 0;
        for period in 1..5 {
            let decision = decide(&mut knee, 60.0 * f64::from(period), &[pipe(0)], Some(&[0]))[0];
            assert!(decision.connections >= last && matches!(decision.reason, Reason::ShareOfLink { .. }));
            last = decision.connections;
        }
        let decision = decide(&mut knee, 300.0, &[pipe(100)], Some(&[0]))[0];
        assert!(decision.connections < last, "{decision:?} after {last}");
        let idle = decide(&mut knee, 360.0, &[PipeMeasurement::default()], Some(&[0]))[0];
        assert_eq!(idle, Decision { connections: 1, reason: Reason::Idle });
    }
}
