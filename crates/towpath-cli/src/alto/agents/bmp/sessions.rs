//! What routers told on their connections, those that live and those that ended a while ago. No sockets, no clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use towpath_alto::{bmp::Event, facts::Router, feed::Feed, names::RouterName};
use towpath_store::sys::clock::Instant;

/// The most connections at once. Those that ended count as long as their routes hold.
const MAX_SESSIONS: usize = 256;

/// The most routes of one connection: ten peers with all routes of the Internet. They take about 1 GiB.
const MAX_ROUTES: usize = 12_000_000;

/// The most peers of one connection, also those that have no route any more.
const MAX_PEERS: usize = 1 << 16;

/// All connections, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<u64, Session>,
    /// The number of the next one.
    next: u64,
}

/// What one connection told.
#[derive(Debug)]
struct Session {
    from: IpAddr,
    feed: Feed,
    ended: Option<Instant>,
}

impl Sessions {
    /// Notes a new connection. Its number; none if there are too many.
    pub(super) fn begin(&mut self, from: IpAddr) -> Option<u64> {
        if self.sessions.len() >= MAX_SESSIONS {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.sessions.insert(number, Session { from, feed: Feed::default(), ended: None });
        Some(number)
    }

    /// Takes a change that came on that connection. Whether there is room for more.
    pub(super) fn take(&mut self, number: u64, event: Event) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        session.feed.take(event);
        session.feed.len() <= MAX_ROUTES && session.feed.peers() <= MAX_PEERS
    }

    /// Notes that a connection ended. Its routes hold, in place of those of an earlier one from there, unless it told none.
    pub(super) fn end(&mut self, number: u64, now: Instant) {
        let Some(mut ended) = self.sessions.remove(&number) else { return };
        if ended.feed.is_empty() {
            return;
        }
        self.sessions.retain(|_, session| session.ended.is_none() || session.from != ended.from);
        ended.ended = Some(now);
        self.sessions.insert(number, ended);
    }

    /// Forgets what ended `hold` ago.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) {
        self.sessions.retain(|_, session| session.ended.is_none_or(|ended| now < ended + hold));
    }

    /// When there is something to forget.
    pub(super) fn next_expiry(&self, hold: Duration) -> Option<Instant> {
        self.sessions.values().filter_map(|session| session.ended).min().map(|ended| ended + hold)
    }

    /// The routers as they are now. Of one that several connections speak of, what the last one says holds.
    pub(super) fn routers(&self) -> BTreeMap<RouterName, Router> {
        self.sessions.values().flat_map(|session| session.feed.routers()).collect()
    }

    /// One whose routes hold though it is not connected any more.
    pub(super) fn gone(&self) -> Option<IpAddr> {
        let live: BTreeSet<IpAddr> =
            self.sessions.values().filter(|session| session.ended.is_none()).map(|session| session.from).collect();
        self.sessions.values().map(|session| session.from).find(|from| !live.contains(from))
    }
}

#[cfg(test)]
mod tests {
    use towpath_alto::{
        bmp::{Peer, Rib},
        route::Route,
    };
    use towpath_store::sys::clock;

    use super::*;

    const HOLD: Duration = Duration::from_secs(600);

    fn peer(last: u8) -> Peer {
        Peer { address: [192, 0, 2, last].into(), as_number: 64500, distinguisher: 0, rib: Rib::PrePolicy }
    }

    fn route(router: Peer, as_path: &str) -> Event {
        let route = Route { prefix: "10.0.0.0/8".parse().unwrap(), next_hop: None, as_path: as_path.parse().unwrap() };
        Event::Route { router, path_id: None, route }
    }

    /// The AS path of that peer's route.
    fn path(sessions: &Sessions, name: &str) -> Option<String> {
        let routers = sessions.routers();
        let (_, way) = routers.get(name)?.routes.as_ref()?.routes().next()?;
        Some(way.as_path.to_string())
    }

    #[test]
    fn routes_hold_for_a_while_when_their_connection_is_gone() {
        let (mut sessions, now) = (Sessions::default(), clock::now());
        let router: IpAddr = "198.51.100.1".parse().unwrap();
        let number = sessions.begin(router).unwrap();
        assert!(sessions.take(number, route(peer(1), "1")));
        assert_eq!((sessions.gone(), sessions.next_expiry(HOLD)), (None, None));
        sessions.end(number, now);
        assert_eq!((sessions.gone(), sessions.next_expiry(HOLD)), (Some(router), Some(now + HOLD)));
        sessions.expire(now + HOLD / 2, HOLD);
        assert_eq!(path(&sessions, "192.0.2.1").as_deref(), Some("1"));
        sessions.expire(now + HOLD, HOLD);
        assert_eq!((path(&sessions, "192.0.2.1"), sessions.gone()), (None, None));
    }

    #[test]
    fn who_comes_again_is_heard_before_what_it_said_earlier() {
        let (mut sessions, now) = (Sessions::default(), clock::now());
        let router: IpAddr = "198.51.100.1".parse().unwrap();
        let first = sessions.begin(router).unwrap();
        sessions.take(first, route(peer(1), "1"));
        sessions.take(first, route(peer(2), "2"));
        sessions.end(first, now);
        let second = sessions.begin(router).unwrap();
        assert_eq!(sessions.gone(), None);
        sessions.take(second, route(peer(1), "3"));
        assert_eq!(path(&sessions, "192.0.2.1").as_deref(), Some("3"));
        assert_eq!(path(&sessions, "192.0.2.2").as_deref(), Some("2"));
        sessions.end(second, now);
        assert_eq!(path(&sessions, "192.0.2.2"), None, "of one router the last connection holds");
    }

    #[test]
    fn a_router_has_no_more_peers_than_there_is_room_for() {
        let mut sessions = Sessions::default();
        let number = sessions.begin([198, 51, 100, 1].into()).unwrap();
        let mut take = |as_number: usize| {
            let router = Peer { as_number: u32::try_from(as_number).unwrap(), ..peer(1) };
            let is_taken = sessions.take(number, route(router, "1"));
            sessions.take(number, Event::Withdraw { router, path_id: None, prefix: "10.0.0.0/8".parse().unwrap() });
            is_taken
        };
        assert!((0..MAX_PEERS).all(&mut take));
        assert!(!take(MAX_PEERS), "though none of them has a route");
    }

    #[test]
    fn a_router_that_comes_and_goes_takes_no_room() {
        let (mut sessions, now) = (Sessions::default(), clock::now());
        let router: IpAddr = "198.51.100.1".parse().unwrap();
        for as_path in 1..=2 * MAX_SESSIONS {
            let number = sessions.begin(router).unwrap();
            sessions.take(number, route(peer(1), &as_path.to_string()));
            sessions.end(number, now);
            let silent = sessions.begin(router).unwrap();
            sessions.end(silent, now);
            assert_eq!(path(&sessions, "192.0.2.1"), Some(as_path.to_string()), "who says nothing takes nothing away");
        }
        for _ in 1..MAX_SESSIONS {
            assert!(sessions.begin(router).is_some());
        }
        assert_eq!(sessions.begin(router), None);
    }
}
