//! Tests that route tables are correct for any order of events, and that no route is lost by a restart.

use proptest::prelude::*;

use super::*;
use towpath_alto::agent_state::AgentState;

const HOLD: Duration = Duration::from_secs(600);

fn peer(last: u8, rib: Rib) -> Peer {
    Peer { address: [192, 0, 2, last].into(), as_number: 64500 + u32::from(last), distinguisher: 0, rib }
}

/// Default preference of a route with the given AS path.
fn plain(as_path: &str) -> Preference {
    let hops = as_path.split_whitespace().count();
    Preference { local_pref: 100, path_length: u16::try_from(hops).unwrap(), origin: 0, med: 0 }
}

fn route(router: Peer, path_id: Option<u32>, prefix: &str, as_path: &str) -> Event {
    let next_hop = Some("192.0.2.9".parse().unwrap());
    let route = Route { prefix: prefix.parse().unwrap(), next_hop, as_path: as_path.parse().unwrap() };
    Event::Route { router, path_id, preference: plain(as_path), route }
}

fn withdraw(router: Peer, path_id: Option<u32>, prefix: &str) -> Event {
    Event::Withdraw { router, path_id, prefix: prefix.parse().unwrap() }
}

fn end(router: Peer, family: AddressType) -> Event {
    Event::EndOfRib { router, family }
}

/// Returns a reference time.
#[expect(clippy::disallowed_methods, reason = "nothing waits for it")]
fn start() -> Instant {
    Instant::now()
}

fn routes(feed: &RouteTables, router: &str) -> Vec<String> {
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
    let mut feed = RouteTables::default();
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
fn a_peer_whose_number_a_table_does_not_tell_is_known_by_its_address() {
    for number in [0, 23456] {
        let mut feed = RouteTables::default();
        let one = peer(1, Rib::PrePolicy);
        let unknown = Peer { as_number: number, ..one };
        for event in [
            route(unknown, None, "10.1.0.0/16", "64501 7"),
            route(unknown, None, "10.2.0.0/16", "64501 7"),
            withdraw(one, None, "10.1.0.0/16"),
            route(one, None, "10.3.0.0/16", "64501 7"),
            route(peer(2, Rib::PrePolicy), None, "10.4.0.0/16", "64502 7"),
        ] {
            feed.take_dumped(MrtEvent::Change(event), start());
        }
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 7", "10.3.0.0/16 64501 7"]);
        assert_eq!(feed.peers(), 2);
        feed.take_dumped(MrtEvent::Change(Event::Lost { router: one }), start());
        feed.take_dumped(MrtEvent::Change(route(one, None, "10.5.0.0/16", "64501 7")), start());
        assert_eq!(routes(&feed, "192.0.2.1"), ["10.5.0.0/16 64501 7"]);
    }
}

#[test]
fn a_withdrawal_of_one_way_leaves_the_others() {
    let mut feed = RouteTables::default();
    let one = peer(1, Rib::PrePolicy);
    for (path_id, as_path) in [(2, "64501 2"), (1, "64501 1 1"), (3, "64501 3")] {
        feed.take(route(one, Some(path_id), "10.2.0.0/16", as_path));
    }
    assert_eq!((routes(&feed, "192.0.2.1"), feed.len()), (vec!["10.2.0.0/16 64501 2".to_owned()], 3));
    for (path_id, left) in [(9, "64501 2"), (2, "64501 3"), (3, "64501 1")] {
        feed.take(withdraw(one, Some(path_id), "10.2.0.0/16"));
        assert_eq!(routes(&feed, "192.0.2.1"), [format!("10.2.0.0/16 {left}")], "without {path_id}");
    }
    feed.take(withdraw(one, Some(1), "10.2.0.0/16"));
    assert!(feed.is_empty() && routes(&feed, "192.0.2.1").is_empty());
}

#[test]
fn identifiers_may_come_and_go_with_a_session() {
    let mut feed = RouteTables::default();
    let one = peer(1, Rib::PrePolicy);
    feed.take(route(one, Some(1), "10.2.0.0/16", "64501 1"));
    feed.take(route(one, Some(2), "10.2.0.0/16", "64501 2"));
    feed.take(route(one, None, "10.2.0.0/16", "64501 9 9"));
    assert_eq!((routes(&feed, "192.0.2.1"), feed.len()), (vec!["10.2.0.0/16 64501 9".to_owned()], 1));
    feed.take(withdraw(one, Some(1), "10.2.0.0/16"));
    assert_eq!(feed.len(), 1, "there is none of that identifier any more");
    feed.take(route(one, Some(3), "10.2.0.0/16", "64501 3"));
    assert_eq!((routes(&feed, "192.0.2.1"), feed.len()), (vec!["10.2.0.0/16 64501 3".to_owned()], 1));
    feed.take(withdraw(one, None, "10.2.0.0/16"));
    assert!(feed.is_empty());
}

/// A path with default preference, except for the given change.
fn way(id: u32, changed: impl Fn(&mut Preference), as_path: &str, next_hop: &str) -> Event {
    let mut preference = plain(as_path);
    changed(&mut preference);
    let (prefix, next_hop) = ("10.2.0.0/16".parse().unwrap(), next_hop.parse().ok());
    let route = Route { prefix, next_hop, as_path: as_path.parse().unwrap() };
    Event::Route { router: peer(1, Rib::PrePolicy), path_id: Some(id), preference, route }
}

#[test]
fn of_several_ways_the_one_is_told_that_routers_would_take() {
    let same = |_: &mut Preference| {};
    // The first of each pair wins by the named criterion and loses by all later ones.
    let pairs = [
        ("identifier", way(1, same, "4", "192.0.2.9"), way(9, same, "1", "192.0.2.9")),
        (
            "LOCAL_PREF",
            way(9, |preference| preference.local_pref = 101, "1 2 3", "192.0.2.9"),
            way(1, same, "4", "192.0.2.8"),
        ),
        (
            "AS path",
            way(9, same, "1 2", "192.0.2.9"),
            way(1, |preference| preference.local_pref = 100, "4 5 6", "192.0.2.8"),
        ),
        (
            "prepended",
            way(9, same, "1 2", "192.0.2.9"),
            way(1, |preference| preference.path_length = 3, "4 5", "192.0.2.8"),
        ),
        ("ORIGIN", way(9, same, "1", "192.0.2.9"), way(1, |preference| preference.origin = 2, "4", "192.0.2.8")),
        (
            "MULTI_EXIT_DISC",
            way(9, |preference| preference.med = 1, "4", "192.0.2.9"),
            way(1, |preference| preference.med = 2, "4", "192.0.2.8"),
        ),
        ("next hop", way(9, |preference| preference.med = 7, "1", "192.0.2.8"), way(1, same, "4", "192.0.2.9")),
        ("no next hop", way(9, same, "1", ""), way(1, same, "4", "192.0.2.2")),
    ];
    for (what, better, worse) in pairs {
        let Event::Route { route, .. } = &better else { panic!("it is a route") };
        for order in [[&better, &worse], [&worse, &better]] {
            let mut feed = RouteTables::default();
            order.into_iter().for_each(|event| feed.take(event.clone()));
            let found = feed.routers()["192.0.2.1"].routes.clone().unwrap();
            let found = found.attributes_of(route.prefix).unwrap().clone();
            assert_eq!((&found.as_path, found.next_hop), (&route.as_path, route.next_hop), "{what}");
        }
    }
}

#[test]
fn discriminators_are_compared_within_one_neighbouring_system() {
    let mut feed = RouteTables::default();
    let med = |number: u32| move |preference: &mut Preference| preference.med = number;
    // The lowest next hop belongs to a path that is not the best of its neighboring system.
    feed.take(way(1, med(5), "7 1", "192.0.2.7"));
    feed.take(way(2, med(4), "7 2", "192.0.2.9"));
    feed.take(way(3, med(9), "8 3", "192.0.2.8"));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 8 3"]);
    feed.take(withdraw(peer(1, Rib::PrePolicy), Some(2), "10.2.0.0/16"));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 7 1"]);
}

#[test]
fn of_too_many_ways_the_best_are_kept() {
    let mut feed = RouteTables::default();
    let most = u32::try_from(paths::MAX_PATHS).unwrap();
    for id in 1..=most + 10 {
        feed.take(way(id, |preference| preference.local_pref = id, "1", "192.0.2.9"));
    }
    assert_eq!(feed.len(), paths::MAX_PATHS);
    for id in 11..=most + 10 {
        feed.take(withdraw(peer(1, Rib::PrePolicy), Some(id), "10.2.0.0/16"));
    }
    assert!(feed.is_empty(), "{} ways are left", feed.len());
}

#[test]
fn ways_of_before_make_room_for_those_that_are_told_anew() {
    let (mut feed, most) = (RouteTables::default(), u32::try_from(paths::MAX_PATHS).unwrap());
    for id in 1..=most {
        feed.take(way(id, |preference| preference.local_pref = 200 + id, "1", "192.0.2.9"));
    }
    feed.begin(start());
    // They are worse than all stale paths.
    for id in most + 1..2 * most {
        feed.take(way(id, |_| {}, "2", "192.0.2.9"));
    }
    assert_eq!((feed.len(), routes(&feed, "192.0.2.1")), (paths::MAX_PATHS, vec!["10.2.0.0/16 1".to_owned()]));
    feed.take(way(2 * most, |_| {}, "2", "192.0.2.9"));
    let expected = (paths::MAX_PATHS, vec!["10.2.0.0/16 2".to_owned()]);
    assert_eq!((feed.len(), routes(&feed, "192.0.2.1")), expected);
    feed.take(way(2 * most + 1, |expected| expected.local_pref = 0, "3", "192.0.2.9"));
    feed.take(end(peer(1, Rib::PrePolicy), AddressType::Ipv4));
    assert_eq!((feed.len(), routes(&feed, "192.0.2.1")), expected, "of those that are told anew the best are kept");
}

#[test]
fn what_a_router_uses_goes_before_what_it_was_told() {
    let mut feed = RouteTables::default();
    for (rib, path) in [(Rib::Local, "64501 2"), (Rib::PostPolicy, "64501 1"), (Rib::PrePolicy, "64501 0")] {
        feed.take(route(peer(1, rib), None, "10.2.0.0/16", path));
    }
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 2"]);
}

#[test]
fn what_is_not_told_again_goes_at_the_end_of_its_family() {
    let (mut feed, now, one) = (RouteTables::default(), start(), peer(1, Rib::PrePolicy));
    let prefixes = ["10.1.0.0/16", "10.2.0.0/16", "2001:db8:1::/48", "2001:db8:2::/48"];
    prefixes.iter().for_each(|prefix| feed.take(route(one, None, prefix, "64501 1")));
    feed.take(end(one, AddressType::Ipv4));
    assert_eq!(feed.len(), 4, "it did not begin anew");
    feed.begin(now);
    assert_eq!(feed.began(), Some(now));
    feed.take(route(one, None, "10.2.0.0/16", "64501 2"));
    feed.take(route(one, None, "2001:db8:2::/48", "64501 2"));
    feed.take(end(one, AddressType::Ipv4));
    let expected = ["10.2.0.0/16 64501 2", "2001:db8:1::/48 64501 1", "2001:db8:2::/48 64501 2"];
    assert_eq!(routes(&feed, "192.0.2.1"), expected);
    feed.take(end(one, AddressType::Ipv6));
    assert_eq!(routes(&feed, "192.0.2.1"), [expected[0], expected[2]]);
    assert_eq!((feed.len(), feed.began()), (2, None));
}

#[test]
fn who_tells_no_end_is_waited_for_a_while() {
    let (mut feed, now) = (RouteTables::default(), start());
    let (one, two) = (peer(1, Rib::PrePolicy), peer(2, Rib::PrePolicy));
    for router in [one, two] {
        feed.take(route(router, None, "10.1.0.0/16", "64501 1"));
        feed.take(route(router, None, "10.2.0.0/16", "64501 1"));
    }
    feed.begin(now);
    feed.take(route(one, None, "10.1.0.0/16", "64501 1"));
    feed.expire(now + HOLD - Duration::from_nanos(1), HOLD);
    assert_eq!((feed.len(), feed.peers()), (4, 2));
    feed.expire(now + HOLD, HOLD);
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.1.0.0/16 64501 1"]);
    assert_eq!((feed.len(), feed.peers(), feed.began()), (1, 1, None));
}

#[test]
fn who_begins_again_and_again_keeps_nothing_alive() {
    let (mut feed, now, one) = (RouteTables::default(), start(), peer(1, Rib::PrePolicy));
    let expected = ["10.1.0.0/16 64501 1", "10.2.0.0/16 64501 1", "10.3.0.0/16 64501 1", "10.4.0.0/16 64501 1"];
    let tell = |feed: &mut RouteTables, number: usize| {
        let prefix = expected[number].split(' ').next().unwrap();
        feed.take(route(one, None, prefix, "64501 1"));
    };
    (0..4).for_each(|number| tell(&mut feed, number));
    // Restarts three times, a quarter of the hold time apart, and resends one route each time.
    for number in 0..3_u32 {
        feed.begin_router(one, now + HOLD * number / 4);
        tell(&mut feed, usize::try_from(number).unwrap());
    }
    assert_eq!(feed.began(), Some(now));
    feed.expire(now + HOLD, HOLD);
    assert_eq!(routes(&feed, "192.0.2.1"), expected[..3], "what it told since it began first holds longer");
    feed.expire(now + HOLD * 5 / 4, HOLD);
    assert_eq!(routes(&feed, "192.0.2.1"), expected[..3]);
    feed.expire(now + HOLD * 3 / 2, HOLD);
    assert_eq!((routes(&feed, "192.0.2.1"), feed.began()), (vec![expected[2].to_owned()], None));
}

#[test]
fn a_router_begins_alone_and_takes_nothing_from_others() {
    let (mut feed, now) = (RouteTables::default(), start());
    let (one, two) = (peer(1, Rib::PrePolicy), peer(2, Rib::PrePolicy));
    feed.take(route(one, None, "10.1.0.0/16", "64501 1"));
    feed.take(route(two, None, "10.1.0.0/16", "64501 1"));
    feed.begin_router(one, now);
    feed.take(end(two, AddressType::Ipv4));
    feed.take(end(one, AddressType::Ipv4));
    assert_eq!((routes(&feed, "192.0.2.1").len(), routes(&feed, "192.0.2.2").len(), feed.len()), (0, 1, 1));
}

#[test]
fn routes_that_are_told_again_as_they_were_make_no_other_table() {
    let (mut feed, one) = (RouteTables::default(), peer(1, Rib::PrePolicy));
    let tell = |feed: &mut RouteTables| {
        feed.take(route(one, None, "10.1.0.0/16", "64501"));
        feed.take(route(one, Some(1), "10.2.0.0/16", "64501 1"));
    };
    tell(&mut feed);
    let before = feed.routers();
    feed.begin(start());
    tell(&mut feed);
    feed.take(end(one, AddressType::Ipv4));
    let after = feed.routers();
    let table = |routers: &BTreeMap<RouterName, Router>| Arc::clone(routers["192.0.2.1"].routes.as_ref().unwrap());
    assert!(Arc::ptr_eq(&table(&before), &table(&after)));
    assert_eq!(before, after);
}

#[test]
fn what_an_earlier_feed_knows_is_taken_over_where_nothing_is_known() {
    let (mut feed, mut earlier) = (RouteTables::default(), RouteTables::default());
    let [one, two, three] = [1, 2, 3].map(|last| peer(last, Rib::PrePolicy));
    for router in [one, two, three] {
        earlier.take(route(router, None, "10.1.0.0/16", "64501 1"));
    }
    feed.take(route(one, None, "10.2.0.0/16", "64501 2"));
    feed.adopt(one, &mut earlier);
    feed.adopt(two, &mut earlier);
    assert_eq!((feed.len(), earlier.len(), earlier.peers()), (2, 2, 2));
    feed.join(earlier);
    assert_eq!((feed.len(), feed.peers()), (3, 3));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.2.0.0/16 64501 2"]);
}

#[test]
fn a_copy_changes_alone_and_has_its_original_set_aside() {
    let (mut feed, mut earlier) = (RouteTables::default(), RouteTables::default());
    let [one, two] = [1, 2].map(|last| peer(last, Rib::PrePolicy));
    for id in [1, 2] {
        earlier.take(route(one, Some(id), "10.1.0.0/16", "64501 1"));
    }
    earlier.take(route(two, None, "10.1.0.0/16", "64501 1"));
    feed.copy(one, &earlier);
    earlier.set_aside(one);
    feed.take(withdraw(one, Some(1), "10.1.0.0/16"));
    assert_eq!((feed.len(), earlier.len(), earlier.peers()), (1, 3, 2));
    assert_eq!((routes(&feed, "192.0.2.1").len(), routes(&earlier, "192.0.2.1").len()), (1, 0));
    let mut another = RouteTables::default();
    another.copy(one, &earlier);
    assert!(another.is_empty(), "what is set aside is nobody's to copy");
    earlier.join(feed);
    assert_eq!((routes(&earlier, "192.0.2.1").len(), earlier.len()), (1, 3), "it is as it was");
    earlier.set_aside(one);
    another.join(earlier);
    assert_eq!((another.len(), another.peers()), (1, 1), "what is set aside is not taken over");
}

/// A route from a small set, so that collisions occur: prefix and identifier, then attributes.
type ResentRoutes = ((u8, Option<u32>), (u8, u8, u8));

fn resent_route() -> impl Strategy<Value = ResentRoutes> {
    let key = (0..6_u8, prop::option::of(0..3_u32));
    (key, (0..3_u8, 0..2_u8, 0..3_u8))
}

/// Routes with distinct keys, where the paths to a prefix either all have identifiers or none has.
fn table() -> impl Strategy<Value = BTreeMap<(u8, Option<u32>), (u8, u8, u8)>> {
    prop::collection::vec(resent_route(), 0..20).prop_map(|routes| {
        let has_ids = |prefix: u8| prefix.is_multiple_of(2);
        routes
            .into_iter()
            .map(|((prefix, id), way)| ((prefix, has_ids(prefix).then(|| id.unwrap_or(7))), way))
            .collect()
    })
}

fn event(((prefix, path_id), (neighbour, med, next_hop)): ResentRoutes) -> Event {
    let prefix =
        ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.2.0.0/16", "0.0.0.0/0", "10.1.1.1/32"][usize::from(prefix)];
    let as_path = format!("{}", 64500 + u32::from(neighbour));
    let preference = Preference { med: u32::from(med), ..plain(&as_path) };
    let next_hop = Some([192, 0, 2, next_hop].into());
    let route = Route { prefix: prefix.parse().unwrap(), next_hop, as_path: as_path.parse().unwrap() };
    Event::Route { router: peer(1, Rib::PrePolicy), path_id, preference, route }
}

/// Returns a feed that received exactly these routes.
fn feed_of(routes: impl IntoIterator<Item = ResentRoutes>) -> RouteTables {
    let mut feed = RouteTables::default();
    routes.into_iter().for_each(|routes| feed.take(event(routes)));
    feed
}

/// Converts a feed to facts for comparison, leaving out routers without routes.
fn facts(feed: &RouteTables) -> AgentState {
    let has_routes = |router: &Router| router.routes.as_ref().is_some_and(|routes| !routes.is_empty());
    let routers = feed.routers().into_iter().filter(|(_, router)| has_routes(router)).collect();
    AgentState { routers, ..AgentState::default() }
}

/// A previous collector with one router: a route of each family, and one originated by the router.
fn earlier(began: Instant) -> EarlierRoutes {
    let mut feed = RouteTables::default();
    let router = peer(1, Rib::PrePolicy);
    for (prefix, as_path) in [("10.1.0.0/16", "64501"), ("10.2.0.0/16", "7"), ("2001:db8::/32", "7")] {
        feed.take(route(router, None, prefix, as_path));
    }
    EarlierRoutes::new(feed.routers(), began)
}

fn hear(earlier: &mut EarlierRoutes, feed: &mut RouteTables, event: Event) {
    earlier.hear(&event, feed);
    feed.take(event);
}

#[test]
fn an_earlier_table_holds_until_its_router_has_told_all() {
    let (mut earlier, mut feed) = (earlier(start()), RouteTables::default());
    let router = peer(1, Rib::PostPolicy);
    hear(&mut earlier, &mut feed, route(router, None, "10.3.0.0/16", "8"));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.1.0.0/16 64501", "10.2.0.0/16 7", "10.3.0.0/16 8", "2001:db8::/32 7"]);
    assert_eq!((feed.len(), feed.routers()["192.0.2.1"].serves.len()), (4, 1));
    hear(&mut earlier, &mut feed, end(router, AddressType::Ipv4));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.3.0.0/16 8", "2001:db8::/32 7"]);
    assert!(feed.routers()["192.0.2.1"].serves.is_empty() && earlier.is_awaited());
    hear(&mut earlier, &mut feed, end(router, AddressType::Ipv6));
    assert_eq!((routes(&feed, "192.0.2.1").len(), earlier.is_awaited()), (1, false));
}

#[test]
fn an_earlier_table_is_that_of_each_table_of_its_router() {
    let (mut earlier, mut feed) = (earlier(start()), RouteTables::default());
    hear(&mut earlier, &mut feed, end(peer(1, Rib::PrePolicy), AddressType::Ipv4));
    assert_eq!(routes(&feed, "192.0.2.1"), ["2001:db8::/32 7"]);
    hear(&mut earlier, &mut feed, route(peer(1, Rib::PostPolicy), Some(9), "10.1.0.0/16", "8"));
    assert_eq!(routes(&feed, "192.0.2.1"), ["10.1.0.0/16 8", "10.2.0.0/16 7", "2001:db8::/32 7"]);
    hear(&mut earlier, &mut feed, route(peer(2, Rib::PrePolicy), None, "10.1.0.0/16", "8"));
    assert_eq!(routes(&feed, "192.0.2.2").len(), 1, "it is another router");
}

#[test]
fn an_earlier_table_goes_with_its_session_and_with_its_time() {
    let (began, router) = (start(), peer(1, Rib::PrePolicy));
    let (mut lost, mut feed) = (earlier(began), RouteTables::default());
    hear(&mut lost, &mut feed, Event::Lost { router });
    hear(&mut lost, &mut feed, route(router, None, "10.3.0.0/16", "8"));
    assert_eq!((routes(&feed, "192.0.2.1"), lost.is_awaited()), (vec!["10.3.0.0/16 8".to_owned()], false));
    let (mut late, mut feed) = (earlier(began), RouteTables::default());
    hear(&mut late, &mut feed, route(router, None, "10.3.0.0/16", "8"));
    for (now, left) in [(began + HOLD / 2, 4), (began + HOLD, 1)] {
        late.expire(now, HOLD);
        feed.expire(now, HOLD);
        assert_eq!((routes(&feed, "192.0.2.1").len(), late.routers().len()), (left, usize::from(left > 1)));
    }
    assert_eq!((late.began(), feed.began(), late.is_awaited()), (None, None, false));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// At any point of a resend, routes not yet resent are unchanged; at the end, only resent routes remain.
    #[test]
    fn nothing_goes_before_the_end_of_what_is_told_anew(
        before in table(),
        after in table().prop_map(|table| table.into_iter().collect::<Vec<_>>()).prop_shuffle(),
        part in any::<prop::sample::Index>(),
        is_hasty in any::<bool>(),
    ) {
        let one = peer(1, Rib::PrePolicy);
        let mut feed = feed_of(before.clone());
        // An interrupted first restart must not affect the second one.
        if is_hasty {
            feed.begin(start());
            after.iter().take(1).for_each(|route| feed.take(event(*route)));
        }
        let mut model = before;
        if is_hasty {
            model.extend(after.iter().take(1).copied());
        }
        feed.begin(start());
        let part = part.index(after.len() + 1);
        for route in &after[..part] {
            feed.take(event(*route));
        }
        model.extend(after[..part].iter().copied());
        prop_assert_eq!(facts(&feed), facts(&feed_of(model.clone())));
        prop_assert_eq!(feed.len(), model.len());
        feed.take(end(one, AddressType::Ipv6));
        prop_assert_eq!(facts(&feed), facts(&feed_of(model)));
        for route in &after[part..] {
            feed.take(event(*route));
        }
        feed.take(end(one, AddressType::Ipv4));
        prop_assert_eq!(facts(&feed), facts(&feed_of(after.clone())));
        prop_assert_eq!((feed.len(), feed.began()), (after.len(), None));
    }

    /// The chosen path depends only on the set of paths.
    #[test]
    fn the_order_of_ways_does_not_matter(
        (left, all) in (table(), table()).prop_flat_map(|(left, mut all)| {
            all.extend(left.clone());
            (Just(left), Just(all.into_iter().collect::<Vec<_>>()).prop_shuffle())
        }),
    ) {
        let mut feed = feed_of(all.clone());
        for resent in all.into_iter().filter(|(key, _)| !left.contains_key(key)) {
            let Event::Route { router, path_id, route, .. } = event(resent) else { panic!("it is a route") };
            feed.take(Event::Withdraw { router, path_id, prefix: route.prefix });
        }
        prop_assert_eq!(feed.len(), left.len());
        prop_assert_eq!(facts(&feed), facts(&feed_of(left)));
    }
}
