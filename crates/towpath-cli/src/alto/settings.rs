//! The settings of `towpath alto`, each documented once: those of agents in [`agent`], those that all servers have in [`ServeConfig`], the others here.

pub(crate) mod agent;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use towpath_alto::compatibility::Profile;
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, Limits, TlsConfig},
    units::Span,
};

use self::agent::AgentConfig;

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
    /// The form of another program in which paths are offered too: `openalto`, whose resource is then `cern-pv`, or `openalto:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<Profile>,
    /// What knows the network, by name. What a later name says of the same thing holds.
    pub agents: BTreeMap<String, AgentConfig>,
}

impl Default for AltoConfig {
    fn default() -> Self {
        let ServeConfig { drain, tls, access, limits, access_log, .. } = ServeConfig::default();
        let listen = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)];
        let (origins, compatibility, agents) = (Vec::new(), None, BTreeMap::new());
        Self { listen, drain, tls, access, origins, limits, access_log, compatibility, agents }
    }
}

impl AltoConfig {
    /// What the server behind it has to know.
    pub(crate) fn server(&self) -> ServeConfig {
        let Self { listen, drain, tls, access, limits, access_log, origins: _, compatibility: _, agents: _ } =
            self.clone();
        ServeConfig { listen, drain, tls, access, limits, access_log, ..ServeConfig::default() }
    }
}
