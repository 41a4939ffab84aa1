//! The world: all that agents know, put together, checked, and never changed. A new one takes its place.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use ipnet::IpNet;

use crate::{
    address::{AddressType, PrefixMap},
    directory,
    entity::{Domain, Entity},
    facts::{Cost, Facts, Router},
    names::{CostMetric, PidName, PropertyName, ResourceId, RouterName, VersionTag},
    network_map::{MapFault, NetworkMap},
    properties::Properties,
    resource::Answer,
    routes,
};

/// Why what agents know makes no world; the operator's fault, or an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldFault {
    /// A network map is none.
    #[error(transparent)]
    Map(#[from] MapFault),
    /// A network map has a name that others are made of.
    #[error(
        "network map {map}: call it otherwise: at most {MAP_NAME_LENGTH} characters, not as another resource, nor as another map with a dash behind it"
    )]
    MapName {
        /// Its name.
        map: ResourceId,
    },
    /// Properties are told of a PID that is not there.
    #[error("properties of {entity}: there is no such PID")]
    NoEntity {
        /// What is spoken of.
        entity: Entity,
    },
    /// Costs are told of a network map that nobody tells.
    #[error("cost map {map}: there is no network map of that name")]
    NoMap {
        /// Its name.
        map: ResourceId,
    },
    /// Costs are told of a PID that its network map does not have.
    #[error("cost map {map}, {metric}: the network map has no PID {pid}")]
    NoPid {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
        /// The PID.
        pid: PidName,
    },
}

/// Costs from one numbered place to another, in the unit of their metric.
pub type Table = HashMap<(u32, u32), f64>;

/// A network map with the costs between its PIDs.
#[derive(Debug, Clone)]
pub struct Region {
    /// The map.
    pub map: NetworkMap,
    /// By metric; places are numbers of PIDs.
    pub costs: BTreeMap<CostMetric, Table>,
}

/// Costs between prefixes.
#[derive(Debug, Clone, Default)]
struct Mesh {
    ends: PrefixMap<u32>,
    costs: BTreeMap<CostMetric, Table>,
}

/// All that is known of the network at one time.
#[derive(Debug, Clone, Default)]
pub struct World {
    regions: BTreeMap<ResourceId, Region>,
    mesh: Mesh,
    /// What is known of entities.
    pub properties: Properties,
    /// The domains of these entities, with the names of what is known of them.
    pub domains: BTreeMap<Domain, BTreeSet<PropertyName>>,
    routing: Routing,
    /// What is told of all entities, once it was asked for.
    pub(crate) property_map: OnceLock<(Answer, VersionTag)>,
}

/// What routers say.
#[derive(Debug, Clone, Default)]
struct Routing {
    tables: BTreeMap<RouterName, Arc<routes::Table>>,
    /// The routers with these addresses.
    at: BTreeMap<IpAddr, RouterName>,
    /// The routers that serve these prefixes.
    ingress: PrefixMap<RouterName>,
}

/// Where an address is, as far as costs are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The numbers of the prefixes with costs that cover it, the longest first.
    ends: Vec<u32>,
    /// The number of its PID in the default map.
    pid: Option<u32>,
}

/// Where to look up the costs of one metric between places.
#[derive(Debug, Clone, Copy)]
pub struct Scale<'a> {
    between_ends: Option<&'a Table>,
    between_pids: Option<&'a Table>,
}

impl World {
    /// The world of what these agents know. What a later one says of the same thing holds.
    ///
    /// # Errors
    /// If their network maps are none, or costs are told of what is not there.
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a Facts>) -> Result<Self, WorldFault> {
        let mut draft = Draft::default();
        facts.into_iter().for_each(|facts| draft.add(facts));
        draft.finish()
    }

    /// The network maps with their costs.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// The region of that network map.
    pub fn region(&self, map: &str) -> Option<&Region> {
        self.regions.get(map)
    }

    /// The map that clients should take: `default`, else the first by name.
    pub fn default_region(&self) -> Option<&Region> {
        self.region("default").or_else(|| self.regions.values().next())
    }

    /// The metrics of which there are costs between addresses.
    pub fn metrics(&self) -> BTreeSet<&CostMetric> {
        let of_pids = self.default_region().into_iter().flat_map(|region| region.costs.keys());
        self.mesh.costs.keys().chain(of_pids).collect()
    }

    /// Where `address` is.
    pub fn place(&self, address: IpAddr) -> Place {
        let prefix: IpNet = address.into();
        let mut ends: Vec<u32> = self.mesh.ends.cover_values(&prefix).copied().collect();
        ends.reverse();
        Place { ends, pid: self.default_region().and_then(|region| region.map.locate(address)) }
    }

    /// Whether something is known of routes.
    pub fn has_routes(&self) -> bool {
        !self.routing.tables.is_empty()
    }

    /// The router whose routes traffic from `address` takes; where there is one router, that one.
    pub fn router_of(&self, address: IpAddr) -> Option<&RouterName> {
        let served = self.routing.ingress.get_lpm(&address.into()).map(|(_, router)| router);
        let only = || Some(self.routing.tables.keys().next()?).filter(|_| self.routing.tables.len() == 1);
        served.or_else(only)
    }

    /// The router with that address.
    pub fn router_at(&self, address: IpAddr) -> Option<&RouterName> {
        self.routing.at.get(&address)
    }

    /// The routes of a router.
    pub fn table(&self, router: &RouterName) -> Option<&routes::Table> {
        self.routing.tables.get(router).map(|routes| &**routes)
    }

    /// Where to look up costs of `metric`.
    pub fn scale(&self, metric: &CostMetric) -> Scale<'_> {
        Scale {
            between_ends: self.mesh.costs.get(metric),
            between_pids: self.default_region().and_then(|region| region.costs.get(metric)),
        }
    }
}

impl Scale<'_> {
    /// The cost from one place to another: that between the longest prefixes that have one, else that between their PIDs.
    pub fn cost(self, from: &Place, to: &Place) -> Option<f64> {
        let between_ends = self.between_ends.and_then(|table| {
            let pairs = from.ends.iter().flat_map(|from| to.ends.iter().map(move |to| (*from, *to)));
            pairs.filter_map(|pair| table.get(&pair)).next()
        });
        let between_pids = || self.between_pids?.get(&(from.pid?, to.pid?));
        between_ends.or_else(between_pids).copied()
    }
}

/// Costs between PIDs by their names.
type Cells = BTreeMap<(PidName, PidName), Cost>;

/// A world that is being put together.
#[derive(Default)]
struct Draft {
    maps: BTreeMap<ResourceId, BTreeMap<PidName, BTreeSet<IpNet>>>,
    costs: BTreeMap<ResourceId, BTreeMap<CostMetric, Cells>>,
    mesh: Mesh,
    properties: Properties,
    routing: Routing,
}

impl Draft {
    fn add(&mut self, facts: &Facts) {
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
                let cells = rows.map(|((src, dst), cost)| ((src.clone(), dst.clone()), *cost));
                costs.entry(metric.clone()).or_default().extend(cells);
            }
        }
        for (entity, properties) in &facts.properties {
            for (name, value) in properties {
                self.properties.insert(entity.clone(), name.clone(), value.clone());
            }
        }
        for (name, router) in &facts.routers {
            self.routing.add(name, router);
        }
        for costs in &facts.costs {
            let pair = (self.mesh.end(costs.src.0), self.mesh.end(costs.dst.0));
            for (metric, cost) in &costs.values {
                self.mesh.costs.entry(metric.clone()).or_default().insert(pair, cost.value());
            }
        }
    }

    fn finish(mut self) -> Result<World, WorldFault> {
        let mut regions = BTreeMap::new();
        check_names(&self.maps)?;
        for (id, pids) in self.maps {
            let map = NetworkMap::new(id.clone(), pids)?;
            let costs = self.costs.remove(&id).unwrap_or_default();
            let costs = costs.into_iter().map(|(metric, cells)| Ok((metric.clone(), table(&map, &metric, cells)?)));
            let costs = costs.collect::<Result<_, WorldFault>>()?;
            regions.insert(id, Region { map, costs });
        }
        if let Some(map) = self.costs.into_keys().next() {
            return Err(WorldFault::NoMap { map });
        }
        let is_missing = |entity: &&Entity| match entity {
            Entity::Pid(map, pid) => {
                regions.get(map).is_none_or(|region: &Region| region.map.number(pid.as_str()).is_none())
            }
            _ => false,
        };
        if let Some(entity) = self.properties.others().find(is_missing) {
            return Err(WorldFault::NoEntity { entity: entity.clone() });
        }
        let domains = self.properties.domains();
        let Self { mesh, properties, routing, .. } = self;
        Ok(World { regions, mesh, properties, domains, routing, property_map: OnceLock::new() })
    }
}

/// The longest name of a network map: with a metric of 32 characters and a mode it still is a resource id.
const MAP_NAME_LENGTH: usize = 20;

/// Refuses names of network maps of which the resources' names could not be made.
fn check_names<T>(maps: &BTreeMap<ResourceId, T>) -> Result<(), WorldFault> {
    for map in maps.keys() {
        let name = map.as_str();
        let begins_like =
            |other: &ResourceId| name.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('-'));
        if name.len() > MAP_NAME_LENGTH || directory::OTHERS.contains(&name) || maps.keys().any(begins_like) {
            return Err(WorldFault::MapName { map: map.clone() });
        }
    }
    Ok(())
}

impl Routing {
    fn add(&mut self, name: &RouterName, router: &Router) {
        if let Some(routes) = &router.routes {
            self.tables.insert(name.clone(), Arc::clone(routes));
        }
        self.at.extend(router.addresses.iter().map(|address| (*address, name.clone())));
        let everything = AddressType::ALL.into_iter().filter(|_| router.default).map(AddressType::everything);
        for prefix in router.serves.iter().map(|prefix| prefix.0).chain(everything) {
            self.ingress.insert(prefix, name.clone());
        }
    }
}

impl Mesh {
    /// The number of the end that `prefix` is.
    fn end(&mut self, prefix: IpNet) -> u32 {
        if let Some(number) = self.ends.get(&prefix) {
            return *number;
        }
        let number = u32::try_from(self.ends.len()).expect("memory ends before numbers do");
        self.ends.insert(prefix, number);
        number
    }
}

/// The table of costs between PIDs of `map`.
fn table(map: &NetworkMap, metric: &CostMetric, cells: Cells) -> Result<Table, WorldFault> {
    let number = |pid: &PidName| {
        let no_pid = || WorldFault::NoPid { map: map.id().clone(), metric: metric.clone(), pid: pid.clone() };
        map.number(pid.as_str()).ok_or_else(no_pid)
    };
    cells.into_iter().map(|((src, dst), cost)| Ok(((number(&src)?, number(&dst)?), cost.value()))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The network map of RFC 7285 §11.2.1.7 and the cost map of §11.2.3.7, with measured delays and a property.
    pub(crate) const EXAMPLE: &str = r#"
        [network-map.default]
        PID1 = ["192.0.2.0/24", "198.51.100.0/25"]
        PID2 = ["198.51.100.128/25"]
        PID3 = ["0.0.0.0/0", "::/0"]
        [cost-map.default.routingcost]
        PID1 = { PID1 = 1, PID2 = 5, PID3 = 10 }
        PID2 = { PID1 = 5, PID2 = 1, PID3 = 15 }
        PID3 = { PID1 = 20, PID2 = 15 }
        [cost-map.default.hopcount]
        PID1 = { PID2 = 3 }
        [properties."ipv4:192.0.2.0/24"]
        country = "CH"
        [[costs]]
        src = "192.0.2.0/24"
        dst = "198.51.100.0/24"
        delay-ow = 5300
        [[costs]]
        src = "192.0.2.1"
        dst = "198.51.100.0/24"
        delay-ow = 5000
        hopcount = 2
    "#;

    pub(crate) fn example() -> World {
        World::of([&Facts::parse(EXAMPLE).unwrap()]).unwrap()
    }

    fn cost(world: &World, metric: &str, from: &str, to: &str) -> Option<f64> {
        let place = |text: &str| world.place(text.parse().unwrap());
        world.scale(&CostMetric::new(metric).unwrap()).cost(&place(from), &place(to))
    }

    #[test]
    fn the_longest_prefixes_with_a_cost_hold_and_then_pids() {
        let world = example();
        assert_eq!(cost(&world, "delay-ow", "192.0.2.1", "198.51.100.7"), Some(5000.0));
        assert_eq!(cost(&world, "delay-ow", "192.0.2.2", "198.51.100.7"), Some(5300.0));
        assert_eq!(cost(&world, "delay-ow", "198.51.100.7", "192.0.2.1"), None);
        assert_eq!(cost(&world, "hopcount", "192.0.2.1", "198.51.100.200"), Some(2.0));
        assert_eq!(cost(&world, "hopcount", "192.0.2.9", "198.51.100.200"), Some(3.0));
        assert_eq!(cost(&world, "routingcost", "203.0.113.1", "192.0.2.1"), Some(20.0));
        assert_eq!(cost(&world, "routingcost", "203.0.113.1", "2001:db8::1"), None);
    }

    #[test]
    fn what_a_later_agent_says_holds() {
        let mut later = Facts::default();
        let facts = Facts::parse(EXAMPLE).unwrap();
        later.costs.push(facts.costs[0].clone());
        later.costs[0].values.insert(CostMetric::new("delay-ow").unwrap(), Cost::new(1.0).unwrap());
        let world = World::of([&facts, &later]).unwrap();
        assert_eq!(cost(&world, "delay-ow", "192.0.2.2", "198.51.100.7"), Some(1.0));
        assert_eq!(world.region("default").unwrap().map.len(), 3);
    }

    #[test]
    fn names_of_maps_leave_room_for_those_of_their_resources() {
        for names in [&["directory"][..], &["endpoint-costs"], &["a", "a-b"], &["x23456789012345678901"]] {
            let maps = names.iter().map(|name| format!("[network-map.{name}]\nP = [\"0.0.0.0/0\"]\n"));
            let fault = World::of([&Facts::parse(&maps.collect::<String>()).unwrap()]).unwrap_err();
            assert!(fault.to_string().contains("call it otherwise"), "{fault}");
        }
    }

    #[test]
    fn what_agents_say_of_one_router_is_put_together() {
        let routes = Facts::parse("[routers.x]\nroutes = [{ prefix = \"10.0.0.0/8\" }]").unwrap();
        let serves =
            Facts::parse("[routers.x]\nserves = [\"10.1.0.0/16\"]\n[routers.y]\nserves = [\"10.2.0.0/16\"]").unwrap();
        let world = World::of([&routes, &serves]).unwrap();
        let router = world.router_of("10.1.0.1".parse().unwrap()).unwrap();
        assert_eq!(world.table(router).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_there_has_no_costs() {
        for (text, told) in [
            ("[cost-map.x.hopcount]", "cost map x: there is no network map of that name"),
            (
                "[network-map.x]\nP = [\"0.0.0.0/0\"]\n[cost-map.x.hopcount.P]\nQ = 1",
                "cost map x, hopcount: the network map has no PID Q",
            ),
            ("[properties.\"x.pid:P\"]\na = 1", "properties of x.pid:P: there is no such PID"),
        ] {
            assert_eq!(World::of([&Facts::parse(text).unwrap()]).unwrap_err().to_string(), told);
        }
    }
}
