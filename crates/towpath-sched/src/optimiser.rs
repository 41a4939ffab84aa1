//! Optimisers: they decide how many connections each pipe uses in the next period.

mod fixed;
mod fts;
mod knee;
mod tcn;

pub use self::{
    fixed::Fixed,
    fts::{Fts, FtsRange, FtsSettings, Memory},
    knee::{Knee, KneeSettings, Sharing},
    tcn::{Order, Tcn, TcnSettings, penalty},
};
use crate::period::{Decision, Period};

/// Decides the connections of pipes, once per period.
pub trait Optimiser {
    /// Returns one decision for each pipe of `period`, in the same order.
    fn decide(&mut self, period: &Period<'_>) -> Vec<Decision>;
}
