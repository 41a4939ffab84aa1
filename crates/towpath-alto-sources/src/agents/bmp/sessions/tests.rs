//! Routers that connect, disconnect and reconnect.

use crate::bmp::{Preference, Rib};
use towpath_alto::{address::AddressType, route::Route};
use towpath_store::sys::clock;

use super::*;

const HOLD: Duration = Duration::from_secs(600);

fn peer(last: u8) -> Peer {
    Peer { address: [192, 0, 2, last].into(), as_number: 64500, distinguisher: 0, rib: Rib::PrePolicy }
}

fn route(router: Peer, as_path: &str) -> Event {
    route_to(router, "10.0.0.0/8", as_path)
}

fn route_to(router: Peer, prefix: &str, as_path: &str) -> Event {
    let route = Route { prefix: prefix.parse().unwrap(), next_hop: None, as_path: as_path.parse().unwrap() };
    let preference = Preference { local_pref: 100, path_length: 1, origin: 0, med: 0 };
    Event::Route { router, path_id: None, preference, route }
}

fn end(router: Peer) -> Event {
    Event::EndOfRib { router, family: AddressType::Ipv4 }
}

/// Returns the AS path of this peer's route.
fn path(sessions: &Sessions, name: &str) -> Option<String> {
    let routers = sessions.routers();
    let (_, way) = routers.get(name)?.routes.as_ref()?.routes().next()?;
    Some(way.as_path.to_string())
}

/// Returns the destinations of this peer's routes.
fn prefixes(sessions: &Sessions, name: &str) -> Vec<String> {
    let routers = sessions.routers();
    let table = routers.get(name).and_then(|router| router.routes.as_ref());
    table.into_iter().flat_map(|table| table.routes()).map(|(prefix, _)| prefix.to_string()).collect()
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
    assert_eq!((path(&sessions, "192.0.2.1"), sessions.gone()), (None, Some(router)), "it is missed all the same");
    sessions.begin(router).unwrap();
    assert_eq!(sessions.gone(), None);
}

#[test]
fn a_router_that_never_comes_again_is_forgotten_once_its_routes_have_gone() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let number = sessions.begin(router).unwrap();
    sessions.take(number, route(peer(1), "1"));
    sessions.end(number, now);
    sessions.forget_missed();
    assert_eq!(sessions.gone(), Some(router), "its routes are answered from");
    sessions.expire(now + HOLD, HOLD);
    sessions.forget_missed();
    assert_eq!(sessions.gone(), None);
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
    let paths = |sessions: &Sessions| ["192.0.2.1", "192.0.2.2"].map(|name| path(sessions, name));
    let as_path = |path: &str| Some(path.to_owned());
    assert_eq!(paths(&sessions), [as_path("3"), as_path("2")]);
    sessions.end(second, now + HOLD / 2);
    assert_eq!(paths(&sessions), [as_path("3"), as_path("2")]);
    sessions.expire(now + HOLD, HOLD);
    assert_eq!(paths(&sessions), [as_path("3"), None], "the second one was told on the first connection only");
    sessions.expire(now + HOLD * 3 / 2, HOLD);
    assert_eq!((paths(&sessions), sessions.sessions.len()), ([None, None], 0));
}

#[test]
fn nothing_goes_before_a_router_has_told_its_table_anew() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let first = sessions.begin(router).unwrap();
    for number in [1, 2, 3] {
        sessions.take(first, route(peer(number), "1"));
    }
    sessions.end(first, now);
    let second = sessions.begin(router).unwrap();
    for number in [1, 2] {
        sessions.renew(second, peer(number), now);
    }
    sessions.take(second, end(peer(2)));
    assert_eq!(path(&sessions, "192.0.2.1").as_deref(), Some("1"), "its table has not ended");
    assert_eq!(path(&sessions, "192.0.2.2"), None, "nothing is in its table");
    sessions.take(second, route(peer(1), "2"));
    sessions.take(second, end(peer(1)));
    sessions.expire(now + HOLD, HOLD);
    assert_eq!(path(&sessions, "192.0.2.1").as_deref(), Some("2"));
    assert_eq!(path(&sessions, "192.0.2.3"), None, "its session never came up again");
    assert_eq!(sessions.next_expiry(HOLD), None);
}

#[test]
fn a_router_that_comes_again_before_its_end_is_seen_loses_nothing() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let [router, other]: [IpAddr; 2] = ["198.51.100.1".parse().unwrap(), "198.51.100.2".parse().unwrap()];
    let dead = sessions.begin(router).unwrap();
    let elsewhere = sessions.begin(other).unwrap();
    sessions.take(elsewhere, route(peer(1), "9"));
    for number in [1, 2] {
        sessions.take(dead, route(peer(number), "1"));
    }
    let live = sessions.begin(router).unwrap();
    sessions.renew(live, peer(1), now);
    assert_eq!(
        path(&sessions, "192.0.2.1").as_deref(),
        Some("1"),
        "of this router, though another one has told of it since"
    );
    sessions.end(dead, now);
    assert_eq!((path(&sessions, "192.0.2.2").as_deref(), sessions.gone()), (Some("1"), None));
    sessions.take(live, route(peer(1), "2"));
    sessions.take(live, end(peer(1)));
    sessions.expire(now + HOLD, HOLD);
    assert_eq!(path(&sessions, "192.0.2.1").as_deref(), Some("2"));
    assert_eq!(path(&sessions, "192.0.2.2"), None);
}

#[test]
fn who_comes_from_the_address_of_another_takes_nothing_along_when_it_goes() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let announced = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"];
    let first = sessions.begin(router).unwrap();
    announced[..2].iter().for_each(|prefix| assert!(sessions.take(first, route_to(peer(1), prefix, "1"))));
    let second = sessions.begin(router).unwrap();
    sessions.renew(second, peer(1), now);
    assert_eq!(prefixes(&sessions, "192.0.2.1"), announced[..2]);
    sessions.take(second, end(peer(1)));
    assert!(prefixes(&sessions, "192.0.2.1").is_empty(), "there is nothing, says the last one");
    sessions.end(second, now);
    assert_eq!(prefixes(&sessions, "192.0.2.1"), announced[..2]);
    let third = sessions.begin(router).unwrap();
    sessions.renew(third, peer(1), now);
    sessions.take(first, route_to(peer(1), announced[2], "1"));
    assert_eq!(prefixes(&sessions, "192.0.2.1"), announced[..2], "what the last one says holds");
    sessions.end(third, now);
    sessions.expire(now + HOLD, HOLD);
    assert_eq!(prefixes(&sessions, "192.0.2.1"), announced);
    assert_eq!((sessions.gone(), sessions.next_expiry(HOLD)), (None, None));
}

#[test]
fn a_session_that_is_down_takes_along_what_an_unseen_end_left() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let dead = sessions.begin(router).unwrap();
    sessions.take(dead, route(peer(1), "1"));
    let live = sessions.begin(router).unwrap();
    sessions.renew(live, peer(1), now);
    sessions.take(live, Event::Lost { router: peer(1) });
    assert_eq!(path(&sessions, "192.0.2.1"), None);
    sessions.renew(live, peer(1), now);
    assert_eq!(path(&sessions, "192.0.2.1"), None, "it comes up with nothing");
    sessions.end(dead, now);
    assert_eq!(path(&sessions, "192.0.2.1"), None);
}

#[test]
fn a_session_that_is_down_leaves_that_of_another_connection_that_lives() {
    let (mut sessions, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let first = sessions.begin(router).unwrap();
    sessions.take(first, route_to(peer(1), "10.1.0.0/16", "1"));
    let begin_and_lose = |sessions: &mut Sessions| {
        let number = sessions.begin(router).unwrap();
        sessions.renew(number, peer(1), now);
        sessions.take(number, Event::Lost { router: peer(1) });
        assert!(prefixes(sessions, "192.0.2.1").is_empty(), "nobody knows whether the first one lives");
        number
    };
    let second = begin_and_lose(&mut sessions);
    sessions.end(second, now);
    assert_eq!(prefixes(&sessions, "192.0.2.1"), ["10.1.0.0/16"]);
    begin_and_lose(&mut sessions);
    sessions.take(first, route_to(peer(1), "10.2.0.0/16", "1"));
    assert_eq!(prefixes(&sessions, "192.0.2.1"), ["10.1.0.0/16", "10.2.0.0/16"]);
}

#[test]
fn what_was_told_to_an_earlier_process_holds_until_it_is_told_anew() {
    let (mut before, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let number = before.begin(router).unwrap();
    for last in [1, 2] {
        before.take(number, route(peer(last), "1"));
    }
    let mut sessions = Sessions::with_earlier(before.routers(), now);
    assert_eq!((sessions.routers(), sessions.awaits_earlier()), (before.routers(), true));
    assert_eq!((sessions.gone(), sessions.next_expiry(HOLD)), (None, Some(now + HOLD)));
    let number = sessions.begin(router).unwrap();
    sessions.renew(number, peer(1), now);
    sessions.take(number, end(peer(1)));
    assert_eq!((path(&sessions, "192.0.2.1"), path(&sessions, "192.0.2.2").as_deref()), (None, Some("1")));
    sessions.take(number, route(peer(2), "2"));
    assert_eq!((path(&sessions, "192.0.2.2").as_deref(), sessions.awaits_earlier()), (Some("2"), true));
    sessions.take(number, end(peer(2)));
    assert!(!sessions.awaits_earlier());
    sessions.expire(now + HOLD, HOLD);
    assert_eq!((path(&sessions, "192.0.2.2").as_deref(), sessions.next_expiry(HOLD)), (Some("2"), None));
    let mut alone = Sessions::with_earlier(before.routers(), now);
    alone.expire(now + HOLD, HOLD);
    assert!(alone.routers().is_empty() && !alone.awaits_earlier());
}

#[test]
fn what_a_router_has_no_more_stays_away_when_it_goes() {
    let (mut before, now) = (Sessions::default(), clock::now());
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    let number = before.begin(router).unwrap();
    for last in [1, 2] {
        before.take(number, route(peer(last), "1"));
    }
    let mut sessions = Sessions::with_earlier(before.routers(), now);
    let paths = |sessions: &Sessions| ["192.0.2.1", "192.0.2.2"].map(|name| path(sessions, name));
    let left = [None, Some("1".to_owned())];
    let [number, other] = [(); 2].map(|()| sessions.begin(router).unwrap());
    sessions.take(number, end(peer(1)));
    assert_eq!(paths(&sessions), left);
    for ends in [number, other] {
        sessions.end(ends, now + HOLD / 4);
        assert_eq!(paths(&sessions), left, "also on another connection");
    }
    assert_eq!((sessions.gone(), sessions.next_expiry(HOLD)), (Some(router), Some(now + HOLD)));
    sessions.expire(now + HOLD / 2, HOLD);
    assert_eq!(paths(&sessions), left);
    let silent = sessions.begin(router).unwrap();
    sessions.end(silent, now + HOLD / 2);
    assert_eq!(paths(&sessions), left);
    sessions.expire(now + HOLD, HOLD);
    assert_eq!((paths(&sessions), sessions.sessions.len()), ([None, None], 0));
    assert_eq!(sessions.next_expiry(HOLD), None);
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
fn there_is_room_for_routes_that_are_told_anew_beside_those_of_before() {
    let (mut feed, router) = (RouteTables::default(), peer(1));
    let tell = |feed: &mut RouteTables, id: u32| {
        let Event::Route { preference, route, .. } = route(router, "1") else { panic!("it is a route") };
        feed.take(Event::Route { router, path_id: Some(id), preference, route });
        has_room(feed, 2)
    };
    assert_eq!([1, 2, 3].map(|id| tell(&mut feed, id)), [true, true, false]);
    feed.take(Event::Withdraw { router, path_id: Some(3), prefix: "10.0.0.0/8".parse().unwrap() });
    feed.begin(clock::now().into_std());
    assert_eq!([4, 5, 6].map(|id| tell(&mut feed, id)), [true, true, false]);
    for family in AddressType::ALL {
        feed.take(Event::EndOfRib { router, family });
    }
    assert_eq!((feed.len(), has_room(&feed, 2)), (3, false), "nothing of before is left");
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
    for _ in 0..MAX_SESSIONS {
        assert!(sessions.begin(router).is_some());
    }
    assert_eq!(sessions.begin(router), None);
}
