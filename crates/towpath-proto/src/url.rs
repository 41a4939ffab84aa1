//! Locations on the command line: `root://host//path?opaque`, `https://host/path`, `s3://bucket/key`, a local path, or
//! `-`.
//!
//! A [`Location`] is the source or destination of data: a [`Url`], a local path, or standard input or output. Parsing
//! is the only way to create one, so the host of a `Url` is always valid, and its path is absolute, with single slashes
//! and without `.`, `..` or NUL.
//!
//! The protocol families differ in their spelling. XRootD URLs are literal: `%20` is three characters, and the text
//! after `?` is opaque information that is sent with the path. HTTP URLs are percent-encoded: [`Url::path`] returns the
//! decoded path, which may contain any bytes (`%0A`, `%FF`), and the text form encodes it again. S3 URLs are
//! percent-encoded too, and have a bucket in place of the host; the settings determine the server of the bucket. They
//! have no user, port or query.
//!
//! Query and opaque information may contain bearer tokens, so `Display` and `Debug` hide the values of [`SECRET_KEYS`],
//! and errors never quote a URL. [`Url::expose`] returns the full text for the wire.

mod shown;

use std::{ffi::OsStr, fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

pub use self::shown::shown;

/// Maximum length of a parsed URL in bytes: enough for a few tokens of the 4 KiB to 16 KiB that issuers give out.
pub(crate) const MAX_URL_BYTES: usize = 64 * 1024;

/// Maximum length of the zone of an IPv6 address in bytes: Linux limits the name of a network interface to 15.
const MAX_ZONE_BYTES: usize = 15;

/// Source or destination of data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A file or directory on a remote site.
    Remote(Url),
    /// A path on this machine, as typed; may be relative.
    Local(PathBuf),
    /// Standard input or standard output, typed as `-`.
    Standard,
}

/// Scheme of a URL: the protocol, and whether TLS is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// XRootD; `root://` or `xroot://`.
    Root,
    /// XRootD with mandatory TLS; `roots://` or `xroots://`.
    Roots,
    /// HTTP without encryption.
    Http,
    /// HTTP over TLS.
    Https,
    /// HTTP without encryption, to a server known to support WebDAV.
    Dav,
    /// HTTP over TLS, to a server known to support WebDAV.
    Davs,
    /// A bucket of an object store that supports Amazon's S3 API.
    S3,
}

/// Protocol family of a [`Scheme`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// The XRootD protocol.
    Xrootd,
    /// HTTP and WebDAV.
    Http,
    /// Amazon's S3: HTTP, but with objects in place of files. The host is a bucket.
    S3,
}

/// All spellings of all schemes; formatting uses the first spelling of a scheme.
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
    /// Returns the scheme with a name in any spelling and case; `None` for other names.
    pub fn from_name(name: &str) -> Option<Self> {
        SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, scheme)| *scheme)
    }

    /// Returns the name, without `://`.
    pub fn name(self) -> &'static str {
        SCHEMES.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }

    /// Returns the protocol family.
    pub fn family(self) -> Family {
        match self {
            Scheme::Root | Scheme::Roots => Family::Xrootd,
            Scheme::Http | Scheme::Https | Scheme::Dav | Scheme::Davs => Family::Http,
            Scheme::S3 => Family::S3,
        }
    }

    /// Returns whether the connection must be encrypted; plain XRootD is upgraded if the server requires it.
    pub fn demands_tls(self) -> bool {
        matches!(self, Scheme::Roots | Scheme::Https | Scheme::Davs | Scheme::S3)
    }

    /// Returns the port of URLs without a port.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Root | Scheme::Roots => 1094,
            Scheme::Http | Scheme::Dav => 80,
            Scheme::Https | Scheme::Davs | Scheme::S3 => 443,
        }
    }
}

/// URL of a file or directory on a remote site.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: Scheme,
    user: Option<String>,
    password: Option<Password>,
    host: String,
    port: Option<u16>,
    path: Vec<u8>,
    query: Option<String>,
}

/// The password in an HTTP URL, percent-encoded. It prints as `<redacted>`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Password(String);

impl Password {
    /// Returns the password as written. To be called only where it is sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Everything that decides where and how to connect; URLs with equal endpoints can share a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The protocol.
    pub family: Family,
    /// Whether the connection must be encrypted.
    pub tls: bool,
    /// Host name or address in lower case; IPv6 addresses without brackets, possibly with a zone (`fe80::1%eth0`).
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Error for text that is not a valid location. It does not repeat the text, which may contain a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Unknown scheme.
    #[error("unknown scheme {0}://; known are root, roots, xroot, xroots, http, https, dav, davs, s3, file")]
    Scheme(String),
    /// Longer than [`MAX_URL_BYTES`].
    #[error("the URL is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    /// The host is empty, too long, or contains characters that are not allowed in a host.
    #[error("the URL has no valid host name or address")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port of the URL is not a number from 1 to 65535")]
    Port,
    /// The user name is empty, or followed by a password in a URL that is not of the HTTP family.
    #[error("the user in the URL is not valid; only an http or https URL may have a password")]
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
    /// An S3 URL with parts other than a bucket and a key.
    #[error("an s3 URL has a bucket and a key, no user, port or query: s3://bucket/key (a ? in a key is written %3F)")]
    S3,
    /// A `file:` URL with a host other than this machine.
    #[error("a file URL must have no host")]
    FileHost,
    /// Empty text.
    #[error("the location is empty")]
    Empty,
}

impl Location {
    /// Parses a command line argument. An argument that is not valid Unicode is a local path, unless it begins like a
    /// URL.
    pub fn from_argument(argument: &OsStr) -> Result<Self, InvalidUrl> {
        match argument.to_str() {
            Some(text) => text.parse(),
            None if split_scheme(&argument.to_string_lossy()).is_some() => Err(InvalidUrl::Characters),
            None => Ok(Location::Local(argument.into())),
        }
    }

    /// Returns the URL of a remote location.
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

/// Splits text that starts like a URL (RFC 3986 §3.1) into its scheme and the part after `://`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut characters = scheme.chars();
    let starts_well = characters.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_on_well = characters.all(|other| other.is_ascii_alphanumeric() || "+-.".contains(other));
    (starts_well && goes_on_well).then_some((scheme, rest))
}

/// Returns whether text without `://` is a mistyped URL rather than a path: `root:/host//p`, `host:1094//p`.
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
        // A fragment is for the client only and is never sent to the server (RFC 9110 §4.2.5).
        let rest = if encoded { rest.split('#').next().unwrap_or_default() } else { rest };
        let (before_query, query) = match rest.split_once('?') {
            Some((before, query)) => (before, Some(query.to_owned())),
            None => (rest, None),
        };
        let path_start = before_query.find('/').unwrap_or(before_query.len());
        let (authority, raw_path) = before_query.split_at(path_start);
        let Authority { user, password, host, port } = parse_authority(authority)?;
        if password.is_some() && scheme.family() != Family::Http {
            return Err(InvalidUrl::User);
        }
        if scheme == Scheme::S3 && (user.is_some() || port.is_some() || query.is_some()) {
            return Err(InvalidUrl::S3);
        }
        let path: Vec<u8> = if encoded { percent_decode_str(raw_path).collect() } else { raw_path.into() };
        let query = query.filter(|query| !query.is_empty());
        Ok(Self { scheme, user, password, host, port, path: clean_bytes(&path)?, query })
    }
}

/// The parts of an authority.
struct Authority {
    user: Option<String>,
    password: Option<Password>,
    host: String,
    port: Option<u16>,
}

/// Parses `[user[:password]@]host[:port]`.
fn parse_authority(authority: &str) -> Result<Authority, InvalidUrl> {
    let (login, address) = match authority.rsplit_once('@') {
        Some((login, address)) => (Some(login), address),
        None => (None, authority),
    };
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, "")) => (Some(user.to_owned()), None),
        Some((user, password)) => (Some(user.to_owned()), Some(Password(password.to_owned()))),
        None => (None, None),
    };
    if user.as_ref().is_some_and(|user| user.is_empty() || user.contains('@')) {
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
    Ok(Authority { user, password, host, port })
}

/// Parses an IPv6 address, optionally with a zone: `fe80::1%25eth0` (RFC 6874), or with a bare `%` as people write it.
/// The resulting host is `fe80::1%eth0`.
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

/// Returns whether `host` consists of letters, digits, `-`, `.`, and `_` (which occurs in practice) and has at most 253
/// bytes, the limit of the DNS.
fn is_host_name(host: &str) -> bool {
    let characters = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    characters && !host.is_empty() && host.len() <= 253 && !host.starts_with(['.', '-'])
}

/// Normalizes a path to one slash before each component, without `.` components; `..` and NUL are errors.
///
/// A trailing slash is kept, because it marks a directory.
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

/// Characters that RFC 3986 §3.3 does not allow in a path, `%` itself, and `*`, which would be a pattern in an argument.
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'*')
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

/// Percent-encodes a path for an HTTP request line, a `Location` header or a WebDAV `href`.
pub(crate) fn encode_path(path: impl AsRef<[u8]>) -> String {
    percent_encode(path.as_ref(), NOT_IN_PATH).to_string()
}

/// Returns the decoded path of a WebDAV `href` or a `Location` field, which is a percent-encoded path or a whole URL.
///
/// Host and query are dropped. The path has the form of [`Url::path`], but may contain any bytes, because file names
/// need not be text.
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
    /// Returns the scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the user name before the host, if any.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password after the user name, if any.
    pub fn password(&self) -> Option<&Password> {
        self.password.as_ref()
    }

    /// Returns the host name or address in lower case; IPv6 addresses without brackets, possibly with a zone
    /// (`fe80::1%eth0`).
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port to connect to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or_else(|| self.scheme.default_port())
    }

    /// Returns the path: absolute, decoded, with single slashes; it ends with a slash if that of the URL did. It is
    /// text without control characters in the XRootD family, and any bytes except NUL in the others.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the text after `?` as written: XRootD's opaque information or an HTTP query. Never empty. May contain
    /// tokens.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Removes the pairs whose keys begin with `prefix` from the query; returns the remaining URL and those pairs.
    /// Values of the XRootD family are literal, those of others percent-decoded.
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

    /// Returns the URL with its user, but without password and query, as an argument for other commands.
    pub fn without_secrets(&self) -> String {
        self.written(None, None)
    }

    /// Returns the endpoint to connect to.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            family: self.scheme.family(),
            tls: self.scheme.demands_tls(),
            host: self.host.clone(),
            port: self.port(),
        }
    }

    /// Returns the value of an HTTP `Host` header: `host`, or `host:port` if the port is not the default.
    pub fn authority(&self) -> String {
        match self.port.filter(|port| *port != self.scheme.default_port()) {
            Some(port) => format!("{}:{port}", BracketedHost(&self.host)),
            None => BracketedHost(&self.host).to_string(),
        }
    }

    /// Returns a URL of the same site with another path, which is literal.
    ///
    /// # Errors
    /// `Characters` for a path that cannot be in a URL of the XRootD family: with `?` or control characters, or not
    /// UTF-8. `ParentComponent` for a path with a `..` component.
    pub fn with_path(&self, path: impl AsRef<[u8]>) -> Result<Self, InvalidUrl> {
        let path = clean_bytes(path.as_ref())?;
        let is_literal = |text: &str| !text.contains('?') && !text.chars().any(char::is_control);
        if self.scheme.family() == Family::Xrootd && !std::str::from_utf8(&path).is_ok_and(is_literal) {
            return Err(InvalidUrl::Characters);
        }
        Ok(Self { path, ..self.clone() })
    }

    /// Returns the URL with all its secrets except the password, for the wire.
    pub fn expose(&self) -> String {
        self.written(None, self.query.as_deref())
    }

    /// Returns the URL with all its secrets, for an argument to be parsed again.
    pub fn expose_with_password(&self) -> String {
        self.written(self.password.as_ref(), self.query.as_deref())
    }

    fn written(&self, password: Option<&Password>, query: Option<&str>) -> String {
        let (name, host) = (self.scheme.name(), BracketedHost(&self.host));
        let password = password.map(|password| format!(":{}", password.expose())).unwrap_or_default();
        let user = self.user.as_ref().map(|user| format!("{user}{password}@")).unwrap_or_default();
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let path = match self.scheme.family() {
            // XRootD's own clients require the second slash for an absolute path.
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
        f.write_str(&self.written(None, query.as_deref()))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", BracketedHost(&self.host), self.port)
    }
}

/// A host in the form that precedes a port: IPv6 addresses in brackets.
struct BracketedHost<'a>(&'a str);

impl fmt::Display for BracketedHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once('%') {
            Some((address, zone)) => write!(f, "[{address}%25{zone}]"),
            None if self.0.contains(':') => write!(f, "[{}]", self.0),
            None => f.write_str(self.0),
        }
    }
}

/// Keys whose values grant access: bearer tokens and macaroons, pre-signed URLs, third-party copy keys.
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

/// Replaces the values of [`SECRET_KEYS`] in a query or opaque information (`k=v&k=v`) with `***`.
pub fn redact(query: &str) -> String {
    let hide = |pair: &str| match pair.split_once('=') {
        Some((key, _)) if is_one_of(key, &SECRET_KEYS) => format!("{key}=***"),
        _ => pair.to_owned(),
    };
    query.split('&').map(hide).collect::<Vec<_>>().join("&")
}

/// Replaces the password and the values of [`SECRET_KEYS`] in a URL of any scheme with `***`, also if it is no valid URL.
pub fn mask_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, host) = authority.rsplit_once('@').map_or(("", authority), |(login, host)| (login, host));
    let login = match login.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None if login.is_empty() => String::new(),
        None => format!("{login}@"),
    };
    let behind = match behind.split_once('?') {
        Some((path, query)) => format!("{path}?{}", redact(query)),
        None => behind.to_owned(),
    };
    format!("{scheme}://{login}{host}{behind}")
}

/// Removes the pairs with [`SECRET_KEYS`] from a query or opaque information.
pub fn without_secrets(query: &str) -> String {
    without_keys(query, &SECRET_KEYS)
}

/// Removes the pairs with one of `keys`, in lower case, from a query or opaque information.
pub fn without_keys(query: &str, keys: &[&str]) -> String {
    let is_kept = |pair: &&str| !is_one_of(pair.split('=').next().unwrap_or_default(), keys);
    query.split('&').filter(is_kept).collect::<Vec<_>>().join("&")
}

fn is_one_of(key: &str, keys: &[&str]) -> bool {
    // The key itself may be percent-encoded, and opaque information may be appended with a second `?`.
    let key = percent_decode_str(key).decode_utf8_lossy().to_ascii_lowercase();
    let key = key.rsplit('?').next().unwrap_or_default();
    keys.contains(&key.trim())
}

#[cfg(test)]
mod tests;
