//! What an agent knows: all of it, each time. Also the format of static files.
//!
//! ```toml
//! [network-map.default]
//! CERN = ["137.138.0.0/16", "2001:1458::/32"]
//! elsewhere = ["0.0.0.0/0", "::/0"]
//!
//! [cost-map.default.routingcost.CERN]
//! elsewhere = 10
//!
//! [properties."ipv4:137.138.0.0/16"]
//! country = "CH"
//!
//! [[costs]]
//! src = "137.138.0.0/16"
//! dst = "134.158.84.0/24"
//! delay-ow = 5300
//!
//! [contexts.delay-ow]
//! cost-source = "estimation"
//!
//! [routers."ex2j.cern.ch"]
//! serves = ["137.138.0.0/16"]
//! routes = [{ prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" }]
//!
//! [topology.geant]
//! attach = { "Geneva" = ["137.138.0.0/16"], "Paris" = ["134.158.0.0/16"] }
//! links = [{ from = "Geneva", to = "Paris", capacity = 100e9, weight = 410 }] # bits/s
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    address,
    cost::CostContext,
    entity::Entity,
    geo::Locations,
    names::{CostMetric, PidName, PropertyName, ResourceId, RouterName, TopologyName},
    route::Route,
    routes::Table,
    topology::Told,
};

/// Costs from the first PID to the second.
pub type PidCosts = BTreeMap<PidName, BTreeMap<PidName, Cost>>;

/// What an agent knows of the network.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Facts {
    /// Network maps: what is in each PID.
    pub network_map: BTreeMap<ResourceId, BTreeMap<PidName, BTreeSet<Prefix>>>,
    /// Costs between PIDs of a network map, by metric.
    pub cost_map: BTreeMap<ResourceId, BTreeMap<CostMetric, PidCosts>>,
    /// Properties of entities. `null` says that there is no value.
    pub properties: BTreeMap<Entity, BTreeMap<PropertyName, serde_json::Value>>,
    /// Costs between addresses or prefixes.
    pub costs: Vec<Costs>,
    /// Where the values of metrics come from; of a metric also for its statistics.
    pub contexts: BTreeMap<CostMetric, CostContext>,
    /// Routers with their routes.
    pub routers: BTreeMap<RouterName, Router>,
    /// Topologies with what is attached to their nodes.
    pub topology: BTreeMap<TopologyName, Told>,
    /// A database of where addresses are. Files of facts have none.
    #[serde(skip)]
    pub locations: Option<Arc<Locations>>,
}

/// A router, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Router {
    /// Its addresses, by which routes of others lead to it.
    pub addresses: BTreeSet<IpAddr>,
    /// What is behind it: traffic from there takes its routes.
    pub serves: BTreeSet<Prefix>,
    /// Whether it serves all that no other router does.
    pub default: bool,
    /// Its routes. None: another agent tells them.
    #[serde(deserialize_with = "table")]
    pub routes: Option<Arc<Table>>,
}

fn table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Table>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Written {
        prefix: Prefix,
        next_hop: Option<IpAddr>,
        #[serde(default)]
        as_path: String,
    }
    let route = |written: Written| {
        let as_path = written.as_path.parse().map_err(de::Error::custom)?;
        Ok(Route { prefix: written.prefix.0, next_hop: written.next_hop, as_path })
    };
    let written = Vec::<Written>::deserialize(deserializer)?;
    written.into_iter().map(route).collect::<Result<Table, _>>().map(|table| Some(Arc::new(table)))
}

/// Costs from one prefix to another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Costs {
    /// From there,
    pub src: Prefix,
    /// to there,
    pub dst: Prefix,
    /// by each of these metrics.
    #[serde(flatten)]
    pub values: BTreeMap<CostMetric, Cost>,
}

/// A prefix as people write it, without bits behind its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Prefix(pub IpNet);

/// A cost: finite, not negative (RFC 7285 §6.1.2.1).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Cost(f64);

impl Cost {
    /// The cost of that value; none if it is negative, or no number.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value >= 0.0).then_some(Self(value))
    }

    /// Its value in the unit of its metric.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Self::new(value).ok_or_else(|| de::Error::custom(format!("{value} is no cost: 0 or more")))
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        address::prefix(&String::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Entity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Entity::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Facts {
    /// Reads a static file: TOML, or JSON of the same form.
    ///
    /// # Errors
    /// If it is neither, or says what cannot be said; with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            toml::from_str(text).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_toml_or_json() {
        let toml = r#"
            [network-map.default]
            CERN = ["137.138.0.0/16", "2001:1458::/32"]
            elsewhere = ["0.0.0.0/0", "::/0"]
            [cost-map.default.routingcost.CERN]
            elsewhere = 10
            [properties."ipv4:137.138.0.0/16"]
            country = "CH"
            [[costs]]
            src = "137.138.0.0/16"
            dst = "134.158.84.23"
            delay-ow = 5300
        "#;
        let json = r#"{
            "network-map": { "default": { "CERN": ["137.138.0.0/16", "2001:1458::/32"], "elsewhere": ["0.0.0.0/0", "::/0"] } },
            "cost-map": { "default": { "routingcost": { "CERN": { "elsewhere": 10 } } } },
            "properties": { "ipv4:137.138.0.0/16": { "country": "CH" } },
            "costs": [{ "src": "137.138.0.0/16", "dst": "134.158.84.23", "delay-ow": 5300 }]
        }"#;
        let facts = Facts::parse(toml).unwrap();
        assert_eq!(facts, Facts::parse(json).unwrap());
        assert_eq!(facts.costs[0].dst.0.prefix_len(), 32);
        assert_eq!(facts.network_map.values().next().unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_said_is_told_with_its_place() {
        for (text, told) in [
            ("[network-maps.x]", "unknown field"),
            ("[network-map.x]\nP = [\"192.0.2.1/24\"]", "line 2"),
            ("[cost-map.x.routingcost.a]\nb = -1", "0 or more"),
            ("[[costs]]\nsrc = \"192.0.2.1\"", "dst"),
            ("{\"properties\": {\"x\": {}}}", "'x' is no entity"),
        ] {
            let error = Facts::parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
