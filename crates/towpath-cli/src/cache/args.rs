//! Arguments of `towpath cache`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// URL of the storage to cache, such as `root://host//store` or `https://host/store`.
    pub origin: Option<String>,
    /// Directory for the cached data; it is created if it is missing.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Address to listen on, or a port for all addresses; may be repeated [default: 127.0.0.1:1094].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
