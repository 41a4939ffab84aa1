//! TCP over the links. Times are compared with physical bounds, never with typical values.

use std::{net::IpAddr, time::Duration};

use towpath_wan::{LinkName, LinkSettings, Queue, Rate, Wan};

use super::lab::{PATIENCE, Transfer, counters, host, link, wan};

/// Sends a few bytes from the first host to the second and returns the duration.
fn send(wan: &Wan, bytes: usize) -> Duration {
    let [first, second] = wan.hosts() else { panic!("two hosts") };
    Transfer::start(first, second, second.address().into(), bytes).finish()
}

/// Returns the minimum duration of TCP payload over that rate in full segments with timestamps.
fn least_time(bytes: usize, mbit_per_s: u32) -> Duration {
    Duration::from_secs_f64(bytes as f64 * 8.0 * 1538.0 / 1448.0 / f64::from(mbit_per_s) / 1e6)
}

#[test]
fn a_transfer_is_whole_and_not_faster_than_the_link() {
    let Some(wan) = wan(Wan::builder().pairs(link(100, 10))) else { return };
    let bytes = 8 << 20;
    let took = send(&wan, bytes);
    println!("8 MiB at 100 Mbit/s and 20 ms: {took:?}, at least {:?}", least_time(bytes, 100));
    assert!(took > least_time(bytes, 100), "{took:?}");
    let counters = counters(&wan, LinkName::Pair(host(1), host(2)));
    assert_eq!(counters.lost_segments, 0);
    assert_eq!(counters.offered_segments, counters.passed_segments + counters.queue_dropped_segments);
}

#[test]
fn the_short_form_is_the_long_one() {
    let rate = Rate::from_mbit_per_s(200);
    let Some(same) = wan(Wan::builder().pairs(link(200, 3))) else { return };
    let short = Wan::two_hosts(Duration::from_millis(6), rate).unwrap();
    for name in [LinkName::Pair(host(1), host(2)), LinkName::Pair(host(2), host(1))] {
        assert_eq!(short.report().unwrap().settings(name), same.report().unwrap().settings(name));
    }
    send(&short, 1000);
}

#[test]
fn what_is_lost_is_sent_again_over_both_protocols() {
    let lossy = LinkSettings { loss: 0.02, ..link(1000, 1) };
    let Some(wan) = wan(Wan::builder().pairs(lossy)) else { return };
    let [first, second] = wan.hosts() else { panic!("two hosts") };
    let mut lost = 0;
    for address in [IpAddr::from(second.address()), second.address_v6().into()] {
        Transfer::start(first, second, address, 4 << 20).finish();
        let now_lost = counters(&wan, LinkName::Pair(host(1), host(2))).lost_segments;
        assert!(now_lost > lost, "of about 3,000 segments some are lost at 2 %");
        lost = now_lost;
    }
}

#[test]
fn a_short_queue_drops_and_the_transfer_still_ends() {
    let short = LinkSettings { queue: Queue::Bytes(30_000), ..link(100, 5) };
    let Some(wan) = wan(Wan::builder().pairs(short)) else { return };
    send(&wan, 4 << 20);
    let counters = counters(&wan, LinkName::Pair(host(1), host(2)));
    assert!(counters.queue_dropped_segments > 0);
    assert!(counters.most_queued_bytes <= 30_000);
}

#[test]
fn jitter_and_reordering_lose_nothing() {
    let jitter = Duration::from_millis(2);
    let unsteady = LinkSettings { jitter, reorder: 0.01, reorder_by: jitter, ..link(500, 5) };
    let Some(wan) = wan(Wan::builder().pairs(unsteady)) else { return };
    send(&wan, 4 << 20);
    let counters = counters(&wan, LinkName::Pair(host(1), host(2)));
    assert!(counters.reordered_segments > 0);
    assert_eq!(counters.lost_segments, 0);
}

#[test]
fn a_transfer_outlives_an_outage() {
    let Some(wan) = wan(Wan::builder().pairs(link(50, 5))) else { return };
    let [first, second] = wan.hosts() else { panic!("two hosts") };
    let transfer = Transfer::start(first, second, second.address().into(), 8 << 20);
    transfer.began.recv_timeout(PATIENCE).unwrap();
    let outage = Duration::from_millis(300);
    wan.outage(LinkName::Pair(host(1), host(2)), outage).unwrap();
    let took = transfer.finish();
    assert!(took > outage, "{took:?}");
    assert!(counters(&wan, LinkName::Pair(host(1), host(2))).outage_segments > 0);
}

#[test]
fn two_senders_share_the_receivers_access_link() {
    let access = LinkName::Down(host(3));
    let Some(wan) = wan(Wan::builder().hosts(3).pairs(link(1000, 2)).link(access, link(50, 0))) else { return };
    let [first, second, third] = wan.hosts() else { panic!("three hosts") };
    let bytes = 2 << 20;
    let transfers = [first, second].map(|from| Transfer::start(from, third, third.address().into(), bytes));
    let took = transfers.map(Transfer::finish).into_iter().max().unwrap();
    assert!(took > least_time(2 * bytes, 50), "{took:?}");
    let shared = counters(&wan, access).passed_segments;
    let pairs = [first, second].map(|from| counters(&wan, LinkName::Pair(from.index(), host(3))).passed_segments);
    assert!(shared <= pairs.iter().sum());
    assert!(pairs.iter().all(|pair| *pair > 0));
}
