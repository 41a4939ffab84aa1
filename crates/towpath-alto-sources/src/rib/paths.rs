//! Paths from one router to one prefix, with identifiers (ADD-PATH, RFC 7911), and the choice of the best.
//!
//! Follows the decision process of RFC 4271 §9.1 as far as the received data allow: highest `LOCAL_PREF`, shortest AS
//! path, lowest `ORIGIN`, lowest `MULTI_EXIT_DISC` among paths from the same neighboring system, then lowest next hop
//! and lowest identifier. Whether a session is internal and the distance of the next hop are unknown. A path without
//! a next hop ends at the router itself and is preferred.

use std::{cmp::Reverse, net::IpAddr};

use crate::bgp_update::Preference;
use towpath_alto::{route::Hop, routes::PathAttributes};

/// Maximum number of paths kept per prefix; the best are kept. Routers send a handful, or one per peer.
pub(super) const MAX_PATHS: usize = 256;

/// One of several paths to a prefix.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) id: u32,
    pub(super) preference: Preference,
    pub(super) attributes: PathAttributes,
}

/// All paths, best first except for the next hop: paths from the same neighboring system are adjacent, its best path
/// first.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths(Vec<Path>);

impl Path {
    /// Returns the criteria compared across neighboring systems.
    fn rank(&self) -> (Reverse<u32>, u16, u8) {
        let Preference { local_pref, path_length, origin, .. } = self.preference;
        (Reverse(local_pref), path_length, origin)
    }

    /// Returns the neighboring system that sent the path, if known.
    fn neighbour(&self) -> Option<u32> {
        match self.attributes.as_path.hops().first() {
            Some(Hop::As(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the final tie-breaker. Paths without a next hop come first.
    fn tie_break(&self) -> (Option<IpAddr>, u32) {
        (self.attributes.next_hop, self.id)
    }

    /// Returns the sort key.
    fn place(&self) -> impl Ord + use<> {
        (self.rank(), self.neighbour(), self.preference.med, self.tie_break())
    }
}

impl Paths {
    /// Returns the number of paths.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the path identifiers.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|path| path.id)
    }

    /// Inserts a path, replacing any path with the same identifier. If there are more than [`MAX_PATHS`], removes the
    /// last path that `is_stale`, or else the last one, and returns its identifier.
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

    /// Removes the path with the given identifier.
    pub(super) fn remove(&mut self, id: u32) {
        self.0.retain(|path| path.id != id);
    }

    /// Returns the best path, independent of the order of insertion.
    pub(super) fn best(&self) -> Option<&Path> {
        let rank = self.0.first()?.rank();
        let equal = self.0.partition_point(|path| path.rank() <= rank);
        let systems = self.0[..equal].chunk_by(|one, other| one.neighbour() == other.neighbour());
        systems.map(|of_one| &of_one[0]).min_by_key(|path| path.tie_break())
    }
}
