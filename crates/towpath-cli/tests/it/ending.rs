//! How commands end: exit codes, messages, broken pipes, signals.

use std::{
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use towpath_store::sys::clock;

use super::program::{Directory, Outcome, towpath};

/// Timeout of each step; only a hang takes this long.
const HANG: Duration = Duration::from_secs(60);

fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Waits until `condition` holds.
fn until(condition: impl Fn() -> bool) {
    let start = clock::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn a_copy_whose_reader_went_away_did_not_succeed() {
    let directory = Directory::new();
    for number in 0..1000 {
        directory.put(&format!("s/{number}"), "content");
    }
    let mut command = directory.command(["cp", "-r", "--json", "s", "t"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(141);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn nobody_has_to_listen_to_complaints() {
    let directory = Directory::new();
    for (line, code) in [("cp missing x", 3), ("rm missing other", 3), ("ls -R missing", 3), ("cp -q x", 2)] {
        let mut process = directory.command(line.split(' ')).stderr(Stdio::piped()).spawn().unwrap();
        drop(process.stderr.take());
        assert_eq!(process.wait().unwrap().code(), Some(code), "{line}");
    }
}

#[test]
fn a_signal_ends_a_command_that_cannot_write() {
    let directory = Directory::new();
    directory.put("big", &"x".repeat(8 << 20));
    for line in ["cat big", "cp big -"] {
        let mut command = directory.command(line.split(' '));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // From now on signals are handled, and the pipe is full.
        let mut output = process.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        send(&process, Signal::INT);
        // It ends on its own: a command that has to be killed prints no message.
        let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(130);
        assert!(outcome.stderr.contains("interrupted"), "{line}: {outcome:?}");
    }
}

#[test]
fn a_full_disk_is_told_from_other_failures() {
    let directory = Directory::new();
    directory.put("file", "content");
    for line in ["cat file", "cp file -", "stat file", "ls ."] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = directory.command(line.split(' ')).stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(9), "{line}");
    }
}

#[test]
fn signals_may_all_be_ignored() {
    let line = format!("trap '' INT TERM HUP; exec {} ls /", env!("CARGO_BIN_EXE_towpath"));
    let outcome = Outcome::from(Command::new("sh").args(["-c", &line]).output().unwrap()).expect(0);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn an_interrupted_copy_leaves_nothing_incomplete() {
    let directory = Directory::new();
    let served = directory.serve();
    let [root, http] = served.urls();
    let staged = || directory.host(".towpath").read_dir().is_ok_and(|mut entries| entries.next().is_some());
    for (target, signal) in [(&format!("{root}/file"), Signal::TERM), (&format!("{http}/file"), Signal::HUP)] {
        let mut command = directory.command(["cp", "-", target]);
        let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        input.write_all(&[7; 4 << 20]).unwrap();
        until(staged);
        send(&process, signal);
        let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(128 + signal.as_raw());
        assert!(outcome.stderr.ends_with("towpath: cp: interrupted\n"), "it cannot go on: {outcome:?}");
        assert_eq!(directory.names(""), [""; 0], "{target}");
        until(|| !staged());
    }
}

#[test]
fn the_standard_output_holds_one_thing() {
    let directory = Directory::new();
    directory.put("file", "content");
    assert_eq!(directory.run("cp file -").expect(0).stdout, "content");
    for flag in
        ["--json", "--events -", "--checksum md5", "--skip-existing", "--failed-to list", "--third-party only", "-r"]
    {
        assert_eq!(directory.run(&format!("cp {flag} file -")).expect(2).stdout, "", "{flag}");
    }
}

#[test]
fn settings_that_make_no_sense_are_said_to() {
    let directory = Directory::new();
    directory.put("not-a-certificate", "x");
    directory.run("serve").expect(2);
    directory.run("serve . --listen 127.0.0.1:0 --certificate not-a-certificate --key not-a-certificate").expect(2);
    let served = directory.serve();
    directory.run(&format!("serve . --listen {}", served.address)).expect(8);
    let mut command = towpath(["config", "show", "serve"]);
    let outcome = Outcome::from(command.env("TOWPATH_SERVE_ACCESS_LOG_PATH", "-").output().unwrap()).expect(0);
    assert!(
        outcome.stdout.contains("access_log.path = \"-\"  # environment TOWPATH_SERVE_ACCESS_LOG_PATH"),
        "{outcome:?}"
    );
}

#[test]
fn messages_name_the_object_as_the_user_did() {
    let directory = Directory::new();
    directory.put("file", "content");
    for url in ["root://127.0.0.1:1//a", "http://127.0.0.1:1/a"] {
        let lines = ["ping URL", "cp file URL", "cp -r file URL", "cp URL x", "cp URL -", "cp - URL", "cp URL.meta4 x"];
        for line in lines {
            let outcome = directory.run(&line.replace("URL", url)).expect(8);
            let command = line.split(' ').next().unwrap();
            assert!(outcome.stderr.starts_with(&format!("towpath: {command}: {url}")), "{line}: {outcome:?}");
        }
    }
}
