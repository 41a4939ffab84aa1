//! The way between two addresses, as a list of elements that others may share (RFC 9275 §4).
//!
//! A route gives the link from its router to the next one, and an element for each two neighbours in its AS path: so two ways that meet far away show where. (A
//! router knows nothing of the links within other systems.) Where both ends are attached to one topology, its links on the shortest way are the elements instead,
//! each direction for itself, and those of its nodes of which a capacity is told. Names follow from what an element is, and from nothing else.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, net::IpAddr, rc::Rc};

use crate::{
    names::{AneName, NodeName, RouterName, Tag, TopologyName},
    route::Hop,
    routes::Way,
    world::World,
};

/// An abstract network element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// The link from a router to the next one.
    Link {
        /// From it,
        router: RouterName,
        /// to the one with this address.
        next_hop: IpAddr,
    },
    /// The link, or links, between two autonomous systems.
    Adjacency(Hop, Hop),
    /// One direction of a link of a topology.
    Span {
        /// The topology.
        topology: TopologyName,
        /// From this node,
        from: NodeName,
        /// to this one.
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
    /// Its name: `link:ROUTER-ADDRESS`, `as:NUMBER-NUMBER`, `topo:TOPOLOGY:FROM-TO` (`FROM--TO` if one of them has a dash) or `node:TOPOLOGY:NODE`, with `_` for
    /// each dot, which RFC 7285 §10.1 keeps for other uses, and `@` for each blank. Where that is too long, has other characters, or could be the name of two
    /// elements, a digest of it.
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
            AneName::new(&format!("{kind}:{}", Tag::of(text.as_bytes()))).expect("digits make a name")
        })
    }

    /// What can go through it, in bits per second, as far as its topology tells.
    pub fn capacity_bits_per_s(&self, world: &World) -> Option<f64> {
        match self {
            Element::Link { .. } | Element::Adjacency(..) => None,
            Element::Span { topology, from, to } => {
                let topology = world.topology(topology)?;
                topology.link(topology.number(from)?, topology.number(to)?)?.capacity_bits_per_s
            }
            Element::Node { topology, node } => {
                let topology = world.topology(topology)?;
                topology.nodes()[topology.number(node)? as usize].capacity_bits_per_s
            }
        }
    }
}

/// The text for some nodes of a topology. Where it could be taken apart in two ways, lines part it, which no name has.
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

/// A word for one autonomous system, or for some of which nobody knows the order.
pub(crate) fn system(hop: &Hop) -> String {
    match hop {
        Hop::As(number) => number.to_string(),
        Hop::Set(members) => {
            let members: Vec<_> = members.iter().map(u32::to_string).collect();
            format!("set:{}", members.join("."))
        }
    }
}

/// More routers than this in a row are taken for a circle.
const MOST_ROUTERS: usize = 64;

/// One end of ways, with what is to be known of it. It is looked up once, however many pairs it is in.
#[derive(Debug, Clone)]
pub struct End<'a> {
    address: IpAddr,
    /// The router whose routes traffic from there takes.
    router: Option<&'a RouterName>,
    /// The topologies to which it is attached, each with the number of a node.
    nodes: Vec<(&'a TopologyName, u32)>,
}

impl<'a> End<'a> {
    /// The end that `address` is.
    pub fn of(world: &'a World, address: IpAddr) -> Self {
        Self { address, router: world.router_of(address), nodes: world.attachments(address).collect() }
    }

    /// Whether a way may begin there: a router or a topology knows where it leads.
    pub fn is_known(&self) -> bool {
        self.router.is_some() || !self.nodes.is_empty()
    }
}

/// A topology with the numbers of two of its nodes.
type NodePair<'a> = (&'a TopologyName, u32, u32);

/// The ways of a world that are asked for, each found once.
#[derive(Debug)]
pub struct Paths<'a> {
    world: &'a World,
    elements: Vec<Element>,
    numbers: HashMap<Element, u32>,
    /// Ways by their elements' numbers.
    paths: Vec<Rc<[u32]>>,
    path_numbers: HashMap<Rc<[u32]>, u32>,
    /// The path behind a way of a router that leads to no other known router.
    found: HashMap<(&'a RouterName, u32), u32>,
    /// The paths between nodes, where there is one.
    crossed: HashMap<NodePair<'a>, Option<u32>>,
}

impl<'a> Paths<'a> {
    /// Ways of `world`, none found yet.
    pub fn of(world: &'a World) -> Self {
        Self {
            world,
            elements: Vec::new(),
            numbers: HashMap::new(),
            paths: Vec::new(),
            path_numbers: HashMap::new(),
            found: HashMap::new(),
            crossed: HashMap::new(),
        }
    }

    /// The number of the path from one end to another: over the first topology, by name, to which both are attached and that has a way between them, else by the
    /// routes of the router behind which the source is. None if there is neither, or only a circle, and between families: packets of one do not become those of the
    /// other.
    pub fn between(&mut self, from: &End<'a>, to: &End<'a>) -> Option<u32> {
        if from.address.is_ipv4() != to.address.is_ipv4() {
            return None;
        }
        let crossed = from.nodes.iter().find_map(|(topology, node)| {
            let (_, other) = to.nodes.iter().find(|(other, _)| other == topology)?;
            self.cross((*topology, *node, *other))
        });
        crossed.or_else(|| self.route(from.router?, to.address))
    }

    /// The path between two nodes of a topology.
    fn cross(&mut self, pair: NodePair<'a>) -> Option<u32> {
        if let Some(path) = self.crossed.get(&pair) {
            return *path;
        }
        let path = across(self.world, pair).map(|elements| self.path(elements));
        self.crossed.insert(pair, path);
        path
    }

    /// The path by the routes of `router`.
    fn route(&mut self, router: &'a RouterName, destination: IpAddr) -> Option<u32> {
        let world = self.world;
        let table = world.table(router)?;
        let number = table.find(destination)?;
        if let Some(path) = self.found.get(&(router, number)) {
            return Some(*path);
        }
        let way = table.way(number);
        let is_last = way.next_hop.and_then(|next| world.router_at(next)).is_none();
        let elements = along(world, router, way, destination)?;
        let path = self.path(elements);
        // Behind another router, addresses that take the same way here may part.
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

    /// The paths that were found, in the order of their numbers: the positions of the [elements](Self::elements) of each, from source to destination.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.paths.iter().map(|path| &**path)
    }

    /// How many elements the path of that number has.
    pub fn length(&self, path: u32) -> usize {
        self.paths[path as usize].len()
    }

    /// The elements of all paths that were found, each once.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }
}

/// The elements on the shortest way between two nodes of a topology.
fn across(world: &World, (name, from, to): NodePair<'_>) -> Option<Vec<Element>> {
    let topology = world.topology(name)?;
    let mut elements = Vec::new();
    let mut last: Option<&NodeName> = None;
    for number in topology.way(from, to)? {
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

/// The elements on the way that `router` has to `destination`, and on those of the routers behind it; none if that is a circle.
fn along<'a>(
    world: &'a World,
    mut router: &'a RouterName,
    mut way: &'a Way,
    destination: IpAddr,
) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    for _ in 0..MOST_ROUTERS {
        if let Some(next_hop) = way.next_hop {
            elements.push(Element::Link { router: router.clone(), next_hop });
        }
        let Some(next) = way.next_hop.and_then(|next| world.router_at(next)) else {
            let pairs = way.as_path.hops().windows(2);
            elements.extend(pairs.map(|pair| Element::Adjacency(pair[0].clone(), pair[1].clone())));
            return Some(elements);
        };
        let Some(table) = world.table(next) else { return Some(elements) };
        let Some(number) = table.find(destination) else { return Some(elements) };
        (router, way) = (next, table.way(number));
    }
    None
}
