use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn rate(mbit_per_s: u32) -> Option<Rate> {
    Some(Rate::from_mbit_per_s(mbit_per_s))
}

fn settings() -> impl Strategy<Value = LinkSettings> {
    (1..2000_u32, 0..200_u64, 0..500_000_u64, 0..2_u32).prop_map(|(mbit_per_s, delay_ms, queue_bytes, lossy)| {
        LinkSettings {
            rate: rate(mbit_per_s),
            delay: Duration::from_millis(delay_ms),
            queue: Queue::Bytes(queue_bytes),
            loss: f64::from(lossy) * 0.1,
            ..LinkSettings::default()
        }
    })
}

/// Gaps before each train in ns, and its number of segments.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0..2 * MS, 1..45_u32), 1..60)
}

/// Offers the trains to the link; returns for each its arrival time and its runs.
fn offer_all(link: &mut Link, arrivals: &[(u64, u32)]) -> Vec<(u64, u32, Vec<SegmentRun>)> {
    let mut now_ns = 0;
    let offer = |(gap_ns, segments): &(u64, u32)| {
        now_ns += gap_ns;
        let mut runs = Vec::new();
        link.offer(now_ns, &Train::of(*segments), &mut runs);
        (now_ns, *segments, runs)
    };
    arrivals.iter().map(offer).collect()
}

proptest! {
    #[test]
    fn runs_are_disjoint_in_order_and_all_that_passed(settings in settings(), arrivals in arrivals()) {
        let delay_ns = nanoseconds(settings.delay);
        let mut link = Link::new(settings, 1);
        let (mut passed, mut before_ns) = (0, 0);
        for (now_ns, segments, runs) in offer_all(&mut link, &arrivals) {
            let mut next = 0;
            for run in runs {
                prop_assert!(next <= run.segments.start && run.segments.start < run.segments.end);
                prop_assert!(run.segments.end <= segments);
                prop_assert!(run.at_ns >= before_ns, "order is kept");
                prop_assert!(run.at_ns >= now_ns + delay_ns, "no bit is faster than the delay");
                next = run.segments.end;
                before_ns = run.at_ns;
                passed += u64::from(run.segments.end - run.segments.start);
            }
        }
        let counters = link.counters();
        prop_assert_eq!(passed, counters.passed_segments);
        let dropped = counters.queue_dropped_segments + counters.lost_segments + counters.outage_segments;
        prop_assert_eq!(passed + dropped, counters.offered_segments);
    }

    #[test]
    fn never_more_than_the_rate_in_any_span(settings in settings(), arrivals in arrivals()) {
        let bits_per_s = u128::from(settings.rate.unwrap().bits_per_s());
        let mut link = Link::new(settings, 1);
        let runs: Vec<SegmentRun> = offer_all(&mut link, &arrivals).into_iter().flat_map(|(_, _, runs)| runs).collect();
        // Starting at several runs; starting at each would take minutes.
        for first in (0..runs.len()).step_by(runs.len() / 16 + 1) {
            let mut wire_bytes = 0;
            for run in &runs[first + 1..] {
                wire_bytes += u128::from(run.segments.end - run.segments.start) * 1538;
                let span_ns = u128::from(run.at_ns - runs[first].at_ns);
                // End times of runs are rounded down to a nanosecond.
                prop_assert!(wire_bytes * 8 * 1_000_000_000 <= (span_ns + 1) * bits_per_s);
            }
        }
    }

    #[test]
    fn the_queue_never_holds_more_than_its_size(settings in settings(), arrivals in arrivals()) {
        let Queue::Bytes(queue_bytes) = settings.queue else { unreachable!("the strategy gives bytes") };
        let mut link = Link::new(settings, 1);
        offer_all(&mut link, &arrivals);
        prop_assert!(link.counters().most_queued_bytes <= queue_bytes.max(1538));
    }
}

proptest! {
    #[test]
    fn the_queue_holds_what_waits_whatever_the_rate_becomes(settings in settings(), rates in prop::collection::vec(1..2000_u32, 1..6)) {
        let waits = LinkSettings { queue: Queue::Bytes(u64::MAX), ..settings };
        let mut link = Link::new(waits.clone(), 1);
        let mut wire_bytes = 0;
        for mbit_per_s in rates {
            link.offer(0, &Train::of(20), &mut Vec::new());
            wire_bytes += 20 * 1538;
            link.set(LinkSettings { rate: rate(mbit_per_s), ..waits.clone() });
            // For each rate, part of a nanosecond at 2 Gbit/s is part of a byte.
            prop_assert!(link.clock.queued_bytes(0).abs_diff(wire_bytes) <= 6);
            prop_assert!(link.clock.queued_bytes(link.clock.free_at_ns) == 0);
        }
    }
}

#[test]
fn a_full_queue_empties_as_before_when_the_rate_rises() {
    let slow = LinkSettings { rate: rate(10), queue: Queue::Bytes(1 << 20), ..LinkSettings::default() };
    let mut link = Link::new(slow.clone(), 1);
    offer_all(&mut link, &vec![(0, 45); 20]);
    assert!(link.counters().queue_dropped_segments > 0, "it is full");
    link.set(LinkSettings { rate: rate(1000), ..slow });
    let mut runs = Vec::new();
    // 2,500 bytes leave in 2 ms, as before; 1,198 were free.
    link.offer(2 * MS, &Train::of(45), &mut runs);
    assert_eq!(runs.iter().map(|run| run.segments.len()).sum::<usize>(), 2);
    // After half of the queue's duration, half of the queue is free.
    runs.clear();
    link.offer(420 * MS, &Train::of(45), &mut runs);
    assert_eq!(runs.iter().map(|run| run.segments.len()).sum::<usize>(), 45);
}

#[test]
fn a_saturated_link_carries_its_rate_to_the_byte() {
    // 45 segments, which take 553.68 µs, every 500 µs for 10 s: more than the rate.
    let settings = LinkSettings { rate: rate(1000), queue: Queue::Bytes(200_000), ..LinkSettings::default() };
    let mut link = Link::new(settings, 1);
    let arrivals = vec![(MS / 2, 45); 20_000];
    let runs = offer_all(&mut link, &arrivals);
    let first_ns = MS / 2;
    let last_ns = runs.iter().flat_map(|(_, _, runs)| runs).map(|run| run.at_ns).max().unwrap();
    let passed_bits = link.counters().passed_wire_bytes * 8;
    assert_eq!(passed_bits, last_ns - first_ns, "one bit per nanosecond");
    assert!(link.counters().queue_dropped_segments > 0);
    // The remaining payload is as computed from Ethernet's overhead: 941 Mbit/s.
    let payload_bits = link.counters().passed_segments * 1448 * 8;
    assert_eq!(payload_bits * 1000 / (last_ns - first_ns), 941);
}

#[test]
fn odd_rates_do_not_drift() {
    let mut clock = SerialClock::default();
    clock.set_rate(Rate::from_bits_per_s(999_999_937));
    for _ in 0..1_000_000 {
        clock.send(0, 1538);
    }
    assert_eq!(u128::from(clock.free_at_ns), 1538 * 8 * 1_000_000 * 1_000_000_000 / 999_999_937);
}

#[test]
fn a_burst_is_cut_where_the_queue_is_full() {
    let settings = LinkSettings { rate: rate(1000), queue: Queue::Bytes(10 * 1538), ..LinkSettings::default() };
    let mut link = Link::new(settings, 1);
    let mut runs = Vec::new();
    link.offer(0, &Train::of(40), &mut runs);
    assert_eq!(runs, [SegmentRun { segments: 0..10, at_ns: 10 * 1538 * 8 }]);
    // Five segments have left by then; five more fit.
    runs.clear();
    link.offer(5 * 1538 * 8, &Train::of(40), &mut runs);
    assert_eq!(runs, [SegmentRun { segments: 0..5, at_ns: 15 * 1538 * 8 }]);
    assert_eq!(link.counters().queue_dropped_segments, 65);
}

#[test]
fn a_link_without_a_queue_still_takes_what_need_not_wait() {
    let settings = LinkSettings { rate: rate(1), queue: Queue::Bytes(0), ..LinkSettings::default() };
    let mut link = Link::new(settings, 1);
    let mut runs = Vec::new();
    link.offer(0, &Train::of(2), &mut runs);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].segments, 0..1);
}

#[test]
fn slow_links_deliver_in_small_pieces() {
    for (mbit_per_s, segments_in_a_run) in [(10, 1), (100, 1), (1000, 16), (10_000, 40)] {
        let mut link = Link::new(LinkSettings { rate: rate(mbit_per_s), ..LinkSettings::default() }, 1);
        let mut runs = Vec::new();
        link.offer(0, &Train::of(40), &mut runs);
        assert_eq!(runs[0].segments, 0..segments_in_a_run, "{mbit_per_s} Mbit/s");
        assert_eq!(runs.last().unwrap().segments.end, 40);
    }
}

#[test]
fn lost_segments_are_missing_and_took_their_time() {
    let lossy = LinkSettings { rate: rate(1000), loss: 0.1, queue: Queue::Bytes(1 << 30), ..LinkSettings::default() };
    let mut link = Link::new(lossy, 5);
    let runs = offer_all(&mut link, &vec![(0, 40); 2500]);
    let passed: u32 = runs.iter().flat_map(|(_, _, runs)| runs).map(|run| run.segments.end - run.segments.start).sum();
    let lost = link.counters().lost_segments;
    assert_eq!(u64::from(passed) + lost, 100_000);
    assert!((9_500..10_500).contains(&lost), "{lost} of 100,000");
    assert_eq!(link.clock.free_at_ns, 100_000 * 1538 * 8);
}

#[test]
fn the_seed_decides_what_is_lost() {
    let lossy = LinkSettings { loss: 0.1, ..LinkSettings::default() };
    let runs = |seed| offer_all(&mut Link::new(lossy.clone(), seed), &[(0, 45); 20]);
    assert_eq!(runs(1), runs(1));
    assert_ne!(runs(1), runs(2));
}

#[test]
fn an_outage_drops_all_and_nothing_else() {
    let mut link = Link::new(LinkSettings { delay: Duration::from_millis(10), ..LinkSettings::default() }, 1);
    link.add_outage(2 * SECOND..7 * SECOND);
    let arrivals = vec![(SECOND, 10); 10];
    let came: Vec<u64> = offer_all(&mut link, &arrivals)
        .iter()
        .filter(|(_, _, runs)| !runs.is_empty())
        .map(|(now_ns, ..)| now_ns / SECOND)
        .collect();
    assert_eq!(came, [1, 7, 8, 9, 10]);
    assert_eq!((link.counters().outage_segments, link.counters().passed_segments), (50, 50));
}

#[test]
fn jitter_keeps_order_and_bounds() {
    let jitter = Duration::from_millis(5);
    let mut link = Link::new(LinkSettings { jitter, delay: jitter, ..LinkSettings::default() }, 1);
    let offered = offer_all(&mut link, &vec![(10 * MS, 1); 1000]);
    let delays: Vec<u64> = offered.iter().map(|(now_ns, _, runs)| runs[0].at_ns - now_ns).collect();
    assert!(delays.iter().all(|delay_ns| (5 * MS..=10 * MS).contains(delay_ns)));
    assert!(delays.iter().any(|delay_ns| *delay_ns < 6 * MS) && delays.iter().any(|delay_ns| *delay_ns > 9 * MS));
}

#[test]
fn jitter_adds_half_of_itself_to_a_busy_link_too() {
    let jitter = Duration::from_millis(5);
    let settings = LinkSettings { jitter, rate: rate(1000), ..LinkSettings::default() };
    let mut link = Link::new(settings, 1);
    let added = |(now_ns, _, runs): &(u64, u32, Vec<SegmentRun>)| runs[0].at_ns - now_ns - 16 * 1538 * 8;
    let added: Vec<u64> = offer_all(&mut link, &vec![(MS / 4, 16); 40_000]).iter().map(added).collect();
    let mean_ms = added.iter().sum::<u64>() as f64 / added.len() as f64 / MS as f64;
    assert!((2.4..3.0).contains(&mean_ms), "{mean_ms} ms");
}

#[test]
fn reordered_segments_come_late_and_alone() {
    let settings = LinkSettings {
        reorder: 0.2,
        reorder_by: Duration::from_millis(3),
        delay: Duration::from_millis(1),
        ..LinkSettings::default()
    };
    let mut link = Link::new(settings, 1);
    let (mut late, mut in_time) = (0, 0);
    for (now_ns, _, runs) in offer_all(&mut link, &vec![(MS, 10); 100]) {
        for run in runs {
            let length = u64::from(run.segments.end - run.segments.start);
            match run.at_ns - now_ns {
                1_000_000 => in_time += length,
                4_000_000 => late += length,
                other => panic!("{other} ns"),
            }
        }
    }
    assert_eq!((late, late + in_time), (link.counters().reordered_segments, 1000));
    assert!((120..280).contains(&late), "{late} of 1000");
}

#[test]
fn the_queue_follows_rate_and_delay() {
    let of = |settings: LinkSettings| Link::new(settings, 1).queue_bytes;
    let delay = Duration::from_millis(50);
    assert_eq!(of(LinkSettings { rate: rate(1000), delay, ..LinkSettings::default() }), 12_500_000);
    assert_eq!(of(LinkSettings { rate: rate(1000), ..LinkSettings::default() }), Queue::MIN_BDP_BYTES);
    assert_eq!(of(LinkSettings { queue: Queue::Bytes(5), ..LinkSettings::default() }), 5);
}

#[test]
fn settings_out_of_bounds_are_told() {
    assert_eq!(LinkSettings::default().fault(), None);
    for settings in [
        LinkSettings { loss: 1.01, ..LinkSettings::default() },
        LinkSettings { loss: f64::NAN, ..LinkSettings::default() },
        LinkSettings { reorder: -0.1, ..LinkSettings::default() },
        LinkSettings { loss_burst: f64::INFINITY, ..LinkSettings::default() },
        LinkSettings { delay: Duration::from_secs(61), ..LinkSettings::default() },
    ] {
        assert!(settings.fault().is_some(), "{settings:?}");
    }
}
