//! `towpath cp` of a large file to a server, killed in the middle, and run again.

use std::time::Duration;

use towpath_store::sys::{clock, disk};
use towpath_testkit::pattern::Pattern;

use super::program::{Directory, Outcome};

const SIZE: u64 = 160 << 20;
/// What must be there before the copy is killed.
const KILLED_AT: u64 = 40 << 20;
const PATTERN: Pattern = Pattern::new(21);

/// Nothing here takes so long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

/// Bytes of what is staged in `directory`.
fn staged(directory: &Directory) -> u64 {
    let Ok(entries) = directory.host(".towpath").read_dir() else { return 0 };
    let bytes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    bytes.max().unwrap_or(0)
}

/// Copies `from` to `to`, which lies in `destination`; kills it in the middle, and runs it again.
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
    let total: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let legs = &total["explained"]["legs"];
    let moved = ["in", "out"].iter().filter_map(|leg| legs[leg]["bytes"].as_u64()).sum::<u64>();
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
