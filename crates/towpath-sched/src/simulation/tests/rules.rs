//! Storages, rules, activities, and changes of the view and of the network.

use super::*;
use crate::{
    optimiser::Assignment,
    period::{PipeMeasurement, Reason},
};

fn knee() -> Knee {
    Knee::new(KneeSettings::default(), 1)
}

/// Returns the bytes of each pipe after the start and before the first queue is empty.
fn received(world: &World, optimiser: &mut dyn Optimiser) -> Vec<f64> {
    let mut received = vec![0.0; world.pipes.len()];
    simulate(world, 1, optimiser, &mut |record| {
        if record.period.end_s > 1_200.0 && record.period.pipes.iter().all(|pipe| pipe.queued_files > 0) {
            received.iter_mut().zip(record.received_bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
    });
    received
}

fn error(text: &str) -> ScenarioError {
    Scenario::parse(text).unwrap().world(None).unwrap_err()
}

#[test]
fn a_storage_has_a_capacity_in_each_direction() {
    let limited = world(&(LINK.to_owned() + "[[storages]]\ncapacity_bits_per_s = 2e9"));
    assert_near(limited.bound_s(), 400.0);
    assert_near(run(&limited, 50).makespan_s, 400.0);
    let one = "[[storages]]\ncapacity_bits_per_s = 2e9\nname = 'destination 2'\ndirection = 'in'";
    let limited = world(&(LINK.to_owned() + one));
    assert_eq!((limited.paths.resources_of(0).len(), limited.paths.resources_of(1).len()), (1, 2));
    let wrong = error(&(LINK.to_owned() + "[[storages]]\nname = 'source 3'"));
    assert_eq!(wrong, ScenarioError::NoSuchStorage("source 3".to_owned()));
}

/// Storages a to d send to e: all pipes end there or at another one of them.
fn star(rest: &str) -> World {
    let topology = r#"{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}, {"id": "e"}], "links": [
        {"source": "a", "target": "e"}, {"source": "b", "target": "e"}, {"source": "c", "target": "e"},
        {"source": "d", "target": "e"}]}"#;
    let text = format!(
        "noise = 0.05\n[network]\ncapacity_bits_per_s = 10e9\n[connections]\nspread = 0.3\n[[requests]]\npipes = 30\n
         files = 2_000\nfile_bytes = 100e6\n{rest}"
    );
    Scenario::parse(&text).unwrap().world(Some(topology)).unwrap()
}

#[test]
fn no_optimiser_exceeds_the_connections_of_a_storage() {
    let world = star("[[storages]]\nmax_connections = 20");
    let of_storages = |pipes: &[PipeMeasurement]| {
        let mut used = std::collections::BTreeMap::<_, u32>::new();
        for (plan, measured) in world.pipes.iter().zip(pipes) {
            let (source, destination) = plan.name.split_once(" -> ").unwrap();
            *used.entry((source, "out")).or_default() += measured.connections;
            *used.entry((destination, "in")).or_default() += measured.connections;
        }
        used.into_values().max().unwrap()
    };
    let mut optimisers: Vec<Box<dyn Optimiser>> =
        vec![Box::new(knee()), Box::new(Fts::new(FtsSettings::default())), Box::new(Fixed::new(50))];
    for optimiser in &mut optimisers {
        let (mut most, mut decided) = (0, 0);
        let outcome = simulate(&world, 1, optimiser.as_mut(), &mut |record| {
            most = most.max(of_storages(record.period.pipes));
            let granted = record.period.pipes.iter().zip(record.decisions).map(|(pipe, decision)| PipeMeasurement {
                connections: if pipe.is_live() { decision.connections } else { 0 },
                ..*pipe
            });
            decided = decided.max(of_storages(&granted.collect::<Vec<_>>()));
        });
        assert_eq!((most, decided, outcome.summary().completed), (20, 20, 30));
    }
}

#[test]
fn a_pipe_that_receives_nothing_takes_nothing_from_the_others() {
    let cut = "[[changes]]\nat_s = 0\nlink = 'b -> e'\nfactor = 0\n[[storages]]\nmax_connections = 40";
    let world = star(&format!("{cut}\nname = 'e'\ndirection = 'in'"));
    let from_a: Vec<_> = (0..30).filter(|pipe| world.pipes[*pipe].name == "a -> e").collect();
    let outcome = simulate(&world, 1, &mut knee(), &mut |_| {});
    // 200 GB each, with at least two connections of 20 MB/s.
    let times = from_a.iter().map(|pipe| outcome.completions_s[*pipe].unwrap());
    assert!(!from_a.is_empty() && times.fold(0.0, f64::max) < 5_000.0, "{outcome:?}");
}

#[test]
fn bytes_are_shared_where_connections_are_limited() {
    let limited = star("[[storages]]\nmax_connections = 20\nname = 'e'\ndirection = 'in'");
    let into: Vec<_> = (0..30).filter(|pipe| limited.pipes[*pipe].name.ends_with("-> e")).collect();
    let mut rates = vec![0.0; into.len()];
    simulate(&limited, 1, &mut knee(), &mut |record| {
        if record.period.end_s > 600.0 && into.iter().all(|pipe| record.period.pipes[*pipe].queued_files > 0) {
            rates.iter_mut().zip(&into).for_each(|(sum, pipe)| *sum += record.received_bytes[*pipe]);
        }
    });
    let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
    assert!(into.len() > 2 && most < 1.3 * least, "{rates:?}");
}

#[test]
fn a_storage_keeps_the_rate_that_its_administrator_permits() {
    let limited = star("[[storages]]\nmax_bits_per_s = 4e9\nname = 'e'\ndirection = 'in'");
    let into: Vec<_> = (0..30).filter(|pipe| limited.pipes[*pipe].name.ends_with("-> e")).collect();
    let mut highest: f64 = 0.0;
    let mut sum = (0.0, 0);
    simulate(&limited, 1, &mut knee(), &mut |record| {
        let rate = into.iter().map(|pipe| record.received_bytes[*pipe]).sum::<f64>() / 60.0 / 0.5e9;
        if record.period.end_s > 600.0 && into.iter().all(|pipe| record.period.pipes[*pipe].queued_files > 0) {
            highest = highest.max(rate);
            sum = (sum.0 + rate, sum.1 + 1);
        }
    });
    let mean = sum.0 / f64::from(sum.1);
    assert!(sum.1 > 5 && highest < 1.15 && (0.9..1.02).contains(&mean), "{highest} {mean}");
    let mut decreased = false;
    simulate(&limited, 1, &mut Fts::new(FtsSettings::default()), &mut |record| {
        decreased |= record.decisions.iter().any(|decision| decision.reason == Reason::StorageLimit);
    });
    assert!(decreased);
}

/// Two activities of three links; the files of the first have a hundred times the size.
fn activities(startup_s: u32) -> World {
    world(&format!(
        "noise = 0.05\n[network]\ncapacity_bits_per_s = 10e9\n[connections]\nspread = 0.3\nstartup_s = {startup_s}
         [[requests]]\npipes = 3\nfiles = 300\nfile_bytes = 10e9\n[[requests]]\npipes = 3\nbeside = true
         files = 50_000\nfile_bytes = 100e6\nweight = 2"
    ))
}

#[test]
fn activities_share_a_link_in_bytes() {
    for startup_s in [0, 10] {
        let world = activities(startup_s);
        let names: Vec<_> = world.pipes.iter().map(|plan| (plan.name.as_str(), plan.terms.link)).collect();
        assert_eq!(names[..3], names[3..]);
        let fair = world.fair_rates(world.resources.capacities(), |_| true);
        assert!((fair[3] / fair[0] - 2.0).abs() < 1e-9, "{fair:?}");
        let ratio = |optimiser: &mut dyn Optimiser| {
            let received = received(&world, optimiser);
            received[3..].iter().sum::<f64>() / received[..3].iter().sum::<f64>()
        };
        let bytes = ratio(&mut knee());
        assert!((bytes / 2.0 - 1.0).abs() < 0.05, "{bytes}");
        // FTS starts two small files for each large one.
        let draw = ratio(&mut Fts::new(FtsSettings::default()));
        assert!(draw < 0.2, "{draw}");
        let settings = FtsSettings { assignment: Assignment::RoundRobin, ..FtsSettings::default() };
        let connections = ratio(&mut Fts::new(settings));
        assert!(if startup_s == 0 { (1.9..2.1).contains(&connections) } else { connections < 1.6 }, "{connections}");
    }
    let uneven = LINK.to_owned() + "[[requests]]\npipes = 3\nbeside = true\nfiles = 1\nfile_bytes = 1";
    assert_eq!(error(&uneven), ScenarioError::Beside(3, 2));
}

/// Three pipes of project a, one of project b, and two of none, over one link.
fn projects(rules: &str) -> String {
    let requests = [("project = 'a'", 3), ("project = 'b'", 1), ("", 2)];
    let requests = requests.map(|(project, pipes)| {
        format!("[[requests]]\n{project}\npipes = {pipes}\nfiles = 20_000\nfile_bytes = 100e6\n")
    });
    format!("noise = 0.05\n[network]\ncapacity_bits_per_s = 10e9\n{}{rules}", requests.concat())
}

#[test]
fn projects_share_links_by_their_weights() {
    let rules = "[[rules]]\nproject = 'a'\nweight = 1\n[[rules]]\nproject = 'b'\nweight = 2";
    let received = received(&world(&projects(rules)), &mut knee());
    let sums = [received[..3].iter().sum::<f64>(), received[3], received[4..].iter().sum()];
    let total: f64 = sums.iter().sum();
    for (sum, part) in sums.iter().zip([0.25, 0.5, 0.25]) {
        assert!((sum / total / part - 1.0).abs() < 0.05, "{sums:?}");
    }
}

#[test]
fn a_limit_may_be_of_each_pipe() {
    let received = received(&world(&projects("[[rules]]\nproject = 'a'\nbits_per_s = 1e9\neach = true")), &mut knee());
    let others: f64 = received[3..].iter().sum();
    for pipe in &received[..3] {
        // 0.125 of 1.25 GB/s each, beside 0.875 of the others.
        assert!((pipe / others / (0.125 / 0.875) - 1.0).abs() < 0.08, "{received:?}");
    }
}

#[test]
fn rules_that_cannot_be_kept_are_errors() {
    let rule = |keys: &str| projects(&format!("[[rules]]\nproject = 'a'\n{keys}"));
    let zero = Scenario::parse(&rule("weight = 0")).unwrap_err().to_string();
    assert!(zero.contains("weight = 0") && zero.contains("above 0"), "{zero}");
    for text in [rule(""), rule("bits_per_s = 1\nweight = 1"), rule("weight = 1\neach = true")] {
        assert_eq!(error(&text), ScenarioError::AmbiguousRule("a".to_owned()));
    }
    let hidden = |link: &str| ScenarioError::HiddenRule { project: "a".to_owned(), link: link.to_owned() };
    let on_link = rule("bits_per_s = 1e9\nlink = 'link'");
    for view in ["paths = 'none'", "until_s = 100"] {
        assert_eq!(error(&format!("{on_link}\n[view]\n{view}")), hidden("link"));
        assert_eq!(error(&format!("{}\n[view]\n{view}", rule("weight = 2"))), hidden("each link"));
    }
    assert_eq!(error(&rule("weight = 2\nlink = 'x'")), ScenarioError::NoSuchLink("x".to_owned()));
}

#[test]
fn the_network_may_become_unknown() {
    let world = world(&(LINK.replace("1000", "20_000") + "[view]\nuntil_s = 1_000"));
    let mut reasons = [Vec::new(), Vec::new()];
    simulate(&world, 1, &mut knee(), &mut |record| {
        reasons[usize::from(record.period.end_s >= 1_000.0)].push(record.decisions[0].reason);
    });
    let is_share = |reason: &Reason| matches!(reason, Reason::ShareOfLink { .. });
    assert!(reasons[0].iter().any(is_share) && !reasons[1].is_empty() && !reasons[1].iter().any(is_share));
}

#[test]
fn pipes_take_another_path_after_a_cut() {
    let topology = r#"{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "links": [
        {"source": "a", "target": "b"}, {"source": "b", "target": "c"}, {"source": "a", "target": "c"}]}"#;
    let text = |more: &str| {
        format!(
            "[view]\n{more}\n[network]\ncapacity_bits_per_s = 10e9\n[[requests]]\npipes = 20\nfiles = 10_000
             file_bytes = 100e6\n[[changes]]\nat_s = 600\nlink = 'a -> b'\nfactor = 0\nreroute = true"
        )
    };
    let world = |more: &str| Scenario::parse(&text(more)).unwrap().world(Some(topology)).unwrap();
    let changed = world("delay_s = 300");
    let pipe = changed.pipes.iter().position(|plan| plan.name == "a -> b").unwrap();
    let paths =
        [&changed.paths, changed.changes[0].paths.as_ref().unwrap(), &changed.known[0].paths, &changed.known[1].paths];
    assert_eq!(paths.map(|paths| paths.resources_of(pipe).len()), [1, 2, 1, 2]);
    assert_eq!(changed.known.iter().map(|known| known.from_s).collect::<Vec<_>>(), [0.0, 900.0]);
    for world in [changed, world("")] {
        let summary = simulate(&world, 1, &mut knee(), &mut |_| {}).summary();
        assert_eq!(summary.completed, 20);
    }
}

#[test]
fn scenarios_without_an_end_are_errors() {
    assert_eq!(error(&LINK.replace("10e9", "1").replace("100e6", "1e15")), ScenarioError::TooLong);
    let many = Scenario::parse(&LINK.replace("pipes = 2", "pipes = 400_000").replace("1000", "10_000")).unwrap_err();
    assert_eq!(many, ScenarioError::TooManyFiles);
    let storage = "[[storages]]\ncapacity_bits_per_s = 1e9\n[[changes]]\nat_s = 1\nfactor = 0\nreroute = true\n";
    let storage = error(&format!("{LINK}{storage}link = 'source 1 out'"));
    assert_eq!(storage, ScenarioError::StorageReroute("source 1 out".to_owned()));
    let topology =
        r#"{"nodes": [{"id": "a"}, {"id": "b"}], "links": [{"source": "a", "target": "b", "capacity": 1e308}]}"#;
    let huge = Scenario::parse(LINK).unwrap().world(Some(topology)).unwrap_err();
    assert_eq!(huge, ScenarioError::Capacity("a -> b".to_owned()));
}

#[test]
fn the_traffic_of_others_takes_capacity() {
    let busy = world(&(LINK.replace("1000", "20_000") + "[background]\npart = 0.3\nevery_s = 60"));
    let ratio = run(&busy, 50).makespan_to_bound;
    // 1 / (1 - 0.3), and less than 0.3 as it is at most 0.9.
    assert!((1.25..1.5).contains(&ratio), "{ratio}");
    assert_eq!(run(&busy, 50), run(&busy, 50));
}

#[test]
fn pipes_with_failing_files_are_not_slow() {
    let failing = world(&(LINK.replace("1000", "20_000") + "[connections]\nfailures = 0.05"));
    let summary = simulate(&failing, 1, &mut knee(), &mut |_| {}).summary();
    // Half of a failed file is transferred again.
    assert!(summary.makespan_to_bound < 1.06, "{summary:?}");
}
