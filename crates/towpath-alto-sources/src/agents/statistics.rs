//! Statistics of agents, for monitoring.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use towpath_store::sys::clock;

/// The reports of one agent since the server started. Its task counts them; any thread can read them.
#[derive(Debug)]
pub struct AgentStatistics {
    name: Arc<str>,
    /// Seconds since the Unix epoch; 0 before the first success.
    last_success_s: AtomicI64,
    failures: AtomicU64,
}

impl AgentStatistics {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, last_success_s: AtomicI64::new(0), failures: AtomicU64::new(0) }
    }

    /// Returns the name of the agent.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time of the last report without a problem, in seconds since the Unix epoch; `None` before the first.
    /// An agent that is polled reports after each poll, also if nothing changed; others report when facts arrive.
    pub fn last_success_s(&self) -> Option<i64> {
        Some(self.last_success_s.load(Ordering::Relaxed)).filter(|at_s| *at_s > 0)
    }

    /// Returns the number of reports with a problem.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Counts a report.
    pub(super) fn record(&self, has_failed: bool) {
        if has_failed {
            self.failures.fetch_add(1, Ordering::Relaxed);
        } else {
            self.last_success_s.store(clock::unix_s(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_keep_the_time_of_the_last_success() {
        let statistics = AgentStatistics::new("sites".into());
        statistics.record(true);
        assert_eq!((statistics.name(), statistics.last_success_s(), statistics.failures()), ("sites", None, 1));
        statistics.record(false);
        let succeeded_s = statistics.last_success_s().unwrap();
        assert!((succeeded_s - clock::unix_s()).abs() < 60);
        statistics.record(true);
        assert_eq!((statistics.last_success_s(), statistics.failures()), (Some(succeeded_s), 2));
    }
}
