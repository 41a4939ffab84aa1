//! A topology as read from its file, before its nodes are indexed.

use std::collections::HashMap;

use super::{Link, Node, Topology, TopologyError};
use crate::{
    geo::{Point, Position},
    lenient::Scalar,
    names::NodeName,
};

/// A node as read.
#[derive(Debug, Default)]
pub(super) struct WrittenNode {
    /// ID used by links.
    pub(super) id: String,
    pub(super) capacity_bits_per_s: Option<f64>,
    label: Option<String>,
    latitude: Option<f64>,
    longitude: Option<f64>,
}

impl WrittenNode {
    /// Creates a node with this ID.
    pub(super) fn new(id: String) -> Self {
        Self { id, ..Self::default() }
    }

    /// Stores the value of a field. The first of several fields with the same meaning wins.
    pub(super) fn note(&mut self, field: &str, value: &Scalar) {
        match &*field.to_ascii_lowercase() {
            "label" | "name" if self.label.is_none() => {
                let text = value.as_text().unwrap_or_default();
                let label = text.split_whitespace().collect::<Vec<_>>().join(" ");
                self.label = Some(label).filter(|label| !label.is_empty());
            }
            "latitude" => self.latitude = self.latitude.or_else(|| value.as_number()),
            "longitude" => self.longitude = self.longitude.or_else(|| value.as_number()),
            "capacity" | "bandwidth" => {
                self.capacity_bits_per_s = self.capacity_bits_per_s.or_else(|| amount(value));
            }
            _ => {}
        }
    }

    fn point(&self) -> Option<Point> {
        Position::new(self.latitude?, self.longitude?).map(Point::at)
    }
}

/// A link as read.
#[derive(Debug, Default)]
pub(super) struct WrittenLink {
    /// IDs of its ends.
    pub(super) from: String,
    pub(super) to: String,
    /// Whether the link is directed; if unknown, the default of the topology applies.
    pub(super) is_directed: Option<bool>,
    pub(super) capacity_bits_per_s: Option<f64>,
    pub(super) length_km: Option<f64>,
    pub(super) weight: Option<f64>,
}

impl WrittenLink {
    /// Stores the value of a field. The first of several fields with the same meaning wins.
    pub(super) fn note(&mut self, field: &str, value: &Scalar) {
        let known = match &*field.to_ascii_lowercase() {
            "capacity" | "bandwidth" | "linkspeedraw" => &mut self.capacity_bits_per_s,
            "length" | "dist" => &mut self.length_km,
            "weight" => &mut self.weight,
            _ => return,
        };
        *known = known.or_else(|| amount(value));
    }
}

/// Returns the value as a finite number of at least 0.
fn amount(value: &Scalar) -> Option<f64> {
    value.as_number().filter(|number| number.is_finite() && *number >= 0.0)
}

/// The topology read so far.
#[derive(Debug)]
pub(super) struct TopologyBuilder {
    /// Whether links are directed by default.
    pub(super) is_directed: bool,
    nodes: Vec<WrittenNode>,
    links: Vec<WrittenLink>,
    /// Maximum number of nodes and of links.
    room: (usize, usize),
    /// The limit that was exceeded.
    excess: Option<TopologyError>,
}

impl TopologyBuilder {
    /// Creates an empty draft with these limits.
    pub(super) fn with_room(nodes: usize, links: usize) -> Self {
        Self { is_directed: false, nodes: Vec::new(), links: Vec::new(), room: (nodes, links), excess: None }
    }

    /// Adds a node. A missing ID defaults to the label, else to the position.
    pub(super) fn add_node(&mut self, mut node: WrittenNode) {
        if self.nodes.len() == self.room.0 {
            self.excess = Some(TopologyError::TooManyNodes);
            return;
        }
        if node.id.is_empty() {
            node.id = node.label.clone().unwrap_or_else(|| self.nodes.len().to_string());
        }
        self.nodes.push(node);
    }

    /// Adds a link.
    pub(super) fn add_link(&mut self, link: WrittenLink) {
        if self.links.len() == self.room.1 {
            self.excess = Some(TopologyError::TooManyLinks);
            return;
        }
        self.links.push(link);
    }

    /// Builds the topology.
    pub(super) fn finish(self) -> Result<Topology, TopologyError> {
        if let Some(excess) = self.excess {
            return Err(excess);
        }
        if self.nodes.is_empty() {
            return Err(TopologyError::NoNode);
        }
        let names = names(&self.nodes)?;
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by(|one, other| names[*one].cmp(&names[*other]));
        let links = links(&self.nodes, &order, &self.links, self.is_directed)?;
        let nodes = order.iter().map(|position| {
            let capacity_bits_per_s = self.nodes[*position].capacity_bits_per_s;
            Node { name: names[*position].clone(), capacity_bits_per_s }
        });
        Ok(Topology::of(nodes.collect(), links))
    }
}

/// Returns the names of the nodes: labels where they are unique, else IDs.
fn names(nodes: &[WrittenNode]) -> Result<Vec<NodeName>, TopologyError> {
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for node in nodes {
        let label = node.label.as_deref().filter(|label| *label != node.id);
        for text in [Some(&*node.id), label].into_iter().flatten() {
            *uses.entry(text).or_default() += 1;
        }
    }
    let name = |node: &WrittenNode| {
        let label = node.label.as_deref().filter(|label| uses[label] == 1);
        let label = label.and_then(|label| NodeName::new(label).ok());
        label.map_or_else(|| NodeName::new(&node.id).map_err(TopologyError::Name), Ok)
    };
    nodes.iter().map(name).collect()
}

/// Returns the directed links between nodes indexed by `order`; bidirectional links yield both directions.
fn links(
    nodes: &[WrittenNode],
    order: &[usize],
    written: &[WrittenLink],
    is_directed: bool,
) -> Result<Vec<Link>, TopologyError> {
    let ends = ends(nodes, order, written)?;
    let point = |number: u32| nodes[order[number as usize]].point();
    let length = |link: &WrittenLink, (from, to): (u32, u32)| {
        link.length_km.or_else(|| Some(point(from)?.distance_km(&point(to)?)))
    };
    let lengths: Vec<Option<f64>> = written.iter().zip(&ends).map(|(link, ends)| length(link, *ends)).collect();
    // Mixing kilometres with the default 1 would attract all traffic to links of unknown length.
    let are_measured = written.iter().zip(&lengths).all(|(link, length)| link.weight.or(*length).is_some());
    let mut links = Vec::with_capacity(2 * written.len());
    for ((link, (from, to)), length_km) in written.iter().zip(ends).zip(lengths) {
        let default_weight = length_km.filter(|_| are_measured).unwrap_or(1.0);
        let weight = link.weight.unwrap_or(default_weight);
        let there = Link { from, to, capacity_bits_per_s: link.capacity_bits_per_s, length_km, weight };
        links.push(there);
        if !link.is_directed.unwrap_or(is_directed) {
            links.push(Link { from: to, to: from, ..there });
        }
    }
    Ok(links)
}

/// Returns the node indices at both ends of each link.
fn ends(nodes: &[WrittenNode], order: &[usize], written: &[WrittenLink]) -> Result<Vec<(u32, u32)>, TopologyError> {
    let mut numbers: HashMap<&str, u32> = HashMap::with_capacity(nodes.len());
    for (position, number) in order.iter().zip(0..) {
        let id = &*nodes[*position].id;
        if numbers.insert(id, number).is_some() {
            return Err(TopologyError::Twice(cut(id)));
        }
    }
    let number = |id: &str| numbers.get(id).copied().ok_or_else(|| TopologyError::Dangling(cut(id)));
    written.iter().map(|link| Ok((number(&link.from)?, number(&link.to)?))).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}
