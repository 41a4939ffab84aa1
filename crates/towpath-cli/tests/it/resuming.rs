//! `towpath cp` of a large file to and from a server, killed before it ends, and run again.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::Value;
use towpath_store::sys::{clock, disk};
use towpath_testkit::pattern::Pattern;

use super::{
    plain_server::{PlainServer, Version},
    program::{Directory, Outcome, ServerProcess},
};

const SIZE: u64 = 160 << 20;
/// Bytes that must have arrived before the copy is killed.
const KILLED_AT: u64 = 40 << 20;
/// Bytes that the next run must find: incomplete blocks have no record in the journal.
const FOUND: u64 = KILLED_AT / 2;
/// Maximum transfer besides the missing data: the beginning of the file, headers, checksums, and data in flight when
/// the first run was killed.
const BESIDE: u64 = 4 << 20;
const PATTERN: Pattern = Pattern::new(21);

/// The file at a server other than towpath, and the file that replaces it.
const OLD: Version = Version { etag: "\"1\"", content: PATTERN };
const NEW: Version = Version { etag: "\"2\"", content: Pattern::new(22) };

/// Timeout of each step; only a hang takes this long.
const HANG: Duration = Duration::from_secs(120);

/// Returns the bytes of staging files in `directory`.
fn staged(directory: &Directory) -> u64 {
    let Ok(entries) = directory.host(".towpath").read_dir() else { return 0 };
    let bytes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    bytes.max().unwrap_or(0)
}

/// Returns the bytes carried by connections, from the last line of `--json`.
fn moved(told: &str) -> u64 {
    let total: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let legs = &total["explained"]["legs"];
    ["in", "out"].iter().filter_map(|leg| legs[leg]["bytes"].as_u64()).sum()
}

/// Copies `from` to `to` in `destination`, kills the copy before it ends, and runs it again.
fn kill_and_run_again(from: &str, to: &str, working: &Directory, destination: &Directory) {
    // Slow enough to be killed in time, however busy the machine is.
    let mut copying = working.command(["cp", "--limit", "400Mbit", from, to]).spawn().unwrap();
    let start = clock::now();
    while staged(destination) < KILLED_AT {
        assert!(start.elapsed() < HANG && copying.try_wait().unwrap().is_none(), "{copying:?}");
        std::thread::yield_now();
    }
    copying.kill().unwrap();
    copying.wait().unwrap();
    assert!(!destination.names(".").contains(&"copy".to_owned()), "it was killed too late");
    let told = Outcome::from(working.command(["cp", "--json", from, to]).output().unwrap()).expect(0).stdout;
    PATTERN.check(0, &disk::read(&destination.host("copy"), SIZE + 1).unwrap());
    let moved = moved(&told);
    assert!(moved > SIZE / 4 && moved < SIZE - KILLED_AT / 2, "{moved} bytes were moved by the second run");
}

#[test]
fn an_upload_that_was_killed_goes_on() {
    let (local, remote) = (Directory::new(), Directory::new());
    disk::write(&local.host("large"), &PATTERN.bytes(0, SIZE as usize)).unwrap();
    let server = remote.serve();
    for url in server.urls() {
        kill_and_run_again("large", &format!("{url}/copy"), &local, &remote);
        disk::rename(&remote.host("copy"), &remote.host("large")).unwrap();
    }
}

/// Starts to copy `url` to `copy`, and kills the copy before it ends.
fn kill_a_download(working: &Directory, url: &str) {
    // Slow enough to be killed in time, although progress is reported only once a second.
    let mut command = working.command(["cp", "--limit", "200Mbit", "--events", "-", url, "copy"]);
    let mut copying = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(copying.stdout.take().unwrap()).lines();
    let has_come = |event: &Value| event["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= KILLED_AT);
    let is_there = events.any(|event| has_come(&serde_json::from_str(&event.unwrap()).unwrap()));
    assert!(is_there, "it ended before it was killed");
    copying.kill().unwrap();
    copying.wait().unwrap();
    assert!(!working.host("copy").exists(), "it was killed too late");
}

/// Copies `url` to `copy` again, and checks it. Returns the bytes that were stored already, and the bytes carried by
/// connections.
fn go_on(working: &Directory, url: &str, content: Pattern) -> (u64, u64) {
    let told = working.run(&format!("cp --json --events events {url} copy")).expect(0).stdout;
    let copy = disk::read(&working.host("copy"), SIZE + 1).unwrap();
    assert_eq!(copy.len() as u64, SIZE);
    content.check(0, &copy);
    let events = working.get("events");
    let mut events = events.lines().map(|event| serde_json::from_str::<Value>(event).unwrap());
    let begin = events.find(|event| event["event"] == "file_begin").unwrap();
    let present = begin["present_bytes"].as_u64().unwrap();
    let summary: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let resumed = ["files_resumed", "bytes_resumed"].map(|field| summary[field].as_u64().unwrap());
    assert_eq!(resumed, [u64::from(present > 0), present]);
    (present, moved(&told))
}

#[test]
fn a_download_that_was_killed_goes_on() {
    let (local, remote) = (Directory::new(), Directory::new());
    disk::write(&remote.host("large"), &PATTERN.bytes(0, SIZE as usize)).unwrap();
    // A file that was just modified might change again without a new version over xroot.
    let large = disk::open(&remote.host("large")).unwrap();
    large.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let server = ServerProcess::start(&remote.host(""));
    for url in server.urls() {
        let url = format!("{url}/large");
        kill_a_download(&local, &url);
        let (present, moved) = go_on(&local, &url, PATTERN);
        assert!(present >= FOUND, "{present} bytes were left by the first run");
        assert!(moved < SIZE - present + BESIDE, "{moved} bytes were moved by the second run, {present} were there");
        disk::rename(&local.host("copy"), &local.host("done")).unwrap();
    }
}

/// Resumes the copy of the file at `server`, which has `version` of it, and returns the bytes that were stored
/// already. All requests but the first, which determines the version, are conditional on it.
fn go_on_from(server: &PlainServer, working: &Directory, version: Version) -> u64 {
    let before = server.parts().len();
    let (present, _) = go_on(working, &server.url(), version.content);
    let parts = server.parts().split_off(before);
    assert!(parts.iter().any(|part| part.if_match.is_some()));
    assert!(parts.iter().all(|part| part.first == 0 || part.if_match.as_deref() == Some(version.etag)), "{parts:?}");
    let sent = parts.iter().map(|part| part.bytes).sum::<u64>();
    assert!(sent < SIZE - present + BESIDE, "{sent} bytes were sent, {present} were there");
    present
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_from_a_server_of_others_goes_on_too() {
    let (local, server) = (Directory::new(), PlainServer::start(SIZE, OLD));
    kill_a_download(&local, &server.url());
    let present = go_on_from(&server, &local, OLD);
    assert!(present >= FOUND, "{present} bytes were left by the first run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_begins_anew_if_the_file_has_become_another_one() {
    let (local, server) = (Directory::new(), PlainServer::start(SIZE, OLD));
    kill_a_download(&local, &server.url());
    server.change(NEW);
    assert_eq!(go_on_from(&server, &local, NEW), 0, "nothing of the old file is of use");
    disk::rename(&local.host("copy"), &local.host("new")).unwrap();
    // The stored parts belong to the old version, and are usable if that version returns.
    server.change(OLD);
    let present = go_on_from(&server, &local, OLD);
    assert!(present >= FOUND, "{present} bytes were left by the first run");
}
