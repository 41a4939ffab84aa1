//! What an agent tells of a topology; also its form in static files.
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

use serde::{Deserialize, Deserializer, de};

use super::{
    AttachFault, Attached, MAX_LINKS, MAX_NODES, Topology,
    draft::{Draft, WrittenLink, WrittenNode},
};
use crate::{
    facts::Prefix,
    names::{NodeName, TopologyName},
};

/// A topology, as far as an agent knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Its nodes and links. None: another agent tells them.
    pub topology: Option<Arc<Topology>>,
    /// What is behind its nodes.
    pub attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
}

impl Told {
    /// Takes over what a later agent says of the same topology: its nodes and links hold, and what is attached adds up.
    pub(crate) fn join(&mut self, later: &Self) {
        if later.topology.is_some() {
            self.topology.clone_from(&later.topology);
        }
        for (node, prefixes) in &later.attach {
            self.attach.entry(node.clone()).or_default().extend(prefixes);
        }
    }

    /// The topology of that name, as a world has it.
    ///
    /// # Errors
    /// [`AttachFault`].
    pub(crate) fn attached(&self, name: &TopologyName) -> Result<Attached, AttachFault> {
        Attached::of(name, self.topology.clone().unwrap_or_default(), &self.attach)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TopologyInFile {
    attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
    nodes: BTreeMap<NodeName, NodeInFile>,
    links: Vec<LinkInFile>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeInFile {
    capacity: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkInFile {
    from: NodeName,
    to: NodeName,
    capacity: Option<Amount>,
    length: Option<Amount>,
    weight: Option<Amount>,
    #[serde(default)]
    directed: bool,
}

/// A number of 0 or more.
#[derive(Clone, Copy)]
struct Amount(f64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let is_amount = value.is_finite() && value >= 0.0;
        is_amount.then_some(Self(value)).ok_or_else(|| de::Error::custom(format!("{value} cannot be: 0 or more")))
    }
}

impl<'de> Deserialize<'de> for Told {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let TopologyInFile { attach, nodes, links } = TopologyInFile::deserialize(deserializer)?;
        if nodes.is_empty() && links.is_empty() {
            return Ok(Self { topology: None, attach });
        }
        let mut draft = Draft::with_room(MAX_NODES, MAX_LINKS);
        let ends = links.iter().flat_map(|link| [&link.from, &link.to]);
        for name in nodes.keys().chain(ends).collect::<BTreeSet<_>>() {
            let capacity = nodes.get(name).and_then(|node| node.capacity);
            let mut node = WrittenNode::new(name.to_string());
            node.capacity_bits_per_s = capacity.map(|Amount(bits_per_s)| bits_per_s);
            draft.add_node(node);
        }
        for link in &links {
            let number = |amount: Option<Amount>| amount.map(|Amount(number)| number);
            draft.add_link(WrittenLink {
                from: link.from.to_string(),
                to: link.to.to_string(),
                is_directed: Some(link.directed),
                capacity_bits_per_s: number(link.capacity),
                length_km: number(link.length),
                weight: number(link.weight),
            });
        }
        let topology = draft.finish().map_err(de::Error::custom)?;
        Ok(Self { topology: Some(Arc::new(topology)), attach })
    }
}
