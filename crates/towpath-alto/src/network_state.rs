//! The network state: the facts of all agents, merged, validated and immutable. Changes produce a new state that
//! replaces it.

mod builder;
pub mod check;
mod fault;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use self::builder::NetworkStateBuilder;
pub use self::fault::NetworkStateFault;
use crate::{
    address::{AddressType, PrefixMap},
    agent_state::{self, AgentState, Cost, Router},
    calendar::Calendar,
    compatibility::Profile,
    cost::{CostContext, CostMode, CostType, is_whole, sort_distinct},
    delegation::{Delegate, Item, OnDemandItems},
    entity::{Domain, Entity},
    geo::{self, Location, Locations, Position},
    names::{CostMetric, PropertyName, ResourceId, RouterName, TopologyName},
    network_map::NetworkMap,
    properties::Properties,
    reserved, routes,
    topology::{AttachedTopology, Topology},
};

/// Costs between numbered ends, in the unit of the metric.
pub type CostTable = HashMap<(u32, u32), f64>;

/// Calendars of costs between numbered ends that vary over time. The [`CostTable`] holds the values at the time of the
/// state.
pub type CostSeries = HashMap<(u32, u32), Arc<[f64]>>;

/// A network map with the costs between its PIDs.
#[derive(Debug, Clone)]
pub struct Region {
    /// The map.
    pub map: NetworkMap,
    /// Costs by metric, between PID indices.
    pub costs: BTreeMap<CostMetric, CostTable>,
    /// Calendars of these costs by metric.
    pub series: BTreeMap<CostMetric, CostSeries>,
    /// Sorted costs by metric, computed when first needed for ranks.
    universes: BTreeMap<CostMetric, OnceLock<Vec<f64>>>,
}

/// Costs between prefixes.
#[derive(Debug, Clone, Default)]
struct PrefixCosts {
    ends: PrefixMap<u32>,
    costs: BTreeMap<CostMetric, CostTable>,
    series: BTreeMap<CostMetric, CostSeries>,
}

/// All facts about the network at one time.
#[derive(Debug, Clone, Default)]
pub struct NetworkState {
    regions: BTreeMap<ResourceId, Region>,
    mesh: PrefixCosts,
    /// Properties of entities.
    pub properties: Properties,
    /// Domains of these entities, with the names of their properties.
    pub domains: BTreeMap<Domain, BTreeSet<PropertyName>>,
    routing: Routing,
    contexts: BTreeMap<CostMetric, CostContext>,
    calendars: BTreeMap<CostMetric, Calendar>,
    /// Time for which costs are valid, in seconds since 1970; `None` if unspecified.
    at_s: Option<i64>,
    /// Location databases; later ones take precedence.
    locations: Vec<Arc<Locations>>,
    /// Metric for the distance between endpoints, if any positions are known.
    geo_distance: Option<CostMetric>,
    /// Facts that a delegate can supply on request.
    pub on_demand: OnDemandItems,
    profile: Option<Profile>,
    /// Stale agents, and since when (RFC 3339).
    stale: BTreeMap<String, String>,
}

/// Routes and topologies.
#[derive(Debug, Clone, Default)]
struct Routing {
    tables: BTreeMap<RouterName, Arc<routes::RouteTable>>,
    /// Routers by their addresses.
    at: BTreeMap<IpAddr, RouterName>,
    /// Routers that serve each prefix.
    ingress: PrefixMap<RouterName>,
    topologies: BTreeMap<TopologyName, AttachedTopology>,
}

/// Position of an address in the cost tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostPosition {
    /// Indices of the prefixes with costs that cover it, longest first.
    ends: Vec<u32>,
    /// Index of its PID in the default map.
    pid: Option<u32>,
}

/// Cost tables of one metric.
#[derive(Debug, Clone, Copy)]
pub struct MetricCosts<'a> {
    between_ends: Option<&'a CostTable>,
    between_pids: Option<&'a CostTable>,
    series_of_ends: Option<&'a CostSeries>,
    series_of_pids: Option<&'a CostSeries>,
}

impl NetworkState {
    /// Merges the facts of agents. Later agents take precedence.
    ///
    /// # Errors
    /// Returns an error if a network map is invalid, facts refer to unknown objects, or facts cannot be represented by
    /// any resource.
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a AgentState>) -> Result<Self, NetworkStateFault> {
        let mut builder = NetworkStateBuilder::default();
        for facts in facts {
            check::facts(facts)?;
            builder.add(facts);
        }
        builder.finish()
    }

    /// Also offers the state in the format of `profile`.
    ///
    /// # Errors
    /// Returns an error if the added resource could have the name of another one.
    pub fn compatible(mut self, profile: Profile) -> Result<Self, NetworkStateFault> {
        let name = profile.resource();
        let is_of = |map: &ResourceId| {
            let rest = name.as_str().strip_prefix(map.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if reserved::OTHERS.contains(&name.as_str()) || self.regions.keys().any(is_of) {
            return Err(NetworkStateFault::ProfileName { name: name.clone() });
        }
        self.profile = Some(profile);
        Ok(self)
    }

    /// Marks the facts of these agents as possibly stale, since the given times (RFC 3339).
    #[must_use]
    pub fn with_stale(mut self, agents: impl IntoIterator<Item = (String, String)>) -> Self {
        self.stale = agents.into_iter().collect();
        self
    }

    /// Returns the stale agents, and since when (RFC 3339).
    pub fn stale_agents(&self) -> &BTreeMap<String, String> {
        &self.stale
    }

    /// Sets the time, in seconds since 1970: costs that vary over time take the value of the current interval, or their
    /// mean if the calendar does not cover the time.
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

    /// Returns when costs change next because time passes, in seconds since 1970. Returns `None` if they never do, or
    /// if the state has no time.
    pub fn next_interval_s(&self) -> Option<i64> {
        let at_s = self.at_s?;
        let of_regions = self.regions.values().flat_map(|region| region.series.keys());
        let metrics = of_regions.chain(self.mesh.series.keys());
        metrics.filter_map(|metric| self.calendars.get(metric)?.next_after(at_s)).min()
    }

    /// Returns the calendars that do not cover the current time, and whether they start later.
    pub(crate) fn silent_calendars(&self) -> impl Iterator<Item = (&CostMetric, bool)> {
        self.at_s.into_iter().flat_map(|at_s| {
            let silent = self.calendars.iter().filter(move |(_, calendar)| calendar.interval_at(at_s).is_none());
            silent.map(move |(metric, calendar)| (metric, calendar.next_after(at_s).is_some()))
        })
    }

    /// Returns the members common to the `meta` of all responses (RFC 7285 §8.4.1): `stale-agents`, if there are any.
    pub(crate) fn meta(&self) -> Map<String, Value> {
        let stale = Some(&self.stale).filter(|stale| !stale.is_empty());
        stale.map(|stale| ("stale-agents".to_owned(), json!(stale))).into_iter().collect()
    }

    /// Returns the description of a cost type (RFC 7285 §10.7), including the origin of its values if known (RFC 9439
    /// §3.1).
    pub(crate) fn describe(&self, kind: &CostType) -> Value {
        let metric = kind.cost_metric.as_str();
        let base = metric.split(':').next().unwrap_or_default();
        let mut description = json!(kind);
        if let Some(context) = self.contexts.get(metric).or_else(|| self.contexts.get(base)) {
            description["cost-context"] = json!(context);
        }
        description
    }

    /// Returns the calendar of a cost type, if its costs vary over time.
    pub fn calendar(&self, kind: &CostType) -> Option<&Calendar> {
        self.calendars.get(&kind.cost_metric).filter(|_| kind.cost_mode == CostMode::Numerical)
    }

    /// Returns the compatibility profile.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Returns the network maps with their costs.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// Returns the region of a network map.
    pub fn region(&self, map: &str) -> Option<&Region> {
        self.regions.get(map)
    }

    /// Returns the map that clients should use: `default`, else the first by name.
    pub fn default_region(&self) -> Option<&Region> {
        self.region("default").or_else(|| self.regions.values().next())
    }

    /// Returns the metrics for which costs between addresses exist.
    pub fn metrics(&self) -> BTreeSet<&CostMetric> {
        let of_pids = self.default_region().into_iter().flat_map(|region| region.costs.keys());
        self.mesh.costs.keys().chain(of_pids).chain(&self.geo_distance).chain(&self.on_demand.metrics).collect()
    }

    /// Returns whether `metric` defaults to the distance between endpoints ([`geo::DISTANCE`]).
    pub(crate) fn is_geo_distance(&self, metric: &CostMetric) -> bool {
        self.geo_distance.as_ref() == Some(metric)
    }

    /// Returns the location of `address` from the databases.
    pub fn location(&self, address: IpAddr) -> Option<Location<'_>> {
        self.locations.iter().rev().find_map(|locations| locations.find(address))
    }

    /// Returns a property of an entity from the agents, own or inherited from a prefix. For a single address without a
    /// value it queries `delegate`.
    pub(crate) fn property_value(&self, entity: &Entity, name: &str, delegate: &dyn Delegate) -> Option<Value> {
        let delegated = || {
            let name = self.on_demand.properties.get(name)?;
            delegate.look_up(Item::Property(name.clone(), entity.single_address()?))
        };
        self.properties.get(entity, name).cloned().or_else(delegated)
    }

    /// Returns the geographic position of `address`: from [agents or delegates](Self::property_value), else from the
    /// databases. Unknown if an agent sets `null`, or only one coordinate.
    pub fn position(&self, address: IpAddr, delegate: &dyn Delegate) -> Option<Position> {
        let entity = Entity::Address(address.into());
        let coordinate = |name: &str| self.property_value(&entity, name, delegate);
        match (coordinate(geo::LATITUDE), coordinate(geo::LONGITUDE)) {
            (None, None) => self.location(address)?.position(),
            (latitude, longitude) => Position::new(latitude?.as_f64()?, longitude?.as_f64()?),
        }
    }

    /// Returns the position of `address` in the cost tables.
    pub fn place(&self, address: IpAddr) -> CostPosition {
        let prefix: IpNet = address.into();
        let mut ends: Vec<u32> = self.mesh.ends.cover_values(&prefix).copied().collect();
        ends.reverse();
        CostPosition { ends, pid: self.default_region().and_then(|region| region.map.locate(address)) }
    }

    /// Returns whether any router's routes are known.
    pub fn has_routes(&self) -> bool {
        !self.routing.tables.is_empty()
    }

    /// Returns whether paths between addresses may be known: from routes, or topologies with attached prefixes.
    pub(crate) fn has_paths(&self) -> bool {
        self.has_routes() || self.routing.topologies.values().any(|topology| !topology.is_empty())
    }

    /// Returns the router whose routes traffic from `address` takes; if there is only one router, that one.
    pub(crate) fn router_of(&self, address: IpAddr) -> Option<&RouterName> {
        let served = self.routing.ingress.get_lpm(&address.into()).map(|(_, router)| router);
        let only = || Some(self.routing.tables.keys().next()?).filter(|_| self.routing.tables.len() == 1);
        served.or_else(only)
    }

    /// Returns the router with this address.
    pub(crate) fn router_at(&self, address: IpAddr) -> Option<&RouterName> {
        self.routing.at.get(&address)
    }

    /// Returns the routes of a router.
    pub fn table(&self, router: &RouterName) -> Option<&routes::RouteTable> {
        self.routing.tables.get(router).map(|routes| &**routes)
    }

    /// Returns a topology.
    pub fn topology(&self, name: &TopologyName) -> Option<&Topology> {
        self.routing.topologies.get(name).map(AttachedTopology::topology)
    }

    /// Returns the topologies in the order of their names.
    pub(crate) fn topologies(&self) -> impl Iterator<Item = &Topology> {
        self.routing.topologies.values().map(AttachedTopology::topology)
    }

    /// Returns the topologies that `address` is attached to, in the order of their names, with the index of its node in
    /// each.
    pub(crate) fn attachments(&self, address: IpAddr) -> impl Iterator<Item = (&TopologyName, u32)> {
        let topologies = self.routing.topologies.iter();
        topologies.filter_map(move |(name, topology)| Some((name, topology.node_of(address)?)))
    }

    /// Returns the cost tables of `metric`.
    pub fn scale(&self, metric: &CostMetric) -> MetricCosts<'_> {
        let region = self.default_region();
        MetricCosts {
            between_ends: self.mesh.costs.get(metric),
            between_pids: region.and_then(|region| region.costs.get(metric)),
            series_of_ends: self.mesh.series.get(metric),
            series_of_pids: region.and_then(|region| region.series.get(metric)),
        }
    }
}

impl Region {
    /// Returns the distinct costs by `metric` in ascending order, as the basis of ranks. Sorted once and cached.
    pub fn universe(&self, metric: &CostMetric) -> Option<&[f64]> {
        let table = self.costs.get(metric)?;
        Some(self.universes.get(metric)?.get_or_init(|| sort_distinct(table.values().copied())))
    }

    /// Must be called when costs change.
    fn forget_ranks(&mut self) {
        self.universes = self.costs.keys().map(|metric| (metric.clone(), OnceLock::new())).collect();
    }
}

impl<'a> MetricCosts<'a> {
    /// Returns the cost between two places: that of the longest prefixes with a cost, else that of their PIDs.
    pub fn cost(self, from: &CostPosition, to: &CostPosition) -> Option<f64> {
        let between_pids = || self.between_pids?.get(&(from.pid?, to.pid?)).copied();
        self.between_ends(from, to).map(|(_, cost)| cost).or_else(between_pids)
    }

    /// Returns the calendar of the same cost, if it varies over time.
    pub fn series(self, from: &CostPosition, to: &CostPosition) -> Option<&'a [f64]> {
        let series = match self.between_ends(from, to) {
            Some((pair, _)) => self.series_of_ends?.get(&pair),
            None => self.series_of_pids?.get(&(from.pid?, to.pid?)),
        };
        series.map(|series| &**series)
    }

    /// Returns the cost of the longest prefixes with a cost, and their indices.
    fn between_ends(self, from: &CostPosition, to: &CostPosition) -> Option<((u32, u32), f64)> {
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
        let everything = AddressType::ALL.into_iter().filter(|_| router.default).map(AddressType::full_range);
        for prefix in router.serves.iter().map(|prefix| prefix.0).chain(everything) {
            self.ingress.insert(prefix, name.clone());
        }
    }
}

impl PrefixCosts {
    /// Returns the index of a prefix, adding it if needed.
    fn end(&mut self, prefix: IpNet) -> u32 {
        if let Some(number) = self.ends.get(&prefix) {
            return *number;
        }
        let number = u32::try_from(self.ends.len()).expect("memory ends before numbers do");
        self.ends.insert(prefix, number);
        number
    }

    /// Sets the cost of a pair, replacing earlier values and calendars.
    fn insert(&mut self, metric: &CostMetric, pair: (u32, u32), cost: &Cost) {
        self.costs.entry(metric.clone()).or_default().insert(pair, single(metric, cost.value()));
        if let Some(intervals) = cost.intervals() {
            self.series.entry(metric.clone()).or_default().insert(pair, Arc::clone(intervals));
        } else if let Some(series) = self.series.get_mut(metric) {
            series.remove(&pair);
        }
    }

    /// Rejects costs whose number of intervals differs from the calendar of their metric.
    fn check(&self, calendars: &BTreeMap<CostMetric, Calendar>) -> Result<(), NetworkStateFault> {
        for (metric, series) in &self.series {
            let calendar = calendars.get(metric);
            let expected = calendar.map(Calendar::intervals);
            // The first of them, so that the same facts always produce the same message.
            let wrong =
                series.iter().filter(|(_, values)| Some(values.len()) != expected).min_by_key(|(pair, _)| **pair);
            if let Some(((src, dst), values)) = wrong {
                let pair = || format!("{} to {}", self.prefix(*src), self.prefix(*dst));
                check_intervals(metric, calendar, values, pair)?;
            }
        }
        Ok(())
    }

    /// Returns the prefix with this index.
    fn prefix(&self, number: u32) -> IpNet {
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| **end == number).expect("every index belongs to a prefix").0
    }
}

/// Sets costs that vary over time to the value of the current interval, or to the mean if there is none.
fn take_costs_of(
    interval: impl Fn(&CostMetric) -> Option<usize>,
    costs: &mut BTreeMap<CostMetric, CostTable>,
    series: &BTreeMap<CostMetric, CostSeries>,
) {
    for (metric, series) in series {
        let interval = interval(metric);
        let cost = |values: &[f64]| interval.map_or_else(|| single(metric, agent_state::mean(values)), |at| values[at]);
        let now = series.iter().map(|(pair, values)| (*pair, cost(values)));
        costs.entry(metric.clone()).or_default().extend(now);
    }
}

/// Rounds a cost, or a mean of costs, if `metric` is an integer metric.
fn single(metric: &CostMetric, cost: f64) -> f64 {
    if is_whole(metric.as_str()) { cost.round() } else { cost }
}

/// Rejects costs whose number of intervals differs from the `calendar` of their metric.
fn check_intervals(
    metric: &CostMetric,
    calendar: Option<&Calendar>,
    values: &[f64],
    pair: impl FnOnce() -> String,
) -> Result<(), NetworkStateFault> {
    match calendar.map(Calendar::intervals) {
        Some(expected) if values.len() == expected => Ok(()),
        Some(expected) => {
            Err(NetworkStateFault::Intervals { metric: metric.clone(), pair: pair(), found: values.len(), expected })
        }
        None => Err(NetworkStateFault::NoCalendar { metric: metric.clone(), pair: pair() }),
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

    pub(crate) fn example() -> NetworkState {
        NetworkState::of([&AgentState::parse(EXAMPLE).unwrap()]).unwrap()
    }

    fn cost(network_state: &NetworkState, metric: &str, from: &str, to: &str) -> Option<f64> {
        let place = |text: &str| network_state.place(text.parse().unwrap());
        network_state.scale(&CostMetric::new(metric).unwrap()).cost(&place(from), &place(to))
    }

    #[test]
    fn the_longest_prefixes_with_a_cost_hold_and_then_pids() {
        let network_state = example();
        assert_eq!(cost(&network_state, "delay-ow", "192.0.2.1", "198.51.100.7"), Some(5000.0));
        assert_eq!(cost(&network_state, "delay-ow", "192.0.2.2", "198.51.100.7"), Some(5300.0));
        assert_eq!(cost(&network_state, "delay-ow", "198.51.100.7", "192.0.2.1"), None);
        assert_eq!(cost(&network_state, "hopcount", "192.0.2.1", "198.51.100.200"), Some(2.0));
        assert_eq!(cost(&network_state, "hopcount", "192.0.2.9", "198.51.100.200"), Some(3.0));
        assert_eq!(cost(&network_state, "routingcost", "203.0.113.1", "192.0.2.1"), Some(20.0));
        assert_eq!(cost(&network_state, "routingcost", "203.0.113.1", "2001:db8::1"), None);
    }

    #[test]
    fn what_a_later_agent_says_holds() {
        let mut later = AgentState::default();
        let facts = AgentState::parse(EXAMPLE).unwrap();
        later.costs.push(facts.costs[0].clone());
        later.costs[0].values.insert(CostMetric::new("delay-ow").unwrap(), Cost::new(1.0).unwrap());
        let network_state = NetworkState::of([&facts, &later]).unwrap();
        assert_eq!(cost(&network_state, "delay-ow", "192.0.2.2", "198.51.100.7"), Some(1.0));
        assert_eq!(network_state.region("default").unwrap().map.len(), 3);
    }

    #[test]
    fn names_of_maps_leave_room_for_those_of_their_resources() {
        for names in [&["directory"][..], &["endpoint-costs"], &["a", "a-b"], &["x23456789012345678901"]] {
            let maps = names.iter().map(|name| format!("[network-map.{name}]\nP = [\"0.0.0.0/0\"]\n"));
            let fault = NetworkState::of([&AgentState::parse(&maps.collect::<String>()).unwrap()]).unwrap_err();
            assert!(fault.to_string().contains("rename it"), "{fault}");
        }
    }

    #[test]
    fn names_of_metrics_leave_those_of_other_resources_alone() {
        let map = "[network-map.m]\nP = [\"0.0.0.0/0\"]\n";
        let network_state = |costs: &str| NetworkState::of([&AgentState::parse(&format!("{map}{costs}")).unwrap()]);
        for (costs, metric) in [
            ("[cost-map.m.filtered.P]\nP = 1", "filtered"),
            ("[cost-map.m.costs.P]\nP = 1", "costs"),
            ("[cost-map.m.path-vector.P]\nP = 1", "path-vector"),
            ("[cost-map.m.x.P]\nP = 1\n[cost-map.m.x-ordinal.P]\nP = 1", "x-ordinal"),
        ] {
            let fault = network_state(costs).unwrap_err().to_string();
            assert!(fault.contains(&format!("cost map m: rename metric {metric}")), "{fault}");
        }
        assert!(network_state("[cost-map.m.x-ordinal.P]\nP = 1").is_ok(), "there is no x");
    }

    #[test]
    fn q1_hops_are_counted_in_whole_numbers() {
        let calendar = "start = '2026-01-05T00:00:00Z'\ntime-interval-size = 60\nnumber-of-intervals = 2";
        let facts = |hops: &str| {
            let costs = format!("[network-map.m]\nP = ['0.0.0.0/0']\n[cost-map.m.hopcount]\nP = {{ P = {hops} }}");
            AgentState::parse(&format!("{costs}\n[calendars.hopcount]\n{calendar}")).unwrap()
        };
        for hops in ["2.5", "[1, 2.5]"] {
            let fault = NetworkState::of([&facts(hops)]).unwrap_err().to_string();
            assert!(fault.starts_with("costs by hopcount, cost map m, P to P: RFC 9439"), "{fault}");
        }
        let network_state = NetworkState::of([&facts("[1, 2]")]).unwrap();
        assert_eq!(cost(&network_state, "hopcount", "192.0.2.1", "192.0.2.2"), Some(2.0), "the mean is rounded");
        assert_eq!(cost(&network_state.at(0), "hopcount", "192.0.2.1", "192.0.2.2"), Some(2.0));
        let between = AgentState::parse("[[costs]]\nsrc = '::1'\ndst = '::2'\n'hopcount:mean' = 0.5");
        assert!(
            NetworkState::of([&between.unwrap()])
                .unwrap_err()
                .to_string()
                .contains("hopcount:mean, ::1/128 to ::2/128")
        );
    }

    #[test]
    fn v6_what_can_be_reserved_is_a_number() {
        let network_state = |value: &str| {
            let facts = format!(r#"{{"properties": {{".ane:L1": {{"max-reservable-bandwidth": {value}}}}}}}"#);
            NetworkState::of([&AgentState::parse(&facts).unwrap()])
        };
        for value in ["\"fast\"", "null", "-1", "[1]"] {
            let fault = network_state(value).unwrap_err().to_string();
            assert_eq!(
                fault,
                "properties of .ane:L1: max-reservable-bandwidth must be a number of bits per second, 0 or more"
            );
        }
        assert!(network_state("0").is_ok() && network_state("1.5e11").is_ok());
    }

    #[test]
    fn c4_names_have_no_dots() {
        for (facts, expected) in [
            ("[network-map.'a.b']\nP = ['0.0.0.0/0']", "network map a.b: rename it"),
            ("[network-map.m]\n'P.1' = ['0.0.0.0/0']", "PID P.1: rename it"),
            ("[properties.'.ane:L.1']\nx = 1", "element L.1: rename it"),
        ] {
            let fault = NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn what_agents_say_of_one_router_is_put_together() {
        let routes = AgentState::parse("[routers.x]\nroutes = [{ prefix = \"10.0.0.0/8\" }]").unwrap();
        let serves =
            AgentState::parse("[routers.x]\nserves = [\"10.1.0.0/16\"]\n[routers.y]\nserves = [\"10.2.0.0/16\"]")
                .unwrap();
        let network_state = NetworkState::of([&routes, &serves]).unwrap();
        let router = network_state.router_of("10.1.0.1".parse().unwrap()).unwrap();
        assert_eq!(network_state.table(router).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_there_has_no_costs() {
        for (text, expected) in [
            ("[cost-map.x.hopcount]", "cost map x: there is no network map of that name"),
            (
                "[network-map.x]\nP = [\"0.0.0.0/0\"]\n[cost-map.x.hopcount.P]\nQ = 1",
                "cost map x, hopcount: the network map has no PID Q",
            ),
            ("[properties.\"x.pid:P\"]\na = 1", "properties of x.pid:P: there is no such PID"),
            (
                "[properties.\"x.ane:L1\"]\na = 1",
                "properties of x.ane:L1: no resource of that name has elements; start the name with .ane",
            ),
        ] {
            assert_eq!(NetworkState::of([&AgentState::parse(text).unwrap()]).unwrap_err().to_string(), expected);
        }
    }
}
