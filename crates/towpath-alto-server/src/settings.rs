//! The settings of `towpath alto`, each documented once: those of agents in [`towpath_alto_sources::settings`], those that all servers have in [`ServeConfig`], the others here.

pub mod public_url;
pub mod rucio;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use towpath_alto::{compatibility::Profile, directory::Linked, names::ResourceId};
use towpath_alto_sources::settings::agent::AgentConfig;
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, Limits, TlsConfig},
    units::Span,
};

use self::{public_url::PublicUrl, rucio::RucioConfig};

/// There is no port of its own for ALTO; servers are found by their directory's address.
const DEFAULT_PORT: u16 = 8096;

/// All settings of `towpath alto`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AltoConfig {
    /// Addresses to listen on. HTTP/1.1, HTTP/2 and TLS share each port.
    pub listen: Vec<SocketAddr>,
    /// Where the server is from outside, if a proxy speaks TLS for it or adds a path (`https://alto.example.org/path`): views are told to be beneath that. Without it they are where
    /// the request says that it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<PublicUrl>,
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
    /// The form of another program in which paths are offered too: `openalto`, whose resource is then `cern-pv`, or `openalto:NAME`;
    /// `openalto-client` for what OpenALTO's own client reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<Profile>,
    /// Directories of other servers to which the own one refers, by name.
    pub linked: BTreeMap<ResourceId, Linked>,
    /// Rucio's table of distances.
    pub rucio: RucioConfig,
    /// A file for what agents know that is not read from files here: what servers, programs and routers told. After a start it holds until they tell it anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<PathBuf>,
    /// What knows the network, by name. What a later name says of the same thing holds.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// What there is beside what agents tell.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The form of another program.
    pub profile: Option<Profile>,
    /// Directories of other servers.
    pub linked: BTreeMap<ResourceId, Linked>,
    /// Where the server is from outside; none: where a request says.
    pub url: Option<PublicUrl>,
}

impl Default for AltoConfig {
    fn default() -> Self {
        let ServeConfig { drain, tls, access, limits, access_log, .. } = ServeConfig::default();
        let listen = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)];
        let (url, origins, compatibility, linked, rucio, snapshot, agents) = Default::default();
        Self {
            listen,
            url,
            drain,
            tls,
            access,
            origins,
            limits,
            access_log,
            compatibility,
            linked,
            rucio,
            snapshot,
            agents,
        }
    }
}

impl AltoConfig {
    /// What there is beside what agents tell.
    pub fn offer(&self) -> Offer {
        Offer { profile: self.compatibility.clone(), linked: self.linked.clone(), url: self.url.clone() }
    }

    /// What the server behind it has to know.
    pub fn server(&self) -> ServeConfig {
        let Self { listen, drain, tls, access, limits, access_log, .. } = self.clone();
        ServeConfig { listen, drain, tls, access, limits, access_log, ..ServeConfig::default() }
    }
}
