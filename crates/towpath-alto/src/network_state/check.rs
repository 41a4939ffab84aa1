//! Validates the facts of a single agent.

use serde_json::Value;

use super::NetworkStateFault;
use crate::{
    agent_state::{AgentState, Cost},
    entity::Entity,
    names::{CostMetric, PropertyName},
    reserved::{BANDWIDTH, PROPERTIES},
};

/// Rejects facts that no resource can represent.
pub(super) fn facts(facts: &AgentState) -> Result<(), NetworkStateFault> {
    for (map, pids) in &facts.network_map {
        without_dots("network map", map.as_str())?;
        pids.keys().try_for_each(|pid| without_dots("PID", pid.as_str()))?;
    }
    for (map, metrics) in &facts.cost_map {
        for (metric, rows) in metrics {
            let mut rows = rows.iter().flat_map(|(src, row)| row.iter().map(move |(dst, cost)| (src, dst, cost)));
            rows.try_for_each(|(src, dst, value)| cost(metric, value, || format!("cost map {map}, {src} to {dst}")))?;
        }
    }
    for costs in &facts.costs {
        let pair = || format!("{} to {}", costs.src.0, costs.dst.0);
        costs.values.iter().try_for_each(|(metric, value)| cost(metric, value, pair))?;
    }
    let properties = facts.properties.iter();
    let mut properties =
        properties.flat_map(|(entity, values)| values.iter().map(move |(name, value)| (entity, name, value)));
    properties.try_for_each(|(entity, name, value)| property(entity, name, value))
}

/// Rejects a cost whose value is invalid for its metric.
///
/// # Errors
/// If the metric has whole numbers only.
pub fn cost(metric: &CostMetric, cost: &Cost, pair: impl FnOnce() -> String) -> Result<(), NetworkStateFault> {
    match cost.suits(metric) {
        true => Ok(()),
        false => Err(NetworkStateFault::Fraction { metric: metric.clone(), pair: pair() }),
    }
}

/// Rejects properties of entities that cannot have any, and invalid values.
///
/// # Errors
/// For such an entity or value.
pub fn property(entity: &Entity, name: &PropertyName, value: &Value) -> Result<(), NetworkStateFault> {
    match entity {
        Entity::Ane(Some(resource), _) if resource.as_str() != PROPERTIES => {
            Err(NetworkStateFault::NoDomain { entity: entity.clone() })
        }
        Entity::Ane(_, element) => {
            without_dots("element", element.as_str())?;
            let is_rate = name.as_str() != BANDWIDTH || value.as_f64().is_some_and(|rate| rate >= 0.0);
            if is_rate { Ok(()) } else { Err(NetworkStateFault::Bandwidth { entity: entity.clone() }) }
        }
        Entity::Address(_) | Entity::Pid(..) => Ok(()),
    }
}

/// Rejects names with dots, which are reserved (RFC 7285 §10.1, §10.2).
fn without_dots(what: &'static str, name: &str) -> Result<(), NetworkStateFault> {
    match name.contains('.') {
        true => Err(NetworkStateFault::Dot { what, name: name.to_owned() }),
        false => Ok(()),
    }
}
