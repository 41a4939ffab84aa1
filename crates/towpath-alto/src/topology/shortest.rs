//! The shortest ways from a node to all others (Dijkstra).
//!
//! Of ways of equal weight that over fewer links is taken, and among those, from the destination back, that over the node whose name comes first: so the order of a
//! file decides nothing, and two servers with the same network tell the same.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    iter,
};

use super::Topology;
use crate::names::TopologyName;

/// How a node is reached: the bits of the weight, the links to it, the node before it. The least one is the best: bits of numbers that are not negative are ordered
/// as the numbers are.
type Reach = (u64, u32, u32);

/// More than any way has.
const UNREACHED: Reach = (u64::MAX, u32::MAX, u32::MAX);

/// A way over more links than packets live for (RFC 791 §3.2, RFC 8200 §3) is none.
const MOST_LINKS: usize = 255;

/// The shortest ways from one node: which one is before each on the way to it.
#[derive(Debug)]
pub(crate) struct Tree {
    source: u32,
    /// [`u32::MAX`] where no way leads.
    before: Vec<u32>,
}

impl Tree {
    /// Finds them. It takes time of about the links times the logarithm of the nodes, and 4 bytes a node.
    fn of(topology: &Topology, source: u32) -> Self {
        let mut reaches = vec![UNREACHED; topology.nodes().len()];
        reaches[source as usize] = (0, 0, source);
        let mut nearest = BinaryHeap::from([Reverse((0, 0, source))]);
        while let Some(Reverse((weight, hops, node))) = nearest.pop() {
            let (best_weight, best_hops, _) = reaches[node as usize];
            if (weight, hops) != (best_weight, best_hops) {
                continue;
            }
            for link in topology.links_from(node) {
                let reach = ((f64::from_bits(weight) + link.weight).to_bits(), hops + 1, node);
                let best = &mut reaches[link.to as usize];
                if reach < *best {
                    let is_nearer = (reach.0, reach.1) < (best.0, best.1);
                    *best = reach;
                    if is_nearer {
                        nearest.push(Reverse((reach.0, reach.1, link.to)));
                    }
                }
            }
        }
        Self { source, before: reaches.into_iter().map(|(_, _, before)| before).collect() }
    }

    /// The nodes on the way to `node`, the source and itself included; none if no way leads there.
    pub(crate) fn way_to(&self, node: u32) -> Option<Vec<u32>> {
        let before = |node: &u32| self.before.get(*node as usize).copied().filter(|_| *node != self.source);
        let mut way: Vec<u32> = iter::successors(Some(node), before).take(MOST_LINKS + 2).collect();
        if way.len() > MOST_LINKS + 1 || way.contains(&u32::MAX) {
            return None;
        }
        way.reverse();
        Some(way)
    }
}

/// How many nodes of trees are kept: 64 MiB of them.
const MOST_KEPT: usize = 16 << 20;

/// The trees of some topologies that were asked for, each found once, as long as there is room.
#[derive(Debug, Default)]
pub(crate) struct Trees<'a> {
    found: HashMap<(&'a TopologyName, u32), Tree>,
    /// The nodes of all of them.
    kept: usize,
}

impl<'a> Trees<'a> {
    /// The shortest ways of that topology, which has that name, from `source`.
    pub(crate) fn tree(&mut self, name: &'a TopologyName, topology: &Topology, source: u32) -> &Tree {
        if !self.found.contains_key(&(name, source)) {
            let nodes = topology.nodes().len();
            if self.kept + nodes > MOST_KEPT {
                *self = Self::default();
            }
            self.kept += nodes;
        }
        self.found.entry((name, source)).or_insert_with(|| Tree::of(topology, source))
    }
}
