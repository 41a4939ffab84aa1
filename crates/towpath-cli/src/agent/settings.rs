//! Settings of `towpath agent`. Each is documented on its field.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_server::units::{ByteSize, HumanDuration};

use super::directory::AgentDirectory;
use crate::cache::{CacheConfig, CredentialConfig, ForwardConfig, SpaceConfig};

/// The address of agents. At the usual one, ROOT looks for each path on the local disk first, and reports that it cannot parse
/// it.
const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// All settings of `towpath agent`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentConfig {
    /// Directory for the cached data, the log, and the list of the storages that the agent may contact. It must be on a
    /// local file system, and belong to the user alone. By default `/var/tmp/towpath-agent-UID`: a home directory may be
    /// that of several machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Storages that the agent may contact, beside those named with `towpath agent url`: `host` at the default port,
    /// `host:port`, or all hosts of a domain, such as `.example.org`. They get the token of the user.
    pub hosts: Vec<String>,
    /// Maximum space of the cached data.
    pub space: ByteSize,
    /// Time without a connection after which the agent ends.
    pub idle: HumanDuration,
    /// File or directory with certificates (PEM) of authorities that the certificate of a storage may be issued by, in
    /// addition to those of the system. By default `TOWPATH_CA_FILE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            directory: None,
            hosts: Vec::new(),
            space: ByteSize(20_000_000_000),
            idle: HumanDuration(Duration::from_secs(3600)),
            ca: None,
        }
    }
}

impl AgentConfig {
    /// Returns the settings of the agent's cache at a port of the loopback; 0 chooses one. `ca` is used if the settings
    /// have none.
    pub(super) fn cache(&self, directory: &AgentDirectory, port: u16, ca: Option<PathBuf>) -> CacheConfig {
        CacheConfig {
            forward: ForwardConfig { hosts: self.hosts.clone(), credential: CredentialConfig::Own, token: None },
            directory: directory.data(),
            ca: self.ca.clone().or(ca),
            columns: true,
            space: SpaceConfig { max: Some(self.space), ..SpaceConfig::default() },
            listen: vec![(LOOPBACK, port).into()],
            ..CacheConfig::default()
        }
    }
}
