//! Facts of an agent about a topology, and their format in static files.
//!
//! ```toml
//! [topology.geant]
//! attach = { "Geneva" = ["137.138.0.0/16"], "Paris" = ["134.158.0.0/16"] }
//! links = [{ from = "Geneva", to = "Paris", capacity = 100e9, length = 410, weight = 10 }] # bits/s, km
//! nodes = { "Paris" = { capacity = 400e9 } } # bits/s
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    AttachFault, AttachedTopology, Link, MAX_LINKS, MAX_NODES, Topology, TopologyError,
    builder::{TopologyBuilder, WrittenLink, WrittenNode},
};
use crate::{
    address::Prefix,
    names::{NodeName, TopologyName},
};

/// An agent's facts about a topology.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopologyFacts {
    /// Nodes and links, or `None` if another agent supplies them.
    pub topology: Option<Arc<Topology>>,
    /// Prefixes attached to the nodes.
    pub attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
}

impl TopologyFacts {
    /// Creates a topology from links and the nodes at their ends, with the attached prefixes.
    ///
    /// # Errors
    /// Returns an error if there are too many of either.
    pub fn from_links(
        links: &[&LinkFacts],
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    ) -> Result<Self, TopologyError> {
        Self::of(&BTreeMap::new(), links, attach)
    }

    fn of(
        nodes: &BTreeMap<NodeName, NodeInFile>,
        links: &[&LinkFacts],
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    ) -> Result<Self, TopologyError> {
        if nodes.is_empty() && links.is_empty() {
            return Ok(Self { topology: None, attach });
        }
        let mut builder = TopologyBuilder::with_room(MAX_NODES, MAX_LINKS);
        let ends = links.iter().flat_map(|link| [&link.from, &link.to]);
        for name in nodes.keys().chain(ends).collect::<BTreeSet<_>>() {
            let capacity = nodes.get(name).and_then(|node| node.capacity);
            let mut node = WrittenNode::new(name.to_string());
            node.capacity_bits_per_s = capacity.map(|Amount(bits_per_s)| bits_per_s);
            builder.add_node(node);
        }
        links.iter().for_each(|link| builder.add_link(link.written()));
        Ok(Self { topology: Some(Arc::new(builder.finish()?)), attach })
    }

    /// Merges the facts of a later agent: its nodes and links replace earlier ones, and attached prefixes are combined.
    pub(crate) fn join(&mut self, later: &Self) {
        if later.topology.is_some() {
            self.topology.clone_from(&later.topology);
        }
        for (node, prefixes) in &later.attach {
            self.attach.entry(node.clone()).or_default().extend(prefixes);
        }
    }

    /// Builds the topology for the network state.
    ///
    /// # Errors
    /// Returns [`AttachFault`].
    pub(crate) fn resolve_attachments(&self, name: &TopologyName) -> Result<AttachedTopology, AttachFault> {
        AttachedTopology::of(name, self.topology.clone().unwrap_or_default(), &self.attach)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TopologyInFile {
    attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    nodes: BTreeMap<NodeName, NodeInFile>,
    links: Vec<LinkFacts>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeInFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Amount>,
}

/// A link reported by an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFacts {
    /// Node where it begins.
    pub from: NodeName,
    /// Node where it ends.
    pub to: NodeName,
    /// In bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// In km.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Amount>,
    /// Routing weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Amount>,
    /// Whether the link is directed.
    #[serde(default)]
    pub directed: bool,
}

impl LinkFacts {
    fn written(&self) -> WrittenLink {
        let number = |amount: Option<Amount>| amount.map(|Amount(number)| number);
        WrittenLink {
            from: self.from.to_string(),
            to: self.to.to_string(),
            is_directed: Some(self.directed),
            capacity_bits_per_s: number(self.capacity),
            length_km: number(self.length),
            weight: number(self.weight),
        }
    }
}

/// A number of at least 0.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Amount(f64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let is_amount = value.is_finite() && value >= 0.0;
        is_amount
            .then_some(Self(value))
            .ok_or_else(|| de::Error::custom(format!("{value} is out of range: expected 0 or more")))
    }
}

impl<'de> Deserialize<'de> for TopologyFacts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let TopologyInFile { attach, nodes, links } = TopologyInFile::deserialize(deserializer)?;
        Self::of(&nodes, &links.iter().collect::<Vec<_>>(), attach).map_err(de::Error::custom)
    }
}

impl Serialize for TopologyFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TopologyInFile::of(self).serialize(serializer)
    }
}

impl TopologyInFile {
    fn of(facts: &TopologyFacts) -> Self {
        let attach = facts.attach.clone();
        let Some(topology) = &facts.topology else { return Self { attach, ..Self::default() } };
        let nodes = topology.nodes().iter().map(|node| {
            let capacity = node.capacity_bits_per_s.map(Amount);
            (node.name.clone(), NodeInFile { capacity })
        });
        Self { attach, nodes: nodes.collect(), links: links(topology) }
    }
}

/// Returns the links in file format. A link with equal directions is written once, because large topologies would
/// otherwise exceed [`MAX_LINKS`].
fn links(topology: &Topology) -> Vec<LinkFacts> {
    let leads_both_ways =
        |link: &Link| topology.link(link.to, link.from) == Some(&Link { from: link.to, to: link.from, ..*link });
    let name = |number: u32| topology.nodes()[number as usize].name.clone();
    let is_told = |link: &&Link| link.from < link.to || !leads_both_ways(link);
    let links = topology.links().iter().filter(is_told).map(|link| LinkFacts {
        from: name(link.from),
        to: name(link.to),
        capacity: link.capacity_bits_per_s.map(Amount),
        length: link.length_km.map(Amount),
        weight: Some(Amount(link.weight)),
        directed: !leads_both_ways(link),
    });
    links.collect()
}
