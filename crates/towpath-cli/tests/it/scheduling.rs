//! `towpath sched simulate`.

use serde_json::Value;

use super::program::Directory;

const SCENARIO: &str = "
    [network]
    capacity_bits_per_s = 10e9
    deterioration = 1
    [[requests]]
    pipes = 4
    files = 1000
    file_bytes = 100e6
";

#[test]
fn optimisers_are_compared_with_the_bound() {
    let directory = Directory::new();
    directory.put("scenario.toml", SCENARIO);
    let arguments = "sched simulate scenario.toml --optimiser fixed,fts --connections 25";
    let printed = directory.run(arguments).expect(0).stdout;
    assert!(
        printed.starts_with("simulated: 4 requests with 372.53 GiB over 1 link; no schedule takes less than 320 s")
    );
    let document: Value =
        serde_json::from_str(&directory.run(&format!("{arguments} --json --periods lines")).expect(0).stdout).unwrap();
    let ratio = |index: usize| document["results"][index]["summary"]["makespan_to_bound"].as_f64().unwrap();
    // 100 connections are lossless; 4 × 66 are not.
    assert!((ratio(0) - 1.0).abs() < 1e-6 && ratio(1) > 1.5, "{document}");
    let text = directory.get("lines");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let run = &lines[0]["run"];
    assert_eq!((&run["links"][0]["capacity_bytes_per_s"], &run["period_s"]), (&1.25e9.into(), &60.0.into()));
    assert_eq!((&run["pipes"][3]["name"], &run["pipes"][3]["links"][0]), (&"pipe 4".into(), &0.into()));
    assert_eq!((&lines[1]["optimiser"], &lines[1]["pipes"][3]["reason"]), (&"fixed".into(), &"configured".into()));
    let last = &lines[lines.len() - 1];
    assert_eq!((&last["optimiser"], last["requests"].as_array().unwrap().len()), (&"fts".into(), 4));
    assert!(last["requests"][0]["completion_s"].as_f64().unwrap() > 320.0, "{last}");
    let predictions = &document["results"][0]["predictions"];
    assert_eq!((&predictions["requests"], &predictions["fogp_10"]), (&4.into(), &1.0.into()), "{document}");
}

#[test]
fn a_wrong_scenario_is_an_error_with_its_line() {
    let directory = Directory::new();
    directory.put("scenario.toml", &SCENARIO.replace("files = 1000", "files = 0"));
    let error = directory.run("sched simulate scenario.toml").expect(2).stderr;
    assert!(error.contains("scenario.toml") && error.contains("line 7") && error.contains("files = 0"), "{error}");
    directory.put("scenario.toml", &SCENARIO.replace("[network]", "[network]\ntopology = 'none.graphml'"));
    let error = directory.run("sched simulate scenario.toml").expect(2).stderr;
    assert!(error.contains("none.graphml: cannot be read"), "{error}");
}
