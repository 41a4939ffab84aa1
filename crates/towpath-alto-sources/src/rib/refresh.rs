//! Tracks the routes that a router has resent since a restart. Stale routes stay valid until the router has resent
//! all.
//!
//! Only resent routes are recorded, so that a restart is free and the existing table stays unchanged. A record takes
//! about 50 bytes per route, until the end of the family.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    mem,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use towpath_alto::address::AddressType;

/// The families that a router has not completely resent since a restart.
#[derive(Debug, Clone, Default)]
pub(super) struct Refresh(BTreeMap<AddressType, FamilyRefresh>);

/// A family being resent, possibly restarted again before it was complete.
#[derive(Debug, Clone)]
struct FamilyRefresh {
    /// All restarts but the last one, merged, while routes from before the first one may be valid. Routes sent since
    /// then stay valid longer.
    earlier: Option<Restart>,
    last: Restart,
}

#[derive(Debug, Clone)]
struct Restart {
    at: Instant,
    resent: ResentRoutes,
}

/// A set of resent routes.
#[derive(Debug, Clone, Default)]
pub(super) struct ResentRoutes(HashSet<(IpNet, u32)>);

impl ResentRoutes {
    /// Returns whether the set contains a route. A missing path identifier counts as 0: a prefix has either routes
    /// with identifiers or one route without.
    pub(super) fn has(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.contains(&(prefix, path_id.unwrap_or_default()))
    }
}

impl Restart {
    fn at(now: Instant) -> Self {
        Self { at: now, resent: ResentRoutes::default() }
    }
}

impl Refresh {
    /// Starts a restart of all families. Repeated restarts do not extend the hold time of routes that are not resent.
    pub(super) fn begin(&mut self, now: Instant) {
        for family in AddressType::ALL {
            match self.0.entry(family) {
                Entry::Vacant(place) => {
                    place.insert(FamilyRefresh { earlier: None, last: Restart::at(now) });
                }
                Entry::Occupied(place) => place.into_mut().begin(now),
            }
        }
    }

    /// Records a resent route.
    pub(super) fn note(&mut self, prefix: IpNet, path_id: Option<u32>) {
        if let Some(refresh) = self.0.get_mut(&AddressType::of_prefix(prefix)) {
            refresh.last.resent.0.insert((prefix, path_id.unwrap_or_default()));
        }
    }

    /// Forgets a route that was withdrawn or dropped for lack of capacity.
    pub(super) fn forget(&mut self, prefix: IpNet, path_id: Option<u32>) {
        let Some(refresh) = self.0.get_mut(&AddressType::of_prefix(prefix)) else { return };
        let route = (prefix, path_id.unwrap_or_default());
        refresh.last.resent.0.remove(&route);
        if let Some(earlier) = &mut refresh.earlier {
            earlier.resent.0.remove(&route);
        }
    }

    /// Returns whether the route was resent since the last restart; false if its family is complete.
    pub(super) fn has(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.get(&AddressType::of_prefix(prefix)).is_some_and(|refresh| refresh.last.resent.has(prefix, path_id))
    }

    /// Returns whether the route is still stale since the last restart; false if its family is complete.
    pub(super) fn awaits(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.get(&AddressType::of_prefix(prefix)).is_some_and(|refresh| !refresh.last.resent.has(prefix, path_id))
    }

    /// Completes a family; returns its resent routes, or `None` if there was no restart.
    pub(super) fn end(&mut self, family: AddressType) -> Option<ResentRoutes> {
        self.0.remove(&family).map(|refresh| refresh.last.resent)
    }

    /// Returns the next family whose restart was `hold` ago, with the routes resent since: routes neither in this set
    /// nor received later have expired.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) -> Option<(AddressType, ResentRoutes)> {
        let is_over = |refresh: &FamilyRefresh| now.saturating_duration_since(refresh.first().at) >= hold;
        let (family, refresh) = self.0.iter_mut().find(|(_, refresh)| is_over(refresh))?;
        let (family, earlier) = (*family, refresh.earlier.take());
        let resent = match earlier {
            Some(earlier) => earlier.resent,
            None => self.end(family)?,
        };
        Some((family, resent))
    }

    /// Returns the time of the earliest restart.
    pub(super) fn began(&self) -> Option<Instant> {
        self.0.values().map(|refresh| refresh.first().at).min()
    }
}

impl FamilyRefresh {
    fn begin(&mut self, now: Instant) {
        if self.last.resent.0.is_empty() {
            return;
        }
        let ended = mem::replace(&mut self.last, Restart::at(now));
        match &mut self.earlier {
            Some(earlier) => earlier.resent.0.extend(ended.resent.0),
            None => self.earlier = Some(ended),
        }
    }

    /// Returns the earliest restart that is not complete.
    fn first(&self) -> &Restart {
        self.earlier.as_ref().unwrap_or(&self.last)
    }
}
