//! The fields of a line, and the change it represents.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::{
    LineFault, MAX_HOPS, MAX_VALUE_BYTES,
    networks::{LinkKey, Tie},
};
use towpath_alto::{
    address,
    agent_state::{Cost, Costs, Prefix},
    entity::Entity,
    names::{CostMetric, Malformed, NodeName, PidName, PropertyName, ResourceId, RouterName, TopologyName},
    nested,
    network_state::check,
    route::{AsPath, Route},
    topology::{Amount, LinkFacts},
};

/// The JSON form of a line.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub(super) enum Line {
    Route {
        router: RouterName,
        prefix: Prefix,
        next_hop: Option<IpAddr>,
        #[serde(default)]
        as_path: String,
    },
    Property {
        entity: Entity,
        name: PropertyName,
        #[serde(deserialize_with = "nested::value")]
        value: Value,
    },
    Metric {
        map: Option<ResourceId>,
        src: String,
        dst: String,
        metric: CostMetric,
        #[serde(deserialize_with = "Cost::steady")]
        value: Cost,
    },
    Link {
        topology: TopologyName,
        from: NodeName,
        to: NodeName,
        capacity: Option<Amount>,
        length: Option<Amount>,
        weight: Option<Amount>,
        #[serde(default)]
        directed: bool,
        #[serde(default)]
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    },
    Withdraw(Withdrawn),
    Commit {},
}

/// A withdrawal.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Withdrawn {
    Route { router: RouterName, prefix: Prefix },
    Property { entity: Entity, name: PropertyName },
    Metric { map: Option<ResourceId>, src: String, dst: String, metric: CostMetric },
    Link { topology: TopologyName, from: NodeName, to: NodeName },
}

/// A fact that is set or removed.
#[derive(Debug)]
pub(super) enum Change {
    Route(RouterName, Route),
    Property(PropertyKey, Value),
    Cost(CostKey, Cost),
    Link(LinkKey, Arc<Tie>),
    NoRoute(RouterName, IpNet),
    NoProperty(PropertyKey),
    NoCost(CostKey),
    NoLink(LinkKey),
}

/// The entity and name of a property.
pub(super) type PropertyKey = (Entity, PropertyName);

/// The ends and the metric of a cost.
pub(super) type CostKey = (Ends, CostMetric);

/// The ends of a cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ends {
    Prefixes(Prefix, Prefix),
    Pids(ResourceId, PidName, PidName),
}

impl Ends {
    fn parse(map: Option<ResourceId>, src: &str, dst: &str) -> Result<Self, Malformed> {
        match map {
            Some(map) => Ok(Ends::Pids(map, PidName::new(src)?, PidName::new(dst)?)),
            None => Ok(Ends::Prefixes(Prefix(address::prefix(src)?), Prefix(address::prefix(dst)?))),
        }
    }
}

impl Change {
    /// Returns whether it removes a fact.
    pub(super) fn is_withdrawal(&self) -> bool {
        matches!(self, Change::NoRoute(..) | Change::NoProperty(_) | Change::NoCost(_) | Change::NoLink(_))
    }

    /// Returns the number of facts it counts as.
    pub(super) fn facts(&self) -> usize {
        match self {
            Change::Link(_, tie) => tie.facts(),
            _ => 1,
        }
    }
}

impl Line {
    /// Converts the line to a change; `None` for a commit.
    pub(super) fn into_change(self) -> Result<Option<Change>, LineFault> {
        Ok(Some(match self {
            Line::Route { router, prefix, next_hop, as_path } => {
                Change::Route(router, Route { prefix: prefix.0, next_hop, as_path: path(&as_path)? })
            }
            Line::Property { entity, name, value } => {
                check::property(&entity, &name, &value)?;
                Change::Property((entity, name), check_length(value)?)
            }
            Line::Metric { map, src, dst, metric, value } => {
                let ends = Ends::parse(map, &src, &dst)?;
                if matches!(ends, Ends::Prefixes(..)) && Costs::ENDS.contains(&metric.as_str()) {
                    return Err(LineFault::MetricName(metric));
                }
                check::cost(&metric, &value, || format!("{src} to {dst}"))?;
                Change::Cost((ends, metric), value)
            }
            Line::Link { topology, from, to, capacity, length, weight, directed, attach } => {
                if let Some(node) = attach.keys().find(|node| ![&from, &to].contains(node)) {
                    return Err(LineFault::NoEnd(node.clone()));
                }
                let key = (topology, from.clone(), to.clone());
                let link = LinkFacts { from, to, capacity, length, weight, directed };
                Change::Link(key, Arc::new(Tie { link, attach }))
            }
            Line::Withdraw(withdrawn) => withdrawn.into_change()?,
            Line::Commit {} => return Ok(None),
        }))
    }
}

impl Withdrawn {
    fn into_change(self) -> Result<Change, Malformed> {
        Ok(match self {
            Withdrawn::Route { router, prefix } => Change::NoRoute(router, prefix.0),
            Withdrawn::Property { entity, name } => Change::NoProperty((entity, name)),
            Withdrawn::Metric { map, src, dst, metric } => Change::NoCost((Ends::parse(map, &src, &dst)?, metric)),
            Withdrawn::Link { topology, from, to } => Change::NoLink((topology, from, to)),
        })
    }
}

fn path(text: &str) -> Result<AsPath, LineFault> {
    let path: AsPath = text.parse()?;
    if path.hops().len() > MAX_HOPS { Err(LineFault::PathTooLong) } else { Ok(path) }
}

fn check_length(value: Value) -> Result<Value, LineFault> {
    if value.to_string().len() > MAX_VALUE_BYTES { Err(LineFault::ValueTooLong) } else { Ok(value) }
}
