//! Limits that hold for the decisions of each optimiser.
//!
//! - **Success**: a pipe gets no more connections while too many of its files fail, as in FTS, if fewer failed with half of
//!   the connections; otherwise, or if that is not known, connections may not be the reason. The older these attempts
//!   are, the less they count, so it tries again. If most files fail, it gets one less in each period.
//! - **Connections** of a storage ([`ResourceKind::Connections`]): decisions beyond it are reduced in proportion, so that
//!   shares stay. A pipe that gets less than one connection has one in some of the periods.

use crate::{
    network::{Incidences, Paths, ResourceKind},
    period::{Decision, Period, PipeMeasurement, Reason},
    shares::{Demand, max_min_with},
};

/// Success in percent, rounded up, below which connections are not increased.
const SUCCESS: u64 = 97;

/// Success in percent below which connections are decreased.
const FAILING: u64 = 50;

/// Part of the counts of attempts that remains in each period.
const MEMORY: f32 = 0.95;

/// Number of powers of two for which attempts are counted.
const LEVELS: usize = 12;

/// A success is worse than another one if it is lower by this number of standard errors.
const ERRORS: f32 = 2.0;

/// The limits, and the state of each pipe for them.
#[derive(Debug, Default)]
pub struct Limits {
    pipes: Vec<Attempts>,
    /// For each pipe the sum of the parts of a connection that rounding took away.
    credits: Vec<f64>,
}

/// Attempts of a pipe, by the power of two of its number of connections.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    finished: [f32; LEVELS],
    all: [f32; LEVELS],
}

impl Limits {
    /// Limits the decisions about the pipes of a period.
    pub fn apply(&mut self, period: &Period<'_>, decisions: &mut [Decision]) {
        self.pipes.resize_with(period.pipes.len(), Attempts::default);
        for ((attempts, measured), decision) in self.pipes.iter_mut().zip(period.pipes).zip(decisions.iter_mut()) {
            attempts.add(measured);
            if let Some((connections, percent)) = attempts.limit(measured)
                && decision.connections > connections
            {
                *decision = Decision { connections, reason: Reason::SuccessTooLow(percent) };
            }
        }
        self.limit_connections(period, decisions);
    }

    fn limit_connections(&mut self, period: &Period<'_>, decisions: &mut [Decision]) {
        let resources = period.network.resources;
        let mut rests = resources.capacities().to_vec();
        let mut of_pipes = Incidences::default();
        for (pipe, (decision, measured)) in decisions.iter().zip(period.pipes).enumerate() {
            // A pipe without files takes no connection from the others, whatever it is given.
            let limits = period.network.resources_of(pipe, ResourceKind::Connections).filter(|_| measured.is_live());
            of_pipes.push(&limits.collect::<Vec<_>>());
            of_pipes.row(pipe).iter().for_each(|limit| rests[*limit as usize] -= f64::from(decision.connections));
        }
        let is_exceeded =
            |limit: u32| resources.kind(limit) == ResourceKind::Connections && rests[limit as usize] < 0.0;
        if !(0..resources.len() as u32).any(is_exceeded) {
            return;
        }
        let paths = Paths::new(of_pipes, resources.len());
        let demand = |decision: &Decision| {
            let connections = f64::from(decision.connections);
            Demand { weight: connections, limit: connections }
        };
        let demands: Vec<_> = decisions.iter().map(demand).collect();
        let parts = max_min_with(resources.capacities(), &paths, &demands, |_, _| 1.0).rates;
        self.round(resources.capacities(), &paths, &parts, decisions);
    }

    /// Rounds the parts of decisions. Pipes that lack the most come first.
    fn round(&mut self, capacities: &[f64], paths: &Paths, parts: &[f64], decisions: &mut [Decision]) {
        self.credits.resize(parts.len(), 0.0);
        let mut rests = capacities.to_vec();
        for (pipe, part) in parts.iter().enumerate() {
            let all = f64::from(decisions[pipe].connections);
            // A rounding error takes no connection away.
            let whole = (part + 1e-9 * all).floor().min(all);
            self.credits[pipe] = if whole < all { (self.credits[pipe] + part - whole).min(1.0) } else { 0.0 };
            paths.resources_of(pipe).iter().for_each(|limit| rests[*limit as usize] -= whole);
            if whole < all {
                decisions[pipe] = Decision { connections: whole as u32, reason: Reason::StorageConnections };
            }
        }
        let mut waiting: Vec<_> = (0..parts.len()).filter(|pipe| self.credits[*pipe] > 0.0).collect();
        waiting.sort_by(|one, other| self.credits[*other].total_cmp(&self.credits[*one]));
        for pipe in waiting {
            let limits = paths.resources_of(pipe);
            if limits.iter().all(|limit| rests[*limit as usize] >= 1.0) {
                limits.iter().for_each(|limit| rests[*limit as usize] -= 1.0);
                decisions[pipe].connections += 1;
                self.credits[pipe] -= 1.0;
            }
        }
    }
}

impl Attempts {
    fn add(&mut self, measured: &PipeMeasurement) {
        self.finished.iter_mut().chain(&mut self.all).for_each(|count| *count *= MEMORY);
        let level = level(measured.granted);
        self.finished[level] += measured.ended.finished as f32;
        self.all[level] += measured.ended.attempts() as f32;
    }

    /// Returns the maximum number of connections if too many files fail, and the success in percent.
    fn limit(&self, measured: &PipeMeasurement) -> Option<(u32, u8)> {
        let (finished, attempts) = (measured.ended.finished, measured.ended.attempts());
        let percent = (100 * finished).div_ceil(attempts.max(1));
        let connections = match percent {
            _ if attempts == 0 || percent >= SUCCESS => return None,
            _ if percent < FAILING => measured.granted.saturating_sub(1).max(1),
            _ if self.is_worse(finished as f32 / attempts as f32, attempts as f32, level(measured.granted)) => {
                measured.granted.max(1)
            }
            _ => return None,
        };
        Some((connections, u8::try_from(percent).expect("a share is at most 100 %")))
    }

    /// Returns whether the success of `attempts` is worse than with at most half of the connections, which are those
    /// below a level. The older these attempts are, the less they say.
    fn is_worse(&self, success: f32, attempts: f32, level: usize) -> bool {
        let sum = |counts: &[f32]| counts[..level].iter().sum::<f32>();
        let (finished, all) = (sum(&self.finished), sum(&self.all));
        let before = (finished + 1.0) / (all + 2.0);
        let variance = before * (1.0 - before) * (1.0 / all + 1.0 / attempts);
        success < before - ERRORS * variance.sqrt()
    }
}

/// Returns the power of two of a number of connections.
fn level(connections: u32) -> usize {
    (connections.max(1).ilog2() as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        network::Resources,
        period::{EndedFiles, NetworkView, PipeTerms},
    };

    fn live() -> PipeMeasurement {
        PipeMeasurement { queued_files: 1_000, ..PipeMeasurement::default() }
    }

    fn apply(limits: &mut Limits, view: NetworkView<'_>, pipes: &[PipeMeasurement], wanted: &[u32]) -> Vec<Decision> {
        let terms: Vec<_> = (0..pipes.len() as u32).map(PipeTerms::of_link).collect();
        let period = Period { end_s: 0.0, length_s: 60.0, pipes, terms: &terms, network: view };
        let decision = |connections: &u32| Decision { connections: *connections, reason: Reason::Configured };
        let mut decisions: Vec<_> = wanted.iter().map(decision).collect();
        limits.apply(&period, &mut decisions);
        decisions
    }

    /// Returns the decision about a pipe that had `granted` connections and is to get twice as many.
    fn after(limits: &mut Limits, granted: u32, finished: u64, retried: u64) -> (u32, Reason) {
        let ended = EndedFiles { finished, retried, ..EndedFiles::default() };
        let pipe = PipeMeasurement { granted, ended, ..live() };
        let (resources, paths) = (Resources::default(), Paths::unknown(1));
        let view = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: false };
        let decision = apply(limits, view, &[pipe], &[2 * granted])[0];
        (decision.connections, decision.reason)
    }

    #[test]
    fn connections_that_make_files_fail_are_not_increased() {
        let mut limits = Limits::default();
        assert_eq!(after(&mut limits, 4, 200, 0), (8, Reason::Configured));
        assert_eq!(after(&mut limits, 8, 360, 40), (8, Reason::SuccessTooLow(90)));
        assert_eq!(after(&mut limits, 8, 100, 300), (7, Reason::SuccessTooLow(25)));
        // 96.1 % are rounded up.
        assert_eq!(after(&mut limits, 7, 961, 39), (14, Reason::Configured));
    }

    #[test]
    fn failures_that_do_not_depend_on_connections_limit_nothing() {
        let mut limits = Limits::default();
        for granted in [1, 2, 4, 8, 16] {
            assert_eq!(after(&mut limits, granted, 95, 5), (2 * granted, Reason::Configured));
        }
    }

    #[test]
    fn a_hold_ends_when_the_better_attempts_are_old() {
        let mut limits = Limits::default();
        after(&mut limits, 4, 200, 0);
        let held = (0..200).take_while(|_| after(&mut limits, 8, 95, 5).0 == 8).count();
        assert!((10..199).contains(&held), "{held}");
    }

    #[test]
    fn pipes_that_share_few_connections_take_turns() {
        let mut resources = Resources::default();
        resources.add("storage out".to_owned(), ResourceKind::Connections, 2.0);
        let mut of_pipes = Incidences::default();
        (0..5).for_each(|_| of_pipes.push(&[0]));
        let paths = Paths::new(of_pipes, 1);
        let view = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: true };
        let mut limits = Limits::default();
        let mut sums = [0; 5];
        for _ in 0..10 {
            let decisions = apply(&mut limits, view, &[live(); 5], &[1; 5]);
            assert_eq!(decisions.iter().map(|decision| decision.connections).sum::<u32>(), 2);
            sums.iter_mut().zip(&decisions).for_each(|(sum, decision)| *sum += decision.connections);
        }
        assert_eq!(sums, [4; 5]);
    }

    #[test]
    fn idle_pipes_take_no_connections() {
        let mut resources = Resources::default();
        resources.add("storage out".to_owned(), ResourceKind::Connections, 4.0);
        let mut of_pipes = Incidences::default();
        (0..9).for_each(|_| of_pipes.push(&[0]));
        let paths = Paths::new(of_pipes, 1);
        let view = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: true };
        let mut pipes = [PipeMeasurement::default(); 9];
        pipes[3] = live();
        let mut wanted = [1; 9];
        wanted[3] = 10;
        assert_eq!(apply(&mut Limits::default(), view, &pipes, &wanted)[3].connections, 4);
    }

    proptest! {
        /// No limit is exceeded, and no pipe gets more than decided.
        #[test]
        fn limits_of_connections_hold(
            capacities in prop::collection::vec(0_u32..30, 1..4),
            pipes in prop::collection::vec((prop::collection::vec(0..4_u32, 0..4), 0_u32..40), 1..9),
        ) {
            let mut resources = Resources::default();
            for capacity in &capacities {
                resources.add("limit".to_owned(), ResourceKind::Connections, f64::from(*capacity));
            }
            let mut of_pipes = Incidences::default();
            for (limits, _) in &pipes {
                of_pipes.push(&limits.iter().map(|limit| limit % capacities.len() as u32).collect::<Vec<_>>());
            }
            let paths = Paths::new(of_pipes, capacities.len());
            let view = NetworkView { resources: &resources, paths: &paths, weights: &[], is_complete: true };
            let wanted: Vec<_> = pipes.iter().map(|(_, wanted)| *wanted).collect();
            let mut limits = Limits::default();
            for _ in 0..3 {
                let decisions = apply(&mut limits, view, &vec![live(); pipes.len()], &wanted);
                for (limit, capacity) in capacities.iter().enumerate() {
                    let of_limit = paths.pipes_of(limit as u32).iter();
                    let sum: u32 = of_limit.map(|pipe| decisions[*pipe as usize].connections).sum();
                    prop_assert!(sum <= *capacity, "{} of {}", sum, capacity);
                }
                prop_assert!(decisions.iter().zip(&wanted).all(|(decision, wanted)| decision.connections <= *wanted));
            }
        }
    }
}
