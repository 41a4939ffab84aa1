//! The addresses that users type: `root://host//path?opaque`, `https://host/path`, `s3://bucket/key`, a local path, or
//! `-`.
//!
//! A [`Location`] is where data come from or go to: a [`Url`], a local path, or standard input or output. Parsing it
//! is the only way to make one, so a `Url` always has a host that can be looked up, and a path that is absolute, has
//! single slashes, and no `.`, `..` or NUL.
//!
//! The families differ in their spelling. XRootD URLs are literal: `%20` is three characters, and what follows `?` is
//! opaque information that travels with the path. HTTP URLs are percent-encoded; [`Url::path`] is decoded, to any bytes
//! (`%0A`, `%FF`), and its text form encodes again. S3 URLs are percent-encoded too, and have a bucket in place of the
//! host: which server has the bucket is a matter of settings. They have neither user, port nor query.
//!
//! Query and opaque information may hold bearer tokens, so `Display` and `Debug` hide the values of [`SECRET_KEYS`],
//! and errors never quote a URL; [`Url::expose`] is for the wire.

mod shown;

use std::{ffi::OsStr, fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

pub use self::shown::shown;

/// The longest URL that is read, in bytes: room for a few tokens of the 4 KiB to 16 KiB that issuers give out.
pub(crate) const MAX_URL_BYTES: usize = 64 * 1024;

/// The longest zone of an IPv6 address, in bytes: the name of a network interface of Linux, which has at most 15.
const MAX_ZONE_BYTES: usize = 15;

/// Where data come from or go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A file or directory of a remote site.
    Remote(Url),
    /// A path of this machine, as typed; may be relative.
    Local(PathBuf),
    /// Standard input or standard output, typed as `-`.
    Standard,
}

/// How a remote site is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// XRootD; `root://` or `xroot://`.
    Root,
    /// XRootD that insists on TLS; `roots://` or `xroots://`.
    Roots,
    /// HTTP without encryption.
    Http,
    /// HTTP over TLS.
    Https,
    /// HTTP without encryption, the server being known to speak WebDAV.
    Dav,
    /// HTTP over TLS, the server being known to speak WebDAV.
    Davs,
    /// A bucket of an object store that speaks Amazon's S3.
    S3,
}

/// What [`Scheme`]s have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// The XRootD protocol.
    Xrootd,
    /// HTTP and WebDAV.
    Http,
    /// Amazon's S3, which is HTTP too, but knows objects rather than files. The host is a bucket.
    S3,
}

/// Every spelling of every scheme; the first spelling of a scheme is the one that is written.
const SCHEMES: [(&str, Scheme); 9] = [
    ("root", Scheme::Root),
    ("roots", Scheme::Roots),
    ("http", Scheme::Http),
    ("https", Scheme::Https),
    ("dav", Scheme::Dav),
    ("davs", Scheme::Davs),
    ("s3", Scheme::S3),
    ("xroot", Scheme::Root),
    ("xroots", Scheme::Roots),
];

impl Scheme {
    /// The name, without `://`.
    pub fn name(self) -> &'static str {
        SCHEMES.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }

    /// The protocol family.
    pub fn family(self) -> Family {
        match self {
            Scheme::Root | Scheme::Roots => Family::Xrootd,
            Scheme::Http | Scheme::Https | Scheme::Dav | Scheme::Davs => Family::Http,
            Scheme::S3 => Family::S3,
        }
    }

    /// Whether the connection must be encrypted; plain XRootD is upgraded if the server requires it.
    pub fn demands_tls(self) -> bool {
        matches!(self, Scheme::Roots | Scheme::Https | Scheme::Davs | Scheme::S3)
    }

    /// The port where the URL names none.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Root | Scheme::Roots => 1094,
            Scheme::Http | Scheme::Dav => 80,
            Scheme::Https | Scheme::Davs | Scheme::S3 => 443,
        }
    }
}

/// The address of a file or directory of a remote site.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: Scheme,
    user: Option<String>,
    host: String,
    port: Option<u16>,
    path: Vec<u8>,
    query: Option<String>,
}

/// What one connection can serve: everything that decides where and how to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The protocol.
    pub family: Family,
    /// Whether the connection must be encrypted.
    pub tls: bool,
    /// Host name or address, lower case, IPv6 addresses without brackets, perhaps with a zone (`fe80::1%eth0`).
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why text is not an address. The text itself is not repeated, for it may hold a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// The scheme is none of those known.
    #[error("unknown scheme {0}://; known are root, roots, xroot, xroots, http, https, dav, davs, s3, file")]
    Scheme(String),
    /// Longer than [`MAX_URL_BYTES`].
    #[error("the URL is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    /// The host is empty, too long, or has characters that no host has.
    #[error("the URL has no valid host name or address")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("the port of the URL is not a number from 1 to 65535")]
    Port,
    /// The user name is empty, or a password follows it.
    #[error("the user in the URL is not valid; a password must not be part of a URL")]
    User,
    /// A `..` component.
    #[error("the path of the URL has a component '..'")]
    ParentComponent,
    /// Control characters, `%00`, bytes that are not UTF-8, or a `?` in the path of an XRootD URL.
    #[error("the URL has characters that cannot be part of it, or is not UTF-8")]
    Characters,
    /// A scheme without `://`, or a host and port without a scheme.
    #[error(
        "this looks like a URL with a slash or its scheme missing; write it as SCHEME://HOST:PORT/PATH, or a local file of that name as ./NAME"
    )]
    Incomplete,
    /// An S3 URL with more than a bucket and a key.
    #[error("an s3 URL has a bucket and a key, no user, port or query: s3://bucket/key (a ? in a key is written %3F)")]
    S3,
    /// A `file:` URL with a host other than this one.
    #[error("a file URL must have no host")]
    FileHost,
    /// Empty text.
    #[error("the location is empty")]
    Empty,
}

impl Location {
    /// Reads a command line argument; one that is not Unicode is a local path, unless it begins like a URL.
    pub fn from_argument(argument: &OsStr) -> Result<Self, InvalidUrl> {
        match argument.to_str() {
            Some(text) => text.parse(),
            None if split_scheme(&argument.to_string_lossy()).is_some() => Err(InvalidUrl::Characters),
            None => Ok(Location::Local(argument.into())),
        }
    }

    /// The URL, if it is one.
    pub fn url(&self) -> Option<&Url> {
        match self {
            Location::Remote(url) => Some(url),
            Location::Local(_) | Location::Standard => None,
        }
    }
}

impl FromStr for Location {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        match split_scheme(text) {
            None if text.is_empty() => Err(InvalidUrl::Empty),
            None if text == "-" => Ok(Location::Standard),
            None if lacks_a_slash(text) => Err(InvalidUrl::Incomplete),
            None => Ok(Location::Local(text.into())),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => local_path(rest).map(Location::Local),
            Some(_) => text.parse().map(Location::Remote),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Remote(url) => url.fmt(f),
            Location::Local(path) => path.display().fmt(f),
            Location::Standard => f.write_str("-"),
        }
    }
}

/// `scheme` and what follows `://`, if the text starts like a URL (RFC 3986 §3.1).
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut characters = scheme.chars();
    let starts_well = characters.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_on_well = characters.all(|other| other.is_ascii_alphanumeric() || "+-.".contains(other));
    (starts_well && goes_on_well).then_some((scheme, rest))
}

/// Whether a text without `://` is a URL with a typing error rather than a path: `root:/host//p`, `host:1094//p`.
fn lacks_a_slash(text: &str) -> bool {
    let (start, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
    let has_scheme = |(scheme, behind): (&str, &str)| {
        let is_known =
            SCHEMES.iter().map(|(known, _)| *known).chain(["file"]).any(|known| known.eq_ignore_ascii_case(scheme));
        is_known && behind.is_empty() && !rest.is_empty()
    };
    let has_port = |(host, port): (&str, &str)| {
        let is_host = is_host_name(host) || (host.starts_with('[') && host.ends_with(']'));
        is_host && !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) && rest.starts_with("//")
    };
    start.split_once(':').is_some_and(has_scheme) || start.rsplit_once(':').is_some_and(has_port)
}

/// Parses the path of a `file:` URL (RFC 8089); `file://` is already removed.
fn local_path(rest: &str) -> Result<PathBuf, InvalidUrl> {
    let (host, path) = rest.split_at(rest.find('/').ok_or(InvalidUrl::FileHost)?);
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return Err(InvalidUrl::FileHost);
    }
    let path = percent_decode_str(path).decode_utf8().map_err(|_| InvalidUrl::Characters)?;
    if path.contains('\0') {
        return Err(InvalidUrl::Characters);
    }
    Ok(path.as_ref().into())
}

impl FromStr for Url {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        if text.len() > MAX_URL_BYTES {
            return Err(InvalidUrl::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidUrl::Characters);
        }
        let (name, rest) = split_scheme(text).ok_or_else(|| InvalidUrl::Scheme(String::new()))?;
        let known = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let scheme = known.ok_or_else(|| InvalidUrl::Scheme(name.to_owned()))?.1;
        let encoded = scheme.family() != Family::Xrootd;
        // A fragment is for the reader's program, never for the server (RFC 9110 §4.2.5).
        let rest = if encoded { rest.split('#').next().unwrap_or_default() } else { rest };
        let (before_query, query) = match rest.split_once('?') {
            Some((before, query)) => (before, Some(query.to_owned())),
            None => (rest, None),
        };
        let path_start = before_query.find('/').unwrap_or(before_query.len());
        let (authority, raw_path) = before_query.split_at(path_start);
        let (user, host, port) = parse_authority(authority)?;
        if scheme == Scheme::S3 && (user.is_some() || port.is_some() || query.is_some()) {
            return Err(InvalidUrl::S3);
        }
        let path: Vec<u8> = if encoded { percent_decode_str(raw_path).collect() } else { raw_path.into() };
        let query = query.filter(|query| !query.is_empty());
        Ok(Self { scheme, user, host, port, path: clean_bytes(&path)?, query })
    }
}

type Authority = (Option<String>, String, Option<u16>);

/// `[user@]host[:port]`.
fn parse_authority(authority: &str) -> Result<Authority, InvalidUrl> {
    let (user, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (Some(user.to_owned()), address),
        None => (None, authority),
    };
    if user.as_ref().is_some_and(|user| user.is_empty() || user.contains([':', '@'])) {
        return Err(InvalidUrl::User);
    }
    let (host, port) = if let Some(bracketed) = address.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or(InvalidUrl::Host)?;
        (parse_ipv6(host)?, port)
    } else {
        let (host, port) = address.split_at(address.find(':').unwrap_or(address.len()));
        if !is_host_name(host) {
            return Err(InvalidUrl::Host);
        }
        (host.to_ascii_lowercase(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        // RFC 3986 §3.2.3 allows a colon without a port.
        Some("") => None,
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0).ok_or(InvalidUrl::Port)?)
        }
        _ => return Err(InvalidUrl::Port),
    };
    Ok((user, host, port))
}

/// An IPv6 address, perhaps with a zone: `fe80::1%25eth0` (RFC 6874), or with a bare `%` as people write it. The host
/// then is `fe80::1%eth0`.
fn parse_ipv6(text: &str) -> Result<String, InvalidUrl> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => {
            (address, Some(zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone)))
        }
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| InvalidUrl::Host)?;
    let is_zone = |zone: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        (1..=MAX_ZONE_BYTES).contains(&zone.len()) && zone.bytes().all(is_plain)
    };
    match zone {
        None => Ok(address.to_string()),
        Some(zone) if is_zone(zone) => Ok(format!("{address}%{zone}")),
        Some(_) => Err(InvalidUrl::Host),
    }
}

/// Returns a host without the zone of its address: a zone is local to this machine and never sent (RFC 6874 §4).
pub fn without_zone(host: &str) -> &str {
    host.split('%').next().unwrap_or(host)
}

/// Letters, digits, `-`, `.`, and `_`, which occurs in practice; 253 bytes is the limit of the DNS.
fn is_host_name(host: &str) -> bool {
    let characters = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    characters && !host.is_empty() && host.len() <= 253 && !host.starts_with(['.', '-'])
}

/// The path with one slash in front of each component; no `.`, and an error at `..` and NUL.
///
/// A final slash stays, for it says that a directory is meant.
pub(crate) fn clean_bytes(path: &[u8]) -> Result<Vec<u8>, InvalidUrl> {
    let mut clean = Vec::with_capacity(path.len() + 1);
    for component in path.split(|byte| *byte == b'/').filter(|component| !matches!(*component, b"" | b".")) {
        if component == b".." {
            return Err(InvalidUrl::ParentComponent);
        }
        if component.contains(&0) {
            return Err(InvalidUrl::Characters);
        }
        clean.push(b'/');
        clean.extend_from_slice(component);
    }
    if clean.is_empty() || path.ends_with(b"/") {
        clean.push(b'/');
    }
    Ok(clean)
}

/// What RFC 3986 §3.3 does not allow in a path, plus `%` itself.
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path as it stands in an HTTP request line, a `Location` header or a WebDAV `href`.
pub(crate) fn encode_path(path: impl AsRef<[u8]>) -> String {
    percent_encode(path.as_ref(), NOT_IN_PATH).to_string()
}

/// The path behind a WebDAV `href` or a `Location` field: a path or a whole URL, percent-encoded.
///
/// Host and query are dropped; the path comes out as [`Url::path`] has it, but of any bytes: names of files need not be
/// text.
pub fn decode_href(href: &str) -> Result<Vec<u8>, InvalidUrl> {
    if href.len() > MAX_URL_BYTES {
        return Err(InvalidUrl::TooLong);
    }
    let encoded = match split_scheme(href) {
        Some((_, rest)) => &rest[rest.find('/').unwrap_or(rest.len())..],
        None if href.starts_with('/') => href,
        None => return Err(InvalidUrl::Characters),
    };
    let encoded = encoded.split(['?', '#']).next().unwrap_or_default();
    clean_bytes(&percent_decode_str(encoded).collect::<Vec<u8>>())
}

impl Url {
    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The user name in front of the host, if any.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Host name or address, lower case, IPv6 addresses without brackets, perhaps with a zone (`fe80::1%eth0`).
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or_else(|| self.scheme.default_port())
    }

    /// The path: absolute, decoded, with single slashes; ends in a slash if the URL did. Text without control
    /// characters in the XRootD family, any bytes but NUL in the others.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// What follows `?`, as written: XRootD's opaque information or an HTTP query. Never empty. May hold tokens.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The same URL without the pairs of its query whose keys begin with `prefix`, and those pairs. Values of the
    /// XRootD family are literal, others percent-decoded.
    pub fn split_query(&self, prefix: &str) -> (Self, Vec<(String, Vec<u8>)>) {
        let pairs = self.query.iter().flat_map(|query| query.split('&'));
        let (taken, left): (Vec<_>, Vec<_>) = pairs.partition(|pair| pair.starts_with(prefix));
        let decoded = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = match self.scheme.family() {
                Family::Xrootd => value.as_bytes().to_vec(),
                Family::Http | Family::S3 => percent_decode_str(value).collect(),
            };
            (key.to_owned(), value)
        };
        let query = Some(left.join("&")).filter(|query| !query.is_empty());
        (Self { query, ..self.clone() }, taken.into_iter().map(decoded).collect())
    }

    /// What decides where and how to connect.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            family: self.scheme.family(),
            tls: self.scheme.demands_tls(),
            host: self.host.clone(),
            port: self.port(),
        }
    }

    /// `host`, or `host:port` where the port is not the default one: the value of an HTTP `Host` header.
    pub fn authority(&self) -> String {
        match self.port.filter(|port| *port != self.scheme.default_port()) {
            Some(port) => format!("{}:{port}", Bracketed(&self.host)),
            None => Bracketed(&self.host).to_string(),
        }
    }

    /// The same site with another path, which is taken literally.
    ///
    /// # Errors
    /// `Characters` for a path that no URL of the XRootD family can have: with `?` or control characters, or not UTF-8.
    /// `ParentComponent`.
    pub fn with_path(&self, path: impl AsRef<[u8]>) -> Result<Self, InvalidUrl> {
        let path = clean_bytes(path.as_ref())?;
        let is_literal = |text: &str| !text.contains('?') && !text.chars().any(char::is_control);
        if self.scheme.family() == Family::Xrootd && !std::str::from_utf8(&path).is_ok_and(is_literal) {
            return Err(InvalidUrl::Characters);
        }
        Ok(Self { path, ..self.clone() })
    }

    /// The URL with every secret in it, for the wire.
    pub fn expose(&self) -> String {
        self.written(self.query.as_deref())
    }

    fn written(&self, query: Option<&str>) -> String {
        let (name, host) = (self.scheme.name(), Bracketed(&self.host));
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let path = match self.scheme.family() {
            // The second slash is what makes the path absolute to XRootD's own clients.
            Family::Xrootd => format!("/{}", String::from_utf8_lossy(&self.path)),
            Family::Http | Family::S3 => encode_path(&self.path),
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{name}://{user}{host}{port}{path}{query}")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query.as_deref().map(redact);
        f.write_str(&self.written(query.as_deref()))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Bracketed(&self.host), self.port)
    }
}

/// A host as it stands in front of a port.
struct Bracketed<'a>(&'a str);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once('%') {
            Some((address, zone)) => write!(f, "[{address}%25{zone}]"),
            None if self.0.contains(':') => write!(f, "[{}]", self.0),
            None => f.write_str(self.0),
        }
    }
}

/// Keys whose values give access to something: bearer tokens and macaroons, pre-signed URLs, third-party copy keys.
pub(crate) const SECRET_KEYS: [&str; 8] = [
    "authz",
    "access_token",
    "token",
    "tpc.key",
    "signature",
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-credential",
];

/// A query or opaque information (`k=v&k=v`) with the values of [`SECRET_KEYS`] replaced by `***`.
pub fn redact(query: &str) -> String {
    let hide = |pair: &str| match pair.split_once('=') {
        Some((key, _)) if is_secret(key) => format!("{key}=***"),
        _ => pair.to_owned(),
    };
    query.split('&').map(hide).collect::<Vec<_>>().join("&")
}

/// A query or opaque information without the pairs whose keys are [`SECRET_KEYS`].
pub fn without_secrets(query: &str) -> String {
    let open = |pair: &&str| !is_secret(pair.split('=').next().unwrap_or_default());
    query.split('&').filter(open).collect::<Vec<_>>().join("&")
}

fn is_secret(key: &str) -> bool {
    // A key may itself be percent-encoded, and opaque information may be joined with a second `?`.
    let key = percent_decode_str(key).decode_utf8_lossy().to_ascii_lowercase();
    let key = key.rsplit('?').next().unwrap_or_default();
    SECRET_KEYS.contains(&key.trim())
}

#[cfg(test)]
mod tests;
