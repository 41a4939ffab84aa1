//! The command line of `probe`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use towpath_client::MAX_CONNECTIONS;
use towpath_proto::probe::{Direction, SAMPLING};
use towpath_wan::parse_bytes;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// A place at the server (root, roots, http, https, dav, davs): rights are those for this path. If it is a file, it
    /// is read.
    pub url: OsString,
    /// Connections side by side; several numbers, with commas, are probed one after the other [default: as many as
    /// copies over this path have found best, else as many as one begins with].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = connections)]
    pub connections: Vec<usize>,
    /// The same as --connections 1,2,4,8.
    #[arg(long, conflicts_with = "connections")]
    pub sweep: bool,
    /// Which way the network is probed.
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    pub direction: Ways,
    /// How long each leg takes, in seconds, at most 60.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// The time between two samples, 10ms to 1s.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub interval: Duration,
    /// Write scratch files at the server too, and remove them: what its storage takes, and what single files cost.
    #[arg(long)]
    pub write: bool,
    /// Measure the disk of this directory too: scratch files are written, read and removed.
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// Predict how long a copy of that takes: of a local directory or file to the server, or of one at the server to
    /// here.
    #[arg(long = "for", value_name = "PLACE", conflicts_with_all = ["files", "bytes"])]
    pub set: Option<OsString>,
    /// Predict the duration of a copy of this number of files, together with --bytes.
    #[arg(long, value_name = "N", requires = "bytes")]
    pub files: Option<u64>,
    /// How large they are together: `100GB`.
    #[arg(long, value_name = "SIZE", requires = "files", value_parser = parse_bytes)]
    pub bytes: Option<u64>,
    /// Write what the kernels said of each connection of the network legs to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Which way to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ways {
    /// From the server to here.
    Down,
    /// From here to the server.
    Up,
    /// Both, one after the other.
    Both,
}

impl Ways {
    /// The directions.
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
    number.ok_or_else(|| format!("from 1 to {MAX_CONNECTIONS}"))
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| (SAMPLING[0]..=SAMPLING[1]).contains(time));
    time.ok_or_else(|| "from 10ms to 1s".to_owned())
}
