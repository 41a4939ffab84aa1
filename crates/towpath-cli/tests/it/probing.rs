//! `towpath probe` against `towpath serve`.

use std::{
    collections::{BTreeSet, HashMap},
    fs::OpenOptions,
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use towpath_proto::fault::TABLE;
use towpath_store::sys::clock;

use super::{
    program::{Directory, Outcome, ServerProcess, towpath},
    wan::is_root,
};

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"))
}

/// Returns the legs that were not measured.
fn unmeasured(document: &Value) -> Vec<&str> {
    document["not_measured"].as_array().unwrap().iter().map(|leg| leg["leg"].as_str().unwrap()).collect()
}

#[test]
fn a_path_is_measured_both_ways_and_a_copy_predicted() {
    let directory = Directory::new();
    directory.put("dir/file", "");
    // A sparse file that takes longer than a second to read.
    OpenOptions::new().write(true).open(directory.host("dir/file")).unwrap().set_len(16 << 30).unwrap();
    let served = directory.serve();
    for url in served.urls() {
        let line =
            format!("probe {url}/dir/file --seconds 1 --interval 20ms --files 100 --bytes 1MB --trace trace --json");
        let document = json(&directory.run(&line).expect(0));
        assert!(document["server"].as_str().unwrap().starts_with("towpath/"), "{document}");
        let network = document["network"].as_array().unwrap();
        let directions: Vec<_> = network.iter().map(|leg| leg["direction"].as_str().unwrap()).collect();
        assert_eq!(directions, ["down", "up"]);
        for leg in network {
            assert!(leg["settled_rate_bytes_per_s"].as_f64().unwrap() > 1e6, "{leg}");
            assert!(leg["min_rtt_s"].as_f64().unwrap() < 0.1, "{leg}");
            assert!(leg["explained"]["verdict"]["cause"].is_string(), "{leg}");
        }
        assert_eq!(document["storage"][0]["leg"], "storage read");
        assert!(document["storage"][0]["seconds"].as_f64().unwrap() > 0.5, "{document}");
        assert_eq!(unmeasured(&document), ["storage write"]);
        for prediction in document["predictions"].as_array().unwrap() {
            assert!((0.001..5.0).contains(&prediction["seconds"].as_f64().unwrap()), "{prediction}");
        }
        check_trace(&directory.get("trace"));
    }
}

/// Every line is valid, and kernel counters never decrease.
fn check_trace(trace: &str) {
    let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((count("begin"), count("leg")), (1, 2));
    let mut last: HashMap<String, (f64, u64)> = HashMap::new();
    for sample in lines.iter().filter(|line| line["type"] == "sample") {
        let of = format!("{} {} {}", sample["leg"], sample["connection"], sample["end"]);
        let now = (sample["t_s"].as_f64().unwrap(), sample["bytes"].as_u64().unwrap());
        let before = last.insert(of, now).unwrap_or_default();
        assert!(now.0 >= before.0 && now.1 >= before.1, "{sample}");
    }
    assert!(last.len() >= 4, "both ends of a connection each way: {last:?}");
    assert!(count("sample") > 40, "every 20 ms for two seconds");
}

#[test]
fn a_table_says_the_same_to_people() {
    let directory = Directory::new();
    let served = directory.serve();
    let line = format!("probe {} --seconds 1 --connections 1,2 --direction down", served.urls()[0]);
    let outcome = directory.run(&line).expect(0);
    assert_eq!(outcome.stdout.matches("network down").count(), 2, "{outcome:?}");
    assert!(outcome.stdout.contains("verdict, down: network: "), "{outcome:?}");
    assert!(outcome.stdout.contains("without --write"), "{outcome:?}");
}

#[test]
fn what_copies_have_found_out_is_what_is_probed() {
    let directory = Directory::new();
    let served = directory.serve();
    let url = &served.urls()[0];
    let now_s = clock::unix_s();
    directory.put("cache/towpath/paths", &format!("{url} - 3 1000000 {now_s}\n- {url} 2 1000000 {now_s}\n"));
    let probe = ["probe", url, "--seconds", "1", "--json"];
    let output = directory.command(probe).env("XDG_CACHE_HOME", directory.host("cache")).output().unwrap();
    let document = json(&Outcome::from(output).expect(0));
    let connections: Vec<_> = document["network"].as_array().unwrap().iter().map(|leg| &leg["connections"]).collect();
    assert_eq!(connections, [3, 2], "{document}");
}

#[test]
fn what_is_not_permitted_is_said_and_the_rest_is_done() {
    let directory = Directory::new();
    let served = ServerProcess::start(&directory.host(""));
    let document = json(&directory.run(&format!("probe {} --seconds 1 --write --json", served.urls()[1])).expect(0));
    assert_eq!(unmeasured(&document), ["network up", "storage read", "storage write"]);
    let refused = &document["not_measured"][0];
    assert!(refused["reason"].as_str().unwrap().contains("anonymous"), "{document}");
    assert!(TABLE.iter().any(|row| refused["error"] == row.name), "{document}");
    assert!(refused["at_fault"].is_string(), "{document}");
    let outcome = directory.run(&format!("probe {} --seconds 1 --direction up", served.urls()[1])).expect(4);
    assert!(outcome.stderr.contains("anonymous"), "{outcome:?}");
}

#[test]
fn scratch_files_are_written_and_go_away() {
    let directory = Directory::new();
    directory.put("remote/keep", "content");
    directory.put("local/keep", "content");
    let served = directory.serve();
    for url in served.urls() {
        let line = format!("probe {url}/remote/keep --seconds 1 --direction up --write --local local --json");
        let document = json(&directory.run(&line).expect(0));
        let measured = document["storage"].as_array().unwrap().iter().map(|leg| leg["leg"].as_str().unwrap());
        // A disk may be too slow or too fast for a result within a second.
        let unmeasured = unmeasured(&document);
        let legs: BTreeSet<_> = measured.chain(unmeasured.iter().copied().filter(|leg| *leg != "files")).collect();
        assert_eq!(legs, ["own disk read", "own disk write", "storage read", "storage write"].into());
        assert!(unmeasured.contains(&"storage read"), "it is too small: {document}");
        match document["not_measured"].as_array().unwrap().iter().find(|leg| leg["leg"] == "files") {
            None => assert!(document["a_further_file"]["write_s"].as_f64().is_some(), "{document}"),
            Some(leg) => assert!(leg["reason"].as_str().unwrap().contains("too slow"), "{document}"),
        }
        assert_eq!([directory.names("remote"), directory.names("local")], [["keep"], ["keep"]]);
    }
}

#[test]
fn an_interrupted_probe_leaves_nothing() {
    let directory = Directory::new();
    directory.put("remote/keep", "content");
    let served = directory.serve();
    let url = format!("{}/remote/", served.urls()[0]);
    let mut command = towpath(["probe", &url, "--seconds", "1", "--direction", "down", "--write"]);
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = clock::now();
    while directory.names("remote").len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was written");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    Outcome::from(process.wait_with_output().unwrap()).expect(130);
    assert_eq!(directory.names("remote"), ["keep"]);
}

#[test]
fn what_a_tree_holds_is_what_is_predicted() {
    let directory = Directory::new();
    for name in ["tree/a", "tree/b/c", "tree/b/d"] {
        directory.put(name, "0123456789");
    }
    let served = directory.serve();
    let url = &served.urls()[0];
    for (set, direction, files) in
        [("tree".to_owned(), "up", 3), (format!("{url}/tree"), "down", 3), (format!("{url}/tree/a"), "down", 1)]
    {
        let document = json(&directory.run(&format!("probe {url} --seconds 1 --for {set} --json")).expect(0));
        let [prediction] = document["predictions"].as_array().unwrap().as_slice() else { panic!("{document}") };
        assert_eq!((&prediction["files"], &prediction["bytes"]), (&files.into(), &(files * 10).into()));
        assert_eq!(prediction["direction"], direction);
    }
}

#[test]
fn what_makes_no_sense_is_told() {
    let directory = Directory::new();
    for line in [
        "probe .",
        "probe http://localhost:1/ --connections 0",
        "probe http://localhost:1/ --connections 65",
        "probe http://localhost:1/ --connections 2 --sweep",
        "probe http://localhost:1/ --interval 9ms",
        "probe http://localhost:1/ --seconds 61",
        "probe http://localhost:1/ --files 3",
        "probe http://localhost:1/ --for x --files 3 --bytes 1GB",
    ] {
        directory.run(line).expect(2);
    }
    directory.run("probe http://127.0.0.1:1/ --seconds 1").expect(8);
}

#[test]
fn a_copy_over_a_long_path_takes_about_as_long_as_predicted() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    directory.put("big", &"0123456789abcdef".repeat(20_000_000 / 16));
    directory.put("remote/keep", "content");
    let script = format!(
        "{towpath} wan exec 2 -- {towpath} serve remote --listen 198.18.0.2:1094 --writable > ready &
        until grep -q listening ready; do :; done
        export XDG_CACHE_HOME=$PWD/cache
        {towpath} probe root://198.18.0.2// --seconds 3 --direction up --for big --json > probed &&
        {towpath} cp --json big root://198.18.0.2//big > copied",
        towpath = env!("CARGO_BIN_EXE_towpath")
    );
    let run = ["wan", "run", "--rtt", "20ms", "--rate", "50Mbit", "--", "sh", "-c", &script];
    Outcome::from(directory.command(run).output().unwrap()).expect(0);
    let probed: Value = serde_json::from_str(&directory.get("probed")).unwrap();
    let leg = &probed["network"][0];
    assert!((1..=4).contains(&leg["connections"].as_u64().unwrap()), "{leg}");
    assert!((0.019..0.1).contains(&leg["min_rtt_s"].as_f64().unwrap()), "{leg}");
    assert!((2e6..6.5e6).contains(&leg["settled_rate_bytes_per_s"].as_f64().unwrap()), "{leg}");
    let predicted = probed["predictions"][0]["seconds"].as_f64().unwrap();
    let copied: Value = serde_json::from_str(directory.get("copied").lines().last().unwrap()).unwrap();
    let took = copied["seconds"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&(took / predicted)), "{took} s instead of {predicted}");
}
