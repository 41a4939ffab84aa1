//! Topologies: nodes and links of a network, and the prefixes attached to the nodes.
//!
//! [`Topology::parse`] reads the known fields of GraphML and node-link JSON and ignores the rest; static fact files
//! have a format of their own ([`TopologyFacts`]). Between two addresses that are [`AttachedTopology`] to one topology,
//! traffic takes the shortest path by weight, whose elements [`crate::path`] derives.
//!
//! There is one path per pair: if a network balances load over equal paths, always the same one of them is reported.

mod attached_topology;
mod builder;
mod facts;
mod graphml;
mod node_link;
mod shortest;
#[cfg(test)]
mod tests;

pub use self::{
    attached_topology::{AttachFault, AttachedTopology},
    facts::{Amount, LinkFacts, TopologyFacts},
};
use self::{builder::TopologyBuilder, shortest::Trees};
use crate::names::{NodeName, ParseError};

/// Maximum size of a file, in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// Maximum number of nodes. Networks have up to a few thousand, and one request may need the paths from all nodes.
pub const MAX_NODES: usize = 5_000;

/// Maximum number of links in a file; a bidirectional link counts once.
pub const MAX_LINKS: usize = 50_000;

/// Nodes and links of a network; immutable. Takes at most about 10 MiB, and 4 bytes per pair of nodes once the paths
/// from all nodes have been requested, 100 MiB in total. Parsing takes a few times the size of the file.
///
/// Nodes are indexed in the order of their names, so that the order in the file is irrelevant.
#[derive(Debug, Default, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
    /// Sorted by their ends, with one link per ordered pair.
    links: Vec<Link>,
    /// For each node the index of its first outgoing link, followed by the number of links.
    starts: Vec<usize>,
    has_capacities: bool,
    trees: Trees,
}

/// A node of a topology.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name, unique within the topology.
    pub name: NodeName,
    /// Capacity in bits per second, if known.
    pub capacity_bits_per_s: Option<f64>,
}

/// One direction of a link. Links are full duplex: the directions do not share capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Index of the source node.
    pub from: u32,
    /// Index of the target node.
    pub to: u32,
    /// Capacity in bits per second, if known.
    pub capacity_bits_per_s: Option<f64>,
    /// Length from the file, else the great-circle distance of the nodes if their coordinates are known.
    pub length_km: Option<f64>,
    /// Routing weight; at least 0.
    pub weight: f64,
}

/// Why a topology cannot be read. The file or its configured location is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The file is longer than [`MAX_BYTES`].
    #[error("the topology has {0} bytes, more than the limit of {MAX_BYTES}: remove data unrelated to nodes and links")]
    TooLarge(usize),
    /// The topology has more than [`MAX_NODES`].
    #[error("the topology has more than {MAX_NODES} nodes: split it")]
    TooManyNodes,
    /// The topology has more than [`MAX_LINKS`].
    #[error("the topology has more than {MAX_LINKS} links: split it, or join parallel ones")]
    TooManyLinks,
    /// The file is neither XML nor JSON.
    #[error("the topology is neither GraphML nor node-link JSON: {0}")]
    Invalid(String),
    /// The document contains no node, which more likely means a wrong document than an empty network.
    #[error("the topology has no nodes: it must be GraphML, or JSON with `nodes` and `links` or `edges`")]
    NoNode,
    /// Two nodes have this ID (truncated to 64 characters).
    #[error("two nodes of the topology have the id '{0}': give each a unique id")]
    Twice(String),
    /// A link refers to this ID (truncated to 64 characters), which no node has.
    #[error("a link of the topology refers to '{0}', which is not the id of any node: add the node or remove the link")]
    Dangling(String),
    /// A node has no valid name.
    #[error("the topology has a node without a name: {0}")]
    Name(ParseError),
}

impl Topology {
    /// Parses GraphML or node-link JSON (`nodes`, and `links` or `edges`, the format of networkx).
    ///
    /// - Nodes: `label` or `name`; `Latitude` and `Longitude`, or `pos` with the longitude first, in degrees. The name
    ///   of a node is its label if that is unique among all labels and IDs, else its ID.
    /// - Links: `capacity`, `bandwidth` or `LinkSpeedRaw` in bits per second; `length` or `dist` in km; `weight`. A
    ///   missing weight defaults to the length, if all links without weights have one, else to 1.
    /// - Nodes may also have a `capacity` or `bandwidth`. Field names are case-insensitive; numbers may be texts;
    ///   negative values are ignored.
    /// - Of parallel links only the one with the lowest weight is kept, and on a tie the one with the highest capacity.
    ///   Links from a node to itself are ignored.
    ///
    /// # Errors
    /// Returns [`TopologyError`].
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        Self::parse_within(text, TopologyBuilder::with_room(MAX_NODES, MAX_LINKS))
    }

    fn parse_within(text: &str, mut builder: TopologyBuilder) -> Result<Self, TopologyError> {
        if text.len() > MAX_BYTES {
            return Err(TopologyError::TooLarge(text.len()));
        }
        let text = text.trim_start_matches('\u{feff}');
        if text.trim_start().starts_with('{') {
            node_link::read(text, &mut builder)?;
        } else {
            graphml::read(text, &mut builder)?;
        }
        builder.finish()
    }

    /// Creates a topology from nodes sorted by name and links.
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

    /// Returns the nodes by index, which is the order of their names.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the directed links, sorted by their ends.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the topology without these links, given by their ends. The nodes keep their indices.
    pub fn without(&self, removed: &[(u32, u32)]) -> Self {
        let links = self.links.iter().filter(|link| !removed.contains(&(link.from, link.to)));
        Self::of(self.nodes.clone(), links.copied().collect())
    }

    /// Returns the links from a node.
    pub(crate) fn links_from(&self, node: u32) -> &[Link] {
        let node = node as usize;
        &self.links[self.starts[node]..self.starts[node + 1]]
    }

    /// Returns the index of a node.
    pub fn number(&self, name: &NodeName) -> Option<u32> {
        let position = self.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        Some(u32::try_from(position).expect("there are at most MAX_NODES"))
    }

    /// Returns the link between two nodes, given by index.
    pub fn link(&self, from: u32, to: u32) -> Option<&Link> {
        let links = self.links_from(from);
        links.binary_search_by_key(&to, |link| link.to).ok().map(|position| &links[position])
    }

    /// Returns whether the capacity of any node or link is known.
    pub(crate) fn has_capacities(&self) -> bool {
        self.has_capacities
    }
}
