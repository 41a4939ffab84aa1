//! Experiments: which pipes share a link with pipes that are slow for no known reason.
//!
//! In each period, some large pipes, the candidates, use half of their connections, each in a random sequence of its own.
//! If a candidate uses the same link as a slow pipe, the efficiency of the slow pipe rises while the connections of the
//! candidate fall. [`parts`] separates the effects of the candidates.

use std::{array, collections::BTreeSet};

use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64Mcg;

use super::Residual;

/// Number of periods of an experiment, and of those in which a candidate uses half of its connections: a tenth of its rate.
const PERIODS: usize = 16;
const HALVED: usize = 3;

/// Maximum number of candidates, and minimum number of connections of each.
const MAX_CANDIDATES: usize = 64;
const MIN_CONNECTIONS: f64 = 4.0;

/// Minimum part of a candidate that shares a link, after the penalty, which takes about 0.1.
const MIN_PART: f64 = 0.05;

/// Number of passes over all candidates.
const SWEEPS: usize = 50;

/// Standard deviation of a measured efficiency, as a logarithm.
const NOISE: f64 = 0.05;

/// Minimum sum of squares of the logarithm of a candidate's connections: less is not the experiment, but noise.
const MIN_VARIATION: f64 = 0.1;

/// An experiment.
#[derive(Debug)]
pub(super) struct Experiment {
    slow: Vec<Series>,
    candidates: Vec<Series>,
    /// Number of periods that were recorded.
    periods: usize,
}

/// A pipe in the periods of an experiment.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) pipe: usize,
    /// Whether it uses half of its connections, for each period.
    is_halved: [bool; PERIODS],
    periods: [Option<Residual>; PERIODS],
}

impl Experiment {
    /// Starts an experiment; `None` without slow pipes or candidates.
    pub(super) fn new(slow: &[usize], residuals: &[Option<Residual>], random: &mut Pcg64Mcg) -> Option<Self> {
        if slow.is_empty() {
            return None;
        }
        // A random sample with the rates as weights (P. S. Efraimidis and P. G. Spirakis: "Weighted random sampling with a
        // reservoir", Information Processing Letters 97, 2006).
        let mut drawn = Vec::new();
        for (pipe, residual) in residuals.iter().enumerate() {
            if let Some(Residual { connections: MIN_CONNECTIONS.., rate, .. }) = residual {
                drawn.push((random.random_range(f64::EPSILON..1.0).ln() / rate, pipe));
            }
        }
        drawn.sort_by(|one, other| other.0.total_cmp(&one.0));
        drawn.truncate(MAX_CANDIDATES);
        let candidate = |(_, pipe): &(f64, usize)| {
            let mut is_halved = array::from_fn(|period| period < HALVED);
            is_halved.shuffle(random);
            Series { pipe: *pipe, is_halved, periods: [None; PERIODS] }
        };
        let candidates: Vec<_> = drawn.iter().map(candidate).collect();
        let never = |pipe: &usize| Series { pipe: *pipe, is_halved: [false; PERIODS], periods: [None; PERIODS] };
        (!candidates.is_empty()).then(|| Self { slow: slow.iter().map(never).collect(), candidates, periods: 0 })
    }

    /// Records the measurements of a period.
    pub(super) fn record(&mut self, residuals: &[Option<Residual>]) {
        for series in self.candidates.iter_mut().chain(&mut self.slow) {
            series.periods[self.periods] = residuals[series.pipe];
        }
        self.periods += 1;
    }

    pub(super) fn is_over(&self) -> bool {
        self.periods == PERIODS
    }

    pub(super) fn slow_pipes(&self) -> &[Series] {
        &self.slow
    }

    /// Returns the candidates that use half of their connections in the next period.
    pub(super) fn halved(&self) -> BTreeSet<usize> {
        self.candidates.iter().filter(|series| series.is_halved[self.periods]).map(|series| series.pipe).collect()
    }

    /// Returns the candidates that share a link with a slow pipe.
    pub(super) fn sharing_with(&self, slow: &Series) -> BTreeSet<usize> {
        let Some(efficiencies) = slow.centred(|residual| residual.efficiency) else { return BTreeSet::new() };
        let others = self.candidates.iter().filter(|series| series.pipe != slow.pipe);
        let measured =
            others.filter_map(|series| Some((series.pipe, series.centred(|residual| residual.connections.ln())?)));
        let (pipes, connections): (Vec<_>, Vec<_>) = measured.unzip();
        let parts = parts(&connections, efficiencies);
        pipes.into_iter().zip(parts).filter(|(_, part)| *part > MIN_PART).map(|(pipe, _)| pipe).collect()
    }

    /// Returns the bytes per second of pipes while a pipe was slow: then their link was full.
    pub(super) fn load_of(&self, pipes: &BTreeSet<usize>, slow: &Series, residuals: &[Option<Residual>]) -> f64 {
        let rate = |residual: &Option<Residual>| residual.map_or(0.0, |residual| residual.rate);
        let is_full = |period: &usize| slow.periods[*period].is_some_and(|residual| residual.is_slow());
        let full: Vec<_> = (0..PERIODS).filter(is_full).collect();
        let load = |pipe: &usize| match self.candidates.iter().chain(&self.slow).find(|series| series.pipe == *pipe) {
            Some(series) if !full.is_empty() => {
                full.iter().map(|period| rate(&series.periods[*period])).sum::<f64>() / full.len() as f64
            }
            _ => rate(&residuals[*pipe]),
        };
        pipes.iter().map(load).sum()
    }
}

impl Series {
    /// Returns a value of all periods without its mean; `None` if a period was not measured.
    fn centred(&self, value: impl Fn(Residual) -> f64) -> Option<[f64; PERIODS]> {
        let mut values = [0.0; PERIODS];
        for (centred, residual) in values.iter_mut().zip(self.periods) {
            *centred = value(residual?);
        }
        let mean = values.iter().sum::<f64>() / PERIODS as f64;
        Some(values.map(|value| value - mean))
    }
}

/// Returns the part of each candidate in the variation of the efficiency of a slow pipe: the numbers `part`, zero or more,
/// for which −Σ part · connections is nearest to the efficiencies, and few of which are positive. Both are logarithms
/// without their means.
///
/// This is the lasso (R. Tibshirani: "Regression shrinkage and selection via the lasso", Journal of the Royal Statistical
/// Society B 58, 1996) by coordinate descent. Its penalty exceeds the largest correlation of noise with any candidate.
fn parts(connections: &[[f64; PERIODS]], mut efficiencies: [f64; PERIODS]) -> Vec<f64> {
    let dot = |one: &[f64; PERIODS], other: &[f64; PERIODS]| one.iter().zip(other).map(|(x, y)| x * y).sum::<f64>();
    let largest_noise = NOISE * (2.0 * (connections.len() as f64 + 1.0).ln()).sqrt();
    let mut parts = vec![0.0; connections.len()];
    for _ in 0..SWEEPS {
        for (part, connections) in parts.iter_mut().zip(connections) {
            let square = dot(connections, connections);
            if square < MIN_VARIATION {
                continue;
            }
            let slope = -(dot(connections, &efficiencies) + largest_noise * square.sqrt()) / square;
            let change = (*part + slope).max(0.0) - *part;
            efficiencies.iter_mut().zip(connections).for_each(|(rest, connections)| *rest += change * connections);
            *part += change;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;

    use super::*;

    /// A slow pipe beside candidates that share parts of its link, with noise.
    fn experiment(shared: &[f64], seed: u64) -> Experiment {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let pipe = |connections, efficiency: f64| {
            Some(Residual { efficiency, is_explained: false, connections, rate: 20e6 * connections })
        };
        let mut pipes: Vec<_> = shared.iter().map(|_| pipe(40.0, 0.0)).collect();
        pipes.push(pipe(1.0, -1.0));
        let mut experiment = Experiment::new(&[shared.len()], &pipes, &mut random).unwrap();
        while !experiment.is_over() {
            let halved = experiment.halved();
            let mut residual = -1.0;
            for (number, part) in shared.iter().enumerate() {
                let factor = if halved.contains(&number) { 0.5 } else { 1.0 } * random.random_range(0.95..1.05);
                pipes[number] = pipe(40.0 * factor, 0.0);
                residual -= part * f64::ln(factor);
            }
            pipes[shared.len()] = pipe(1.0, residual + random.random_range(-0.05..0.05));
            experiment.record(&pipes);
        }
        experiment
    }

    #[test]
    fn the_pipes_on_the_link_of_a_slow_pipe_are_found() {
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..50 {
            let mut shared = [0.0; 20];
            (shared[3], shared[7], shared[12]) = (0.5, 0.25, 0.25);
            let experiment = experiment(&shared, seed);
            let slow = &experiment.slow[0];
            for pipe in experiment.sharing_with(slow) {
                *if shared[pipe] > 0.0 { &mut right } else { &mut wrong } += 1;
            }
            let load = experiment.load_of(&BTreeSet::from([3, 7, 12, 20]), slow, &[]);
            assert!((load / (3.0 * 40.0 * 20e6) - 0.93).abs() < 0.07, "seed {seed}: {load}");
        }
        assert!(right >= 115 && wrong <= 10, "{right} of 150 and {wrong}");
    }

    #[test]
    fn a_pipe_that_is_slow_for_another_reason_shares_no_link() {
        let found = |seed| {
            let experiment = experiment(&[0.0; 20], seed);
            experiment.sharing_with(&experiment.slow[0]).len()
        };
        assert!((0..50).map(found).sum::<usize>() <= 2);
    }

    #[test]
    fn a_pipe_that_pauses_in_an_experiment_is_left_out() {
        let mut experiment = experiment(&[0.5, 0.5], 1);
        experiment.candidates[0].periods[5] = None;
        let other = experiment.candidates[1].pipe;
        assert_eq!(experiment.sharing_with(&experiment.slow[0]), BTreeSet::from([other]));
        experiment.slow[0].periods[5] = None;
        assert_eq!(experiment.sharing_with(&experiment.slow[0]), BTreeSet::new());
    }

    proptest! {
        #[test]
        fn parts_are_finite(
            connections in prop::collection::vec(prop::array::uniform16(-10.0..10.0_f64), 0..70),
            efficiencies in prop::array::uniform16(-3.0..0.0_f64),
        ) {
            prop_assert!(parts(&connections, efficiencies).iter().all(|part| part.is_finite() && *part >= 0.0));
        }
    }
}
