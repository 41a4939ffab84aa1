//! The shortest ways from a node to all others (Dijkstra).
//!
//! Of ways of equal weight that over fewer links is taken, and among those, from the destination back, that over the node whose name comes first: so the order of a
//! file decides nothing, and two servers with the same network tell the same.

use std::{cmp::Reverse, collections::BinaryHeap, iter, sync::OnceLock};

use super::Topology;

/// How a node is reached: the bits of the weight, the links to it, the node before it. The least one is the best: bits of numbers that are not negative are ordered
/// as the numbers are.
type Reach = (u64, u32, u32);

/// More than any way has.
const UNREACHED: Reach = (u64::MAX, u32::MAX, u32::MAX);

/// A way over more links than packets live for (RFC 791 §3.2, RFC 8200 §3) is none.
const MOST_LINKS: usize = 255;

/// The trees of a topology by the numbers of their sources. Each is found when it is first asked for, and kept as long as the topology: worlds that are made anew
/// each second share it.
#[derive(Debug, Default)]
pub(super) struct Trees(Box<[OnceLock<Tree>]>);

/// What was asked of a topology makes it no other one.
impl PartialEq for Trees {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Trees {
    /// Room for those of so many nodes.
    pub(super) fn with_room(nodes: usize) -> Self {
        Self(iter::repeat_with(OnceLock::new).take(nodes).collect())
    }
}

impl Topology {
    /// The numbers of the nodes on the shortest way from one node to another, both included; none if no way leads there.
    pub fn way(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        self.trees.0[from as usize].get_or_init(|| Tree::of(self, from)).way_to(to)
    }
}

/// The shortest ways from one node: which one is before each on the way to it.
#[derive(Debug)]
struct Tree {
    source: u32,
    /// [`u32::MAX`] where no way leads.
    before: Box<[u32]>,
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
    fn way_to(&self, node: u32) -> Option<Vec<u32>> {
        let before = |node: &u32| self.before.get(*node as usize).copied().filter(|_| *node != self.source);
        let mut way: Vec<u32> = iter::successors(Some(node), before).take(MOST_LINKS + 2).collect();
        if way.len() > MOST_LINKS + 1 || way.contains(&u32::MAX) {
            return None;
        }
        way.reverse();
        Some(way)
    }
}
