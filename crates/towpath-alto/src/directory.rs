//! The information resource directory of a network state (RFC 7285 §9).
//!
//! It is derived from the known facts. A network map `M` yields `M` and `M-filtered`; with costs also `M-costs`, and
//! for each metric `M-METRIC` and `M-METRIC-ordinal`; with routes or topologies also `M-path-vector`.
//! `endpoint-properties`, `endpoint-costs`, `path-vector`, `properties` and `properties-filtered` exist if they have
//! content; `updates` and `tips` always exist. A compatibility profile adds its own resource if there are routes. The
//! operator can add links to directories of other servers.

mod linked_directory;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    cost::{CostMode, CostType, is_registered},
    media,
    names::{CostMetric, ResourceId},
    network_state::{NetworkState, Region},
    reserved::{
        COSTS, ENDPOINT_COSTS, ENDPOINT_PROPERTIES, FILTERED, ORDINAL, PATH_VECTOR, PROPERTIES, PROPERTIES_FILTERED,
    },
    resource::{AltoResponse, Kind, MAX_PAIRS, Resource, endpoints, property_map},
    update_services,
};

pub use self::linked_directory::{DirectoryUri, LinkFault, LinkedDirectory};
pub use crate::reserved::{DIRECTORY, TIPS, UPDATES};

/// The metric for which each network map must have a cost map (RFC 7285 §11.2.3).
const ROUTING_COST: &str = "routingcost";

/// The resources of a network state, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    resources: BTreeMap<ResourceId, Resource>,
    /// Directories of other servers. Their ids differ from those of the resources.
    linked: BTreeMap<ResourceId, LinkedDirectory>,
}

/// A requirement of RFC 7285 that a directory violates; reported by `check`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryViolation {
    /// There is no network map (§9.2).
    #[error("there is no network map: configure an agent that assigns addresses to PIDs")]
    NetworkMap,
    /// A network map has no cost map for `routingcost` (§11.2.3).
    #[error("network map {0} has no routingcost costs: configure an agent that reports them")]
    RoutingCost(ResourceId),
    /// A network map has too many PIDs for unfiltered cost maps.
    #[error("network map {0} has too many PIDs for the unfiltered cost map that RFC 7285 requires: merge some")]
    TooLarge(ResourceId),
    /// A metric is neither registered nor private (§10.6), or has an unknown statistic (RFC 9439 §3.2).
    #[error(
        "metric {0} is unknown to clients: start its name with priv:, without dots; statistics are cur, min, max, median, mean, stddev, stdvar, and p with a number"
    )]
    Metric(CostMetric),
    /// A calendar begins in the future, but clients count from its start (RFC 8896 §5.1).
    #[error("calendars.{0} has not started; until then, the mean of its costs is used: set its start to a past time")]
    CalendarToCome(CostMetric),
    /// A calendar has ended.
    #[error(
        "calendars.{0} has ended; the mean of its costs is used: set a later start, or a greater number for repeated"
    )]
    CalendarOver(CostMetric),
}

impl Directory {
    /// Returns the directory of `network_state` and the requirements it violates.
    pub fn of(network_state: &NetworkState) -> (Self, Vec<DirectoryViolation>) {
        let mut builder = DirectoryBuilder::default();
        for region in network_state.regions() {
            builder.add_map(region, network_state.has_paths());
        }
        if builder.directory.resources.is_empty() {
            builder.violations.push(DirectoryViolation::NetworkMap);
        }
        let of_regions = network_state.regions().flat_map(|region| region.costs.keys());
        let metrics: BTreeSet<&CostMetric> = network_state.metrics().into_iter().chain(of_regions).collect();
        let unknown = metrics.into_iter().filter(|metric| !is_registered(metric.as_str()));
        builder.violations.extend(unknown.cloned().map(DirectoryViolation::Metric));
        builder.violations.extend(network_state.silent_calendars().map(|(metric, is_to_come)| match is_to_come {
            true => DirectoryViolation::CalendarToCome(metric.clone()),
            false => DirectoryViolation::CalendarOver(metric.clone()),
        }));
        let has_properties = !network_state.domains.is_empty() || network_state.default_region().is_some();
        let can_ask = has_properties || !network_state.on_demand.properties.is_empty();
        // It must offer at least one endpoint property (RFC 7285 §11.4.1.4).
        let have_endpoints_properties = !endpoints::endpoint_properties(network_state).is_empty();
        let has_costs = !network_state.metrics().is_empty();
        for (name, kind, is_there) in [
            (ENDPOINT_PROPERTIES, Kind::EndpointProperties, have_endpoints_properties),
            (ENDPOINT_COSTS, Kind::EndpointCosts, has_costs),
            (PATH_VECTOR, Kind::PathVector, network_state.has_paths()),
            (PROPERTIES, Kind::PropertyMap, has_properties),
            (PROPERTIES_FILTERED, Kind::FilteredPropertyMap, can_ask),
        ] {
            if is_there {
                builder.add(name, kind);
            }
        }
        if let Some(profile) = network_state.profile().filter(|_| network_state.has_routes()) {
            builder.add(profile.resource().as_str(), Kind::OpenAlto);
        }
        (builder.directory, builder.violations)
    }

    /// Returns the resource with the given id.
    pub fn find(&self, id: &str) -> Option<&Resource> {
        self.resources.get(id)
    }

    /// Returns the resources, sorted by id.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources.values()
    }

    /// Returns the response to a GET of the directory. `uri` returns the URI of a resource.
    pub fn answer(&self, network_state: &NetworkState, uri: impl Fn(&ResourceId) -> String) -> AltoResponse {
        let types: BTreeSet<CostType> =
            self.resources().flat_map(|resource| resource.cost_types(network_state)).collect();
        let types: Map<String, Value> =
            types.into_iter().map(|kind| (kind.to_string(), network_state.describe(&kind))).collect();
        let mut meta = network_state.meta();
        meta.insert("cost-types".into(), json!(types));
        if let Some(region) = network_state.default_region() {
            meta.insert("default-alto-network-map".into(), json!(region.map.id()));
        }
        let entries = self
            .resources()
            .map(|resource| (resource.id.to_string(), entry(resource, network_state, uri(&resource.id))));
        let linked = self.linked.iter().map(|(id, linked)| (id.to_string(), linked.entry()));
        let mut entries: Map<String, Value> = entries.chain(linked).collect();
        for (name, mut entry) in [(UPDATES, self.updates()), (TIPS, self.views())] {
            let id = ResourceId::new(name).expect("a valid name");
            entry["uri"] = uri(&id).into();
            entries.insert(name.into(), entry);
        }
        let document = json!({ "meta": meta, "resources": entries });
        AltoResponse::of(media::DIRECTORY, &document)
    }

    /// Returns the entry of the update stream service (RFC 8895 §6).
    fn updates(&self) -> Value {
        json!({
            "media-type": update_services::EVENT_STREAM,
            "accepts": update_services::UPDATE_STREAM_PARAMS,
            "capabilities": update_services::stream_capabilities(self.resources()),
            "uses": update_services::uses(self.resources()),
        })
    }

    /// Returns the entry of the TIPS service (RFC 9569 §5).
    fn views(&self) -> Value {
        json!({
            "media-type": update_services::TIPS,
            "accepts": update_services::TIPS_PARAMS,
            "capabilities": update_services::view_capabilities(self.resources()),
            "uses": update_services::uses(self.resources()),
        })
    }
}

/// Returns an `IRDResourceEntry` (RFC 7285 §9.2.2).
fn entry(resource: &Resource, network_state: &NetworkState, uri: String) -> Value {
    let mut entry = Map::new();
    entry.insert("uri".into(), uri.into());
    entry.insert("media-type".into(), resource.media_type().into());
    if let Some(accepts) = resource.accepts() {
        entry.insert("accepts".into(), accepts.into());
    }
    let capabilities = resource.capabilities(network_state);
    if !capabilities.is_null() {
        entry.insert("capabilities".into(), capabilities);
    }
    let uses = resource.uses(network_state);
    if !uses.is_empty() {
        entry.insert("uses".into(), json!(uses));
    }
    entry.into()
}

/// A directory under construction.
#[derive(Default)]
struct DirectoryBuilder {
    property_map: property_map::Cache,
    directory: Directory,
    violations: Vec<DirectoryViolation>,
}

impl DirectoryBuilder {
    fn add_map(&mut self, region: &Region, has_paths: bool) {
        let map = region.map.id();
        self.add(map.as_str(), Kind::NetworkMap(map.clone()));
        self.add(&format!("{map}-{FILTERED}"), Kind::FilteredNetworkMap(map.clone()));
        if !region.costs.is_empty() {
            self.add(&format!("{map}-{COSTS}"), Kind::FilteredCostMap(map.clone()));
        }
        if has_paths {
            self.add(&format!("{map}-{PATH_VECTOR}"), Kind::PidPathVector(map.clone()));
        }
        let is_told_whole = region.map.len() * region.map.len() <= MAX_PAIRS;
        if !is_told_whole {
            self.violations.push(DirectoryViolation::TooLarge(map.clone()));
        }
        for metric in region.costs.keys().filter(|_| is_told_whole) {
            for (suffix, cost_mode) in [("", CostMode::Numerical), (ORDINAL, CostMode::Ordinal)] {
                let kind = CostType { cost_mode, cost_metric: metric.clone() };
                self.add(&format!("{map}-{metric}{suffix}"), Kind::CostMap(map.clone(), kind));
            }
        }
        if !region.costs.contains_key(ROUTING_COST) {
            self.violations.push(DirectoryViolation::RoutingCost(map.clone()));
        }
    }

    fn add(&mut self, name: &str, kind: Kind) {
        let id = ResourceId::new(name).expect("made of valid names, and short enough");
        self.directory.resources.insert(id.clone(), Resource { id, kind, property_map: self.property_map.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent_state::AgentState,
        network_state::tests::{EXAMPLE, example},
    };

    fn document(network_state: &NetworkState) -> Value {
        let (directory, _) = Directory::of(network_state);
        serde_json::from_slice(&directory.answer(network_state, |id| format!("/alto/{id}")).body).unwrap()
    }

    #[test]
    fn i1_names_lead_somewhere() {
        let ways =
            "[routers.r]\nroutes = [{ prefix = '0.0.0.0/0', next-hop = '192.0.2.9' }]\n[properties.'.ane:L1']\nx = 1";
        let network_state =
            NetworkState::of([EXAMPLE, ways].map(|facts| AgentState::parse(facts).unwrap()).iter()).unwrap();
        let document = document(&network_state);
        let resources = document["resources"].as_object().unwrap();
        let is_of_a_resource = |name: &str| match name.rsplit_once('.') {
            Some(("", kind)) => kind == "ane",
            Some((resource, kind)) => kind == "pid" && resources[resource]["media-type"] == media::NETWORK_MAP,
            None => true,
        };
        let multipart =
            resources.values().filter(|entry| entry["media-type"].as_str().unwrap().starts_with("multipart"));
        assert_eq!(multipart.count(), 2, "there are path vectors");
        assert_eq!(document["meta"]["default-alto-network-map"], "default");
        for (id, entry) in resources {
            for used in entry["uses"].as_array().into_iter().flatten() {
                assert!(resources.contains_key(used.as_str().unwrap()), "{id} uses {used}");
            }
            let capabilities = &entry["capabilities"];
            let is_all_testable = capabilities["cost-constraints"] == true;
            assert!(
                !is_all_testable || capabilities.get("testable-cost-type-names").is_none(),
                "{id}: one or the other"
            );
            assert_eq!(entry["media-type"].as_str().unwrap().matches("boundary").count(), 0, "v1");
            let properties = capabilities["prop-types"].as_array().into_iter().flatten();
            for (domain, names) in capabilities["mappings"].as_object().into_iter().flatten() {
                assert!(is_of_a_resource(domain) || ["ipv4", "ipv6"].contains(&&**domain), "{id}: {domain}");
                let names = names.as_array().unwrap();
                assert!(names.iter().all(|name| is_of_a_resource(name.as_str().unwrap())), "{id}: {names:?}");
            }
            for name in properties {
                assert!(is_of_a_resource(name.as_str().unwrap()), "{id}: {name}");
            }
            for field in ["cost-type-names", "testable-cost-type-names"] {
                for name in entry["capabilities"][field].as_array().into_iter().flatten() {
                    assert!(document["meta"]["cost-types"].get(name.as_str().unwrap()).is_some(), "{id}: {name}");
                }
            }
        }
        assert_eq!(
            document["meta"]["cost-types"]["hopcount-ordinal"],
            json!({ "cost-mode": "ordinal", "cost-metric": "hopcount" })
        );
    }

    #[test]
    fn i1_resources_name_those_that_they_depend_on() {
        let document = document(&example());
        for (id, uses) in [
            ("default", json!(null)),
            ("default-filtered", json!(["default"])),
            ("default-costs", json!(["default"])),
            ("endpoint-properties", json!(null)),
            ("endpoint-costs", json!(null)),
            ("properties", json!(["default"])),
        ] {
            assert_eq!(document["resources"][id]["uses"], uses, "{id}");
        }
    }

    #[test]
    fn i1_lists_that_must_have_something_have_something() {
        let network_state = |text: &str| NetworkState::of([&AgentState::parse(text).unwrap()]).unwrap();
        let of_elements = network_state("[properties.'.ane:L1']\nmax-reservable-bandwidth = 1e11");
        let (directory, _) = Directory::of(&of_elements);
        assert!(directory.find("endpoint-properties").is_none() && directory.find("properties").is_some());
        let of_routers = network_state("[routers.r]\nroutes = [{ prefix = '0.0.0.0/0', next-hop = '192.0.2.9' }]");
        let document = document(&of_routers);
        let can = &document["resources"]["path-vector"]["capabilities"];
        assert_eq!((can.get("testable-cost-type-names"), &can["cost-type-names"]), (None, &json!(["ane-path-array"])));
    }

    #[test]
    fn i1_domains_of_elements_are_those_of_the_property_map() {
        let facts =
            AgentState::parse("[properties.'properties.ane:L1']\n'priv:x' = 1\n[properties.'.ane:L2']\n'priv:y' = 2");
        let network_state = NetworkState::of([&facts.unwrap()]).unwrap();
        let document = document(&network_state);
        let mappings = &document["resources"]["properties"]["capabilities"]["mappings"];
        assert_eq!(*mappings, json!({ ".ane": ["priv:x", "priv:y"] }));
    }

    #[test]
    fn i2_what_is_asked_by_post_says_so() {
        let document = document(&example());
        let accepts = |id: &str| document["resources"][id].get("accepts").and_then(Value::as_str);
        assert_eq!(accepts("default"), None);
        assert_eq!(accepts("default-filtered"), Some(media::NETWORK_MAP_FILTER));
        assert_eq!(accepts("endpoint-costs"), Some(media::ENDPOINT_COST_PARAMS));
    }

    #[test]
    fn i4_what_must_be_there_is_there() {
        let network_state = example();
        let (directory, violations) = Directory::of(&network_state);
        assert_eq!(violations, []);
        assert!(directory.find("default-routingcost").is_some());
        let offered = directory.find("endpoint-properties").unwrap().capabilities(&network_state);
        assert_eq!(offered, json!({ "prop-types": ["default.pid", "country"] }));
    }

    #[test]
    fn what_is_lacking_is_told() {
        let violations = |text: &str| {
            let (_, violations) = Directory::of(&NetworkState::of([&AgentState::parse(text).unwrap()]).unwrap());
            violations.iter().map(DirectoryViolation::to_string).collect::<Vec<_>>().join("; ")
        };
        let metrics = "routingcost = { P = { P = 1 } }\n'delay-ow:foo' = { P = { P = 1 } }";
        let unknown = violations(&format!("[network-map.m]\nP = [\"0.0.0.0/0\"]\n[cost-map.m]\n{metrics}"));
        assert!(unknown.starts_with("metric delay-ow:foo is unknown to clients"), "{unknown}");
        assert!(violations("").starts_with("there is no network map"));
        assert!(
            violations("[network-map.m]\nP = [\"0.0.0.0/0\"]").starts_with("network map m has no routingcost costs")
        );
    }
}
