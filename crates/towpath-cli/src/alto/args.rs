//! The command line of `towpath alto`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};

/// Arguments of `alto`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct Alto {
    /// What to do; nothing: serve.
    #[command(subcommand)]
    pub action: Option<AltoAction>,
    /// Settings (TOML), with the agents that know the network.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on (repeat for more) [default: 127.0.0.1:8096].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
}

/// What to do beside serving.
#[derive(Debug, Subcommand)]
pub(crate) enum AltoAction {
    /// Read all that agents know once, and say what is wrong with it.
    Check,
}
