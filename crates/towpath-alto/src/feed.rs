//! Routes as a feed tells them, one change after another, kept by router.
//!
//! A [`Feed`] takes the events of [`crate::mrt`] and [`crate::bmp`]. Each peer of the collector is a router, named by its address. What it originates itself is taken for what is
//! behind it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    facts::{Prefix, Router},
    mrt::{Event, Peer, Rib},
    names::RouterName,
    route::{Hop, Route},
    routes::Table,
};

/// The routes of the routers that a feed speaks of.
#[derive(Debug, Default)]
pub struct Feed {
    routers: HashMap<Peer, Kept>,
    /// How many routes all of them have.
    routes: usize,
}

/// What is known of one router.
#[derive(Debug, Default)]
struct Kept {
    table: Arc<Table>,
    /// The prefixes that it originates.
    own: BTreeSet<Prefix>,
    /// Where a router tells several ways to a prefix (RFC 7911), the one that is kept.
    chosen: HashMap<IpNet, u32>,
}

impl Feed {
    /// Takes one change.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Route { router, path_id, route } => {
                let kept = self.routers.entry(router).or_default();
                let before = kept.table.len();
                kept.add(router, path_id, route);
                self.routes += kept.table.len() - before;
            }
            Event::Withdraw { router, path_id, prefix } => {
                if let Some(kept) = self.routers.get_mut(&router) {
                    let before = kept.table.len();
                    kept.remove(path_id, prefix);
                    self.routes -= before - kept.table.len();
                }
            }
            Event::Lost { router } => {
                self.routes -= self.routers.remove(&router).map_or(0, |kept| kept.table.len());
            }
        }
    }

    /// How many routes are known.
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
        let mut peers: Vec<(&Peer, &Kept)> = self.routers.iter().collect();
        // The last of a name holds.
        peers.sort_unstable_by_key(|(peer, _)| (rank(peer.rib), **peer));
        peers.into_iter().map(|(peer, kept)| (name(peer), kept.router(peer))).collect()
    }
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

impl Kept {
    fn add(&mut self, router: Peer, path_id: Option<u32>, route: Route) {
        let prefix = route.prefix;
        if let Some(path_id) = path_id {
            let chosen = *self.chosen.entry(prefix).or_insert(path_id);
            if path_id > chosen {
                return;
            }
            self.chosen.insert(prefix, path_id);
        }
        match route.as_path.hops() {
            [Hop::As(origin)] if *origin == router.as_number => self.own.insert(Prefix(prefix)),
            [] => self.own.insert(Prefix(prefix)),
            _ => self.own.remove(&Prefix(prefix)),
        };
        // To itself there is no link.
        let next_hop = route.next_hop.filter(|next| *next != router.address);
        Arc::make_mut(&mut self.table).insert(Route { next_hop, ..route });
    }

    fn remove(&mut self, path_id: Option<u32>, prefix: IpNet) {
        if path_id.is_some() && self.chosen.get(&prefix).copied() != path_id {
            return;
        }
        self.chosen.remove(&prefix);
        self.own.remove(&Prefix(prefix));
        Arc::make_mut(&mut self.table).remove(prefix);
    }

    fn router(&self, peer: &Peer) -> Router {
        Router {
            addresses: [peer.address].into(),
            serves: self.own.clone(),
            default: false,
            routes: Some(Arc::clone(&self.table)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8, rib: Rib) -> Peer {
        Peer { address: [192, 0, 2, last].into(), as_number: 64500 + u32::from(last), distinguisher: 0, rib }
    }

    fn route(router: Peer, path_id: Option<u32>, prefix: &str, as_path: &str) -> Event {
        let next_hop = Some("192.0.2.9".parse().unwrap());
        let route = Route { prefix: prefix.parse().unwrap(), next_hop, as_path: as_path.parse().unwrap() };
        Event::Route { router, path_id, route }
    }

    fn withdraw(router: Peer, path_id: Option<u32>, prefix: &str) -> Event {
        Event::Withdraw { router, path_id, prefix: prefix.parse().unwrap() }
    }

    fn routes(feed: &Feed, router: &str) -> Vec<String> {
        let routers = feed.routers();
        let Some(router) = routers.get(router) else { return Vec::new() };
        router
            .routes
            .iter()
            .flat_map(|routes| routes.routes())
            .map(|(prefix, way)| format!("{prefix} {}", way.as_path))
            .collect()
    }

    #[test]
    fn changes_are_kept_by_router() {
        let mut feed = Feed::default();
        let (one, two) = (peer(1, Rib::PrePolicy), peer(2, Rib::PrePolicy));
        feed.take(route(one, None, "10.1.0.0/16", "64501"));
        feed.take(route(one, None, "10.2.0.0/16", "64501 64502"));
        feed.take(route(two, None, "10.1.0.0/16", "64502 64501"));
        assert_eq!(feed.len(), 3);
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.1.0.0/16 64501", "10.2.0.0/16 64501 64502"]);
        let routers = feed.routers();
        let serves: Vec<_> = routers["192.0.2.1"].serves.iter().map(|prefix| prefix.0.to_string()).collect();
        assert_eq!(serves, ["10.1.0.0/16"]);
        feed.take(withdraw(one, None, "10.1.0.0/16"));
        feed.take(withdraw(one, None, "10.9.0.0/16"));
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 64502"]);
        assert_eq!(routers["192.0.2.1"].routes.as_ref().unwrap().len(), 2, "what was given away does not change");
        assert_eq!((feed.len(), feed.peers()), (2, 2));
        feed.take(Event::Lost { router: one });
        assert_eq!((feed.len(), feed.peers()), (1, 1));
        assert!(routes(&feed, "192.0.2.1").is_empty() && !feed.is_empty());
    }

    #[test]
    fn of_several_ways_to_a_prefix_the_first_is_kept() {
        let mut feed = Feed::default();
        let one = peer(1, Rib::PrePolicy);
        feed.take(route(one, Some(2), "10.2.0.0/16", "64501 2"));
        feed.take(route(one, Some(1), "10.2.0.0/16", "64501 1"));
        feed.take(route(one, Some(3), "10.2.0.0/16", "64501 3"));
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 1"]);
        feed.take(withdraw(one, Some(3), "10.2.0.0/16"));
        assert_eq!(feed.len(), 1);
        feed.take(withdraw(one, Some(1), "10.2.0.0/16"));
        assert!(feed.is_empty());
    }

    #[test]
    fn what_a_router_uses_goes_before_what_it_was_told() {
        let mut feed = Feed::default();
        for (rib, path) in [(Rib::Local, "64501 2"), (Rib::PostPolicy, "64501 1"), (Rib::PrePolicy, "64501 0")] {
            feed.take(route(peer(1, rib), None, "10.2.0.0/16", path));
        }
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 2"]);
    }
}
