//! The quality of the first estimates of the time to complete in a simulation.

use serde::Serialize;

use super::{Outcome, PeriodRecord, World};
use crate::{
    completion::{CompletionForecaster, Estimate, Submission},
    optimiser::Sharing,
};

/// Maximum relative error of a prediction that counts for [`PredictionSummary::fogp_10`].
const GOOD: f64 = 0.1;

/// The first estimate of each request, from a [`CompletionForecaster`] that observes a simulation.
#[derive(Debug)]
pub struct Predictions<'a> {
    world: &'a World,
    forecaster: CompletionForecaster,
    first: Vec<Option<Estimate>>,
    /// Requests without an estimate.
    pending: Vec<u32>,
}

/// The figures of the first estimates. All of them are simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PredictionSummary {
    /// Requests with an estimate that were completed, or took longer than the interval.
    pub requests: usize,
    /// Part of them whose time was within the interval of 90 %; `None` without a request.
    pub coverage: Option<f64>,
    /// Fraction of good predictions: part of them with a relative error below 10 %.
    pub fogp_10: Option<f64>,
    /// Median of the upper end of the interval divided by the lower one.
    pub median_width: Option<f64>,
}

impl<'a> Predictions<'a> {
    /// Creates the observer for an optimiser that shares the network so.
    pub fn new(world: &'a World, sharing: Sharing) -> Self {
        let forecaster = CompletionForecaster::new(sharing);
        Self { world, forecaster, first: vec![None; world.requests.len()], pending: Vec::new() }
    }

    /// Observes a period. Requests are submitted at the times of their arrivals.
    pub fn observe(&mut self, record: &PeriodRecord<'_>) {
        for number in record.arrivals {
            let request = &self.world.requests[*number as usize];
            let submission = Submission {
                request: u64::from(*number),
                pipe: request.pipe,
                bytes: request.bytes(),
                at_s: request.arrives_s,
            };
            self.first[*number as usize] = self.forecaster.submit(&submission);
            if self.first[*number as usize].is_none() {
                self.pending.push(*number);
            }
        }
        for completion in record.completions {
            self.forecaster.complete(u64::from(completion.request), Some(completion.at_s));
        }
        self.forecaster.end_period(&record.period);
        let Self { forecaster, first, pending, .. } = self;
        pending.retain(|number| {
            first[*number as usize] = forecaster.estimate(u64::from(*number));
            first[*number as usize].is_none()
        });
    }

    /// Returns the figures after the simulation.
    pub fn summary(&self, outcome: &Outcome) -> PredictionSummary {
        let (mut covered, mut good, mut widths) = (0, 0, Vec::new());
        for ((first, actual_s), request) in self.first.iter().zip(&outcome.completions_s).zip(&self.world.requests) {
            let Some(Estimate { expected_s, earliest_s, latest_s }) = *first else { continue };
            let elapsed_s = outcome.ended_s - request.arrives_s;
            let actual_s = match actual_s {
                Some(actual_s) => *actual_s,
                None if elapsed_s > latest_s => f64::INFINITY,
                None => continue,
            };
            covered += usize::from((earliest_s..=latest_s).contains(&actual_s));
            good += usize::from((expected_s / actual_s - 1.0).abs() < GOOD);
            widths.push(latest_s / earliest_s);
        }
        widths.sort_by(f64::total_cmp);
        let requests = widths.len();
        let part = |count: usize| (requests > 0).then(|| count as f64 / requests as f64);
        let median_width = widths.get(requests / 2).copied();
        PredictionSummary { requests, coverage: part(covered), fogp_10: part(good), median_width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        optimiser::{Fixed, Knee, KneeSettings},
        simulation::{Scenario, simulate},
    };

    fn summary(text: &str, sharing: Sharing, optimiser: &mut dyn crate::optimiser::Optimiser) -> PredictionSummary {
        let world = Scenario::parse(text).unwrap().world(None).unwrap();
        let mut predictions = Predictions::new(&world, sharing);
        let outcome = simulate(&world, 1, optimiser, &mut |record| predictions.observe(record));
        predictions.summary(&outcome)
    }

    #[test]
    fn requests_that_share_a_link_are_predicted_well() {
        let text =
            "[network]\ncapacity_bits_per_s = 10e9\n[[requests]]\npipes = 6\nfiles = 10_000\nfiles_spread = 5_000\n
                    file_bytes = 100e6";
        let figures = summary(text, Sharing::Equal, &mut Fixed::new(50));
        assert_eq!((figures.requests, figures.coverage, figures.fogp_10), (6, Some(1.0), Some(1.0)));
        let text = text.to_owned() + "\n[view]\npaths = 'none'";
        assert_eq!(summary(&text, Sharing::Equal, &mut Fixed::new(50)).fogp_10, Some(1.0));
    }

    #[test]
    fn the_interval_covers_requests_that_share_with_later_ones() {
        let (mut covered, mut requests) = (0.0, 0);
        for seed in 0..8 {
            let text = format!(
                "seed = {seed}\nnoise = 0.05\n[network]\ncapacity_bits_per_s = 10e9\n[[requests]]\npipes = 60\nfiles = 4_000\n
                 files_spread = 2_000\nfile_bytes = 100e6\nevery_s = 400"
            );
            let figures = summary(&text, Sharing::ByPathLength, &mut Knee::new(KneeSettings::default(), seed));
            covered += figures.coverage.unwrap() * figures.requests as f64;
            requests += figures.requests;
        }
        let coverage = covered / f64::from(u32::try_from(requests).unwrap());
        assert!((0.85..0.95).contains(&coverage), "{coverage} of {requests}");
    }
}
