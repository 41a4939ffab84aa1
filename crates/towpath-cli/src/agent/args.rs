//! Arguments of `towpath agent`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub action: AgentAction,
}

/// Subcommands of `agent`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentAction {
    /// Print the URLs with which programs read files through the agent. Start the agent if none runs, and permit it to
    /// contact the storages of the files.
    Url(AgentStorages),
    /// Print a command for the shell that sets TOWPATH_AGENT: written before a URL, it is that through the agent. Start
    /// the agent if none runs.
    Env(AgentStorages),
    /// Print the address of the agent, and its counters by storage.
    Status,
    /// Stop the agent.
    Stop,
    /// Run the agent in the foreground.
    Run(AgentRun),
}

/// Storages that the agent may contact.
#[derive(Debug, Args)]
pub(crate) struct AgentStorages {
    /// URLs of files: root, roots, http, https, dav, davs. The agent may contact their storages from now on.
    #[arg(value_name = "URL")]
    pub urls: Vec<OsString>,
}

/// Arguments of `agent run`.
#[derive(Debug, Args)]
pub(crate) struct AgentRun {
    /// Leave the session of the terminal.
    #[arg(long, hide = true)]
    pub detached: bool,
}
