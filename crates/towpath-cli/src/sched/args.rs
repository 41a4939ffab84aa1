//! Arguments of `towpath sched`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser},
};
use towpath_sched::optimiser::{MAX_FIXED_CONNECTIONS, OptimiserName};

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
    #[arg(long, value_name = "NAME,...", value_parser = optimiser(), value_delimiter = ',', default_value = "knee,fts")]
    pub optimiser: Vec<OptimiserName>,
    /// Connections of each pipe with the optimiser `fixed`.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = connections())]
    pub connections: u32,
    /// Seed of the file sizes, failures and measurement errors; the seed of the scenario is that of the world.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Write the network, the measurements and decisions of each period, and the completions to FILE, as lines of JSON.
    #[arg(long, value_name = "FILE")]
    pub periods: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parses the name of an optimiser.
fn optimiser() -> impl TypedValueParser<Value = OptimiserName> {
    let value = |optimiser: OptimiserName| PossibleValue::new(optimiser.name()).help(optimiser.description());
    PossibleValuesParser::new(OptimiserName::ALL.map(value)).try_map(|name| name.parse())
}

/// Parses a number of connections.
fn connections() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=i64::from(MAX_FIXED_CONNECTIONS))
}
