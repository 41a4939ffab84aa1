//! Arguments of `towpath wan`.

use std::{ffi::OsString, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use towpath_wan::{HostIndex, LinkSettings, Queue, Rate, parse_bytes};

/// Arguments of `wan`.
#[derive(Debug, Args)]
pub(crate) struct Wan {
    /// What about it.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the emulator.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start an emulator in the background.
    Up(Up),
    /// Change links while the emulator runs.
    Set(Set),
    /// Run a command in a host.
    Exec(Exec),
    /// Show what every link did.
    Stats(Stats),
    /// End an emulator and all that runs in its hosts.
    Down(Name),
    /// Start an emulator, run a command in its first host, and end it.
    Run(Run),
}

/// Which emulator.
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
    /// Stay in the foreground.
    #[arg(long)]
    pub foreground: bool,
}

/// Arguments of `wan set`.
#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub name: Name,
    /// The pair of hosts whose links to change, both ways [default: all pairs].
    #[arg(long, value_name = "A-B", conflicts_with_all = ["up", "down"])]
    pub pair: Option<Pair>,
    /// Change only the direction from the first host of the pair to the second.
    #[arg(long, requires = "pair")]
    pub one_way: bool,
    /// Change what this host shares for all that it sends.
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with = "down")]
    pub up: Option<HostIndex>,
    /// Change what this host shares for all that it receives.
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub down: Option<HostIndex>,
    #[command(flatten)]
    pub link: Link,
    /// Lose everything for that long, from now on.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub outage: Option<Duration>,
}

/// Arguments of `wan exec`.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub name: Name,
    /// The host's number, from 1.
    #[arg(value_parser = host)]
    pub host: HostIndex,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `wan stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub name: Name,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wan run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub network: Network,
    /// The command and its arguments. In it, `towpath wan exec`, `set` and `stats` mean this emulator.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What the network is like.
#[derive(Debug, Args)]
pub(crate) struct Network {
    #[command(flatten)]
    pub link: Link,
    /// Number of hosts, 198.18.0.1 and so on.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub hosts: usize,
    /// Rate that each host shares for all that it sends, and for all that it receives [default: unlimited].
    #[arg(long, value_name = "RATE")]
    pub access: Option<Rate>,
    /// Congestion control of the hosts, such as bbr [default: this machine's].
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Largest send and receive buffer of a connection [default: this machine's].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub buf: Option<u32>,
    /// Largest packet in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u16,
    /// What decides about loss, jitter and reordering.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What the link of a pair is like, in each direction.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Round trip: half of it in each direction.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub rtt: Option<Duration>,
    /// Bits per second on Ethernet, such as 1Gbit: packets with 1448 bytes of payload take 1538 [default: unlimited].
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Queue limit: a size such as 12MB, or bdp, the rate times the round trip, at least 1 MiB [default: bdp].
    #[arg(long, value_name = "SIZE")]
    pub queue: Option<Queue>,
    /// Share of packets that is lost, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<f64>,
    /// Packets lost in a row, on average.
    #[arg(long, value_name = "N")]
    pub loss_burst: Option<f64>,
    /// Up to so much later, at random; packets keep their order.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub jitter: Option<Duration>,
    /// Share of packets that come late, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<f64>,
    /// How much later those come [default: 1ms].
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
        let (first, second) = text.split_once('-').ok_or("a pair is written as 1-2")?;
        Ok(Self(host(first)?, host(second)?))
    }
}

fn host(text: &str) -> Result<HostIndex, String> {
    let number = text.parse().ok().and_then(HostIndex::from_number);
    number.ok_or_else(|| format!("`{text}` is no host: they are numbered from 1"))
}

fn buffer(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    // The kernel keeps it as an int, and wants at least a page.
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (4096..=1 << 30).contains(bytes))
        .ok_or("a buffer is of 4 KiB to 1 GiB".to_owned())
}
