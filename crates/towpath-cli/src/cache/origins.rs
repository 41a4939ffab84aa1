//! Clients of the origins of a cache: of the configured ones, and of those that readers name in the path.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use towpath_cache::{Credential, Forwarder, OriginOptions, Rules, TreeOptions};
use towpath_client::{Client, ClientOptions, PasswordSource, TokenSource};
use towpath_proto::{
    destination_policy::DestinationPolicy,
    url::{Family, Url},
};
use towpath_store::{
    Error, Fault, Result,
    sys::disk::{self, RequiredOwner},
};

use super::settings::{CacheConfig, CredentialConfig, ForwardConfig};
use crate::failure::Failure;

/// Maximum size of a file of permitted storages in bytes.
const MAX_PERMITTED_BYTES: u64 = 1 << 20;

/// Returns the URLs of the configured origins. An error does not repeat one: it may have a password.
pub(super) fn urls(settings: &CacheConfig) -> Result<Vec<Url>, Failure> {
    let parse = |text: &String| {
        text.parse().map_err(|error| Failure::Usage(format!("the URL of an origin is invalid: {error}")))
    };
    settings.origin.iter().map(parse).collect()
}

/// Connects the configured origins; `None` if there are none. Nothing is sent yet.
pub(super) fn connect(settings: &CacheConfig) -> Result<Option<TreeOptions>, Failure> {
    let urls = urls(settings)?;
    if urls.is_empty() {
        return Ok(None);
    }
    if settings.credential == CredentialConfig::Caller && urls.iter().any(|url| url.scheme().family() == Family::S3) {
        let message =
            "credential = \"caller\" needs an origin that accepts tokens: a bucket accepts the keys of the cache";
        return Err(Failure::Usage(message.into()));
    }
    let token = token_source(settings.credential, settings.token.as_ref());
    let options = Arc::new(client_options(settings, token, urls.len() > 1));
    let origins = urls.iter().map(|url| origin(settings, &options, url, settings.credential));
    let origins = origins.collect::<Result<Vec<_>>>()?;
    Ok(Some(TreeOptions { origins, rules: settings.rules()?, deadline: settings.deadline.0 }))
}

/// Returns the settings of a client. A request that another origin can serve is not retried at the first one.
fn client_options(settings: &CacheConfig, token: TokenSource, has_alternative: bool) -> ClientOptions {
    let defaults = ClientOptions::default();
    let (retries, retry_time) = match has_alternative {
        // Once, because an idle connection may have been closed.
        true => (1, settings.deadline.0),
        false => (defaults.retries, settings.retry_time.0),
    };
    ClientOptions {
        token,
        // Those of the user's files would be sent although the settings name a token or none.
        passwords: PasswordSource::Nothing,
        ca_file: settings.ca.clone(),
        stall: settings.deadline.0,
        patience: settings.retry_time.0,
        retries,
        retry_time,
        window_bytes: settings.bytes_in_flight.0 as usize,
        ..defaults
    }
}

fn token_source(credential: CredentialConfig, file: Option<&PathBuf>) -> TokenSource {
    match (credential, file) {
        (CredentialConfig::None, _) => TokenSource::Nothing,
        (_, Some(file)) => TokenSource::File(file.clone()),
        (_, None) => TokenSource::Discover,
    }
}

/// Connects an origin with a client of its own, so that its times are not those of other origins.
fn origin(
    settings: &CacheConfig,
    options: &Arc<ClientOptions>,
    url: &Url,
    credential: CredentialConfig,
) -> Result<OriginOptions> {
    let client = Client::new(Arc::clone(options));
    let (store, root) = client.connect(url)?;
    Ok(OriginOptions {
        name: format!("{}://{}", url.scheme().name(), url.endpoint()).into(),
        store,
        root,
        credential: match credential {
            CredentialConfig::Own | CredentialConfig::None => Credential::Own,
            CredentialConfig::Caller => Credential::Caller,
        },
        bytes_in_flight: settings.bytes_in_flight.0 as usize,
        request_times: client.request_times(),
    })
}

/// A host that readers may name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PermittedHost {
    /// Lower case; if it begins with a dot, all names with this suffix.
    name: String,
    /// Without one, the default port of the scheme.
    port: Option<u16>,
}

impl PermittedHost {
    /// Parses `host`, `host:port`, `.domain`, `.domain:port`, an address, or `[address]:port`.
    fn parse(text: &str) -> Result<Self, Failure> {
        let invalid = || {
            let message = "is not a host, HOST:PORT or a domain such as .example.org";
            Failure::Usage(format!("forward: `{text}` {message}"))
        };
        let host = text.strip_prefix('.').unwrap_or(text);
        let parse = |scheme: &str| format!("{scheme}://{host}/").parse::<Url>().map_err(|_| invalid());
        let (url, other) = (parse("root")?, parse("https")?);
        let is_plain = url.user().is_none() && url.query().is_none() && url.path() == b"/" && !host.contains('*');
        // Default ports differ.
        let port = Some(url.port()).filter(|port| *port == other.port());
        let dot = if host.len() < text.len() { "." } else { "" };
        is_plain.then(|| Self { name: format!("{dot}{}", url.host().to_ascii_lowercase()), port }).ok_or_else(invalid)
    }

    fn permits(&self, url: &Url) -> bool {
        let host = url.host().to_ascii_lowercase();
        let is_named = match self.name.starts_with('.') {
            true => host.ends_with(&self.name),
            false => host == self.name,
        };
        is_named && url.port() == self.port.unwrap_or(url.scheme().default_port())
    }
}

/// Connects the storages that readers name, if they are on the list.
#[derive(Debug)]
pub(crate) struct ListedStorages {
    hosts: Vec<PermittedHost>,
    /// File with more of them, a line each, which is read again for each storage.
    file: Option<PathBuf>,
    options: Arc<ClientOptions>,
    settings: CacheConfig,
}

impl ListedStorages {
    /// Creates the list of the settings; `None` if it is empty.
    ///
    /// # Errors
    /// A host is invalid.
    pub(crate) fn new(settings: &CacheConfig) -> Result<Option<Self>, Failure> {
        let ForwardConfig { hosts, credential, token } = &settings.forward;
        if hosts.is_empty() {
            return Ok(None);
        }
        let hosts = hosts.iter().map(|host| PermittedHost::parse(host)).collect::<Result<Vec<_>, _>>()?;
        if let Some(origin) = urls(settings)?.iter().find(|url| hosts.iter().any(|host| host.permits(url))) {
            let message = format!(
                "forward: {} is an origin of this cache too: what its credential opens would be visible under a path \
                 with another credential",
                origin.endpoint()
            );
            return Err(Failure::Usage(message));
        }
        let names: Vec<_> = hosts.iter().map(|host| host.name.trim_matches(['[', ']']).to_owned()).collect();
        // A storage may redirect clients to its servers, also to those of its own network if they are listed.
        let policy = DestinationPolicy::beyond_public(&names);
        let policy = policy.map_err(|error| Failure::Usage(format!("forward: {error}")))?;
        let options = client_options(settings, token_source(*credential, token.as_ref()), false);
        let options = Arc::new(ClientOptions { destinations: Arc::new(policy), ..options });
        Ok(Some(Self { hosts, file: None, options, settings: settings.clone() }))
    }

    /// Creates the list of an agent: the hosts of the settings, and those that its user appends to `file`
    /// ([`permit`]). Storages get the token or the password of the user, as from the user's own commands, and may redirect
    /// to any address.
    ///
    /// # Errors
    /// A host is invalid.
    pub(crate) fn of_user(settings: &CacheConfig, file: PathBuf) -> Result<Self, Failure> {
        let hosts = settings.forward.hosts.iter().map(|host| PermittedHost::parse(host));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let options = client_options(settings, TokenSource::Discover, false);
        let options = Arc::new(ClientOptions { passwords: PasswordSource::default(), ..options });
        Ok(Self { hosts, file: Some(file), options, settings: settings.clone() })
    }

    /// Returns whether a storage is on the list.
    fn permits(&self, url: &Url) -> Result<bool> {
        if self.hosts.iter().any(|host| host.permits(url)) {
            return Ok(true);
        }
        let Some(file) = &self.file else { return Ok(false) };
        Ok(permitted(file)?.iter().any(|host| host.permits(url)))
    }
}

/// Appends the storage of a URL to the file of permitted ones, unless it is there.
///
/// # Errors
/// The file cannot be read or written, or is full.
pub(crate) fn permit(file: &Path, url: &Url) -> Result<()> {
    let host = PermittedHost { name: url.host().to_ascii_lowercase(), port: Some(url.port()) };
    if permitted(file)?.contains(&host) {
        return Ok(());
    }
    let (authority, port) = (url.authority(), url.port());
    let line = match port == url.scheme().default_port() {
        true => format!("{authority}:{port}\n"),
        false => format!("{authority}\n"),
    };
    let append = || disk::append_private(file)?.write_all(line.as_bytes());
    append().map_err(|error| file_error(file, &error))
}

/// Reads the file of permitted storages; a missing one is empty.
fn permitted(file: &Path) -> Result<Vec<PermittedHost>> {
    let bytes = match disk::read_regular(file, MAX_PERMITTED_BYTES, RequiredOwner::CurrentUser) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| file_error(file, &error))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    // A line that is being appended is read again with the next storage.
    Ok(text.lines().filter_map(|line| PermittedHost::parse(line).ok()).collect())
}

fn file_error(file: &Path, error: &io::Error) -> Error {
    Error::new(Fault::Io, format!("the list of permitted storages {}: {error}", file.display()))
}

impl Forwarder for ListedStorages {
    fn connect(&self, url: &Url) -> Result<TreeOptions> {
        if url.scheme().family() == Family::S3 || !self.permits(url)? {
            let endpoint = url.endpoint();
            let message = match self.file {
                Some(_) => format!("the agent may not contact {endpoint}: permit it with `towpath agent url`"),
                None => format!("this cache may not contact {endpoint}: its setting `forward` does not list it"),
            };
            return Err(Error::new(Fault::PermissionDenied, message));
        }
        let origins = vec![origin(&self.settings, &self.options, url, self.settings.forward.credential)?];
        Ok(TreeOptions { origins, rules: Rules::default(), deadline: self.settings.deadline.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_cannot_be_named_in_a_path_too() {
        let settings = |host: &str| CacheConfig {
            origin: vec!["https://data.example.org/store".into()],
            forward: ForwardConfig { hosts: vec![host.into()], ..ForwardConfig::default() },
            ..CacheConfig::default()
        };
        for host in ["data.example.org", ".example.org", "data.example.org:443"] {
            assert!(ListedStorages::new(&settings(host)).is_err(), "{host}");
        }
        for host in ["other.example.org", "data.example.org:8443"] {
            assert!(ListedStorages::new(&settings(host)).unwrap().is_some(), "{host}");
        }
    }

    #[test]
    fn an_agent_contacts_what_its_user_has_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        let agent = ListedStorages::of_user(&CacheConfig::default(), file.clone()).unwrap();
        let refused = |url: &str| agent.connect(&url.parse().unwrap()).is_err();
        assert!(refused("root://data.example.org//"));
        for url in ["root://data.example.org//f", "https://[2001:db8::1]:8443/f", "root://DATA.example.org:1094//g"] {
            permit(&file, &url.parse().unwrap()).unwrap();
        }
        assert_eq!(permitted(&file).unwrap().len(), 2, "no storage is there twice");
        assert!(!refused("root://data.example.org//") && !refused("https://[2001:db8::1]:8443/"));
        for url in ["root://data.example.org:1095//", "https://data.example.org/", "root://example.org//"] {
            assert!(refused(url), "{url}");
        }
    }

    #[test]
    fn only_listed_hosts_and_ports_are_contacted() {
        let permits = |host: &str, url: &str| PermittedHost::parse(host).unwrap().permits(&url.parse().unwrap());
        for (host, url) in [
            ("host", "root://HOST//"),
            ("Host", "https://host/"),
            ("host:1095", "root://host:1095//"),
            (".example.org", "root://data.example.org//"),
            ("127.0.0.1:1095", "root://127.0.0.1:1095//"),
            ("[::1]:1095", "root://[::1]:1095//"),
        ] {
            assert!(permits(host, url), "{host} {url}");
        }
        for (host, url) in [
            ("host", "root://host:22//"),
            ("host:1095", "root://host//"),
            ("host", "root://host.example.org//"),
            (".example.org", "root://example.org//"),
            (".example.org", "root://evilexample.org//"),
        ] {
            assert!(!permits(host, url), "{host} {url}");
        }
        for host in ["", "*", "*.example.org", "user@host", "host/path", "root://host", "host:port", "."] {
            assert!(PermittedHost::parse(host).is_err(), "{host}");
        }
    }
}
