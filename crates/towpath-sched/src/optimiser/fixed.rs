//! A configured number of connections.

use super::Optimiser;
use crate::period::{Decision, Period, Reason};

/// Gives each pipe the same number of connections.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    connections: u32,
}

impl Fixed {
    /// Creates the optimiser.
    pub fn new(connections: u32) -> Self {
        Self { connections }
    }
}

impl Optimiser for Fixed {
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision> {
        vec![Decision { connections: self.connections, reason: Reason::Configured }; period.pipes.len()]
    }
}
