//! The connections that storages permit.

use std::collections::BTreeSet;

use crate::{
    network::{Incidences, ResourceKind},
    period::NetworkView,
};

/// The free connections of each limit ([`ResourceKind::Connections`]).
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<u32>,
    /// The limits of each pipe.
    of_pipes: Incidences,
    /// Pipes that could not start a file because a limit had no free connection.
    waiting: BTreeSet<u32>,
}

impl Slots {
    pub(super) fn new(network: &NetworkView<'_>) -> Self {
        let mut of_pipes = Incidences::default();
        for pipe in 0..network.paths.pipes() {
            of_pipes.push(&network.resources_of(pipe, ResourceKind::Connections).collect::<Vec<_>>());
        }
        let free = network.resources.capacities().iter().map(|capacity| *capacity as u32).collect();
        Self { free, of_pipes, waiting: BTreeSet::new() }
    }

    /// Takes a connection for a pipe. If there is none, the pipe waits for it.
    pub(super) fn take(&mut self, pipe: u32) -> bool {
        let limits = self.of_pipes.row(pipe as usize);
        let is_free = limits.iter().all(|limit| self.free[*limit as usize] > 0);
        if is_free {
            limits.iter().for_each(|limit| self.free[*limit as usize] -= 1);
        } else {
            self.waiting.insert(pipe);
        }
        is_free
    }

    /// Gives a connection of a pipe back.
    pub(super) fn give_back(&mut self, pipe: u32) {
        self.of_pipes.row(pipe as usize).iter().for_each(|limit| self.free[*limit as usize] += 1);
    }

    /// Returns the pipes that wait. They do not wait any more.
    pub(super) fn take_waiting(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.waiting)
    }
}
