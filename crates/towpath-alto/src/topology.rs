//! Topologies: the nodes and links of a network, and what is attached to the nodes.
//!
//! [`Topology::parse`] reads GraphML and node-link JSON, of which it takes what it knows and passes over the rest; static files of facts say the same in a form of
//! their own ([`Told`]). Between two addresses that are [`Attached`] to one topology, traffic takes the shortest way by weight; [`crate::path`] makes elements of
//! it.
//!
//! Ways are single: where a network shares traffic among equal ones, one of them is told, always the same.

mod attached;
mod draft;
mod graphml;
mod node_link;
mod shortest;
#[cfg(test)]
mod tests;
mod told;

pub use self::{
    attached::{AttachFault, Attached},
    told::{Amount, Told, ToldLink},
};
use self::{draft::Draft, shortest::Trees};
use crate::names::{Malformed, NodeName};

/// The longest file that is read, in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// The most nodes of one topology. Networks have up to some thousands, and one request may ask for the ways from all nodes.
pub const MAX_NODES: usize = 5_000;

/// The most links of one topology, as its file has them: one that leads both ways counts once.
pub const MAX_LINKS: usize = 50_000;

/// The nodes and links of a network; never changed. In memory at most about 10 MiB, and 4 bytes for each two nodes once ways from all of them were asked for, which
/// is 100 MiB; while it is read a few times its file.
///
/// Nodes are numbered in the order of their names, so that the order of a file does not matter.
#[derive(Debug, Default, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
    /// In the order of their ends, and one for each two.
    links: Vec<Link>,
    /// For each node the position of the first link from it, and behind them the number of links.
    starts: Vec<usize>,
    has_capacities: bool,
    trees: Trees,
}

/// A node of a topology.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name: no other node of the topology has it.
    pub name: NodeName,
    /// What can go through it, in bits per second, if it is told.
    pub capacity_bits_per_s: Option<f64>,
}

/// One direction of a link: links are full duplex, so that traffic one way takes nothing from that the other way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// The number of the node where it begins,
    pub from: u32,
    /// and of the one where it ends.
    pub to: u32,
    /// In bits per second, if it is told.
    pub capacity_bits_per_s: Option<f64>,
    /// Told, or the distance of the nodes along the surface of the Earth, if their places are.
    pub length_km: Option<f64>,
    /// What routing takes it for: 0 or more.
    pub weight: f64,
}

/// Why a topology cannot be read: the fault of its file, or of who named it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// It is longer than [`MAX_BYTES`].
    #[error(
        "the topology has {0} bytes, and at most {MAX_BYTES} are read: leave out what says nothing of nodes and links"
    )]
    TooLarge(usize),
    /// It has more than [`MAX_NODES`].
    #[error("the topology has more than {MAX_NODES} nodes: split it")]
    TooManyNodes,
    /// It has more than [`MAX_LINKS`].
    #[error("the topology has more than {MAX_LINKS} links: split it, or join parallel ones")]
    TooManyLinks,
    /// It is neither XML nor JSON.
    #[error("the topology is neither GraphML nor node-link JSON: {0}")]
    Invalid(String),
    /// Nothing in it is a node, which is more likely another document than a network without nodes.
    #[error("there is no node in this: it must be GraphML, or JSON with `nodes` and `links` or `edges`")]
    NoNode,
    /// Two nodes have this id, cut to 64 characters.
    #[error("two nodes of the topology have the id '{0}': give each its own")]
    Twice(String),
    /// A link leads from or to this id, cut to 64 characters, which no node has.
    #[error(
        "a link of the topology leads from or to '{0}', which no node has for its id: list that node, or leave out the link"
    )]
    Dangling(String),
    /// A node has no name that can be one.
    #[error("the topology has a node without a name: {0}")]
    Name(Malformed),
}

impl Topology {
    /// Reads GraphML or node-link JSON (`nodes`, and `links` or `edges`, as networkx writes them).
    ///
    /// - Nodes: `label` or `name`; `Latitude` and `Longitude`, or `pos` with the longitude first, in degrees. A node is called by its label if nothing else has it
    ///   for a label or id, else by its id.
    /// - Links: `capacity`, `bandwidth` or `LinkSpeedRaw` in bits per second; `length` or `dist` in km; `weight`. Without weights it is the length, if that is known
    ///   of all links that have none, else 1.
    /// - Nodes may have a `capacity` or `bandwidth` too. Case does not matter; numbers may be texts; what is less than 0 is passed over.
    /// - Of parallel links only that of the least weight is taken, among those that of the most capacity; links from a node to itself are passed over.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        Self::parse_within(text, Draft::with_room(MAX_NODES, MAX_LINKS))
    }

    fn parse_within(text: &str, mut draft: Draft) -> Result<Self, TopologyError> {
        if text.len() > MAX_BYTES {
            return Err(TopologyError::TooLarge(text.len()));
        }
        let text = text.trim_start_matches('\u{feff}');
        if text.trim_start().starts_with('{') {
            node_link::read(text, &mut draft)?;
        } else {
            graphml::read(text, &mut draft)?;
        }
        draft.finish()
    }

    /// The topology of these nodes, in the order of their names, and links.
    fn of(nodes: Vec<Node>, mut links: Vec<Link>) -> Self {
        links.retain(|link| link.from != link.to);
        let capacity = |link: &Link| link.capacity_bits_per_s.unwrap_or_default();
        links.sort_by(|one, other| {
            let by_ends = (one.from, one.to).cmp(&(other.from, other.to));
            by_ends.then(one.weight.total_cmp(&other.weight)).then(capacity(other).total_cmp(&capacity(one)))
        });
        links.dedup_by_key(|link| (link.from, link.to));
        let starts = (0..=nodes.len()).map(|node| links.partition_point(|link| (link.from as usize) < node)).collect();
        let has_capacities = nodes.iter().any(|node| node.capacity_bits_per_s.is_some())
            || links.iter().any(|link| link.capacity_bits_per_s.is_some());
        let trees = Trees::with_room(nodes.len());
        Self { nodes, links, starts, has_capacities, trees }
    }

    /// Its nodes in the order of their names, which is that of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its links, each direction for itself, in the order of their ends.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The links from the node of that number.
    pub fn links_from(&self, node: u32) -> &[Link] {
        let node = node as usize;
        &self.links[self.starts[node]..self.starts[node + 1]]
    }

    /// The number of the node of that name.
    pub fn number(&self, name: &NodeName) -> Option<u32> {
        let position = self.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        Some(u32::try_from(position).expect("there are at most MAX_NODES"))
    }

    /// The link from one node to another, by their numbers.
    pub fn link(&self, from: u32, to: u32) -> Option<&Link> {
        let links = self.links_from(from);
        links.binary_search_by_key(&to, |link| link.to).ok().map(|position| &links[position])
    }

    /// Whether the capacity of a node or link is told.
    pub fn has_capacities(&self) -> bool {
        self.has_capacities
    }
}
