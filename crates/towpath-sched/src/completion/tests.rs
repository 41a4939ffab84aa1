use super::*;
use crate::{
    network::{Incidences, Paths, ResourceKind, Resources},
    period::{NetworkView, PipeTerms},
};

/// Two pipes over one link of 100 B/s.
struct Link {
    forecaster: CompletionForecaster,
    paths: Paths,
    end_s: f64,
    has_network: bool,
}

impl Link {
    fn new(has_network: bool) -> Self {
        let mut of_pipes = Incidences::default();
        of_pipes.push(&[0]);
        of_pipes.push(&[0]);
        let forecaster = CompletionForecaster::new(Sharing::Equal);
        Self { forecaster, paths: Paths::new(of_pipes, 1), end_s: 0.0, has_network }
    }

    fn submit(&mut self, request: u64, pipe: u32, bytes: f64) -> Option<Estimate> {
        self.forecaster.submit(&Submission { request, pipe, bytes, at_s: self.end_s })
    }

    /// Ends a period of 10 s with these rates and remaining bytes of the pipes.
    fn period(&mut self, rates: [f64; 2], remaining: [f64; 2]) {
        self.end_s += 10.0;
        let pipe = |index: usize| PipeMeasurement {
            connections: u32::from(remaining[index] > 0.0),
            received_bytes: 10.0 * rates[index],
            remaining_bytes: remaining[index],
            ..PipeMeasurement::default()
        };
        let unknown = Paths::unknown(2);
        let paths = if self.has_network { &self.paths } else { &unknown };
        let mut resources = Resources::default();
        resources.add("link".to_owned(), ResourceKind::Network, 100.0);
        self.forecaster.end_period(&Period {
            end_s: self.end_s,
            length_s: 10.0,
            pipes: &[pipe(0), pipe(1)],
            terms: &[0, 1].map(PipeTerms::of_link),
            network: NetworkView { resources: &resources, paths, weights: &[], is_complete: self.has_network },
        });
    }
}

fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-6, "{value} instead of {expected}");
}

#[test]
fn the_expected_times_are_those_by_hand() {
    for has_network in [true, false] {
        let mut link = Link::new(has_network);
        assert_eq!(link.submit(1, 0, 4_000.0), None);
        link.submit(2, 1, 7_000.0);
        for period in 1..=4 {
            let sent = 500.0 * f64::from(period);
            link.period([50.0, 50.0], [4_000.0 - sent, 7_000.0 - sent]);
        }
        // 2,000 and 5,000 bytes with 50 B/s each, then 3,000 bytes with 100 B/s.
        assert_near(link.forecaster.estimate(1).unwrap().expected_s, 40.0 + 40.0);
        assert_near(link.forecaster.estimate(2).unwrap().expected_s, 40.0 + 70.0);
        // Behind the first request: 2,000 bytes at 50 B/s, then 1,000; then the other pipe has 2,000 left.
        let estimate = link.submit(3, 0, 1_000.0).unwrap();
        assert_near(estimate.expected_s, 60.0);
        assert!(estimate.earliest_s < 60.0 && estimate.latest_s > 60.0, "{estimate:?}");
        assert_near(link.forecaster.last_completion().unwrap().expected_s, 40.0 + 80.0);
        link.forecaster.complete(1, Some(80.0));
        link.forecaster.complete(3, None);
        assert_eq!(link.forecaster.estimate(1), None);
    }
}

#[test]
fn half_of_the_share_takes_twice_the_time() {
    let mut link = Link::new(true);
    link.submit(1, 0, 10_000.0);
    for period in 1..=6 {
        link.period([50.0, 0.0], [10_000.0 - 500.0 * f64::from(period), 0.0]);
    }
    assert_near(link.forecaster.estimate(1).unwrap().expected_s, 60.0 + 7_000.0 / 50.0);
    // The network is lost.
    link.has_network = false;
    link.period([50.0, 0.0], [6_500.0, 0.0]);
    assert_near(link.forecaster.estimate(1).unwrap().expected_s, 70.0 + 6_500.0 / 50.0);
}

#[test]
fn estimates_are_finite_positive_and_in_order() {
    for has_network in [true, false] {
        let mut link = Link::new(has_network);
        for request in 0..200_u64 {
            let bytes = [0.0, 1.0, 1e6, 1e18][request as usize % 4];
            let submitted = link.submit(request, (request % 2) as u32, bytes);
            let rates = [[0.0, 0.0], [1e-9, 1e9], [50.0, 0.0], [100.0, 3.0]][request as usize / 3 % 4];
            link.period(rates, [bytes, 5.0]);
            if request % 7 == 6 {
                link.forecaster.complete(request - 3, Some(link.end_s - 15.0 * (request % 3) as f64));
            }
            let all = (0..=request).filter_map(|request| link.forecaster.estimate(request)).chain(submitted);
            for estimate in all {
                let Estimate { expected_s, earliest_s, latest_s } = estimate;
                assert!(0.0 < earliest_s && earliest_s <= expected_s && expected_s <= latest_s, "{estimate:?}");
                assert!(latest_s <= MAX_S, "{estimate:?}");
            }
        }
        assert!(link.forecaster.estimate(199).is_some());
    }
}
