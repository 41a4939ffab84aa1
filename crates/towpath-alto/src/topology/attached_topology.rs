//! Prefixes attached to the nodes of a topology.

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

/// A topology of the network state, with the prefixes behind its nodes. An address belongs to the node of the longest
/// matching prefix.
#[derive(Debug, Clone, Default)]
pub struct AttachedTopology {
    topology: Arc<Topology>,
    /// Node index for each prefix.
    nodes: PrefixMap<u32>,
}

/// Why prefixes cannot be attached to a topology. The data of the agent is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachFault {
    /// The node does not exist.
    #[error(
        "topology {topology} has no node '{node}' to attach prefixes to: use a node name from its links or its file"
    )]
    NoNode {
        /// The topology.
        topology: TopologyName,
        /// The unknown node.
        node: NodeName,
    },
    /// A prefix is attached to two nodes.
    #[error("topology {topology}: {prefix} is attached to '{first}' and to '{second}': remove it from one of them")]
    Twice {
        /// The topology.
        topology: TopologyName,
        /// The prefix.
        prefix: IpNet,
        /// One node.
        first: NodeName,
        /// The other node.
        second: NodeName,
    },
}

impl AttachedTopology {
    /// Attaches prefixes to the nodes of the topology.
    ///
    /// # Errors
    /// Returns [`AttachFault`].
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

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns whether no prefix is attached.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the index of the node that `address` is attached to.
    pub(crate) fn node_of(&self, address: IpAddr) -> Option<u32> {
        self.nodes.get_lpm(&address.into()).map(|(_, node)| *node)
    }
}
