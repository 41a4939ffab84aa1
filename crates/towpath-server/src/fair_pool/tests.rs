use std::net::Ipv6Addr;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use towpath_store::Caller;

use super::*;

fn holder(octet: u8) -> Arc<LeaseHolder> {
    LeaseHolder::at([10, 0, 0, octet].into())
}

/// Takes single units until the pool grants no more.
fn take_all(pool: &FairPool, holder: &Arc<LeaseHolder>) -> Vec<Lease> {
    std::iter::from_fn(|| pool.try_take(holder, 1, Class::Large)).collect()
}

#[test]
fn holders_get_equal_parts_and_leave_as_much() {
    let pool = FairPool::new(1600, 1, 1);
    let first = take_all(&pool, &holder(1));
    assert_eq!(first.len(), 750, "half of 1500");
    let second = take_all(&pool, &holder(2));
    assert_eq!(second.len(), 375, "half of the rest");
    drop(first);
    let rest = take_all(&pool, &holder(2));
    assert_eq!(second.len() + rest.len(), 750);
    drop((second, rest));
    assert_eq!(pool.free(), 1600);
}

#[test]
fn hundreds_of_greedy_holders_leave_something_for_the_next() {
    let pool = FairPool::new(128 << 20, 4096, 1);
    let greedy: Vec<_> = (0..=255)
        .map(|octet| std::iter::from_fn(|| pool.try_take(&holder(octet), 256 << 10, Class::Large)).collect::<Vec<_>>())
        .collect();
    assert!(pool.try_take(&holder(0), 256 << 10, Class::Large).is_none());
    let next = LeaseHolder::at([10, 0, 1, 0].into());
    assert!(pool.try_take(&next, 128 << 10, Class::Small).is_some(), "{} holders", greedy.len());
}

#[test]
fn the_reserve_serves_small_requests_of_a_holder_that_has_its_share() {
    let pool = FairPool::new(1600, 1, 1);
    let _all = take_all(&pool, &holder(1));
    assert!(pool.try_take(&holder(1), 1, Class::Small).is_some());
    let small: Vec<_> = std::iter::from_fn(|| pool.try_take(&holder(1), 1, Class::Small)).collect();
    assert_eq!(small.len(), 50, "half of the reserve");
}

#[tokio::test]
async fn a_lease_can_be_shrunk() {
    let pool = FairPool::new(1600, 1, 1);
    let (first, progress) = (holder(1), PeerProgress::new(CancellationToken::new()));
    let mut lease = pool.take(&first, 375, Class::Large, &progress).await;
    let _more = pool.take(&first, 375, Class::Large, &progress).await;
    let mut waiting = Box::pin(pool.take(&first, 300, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    lease.shrink_to(75);
    assert!(waiting.now_or_never().is_some(), "the rest was returned");
    lease.shrink_to(100);
    assert_eq!(pool.free(), 1600 - 375 - 75);
    drop((lease, _more));
    assert_eq!(pool.free(), 1600);
}

#[test]
fn a_network_of_ipv6_is_one_holder_and_a_person_another() {
    let at = |address: &str, subject: Option<&str>| {
        let issuer = subject.map(|_| "https://issuer".into());
        let caller = Caller {
            address: Some(address.parse().unwrap()),
            subject: subject.map(Into::into),
            issuer,
            ..Caller::default()
        };
        LeaseHolder::of(&caller)
    };
    assert_eq!(at("2001:db8::1", None), at("2001:db8::ffff:1", None));
    assert_ne!(at("2001:db8::1", None), at("2001:db8:0:1::1", None));
    assert_ne!(at("2001:db8::1", None), at("2001:db8::1", Some("alice")));
}

/// Returns a holder in one of the 65,536 networks of an IPv6 site.
fn network_in(site: u16, network: u16) -> Arc<LeaseHolder> {
    LeaseHolder::at(Ipv6Addr::new(0x2001, 0xdb8, site, network, 0, 0, 0, 1).into())
}

#[tokio::test]
async fn the_networks_of_a_site_have_a_share_together() {
    let pool = FairPool::new(1600, 1, 3);
    let take = |holder: &Arc<LeaseHolder>| pool.try_take(holder, 1, Class::Large);
    // Starts at 0, because that network has the same address as the site.
    let take_by_each = |site| (0..=u16::MAX).filter_map(|network| take(&network_in(site, network))).collect::<Vec<_>>();
    let first = take_by_each(1);
    assert_eq!(first.len(), 1500 * 6 / 7);
    let progress = PeerProgress::watching(CancellationToken::new());
    let other = network_in(1, 7777);
    let granted = pool.take_soon(&other, Class::Large, &progress, Duration::MAX).now_or_never();
    assert!(granted.is_some_and(|lease| lease.is_none()), "its site has its share");
    let second = take_by_each(2);
    assert_eq!(second.len(), 215 * 6 / 7);
    assert!(take(&holder(1)).is_some() && take(&network_in(3, 0)).is_some());
    drop((first, second));
    assert_eq!(pool.free(), 1600);
}

#[test]
fn a_greedy_network_leaves_something_to_its_neighbours() {
    let pool = FairPool::new(1600, 1, 1);
    let greedy = take_all(&pool, &network_in(1, 1));
    assert_eq!(greedy.len(), 750, "as without a site");
    let neighbour = take_all(&pool, &network_in(1, 2));
    assert_eq!(neighbour.len(), 250, "the site has two thirds");
    assert_eq!(take_all(&pool, &network_in(2, 1)).len(), 250);
}

#[tokio::test(start_paused = true)]
async fn an_idle_network_loses_its_leases_to_its_site() {
    let pool = FairPool::new(64, 1, 1);
    let end = CancellationToken::new();
    let progress = PeerProgress::new(end.clone());
    let mut leases = Vec::new();
    for network in 0..100 {
        leases.extend(pool.take(&network_in(1, network), 1, Class::Large, &progress).now_or_never());
    }
    assert_eq!(leases.len(), 40);
    let _waits = progress.await_peer();
    let (own, waiter) = (PeerProgress::new(CancellationToken::new()), network_in(1, 5000));
    let waiting = pool.take(&waiter, 1, Class::Large, &own);
    let revoked = async {
        end.cancelled().await;
        leases.clear();
    };
    tokio::join!(waiting, revoked);
}

#[test]
fn the_smallest_pool_gives_one_unit() {
    let pool = FairPool::new(0, 1, 1);
    let one = pool.try_take(&holder(1), 1, Class::Large).expect("one is there");
    assert!(pool.try_take(&holder(2), 1, Class::Large).is_none());
    drop(one);
    assert!(pool.try_take(&holder(2), 1, Class::Large).is_some());
}

#[tokio::test]
async fn a_request_that_was_given_up_takes_nothing() {
    let pool = FairPool::new(16, 1, 1);
    let progress = PeerProgress::new(CancellationToken::new());
    let all = take_all(&pool, &holder(1));
    let taker = holder(1);
    let mut waiting = Box::pin(pool.take(&taker, 1, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(waiting);
    let mut next = Box::pin(pool.take(&taker, 1, Class::Large, &progress));
    assert!(next.as_mut().now_or_never().is_none());
    drop(all);
    let lease = next.await;
    assert_eq!(pool.free(), 15);
    drop(lease);
    assert_eq!(pool.free(), 16);
}

#[tokio::test]
async fn a_grant_that_meets_a_request_given_up_comes_back() {
    let pool = FairPool::new(16, 1, 1);
    let progress = PeerProgress::new(CancellationToken::new());
    let all = take_all(&pool, &holder(1));
    let taker = holder(1);
    let mut waiting = Box::pin(pool.take(&taker, 1, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    // Granted, but not polled again.
    drop(all);
    assert_eq!(pool.free(), 15);
    drop(waiting);
    assert_eq!(pool.free(), 16);
}

#[tokio::test]
async fn a_holder_that_has_nothing_goes_first() {
    let pool = FairPool::new(160, 1, 1);
    let progress = PeerProgress::new(CancellationToken::new());
    let (greedy, modest) = (holder(1), holder(2));
    let mut held = take_all(&pool, &greedy);
    // Others take the rest, so that little is free.
    let others: Vec<_> = (10..40).map(|octet| take_all(&pool, &holder(octet))).collect();
    let mut waiting = Box::pin(pool.take(&modest, 30, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    held.truncate(70);
    assert!(take_all(&pool, &greedy).is_empty(), "what it gives back is kept for the other");
    drop(others);
    assert!(waiting.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_move_loses_its_lease_to_a_holder_that_has_nothing() {
    let pool = FairPool::new(64, 1, 1);
    let (stuck, slow) = (CancellationToken::new(), CancellationToken::new());
    let [stuck_progress, slow_progress] = [&stuck, &slow].map(|end| PeerProgress::new(end.clone()));
    let mut leases = Vec::new();
    for (octet, progress) in [(1, &stuck_progress), (2, &slow_progress)] {
        while let Some(lease) = pool.take(&holder(octet), 1, Class::Large, progress).now_or_never() {
            leases.push((octet, lease));
        }
    }
    let (_stuck_waits, _slow_waits) = (stuck_progress.await_peer(), slow_progress.await_peer());
    tokio::time::advance(GRACE_AND_MORE).await;
    stuck_progress.record_progress(1);
    slow_progress.record_progress(1 << 20);
    assert!(!stuck.is_cancelled(), "the memory is not wanted");
    let modest = holder(3);
    let progress = PeerProgress::new(CancellationToken::new());
    let waiting = pool.take(&modest, 12, Class::Large, &progress);
    let revoked = async {
        stuck.cancelled().await;
        leases.retain(|(octet, _)| *octet != 1);
    };
    tokio::join!(waiting, revoked);
    assert!(!slow.is_cancelled(), "it moves");
}

#[tokio::test(start_paused = true)]
async fn a_greedy_holder_revokes_its_own_leases_only() {
    let pool = FairPool::new(64, 1, 1);
    let (own, other) = (CancellationToken::new(), CancellationToken::new());
    let [own_progress, other_progress] = [&own, &other].map(|end| PeerProgress::new(end.clone()));
    let greedy = holder(1);
    let mut mine = Vec::new();
    let _others = pool.take(&holder(2), 1, Class::Large, &other_progress).await;
    while let Some(lease) = pool.take(&greedy, 1, Class::Large, &own_progress).now_or_never() {
        mine.push(lease);
    }
    let (_own_waits, _other_waits) = (own_progress.await_peer(), other_progress.await_peer());
    tokio::time::advance(GRACE_AND_MORE).await;
    let progress = PeerProgress::new(CancellationToken::new());
    let waiting = pool.take(&greedy, 1, Class::Large, &progress);
    let revoked = async {
        own.cancelled().await;
        mine.clear();
    };
    tokio::join!(waiting, revoked);
    assert!(!other.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_its_share_keeps_its_slow_peers_and_loses_its_idle_ones() {
    let pool = FairPool::new(64, 1, 1);
    let (slow, idle) = (CancellationToken::new(), CancellationToken::new());
    let [slow_progress, idle_progress] = [&slow, &idle].map(|end| PeerProgress::new(end.clone()));
    let holder = holder(1);
    let idle_lease = pool.take(&holder, 1, Class::Large, &idle_progress).await;
    let mut leases = Vec::new();
    while let Some(lease) = pool.take(&holder, 1, Class::Large, &slow_progress).now_or_never() {
        leases.push(lease);
    }
    let (_slow_waits, _idle_waits) = (slow_progress.await_peer(), idle_progress.await_peer());
    let progress = PeerProgress::new(CancellationToken::new());
    let mut waiting = Box::pin(pool.take(&holder, 2, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    for second in 0..30 {
        slow_progress.record_progress(1 << 10);
        // The clock is paused.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!slow.is_cancelled(), "after {second} s");
    }
    assert!(idle.is_cancelled(), "an idle peer loses its lease to its own holder, too");
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(idle_lease);
    assert!(waiting.as_mut().now_or_never().is_none());
    leases.pop();
    assert!(waiting.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_within_its_share_loses_nothing_to_a_holder_that_has_nothing() {
    let pool = FairPool::new(64, 1, 1);
    let (slow, large) = (CancellationToken::new(), CancellationToken::new());
    let [slow_progress, large_progress] = [&slow, &large].map(|end| PeerProgress::new(end.clone()));
    let mut held = Vec::new();
    while let Some(lease) = pool.take(&holder(1), 1, Class::Large, &large_progress).now_or_never() {
        held.push(lease);
    }
    let _within = pool.take(&holder(2), 1, Class::Large, &slow_progress).await;
    let (_slow_waits, _large_waits) = (slow_progress.await_peer(), large_progress.await_peer());
    let (modest, progress) = (holder(3), PeerProgress::new(CancellationToken::new()));
    let mut waiting = Box::pin(pool.take(&modest, 15, Class::Large, &progress));
    assert!(waiting.as_mut().now_or_never().is_none());
    for _ in 0..5 {
        slow_progress.record_progress(1 << 10);
        large_progress.record_progress(1 << 20);
        // The clock is paused.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!slow.is_cancelled(), "its holder is within its share");
    large.cancelled().await;
    held.clear();
    assert!(waiting.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_what_the_largest_holder_leaves_idle() {
    let pool = FairPool::new(64, 1, 1);
    let patience = Duration::from_secs(2);
    let ends: Vec<_> = (0..20).map(|_| CancellationToken::new()).collect();
    let mut leases = Vec::new();
    for (octet, end) in ends.iter().enumerate() {
        let progress = PeerProgress::watching(end.clone());
        while let Some(lease) = pool.take_soon(&holder(octet as u8), Class::Large, &progress, Duration::ZERO).await {
            leases.push((octet, lease));
        }
    }
    let newcomer = PeerProgress::watching(CancellationToken::new());
    assert!(pool.take_soon(&holder(0), Class::Large, &newcomer, patience).await.is_none(), "it has its share");
    assert!(ends.iter().all(|end| !end.is_cancelled()));
    tokio::time::advance(GRACE_AND_MORE).await;
    let address = holder(100);
    let waiting = pool.take_soon(&address, Class::Large, &newcomer, patience);
    let revoked = async {
        ends[0].cancelled().await;
        leases.retain(|(octet, _)| *octet != 0);
    };
    let (granted, ()) = tokio::join!(waiting, revoked);
    assert!(granted.is_some());
    assert!(!ends[1].is_cancelled(), "one was enough");
}

const GRACE_AND_MORE: Duration = Duration::from_millis(1500);
