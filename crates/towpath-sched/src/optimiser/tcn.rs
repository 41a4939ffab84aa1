//! The controllers of the talk "ALTO Integration and Implementation Supporting CERN Data Management" (IETF 116, 2023): the
//! number of connections follows the gradient of a utility.
//!
//! The utility of a period is U = Σ rate − η · Σ deficit² / R, all in bytes per second and averaged since the start of an
//! interval: a pipe that was behind its lower bound is owed bytes. The lower bounds are the fair shares of the network, if
//! it is known; R is their mean.
//!
//! - **Zero order**: the gradient is estimated from the last change z of all connections, as (U − U before) / |z|² · z.
//! - **First order**: the gradient of a model. A pipe has the part n / N of the capacity of its bottleneck, the resource
//!   with the least capacity per connection, or its measured rate if that is less.
//!
//! Both have momentum, random exploration, stochastic rounding and a projection to the permitted range. The constants are
//! those of the authors' public code, except for the step, which is a setting. It is a baseline: the model of the first
//! order does not know that connections cost goodput, and one number for all pipes says little about each.

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use rand_pcg::Pcg64Mcg;

use super::Optimiser;
use crate::{
    network::ResourceKind,
    period::{Decision, NetworkView, Period, PipeMeasurement, Reason, pipe_weights},
    shares::{Demand, max_min_with},
};

/// Part of the momentum that remains in each period.
const MOMENTUM: f64 = 0.9;

/// Weight η of the deficits.
const PENALTY: f64 = 2.0;

/// Probability of exploration: at the start, its decay in periods, and its minimum. It is 1 after a change of the pipes.
const EXPLORATION: f64 = 0.2;
const EXPLORATION_DECAY: f64 = 500.0;
const LEAST_EXPLORATION: f64 = 0.01;

/// Standard deviation of an exploration, in connections.
const PERTURBATION: f64 = 0.5;

/// Periods of an interval over which deficits are summed.
const INTERVAL: u32 = 10;

/// How the gradient is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the last change.
    Zero,
    /// From a model of the network. Pipes without a known path are taken as not bottlenecked.
    First,
}

/// Settings of the controllers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TcnSettings {
    /// How the gradient is found.
    pub order: Order,
    /// Change in connections per byte per second of gradient. The authors used 1e-9; ten times as much is faster.
    pub step: f64,
    /// Maximum number of connections of a pipe.
    pub max_connections: u32,
}

impl TcnSettings {
    /// Returns the settings with the step that was best in the published prototype's tests: ten times that of the authors.
    pub fn new(order: Order) -> Self {
        Self { order, step: 1e-8, max_connections: 1_000 }
    }
}

/// Returns the linear penalty of a resource rule: the use above its limit, 0 if there is none.
pub fn penalty(used: f64, limit: f64) -> f64 {
    (used - limit).max(0.0)
}

/// The controller.
#[derive(Debug)]
pub struct Tcn {
    settings: TcnSettings,
    pipes: Vec<PipeState>,
    last_utility: f64,
    /// Periods since the set of pipes changed, and in the interval.
    periods: u32,
    interval: u32,
    random: Pcg64Mcg,
}

#[derive(Debug, Clone, Copy, Default)]
struct PipeState {
    is_live: bool,
    connections: u32,
    /// Change of the connections before the last period.
    change: f64,
    momentum: f64,
    /// Bytes of the interval.
    received_bytes: f64,
}

impl Tcn {
    /// Creates the controller. `seed` decides about exploration and rounding.
    pub fn new(settings: TcnSettings, seed: u64) -> Self {
        let random = Pcg64Mcg::seed_from_u64(seed);
        Self { settings, pipes: Vec::new(), last_utility: 0.0, periods: 0, interval: 0, random }
    }

    /// Starts again if the set of live pipes changed. Returns whether it did.
    fn restart(&mut self, period: &Period<'_>) -> bool {
        let mut has_changed = self.pipes.len() != period.pipes.len();
        self.pipes.resize_with(period.pipes.len(), PipeState::default);
        for (state, measured) in self.pipes.iter_mut().zip(period.pipes) {
            has_changed |= state.is_live != measured.is_live();
            state.is_live = measured.is_live();
        }
        if has_changed {
            self.periods = 0;
            self.interval = 0;
            self.pipes.iter_mut().for_each(|state| state.momentum = 0.0);
        }
        has_changed
    }

    /// Adds the period to the interval. Returns the mean rates of the interval in bytes per second.
    fn mean_rates(&mut self, period: &Period<'_>) -> Vec<f64> {
        if self.interval == INTERVAL {
            self.interval = 0;
        }
        if self.interval == 0 {
            self.pipes.iter_mut().for_each(|state| state.received_bytes = 0.0);
        }
        self.interval += 1;
        let length_s = f64::from(self.interval) * period.length_s;
        let add = |(state, measured): (&mut PipeState, &PipeMeasurement)| {
            state.received_bytes += measured.received_bytes;
            state.received_bytes / length_s
        };
        self.pipes.iter_mut().zip(period.pipes).map(add).collect()
    }

    fn bounds(&self, period: &Period<'_>) -> Vec<f64> {
        let weights = pipe_weights(period.terms.iter(), |pipe| self.pipes[pipe].is_live);
        let demands: Vec<_> = weights.into_iter().map(Demand::unlimited).collect();
        let NetworkView { resources, paths, .. } = period.network;
        let used = |resource, _| if resources.kind(resource) == ResourceKind::Connections { 0.0 } else { 1.0 };
        let mut bounds = max_min_with(resources.capacities(), paths, &demands, used).rates;
        bounds.iter_mut().filter(|bound| bound.is_infinite()).for_each(|bound| *bound = 0.0);
        bounds
    }

    fn gradient(&mut self, period: &Period<'_>) -> Vec<f64> {
        let rates = self.mean_rates(period);
        let bounds = self.bounds(period);
        let live = self.pipes.iter().filter(|state| state.is_live).count().max(1) as f64;
        let reference = (bounds.iter().sum::<f64>() / live).max(1.0);
        let deficits: Vec<_> = bounds.iter().zip(&rates).map(|(bound, rate)| penalty(*bound, *rate)).collect();
        match self.settings.order {
            Order::Zero => {
                let penalty: f64 = deficits.iter().map(|deficit| PENALTY * deficit * deficit / reference).sum();
                self.estimated(rates.iter().sum::<f64>() - penalty)
            }
            Order::First => {
                let values: Vec<_> = deficits.iter().map(|deficit| 1.0 + 2.0 * PENALTY * deficit / reference).collect();
                modelled(period, &values)
            }
        }
    }

    fn estimated(&mut self, utility: f64) -> Vec<f64> {
        let square: f64 = self.pipes.iter().map(|state| state.change * state.change).sum();
        let difference = if self.periods > 1 && square > 0.0 { (utility - self.last_utility) / square } else { 0.0 };
        self.last_utility = utility;
        self.pipes.iter().map(|state| difference * state.change).collect()
    }
}

/// Returns the gradient of the model. `values` has the value of a byte for each pipe.
fn modelled(period: &Period<'_>, values: &[f64]) -> Vec<f64> {
    let NetworkView { resources, paths, .. } = period.network;
    let connections = |pipe: usize| f64::from(period.pipes[pipe].connections);
    let mut counts = vec![0.0; resources.len()];
    for pipe in 0..values.len() {
        let path = paths.resources_of(pipe).iter();
        path.for_each(|resource| counts[*resource as usize] += connections(pipe));
    }
    let per_connection = |resource: u32| resources.capacities()[resource as usize] / counts[resource as usize];
    let bottleneck = |pipe: usize| {
        let path = paths.resources_of(pipe).iter().copied();
        let in_bytes = path.filter(|resource| resources.kind(*resource) != ResourceKind::Connections);
        let least = in_bytes.min_by(|one, other| per_connection(*one).total_cmp(&per_connection(*other)))?;
        let rate = period.pipes[pipe].received_bytes / period.length_s;
        (per_connection(least) * connections(pipe) <= rate).then_some(least)
    };
    let bottlenecks: Vec<_> = (0..values.len()).map(bottleneck).collect();
    let mut means = vec![0.0; resources.len()];
    for (pipe, bottleneck) in bottlenecks.iter().enumerate() {
        if let Some(resource) = bottleneck {
            means[*resource as usize] += values[pipe] * connections(pipe) / counts[*resource as usize];
        }
    }
    let derivative = |(pipe, bottleneck): (usize, &Option<u32>)| match bottleneck {
        Some(resource) => per_connection(*resource) * (values[pipe] - means[*resource as usize]),
        None => values[pipe] * period.pipes[pipe].received_bytes / period.pipes[pipe].connection_s.max(period.length_s),
    };
    bottlenecks.iter().enumerate().map(derivative).collect()
}

impl Optimiser for Tcn {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        let has_changed = self.restart(period);
        let gradient = self.gradient(period);
        let decay = (-f64::from(self.periods) / EXPLORATION_DECAY).exp();
        let probability = if has_changed { 1.0 } else { (EXPLORATION * decay).max(LEAST_EXPLORATION) };
        self.periods += 1;
        let mut decisions = Vec::with_capacity(self.pipes.len());
        for (state, gradient) in self.pipes.iter_mut().zip(gradient) {
            if !state.is_live {
                state.connections = 0;
                decisions.push(Decision { connections: 1, reason: Reason::Idle });
                continue;
            }
            state.momentum = MOMENTUM * state.momentum + self.settings.step * gradient;
            let explored: f64 = match self.random.random_bool(probability) {
                true => StandardNormal.sample(&mut self.random),
                false => 0.0,
            };
            let wanted = f64::from(state.connections) + state.momentum + PERTURBATION * explored;
            let bounded = wanted.clamp(1.0, f64::from(self.settings.max_connections));
            let connections = bounded.floor() as u32 + u32::from(self.random.random_bool(bounded.fract()));
            state.change = f64::from(connections) - f64::from(state.connections);
            state.connections = connections;
            decisions.push(Decision { connections, reason: Reason::Gradient { bytes_per_s: gradient } });
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        network::{Incidences, Paths, Resources},
        period::PipeTerms,
        simulation::{Scenario, Summary, World, simulate},
    };

    /// The example of the talk: pipes of 3 and 9 Gbit/s over five links, limits of 5, 10 and 10 Gbit/s for the first three.
    #[test]
    fn penalties_are_those_of_the_talk() {
        let rates = [3.0, 9.0];
        let mut of_pipes = Incidences::default();
        of_pipes.push(&[0, 2, 3]);
        of_pipes.push(&[1, 2, 4]);
        let paths = Paths::new(of_pipes, 5);
        let used = |link: u32| paths.pipes_of(link).iter().map(|pipe| rates[*pipe as usize]).sum::<f64>();
        let penalties = [5.0, 10.0, 10.0].iter().enumerate().map(|(link, limit)| penalty(used(link as u32), *limit));
        assert_eq!(penalties.collect::<Vec<_>>(), [0.0, 0.0, 2.0]);
    }

    fn world(deterioration: u32) -> World {
        let text = format!(
            "[network]\ncapacity_bits_per_s = 10e9\ndeterioration = {deterioration}\n[[requests]]\npipes = 4\n
             files = 20_000\nfile_bytes = 100e6"
        );
        Scenario::parse(&text).unwrap().world(None).unwrap()
    }

    fn run(order: Order, deterioration: u32) -> Summary {
        simulate(&world(deterioration), 1, &mut Tcn::new(TcnSettings::new(order), 1), &mut |_| {}).summary()
    }

    #[test]
    fn the_first_order_fills_a_link_unless_connections_cost_goodput() {
        let harmless = run(Order::First, 0).makespan_to_bound;
        assert!(harmless < 1.2, "{harmless}");
        let harmful = run(Order::First, 1).makespan_to_bound;
        assert!(harmful > 2.0, "{harmful}");
    }

    #[test]
    fn the_zero_order_climbs() {
        let climbed = run(Order::Zero, 1);
        assert!(climbed.completed == 4 && climbed.makespan_to_bound < 3.0, "{climbed:?}");
    }

    /// Two pipes share a link of 100 bytes per second, with 2 and 3 connections; the second byte is worth twice the first.
    #[test]
    fn the_gradient_is_that_of_the_model() {
        let mut of_pipes = Incidences::default();
        (0..2).for_each(|_| of_pipes.push(&[0]));
        let paths = Paths::new(of_pipes, 1);
        let mut resources = Resources::default();
        resources.add("link".to_owned(), ResourceKind::Network, 100.0);
        let network = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: true };
        let pipe = |connections, received_bytes| PipeMeasurement {
            connections,
            connection_s: f64::from(connections),
            received_bytes,
            ..PipeMeasurement::default()
        };
        let (pipes, terms) = ([pipe(2, 40.0), pipe(3, 60.0)], [0, 1].map(PipeTerms::of_link));
        let period = Period { end_s: 1.0, length_s: 1.0, pipes: &pipes, terms: &terms, network };
        // d(T1 + 2 T2)/dn1 = 100 · 3/25 − 2 · 100 · 3/25, d/dn2 = 2 · 100 · 2/25 − 100 · 2/25.
        let gradient = modelled(&period, &[1.0, 2.0]);
        assert!((gradient[0] + 12.0).abs() < 1e-9 && (gradient[1] - 8.0).abs() < 1e-9, "{gradient:?}");
        // With less than its part, a pipe is not bottlenecked: its rate per connection.
        let pipes = [pipe(2, 10.0), pipe(3, 60.0)];
        let gradient = modelled(&Period { pipes: &pipes, ..period }, &[1.0, 1.0]);
        assert!((gradient[0] - 5.0).abs() < 1e-9, "{gradient:?}");
    }
}
