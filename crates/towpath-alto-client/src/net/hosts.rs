//! Where replicas are: the hosts in their URLs, and the addresses of these.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::time::{sleep, timeout};
use towpath_alto::replicas::Replicas;
use towpath_store::sys::net;

/// The most hosts of one list: some fifty times as many as the grid has storages.
const MAX_HOSTS: usize = 10_000;

/// Hosts looked up at once.
const LOOKUPS: usize = 64;

/// Timeout for the address of one host, and for those of all hosts.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of one lookup of all hosts of a list.
pub const PATIENCE_FOR_ALL: Duration = Duration::from_secs(60);

/// The hosts of a list, by name.
#[derive(Debug)]
pub struct Hosts(HashMap<String, Option<IpAddr>>);

impl Hosts {
    /// Resolves the hosts of all replicas, each once. Of several addresses the first one of the client's family is
    /// used, if that is known, else the system's first choice. Hosts that are not resolved within `limit` have none.
    ///
    /// # Errors
    /// If there are too many.
    pub async fn find(replicas: &Replicas, client: Option<IpAddr>, limit: Duration) -> Result<Self, String> {
        let all = replicas.files().iter().flat_map(|file| &file.replicas);
        let mut names: BTreeSet<String> = BTreeSet::new();
        for host in all.filter_map(|replica| host_of(&replica.url)) {
            names.insert(host);
            if names.len() > MAX_HOSTS {
                return Err(format!("the list names more than {MAX_HOSTS} hosts: split it"));
            }
        }
        Ok(Self(addresses(names, client, limit).await))
    }

    /// Where the replica at `url` is, as far as that is known.
    pub fn of(&self, url: &str) -> Option<IpAddr> {
        *self.0.get(&host_of(url)?)?
    }

    /// Where all of them are.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.0.values().copied().flatten().collect()
    }

    /// Returns whether there are hosts but no addresses.
    pub fn are_all_unknown(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(Option::is_none)
    }

    /// The hosts that have no address, in the order of their names.
    pub fn unknown(&self) -> Vec<&str> {
        let unknown = self.0.iter().filter(|(_, address)| address.is_none()).map(|(name, _)| name.as_str());
        unknown.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The addresses of hosts, as far as they are found within `limit`: of the family of `client` if there is one of it.
pub async fn addresses(
    names: BTreeSet<String>,
    client: Option<IpAddr>,
    limit: Duration,
) -> HashMap<String, Option<IpAddr>> {
    let mut hosts: HashMap<String, Option<IpAddr>> = names.iter().map(|name| (name.clone(), None)).collect();
    let found = stream::iter(names).map(|name| async move {
        let address = look_up(&name, client).await;
        (name, address)
    });
    let in_time = found.buffer_unordered(LOOKUPS).take_until(sleep(limit.min(PATIENCE_FOR_ALL)));
    hosts.extend(in_time.collect::<Vec<_>>().await);
    hosts
}

async fn look_up(name: &str, client: Option<IpAddr>) -> Option<IpAddr> {
    if let Ok(address) = name.parse() {
        return Some(address);
    }
    let found = timeout(PATIENCE, net::resolve(name, 0)).await.ok()?.ok()?;
    choose(&found, client)
}

fn choose(found: &[SocketAddr], client: Option<IpAddr>) -> Option<IpAddr> {
    let is_of_family = |address: &&SocketAddr| client.is_none_or(|client| client.is_ipv4() == address.is_ipv4());
    found.iter().find(is_of_family).or_else(|| found.first()).map(SocketAddr::ip)
}

/// Returns the host of the replica at `url`, in lower case; an address without brackets. Of a URL in a URL
/// (`root://proxy//root://host//path`) the last one counts: the others only forward the data.
fn host_of(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?;
    let (_, rest) = path.rsplit_once("://")?;
    let authority = rest.split('/').next()?;
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let host = match address.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => address.split(':').next()?,
    };
    let is_of_host = |character: char| character.is_ascii_alphanumeric() || "-._:".contains(character);
    (!host.is_empty() && host.len() <= 253 && host.chars().all(is_of_host)).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_proxies_is_the_real_host() {
        for (url, host) in [
            ("root://Host.example.org:1094//a/b", Some("host.example.org")),
            ("root://proxy:1094//root://origin.example.org//a", Some("origin.example.org")),
            ("root://a//xroot://b:2//root://c//d", Some("c")),
            ("davs://user@host:443/a?to=https://other/b", Some("host")),
            ("https://[2001:db8::1]:443/a", Some("2001:db8::1")),
            ("srm://se.example.org:8446/srm/managerv2?SFN=/a", Some("se.example.org")),
            ("s3://bucket/key", Some("bucket")),
            ("file:///a/b", None),
            ("mailto:x", None),
            ("root://a b//c", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn of_several_addresses_the_first_of_the_clients_family_is_taken() {
        let found = ["[2001:db8::1]:0", "192.0.2.1:0", "192.0.2.2:0"].map(|address| address.parse().unwrap());
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(choose(&found, address("198.51.100.1")), address("192.0.2.1"));
        assert_eq!(choose(&found, address("2001:db8::9")), address("2001:db8::1"));
        assert_eq!(choose(&found, None), address("2001:db8::1"));
        assert_eq!(choose(&found[1..], address("2001:db8::9")), address("192.0.2.1"), "rather than none");
        assert_eq!(choose(&[], None), None);
    }
}
