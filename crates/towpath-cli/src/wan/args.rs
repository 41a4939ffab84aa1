//! Arguments of `towpath wan`.

use std::{ffi::OsString, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use towpath_wan::{HostIndex, LinkSettings, Queue, Rate, parse_bytes};

/// Arguments of `wan`.
#[derive(Debug, Args)]
pub(crate) struct Wan {
    /// The subcommand.
    #[command(subcommand)]
    pub action: Action,
}

/// Subcommands of `wan`.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start an emulator in the background.
    Up(Up),
    /// Change links while the emulator runs.
    Set(Set),
    /// Run a command in a host.
    Exec(Exec),
    /// Print the statistics of hosts and links.
    Stats(Stats),
    /// Stop an emulator and all processes in its hosts.
    Down(Name),
    /// Run a command in the first host of a temporary emulator.
    Run(Run),
}

/// Selects an emulator.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Name of the emulator.
    #[arg(long, value_name = "NAME", env = "TOWPATH_WAN", default_value = "wan")]
    pub name: String,
}

/// Arguments of `wan up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub name: Name,
    #[command(flatten)]
    pub network: Network,
    /// Run in the foreground.
    #[arg(long)]
    pub foreground: bool,
}

/// Arguments of `wan set`.
#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub name: Name,
    /// Pair of hosts whose links to change in both directions [default: all pairs].
    #[arg(long, value_name = "A-B", conflicts_with_all = ["up", "down"])]
    pub pair: Option<Pair>,
    /// Change only the direction from the first host of the pair to the second.
    #[arg(long, requires = "pair")]
    pub one_way: bool,
    /// Change the link that all traffic sent by this host shares.
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with = "down")]
    pub up: Option<HostIndex>,
    /// Change the link that all traffic received by this host shares.
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub down: Option<HostIndex>,
    #[command(flatten)]
    pub link: Link,
    /// Drop all packets for this duration, starting now.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub outage: Option<Duration>,
}

/// Arguments of `wan exec`.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub name: Name,
    /// Number of the host, starting at 1.
    #[arg(value_parser = host)]
    pub host: HostIndex,
    /// Command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `wan stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub name: Name,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wan run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub network: Network,
    /// Command and its arguments. Within it, `towpath wan exec`, `set` and `stats` refer to this emulator.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The emulated network.
#[derive(Debug, Args)]
pub(crate) struct Network {
    #[command(flatten)]
    pub link: Link,
    /// Number of hosts; addresses start at 198.18.0.1.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub hosts: usize,
    /// Access rate of each host, for the sum of its traffic in each direction [default: unlimited].
    #[arg(long, value_name = "RATE")]
    pub access: Option<Rate>,
    /// Congestion control algorithm of the hosts, such as bbr [default: that of this machine].
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Maximum send and receive buffer of a connection, 4KiB to 1GiB [default: that of this machine].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub buf: Option<u32>,
    /// Maximum packet size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u16,
    /// Seed of the random numbers for loss, jitter and reordering.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// The link between two hosts, in each direction.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Round-trip time; each direction delays by half of it.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub rtt: Option<Duration>,
    /// Bits per second including Ethernet framing, such as 1Gbit: 1448 bytes of payload take 1538 bytes [default:
    /// unlimited].
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Queue limit: a size such as 12MB, or bdp for rate times round-trip time, at least 1 MiB [default: bdp].
    #[arg(long, value_name = "SIZE")]
    pub queue: Option<Queue>,
    /// Fraction of packets lost, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<f64>,
    /// Mean number of consecutive packets lost.
    #[arg(long, value_name = "N")]
    pub loss_burst: Option<f64>,
    /// Maximum random additional delay; packets keep their order.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub jitter: Option<Duration>,
    /// Fraction of packets delayed by --reorder-by, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<f64>,
    /// Additional delay of reordered packets [default: 1ms].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub reorder_by: Option<Duration>,
}

impl Link {
    /// Returns `settings` with the given values replaced.
    pub(crate) fn change(&self, settings: &LinkSettings) -> LinkSettings {
        LinkSettings {
            rate: self.rate.or(settings.rate),
            delay: self.rtt.map_or(settings.delay, |rtt| rtt / 2),
            queue: self.queue.unwrap_or(settings.queue),
            loss: self.loss.unwrap_or(settings.loss),
            loss_burst: self.loss_burst.unwrap_or(settings.loss_burst),
            jitter: self.jitter.unwrap_or(settings.jitter),
            reorder: self.reorder.unwrap_or(settings.reorder),
            reorder_by: self.reorder_by.unwrap_or(settings.reorder_by),
        }
    }
}

/// Two hosts, written `1-2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair(pub HostIndex, pub HostIndex);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, second) = text.split_once('-').ok_or("a pair must be written as 1-2")?;
        Ok(Self(host(first)?, host(second)?))
    }
}

fn host(text: &str) -> Result<HostIndex, String> {
    let number = text.parse().ok().and_then(HostIndex::from_number);
    number.ok_or_else(|| format!("`{text}` is not the number of a host: numbers start at 1"))
}

fn buffer(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    // The kernel stores it as an int, and requires at least one page.
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (4096..=1 << 30).contains(bytes))
        .ok_or("a buffer must be from 4 KiB to 1 GiB".to_owned())
}
