//! The complete knowledge of an agent. Also the format of static files; the JSON form round-trips.
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
//! [calendars.tput] # allows lists of costs for this metric, one per interval
//! start = "2026-01-05T00:00:00Z"
//! time-interval-size = 3600
//! number-of-intervals = 24
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
    fmt, io,
    net::IpAddr,
    panic::resume_unwind,
    sync::Arc,
    thread,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

pub use crate::address::Prefix;
use crate::{
    calendar::{Calendar, MAX_INTERVALS},
    cost::{CostContext, is_whole},
    delegation::OnDemandItems,
    entity::Entity,
    geo::Locations,
    names::{CostMetric, NodeName, PidName, PropertyName, ResourceId, RouterName, TopologyName},
    nested,
    route::{AsPath, Route},
    routes::RouteTable,
    topology::{Topology, TopologyError, TopologyFacts},
};

/// Costs from the first PID to the second.
pub type PidCosts = BTreeMap<PidName, BTreeMap<PidName, Cost>>;

/// An agent's facts about the network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentState {
    /// Network maps: the prefixes of each PID.
    pub network_map: BTreeMap<ResourceId, BTreeMap<PidName, BTreeSet<Prefix>>>,
    /// Costs between PIDs of a network map, by metric.
    pub cost_map: BTreeMap<ResourceId, BTreeMap<CostMetric, PidCosts>>,
    /// Properties of entities, each nested at most 64 levels deep. `null` means that there is no value.
    #[serde(deserialize_with = "nested::properties")]
    pub properties: BTreeMap<Entity, BTreeMap<PropertyName, serde_json::Value>>,
    /// Costs between addresses or prefixes.
    pub costs: Vec<Costs>,
    /// The origin of each metric's values; also applies to the metric's statistics.
    pub contexts: BTreeMap<CostMetric, CostContext>,
    /// The intervals of metrics with costs over time.
    pub calendars: BTreeMap<CostMetric, Calendar>,
    /// Routers and their routes.
    pub routers: BTreeMap<RouterName, Router>,
    /// Topologies and the prefixes attached to their nodes.
    pub topology: BTreeMap<TopologyName, TopologyFacts>,
    /// A geolocation database. Not part of fact files.
    #[serde(skip)]
    pub locations: Option<Arc<Locations>>,
    /// Values that the agent can provide on demand. Not part of fact files.
    #[serde(skip)]
    pub on_demand: OnDemandItems,
}

/// A router.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Router {
    /// Its addresses, which identify it as the next hop of other routers.
    pub addresses: BTreeSet<IpAddr>,
    /// Prefixes behind the router; traffic from them takes its routes.
    pub serves: BTreeSet<Prefix>,
    /// Whether it serves all prefixes that no other router serves.
    pub default: bool,
    /// Its routes; `None` if another agent provides them.
    #[serde(serialize_with = "write_table", deserialize_with = "table", skip_serializing_if = "Option::is_none")]
    pub routes: Option<Arc<RouteTable>>,
}

fn table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<RouteTable>>, D::Error> {
    let written = Vec::<RouteInFile>::deserialize(deserializer)?;
    let route = |RouteInFile { prefix, next_hop, as_path }: RouteInFile| Route { prefix: prefix.0, next_hop, as_path };
    Ok(Some(Arc::new(written.into_iter().map(route).collect())))
}

/// Serializes the routes one by one, without copying a large table.
fn write_table<S: Serializer>(table: &Option<Arc<RouteTable>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(table.iter().flat_map(|table| table.routes()).map(|(prefix, attributes)| RouteInFile {
        prefix: Prefix(prefix),
        next_hop: attributes.next_hop,
        as_path: attributes.as_path.clone(),
    }))
}

/// A route in a fact file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RouteInFile {
    prefix: Prefix,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_hop: Option<IpAddr>,
    #[serde(default)]
    as_path: AsPath,
}

/// Costs from one prefix to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The source.
    pub src: Prefix,
    /// The destination.
    pub dst: Prefix,
    /// The cost by metric.
    #[serde(flatten)]
    pub values: BTreeMap<CostMetric, Cost>,
}

impl Costs {
    /// Serialized keys of the two ends, next to the metrics; no metric may have these names.
    pub const ENDS: [&str; 2] = ["src", "dst"];
}

/// A cost: finite and non-negative (RFC 7285 §6.1.2.1). Serialized as a number, or as a list with one number per
/// interval of the metric's calendar.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost(CostValues);

#[derive(Debug, Clone, PartialEq)]
enum CostValues {
    Steady(f64),
    /// Between 1 and [`MAX_INTERVALS`] values.
    Intervals(Arc<[f64]>),
}

impl Cost {
    /// Returns a constant cost; `None` if the value is negative or not finite.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value >= 0.0).then_some(Self(CostValues::Steady(value)))
    }

    /// Returns the value in the unit of the metric; the mean if there are several intervals.
    pub fn value(&self) -> f64 {
        match &self.0 {
            CostValues::Steady(value) => *value,
            CostValues::Intervals(values) => mean(values),
        }
    }

    /// Returns the values per calendar interval, if the cost has them.
    pub fn intervals(&self) -> Option<&Arc<[f64]>> {
        match &self.0 {
            CostValues::Steady(_) => None,
            CostValues::Intervals(values) => Some(values),
        }
    }

    /// Returns whether all values are valid for `metric`.
    pub fn suits(&self, metric: &CostMetric) -> bool {
        let is_suitable = |value: &f64| value.fract() == 0.0;
        !is_whole(metric.as_str())
            || match &self.0 {
                CostValues::Steady(value) => is_suitable(value),
                CostValues::Intervals(values) => values.iter().all(is_suitable),
            }
    }

    /// Deserializes a cost that must be a single number.
    ///
    /// # Errors
    /// If it is no number, or no cost.
    pub fn steady<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        validate_cost(f64::deserialize(deserializer)?).map(|value| Self(CostValues::Steady(value)))
    }
}

/// Returns the mean over all intervals; `f64::MAX` if the sum overflows.
pub(crate) fn mean(costs: &[f64]) -> f64 {
    (costs.iter().sum::<f64>() / costs.len() as f64).min(f64::MAX)
}

/// Validates the value of a cost.
fn validate_cost<E: de::Error>(value: f64) -> Result<f64, E> {
    if Cost::new(value).is_some() {
        Ok(value)
    } else {
        Err(E::custom(format!("{value} is not a cost: expected 0 or more")))
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostValuesVisitor).map(Self)
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            CostValues::Steady(value) => serializer.serialize_f64(*value),
            CostValues::Intervals(values) => serializer.collect_seq(values.iter()),
        }
    }
}

/// Deserializes a number or a list of numbers.
struct CostValuesVisitor;

impl<'de> Visitor<'de> for CostValuesVisitor {
    type Value = CostValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a list with one number per interval")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<CostValues, E> {
        validate_cost(value).map(CostValues::Steady)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<CostValues, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<CostValues, E> {
        self.visit_f64(value as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<CostValues, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = elements.next_element::<f64>()? {
            if values.len() == MAX_INTERVALS {
                return Err(de::Error::custom(format!("a list of costs has at most {MAX_INTERVALS} values")));
            }
            values.push(validate_cost::<A::Error>(value)?);
        }
        if values.is_empty() {
            Err(de::Error::invalid_length(0, &self))
        } else {
            Ok(CostValues::Intervals(values.into()))
        }
    }
}

impl Serialize for Entity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Entity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Entity::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl AgentState {
    /// Returns the facts for a topology read from `text`, with the prefixes attached to its nodes. The network state
    /// checks that these nodes exist.
    ///
    /// # Errors
    /// As [`Topology::parse`].
    pub fn of_topology(
        text: &str,
        name: TopologyName,
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    ) -> Result<AgentState, TopologyError> {
        let topology = Some(Arc::new(Topology::parse(text)?));
        Ok(AgentState {
            topology: BTreeMap::from([(name, TopologyFacts { topology, attach })]),
            ..AgentState::default()
        })
    }

    /// Parses a static file: TOML, or equivalent JSON.
    ///
    /// # Errors
    /// If the text is neither, or has invalid content; with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            let read = || toml::from_str(text).map_err(|error| error.to_string());
            with_deep_stack(read).unwrap_or_else(|error| Err(format!("it cannot be read: {error}")))
        }
    }
}

/// Runs a function on a thread with enough stack for the deepest TOML: `toml` recurses through tables, of which it
/// allows 80 nested ones, each named by 80 keys.
///
/// # Errors
/// If the thread cannot be spawned.
fn with_deep_stack<T: Send>(read: impl FnOnce() -> T + Send) -> io::Result<T> {
    const STACK_BYTES: usize = 64 << 20;
    thread::scope(|scope| {
        let reading = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, read)?;
        Ok(reading.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use ipnet::IpNet;

    use super::*;
    use crate::route::Hop;

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
        let facts = AgentState::parse(toml).unwrap();
        assert_eq!(facts, AgentState::parse(json).unwrap());
        assert_eq!(facts.costs[0].dst.0.prefix_len(), 32);
        assert_eq!(facts.network_map.values().next().unwrap().len(), 2);
    }

    #[test]
    fn values_are_nested_no_deeper_than_can_be_read_again() {
        // Each level of braces adds 79 levels of keys.
        let deep = |levels: usize| {
            let key = ["a"; 79].join(".");
            format!("{}1{}", format!("{{ {key} = ").repeat(levels), " }".repeat(levels))
        };
        for entry in
            [r#"[properties."ipv4:192.0.2.1"]"#, "[contexts.tput]\ncost-source = 'sla'\n[contexts.tput.parameters]"]
        {
            let read = |levels| AgentState::parse(&format!("{entry}\nx = {}", deep(levels)));
            assert!(read(0).is_ok());
            assert!(read(79).unwrap_err().contains("deeper than 64 levels"));
        }
    }

    #[test]
    fn k1_a_cost_may_be_a_list() {
        let toml =
            "[cost-map.m.tput.a]\nb = [1, 2.5, 4]\nc = 7\n[[costs]]\nsrc = \"::1\"\ndst = \"::2\"\ntput = [5, 6]";
        let json = r#"{
            "cost-map": { "m": { "tput": { "a": { "b": [1, 2.5, 4], "c": 7 } } } },
            "costs": [{ "src": "::1", "dst": "::2", "tput": [5, 6] }]
        }"#;
        let facts = AgentState::parse(toml).unwrap();
        assert_eq!(facts, AgentState::parse(json).unwrap());
        let row = &facts.cost_map["m"]["tput"]["a"];
        assert_eq!((row["b"].value(), row["b"].intervals().map(|values| &**values)), (2.5, Some(&[1.0, 2.5, 4.0][..])));
        assert_eq!((row["c"].value(), row["c"].intervals()), (7.0, None));
        assert_eq!(facts.costs[0].values["tput"].value(), 5.5);
    }

    #[test]
    fn k1_what_must_be_one_number_is_no_list() {
        let read = |text: &str| Cost::steady(&mut serde_json::Deserializer::from_str(text)).ok();
        assert_eq!(read("7"), Cost::new(7.0));
        assert_eq!((read("[7]"), read("-7")), (None, None));
    }

    #[test]
    fn k1_a_mean_is_a_number() {
        let mean = |values: &[f64]| Cost(CostValues::Intervals(values.into())).value();
        assert_eq!((mean(&[0.1; 24]) * 1e9).round(), 1e8);
        assert_eq!(mean(&[f64::MAX; 3]), f64::MAX);
    }

    fn written(facts: &AgentState) -> AgentState {
        AgentState::parse(&serde_json::to_string(facts).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let facts = r#"
            network-map.default = { CERN = ["137.138.0.0/16", "2001:1458::/32"], elsewhere = ["0.0.0.0/0", "::/0"] }
            cost-map.default.tput.CERN = { elsewhere = [1, 2.5, 1e300], CERN = 0.1 }
            contexts = { tput = { cost-source = "sla", parameters = { link = "a" } }, x = { cost-source = "nominal" } }
            [[costs]]
            src = "137.138.0.0/16"
            dst = "134.158.84.23"
            delay-ow = 5300
            "delay-ow:p95" = [0.1, 7]
            [properties]
            "ipv4:192.0.2.1" = { country = "CH", "priv:position" = [46.204391, 6.143158] }
            "default.pid:CERN" = { "priv:depth" = { a = [1, { b = true }] } }
            ".ane:L1" = { max-reservable-bandwidth = 1e11 }
            "x.ane:L1" = { "priv:n" = 9223372036854775807 }
            [calendars]
            tput = { start = "2026-01-05T00:00:00Z", time-interval-size = 0.5, number-of-intervals = 3, repeated = 7 }
            x = { start = "Mon, 05 Jan 2026 00:00:00 GMT", time-interval-size = 3600, number-of-intervals = 1 }
            [routers]
            a = { addresses = ["192.0.2.1", "2001:db8::1"], serves = ["137.138.0.0/16"], default = true }
            b = { routes = [] }
            [routers.c]
            routes = [
                { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 {1,3} 789" },
                { prefix = "2001:db8::/32" },
            ]
            [topology.bare]
            attach = { "Zürich, HB" = ["192.0.2.0/24"] }
            [topology.full]
            attach = { A = ["198.51.100.0/24"] }
            nodes = { A = { capacity = 4e11 }, alone = {} }
            links = [
                { from = "B", to = "A", capacity = 1e11, length = 410.5, weight = 0.1 },
                { from = "C", to = "B", weight = 2, directed = true },
                { from = "B", to = "C", length = 3, directed = true },
                { from = "C", to = "A", directed = true },
            ]
        "#;
        let facts = AgentState::parse(facts).unwrap();
        assert_eq!(facts.topology["full"].topology.as_ref().unwrap().links().len(), 5);
        assert_eq!(written(&facts), facts);
        assert_eq!(written(&AgentState::default()), AgentState::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Must be the nearest number: otherwise responses would change after a restart of the server.
        #[test]
        fn numbers_are_read_back_to_the_last_bit(
            values in prop::collection::vec(
                any::<f64>().prop_filter_map("no cost", |value| Cost::new(value.abs()).map(|cost| cost.value())),
                1..5,
            ),
        ) {
            let cost = Cost(CostValues::Intervals(values.into()));
            let text = serde_json::to_string(&cost).unwrap();
            prop_assert_eq!(serde_json::from_str::<Cost>(&text).unwrap(), cost);
        }

        #[test]
        fn routes_are_read_back(
            routes in prop::collection::vec(
                (
                    any::<bool>(),
                    any::<u128>(),
                    0..=128_u8,
                    prop::option::of(any::<IpAddr>()),
                    any::<[u32; 3]>(),
                    0..4_usize,
                ),
                0..20,
            ),
        ) {
            let route = |(is_ipv4, address, length, next_hop, numbers, hops): (bool, u128, u8, _, [u32; 3], usize)| {
                let address = match is_ipv4 {
                    true => IpAddr::from(u32::try_from(address >> 96).unwrap().to_be_bytes()),
                    false => IpAddr::from(address.to_be_bytes()),
                };
                let length = if is_ipv4 { length / 4 } else { length };
                let prefix = IpNet::new(address, length).unwrap().trunc();
                let set = Hop::Set([numbers[1], numbers[2]].into());
                let path = [Hop::As(numbers[0]), set, Hop::As(numbers[2])].into_iter().take(hops);
                Route { prefix, next_hop, as_path: AsPath::new(path) }
            };
            let table: RouteTable = routes.into_iter().map(route).collect();
            let router = Router { routes: Some(Arc::new(table)), ..Router::default() };
            let text = serde_json::to_string(&router).unwrap();
            prop_assert_eq!(serde_json::from_str::<Router>(&text).unwrap(), router);
        }
    }

    #[test]
    fn what_cannot_be_said_is_told_with_its_place() {
        for (text, expected) in [
            ("[network-maps.x]", "unknown field"),
            ("[network-map.x]\nP = [\"192.0.2.1/24\"]", "line 2"),
            ("[cost-map.x.routingcost.a]\nb = -1", "0 or more"),
            ("[cost-map.x.routingcost.a]\nb = [1, -1]", "0 or more"),
            ("[cost-map.x.routingcost.a]\nb = []", "one number per interval"),
            ("[cost-map.x.routingcost.a]\nb = \"1\"", "line 2"),
            ("{\"cost-map\": {\"x\": {\"tput\": {\"a\": {\"b\": [1, null]}}}}}", "invalid type: null"),
            (
                "[calendars.tput]\nstart = \"noon\"\ntime-interval-size = 1\nnumber-of-intervals = 2",
                "not a valid start",
            ),
            ("[[costs]]\nsrc = \"192.0.2.1\"", "dst"),
            ("{\"properties\": {\"x\": {}}}", "'x' is not a valid entity"),
        ] {
            let error = AgentState::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
