//! The command line of `towpath alto`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};

/// Arguments of `alto`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct Alto {
    /// What to do; serve by default.
    #[command(subcommand)]
    pub action: Option<AltoAction>,
    /// Settings (TOML), including the agents that supply facts about the network.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on (repeat for more) [default: 127.0.0.1:8096].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
}

/// Commands other than serving.
#[derive(Debug, Subcommand)]
pub(crate) enum AltoAction {
    /// Read all facts of the agents once and report problems.
    Check,
}
