//! Arguments of `towpath alto`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `alto`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct Alto {
    /// The subcommand; without one, the server runs.
    #[command(subcommand)]
    pub action: Option<AltoAction>,
    /// Configuration file (TOML), including the agents that supply facts about the network.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on, or a port for all addresses; may be repeated [default: 127.0.0.1:8096].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
}

/// Subcommands of `alto`.
#[derive(Debug, Subcommand)]
pub(crate) enum AltoAction {
    /// Read the facts of all agents once and report problems.
    Check,
}
