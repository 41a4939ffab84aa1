//! A wide-area network on one machine: hosts with real kernel TCP, connected by links of known rate, delay, queue and
//! loss.
//!
//! [`Wan`] is the emulator: [`Wan::two_hosts`] or [`Wan::builder`] creates it, [`Wan::set`] changes a link while it
//! runs, [`Wan::report`] returns the counters of all links. A [`Host`] runs closures ([`Host::within`]) and commands
//! ([`Host::spawn`]). Dropping the `Wan` kills all processes in the hosts and removes the hosts.
//!
//! The life of one packet: the kernel of a host writes it, often 64 KiB at once, to the host's TUN device; `engine`
//! reads it; `network` sends it through the links of its path, each of which (`link`) decides per segment whether and
//! when it passes; `segment` splits it where segments are missing; when it is due, `engine` writes it to the other
//! host's device. Requires root; nothing outside of the created namespaces is touched.
//!
//! The design is explained in `docs/rfcs/0002-wan-emulator.md`. This crate depends on no other towpath crate.

mod clock;
mod control;
mod engine;
mod error;
mod host;
mod kernel;
mod link;
mod network;
mod random;
mod segment;
mod units;

use std::time::Duration;

pub use control::{Control, ControlResponse, Request, StopConfirmation, ask, own_name};
pub use engine::{EngineCounters, LinkReport, NetworkReport};
pub use error::Error;
pub use host::{Host, exec_in};
pub use link::{LinkCounters, LinkSettings};
pub use network::{HostIndex, LinkName, NetworkCounters};
pub use units::{Queue, Rate, UnitError, parse_bytes};

use serde::{Deserialize, Serialize};

use crate::{engine::Engine, host::HostSettings, network::Network};

/// MTU of Ethernet.
const USUAL_MTU_BYTES: u16 = 1500;

/// Minimum MTU of a link with IPv6 (RFC 8200 §5).
const MIN_MTU_BYTES: u16 = 1280;

/// MTU of jumbo frames.
const MAX_MTU_BYTES: u16 = 9000;

/// Builder of a [`Wan`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    hosts: usize,
    pair: LinkSettings,
    links: Vec<(LinkName, LinkSettings)>,
    kernel: HostSettings,
    seed: u64,
}

impl Builder {
    /// Sets the number of hosts, 2 (the default) to 64.
    pub fn hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts;
        self
    }

    /// Sets the properties of the links between all pairs, in both directions; unlimited and without delay by default.
    pub fn pairs(mut self, settings: LinkSettings) -> Self {
        self.pair = settings;
        self
    }

    /// Sets the properties of one link in one direction.
    pub fn link(mut self, name: LinkName, settings: LinkSettings) -> Self {
        self.links.push((name, settings));
        self
    }

    /// Sets the MTU in bytes, 1280 to 9000; 1500 by default.
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.kernel.mtu_bytes = bytes;
        self
    }

    /// Sets the hosts' congestion control, such as `bbr`; that of the machine by default.
    pub fn congestion_control(mut self, name: impl Into<String>) -> Self {
        self.kernel.congestion_control = Some(name.into());
        self
    }

    /// Sets the maximum send and receive buffer of a connection in the hosts in bytes; that of the machine by default.
    pub fn most_buffer(mut self, bytes: u32) -> Self {
        self.kernel.most_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the seed of loss, jitter and reordering; fixed by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Creates the hosts and starts to carry packets between them.
    ///
    /// # Errors
    /// [`Error::NeedsRoot`], [`Error::Invalid`] settings, or [`Error::Kernel`] if the kernel lacks a feature. Nothing
    /// is left behind.
    pub fn build(self) -> Result<Wan, Error> {
        self.check()?;
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NeedsRoot);
        }
        let mut network = Network::new(self.hosts, &self.pair, self.seed);
        for (name, settings) in self.links {
            let link = network.link_mut(name).ok_or_else(|| no_such_link(name))?;
            link.set(settings);
        }
        let (mut hosts, mut devices) = (Vec::new(), Vec::new());
        for index in network.hosts() {
            let (host, device) = Host::start(*index, self.kernel.clone())?;
            hosts.push(host);
            devices.push(device);
        }
        Ok(Wan { hosts, engine: Engine::start(network, devices)? })
    }

    fn check(&self) -> Result<(), Error> {
        if !(2..=network::MAX_HOSTS).contains(&self.hosts) {
            return Err(Error::Invalid(format!("a WAN has 2 to {} hosts, not {}", network::MAX_HOSTS, self.hosts)));
        }
        if !(MIN_MTU_BYTES..=MAX_MTU_BYTES).contains(&self.kernel.mtu_bytes) {
            let mtu_bytes = self.kernel.mtu_bytes;
            return Err(Error::Invalid(format!(
                "packets are of {MIN_MTU_BYTES} to {MAX_MTU_BYTES} bytes, not {mtu_bytes}"
            )));
        }
        let links = self.links.iter().map(|(_, settings)| settings);
        links.chain([&self.pair]).try_for_each(check)
    }
}

fn check(settings: &LinkSettings) -> Result<(), Error> {
    settings.fault().map_or(Ok(()), |fault| Err(Error::Invalid(fault)))
}

fn no_such_link(name: LinkName) -> Error {
    Error::Invalid(format!("there is no link {name:?}: hosts are numbered from 1, and a pair has two"))
}

/// Report of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostReport {
    /// The host.
    pub host: HostIndex,
    /// Its address.
    pub address: std::net::Ipv4Addr,
    /// [`Host::namespace_path`].
    pub namespace: String,
    /// Packets that the emulator did not read in time; not caused by the link.
    pub overruns: u64,
}

/// Report of an emulator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Hosts in order.
    pub hosts: Vec<HostReport>,
    /// Links and engine.
    #[serde(flatten)]
    pub network: NetworkReport,
}

impl Report {
    /// Returns the settings of a link; a transparent access link is not in the report and has the default settings.
    #[must_use]
    pub fn settings(&self, link: LinkName) -> LinkSettings {
        let found = self.network.links.iter().find(|report| report.link == link);
        found.map_or_else(LinkSettings::default, |report| report.settings.clone())
    }
}

/// A running WAN emulator.
#[derive(Debug)]
pub struct Wan {
    // Dropped first: processes in the hosts are killed while the links still work, so that their peers are notified.
    hosts: Vec<Host>,
    engine: Engine,
}

impl Wan {
    /// Creates two hosts, connected by a link with that round trip and rate in each direction, and a queue of the
    /// bandwidth-delay product.
    ///
    /// # Errors
    /// Like [`Builder::build`].
    pub fn two_hosts(rtt: Duration, rate: Rate) -> Result<Self, Error> {
        Self::builder().pairs(LinkSettings { rate: Some(rate), delay: rtt / 2, ..LinkSettings::default() }).build()
    }

    /// Returns a builder for other networks.
    pub fn builder() -> Builder {
        let kernel = HostSettings { mtu_bytes: USUAL_MTU_BYTES, congestion_control: None, most_buffer_bytes: None };
        Builder { hosts: 2, pair: LinkSettings::default(), links: Vec::new(), kernel, seed: 1 }
    }

    /// Returns the hosts in order of their numbers.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns a host.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not exist.
    pub fn host(&self, index: HostIndex) -> Result<&Host, Error> {
        let none =
            || Error::Invalid(format!("there is no host {}: they are 1 to {}", index.number(), self.hosts.len()));
        self.hosts.get(index.at()).ok_or_else(none)
    }

    /// Changes a link for packets that enter it from now on. Packets in flight keep their arrival times.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such link, or the settings are out of bounds.
    pub fn set(&self, link: LinkName, settings: LinkSettings) -> Result<(), Error> {
        check(&settings)?;
        let is_there = self.engine.set(link, settings)?;
        is_there.then_some(()).ok_or_else(|| no_such_link(link))
    }

    /// Drops everything that enters a link from now on for `length`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such link.
    pub fn outage(&self, link: LinkName, length: Duration) -> Result<(), Error> {
        let is_there = self.engine.outage(link, length)?;
        is_there.then_some(()).ok_or_else(|| no_such_link(link))
    }

    /// Returns the settings and counters of the emulator.
    ///
    /// # Errors
    /// [`Error::Ended`], or [`Error::Kernel`] if a host's counters cannot be read.
    pub fn report(&self) -> Result<Report, Error> {
        let host = |host: &Host| {
            let (index, address, namespace) = (host.index(), host.address(), host.namespace_path());
            Ok(HostReport { host: index, address, namespace, overruns: host.overruns()? })
        };
        let hosts = self.hosts.iter().map(host).collect::<Result<_, Error>>()?;
        Ok(Report { hosts, network: self.engine.report()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_told_before_anything_is_made() {
        let wrong = LinkSettings { loss: 2.0, ..LinkSettings::default() };
        let host = |number| HostIndex::from_number(number).unwrap();
        for builder in [
            Wan::builder().hosts(1),
            Wan::builder().hosts(65),
            Wan::builder().mtu(576),
            Wan::builder().pairs(wrong.clone()),
            Wan::builder().link(LinkName::Pair(host(1), host(2)), wrong),
        ] {
            assert!(matches!(builder.build(), Err(Error::Invalid(_))));
        }
    }
}
