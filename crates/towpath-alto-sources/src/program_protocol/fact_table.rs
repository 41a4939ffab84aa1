//! The facts currently set.

use std::{collections::BTreeMap, sync::Arc};

use ipnet::IpNet;
use serde_json::Value;

use super::{
    LineFault,
    networks::Network,
    wire::{CostEndpoints, CostKey, FactChange, PropertyKey},
};
use towpath_alto::{
    agent_state::{AgentState, Cost, Costs, Router},
    names::{RouterName, TopologyName},
    route::Route,
    routes::RouteTable,
};

/// Facts by key. Withdrawn facts leave no trace: the result is the same as if they had never been set.
#[derive(Debug, Default)]
pub(super) struct FactTable {
    /// No table is empty.
    tables: BTreeMap<RouterName, Arc<RouteTable>>,
    properties: BTreeMap<PropertyKey, Value>,
    costs: BTreeMap<CostKey, Cost>,
    /// No network is empty.
    networks: BTreeMap<TopologyName, Network>,
    /// Total number of routes in the tables.
    routes: usize,
    /// Total number of facts in the networks.
    ties: usize,
}

impl FactTable {
    /// Returns the number of facts.
    pub(super) fn len(&self) -> usize {
        self.routes + self.properties.len() + self.costs.len() + self.ties
    }

    /// Applies all changes or none: the resulting topologies are checked against their limits first.
    ///
    /// # Errors
    /// If a topology would be too large. The changes are left as they are.
    pub(super) fn take(&mut self, changes: &mut Vec<FactChange>) -> Result<(), LineFault> {
        let changed = self.changed_networks(changes)?;
        self.networks.extend(changed);
        self.networks.retain(|_, network| !network.is_empty());
        self.ties = self.networks.values().map(Network::facts).sum();
        changes.drain(..).for_each(|change| self.apply(change));
        Ok(())
    }

    /// Returns the changed topologies as they would be after the changes.
    fn changed_networks(&self, changes: &[FactChange]) -> Result<BTreeMap<TopologyName, Network>, LineFault> {
        let mut changed: BTreeMap<TopologyName, Network> = BTreeMap::new();
        for change in changes {
            let (key, tie) = match change {
                FactChange::Link(key, tie) => (key, Some(tie)),
                FactChange::NoLink(key) => (key, None),
                _ => continue,
            };
            let current = || self.networks.get(&key.0).cloned().unwrap_or_default();
            changed.entry(key.0.clone()).or_insert_with(current).note(key, tie);
        }
        for (topology, network) in &mut changed {
            network.build().map_err(|error| LineFault::Topology { topology: topology.clone(), error })?;
        }
        Ok(changed)
    }

    fn apply(&mut self, change: FactChange) {
        match change {
            FactChange::Route(router, route) => self.add_route(router, route),
            FactChange::Property(key, value) => {
                self.properties.insert(key, value);
            }
            FactChange::Cost(key, cost) => {
                self.costs.insert(key, cost);
            }
            FactChange::NoRoute(router, prefix) => self.remove_route(&router, prefix),
            FactChange::NoProperty(key) => {
                self.properties.remove(&key);
            }
            FactChange::NoCost(key) => {
                self.costs.remove(&key);
            }
            // Topologies are built as a whole.
            FactChange::Link(..) | FactChange::NoLink(_) => {}
        }
    }

    fn add_route(&mut self, router: RouterName, route: Route) {
        let table = self.tables.entry(router).or_default();
        let before = table.len();
        Arc::make_mut(table).insert(route);
        self.routes += table.len() - before;
    }

    fn remove_route(&mut self, router: &RouterName, prefix: IpNet) {
        let Some(table) = self.tables.get_mut(router) else { return };
        let before = table.len();
        Arc::make_mut(table).remove(prefix);
        self.routes -= before - table.len();
        if table.is_empty() {
            self.tables.remove(router);
        }
    }

    pub(super) fn facts(&self) -> AgentState {
        let mut facts = AgentState::default();
        for (name, table) in &self.tables {
            let router = Router { routes: Some(Arc::clone(table)), ..Router::default() };
            facts.routers.insert(name.clone(), router);
        }
        for (name, network) in &self.networks {
            facts.topology.insert(name.clone(), network.topology().clone());
        }
        for ((entity, name), value) in &self.properties {
            facts.properties.entry(entity.clone()).or_default().insert(name.clone(), value.clone());
        }
        self.costs.iter().for_each(|(key, cost)| add_cost(&mut facts, key, cost.clone()));
        facts
    }
}

/// Adds a cost. Costs with the same ends must be added consecutively.
fn add_cost(facts: &mut AgentState, (ends, metric): &CostKey, cost: Cost) {
    match ends {
        CostEndpoints::Prefixes(src, dst) => {
            if facts.costs.last().is_none_or(|last| (last.src, last.dst) != (*src, *dst)) {
                facts.costs.push(Costs { src: *src, dst: *dst, values: BTreeMap::new() });
            }
            let last = facts.costs.last_mut().expect("one of these ends is the last");
            last.values.insert(metric.clone(), cost);
        }
        CostEndpoints::Pids(map, src, dst) => {
            let metrics = facts.cost_map.entry(map.clone()).or_default();
            let row = metrics.entry(metric.clone()).or_default().entry(src.clone()).or_default();
            row.insert(dst.clone(), cost);
        }
    }
}
