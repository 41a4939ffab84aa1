//! Optimisers: they decide how many connections each pipe uses in the next period.

mod fixed;
mod fts;
mod knee;
mod named;
mod tcn;

pub use self::{
    fixed::Fixed,
    fts::{Fts, FtsRange, FtsSettings, Memory},
    knee::{Knee, KneeSettings, Sharing},
    named::{MAX_FIXED_CONNECTIONS, OptimiserName, UnknownOptimiser},
    tcn::{Order, Tcn, TcnSettings, penalty},
};
use crate::period::{Decision, Period};

/// How the connections of a link are given to its activities, which are pipes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// Each pipe has the connections that were decided for it.
    ByPipe,
    /// The link has the connections of all its pipes. Each file to be started is of a random activity, by weight, as in FTS.
    Draw,
    /// The link has the connections of all its pipes. Each file to be started is of the activity with the fewest
    /// connections relative to its weight, as in the scheduler of FTS for PostgreSQL.
    RoundRobin,
}

/// Decides the connections of pipes, once per period.
pub trait Optimiser {
    /// Returns one decision for each pipe of `period`, in the same order.
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision>;

    /// Returns how connections are given to activities.
    fn assignment(&self) -> Assignment {
        Assignment::ByPipe
    }
}
