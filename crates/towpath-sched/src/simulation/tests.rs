mod rules;

use proptest::prelude::*;

use super::*;
use crate::optimiser::{Fixed, Fts, FtsSettings, Knee, KneeSettings};

/// A link of 10 Gbit/s, and two pipes.
const LINK: &str = "
    [network]
    capacity_bits_per_s = 10e9
    [[requests]]
    pipes = 2
    files = 1000
    file_bytes = 100e6
";

fn world(text: &str) -> World {
    Scenario::parse(text).unwrap().world(None).unwrap()
}

fn run(world: &World, connections: u32) -> Summary {
    simulate(world, 1, &mut Fixed::new(connections), &mut |_| {}).summary()
}

fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-6, "{value} instead of {expected}");
}

#[test]
fn files_take_their_time() {
    let world = world(LINK);
    // 200 GB over 1.25 GB/s.
    assert_near(world.bound_s(), 160.0);
    // 20 connections of 20 MB/s for each pipe: 1,000 files in 50 rounds of 5 s.
    let summary = run(&world, 20);
    assert_eq!((summary.requests, summary.completed), (2, 2));
    assert_near(summary.makespan_s, 250.0);
    assert_near(summary.received_bytes_per_s, 800e6);
    assert_near(summary.mean_connections, 40.0);
    // 50 connections fill the link: 0.625 GB/s for each pipe.
    assert_near(run(&world, 50).makespan_s, 160.0);
}

#[test]
fn many_connections_lower_the_capacity() {
    let world = world(&LINK.replace("[network]", "[network]\ndeterioration = 1\nlossless_connections = 100"));
    assert_near(run(&world, 50).makespan_s, 160.0);
    // 200 connections carry half as much. 1,000 files are 10 rounds of 100.
    assert_near(run(&world, 100).makespan_s, 320.0);
}

#[test]
fn a_file_that_starts_slowly_takes_longer() {
    let world = world(&format!("{LINK}\n[connections]\nstartup_s = 5"));
    let makespan_s = run(&world, 20).makespan_s;
    assert!((490.0..520.0).contains(&makespan_s), "{makespan_s}");
}

#[test]
fn failed_files_are_transferred_again() {
    let world = world(&format!("{LINK}\n[connections]\nfailures = 0.5"));
    let mut retried = 0;
    let mut finished = 0;
    let outcome = simulate(&world, 1, &mut Fixed::new(20), &mut |record| {
        for pipe in record.period.pipes {
            retried += pipe.ended.retried;
            finished += pipe.ended.finished;
        }
    });
    assert_eq!(outcome.summary().completed, 2);
    assert!((1_500..2_500).contains(&retried) && finished > 1_500, "{retried} {finished}");
}

#[test]
fn connections_with_short_round_trips_get_more() {
    let third = "[[requests]]\npipes = 1\nfiles = 1000\nfile_bytes = 100e6\nrtt_weight = 3";
    let world = world(&format!("{LINK}\n{third}"));
    let mut received = Vec::new();
    simulate(&world, 1, &mut Fixed::new(100), &mut |record| {
        received.push(record.period.pipes.iter().map(|pipe| pipe.received_bytes).collect::<Vec<_>>());
    });
    // The weights are 1, 1 and 3 until the first request completes.
    assert_near(received[1][2] / received[1][0], 3.0);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let text = "
        noise = 0.05
        [network]
        capacity_bits_per_s = 10e9
        [connections]
        spread = 0.3
        failures = 0.01
        [[requests]]
        pipes = 10
        files = 200
        files_spread = 50
        file_bytes = 100e6
        size_spread = 1
        every_s = 20
    ";
    let world = world(text);
    let run = |seed| {
        let mut lines = Vec::new();
        let outcome = simulate(&world, seed, &mut Fts::new(FtsSettings::default()), &mut |record| {
            lines.push(format!("{record:?}"));
        });
        (outcome, lines)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

#[test]
fn an_observer_ends_the_simulation_by_an_error() {
    let mut ends_s = Vec::new();
    let outcome = try_simulate(&world(LINK), 1, &mut Fixed::new(1), &mut |record| {
        ends_s.push(record.period.end_s);
        if ends_s.len() < 3 { Ok(()) } else { Err("enough") }
    });
    assert_eq!((outcome, ends_s), (Err("enough"), vec![0.0, 60.0, 120.0]));
}

#[test]
fn a_simulation_that_takes_too_long_ends() {
    let world = world(&format!("limit_to_bound = 2\n{LINK}"));
    let summary = run(&world, 1);
    assert_eq!(summary.completed, 0);
    assert_near(summary.makespan_to_bound, 2.0);
    assert_eq!((summary.mean_completion_s, summary.mean_elapsed_s), (None, summary.makespan_s));
}

#[test]
fn a_million_files_are_simulated() {
    let world = world(&LINK.replace("1000", "500_000"));
    let summary = run(&world, 50);
    assert_near(summary.makespan_s, 80_000.0);
}

#[test]
fn the_bound_knows_arrivals() {
    let mut world = world(LINK);
    world.requests[1].arrives_s = 1_000.0;
    assert_near(world.bound_s(), 1_080.0);
}

#[test]
fn pipes_follow_the_links_of_a_topology() {
    let topology = r#"{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}],
        "links": [{"source": "a", "target": "b", "capacity": 8e9}, {"source": "b", "target": "c"}]}"#;
    let scenario = Scenario::parse(&LINK.replace("pipes = 2", "pipes = 50")).unwrap();
    let world = scenario.world(Some(topology)).unwrap();
    assert_eq!(world.resources.capacities().iter().filter(|capacity| **capacity == 1e9).count(), 2);
    for (pipe, plan) in world.pipes.iter().enumerate() {
        let names: Vec<_> = world.paths.resources_of(pipe).iter().map(|link| world.resources.name(*link)).collect();
        let expected: &[&str] = match plan.name.as_str() {
            "a -> c" => &["a -> b", "b -> c"],
            "c -> a" => &["c -> b", "b -> a"],
            direct => &[direct],
        };
        assert_eq!(names, expected);
    }
    let leaves = LINK.replace("pipes = 2", "pipes = 50").replace("[network]", "[network]\nends = 'leaves'");
    let world = Scenario::parse(&leaves).unwrap().world(Some(topology)).unwrap();
    assert!(world.pipes.iter().all(|plan| ["a -> c", "c -> a"].contains(&plan.name.as_str())));
    let ring = topology.replace("]}", r#", {"source": "c", "target": "a"}]}"#);
    let error = Scenario::parse(&leaves).unwrap().world(Some(&ring)).unwrap_err();
    assert_eq!(error, ScenarioError::Unconnected);
}

#[test]
fn errors_name_the_line_and_the_key() {
    for (wrong, words) in [
        (LINK.replace("files = 1000", "files = 0"), ["line 6", "files = 0", "from 1 to"]),
        (LINK.replace("files = 1000", "fils = 1000"), ["line 6", "fils", "unknown field"]),
        (LINK.replace("10e9", "-1"), ["line 3", "capacity_bits_per_s", "out of range"]),
        (LINK.replace("10e9", "nan"), ["line 3", "capacity_bits_per_s", "out of range"]),
        (LINK.replace("100e6", "\"many\""), ["line 7", "file_bytes", "invalid type"]),
        (LINK.replace("[network]", "[netwrk]"), ["line 2", "netwrk", "unknown field"]),
    ] {
        let error = Scenario::parse(&wrong).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let error = |text: &str, topology| Scenario::parse(text).and_then(|scenario| scenario.world(topology)).unwrap_err();
    assert_eq!(error(LINK, Some(r#"{"nodes": [{"id": "a"}, {"id": "b"}], "links": []}"#)), ScenarioError::Unconnected);
    let named = LINK.replace("[network]", "[network]\ntopology = 'a.json'");
    assert_eq!(error(&named, None), ScenarioError::MissingTopology("a.json".to_owned()));
    assert_eq!(error("requests = []\n[network]\ncapacity_bits_per_s = 1", None), ScenarioError::NoRequest);
    let many = error(&LINK.replace("pipes = 2", "pipes = 500_000"), None).to_string();
    assert!(many.contains("line 5") && many.contains("400000"), "{many}");
}

#[test]
fn the_bound_knows_what_many_connections_cost() {
    let slow = "\n[connections]\nbytes_per_s = 5e6";
    let world = world(&(LINK.replace("[network]", "[network]\ndeterioration = 1") + slow));
    // N connections of 5 MB/s carry 1.25 GB/s · 100 / N at most: 158 carry 790 MB/s.
    let attainable = (1.25e9_f64 * 100.0 * 5e6).sqrt();
    assert_near(world.bound_s(), 200e9 / attainable);
    assert_near(world.fair_mean_completion_s().unwrap(), 200e9 / attainable);
    // Half of 158, in 13 rounds of 79 files.
    let best = run(&world, 79).makespan_to_bound;
    assert!((1.0..1.04).contains(&best), "{best}");
    assert!(run(&world, 60).makespan_to_bound > best && run(&world, 100).makespan_to_bound > best);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_beats_the_bound(
        seed in 0_u64..1_000,
        exponent in prop_oneof![Just(0.0), 0.1..2.0_f64],
        lossless in 1_u32..200,
        spread in 0.0..1.0_f64,
        every_s in prop_oneof![Just(0.0), 1.0..100.0_f64],
        connections in 1_u32..200,
    ) {
        let text = format!(
            "seed = {seed}\nlimit_to_bound = 10_000\n[network]\ncapacity_bits_per_s = 10e9\ndeterioration = {exponent}
             lossless_connections = {lossless}\n[connections]\nspread = {spread}\n[[requests]]\npipes = 5\nfiles = 200
             files_spread = 100\nfile_bytes = 100e6\nevery_s = {every_s}"
        );
        let world = world(&text);
        let fixed = simulate(&world, seed, &mut Fixed::new(connections), &mut |_| {}).summary();
        let knee = simulate(&world, seed, &mut Knee::new(KneeSettings::default(), seed), &mut |_| {}).summary();
        for summary in [fixed, knee] {
            prop_assert!(summary.completed == 5 && summary.makespan_to_bound > 1.0 - 1e-9, "{summary:?}");
        }
    }
}

#[test]
fn a_fair_schedule_completes_short_requests_first() {
    let world =
        world(&LINK.replace("pipes = 2\n", "pipes = 1\n").replace(
            "[[requests]]",
            "[[requests]]\npipes = 1\nfiles = 500\nfile_bytes = 100e6\nweight = 1\n[[requests]]",
        ));
    // 50 GB and 100 GB with 0.625 GB/s each: the first ends after 80 s, the second after 150 GB / 1.25 GB/s.
    assert_near(world.fair_mean_completion_s().unwrap(), (80.0 + 120.0) / 2.0);
    assert_eq!(world.fair_rates(&world.attainable_capacities(), |pipe| pipe == 1), [0.0, 1.25e9]);
}

#[test]
fn capacities_change() {
    let change = |at_s: u32, factor: f64| format!("\n[[changes]]\nat_s = {at_s}\nfactor = {factor}");
    let halved = world(&(LINK.to_owned() + &change(80, 0.5)));
    // Half of the bytes with 1.25 GB/s, the others with half of it.
    assert_near(run(&halved, 50).makespan_s, 80.0 + 160.0);
    let cut = world(&(LINK.to_owned() + &change(80, 0.0) + &change(1_000, 1.0)));
    assert_near(run(&cut, 50).makespan_s, 1_080.0);
    let unknown = Scenario::parse(&(LINK.to_owned() + &change(80, 0.5) + "\nlink = 'a -> b'"));
    let error = unknown.unwrap().world(None).unwrap_err();
    assert_eq!(error, ScenarioError::NoSuchLink("a -> b".to_owned()));
}

#[test]
fn a_rule_limits_a_project() {
    let rule = "\n[[rules]]\nproject = 'one'\nbits_per_s = 2e9";
    let of_project = LINK.replace("pipes = 2", "project = 'one'\npipes = 2");
    let others = "\n[[requests]]\npipes = 2\nfiles = 20_000\nfile_bytes = 100e6";
    let text = of_project.replace("files = 1000", "files = 20_000") + others + rule;
    let world = world(&("noise = 0.05\n".to_owned() + &text));
    let mut received = [0.0; 2];
    simulate(&world, 1, &mut Knee::new(KneeSettings::default(), 1), &mut |record| {
        if (1_200.0..3_000.0).contains(&record.period.end_s) {
            for (pipe, bytes) in record.received_bytes.iter().enumerate() {
                received[pipe / 2] += bytes / 1_800.0;
            }
        }
    });
    let [limited, other] = received;
    assert!((0.93..1.01).contains(&(limited / 0.25e9)) && (0.98..1.03).contains(&(other / 1.0e9)), "{received:?}");
    let error = Scenario::parse(&(LINK.to_owned() + rule)).unwrap().world(None).unwrap_err();
    assert_eq!(error, ScenarioError::NoSuchProject("one".to_owned()));
}

#[test]
fn pipes_may_be_idle_and_get_new_requests() {
    let gap = "\n[[requests]]\npipes = 2\nfiles = 1000\nfile_bytes = 100e6\nevery_s = 3_000";
    let world = world(&("noise = 0.05\n[view]\npaths = 'none'".to_owned() + LINK + gap));
    let summary = simulate(&world, 1, &mut Knee::new(KneeSettings::default(), 1), &mut |_| {}).summary();
    assert_eq!(summary.completed, 4);
}

#[test]
fn an_optimiser_knows_what_the_view_has() {
    let topology = r#"{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}], "links": [
        {"source": "a", "target": "b"}, {"source": "b", "target": "c"}, {"source": "c", "target": "d"}]}"#;
    let known = |view: &str| {
        let text = format!(
            "[view]\n{view}\n[network]\ncapacity_bits_per_s = 8\n[[requests]]\npipes = 9\nfiles = 1\nfile_bytes = 1"
        );
        let world = Scenario::parse(&text).unwrap().world(Some(topology)).unwrap();
        let longest = (0..9).max_by_key(|pipe| world.paths.resources_of(*pipe).len()).unwrap();
        assert_eq!(world.paths.resources_of(longest).len(), 3);
        let known = &world.known[0];
        (known.paths.resources_of(longest).len(), known.resources.capacities()[0], known.is_complete)
    };
    assert_eq!(known("capacity_factor = 2"), (3, 2.0, true));
    assert_eq!(known("paths = 'ends'"), (2, 1.0, false));
    assert_eq!(known("paths = 'none'"), (0, 1.0, false));
}
