//! Arguments of `towpath cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use towpath_server::units::ByteSize;

/// Arguments of `cache`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CacheArguments {
    /// The subcommand; without one, the cache runs.
    #[command(subcommand)]
    pub action: Option<CacheAction>,
    /// URL of the storage to cache, such as `root://host//store` or `https://host/store`; of several with the same tree,
    /// the first one that can be reached is used.
    pub origin: Vec<String>,
    /// Storages that clients may name in the path, as in `/root://HOST//PATH`: hosts, `HOST:PORT`, or domains such as
    /// `.example.org`.
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    pub forward: Vec<String>,
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

/// Subcommands of `cache`: for a running cache, and `simulate`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheAction {
    /// Print counters: entries, and bytes served, fetched and bypassed by origin.
    Stats(CacheTarget),
    /// List the entries, and how much of each file is in the cache.
    Ls(CacheQuery),
    /// Print recent accesses with their hits and misses, and which part was slow.
    Explain(CacheQuery),
    /// Keep everything below a path in the cache, now and later.
    Pin(CacheChange),
    /// No longer keep what is below a path.
    Unpin(CacheChange),
    /// List the pinned paths.
    Pins(CacheTarget),
    /// Evict everything below a path, except for pinned entries and data in use.
    Evict(CacheChange),
    /// Compare all data in the cache with their checksums.
    Scrub(CacheTarget),
    /// Damage a file in the cache on purpose, to see the damage found and repaired.
    Chaos(CacheChaos),
    /// Replay access logs of a cache for other sizes, and print their hit rates.
    Simulate(CacheSimulation),
}

impl CacheAction {
    /// Returns the running cache that the command is for, if it is for one.
    pub(crate) fn target(&self) -> Option<&CacheTarget> {
        Some(match self {
            Self::Stats(target) | Self::Pins(target) | Self::Scrub(target) => target,
            Self::Ls(query) | Self::Explain(query) => &query.target,
            Self::Pin(change) | Self::Unpin(change) | Self::Evict(change) => &change.target,
            Self::Chaos(chaos) => &chaos.target,
            Self::Simulate(_) => return None,
        })
    }
}

/// A running cache.
#[derive(Debug, Args)]
pub(crate) struct CacheTarget {
    /// Directory of the cache, to be run as its user.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of queries.
#[derive(Debug, Args)]
pub(crate) struct CacheQuery {
    /// Path in the cache; without one, everything.
    pub path: Option<String>,
    #[command(flatten)]
    pub target: CacheTarget,
}

/// Arguments of changes.
#[derive(Debug, Args)]
pub(crate) struct CacheChange {
    /// Path in the cache.
    pub path: String,
    #[command(flatten)]
    pub target: CacheTarget,
}

/// Arguments of `cache chaos`.
#[derive(Debug, Args)]
pub(crate) struct CacheChaos {
    /// The damage.
    pub kind: ChaosKind,
    /// Path in the cache.
    pub path: String,
    #[command(flatten)]
    pub target: CacheTarget,
}

/// Arguments of `cache simulate`.
#[derive(Debug, Args)]
pub(crate) struct CacheSimulation {
    /// Access logs of a cache, the oldest first; `-` for standard input.
    #[arg(required = true, value_name = "ACCESSLOG")]
    pub logs: Vec<PathBuf>,
    /// Sizes to simulate, at most 16, such as `100GB,1TB`. The size that holds everything is always found.
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
    pub sizes: Vec<ByteSize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A kind of damage.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ChaosKind {
    /// Flip a bit.
    Corrupt,
    /// Truncate the data.
    Truncate,
}
