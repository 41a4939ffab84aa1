//! Queries to a server on behalf of another one ([`towpath_alto::delegation`]).

use std::{cmp::Reverse, collections::HashSet, net::IpAddr};

use serde_json::{Map, Value as Json, json};

use super::{
    directory::{Directory, Entry, Service},
    document::Document,
    query_plan::endpoints,
    responses::{address_of, property},
};
use towpath_alto::{
    agent_state::Cost,
    cost::{CostMode, CostType},
    delegation::{DelegateRequest, Item, OnDemandItems},
    names::{CostMetric, PropertyName},
};

/// Maximum number of metrics, and of properties, taken from one server.
const MAX_NAMES: usize = 256;

impl Directory {
    /// Returns what the server offers for addresses: at most 256 numerical metrics and at most 256 properties.
    pub fn on_demand(&self) -> OnDemandItems {
        let kinds = self.of(&[Service::EndpointCosts]).flat_map(|entry| &entry.cost_types);
        let numerical = kinds.filter(|kind| kind.cost_mode == CostMode::Numerical);
        // Resource-specific properties, such as PIDs, belong to that server's own map.
        let properties = self.of(OF_ADDRESSES).flat_map(|entry| &entry.properties);
        OnDemandItems {
            metrics: numerical.map(|kind| kind.cost_metric.clone()).take(MAX_NAMES).collect(),
            properties: properties.filter_map(|name| PropertyName::new(name).ok()).take(MAX_NAMES).collect(),
        }
    }

    /// Returns the HTTP requests for `request`: at most one per resource, and none for what the server does not offer.
    /// Costs need one request; so do properties if one resource has all of them.
    pub fn resource_requests(&self, request: &DelegateRequest) -> Vec<ResourceRequest<'_>> {
        match request {
            DelegateRequest::Costs { metric, sources, destinations } => {
                let kind = numerical_type(metric);
                let entry = self.of(&[Service::EndpointCosts]).find(|entry| entry.cost_types.contains(&kind));
                let ends = json!({ "srcs": endpoints(sources), "dsts": endpoints(destinations) });
                let input = json!({ "cost-type": kind, "endpoints": ends });
                entry
                    .map(|entry| ResourceRequest { resource: &entry.id, part: request.clone(), input })
                    .into_iter()
                    .collect()
            }
            DelegateRequest::Properties { names, addresses } => self.property_requests(names, addresses),
        }
    }

    fn property_requests(&self, names: &[PropertyName], addresses: &[IpAddr]) -> Vec<ResourceRequest<'_>> {
        let has = |entry: &Entry, name: &PropertyName| entry.properties.contains(name.as_str());
        let (mut left, mut resource_requests) = (names.to_vec(), Vec::new());
        while !left.is_empty() {
            let count = |entry: &&Entry| left.iter().filter(|name| has(entry, name)).count();
            let first_with_most = self.of(OF_ADDRESSES).min_by_key(|entry| Reverse(count(entry)));
            let Some(entry) = first_with_most.filter(|entry| count(entry) > 0) else { break };
            let (names, others) = left.into_iter().partition(|name| has(entry, name));
            left = others;
            let of = if entry.service == Service::PropertyMap { "entities" } else { "endpoints" };
            let input = json!({ of: endpoints(addresses), "properties": names });
            let part = DelegateRequest::Properties { names, addresses: addresses.to_vec() };
            resource_requests.push(ResourceRequest { resource: &entry.id, part, input });
        }
        resource_requests
    }
}

/// A request to one resource for its part of a delegate request.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceRequest<'a> {
    /// The id of the resource.
    pub resource: &'a str,
    /// The part of the delegate request covered by this one.
    pub part: DelegateRequest,
    /// The request body.
    pub input: Json,
}

/// Services that return properties of addresses.
const OF_ADDRESSES: &[Service] = &[Service::PropertyMap, Service::EndpointProperties];

fn numerical_type(metric: &CostMetric) -> CostType {
    CostType { cost_mode: CostMode::Numerical, cost_metric: metric.clone() }
}

impl Document {
    /// Returns the items in this response that answer the request. Malformed items and items that were not requested
    /// are ignored.
    pub fn values_for(&self, request: &DelegateRequest) -> Vec<(Item, Json)> {
        match request {
            DelegateRequest::Costs { metric, sources, destinations } => {
                let [sources, destinations] =
                    [sources, destinations].map(|ends| HashSet::from_iter(ends.iter().copied()));
                let rows = self.costs().into_iter().flatten();
                let row = |(from, row): (&String, &Json)| {
                    let from = address_of(from).filter(|from| sources.contains(from))?;
                    costs(metric, from, &destinations, row.as_object()?)
                };
                rows.filter_map(row).flatten().collect()
            }
            DelegateRequest::Properties { names, addresses } => {
                let Some(entities) = self.properties() else { return Vec::new() };
                let of_name = |name: &PropertyName| {
                    let values = property(entities, name.as_str());
                    let value = |address: &IpAddr| Some((*address, (*values.get_lpm(&(*address).into())?.1).clone()));
                    let located = addresses.iter().filter_map(value);
                    located.map(|(address, value)| (Item::Property(name.clone(), address), value)).collect::<Vec<_>>()
                };
                names.iter().flat_map(of_name).collect()
            }
        }
    }
}

/// Returns the costs from one address to the given destinations.
fn costs(
    metric: &CostMetric,
    from: IpAddr,
    destinations: &HashSet<IpAddr>,
    row: &Map<String, Json>,
) -> Option<Vec<(Item, Json)>> {
    let cost = |(to, cost): (&String, &Json)| {
        let to = address_of(to).filter(|to| destinations.contains(to))?;
        let cost = Cost::new(cost.as_f64()?).filter(|cost| cost.suits(metric))?;
        Some((Item::Cost(metric.clone(), from, to), cost.value().into()))
    };
    Some(row.iter().filter_map(cost).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_alto::{agent_state::AgentState, delegation::requests, directory, network_state::NetworkState};

    const FACTS: &str = r#"
        [network-map.default]
        all = ["0.0.0.0/0"]
        [properties."ipv4:192.0.2.0/24"]
        "priv:country" = "CH"
        [properties."ipv4:192.0.2.2"]
        "priv:country" = "FR"
        "priv:rack" = 7
        [[costs]]
        src = "192.0.2.0/24"
        dst = "198.51.100.0/24"
        delay-ow = 5300
    "#;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cost(from: &str, to: &str) -> Item {
        Item::Cost("delay-ow".parse().unwrap(), address(from), address(to))
    }

    fn property(name: &str, of: &str) -> Item {
        Item::Property(name.parse().unwrap(), address(of))
    }

    /// Returns the items that a local server returns for these requests.
    fn answer_locally(items: impl IntoIterator<Item = Item>) -> Vec<(Item, Json)> {
        let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()]).unwrap();
        let (resources, _) = directory::Directory::of(&network_state);
        let listed = resources.answer(&network_state, |id| format!("./{id}"));
        let directory = Directory::parse("http://h/directory", &listed.body).unwrap();
        assert_eq!(directory.on_demand().metrics.len(), 1);
        let answer = |request: DelegateRequest| {
            let [ResourceRequest { resource, part, input }] = &directory.resource_requests(&request)[..] else {
                panic!()
            };
            let answer = resources.find(resource).unwrap().answer(&network_state, input, address("192.0.2.9")).unwrap();
            let document = Document::parse(resource, "http://h/", answer.media_type, &answer.body).unwrap();
            document.values_for(part)
        };
        requests(items).into_iter().flat_map(answer).collect()
    }

    #[test]
    fn a_server_says_what_it_knows_of_what_is_asked() {
        let known = cost("192.0.2.1", "198.51.100.7");
        assert_eq!(answer_locally([known.clone(), cost("203.0.113.1", "198.51.100.7")]), [(known, 5300.0.into())]);
        let (one, two) = (property("priv:country", "192.0.2.1"), property("priv:country", "192.0.2.2"));
        let rack = property("priv:rack", "192.0.2.2");
        let requested = [one.clone(), two.clone(), rack.clone(), property("priv:country", "203.0.113.1")];
        assert_eq!(answer_locally(requested), [(one, "CH".into()), (two, "FR".into()), (rack, 7.into())]);
    }

    #[test]
    fn what_a_server_has_not_is_not_asked() {
        let listed = json!({ "resources": {} }).to_string();
        let directory = Directory::parse("http://h/directory", listed.as_bytes()).unwrap();
        assert!(directory.on_demand().is_empty());
        for request in requests([cost("192.0.2.1", "192.0.2.2"), property("x", "192.0.2.1")]) {
            assert_eq!(directory.resource_requests(&request), []);
        }
    }

    #[test]
    fn properties_that_no_resource_has_together_are_asked_of_several() {
        let resource = |name: &str, properties: Json| {
            json!({
                "uri": name, "media-type": "application/alto-endpointprop+json",
                "accepts": "application/alto-endpointpropparams+json", "capabilities": { "prop-types": properties },
            })
        };
        let resources = json!({ "a": resource("a", json!(["x"])), "b": resource("b", json!(["y", "z"])) });
        let listed = json!({ "resources": resources }).to_string();
        let directory = Directory::parse("http://h/directory", listed.as_bytes()).unwrap();
        let requested = ["w", "x", "y", "z"].map(|name| property(name, "192.0.2.1"));
        let [request] = &requests(requested)[..] else { panic!() };
        let resource_requests = directory.resource_requests(request);
        let input = |names: Json| json!({ "endpoints": ["ipv4:192.0.2.1"], "properties": names });
        let posted: Vec<_> = resource_requests
            .iter()
            .map(|resource_request| (resource_request.resource, &resource_request.input))
            .collect();
        assert_eq!(posted, [("b", &input(json!(["y", "z"]))), ("a", &input(json!(["x"])))]);
        assert_eq!(resource_requests.iter().map(|resource_request| resource_request.part.items()).sum::<usize>(), 3);
    }

    #[test]
    fn what_is_no_cost_or_was_not_asked_for_is_left_out() {
        let body = r#"{"endpoint-cost-map": {
            "ipv4:192.0.2.1": { "ipv4:192.0.2.2": -1, "ipv4:192.0.2.3": "far", "x": 1, "ipv4:192.0.2.4": 2, "ipv4:192.0.2.6": 3 },
            "x": {}, "ipv4:192.0.2.5": 7, "ipv4:192.0.2.6": { "ipv4:192.0.2.4": 4 }
        }}"#;
        let document = Document::parse("r", "http://h/", "application/alto-endpointcost+json", body.as_bytes());
        let requested = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|to| cost("192.0.2.1", to));
        let [request] = &requests(requested)[..] else { panic!() };
        assert_eq!(document.unwrap().values_for(request), [(cost("192.0.2.1", "192.0.2.4"), 2.0.into())]);
    }
}
