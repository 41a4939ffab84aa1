//! Builder that merges the facts of agents into a network state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    CostSeries, CostTable, NetworkState, NetworkStateFault, PrefixCosts, Region, Routing, check_intervals,
    fault::MAP_NAME_LENGTH, single,
};
use crate::{
    address::AddressType,
    agent_state::{AgentState, Cost},
    calendar::Calendar,
    cost::CostContext,
    delegation::OnDemandItems,
    entity::{Domain, Entity},
    geo::{self, Locations},
    names::{CostMetric, PidName, PropertyName, ResourceId, TopologyName},
    network_map::NetworkMap,
    properties::Properties,
    reserved,
    topology::TopologyFacts,
};

/// Costs between PIDs by name.
type Cells = BTreeMap<(PidName, PidName), Cost>;

/// A network state under construction.
#[derive(Default)]
pub(super) struct NetworkStateBuilder {
    maps: BTreeMap<ResourceId, BTreeMap<PidName, BTreeSet<IpNet>>>,
    costs: BTreeMap<ResourceId, BTreeMap<CostMetric, Cells>>,
    mesh: PrefixCosts,
    properties: Properties,
    routing: Routing,
    topologies: BTreeMap<TopologyName, TopologyFacts>,
    locations: Vec<Arc<Locations>>,
    contexts: BTreeMap<CostMetric, CostContext>,
    calendars: BTreeMap<CostMetric, Calendar>,
    on_demand: OnDemandItems,
}

impl NetworkStateBuilder {
    pub(super) fn add(&mut self, facts: &AgentState) {
        for (id, pids) in &facts.network_map {
            let map = self.maps.entry(id.clone()).or_default();
            for (pid, prefixes) in pids {
                map.entry(pid.clone()).or_default().extend(prefixes.iter().map(|prefix| prefix.0));
            }
        }
        for (id, metrics) in &facts.cost_map {
            let costs = self.costs.entry(id.clone()).or_default();
            for (metric, rows) in metrics {
                let rows = rows.iter().flat_map(|(src, row)| row.iter().map(move |(dst, cost)| ((src, dst), cost)));
                let cells = rows.map(|((src, dst), cost)| ((src.clone(), dst.clone()), cost.clone()));
                costs.entry(metric.clone()).or_default().extend(cells);
            }
        }
        for (entity, properties) in &facts.properties {
            for (name, value) in properties {
                self.properties.insert(entity.within(reserved::PROPERTIES), name.clone(), value.clone());
            }
        }
        for (name, router) in &facts.routers {
            self.routing.add(name, router);
        }
        for (name, topology) in &facts.topology {
            self.topologies.entry(name.clone()).or_default().join(topology);
        }
        self.locations.extend(facts.locations.clone());
        self.contexts.extend(facts.contexts.clone());
        self.calendars.extend(facts.calendars.clone());
        self.on_demand.extend(&facts.on_demand);
        for costs in &facts.costs {
            let pair = (self.mesh.end(costs.src.0), self.mesh.end(costs.dst.0));
            for (metric, cost) in &costs.values {
                self.mesh.insert(metric, pair, cost);
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<NetworkState, NetworkStateFault> {
        let mut regions = BTreeMap::new();
        check_names(&self.maps)?;
        for (id, pids) in self.maps {
            let map = NetworkMap::new(id.clone(), pids)?;
            let costs = self.costs.remove(&id).unwrap_or_default();
            check_metrics(&id, &costs)?;
            regions.insert(id, region(map, costs, &self.calendars)?);
        }
        self.mesh.check(&self.calendars)?;
        if let Some(map) = self.costs.into_keys().next() {
            return Err(NetworkStateFault::NoMap { map });
        }
        let is_missing = |entity: &&Entity| match entity {
            Entity::Pid(map, pid) => {
                regions.get(map).is_none_or(|region: &Region| region.map.number(pid.as_str()).is_none())
            }
            _ => false,
        };
        if let Some(entity) = self.properties.others().find(is_missing) {
            return Err(NetworkStateFault::NoEntity { entity: entity.clone() });
        }
        for (name, facts) in self.topologies {
            let attached = facts.resolve_attachments(&name)?;
            self.routing.topologies.insert(name, attached);
        }
        let Self { mesh, properties, routing, locations, contexts, calendars, on_demand, .. } = self;
        let domains = domains(&properties, &locations);
        let geo_distance =
            knows_positions(&domains, &on_demand).then(|| CostMetric::new(geo::DISTANCE).expect("a valid name"));
        let (at_s, profile, stale) = (None, None, BTreeMap::new());
        Ok(NetworkState {
            regions,
            mesh,
            properties,
            domains,
            routing,
            contexts,
            calendars,
            at_s,
            locations,
            geo_distance,
            on_demand,
            profile,
            stale,
        })
    }
}

/// Returns the domains of entities, with the property names from agents and databases.
fn domains(properties: &Properties, locations: &[Arc<Locations>]) -> BTreeMap<Domain, BTreeSet<PropertyName>> {
    let mut domains = properties.domains();
    for locations in locations {
        for kind in AddressType::ALL.into_iter().filter(|kind| locations.covers(*kind)) {
            domains.entry(Domain::Address(kind)).or_default().extend(locations.properties().iter().cloned());
        }
    }
    domains
}

/// Returns whether positions of addresses may be known.
fn knows_positions(domains: &BTreeMap<Domain, BTreeSet<PropertyName>>, on_demand: &OnDemandItems) -> bool {
    let of_addresses = domains.iter().filter(|(domain, _)| matches!(domain, Domain::Address(_)));
    let mut known = of_addresses.map(|(_, names)| names).chain([&on_demand.properties]);
    known.any(|names| names.contains(geo::LATITUDE) && names.contains(geo::LONGITUDE))
}

/// Rejects names of network maps that cannot yield valid and unique resource names.
fn check_names<T>(maps: &BTreeMap<ResourceId, T>) -> Result<(), NetworkStateFault> {
    for map in maps.keys() {
        let name = map.as_str();
        let begins_like =
            |other: &ResourceId| name.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('-'));
        if name.len() > MAP_NAME_LENGTH || reserved::OTHERS.contains(&name) || maps.keys().any(begins_like) {
            return Err(NetworkStateFault::MapName { map: map.clone() });
        }
    }
    Ok(())
}

/// Rejects metrics whose resource names would collide.
fn check_metrics<T>(map: &ResourceId, costs: &BTreeMap<CostMetric, T>) -> Result<(), NetworkStateFault> {
    let is_taken = |metric: &&CostMetric| {
        let name = metric.as_str();
        let are_ranks = name.strip_suffix(reserved::ORDINAL).is_some_and(|other| costs.contains_key(other));
        are_ranks || reserved::OF_MAPS.contains(&name)
    };
    match costs.keys().find(is_taken) {
        Some(metric) => Err(NetworkStateFault::MetricName { map: map.clone(), metric: metric.clone() }),
        None => Ok(()),
    }
}

/// Builds the region of `map` with these costs.
fn region(
    map: NetworkMap,
    costs: BTreeMap<CostMetric, Cells>,
    calendars: &BTreeMap<CostMetric, Calendar>,
) -> Result<Region, NetworkStateFault> {
    let mut region = Region { map, costs: BTreeMap::new(), series: BTreeMap::new(), universes: BTreeMap::new() };
    for (metric, cells) in costs {
        let (table, series) = table(&region.map, &metric, cells, calendars.get(&metric))?;
        if !series.is_empty() {
            region.series.insert(metric.clone(), series);
        }
        region.costs.insert(metric, table);
    }
    region.forget_ranks();
    Ok(region)
}

/// Returns the table of costs between PIDs of `map`, and the calendars of those that vary over time.
fn table(
    map: &NetworkMap,
    metric: &CostMetric,
    cells: Cells,
    calendar: Option<&Calendar>,
) -> Result<(CostTable, CostSeries), NetworkStateFault> {
    let number = |pid: &PidName| {
        let no_pid = || NetworkStateFault::NoPid { map: map.id().clone(), metric: metric.clone(), pid: pid.clone() };
        map.number(pid.as_str()).ok_or_else(no_pid)
    };
    let (mut table, mut series) = (CostTable::with_capacity(cells.len()), CostSeries::new());
    for ((src, dst), cost) in cells {
        let pair = (number(&src)?, number(&dst)?);
        table.insert(pair, single(metric, cost.value()));
        if let Some(values) = cost.intervals() {
            check_intervals(metric, calendar, values, || format!("cost map {}, {src} to {dst}", map.id()))?;
            series.insert(pair, Arc::clone(values));
        }
    }
    Ok((table, series))
}
