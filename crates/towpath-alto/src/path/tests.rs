use super::*;
use crate::agent_state::AgentState;

const ROUTERS: &str = r#"
    [routers.edge]
    serves = ["10.1.0.0/16"]
    routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.1" }]
    [routers.core]
    default = true
    addresses = ["192.0.2.1"]
    [[routers.core.routes]]
    prefix = "134.158.84.0/24"
    next-hop = "192.65.184.145"
    as-path = "20965 2091 {789,790}"
    [[routers.core.routes]]
    prefix = "10.1.0.0/16"
    [routers.circle]
    serves = ["10.9.0.0/16"]
    addresses = ["192.0.2.9"]
    routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.9" }]
"#;

fn between(from: &str, to: &str) -> Option<Vec<String>> {
    way(ROUTERS, from, to)
}

fn way(facts: &str, from: &str, to: &str) -> Option<Vec<String>> {
    let network_state = NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap();
    let mut paths = Paths::of(&network_state);
    let (from, to) = (
        PathEndpoint::of(&network_state, from.parse().unwrap()),
        PathEndpoint::of(&network_state, to.parse().unwrap()),
    );
    let number = paths.between(&from, &to)?;
    assert_eq!(paths.between(&from, &to), Some(number));
    let path = paths.paths().nth(number as usize).unwrap();
    assert_eq!(paths.length(number), path.len());
    Some(path.iter().map(|position| paths.elements()[*position as usize].name().to_string()).collect())
}

#[test]
fn every_shared_link_is_an_element() {
    let rest = ["link:core-192_65_184_145", "as:20965-2091", "as:2091-set:789_790"];
    assert_eq!(between("203.0.113.1", "134.158.84.23").unwrap(), rest);
    let from_edge = [&["link:edge-192_0_2_1"][..], &rest].concat();
    assert_eq!(between("10.1.0.1", "134.158.84.23").unwrap(), from_edge);
}

#[test]
fn where_there_is_no_route_there_is_no_path() {
    assert_eq!(between("203.0.113.1", "198.51.100.1"), None);
    assert_eq!(between("203.0.113.1", "10.1.0.1").unwrap(), [""; 0], "it is connected directly");
    assert_eq!(between("10.1.0.1", "198.51.100.1").unwrap(), ["link:edge-192_0_2_1"], "the core knows no more");
}

#[test]
fn a_circle_is_no_path() {
    assert_eq!(between("10.9.0.1", "198.51.100.1"), None);
}

/// A line of three nodes next to the routers; the last node is also attached to another topology.
const TOPOLOGIES: &str = r#"
    [topology.core]
    attach = { "Geneva" = ["10.0.1.0/24", "2001:db8:1::/48"], "New York" = ["10.0.2.0/24"] }
    nodes = { "Par.is" = { capacity = 4e11 } }
    links = [{ from = "Geneva", to = "Par.is", capacity = 1e11 }, { from = "Par.is", to = "New York" }]
    [topology.edge]
    attach = { "a-1" = ["10.0.2.0/24"], "b" = ["10.0.3.0/24"] }
    links = [{ from = "a-1", to = "b", directed = true }]
    [routers.x]
    default = true
    routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.1" }, { prefix = "::/0", next-hop = "192.0.2.1" }]
"#;

fn over(from: &str, to: &str) -> Option<Vec<String>> {
    way(TOPOLOGIES, from, to)
}

#[test]
fn a_topology_goes_before_routes_where_it_has_both_ends() {
    let there = ["topo:core:Geneva-Par_is", "node:core:Par_is", "topo:core:Par_is-New@York"];
    assert_eq!(over("10.0.1.1", "10.0.2.1").unwrap(), there);
    let back = ["topo:core:New@York-Par_is", "node:core:Par_is", "topo:core:Par_is-Geneva"];
    assert_eq!(over("10.0.2.1", "10.0.1.1").unwrap(), back, "each direction is an element");
    assert_eq!(over("10.0.1.1", "10.0.1.9").unwrap(), [""; 0], "both are behind one node");
    assert_eq!(over("10.0.2.1", "10.0.3.1").unwrap(), ["topo:edge:a-1--b"]);
    let routed = ["link:x-192_0_2_1"];
    assert_eq!(over("10.0.3.1", "10.0.2.1").unwrap(), routed, "that link leads there only");
    assert_eq!(over("10.0.1.1", "10.0.3.1").unwrap(), routed, "they are in two topologies");
    assert_eq!(over("10.0.1.1", "198.51.100.1").unwrap(), routed, "one end is in none");
    assert_eq!(over("2001:db8:1::1", "10.0.2.1"), None, "families do not mix");
}

#[test]
fn capacities_are_those_of_the_topology() {
    let network_state = NetworkState::of([&AgentState::parse(TOPOLOGIES).unwrap()]).unwrap();
    let mut paths = Paths::of(&network_state);
    let [from, to] = ["10.0.1.1", "10.0.2.1"].map(|address| PathEndpoint::of(&network_state, address.parse().unwrap()));
    paths.between(&from, &to).unwrap();
    let capacities: Vec<_> =
        paths.elements().iter().map(|element| element.capacity_bits_per_s(&network_state)).collect();
    assert_eq!(capacities, [Some(1e11), Some(4e11), None]);
}

#[test]
fn no_two_links_have_one_name() {
    let span = |topology: &str, from: &str, to: &str| Element::Span {
        topology: TopologyName::new(topology).unwrap(),
        from: NodeName::new(from).unwrap(),
        to: NodeName::new(to).unwrap(),
    };
    let mut names: Vec<AneName> = [
        span("t", "a", "b-c"),
        span("t", "a-b", "c"),
        span("t", "a-", "b"),
        span("t", "a", "-b"),
        span("t", "a--b", "c"),
        span("t", "a", "b--c"),
        span("t", "a.b", "c"),
        span("t", "a_b", "c"),
        span("t", "a b", "c"),
        span("t", "a@b", "c"),
        span("t:u", "a", "b"),
        span("t", "u:a", "b"),
        Element::Node { topology: TopologyName::new("t").unwrap(), node: NodeName::new("a-b").unwrap() },
        span("t", "a", "b"),
    ]
    .iter()
    .map(Element::name)
    .collect();
    assert_eq!((names[0].as_str(), names[1].as_str()), ("topo:t:a--b-c", "topo:t:a-b--c"));
    let digest = span("t", "Zürich", "b").name();
    assert_eq!(digest.as_str().len(), "topo:".len() + 32);
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn long_names_are_digests() {
    let element = Element::Link { router: RouterName::new(&"x".repeat(60)).unwrap(), next_hop: "::1".parse().unwrap() };
    assert_eq!(element.name().as_str().len(), "link:".len() + 32);
    let underlined = Element::Link { router: RouterName::new("a_b").unwrap(), next_hop: "::1".parse().unwrap() };
    assert_eq!(underlined.name().as_str().len(), "link:".len() + 32, "it could be `a.b`");
}
