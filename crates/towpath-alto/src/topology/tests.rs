use proptest::prelude::*;
use serde_json::{Value, json};

use std::collections::BTreeMap;

use super::*;
use crate::{agent_state::AgentState, names::TopologyName};

fn names(topology: &Topology) -> Vec<&str> {
    topology.nodes().iter().map(|node| node.name.as_str()).collect()
}

/// Returns the link between two named nodes.
fn link<'a>(topology: &'a Topology, from: &str, to: &str) -> Option<&'a Link> {
    let number = |name: &str| topology.number(&NodeName::new(name).unwrap()).unwrap();
    topology.link(number(from), number(to))
}

/// The format of the Internet Topology Zoo.
const ZOO: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="Network" attr.type="string" for="graph" id="d1" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d29" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d32" />
  <key attr.name="label" attr.type="string" for="node" id="d33" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d38" />
  <graph edgedefault="undirected">
    <data key="d1">Somewhere</data>
    <node id="0"><data key="d29">2.35</data><data key="d32">48.86</data><data key="d33">Paris</data></node>
    <node id="1"><data key="d32">46.2</data><data key="d29">6.14</data><data key="d33">Geneva</data></node>
    <node id="2"><data key="d33">Rhône &amp;  Alpes</data></node>
    <edge source="0" target="1"><data key="d38">10000000000.0</data></edge>
    <edge source="1" target="2" />
  </graph>
</graphml>"#;

#[test]
fn graphs_of_the_topology_zoo_are_read() {
    let topology = Topology::parse(ZOO).unwrap();
    assert_eq!(names(&topology), ["Geneva", "Paris", "Rhône & Alpes"]);
    let link = |from, to| link(&topology, from, to);
    let there = link("Geneva", "Paris").unwrap();
    assert_eq!(there.capacity_bits_per_s, Some(1e10));
    assert!((there.length_km.unwrap() - 410.0).abs() < 2.0, "{there:?}");
    assert_eq!(there.weight, 1.0, "nobody knows the length of the other link");
    let back = link("Paris", "Geneva").unwrap();
    assert_eq!((back.capacity_bits_per_s, back.length_km), (there.capacity_bits_per_s, there.length_km));
    assert!(link("Paris", "Rhône & Alpes").is_none());
}

#[test]
fn every_form_says_the_same() {
    let xml = r#"<graphml><key id="k" for="edge" attr.name="bandwidth"/><graph edgedefault="directed">
        <edge source="b" target="a" directed="false"><data key="k">5e9</data><data key="dist">7</data></edge>
        <node id="b"/><node id="a"><data key="Capacity"><![CDATA[ 4e11 ]]></data></node><node id="c"/>
        <edge source="a" target="c"><data key="weight">3</data></edge>
    </graph></graphml>"#;
    let json = r#"{
        "multigraph": true, "graph": { "stats": { "nodes": 3 } },
        "links": [
            { "source": "a", "target": "c", "key": 0, "weight": "3" },
            { "source": "b", "target": "a", "key": 0, "dist": 7, "capacity": 5e9, "ecmp": [{}] },
            { "source": "a", "target": "b", "key": 1, "dist": 7, "capacity": 5e9 }
        ],
        "nodes": [{ "id": "c" }, { "name": "a", "capacity": 4e11 }, { "key": "b", "pos": null }],
        "directed": true
    }"#;
    let facts = r#"
        [topology.t]
        nodes = { a = { capacity = 4e11 } }
        links = [
            { from = "a", to = "b", length = 7, capacity = 5e9 },
            { from = "a", to = "c", weight = 3, directed = true },
        ]
    "#;
    let topology = Topology::parse(xml).unwrap();
    assert_eq!(topology.links().len(), 3);
    assert_eq!(link(&topology, "a", "b").unwrap().weight, 7.0, "its length");
    assert_eq!(Topology::parse(json).unwrap(), topology);
    let parsed = AgentState::parse(facts).unwrap().topology.into_values().next().unwrap();
    assert_eq!(*parsed.topology.unwrap(), topology);
}

#[test]
fn positions_of_topohub_are_longitude_and_latitude() {
    let topology = Topology::parse(
        r#"{ "directed": false, "nodes": [
            { "id": 0, "name": "Geneva", "pos": [6.14, 46.2] }, { "id": 1, "name": "Paris", "pos": [2.35, 48.86] }
        ], "edges": [{ "source": 0, "target": 1 }] }"#,
    );
    let topology = topology.unwrap();
    let link = link(&topology, "Geneva", "Paris").unwrap();
    assert!((link.length_km.unwrap() - 410.0).abs() < 2.0, "{link:?}");
    assert_eq!(Some(link.weight), link.length_km);
}

#[test]
fn labels_that_something_else_has_are_no_names() {
    let nodes = json!([
        { "id": "a", "label": "X" }, { "id": "b", "label": "X" }, { "id": "c", "label": "a" },
        { "id": "d", "label": "D\nE" }, { "id": "e", "label": "e" }, { "label": "f" }, {},
    ]);
    let topology = Topology::parse(&json!({ "nodes": nodes }).to_string()).unwrap();
    assert_eq!(names(&topology), ["6", "D E", "a", "b", "c", "e", "f"]);
}

#[test]
fn of_parallel_links_the_best_is_taken() {
    let links = json!([
        { "source": 0, "target": 1, "weight": 2, "capacity": 9 },
        { "source": 0, "target": 1, "weight": 1, "capacity": 3 },
        { "source": 1, "target": 0, "weight": 1, "capacity": 4 },
        { "source": 1, "target": 0, "weight": 1 },
        { "source": 1, "target": 1, "capacity": 99 },
        { "source": 0, "target": 1, "weight": -1, "capacity": "NaN" },
    ]);
    let document = json!({ "nodes": [{ "id": 0 }, { "id": 1 }], "links": links });
    let topology = Topology::parse(&document.to_string()).unwrap();
    let taken: Vec<_> = topology.links().iter().map(|link| (link.weight, link.capacity_bits_per_s)).collect();
    assert_eq!(taken, [(1.0, Some(4.0)); 2], "a weight that cannot be is as none, which is 1");
}

#[test]
fn what_is_no_topology_is_told() {
    for (text, expected) in [
        ("", "the topology has no nodes"),
        ("<graphml/>", "the topology has no nodes"),
        ("{}", "the topology has no nodes"),
        ("<graphml>\n<graph>", "line 2: the XML ends"),
        ("<graphml>\n</graph>", "line 2"),
        ("{ \"nodes\": [", "EOF"),
        ("{ \"directed\": 1 }", "expected a boolean"),
        (r#"{ "nodes": [{ "id": 1 }, { "id": "1" }] }"#, "have the id '1'"),
        (r#"{ "nodes": [{ "id": 1 }], "links": [{ "source": 1, "target": 2 }] }"#, "refers to '2'"),
        (r#"{ "nodes": [{ "id": "a\u0000" }] }"#, "node without a name"),
    ] {
        let error = Topology::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_static_files_say_is_taken_by_its_word() {
    for (line, expected) in [
        ("links = [{ from = \"a\", to = \"b\", capacity = -1 }]", "0 or more"),
        ("links = [{ from = \"a\" }]", "missing field `to`"),
        ("links = [{ from = \"a\", to = \"b\", speed = 1 }]", "unknown field"),
        ("attach = { \"\" = [] }", "not a valid node name"),
    ] {
        let error = AgentState::parse(&format!("[topology.t]\n{line}")).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn there_is_room_for_so_many() {
    let links = json!([{ "source": 0, "target": 1 }, { "source": 1, "target": 2 }]);
    let document = json!({ "nodes": [{}, {}, {}], "links": links });
    let within = |nodes, links| Topology::parse_within(&document.to_string(), TopologyBuilder::with_room(nodes, links));
    assert_eq!(within(3, 2).unwrap().links().len(), 4);
    assert_eq!(within(2, 2), Err(TopologyError::TooManyNodes));
    assert_eq!(within(3, 1), Err(TopologyError::TooManyLinks));
}

#[test]
fn a_way_is_as_long_as_packets_live() {
    let nodes: Vec<Value> = (0..257).map(|node| json!({ "id": format!("{node:03}") })).collect();
    let link = |node: u32| json!({ "source": format!("{node:03}"), "target": format!("{:03}", node + 1) });
    let links: Vec<Value> = (0..256).map(link).collect();
    let topology = Topology::parse(&json!({ "nodes": nodes, "links": links }).to_string()).unwrap();
    assert_eq!(topology.shortest_path(0, 255).unwrap(), (0..256).collect::<Vec<_>>());
    assert_eq!(topology.shortest_path(0, 256), None);
    assert_eq!(topology.shortest_path(7, 7).unwrap(), [7]);
}

#[test]
fn what_was_asked_makes_no_other_topology() {
    let queried = Topology::parse(ZOO).unwrap();
    assert_eq!(queried.shortest_path(0, 2), Some(vec![0, 2]));
    assert_eq!(queried, Topology::parse(ZOO).unwrap());
}

#[test]
fn no_network_is_larger_than_its_ways_can_be_found() {
    let nodes = |count: usize| Topology::parse(&json!({ "nodes": vec![json!({}); count] }).to_string());
    assert_eq!(nodes(MAX_NODES).unwrap().nodes().len(), MAX_NODES);
    assert_eq!(nodes(MAX_NODES + 1), Err(TopologyError::TooManyNodes));
}

#[test]
fn what_is_attached_is_attached_to_one_node() {
    let attach = |text: &str| {
        let facts =
            AgentState::parse(&format!("[topology.t]\nlinks = [{{ from = \"a\", to = \"b\" }}]\n{text}")).unwrap();
        let (name, facts) = facts.topology.into_iter().next().unwrap();
        facts.resolve_attachments(&name)
    };
    let attached = attach("attach = { a = [\"10.0.0.0/8\"], b = [\"10.1.0.0/16\"] }").unwrap();
    let node = |address: &str| attached.node_of(address.parse().unwrap());
    assert_eq!((node("10.1.0.1"), node("10.2.0.1"), node("11.0.0.1")), (Some(1), Some(0), None));
    assert!(attach("").unwrap().is_empty());
    for (text, expected) in [
        ("attach = { c = [] }", "topology t has no node 'c'"),
        ("attach = { a = [\"10.0.0.0/8\"], b = [\"10.0.0.0/8\"] }", "10.0.0.0/8 is attached to 'a' and to 'b'"),
    ] {
        let fault = attach(text).unwrap_err().to_string();
        assert!(fault.contains(expected), "{text}: {fault}");
    }
}

#[test]
fn one_agent_may_tell_links_and_another_what_is_attached() {
    let name = TopologyName::new("t").unwrap();
    let attach = "[topology.t]\nattach = { Paris = [\"10.0.0.0/8\"] }";
    let AgentState { topology: attach, .. } = AgentState::parse(attach).unwrap();
    let read = AgentState::of_topology(ZOO, name.clone(), BTreeMap::new()).unwrap();
    for order in [[&attach, &read.topology], [&read.topology, &attach]] {
        let mut joined = TopologyFacts::default();
        order.iter().for_each(|agent| joined.join(&agent[&name]));
        assert_eq!(joined.resolve_attachments(&name).unwrap().node_of("10.0.0.1".parse().unwrap()), Some(1));
    }
}

/// Number of nodes, and links as (from, to, weight, is directed).
type Graph = (u32, Vec<(u32, u32, u32, bool)>);

fn graph() -> impl Strategy<Value = Graph> {
    (1..8_u32).prop_flat_map(|nodes| {
        let links = prop::collection::vec((0..nodes, 0..nodes, 0..4_u32, any::<bool>()), 0..20);
        (Just(nodes), links)
    })
}

fn document(nodes: impl Iterator<Item = u32>, links: &[(u32, u32, u32, bool)]) -> String {
    let node = |number: u32| json!({ "id": format!("id{}", 9 - number), "label": format!("n{number}") });
    let id = |number: u32| format!("id{}", 9 - number);
    let mut written = Vec::new();
    for (from, to, weight, is_directed) in links {
        written.push(json!({ "source": id(*from), "target": id(*to), "weight": weight }));
        if !is_directed {
            written.push(json!({ "source": id(*to), "target": id(*from), "weight": weight }));
        }
    }
    json!({ "directed": true, "nodes": nodes.map(node).collect::<Vec<_>>(), "links": written }).to_string()
}

/// Returns the lowest weight and the fewest links at that weight for all pairs (Floyd and Warshall).
fn lightest((nodes, links): &Graph) -> Vec<Vec<Option<(u32, usize)>>> {
    let count = *nodes as usize;
    let mut best: Vec<Vec<Option<(u32, usize)>>> = vec![vec![None; count]; count];
    let take = |current: &mut Option<(u32, usize)>, way: (u32, usize)| {
        *current = Some(current.map_or(way, |current| current.min(way)));
    };
    for (node, row) in best.iter_mut().enumerate() {
        row[node] = Some((0, 0));
    }
    for (from, to, weight, is_directed) in links {
        let (from, to) = (*from as usize, *to as usize);
        take(&mut best[from][to], (*weight, 1));
        if !is_directed {
            take(&mut best[to][from], (*weight, 1));
        }
    }
    for over in 0..count {
        for from in 0..count {
            for to in 0..count {
                if let (Some(there), Some(on)) = (best[from][over], best[over][to]) {
                    take(&mut best[from][to], (there.0 + on.0, there.1 + on.1));
                }
            }
        }
    }
    best
}

/// Fragments of GraphML in arbitrary order.
const DOCUMENT: &str = "(<(graph|node id='a'|edge|data key='label'|/data|/node|/graph)/?>|&#?[0-9a-z]{1,3};|x){0,12}";

proptest! {
    #[test]
    fn ways_are_the_shortest(graph in graph()) {
        let topology = Topology::parse(&document(0..graph.0, &graph.1)).unwrap();
        for (from, row) in lightest(&graph).iter().enumerate() {
            for (to, best) in row.iter().enumerate() {
                let way = topology.shortest_path(u32::try_from(from).unwrap(), u32::try_from(to).unwrap());
                let weight = |way: &[u32]| {
                    let links = way.windows(2).map(|pair| topology.link(pair[0], pair[1]).unwrap().weight);
                    links.sum::<f64>()
                };
                let found = way.map(|way| (weight(&way), way.len() - 1));
                prop_assert_eq!(found, best.map(|(weight, links)| (f64::from(weight), links)));
            }
        }
    }

    #[test]
    fn the_order_of_a_file_does_not_matter(graph in graph()) {
        let (nodes, links) = &graph;
        let backwards: Vec<_> = links.iter().rev().copied().collect();
        let topology = Topology::parse(&document(0..*nodes, links)).unwrap();
        let other = Topology::parse(&document((0..*nodes).rev(), &backwards)).unwrap();
        prop_assert_eq!(&topology, &other);
    }

    #[test]
    fn no_document_panics(document in DOCUMENT) {
        let _ = Topology::parse(&document);
    }
}
