//! Path between two addresses as a list of abstract network elements that paths may share (RFC 9275 §4).
//!
//! A route contributes the link from its router to the next hop, and one element per pair of neighbours in its AS path,
//! so that paths that meet at a distance share elements. (A router knows nothing of the links within other systems.) If
//! both ends are attached to one topology, the elements are instead the directed links of the shortest path in it, and
//! its nodes with a known capacity. The name of an element depends only on the element.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, net::IpAddr, rc::Rc};

use crate::{
    names::{AneName, NodeName, RouterName, Tag, TopologyName},
    network_state::NetworkState,
    route::Hop,
    routes::PathAttributes,
};

/// An abstract network element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// The link from a router to the next hop.
    Link {
        /// The router.
        router: RouterName,
        /// Address of the next hop.
        next_hop: IpAddr,
    },
    /// The link, or links, between two autonomous systems.
    Adjacency(Hop, Hop),
    /// One direction of a topology link.
    Span {
        /// The topology.
        topology: TopologyName,
        /// Source node.
        from: NodeName,
        /// Target node.
        to: NodeName,
    },
    /// A node of a topology.
    Node {
        /// The topology.
        topology: TopologyName,
        /// The node.
        node: NodeName,
    },
}

impl Element {
    /// Returns the name: `link:ROUTER-ADDRESS`, `as:NUMBER-NUMBER`, `topo:TOPOLOGY:FROM-TO` (`FROM--TO` if either has a
    /// dash) or `node:TOPOLOGY:NODE`, with `_` for each dot, which RFC 7285 §10.1 reserves, and `@` for each blank. If
    /// the result is too long, has other characters, or is ambiguous, a digest replaces the part after the first colon.
    pub fn name(&self) -> AneName {
        let (kind, text) = match self {
            Element::Link { router, next_hop } => ("link", format!("{router}-{next_hop}")),
            Element::Adjacency(from, to) => ("as", format!("{}-{}", system(from), system(to))),
            Element::Span { topology, from, to } => ("topo", within(topology, &[from, to])),
            Element::Node { topology, node } => ("node", within(topology, &[node])),
        };
        let plain = Some(text.replace('.', "_").replace(' ', "@")).filter(|_| !text.contains('_'));
        let named = plain.and_then(|plain| AneName::new(&format!("{kind}:{plain}")).ok());
        named.unwrap_or_else(|| {
            AneName::new(&format!("{kind}:{}", Tag::of(text.as_bytes()))).expect("hex digits form a valid name")
        })
    }

    /// Returns the capacity in bits per second, if the topology defines it.
    pub(crate) fn capacity_bits_per_s(&self, network_state: &NetworkState) -> Option<f64> {
        match self {
            Element::Link { .. } | Element::Adjacency(..) => None,
            Element::Span { topology, from, to } => {
                let topology = network_state.topology(topology)?;
                topology.link(topology.number(from)?, topology.number(to)?)?.capacity_bits_per_s
            }
            Element::Node { topology, node } => {
                let topology = network_state.topology(topology)?;
                topology.nodes()[topology.number(node)? as usize].capacity_bits_per_s
            }
        }
    }
}

/// Returns the text for nodes of a topology. If it would be ambiguous, newlines separate the names, because no name
/// contains one.
fn within(topology: &TopologyName, nodes: &[&NodeName]) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
    let is_plain = |name: &&str| {
        let has_edge = name.starts_with('-') || name.ends_with('-') || name.contains("--");
        !has_edge && !name.contains(['_', '@', ':'])
    };
    if !names.iter().all(is_plain) {
        return format!("{topology}\n{}", names.join("\n"));
    }
    let dash = if names.iter().any(|name| name.contains('-')) { "--" } else { "-" };
    format!("{topology}:{}", names.join(dash))
}

/// Returns a name for one autonomous system or an unordered set of them.
pub(crate) fn system(hop: &Hop) -> String {
    match hop {
        Hop::As(number) => number.to_string(),
        Hop::Set(members) => {
            let members: Vec<_> = members.iter().map(u32::to_string).collect();
            format!("set:{}", members.join("."))
        }
    }
}

/// Maximum number of consecutive routers; more are treated as a routing loop.
const MAX_ROUTERS: usize = 64;

/// One end of paths with its router and attachments, looked up once however many pairs include it.
#[derive(Debug, Clone)]
pub struct PathEndpoint<'a> {
    address: IpAddr,
    /// The router whose routes traffic from this address takes.
    router: Option<&'a RouterName>,
    /// The topologies that the address is attached to, with the node index in each.
    nodes: Vec<(&'a TopologyName, u32)>,
}

impl<'a> PathEndpoint<'a> {
    /// Looks up `address`.
    pub fn of(network_state: &'a NetworkState, address: IpAddr) -> Self {
        Self { address, router: network_state.router_of(address), nodes: network_state.attachments(address).collect() }
    }

    /// Returns whether paths can start here, because a router or a topology is known.
    pub fn is_known(&self) -> bool {
        self.router.is_some() || !self.nodes.is_empty()
    }
}

/// A topology and the indices of two of its nodes.
type NodePair<'a> = (&'a TopologyName, u32, u32);

/// Computes and caches the requested paths.
#[derive(Debug)]
pub struct Paths<'a> {
    network_state: &'a NetworkState,
    elements: Vec<Element>,
    numbers: HashMap<Element, u32>,
    /// Paths as element indices.
    paths: Vec<Rc<[u32]>>,
    path_numbers: HashMap<Rc<[u32]>, u32>,
    /// Paths by route, for routes whose next hop is no known router.
    found: HashMap<(&'a RouterName, u32), u32>,
    /// Paths between nodes; `None` where there is none.
    crossed: HashMap<NodePair<'a>, Option<u32>>,
}

impl<'a> Paths<'a> {
    /// Creates an empty cache for `network_state`.
    pub fn of(network_state: &'a NetworkState) -> Self {
        Self {
            network_state,
            elements: Vec::new(),
            numbers: HashMap::new(),
            paths: Vec::new(),
            path_numbers: HashMap::new(),
            found: HashMap::new(),
            crossed: HashMap::new(),
        }
    }

    /// Returns the index of the path between two ends. It uses the first topology, by name, that both are attached to
    /// and that connects them, else the routes of the source's router. Returns `None` if there is neither, if the
    /// routes form a loop, and between address families, because packets are not translated.
    pub fn between(&mut self, from: &PathEndpoint<'a>, to: &PathEndpoint<'a>) -> Option<u32> {
        if from.address.is_ipv4() != to.address.is_ipv4() {
            return None;
        }
        let crossed = from.nodes.iter().find_map(|(topology, node)| {
            let (_, other) = to.nodes.iter().find(|(other, _)| other == topology)?;
            self.cross((*topology, *node, *other))
        });
        crossed.or_else(|| self.route(from.router?, to.address))
    }

    /// Returns the path between two nodes of a topology.
    fn cross(&mut self, pair: NodePair<'a>) -> Option<u32> {
        if let Some(path) = self.crossed.get(&pair) {
            return *path;
        }
        let path = across(self.network_state, pair).map(|elements| self.path(elements));
        self.crossed.insert(pair, path);
        path
    }

    /// Returns the path along the routes of `router`.
    fn route(&mut self, router: &'a RouterName, destination: IpAddr) -> Option<u32> {
        let network_state = self.network_state;
        let table = network_state.table(router)?;
        let number = table.find(destination)?;
        if let Some(path) = self.found.get(&(router, number)) {
            return Some(*path);
        }
        let attributes = table.attributes(number);
        let is_last = attributes.next_hop.and_then(|next| network_state.router_at(next)).is_none();
        let elements = along(network_state, router, attributes, destination)?;
        let path = self.path(elements);
        // Behind another router, addresses of the same route here may diverge.
        if is_last {
            self.found.insert((router, number), path);
        }
        Some(path)
    }

    fn element(&mut self, element: Element) -> u32 {
        if let Some(number) = self.numbers.get(&element) {
            return *number;
        }
        let number = u32::try_from(self.elements.len()).expect("memory ends before numbers do");
        self.elements.push(element.clone());
        self.numbers.insert(element, number);
        number
    }

    fn path(&mut self, elements: Vec<Element>) -> u32 {
        let elements: Rc<[u32]> = elements.into_iter().map(|element| self.element(element)).collect();
        if let Some(number) = self.path_numbers.get(&elements) {
            return *number;
        }
        let number = u32::try_from(self.paths.len()).expect("memory ends before numbers do");
        self.paths.push(Rc::clone(&elements));
        self.path_numbers.insert(elements, number);
        number
    }

    /// Returns the paths found, by index: for each the indices of its [elements](Self::elements), from source to
    /// destination.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.paths.iter().map(|path| &**path)
    }

    /// Returns the number of elements of a path.
    pub fn length(&self, path: u32) -> usize {
        self.paths[path as usize].len()
    }

    /// Returns the distinct elements of all paths found.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }
}

/// Returns the elements of the shortest path between two nodes of a topology.
fn across(network_state: &NetworkState, (name, from, to): NodePair<'_>) -> Option<Vec<Element>> {
    let topology = network_state.topology(name)?;
    let mut elements = Vec::new();
    let mut last: Option<&NodeName> = None;
    for number in topology.shortest_path(from, to)? {
        let node = &topology.nodes()[number as usize];
        if let Some(last) = last {
            elements.push(Element::Span { topology: name.clone(), from: last.clone(), to: node.name.clone() });
        }
        if node.capacity_bits_per_s.is_some() {
            elements.push(Element::Node { topology: name.clone(), node: node.name.clone() });
        }
        last = Some(&node.name);
    }
    Some(elements)
}

/// Returns the elements on the route of `router` to `destination` and on those of the following routers, or `None` for
/// a loop.
fn along<'a>(
    network_state: &'a NetworkState,
    mut router: &'a RouterName,
    mut attributes: &'a PathAttributes,
    destination: IpAddr,
) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    for _ in 0..MAX_ROUTERS {
        if let Some(next_hop) = attributes.next_hop {
            elements.push(Element::Link { router: router.clone(), next_hop });
        }
        let Some(next) = attributes.next_hop.and_then(|next| network_state.router_at(next)) else {
            let pairs = attributes.as_path.hops().windows(2);
            elements.extend(pairs.map(|pair| Element::Adjacency(pair[0].clone(), pair[1].clone())));
            return Some(elements);
        };
        let Some(table) = network_state.table(next) else { return Some(elements) };
        let Some(number) = table.find(destination) else { return Some(elements) };
        (router, attributes) = (next, table.attributes(number));
    }
    None
}
