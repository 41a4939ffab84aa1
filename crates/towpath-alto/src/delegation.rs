//! Delegation: queries agents on demand for values that the network state lacks.
//!
//! An agent announces the metrics and properties that it can provide on demand ([`OnDemandItems`], part of its
//! [facts](crate::agent_state)), and the directory offers them. A response about addresses looks up missing values
//! ([`Delegate`]), each an [`Item`]. The server has fetched them before, or fetches them and builds the response
//! again. Items are combined into few [`DelegateRequest`]s.
//!
//! Facts from agents take precedence; estimates from a database and values derived from distances are used last. Maps
//! of PIDs and of prefixes are not delegated, since the addresses concerned are unknown; neither are followed
//! responses, which change with the network state.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::Serialize;
use serde_json::Value;

use crate::names::{CostMetric, PropertyName};

/// Maximum number of sources, destinations, or addresses with properties per request: a response has up to 65,536
/// costs, which take 3 MB, and ten times as much while it is parsed.
const MAX_ADDRESSES: usize = 256;

/// Values that can be requested on demand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnDemandItems {
    /// Metrics of costs between addresses.
    pub metrics: BTreeSet<CostMetric>,
    /// Properties of addresses.
    pub properties: BTreeSet<PropertyName>,
}

impl OnDemandItems {
    /// Returns whether nothing can be requested.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty() && self.properties.is_empty()
    }

    /// Returns whether the item can be requested.
    pub fn has(&self, item: &Item) -> bool {
        match item {
            Item::Cost(metric, ..) => self.metrics.contains(metric),
            Item::Property(name, _) => self.properties.contains(name),
        }
    }

    /// Adds the values offered by another agent.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.metrics.extend(other.metrics.iter().cloned());
        self.properties.extend(other.properties.iter().cloned());
    }
}

/// One value to request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The cost from the first address to the second: a non-negative number in the unit of the metric.
    Cost(CostMetric, IpAddr, IpAddr),
    /// A property of an address; `null` means that it has none.
    Property(PropertyName, IpAddr),
}

/// A source of values that the network state lacks.
pub trait Delegate {
    /// Returns the value, if known. An unknown value may be requested.
    fn look_up(&self, item: Item) -> Option<Value>;
}

/// A delegate that provides no values.
#[derive(Debug, Clone, Copy)]
pub struct NoDelegate;

impl Delegate for NoDelegate {
    fn look_up(&self, _: Item) -> Option<Value> {
        None
    }
}

/// Items requested together. Its JSON form is sent to programs:
///
/// ```json
/// {"costs": {"metric": "delay-ow", "srcs": ["192.0.2.1"], "dsts": ["198.51.100.7", "198.51.100.8"]}}
/// {"properties": {"names": ["priv:country"], "addresses": ["192.0.2.1"]}}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DelegateRequest {
    /// The costs from each source to each destination.
    Costs {
        /// The metric.
        metric: CostMetric,
        /// The sources.
        #[serde(rename = "srcs")]
        sources: Vec<IpAddr>,
        /// The destinations.
        #[serde(rename = "dsts")]
        destinations: Vec<IpAddr>,
    },
    /// These properties of each address.
    Properties {
        /// The properties.
        names: Vec<PropertyName>,
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
}

impl DelegateRequest {
    /// Returns the number of items.
    pub fn items(&self) -> usize {
        match self {
            Self::Costs { sources, destinations, .. } => sources.len() * destinations.len(),
            Self::Properties { names, addresses } => names.len() * addresses.len(),
        }
    }

    /// Returns the items.
    pub fn each(&self) -> impl Iterator<Item = Item> {
        let (costs, properties) = match self {
            Self::Costs { metric, sources, destinations } => {
                let to = move |from: &IpAddr| {
                    let from = *from;
                    destinations.iter().map(move |to| Item::Cost(metric.clone(), from, *to))
                };
                (Some(sources.iter().flat_map(to)), None)
            }
            Self::Properties { names, addresses } => {
                let of =
                    |name| addresses.iter().map(move |address| Item::Property(PropertyName::clone(name), *address));
                (None, Some(names.iter().flat_map(of)))
            }
        };
        costs.into_iter().flatten().chain(properties.into_iter().flatten())
    }
}

/// Combines items into requests for exactly these items, with at most 256 sources, destinations or addresses each.
/// For each metric, either sources with equal destinations are combined, or destinations with equal sources,
/// whichever yields fewer requests; addresses with equal properties are combined likewise.
pub fn requests(items: impl IntoIterator<Item = Item>) -> Vec<DelegateRequest> {
    let mut pairs: BTreeMap<CostMetric, Vec<(IpAddr, IpAddr)>> = BTreeMap::new();
    let mut names: BTreeMap<IpAddr, BTreeSet<PropertyName>> = BTreeMap::new();
    for item in items {
        match item {
            Item::Cost(metric, from, to) => pairs.entry(metric).or_default().push((from, to)),
            Item::Property(name, address) => drop(names.entry(address).or_default().insert(name)),
        }
    }
    let costs = pairs.into_iter().flat_map(|(metric, pairs)| of_costs(&metric, &pairs));
    let properties = group_by_value(names).into_iter().flat_map(|(names, addresses)| {
        let names: Vec<PropertyName> = names.into_iter().collect();
        chunks(addresses, MAX_ADDRESSES)
            .map(move |addresses| DelegateRequest::Properties { names: names.clone(), addresses })
            .collect::<Vec<_>>()
    });
    costs.chain(properties).collect()
}

/// Returns the requests for the costs of these pairs.
fn of_costs(metric: &CostMetric, pairs: &[(IpAddr, IpAddr)]) -> Vec<DelegateRequest> {
    let rows = meshes(pairs.iter().copied());
    let columns = meshes(pairs.iter().map(|(from, to)| (*to, *from)));
    let request = |(sources, destinations)| DelegateRequest::Costs { metric: metric.clone(), sources, destinations };
    match columns.len() < rows.len() {
        true => columns.into_iter().map(|(destinations, sources)| request((sources, destinations))).collect(),
        false => rows.into_iter().map(request).collect(),
    }
}

/// Returns full meshes that make up these pairs, combining first elements with equal sets of second elements.
fn meshes(pairs: impl Iterator<Item = (IpAddr, IpAddr)>) -> Vec<(Vec<IpAddr>, Vec<IpAddr>)> {
    let mut others: BTreeMap<IpAddr, BTreeSet<IpAddr>> = BTreeMap::new();
    for (one, other) in pairs {
        others.entry(one).or_default().insert(other);
    }
    let of_group = |(others, ones): (BTreeSet<IpAddr>, Vec<IpAddr>)| {
        let others: Vec<Vec<IpAddr>> = chunks(others, MAX_ADDRESSES).collect();
        let rows = chunks(ones, MAX_ADDRESSES);
        rows.flat_map(move |ones| others.clone().into_iter().map(move |others| (ones.clone(), others)))
    };
    group_by_value(others).into_iter().flat_map(of_group).collect()
}

/// Groups addresses by equal values.
fn group_by_value<T: Ord>(values: impl IntoIterator<Item = (IpAddr, T)>) -> BTreeMap<T, Vec<IpAddr>> {
    let mut groups: BTreeMap<T, Vec<IpAddr>> = BTreeMap::new();
    for (address, value) in values {
        groups.entry(value).or_default().push(address);
    }
    groups
}

fn chunks(addresses: impl IntoIterator<Item = IpAddr>, length: usize) -> impl Iterator<Item = Vec<IpAddr>> {
    let mut addresses = addresses.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<IpAddr> = addresses.by_ref().take(length).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn cost(metric: &str, from: u8, to: u8) -> Item {
        Item::Cost(CostMetric::new(metric).unwrap(), address(from), address(to))
    }

    fn property(name: &str, of: u8) -> Item {
        Item::Property(PropertyName::new(name).unwrap(), address(of))
    }

    #[test]
    fn a_mesh_is_one_question() {
        let items = [cost("a", 1, 8), cost("a", 1, 9), cost("a", 2, 8), cost("a", 2, 9), cost("b", 1, 8)];
        let expected = json!([
            { "costs": { "metric": "a", "srcs": ["192.0.2.1", "192.0.2.2"], "dsts": ["192.0.2.8", "192.0.2.9"] } },
            { "costs": { "metric": "b", "srcs": ["192.0.2.1"], "dsts": ["192.0.2.8"] } },
        ]);
        assert_eq!(json!(requests(items)), expected);
    }

    #[test]
    fn a_destination_with_many_sources_is_as_few_questions_as_a_source_with_many_destinations() {
        let overlapping = [(1, 7), (2, 7), (2, 8), (3, 8), (3, 9), (4, 9), (5, 7), (5, 9)];
        let rows = requests(overlapping.map(|(other, one)| cost("a", one, other)));
        let columns = requests(overlapping.map(|(other, one)| cost("a", other, one)));
        assert_eq!((rows.len(), columns.len()), (3, 3));
        let expected = json!({ "metric": "a", "srcs": ["192.0.2.1", "192.0.2.2", "192.0.2.5"], "dsts": ["192.0.2.7"] });
        assert_eq!(json!(columns)[0]["costs"], expected);
    }

    #[test]
    fn addresses_with_equal_properties_are_one_question() {
        let items = [property("x", 1), property("y", 1), property("x", 2), property("y", 2), property("x", 3)];
        let expected = json!([
            { "properties": { "names": ["x"], "addresses": ["192.0.2.3"] } },
            { "properties": { "names": ["x", "y"], "addresses": ["192.0.2.1", "192.0.2.2"] } },
        ]);
        assert_eq!(json!(requests(items)), expected);
    }

    #[test]
    fn no_question_has_more_addresses_than_it_may() {
        let wide = |number: u32| IpAddr::from(number.to_be_bytes());
        let metric = CostMetric::new("a").unwrap();
        let items = (0..600).map(|number| Item::Cost(metric.clone(), wide(0), wide(number)));
        let lengths = requests(items).into_iter().map(|request| match request {
            DelegateRequest::Costs { sources, destinations, .. } => (sources.len(), destinations.len()),
            DelegateRequest::Properties { .. } => unreachable!(),
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [(1, 256), (1, 256), (1, 88)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_item_is_asked_for_once_and_no_other(
            costs in prop::collection::btree_set(("[ab]", 0_u8..5, 0_u8..5), 0..40),
            properties in prop::collection::btree_set(("[xyz]", 0_u8..5), 0..12),
        ) {
            let costs = costs.iter().map(|(metric, from, to)| cost(metric, *from, *to));
            let needed: Vec<Item> = costs.chain(properties.iter().map(|(name, of)| property(name, *of))).collect();
            let requests = requests(needed.clone());
            prop_assert_eq!(requests.iter().map(DelegateRequest::items).sum::<usize>(), needed.len());
            let mut requested: Vec<Item> = requests.iter().flat_map(DelegateRequest::each).collect();
            requested.sort();
            prop_assert_eq!(requested, BTreeSet::from_iter(needed).into_iter().collect::<Vec<_>>());
        }
    }
}
