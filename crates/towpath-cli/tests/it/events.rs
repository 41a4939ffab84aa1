//! Events for programs: every written event has the fields in docs/reference/events.md, and every event described there
//! is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use serde_json::Value;
use towpath_store::sys::disk;

use super::program::{Directory, Outcome};

/// Fields by name: their types, and whether they are optional.
type Fields = BTreeMap<String, (Vec<String>, bool)>;

/// The fields of each event on the page; fields of all events have the key "".
fn documented() -> BTreeMap<String, Fields> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/events.md");
    let page = String::from_utf8(disk::read(&page, 1 << 20).unwrap()).unwrap();
    let mut events = BTreeMap::<String, Fields>::new();
    let mut event = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            event = heading.trim_matches('`').to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let [name, types, _] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
            let (types, is_optional) = types.strip_suffix(", optional").map_or((types, false), |types| (types, true));
            let types = types.split(" or ").map(str::to_owned).collect();
            events
                .entry(event.clone())
                .or_default()
                .insert(name.trim_end_matches('`').to_owned(), (types, is_optional));
        }
    }
    assert!(events.len() > 8 && events[""].len() == 2, "{events:?}");
    events
}

fn type_of(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.is_u64() => &["integer", "number"],
        Value::Number(_) => &["number"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["list"],
        Value::Object(_) => &["object"],
    }
}

/// Fails unless `event` has exactly the fields on the page.
fn check(event: &Value, documented: &BTreeMap<String, Fields>) {
    let name = event["event"].as_str().unwrap();
    let own = documented.get(name).unwrap_or_else(|| panic!("{name} is not on the page"));
    let fields: Fields = documented[""].iter().chain(own).map(|(name, field)| (name.clone(), field.clone())).collect();
    for (field, value) in event.as_object().unwrap() {
        let (types, _) = fields.get(field).unwrap_or_else(|| panic!("{field} of {name} is not on the page"));
        let is_right = type_of(value).iter().any(|one| types.iter().any(|told| told == one));
        assert!(is_right, "{field} of {name} is {value}, not {types:?}");
    }
    for (field, (_, is_optional)) in fields {
        assert!(is_optional || !event[&field].is_null() || field == "eta_s", "{name} has no {field}: {event}");
    }
}

fn parsed(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command, and returns its events.
fn run(directory: &Directory, line: &str, code: i32) -> Vec<Value> {
    directory.run(&format!("{line} --events events")).expect(code);
    let events = parsed(&directory.get("events"));
    let times: Vec<_> = events.iter().map(|event| event["at_s"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(events[0]["event"], "begin");
    assert_eq!(events.last().unwrap()["event"], "end", "{events:?}");
    events
}

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|event| event["event"] == name).count()
}

/// A copy waits for another copy that holds the upload of the same file; then both are ended.
fn waiting() -> Vec<Value> {
    let (directory, remote) = (Directory::new(), Directory::new());
    directory.put("large", &"x".repeat(65 << 20));
    let served = remote.serve();
    let url = format!("{}/large", served.urls()[0]);
    let copy = |limit| {
        let mut command = directory.command(["cp", "--events", "-", "--limit", limit, "large", &url]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        (process, lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()))
    };
    let (mut first, mut events) = copy("8Mbit");
    assert!(events.any(|event| event["event"] == "file_begin"));
    let (mut second, mut others) = copy("800Mbit");
    let notice = others.find(|event| event["event"] == "notice").unwrap();
    for process in [&mut first, &mut second] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    vec![notice]
}

#[test]
fn each_event_is_as_the_page_says() {
    let documented = documented();
    let directory = Directory::new();
    directory.put("large", &"content".repeat(1 << 19));
    directory.put("other/large", &"content".repeat(1 << 19));
    directory.put("s/d/a", "content");
    directory.put("s/b", "content");
    directory.put("t/x", "not in s");

    let copy = run(&directory, "cp --limit 16Mbit large copy", 0);
    assert!(count(&copy, "progress") >= 1, "it takes more than a second: {copy:?}");
    let again = run(&directory, "cp -r s copies", 0);
    assert_eq!([count(&again, "file_begin"), count(&again, "file_done")], [2, 2]);
    let failed = run(&directory, "cp s/b copy", 6);
    assert_eq!([count(&failed, "file_failed"), count(&failed, "file_done")], [1, 0]);
    let skipped = run(&directory, "cp --skip-existing large copy", 0);
    assert_eq!([count(&skipped, "file_begin"), skipped.last().unwrap()["skipped"].as_u64().unwrap() as usize], [0, 1]);
    let several = run(&directory, "cp --source missing --source other/large large several", 0);
    assert_eq!(count(&several, "notice"), 1);
    let planned = run(&directory, "sync -n --delete s t", 0);
    let synced = run(&directory, "sync --delete s t", 0);
    assert!(count(&synced, "action") >= 2, "{synced:?}");
    let lost = run(&directory, "cp root://127.0.0.1:1//f t", 8);

    let all = [copy, again, failed, skipped, several, planned, synced, lost, waiting()].concat();
    all.iter().for_each(|event| check(event, &documented));
    let seen: BTreeSet<_> = all.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let told: BTreeSet<_> = documented.keys().map(String::as_str).filter(|name| !name.is_empty()).collect();
    assert_eq!(seen, told);
}

#[test]
fn events_and_data_do_not_mix() {
    let directory = Directory::new();
    directory.put("file", "content");
    for line in ["cp --events - file -", "cp --events - --json file copy"] {
        assert_eq!(directory.run(line).expect(2).stdout, "");
    }
    directory.put("source/new", "content");
    let outcome = directory.run("sync --dry-run --events - source copy").expect(0);
    assert_eq!(count(&parsed(&outcome.stdout), "action"), 2);
    directory.run("cp --events missing/events file copy").expect(2);
    let outcome = directory.run("cp --events - file copy").expect(0);
    assert_eq!(count(&parsed(&outcome.stdout), "file_done"), 1);
    let outcome = directory.run("cp --events events file -").expect(0);
    assert_eq!((outcome.stdout.as_str(), parsed(&directory.get("events")).len()), ("content", 2));
}

#[test]
fn a_reader_that_went_away_ends_the_copy() {
    let directory = Directory::new();
    for number in 0..1000 {
        directory.put(&format!("s/{number}"), "content");
    }
    let mut command = directory.command(["cp", "-r", "--events", "-", "s", "t"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(141);
    assert_eq!(outcome.stderr, "");
}
