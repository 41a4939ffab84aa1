//! The result of a simulation.

use serde::Serialize;

use super::world::World;

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For each request its completion in seconds after its arrival; `None` if the simulation ended before.
    pub completions_s: Vec<Option<f64>>,
    arrivals_s: Vec<f64>,
    bound_s: f64,
    pub(super) ended_s: f64,
    received_bytes: f64,
    connection_s: f64,
}

/// The figures of a result. All of them are simulated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Requests in the scenario.
    pub requests: usize,
    /// Requests that were complete at the end.
    pub completed: usize,
    /// The time of the last completion, or of the end of the simulation if not all requests are complete, in seconds.
    pub makespan_s: f64,
    /// The time before which no schedule completes all requests ([`World::bound_s`]), in seconds.
    pub bound_s: f64,
    /// Makespan divided by the bound; too low if not all requests are complete.
    pub makespan_to_bound: f64,
    /// Mean time from arrival to completion of the complete requests, in seconds; `None` if there is none.
    pub mean_completion_s: Option<f64>,
    /// Mean time of all requests in seconds, up to the end of the simulation for those that are not complete: their mean
    /// time to completion is at least this.
    pub mean_elapsed_s: f64,
    /// Longest of these times, in seconds.
    pub max_completion_s: Option<f64>,
    /// Received bytes per second, retried parts of files included.
    pub received_bytes_per_s: f64,
    /// Mean number of connections in use.
    pub mean_connections: f64,
}

impl Outcome {
    pub(super) fn new(world: &World) -> Self {
        Self {
            completions_s: vec![None; world.requests.len()],
            arrivals_s: world.requests.iter().map(|request| request.arrives_s).collect(),
            bound_s: world.bound_s(),
            ended_s: 0.0,
            received_bytes: 0.0,
            connection_s: 0.0,
        }
    }

    /// Records the completion of a request.
    pub(super) fn complete(&mut self, request: u32, now_s: f64) {
        let request = request as usize;
        self.completions_s[request] = Some(now_s - self.arrivals_s[request]);
    }

    /// Adds the bytes of a pipe, and the time for which its connections were in use, summed over them.
    pub(super) fn add_period(&mut self, bytes: f64, connection_s: f64) {
        self.received_bytes += bytes;
        self.connection_s += connection_s;
    }

    /// Records the end of the simulation.
    pub(super) fn end(&mut self, now_s: f64) {
        self.ended_s = now_s;
    }

    /// Returns the figures.
    pub fn summary(&self) -> Summary {
        let completed: Vec<f64> = self.completions_s.iter().flatten().copied().collect();
        let elapsed_s = |(arrival_s, completion_s): (&f64, &Option<f64>)| {
            completion_s.unwrap_or_else(|| (self.ended_s - arrival_s).max(0.0))
        };
        let elapsed_s: f64 = self.arrivals_s.iter().zip(&self.completions_s).map(elapsed_s).sum();
        let longest = completed.iter().copied().max_by(f64::total_cmp);
        let per_s = |total: f64| if self.ended_s > 0.0 { total / self.ended_s } else { 0.0 };
        Summary {
            requests: self.completions_s.len(),
            completed: completed.len(),
            makespan_s: self.ended_s,
            bound_s: self.bound_s,
            makespan_to_bound: self.ended_s / self.bound_s,
            mean_completion_s: longest.map(|_| completed.iter().sum::<f64>() / completed.len() as f64),
            mean_elapsed_s: elapsed_s / self.completions_s.len() as f64,
            max_completion_s: longest,
            received_bytes_per_s: per_s(self.received_bytes),
            mean_connections: per_s(self.connection_s),
        }
    }
}
