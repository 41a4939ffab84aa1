//! Settings of `towpath serve`. Each is documented on its field.

pub mod listen;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_proto::probe::MAX_PROBE;

use crate::units::{ByteSize, HumanDuration};

/// Default port of XRootD servers.
pub const DEFAULT_PORT: u16 = 1094;

/// Name of the site if none is configured.
pub(crate) const DEFAULT_SITE: &str = "towpath";

/// All settings of `towpath serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServeConfig {
    /// The exported directory, if there is only one. Nothing outside it is accessed.
    pub root: PathBuf,
    /// Several exported directories, each at a path of its own, instead of `root`.
    pub export: Vec<ExportConfig>,
    /// Addresses to listen on: `192.0.2.1:1094`, a host name, or a port for all addresses of this machine (`1094`).
    /// XRootD, HTTP and TLS share each port.
    #[serde(deserialize_with = "listen::addresses::<DEFAULT_PORT, _>")]
    pub listen: Vec<SocketAddr>,
    /// Name of the site, as reported to clients. If it is empty: `towpath`, and on pages for browsers the host in their
    /// URL.
    pub site: String,
    /// When an upload counts as durable.
    pub durability: Durability,
    /// Maximum time that requests in flight may take to finish after the server begins to stop.
    pub drain: HumanDuration,
    /// TLS.
    pub tls: TlsConfig,
    /// Access rules.
    pub access: AccessConfig,
    /// HTTP and WebDAV behaviour on which clients disagree.
    pub http: HttpConfig,
    /// Third-party copies between this server and others.
    pub third_party: ThirdPartyConfig,
    /// Network probes.
    pub probe: ProbeConfig,
    /// Limits.
    pub limits: Limits,
    /// The access log.
    pub access_log: AccessLogConfig,
    /// Ports for monitoring.
    pub metrics: MetricsConfig,
}

/// An exported directory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The path at which clients see the directory, such as `/atlas`. It must not contain that of another export.
    pub prefix: String,
    /// The directory. Nothing outside it is accessed.
    pub root: PathBuf,
    /// Whether its content can be changed by callers with the right to do so. If not, no rule and no token allows it.
    #[serde(default = "is_true")]
    pub writable: bool,
    /// Access rules of this export.
    #[serde(default, skip_serializing_if = "ExportAccess::is_empty")]
    pub access: ExportAccess,
}

/// Access rules of one export. Their paths begin at its prefix: `/` is the whole export.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExportAccess {
    /// Rights of callers without a token or a password in this export, instead of those in `access.anonymous`. Paths
    /// begin at the prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<Vec<AnonymousRule>>,
    /// Rights of users who logged in with a password in this export, instead of those in `access.users`. Paths begin at
    /// the prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<UserRule>>,
}

impl ExportAccess {
    fn is_empty(&self) -> bool {
        self.anonymous.is_none() && self.users.is_none()
    }
}

impl Default for ExportConfig {
    fn default() -> Self {
        Self { prefix: root_path(), root: PathBuf::from("."), writable: true, access: ExportAccess::default() }
    }
}

fn is_true() -> bool {
    true
}

/// When an upload counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Once the kernel has the data.
    None,
    /// Once the data are on disk.
    File,
    /// Once the data and the file name are on disk.
    FileAndDirectory,
}

/// TLS: `roots://` and `https://` on the same port.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file with the server's certificate and its intermediate certificates. TLS is disabled without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Reject requests without TLS.
    pub required: bool,
}

/// Access rules.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// Rights of callers without a token or a password, by path. By default they can read everything.
    pub anonymous: Vec<AnonymousRule>,
    /// File of the users who can log in over HTTP with a password. Each line is `NAME:sha-256$HEX`, where `HEX` is
    /// the SHA-256 of `NAME:REALM:PASSWORD`. The file must contain at least one user and be readable by its owner
    /// only. A certificate is required, because passwords are accepted over TLS only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passwords: Option<PathBuf>,
    /// Realm that clients show when they prompt for a password. Changing it invalidates all passwords in the file.
    pub realm: String,
    /// Rights of users who logged in with a password, by path. By default they can read everything.
    pub users: Vec<UserRule>,
    /// Trusted token issuers.
    pub issuers: Vec<IssuerConfig>,
    /// Audiences that identify this server in a token, such as `https://se.example.org`.
    pub audiences: Vec<String>,
}

/// Rights of callers without a token below a path.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnonymousRule {
    /// The path; the rule covers everything below it.
    pub path: String,
    /// The granted rights.
    pub allow: Vec<Right>,
}

/// Rights of users with a password below a path.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRule {
    /// User names from the password file; without it, all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// The path; the rule covers everything below it.
    pub path: String,
    /// The granted rights.
    pub allow: Vec<Right>,
}

/// A right, named as in the WLCG token profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Query size, times and checksum. Every other right includes it.
    Stat,
    /// Bring files online (`prepare`) without reading them.
    Stage,
    /// Read files and list directories. Includes `stage`.
    Read,
    /// Create files and directories.
    Create,
    /// Everything that `create` allows, and overwrite, change, rename and delete.
    Modify,
}

impl Right {
    /// Returns the name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Right::Stat => "stat",
            Right::Stage => "stage",
            Right::Read => "read",
            Right::Create => "create",
            Right::Modify => "modify",
        }
    }
}

/// A token issuer (one per virtual organization).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// URL of the issuer, exactly as in the token's `iss` claim.
    pub issuer: String,
    /// Path that the issuer's paths are relative to.
    #[serde(default = "root_path")]
    pub base_path: String,
    /// File with the issuer's keys (JWKS). Without it the keys are fetched through OpenID discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,
    /// PEM file with certificates to trust, in addition to the system's, when fetching the issuer's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

fn root_path() -> String {
    "/".into()
}

/// HTTP and WebDAV behaviour on which clients disagree.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Whether PUT creates missing parent directories, as XRootD's HTTP does. WebDAV requires it to fail with 409
    /// (RFC 4918 §9.7.1).
    pub create_parents: bool,
    /// Origins whose web pages may read files and listings (CORS), such as `https://root.cern` for JSROOT; `*` allows
    /// all. Pages from other origins are not allowed. A page must send its own token where authentication is
    /// required: passwords stored by the browser are not used.
    pub cors_origins: Vec<String>,
}

/// Third-party copies: a client has this server fetch a file from another server, or send a file to it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ThirdPartyConfig {
    /// Whether third-party copies are enabled.
    pub enabled: bool,
    /// Whether callers without a token can request copies, within their rights to read or write. They choose the
    /// destination of the data.
    pub anonymous: bool,
    /// Destinations that copies can connect to, in addition to public addresses: networks (`10.1.0.0/16`), addresses,
    /// hosts (`se.example.org`), domains (`.example.org`), or `*` for all. Callers choose the other server, so each
    /// entry lets them make this server connect there.
    pub allow: Vec<String>,
    /// Maximum number of concurrent copies. Further copies are rejected with a temporary error.
    pub copies: usize,
    /// Maximum time that a copy may make no progress.
    pub idle: HumanDuration,
    /// Interval between two HTTP performance markers, at most 30 s.
    pub markers: HumanDuration,
    /// PEM file with CA certificates to trust, in addition to the system's, when the other server uses TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// Network probes (`towpath probe`): the server sends generated bytes to callers with read access, and discards bytes
/// from callers with write access.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeConfig {
    /// Whether probes are enabled.
    pub enabled: bool,
    /// Maximum number of concurrent probe connections. Further ones are rejected with a temporary error.
    pub connections: usize,
    /// Maximum duration of a probe, at most 60 s. `towpath probe` requests 5 s, or 30 round trips if that is longer.
    pub longest: HumanDuration,
}

/// Limits of one connection and of all connections. A client beyond them waits or is rejected; memory use stays
/// bounded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of connections, at most three quarters of the file descriptors available to the process. Idle
    /// connections are closed in favour of clients from networks that have none.
    pub connections: usize,
    /// Maximum number of requests in flight per connection. The next request is read when one completes.
    pub requests_per_connection: usize,
    /// Memory for the responses of one connection, at most one sixteenth of `bytes`. XRootD uploads have the
    /// same amount again.
    pub bytes_per_connection: ByteSize,
    /// Memory for the responses of all connections.
    pub bytes: ByteSize,
    /// Number of threads for disk I/O. Each export has as many, so that a slow file system delays no other.
    pub disk_threads: usize,
    /// Maximum number of open files, listings and uploads of all connections, limited by the file descriptors left
    /// beside connections.
    pub files: usize,
    /// Maximum number of open files per connection. A cache or a gateway opens all its files over one.
    pub files_per_connection: usize,
    /// Maximum size of a request header (HTTP) or text argument (XRootD).
    pub header_bytes: ByteSize,
    /// Timeout of a client's handshake (also for TLS and login).
    pub handshake: HumanDuration,
    /// Maximum time that a connection may be idle.
    pub idle: HumanDuration,
    /// Maximum time that a client may stall before it is disconnected: receive nothing of a response, hold buffered
    /// response data while others wait for memory, or send nothing of its own request.
    pub stall: HumanDuration,
}

/// The access log: one line per request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Destination: a file, `-` for standard error, or empty for no log.
    pub path: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// Ports for monitoring.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Addresses of ports with the metrics and the health of the server, and nothing else. They use plain HTTP and are
    /// open to all clients that reach them.
    #[serde(deserialize_with = "listen::addresses::<0, _>")]
    pub listen: Vec<SocketAddr>,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One human-readable line.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            root: PathBuf::from("."),
            export: Vec::new(),
            listen: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)],
            site: String::new(),
            durability: Durability::File,
            drain: HumanDuration(Duration::from_secs(30)),
            tls: TlsConfig::default(),
            access: AccessConfig::default(),
            http: HttpConfig::default(),
            third_party: ThirdPartyConfig::default(),
            probe: ProbeConfig::default(),
            limits: Limits::default(),
            access_log: AccessLogConfig::default(),
            metrics: MetricsConfig::default(),
        }
    }
}

impl Default for AccessConfig {
    fn default() -> Self {
        let allow = vec![Right::Read];
        Self {
            anonymous: vec![AnonymousRule { path: root_path(), allow: allow.clone() }],
            passwords: None,
            realm: "towpath".into(),
            users: vec![UserRule { names: None, path: root_path(), allow }],
            issuers: Vec::new(),
            audiences: Vec::new(),
        }
    }
}

impl Default for ThirdPartyConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            anonymous: false,
            allow: Vec::new(),
            copies: 32,
            idle: HumanDuration(Duration::from_secs(120)),
            markers: HumanDuration(Duration::from_secs(5)),
            ca: None,
        }
    }
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self { enabled: true, connections: 32, longest: HumanDuration(MAX_PROBE) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            requests_per_connection: 128,
            bytes_per_connection: ByteSize(32 << 20),
            bytes: ByteSize(128 << 20),
            disk_threads: 32,
            files: 65_536,
            files_per_connection: 32_768,
            header_bytes: ByteSize(64 << 10),
            handshake: HumanDuration(Duration::from_secs(20)),
            idle: HumanDuration(Duration::from_secs(3600)),
            stall: HumanDuration(Duration::from_secs(60)),
        }
    }
}

impl Limits {
    /// Divisor of the memory for all responses that bounds one connection, so that a few clients that do not read
    /// their responses cannot block the others.
    const SHARE_OF_ALL: u64 = 16;

    /// Maximum memory for the responses in flight on one connection.
    pub(crate) fn memory_of_connection(&self) -> u64 {
        self.bytes_per_connection.0.min(self.bytes.0 / Self::SHARE_OF_ALL)
    }
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self { path: String::new(), format: LogFormat::Text }
    }
}
