//! What is attached to the nodes of a topology.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::Topology;
use crate::{
    address::{Prefix, PrefixMap},
    names::{NodeName, TopologyName},
};

/// A topology in a world: with the prefixes behind its nodes, of which the longest that covers an address holds.
#[derive(Debug, Clone, Default)]
pub struct Attached {
    topology: Arc<Topology>,
    /// By prefix, the number of a node.
    nodes: PrefixMap<u32>,
}

/// Why something cannot be attached to a topology: the fault of who says that it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachFault {
    /// There is no such node.
    #[error(
        "topology {topology} has no node '{node}' to which anything could be attached: take a name that its links or its file have"
    )]
    NoNode {
        /// The topology.
        topology: TopologyName,
        /// What is no node of it.
        node: NodeName,
    },
    /// A prefix is attached to two nodes.
    #[error("topology {topology}: {prefix} is attached to '{first}' and to '{second}': leave it with one of them")]
    Twice {
        /// The topology.
        topology: TopologyName,
        /// The prefix.
        prefix: IpNet,
        /// One node,
        first: NodeName,
        /// and the other.
        second: NodeName,
    },
}

impl Attached {
    /// The topology of that name with what is attached to its nodes.
    ///
    /// # Errors
    /// [`AttachFault`].
    pub(crate) fn of(
        name: &TopologyName,
        topology: Arc<Topology>,
        attach: &BTreeMap<NodeName, BTreeSet<Prefix>>,
    ) -> Result<Self, AttachFault> {
        let mut nodes = PrefixMap::default();
        for (node, prefixes) in attach {
            let no_node = || AttachFault::NoNode { topology: name.clone(), node: node.clone() };
            let number = topology.number(node).ok_or_else(no_node)?;
            for Prefix(prefix) in prefixes {
                if let Some(first) = nodes.insert(*prefix, number) {
                    let first = topology.nodes()[first as usize].name.clone();
                    let (topology, second) = (name.clone(), node.clone());
                    return Err(AttachFault::Twice { topology, prefix: *prefix, first, second });
                }
            }
        }
        Ok(Self { topology, nodes })
    }

    /// The topology itself.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether nothing is attached to it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of the node to which `address` is attached.
    pub fn node_of(&self, address: IpAddr) -> Option<u32> {
        self.nodes.get_lpm(&address.into()).map(|(_, node)| *node)
    }
}
