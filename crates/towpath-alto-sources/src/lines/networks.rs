//! Topologies as a program tells them: one link after another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use towpath_alto::{
    facts::Prefix,
    names::{NodeName, TopologyName},
    topology::{Told, ToldLink, TopologyError},
};

/// Of which topology a link is, and its ends as they are told: a link back is another one.
pub(super) type LinkKey = (TopologyName, NodeName, NodeName);

/// A link, with what is attached to its ends.
#[derive(Debug)]
pub(super) struct Tie {
    pub(super) link: ToldLink,
    pub(super) attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
}

impl Tie {
    /// How many facts it is: what is attached may be more than the link.
    pub(super) fn facts(&self) -> usize {
        1 + self.attach.values().map(BTreeSet::len).sum::<usize>()
    }
}

/// The links of one topology, and what they say together.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    ties: BTreeMap<LinkKey, Arc<Tie>>,
    told: Told,
}

impl Network {
    /// How many facts it is.
    pub(super) fn facts(&self) -> usize {
        self.ties.values().map(|tie| tie.facts()).sum()
    }

    /// Whether it has no link.
    pub(super) fn is_empty(&self) -> bool {
        self.ties.is_empty()
    }

    /// Notes a link, or that there is none, to be drawn later.
    pub(super) fn note(&mut self, key: &LinkKey, tie: Option<&Arc<Tie>>) {
        match tie {
            Some(tie) => self.ties.insert(key.clone(), Arc::clone(tie)),
            None => self.ties.remove(key),
        };
    }

    /// Makes a topology of the links.
    ///
    /// # Errors
    /// If there are too many, or too many nodes.
    pub(super) fn draw(&mut self) -> Result<(), TopologyError> {
        let mut attach: BTreeMap<NodeName, BTreeSet<Prefix>> = BTreeMap::new();
        for (node, prefixes) in self.ties.values().flat_map(|tie| &tie.attach) {
            attach.entry(node.clone()).or_default().extend(prefixes);
        }
        let links: Vec<&ToldLink> = self.ties.values().map(|tie| &tie.link).collect();
        self.told = Told::linked(&links, attach)?;
        Ok(())
    }

    /// What it says.
    pub(super) fn told(&self) -> &Told {
        &self.told
    }
}
