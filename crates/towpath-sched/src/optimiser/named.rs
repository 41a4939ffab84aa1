//! Optimisers by name, for callers whose users choose one: the command and the Python package.

use std::str::FromStr;

use super::{
    Assignment, Fixed, Fts, FtsSettings, Knee, KneeSettings, Memory, Optimiser, Order, Sharing, Tcn, TcnSettings,
};

/// Maximum number of connections of each pipe with [`OptimiserName::Fixed`]: far above each number that is of use.
pub const MAX_FIXED_CONNECTIONS: u32 = 10_000;

/// An optimiser with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimiserName {
    /// [`Knee`] with its default settings.
    Knee,
    /// [`Knee`] with equal shares.
    KneeEqual,
    /// [`Fts`] with its default settings.
    Fts,
    /// [`Fts`] from 2 connections on, with 1 more at a time.
    FtsFrom2,
    /// [`Fts`] without its memory.
    Fts314,
    /// [`Fts`] whose links have fixed parts for activities.
    Fts4Wrr,
    /// [`Tcn`] with an estimated gradient.
    TcnZero,
    /// [`Tcn`] with the gradient of a model.
    TcnFirst,
    /// [`Fixed`].
    Fixed,
}

/// The text is not the name of an optimiser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown optimiser {0:?}: expected {names}", names = OptimiserName::ALL.map(OptimiserName::name).join(", "))]
pub struct UnknownOptimiser(pub String);

impl OptimiserName {
    /// All optimisers, in the order of lists for users.
    pub const ALL: [Self; 9] = [
        Self::Knee,
        Self::KneeEqual,
        Self::Fts,
        Self::FtsFrom2,
        Self::Fts314,
        Self::Fts4Wrr,
        Self::TcnZero,
        Self::TcnFirst,
        Self::Fixed,
    ];

    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Knee => "knee",
            Self::KneeEqual => "knee-equal",
            Self::Fts => "fts",
            Self::FtsFrom2 => "fts-from2",
            Self::Fts314 => "fts-3.14",
            Self::Fts4Wrr => "fts4-wrr",
            Self::TcnZero => "tcn-zero",
            Self::TcnFirst => "tcn-first",
            Self::Fixed => "fixed",
        }
    }

    /// Returns a sentence about the rule.
    pub fn description(self) -> &'static str {
        match self {
            Self::Knee => {
                "Shares of the network, and as many connections as are not contended. Pipes over many links have lower \
                 shares"
            }
            Self::KneeEqual => "The same with equal shares",
            Self::Fts => {
                "The rule of FTS 3.13 with its default settings: 66 connections at the start, then 2 more at a time"
            }
            Self::FtsFrom2 => "The same from 2 connections on, with 1 more at a time",
            Self::Fts314 => "The rule of FTS 3.14, which does not remember the last throughput",
            Self::Fts4Wrr => {
                "The rule of FTS 3.13, with the connections of a link divided among its activities by weight, as in the \
                 first scheduler of FTS for PostgreSQL"
            }
            Self::TcnZero => "The gradient of a utility, estimated from the last change (ALTO/TCN)",
            Self::TcnFirst => {
                "The gradient of a model of the network that does not know that connections cost goodput (ALTO/TCN)"
            }
            Self::Fixed => "The same number of connections for each pipe",
        }
    }

    /// Returns how the optimiser shares a known network.
    pub fn sharing(self) -> Sharing {
        match self {
            Self::Knee => Sharing::ByPathLength,
            _ => Sharing::Equal,
        }
    }

    /// Creates the optimiser. `connections` is the number of connections of each pipe with [`Self::Fixed`], from 1 to
    /// [`MAX_FIXED_CONNECTIONS`]; `seed` is the seed of random decisions. The others ignore them.
    pub fn create(self, connections: u32, seed: u64) -> Box<dyn Optimiser> {
        let knee = |settings| Box::new(Knee::new(settings, seed));
        let fts = |settings| Box::new(Fts::new(settings));
        let tcn = |order| Box::new(Tcn::new(TcnSettings::new(order), seed));
        match self {
            Self::Knee => knee(KneeSettings::default()),
            Self::KneeEqual => knee(KneeSettings { sharing: Sharing::Equal, ..KneeSettings::default() }),
            Self::Fts => fts(FtsSettings::default()),
            Self::FtsFrom2 => fts(FtsSettings { start: 2, mode: 1, ..FtsSettings::default() }),
            Self::Fts314 => fts(FtsSettings { memory: Memory::Lost, ..FtsSettings::default() }),
            Self::Fts4Wrr => fts(FtsSettings { assignment: Assignment::RoundRobin, ..FtsSettings::default() }),
            Self::TcnZero => tcn(Order::Zero),
            Self::TcnFirst => tcn(Order::First),
            Self::Fixed => Box::new(Fixed::new(connections)),
        }
    }
}

impl FromStr for OptimiserName {
    type Err = UnknownOptimiser;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|name| name.name() == text);
        found.ok_or_else(|| UnknownOptimiser(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_parsed() {
        for name in OptimiserName::ALL {
            assert_eq!(name.name().parse(), Ok(name));
        }
        let error = "Knee".parse::<OptimiserName>().unwrap_err().to_string();
        assert!(error.starts_with("unknown optimiser \"Knee\": expected knee, knee-equal, "), "{error}");
    }
}
