//! `towpath order`: sorts replicas by preference according to an ALTO server.
//!
//! [`run`] reads the list, [`Hosts`] finds the addresses of the replicas, an [`AltoClient`] queries the server, and
//! the list is written with sorted replicas; [`explain`] shows the reasons. Without a configured server, one is
//! discovered in the DNS. Without a response nothing is written, because an unsorted list looks like a sorted one.
//! `--fallback` writes it anyway; it conflicts with `--strict`, because the replicas would not be checked.

pub(crate) mod args;
mod explain;

use std::{ffi::OsStr, io::Write as _, path::Path};

use tokio::io::AsyncReadExt as _;
use towpath_alto::{
    order::{RankedCandidate, Statement},
    replicas::{MAX_BYTES, Replicas},
};
use towpath_alto_client::{
    ClientError, Configuration, MAX_CONFIGURATION_BYTES, QueryPlan, TransferEndpoints,
    net::{
        AltoClient, AltoError, DiscoveryOptions, PATIENCE, ReplicaRanker,
        hosts::{Hosts, PATIENCE_FOR_ALL},
    },
};
use towpath_proto::url::{Family, Url};
use towpath_store::{Error, sys::disk};

use self::args::Order;
use crate::{
    config,
    failure::{Failure, complain},
    location::{StoreResolver, shown},
};

/// Maximum number of hosts without an address that a message names.
const MAX_NAMED: usize = 5;

/// Runs `towpath order`.
pub(crate) async fn run(arguments: &Order, resolver: &StoreResolver) -> Result<(), Failure> {
    let statement = arguments.by.parse::<Statement>().map_err(|error| Failure::Usage(format!("--by: {error}")))?;
    let configuration = arguments.config.as_deref().map(configuration).transpose()?.unwrap_or_default();
    let directory = directory(arguments, &configuration)?;
    let list = list(arguments.list.as_deref()).await?;
    let replicas = Replicas::read(list).map_err(|error| Failure::InvalidFacts(error.to_string()))?;
    let hosts = Hosts::find(&replicas, arguments.client, PATIENCE_FOR_ALL).await.map_err(Failure::InvalidFacts)?;
    report_unknown_hosts(&hosts);
    let query_plan = query_plan(directory, &configuration, &statement, &hosts, arguments, resolver).await;
    let output = match query_plan {
        Ok((query_plan, statement)) => {
            let (statement, configuration, replica_values) = (&statement, &configuration, query_plan.replica_values());
            let ranker =
                ReplicaRanker { statement, configuration, replica_values, hosts: &hosts, strict: arguments.strict };
            let ranks = ranker.ranks(&replicas);
            report_unranked(&ranks, arguments.strict);
            if arguments.explain {
                for (file, ranks) in replicas.files().iter().zip(&ranks) {
                    explain::print(file, &ranker.places(file, ranks), &statement.names().collect::<Vec<_>>());
                }
            }
            ranker.write(&replicas, &ranks)
        }
        Err(trouble) if arguments.fallback && trouble.is_servers() => {
            Failure::from(trouble).print();
            complain("writing the list in its old order");
            replicas.write(&[])
        }
        Err(trouble) => return Err(trouble.into()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&output)?;
    Ok(stdout.flush()?)
}

/// Queries the server with that directory, else a discovered one, for all values of these hosts. The returned statement
/// has a backup key, if the server has one.
async fn query_plan(
    directory: Option<&str>,
    configuration: &Configuration,
    statement: &Statement,
    hosts: &Hosts,
    arguments: &Order,
    resolver: &StoreResolver,
) -> Result<(QueryPlan, Statement), AltoError> {
    if hosts.are_all_unknown() {
        return Err(AltoError::no_addresses());
    }
    let client = match directory {
        Some(directory) => AltoClient::open(resolver.client(), directory, PATIENCE).await?,
        None => discover(arguments, resolver).await?,
    };
    let ends = TransferEndpoints { client: arguments.client, replicas: hosts.addresses() };
    let statement = client.directory().complete(statement);
    let query_plan = client.query_plan(configuration, &statement, ends).await?;
    Ok((query_plan, statement))
}

/// Discovers a server in the DNS, and prints its URL, because the user did not name it.
async fn discover(arguments: &Order, resolver: &StoreResolver) -> Result<AltoClient, AltoError> {
    let Order { domain, client: address, dns, .. } = arguments;
    let search = DiscoveryOptions { domain: domain.clone(), address: *address, dns: *dns };
    let found = AltoClient::discover(resolver.client(), &search, PATIENCE).await;
    let (client, name) = found.map_err(|trouble| match trouble {
        AltoError::Unfound(problem) => AltoError::Unfound(format!(
            "name the directory of an ALTO server: --ird URL, or default-ird in the file of --config; {problem}"
        )),
        other => other,
    })?;
    complain(format_args!(
        "using the ALTO server {}, discovered in the DNS at {name}",
        shown(OsStr::new(client.ird()))
    ));
    Ok(client)
}

/// Reads the configuration in a file.
pub(crate) fn configuration(path: &Path) -> Result<Configuration, Failure> {
    let bytes = disk::read(path, MAX_CONFIGURATION_BYTES).map_err(|error| unreadable(path, &error))?;
    let wrong = |problem: &str| config::wrong(&path.display().to_string(), problem.trim_end());
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    Ok(Configuration::parse(&text).map_err(|error| wrong(&error.to_string()))?)
}

/// Returns the URL of the directory; `None` if it has to be discovered.
fn directory<'a>(arguments: &'a Order, configuration: &'a Configuration) -> Result<Option<&'a str>, Failure> {
    let named = arguments.ird.as_deref().or(configuration.default_ird.as_deref());
    let Some(address) = named.filter(|_| arguments.domain.is_none()) else { return Ok(None) };
    match address.parse::<Url>() {
        Ok(url) if url.scheme().family() == Family::Http => Ok(Some(address)),
        Ok(url) => {
            let scheme = url.scheme().name();
            Err(Failure::Usage(format!("URL of the ALTO server: {scheme}:// is neither http nor https")))
        }
        Err(error) => Err(Failure::Usage(format!("URL of the ALTO server: {error}"))),
    }
}

/// Reads the list of replicas; without a path, or for `-`, from the standard input.
async fn list(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    if let Some(path) = path.filter(|path| *path != Path::new("-")) {
        return disk::read(path, MAX_BYTES as u64).map_err(|error| unreadable(path, &error));
    }
    let mut bytes = Vec::new();
    // One more byte distinguishes a list that is too long from one of maximum length.
    let reading = tokio::io::stdin().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await;
    reading.map_err(Failure::system("read the standard input"))?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let doing = format!("reading {}", path.display());
    match error.raw_os_error() {
        Some(errno) => Error::from_errno(errno, &doing).into(),
        None => Failure::Usage(format!("{doing}: {error}")),
    }
}

/// Prints a message if no value determines the order, or no replica remains.
fn report_unranked(ranks: &[Vec<RankedCandidate>], strict: bool) {
    let count = ranks.iter().flatten().count();
    let met = ranks.iter().flatten().filter(|ranked| ranked.holds == Some(true)).count();
    let is_unknown = ranks.iter().flatten().all(|ranked| ranked.keys.iter().all(Option::is_none));
    if count == 0 {
        complain("the list has no replicas");
    } else if strict && met == 0 {
        complain("no replica meets the condition: all are left out");
    } else if is_unknown && (met == 0 || met == count) {
        let ways = match count {
            1 => "the path to 1 replica".to_owned(),
            _ => format!("the paths to any of {count} replicas"),
        };
        complain(format_args!("no values are known for {ways}; keeping the old order"));
    }
}

/// Prints the hosts without an address, whose paths have no known costs.
fn report_unknown_hosts(hosts: &Hosts) {
    let unknown = hosts.unknown();
    if !unknown.is_empty() {
        let named = unknown.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = if unknown.len() > MAX_NAMED { ", .." } else { "" };
        complain(format_args!(
            "no values are known for hosts without an address, {} in total: {named}{more}",
            unknown.len()
        ));
    }
}

impl From<AltoError> for Failure {
    fn from(trouble: AltoError) -> Self {
        match trouble {
            AltoError::Unanswered(error) => Failure::Store(error),
            AltoError::Useless(error @ ClientError::NeedsClient { .. }) => {
                Failure::Usage(format!("{error}: --client ADDRESS"))
            }
            AltoError::Useless(error) if error.is_caller_error() => Failure::Usage(error.to_string()),
            AltoError::Useless(error) => Failure::InvalidFacts(error.to_string()),
            AltoError::Unusable(problem) => Failure::InvalidFacts(problem),
            AltoError::Unfound(problem) => Failure::Usage(problem),
        }
    }
}
