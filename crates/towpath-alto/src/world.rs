//! The world: all that agents know, put together, checked, and never changed. A new one takes its place.

pub mod check;
mod draft;
mod fault;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use self::draft::Draft;
pub use self::fault::WorldFault;
use crate::{
    address::{AddressType, PrefixMap},
    calendar::Calendar,
    compatibility::Profile,
    cost::{CostContext, CostMode, CostType, ascending, is_whole},
    delegation::{Askable, Delegate, Item},
    entity::{Domain, Entity},
    facts::{self, Cost, Facts, Router},
    geo::{self, Location, Locations, Position},
    names::{CostMetric, PropertyName, ResourceId, RouterName, TopologyName},
    network_map::NetworkMap,
    properties::Properties,
    reserved, routes,
    topology::{Attached, Topology},
};

/// Costs from one numbered place to another, in the unit of their metric.
pub type Table = HashMap<(u32, u32), f64>;

/// Costs in the intervals of the calendar of their metric, from one numbered place to another, where they are told one by one. A [`Table`] has those of the world's time.
pub type Series = HashMap<(u32, u32), Arc<[f64]>>;

/// A network map with the costs between its PIDs.
#[derive(Debug, Clone)]
pub struct Region {
    /// The map.
    pub map: NetworkMap,
    /// By metric; places are numbers of PIDs.
    pub costs: BTreeMap<CostMetric, Table>,
    /// By metric, the same costs over time.
    pub series: BTreeMap<CostMetric, Series>,
    /// By metric, its costs in order, once ranks among them were asked for.
    universes: BTreeMap<CostMetric, OnceLock<Vec<f64>>>,
}

/// Costs between prefixes.
#[derive(Debug, Clone, Default)]
struct Mesh {
    ends: PrefixMap<u32>,
    costs: BTreeMap<CostMetric, Table>,
    series: BTreeMap<CostMetric, Series>,
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
    contexts: BTreeMap<CostMetric, CostContext>,
    calendars: BTreeMap<CostMetric, Calendar>,
    /// The time of which the costs are, in seconds since 1970; none: they are of any.
    at_s: Option<i64>,
    /// Databases of where addresses are; what a later one knows holds.
    locations: Vec<Arc<Locations>>,
    /// The metric of the distance between endpoints, if positions of some are known.
    geo_distance: Option<CostMetric>,
    /// What somebody can be asked for when a request comes.
    pub askable: Askable,
    profile: Option<Profile>,
    /// Agents with which something is wrong, and since when (RFC 3339).
    stale: BTreeMap<String, String>,
}

/// What routers and topologies say of ways.
#[derive(Debug, Clone, Default)]
struct Routing {
    tables: BTreeMap<RouterName, Arc<routes::Table>>,
    /// The routers with these addresses.
    at: BTreeMap<IpAddr, RouterName>,
    /// The routers that serve these prefixes.
    ingress: PrefixMap<RouterName>,
    topologies: BTreeMap<TopologyName, Attached>,
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
    series_of_ends: Option<&'a Series>,
    series_of_pids: Option<&'a Series>,
}

impl World {
    /// The world of what these agents know. What a later one says of the same thing holds.
    ///
    /// # Errors
    /// If their network maps are none, something is told of what is not there, or what no resource may tell.
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a Facts>) -> Result<Self, WorldFault> {
        let mut draft = Draft::default();
        for facts in facts {
            check::facts(facts)?;
            draft.add(facts);
        }
        draft.finish()
    }

    /// The same world, offered in the form of `profile` too.
    ///
    /// # Errors
    /// If the resource that it adds may have the name of another one.
    pub fn compatible(mut self, profile: Profile) -> Result<Self, WorldFault> {
        let name = profile.resource();
        let is_of = |map: &ResourceId| {
            let rest = name.as_str().strip_prefix(map.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if reserved::OTHERS.contains(&name.as_str()) || self.regions.keys().any(is_of) {
            return Err(WorldFault::ProfileName { name: name.clone() });
        }
        self.profile = Some(profile);
        Ok(self)
    }

    /// The same world, of which some agents' knowledge may be out of date: these, since then (RFC 3339).
    #[must_use]
    pub fn with_stale(mut self, agents: impl IntoIterator<Item = (String, String)>) -> Self {
        self.stale = agents.into_iter().collect();
        self
    }

    /// The same world at that time, in seconds since 1970: costs that are told over time are those of its interval, where a calendar has one then, else the mean.
    #[must_use]
    pub fn at(mut self, unix_s: i64) -> Self {
        let calendars = &self.calendars;
        let interval = |metric: &CostMetric| calendars.get(metric)?.interval_at(unix_s);
        for region in self.regions.values_mut() {
            take_costs_of(interval, &mut region.costs, &region.series);
            region.forget_ranks();
        }
        take_costs_of(interval, &mut self.mesh.costs, &self.mesh.series);
        Self { at_s: Some(unix_s), ..self }
    }

    /// When costs will be others because time has passed, in seconds since 1970; none if they never will, or the world has no time.
    pub fn next_interval_s(&self) -> Option<i64> {
        let at_s = self.at_s?;
        let of_regions = self.regions.values().flat_map(|region| region.series.keys());
        let metrics = of_regions.chain(self.mesh.series.keys());
        metrics.filter_map(|metric| self.calendars.get(metric)?.next_after(at_s)).min()
    }

    /// The calendars that tell nothing of the world's time, with whether they are still to begin.
    pub(crate) fn silent_calendars(&self) -> impl Iterator<Item = (&CostMetric, bool)> {
        self.at_s.into_iter().flat_map(|at_s| {
            let silent = self.calendars.iter().filter(move |(_, calendar)| calendar.interval_at(at_s).is_none());
            silent.map(move |(metric, calendar)| (metric, calendar.next_after(at_s).is_some()))
        })
    }

    /// What the meta of each answer begins with (RFC 7285 §8.4.1): `stale-agents`, if there are any.
    pub(crate) fn meta(&self) -> Map<String, Value> {
        let stale = Some(&self.stale).filter(|stale| !stale.is_empty());
        stale.map(|stale| ("stale-agents".to_owned(), json!(stale))).into_iter().collect()
    }

    /// A type of costs as answers describe it (RFC 7285 §10.7): with where its values come from, if an agent tells that (RFC 9439 §3.1).
    pub(crate) fn described(&self, kind: &CostType) -> Value {
        let metric = kind.cost_metric.as_str();
        let base = metric.split(':').next().unwrap_or_default();
        let mut told = json!(kind);
        if let Some(context) = self.contexts.get(metric).or_else(|| self.contexts.get(base)) {
            told["cost-context"] = json!(context);
        }
        told
    }

    /// When the intervals are in which costs of a type are told, if they are.
    pub fn calendar(&self, kind: &CostType) -> Option<&Calendar> {
        self.calendars.get(&kind.cost_metric).filter(|_| kind.cost_mode == CostMode::Numerical)
    }

    /// The form in which it is offered beside that of the RFCs.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
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
        self.mesh.costs.keys().chain(of_pids).chain(&self.geo_distance).chain(&self.askable.metrics).collect()
    }

    /// Whether costs by `metric` that nobody tells are the distances between endpoints ([`geo::DISTANCE`]).
    pub fn is_geo_distance(&self, metric: &CostMetric) -> bool {
        self.geo_distance.as_ref() == Some(metric)
    }

    /// What the databases of locations say of `address`.
    pub fn location(&self, address: IpAddr) -> Option<Location<'_>> {
        self.locations.iter().rev().find_map(|locations| locations.find(address))
    }

    /// What agents tell of a property of an entity, also by a prefix that covers it; if they tell nothing of a single address, `delegate`.
    pub fn told(&self, entity: &Entity, name: &str, delegate: &dyn Delegate) -> Option<Value> {
        let asked = || {
            let name = self.askable.properties.get(name)?;
            delegate.look_up(Item::Property(name.clone(), entity.single_address()?))
        };
        self.properties.get(entity, name).cloned().or_else(asked)
    }

    /// Where on Earth `address` is: as [told](Self::told), else as a database says. Where `null` is told, or one coordinate only, it is not known.
    pub fn position(&self, address: IpAddr, delegate: &dyn Delegate) -> Option<Position> {
        let entity = Entity::Address(address.into());
        let told = |name: &str| self.told(&entity, name, delegate);
        match (told(geo::LATITUDE), told(geo::LONGITUDE)) {
            (None, None) => self.location(address)?.position(),
            (latitude, longitude) => Position::new(latitude?.as_f64()?, longitude?.as_f64()?),
        }
    }

    /// Where `address` is.
    pub fn place(&self, address: IpAddr) -> Place {
        let prefix: IpNet = address.into();
        let mut ends: Vec<u32> = self.mesh.ends.cover_values(&prefix).copied().collect();
        ends.reverse();
        Place { ends, pid: self.default_region().and_then(|region| region.map.locate(address)) }
    }

    /// Whether routes of a router are known.
    pub fn has_routes(&self) -> bool {
        !self.routing.tables.is_empty()
    }

    /// Whether something is known of ways between addresses: routes, or topologies with something attached to them.
    pub fn has_ways(&self) -> bool {
        self.has_routes() || self.routing.topologies.values().any(|topology| !topology.is_empty())
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

    /// The topology of that name.
    pub fn topology(&self, name: &TopologyName) -> Option<&Topology> {
        self.routing.topologies.get(name).map(Attached::topology)
    }

    /// The topologies in the order of their names.
    pub fn topologies(&self) -> impl Iterator<Item = &Topology> {
        self.routing.topologies.values().map(Attached::topology)
    }

    /// The topologies to which `address` is attached, in the order of their names, with the number of its node in each.
    pub fn attachments(&self, address: IpAddr) -> impl Iterator<Item = (&TopologyName, u32)> {
        let topologies = self.routing.topologies.iter();
        topologies.filter_map(move |(name, topology)| Some((name, topology.node_of(address)?)))
    }

    /// Where to look up costs of `metric`.
    pub fn scale(&self, metric: &CostMetric) -> Scale<'_> {
        let region = self.default_region();
        Scale {
            between_ends: self.mesh.costs.get(metric),
            between_pids: region.and_then(|region| region.costs.get(metric)),
            series_of_ends: self.mesh.series.get(metric),
            series_of_pids: region.and_then(|region| region.series.get(metric)),
        }
    }
}

impl Region {
    /// The costs by `metric`, each once, the least first: a rank is a place among them. They are put in order once.
    pub fn universe(&self, metric: &CostMetric) -> Option<&[f64]> {
        let table = self.costs.get(metric)?;
        Some(self.universes.get(metric)?.get_or_init(|| ascending(table.values().copied())))
    }

    /// To be called when costs are others.
    fn forget_ranks(&mut self) {
        self.universes = self.costs.keys().map(|metric| (metric.clone(), OnceLock::new())).collect();
    }
}

impl<'a> Scale<'a> {
    /// The cost from one place to another: that between the longest prefixes that have one, else that between their PIDs.
    pub fn cost(self, from: &Place, to: &Place) -> Option<f64> {
        let between_pids = || self.between_pids?.get(&(from.pid?, to.pid?)).copied();
        self.between_ends(from, to).map(|(_, cost)| cost).or_else(between_pids)
    }

    /// The same cost in the intervals of its calendar, if it is told so.
    pub fn series(self, from: &Place, to: &Place) -> Option<&'a [f64]> {
        let series = match self.between_ends(from, to) {
            Some((pair, _)) => self.series_of_ends?.get(&pair),
            None => self.series_of_pids?.get(&(from.pid?, to.pid?)),
        };
        series.map(|series| &**series)
    }

    /// The cost between the longest prefixes that have one, and their numbers.
    fn between_ends(self, from: &Place, to: &Place) -> Option<((u32, u32), f64)> {
        let table = self.between_ends?;
        let mut pairs = from.ends.iter().flat_map(|from| to.ends.iter().map(move |to| (*from, *to)));
        pairs.find_map(|pair| Some((pair, *table.get(&pair)?)))
    }
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

    /// Sets the cost of a pair; what was told of it before is over, also over time.
    fn insert(&mut self, metric: &CostMetric, pair: (u32, u32), cost: &Cost) {
        self.costs.entry(metric.clone()).or_default().insert(pair, single(metric, cost.value()));
        if let Some(intervals) = cost.intervals() {
            self.series.entry(metric.clone()).or_default().insert(pair, Arc::clone(intervals));
        } else if let Some(series) = self.series.get_mut(metric) {
            series.remove(&pair);
        }
    }

    /// Refuses costs that are told over other intervals than those of the calendar of their metric.
    fn check(&self, calendars: &BTreeMap<CostMetric, Calendar>) -> Result<(), WorldFault> {
        for (metric, series) in &self.series {
            let calendar = calendars.get(metric);
            let expected = calendar.map(Calendar::intervals);
            // The first of them, so that the same facts are always refused with the same words.
            let wrong = series.iter().filter(|(_, told)| Some(told.len()) != expected).min_by_key(|(pair, _)| **pair);
            if let Some(((src, dst), told)) = wrong {
                let pair = || format!("{} to {}", self.prefix(*src), self.prefix(*dst));
                check_intervals(metric, calendar, told, pair)?;
            }
        }
        Ok(())
    }

    /// The prefix that is the end of that number.
    fn prefix(&self, number: u32) -> IpNet {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| **end == number).expect("whatever has a number has a prefix").0
    }
}

/// Makes costs that are told over time those of that interval of their metric, or the mean if there is none.
fn take_costs_of(
    interval: impl Fn(&CostMetric) -> Option<usize>,
    costs: &mut BTreeMap<CostMetric, Table>,
    series: &BTreeMap<CostMetric, Series>,
) {
    for (metric, series) in series {
        let interval = interval(metric);
        let cost = |told: &[f64]| interval.map_or_else(|| single(metric, facts::mean(told)), |at| told[at]);
        let now = series.iter().map(|(pair, told)| (*pair, cost(told)));
        costs.entry(metric.clone()).or_default().extend(now);
    }
}

/// A cost, or the mean of several, as one cost by `metric`.
fn single(metric: &CostMetric, cost: f64) -> f64 {
    if is_whole(metric.as_str()) { cost.round() } else { cost }
}

/// Refuses costs that are told over other intervals than those of the `calendar` of their metric.
fn check_intervals(
    metric: &CostMetric,
    calendar: Option<&Calendar>,
    told: &[f64],
    pair: impl FnOnce() -> String,
) -> Result<(), WorldFault> {
    match calendar.map(Calendar::intervals) {
        Some(expected) if told.len() == expected => Ok(()),
        Some(expected) => {
            Err(WorldFault::Intervals { metric: metric.clone(), pair: pair(), told: told.len(), expected })
        }
        None => Err(WorldFault::NoCalendar { metric: metric.clone(), pair: pair() }),
    }
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
    fn names_of_metrics_leave_those_of_other_resources_alone() {
        let map = "[network-map.m]\nP = [\"0.0.0.0/0\"]\n";
        let world = |costs: &str| World::of([&Facts::parse(&format!("{map}{costs}")).unwrap()]);
        for (costs, metric) in [
            ("[cost-map.m.filtered.P]\nP = 1", "filtered"),
            ("[cost-map.m.costs.P]\nP = 1", "costs"),
            ("[cost-map.m.path-vector.P]\nP = 1", "path-vector"),
            ("[cost-map.m.x.P]\nP = 1\n[cost-map.m.x-ordinal.P]\nP = 1", "x-ordinal"),
        ] {
            let fault = world(costs).unwrap_err().to_string();
            assert!(fault.contains(&format!("cost map m: call metric {metric} otherwise")), "{fault}");
        }
        assert!(world("[cost-map.m.x-ordinal.P]\nP = 1").is_ok(), "there is no x");
    }

    #[test]
    fn q1_hops_are_counted_in_whole_numbers() {
        let calendar = "start = '2026-01-05T00:00:00Z'\ntime-interval-size = 60\nnumber-of-intervals = 2";
        let facts = |hops: &str| {
            let costs = format!("[network-map.m]\nP = ['0.0.0.0/0']\n[cost-map.m.hopcount]\nP = {{ P = {hops} }}");
            Facts::parse(&format!("{costs}\n[calendars.hopcount]\n{calendar}")).unwrap()
        };
        for hops in ["2.5", "[1, 2.5]"] {
            let fault = World::of([&facts(hops)]).unwrap_err().to_string();
            assert!(fault.starts_with("costs by hopcount, cost map m, P to P: RFC 9439"), "{fault}");
        }
        let world = World::of([&facts("[1, 2]")]).unwrap();
        assert_eq!(cost(&world, "hopcount", "192.0.2.1", "192.0.2.2"), Some(2.0), "the mean is rounded");
        assert_eq!(cost(&world.at(0), "hopcount", "192.0.2.1", "192.0.2.2"), Some(2.0));
        let between = Facts::parse("[[costs]]\nsrc = '::1'\ndst = '::2'\n'hopcount:mean' = 0.5");
        assert!(World::of([&between.unwrap()]).unwrap_err().to_string().contains("hopcount:mean, ::1/128 to ::2/128"));
    }

    #[test]
    fn v6_what_can_be_reserved_is_a_number() {
        let world = |value: &str| {
            let facts = format!(r#"{{"properties": {{".ane:L1": {{"max-reservable-bandwidth": {value}}}}}}}"#);
            World::of([&Facts::parse(&facts).unwrap()])
        };
        for value in ["\"fast\"", "null", "-1", "[1]"] {
            let fault = world(value).unwrap_err().to_string();
            assert_eq!(
                fault,
                "properties of .ane:L1: max-reservable-bandwidth is a number of bits per second, 0 or more"
            );
        }
        assert!(world("0").is_ok() && world("1.5e11").is_ok());
    }

    #[test]
    fn c4_names_have_no_dots() {
        for (facts, told) in [
            ("[network-map.'a.b']\nP = ['0.0.0.0/0']", "network map a.b: call it otherwise"),
            ("[network-map.m]\n'P.1' = ['0.0.0.0/0']", "PID P.1: call it otherwise"),
            ("[properties.'.ane:L.1']\nx = 1", "element L.1: call it otherwise"),
        ] {
            let fault = World::of([&Facts::parse(facts).unwrap()]).unwrap_err().to_string();
            assert!(fault.starts_with(told), "{fault}");
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
            (
                "[properties.\"x.ane:L1\"]\na = 1",
                "properties of x.ane:L1: no resource of that name tells of elements; begin it with .ane",
            ),
        ] {
            assert_eq!(World::of([&Facts::parse(text).unwrap()]).unwrap_err().to_string(), told);
        }
    }
}
