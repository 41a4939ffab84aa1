//! HTTP proxies: which servers are reached through one, and how errors name it.
//!
//! [`ProxySettings`] has the text of the settings, usually that of the environment; [`Proxies`] is its parsed form. A
//! proxy forwards requests to `http://` servers, and opens tunnels to `https://` servers (`crate::http`). The xroot
//! protocol never uses one.

mod exceptions;

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use towpath_proto::url::{Endpoint, Family, Url};
use towpath_store::{Blame, Error, Fault, Result, Secret, sys::environment};

use crate::passwords::basic;
use exceptions::Exceptions;

/// Default port of an `http://` proxy, as in curl.
const HTTP_PORT: u16 = 1080;

/// Proxies for HTTP, WebDAV and S3. Invalid settings are errors of the first request that needs them.
#[derive(Debug, Clone, Default)]
pub struct ProxySettings {
    /// The proxy for `http://` servers.
    pub http: Option<ProxyUrl>,
    /// The proxy for `https://` servers.
    pub https: Option<ProxyUrl>,
    /// Servers that are reached without a proxy, separated by commas or white space: host names, which include all names
    /// below them, with or without a dot before, addresses, networks in CIDR notation, each with an optional port; `*`
    /// for all.
    pub exceptions: String,
}

/// The URL of a proxy.
#[derive(Debug, Clone)]
pub struct ProxyUrl {
    /// `http[s]://[USER:PASSWORD@]HOST[:PORT]`; `http://` may be omitted.
    pub url: Secret,
    /// The name of the setting, for messages: an environment variable or an option.
    pub setting: String,
}

impl ProxySettings {
    /// Returns the settings in the environment: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`, and the same in
    /// upper case. In a CGI program, which has `REQUEST_METHOD`, `HTTP_PROXY` is a header field of the client, and is
    /// ignored.
    pub fn from_environment() -> Self {
        Self::from_variables(environment::text)
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let first = |names: &[&str]| {
            let mut usable = names.iter().filter(|name| !(is_cgi && **name == "HTTP_PROXY"));
            usable.find_map(|name| Some(ProxyUrl { url: Secret::new(variable(name)?), setting: (*name).to_owned() }))
        };
        Self {
            http: first(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: ["no_proxy", "NO_PROXY"].into_iter().find_map(variable).unwrap_or_default(),
        }
    }
}

/// The parsed settings of one client.
#[derive(Debug)]
pub(crate) struct Proxies {
    http: Result<Option<Arc<Proxy>>>,
    https: Result<Option<Arc<Proxy>>>,
    exceptions: Exceptions,
}

impl Proxies {
    /// Parses `settings`; their errors are those of [`Self::of`].
    pub(crate) fn new(settings: &ProxySettings) -> Self {
        let parsed =
            |proxy: &Option<ProxyUrl>| proxy.as_ref().map(|proxy| Proxy::parse(proxy).map(Arc::new)).transpose();
        Self {
            http: parsed(&settings.http),
            https: parsed(&settings.https),
            exceptions: Exceptions::parse(&settings.exceptions),
        }
    }

    /// Returns the proxy for the server at `endpoint`, if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` if its URL is invalid.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> Result<Option<Arc<Proxy>>> {
        if self.exceptions.contain(&endpoint.host, endpoint.port) {
            return Ok(None);
        }
        if endpoint.tls { self.https.clone() } else { self.http.clone() }
    }
}

/// A proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) endpoint: Endpoint,
    /// The value of `Proxy-Authorization`. Never sent to another server.
    pub(crate) authorization: Option<HeaderValue>,
    setting: String,
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.endpoint.tls { "https" } else { "http" };
        write!(f, "the proxy {scheme}://{} ({})", self.endpoint, self.setting)
    }
}

impl Proxy {
    /// Parses the URL of a proxy. Its text is in no error: it may contain a password.
    fn parse(ProxyUrl { url, setting }: &ProxyUrl) -> Result<Self> {
        let invalid = |why: &str| Error::invalid_setting(format!("the proxy in {setting} {why}"));
        let (scheme, rest) = url.expose().trim().split_once("://").unwrap_or(("http", url.expose().trim()));
        let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, HTTP_PORT),
            "https" => (true, 443),
            other if other.starts_with("socks") => {
                return Err(invalid("is a SOCKS proxy, which is not supported: name an http:// or https:// proxy"));
            }
            _ => return Err(invalid("is not an http:// or https:// URL")),
        };
        // The host has no `@`; a password that contains other delimiters must be percent-encoded.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let url: Url = format!("http://{address}/").parse().map_err(|_| invalid("has no valid host and port"))?;
        let has_port = url.port() != 80 || address.ends_with(":80");
        let port = if has_port { url.port() } else { default_port };
        let endpoint = Endpoint { family: Family::Http, tls, host: url.host().to_owned(), port };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let login = user.map(|user| user.split_once(':').unwrap_or((user, "")));
        let authorization = login.map(|(user, password)| basic(&decoded(user), &decoded(password))).transpose()?;
        Ok(Self { endpoint, authorization, setting: setting.clone() })
    }

    /// Returns the error for a proxy that cannot be reached because of `error`.
    pub(crate) fn unreachable(&self, error: &Error) -> Error {
        error.clone().with_message(format!("{self} cannot be reached: {}", error.message()))
    }

    /// Returns the error for a proxy that does not respond in time, or closes the connection.
    pub(crate) fn lost(&self, server: &Endpoint, why: &str) -> Error {
        let message = format!("{self} did not connect to {server}: {why}");
        Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
    }

    /// Returns the error for the response `status` of the proxy to a request to connect to `server`.
    pub(crate) fn refused(&self, server: &Endpoint, status: StatusCode) -> Error {
        match status {
            // tinyproxy (seen with 1.11.1) responds so to a wrong password.
            StatusCode::UNAUTHORIZED => self.demands_password(),
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => self.demands_password(),
            _ => {
                let fault = Fault::from_http(status.as_u16());
                let message = format!("{self} refuses connections to {server}: {status}");
                Error::new(fault, message).with_code(status.as_u16().into()).blamed_on(Blame::Network)
            }
        }
    }

    /// Returns the error for a response 407.
    pub(crate) fn demands_password(&self) -> Error {
        let Self { setting, .. } = self;
        let message = match &self.authorization {
            Some(_) => format!("{self} rejects the user name or password in {setting}"),
            None => format!("{self} requires a password: set {setting}=http://USER:PASSWORD@HOST:PORT"),
        };
        let code = StatusCode::PROXY_AUTHENTICATION_REQUIRED.as_u16();
        Error::new(Fault::AuthenticationFailed, message).with_code(code.into()).blamed_on(Blame::Caller)
    }
}

#[cfg(test)]
mod tests;
