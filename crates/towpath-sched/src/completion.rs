//! Time to complete of requests, with an interval of 90 %.
//!
//! A [`CompletionForecaster`] is driven once per period by a service. The life of a request:
//!
//! 1. [`CompletionForecaster::submit`] returns its first [`Estimate`]. Until the rates have settled for the first time,
//!    it returns none, and the first estimate follows at the end of a period.
//! 2. [`CompletionForecaster::end_period`] updates all estimates ([`CompletionForecaster::estimate`]).
//! 3. [`CompletionForecaster::complete`] compares the first estimate with the actual time.
//!
//! The expected time is a fluid forecast ([`fluid`]): all open requests progress with max-min shares of the known network,
//! multiplied by the measured rate / share of their pipe. Without a network, the pipes share the total rate as a single
//! link in proportion to their rates. Requests of the future are not known, so the expected time is that without them.
//! The interval makes up for them, and for all other errors: it has the quantiles of past errors ([`calibration`]). The
//! errors of open requests count, too, by the difference between their first forecast and the present one: otherwise
//! short requests, which complete first, would be the only ones at the start.
//!
//! The cost of an update is at most 96 computations of the shares of the pipes with open requests.

mod calibration;
mod fluid;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::{
    calibration::{Band, Calibration, PredictionError, Side},
    fluid::Flow,
    state::{MATURE_PERIODS, Network, PipeState, newest},
};
use crate::{
    optimiser::Sharing,
    period::{Period, PipeMeasurement},
    shares::{Demand, max_min},
};

/// Relative growth of the total rate in a period below which it has settled, and the number of periods with received bytes
/// after which it counts as settled in any case.
const SETTLED_GROWTH: f64 = 1.05;
const MAX_SETTLING_PERIODS: u32 = 15;

/// Range of the logarithm of rate / share.
const CORRECTION_RANGE: (f64, f64) = (-5.0, 2.0);

/// Part of the correction that is used if the view lacks resources. Its shares grow faster than the rates when other
/// requests end.
const INCOMPLETE_CORRECTION: f64 = 0.7;

/// Factors of the prior's spread with a part of the paths, and without a network; the increase per logarithm of the mean
/// rate / share with all paths. Measured with `bench/sched_worlds.py`.
const INCOMPLETE_DOUBT: f64 = 2.5;
const UNKNOWN_DOUBT: f64 = 2.6;
const CORRECTION_DOUBT: f64 = 2.0;

/// Minimum elapsed part of the first forecast for the provisional error of an open request to count.
const MIN_ELAPSED: f64 = 0.1;

/// Longest estimate in seconds, which also stands for 'never': thirty years.
const MAX_S: f64 = 1e9;

/// A request, as it is submitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Submission {
    /// Its identifier, unique among the open requests.
    pub request: u64,
    /// Index of its pipe, whose requests are transferred in the order of their submission.
    pub pipe: u32,
    /// Bytes of its files.
    pub bytes: f64,
    /// Time of the submission in seconds, on the clock of [`Period::end_s`].
    pub at_s: f64,
}

/// The time to complete of a request in seconds from its submission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Time without further requests.
    pub expected_s: f64,
    /// Lower end of the interval of 90 %.
    pub earliest_s: f64,
    /// Upper end of the interval, at most 10⁹ s.
    pub latest_s: f64,
}

/// Forecasts the time to complete of requests.
#[derive(Debug)]
pub struct CompletionForecaster {
    sharing: Sharing,
    calibration: Calibration,
    band: Band,
    pipes: Vec<PipeState>,
    requests: BTreeMap<u64, OpenRequest>,
    network: Option<Network>,
    /// End of the last period.
    at_s: f64,
    /// Sum of the rates in the last period.
    total_rate: f64,
    /// Periods with received bytes.
    measured_periods: u32,
    is_settled: bool,
    /// Median rate of the mature pipes, for pipes without a measurement.
    typical_rate: f64,
    /// Mean logarithm of rate / share of the mature pipes.
    mean_correction: f64,
}

#[derive(Debug)]
struct OpenRequest {
    submitted_s: f64,
    pipe: u32,
    /// The first estimate.
    first: Option<Estimate>,
    now: Option<Estimate>,
    /// Whether it has taken longer than its first estimate says.
    is_late: bool,
}

impl CompletionForecaster {
    /// Creates a forecaster for an optimiser that shares the network so.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            calibration: Calibration::default(),
            band: Band::default(),
            pipes: Vec::new(),
            requests: BTreeMap::new(),
            network: None,
            at_s: 0.0,
            total_rate: 0.0,
            measured_periods: 0,
            is_settled: false,
            typical_rate: 0.0,
            mean_correction: 0.0,
        }
    }

    /// Adds a request. Returns its estimate, once rates are known.
    pub fn submit(&mut self, submission: &Submission) -> Option<Estimate> {
        let &Submission { request, pipe, bytes, at_s } = submission;
        if self.pipes.len() <= pipe as usize {
            self.pipes.resize_with(pipe as usize + 1, PipeState::default);
        }
        self.pipes[pipe as usize].queue.push_back((request, bytes));
        self.requests.insert(request, OpenRequest { submitted_s: at_s, pipe, first: None, now: None, is_late: false });
        self.predict(at_s);
        self.estimate(request)
    }

    /// Returns the present estimate of an open request, once rates are known.
    pub fn estimate(&self, request: u64) -> Option<Estimate> {
        self.requests.get(&request)?.now
    }

    /// Returns the time of the last completion of all open requests in seconds, on the clock of [`Period::end_s`];
    /// `None` without an estimate. Its interval is not calibrated by itself.
    pub fn last_completion(&self) -> Option<Estimate> {
        let mut last: Option<Estimate> = None;
        for open in self.requests.values() {
            let Estimate { expected_s, earliest_s, latest_s } = open.now?;
            let times = last.get_or_insert(Estimate { expected_s: 0.0, earliest_s: 0.0, latest_s: 0.0 });
            times.expected_s = times.expected_s.max(open.submitted_s + expected_s);
            times.earliest_s = times.earliest_s.max(open.submitted_s + earliest_s);
            times.latest_s = times.latest_s.max(open.submitted_s + latest_s);
        }
        last
    }

    /// Removes a request that was completed, or cancelled if `at_s` is `None`.
    pub fn complete(&mut self, request: u64, at_s: Option<f64>) {
        let Some(open) = self.requests.remove(&request) else { return };
        self.pipes[open.pipe as usize].queue.retain(|(queued, _)| *queued != request);
        let (Some(first), Some(at_s)) = (open.first, at_s) else { return };
        let actual_s = at_s - open.submitted_s;
        if actual_s > 0.0 {
            self.calibration.record((actual_s / first.expected_s).ln());
        }
        if !open.is_late {
            self.calibration.adapt(match () {
                () if actual_s < first.earliest_s => Side::Below,
                () if actual_s > first.latest_s => Side::Above,
                () => Side::Within,
            });
        }
    }

    /// Updates all estimates at the end of a period.
    pub fn end_period(&mut self, period: &Period<'_>) {
        self.at_s = period.end_s;
        let pipes = self.pipes.len().max(period.pipes.len());
        self.pipes.resize_with(pipes, PipeState::default);
        self.network = Network::of(period, self.sharing);
        self.measure(period);
        for open in self.requests.values_mut() {
            if !open.is_late && open.first.is_some_and(|first| period.end_s - open.submitted_s > first.latest_s) {
                open.is_late = true;
                self.calibration.adapt(Side::Above);
            }
        }
        self.calibrate();
        self.predict(period.end_s);
    }

    fn measure(&mut self, period: &Period<'_>) {
        let total_rate = period.pipes.iter().map(|measured| measured.received_bytes).sum::<f64>() / period.length_s;
        self.measured_periods += u32::from(total_rate > 0.0 && !self.is_settled);
        self.is_settled |= self.measured_periods >= MAX_SETTLING_PERIODS
            || (self.measured_periods > MATURE_PERIODS && total_rate <= SETTLED_GROWTH * self.total_rate);
        self.total_rate = total_rate;
        let mut rates = Vec::new();
        for (state, measured) in self.pipes.iter_mut().zip(period.pipes) {
            state.measure(measured, period.length_s);
            if state.is_mature() && measured.is_live() {
                rates.push(state.rate);
            }
        }
        rates.sort_by(f64::total_cmp);
        if let Some(median) = rates.get(rates.len() / 2) {
            self.typical_rate = *median;
        }
        self.correct(period);
    }

    /// Compares the rates with the shares.
    fn correct(&mut self, period: &Period<'_>) {
        let Some(network) = &self.network else { return };
        let weight =
            |(measured, weight): (&PipeMeasurement, &f64)| if measured.received_bytes > 0.0 { *weight } else { 0.0 };
        let demands: Vec<_> =
            period.pipes.iter().zip(&network.weights).map(|pipe| Demand::unlimited(weight(pipe))).collect();
        let shares = max_min(&network.capacities, &network.paths, &demands).rates;
        let (mut sum, mut count) = (0.0, 0.0);
        for ((state, measured), share) in self.pipes.iter_mut().zip(period.pipes).zip(shares) {
            let ratio = (measured.received_bytes / period.length_s / share).ln();
            if !state.is_mature() || !ratio.is_finite() {
                continue;
            }
            let ratio = ratio.clamp(CORRECTION_RANGE.0, CORRECTION_RANGE.1);
            let correction = state.correction.map_or(ratio, |last| last + newest(period.length_s) * (ratio - last));
            state.correction = Some(correction);
            sum += correction;
            count += 1.0;
        }
        if count > 0.0 {
            self.mean_correction = sum / count;
        }
    }

    /// Computes the interval from the errors of complete and open requests.
    fn calibrate(&mut self) {
        let error = |open: &OpenRequest| {
            let (first_s, now_s) = (open.first?.expected_s, open.now?.expected_s);
            let weight = ((self.at_s - open.submitted_s) / first_s).min(1.0);
            (weight > MIN_ELAPSED).then(|| PredictionError { log: (now_s / first_s).ln(), weight })
        };
        let doubt = match &self.network {
            Some(network) if network.is_complete => 1.0 + CORRECTION_DOUBT * self.mean_correction.abs(),
            Some(_) => INCOMPLETE_DOUBT,
            None => UNKNOWN_DOUBT,
        };
        self.band = self.calibration.band(self.requests.values().filter_map(error).collect(), doubt);
    }

    /// Computes the estimates of all open requests, once rates are known.
    fn predict(&mut self, now_s: f64) {
        if !self.is_settled || self.typical_rate <= 0.0 {
            return;
        }
        let (pipes, flows): (Vec<_>, Vec<_>) = self.flows(now_s).into_iter().unzip();
        let ends = match &self.network {
            Some(network) => fluid::forecast(&flows, &network.capacities),
            None => fluid::forecast(&flows, &[self.shared_rate()]),
        };
        for (pipe, ends) in pipes.into_iter().zip(ends) {
            let ends = ends.into_iter().chain(std::iter::repeat(f64::INFINITY));
            for ((request, _), rest_s) in self.pipes[pipe].queue.iter().zip(ends) {
                let Some(open) = self.requests.get_mut(request) else { continue };
                let elapsed_s = (now_s - open.submitted_s).max(0.0);
                let at = |log: f64| (elapsed_s + rest_s * log.exp()).clamp(f64::MIN_POSITIVE, MAX_S);
                let Band { low, high } = self.band;
                let estimate = Estimate { expected_s: at(0.0), earliest_s: at(low), latest_s: at(high) };
                open.first.get_or_insert(estimate);
                open.now = Some(estimate);
            }
        }
    }

    /// Returns the sum of the rates of the pipes with open requests: the capacity of an unknown network.
    fn shared_rate(&self) -> f64 {
        let open = self.pipes.iter().filter(|state| !state.queue.is_empty() && state.periods > 0);
        open.map(|state| self.rate(state)).sum::<f64>().max(self.typical_rate)
    }

    fn rate(&self, state: &PipeState) -> f64 {
        if state.is_mature() && state.rate > 0.0 { state.rate } else { self.typical_rate }
    }

    /// Returns the pipes with open requests.
    fn flows(&self, now_s: f64) -> Vec<(usize, Flow)> {
        let since_s = (now_s - self.at_s).max(0.0);
        let flow = |(pipe, state): (usize, &PipeState)| {
            let mut sent = if state.periods > 0 { since_s * state.rate } else { 0.0 };
            let rest = |(_, bytes): &(u64, f64)| {
                let part = sent.min(*bytes);
                sent -= part;
                (bytes - part).max(1.0)
            };
            let rate = self.rate(state);
            let mut flow = Flow {
                path: Vec::new(),
                weight: rate,
                correction: 1.0,
                rate,
                remaining_bytes: state.queue.iter().map(rest).collect(),
            };
            match &self.network {
                None => flow.path = vec![0],
                Some(network) => {
                    if let Some((path, weight)) = network.path(pipe) {
                        let part = if network.is_complete { 1.0 } else { INCOMPLETE_CORRECTION };
                        flow.correction = (part * state.correction.unwrap_or(self.mean_correction)).exp();
                        (flow.path, flow.weight) = (path.to_vec(), weight);
                    }
                }
            }
            (pipe, flow)
        };
        self.pipes.iter().enumerate().filter(|(_, state)| !state.queue.is_empty()).map(flow).collect()
    }
}
