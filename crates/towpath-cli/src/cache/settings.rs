//! Settings of `towpath cache`. Each is documented on its field; those common to all servers in [`ServeConfig`].

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_cache::{CacheOptions, Credential, Recheck, Rules};
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, DEFAULT_PORT, HttpConfig, Limits, MetricsConfig, TlsConfig, listen},
    units::{ByteSize, HumanDuration},
};
use towpath_store::StorePath;

use crate::failure::Failure;

/// One file descriptor of this number keeps a file without a reader open.
const IDLE_SHARE: u64 = 32;

/// All settings of `towpath cache`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CacheConfig {
    /// URL of the storage to cache: `root://host//store`, `https://host/store`. Its directory is the root of the cache's
    /// tree.
    pub origin: String,
    /// Directory for the cached data; it is created if it is missing. It must be on a local file system, and belongs to
    /// this cache alone.
    pub directory: PathBuf,
    /// The credential of requests to the origin.
    pub credential: CredentialConfig,
    /// File with the bearer token of the cache for the origin. By default it is found as in the commands for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
    /// File or directory with certificates (PEM) of authorities that the origin's certificate may be issued by, in
    /// addition to those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// How often the cache checks the version of a file at the origin, by path. The rule of the longest path counts;
    /// the default is a check at each open.
    pub rule: Vec<RuleConfig>,
    /// Maximum number of bytes in flight from the origin. It bounds memory, and limits the throughput to this many bytes
    /// per round trip.
    pub bytes_in_flight: ByteSize,
    /// Limits of the space that the cache takes.
    pub space: SpaceConfig,
    /// Addresses to listen on: `192.0.2.1:1094`, a host name, or a port for all addresses of this machine (`1094`).
    /// XRootD, HTTP and TLS share each port.
    #[serde(deserialize_with = "listen::addresses::<DEFAULT_PORT, _>")]
    pub listen: Vec<SocketAddr>,
    /// Name of the site, as reported to clients. If it is empty: `towpath`, and on pages for browsers the host in their
    /// URL.
    pub site: String,
    /// Maximum time that requests in flight may take to finish after the server begins to stop.
    pub drain: HumanDuration,
    /// TLS.
    pub tls: TlsConfig,
    /// Access rules.
    pub access: AccessConfig,
    /// HTTP and WebDAV behaviour on which clients disagree.
    pub http: HttpConfig,
    /// Limits.
    pub limits: Limits,
    /// The access log.
    pub access_log: AccessLogConfig,
    /// Ports for monitoring.
    pub metrics: MetricsConfig,
}

/// The credential of requests to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CredentialConfig {
    /// The credential of the cache, for all callers: only the access rules of the cache decide which files they may
    /// read.
    Own,
    /// The token of the caller, or none: the origin decides at each open.
    Caller,
}

/// Limits of the space that the cache takes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SpaceConfig {
    /// Maximum space of the cached data; without it, only the watermarks limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<ByteSize>,
    /// Share of the disk in use, by the cache and by others, at which eviction begins: 0 to 1.
    pub high: f64,
    /// Share of the disk in use at which eviction ends. Of `max`, eviction frees the same proportion.
    pub low: f64,
}

impl Default for SpaceConfig {
    fn default() -> Self {
        let CacheOptions { high_watermark, low_watermark, .. } = CacheOptions::default();
        Self { max: None, high: high_watermark, low: low_watermark }
    }
}

/// A rule for the files below a path.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleConfig {
    /// The path; the rule covers everything below it.
    pub path: String,
    /// `always`: a check at each open. `never`: files do not change. A duration, such as `1h`: a check at the first open
    /// after this time. With `credential = "caller"` each open is a check.
    pub recheck: String,
}

impl From<CredentialConfig> for Credential {
    fn from(credential: CredentialConfig) -> Self {
        match credential {
            CredentialConfig::Own => Self::Own,
            CredentialConfig::Caller => Self::Caller,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        let ServeConfig { listen, site, drain, tls, access, http, limits, access_log, metrics, .. } =
            ServeConfig::default();
        Self {
            origin: String::new(),
            directory: PathBuf::new(),
            credential: CredentialConfig::Own,
            token: None,
            ca: None,
            rule: Vec::new(),
            space: SpaceConfig::default(),
            bytes_in_flight: ByteSize(64 << 20),
            listen,
            site,
            drain,
            tls,
            access,
            http,
            limits,
            access_log,
            metrics,
        }
    }
}

impl Default for RuleConfig {
    fn default() -> Self {
        Self { path: "/".into(), recheck: Recheck::default().to_string() }
    }
}

impl CacheConfig {
    /// Returns the options of the cache directory, for a process that may open so many file descriptors.
    pub(crate) fn cache(&self, descriptors: u64) -> CacheOptions {
        CacheOptions {
            disk_jobs: self.limits.disk_threads,
            idle_files: (descriptors / IDLE_SHARE).clamp(1, 1024) as usize,
            max_bytes: self.space.max.map(|max| max.0),
            high_watermark: self.space.high,
            low_watermark: self.space.low,
        }
    }

    /// Returns whether settings that a running cache cannot change differ: all but those of its server.
    pub(crate) fn differs_in_cache(&self, other: &Self) -> bool {
        let of_cache = |config: &Self| {
            let server = Self::default();
            let Self { origin, directory, credential, token, ca, rule, space, bytes_in_flight, .. } = config.clone();
            let cache = Self { origin, directory, credential, token, ca, rule, space, bytes_in_flight, ..server };
            toml::to_string(&cache).unwrap_or_default()
        };
        of_cache(self) != of_cache(other)
    }

    /// Checks the limits of the space.
    ///
    /// # Errors
    /// The watermarks are not in order.
    pub(crate) fn check_space(&self) -> Result<(), Failure> {
        let SpaceConfig { high, low, .. } = self.space;
        if 0.0 < low && low <= high && high <= 1.0 {
            return Ok(());
        }
        let message =
            format!("space: `low` ({low}) and `high` ({high}) must be shares of the disk: 0 < low <= high <= 1");
        Err(Failure::Usage(message))
    }

    /// Returns the rules of the origin.
    ///
    /// # Errors
    /// A path or a word is invalid.
    pub(crate) fn rules(&self) -> Result<Rules, Failure> {
        let rules = self.rule.iter().map(|RuleConfig { path, recheck }| {
            let invalid = |problem: String| Failure::Usage(format!("rule for {path}: {problem}"));
            let prefix = StorePath::parse(path.as_bytes()).map_err(|error| invalid(error.to_string()))?;
            Ok((prefix, recheck.parse::<Recheck>().map_err(invalid)?))
        });
        Ok(Rules::new(rules.collect::<Result<_, Failure>>()?))
    }

    /// Returns the settings of the underlying server.
    pub(crate) fn server(&self) -> ServeConfig {
        let Self { listen, site, drain, tls, access, http, limits, access_log, metrics, .. } = self.clone();
        ServeConfig { listen, site, drain, tls, access, http, limits, access_log, metrics, ..ServeConfig::default() }
    }
}
