//! Shortest paths from a node to all others (Dijkstra).
//!
//! Among paths with equal weight, the one with fewer links is chosen; on a further tie, compared backwards from the
//! destination, the one through the node whose name sorts first. The result is therefore independent of the order in
//! the file, and equal on two servers.

use std::{cmp::Reverse, collections::BinaryHeap, iter, sync::OnceLock};

use super::Topology;

/// Rank of a path to a node: bits of the weight, number of links, previous node; the smallest is best. The bits of
/// non-negative floats sort like the numbers.
type PathRank = (u64, u32, u32);

/// Greater than the rank of any path.
const UNREACHED: PathRank = (u64::MAX, u32::MAX, u32::MAX);

/// Maximum number of links of a path: the maximum lifetime of packets (RFC 791 §3.2, RFC 8200 §3).
const MAX_LINKS: usize = 255;

/// Shortest-path trees of a topology by source index. Each is computed on first use and kept as long as the topology,
/// so that network states rebuilt every second share it.
#[derive(Debug, Default)]
pub(super) struct Trees(Box<[OnceLock<Tree>]>);

/// The cached trees do not affect equality.
impl PartialEq for Trees {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Trees {
    /// Reserves one entry per node.
    pub(super) fn with_room(nodes: usize) -> Self {
        Self(iter::repeat_with(OnceLock::new).take(nodes).collect())
    }
}

impl Topology {
    /// Returns the node indices on the shortest path between two nodes, both included, or `None` if there is no path.
    pub fn shortest_path(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        self.trees.0[from as usize].get_or_init(|| Tree::of(self, from)).path_to(to)
    }
}

/// Shortest paths from one node, stored as the predecessor of each node.
#[derive(Debug)]
struct Tree {
    source: u32,
    /// [`u32::MAX`] for unreachable nodes.
    before: Box<[u32]>,
}

impl Tree {
    /// Computes the tree in O(links × log nodes) time and 4 bytes per node.
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

    /// Returns the nodes on the path to `node`, source and target included, or `None` if there is no path.
    fn path_to(&self, node: u32) -> Option<Vec<u32>> {
        let before = |node: &u32| self.before.get(*node as usize).copied().filter(|_| *node != self.source);
        let mut way: Vec<u32> = iter::successors(Some(node), before).take(MAX_LINKS + 2).collect();
        if way.len() > MAX_LINKS + 1 || way.contains(&u32::MAX) {
            return None;
        }
        way.reverse();
        Some(way)
    }
}
