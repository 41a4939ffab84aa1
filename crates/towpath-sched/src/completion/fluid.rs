//! The fluid forecast: all known requests progress with the shares of their pipes until they are complete.

use crate::{
    network::{Incidences, Paths},
    shares::{Demand, max_min},
};

/// Maximum number of times that a forecast computes shares. With more pipes, several of them end at the same time.
const MAX_ROUNDS: usize = 96;

/// The requests of a pipe, one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Flow {
    /// The known resources of the pipe.
    pub(super) path: Vec<u32>,
    /// Its weight among the pipes that share a resource.
    pub(super) weight: f64,
    /// Rate / share.
    pub(super) correction: f64,
    /// Rate in bytes per second of a pipe without a known resource.
    pub(super) rate: f64,
    /// The remaining bytes of each request, in order.
    pub(super) remaining_bytes: Vec<f64>,
}

/// Returns for each flow the times from now to the completion of its requests, in seconds. Requests that never complete
/// are missing at its end. `capacities` are in bytes per second.
pub(super) fn forecast(flows: &[Flow], capacities: &[f64]) -> Vec<Vec<f64>> {
    let mut of_pipes = Incidences::default();
    flows.iter().for_each(|flow| of_pipes.push(&flow.path));
    let paths = Paths::new(of_pipes, capacities.len());
    let mut states: Vec<_> = flows.iter().map(FlowState::new).collect();
    let mut live: Vec<_> = (0..flows.len()).filter(|flow| states[*flow].rest > 0.0).collect();
    let per_round = live.len().div_ceil(MAX_ROUNDS);
    let mut now_s = 0.0;
    while !live.is_empty() {
        let rates = rates(flows, &states, &paths, capacities);
        let mut ends_s: Vec<_> = live.iter().map(|flow| states[*flow].rest / rates[*flow]).collect();
        ends_s.sort_by(f64::total_cmp);
        let length_s = ends_s[per_round.min(ends_s.len()) - 1];
        if !length_s.is_finite() {
            break;
        }
        for flow in &live {
            states[*flow].advance(&flows[*flow], rates[*flow], now_s, length_s);
        }
        live.retain(|flow| states[*flow].rest > 0.0);
        now_s += length_s;
    }
    states.into_iter().map(|state| state.completions_s).collect()
}

/// Returns the present rates of the flows that have something to transfer.
fn rates(flows: &[Flow], states: &[FlowState], paths: &Paths, capacities: &[f64]) -> Vec<f64> {
    let demand = |(flow, state): (&Flow, &FlowState)| Demand {
        weight: if state.rest > 0.0 { flow.weight } else { 0.0 },
        limit: if flow.path.is_empty() { flow.rate } else { f64::INFINITY },
    };
    let demands: Vec<_> = flows.iter().zip(states).map(demand).collect();
    let mut rates = max_min(capacities, paths, &demands).rates;
    for (rate, flow) in rates.iter_mut().zip(flows).filter(|(_, flow)| !flow.path.is_empty()) {
        *rate *= flow.correction;
    }
    rates
}

/// The progress of a flow.
#[derive(Debug)]
struct FlowState {
    /// Bytes that remain.
    rest: f64,
    /// Transferred bytes of the first request that is not complete.
    done: f64,
    completions_s: Vec<f64>,
}

impl FlowState {
    fn new(flow: &Flow) -> Self {
        Self { rest: flow.remaining_bytes.iter().sum(), done: 0.0, completions_s: Vec::new() }
    }

    /// Transfers for `length_s` seconds from `now_s` on.
    fn advance(&mut self, flow: &Flow, rate: f64, now_s: f64, length_s: f64) {
        // The same expression as for the end of the round, so that rounding does not leave a rest.
        let is_last = self.rest / rate <= length_s;
        let mut sent = if is_last { f64::INFINITY } else { rate * length_s };
        let mut passed_s = 0.0;
        self.rest = if is_last { 0.0 } else { self.rest - sent };
        for bytes in &flow.remaining_bytes[self.completions_s.len()..] {
            let needed = bytes - self.done;
            if sent < needed {
                self.done += sent;
                break;
            }
            sent -= needed;
            passed_s += if needed > 0.0 { needed / rate } else { 0.0 };
            self.completions_s.push(now_s + passed_s);
            self.done = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(path: &[u32], remaining_bytes: &[f64]) -> Flow {
        Flow { path: path.to_vec(), weight: 1.0, correction: 1.0, rate: 2.0, remaining_bytes: remaining_bytes.to_vec() }
    }

    #[test]
    fn the_times_of_a_small_network_are_those_by_hand() {
        // Two pipes share 10 B/s until the first has sent 30 and 20 bytes, after 6 and 10 s. The other has 50 left then.
        let flows = [flow(&[0], &[30.0, 20.0]), flow(&[0], &[100.0]), flow(&[], &[8.0])];
        assert_eq!(forecast(&flows, &[10.0]), [vec![6.0, 10.0], vec![15.0], vec![4.0]]);
        let slow = Flow { correction: 0.5, ..flow(&[0], &[100.0]) };
        assert_eq!(forecast(&[slow], &[10.0]), [vec![20.0]]);
    }

    #[test]
    fn requests_without_capacity_never_complete() {
        assert_eq!(forecast(&[flow(&[0], &[1.0]), flow(&[1], &[5.0])], &[0.0, 1.0]), [vec![], vec![5.0]]);
        assert!(forecast(&[], &[]).is_empty());
    }

    #[test]
    fn many_pipes_end_in_few_rounds() {
        let flows: Vec<_> = (1..=1_000).map(|bytes| flow(&[0], &[f64::from(bytes)])).collect();
        let last = forecast(&flows, &[1.0]).last().unwrap()[0];
        // The capacity is not used while pipes that have ended wait for the end of the round.
        assert!((500_500.0..520_000.0).contains(&last), "{last}");
    }
}
