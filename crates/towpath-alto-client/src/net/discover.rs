//! Discovers ALTO servers through DNS (RFC 7286, RFC 8686).

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use crate::{Discovery, DiscoveryResult, DomainName, Naptr};
use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RData, RecordType},
    system_conf::parse_resolv_conf,
};
use tokio::time::timeout;
use towpath_store::{Error, Fault, sys::disk};

use super::AltoError;

/// The system's resolver configuration.
const SYSTEM: &str = "/etc/resolv.conf";

/// Maximum size of that file, in bytes: it has a dozen lines.
const MAX_SYSTEM_BYTES: u64 = 64 << 10;

/// Timeout of one name server before the query is retried, and of the whole discovery. Ordering replicas delays reading
/// them.
const PATIENCE_WITH_ONE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of this machine's domains to query: as many as resolvers search.
const MAX_DOMAINS: usize = 6;

/// How to search for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveryOptions {
    /// Domain whose server is wanted. Without it, the server for the network around `address`, else that of a domain of
    /// this machine.
    pub domain: Option<DomainName>,
    /// An address in the network that the server should cover.
    pub address: Option<IpAddr>,
    /// Name server to query; `None` for those of the system.
    pub dns: Option<SocketAddr>,
}

/// Finds the directories of servers. They are https, and must not receive a token, because DNS and not the user named
/// them.
///
/// # Errors
/// Returns an error if none is found or DNS does not respond.
pub(super) async fn directories(search: &DiscoveryOptions) -> Result<DiscoveryResult, AltoError> {
    let system = system();
    let mut discovery = match (&search.domain, search.address) {
        (Some(domain), _) => Discovery::of_domains([domain.clone()]),
        (None, Some(address)) => Discovery::of_address(address),
        (None, None) => Discovery::of_domains(system.iter().flat_map(|(config, _)| domains(config))),
    };
    let silence = match resolver(search.dns, system) {
        Ok(resolver) => {
            let queries = timeout(PATIENCE, run_queries(&mut discovery, &resolver));
            queries.await.unwrap_or_else(|_| Some("the name servers did not respond in time".to_owned()))
        }
        Err(problem) => Some(problem),
    };
    match discovery.outcome() {
        Some(found) => Ok(found.clone()),
        // A caller that named a domain named a server indirectly; a temporary failure must not lead to another server.
        None if search.domain.is_some() && silence.is_some() => {
            Err(Error::new(Fault::Unavailable, describe_attempts(&discovery, silence.as_deref())).into())
        }
        None => Err(AltoError::Unfound(describe_attempts(&discovery, silence.as_deref()))),
    }
}

/// Describes which names were queried without success, and why the records found are unusable.
fn describe_attempts(discovery: &Discovery, silence: Option<&str>) -> String {
    let names = discovery.queried().iter().chain(discovery.next_name()).map(DomainName::as_str).collect::<Vec<_>>();
    let tried = match names.is_empty() {
        true => "this machine has no domain to look up in the DNS".to_owned(),
        false => format!("the DNS names no ALTO server at {}", names.join(", ")),
    };
    let ignored_records = discovery.ignored_records().iter().map(ToString::to_string);
    [tried].into_iter().chain(ignored_records).chain(silence.map(str::to_owned)).collect::<Vec<_>>().join("; ")
}

/// Performs all queries of the search. Returns the last DNS error, if any, since other names may be served by other
/// name servers.
async fn run_queries(discovery: &mut Discovery, resolver: &TokioResolver) -> Option<String> {
    let mut silence = None;
    while let Some(name) = discovery.next_name() {
        let records = look_up(resolver, name).await.unwrap_or_else(|error| {
            silence = Some(format!("{name}: {error}"));
            Vec::new()
        });
        discovery.take(records);
    }
    silence
}

/// Returns the NAPTR records of a name; empty if it has none or does not exist.
async fn look_up(resolver: &TokioResolver, name: &DomainName) -> Result<Vec<Naptr>, NetError> {
    // Fully qualified, so that the search list of this machine is not applied.
    let name = Name::from_ascii(format!("{name}."))?;
    match resolver.lookup(name, RecordType::NAPTR).await {
        Ok(found) => Ok(found.answers().iter().filter_map(|record| naptr(&record.data)).collect()),
        Err(error) if error.is_no_records_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Converts a record, ignoring other types such as aliases.
fn naptr(data: &RData) -> Option<Naptr> {
    let RData::NAPTR(record) = data else { return None };
    Some(Naptr {
        order: record.order,
        preference: record.preference,
        flags: record.flags.to_vec(),
        services: record.services.to_vec(),
        regexp: record.regexp.to_vec(),
        replacement: DomainName::new(&record.replacement.to_ascii()).ok(),
    })
}

/// Returns the system's resolver configuration, or `None` if it is unusable.
fn system() -> Option<(ResolverConfig, ResolverOpts)> {
    let problem = match disk::read(Path::new(SYSTEM), MAX_SYSTEM_BYTES) {
        Ok(text) => match parse_resolv_conf(text) {
            Ok(system) => return Some(system),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    tracing::debug!("{SYSTEM}: {problem}");
    None
}

/// Returns the domains of this machine, except those without a dot, which are local names.
fn domains(config: &ResolverConfig) -> Vec<DomainName> {
    let mut domains: Vec<DomainName> = Vec::new();
    for name in config.domain().into_iter().chain(config.search()) {
        if let Ok(domain) = DomainName::new(&name.to_ascii())
            && domain.is_below_top()
            && !domains.contains(&domain)
        {
            domains.push(domain);
        }
    }
    domains.truncate(MAX_DOMAINS);
    domains
}

/// Creates a resolver for the given name server, else for those of the system.
fn resolver(dns: Option<SocketAddr>, system: Option<(ResolverConfig, ResolverOpts)>) -> Result<TokioResolver, String> {
    let named = dns.map(|address| (ResolverConfig::from_name_servers(vec![at(address)]), ResolverOpts::default()));
    let none = || format!("{SYSTEM} has no name server");
    let (config, options) = named.or(system).ok_or_else(none)?;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    let options = builder.options_mut();
    (options.timeout, options.attempts) = (PATIENCE_WITH_ONE, 1);
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().map_err(|error| error.to_string())
}

/// Returns the configuration of a name server, queried over UDP, and over TCP for long answers.
fn at(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// Starts a name server with one record at one name, which answers NXDOMAIN for all others. Returns its address.
    async fn name_server(name: &'static str, record: &'static [u8]) -> SocketAddr {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question).await {
                socket.send_to(&answer(&question[..length], name, record), from).await.unwrap();
            }
        });
        address
    }

    /// Builds the answer to a query (RFC 1035 §4.1).
    fn answer(question: &[u8], name: &str, record: &[u8]) -> Vec<u8> {
        const HEADER: usize = 12;
        let expected: Vec<u8> =
            name.split('.').flat_map(|label| [&[label.len() as u8][..], label.as_bytes()].concat()).collect();
        let labels = question[HEADER..].iter().position(|byte| *byte == 0).unwrap();
        let is_there = question[HEADER..HEADER + labels].eq_ignore_ascii_case(&expected);
        // Response with recursion available; NXDOMAIN is 3. One question, at most one answer.
        let counts = [0, 1, 0, u8::from(is_there), 0, 0, 0, 0];
        let mut answer = [&question[..2], &[0x81, if is_there { 0x80 } else { 0x83 }], &counts].concat();
        answer.extend(&question[HEADER..HEADER + labels + 5]);
        if is_there {
            // The queried name, NAPTR, IN, TTL of one minute.
            answer.extend([0xc0, HEADER as u8, 0, 35, 0, 1, 0, 0, 0, 60, 0, record.len() as u8]);
            answer.extend(record);
        }
        answer
    }

    async fn found(domain: Option<&str>, address: Option<&str>, dns: SocketAddr) -> Result<DiscoveryResult, AltoError> {
        let domain = domain.map(|domain| domain.parse().unwrap());
        let address = address.map(|address| address.parse().unwrap());
        directories(&DiscoveryOptions { domain, address, dns: Some(dns) }).await
    }

    /// Order 100, preference 10, empty replacement.
    const SECURE: &[u8] = b"\x00\x64\x00\x0a\x01u\x0aALTO:https\x24!.*!https://alto.example.net/secure!\x00";
    const INSECURE: &[u8] = b"\x00\x64\x00\x0a\x01u\x09ALTO:http\x1d!.*!http://alto.example.net/!\x00";

    #[tokio::test]
    async fn a_domain_names_its_server() {
        let dns = name_server("grid.example.net", SECURE).await;
        let there = found(Some("Grid.example.net."), None, dns).await.unwrap();
        assert_eq!(there.directories[0].as_str(), "https://alto.example.net/secure");
        assert_eq!(there.name.as_str(), "grid.example.net");
        let missing = found(Some("other.example.net"), None, dns).await.unwrap_err();
        assert!(matches!(missing, AltoError::Unfound(_)), "{missing}");
        assert!(missing.to_string().contains("the DNS names no ALTO server at other.example.net"), "{missing}");
    }

    #[tokio::test]
    async fn an_address_leads_to_who_knows_the_network_around_it() {
        let dns = name_server("2.0.192.in-addr.arpa", SECURE).await;
        let there = found(None, Some("192.0.2.7"), dns).await.unwrap();
        assert_eq!(there.directories[0].as_str(), "https://alto.example.net/secure");
        let missing = found(None, Some("2001:db8::1"), dns).await.unwrap_err().to_string();
        assert!(missing.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{missing}");
    }

    #[tokio::test]
    async fn a_server_without_tls_is_told_and_not_asked() {
        let dns = name_server("example.net", INSECURE).await;
        let ignored_records = found(Some("example.net"), None, dns).await.unwrap_err().to_string();
        assert!(
            ignored_records.contains("example.net names http://alto.example.net/, which is ignored"),
            "{ignored_records}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_dns_that_says_nothing_is_not_waited_for_for_long() {
        let silent = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
        let begun = tokio::time::Instant::now();
        let dns = silent.local_addr().unwrap();
        let trouble = found(Some("example.net"), None, dns).await.unwrap_err();
        assert!(trouble.is_servers(), "{trouble}");
        assert!(begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_domains_of_a_machine_are_those_that_it_searches() {
        let domains = |text: &str| -> Vec<String> {
            let (config, _) = parse_resolv_conf(text).unwrap();
            domains(&config).iter().map(ToString::to_string).collect()
        };
        let text = "nameserver 192.0.2.1\nsearch Site.example.org example.org lan\n";
        let found = domains(text);
        assert!(found.ends_with(&["site.example.org".into(), "example.org".into()]), "{found:?}");
        assert!(domains("nameserver 192.0.2.1\nsearch lan\n").iter().all(|domain| domain.contains('.')));
    }
}
