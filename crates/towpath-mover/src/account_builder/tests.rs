use towpath_store::sys::clock;

use super::*;
use crate::{account::Cause, stage::Stage};

const RTT: Duration = Duration::from_millis(100);

/// The sender's counters after `seconds` at 40 MB/s, limited by its buffer half of the time.
fn sender(seconds: u64) -> TcpInfo {
    TcpInfo {
        min_rtt: RTT,
        rtt: RTT,
        received: 1000 + seconds,
        sent: 40_000_000 * seconds,
        acknowledged: 40_000_000 * seconds,
        busy: Duration::from_millis(1000 * seconds),
        limited_by_buffer: Duration::from_millis(500 * seconds),
        peer_window: 6 << 20,
        control: CongestionControl::Cubic,
        most_send_buffer: 4 << 20,
        ..TcpInfo::default()
    }
}

fn receiver(seconds: u64) -> TcpInfo {
    TcpInfo {
        min_rtt: RTT,
        rtt: RTT,
        received: 40_000_000 * seconds,
        acknowledged: 100 * seconds,
        most_receive_buffer: 6 << 20,
        ..TcpInfo::default()
    }
}

fn connection(info: TcpInfo, far: Option<TcpInfo>) -> Connection {
    Connection { number: 7, host: "far".into(), port: 1094, has_work: true, info, far }
}

/// A sample after `seconds`, with 16 MB in one stage at all times.
fn sample(start: Instant, seconds: u64, stage: Stage, is_remote: [bool; 2], connections: Vec<Connection>) -> Sample {
    Sample {
        at: start + Duration::from_secs(seconds),
        transferred: 40_000_000 * seconds,
        files: 0,
        held: Occupancy::default().with(stage, 16e6 * seconds as f64),
        window: 64 << 20,
        is_limited: false,
        threads: HashMap::new(),
        is_remote,
        connections,
    }
}

/// Returns the seconds attributed to `cause` after several samples at intervals of one second.
fn seconds(cause: Cause, stage: Stage, is_remote: [bool; 2], connection_at: impl Fn(u64) -> Connection) -> f64 {
    let start = clock::now();
    let mut account_builder = AccountBuilder::new(sample(start, 0, stage, is_remote, Vec::new()));
    for second in 1..=10 {
        account_builder.add(sample(start, second, stage, is_remote, vec![connection_at(second)]));
    }
    assert!((account_builder.account().seconds - 10.0).abs() < 1e-9);
    assert_eq!(account_builder.account().bytes, 400_000_000);
    account_builder.account().spent().iter().filter(|spent| spent.0 == cause).map(|spent| spent.2).sum()
}

#[test]
fn of_a_download_the_server_says_what_held_it_up() {
    let download =
        |cause| seconds(cause, Stage::Read, [true, false], |second| connection(receiver(second), Some(sender(second))));
    // The time before the first report counts as slow start.
    assert!((download(Cause::SenderWindow) - 4.5).abs() < 1e-6);
    assert!((download(Cause::Bandwidth) - 4.5).abs() < 1e-6);
    assert!((download(Cause::SlowStart) - 1.0).abs() < 1e-6);
}

#[test]
fn of_an_upload_it_is_known_here() {
    let upload = |cause| seconds(cause, Stage::Write, [false, true], |second| connection(sender(second), None));
    assert!((upload(Cause::SenderWindow) - 4.5).abs() < 1e-6);
}

#[test]
fn what_a_server_said_last_holds_until_it_says_more() {
    let seldom = |second: u64| connection(receiver(second), Some(sender(second / 3 * 3)).filter(|_| second >= 3));
    let by_buffer = seconds(Cause::SenderWindow, Stage::Read, [true, false], seldom);
    // Reports arrived after 3, 6 and 9 seconds; each covers the time since the previous one.
    assert!((by_buffer - 2.5).abs() < 1e-6, "{by_buffer}");
}

#[test]
fn a_server_that_says_nothing_leaves_it_open() {
    let silent = seconds(Cause::FarEnd, Stage::Read, [true, false], |second| connection(receiver(second), None));
    assert!((silent - 9.0).abs() < 1e-6, "{silent}");
}

#[test]
fn a_path_that_stands_still_is_the_far_ends_doing() {
    let stuck = |_| connection(receiver(1), Some(sender(1)));
    assert!(seconds(Cause::FarEnd, Stage::Read, [true, false], stuck) > 8.0);
}

#[test]
fn of_an_upload_that_stands_still_the_kernel_here_knows_why() {
    let not_taken = |second| {
        let busy = Duration::from_secs(second);
        connection(TcpInfo { busy, limited_by_peer: busy, ..sender(1) }, None)
    };
    let unanswered = |_| connection(sender(1), None);
    let committed = |_| Connection { has_work: false, ..connection(sender(1), None) };
    for connection_at in [&not_taken as &dyn Fn(u64) -> Connection, &unanswered, &committed] {
        let by_storage = seconds(Cause::DestinationWrite, Stage::Write, [false, true], connection_at);
        assert!((by_storage - 9.0).abs() < 1e-6, "{by_storage}");
    }
}

#[test]
fn a_receivers_window_holds_up_only_if_it_turns_over() {
    let shares = |peer_window, rtt| {
        let now = TcpInfo {
            limited_by_peer: Duration::from_millis(900),
            limited_by_buffer: Duration::ZERO,
            peer_window,
            rtt,
            ..sender(1)
        };
        LimitShares::between(&TcpInfo::default(), &now, 1.0, 6 << 20)
    };
    let full = shares(4 << 20, RTT);
    assert!((full.by_window - 0.9).abs() < 1e-9 && full.by_receiver == 0.0, "{full:?}");
    let still_opening = shares(1 << 20, RTT);
    assert!((still_opening.opening - 0.9).abs() < 1e-9 && still_opening.by_window == 0.0, "{still_opening:?}");
    let not_taken = shares(4 << 20, RTT / 100);
    assert!((not_taken.by_receiver - 0.9).abs() < 1e-9 && not_taken.by_window == 0.0, "{not_taken:?}");
}
