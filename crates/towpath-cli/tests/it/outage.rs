//! Copies over an emulated path with packet loss and an outage of several seconds. Requires root, like `towpath wan`.

use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use towpath_store::sys::disk;
use towpath_testkit::pattern::Pattern;

use super::{
    program::{Directory, towpath},
    wan::is_root,
};

const SIZE: usize = 16_000_000;
const PATTERN: Pattern = Pattern::new(23);

/// Bytes that each copy has moved when the outage begins. At this rate no copy ends before the slowest has moved them.
const BEFORE: u64 = 1_000_000;
const LIMIT: &str = "25Mbit";

/// Two hosts and the path between them. Dropping it kills the processes in the hosts.
struct Lab {
    holder: Child,
    name: String,
}

impl Lab {
    fn start() -> Self {
        let name = format!("outage-{}", std::process::id());
        let link = ["--rtt", "20ms", "--rate", "200Mbit", "--loss", "0.02"];
        let mut command = towpath(["wan", "up", "--foreground", "--name", &name].into_iter().chain(link));
        let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
        let hosts = output(&mut holder).next().unwrap().unwrap();
        assert_eq!(hosts, "hosts: 1 198.18.0.1, 2 198.18.0.2");
        Self { holder, name }
    }

    /// Returns the program in a host, with captured output.
    fn command(&self, host: &str, directory: &Directory, words: &[&str]) -> Command {
        let exec = ["wan", "exec", "--name", &self.name, host, "--", env!("CARGO_BIN_EXE_towpath")];
        let mut command = directory.command(exec.into_iter().chain(words.iter().copied()));
        command.env("XDG_CACHE_HOME", directory.host("cache")).stdout(Stdio::piped());
        command
    }

    /// Drops all packets in both directions.
    fn lose_all_for(&self, time: &str) {
        assert!(towpath(["wan", "set", "--name", &self.name, "--outage", time]).status().unwrap().success());
    }

    /// Returns the packets lost by outages and at random, per direction.
    fn lost(&self) -> Vec<[u64; 2]> {
        let stats = towpath(["wan", "stats", "--json", "--name", &self.name]).output().unwrap().stdout;
        let stats: Value = serde_json::from_slice(&stats).unwrap();
        let counts = ["outage_segments", "lost_segments"];
        let of = |link: &Value| counts.map(|count| link["counters"][count].as_u64().unwrap());
        stats["links"].as_array().unwrap().iter().map(of).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.holder), Signal::TERM);
        let _ = self.holder.wait();
    }
}

fn output(process: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(process.stdout.take().unwrap()).lines()
}

/// A running copy.
struct CopyProcess {
    process: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl CopyProcess {
    fn start(lab: &Lab, directory: &Directory, from: &str, to: &str) -> Self {
        let mut command = lab.command("1", directory, &["cp", "-q", "--events", "-", "--limit", LIMIT, from, to]);
        let mut process = command.spawn().unwrap();
        let events = output(&mut process);
        Self { process, events }
    }

    /// Waits until the copy has moved part of its data.
    fn advance(&mut self) {
        let has_moved = |event: &Value| event["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= BEFORE);
        let is_there = self.events.any(|event| has_moved(&serde_json::from_str(&event.unwrap()).unwrap()));
        assert!(is_there, "it ended: {:?}", self.process.wait());
    }

    fn finish(mut self) {
        // The output must be read, or the copy blocks.
        self.events.for_each(|event| drop(event.unwrap()));
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn copies_outlive_losses_and_an_outage() {
    if !is_root() {
        return;
    }
    let (local, remote) = (Directory::new(), Directory::new());
    for directory in [&local, &remote] {
        disk::write(&directory.host("file"), &PATTERN.bytes(0, SIZE)).unwrap();
    }
    let lab = Lab::start();
    let serve = ["serve", "--writable", "--listen", "198.18.0.2:1094", "."];
    let mut server = lab.command("2", &remote, &serve).spawn().unwrap();
    assert_eq!(output(&mut server).next().unwrap().unwrap(), "listening on 198.18.0.2:1094");

    let mut copies = Vec::new();
    for (scheme, url) in [("root", "root://198.18.0.2:1094/"), ("http", "http://198.18.0.2:1094")] {
        copies.push(CopyProcess::start(&lab, &local, &format!("{url}/file"), &format!("{scheme}-down")));
        copies.push(CopyProcess::start(&lab, &local, "file", &format!("{url}/{scheme}-up")));
    }
    copies.iter_mut().for_each(CopyProcess::advance);
    lab.lose_all_for("5s");
    copies.into_iter().for_each(CopyProcess::finish);

    for (directory, way) in [(&local, "down"), (&remote, "up")] {
        for scheme in ["root", "http"] {
            let copy = disk::read(&directory.host(&format!("{scheme}-{way}")), SIZE as u64 + 1).unwrap();
            assert_eq!(copy.len(), SIZE, "{scheme} {way}");
            PATTERN.check(0, &copy);
        }
    }
    let lost = lab.lost();
    // The outage does not affect a server without requests.
    let has_lost = |what: usize| lost.iter().filter(|counts| counts[what] > 0).count();
    assert!(lost.len() == 2 && has_lost(0) >= 1 && has_lost(1) == 2, "{lost:?}");
    drop(lab);
    server.wait().unwrap();
}
