//! The calibration of intervals by the errors of past predictions.
//!
//! The interval has the quantiles of the errors, where a prior counts as a few errors. Its tails adapt: each miss widens
//! the interval, each hit narrows it a little, so that the coverage is near the target in the long run whatever the
//! distribution is (I. Gibbs, E. Candès: "Adaptive conformal inference under distribution shift", NeurIPS 2021).

use std::collections::VecDeque;

/// Part of the predictions that are wrong on each side of the interval.
const TAIL: f64 = 0.05;

/// Change of a tail after a miss. Fifty completions change it by its own size.
const GAIN: f64 = 0.02;

/// Range of the tails. The lowest one, which is negative, uses the largest error of all.
const TAIL_RANGE: (f64, f64) = (-0.05, 0.2);

/// Number of the most recent errors that count, and the part of its weight that an error keeps with each later one.
const MAX_ERRORS: usize = 512;
const MEMORY: f64 = 0.99;

/// Weight of the prior, in errors.
const PRIOR_WEIGHT: f64 = 8.0;

/// Standard deviations of the prior for predictions that are too high and too low. Requests of the future make predictions
/// too low more often.
const PRIOR_SPREAD: (f64, f64) = (0.3, 0.6);

/// Quantiles of a normal distribution in steps of 5 %.
const NORMAL: [f64; 20] = [
    -1.96, -1.44, -1.15, -0.93, -0.76, -0.6, -0.45, -0.32, -0.19, -0.06, 0.06, 0.19, 0.32, 0.45, 0.6, 0.76, 0.93, 1.15,
    1.44, 1.96,
];

/// The error of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PredictionError {
    /// Logarithm of actual / predicted.
    pub(super) log: f64,
    pub(super) weight: f64,
}

/// An interval of errors, as logarithms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Band {
    /// At most 0.
    pub(super) low: f64,
    /// At least 0.
    pub(super) high: f64,
}

/// On which side of its interval an actual value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Within,
    Above,
}

#[derive(Debug)]
pub(super) struct Calibration {
    errors: VecDeque<f64>,
    below: f64,
    above: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { errors: VecDeque::new(), below: TAIL, above: TAIL }
    }
}

impl Calibration {
    /// Records the logarithm of actual / predicted of a complete request.
    pub(super) fn record(&mut self, log: f64) {
        self.errors.push_back(log);
        if self.errors.len() > MAX_ERRORS {
            self.errors.pop_front();
        }
    }

    /// Adapts the tails.
    pub(super) fn adapt(&mut self, side: Side) {
        let adapted = |tail: f64, is_missed: bool| {
            (tail + GAIN * (TAIL - f64::from(u8::from(is_missed)))).clamp(TAIL_RANGE.0, TAIL_RANGE.1)
        };
        self.below = adapted(self.below, side == Side::Below);
        self.above = adapted(self.above, side == Side::Above);
    }

    /// Returns the interval. `provisional` has the errors of requests that are not complete; `doubt` multiplies the spread
    /// of the prior.
    pub(super) fn band(&self, provisional: Vec<PredictionError>, doubt: f64) -> Band {
        let mut errors = provisional;
        let mut weight = 1.0;
        for log in self.errors.iter().rev() {
            errors.push(PredictionError { log: *log, weight });
            weight *= MEMORY;
        }
        errors.extend(NORMAL.map(|deviation| {
            let spread = if deviation < 0.0 { PRIOR_SPREAD.0 } else { PRIOR_SPREAD.1 };
            PredictionError { log: doubt * spread * deviation, weight: PRIOR_WEIGHT / NORMAL.len() as f64 }
        }));
        errors.sort_by(|one, other| one.log.total_cmp(&other.log));
        let total: f64 = errors.iter().map(|error| error.weight).sum();
        // The next error is one more, as in split conformal prediction.
        let cut = |tail: f64| tail * (total + 1.0) - 0.5;
        let low = quantile(&errors, cut(self.below));
        let high = quantile(&errors, total - cut(self.above));
        Band { low: low.min(0.0), high: high.max(0.0) }
    }
}

/// Returns the value at a cumulative weight, interpolated between the middles of the sorted errors.
fn quantile(errors: &[PredictionError], weight: f64) -> f64 {
    let (mut sum, mut before) = (0.0, None);
    for error in errors {
        let middle = sum + error.weight / 2.0;
        if middle >= weight {
            return before.map_or(error.log, |(log, at)| log + (error.log - log) * (weight - at) / (middle - at));
        }
        sum += error.weight;
        before = Some((error.log, middle));
    }
    before.map_or(0.0, |(log, _)| log)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_distr::{Distribution as _, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Returns the coverage of 2,000 errors.
    fn coverage(error: impl Fn(f64, usize) -> f64, seed: u64) -> f64 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut calibration = Calibration::default();
        let mut covered = 0;
        for number in 0..2_000 {
            let band = calibration.band(Vec::new(), 1.0);
            let log = error(StandardNormal.sample(&mut random), number);
            let side = match () {
                () if log < band.low => Side::Below,
                () if log > band.high => Side::Above,
                () => Side::Within,
            };
            covered += u32::from(side == Side::Within);
            calibration.record(log);
            calibration.adapt(side);
        }
        f64::from(covered) / 2_000.0
    }

    #[test]
    fn the_coverage_is_near_the_target_for_any_distribution() {
        for seed in 0..4 {
            let shares = [
                coverage(|normal, _| 0.5 * normal, seed),
                coverage(|normal, _| 0.3 * normal.powi(3), seed),
                // The errors grow tenfold, and the predictions become too low.
                coverage(|normal, number| 0.001 * number as f64 * normal + 0.1, seed),
                coverage(|normal, number| if number < 1_000 { 0.1 * normal } else { 0.4 * normal }, seed),
            ];
            assert!(shares.iter().all(|share| (0.85..=0.95).contains(share)), "seed {seed}: {shares:?}");
        }
    }

    #[test]
    fn a_prior_holds_before_the_first_error() {
        let band = Calibration::default().band(Vec::new(), 1.0);
        assert!((-0.6..-0.3).contains(&band.low) && (0.6..1.2).contains(&band.high), "{band:?}");
        let doubtful = Calibration::default().band(Vec::new(), 2.0);
        assert!((doubtful.high / band.high - 2.0).abs() < 1e-9);
    }
}
