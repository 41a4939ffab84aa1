//! Settings of `towpath alto`, each documented once: those of agents in [`towpath_alto_sources::settings`], those
//! common to all servers in [`ServeConfig`], the others here.

pub(crate) mod public_url;
pub mod rucio;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_alto::{compatibility::Profile, directory::LinkedDirectory, names::ResourceId};
use towpath_alto_sources::settings::agent::AgentConfig;
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, Limits, MetricsConfig, TlsConfig, listen},
    units::HumanDuration,
};

use self::{public_url::PublicUrl, rucio::RucioConfig};

/// ALTO has no assigned port; servers are found by the URI of their directory.
const DEFAULT_PORT: u16 = 8096;

/// All settings of `towpath alto`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AltoConfig {
    /// Addresses to listen on: `192.0.2.1:8096`, a host name, or a port for all addresses of this machine (`8096`).
    /// HTTP/1.1, HTTP/2 and TLS share each port.
    #[serde(deserialize_with = "listen::addresses::<DEFAULT_PORT, _>")]
    pub listen: Vec<SocketAddr>,
    /// Public URL of this server, if a proxy terminates TLS or adds a path: TIPS views are announced beneath it. By
    /// default they are announced beneath the URL of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<PublicUrl>,
    /// Maximum time that requests in flight may take to finish after the server begins to stop.
    pub drain: HumanDuration,
    /// TLS.
    pub tls: TlsConfig,
    /// Access control.
    pub access: AccessConfig,
    /// Origins whose pages may read responses (`https://dashboard.example.org`; `*`: all). Requests from such a page
    /// have the rights of the user's network location.
    pub origins: Vec<String>,
    /// Limits of one connection and of all connections.
    pub limits: Limits,
    /// The access log.
    pub access_log: AccessLogConfig,
    /// Ports for monitoring.
    pub metrics: MetricsConfig,
    /// Additionally offer paths in the format of another program: `openalto` for clients of OpenALTO's server,
    /// `openalto-client` for OpenALTO's public client. The name of the resource is `cern-pv` unless it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<Profile>,
    /// Directories of other servers that this server's directory refers to, by name (1 to 64 of A-Z a-z 0-9
    /// : @ _ - .).
    pub linked: BTreeMap<ResourceId, LinkedDirectory>,
    /// Rucio's distance table. It is disabled without `rses`.
    pub rucio: RucioConfig,
    /// File for the facts of servers, programs and routers, but not of local files. The server writes it, and after a
    /// restart uses the facts until the agents report again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<PathBuf>,
    /// Agents, the sources of facts about the network, by name. At least one is required. If facts contradict each other,
    /// those of the later name in alphabetical order take precedence.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// Offer in addition to the facts of agents.
#[derive(Debug, Clone, Default)]
pub struct DirectoryOptions {
    /// Format of another program.
    pub profile: Option<Profile>,
    /// Directories of other servers.
    pub linked: BTreeMap<ResourceId, LinkedDirectory>,
    /// Public URL; `None` to use that of the request.
    pub url: Option<PublicUrl>,
    /// Kinds of the agents by name, for the page for browsers.
    pub agents: BTreeMap<String, String>,
}

impl Default for AltoConfig {
    fn default() -> Self {
        let ServeConfig { drain, tls, access, limits, access_log, metrics, .. } = ServeConfig::default();
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
            metrics,
            compatibility,
            linked,
            rucio,
            snapshot,
            agents,
        }
    }
}

impl AltoConfig {
    /// Returns the offer in addition to the facts of agents.
    pub fn directory_options(&self) -> DirectoryOptions {
        let Self { compatibility, linked, url, agents, .. } = self.clone();
        let kind = |agent| Some(serde_json::to_value(agent).ok()?.get("kind")?.as_str()?.to_owned());
        let agents = agents.into_iter().map(|(name, agent)| (name, kind(agent).unwrap_or_default())).collect();
        DirectoryOptions { profile: compatibility, linked, url, agents }
    }

    /// Returns the settings of the underlying server.
    pub fn server(&self) -> ServeConfig {
        let Self { listen, drain, tls, access, limits, access_log, metrics, .. } = self.clone();
        ServeConfig { listen, drain, tls, access, limits, access_log, metrics, ..ServeConfig::default() }
    }
}
