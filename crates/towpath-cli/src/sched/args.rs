//! Arguments of `towpath sched`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `sched`.
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// The subcommand.
    #[command(subcommand)]
    pub action: SchedulerAction,
}

/// Subcommands of `sched`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulerAction {
    /// Simulate transfers over a network, and compare how well optimisers choose the numbers of connections.
    Simulate(Simulation),
}

/// Arguments of `sched simulate`.
#[derive(Debug, Args)]
pub(crate) struct Simulation {
    /// File with the scenario (TOML).
    pub scenario: PathBuf,
    /// Optimisers to compare; each one runs the same scenario.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_value = "knee,fts")]
    pub optimiser: Vec<OptimiserName>,
    /// Connections of each pipe with the optimiser `fixed`.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Seed of the file sizes, failures and measurement errors; the seed of the scenario is that of the world.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Write the measurements and decisions of each period to FILE, one line of JSON per period.
    #[arg(long, value_name = "FILE")]
    pub periods: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Optimisers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimiserName {
    /// Shares of the network, and as many connections as are not contended. Pipes over many links have lower shares.
    Knee,
    /// The same with equal shares.
    KneeEqual,
    /// The rule of FTS 3.13 with its default settings: 66 connections at the start, then 2 more at a time.
    Fts,
    /// The same from 2 connections on, with 1 more at a time.
    FtsFrom2,
    /// The rule of FTS 3.14, which does not remember the last throughput.
    #[value(name = "fts-3.14")]
    Fts314,
    /// The rule of FTS 3.13, and the connections of a link divided among its activities by weight.
    Fts4Wrr,
    /// The gradient of a utility, estimated from the last change (ALTO/TCN).
    TcnZero,
    /// The gradient of a model of the network that does not know that connections cost goodput (ALTO/TCN).
    TcnFirst,
    /// The number of connections given by --connections.
    Fixed,
}

impl OptimiserName {
    /// Returns the name on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
