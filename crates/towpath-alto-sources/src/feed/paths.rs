//! The ways that one router tells to one prefix, each with an identifier (ADD-PATH, RFC 7911), and which of them is taken.
//!
//! Routers choose by RFC 4271 §9.1, and what of it can be told by what they tell is done here: the highest `LOCAL_PREF`, the shortest AS path, the lowest
//! `ORIGIN`, among those of one neighbouring system the lowest `MULTI_EXIT_DISC`, then the lowest next hop and the lowest identifier. Whether a route is of an
//! interior session, and how far its next hop is, nobody tells; a route without a next hop ends at the router itself, and goes before others.

use std::{cmp::Reverse, net::IpAddr};

use crate::bgp_update::Preference;
use towpath_alto::{route::Hop, routes::Way};

/// The most ways to one prefix that are kept, by what they are chosen by. Routers send a handful, or those of all their peers.
pub(super) const MAX_PATHS: usize = 256;

/// One of several ways to a prefix.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) id: u32,
    pub(super) preference: Preference,
    pub(super) way: Way,
}

/// All of them, the best first but for the next hop: those of one neighbouring system stand together, each system's best in front.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths(Vec<Path>);

impl Path {
    /// What is compared whichever system it is of.
    fn rank(&self) -> (Reverse<u32>, u16, u8) {
        let Preference { local_pref, path_length, origin, .. } = self.preference;
        (Reverse(local_pref), path_length, origin)
    }

    /// The system that told it, if it is known.
    fn neighbour(&self) -> Option<u32> {
        match self.way.as_path.hops().first() {
            Some(Hop::As(number)) => Some(*number),
            _ => None,
        }
    }

    /// What decides in the end. No next hop goes before all others.
    fn tie_break(&self) -> (Option<IpAddr>, u32) {
        (self.way.next_hop, self.id)
    }

    /// Its place among all.
    fn place(&self) -> impl Ord + use<> {
        (self.rank(), self.neighbour(), self.preference.med, self.tie_break())
    }
}

impl Paths {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Their identifiers.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|path| path.id)
    }

    /// Adds a way, in place of an earlier one of its identifier. Of more than [`MAX_PATHS`] the last one goes that is stale, as its identifier tells, or the last of all: its identifier.
    pub(super) fn insert(&mut self, path: Path, is_stale: impl Fn(u32) -> bool) -> Option<u32> {
        self.remove(path.id);
        let place = path.place();
        let position = self.0.partition_point(|other| other.place() < place);
        self.0.insert(position, path);
        if self.0.len() <= MAX_PATHS {
            return None;
        }
        let stale = self.0.iter().rposition(|path| is_stale(path.id));
        Some(self.0.remove(stale.unwrap_or(MAX_PATHS)).id)
    }

    /// Forgets the one of that identifier.
    pub(super) fn remove(&mut self, id: u32) {
        self.0.retain(|path| path.id != id);
    }

    /// The one that is taken. It does not depend on the order in which they were told.
    pub(super) fn best(&self) -> Option<&Path> {
        let rank = self.0.first()?.rank();
        let equal = self.0.partition_point(|path| path.rank() <= rank);
        let systems = self.0[..equal].chunk_by(|one, other| one.neighbour() == other.neighbour());
        systems.map(|of_one| &of_one[0]).min_by_key(|path| path.tie_break())
    }
}
