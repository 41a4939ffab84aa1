//! The settings of `towpath serve`, each documented once, here.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use towpath_proto::probe::MAX_PROBE;

use crate::units::{ByteSize, Span};

/// The port that the field gives to XRootD servers.
pub const DEFAULT_PORT: u16 = 1094;

/// All settings of `towpath serve`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeConfig {
    /// The directory to export. Nothing outside it is ever touched.
    pub root: PathBuf,
    /// Addresses to listen on. XRootD, HTTP and TLS share each port.
    pub listen: Vec<SocketAddr>,
    /// The site's name, as clients may ask for it.
    pub site: String,
    /// When an upload counts as safe: `none` (when the kernel has it), `file` (its data are on disk),
    /// `file-and-directory` (its name too).
    pub durability: Durability,
    /// How long requests under way may go on once the server was told to stop.
    pub drain: Span,
    /// TLS.
    pub tls: TlsConfig,
    /// Who may do what.
    pub access: AccessConfig,
    /// What HTTP and WebDAV do where their clients differ.
    pub http: HttpConfig,
    /// Copies between this server and others.
    pub third_party: ThirdPartyConfig,
    /// Probes of the network.
    pub probe: ProbeConfig,
    /// Bounds.
    pub limits: Limits,
    /// The access log.
    pub access_log: AccessLogConfig,
}

/// When an upload counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// As soon as the kernel has it.
    None,
    /// When its data are on disk.
    File,
    /// When its data and its name are on disk.
    FileAndDirectory,
}

/// TLS: `roots://` and `https://` on the same port.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file with the server's certificate and those between it and a root. No TLS without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Refuse requests that come without TLS.
    pub required: bool,
}

/// Who may do what.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// What callers without a token or a password may do, by path. The default lets them read everything.
    pub anonymous: Vec<AnonymousRule>,
    /// A file with the users who may log in by HTTP with a password, `NAME:sha-256$HEX` on each line: the SHA-256 of `NAME:REALM:PASSWORD`. It must have a user and be readable by
    /// its owner only, and a certificate is needed: passwords are taken over TLS only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passwords: Option<PathBuf>,
    /// For what people are asked their password. With another realm all passwords are to be set again.
    pub realm: String,
    /// What those who logged in with a password may do, by path. The default lets them read everything.
    pub users: Vec<UserRule>,
    /// Whose tokens are believed.
    pub issuers: Vec<IssuerConfig>,
    /// The audiences that name this server in a token, such as `https://se.example.org`.
    pub audiences: Vec<String>,
}

/// What callers without a token may do below a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnonymousRule {
    /// The path, with everything below it.
    pub path: String,
    /// What is allowed there.
    pub allow: Vec<Right>,
}

/// What users with a password may do below a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRule {
    /// Who, by the names in the file; without it all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// The path, with everything below it.
    pub path: String,
    /// What is allowed there.
    pub allow: Vec<Right>,
}

/// A right, in the words of the WLCG token profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Ask for size, times and checksum. Every other right includes it.
    Stat,
    /// Have files brought on line (`prepare`), without reading them.
    Stage,
    /// Read files, list directories; it includes `stage`.
    Read,
    /// Make new files and directories.
    Create,
    /// Everything `create` allows, and overwrite, change, rename and delete.
    Modify,
}

/// An issuer of tokens (one issuer is one virtual organization).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The issuer's URL, exactly as in the token's `iss`.
    pub issuer: String,
    /// Where the issuer's paths begin in this export.
    #[serde(default = "root_path")]
    pub base_path: String,
    /// A file with the issuer's keys (JWKS). Without it they are found by OpenID discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,
    /// PEM file with certificates to trust, besides the system's, when the issuer's keys are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

fn root_path() -> String {
    "/".into()
}

/// What HTTP and WebDAV do where their clients differ.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Whether PUT makes missing parent directories, as XRootD's HTTP does. WebDAV wants it to fail with 409 (RFC 4918 §9.7.1).
    pub create_parents: bool,
    /// Origins whose web pages may read files and listings (CORS), such as `https://root.cern` for JSROOT; `*` for all. Pages of other
    /// origins may not. A page brings its own token where one is needed: passwords that a browser knows are not used.
    pub cors_origins: Vec<String>,
}

/// Third-party copies: a client has this server fetch a file from another one, or send it there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThirdPartyConfig {
    /// Whether they are made.
    pub enabled: bool,
    /// Whether callers without a token may ask for them, as far as they may read or write: what they have sent goes wherever they say.
    pub anonymous: bool,
    /// Where they may lead beside public addresses: networks (`10.1.0.0/16`), addresses, hosts (`se.example.org`), domains (`.example.org`), or `*` for
    /// everywhere. Callers name the other server, so each entry lets them have this one speak to what is there.
    pub allow: Vec<String>,
    /// Copies at once. Further ones are refused for the time being.
    pub copies: usize,
    /// How long a copy may move no byte.
    pub idle: Span,
    /// The time between two performance markers of HTTP, at most 30 s.
    pub markers: Span,
    /// PEM file with certificates of authorities to trust, besides the system's, when the other server speaks TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// Probes of the network (`towpath probe`): bytes from memory to whoever may read, and into the void from whoever may write.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeConfig {
    /// Whether they are answered.
    pub enabled: bool,
    /// Connections that are probed at once. Further ones are refused for the time being.
    pub connections: usize,
    /// The longest probe, at most 60 s.
    pub longest: Span,
}

/// Bounds of one connection and of all. Beyond them a client waits or is refused; memory does not grow.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at once, no more than three quarters of the descriptors that the process may have. Idle ones make way for clients
    /// from networks that have none.
    pub connections: usize,
    /// Requests of one connection being worked on; the next is read when one is done.
    pub requests_per_connection: usize,
    /// Memory for the answers of one connection; never more than a sixteenth of [`Self::bytes`]. XRootD's uploads have as much again.
    pub bytes_per_connection: ByteSize,
    /// Memory for the answers of all connections.
    pub bytes: ByteSize,
    /// Threads that wait for the disk.
    pub disk_threads: usize,
    /// Open files, listings and uploads of all connections; no more than the process may have descriptors beside its connections.
    pub files: usize,
    /// Open files of one connection.
    pub files_per_connection: usize,
    /// The longest request header (HTTP) or text argument (XRootD).
    pub header_bytes: ByteSize,
    /// How long a client may take over its handshake (and TLS's, and login).
    pub handshake: Span,
    /// How long a connection may be silent.
    pub idle: Span,
    /// How long a client may take no byte of an answer, leave a piece of one in memory that others lack, or send no byte of its own request, before it is dropped.
    pub stall: Span,
}

/// The access log: one line for each request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Where it goes: a file, `-` for the standard error stream, or nothing for no log.
    pub path: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            root: PathBuf::from("."),
            listen: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)],
            site: "towpath".into(),
            durability: Durability::File,
            drain: Span(Duration::from_secs(30)),
            tls: TlsConfig::default(),
            access: AccessConfig::default(),
            http: HttpConfig::default(),
            third_party: ThirdPartyConfig::default(),
            probe: ProbeConfig::default(),
            limits: Limits::default(),
            access_log: AccessLogConfig::default(),
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
            idle: Span(Duration::from_secs(120)),
            markers: Span(Duration::from_secs(5)),
            ca: None,
        }
    }
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self { enabled: true, connections: 32, longest: Span(MAX_PROBE) }
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
            files_per_connection: 4_096,
            header_bytes: ByteSize(64 << 10),
            handshake: Span(Duration::from_secs(20)),
            idle: Span(Duration::from_secs(3600)),
            stall: Span(Duration::from_secs(60)),
        }
    }
}

impl Limits {
    /// Of the memory for all answers, the part that one connection may take: so that a few clients who do not read what they asked for
    /// cannot keep the others waiting.
    const SHARE_OF_ALL: u64 = 16;

    /// The memory that answers in the making on one connection may take.
    pub fn memory_of_connection(&self) -> u64 {
        self.bytes_per_connection.0.min(self.bytes.0 / Self::SHARE_OF_ALL)
    }
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self { path: String::new(), format: LogFormat::Text }
    }
}
