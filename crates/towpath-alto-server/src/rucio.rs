//! Rucio's distance table, which its sorter `custom_table` fetches: `GET /rucio/custom_table.csv?stmt=STATEMENT`.
//!
//! [`table`] computes the distances; this module locates sites and storages. Hosts are resolved at the start and
//! every few minutes; a host that no longer resolves keeps its last address.

mod table;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::{PoisonError, RwLock},
    time::Duration,
};

use percent_encoding::percent_decode_str;
use towpath_alto::{network_map::NetworkMap, order::Statement};
use towpath_alto_client::{
    Configuration,
    net::hosts::{self, PATIENCE_FOR_ALL},
};

pub(super) use self::table::Source;
use self::table::{Addresses, TableFault};
use super::settings::rucio::{Name, RucioConfig, SiteLocation};

/// Path of the table.
pub(super) const PATH: &str = "rucio/custom_table.csv";

/// Media type (RFC 4180).
pub(super) const CSV: &str = "text/csv; charset=utf-8";

/// Interval at which hosts are resolved.
pub(super) const LOOK_UP_EVERY: Duration = Duration::from_secs(5 * 60);

/// Query parameter for the statement.
const STATEMENT: &str = "stmt";

/// The configured distance table.
#[derive(Debug)]
pub struct Rucio {
    storages: BTreeMap<Name, SiteLocation>,
    /// If empty, each PID is a site.
    sites: BTreeMap<Name, SiteLocation>,
    statement: Option<Statement>,
    configuration: Configuration,
    hosts: RwLock<HashMap<String, IpAddr>>,
}

/// Why a request has no table.
#[derive(Debug, thiserror::Error)]
pub(super) enum RucioError {
    /// The statement is invalid.
    #[error("stmt: {0}")]
    Statement(String),
    /// The request has no statement, and none is configured.
    #[error("a statement is required, such as stmt=BY%20routingcost")]
    NoStatement,
    /// The configured table cannot be generated.
    #[error("{0}")]
    Table(TableFault),
}

impl Rucio {
    /// Creates the table from the settings and the metrics that they name; `None` if they name no storage.
    ///
    /// # Errors
    /// Returns an error if the statement cannot be read.
    pub fn of(config: &RucioConfig, configuration: Configuration) -> Result<Option<Self>, String> {
        if config.rses.is_empty() {
            return Ok(None);
        }
        let statement = config.statement.as_deref().map(str::parse::<Statement>).transpose();
        let statement = statement.map_err(|error| format!("rucio.statement: {error}"))?;
        Ok(Some(Self {
            storages: config.rses.clone(),
            sites: config.sites.clone(),
            statement,
            configuration,
            hosts: RwLock::default(),
        }))
    }

    /// Generates the table for the statement in the query, else for the configured one.
    pub(super) fn table(&self, source: Source<'_>, query: Option<&str>) -> Result<String, RucioError> {
        let requested = query.and_then(requested_statement).map(|text| read(&text?)).transpose()?;
        let statement = requested.as_ref().or(self.statement.as_ref()).ok_or(RucioError::NoStatement)?;
        let map = source.network_state.default_region().map(|region| &region.map);
        let storages = self.places(&self.storages, map);
        let sites = match (self.sites.is_empty(), map) {
            (true, Some(map)) => of_pids(map),
            _ => self.places(&self.sites, map),
        };
        let table = table::table(source, &self.configuration, statement, &sites, &storages);
        table.map_err(|fault| match fault {
            TableFault::TooLarge { .. } => RucioError::Table(fault),
            TableFault::Statement(_) | TableFault::TooManyNames { .. } => RucioError::Statement(fault.to_string()),
        })
    }

    /// Returns the known addresses of sites or storages.
    fn places(&self, named: &BTreeMap<Name, SiteLocation>, map: Option<&NetworkMap>) -> Addresses {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        let address = |spot: &SiteLocation| match spot {
            SiteLocation::Address(address) => Some(*address),
            SiteLocation::Named(name) => {
                let pid = map.and_then(|map| of_pid(map, map.number(name)?));
                pid.or_else(|| hosts.get(&name.to_ascii_lowercase()).copied())
            }
        };
        named.iter().map(|(name, spot)| (name.as_str().to_owned(), address(spot))).collect()
    }

    /// Returns the names that may be host names.
    fn names(&self) -> BTreeSet<String> {
        let spots = self.storages.values().chain(self.sites.values());
        let names = spots.filter_map(|spot| match spot {
            SiteLocation::Named(name) => Some(name.to_ascii_lowercase()),
            SiteLocation::Address(_) => None,
        });
        names.collect()
    }

    /// Resolves all hosts, within one minute.
    pub(super) async fn look_up(&self) {
        // Prefer IPv4, as for PIDs: costs exist between addresses of one family.
        let client = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let found = hosts::addresses(self.names(), client, PATIENCE_FOR_ALL).await;
        let found = found.into_iter().filter_map(|(name, address)| Some((name, address?)));
        self.hosts.write().unwrap_or_else(PoisonError::into_inner).extend(found);
    }

    /// Returns the entries without an address, and why there is no table; for `check`.
    pub(super) fn problems(&self, source: Source<'_>) -> Vec<String> {
        let map = source.network_state.default_region().map(|region| &region.map);
        let lost = |named: &BTreeMap<Name, SiteLocation>| {
            let addresses = self.places(named, map);
            let lost = named.iter().filter(|(name, _)| addresses[name.as_str()].is_none());
            let messages = lost.map(|(name, spot)| {
                format!(
                    "rucio: {} has no location: {spot} is neither a PID of the default map nor a host with an address",
                    name.as_str()
                )
            });
            messages.collect::<Vec<_>>()
        };
        let refused = self.statement.as_ref().and_then(|_| self.table(source, None).err());
        let refused = refused.map(|refused| format!("rucio: cannot generate the table: {refused}"));
        [lost(&self.storages), lost(&self.sites), refused.into_iter().collect()].concat()
    }
}

fn read(text: &str) -> Result<Statement, RucioError> {
    text.parse().map_err(|error: towpath_alto::order::SyntaxError| RucioError::Statement(error.to_string()))
}

/// Returns the statement in a query, where a space may be encoded as a plus (form encoding).
fn requested_statement(query: &str) -> Option<Result<String, RucioError>> {
    let value = query.split('&').find_map(|field| field.strip_prefix(STATEMENT)?.strip_prefix('='))?;
    let spaced = value.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8();
    Some(text.map(Cow::into_owned).map_err(|_| RucioError::Statement("it is not UTF-8".into())))
}

/// Returns the address of a PID.
fn of_pid(map: &NetworkMap, number: u32) -> Option<IpAddr> {
    [true, false].into_iter().find_map(|is_ipv4| map.first_address(number, is_ipv4))
}

/// Returns the addresses of all PIDs.
fn of_pids(map: &NetworkMap) -> Addresses {
    (0..).zip(map.pids()).map(|(number, (name, _))| (name.as_str().to_owned(), of_pid(map, number))).collect()
}

#[cfg(test)]
mod tests {
    use towpath_alto::{
        agent_state::AgentState, delegation::NoDelegate, directory::Directory, network_state::NetworkState,
    };

    use super::*;

    const FACTS: &str = r#"
        [network-map.default]
        CERN = ["137.138.0.0/16"]
        LYON = ["134.158.84.0/24"]
        elsewhere = ["0.0.0.0/0"]
        [cost-map.default.routingcost]
        CERN = { CERN = 0, LYON = 2 }
        LYON = { CERN = 2, LYON = 0 }
    "#;

    fn table(settings: &str, query: Option<&str>) -> Result<String, RucioError> {
        let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()]).unwrap();
        let (directory, _) = Directory::of(&network_state);
        let rucio = Rucio::of(&toml::from_str(settings).unwrap(), Configuration::default()).unwrap().unwrap();
        rucio.table(Source { network_state: &network_state, directory: &directory, delegate: &NoDelegate }, query)
    }

    #[test]
    fn sites_are_the_pids_unless_others_are_named() {
        let storages = "rses = { HERE = '137.138.0.1', THERE = 'LYON', LOST = 'se.invalid' }\n";
        let expected = "CERN,HERE,0.000000\nCERN,THERE,0.500000\nCERN,LOST,1.000000\n\
                        LYON,THERE,0.000000\nLYON,HERE,0.500000\nLYON,LOST,1.000000\n\
                        elsewhere,HERE,0.000000\nelsewhere,THERE,0.000000\nelsewhere,LOST,1.000000\n";
        assert_eq!(table(storages, Some("stmt=BY+routingcost")).unwrap(), expected);
        let one = format!("{storages}sites = {{ T2 = '134.158.84.9' }}");
        let expected = "T2,HERE,0.000000\nT2,THERE,0.500000\nT2,LOST,1.000000\n";
        assert_eq!(table(&one, Some("x=1&stmt=BY%20routingcost%20DESC")).unwrap(), expected);
    }

    #[test]
    fn the_statement_is_that_of_the_request_then_that_of_the_settings() {
        let storages = "rses = { HERE = '137.138.0.1' }\n";
        assert!(matches!(table(storages, None), Err(RucioError::NoStatement)));
        assert!(table(&format!("{storages}statement = 'BY routingcost'"), Some("other=1")).is_ok());
        for (query, expected) in
            [("stmt=BY%20", "column"), ("stmt=BY%20nothing_such", "nothing_such"), ("stmt=%ff", "UTF-8")]
        {
            let refused = table(storages, Some(query)).unwrap_err();
            assert!(refused.to_string().contains(expected), "{query}: {refused}");
        }
    }

    #[test]
    fn names_that_lead_nowhere_are_told() {
        let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()]).unwrap();
        let config = toml::from_str("rses = { A = 'LYON', B = 'se.invalid' }\nsites = { C = 'ui.invalid' }").unwrap();
        let (directory, _) = Directory::of(&network_state);
        let source = Source { network_state: &network_state, directory: &directory, delegate: &NoDelegate };
        let lost = Rucio::of(&config, Configuration::default()).unwrap().unwrap().problems(source);
        let config = toml::from_str("rses = { A = 'LYON' }\nstatement = 'BY nothing_such'").unwrap();
        let problems = Rucio::of(&config, Configuration::default()).unwrap().unwrap().problems(source);
        assert!(problems.len() == 1 && problems[0].contains("cannot generate the table"), "{problems:?}");
        assert!(
            lost.len() == 2 && lost[0].contains("B has no location") && lost[1].contains("C has no location"),
            "{lost:?}"
        );
    }
}
