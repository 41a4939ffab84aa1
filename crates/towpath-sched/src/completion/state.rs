//! The state of pipes, and the known network.

use std::collections::VecDeque;

use crate::{
    network::{Incidences, Paths, ResourceKind},
    optimiser::Sharing,
    period::{Period, PipeMeasurement, pipe_weights},
};

/// Number of periods with received bytes before the rate of a pipe is used: its connections are few before.
pub(super) const MATURE_PERIODS: u32 = 3;

/// Time constant of the averages of rates, in seconds.
const AVERAGE_S: f64 = 200.0;

/// The measured state of a pipe.
#[derive(Debug, Clone, Default)]
pub(super) struct PipeState {
    /// Open requests with their remaining bytes.
    pub(super) queue: VecDeque<(u64, f64)>,
    /// Bytes per second.
    pub(super) rate: f64,
    /// Logarithm of rate / share; `None` before the pipe is mature.
    pub(super) correction: Option<f64>,
    /// Periods with received bytes since it was idle.
    pub(super) periods: u32,
}

impl PipeState {
    pub(super) fn is_mature(&self) -> bool {
        self.periods > MATURE_PERIODS
    }

    pub(super) fn measure(&mut self, measured: &PipeMeasurement, length_s: f64) {
        if measured.received_bytes > 0.0 {
            self.periods = self.periods.saturating_add(1);
            let since = self.periods.saturating_sub(MATURE_PERIODS).max(1);
            self.rate +=
                newest(length_s).max(1.0 / f64::from(since)) * (measured.received_bytes / length_s - self.rate);
        } else if !measured.is_live() {
            (self.periods, self.correction) = (0, None);
        }
        // Requests in transfer are first, so those behind them have all of their bytes.
        let mut rest = measured.remaining_bytes;
        for (place, (_, bytes)) in self.queue.iter_mut().enumerate().rev() {
            *bytes = if place == 0 { rest } else { bytes.min(rest) };
            rest -= *bytes;
        }
    }
}

/// The known network of the last period.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) capacities: Vec<f64>,
    pub(super) paths: Paths,
    pub(super) weights: Vec<f64>,
    pub(super) is_complete: bool,
}

impl Network {
    /// Returns the network that the period knows; `None` if it knows no link.
    pub(super) fn of(period: &Period<'_>, sharing: Sharing) -> Option<Self> {
        let view = &period.network;
        let pipes = 0..period.pipes.len();
        pipes.clone().any(|pipe| view.links_of(pipe).next().is_some()).then(|| {
            let live = pipe_weights(period.terms.iter(), |pipe| period.pipes[pipe].is_live());
            let weight = |pipe: usize| {
                let links = match sharing {
                    Sharing::ByPathLength => view.links_of(pipe).count().max(1),
                    Sharing::Equal => 1,
                };
                // A pipe that is idle now may get a request.
                let own = if live[pipe] > 0.0 { live[pipe] } else { period.terms[pipe].weight };
                own / links as f64
            };
            let mut of_pipes = Incidences::default();
            for pipe in pipes.clone() {
                let path = view.paths.resources_of(pipe).iter().copied();
                let in_bytes = path.filter(|resource| view.resources.kind(*resource) != ResourceKind::Connections);
                of_pipes.push(&in_bytes.collect::<Vec<_>>());
            }
            Self {
                capacities: view.resources.capacities().to_vec(),
                paths: Paths::new(of_pipes, view.resources.len()),
                weights: pipes.map(weight).collect(),
                is_complete: view.is_complete,
            }
        })
    }

    /// Returns the known resources of a pipe, and its weight. A pipe that is newer than the view has none.
    pub(super) fn path(&self, pipe: usize) -> Option<(&[u32], f64)> {
        let weight = self.weights.get(pipe)?;
        Some((self.paths.resources_of(pipe), *weight)).filter(|(path, _)| !path.is_empty())
    }
}

/// Returns the weight of the newest period in an average.
pub(super) fn newest(length_s: f64) -> f64 {
    1.0 - (-length_s / AVERAGE_S).exp()
}
