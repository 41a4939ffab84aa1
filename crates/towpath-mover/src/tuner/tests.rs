use towpath_store::sys::clock;
use towpath_testkit::random::Random;

use super::*;

const RTT: Duration = Duration::from_millis(100);
/// Buffer limit of a connection on most machines.
const BUFFER: u64 = 4 << 20;

fn tuner(nice: bool) -> Tuner {
    let mut tuner = Tuner::new(1, nice);
    tuner.set_path(RTT, BUFFER);
    tuner
}

/// Returns the numbers of connections over 60 s on a path where `n` established connections reach `rate(n)` bytes per
/// second.
fn connections_over_time(round_trip: Duration, rate: impl Fn(usize) -> f64) -> Vec<usize> {
    let (mut now, mut transferred) = (clock::now(), 0.0);
    let mut tuner = Tuner::new(1, false);
    tuner.set_path(round_trip, BUFFER);
    let mut connections = 1;
    let step = round_trip.max(Duration::from_millis(20));
    let each = |_| {
        transferred += rate(connections) * step.as_secs_f64();
        now += step;
        connections = tuner.observe(now, transferred as u64, round_trip, None);
        connections
    };
    (0..60_000 / step.as_millis()).map(each).collect()
}

/// Returns the fraction of the best rate that was reached over the whole minute.
fn share(connections: &[usize], rate: impl Fn(usize) -> f64) -> f64 {
    let best = (1..=64).map(&rate).fold(0.0, f64::max);
    connections.iter().map(|connections| rate(*connections)).sum::<f64>() / connections.len() as f64 / best
}

#[test]
fn connections_that_a_buffer_limits_become_as_many_as_fill_the_link() {
    // 4 MiB each in flight, 1 Gbit/s: 28 of them at 1 s, 3 at 100 ms.
    for (round_trip, enough) in [(RTT, 3), (RTT * 2, 6), (RTT * 4, 12)] {
        let rate = |connections: usize| (connections as f64 * 4e6 / round_trip.as_secs_f64()).min(117e6);
        let connections = connections_over_time(round_trip, rate);
        let last = *connections.last().unwrap();
        assert!(last >= enough && last <= enough * 2, "{round_trip:?}: {connections:?}");
        assert!(share(&connections, rate) > 0.75, "{round_trip:?}: {}", share(&connections, rate));
    }
}

#[test]
fn more_connections_are_not_kept_if_they_bring_nothing() {
    let connections = connections_over_time(RTT, |_| 117e6);
    assert_eq!(connections.iter().filter(|connections| **connections > 8).count(), 0);
    let tried = connections.iter().filter(|connections| **connections == 8).count();
    assert!(tried * 4 < connections.len(), "{tried} of {}", connections.len());
}

#[test]
fn none_are_tried_while_something_waits_on_the_path() {
    let (start, mut tuner) = (clock::now(), tuner(false));
    let connections = (0..600).map(|step: u32| {
        tuner.sample(&TcpInfo { min_rtt: RTT, rtt: RTT * 3 / 2, ..TcpInfo::default() });
        let transferred = u64::from(step) * u64::from(step) * 1_000_000;
        tuner.observe(start + step * RTT, transferred, RTT, None)
    });
    assert_eq!(connections.max(), Some(FIRST_CONNECTIONS));
    assert_eq!(tuner.found(), Some(FIRST_CONNECTIONS));
}

#[test]
fn connections_that_stand_in_each_others_way_are_given_up() {
    let rate = |connections: usize| 117e6 / (connections as f64 / 4.0).max(1.0);
    assert!(share(&connections_over_time(RTT, rate), rate) > 0.85);
}

/// Returns the numbers of connections that tuners find within ten minutes, one of which starts every 9 s, on a link
/// that is filled by `filling` connections. All connections get the same rate; each measurement is up to 10 % off.
fn found_together(tuners: usize, filling: usize, seed: u64) -> Vec<usize> {
    let (start, mut random) = (clock::now(), Random::new(seed));
    let mut copies: Vec<_> = (0..tuners).map(|_| (tuner(false), 0.0)).collect();
    for step in 0..6000_u32 {
        let begun = tuners.min(1 + step as usize / 90);
        let connections: usize = copies[..begun].iter().map(|(tuner, _)| tuner.connections).sum();
        let rate_of_each = 4e6 * (filling as f64 / connections as f64).min(1.0);
        for (tuner, transferred) in &mut copies[..begun] {
            let noise = 0.9 + random.below(2001) as f64 / 10_000.0;
            *transferred += tuner.connections as f64 * rate_of_each * noise * RTT.as_secs_f64();
            tuner.observe(start + step * RTT, *transferred as u64, RTT, None);
        }
    }
    copies.iter().filter_map(|(tuner, _)| tuner.found()).collect()
}

/// A search ends with a power of two: where that fills the link, it is found. If the best number lies between two of
/// them, the result is worth up to 22 % less (16 connections where 24 fill the link), and noise may hide or add as
/// much again.
#[test]
fn noise_does_not_lead_far_astray() {
    let powers = [1, 2, 4, 8, 16, 32, 64].map(|filling| (filling, 0.9));
    let others = [3, 5, 6, 10, 12, 20, 24, 40, 48].map(|filling| (filling, 0.7));
    for (filling, bound) in powers.into_iter().chain(others) {
        let utility = |connections: usize| utility(connections.min(filling) as f64, connections);
        let best = (1..=MAX_CONNECTIONS).map(utility).fold(0.0, f64::max);
        for seed in 0..10 {
            let found = found_together(1, filling, seed);
            let share = utility(found[0]) / best;
            assert!(share >= bound, "seed {seed}: {found:?} where {filling} fill the link: {share}");
        }
    }
}

#[test]
fn two_on_one_link_share_it() {
    for filling in [4, 12, 24, 48] {
        for seed in 0..10 {
            let found = found_together(2, filling, seed);
            let case = format!("seed {seed}: {found:?} where {filling} fill the link");
            assert!(found[0] <= 2 * found[1] && found[1] <= 2 * found[0], "{case}");
            assert!((found[0] + found[1]) as f64 > 0.85 * filling as f64, "{case}");
        }
    }
}

#[test]
fn nothing_is_tried_out_for_a_short_rest() {
    let (start, mut tuner) = (clock::now(), tuner(false));
    let connections = (0..100).map(|step| {
        let transferred = u64::from(step) * 10_000_000;
        tuner.observe(start + step * RTT, transferred, RTT, Some(200_000_000))
    });
    assert_eq!(connections.max(), Some(FIRST_CONNECTIONS));
}

#[test]
fn a_nice_copy_takes_no_connection_that_brings_little() {
    let rate = |connections: usize| 100e6 * (connections as f64).powf(0.2);
    let most = |nice| {
        let (start, mut tuner) = (clock::now(), tuner(nice));
        let mut transferred = 0.0;
        let each = |step: u32| {
            transferred += rate(tuner.connections) * RTT.as_secs_f64();
            tuner.observe(start + step * RTT, transferred as u64, RTT, None)
        };
        (0..600).map(each).max().unwrap()
    };
    assert!(most(true) <= 2 && most(false) >= 8, "{} and {}", most(true), most(false));
}

#[test]
fn what_a_search_found_is_where_the_next_one_begins() {
    let rate = |connections: usize| (connections as f64 * 4e6 / 0.4).min(117e6);
    let search = |tuner: &mut Tuner| {
        let (start, mut transferred) = (clock::now(), 0.0);
        for step in 0..200 {
            transferred += rate(tuner.connections) * RTT.as_secs_f64();
            tuner.observe(start + step * RTT, transferred as u64, RTT, None);
        }
    };
    let mut first = tuner(false);
    assert_eq!(first.found(), None);
    search(&mut first);
    assert_eq!(first.found(), Some(16));
    let mut second = tuner(false);
    second.start_from(16);
    assert_eq!(second.observe(clock::now(), 0, RTT, None), 8, "and the first trial shows whether 16 are still better");
    search(&mut second);
    assert_eq!(second.found(), Some(16));
}

#[test]
fn what_was_needed_on_a_bad_day_does_not_stay() {
    let mut tuner = tuner(false);
    tuner.start_from(64);
    let (start, mut transferred) = (clock::now(), 0.0);
    let connections: Vec<_> = (0..1200)
        .map(|step| {
            transferred += 117e6 * RTT.as_secs_f64();
            tuner.observe(start + step * RTT, transferred as u64, RTT, None)
        })
        .collect();
    assert_eq!((connections[0], connections.last()), (32, Some(&FIRST_CONNECTIONS)), "{connections:?}");
}

#[test]
fn a_copy_begins_with_as_many_as_buffers_need_for_a_gigabit() {
    const MIB: u64 = 1 << 20;
    for (round_trip_ms, buffer, connections, first) in [
        (100, 512 * MIB, 1, 1),
        (100, 4 * MIB, 1, 4),
        (20, 4 * MIB, 1, 2),
        (20, 4 * MIB, 3, 3),
        (100, 0, 1, 1),
        (1, MIB, 1, 1),
    ] {
        assert_eq!(
            first_connections(Duration::from_millis(round_trip_ms), buffer, connections),
            first,
            "{round_trip_ms} ms"
        );
    }
}

#[test]
fn short_paths_are_left_alone() {
    assert!(
        connections_over_time(Duration::from_millis(1), |connections| connections as f64 * 1e9)
            .iter()
            .all(|connections| *connections == 1)
    );
}
