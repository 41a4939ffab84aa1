//! Topologies assembled from individual links.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use towpath_alto::{
    agent_state::Prefix,
    names::{NodeName, TopologyName},
    topology::{LinkFacts, TopologyError, TopologyFacts},
};

/// The topology of a link and its ends in order; the opposite direction is another link.
pub(super) type LinkKey = (TopologyName, NodeName, NodeName);

/// A link and the prefixes attached to its ends.
#[derive(Debug)]
pub(super) struct AttachedLink {
    pub(super) link: LinkFacts,
    pub(super) attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
}

impl AttachedLink {
    /// Returns the number of facts: the link and each attached prefix.
    pub(super) fn facts(&self) -> usize {
        1 + self.attach.values().map(BTreeSet::len).sum::<usize>()
    }
}

/// The links of one topology, and the topology built from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    ties: BTreeMap<LinkKey, Arc<AttachedLink>>,
    topology: TopologyFacts,
}

impl Network {
    /// Returns the number of facts.
    pub(super) fn facts(&self) -> usize {
        self.ties.values().map(|tie| tie.facts()).sum()
    }

    /// Returns whether there are no links.
    pub(super) fn is_empty(&self) -> bool {
        self.ties.is_empty()
    }

    /// Sets or removes a link; takes effect with [`Self::build`].
    pub(super) fn note(&mut self, key: &LinkKey, tie: Option<&Arc<AttachedLink>>) {
        match tie {
            Some(tie) => self.ties.insert(key.clone(), Arc::clone(tie)),
            None => self.ties.remove(key),
        };
    }

    /// Builds the topology from the links.
    ///
    /// # Errors
    /// If there are too many links or nodes.
    pub(super) fn build(&mut self) -> Result<(), TopologyError> {
        let mut attach: BTreeMap<NodeName, BTreeSet<Prefix>> = BTreeMap::new();
        for (node, prefixes) in self.ties.values().flat_map(|tie| &tie.attach) {
            attach.entry(node.clone()).or_default().extend(prefixes);
        }
        let links: Vec<&LinkFacts> = self.ties.values().map(|tie| &tie.link).collect();
        self.topology = TopologyFacts::from_links(&links, attach)?;
        Ok(())
    }

    /// Returns the topology as facts.
    pub(super) fn topology(&self) -> &TopologyFacts {
        &self.topology
    }
}
