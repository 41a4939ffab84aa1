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
    networks::{AttachedLink, LinkKey},
};
use towpath_alto::{
    address,
    agent_state::{Cost, Costs, Prefix},
    entity::Entity,
    names::{CostMetric, NodeName, ParseError, PidName, PropertyName, ResourceId, RouterName, TopologyName},
    nested,
    network_state::check,
    route::{AsPath, Route},
    topology::{Amount, LinkFacts},
};

/// The JSON form of a line.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub(super) enum ProgramLine {
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
    Withdraw(Withdrawal),
    Commit {},
}

/// A withdrawal.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Withdrawal {
    Route { router: RouterName, prefix: Prefix },
    Property { entity: Entity, name: PropertyName },
    Metric { map: Option<ResourceId>, src: String, dst: String, metric: CostMetric },
    Link { topology: TopologyName, from: NodeName, to: NodeName },
}

/// A fact that is set or removed.
#[derive(Debug)]
pub(super) enum FactChange {
    Route(RouterName, Route),
    Property(PropertyKey, Value),
    Cost(CostKey, Cost),
    Link(LinkKey, Arc<AttachedLink>),
    NoRoute(RouterName, IpNet),
    NoProperty(PropertyKey),
    NoCost(CostKey),
    NoLink(LinkKey),
}

/// The entity and name of a property.
pub(super) type PropertyKey = (Entity, PropertyName);

/// The ends and the metric of a cost.
pub(super) type CostKey = (CostEndpoints, CostMetric);

/// The ends of a cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CostEndpoints {
    Prefixes(Prefix, Prefix),
    Pids(ResourceId, PidName, PidName),
}

impl CostEndpoints {
    fn parse(map: Option<ResourceId>, src: &str, dst: &str) -> Result<Self, ParseError> {
        match map {
            Some(map) => Ok(CostEndpoints::Pids(map, PidName::new(src)?, PidName::new(dst)?)),
            None => Ok(CostEndpoints::Prefixes(Prefix(address::prefix(src)?), Prefix(address::prefix(dst)?))),
        }
    }
}

impl FactChange {
    /// Returns whether it removes a fact.
    pub(super) fn is_withdrawal(&self) -> bool {
        matches!(
            self,
            FactChange::NoRoute(..) | FactChange::NoProperty(_) | FactChange::NoCost(_) | FactChange::NoLink(_)
        )
    }

    /// Returns the number of facts it counts as.
    pub(super) fn facts(&self) -> usize {
        match self {
            FactChange::Link(_, tie) => tie.facts(),
            _ => 1,
        }
    }
}

impl ProgramLine {
    /// Converts the line to a change; `None` for a commit.
    pub(super) fn into_change(self) -> Result<Option<FactChange>, LineFault> {
        Ok(Some(match self {
            ProgramLine::Route { router, prefix, next_hop, as_path } => {
                FactChange::Route(router, Route { prefix: prefix.0, next_hop, as_path: path(&as_path)? })
            }
            ProgramLine::Property { entity, name, value } => {
                check::property(&entity, &name, &value)?;
                FactChange::Property((entity, name), check_length(value)?)
            }
            ProgramLine::Metric { map, src, dst, metric, value } => {
                let ends = CostEndpoints::parse(map, &src, &dst)?;
                if matches!(ends, CostEndpoints::Prefixes(..)) && Costs::ENDS.contains(&metric.as_str()) {
                    return Err(LineFault::MetricName(metric));
                }
                check::cost(&metric, &value, || format!("{src} to {dst}"))?;
                FactChange::Cost((ends, metric), value)
            }
            ProgramLine::Link { topology, from, to, capacity, length, weight, directed, attach } => {
                if let Some(node) = attach.keys().find(|node| ![&from, &to].contains(node)) {
                    return Err(LineFault::NoEnd(node.clone()));
                }
                let key = (topology, from.clone(), to.clone());
                let link = LinkFacts { from, to, capacity, length, weight, directed };
                FactChange::Link(key, Arc::new(AttachedLink { link, attach }))
            }
            ProgramLine::Withdraw(withdrawn) => withdrawn.into_change()?,
            ProgramLine::Commit {} => return Ok(None),
        }))
    }
}

impl Withdrawal {
    fn into_change(self) -> Result<FactChange, ParseError> {
        Ok(match self {
            Withdrawal::Route { router, prefix } => FactChange::NoRoute(router, prefix.0),
            Withdrawal::Property { entity, name } => FactChange::NoProperty((entity, name)),
            Withdrawal::Metric { map, src, dst, metric } => {
                FactChange::NoCost((CostEndpoints::parse(map, &src, &dst)?, metric))
            }
            Withdrawal::Link { topology, from, to } => FactChange::NoLink((topology, from, to)),
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
