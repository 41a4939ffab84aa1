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
//! - **Hidden links** ([`hidden`]) are those that an incomplete path vector lacks. They are found by an experiment.
//! - **The trim of a pipe** makes up for unequal rates of connections at a bottleneck, as with unequal round-trip times.

mod hidden;
mod pipe;
mod resource;

use std::collections::BTreeSet;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use self::{
    hidden::{HiddenLinks, Residual},
    pipe::PipeState,
    resource::{Load, next_fill},
};
use super::Optimiser;
use crate::{
    network::{ResourceIndex, ResourceKind},
    period::{Decision, NetworkView, Period, PipeMeasurement, Reason, pipe_weights},
    shares::{Demand, Shares, by_project, max_min_with},
};

/// Part of the share that a pipe uses in its first periods, so that its connections are not contended while their rate
/// is learned.
const LEARNING_PART: f64 = 0.7;

/// Time in seconds over which the rates are averaged whose errors change trims; shorter periods count less. In it, the part
/// of a trim that remains, its change per error of a share, and its limit. Round-trip times of 1 : 3 need half of the
/// logarithm of 3.
const TRIM_S: f64 = 60.0;
const TRIM_MEMORY: f64 = 0.98;
const TRIM_GAIN: f64 = 0.3;
const LARGEST_TRIM: f64 = 0.6;

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
    hidden: HiddenLinks,
    random: Pcg64Mcg,
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
        Self {
            settings,
            pipes: Vec::new(),
            fills: Vec::new(),
            hidden: HiddenLinks::default(),
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    fn loads(&mut self, period: &Period<'_>) -> Vec<Load> {
        let mut loads = vec![Load::default(); period.network.resources.len()];
        for (pipe, (state, measured)) in self.pipes.iter_mut().zip(period.pipes).enumerate() {
            state.measure_first(measured);
            let offered = measured.receiving_s * state.connection_rate();
            for resource in period.network.paths.resources_of(pipe) {
                let load = &mut loads[*resource as usize];
                load.rate += measured.received_bytes / period.length_s;
                load.offered += offered / period.length_s;
            }
        }
        loads
    }

    /// Looks for hidden links, if there can be some. `known` is the number of resources that are not hidden.
    fn find_hidden_links(&mut self, period: &Period<'_>, known: usize, loads: &[Load]) {
        if period.network.is_complete {
            self.hidden.stop();
            return;
        }
        let residual = |(pipe, (state, measured)): (usize, (&PipeState, &PipeMeasurement))| {
            Some(Residual {
                efficiency: state.efficiency(measured)?,
                is_explained: is_path_full(&period.network, loads, pipe),
                connections: measured.receiving_s / period.length_s,
                rate: measured.received_bytes / period.length_s,
            })
        };
        let residuals: Vec<_> = self.pipes.iter().zip(period.pipes).enumerate().map(residual).collect();
        for link in self.hidden.learn(&loads[known..], &residuals, &mut self.random) {
            if let Some(fill) = self.fills.get_mut(known + link) {
                *fill = 1.0;
            }
            self.hidden.pipes_of(link).iter().for_each(|pipe| self.pipes[*pipe].forget_contention());
        }
    }

    fn learn(&mut self, period: &Period<'_>, weights: &[f64], halved: &BTreeSet<usize>, loads: &[Load]) {
        let resources = period.network.resources;
        let remaining_bytes: f64 = period.pipes.iter().map(|measured| measured.remaining_bytes).sum();
        let live = period.pipes.iter().filter(|measured| measured.is_live()).count();
        let mean_bytes = (remaining_bytes / live.max(1) as f64).max(1.0);
        let mean_weight = (weights.iter().sum::<f64>() / live.max(1) as f64).max(f64::MIN_POSITIVE);
        for (pipe, (state, measured)) in self.pipes.iter_mut().zip(period.pipes).enumerate() {
            let efficiencies = period.network.links_of(pipe).map(|link| loads[link as usize].efficiency());
            state.learn(&pipe::Observation {
                measured: *measured,
                length_s: period.length_s,
                lowest_efficiency: efficiencies.reduce(f64::min),
                is_full: is_path_full(&period.network, loads, pipe) || halved.contains(&pipe),
                backlog: measured.remaining_bytes / mean_bytes,
                weight: weights[pipe] / mean_weight,
            });
        }
        for (resource, (fill, load)) in self.fills.iter_mut().zip(loads).enumerate() {
            match resources.kind(resource as u32) {
                ResourceKind::Connections => {}
                kind => *fill = next_fill(*fill, load, resources.capacities()[resource], kind == ResourceKind::Network),
            }
        }
    }

    fn shares(&self, period: &Period<'_>, known: usize, weights: &[f64]) -> Shares {
        let network = &period.network;
        let demand = |(pipe, state): (usize, &PipeState)| {
            let links = match self.settings.sharing {
                Sharing::ByPathLength => network.links_of(pipe).filter(|link| (*link as usize) < known).count().max(1),
                Sharing::Equal => 1,
            };
            Demand { weight: weights[pipe] / links as f64, limit: state.limit() }
        };
        let demands: Vec<_> = self.pipes.iter().enumerate().map(demand).collect();
        let projects: Vec<_> = period.terms.iter().map(|terms| terms.project).collect();
        let capacities = network.resources.capacities().iter().zip(&self.fills);
        let capacities: Vec<_> = capacities.map(|(all, fill)| all * fill).collect();
        let used = |resource, pipe: usize| match network.resources.kind(resource) {
            // Nothing is known about the connections of a new pipe, which gets one.
            ResourceKind::Connections if self.pipes[pipe].is_new() => 0.0,
            ResourceKind::Connections => self.pipes[pipe].connections_per_rate(),
            _ => 1.0,
        };
        by_project(&demands, network.weights, &projects, |demands| {
            max_min_with(&capacities, network.paths, demands, used)
        })
    }

    /// Changes the trims of the pipes of each bottleneck, so that their mean is zero. Pipes whose connections are not
    /// known yet, or were halved, do not count.
    fn trim(&mut self, period: &Period<'_>, halved: &BTreeSet<usize>, shares: &Shares) -> Vec<Bottleneck> {
        let carry = |_| Bottleneck { carry: self.random.random_range(0.0..1.0), ..Bottleneck::default() };
        let mut bottlenecks: Vec<_> = (0..self.fills.len()).map(carry).collect();
        let newest = (period.length_s / TRIM_S).min(1.0);
        for (state, measured) in self.pipes.iter_mut().zip(period.pipes) {
            state.mean_rate += newest * (measured.received_bytes / period.length_s - state.mean_rate);
        }
        let rates: Vec<_> = self.pipes.iter().map(|state| state.mean_rate).collect();
        let rate = |pipe: usize| rates[pipe];
        let is_known = |pipe: usize| !self.pipes[pipe].is_learning() && !halved.contains(&pipe);
        let known = shares.bottlenecks.iter().enumerate().filter(|(pipe, _)| is_known(*pipe));
        let known: Vec<_> = known.filter_map(|(pipe, at)| Some((pipe, (*at)? as usize))).collect();
        for &(pipe, at) in &known {
            bottlenecks[at].rate += rate(pipe);
            bottlenecks[at].target += shares.rates[pipe];
        }
        for &(pipe, at) in &known {
            let (at, trim) = (&mut bottlenecks[at], &mut self.pipes[pipe].trim);
            if rate(pipe) > 0.0 && shares.rates[pipe] > 0.0 {
                let error = (shares.rates[pipe] / at.target / (rate(pipe) / at.rate)).ln();
                *trim = TRIM_MEMORY.powf(newest) * *trim + TRIM_GAIN * newest * error;
            }
            at.trim += *trim;
            at.pipes += 1.0;
        }
        for &(pipe, at) in &known {
            let (at, trim) = (&bottlenecks[at], &mut self.pipes[pipe].trim);
            *trim = (*trim - at.trim / at.pipes).clamp(-LARGEST_TRIM, LARGEST_TRIM);
        }
        bottlenecks
    }
}

/// Returns whether a link of the path has no free capacity. A rule explains no contention.
fn is_path_full(network: &NetworkView<'_>, loads: &[Load], pipe: usize) -> bool {
    let capacities = network.resources.capacities();
    network.links_of(pipe).any(|link| loads[link as usize].is_full(capacities[link as usize]))
}

/// Returns a number of connections, at least 1, and carries the rest over to the next pipe.
fn rounded(wanted: f64, carry: &mut f64) -> u32 {
    let connections = (wanted + *carry).floor().max(1.0);
    *carry = (*carry + wanted - connections).clamp(-1.0, 1.0);
    connections as u32
}

impl Optimiser for Knee {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        let known = period.network.resources.len();
        let mut period = *period;
        let with_hidden = self.hidden.added_to(&period.network);
        if let Some((resources, paths)) = &with_hidden {
            (period.network.resources, period.network.paths) = (resources, paths);
        }
        self.pipes.resize_with(period.pipes.len(), PipeState::default);
        self.fills.resize(period.network.resources.len(), 1.0);
        let loads = self.loads(&period);
        let weights = pipe_weights(period.terms.iter(), |pipe| period.pipes[pipe].is_live());
        let was_halved = self.hidden.halved();
        self.learn(&period, &weights, &was_halved, &loads);
        self.find_hidden_links(&period, known, &loads);
        let shares = self.shares(&period, known, &weights);
        let mut bottlenecks = self.trim(&period, &was_halved, &shares);
        let halved = self.hidden.halved();
        let capacities = period.network.resources.capacities();
        let is_contended = |link: ResourceIndex| loads[link as usize].is_contended(capacities[link as usize]);
        let mut decisions = Vec::with_capacity(self.pipes.len());
        for (pipe, (state, measured)) in self.pipes.iter_mut().zip(period.pipes).enumerate() {
            if !measured.is_live() {
                decisions.push(state.set(1, Reason::Idle));
                continue;
            }
            if state.is_new() {
                decisions.push(state.set(1, Reason::Started));
                continue;
            }
            let mut own_carry = self.random.random_range(0.0..1.0);
            let mut target = shares.rates[pipe];
            let (carry, mut reason) = match shares.bottlenecks[pipe] {
                Some(resource) => {
                    let efficiency = loads[resource as usize].efficiency();
                    let reason = match (resource as usize).checked_sub(known) {
                        None => Reason::ShareOfLink { resource, target, efficiency },
                        Some(link) => Reason::ShareOfHiddenLink { link, target, efficiency },
                    };
                    target *= state.trim.exp();
                    (&mut bottlenecks[resource as usize].carry, reason)
                }
                None => (&mut own_carry, state.reason()),
            };
            if period.network.is_complete && state.is_learning() {
                target *= LEARNING_PART;
            }
            let mut wanted = state.wanted(target, measured.granted, period.network.is_complete);
            if period.network.links_of(pipe).any(is_contended) {
                let whole = if was_halved.contains(&pipe) { 2 } else { 1 };
                wanted = wanted.min(f64::from(whole * measured.granted.max(1)));
            }
            if halved.contains(&pipe) {
                (wanted, reason) = (wanted / 2.0, Reason::Experiment);
            }
            let connections = rounded(wanted.min(f64::from(self.settings.max_connections)), carry);
            decisions.push(state.set(connections, reason));
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::{
        network::{Incidences, Paths, Resources},
        optimiser::{Fts, FtsSettings},
        period::{EndedFiles, NetworkView, PipeMeasurement, PipeTerms},
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

    /// Returns the bytes of the first four pipes / those of the others in a part of the time, before the first is done.
    fn ratio(world: &World, optimiser: &mut Knee, time_s: Range<f64>) -> f64 {
        let mut received = [0.0; 2];
        simulate(world, 1, optimiser, &mut |record| {
            if time_s.contains(&record.period.end_s) {
                for (pipe, bytes) in record.received_bytes.iter().enumerate() {
                    received[pipe / 4] += bytes;
                }
            }
        });
        received[0] / received[1]
    }

    #[test]
    fn shares_follow_the_weights_whatever_the_round_trips_are() {
        let ratio = |world: &World| ratio(world, &mut Knee::new(KneeSettings::default(), 1), 1_200.0..4_800.0);
        let mut world = world(1, "");
        world.pipes.iter_mut().take(4).for_each(|plan| plan.rtt_weight = 3.0);
        assert!((ratio(&world) - 1.0).abs() < 0.05, "{}", ratio(&world));
        world.pipes.iter_mut().skip(4).for_each(|plan| plan.terms.weight = 2.0);
        assert!((ratio(&world) - 0.5).abs() < 0.025, "{}", ratio(&world));
    }

    #[test]
    fn shares_of_a_hidden_link_follow_the_weights() {
        let ratio = |seed| {
            let mut world = world(seed, "paths = 'none'");
            world.requests.iter_mut().for_each(|request| request.files *= 5);
            world.pipes.iter_mut().skip(4).for_each(|plan| plan.rtt_weight = 3.0);
            world.pipes.iter_mut().take(4).for_each(|plan| plan.terms.weight = 2.0);
            ratio(&world, &mut Knee::new(KneeSettings::default(), seed), 12_000.0..20_000.0)
        };
        let ratios: Vec<_> = (0..8).map(ratio).collect();
        let close = ratios.iter().filter(|ratio| (*ratio / 2.0 - 1.0).abs() < 0.1).count();
        // Connections with the larger weight are slower at the same link, so that their pipes would get a tenth.
        assert!(close >= 5 && ratios.iter().all(|ratio| *ratio > 1.0), "{ratios:?}");
    }

    #[test]
    fn an_experiment_ends_when_the_network_is_known() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let mut of_pipes = Incidences::default();
        (0..2).for_each(|_| of_pipes.push(&[0]));
        let (resources, known, unknown) = (link(1e9), Paths::new(of_pipes, 1), Paths::unknown(2));
        let mut halved = |received_bytes, is_complete| {
            let paths = if is_complete { &known } else { &unknown };
            let network = NetworkView { resources: &resources, paths, weights: &[], is_complete };
            let pipes = [PipeMeasurement { received_bytes, ..pipe(1) }, pipe(40)];
            let terms = [0, 1].map(PipeTerms::of_link);
            let period = Period { end_s: 0.0, length_s: 60.0, pipes: &pipes, terms: &terms, network };
            knee.decide(&period).iter().any(|decision| decision.reason == Reason::Experiment)
        };
        assert!(!halved(1.2e9, false));
        assert!((0..20).any(|_| halved(0.3e9, false)), "the first pipe is slow");
        assert!(!(0..40).any(|_| halved(0.3e9, true)));
    }

    fn pipe(connections: u32) -> PipeMeasurement {
        PipeMeasurement {
            granted: connections,
            connections,
            connection_s: 60.0 * f64::from(connections),
            receiving_s: 60.0 * f64::from(connections),
            received_bytes: 1.2e9 * f64::from(connections),
            queued_files: 1_000,
            remaining_bytes: 100e9,
            ended: EndedFiles { finished: 100, ..EndedFiles::default() },
            ..PipeMeasurement::default()
        }
    }

    fn link(capacity: f64) -> Resources {
        let mut resources = Resources::default();
        resources.add("link".to_owned(), ResourceKind::Network, capacity);
        resources
    }

    fn decide(knee: &mut Knee, pipe: PipeMeasurement, path: Option<&[u32]>) -> Decision {
        let mut of_pipes = Incidences::default();
        of_pipes.push(path.unwrap_or_default());
        let paths = Paths::new(of_pipes, 1);
        let resources = link(1e9);
        let network = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: path.is_some() };
        let terms = &[PipeTerms::of_link(0)];
        knee.decide(&Period { end_s: 0.0, length_s: 60.0, pipes: &[pipe], terms, network })[0]
    }

    #[test]
    fn a_pipe_without_a_path_doubles_its_connections_until_they_are_contended() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let decided: Vec<_> = [1, 2, 4].map(|connections| decide(&mut knee, pipe(connections), None)).to_vec();
        let connections: Vec<_> = decided.iter().map(|decision| decision.connections).collect();
        assert_eq!((connections, decided[2].reason), (vec![2, 4, 8], Reason::NotContended));
        // Eight connections have no more than four had: half of them is 4 / √2 too many.
        let contended = PipeMeasurement { received_bytes: pipe(4).received_bytes, ..pipe(8) };
        let decision = decide(&mut knee, contended, None);
        assert!((5..=6).contains(&decision.connections), "{decision:?}");
        assert!(matches!(decision.reason, Reason::LimitedByContention { .. }), "{decision:?}");
        // The last files of the only pipe, and later ones.
        decide(&mut knee, PipeMeasurement { connections: 0, queued_files: 0, ..pipe(6) }, None);
        assert!((6..=12).contains(&decide(&mut knee, pipe(6), None).connections));
    }

    #[test]
    fn a_first_measurement_that_is_too_high_is_no_contention_later() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        decide(&mut knee, PipeMeasurement { received_bytes: 1.13 * pipe(1).received_bytes, ..pipe(1) }, None);
        for connections in [2, 4, 8, 16, 32, 64] {
            assert_eq!(decide(&mut knee, pipe(connections), None).reason, Reason::NotContended, "{connections}");
        }
    }

    #[test]
    fn a_capacity_of_zero_does_no_lasting_harm() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let mut of_pipes = Incidences::default();
        of_pipes.push(&[0]);
        let paths = Paths::new(of_pipes, 1);
        let mut last = 1;
        for capacity in [1e9, 1e9, 1e9, 0.0, 0.0, 1e9, 1e9] {
            let resources = link(capacity);
            let network = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: true };
            let (pipes, terms) = ([pipe(last)], [PipeTerms::of_link(0)]);
            let period = Period { end_s: 0.0, length_s: 60.0, pipes: &pipes, terms: &terms, network };
            last = knee.decide(&period)[0].connections;
            assert!(capacity > 0.0 || last == 1, "{last} connections for {capacity}");
        }
        assert!((45..=60).contains(&last), "{last}");
    }

    #[test]
    fn a_pipe_with_nothing_to_transfer_keeps_a_connection() {
        let mut knee = Knee::new(KneeSettings::default(), 1);
        let idle = decide(&mut knee, PipeMeasurement::default(), Some(&[0]));
        assert_eq!(idle, Decision { connections: 1, reason: Reason::Idle });
    }
}
