//! The rates and times of a fair schedule, to compare others with.

use std::collections::VecDeque;

use super::World;
use crate::{
    period::pipe_weights,
    shares::{Demand, max_min},
};

/// Maximum number of requests: the shares are computed after each arrival and each completion.
const MAX_REQUESTS: usize = 1_000;

/// A request that waits, or is in transfer.
#[derive(Debug, Clone, Copy)]
struct Open {
    arrived_s: f64,
    remaining_bytes: f64,
}

impl World {
    /// Returns the weighted max-min shares of `capacities` for the live pipes in bytes per second; 0 for the others.
    /// Rules of projects and limits of storages do not count.
    pub fn fair_rates(&self, capacities: &[f64], is_live: impl Fn(usize) -> bool) -> Vec<f64> {
        let weights = pipe_weights(self.pipes.iter().map(|plan| &plan.terms), is_live);
        let demands: Vec<_> = weights.into_iter().map(Demand::unlimited).collect();
        max_min(capacities, &self.paths, &demands).rates
    }

    /// Returns the mean time from arrival to completion in seconds if all pipes have their weighted max-min shares of the
    /// [attainable capacities](Self::attainable_capacities) at each moment; `None` with more than 1,000 requests. It is
    /// no bound: a schedule that prefers short requests has a lower mean.
    pub fn fair_mean_completion_s(&self) -> Option<f64> {
        if self.requests.len() > MAX_REQUESTS {
            return None;
        }
        let mut arrivals: Vec<_> = self.requests.iter().collect();
        arrivals.sort_by(|one, other| other.arrives_s.total_cmp(&one.arrives_s));
        let capacities = self.attainable_capacities();
        let mut queues = vec![VecDeque::<Open>::new(); self.pipes.len()];
        let (mut now_s, mut sum_s) = (0.0_f64, 0.0);
        while !arrivals.is_empty() || queues.iter().any(|queue| !queue.is_empty()) {
            let rates = self.fair_rates(&capacities, |pipe| !queues[pipe].is_empty());
            let heads =
                queues.iter().zip(&rates).filter_map(|(queue, rate)| Some(queue.front()?.remaining_bytes / rate));
            let next_end_s = now_s + heads.fold(f64::INFINITY, f64::min);
            let next_arrival_s = arrivals.last().map_or(f64::INFINITY, |next| next.arrives_s);
            let next_s = next_end_s.min(next_arrival_s);
            if next_s.is_infinite() {
                return None; // A request that has no capacity is never complete.
            }
            for (queue, rate) in queues.iter_mut().zip(&rates) {
                let Some(head) = queue.front_mut() else { continue };
                head.remaining_bytes -= rate * (next_s - now_s);
                // Rounding may leave less than the last millisecond of a request.
                if head.remaining_bytes <= rate / 1_000.0 {
                    sum_s += next_s - head.arrived_s;
                    queue.pop_front();
                }
            }
            now_s = next_s;
            if next_arrival_s <= next_end_s
                && let Some(request) = arrivals.pop()
            {
                let open = Open { arrived_s: request.arrives_s, remaining_bytes: request.bytes() };
                queues[request.pipe as usize].push_back(open);
            }
        }
        Some(sum_s / self.requests.len() as f64)
    }
}
