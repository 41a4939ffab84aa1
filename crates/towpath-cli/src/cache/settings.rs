//! Settings of `towpath cache`. Each is documented on its field; those common to all servers in [`ServeConfig`].

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use towpath_cache::{CacheOptions, Quota, Recheck, Rule, Rules, TreeOptions};
use towpath_server::{
    ServeConfig,
    config::{AccessConfig, AccessLogConfig, DEFAULT_PORT, HttpConfig, Limits, MetricsConfig, TlsConfig, listen},
    units::{ByteSize, HumanDuration},
};
use towpath_store::StorePath;

use crate::failure::Failure;

/// One file descriptor of this number keeps a file without a reader open.
const IDLE_SHARE: u64 = 8;
/// Maximum number of files that are kept open without a reader.
const MAX_IDLE_FILES: u64 = 8192;

/// All settings of `towpath cache`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CacheConfig {
    /// URL of the storage to cache: `root://host//store`, `https://host/store`. Its directory is the root of the cache's
    /// tree. A list names storages with the same tree; the first one that can be reached is used.
    #[serde(deserialize_with = "one_or_several")]
    pub origin: Vec<String>,
    /// Storages that clients may name in the path.
    pub forward: ForwardConfig,
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
    /// by default the origin decides.
    pub rule: Vec<RuleConfig>,
    /// Maximum number of bytes in flight from the origin. It bounds memory, and limits the throughput to this many bytes
    /// per round trip.
    pub bytes_in_flight: ByteSize,
    /// Time without a response from an origin, after which a connection counts as lost (twice this time over xroot), and
    /// after which the next origin gets a query.
    pub deadline: HumanDuration,
    /// Time during which a request is retried at the only origin. If there are several, a failed request goes to the next
    /// one.
    pub retry_time: HumanDuration,
    /// Whether the next baskets or pages of the columns that a client reads are fetched ahead, in files with names that end
    /// in `.root`, or in `.root.` and a number. Their first 64 KiB and their end are fetched when they are opened, and the
    /// next files of the dataset are opened before they are requested.
    pub columns: bool,
    /// Limits of the space that the cache takes.
    pub space: SpaceConfig,
    /// Limits of the space below single paths, in addition to those of `space`.
    pub quota: Vec<QuotaConfig>,
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
    /// None.
    None,
}

/// Storages that clients may name in the path: `/root://HOST//PATH` is `root://HOST//PATH`, and `/https://HOST/PATH`
/// likewise. They are read-only.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForwardConfig {
    /// The permitted storages: `host` at the default port, `host:port`, or all hosts of a domain, such as
    /// `.example.org`. The storages may redirect clients to public addresses, and to these hosts.
    pub hosts: Vec<String>,
    /// The credential of requests to these storages. With `own`, each of them gets the token of the cache.
    pub credential: CredentialConfig,
    /// File with the bearer token of the cache for these storages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
}

impl Default for ForwardConfig {
    fn default() -> Self {
        Self { hosts: Vec::new(), credential: CredentialConfig::None, token: None }
    }
}

/// Deserializes a text or a list of texts.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a URL, or a list of URLs")]
    enum Texts {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Texts::deserialize(deserializer)? {
        Texts::One(text) => vec![text],
        Texts::Several(texts) => texts,
    })
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
    /// `origin`: a check after the time that the origin states (`Cache-Control`, `Expires`), and at each open if it
    /// states none. `always`: a check at each open. `never`: files do not change. A duration, such as `1h`: a check at
    /// the first open after this time. The last two also store what the origin marks `no-store` or `private`. With
    /// `credential = "caller"` each open is a check.
    #[serde(default = "default_recheck")]
    pub recheck: String,
    /// Time after its freshness during which a known version is served if the origin fails, unless the origin forbids it
    /// (`must-revalidate`). By default the origin decides (`stale-if-error`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_if_error: Option<HumanDuration>,
    /// Time during which a missing file is not looked for at the origin again. By default the origin decides, unless each
    /// open is a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<HumanDuration>,
}

fn default_recheck() -> String {
    Recheck::default().to_string()
}

/// The maximum space of the files below a path.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaConfig {
    /// The path, as clients see it. A file counts for the quota of the longest path.
    pub path: String,
    /// Maximum space of the cached data below it.
    pub max: ByteSize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        let ServeConfig { listen, site, drain, tls, access, http, limits, access_log, metrics, .. } =
            ServeConfig::default();
        Self {
            origin: Vec::new(),
            forward: ForwardConfig::default(),
            directory: PathBuf::new(),
            credential: CredentialConfig::Own,
            token: None,
            ca: None,
            rule: Vec::new(),
            space: SpaceConfig::default(),
            quota: Vec::new(),
            bytes_in_flight: ByteSize(64 << 20),
            deadline: HumanDuration(Duration::from_secs(10)),
            retry_time: HumanDuration(Duration::from_secs(30)),
            columns: false,
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
        Self { path: "/".into(), recheck: default_recheck(), stale_if_error: None, missing: None }
    }
}

impl CacheConfig {
    /// Returns the options of the cache directory, for a process with this limit of file descriptors.
    pub(crate) fn cache(&self, descriptors: u64) -> CacheOptions {
        CacheOptions {
            disk_jobs: self.limits.disk_threads,
            idle_files: NonZeroUsize::new((descriptors / IDLE_SHARE).min(MAX_IDLE_FILES) as usize)
                .unwrap_or(NonZeroUsize::MIN),
            max_bytes: self.space.max.map(|max| max.0),
            high_watermark: self.space.high,
            low_watermark: self.space.low,
            columns: self.columns,
            ..CacheOptions::default()
        }
    }

    /// Returns whether settings that a running cache cannot change differ: all but those of its server.
    pub(crate) fn differs_in_cache(&self, other: &Self) -> bool {
        let of_cache = |config: &Self| {
            let Self { listen, site, drain, tls, access, http, limits, access_log, metrics, .. } = Self::default();
            let cache = Self { listen, site, drain, tls, access, http, limits, access_log, metrics, ..config.clone() };
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
        let rules = self.rule.iter().map(|RuleConfig { path, recheck, stale_if_error, missing }| {
            let invalid = |problem: String| Failure::Usage(format!("rule for {path}: {problem}"));
            let prefix = StorePath::parse(path.as_bytes()).map_err(|error| invalid(error.to_string()))?;
            let recheck = recheck.parse::<Recheck>().map_err(invalid)?;
            let [stale_if_error, missing] = [stale_if_error, missing].map(|time| time.map(|time| time.0));
            Ok((prefix, Rule { recheck, stale_if_error, missing }))
        });
        Ok(Rules::new(rules.collect::<Result<_, Failure>>()?))
    }

    /// Returns the quotas of the tree of the origins. What clients read from storages in the path has none.
    ///
    /// # Errors
    /// A path is invalid, or has two quotas.
    pub(crate) fn quotas(&self, tree: Option<&TreeOptions>) -> Result<Vec<Quota>, Failure> {
        let origins = tree.map(|tree| &*tree.origins).unwrap_or_default();
        let mut quotas: Vec<Quota> = Vec::with_capacity(self.quota.len());
        for QuotaConfig { path, max } in &self.quota {
            let invalid = |problem: String| Failure::Usage(format!("quota of {path}: {problem}"));
            let below = StorePath::parse(path.as_bytes()).map_err(|error| invalid(error.to_string()))?;
            if quotas.iter().any(|other| other.path == below) {
                return Err(invalid("the path has two quotas".into()));
            }
            let places = origins.iter().map(|origin| {
                let at = origin.root.concat(&below).map_err(|error| invalid(error.to_string()))?;
                Ok((origin.name.clone(), at))
            });
            let places = places.collect::<Result<_, Failure>>()?;
            quotas.push(Quota { path: below, places, max_bytes: max.0 });
        }
        Ok(quotas)
    }

    /// Returns the settings of the underlying server.
    pub(crate) fn server(&self) -> ServeConfig {
        let Self { listen, site, drain, tls, access, http, limits, access_log, metrics, .. } = self.clone();
        ServeConfig { listen, site, drain, tls, access, http, limits, access_log, metrics, ..ServeConfig::default() }
    }
}
