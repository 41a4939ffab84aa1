use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(100);

/// A leg that carried 10 MB in one second, limited only by the sender's congestion window.
fn leg() -> LegSample {
    LegSample {
        bytes: 10_000_000,
        connections: 4,
        round_trip: RTT,
        stretch: 1.0,
        is_told: true,
        idle: 0.0,
        unasked: 0.0,
        by_window: 0.0,
        by_receiver: 0.0,
        by_buffer: 0.0,
        opening: 0.0,
        resent: 0.0,
        control: CongestionControl::Cubic,
        most_send_buffer: 4 << 20,
        most_receive_buffer: 6 << 20,
        far_processor: 0.5,
    }
}

/// One second of a copy that moved 10 MB, with all bytes in one stage.
fn interval(stage: Stage) -> IntervalSample {
    IntervalSample {
        seconds: 1.0,
        transferred: 10_000_000,
        held: Occupancy::default().with(stage, 16e6),
        is_of_small_files: false,
        processor: 0.5,
        window: 64 << 20,
        is_limited: false,
        inbound: None,
        outbound: None,
    }
}

fn download(carried: LegSample) -> IntervalSample {
    IntervalSample { inbound: Some(carried), ..interval(Stage::Read) }
}

fn upload(carried: LegSample) -> IntervalSample {
    IntervalSample { outbound: Some(carried), ..interval(Stage::Write) }
}

/// Returns the cause with the largest share of an interval.
fn cause(interval: &IntervalSample) -> (Cause, Option<Leg>) {
    let mut account = Account::default();
    account.add(interval);
    let (cause, leg, _) = account.spent()[0];
    (cause, leg)
}

#[test]
fn between_disks_it_is_the_one_before_which_bytes_gather() {
    assert_eq!(cause(&interval(Stage::Read)), (Cause::SourceRead, None));
    assert_eq!(cause(&interval(Stage::Write)), (Cause::DestinationWrite, None));
    assert_eq!(cause(&interval(Stage::Check)), (Cause::Checksum, None));
    assert_eq!(cause(&interval(Stage::Wait)), (Cause::EarlierUpload, None));
    assert_eq!(cause(&interval(Stage::Elsewhere)), (Cause::ThirdParty, None));
    assert_eq!(cause(&interval(Stage::Retry)), (Cause::Retry, None));
    assert_eq!(cause(&IntervalSample { held: Occupancy::default(), ..interval(Stage::Read) }), (Cause::Listing, None));
    assert_eq!(cause(&IntervalSample { is_limited: true, ..interval(Stage::Read) }), (Cause::Limit, None));
    assert_eq!(cause(&IntervalSample { processor: 0.99, ..interval(Stage::Read) }), (Cause::Processor, None));
}

#[test]
fn small_files_are_held_up_by_what_each_costs() {
    let small = |stage| IntervalSample { is_of_small_files: true, ..interval(stage) };
    assert_eq!(cause(&small(Stage::Open)), (Cause::FileOverhead, None));
    assert_eq!(cause(&small(Stage::Commit)), (Cause::FileOverhead, None));
    assert_eq!(cause(&interval(Stage::Commit)), (Cause::DestinationWrite, None));
    let idle = IntervalSample { inbound: Some(LegSample { idle: 0.9, ..leg() }), ..small(Stage::Open) };
    assert_eq!(cause(&idle), (Cause::FileOverhead, None));
    let full = IntervalSample { inbound: Some(leg()), ..small(Stage::Open) };
    assert_eq!(cause(&full), (Cause::Bandwidth, Some(Leg::In)), "many small files can fill a path");
}

#[test]
fn the_sender_says_what_held_it_up() {
    type Change = fn(&mut LegSample);
    let table: [(Change, Cause); 8] = [
        (|leg| leg.by_buffer = 0.8, Cause::SenderWindow),
        (|leg| leg.by_window = 0.8, Cause::ReceiverWindow),
        (|leg| leg.opening = 0.8, Cause::SlowStart),
        (|leg| leg.resent = 0.01, Cause::Loss),
        (|leg| (leg.resent, leg.stretch) = (0.02, 1.15), Cause::Loss),
        (|leg| (leg.resent, leg.stretch) = (0.01, 1.6), Cause::Bandwidth),
        (|leg| (leg.resent, leg.control) = (0.02, CongestionControl::Bbr), Cause::Bandwidth),
        (|leg| (leg.resent, leg.control) = (0.3, CongestionControl::Bbr), Cause::Loss),
    ];
    for (change, expected) in table {
        let mut carried = leg();
        change(&mut carried);
        assert_eq!(cause(&download(carried.clone())), (expected, Some(Leg::In)), "{carried:?}");
        assert_eq!(cause(&upload(carried.clone())), (expected, Some(Leg::Out)), "{carried:?}");
    }
}

#[test]
fn a_network_with_room_is_not_to_blame() {
    assert_eq!(cause(&download(LegSample { idle: 0.8, ..leg() })), (Cause::SourceRead, None));
    assert_eq!(cause(&upload(LegSample { idle: 0.8, ..leg() })), (Cause::DestinationWrite, None));
    assert_eq!(cause(&upload(LegSample { by_receiver: 0.8, ..leg() })), (Cause::DestinationWrite, None));
}

#[test]
fn a_busy_server_is_no_slow_storage() {
    let busy = || LegSample { idle: 0.8, far_processor: 0.97, ..leg() };
    assert_eq!(cause(&download(busy())), (Cause::FarProcessor, Some(Leg::In)));
    let busy = LegSample { by_receiver: 0.8, idle: 0.0, ..busy() };
    assert_eq!(cause(&upload(busy.clone())), (Cause::FarProcessor, Some(Leg::Out)));
    let full = LegSample { by_receiver: 0.1, ..busy };
    assert_eq!(cause(&upload(full)), (Cause::Bandwidth, Some(Leg::Out)), "it sends what the path takes");
}

/// Both ends are remote. Bytes in transit do not count as queued: 100 MB/s over 100 ms are 10 MB.
#[test]
fn what_travels_does_not_wait() {
    let both = |read, write, out: LegSample| IntervalSample {
        held: Occupancy::default().with(Stage::Read, read).with(Stage::Write, write),
        inbound: Some(LegSample { bytes: 100_000_000, ..leg() }),
        outbound: Some(LegSample { bytes: 100_000_000, ..out }),
        ..interval(Stage::Read)
    };
    let far = || LegSample { round_trip: RTT * 2, ..leg() };
    assert_eq!(cause(&both(20e6, 22e6, far())), (Cause::Bandwidth, Some(Leg::In)));
    assert_eq!(cause(&both(12e6, 30e6, far())), (Cause::Bandwidth, Some(Leg::Out)));
    assert_eq!(cause(&both(9e6, 19e6, far())), (Cause::Bandwidth, Some(Leg::In)), "nothing is being checked");
}

#[test]
fn a_window_of_the_mover_that_turns_over_is_what_holds_it_up() {
    let window = 64 << 20;
    let full = IntervalSample {
        held: Occupancy::default().with(Stage::Read, window as f64),
        window,
        ..download(LegSample { bytes: 10 * window, idle: 0.9, ..leg() })
    };
    assert_eq!(cause(&full), (Cause::MoverWindow, None));
}

#[test]
fn who_does_not_say_is_known_by_growth_alone() {
    let silent = |bytes| download(LegSample { bytes, is_told: false, ..leg() });
    let mut account = Account::default();
    for bytes in [1_000_000, 2_000_000, 4_000_000, 4_100_000, 3_900_000, 4_000_000, 4_000_000] {
        account.add(&silent(bytes));
    }
    let spent = [(Cause::FarEnd, Some(Leg::In), 4.0), (Cause::SlowStart, Some(Leg::In), 3.0)];
    assert_eq!(account.spent(), spent);
    let total = account.leg(Leg::In).unwrap();
    assert_eq!((total.bytes, total.connections, total.round_trip, total.best_rate), (23_000_000, 4, RTT, 4_100_000.0));
}

fn any_leg() -> impl Strategy<Value = Option<LegSample>> {
    let shares = prop::array::uniform5(0.0..1.0_f64);
    let numbers = (0..1_u64 << 40, 0..300_u64, 1.0..3.0_f64, any::<bool>(), 0.0..1.0_f64);
    prop::option::of((shares, numbers).prop_map(|(shares, (bytes, rtt_ms, stretch, is_told, resent))| {
        let all = shares.iter().sum::<f64>().max(1.0);
        LegSample {
            bytes,
            round_trip: Duration::from_millis(rtt_ms),
            stretch,
            is_told,
            idle: shares[0] / all,
            by_window: shares[1] / all,
            by_receiver: shares[2] / all,
            by_buffer: shares[3] / all,
            opening: shares[4],
            resent,
            ..leg()
        }
    }))
}

proptest! {
    #[test]
    fn all_time_is_accounted_for(
        legs in prop::array::uniform2(any_leg()),
        held in prop::array::uniform7(0.0..1e9_f64),
        seconds in 0.01..10.0_f64,
        is_of_small_files: bool,
        processor in 0.0..1.0_f64,
    ) {
        let stages = [Stage::Open, Stage::Wait, Stage::Read, Stage::Write, Stage::Commit, Stage::Check, Stage::Elsewhere, Stage::Retry];
        let held = stages.into_iter().zip(held).fold(Occupancy::default(), |held, (stage, area)| held.with(stage, area));
        let [inbound, outbound] = legs;
        let mut account = Account::default();
        let interval = IntervalSample { seconds, held, is_of_small_files, processor, inbound, outbound, ..interval(Stage::Read) };
        account.add(&interval);
        let spent = account.spent().iter().map(|(_, _, seconds)| seconds).sum::<f64>();
        prop_assert!((spent - seconds).abs() < 1e-6 * seconds, "{:?}", account.spent());
        prop_assert!(account.spent().iter().all(|(_, _, seconds)| *seconds > 0.0));
    }
}
