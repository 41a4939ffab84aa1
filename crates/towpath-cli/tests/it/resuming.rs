//! `towpath cp` killed in the middle of a large file, and run again.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
    time::Duration,
};

use towpath_store::sys::{clock, disk};
use towpath_testkit::pattern::Pattern;

use super::program::{Directory, Outcome, Served};

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

/// File data that the server has received and sent.
fn moved(server: &Served) -> u64 {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let is_moved =
        |line: &&str| line.starts_with("towpath_received_bytes_total") || line.starts_with("towpath_sent_bytes_total");
    text.lines().filter(is_moved).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64).sum()
}

/// Copies `from` to `to`, which lies in `destination`; kills it in the middle, and runs it again.
fn kill_and_run_again(from: &str, to: &str, working: &Directory, destination: &Directory, server: &Served) {
    let before = moved(server);
    let mut copying = working.command(["cp", from, to]).stderr(Stdio::piped()).spawn().unwrap();
    let start = clock::now();
    while staged(destination) < KILLED_AT {
        assert!(start.elapsed() < HANG && copying.try_wait().unwrap().is_none(), "{copying:?}");
        std::thread::yield_now();
    }
    copying.kill().unwrap();
    copying.wait().unwrap();
    assert!(!destination.names(".").contains(&"copy".to_owned()), "it was killed too late");
    Outcome::from(working.command(["cp", from, to]).output().unwrap()).expect(0);
    PATTERN.check(0, &disk::read(&destination.host("copy"), SIZE + 1).unwrap());
    // From the beginning it would have been what was there once more.
    let again = moved(server) - before - SIZE;
    assert!(again < KILLED_AT * 3 / 4, "{again} bytes were moved twice");
}

#[test]
fn a_copy_that_was_killed_goes_on() {
    let (local, remote) = (Directory::new(), Directory::new());
    disk::write(&local.host("large"), &PATTERN.bytes(0, SIZE as usize)).unwrap();
    let server = remote.serve();
    let urls = server.urls();
    for url in &urls {
        kill_and_run_again("large", &format!("{url}/copy"), &local, &remote, &server);
        std::fs::rename(remote.host("copy"), remote.host("large")).unwrap();
    }
    for url in &urls {
        kill_and_run_again(&format!("{url}/large"), "copy", &local, &local, &server);
        std::fs::rename(local.host("copy"), local.host("before")).unwrap();
    }
}
