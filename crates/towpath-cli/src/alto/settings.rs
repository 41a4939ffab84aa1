//! The settings of `towpath alto`, each documented once, here; those that all servers have, in [`ServeConfig`].

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use towpath_alto::{
    facts::Prefix,
    names::{ResourceId, RouterName},
};
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, Limits, TlsConfig},
    units::Span,
};

/// There is no port of its own for ALTO; servers are found by their directory's address.
const DEFAULT_PORT: u16 = 8096;

/// All settings of `towpath alto`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AltoConfig {
    /// Addresses to listen on. HTTP/1.1, HTTP/2 and TLS share each port.
    pub listen: Vec<SocketAddr>,
    /// How long requests under way may go on once the server was told to stop.
    pub drain: Span,
    /// TLS.
    pub tls: TlsConfig,
    /// Who may ask.
    pub access: AccessConfig,
    /// Origins whose pages may read what is told (`https://dashboard.example.org`; `*`: all). Whoever looks at such a page asks with the right of their place in the network.
    pub origins: Vec<String>,
    /// Bounds.
    pub limits: Limits,
    /// The access log.
    pub access_log: AccessLogConfig,
    /// What knows the network, by name. What a later name says of the same thing holds.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// Something that knows a part of the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum AgentConfig {
    /// A file of facts, TOML or JSON.
    Static {
        /// The file.
        file: PathBuf,
        /// How often to look whether it has changed.
        #[serde(default = "refresh")]
        refresh: Span,
    },
    /// Dumps of routing tables and of updates (MRT, RFC 6396; plain or gzip). Each peer of the collector is a router, which serves what it originates.
    Mrt {
        /// The dumps, the oldest first.
        files: Vec<PathBuf>,
        /// How often to look whether one has changed.
        #[serde(default = "refresh")]
        refresh: Span,
    },
    /// Sites with their prefixes, as WLCG's registry (CRIC) lists them in JSON: a network map with a PID for each, properties of them, and their distances as costs.
    Sites {
        /// The list.
        file: PathBuf,
        /// How the network map is called.
        #[serde(default = "default_map")]
        map: ResourceId,
        /// How often to look whether the list has changed.
        #[serde(default = "refresh")]
        refresh: Span,
    },
    /// Results of measurements between addresses or prefixes: CSV, JSON, iperf3, perfSONAR, `towpath probe --json`. Those between names of sites are skipped.
    Measurements {
        /// The results.
        files: Vec<PathBuf>,
        /// Where they were measured: the near end of those that name only the far one.
        #[serde(default)]
        here: Option<String>,
        /// How often to look whether one has changed.
        #[serde(default = "refresh")]
        refresh: Span,
    },
    /// What a looking glass printed of the routes of one router (Junos, FRR, IOS, BIRD): text, or the page with it.
    LookingGlass {
        /// The file.
        file: PathBuf,
        /// How the router is called.
        router: RouterName,
        /// What is behind it; nothing: all that no other router serves.
        #[serde(default)]
        serves: Vec<Prefix>,
        /// How often to look whether the file has changed.
        #[serde(default = "refresh")]
        refresh: Span,
    },
}

impl AgentConfig {
    /// How often to look whether what it reads has changed.
    pub(crate) fn refresh(&self) -> Duration {
        match self {
            AgentConfig::Static { refresh, .. }
            | AgentConfig::Mrt { refresh, .. }
            | AgentConfig::Sites { refresh, .. }
            | AgentConfig::Measurements { refresh, .. }
            | AgentConfig::LookingGlass { refresh, .. } => refresh.0,
        }
    }
}

fn default_map() -> ResourceId {
    ResourceId::new("default").expect("a valid name")
}

fn refresh() -> Span {
    Span(Duration::from_secs(5))
}

impl Default for AltoConfig {
    fn default() -> Self {
        let ServeConfig { drain, tls, access, limits, access_log, .. } = ServeConfig::default();
        let listen = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)];
        Self { listen, drain, tls, access, origins: Vec::new(), limits, access_log, agents: BTreeMap::new() }
    }
}

impl AltoConfig {
    /// What the server behind it has to know.
    pub(crate) fn server(&self) -> ServeConfig {
        let Self { listen, drain, tls, access, limits, access_log, origins: _, agents: _ } = self.clone();
        ServeConfig { listen, drain, tls, access, limits, access_log, ..ServeConfig::default() }
    }
}
