//! Routes as a feed tells them, one change after another, kept by router.
//!
//! A [`Feed`] takes the events of [`crate::mrt`] and [`crate::bmp`]. Each peer of the collector is a router, named by its address. What it originates itself is taken for what is
//! behind it. Of several ways to a prefix (ADD-PATH, RFC 7911) all are kept, so that one can take another's place, and the best is told.
//!
//! A router that begins anew, because its session or the connection did, loses nothing by that: what it told before holds until it has told all of a family (RFC 4724), or for so
//! long as [`Feed::expire`] is told; then goes what was not told again. So does what an
//! [`Earlier`] collector left. There is no clock here: who has one says when.

mod anew;
mod earlier;
mod paths;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;

pub use self::earlier::Earlier;
use self::{
    anew::{Anew, Told},
    paths::{Path, Paths},
};
use crate::{
    bgp_update::Preference,
    mrt::{Event, MrtEvent, Peer, Rib},
};
use towpath_alto::{
    address::AddressType,
    facts::{Prefix, Router},
    names::RouterName,
    route::{Hop, Route},
    routes::{Table, Way},
};

/// The routes of the routers that a feed speaks of.
#[derive(Debug, Default)]
pub struct Feed {
    routers: HashMap<Peer, Kept>,
    /// Those that dumps tell under another number of their AS than the one by which they are known here.
    aliases: HashMap<Peer, Peer>,
    /// How many routes all of them have.
    routes: usize,
}

impl Feed {
    /// Takes one change.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Route { router, path_id, preference, route } => {
                let kept = self.routers.entry(router).or_insert_with(|| Kept::of(router));
                kept.is_set_aside = false;
                let before = kept.len();
                kept.add(path_id, preference, route);
                self.routes = self.routes + kept.len() - before;
            }
            Event::Withdraw { router, path_id, prefix } => self.change(router, |kept| kept.remove(path_id, prefix)),
            Event::EndOfRib { router, family } => self.change(router, |kept| kept.end(family)),
            Event::Lost { router } => {
                self.routes -= self.routers.remove(&router).map_or(0, |kept| kept.len());
            }
        }
    }

    /// Takes what a dump tells that is read `now`.
    ///
    /// Some writers of tables leave a peer's AS out (0), or write AS_TRANS (RFC 6793 §9) where the number has no place; it is then taken for the peer of the same address.
    pub fn take_dumped(&mut self, told: MrtEvent, now: Instant) {
        match told {
            MrtEvent::Change(mut event) => {
                let router = event.router_mut();
                *router = self.known(*router);
                self.take(event);
            }
            MrtEvent::TableBegins { router } => {
                let router = self.known(router);
                self.begin_router(router, now);
            }
            MrtEvent::TableEnds { router, family } => {
                let router = self.known(router);
                self.change(router, |kept| kept.end(family));
            }
        }
    }

    /// The peer that `router` is taken for.
    fn known(&mut self, router: Peer) -> Peer {
        if self.routers.contains_key(&router) {
            return router;
        }
        if let Some(known) = self.aliases.get(&router) {
            return *known;
        }
        let is_same = |known: &&Peer| {
            let alike = Peer { as_number: known.as_number, ..router } == **known;
            alike && (!has_as_number(known) || !has_as_number(&router))
        };
        let known = self.routers.keys().filter(is_same).min().copied();
        if let Some(known) = known {
            self.aliases.insert(router, known);
        }
        known.unwrap_or(router)
    }

    fn change(&mut self, router: Peer, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.routers.get_mut(&router) {
            kept.is_set_aside = false;
            let before = kept.len();
            change(kept);
            self.routes = self.routes + kept.len() - before;
        }
    }

    /// Whatever routers tell from here on, they tell anew.
    pub fn begin(&mut self, now: Instant) {
        self.routers.values_mut().for_each(|kept| kept.anew.begin(now));
    }

    /// Whatever `router` tells from here on, it tells anew.
    pub fn begin_router(&mut self, router: Peer, now: Instant) {
        if let Some(kept) = self.routers.get_mut(&router) {
            kept.anew.begin(now);
        }
    }

    /// Begins with what `earlier` knows of `router`, if nothing is known of it here. It stays there as well.
    pub fn copy(&mut self, router: Peer, earlier: &Self) {
        if self.routers.contains_key(&router) {
            return;
        }
        if let Some(kept) = earlier.routers.get(&router).filter(|kept| !kept.is_set_aside) {
            self.routes += kept.len();
            self.routers.insert(router, kept.clone());
        }
    }

    /// Leaves `router` to a feed that has a copy of it: until something is told of it here again, or that feed is joined, it is not among the routers, and nobody takes it over.
    pub fn set_aside(&mut self, router: Peer) {
        if let Some(kept) = self.routers.get_mut(&router) {
            kept.is_set_aside = true;
        }
    }

    /// Takes over what `earlier` knows of `router`, if nothing is known of it here.
    fn adopt(&mut self, router: Peer, earlier: &mut Self) {
        if self.routers.contains_key(&router) {
            return;
        }
        if let Some(kept) = earlier.routers.remove(&router) {
            earlier.routes -= kept.len();
            self.routes += kept.len();
            self.routers.insert(router, kept);
        }
    }

    /// Takes over all that `ended` knows of routers of which nothing is known here. What was set aside here is among the routers again.
    pub fn join(&mut self, mut ended: Self) {
        self.routers.values_mut().for_each(|kept| kept.is_set_aside = false);
        ended.routers.retain(|_, kept| !kept.is_set_aside);
        let routers: Vec<Peer> = ended.routers.keys().copied().collect();
        for router in routers {
            self.adopt(router, &mut ended);
        }
    }

    /// Takes `earlier` for what `router`, of which nothing is known here, told before it began anew.
    fn plant(&mut self, router: Peer, earlier: &Router, began: Instant) {
        let table = earlier.routes.clone().unwrap_or_default();
        // What it originates goes with its routes, so it has to have them.
        let own = earlier.serves.iter().copied().filter(|prefix| table.way_to(prefix.0).is_some()).collect();
        let mut kept = Kept { table, own, ..Kept::of(router) };
        kept.anew.begin(began);
        self.routes += kept.len();
        self.routers.insert(router, kept);
    }

    /// Forgets what routers that began anew `hold` ago have not told again, and those that have no route then. What they told in vain, because they began
    /// once more, has its own time.
    pub fn expire(&mut self, now: Instant, hold: Duration) {
        self.routers.retain(|_, kept| !(kept.expire(now, hold) && kept.table.is_empty()));
        self.routes = self.routers.values().map(Kept::len).sum();
    }

    /// When the first began of those that have not told all anew.
    pub fn began(&self) -> Option<Instant> {
        self.routers.values().filter_map(|kept| kept.anew.began()).min()
    }

    /// Whether one of them has not told all anew.
    pub fn is_awaited(&self) -> bool {
        self.routers.values().any(|kept| kept.anew.began().is_some())
    }

    /// How many routes are known, with all ways to a prefix.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// Whether no route is known.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// How many peers are known, also those of which no route is left.
    pub fn peers(&self) -> usize {
        self.routers.len()
    }

    /// The routers as they are now. Of one that tells its routes before and after its policy, what it uses is taken: its own choice, else those after its policy.
    pub fn routers(&self) -> BTreeMap<RouterName, Router> {
        let mut peers: Vec<(&Peer, &Kept)> = self.routers.iter().filter(|(_, kept)| !kept.is_set_aside).collect();
        // The last of a name holds.
        peers.sort_unstable_by_key(|(peer, _)| (rank(peer.rib), **peer));
        peers.into_iter().map(|(peer, kept)| (name(peer), kept.router())).collect()
    }
}

/// Whether it is known of which AS a peer is.
fn has_as_number(peer: &Peer) -> bool {
    const AS_TRANS: u32 = 23456;
    peer.as_number != 0 && peer.as_number != AS_TRANS
}

/// What is taken of several tables of one router: the highest.
fn rank(rib: Rib) -> u8 {
    match rib {
        Rib::PrePolicy => 0,
        Rib::PostPolicy => 1,
        Rib::Local => 2,
    }
}

/// The peer's address, and its distinguisher where it has one.
fn name(peer: &Peer) -> RouterName {
    let text = match peer.distinguisher {
        0 => peer.address.to_string(),
        distinguisher => format!("{}@{distinguisher}", peer.address),
    };
    RouterName::new(&text).expect("addresses and numbers make a name")
}

/// What is known of one router.
#[derive(Debug, Clone)]
struct Kept {
    peer: Peer,
    table: Arc<Table>,
    /// The prefixes that it originates.
    own: BTreeSet<Prefix>,
    /// All ways to those prefixes of which it tells ways with identifiers (RFC 7911); the best of each are in the table.
    paths: HashMap<IpNet, Paths>,
    /// How many these are.
    identified: usize,
    anew: Anew,
    /// Whether another feed has a copy of this, and nothing was told here since.
    is_set_aside: bool,
}

impl Kept {
    fn of(peer: Peer) -> Self {
        Self {
            peer,
            table: Arc::default(),
            own: BTreeSet::new(),
            paths: HashMap::new(),
            identified: 0,
            anew: Anew::default(),
            is_set_aside: false,
        }
    }

    /// How many routes it has.
    fn len(&self) -> usize {
        self.table.len() - self.paths.len() + self.identified
    }

    fn add(&mut self, path_id: Option<u32>, preference: Preference, route: Route) {
        let Route { prefix, next_hop, as_path } = route;
        // To itself there is no link.
        let way = Way { next_hop: next_hop.filter(|next| *next != self.peer.address), as_path };
        let Some(id) = path_id else {
            self.forget_paths(prefix);
            self.anew.note(prefix, None);
            self.put(prefix, way);
            return;
        };
        self.anew.note(prefix, path_id);
        let paths = self.paths.entry(prefix).or_default();
        let before = paths.len();
        // Those of an ended session count only as long as there is room: in the new one each may have another identifier.
        let dropped = paths.insert(Path { id, preference, way }, |id| self.anew.awaits(prefix, Some(id)));
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

    /// Has the table tell the best of the ways to a prefix.
    fn choose(&mut self, prefix: IpNet) {
        let best = self.paths.get(&prefix).and_then(Paths::best).map(|path| path.way.clone());
        match best {
            Some(way) => self.put(prefix, way),
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

    fn put(&mut self, prefix: IpNet, way: Way) {
        // A table that is answered from is not copied for what it tells already, as when all is told anew.
        if Arc::strong_count(&self.table) > 1 && self.table.way_to(prefix) == Some(&way) {
            return;
        }
        let Way { next_hop, as_path } = way;
        match as_path.hops() {
            [Hop::As(origin)] if *origin == self.peer.as_number => self.own.insert(Prefix(prefix)),
            [] => self.own.insert(Prefix(prefix)),
            _ => self.own.remove(&Prefix(prefix)),
        };
        Arc::make_mut(&mut self.table).insert(Route { prefix, next_hop, as_path });
    }

    fn take_out(&mut self, prefix: IpNet) {
        if self.table.way_to(prefix).is_some() {
            self.own.remove(&Prefix(prefix));
            Arc::make_mut(&mut self.table).remove(prefix);
        }
    }

    /// All of a family is told: what was not told again goes.
    fn end(&mut self, family: AddressType) {
        if let Some(told) = self.anew.end(family) {
            self.sweep(family, &told);
        }
    }

    /// Forgets what was not told again `hold` after a beginning. Whether there was one.
    fn expire(&mut self, now: Instant, hold: Duration) -> bool {
        let mut has_expired = false;
        while let Some((family, told)) = self.anew.expire(now, hold) {
            self.sweep(family, &told);
            has_expired = true;
        }
        has_expired
    }

    /// Forgets all of a family but what is among `told`, and what is told since.
    fn sweep(&mut self, family: AddressType, told: &Told) {
        let holds = |prefix, path_id| told.has(prefix, path_id) || self.anew.has(prefix, path_id);
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
