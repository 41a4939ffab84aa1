use proptest::prelude::*;

use super::*;

fn micros() -> impl Strategy<Value = Duration> {
    (0..1_u64 << 60).prop_map(Duration::from_micros)
}

fn event() -> impl Strategy<Value = Event> {
    let sample = (micros(), micros(), any::<u64>(), any::<bool>()).prop_map(|(at, rtt, sent, is_starved)| {
        Event::Sample(Sample { at, info: TcpInfo { rtt, sent, received: 1, is_starved, ..TcpInfo::default() } })
    });
    prop_oneof![(0..5000_usize).prop_map(Event::Data), sample]
}

fn frame(event: &Event) -> Vec<u8> {
    match event {
        Event::Data(bytes) => data_frame(*bytes),
        Event::Sample(sample) => sample.frame(),
        Event::End(end) => end.frame(),
    }
}

/// Returns the events of `bytes` that arrive in pieces of `size`, with adjacent data joined.
fn taken(bytes: &[u8], size: usize) -> Result<Vec<Event>, InvalidProbe> {
    let (mut frames, mut events) = (Frames::default(), Vec::new());
    for piece in bytes.chunks(size) {
        frames.take(piece, |event| match (events.last_mut(), event) {
            (Some(Event::Data(before)), Event::Data(more)) => *before += more,
            (_, event) => events.push(event),
        })?;
        assert!(frames.text.len() <= MAX_TEXT_BYTES);
    }
    Ok(events)
}

proptest! {
    #[test]
    fn what_is_framed_is_understood_however_it_arrives(
        mut events in prop::collection::vec(event(), 0..8),
        (at, bytes) in (micros(), any::<u64>()),
        size in 1..3000_usize,
    ) {
        events.push(Event::End(ProbeSummary { at, bytes }));
        let wire: Vec<u8> = events.iter().flat_map(frame).collect();
        let mut joined: Vec<Event> = Vec::new();
        for event in events {
            match (joined.last_mut(), event) {
                (_, Event::Data(0)) => {}
                (Some(Event::Data(before)), Event::Data(more)) => *before += more,
                (_, event) => joined.push(event),
            }
        }
        prop_assert_eq!(taken(&wire, size), Ok(joined));
        prop_assert!(taken(&[wire, vec![0]].concat(), size).is_err(), "nothing follows the end");
    }

    #[test]
    fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1..50_usize) {
        let _ = taken(&bytes, size);
    }

    #[test]
    fn an_ask_is_understood(up: bool, duration_ms in 1..=60_000_u64, interval_ms in 10..=1000_u64) {
        let direction = if up { Direction::Up } else { Direction::Down };
        let [duration, interval] = [duration_ms, interval_ms].map(Duration::from_millis);
        let ask = ProbeRequest { direction, duration, interval };
        prop_assert_eq!(ask.to_string().parse(), Ok(ask));
    }
}

#[test]
fn an_ask_has_bounds() {
    for text in [
        "",
        "direction=sideways duration_ms=1 interval_ms=10",
        "direction=up duration_ms=0 interval_ms=10",
        "direction=up duration_ms=60001 interval_ms=10",
        "direction=up duration_ms=1000 interval_ms=9",
        "direction=up duration_ms=1000 interval_ms=1001",
        "direction=up duration_ms=1000",
        "direction=up duration_ms=-1 interval_ms=10",
    ] {
        assert!(text.parse::<ProbeRequest>().is_err(), "{text}");
    }
}

#[test]
fn frames_have_bounds() {
    let longer = |kind: u8, bytes: usize| taken(&[&[kind][..], &(bytes as u32 + 1).to_be_bytes()].concat(), 9);
    assert!(longer(0, MAX_DATA_BYTES).is_err());
    assert!(longer(1, MAX_TEXT_BYTES).is_err());
    assert!(longer(2, MAX_TEXT_BYTES).is_err());
    assert!(longer(3, 0).is_err());
    let most =
        Sample { at: Duration::MAX, info: TcpInfo { received: u64::MAX, busy: Duration::MAX, ..TcpInfo::default() } };
    assert!(most.to_string().len() <= MAX_TEXT_BYTES);
}

#[test]
fn noise_does_not_compress() {
    let noise = noise(1 << 16);
    let count = |byte: u8| noise.iter().filter(|other| **other == byte).count();
    assert!((0..=255).all(|byte| (150..400).contains(&count(byte))), "each byte is about as frequent as the others");
}
