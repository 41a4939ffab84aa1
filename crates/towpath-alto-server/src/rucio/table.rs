//! Rucio's distance table: the preferred order of storages for the clients of each site, by an ordering [`Statement`].
//!
//! Rucio's sorter `custom_table` reads lines of site, RSE and distance, from 0 to 1, without a header. It rereads the
//! whole table for a missing pair, and then takes 1 (`lib/rucio/core/replica_sorter.py` of Rucio 38 to 41). The table
//! therefore lists every pair. The statement is evaluated once per site, against the same resources that are served
//! over the network, so that its names have the same meaning as in `towpath order`.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr, sync::Arc};

use towpath_alto::{
    delegation::Delegate,
    directory::Directory,
    fields,
    network_state::NetworkState,
    order::{FilterMode, RankedCandidate, Statement},
    resource::{AltoResponse, Caller, MAX_PAIRS},
};
use towpath_alto_client::{Candidate, ClientError, Configuration, QueryPlan, Request, TransferEndpoints};

/// Base URI of the resources, for requests that never leave the process (RFC 6761 §6.4).
const BASE: &str = "http://towpath.invalid/";

/// Maximum number of values looked up for one table: four names for the maximum number of pairs.
const MAX_VALUES: usize = 4 * MAX_PAIRS;

/// Why no table can be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableFault {
    /// Values for the statement are unavailable; the inner error says why.
    #[error(transparent)]
    Statement(#[from] ClientError),
    /// There are too many pairs of sites and storages; the configuration must be reduced.
    #[error("{sites} sites and {storages} storages make more than {MAX_PAIRS} pairs: name fewer")]
    TooLarge {
        /// Number of sites.
        sites: usize,
        /// Number of storages.
        storages: usize,
    },
    /// The statement uses too many names for this number of pairs; the statement must be simplified.
    #[error("{names} names for {pairs} pairs of sites and storages make more than {MAX_VALUES} values: name fewer")]
    TooManyNames {
        /// Number of names in the statement.
        names: usize,
        /// Number of pairs.
        pairs: usize,
    },
}

/// Source of the values in the table.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// Network state.
    pub network_state: &'a NetworkState,
    /// Directory of the network state.
    pub directory: &'a Directory,
    /// Delegate for facts missing from the network state.
    pub delegate: &'a dyn Delegate,
}

/// Sites or storages with an address of each, or `None` if it has no address.
pub(crate) type Addresses = BTreeMap<String, Option<IpAddr>>;

/// Generates the table, with one line per pair. The distance of a storage is the fraction of storages ranked before it;
/// equally good ones have equal distances. Sites and storages without an address have distance 1, behind all others.
/// Memory: about 50 bytes for each of at most [`MAX_PAIRS`] pairs.
///
/// # Errors
/// Returns [`TableFault`].
pub(crate) fn table(
    source: Source<'_>,
    configuration: &Configuration,
    statement: &Statement,
    sites: &Addresses,
    storages: &Addresses,
) -> Result<String, TableFault> {
    let pairs = sites.len().saturating_mul(storages.len());
    if pairs > MAX_PAIRS {
        return Err(TableFault::TooLarge { sites: sites.len(), storages: storages.len() });
    }
    let names = statement.names().count();
    if names.saturating_mul(pairs) > MAX_VALUES {
        return Err(TableFault::TooManyNames { names, pairs });
    }
    let listing = source.directory.answer(source.network_state, |id| format!("{BASE}{id}"));
    let offered = Arc::new(towpath_alto_client::Directory::parse(BASE, &listing.body)?);
    let statement = &offered.complete(statement);
    let located: Vec<(&String, IpAddr)> =
        storages.iter().filter_map(|(name, address)| Some((name, (*address)?))).collect();
    let mut table = String::new();
    let mut before: Option<QueryPlan> = None;
    for (site, client) in sites {
        let Some(client) = client else {
            far(&mut table, site, storages.keys());
            continue;
        };
        let ends = TransferEndpoints {
            client: Some(*client),
            replicas: located.iter().map(|(_, address)| *address).collect(),
        };
        let mut query_plan = QueryPlan::new(configuration, Arc::clone(&offered), statement, ends)?;
        if let Some(before) = &before {
            query_plan = query_plan.with_maps_of(before);
        }
        while let Some(request) = query_plan.next_request() {
            let answer = answer(source, &request, *client)?;
            query_plan.take(answer.media_type, &answer.body)?;
        }
        let candidates: Vec<Candidate<'_>> =
            located.iter().map(|(_, address)| query_plan.replica_values().at(Some(*address))).collect();
        let direction = |name: &str| query_plan.replica_values().direction(name, configuration);
        let ranks = statement.order(&candidates, &direction, FilterMode::Demote);
        for (ranked, distance) in ranks.iter().zip(distances(&ranks)) {
            let _ = writeln!(table, "{site},{},{distance:.6}", located[ranked.index].0);
        }
        far(&mut table, site, storages.iter().filter(|(_, address)| address.is_none()).map(|(name, _)| name));
        before = Some(query_plan);
    }
    Ok(table)
}

/// Appends lines with the maximum distance from `site`.
fn far<'a>(table: &mut String, site: &str, storages: impl Iterator<Item = &'a String>) {
    for storage in storages {
        let _ = writeln!(table, "{site},{storage},1.000000");
    }
}

/// Answers a request locally.
fn answer(source: Source<'_>, request: &Request, address: IpAddr) -> Result<AltoResponse, ClientError> {
    let id = request.uri.strip_prefix(BASE).unwrap_or_default();
    let resource = source.directory.find(id).expect("the directory contains the resources it lists");
    let document = request.document.as_ref().map_or(Ok(serde_json::Value::Null), |(_, body)| fields::parse(body));
    let caller = Caller { address, delegate: source.delegate };
    let answer = document.and_then(|document| resource.answer_with(source.network_state, &document, caller));
    answer.map_err(|problem| ClientError::refused(id, problem.document().to_string().as_bytes()))
}

/// Returns for each candidate the fraction of all that rank strictly before it.
fn distances(ranks: &[RankedCandidate]) -> Vec<f64> {
    let mut before = 0;
    let place = |(index, ranked): (usize, &RankedCandidate)| {
        // A false and an unknown condition are equivalent.
        let is_as_good = |other: &RankedCandidate| {
            (&other.keys, other.holds == Some(true)) == (&ranked.keys, ranked.holds == Some(true))
        };
        if index > 0 && !is_as_good(&ranks[index - 1]) {
            before = index;
        }
        before as f64 / ranks.len() as f64
    };
    ranks.iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_alto::{agent_state::AgentState, delegation::NoDelegate};

    const FACTS: &str = r#"
        [network-map.default]
        CERN = ["137.138.0.0/16"]
        IN2P3 = ["134.158.84.0/24"]
        elsewhere = ["0.0.0.0/0"]
        [cost-map.default.routingcost]
        CERN = { CERN = 0, IN2P3 = 2, elsewhere = 9 }
        IN2P3 = { CERN = 2, IN2P3 = 0, elsewhere = 9 }
        [properties."ipv4:134.158.84.0/24"]
        "priv:continent" = "EU"
    "#;

    fn addresses(named: &[(&str, &str)]) -> Addresses {
        named.iter().map(|(name, address)| ((*name).to_owned(), address.parse().ok())).collect()
    }

    fn table_of(statement: &str, sites: &Addresses) -> Result<String, TableFault> {
        let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()]).unwrap();
        let (directory, _) = Directory::of(&network_state);
        let storages = addresses(&[
            ("CERN_DISK", "137.138.0.1"),
            ("CERN_TAPE", "137.138.0.2"),
            ("FAR", "192.0.2.1"),
            ("LYON", "134.158.84.1"),
        ]);
        let statement = statement.parse().unwrap();
        let source = Source { network_state: &network_state, directory: &directory, delegate: &NoDelegate };
        table(source, &Configuration::default(), &statement, sites, &storages)
    }

    #[test]
    fn each_site_has_its_own_order() {
        let sites = addresses(&[("CERN", "137.138.7.7"), ("IN2P3", "134.158.84.9")]);
        let expected = "\
            CERN,CERN_DISK,0.000000\nCERN,CERN_TAPE,0.000000\nCERN,LYON,0.500000\nCERN,FAR,0.750000\n\
            IN2P3,LYON,0.000000\nIN2P3,CERN_DISK,0.250000\nIN2P3,CERN_TAPE,0.250000\nIN2P3,FAR,0.750000\n";
        assert_eq!(table_of("BY routingcost", &sites).unwrap(), expected);
    }

    #[test]
    fn who_is_nowhere_is_as_far_away_as_can_be() {
        let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()]).unwrap();
        let (directory, _) = Directory::of(&network_state);
        let storages = addresses(&[("LOST", "nowhere"), ("LYON", "134.158.84.1"), ("NEAR", "137.138.0.1")]);
        let sites = addresses(&[("CERN", "137.138.7.7"), ("GONE", "nowhere")]);
        let source = Source { network_state: &network_state, directory: &directory, delegate: &NoDelegate };
        let statement = "BY routingcost".parse().unwrap();
        let rows = table(source, &Configuration::default(), &statement, &sites, &storages).unwrap();
        let expected = "\
            CERN,NEAR,0.000000\nCERN,LYON,0.500000\nCERN,LOST,1.000000\n\
            GONE,LOST,1.000000\nGONE,LYON,1.000000\nGONE,NEAR,1.000000\n";
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_does_not_meet_the_condition_is_farther_than_all_that_does() {
        let sites = addresses(&[("CERN", "137.138.7.7")]);
        let expected = "\
            CERN,LYON,0.000000\nCERN,CERN_DISK,0.250000\nCERN,CERN_TAPE,0.250000\nCERN,FAR,0.750000\n";
        assert_eq!(table_of("BY routingcost WHERE continent = 'EU'", &sites).unwrap(), expected);
    }

    #[test]
    fn those_that_are_equally_good_are_equally_far() {
        let facts = r#"
            [network-map.default]
            all = ["0.0.0.0/0"]
            [cost-map.default.delay-ow]
            all = { all = 7 }
            [properties."ipv4:192.0.2.2"]
            "priv:continent" = "AS"
            [properties."ipv4:192.0.2.4"]
            "priv:continent" = "AS"
        "#;
        let network_state = NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap();
        let (directory, _) = Directory::of(&network_state);
        let storages = addresses(&[("A", "192.0.2.1"), ("B", "192.0.2.2"), ("C", "192.0.2.3"), ("D", "192.0.2.4")]);
        let sites = addresses(&[("S", "192.0.2.9")]);
        let statement = "BY delay_ow WHERE continent = 'EU'".parse().unwrap();
        let source = Source { network_state: &network_state, directory: &directory, delegate: &NoDelegate };
        let rows = table(source, &Configuration::default(), &statement, &sites, &storages).unwrap();
        assert_eq!(rows, "S,A,0.000000\nS,B,0.000000\nS,C,0.000000\nS,D,0.000000\n");
    }

    #[test]
    fn what_there_is_no_table_of_is_told() {
        let fault = table_of("BY delay_ow", &addresses(&[("CERN", "137.138.7.7")])).unwrap_err();
        assert!(matches!(&fault, TableFault::Statement(error) if error.is_caller_error()), "{fault}");
        let many = (0..=MAX_PAIRS / 4).map(|number| (format!("S{number}"), Some(IpAddr::from([10, 0, 0, 1]))));
        let mut many: Addresses = many.collect();
        let fault = table_of("BY routingcost", &many).unwrap_err();
        assert_eq!(fault, TableFault::TooLarge { sites: MAX_PAIRS / 4 + 1, storages: 4 });
        many.pop_first();
        let names: Vec<String> = (0..5).map(|number| format!("name{number}")).collect();
        let fault = table_of(&format!("BY {}", names.join(",")), &many).unwrap_err();
        assert_eq!(fault, TableFault::TooManyNames { names: 5, pairs: MAX_PAIRS });
    }
}
