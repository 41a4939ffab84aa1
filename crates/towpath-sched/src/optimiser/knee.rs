//! `knee`: as many connections as can be used without contention, shared by the network if it is known.
//!
//! A connection has a maximum rate: that of its storages, or of its window. While the connections of a pipe have this
//! rate, more of them bring more goodput. Where they have less, they compete for something that is full, and more of them
//! bring nothing; in large numbers, they even lower the goodput of all. The knee is between the two.
//!
//! - **The pipe** ([`pipe`]): its efficiency is its rate / (connections × maximum rate of a connection). A pipe with a low
//!   efficiency gets fewer connections, by the square root of it; any other gets a few more. If goodput falls as 1 / N
//!   beyond the knee, one such step leads to the knee, wherever it is, for all pipes that share it. No network needs to
//!   be known.
//! - **The network**: with path vectors, the pipes get weighted max-min shares of the capacities. A pipe then needs
//!   share / maximum rate of a connection. So full links have as few connections as can fill them, and contention only
//!   occurs where the network is not known well, or links lose capacity by too many connections.
//! - **The fill of a resource**: the load that its pipes may offer, relative to its capacity. It makes up for errors of
//!   the maximum rates, and for a capacity that is not the true one. A full link is offered less in each period, until it
//!   is just full: otherwise a new pipe would measure a rate under contention.
//! - **The trim of a pipe** makes up for unequal rates of connections at a bottleneck, as with unequal round-trip times.

mod pipe;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use self::pipe::PipeState;
use super::Optimiser;
use crate::{
    network::Paths,
    period::{Decision, NetworkView, Period, PipeMeasurement, Reason},
    shares::{Demand, Shares, max_min},
};

/// Part of its capacity at which a resource is used as planned. More means that it is full.
const PLANNED: f64 = 0.985;

/// Part of its capacity above which a resource explains the contention of its pipes.
const NEARLY_FULL: f64 = 0.93;

/// Minimum efficiency of the pipes of a resource that is not full, even if it has more than its capacity.
const NOT_FULL: f64 = 0.95;

/// Minimum efficiency of the pipes of a resource for which a low load is due to too few connections.
const EFFICIENT: f64 = 0.9;

/// Maximum change of a fill in a period, its range, and its maximum if the capacity is exceeded by efficient pipes.
const FILL_STEP: f64 = 0.02;
const FILL_RANGE: (f64, f64) = (0.5, 1.3);
const HIGHEST_FILL: f64 = 2.0;

/// Part of the offered load of a resource that must be there before its fill changes.
const OFFERED: f64 = 0.93;

/// Part of the share that a pipe uses in its first periods, so that its connections are not contended while their rate
/// is learned.
const LEARNING_PART: f64 = 0.7;

/// Part of a trim that remains in each period, its change per error of a share, and its limit. Round-trip times of 1 : 3
/// need half of the logarithm of 3.
const TRIM_MEMORY: f64 = 0.98;
const TRIM_GAIN: f64 = 0.3;
const LARGEST_TRIM: f64 = 0.6;

/// Success below which the connections of a pipe are not increased.
const SUCCESS: f64 = 0.97;

/// How pipes without a rule share a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Weights by the inverse of the number of resources of the path: a pipe that uses many of them takes from many
    /// others. Near proportional fairness; the mean time to complete is shorter than with equal shares.
    ByPathLength,
    /// Equal shares, whatever the paths are.
    Equal,
}

/// Settings of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KneeSettings {
    /// How pipes share a network. The weight of a pipe is multiplied by that of its rule.
    pub sharing: Sharing,
    /// Maximum number of connections of a pipe.
    pub max_connections: u32,
}

impl Default for KneeSettings {
    fn default() -> Self {
        Self { sharing: Sharing::ByPathLength, max_connections: 1_000 }
    }
}

/// The optimiser. Pipes and resources must keep their indices.
#[derive(Debug)]
pub struct Knee {
    settings: KneeSettings,
    pipes: Vec<PipeState>,
    /// For each resource the offered load / the capacity.
    fills: Vec<f64>,
    random: Pcg64Mcg,
}

/// The load of a resource in a period.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Bytes per second.
    rate: f64,
    /// The same if no connection was contended.
    offered: f64,
}

impl Load {
    fn efficiency(&self) -> f64 {
        if self.offered > 0.0 { self.rate / self.offered } else { 1.0 }
    }
}

/// The pipes that have their bottleneck at a resource.
#[derive(Debug, Clone, Copy, Default)]
struct Bottleneck {
    rate: f64,
    target: f64,
    trim: f64,
    pipes: f64,
    /// What rounding has left over, in connections.
    carry: f64,
}

impl Knee {
    /// Creates the optimiser. `seed` decides about the rounding.
    pub fn new(settings: KneeSettings, seed: u64) -> Self {
        Self { settings, pipes: Vec::new(), fills: Vec::new(), random: Pcg64Mcg::seed_from_u64(seed) }
    }

    fn loads(&mut self, period: &Period<'_>, network: &NetworkView<'_>) -> Vec<Load> {
        let mut loads = vec![Load::default(); network.capacities.len()];
        for (pipe, (state, measured)) in self.pipes.iter_mut().zip(period.pipes).enumerate() {
            state.measure_first(measured);
            let (rate, offered) = (measured.received_bytes, measured.connection_s * state.connection_rate());
            for resource in network.paths.resources_of(pipe) {
                let load = &mut loads[*resource as usize];
                load.rate += rate / period.length_s;
                load.offered += offered / period.length_s;
            }
        }
        loads
    }

    fn learn(&mut self, period: &Period<'_>, network: &NetworkView<'_>, loads: &[Load]) {
        let remaining_bytes: f64 = period.pipes.iter().map(|measured| measured.remaining_bytes).sum();
        let live = period.pipes.iter().filter(|measured| measured.is_live()).count();
        let mean_bytes = (remaining_bytes / live.max(1) as f64).max(1.0);
        for (pipe, (state, measured)) in self.pipes.iter_mut().zip(period.pipes).enumerate() {
            // A rule explains no contention.
            let path = network.paths.resources_of(pipe).iter().map(|resource| *resource as usize);
            let path = path.filter(|resource| *resource < network.first_rule);
            let is_full = |resource: usize| loads[resource].rate >= NEARLY_FULL * network.capacities[resource];
            state.learn(&pipe::Observation {
                measured: *measured,
                length_s: period.length_s,
                lowest_efficiency: path.clone().map(|resource| loads[resource].efficiency()).reduce(f64::min),
                is_full: path.clone().any(is_full),
                backlog: measured.remaining_bytes / mean_bytes,
            });
        }
        for (resource, (fill, load)) in self.fills.iter_mut().zip(loads).enumerate() {
            let capacity = network.capacities[resource];
            if load.offered > OFFERED * *fill * capacity {
                let may_exceed = resource < network.first_rule;
                *fill = next_fill(*fill, load.rate / capacity, load.efficiency(), may_exceed);
            } else if load.offered == 0.0 {
                *fill = 1.0;
            }
        }
    }

    fn shares(&self, period: &Period<'_>, network: &NetworkView<'_>) -> Shares {
        let demand = |(pipe, state): (usize, &PipeState)| {
            let path = network.paths.resources_of(pipe).iter();
            let resources = path.filter(|resource| (**resource as usize) < network.first_rule).count().max(1) as f64;
            let weight = match self.settings.sharing {
                _ if !period.pipes[pipe].is_live() => 0.0,
                Sharing::ByPathLength => period.terms[pipe].weight / resources,
                Sharing::Equal => period.terms[pipe].weight,
            };
            Demand { weight, limit: state.limit() }
        };
        let demands: Vec<_> = self.pipes.iter().enumerate().map(demand).collect();
        let capacities: Vec<_> = network.capacities.iter().zip(&self.fills).map(|(all, fill)| all * fill).collect();
        max_min(&capacities, network.paths, &demands)
    }

    /// Changes the trims of the pipes of each bottleneck, so that their mean is zero.
    fn trim(&mut self, period: &Period<'_>, shares: &Shares) -> Vec<Bottleneck> {
        let carry = |_| Bottleneck { carry: self.random.random_range(0.0..1.0), ..Bottleneck::default() };
        let mut bottlenecks: Vec<_> = (0..self.fills.len()).map(carry).collect();
        let rate = |pipe: usize| period.pipes[pipe].received_bytes / period.length_s;
        let with_bottleneck =
            || shares.bottlenecks.iter().enumerate().filter_map(|(pipe, at)| Some((pipe, (*at)? as usize)));
        for (pipe, at) in with_bottleneck() {
            bottlenecks[at].rate += rate(pipe);
            bottlenecks[at].target += shares.rates[pipe];
        }
        for (pipe, at) in with_bottleneck() {
            let (at, trim) = (&mut bottlenecks[at], &mut self.pipes[pipe].trim);
            if rate(pipe) > 0.0 && shares.rates[pipe] > 0.0 {
                let error = (shares.rates[pipe] / at.target / (rate(pipe) / at.rate)).ln();
                *trim = TRIM_MEMORY * *trim + TRIM_GAIN * error;
            }
            at.trim += *trim;
            at.pipes += 1.0;
        }
        for (pipe, at) in with_bottleneck() {
            let (at, trim) = (&bottlenecks[at], &mut self.pipes[pipe].trim);
            *trim = (*trim - at.trim / at.pipes).clamp(-LARGEST_TRIM, LARGEST_TRIM);
        }
        bottlenecks
    }
}

/// Returns the next fill of a resource that had this part of its capacity in use. `may_exceed` says whether the capacity may
/// be too low.
fn next_fill(fill: f64, part: f64, efficiency: f64, may_exceed: bool) -> f64 {
    let (lowest, highest) = FILL_RANGE;
    match () {
        () if efficiency > NOT_FULL && part >= PLANNED && may_exceed => (fill * (1.0 + FILL_STEP)).min(HIGHEST_FILL),
        () if part >= PLANNED => (fill * (1.0 - FILL_STEP)).max(lowest),
        () if efficiency > EFFICIENT && fill < highest => fill * (PLANNED / part).min(1.0 + FILL_STEP),
        () => fill,
    }
}

/// Returns a number of connections, at least 1, and carries the rest over to the next pipe.
fn rounded(wanted: f64, carry: &mut f64) -> u32 {
    let connections = (wanted + *carry).floor().max(1.0);
    *carry = (*carry + wanted - connections).clamp(-1.0, 1.0);
    connections as u32
}

/// Returns the success of a pipe in percent, rounded down, if it is too low for an increase.
fn low_success(measured: &PipeMeasurement) -> Option<u8> {
    let (finished, attempts) = (measured.ended.finished, measured.ended.attempts());
    let is_low = attempts > 0 && (finished as f64) < SUCCESS * attempts as f64;
    is_low.then(|| u8::try_from(100 * finished / attempts).unwrap_or(100))
}

impl Optimiser for Knee {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        let unknown = Paths::unknown(period.pipes.len());
        let network = period.network_or(&unknown);
        self.pipes.resize_with(period.pipes.len(), PipeState::default);
        self.fills.resize(network.capacities.len(), 1.0);
        let loads = self.loads(period, &network);
        self.learn(period, &network, &loads);
        let shares = self.shares(period, &network);
        let mut bottlenecks = self.trim(period, &shares);
        let mut decide = |(pipe, state): (usize, &mut PipeState)| {
            let measured = &period.pipes[pipe];
            if !measured.is_live() {
                return state.set(1, Reason::Idle);
            }
            if state.is_new() {
                return state.set(1, Reason::Started);
            }
            let mut own_carry = self.random.random_range(0.0..1.0);
            let mut target = shares.rates[pipe];
            let (carry, reason) = match shares.bottlenecks[pipe] {
                Some(resource) => {
                    let efficiency = loads[resource as usize].efficiency();
                    let reason = Reason::ShareOfLink { resource, target, efficiency };
                    target *= state.trim.exp();
                    (&mut bottlenecks[resource as usize].carry, reason)
                }
                None => (&mut own_carry, state.reason()),
            };
            if network.is_complete && state.is_learning() {
                target *= LEARNING_PART;
            }
            let wanted = state.wanted(target, network.is_complete);
            let connections = rounded(wanted.min(f64::from(self.settings.max_connections)), carry);
            match low_success(measured) {
                Some(percent) if connections >= state.connections() => {
                    state.set(state.connections().saturating_sub(1).max(1), Reason::SuccessTooLow(percent))
                }
                _ => state.set(connections, reason),
            }
        };
        self.pipes.iter_mut().enumerate().map(&mut decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        network::Incidences,
        optimiser::{Fts, FtsSettings},
        period::{EndedFiles, PipeTerms},
        simulation::{Scenario, Summary, World, simulate},
    };

    /// Eight pipes over one link, which loses goodput by more than 100 connections.
    fn world(seed: u64, view: &str) -> World {
        let text = format!(
            "seed = {seed}\nnoise = 0.05\n[view]\n{view}\n[network]\ncapacity_bits_per_s = 10e9\ndeterioration = 1\n
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
            assert!(knee < 1.06 && fts > 3.0, "seed {seed}: {knee} and {fts}");
        }
    }

    #[test]
    fn the_knee_is_found_without_knowing_the_network() {
        for seed in 0..8 {
            for (view, highest) in
                [("paths = 'none'", 1.3), ("capacity_factor = 0.7", 1.25), ("capacity_factor = 1.5", 1.25)]
            {
                let world = world(seed, view);
                let knee = run(&world, &mut Knee::new(KneeSettings::default(), seed)).makespan_to_bound;
                assert!(knee < highest, "seed {seed}, {view}: {knee}");
            }
        }
    }

    /// Returns the bytes of the first four pipes / those of the others, after the start and before the first is done.
    fn ratio(world: &World) -> f64 {
        let mut received = [0.0; 2];
        simulate(world, 1, &mut Knee::new(KneeSettings::default(), 1), &mut |period| {
            if (1_200.0..4_800.0).contains(&period.end_s) {
                for (pipe, measured) in period.pipes.iter().enumerate() {
                    received[pipe / 4] += measured.received_bytes;
                }
            }
        });
        received[0] / received[1]
    }

    #[test]
    fn shares_follow_the_weights_whatever_the_round_trips_are() {
        let mut world = world(1, "");
        world.pipes.iter_mut().take(4).for_each(|plan| plan.rtt_weight = 3.0);
        assert!((ratio(&world) - 1.0).abs() < 0.05, "{}", ratio(&world));
        world.pipes.iter_mut().skip(4).for_each(|plan| plan.terms.weight = 2.0);
        assert!((ratio(&world) - 0.5).abs() < 0.025, "{}", ratio(&world));
    }

    fn pipe(connections: u32, failed: u64) -> PipeMeasurement {
        PipeMeasurement {
            connections,
            connection_s: 60.0 * f64::from(connections),
            received_bytes: 1.2e9 * f64::from(connections),
            queued_files: 1_000,
            remaining_bytes: 100e9,
            ended: EndedFiles { finished: 100, retried: failed, ..EndedFiles::default() },
            ..PipeMeasurement::default()
        }
    }

    fn decide(knee: &mut Knee, pipe: PipeMeasurement, path: Option<&[u32]>) -> Decision {
        let mut of_pipes = Incidences::default();
        of_pipes.push(path.unwrap_or_default());
        let paths = Paths::new(of_pipes, 1);
        let network = path.map(|_| NetworkView { capacities: &[1e9], paths: &paths, first_rule: 1, is_complete: true });
        let terms = &[PipeTerms::default()];
        knee.decide(&Period { end_s: 0.0, length_s: 60.0, pipes: &[pipe], terms, network })[0]
    }

    #[test]
    fn a_pipe_without_a_path_doubles_its_connections_until_they_are_contended() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let decided: Vec<_> = [1, 2, 4].map(|connections| decide(&mut knee, pipe(connections, 0), None)).to_vec();
        let connections: Vec<_> = decided.iter().map(|decision| decision.connections).collect();
        assert_eq!((connections, decided[2].reason), (vec![2, 4, 8], Reason::NotContended));
        // Eight connections have no more than four had: half of them is 4 / √2 too many.
        let contended = PipeMeasurement { received_bytes: pipe(4, 0).received_bytes, ..pipe(8, 0) };
        let decision = decide(&mut knee, contended, None);
        assert!((5..=6).contains(&decision.connections), "{decision:?}");
        assert!(matches!(decision.reason, Reason::LimitedByContention { .. }), "{decision:?}");
    }

    #[test]
    fn a_capacity_of_zero_does_no_lasting_harm() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let mut of_pipes = Incidences::default();
        of_pipes.push(&[0]);
        let paths = Paths::new(of_pipes, 1);
        let mut last = 1;
        for capacity in [1e9, 1e9, 1e9, 0.0, 0.0, 1e9, 1e9] {
            let capacities = [capacity];
            let network = NetworkView { capacities: &capacities, paths: &paths, first_rule: 1, is_complete: true };
            let (pipes, terms) = ([pipe(last, 0)], [PipeTerms::default()]);
            let period = Period { end_s: 0.0, length_s: 60.0, pipes: &pipes, terms: &terms, network: Some(network) };
            last = knee.decide(&period)[0].connections;
            assert!(capacity > 0.0 || last == 1, "{last} connections for {capacity}");
        }
        assert!((45..=60).contains(&last), "{last}");
    }

    #[test]
    fn a_pipe_that_fails_gets_no_more_connections() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let mut last = decide(&mut knee, pipe(1, 0), Some(&[0]));
        for _ in 1..5 {
            let decision = decide(&mut knee, pipe(last.connections, 0), Some(&[0]));
            assert!(decision.connections >= last.connections, "{decision:?}");
            assert!(matches!(decision.reason, Reason::ShareOfLink { .. }), "{decision:?}");
            last = decision;
        }
        let decision = decide(&mut knee, pipe(last.connections, 100), Some(&[0]));
        assert_eq!((decision.connections, decision.reason), (last.connections - 1, Reason::SuccessTooLow(50)));
        let idle = decide(&mut knee, PipeMeasurement::default(), Some(&[0]));
        assert_eq!(idle, Decision { connections: 1, reason: Reason::Idle });
    }
}
