//! The command line of `probe`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use towpath_client::MAX_CONNECTIONS;
use towpath_proto::probe::{Direction, MAX_PROBE, SAMPLING};
use towpath_wan::parse_bytes;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// URL of a path at the server (root, roots, http, https, dav, davs). Requires access to this path; a file is also
    /// read.
    pub url: OsString,
    /// Number of concurrent connections; a comma-separated list is probed in order [default: the best number of earlier
    /// copies over this path, else the initial number of a copy].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = connections)]
    pub connections: Vec<usize>,
    /// Equivalent to --connections 1,2,4,8.
    #[arg(long, conflicts_with = "connections")]
    pub sweep: bool,
    /// Direction in which to probe the network.
    #[arg(long, value_enum, default_value_t = ProbeDirections::Both)]
    pub direction: ProbeDirections,
    /// Duration of each leg in seconds, 1 to 60 [default: 5, or 30 round trips if that is longer].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=MAX_PROBE.as_secs() as i64))]
    pub seconds: Option<u32>,
    /// Sampling interval, 10ms to 1s.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub interval: Duration,
    /// Also write scratch files to the server and remove them, to measure its storage and the cost per file.
    #[arg(long)]
    pub write: bool,
    /// Also measure the disk of DIR by writing, reading and removing scratch files.
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// Predict the duration of a copy of PLACE: a local file or directory to the server, or a remote one to this
    /// machine.
    #[arg(long = "for", value_name = "PLACE", conflicts_with_all = ["files", "bytes"])]
    pub set: Option<OsString>,
    /// Predict the duration of a copy of N files with the total size --bytes.
    #[arg(long, value_name = "N", requires = "bytes")]
    pub files: Option<u64>,
    /// Total size of the files of --files, such as `100GB`.
    #[arg(long, value_name = "SIZE", requires = "files", value_parser = parse_bytes)]
    pub bytes: Option<u64>,
    /// Write the kernel statistics of each connection of the network legs to FILE, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Directions of the network to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeDirections {
    /// From the server to this machine.
    Down,
    /// From this machine to the server.
    Up,
    /// Both directions, one after the other.
    Both,
}

impl ProbeDirections {
    /// Returns the directions in the order in which they are probed.
    pub(crate) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Down => &[Direction::Down],
            Self::Up => &[Direction::Up],
            Self::Both => &[Direction::Down, Direction::Up],
        }
    }
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| (1..=MAX_CONNECTIONS).contains(number));
    number.ok_or_else(|| format!("must be from 1 to {MAX_CONNECTIONS}"))
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| (SAMPLING[0]..=SAMPLING[1]).contains(time));
    time.ok_or_else(|| "must be from 10ms to 1s".to_owned())
}
