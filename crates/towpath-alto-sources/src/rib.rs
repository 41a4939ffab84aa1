//! Route tables per router, maintained from a feed of changes.
//!
//! A [`RouteTables`] consumes the events of [`crate::mrt`] and [`crate::bmp`]. Each peer of the collector is a router,
//! named by its address. Prefixes that it originates itself count as attached to it. All paths to a prefix (ADD-PATH,
//! RFC 7911) are kept, so that one can replace another; the table contains the best.
//!
//! When a session or the connection restarts, a router does not lose its routes: stale ones stay valid until the
//! router has resent a complete family (RFC 4724), or until [`RouteTables::expire`] decides that the hold time is over;
//! routes not resent by then are removed. The same applies to the routes of an [`EarlierRoutes`] collector. There is no
//! clock here: callers pass the time.

mod earlier_routes;
mod paths;
mod refresh;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;

pub(crate) use self::earlier_routes::EarlierRoutes;
use self::{
    paths::{Path, Paths},
    refresh::{Refresh, ResentRoutes},
};
use crate::{
    bgp_update::Preference,
    mrt::{Event, MrtEvent, Peer, Rib},
};
use towpath_alto::{
    address::AddressType,
    agent_state::{Prefix, Router},
    names::RouterName,
    route::{Hop, Route},
    routes::{PathAttributes, RouteTable},
};

/// The routes of the routers in a feed.
#[derive(Debug, Default)]
pub(crate) struct RouteTables {
    routers: HashMap<Peer, RouterState>,
    /// Peers that occur in dumps with another AS number than the one under which they are stored.
    aliases: HashMap<Peer, Peer>,
    /// Total number of routes.
    routes: usize,
}

impl RouteTables {
    /// Applies one change.
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Route { router, path_id, preference, route } => {
                let state = self.routers.entry(router).or_insert_with(|| RouterState::of(router));
                state.is_set_aside = false;
                let before = state.len();
                state.add(path_id, preference, route);
                self.routes = self.routes + state.len() - before;
            }
            Event::Withdraw { router, path_id, prefix } => self.change(router, |state| state.remove(path_id, prefix)),
            Event::EndOfRib { router, family } => self.change(router, |state| state.end(family)),
            Event::Lost { router } => {
                self.routes -= self.routers.remove(&router).map_or(0, |state| state.len());
            }
        }
    }

    /// Applies an event of a dump read at the time `now`.
    ///
    /// Some writers of tables omit a peer's AS number (0), or write AS_TRANS (RFC 6793 §9) where it does not fit;
    /// such a peer is identified with the known peer of the same address.
    pub(crate) fn take_dumped(&mut self, event: MrtEvent, now: Instant) {
        match event {
            MrtEvent::Change(mut event) => {
                let router = event.router_mut();
                *router = self.identify(*router);
                self.take(event);
            }
            MrtEvent::TableBegins { router } => {
                let router = self.identify(router);
                self.begin_router(router, now);
            }
            MrtEvent::TableEnds { router, family } => {
                let router = self.identify(router);
                self.change(router, |state| state.end(family));
            }
        }
    }

    /// Returns the stored peer that `router` is identified with.
    fn identify(&mut self, router: Peer) -> Peer {
        if self.routers.contains_key(&router) {
            return router;
        }
        if let Some(stored) = self.aliases.get(&router) {
            return *stored;
        }
        let is_same = |stored: &&Peer| {
            let alike = Peer { as_number: stored.as_number, ..router } == **stored;
            alike && (!has_as_number(stored) || !has_as_number(&router))
        };
        let stored = self.routers.keys().filter(is_same).min().copied();
        if let Some(stored) = stored {
            self.aliases.insert(router, stored);
        }
        stored.unwrap_or(router)
    }

    fn change(&mut self, router: Peer, change: impl FnOnce(&mut RouterState)) {
        if let Some(state) = self.routers.get_mut(&router) {
            state.is_set_aside = false;
            let before = state.len();
            change(state);
            self.routes = self.routes + state.len() - before;
        }
    }

    /// Marks the routes of all routers as stale: they are about to resend them.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.routers.values_mut().for_each(|state| state.anew.begin(now));
    }

    /// Marks the routes of `router` as stale: it is about to resend them.
    pub(crate) fn begin_router(&mut self, router: Peer, now: Instant) {
        if let Some(state) = self.routers.get_mut(&router) {
            state.anew.begin(now);
        }
    }

    /// Copies the routes of `router` from `earlier`, unless the router is known here.
    pub(crate) fn copy(&mut self, router: Peer, earlier: &Self) {
        if self.routers.contains_key(&router) {
            return;
        }
        if let Some(state) = earlier.routers.get(&router).filter(|state| !state.is_set_aside) {
            self.routes += state.len();
            self.routers.insert(router, state.clone());
        }
    }

    /// Sets `router` aside in favor of a feed that has a copy of it. Until it has a new event here or that feed is
    /// joined, the router is not listed and cannot be copied.
    pub(crate) fn set_aside(&mut self, router: Peer) {
        if let Some(state) = self.routers.get_mut(&router) {
            state.is_set_aside = true;
        }
    }

    /// Moves the routes of `router` from `earlier`, unless the router is known here.
    fn adopt(&mut self, router: Peer, earlier: &mut Self) {
        if self.routers.contains_key(&router) {
            return;
        }
        if let Some(state) = earlier.routers.remove(&router) {
            earlier.routes -= state.len();
            self.routes += state.len();
            self.routers.insert(router, state);
        }
    }

    /// Moves all routers from `ended` that are not known here. Routers set aside here are listed again.
    pub(crate) fn join(&mut self, mut ended: Self) {
        self.routers.values_mut().for_each(|state| state.is_set_aside = false);
        ended.routers.retain(|_, state| !state.is_set_aside);
        let routers: Vec<Peer> = ended.routers.keys().copied().collect();
        for router in routers {
            self.adopt(router, &mut ended);
        }
    }

    /// Adds `earlier` as the stale table of `router`, which must not be known here.
    fn plant(&mut self, router: Peer, earlier: &Router, began: Instant) {
        let table = earlier.routes.clone().unwrap_or_default();
        // Originated prefixes are removed with their routes, so each must have one.
        let own = earlier.serves.iter().copied().filter(|prefix| table.attributes_of(prefix.0).is_some()).collect();
        let mut state = RouterState { table, own, ..RouterState::of(router) };
        state.anew.begin(began);
        self.routes += state.len();
        self.routers.insert(router, state);
    }

    /// Removes the stale routes of routers that restarted `hold` ago, and routers left without routes. Routes resent
    /// before a further restart have their own hold time.
    pub(crate) fn expire(&mut self, now: Instant, hold: Duration) {
        self.routers.retain(|_, state| !(state.expire(now, hold) && state.table.is_empty()));
        self.routes = self.routers.values().map(RouterState::len).sum();
    }

    /// Returns the time of the earliest restart that is not complete.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.routers.values().filter_map(|state| state.anew.began()).min()
    }

    /// Returns whether a router has not resent all its routes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.routers.values().any(|state| state.anew.began().is_some())
    }

    /// Returns the number of routes, counting all paths to a prefix.
    pub(crate) fn len(&self) -> usize {
        self.routes
    }

    /// Returns whether there are no routes.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Returns the number of peers, including those without routes.
    pub(crate) fn peers(&self) -> usize {
        self.routers.len()
    }

    /// Returns the current routers. If a router reports several tables, the one that it uses is taken: Loc-RIB, else
    /// post-policy.
    pub(crate) fn routers(&self) -> BTreeMap<RouterName, Router> {
        let mut peers: Vec<(&Peer, &RouterState)> =
            self.routers.iter().filter(|(_, state)| !state.is_set_aside).collect();
        // Later entries with the same name overwrite earlier ones.
        peers.sort_unstable_by_key(|(peer, _)| (rank(peer.rib), **peer));
        peers.into_iter().map(|(peer, state)| (name(peer), state.router())).collect()
    }
}

/// Returns whether the AS number of a peer is known.
fn has_as_number(peer: &Peer) -> bool {
    const AS_TRANS: u32 = 23456;
    peer.as_number != 0 && peer.as_number != AS_TRANS
}

/// Ranks the tables of one router; the highest is used.
fn rank(rib: Rib) -> u8 {
    match rib {
        Rib::PrePolicy => 0,
        Rib::PostPolicy => 1,
        Rib::Local => 2,
    }
}

/// Returns the peer's address, with its distinguisher if it has one.
fn name(peer: &Peer) -> RouterName {
    let text = match peer.distinguisher {
        0 => peer.address.to_string(),
        distinguisher => format!("{}@{distinguisher}", peer.address),
    };
    RouterName::new(&text).expect("addresses and numbers make a name")
}

/// The state of one router.
#[derive(Debug, Clone)]
struct RouterState {
    peer: Peer,
    table: Arc<RouteTable>,
    /// The prefixes that it originates.
    own: BTreeSet<Prefix>,
    /// All paths to prefixes with path identifiers (RFC 7911); the best of each is in the table.
    paths: HashMap<IpNet, Paths>,
    /// Total number of these paths.
    identified: usize,
    anew: Refresh,
    /// Whether another feed has a copy of this state, and no event has arrived since.
    is_set_aside: bool,
}

impl RouterState {
    fn of(peer: Peer) -> Self {
        Self {
            peer,
            table: Arc::default(),
            own: BTreeSet::new(),
            paths: HashMap::new(),
            identified: 0,
            anew: Refresh::default(),
            is_set_aside: false,
        }
    }

    /// Returns the number of routes.
    fn len(&self) -> usize {
        self.table.len() - self.paths.len() + self.identified
    }

    fn add(&mut self, path_id: Option<u32>, preference: Preference, route: Route) {
        let Route { prefix, next_hop, as_path } = route;
        // A next hop that is the router itself is not a link.
        let attributes = PathAttributes { next_hop: next_hop.filter(|next| *next != self.peer.address), as_path };
        let Some(id) = path_id else {
            self.forget_paths(prefix);
            self.anew.note(prefix, None);
            self.put(prefix, attributes);
            return;
        };
        self.anew.note(prefix, path_id);
        let paths = self.paths.entry(prefix).or_default();
        let before = paths.len();
        // Stale paths only fill the remaining capacity: the new session may assign different identifiers.
        let dropped = paths.insert(Path { id, preference, attributes }, |id| self.anew.awaits(prefix, Some(id)));
        if let Some(dropped) = dropped {
            self.anew.forget(prefix, Some(dropped));
        }
        self.identified = self.identified + paths.len() - before;
        self.choose(prefix);
    }

    fn remove(&mut self, path_id: Option<u32>, prefix: IpNet) {
        self.anew.forget(prefix, path_id);
        let Some(id) = path_id else {
            self.forget_paths(prefix);
            self.take_out(prefix);
            return;
        };
        if let Some(paths) = self.paths.get_mut(&prefix) {
            let before = paths.len();
            paths.remove(id);
            self.identified = self.identified + paths.len() - before;
            self.choose(prefix);
        }
    }

    /// Updates the table with the best path to a prefix.
    fn choose(&mut self, prefix: IpNet) {
        let best = self.paths.get(&prefix).and_then(Paths::best).map(|path| path.attributes.clone());
        match best {
            Some(attributes) => self.put(prefix, attributes),
            None => {
                self.paths.remove(&prefix);
                self.take_out(prefix);
            }
        }
    }

    fn forget_paths(&mut self, prefix: IpNet) {
        if let Some(paths) = self.paths.remove(&prefix) {
            self.identified -= paths.len();
            paths.ids().for_each(|id| self.anew.forget(prefix, Some(id)));
        }
    }

    fn put(&mut self, prefix: IpNet, attributes: PathAttributes) {
        // Avoids copying a shared table for an unchanged route, as happens when all routes are resent.
        if Arc::strong_count(&self.table) > 1 && self.table.attributes_of(prefix) == Some(&attributes) {
            return;
        }
        let PathAttributes { next_hop, as_path } = attributes;
        match as_path.hops() {
            [Hop::As(origin)] if *origin == self.peer.as_number => self.own.insert(Prefix(prefix)),
            [] => self.own.insert(Prefix(prefix)),
            _ => self.own.remove(&Prefix(prefix)),
        };
        Arc::make_mut(&mut self.table).insert(Route { prefix, next_hop, as_path });
    }

    fn take_out(&mut self, prefix: IpNet) {
        if self.table.attributes_of(prefix).is_some() {
            self.own.remove(&Prefix(prefix));
            Arc::make_mut(&mut self.table).remove(prefix);
        }
    }

    /// Removes the routes of a family that were not resent by its end.
    fn end(&mut self, family: AddressType) {
        if let Some(resent) = self.anew.end(family) {
            self.sweep(family, &resent);
        }
    }

    /// Removes the routes not resent within `hold` of a restart. Returns whether a hold time expired.
    fn expire(&mut self, now: Instant, hold: Duration) -> bool {
        let mut has_expired = false;
        while let Some((family, resent)) = self.anew.expire(now, hold) {
            self.sweep(family, &resent);
            has_expired = true;
        }
        has_expired
    }

    /// Removes all routes of a family except those in `resent` and those received since.
    fn sweep(&mut self, family: AddressType, resent: &ResentRoutes) {
        let holds = |prefix, path_id| resent.has(prefix, path_id) || self.anew.has(prefix, path_id);
        let mut old: Vec<(IpNet, Option<u32>)> = Vec::new();
        for (prefix, _) in self.table.routes().filter(|(prefix, _)| AddressType::of_prefix(*prefix) == family) {
            match self.paths.get(&prefix) {
                Some(paths) => {
                    let ids = paths.ids().map(Some).filter(|id| !holds(prefix, *id));
                    old.extend(ids.map(|id| (prefix, id)));
                }
                None if holds(prefix, None) => {}
                None => old.push((prefix, None)),
            }
        }
        old.into_iter().for_each(|(prefix, path_id)| self.remove(path_id, prefix));
    }

    fn router(&self) -> Router {
        Router {
            addresses: [self.peer.address].into(),
            serves: self.own.clone(),
            default: false,
            routes: Some(Arc::clone(&self.table)),
        }
    }
}
