//! Experiments: which pipes share a link with others that are slow for no known reason, the cases.
//!
//! In each period, some large pipes, the suspects, use half of their connections, each in a random sequence of its own. If
//! a suspect uses the same link as a case, the residuals of the case, the logarithms of its efficiency, rise while the
//! connections of the suspect fall. [`parts`] tells the suspects apart.

use std::{array, collections::BTreeSet};

use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64Mcg;

use super::{Residual, SLOW};

/// Periods of an experiment, and those in which a suspect uses half of its connections.
const PERIODS: usize = 16;
const HALVED: usize = 3;

/// Maximum number of suspects, and minimum number of connections of each.
const MAX_SUSPECTS: usize = 64;
const MIN_CONNECTIONS: f64 = 4.0;

/// Minimum part of a suspect in the load of a link.
const SMALLEST_PART: f64 = 0.08;

/// Number of passes over all suspects.
const SWEEPS: usize = 50;

/// Error of a measured residual.
const NOISE: f64 = 0.05;

/// Minimum sum of squares of the logarithm of a suspect's connections: two periods with 20 % fewer.
const LEAST_VARIATION: f64 = 0.1;

/// An experiment.
#[derive(Debug)]
pub(super) struct Experiment {
    pub(super) cases: Vec<Series>,
    suspects: Vec<Suspect>,
    /// Number of periods that were recorded.
    periods: usize,
}

/// A pipe in the periods of an experiment.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) pipe: usize,
    periods: [Option<Residual>; PERIODS],
}

#[derive(Debug)]
struct Suspect {
    series: Series,
    /// Whether it uses half of its connections, for each period.
    is_halved: [bool; PERIODS],
}

impl Experiment {
    /// Starts an experiment; `None` without cases or suspects.
    pub(super) fn new(cases: Vec<usize>, residuals: &[Option<Residual>], random: &mut Pcg64Mcg) -> Option<Self> {
        if cases.is_empty() {
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
        drawn.truncate(MAX_SUSPECTS);
        let suspect = |(_, pipe): &(f64, usize)| {
            let mut is_halved = array::from_fn(|period| period < HALVED);
            is_halved.shuffle(random);
            Suspect { series: Series::new(*pipe), is_halved }
        };
        let suspects: Vec<_> = drawn.iter().map(suspect).collect();
        let cases = cases.into_iter().map(Series::new).collect();
        (!suspects.is_empty()).then_some(Self { cases, suspects, periods: 0 })
    }

    pub(super) fn record(&mut self, residuals: &[Option<Residual>]) {
        let suspects = self.suspects.iter_mut().map(|suspect| &mut suspect.series);
        for series in suspects.chain(&mut self.cases) {
            series.periods[self.periods] = residuals[series.pipe];
        }
        self.periods += 1;
    }

    pub(super) fn is_over(&self) -> bool {
        self.periods == PERIODS
    }

    /// Returns the suspects that use half of their connections in the next period.
    pub(super) fn halved(&self) -> BTreeSet<usize> {
        let halved = self.suspects.iter().filter(|suspect| suspect.is_halved[self.periods]);
        halved.map(|suspect| suspect.series.pipe).collect()
    }

    /// Returns the suspects that share a link with a case.
    pub(super) fn suspects_of(&self, case: &Series) -> BTreeSet<usize> {
        let Some(residuals) = case.centred(|residual| residual.efficiency) else { return BTreeSet::new() };
        let others = self.suspects.iter().map(|suspect| &suspect.series).filter(|series| series.pipe != case.pipe);
        let measured =
            others.filter_map(|series| Some((series.pipe, series.centred(|residual| residual.connections.ln())?)));
        let (pipes, connections): (Vec<_>, Vec<_>) = measured.unzip();
        let parts = parts(&connections, residuals);
        pipes.into_iter().zip(parts).filter(|(_, part)| *part > SMALLEST_PART).map(|(pipe, _)| pipe).collect()
    }

    /// Returns the bytes per second of pipes while a case was slow: then their link was full.
    pub(super) fn load_of(&self, pipes: &BTreeSet<usize>, case: &Series, residuals: &[Option<Residual>]) -> f64 {
        let rate = |residual: &Option<Residual>| residual.map_or(0.0, |residual| residual.rate);
        let is_slow = |residual: &Option<Residual>| residual.is_some_and(|residual| residual.efficiency < SLOW);
        let full: Vec<_> = (0..PERIODS).filter(|period| is_slow(&case.periods[*period])).collect();
        let load = |pipe: &usize| {
            let mut all = self.suspects.iter().map(|suspect| &suspect.series).chain(&self.cases);
            match all.find(|series| series.pipe == *pipe) {
                Some(series) if !full.is_empty() => {
                    full.iter().map(|period| rate(&series.periods[*period])).sum::<f64>() / full.len() as f64
                }
                _ => rate(&residuals[*pipe]),
            }
        };
        pipes.iter().map(load).sum()
    }
}

impl Series {
    fn new(pipe: usize) -> Self {
        Self { pipe, periods: [None; PERIODS] }
    }

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

/// Returns the part of each suspect in the load of the link of a case: the numbers `part`, zero or more, for which −Σ part ·
/// connections is nearest to the residuals, and few of which are positive. `connections` has the logarithms of each
/// suspect's connections, without their mean.
///
/// This is the lasso (R. Tibshirani: "Regression shrinkage and selection via the lasso", Journal of the Royal Statistical
/// Society B 58, 1996) by coordinate descent. Its penalty exceeds the largest correlation of noise with any suspect.
fn parts(connections: &[[f64; PERIODS]], mut residuals: [f64; PERIODS]) -> Vec<f64> {
    let dot = |one: &[f64; PERIODS], other: &[f64; PERIODS]| one.iter().zip(other).map(|(x, y)| x * y).sum::<f64>();
    let largest_noise = NOISE * (2.0 * (connections.len() as f64 + 1.0).ln()).sqrt();
    let mut parts = vec![0.0; connections.len()];
    for _ in 0..SWEEPS {
        for (part, connections) in parts.iter_mut().zip(connections) {
            let square = dot(connections, connections);
            if square < LEAST_VARIATION {
                continue;
            }
            let slope = -(dot(connections, &residuals) + largest_noise * square.sqrt()) / square;
            let change = (*part + slope).max(0.0) - *part;
            residuals.iter_mut().zip(connections).for_each(|(rest, connections)| *rest += change * connections);
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

    /// A case beside suspects that share parts of its link, with noise.
    fn experiment(shared: &[f64], seed: u64) -> Experiment {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let pipe = |connections, efficiency: f64| Some(Residual { efficiency, connections, rate: 20e6 * connections });
        let mut pipes: Vec<_> = shared.iter().map(|_| pipe(40.0, 0.0)).collect();
        pipes.push(pipe(1.0, -1.0));
        let mut experiment = Experiment::new(vec![shared.len()], &pipes, &mut random).unwrap();
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
    fn the_suspects_on_the_link_of_a_slow_pipe_are_told_from_the_others() {
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..50 {
            let mut shared = [0.0; 20];
            (shared[3], shared[7], shared[12]) = (0.5, 0.25, 0.25);
            let experiment = experiment(&shared, seed);
            let case = &experiment.cases[0];
            for pipe in experiment.suspects_of(case) {
                *if shared[pipe] > 0.0 { &mut right } else { &mut wrong } += 1;
            }
            let load = experiment.load_of(&BTreeSet::from([3, 7, 12, 20]), case, &[]);
            assert!((load / (3.0 * 40.0 * 20e6) - 0.93).abs() < 0.07, "seed {seed}: {load}");
        }
        assert!(right >= 115 && wrong <= 5, "{right} of 150 and {wrong}");
    }

    #[test]
    fn a_pipe_that_is_slow_for_another_reason_has_no_suspects() {
        let found = |seed| {
            let experiment = experiment(&[0.0; 20], seed);
            experiment.suspects_of(&experiment.cases[0]).len()
        };
        assert!((0..50).map(found).sum::<usize>() <= 2);
    }

    #[test]
    fn a_pipe_that_pauses_in_an_experiment_is_left_out() {
        let mut experiment = experiment(&[0.5, 0.5], 1);
        experiment.suspects[0].series.periods[5] = None;
        let other = experiment.suspects[1].series.pipe;
        assert_eq!(experiment.suspects_of(&experiment.cases[0]), BTreeSet::from([other]));
        experiment.cases[0].periods[5] = None;
        assert_eq!(experiment.suspects_of(&experiment.cases[0]), BTreeSet::new());
    }

    proptest! {
        #[test]
        fn parts_are_finite(
            connections in prop::collection::vec(prop::array::uniform16(-10.0..10.0_f64), 0..70),
            residuals in prop::array::uniform16(-3.0..0.0_f64),
        ) {
            prop_assert!(parts(&connections, residuals).iter().all(|part| part.is_finite() && *part >= 0.0));
        }
    }
}
